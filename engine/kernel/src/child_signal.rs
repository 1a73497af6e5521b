//! Waiting for something to happen to tracees, with a limit.
//!
//! Stops and ends of tracees raise SIGCHLD; with it blocked and read from a descriptor one can wait
//! for it beside other things, and for no longer than one wants. The signal is only a hint: the
//! truth is in [`crate::tracee::poll_any`].

use crate::{KernelError, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

pub struct ChildSignal(SignalFd);

impl ChildSignal {
    /// Blocks SIGCHLD in the calling thread; threads started later inherit that.
    pub fn new() -> Result<ChildSignal> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGCHLD);
        set.thread_block().map_err(|e| KernelError::errno("block SIGCHLD", e as i32))?;
        SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map(ChildSignal)
            .map_err(|e| KernelError::errno("watch SIGCHLD", e as i32))
    }

    /// Forgets the signals so far. To be called before polling tracees.
    pub fn drain(&self) {
        while let Ok(Some(_)) = self.0.read_signal() {}
    }

    /// Sleeps until a signal comes or `timeout` has passed; false in the latter case.
    pub fn wait(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // Rounded up, so that the last millisecond is not spun away.
            let ms = i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
            let mut watched = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match poll(&mut watched, PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)) {
                Err(nix::errno::Errno::EINTR) => {}
                Ok(count) => return count > 0,
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for ChildSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
