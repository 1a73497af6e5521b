//! Raw system calls behind the safe functions of this crate.

use crate::{KernelError, Result};

/// Makes a system call and turns a failure into an error that says what was tried.
///
/// # Safety
///
/// As for the call itself: pointers among `arguments` must be valid for what the call does.
pub unsafe fn call(what: &str, number: i64, arguments: [u64; 6]) -> Result<u64> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller vouches for the arguments; libc::syscall takes them as machine words.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result == -1 { Err(KernelError::last(what)) } else { Ok(result as u64) }
}

/// A copy of this process with the calling thread alone: 0 in the copy, its pid here.
///
/// # Safety
///
/// The copy may make system calls only: what other threads had locked stays locked in it.
pub unsafe fn fork() -> Result<i32> {
    // SAFETY: without CLONE_VM the child shares nothing with us; the caller vouches for the rest.
    unsafe { call("fork", libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0]) }
        .map(|pid| pid as i32)
}
