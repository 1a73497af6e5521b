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
