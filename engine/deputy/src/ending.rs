//! The end of a process that is away: seen, told from other failures, or brought about.

use kernel::child_signal::ChildSignal;
use kernel::tracee::{self, Stop};
use migrate::MigrateError;
use std::time::{Duration, Instant};

/// How long a process that was killed may take to end.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// The status of a traced process, if its end is what made something fail.
pub fn end_behind(pid: i32, error: &MigrateError) -> Option<i32> {
    if !matches!(error, MigrateError::Kernel(error) if error.is_gone()) {
        return None;
    }
    loop {
        match tracee::wait_any() {
            Ok((tid, Stop::Ended(status))) if tid == pid => return Some(status),
            Ok((tid, Stop::Ended(_))) => ::tracing::debug!("thread {tid} ended"),
            // Killed threads may still report a stop on their way out.
            Ok((tid, _)) => {
                let _ = tracee::resume(tid, 0);
            }
            Err(_) => return None,
        }
    }
}

/// Ends a process whose memory is lost.
pub fn kill(pid: i32) {
    let pid = nix::unistd::Pid::from_raw(pid);
    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
}

/// Its parent does not hear of the end of a process before its tracer has: nobody shall have to
/// wait until this supervisor is over.
pub fn see_it_end(pid: i32, signals: &ChildSignal) {
    let deadline = Instant::now() + END_PATIENCE;
    loop {
        match tracee::poll_any() {
            Ok(Some((tid, Stop::Ended(_)))) if tid == pid => return,
            Ok(Some((_, Stop::Ended(_)))) => {}
            // Killed threads may still report a stop on their way out.
            Ok(Some((tid, _))) => {
                let _ = tracee::resume(tid, 0);
            }
            Ok(None) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                signals.wait(left);
                signals.drain();
            }
            Err(_) => return,
        }
    }
}
