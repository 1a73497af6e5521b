//! What may come between while a process leaves home: its daemon calls the move off. And what that
//! is told meanwhile.

use crate::daemon::Daemon;
use migrate::{MigrateError, Result};
use std::cell::Cell;
use std::time::{Duration, Instant};
use wire::supervisor::{FromDeputy, Progress, ToDeputy};

/// Between two words about how far a move is.
const PROGRESS_PAUSE: Duration = Duration::from_millis(250);

/// A departure as its daemon sees it.
pub struct Meanwhile<'a> {
    daemon: &'a Daemon,
    told_at: Cell<Instant>,
}

impl Meanwhile<'_> {
    pub fn of(daemon: &Daemon) -> Meanwhile<'_> {
        Meanwhile { daemon, told_at: Cell::new(Instant::now()) }
    }

    /// Never waits.
    ///
    /// # Errors
    /// The move is off.
    pub fn goes_on(&self) -> Result<()> {
        match self.daemon.hear(true) {
            Ok(Some(ToDeputy::CallOff { reason })) => Err(MigrateError::Refused(reason)),
            // A daemon does not order a process away twice, nor home what it has not heard of.
            Ok(_) => Ok(()),
            Err(error) => {
                ::tracing::debug!("while it leaves: {error}");
                Ok(())
            }
        }
    }

    /// The same, and tells how far it is.
    pub fn goes_on_at(&self, progress: &Progress) -> Result<()> {
        if self.told_at.get().elapsed() >= PROGRESS_PAUSE {
            self.told_at.set(Instant::now());
            self.daemon.send(&FromDeputy::Progress(*progress));
        }
        self.goes_on()
    }
}
