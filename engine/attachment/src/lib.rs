//! A supervisor's hold on whichever daemon its node has: the one that started it, and after that
//! one's death the next.
//!
//! ```text
//!          the daemon is gone          somebody listens            Welcome::Stay
//!   Up ───────────────────► Calling ───────────────► Greeting ───────────────────► Up
//!                              ▲                        │ its end        │ GoHome
//!                              └────────────────────────┘                ▼
//!                                                                     dismissed
//! ```
//!
//! What a daemon has to know is kept until one has noted it: a packet that was sent may have died
//! with the daemon that it was for. Nothing here waits but [`Attachment::receive`] and
//! [`Attachment::deliver`], so a process is served as well without a daemon as with one.
//!
//! **Invariant.** Only a daemon of the same user as the first is spoken to: whoever else can bind
//! the socket's name is not listened to.

mod assignment;

pub use assignment::await_assignment;
use kernel::packet;
use kernel::{KernelError, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::supervisor::{FromDaemon, Greeting, PACKET_BYTES_MAX, SUPERVISOR_VERSION, Welcome};

/// Between two calls, while a new daemon may come at any moment and when none has come for long.
const CALL_PAUSE: Duration = Duration::from_millis(50);
const CALL_PAUSE_LONG: Duration = Duration::from_secs(1);
/// What counts as long.
const LONG: Duration = Duration::from_secs(10);
/// Words for the next daemon. Who has more to say keeps the newest.
const KEPT_MAX: usize = 256;

/// The socket to the daemon, and what that, or the next, has to be told.
pub struct Attachment {
    /// Where the next daemon is called; nowhere if none.
    door: Option<PathBuf>,
    /// How long this side waits for the next daemon.
    patience: Duration,
    daemon_uid: u32,
    state: RefCell<State>,
}

struct State {
    stage: Stage,
    /// Since there is no daemon.
    alone_since: Option<Instant>,
    is_dismissed: bool,
    /// Not noted yet, the oldest first.
    kept: VecDeque<Vec<u8>>,
    /// How many of them this daemon was sent.
    sent: usize,
}

enum Stage {
    Up(Rc<OwnedFd>),
    Calling { next: Instant },
    Greeting(Rc<OwnedFd>),
}

/// What [`Attachment::hear`] found.
#[derive(Debug)]
pub enum Heard<T> {
    Nothing,
    /// With the descriptor that came along.
    Order(T, Option<OwnedFd>),
    /// Another daemon answers; all that was kept is on its way to it.
    Attached,
}

impl Attachment {
    /// On a supervisor's first socket. Its command line says where to find the next daemon
    /// (`--return PATH`) and how long to wait for it (`--patience SECONDS`).
    ///
    /// # Errors
    /// If the socket's other end cannot be told.
    pub fn new(first: OwnedFd, arguments: &[String]) -> Result<Attachment> {
        let word = |name: &str| {
            let mut words = arguments.iter();
            words.find(|word| *word == name).and_then(|_| words.next())
        };
        let patience_s = word("--patience").and_then(|word| word.parse().ok()).unwrap_or(0);
        Ok(Attachment {
            door: word("--return").map(PathBuf::from),
            patience: Duration::from_secs(patience_s),
            daemon_uid: peer_uid(&first)?,
            state: RefCell::new(State {
                stage: Stage::Up(Rc::new(first)),
                alone_since: None,
                is_dismissed: false,
                kept: VecDeque::new(),
                sent: 0,
            }),
        })
    }

    /// Waits for an order of the first daemon.
    ///
    /// # Errors
    /// If it is gone: there is nothing yet that another daemon would have to know.
    pub fn receive<T: DeserializeOwned>(&self) -> Result<(T, Option<OwnedFd>)> {
        let gone = || failed("hear the daemon, which is gone", Errno::EPIPE);
        loop {
            let Some(socket) = self.socket() else { return Err(gone()) };
            wait_for(Some(&socket), None);
            match self.hear()? {
                Heard::Order(order, descriptor) => return Ok((order, descriptor)),
                Heard::Nothing | Heard::Attached => {}
            }
            if !matches!(self.state.borrow().stage, Stage::Up(_)) {
                return Err(gone());
            }
        }
    }

    /// What to wait for until [`Attachment::hear`] may have something; nothing while calling.
    pub fn socket(&self) -> Option<Rc<OwnedFd>> {
        match &self.state.borrow().stage {
            Stage::Up(socket) | Stage::Greeting(socket) => Some(socket.clone()),
            Stage::Calling { .. } => None,
        }
    }

    /// When [`Attachment::hear`] wants to be asked although there is nothing to wait for.
    pub fn next_call(&self) -> Option<Instant> {
        let state = self.state.borrow();
        match state.stage {
            Stage::Calling { next } if self.may_call(&state) => Some(next),
            _ => None,
        }
    }

    /// Nobody is to come any more: there is no daemon, and none has come for too long, or one has
    /// sent this supervisor away.
    pub fn is_abandoned(&self) -> bool {
        let state = self.state.borrow();
        state.is_dismissed
            || state
                .alone_since
                .is_some_and(|since| self.door.is_none() || since.elapsed() >= self.patience)
    }

    /// Takes the next order, if there is one; calls the next daemon, if it is time to. Never waits.
    ///
    /// # Errors
    /// If this machine is out of something that a call takes.
    pub fn hear<T: DeserializeOwned>(&self) -> Result<Heard<T>> {
        let mut state = self.state.borrow_mut();
        match &state.stage {
            Stage::Calling { next } => {
                if self.may_call(&state) && Instant::now() >= *next {
                    self.call(&mut state);
                }
                Ok(Heard::Nothing)
            }
            Stage::Greeting(socket) => {
                let socket = socket.clone();
                Ok(state.be_welcomed(&socket))
            }
            Stage::Up(socket) => {
                let socket = socket.clone();
                Ok(state.next_order(&socket))
            }
        }
    }

    /// Tells the daemon. What it has to know is kept for the next until one has noted it; all else
    /// is lost if there is none.
    pub fn send<T: Serialize>(&self, message: &T, is_kept: bool) {
        let bytes = match postcard::to_stdvec(message) {
            Ok(bytes) => bytes,
            Err(error) => return ::tracing::error!("cannot tell the daemon: {error}"),
        };
        let mut state = self.state.borrow_mut();
        if is_kept {
            return state.keep(bytes);
        }
        // After all that is kept: words keep their order.
        if let (Stage::Up(socket), true) = (&state.stage, state.sent == state.kept.len()) {
            // A daemon that is gone is noticed when it is listened to.
            let _ = packet::send_now(socket, &bytes);
        }
    }

    /// Gives a descriptor to the daemon, if there is one that takes it now; false if not.
    pub fn hand_over<T: Serialize>(&self, message: &T, descriptor: &OwnedFd) -> bool {
        let state = self.state.borrow();
        // After all that is kept: words keep their order.
        let (Stage::Up(socket), true) = (&state.stage, state.sent == state.kept.len()) else {
            return false;
        };
        match postcard::to_stdvec(message) {
            // A daemon that is gone is noticed when it is listened to.
            Ok(bytes) => packet::send_with(socket, &bytes, descriptor).is_ok_and(|sent| sent),
            Err(error) => {
                ::tracing::error!("cannot tell the daemon: {error}");
                false
            }
        }
    }

    /// Waits until a daemon has noted everything, or none is to come.
    pub fn deliver<T: DeserializeOwned>(&self) {
        let deadline = Instant::now() + self.patience;
        loop {
            let now = Instant::now();
            let is_done = self.state.borrow().kept.is_empty();
            if is_done || self.is_abandoned() || (self.door.is_some() && now >= deadline) {
                return;
            }
            wait_for(self.socket().as_deref(), self.next_call());
            // Orders come too late now.
            if let Err(error) = self.hear::<T>() {
                return ::tracing::warn!("cannot tell the daemon: {error}");
            }
        }
    }

    fn may_call(&self, state: &State) -> bool {
        self.door.is_some() && !state.is_dismissed
    }

    /// Greets whoever listens, if it is a daemon of the same user.
    fn call(&self, state: &mut State) {
        let is_long = state.alone_since.is_some_and(|since| since.elapsed() >= LONG);
        let pause = if is_long { CALL_PAUSE_LONG } else { CALL_PAUSE };
        state.stage = Stage::Calling { next: Instant::now() + pause };
        let Some(door) = &self.door else { return };
        let Ok(socket) = connect_now(door) else { return };
        let greeting = Greeting { version: SUPERVISOR_VERSION }.encode();
        let is_ours = peer_uid(&socket).is_ok_and(|uid| uid == self.daemon_uid);
        if is_ours && packet::send_now(&socket, &greeting).is_ok_and(|sent| sent) {
            state.stage = Stage::Greeting(Rc::new(socket));
        }
    }
}

impl State {
    fn keep(&mut self, bytes: Vec<u8>) {
        if self.kept.len() >= KEPT_MAX {
            // One that notes nothing of so much is no daemon.
            self.be_alone();
            self.kept.pop_front();
        }
        self.kept.push_back(bytes);
        self.flush();
    }

    /// Sends what was not sent yet, as far as the daemon takes it now.
    fn flush(&mut self) {
        let Stage::Up(socket) = &self.stage else { return };
        while let Some(bytes) = self.kept.get(self.sent) {
            match packet::send_now(socket, bytes) {
                Ok(true) => self.sent += 1,
                // It is busy, and notes something before long, or gone.
                Ok(false) | Err(_) => return,
            }
        }
    }

    fn be_alone(&mut self) {
        let now = Instant::now();
        self.alone_since.get_or_insert(now);
        self.sent = 0;
        self.stage = Stage::Calling { next: now };
    }

    fn be_welcomed<T>(&mut self, socket: &OwnedFd) -> Heard<T> {
        let bytes = match receive_now(socket) {
            Received::Nothing => return Heard::Nothing,
            Received::Packet(bytes, _) => bytes,
            Received::End => Vec::new(),
        };
        match Welcome::decode(&bytes) {
            Some(Welcome::Stay) => {
                let Stage::Greeting(socket) = &self.stage else { return Heard::Nothing };
                self.stage = Stage::Up(socket.clone());
                self.alone_since = None;
                self.flush();
                return Heard::Attached;
            }
            Some(Welcome::GoHome) => {
                self.be_alone();
                self.is_dismissed = true;
                self.kept.clear();
            }
            None => {
                self.stage = Stage::Calling { next: Instant::now() + CALL_PAUSE };
            }
        }
        Heard::Nothing
    }

    fn next_order<T: DeserializeOwned>(&mut self, socket: &OwnedFd) -> Heard<T> {
        loop {
            let (bytes, descriptor) = match receive_now(socket) {
                Received::Nothing => return Heard::Nothing,
                Received::Packet(bytes, descriptor) => (bytes, descriptor),
                Received::End => {
                    self.be_alone();
                    return Heard::Nothing;
                }
            };
            match postcard::from_bytes(&bytes) {
                Ok(FromDaemon::Noted) => {
                    self.sent = self.sent.saturating_sub(1);
                    self.kept.pop_front();
                    self.flush();
                }
                Ok(FromDaemon::Order(order)) => return Heard::Order(order, descriptor),
                Err(error) => {
                    ::tracing::error!("message of the daemon: {error}");
                    self.be_alone();
                    return Heard::Nothing;
                }
            }
        }
    }
}

enum Received {
    Nothing,
    Packet(Vec<u8>, Option<OwnedFd>),
    End,
}

fn receive_now(socket: &OwnedFd) -> Received {
    let mut watched = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    if !matches!(poll(&mut watched, PollTimeout::ZERO), Ok(1..)) {
        return Received::Nothing;
    }
    match packet::receive(socket, PACKET_BYTES_MAX) {
        Ok(Some((bytes, descriptor))) => Received::Packet(bytes, descriptor),
        // It ended with packets of ours unread, which is told once and before its last words.
        Err(error) if error.source.raw_os_error() == Some(Errno::ECONNRESET as i32) => {
            receive_now(socket)
        }
        Ok(None) | Err(_) => Received::End,
    }
}

/// Waits until the socket has news, or that moment.
fn wait_for(socket: Option<&OwnedFd>, until: Option<Instant>) {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let timeout = left.map_or(PollTimeout::from(1000u16), |left| {
        PollTimeout::try_from(left.as_millis() as i32 + 1).unwrap_or(PollTimeout::MAX)
    });
    let mut watched: Vec<PollFd> =
        socket.map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).into_iter().collect();
    // An interruption is as good as news.
    let _ = poll(&mut watched, timeout);
}

fn failed(what: &str, errno: Errno) -> KernelError {
    KernelError { what: what.into(), source: errno.into() }
}

fn peer_uid(socket: &OwnedFd) -> Result<u32> {
    let peer = getsockopt(socket, sockopt::PeerCredentials)
        .map_err(|errno| failed("learn whose daemon this is", errno))?;
    Ok(peer.uid())
}

/// Fails at once where nobody listens.
fn connect_now(door: &PathBuf) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(door)?)?;
    Ok(socket)
}

#[cfg(test)]
mod test;
