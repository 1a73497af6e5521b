//! The node daemon as this supervisor sees it: the one that started it, or the next.

use attachment::{Attachment, Heard};
use migrate::{MigrateError, Result};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;
use wire::supervisor::{FromBody, ToBody};

pub struct Daemon(Attachment);

impl Daemon {
    pub fn new(attachment: Attachment) -> Daemon {
        Daemon(attachment)
    }

    /// Waits for the next message of the daemon that started this supervisor, and the
    /// descriptor that comes with it if there is one.
    ///
    /// # Errors
    /// If that daemon is gone: no other knows of a process that has not arrived.
    pub fn receive(&self) -> Result<(ToBody, Option<OwnedFd>)> {
        self.0.receive().map_err(|error| {
            let text = format!("its place on the node was given up, or the daemon ended: {error}");
            MigrateError::refused("no-daemon", text)
        })
    }

    /// Takes the next message if there is one.
    ///
    /// # Errors
    /// If no daemon can be called.
    pub fn hear(&self) -> Result<Option<ToBody>> {
        match self.0.hear()? {
            Heard::Order(order, _) => Ok(Some(order)),
            Heard::Attached | Heard::Nothing => Ok(None),
        }
    }

    /// What to wait for before there can be something to hear, and until when at most.
    pub fn socket(&self) -> Option<Rc<OwnedFd>> {
        self.0.socket()
    }

    pub fn next_call(&self) -> Option<Instant> {
        self.0.next_call()
    }

    /// There is none, and none is to come.
    pub fn is_abandoned(&self) -> bool {
        self.0.is_abandoned()
    }

    /// Tells the daemon, or the next one what that must know.
    pub fn send(&self, message: &FromBody) {
        self.0.send(message, message.is_kept());
    }

    /// Gives something to the daemon that there is now, after all that was said; false if that
    /// does not take it.
    pub fn hand_over(&self, message: &FromBody, descriptor: &OwnedFd) -> bool {
        self.0.hand_over(message, descriptor)
    }

    /// Waits until a daemon knows all that one must know.
    pub fn deliver(&self) {
        self.0.deliver::<ToBody>();
    }
}
