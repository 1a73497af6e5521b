//! Processes made by vfork(2), and by what posix_spawn(3) is made of ([decision
//! 0033](../../../docs/decisions/)): they have their maker's memory, and that stands still until
//! they have begun another program or ended.
//!
//! Their bodies have one memory, too. Neither moves meanwhile; should the child have to go home, it
//! takes a copy along and its maker goes on as after fork.

use crate::tracing_loop::Tracing;
use migrate::{MigrateError, Result};
use wire::ids::GuestTid;

/// Why a process that stands still does not move, nor the one for which it does.
pub(crate) fn refusal() -> MigrateError {
    let text = "it shares its memory with a process that has just been made (vfork, posix_spawn), \
                until that begins its program; try again";
    MigrateError::refused("vfork", text)
}

impl Tracing<'_> {
    /// A process that had this one's memory is done with it.
    pub(crate) fn child_is_done(&mut self, child: GuestTid) -> Result<()> {
        let only = {
            let mut state = self.shared.lock();
            let has_waited = state.waits_for.take_if(|waited| *waited == child).is_some();
            state.threads.keys().next().copied().filter(|_| has_waited)
        };
        only.map_or(Ok(()), |tid| self.go_on_in_agreement(tid))
    }
}
