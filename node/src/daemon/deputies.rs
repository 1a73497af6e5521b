//! The supervisors at home of this node's own processes: one is started when a process is to leave,
//! and ends when it is home.

use super::listing::command_line_of;
use super::moves::{NotMoved, not_moved};
use super::{Daemon, Event};
use crate::openings::{Opening, Openings};
use crate::supervisor::Supervisor;
use std::os::fd::OwnedFd;
use wire::assignment::Half;
use wire::ids::HomePid;
use wire::peer::MoveEnd;
use wire::supervisor::{Berth, CLOCKS_PER_PACKET, ToDeputy};

impl Daemon {
    /// Tells the process's deputy, starting one if there is none.
    pub(super) fn tell_deputy(&mut self, pid: HomePid, message: &ToDeputy) -> Result<(), NotMoved> {
        self.tell_deputy_with(pid, message, None)
    }

    /// The same, with a descriptor.
    pub(super) fn tell_deputy_with(
        &mut self,
        pid: HomePid,
        message: &ToDeputy,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), NotMoved> {
        let Some(process) = self.processes.get(&pid) else { return Ok(()) };
        let deputy = match &process.deputy {
            Some(deputy) => deputy.clone(),
            None => self.start_deputy(pid)?,
        };
        if deputy.send(message, descriptor) {
            return Ok(());
        }
        Err(not_moved(MoveEnd::Stayed, "supervisor-deaf", "its supervisor does not answer"))
    }

    /// Tells a supervisor all that it needs to have its process leave, perhaps with others.
    pub(super) fn have_leave(
        &mut self,
        pid: HomePid,
        berth: Berth,
        group: Option<(&ToDeputy, OwnedFd)>,
    ) -> Result<(), NotMoved> {
        let node = berth.node;
        let me = self.me();
        if let Some(process) = self.processes.get_mut(&pid).filter(|process| process.at == me) {
            process.left_as = command_line_of(pid.0);
        }
        let waits = self.processes.get_mut(&pid).map(|p| std::mem::take(&mut p.waits));
        if let Some(waits) = waits.filter(|waits| !waits.is_empty()) {
            self.tell_deputy(pid, &ToDeputy::Waits(waits))?;
        }
        let clocks = self.processes.get(&pid).map(|p| p.clocks.clone()).unwrap_or_default();
        for part in clocks.chunks(CLOCKS_PER_PACKET) {
            self.tell_deputy(pid, &ToDeputy::Clocks(part.to_vec()))?;
        }
        let baseline = self.processes.get(&pid).and_then(|process| process.baseline.clone());
        if let Some(baseline) = baseline {
            self.tell_deputy(pid, &ToDeputy::Baseline(baseline))?;
        }
        if self.processes.get(&pid).is_some_and(|process| process.is_mobile) {
            self.tell_deputy(pid, &ToDeputy::Mobile)?;
        }
        if let Some((group, agreement)) = group {
            self.tell_deputy_with(pid, group, Some(agreement))?;
        }
        self.expect_price(pid);
        self.keep_process(pid);
        let freeze_budget = self.freeze_budget(pid);
        let limits = self.limits_of_move(pid, node);
        let way = self.way_of_move(pid, node);
        self.tell_deputy(pid, &ToDeputy::Leave { berth, freeze_budget, limits, way })
    }

    fn start_deputy(&mut self, pid: HomePid) -> Result<Supervisor, NotMoved> {
        let failed = |error: std::io::Error| {
            let text = format!("cannot start its supervisor: {error}");
            not_moved(MoveEnd::Stayed, "no-supervisor", text)
        };
        let Some(process) = self.processes.get(&pid) else {
            return Err(not_moved(MoveEnd::Stayed, "ended", "it has ended"));
        };
        let started = self.spawn.spawn(Half::Deputy { pid }, process.owner).map_err(failed)?;
        let deputy = self.serve_supervisor(started).map_err(failed)?;
        self.processes.bind(pid, deputy.clone());
        // Before it is told anything: the next daemon shall know whom to expect.
        self.keep_process(pid);
        Ok(deputy)
    }

    /// Lets go of a supervisor that has said its last word.
    pub(super) fn drop_deputy(&mut self, pid: HomePid) {
        self.processes.release(pid);
        self.release_files(pid);
    }

    /// Whoever waits to open what a process has shared away need not, for this one.
    pub(super) fn release_files(&self, pid: HomePid) {
        self.openings.iter().for_each(|openings| openings.release(pid));
    }

    /// Keeps others from opening a file for as long as this process is away.
    pub(super) fn guard(&mut self, pid: HomePid, file: Option<OwnedFd>) {
        let refusal = self.try_to_guard(pid, file).err();
        // One that does not take its answer gives the move up.
        let _ = self.tell_deputy(pid, &ToDeputy::Guarded { refusal });
    }

    fn try_to_guard(&mut self, pid: HomePid, file: Option<OwnedFd>) -> Result<(), String> {
        let file = file.ok_or("no file was handed over")?;
        let owner = self.processes.get(&pid).ok_or("it is not under osmos")?.owner;
        if self.openings.is_none() {
            let events = self.events.clone();
            // Nobody is left to be told once the daemon has ended.
            let report = move |opening| drop(events.blocking_send(Event::Opening(opening)));
            self.openings = Some(Openings::watch(report).map_err(|error| {
                format!("that takes a daemon that runs as root (fanotify: {error})")
            })?);
        }
        self.openings.as_ref().map_or(Ok(()), |openings| openings.guard(pid, file, owner.uid))
    }

    /// Has those come home whose memory somebody is just opening.
    pub(super) fn somebody_opens(&mut self, opening: &Opening) {
        for pid in &opening.holders {
            let deputy = self.processes.get(pid).and_then(|process| process.deputy.as_ref());
            match deputy {
                Some(deputy) => drop(deputy.send(&ToDeputy::Opened { by: opening.by }, None)),
                None => self.release_files(*pid),
            }
        }
    }
}
