//! Other bodies that a sandbox is begun with: each belongs to a thread of its own.

use crate::patience::Patience;
use crate::sandbox::{self, START_TIMEOUT, Sandbox};
use crate::tracee::{self, SeizeOptions, Stop};
use crate::{KernelError, Result};

/// Another body of a sandbox, traced by the calling thread, which is ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Companion(i32);

impl Sandbox {
    /// Takes hold of a companion, which another thread has had made.
    ///
    /// # Errors
    /// It has ended: its sandbox has.
    pub fn of_companion(body_pid: i32) -> Result<Sandbox> {
        let _limit = Patience::of(START_TIMEOUT);
        let options =
            SeizeOptions { follow: true, exit_kill: true, calls: true, ..Default::default() };
        tracee::seize(body_pid, options)?;
        let companion = Some(Companion(body_pid));
        let sandbox = Sandbox { init: None, companion, body_pid, next_tid: None };
        tracee::interrupt(body_pid)?;
        match tracee::wait(body_pid)? {
            Stop::Interrupted | Stop::Group(_) => Ok(sandbox),
            other => {
                let what = format!("catch a companion: it was {other:?}");
                Err(KernelError::errno(what, libc::ESRCH))
            }
        }
    }

    /// Who calls this sees to the end of a companion.
    pub fn let_companion_live(&mut self) {
        if let Some(companion) = self.companion.take() {
            std::mem::forget(companion);
        }
    }
}

impl Drop for Companion {
    /// It is a zombie, and keeps its sandbox, until its tracer has seen its end.
    fn drop(&mut self) {
        sandbox::end(self.0);
    }
}
