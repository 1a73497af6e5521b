//! The allocator of this process.

/// Returns to the kernel what this process has freed and its allocator keeps: one that has had
/// large pieces keeps them for more of their kind.
pub fn return_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) takes a number, may be called by any thread at any time, and touches
    // nothing that is allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}
