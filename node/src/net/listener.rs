//! The one TCP port of a node. Whoever connects has a short time to prove itself, and until then
//! learns nothing: not a byte is sent, whatever came and however wrong it was. What a stranger can
//! use up is bounded: connections in all and from one address ([`crate::places`]), bytes, and time.

use super::Credentials;
use super::link::{OpenLink, write_frame};
use crate::daemon::Event;
use crate::keys::handshake::{Called, Keys};
use crate::places::Places;
use crate::supervisor::Supervisor;
use crate::user_servers::Hold;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};
use wire::ids::{NodeId, Ticket};
use wire::peer::{HANDSHAKE_BYTES_MAX, Hello, NodeKey, Selected};
use wire::supervisor::{PREFACE_BYTES, Preface, Role, ToBody};

/// Connections that have not proved themselves, in all ...
const STRANGERS_MAX: usize = 512;
/// ... and from one address.
const STRANGERS_PER_ADDRESS_MAX: usize = 64;
/// After an error that is not one connection's (no descriptors left), wait before the next try.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An authenticated call, for the dispatcher to accept or not.
pub struct Calling {
    pub key: NodeKey,
    pub hello: Hello,
    /// Zero for a member; else the token it calls with, which it has proved to hold.
    pub ticket: Ticket,
    pub from: SocketAddr,
    /// A secret that the cluster had before: whoever calls with it has to be known.
    pub is_with_old_secret: bool,
    pub accept: oneshot::Sender<Result<Accepted, Rejection>>,
}

/// Why a valid call is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("played again")]
    PlayedAgain,
    #[error("its number belongs to another node")]
    OtherNode,
    #[error("it was forgotten: `osmos leave` there, then join anew")]
    Forgotten,
    #[error("it has an old secret, and is no member that is known here")]
    OldSecret,
    #[error("no number can be given to it: make the token on another node")]
    NoNumber,
    #[error("it has no number, or no open token")]
    NoMember,
    #[error("this node goes down")]
    GoingDown,
}

/// What becomes of a connection that names a ticket.
pub enum Welcome {
    /// This supervisor waits for it.
    Expected(Supervisor),
    /// This server for a user does.
    Server(Hold),
    /// Its berth has ended.
    TooLate,
    Stranger,
}

/// The dispatcher takes the call: this is its number.
pub struct Accepted {
    pub node: NodeId,
    pub selected: Selected,
    /// It must not be answered before.
    pub kept: oneshot::Receiver<()>,
}

/// Accepts until the daemon ends.
pub async fn listen(
    listener: TcpListener,
    credentials: watch::Receiver<Credentials>,
    patience: Duration,
    events: mpsc::Sender<Event>,
) {
    let strangers = Places::new(STRANGERS_MAX, STRANGERS_PER_ADDRESS_MAX);
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("cannot accept connections: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let place = strangers.take(from.ip());
        let visitor = Visitor {
            stream: Some(stream),
            from,
            deadline: Instant::now() + patience,
            credentials: credentials.clone(),
            events: events.clone(),
        };
        let events = events.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = visitor.receive() => (),
                () = place.lost() => {
                    let reason = "too many connections that say nothing".to_owned();
                    let _ = events.send(Event::Rejected { from, reason }).await;
                }
            }
        });
    }
}

struct Visitor {
    /// None once somebody else serves the connection.
    stream: Option<TcpStream>,
    from: SocketAddr,
    deadline: Instant,
    credentials: watch::Receiver<Credentials>,
    events: mpsc::Sender<Event>,
}

/// Why a visitor is met with silence; told at home only.
#[derive(Debug, thiserror::Error)]
enum Unwelcome {
    #[error("no valid head within the time allowed")]
    NoHead,
    #[error("not an osmos connection")]
    NotOsmos,
    #[error("no berth with ticket {0}")]
    NoBerth(Ticket),
    #[error("the berth with ticket {0} has ended")]
    BerthEnded(Ticket),
    #[error("no open token with ticket {0}")]
    NoToken(Ticket),
    #[error(transparent)]
    Handshake(#[from] crate::keys::handshake::HandshakeError),
    #[error("a valid call, but not accepted: {0}")]
    NotAccepted(Rejection),
    #[error("a valid call, but it cannot be recorded, and could be played again")]
    NotRecorded,
    /// Nothing to tell: it left, or the daemon ends.
    #[error("{0}")]
    Broken(#[from] io::Error),
}

impl Visitor {
    async fn receive(mut self) {
        let Err(unwelcome) = self.introduce().await else { return };
        if !matches!(unwelcome, Unwelcome::Broken(_)) {
            let reason = unwelcome.to_string();
            let _ = self.events.send(Event::Rejected { from: self.from, reason }).await;
        }
        // Who was invited need not wait to learn that it came in vain.
        if matches!(unwelcome, Unwelcome::BerthEnded(_)) {
            return;
        }
        // An early close would tell a stranger at which point he failed.
        let Some(mut stream) = self.stream else { return };
        let mut waste = [0; 1024];
        while let Ok(Ok(1..)) = timeout_at(self.deadline, stream.read(&mut waste)).await {}
    }

    async fn introduce(&mut self) -> Result<(), Unwelcome> {
        let mut head = [0; PREFACE_BYTES];
        let stream = self.stream.as_mut().ok_or_else(moved_on)?;
        match timeout_at(self.deadline, stream.read_exact(&mut head)).await {
            Ok(Ok(_)) => (),
            // A port scan that sends nothing and leaves is worth a line too.
            Ok(Err(_)) | Err(_) => return Err(Unwelcome::NoHead),
        }
        let preface = Preface::decode(&head).ok_or(Unwelcome::NotOsmos)?;
        match preface.role {
            Role::Peer => self.hear_call(preface).await,
            Role::Deputy | Role::Image | Role::Stream | Role::Late | Role::Files | Role::Job => {
                self.pass_on(preface).await
            }
        }
    }

    /// Hands the connection to the supervisor or server that waits for it.
    async fn pass_on(&mut self, preface: Preface) -> Result<(), Unwelcome> {
        let (reply, answer) = oneshot::channel();
        let Preface { role, ticket } = preface;
        self.tell(Event::Visited { role, ticket, reply }).await?;
        let welcome = answer.await.unwrap_or(Welcome::Stranger);
        match welcome {
            Welcome::TooLate => return Err(Unwelcome::BerthEnded(ticket)),
            Welcome::Stranger => return Err(Unwelcome::NoBerth(ticket)),
            Welcome::Expected(_) | Welcome::Server(_) => {}
        }
        let stream = self.stream.take().ok_or_else(moved_on)?.into_std()?;
        // Supervisors wait in the kernel, not in an event loop.
        stream.set_nonblocking(false)?;
        let stream = OwnedFd::from(stream);
        let is_taken = match welcome {
            Welcome::Expected(supervisor) => {
                supervisor.send(&ToBody::Connection { role }, Some(stream))
            }
            Welcome::Server(server) => server.hand_over(&stream),
            Welcome::TooLate | Welcome::Stranger => false,
        };
        if is_taken { Ok(()) } else { Err(Unwelcome::BerthEnded(ticket)) }
    }

    async fn hear_call(&mut self, preface: Preface) -> Result<(), Unwelcome> {
        let stream = self.stream.as_mut().ok_or_else(moved_on)?;
        let reading = timeout_at(self.deadline, read_handshake(stream)).await;
        let first = reading.map_err(|_| Unwelcome::NoHead)?.map_err(|_| Unwelcome::NoHead)?;
        let credentials = self.credentials.borrow().clone();
        let psk = self.key_for(preface.ticket, &credentials).await?;
        let keys = Keys { own: &credentials.own, psk: &psk, preface };
        let mut is_with_old_secret = false;
        let called = Called::hear(&keys, &first).or_else(|error| {
            is_with_old_secret = true;
            let old = if preface.ticket == Ticket([0; 16]) {
                credentials.old_link_keys()
            } else {
                vec![]
            };
            let hear =
                |psk| Called::hear(&Keys { own: &credentials.own, psk, preface }, &first).ok();
            old.iter().find_map(hear).ok_or(error)
        })?;
        let (accept, accepted) = oneshot::channel();
        let calling = Calling {
            key: called.caller,
            hello: called.hello.clone(),
            ticket: preface.ticket,
            from: self.from,
            is_with_old_secret,
            accept,
        };
        self.tell(Event::Calling(calling)).await?;
        let ending = Err(Rejection::GoingDown);
        let accepted = accepted.await.unwrap_or(ending).map_err(Unwelcome::NotAccepted)?;
        accepted.kept.await.map_err(|_| Unwelcome::NotRecorded)?;
        let (second, sealer, opener) = called.answer(accepted.selected)?;
        let mut stream = self.stream.take().ok_or_else(moved_on)?;
        write_frame(&mut stream, &second).await?;
        if accepted.selected.version.is_none() {
            return Ok(());
        }
        let open = OpenLink { stream, sealer, opener };
        self.tell(Event::Linked { node: accepted.node, open, is_dialed: false }).await?;
        Ok(())
    }

    /// Members call with the cluster's key, a node that joins with its token's.
    async fn key_for(
        &self,
        ticket: Ticket,
        credentials: &Credentials,
    ) -> Result<[u8; 32], Unwelcome> {
        if ticket == Ticket([0; 16]) {
            return Ok(credentials.link_key);
        }
        let (reply, answer) = oneshot::channel();
        self.tell(Event::TokenNamed { ticket, reply }).await?;
        answer.await.ok().flatten().ok_or(Unwelcome::NoToken(ticket))
    }

    async fn tell(&self, event: Event) -> io::Result<()> {
        self.events.send(event).await.map_err(|_| io::Error::other("the daemon ends"))
    }
}

fn moved_on() -> io::Error {
    io::Error::other("the connection is served elsewhere")
}

async fn read_handshake(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = usize::from(stream.read_u16().await?);
    if length > HANDSHAKE_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(message)
}
