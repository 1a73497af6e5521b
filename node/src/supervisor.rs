//! Talking to supervisors ([`crate::spawning`] starts them).
//!
//! A supervisor outlives its daemon and then calls the next one ([`crate::returning`]), which has
//! no parent's rights over it and watches it by a pidfd.

use crate::procfs;
use crate::readiness::register;
use crate::spawning::Started;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitStatus;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Child;
use tokio::sync::{mpsc, oneshot};
use wire::assignment::Half;
use wire::supervisor::{FromDaemon, PACKET_BYTES_MAX};

/// Packets waiting to be taken by one supervisor. A supervisor that takes none is broken.
const QUEUE_MAX: usize = 64;
/// How long the supervisor of a body may take to exit after its socket was closed.
const EXIT_PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks whether a supervisor has other guests.
const PARTS_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The two ends of a socket that keeps packets whole and in order.
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC;
    Ok(socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?)
}

/// Names one supervisor among all that a daemon has ever started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SupervisorId(pub u64);

/// One packet to a supervisor, with the descriptor that travels along.
pub struct Packet {
    pub bytes: Vec<u8>,
    pub descriptor: Option<OwnedFd>,
}

/// Names a process of this machine even if its number is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Identity {
    pub pid: i32,
    pub started_ticks: u64,
}

impl Identity {
    pub fn of(pid: i32) -> Option<Identity> {
        procfs::read_stat(pid).map(|stat| Identity { pid, started_ticks: stat.started_ticks })
    }

    /// It is there, and has not ended.
    pub fn is_alive(self) -> bool {
        procfs::read_stat(self.pid)
            .is_some_and(|stat| stat.started_ticks == self.started_ticks && !stat.has_ended())
    }
}

/// The daemon's hold on one supervisor. Dropping it closes the socket, which ends the supervisor.
#[derive(Clone)]
pub struct Supervisor {
    pub id: SupervisorId,
    /// None where a test plays it, and for all but the first of those that are one process.
    pub process: Option<Identity>,
    packets: mpsc::Sender<Packet>,
    /// The same of all that are one process: its parts, while it is spoken to.
    parts: Arc<()>,
}

impl Supervisor {
    /// One to which nobody listens.
    #[cfg(test)]
    pub fn deaf() -> Supervisor {
        Supervisor {
            id: SupervisorId(1),
            process: None,
            packets: mpsc::channel(1).0,
            parts: Arc::default(),
        }
    }

    /// False if the supervisor is gone or takes nothing any more.
    pub fn send<T: Serialize>(&self, message: &T, descriptor: Option<OwnedFd>) -> bool {
        self.say(&FromDaemon::Order(message), descriptor)
    }

    /// What it said last is on the roster: no other daemon need hear it.
    pub fn note(&self) {
        // One that is gone has said it for nobody else either.
        self.say(&FromDaemon::<()>::Noted, None);
    }

    fn say<T: Serialize>(&self, message: &FromDaemon<T>, descriptor: Option<OwnedFd>) -> bool {
        let Ok(bytes) = postcard::to_stdvec(message) else { return false };
        self.packets.try_send(Packet { bytes, descriptor }).is_ok()
    }
}

/// What came from a supervisor.
pub enum News {
    /// With the descriptor that came along.
    Packet(Vec<u8>, Option<OwnedFd>),
    /// It is gone: its socket is closed and its process, if it was ours, has exited.
    Ended,
}

/// A supervisor's process, to be waited for when it has nothing more to say.
enum Running {
    /// Started by this daemon.
    Child(Box<Child>),
    /// Started by an earlier one: a pidfd.
    Stranger(AsyncFd<OwnedFd>),
    /// Played by a test.
    Nobody,
}

/// Serves one supervisor: its packets go to `report`, in order, and last [`News::Ended`].
pub fn serve<F, R>(id: SupervisorId, started: Started, report: F) -> io::Result<Supervisor>
where
    F: Fn(SupervisorId, News) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send,
{
    let Started { half, socket, child } = started;
    let socket = make_ready(socket)?;
    let (packets, mut waiting) = mpsc::channel::<Packet>(QUEUE_MAX);
    let pid = child.as_ref().and_then(Child::id).and_then(|pid| i32::try_from(pid).ok());
    let running = child.map_or(Running::Nobody, |child| Running::Child(Box::new(child)));
    let parts = Arc::default();
    let others = Arc::downgrade(&parts);
    tokio::spawn(async move {
        talk(id, &socket, &mut waiting, &report).await;
        drop(socket);
        await_exit(id, half, (running, &others)).await;
        report(id, News::Ended).await;
    });
    Ok(Supervisor { id, process: pid.and_then(Identity::of), packets, parts })
}

/// Serves another part of a supervisor that is served already: one process, which has a socket for
/// each guest.
pub fn serve_part<F, R>(
    id: SupervisorId,
    whole: &Supervisor,
    socket: OwnedFd,
    report: F,
) -> io::Result<Supervisor>
where
    F: Fn(SupervisorId, News) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send,
{
    let started = Started { half: Half::Body, socket, child: None };
    let parts = whole.parts.clone();
    let held = parts.clone();
    // As long as it is spoken to, the process is not to end.
    let report = move |id, news| {
        let _held = &held;
        report(id, news)
    };
    Ok(Supervisor { parts, ..serve(id, started, report)? })
}

/// Waits for a supervisor of an earlier daemon to call, or to end, and serves it. What it is sent
/// before waits for it. Its socket, once it has called, goes into the channel that is returned.
pub fn await_return<F, R>(
    id: SupervisorId,
    half: Half,
    process: Identity,
    report: F,
) -> io::Result<(Supervisor, oneshot::Sender<OwnedFd>)>
where
    F: Fn(SupervisorId, News) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send,
{
    let raw = Pid::from_raw(process.pid).ok_or(io::ErrorKind::InvalidInput)?;
    let pidfd = pidfd_open(raw, PidfdFlags::NONBLOCK)?;
    // Opened by number: make sure that the number still names the same process.
    if !process.is_alive() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let pidfd = register(pidfd, Interest::READABLE)?;
    let (packets, mut waiting) = mpsc::channel::<Packet>(QUEUE_MAX);
    let (returned, calls) = oneshot::channel();
    let parts = Arc::default();
    let others = Arc::downgrade(&parts);
    tokio::spawn(async move {
        let socket = tokio::select! {
            socket = calls => socket.ok(),
            // A pidfd becomes readable, once and for ever, when the process has ended.
            _ = pidfd.readable() => None,
        };
        if let Some(socket) = socket.and_then(|socket| make_ready(socket).ok()) {
            talk(id, &socket, &mut waiting, &report).await;
        }
        drop(waiting);
        await_exit(id, half, (Running::Stranger(pidfd), &others)).await;
        report(id, News::Ended).await;
    });
    Ok((Supervisor { id, process: Some(process), packets, parts }, returned))
}

fn make_ready(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    nix::fcntl::fcntl(&socket, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
    register(socket, Interest::READABLE | Interest::WRITABLE)
}

/// Until either side closes the socket.
async fn talk<F, R>(
    id: SupervisorId,
    socket: &AsyncFd<OwnedFd>,
    waiting: &mut mpsc::Receiver<Packet>,
    report: &F,
) where
    F: Fn(SupervisorId, News) -> R,
    R: Future<Output = ()>,
{
    let mut takes_packets = true;
    loop {
        tokio::select! {
            packet = waiting.recv(), if takes_packets => match packet {
                // One that has closed its end may have had last words, which are still to read.
                Some(packet) => takes_packets = write(socket, &packet).await.is_ok(),
                None => break,
            },
            packet = read(socket) => match packet {
                Ok(Some((bytes, descriptor))) if bytes.len() <= PACKET_BYTES_MAX => {
                    report(id, News::Packet(bytes, descriptor)).await;
                }
                // It ended with packets unread, which is told once and before its last words.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
                // The end, an error, or more than any message may be.
                _ => break,
            },
        }
    }
}

async fn await_exit(id: SupervisorId, half: Half, (mut running, parts): (Running, &Weak<()>)) {
    // It has guests still whose maker has gone.
    while parts.strong_count() > 0 && half == Half::Body {
        tokio::select! {
            _ = running.exit() => return,
            () = tokio::time::sleep(PARTS_LOOK_INTERVAL) => (),
        }
    }
    // Killing a deputy's supervisor would kill the process that it holds: better wait for ever.
    let patience = match half {
        Half::Deputy { .. } => Duration::MAX,
        Half::Body => EXIT_PATIENCE,
    };
    match tokio::time::timeout(patience, running.exit()).await {
        Ok(Ok(Some(status))) if !status.success() => {
            tracing::warn!("supervisor {}: {status}", id.0);
        }
        Ok(Ok(_)) => (),
        Ok(Err(error)) => tracing::warn!("supervisor {}: {error}", id.0),
        Err(_) => {
            tracing::warn!("supervisor {} does not end; killed", id.0);
            if let Err(error) = running.kill().await {
                tracing::warn!("supervisor {}: {error}", id.0);
            }
        }
    }
}

impl Running {
    /// Only a parent learns the status.
    async fn exit(&mut self) -> io::Result<Option<ExitStatus>> {
        match self {
            Running::Child(child) => child.wait().await.map(Some),
            Running::Stranger(pidfd) => pidfd.readable().await.map(|_| None),
            Running::Nobody => Ok(None),
        }
    }

    async fn kill(&mut self) -> io::Result<()> {
        match self {
            Running::Child(child) => child.kill().await,
            Running::Stranger(pidfd) => Ok(pidfd_send_signal(pidfd.get_ref(), Signal::KILL)?),
            Running::Nobody => Ok(()),
        }
    }
}

async fn read(socket: &AsyncFd<OwnedFd>) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let receive = |fd: &OwnedFd| {
        kernel::packet::receive(fd, PACKET_BYTES_MAX + 1).map_err(|error| error.source)
    };
    socket.async_io(Interest::READABLE, receive).await
}

async fn write(socket: &AsyncFd<OwnedFd>, packet: &Packet) -> io::Result<()> {
    let send = |fd: &OwnedFd| {
        let descriptors: Vec<i32> = packet.descriptor.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let rights: &[ControlMessage] = if descriptors.is_empty() { &[] } else { &rights };
        let bytes = [IoSlice::new(&packet.bytes)];
        sendmsg::<()>(fd.as_raw_fd(), &bytes, rights, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(())
    };
    socket.async_io(Interest::WRITABLE, send).await
}

#[cfg(test)]
mod test {
    use super::*;
    use std::sync::Mutex;

    /// What arrives of a supervisor that says `words` and closes its end, with something unread in
    /// it, while it is being told something more.
    async fn heard_of_one_that_leaves(words: &'static [u8]) -> Vec<Vec<u8>> {
        let (socket, theirs) = packet_pair().unwrap();
        nix::sys::socket::send(socket.as_raw_fd(), b"unread", MsgFlags::empty()).unwrap();
        nix::sys::socket::send(theirs.as_raw_fd(), words, MsgFlags::empty()).unwrap();
        drop(theirs);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (ended, end) = tokio::sync::oneshot::channel();
        let (told, ended) = (heard.clone(), Arc::new(Mutex::new(Some(ended))));
        let report = move |_, news| {
            match news {
                News::Packet(bytes, _) => told.lock().unwrap().push(bytes),
                News::Ended => drop(ended.lock().unwrap().take().map(|ended| ended.send(()))),
            }
            std::future::ready(())
        };
        let started = Started { half: Half::Body, socket, child: None };
        let supervisor = serve(SupervisorId(1), started, report).unwrap();
        assert!(supervisor.send(&7u32, None));
        end.await.unwrap();
        heard.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn last_words_of_a_supervisor_are_heard_although_it_takes_nothing_any_more() {
        // Which of two things that are ready comes first is left to chance.
        for _ in 0..50 {
            assert_eq!(heard_of_one_that_leaves(b"farewell").await, [b"farewell".to_vec()]);
        }
    }
}
