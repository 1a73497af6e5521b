//! The node daemon as this supervisor sees it: the one that started it, or the next.

use attachment::{Attachment, Heard};
use migrate::Result;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::cell::Cell;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::supervisor::{FromDeputy, ToDeputy};

pub struct Daemon {
    attachment: Attachment,
    /// How many daemons there were.
    count: Cell<u32>,
    /// Which of them was asked to guard files, if one was.
    guard: Cell<Option<u32>>,
}

impl Daemon {
    pub fn new(attachment: Attachment) -> Daemon {
        Daemon { attachment, count: Cell::new(0), guard: Cell::new(None) }
    }

    /// Waits for the next order of the daemon that started this supervisor, and the descriptor that
    /// comes with it if there is one.
    ///
    /// # Errors
    /// If that is gone.
    pub fn receive(&self) -> Result<(ToDeputy, Option<OwnedFd>)> {
        Ok(self.attachment.receive()?)
    }

    /// Takes the next order if there is one. Says to a daemon that is new whether a move is under
    /// way.
    ///
    /// # Errors
    /// If no daemon can be called.
    pub fn hear(&self, is_moving: bool) -> Result<Option<ToDeputy>> {
        match self.attachment.hear()? {
            Heard::Order(order, _) => return Ok(Some(order)),
            Heard::Attached => {
                self.count.set(self.count.get() + 1);
                self.send(&FromDeputy::Attached { is_moving });
            }
            Heard::Nothing => {}
        }
        Ok(None)
    }

    /// What to wait for before there can be something to hear, and until when at most.
    pub fn socket(&self) -> Option<Rc<OwnedFd>> {
        self.attachment.socket()
    }

    /// Waits until there may be something to hear, but for no longer than this.
    pub fn await_word(&self, patience: Duration) {
        let ms = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        if let Some(socket) = self.socket() {
            let _ = poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], ms);
        }
    }

    pub fn next_call(&self) -> Option<Instant> {
        self.attachment.next_call()
    }

    /// There is none, and none is to come.
    pub fn is_abandoned(&self) -> bool {
        self.attachment.is_abandoned()
    }

    /// Tells the daemon, or the next one what that must know.
    pub fn send(&self, message: &FromDeputy) {
        self.attachment.send(message, message.is_kept());
    }

    /// Asks the daemon to keep others from opening a file; false if there is none to be asked.
    pub fn ask_to_guard(&self, file: &File) -> bool {
        let file = file.try_clone().map(OwnedFd::from);
        self.guard.set(Some(self.count.get()));
        file.is_ok_and(|file| self.attachment.hand_over(&FromDeputy::Guard, &file))
    }

    /// Whoever was asked to guard files is gone, and its guards with it.
    pub fn has_lost_guard(&self) -> bool {
        let is_gone = |guard| guard != self.count.get() || self.socket().is_none();
        self.guard.get().is_some_and(is_gone)
    }

    /// Waits until a daemon knows all that one must know.
    pub fn deliver(&self) {
        self.attachment.deliver::<ToDeputy>();
    }
}
