//! The allocator of this process.

/// What is larger is mapped by itself, and goes back to the kernel when it is freed.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: i32 = 1 << 20;

/// Has all threads of this process share one heap, so that what one of them has freed can be given
/// back whole: malloc_trim(3) leaves the end of every other heap as it is. To be called before
/// there are any.
pub fn share_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) takes numbers, and touches nothing that is allocated.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        // Else it grows with the first large piece that is freed.
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
    }
}

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
