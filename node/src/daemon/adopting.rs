//! Processes that run already and are put under Osmos: by whoever may move them, and by job servers
//! that have begun them.

use super::Daemon;
use super::requests::{failure, no_process};
use crate::control::Caller;
use crate::process::Launch;
use crate::procfs;
use wire::control::{Failure, ManageOptions, Placement, Reply};
use wire::ids::{GlobalPid, HomePid};
use wire::supervisor::Way;

impl Daemon {
    pub(super) fn adopt_as_asked(
        &mut self,
        caller: Caller,
        pid: HomePid,
        options: Option<ManageOptions>,
        job: Option<GlobalPid>,
    ) -> Result<Reply, Failure> {
        if let Some(options) = &options {
            if options.is_timed || options.cpu_baseline {
                let text = format!("cannot adopt {pid} so: it has begun");
                return Err(failure("cannot-adopt", text));
            }
            self.check_options(caller, options)?;
        }
        let rank = job.map(|job| self.rank_of(caller, job)).transpose()?;
        let is_new = !self.processes.contains_key(&pid);
        self.adopt(caller, pid, options)?;
        if is_new {
            self.acted_on(caller, pid, "adopt".to_owned());
        }
        if let Some(rank) = rank {
            self.be_rank(pid, rank);
        }
        Ok(Reply::Done)
    }

    /// Has a process be managed, and so if that is said.
    pub(super) fn adopt(
        &mut self,
        caller: Caller,
        pid: HomePid,
        options: Option<ManageOptions>,
    ) -> Result<(), Failure> {
        if self.processes.contains_key(&pid) {
            self.check_mover(caller, pid)?;
            if let Some(options) = options {
                self.give_options(pid, options);
            }
            return Ok(());
        }
        let refuse = |why: &str| Err(failure("cannot-adopt", format!("cannot adopt {pid}: {why}")));
        if pid.0 <= 1 {
            return refuse("only ordinary processes can be adopted");
        }
        if let Some(guest) = self.hosting.guests().find(|guest| guest.local_pid() == Some(pid.0)) {
            let home = guest.process.home;
            return refuse(&format!("it is a guest here; its home is node {home}"));
        }
        if pid.0 == std::process::id() as i32 {
            return refuse("it is the osmos daemon");
        }
        match procfs::read_stat(pid.0) {
            None => return Err(no_process(pid)),
            Some(stat) if stat.has_ended() => return refuse("it has ended"),
            Some(_) => (),
        }
        if procfs::read_program(pid.0).is_none() {
            return refuse("it is a kernel thread, or belongs to somebody else");
        }
        self.admit_process(caller, pid, options.unwrap_or_else(usual), Launch::Running)
    }
}

/// As Osmos thinks best.
pub(super) fn usual() -> ManageOptions {
    ManageOptions {
        placement: Placement::Balanced,
        storm_ms: None,
        cpu_baseline: false,
        freeze_budget_ms: None,
        way: Way::PreCopy,
        is_timed: false,
        is_mobile: false,
    }
}
