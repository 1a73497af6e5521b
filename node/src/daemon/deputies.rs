//! The supervisors at home of this node's own processes: one is started when a process is to leave,
//! and ends when it is home.

use super::Daemon;
use super::moves::{NotMoved, not_moved};
use crate::supervisor::Supervisor;
use std::os::fd::OwnedFd;
use wire::ids::HomePid;
use wire::peer::MoveEnd;
use wire::supervisor::{Half, ToDeputy};

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
        self.deputies.insert(deputy.id, pid);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.deputy = Some(deputy.clone());
        }
        // Before it is told anything: the next daemon shall know whom to expect.
        self.keep_process(pid);
        Ok(deputy)
    }

    /// Lets go of a supervisor that has said its last word.
    pub(super) fn drop_deputy(&mut self, pid: HomePid) {
        if let Some(process) = self.processes.get_mut(&pid)
            && let Some(deputy) = process.deputy.take()
        {
            self.deputies.remove(&deputy.id);
        }
    }
}
