//! What commands that somebody times (`osmos time`) have used away, with all their descendants.
//! Home's kernel adds up for a parent what its children have used at home; nobody but the daemon
//! knows of the rest.
//!
//! A tally is kept from when its command is managed until it was asked for, also from one daemon to
//! the next ([`crate::roster`]). A command that is timed within another one counts for both.

use super::Daemon;
use super::requests::{failure, no_process};
use crate::control::{Answer, Caller};
use crate::process::Process;
use crate::procfs;
use crate::roster::KeptTally;
use crate::supervisor::Identity;
use std::collections::BTreeMap;
use tokio::sync::oneshot;
use wire::control::{Failure, Reply};
use wire::ids::HomePid;
use wire::processor_time::ProcessorTime;

/// Tallies at one time. Of those that nobody has asked for, the oldest goes.
const TALLIES_MAX: usize = 1_024;
/// Parents, grandparents and so on that are looked at to find a managed one.
const ANCESTORS_MAX: usize = 64;
/// Commands that are timed within each other.
const DEPTH_MAX: usize = 64;

#[derive(Default)]
pub struct Tallies {
    known: BTreeMap<Identity, KeptTally>,
    /// Who waits for the end of processes that have ended already.
    askers: Vec<(Identity, oneshot::Sender<Answer>)>,
}

impl Tallies {
    pub fn take_over(&mut self, kept: Vec<KeptTally>) {
        self.known.extend(kept.into_iter().map(|tally| (tally.command, tally)));
    }

    /// The tally itself and those that it is within, the innermost first.
    fn chain(&self, of: Option<Identity>) -> impl Iterator<Item = &KeptTally> {
        let first = of.and_then(|command| self.known.get(&command));
        let next = |tally: &&KeptTally| self.known.get(&tally.within?);
        std::iter::successors(first, next).take(DEPTH_MAX)
    }

    fn is_within(&self, of: Option<Identity>, command: Identity) -> bool {
        self.chain(of).any(|tally| tally.command == command)
    }
}

impl Daemon {
    /// The tally that a process counts for whose parent this is.
    pub(super) fn tally_of_ancestor(&self, parent: i32) -> Option<Identity> {
        if self.tallies.known.is_empty() {
            return None;
        }
        self.nearest_managed(parent)?.tally
    }

    /// Whether a child of that process has inherited the filter of `osmos run --mobile`.
    pub(super) fn comes_of_mobile(&self, parent: i32) -> bool {
        let is_any = self.processes.values().any(|process| process.is_mobile);
        is_any && self.nearest_managed(parent).is_some_and(|process| process.is_mobile)
    }

    /// This process, or the nearest of its ancestors, that is managed.
    pub(super) fn nearest_managed(&self, mut pid: i32) -> Option<&Process> {
        for _ in 0..ANCESTORS_MAX {
            if let Some(process) = self.processes.get(&HomePid(pid)) {
                return Some(process);
            }
            pid = procfs::read_stat(pid)?.parent;
        }
        None
    }

    /// From here on a process and its descendants are added up.
    pub(super) fn begin_tally(&mut self, pid: HomePid) -> Result<(), Failure> {
        let process = self.processes.get_mut(&pid).ok_or_else(|| no_process(pid))?;
        let command = Identity { pid: pid.0, started_ticks: process.started_ticks };
        if process.tally == Some(command) {
            return Ok(());
        }
        let within = process.tally.replace(command);
        let tally =
            KeptTally { command, uid: process.owner.uid, within, away: ProcessorTime::default() };
        self.roster.keep_tally(&tally);
        self.keep_process(pid);
        if self.tallies.known.len() >= TALLIES_MAX {
            self.drop_oldest_tally();
        }
        self.tallies.known.insert(command, tally);
        Ok(())
    }

    fn drop_oldest_tally(&mut self) {
        if let Some(oldest) = self.tallies.known.keys().min_by_key(|command| command.started_ticks)
        {
            self.end_tally(*oldest);
        }
    }

    /// A process has ended that had used this away.
    pub(super) fn add_to_tally(&mut self, of: Option<Identity>, away: ProcessorTime) {
        let commands: Vec<Identity> = self.tallies.chain(of).map(|tally| tally.command).collect();
        for command in commands {
            if let Some(tally) = self.tallies.known.get_mut(&command)
                && away != ProcessorTime::default()
            {
                tally.away = tally.away.plus(away);
                self.roster.keep_tally(tally);
            }
            self.answer_askers(command);
        }
    }

    /// What the command `pid` of the caller, which has ended, and its descendants have used away.
    pub(super) fn ask_tally(&mut self, caller: Caller, pid: i32, answer: oneshot::Sender<Answer>) {
        let is_callers = |tally: &&KeptTally| caller.uid == 0 || caller.uid == tally.uid;
        let of_number = self.tallies.known.values().filter(|tally| tally.command.pid == pid);
        let latest = of_number.filter(is_callers).max_by_key(|tally| tally.command.started_ticks);
        let Some(command) = latest.map(|tally| tally.command) else {
            let text = format!("nothing is known of a command {pid} that is timed");
            let _ = answer.send(Answer::One(Reply::Error(failure("no-tally", text))));
            return;
        };
        self.tallies.askers.push((command, answer));
        self.answer_askers(command);
    }

    /// Tells those who ask for a tally, unless the end of one of its processes is yet to be heard.
    fn answer_askers(&mut self, command: Identity) {
        if self.tallies.askers.iter().all(|(asked, _)| *asked != command) || self.is_open(command) {
            return;
        }
        let Some(away) = self.tallies.known.get(&command).map(|tally| tally.away) else { return };
        let second = |ns: u64| ns as f64 / 1e9;
        let reply = Reply::TimeAway { user_s: second(away.user_ns), sys_s: second(away.system_ns) };
        let all = std::mem::take(&mut self.tallies.askers);
        let (told, others) = all.into_iter().partition(|(asked, _)| *asked == command);
        self.tallies.askers = others;
        let told: Vec<(Identity, oneshot::Sender<Answer>)> = told;
        for (_, answer) in told {
            // A caller that has gone away needs no answer.
            let _ = answer.send(Answer::One(reply.clone()));
        }
        self.end_tally(command);
    }

    /// Whether a process of the tally has ended and its supervisor has not said so yet.
    fn is_open(&self, command: Identity) -> bool {
        self.processes.values().any(|process| {
            let identity = Identity { pid: process.pid.0, started_ticks: process.started_ticks };
            self.tallies.is_within(process.tally, command) && !identity.is_alive()
        })
    }

    /// What goes on of it counts for what it was within.
    fn end_tally(&mut self, command: Identity) {
        let Some(ended) = self.tallies.known.remove(&command) else { return };
        self.roster.forget_tally(command);
        for tally in self.tallies.known.values_mut() {
            if tally.within == Some(command) {
                tally.within = ended.within;
                self.roster.keep_tally(tally);
            }
        }
        let members = self.processes.values_mut().filter(|process| process.tally == Some(command));
        let pids: Vec<HomePid> = members
            .map(|process| {
                process.tally = ended.within;
                process.pid
            })
            .collect();
        pids.into_iter().for_each(|pid| self.keep_process(pid));
    }
}
