//! ^C while a command waits: it is read like any other news, so that what was asked for can be
//! called off, or it can be said what becomes of it.
//!
//! It is caught by a handler and not blocked: what this command starts, a daemon or ssh, begins
//! with SIGINT as it was. While nobody waits here, ^C ends the command as it always does.

use crate::exit_code;
use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::SIGINT;
use signal_hook::{flag, low_level};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How this process hears of SIGINT.
struct Caught {
    heard: UnixStream,
    /// Nobody waits: a SIGINT is not read, and does what it does to any command.
    ends_at_once: Arc<AtomicBool>,
}

static CAUGHT: OnceLock<Caught> = OnceLock::new();

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    Interrupt,
    /// There is something to read.
    Readable,
    /// The time is over.
    Nothing,
}

/// SIGINT, which does not end this command as long as this lives. There is one at a time.
pub struct Interrupts {
    caught: &'static Caught,
}

impl Interrupts {
    pub fn taken() -> Result<Interrupts> {
        let caught = match CAUGHT.get() {
            Some(caught) => caught,
            None => {
                let caught = install().context("cannot wait for SIGINT")?;
                CAUGHT.get_or_init(|| caught)
            }
        };
        caught.ends_at_once.store(false, Ordering::SeqCst);
        Ok(Interrupts { caught })
    }

    /// Waits until one comes, `other` has something to read, or that much time has passed.
    pub fn next(&self, other: Option<&dyn AsFd>, patience: Option<Duration>) -> Result<News> {
        let patience = match patience {
            Some(patience) => {
                PollTimeout::try_from(patience).context("that is too long to wait")?
            }
            None => PollTimeout::NONE,
        };
        loop {
            let descriptors = [Some(self.caught.heard.as_fd()), other.map(AsFd::as_fd)];
            let mut watched: Vec<PollFd> = descriptors
                .into_iter()
                .flatten()
                .map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN))
                .collect();
            let ready = match poll(&mut watched, patience) {
                // The handler has run in this thread: its news is there now.
                Err(Errno::EINTR) => continue,
                ready => ready?,
            };
            let mut heard = [0; 64];
            return Ok(match (ready, (&self.caught.heard).read(&mut heard)) {
                (_, Ok(1..)) => News::Interrupt,
                (0, _) => News::Nothing,
                _ => News::Readable,
            });
        }
    }

    /// Ends this command as one would have.
    pub fn obey(&self) -> Result<()> {
        low_level::emulate_default_handler(SIGINT)?;
        std::process::exit(i32::from(exit_code::INTERRUPTED));
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.caught.ends_at_once.store(true, Ordering::SeqCst);
    }
}

fn install() -> std::io::Result<Caught> {
    let (heard, told) = UnixStream::pair()?;
    heard.set_nonblocking(true)?;
    let ends_at_once = Arc::new(AtomicBool::new(false));
    flag::register_conditional_default(SIGINT, ends_at_once.clone())?;
    low_level::pipe::register(SIGINT, told)?;
    Ok(Caught { heard, ends_at_once })
}
