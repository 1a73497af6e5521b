//! ^C while the daemon works for a command: it is read like any other news, so that what was asked
//! for can be called off instead of being left behind.

use crate::exit_code;
use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::AsFd;

/// SIGINT, which does not end this command any more.
pub struct Interrupts {
    signals: SignalFd,
    mask: SigSet,
}

impl Interrupts {
    pub fn taken() -> Result<Interrupts> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGINT);
        mask.thread_block().context("cannot block SIGINT")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&mask, flags).context("cannot wait for SIGINT")?;
        Ok(Interrupts { signals, mask })
    }

    /// Waits until one comes (true), or `other` has something to read.
    pub fn come_before(&self, other: &impl AsFd) -> Result<bool> {
        loop {
            let mut watched = [self.signals.as_fd(), other.as_fd()]
                .map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN));
            match poll(&mut watched, PollTimeout::NONE) {
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            return Ok(self.signals.read_signal()?.is_some());
        }
    }

    /// Ends this command as one would have; where it was started with SIGINT ignored, as a shell
    /// starts what runs in the background, with the status that shells make of it.
    pub fn obey(&self) -> Result<()> {
        raise(Signal::SIGINT)?;
        self.mask.thread_unblock()?;
        std::process::exit(i32::from(exit_code::INTERRUPTED));
    }
}
