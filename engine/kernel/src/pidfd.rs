//! Descriptors of processes, and through them of what processes hold.

use crate::{Result, sys};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A descriptor that names this very process for good (pidfd_open(2)).
pub fn open(pid: i32) -> Result<OwnedFd> {
    // SAFETY: two integers.
    let fd = unsafe { sys::call("open pidfd", libc::SYS_pidfd_open, [pid as u64, 0, 0, 0, 0, 0]) }?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A duplicate of descriptor `number` of that process (pidfd_getfd(2)).
pub fn duplicate_from(process: &OwnedFd, number: i32) -> Result<OwnedFd> {
    let arguments = [process.as_raw_fd() as u64, number as u64, 0, 0, 0, 0];
    // SAFETY: three integers.
    let fd = unsafe { sys::call("take descriptor", libc::SYS_pidfd_getfd, arguments) }?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
