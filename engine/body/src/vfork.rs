//! Processes made by vfork(2), and by what posix_spawn(3) is made of ([decision
//! 0033](../../../docs/decisions/)): they have their maker's memory, and that stands still until
//! they have begun another program or ended.
//!
//! Their bodies have one memory, too. Neither moves meanwhile; should the child have to go home, it
//! takes a copy along and its maker goes on as after fork.

use crate::tracing_loop::Tracing;
use migrate::{MigrateError, Result};
use wire::ids::GuestTid;

/// That a thread stands still, until a process that it has made is done with its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) tid: i32,
    pub(crate) child: GuestTid,
}

/// Why a process that stands still does not move, nor the one for which it does.
pub(crate) fn refusal() -> MigrateError {
    let text = "it shares its memory with a process that has just been made (vfork, posix_spawn), \
                until that begins its program; try again";
    MigrateError::refused("vfork", text)
}

impl Tracing<'_> {
    /// A process that had this one's memory is done with it.
    pub(crate) fn child_is_done(&mut self, child: GuestTid) -> Result<()> {
        let waiting = self.shared.lock().waiting.take_if(|waiting| waiting.child == child);
        waiting.map_or(Ok(()), |Waiting { tid, .. }| self.go_on_in_agreement(tid))
    }
}
