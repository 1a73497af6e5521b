//! Ranks of jobs end with the job server that has begun them, and so does all that they have
//! started.
//!
//! A job server ends what it has begun, and its ranks get SIGKILL from the kernel if it is killed.
//! What they have started is left then, here or away. The daemon knows which of its processes came
//! of which server: it watches each server, and looks again at each look at `/proc`, for what was
//! found too late, and for servers that have ended while there was no daemon.

use super::adopting::usual;
use super::inquiries::send_signal;
use super::requests::failure;
use super::{Daemon, Event};
use crate::control::Caller;
use crate::jobs::Known;
use crate::process::{Launch, Process, RankOf};
use crate::procfs;
use crate::supervisor::Identity;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, test_kill_process};
use std::collections::BTreeMap;
use tokio::task::AbortHandle;
use wire::control::Failure;
use wire::ids::{GlobalPid, HomePid};

/// A job server that has ranks here.
struct RankServer {
    job: GlobalPid,
    /// The task that waits for its end; none if it could not be begun.
    watch: Option<AbortHandle>,
    /// Its end was told.
    is_told: bool,
}

impl Drop for RankServer {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

#[derive(Default)]
pub struct RankServers(BTreeMap<Identity, RankServer>);

impl RankServers {
    pub fn pids(&self) -> impl Iterator<Item = i32> + '_ {
        self.0.keys().map(|server| server.pid)
    }
}

impl Daemon {
    /// What a process is a rank of that the caller begins for a job.
    pub(super) fn rank_of(&self, caller: Caller, job: GlobalPid) -> Result<RankOf, Failure> {
        let server = caller.pid.filter(|_| caller.node.is_none()).and_then(Identity::of);
        let Some(server) = server else {
            let text = "only a job server of this node, which this can see, has ranks here";
            return Err(failure("no-pid", text));
        };
        if job.home == self.me()
            && let Known::Runs(held) = self.jobs.find(job.pid.0)
            && caller.uid != 0
            && held.of.uid != caller.uid
        {
            let text = format!("job {} belongs to user {}", job.pid, held.of.uid);
            return Err(failure("not-allowed", text));
        }
        Ok(RankOf { job, server })
    }

    /// A managed process is a rank.
    pub(super) fn be_rank(&mut self, pid: HomePid, rank: RankOf) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.job = Some(rank);
        self.keep_process(pid);
        self.watch_rank_server(rank);
        if has_ended(rank.server) {
            self.end_ranks_of(rank.server);
        }
    }

    /// The job of the nearest managed ancestor.
    pub(super) fn job_of_ancestor(&self, parent: i32) -> Option<RankOf> {
        let is_any = self.processes.values().any(|process| process.job.is_some());
        is_any.then(|| self.nearest_managed(parent)?.job).flatten()
    }

    /// What ranks have started and left comes to the job server, which reaps it: it is managed as
    /// they are, and ends with them.
    pub(super) fn inherit_of_server(&mut self, pid: HomePid, server: i32) {
        let found = self.rank_servers.0.iter().find(|(of, _)| of.pid == server);
        let Some((server, of)) = found.filter(|(server, _)| !has_ended(**server)) else { return };
        let rank = RankOf { job: of.job, server: *server };
        let Some(ids) = procfs::read_ids(rank.server.pid) else { return };
        let is_of = |process: &&Process| process.job == Some(rank);
        let options = self.processes.values().find(is_of).map_or_else(usual, Process::options);
        let caller = Caller { uid: ids.uids[0], pid: None, node: None };
        match self.admit_process(caller, pid, options, Launch::Found) {
            Ok(()) => self.be_rank(pid, rank),
            Err(failure) => tracing::debug!("{pid} of a job stays unmanaged: {}", failure.text),
        }
    }

    fn watch_rank_server(&mut self, RankOf { job, server }: RankOf) {
        if self.rank_servers.0.get(&server).is_some_and(|of| of.watch.is_some()) {
            return;
        }
        let watch = self.watch_for(server, Event::RankServerEnded(server));
        let watch = watch.inspect_err(|error| {
            tracing::debug!("job server {} is looked for instead: {error}", server.pid);
        });
        let is_told = self.rank_servers.0.get(&server).is_some_and(|of| of.is_told);
        self.rank_servers.0.insert(server, RankServer { job, watch: watch.ok(), is_told });
    }

    /// Ends what is left of servers that have ended. What a rank was just about to start when it
    /// was killed is found here.
    pub(super) fn look_after_ranks(&mut self) {
        let ranks = self.processes.values().filter_map(|process| process.job);
        let ranks: BTreeMap<Identity, RankOf> = ranks.map(|rank| (rank.server, rank)).collect();
        // What has lost its parents may come to a server that has no rank any more.
        self.rank_servers.0.retain(|of, _| ranks.contains_key(of) || !has_ended(*of));
        for (server, rank) in ranks {
            match has_ended(server) {
                true => self.end_ranks_of(server),
                false => self.watch_rank_server(rank),
            }
        }
    }

    /// A job server has ended: nothing is to be left of its ranks, wherever they are.
    pub(super) fn end_ranks_of(&mut self, server: Identity) {
        let is_of = |process: &&Process| {
            process.job.is_some_and(|rank| rank.server == server) && !process.has_ended
        };
        let left = self.processes.values().filter(is_of);
        let left: Vec<(Identity, Option<RankOf>)> =
            left.map(|process| (process.identity(), process.job)).collect();
        let mut killed = 0;
        for (process, _) in &left {
            match send_signal(*process, Signal::KILL) {
                Ok(()) => killed += 1,
                // It has ended by itself.
                Err(Errno::SRCH) => (),
                Err(error) => tracing::warn!("cannot end {}, a rank: {error}", process.pid),
            }
        }
        let is_told = self.rank_servers.0.get_mut(&server).map(|of| &mut of.is_told);
        if let (Some(is_told @ false), Some((_, Some(rank)))) = (is_told, left.first()) {
            *is_told = true;
            let (job, pid) = (rank.job, server.pid);
            tracing::info!("job server {pid} of job {job} has ended: {killed} processes with it");
        }
    }
}

/// Whether it has, and not just whether it cannot be looked at now.
fn has_ended(server: Identity) -> bool {
    match procfs::read_stat(server.pid) {
        Some(stat) => stat.started_ticks != server.started_ticks || stat.has_ended(),
        None => {
            let exists = Pid::from_raw(server.pid).map(test_kill_process);
            exists.is_none_or(|exists| exists == Err(Errno::SRCH))
        }
    }
}
