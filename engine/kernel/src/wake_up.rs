//! What one thread of a supervisor wakes another with that waits in poll(2).

use crate::{KernelError, Result};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// Readable once something was written to it, until it is read.
pub fn make() -> Result<EventFd> {
    EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
        .map_err(|errno| KernelError { what: "make eventfd".into(), source: errno.into() })
}
