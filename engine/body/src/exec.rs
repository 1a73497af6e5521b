//! Another program for the process ([decision 0032](../../../docs/decisions/)): it is begun at
//! home, where all is that it gets, and nothing of what is here goes along.

use crate::notices::{self, needs_home};
use crate::state::{Shared, State};
use kernel::seccomp::Notification;
use std::sync::Arc;
use wire::forward::{Call, ToHome};

/// Why a program is begun by a process that is home.
pub(crate) const AT_HOME: &str = "exec";

/// What is to be sent home for execve(2). If home makes the call, this body is released; if the
/// call fails, its reply comes as that of any other.
pub(crate) fn forward(shared: &Arc<Shared>, state: &mut State, n: &Notification) -> Option<Call> {
    let thread = state.threads.get(&(n.tid as i32))?;
    // Other threads end with the call; a signal that waits here for its handler has to wait in the
    // kernel; and files and memory that are mapped shared are the body's until it has come home.
    let has_more = state.threads.len() > 1 || !thread.signals.is_empty();
    if has_more || shared.files.is_any() || shared.has_lasting() {
        return needs_home(shared, state, n, AT_HOME);
    }
    let (process, thread) = (state.meter.clock(), thread.meter.clock());
    shared.queue(ToHome::Clocks { process, thread });
    notices::forward(shared, state, n, None)
}
