//! What this process got from its parent, before the language runtime changed it.
//!
//! Rust's runtime ignores SIGPIPE and opens /dev/null in closed standard descriptors before `main`
//! runs. `osmos run` becomes another program in place, and that program must find both as its
//! parent left them. Only code that runs before the runtime can see them: a constructor, which the
//! C start-up code calls on a single thread.

use std::sync::atomic::{AtomicU8, Ordering};

const SIGPIPE_IGNORED: u8 = 1 << 3;

/// Bits 0, 1 and 2: that descriptor was closed; bit 3: SIGPIPE was ignored.
static SEEN: AtomicU8 = AtomicU8::new(0);

#[used]
// SAFETY: the C start-up code calls every pointer in this section once, as `extern "C" fn` with
// arguments that `record` ignores (caller-cleaned, so that is sound), before any thread exists.
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

extern "C" fn record() {
    let mut seen = 0;
    for descriptor in 0..3 {
        // SAFETY: F_GETFD takes no argument and changes nothing; a closed descriptor is an error.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            seen |= 1 << descriptor;
        }
    }
    // SAFETY: sigaction is plain old data for which all zeroes is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action only reads, and `action` outlives the call.
    let read = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) };
    if read == 0 && action.sa_sigaction == libc::SIG_IGN {
        seen |= SIGPIPE_IGNORED;
    }
    SEEN.store(seen, Ordering::Relaxed);
}

/// Whether the parent had this process ignore SIGPIPE.
pub fn sigpipe_ignored() -> bool {
    SEEN.load(Ordering::Relaxed) & SIGPIPE_IGNORED != 0
}

/// Has programs that this process starts inherit no descriptor that it has now but the standard
/// ones. What is to outlive a command must not keep open what its caller had open: a lock, a pipe
/// that somebody reads to its end.
pub fn keep_descriptors() {
    // SAFETY: it marks descriptors and closes none. Where the kernel cannot (before Linux 5.11)
    // all stays as it was.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

/// Which of descriptors 0, 1 and 2 were closed.
pub fn closed_standard() -> [bool; 3] {
    let seen = SEEN.load(Ordering::Relaxed);
    [0, 1, 2].map(|descriptor| seen & 1 << descriptor != 0)
}
