//! What `/proc` says about a process. The parsers are pure functions of bytes.

pub mod cgroup;
pub mod flags;
pub mod holes;
pub mod limits;
pub mod maps;
pub mod mounts;
pub mod pagemap;
pub mod process;
pub mod room;
pub mod sleep;
pub mod system_v;

use crate::KernelError;
use std::io;

/// A file of `/proc/PID` that could not be used. If it is not there the process has ended, for
/// which the kernel has another number.
pub(crate) fn failed(what: String, source: io::Error) -> KernelError {
    match source.kind() {
        io::ErrorKind::NotFound => KernelError::errno(what, libc::ESRCH),
        _ => KernelError { what, source },
    }
}
