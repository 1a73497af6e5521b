//! What may come between while a process leaves home: its daemon calls the move off. And what that
//! is told meanwhile.

use crate::daemon::Daemon;
use crate::onlookers::is_opened;
use migrate::files::Files;
use migrate::{MigrateError, Result};
use std::cell::Cell;
use std::time::{Duration, Instant};
use wire::supervisor::{FromDeputy, Progress, ToDeputy};

/// Code of the reasons for which a process stays whose memory others could open.
const NAMED_MEMORY: &str = "named-memory";
/// How long the daemon may take to have others wait.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Between two words about how far a move is.
const PROGRESS_PAUSE: Duration = Duration::from_millis(250);

/// A departure as its daemon sees it.
pub struct Meanwhile<'a> {
    daemon: &'a Daemon,
    told_at: Cell<Instant>,
    /// The daemon keeps others from opening what it shares, and has to.
    is_guarded: Cell<bool>,
}

impl Meanwhile<'_> {
    pub fn of(daemon: &Daemon) -> Meanwhile<'_> {
        Meanwhile { daemon, told_at: Cell::new(Instant::now()), is_guarded: Cell::new(false) }
    }

    /// Never waits.
    ///
    /// # Errors
    /// The move is off.
    pub fn goes_on(&self) -> Result<()> {
        match self.daemon.hear(true) {
            Ok(Some(ToDeputy::CallOff { reason })) => Err(MigrateError::Refused(reason)),
            Ok(Some(ToDeputy::Opened { by })) => Err(MigrateError::Refused(is_opened(by))),
            _ if self.is_guarded.get() && self.daemon.has_lost_guard() => {
                let text = "its node has got another daemon meanwhile; try again";
                Err(MigrateError::refused("new-daemon", text))
            }
            // A daemon does not order a process away twice, nor home what it has not heard of.
            Ok(_) => Ok(()),
            Err(error) => {
                ::tracing::debug!("while it leaves: {error}");
                Ok(())
            }
        }
    }

    /// Has the daemon keep others from opening memory that the process shares, or could share, with
    /// them.
    ///
    /// # Errors
    /// Refused if it cannot, and has to; or the move is off.
    pub fn guard(&self, files: &Files) -> Result<()> {
        self.is_guarded.set(files.need_guard());
        match self.try_to_guard(files) {
            Err(MigrateError::Refused(why)) if why.code == NAMED_MEMORY && !files.need_guard() => {
                ::tracing::debug!("{}", why.text);
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn try_to_guard(&self, files: &Files) -> Result<()> {
        for (name, file) in files.guarded() {
            let refused = |why: &str| {
                let text = format!(
                    "it shares {name}, and who opens that meanwhile could not be kept waiting \
                     until it is home: {why}"
                );
                Err(MigrateError::refused(NAMED_MEMORY, text))
            };
            if !self.daemon.ask_to_guard(file) {
                return refused("there is no daemon");
            }
            let deadline = Instant::now() + ANSWER_PATIENCE;
            loop {
                match self.daemon.hear(true)? {
                    Some(ToDeputy::Guarded { refusal: None }) => break,
                    Some(ToDeputy::Guarded { refusal: Some(why) }) => return refused(&why),
                    Some(ToDeputy::CallOff { reason }) => {
                        return Err(MigrateError::Refused(reason));
                    }
                    Some(ToDeputy::Opened { by }) => {
                        return Err(MigrateError::Refused(is_opened(by)));
                    }
                    Some(_) => {}
                    None if self.daemon.has_lost_guard() => return refused("the daemon has ended"),
                    None if Instant::now() >= deadline => return refused("no answer"),
                    None => self.daemon.await_word(LOOK_INTERVAL),
                }
            }
        }
        Ok(())
    }

    /// The same as [`Meanwhile::goes_on`], and tells how far it is.
    pub fn goes_on_at(&self, progress: &Progress) -> Result<()> {
        if self.told_at.get().elapsed() >= PROGRESS_PAUSE {
            self.told_at.set(Instant::now());
            self.daemon.send(&FromDeputy::Progress(*progress));
        }
        self.goes_on()
    }
}
