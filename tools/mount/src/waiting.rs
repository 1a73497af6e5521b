//! Whether a thread that waits for an answer is to end: FUSE would say so (FUSE_INTERRUPT), and
//! `fuser` does not pass it on. The kernel shows what is pending for a thread in `/proc`.

use nix::sys::signal::Signal;
use std::fs;

/// A deadly signal is pending that only cannot be delivered because the thread waits.
pub fn is_to_end(thread: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    is_killed(&status)
}

/// Any signal is pending that would end a call that waits.
pub fn is_signalled(thread: u32) -> bool {
    // One of another pid namespace, of which nothing can be seen.
    if thread == 0 {
        return false;
    }
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    // Who is gone waits for nothing.
    status.is_empty() || is_interrupted(&status)
}

fn bits(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

fn is_interrupted(status: &str) -> bool {
    let pending = bits(status, "SigPnd:") | bits(status, "ShdPnd:");
    pending & !bits(status, "SigBlk:") & !bits(status, "SigIgn:") != 0
}

/// Fields as in proc_pid_status(5). Only SIGKILL can be told for certain from here: what another
/// signal would do is not shown of it, and the kernel makes SIGKILL of every one that is deadly.
fn is_killed(status: &str) -> bool {
    let kill = 1_u64 << (Signal::SIGKILL as i32 - 1);
    (bits(status, "SigPnd:") | bits(status, "ShdPnd:")) & kill != 0
}

/// The process of a thread, and its session, by which what a shell has selected is kept.
pub fn session_of(thread: u32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    // A command may have any byte in its name.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(3)?.parse().ok()
}

/// The process that a thread belongs to.
pub fn process_of(thread: u32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_thread_that_was_killed_is_known_by_what_is_pending() {
        let status = |thread: &str, shared: &str| {
            format!("Name:\tx\nTgid:\t5\nSigQ:\t0/1\nSigPnd:\t{thread}\nShdPnd:\t{shared}\n")
        };
        assert!(is_killed(&status("0000000000000100", "0000000000000000")));
        assert!(is_killed(&status("0000000000000000", "0000000000000100")));
        assert!(!is_killed(&status("0000000000000002", "0000000000004000")));
        assert!(!is_killed(""));
        let with = |mask: &str| format!("{}{mask}", status("0000000000002000", "0"));
        assert!(is_interrupted(&with("SigBlk:\t0\nSigIgn:\t0\n")));
        assert!(!is_interrupted(&with("SigBlk:\t2000\nSigIgn:\t0\n")));
        assert!(!is_interrupted(&with("SigBlk:\t0\nSigIgn:\t2000\n")));
        assert!(!is_to_end(std::process::id()) && !is_signalled(std::process::id()));
        assert!(!is_to_end(0) && !is_signalled(0), "whom nobody can see goes on waiting");
    }

    #[test]
    fn threads_are_known_by_their_process_and_session() {
        let me = std::process::id();
        assert_eq!(process_of(me), Some(me as i32));
        let session = nix::unistd::getsid(None).unwrap();
        assert_eq!(session_of(me), Some(session.as_raw()));
    }
}
