//! The control socket: user tools come here. One JSON request a line, one or more JSON replies.
//!
//! Anyone may connect; who it is comes from the kernel (peer credentials), what he may do is
//! decided by [`crate::policy`]. A caller can cost no more than one bounded line at a time.

use crate::daemon::Event;
use crate::inquiries::Inquiry;
use crate::places::{Place, Places};
use crate::procfs;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use wire::control::{Event as Happened, Failure, REQUEST_BYTES_MAX, Reply, Request};
use wire::ids::NodeId;
use wire::supervisor::Progress;

/// Tools connected at the same time, in all ...
const CALLERS_MAX: usize = 256;
/// ... and of one user.
const CALLERS_PER_USER_MAX: usize = 128;
/// Replies of several nodes that wait until a tool has read those before them.
const GATHERED_AHEAD: usize = 4;

/// Who asks, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    /// None if it lives in a PID namespace that this daemon cannot see into, or on another node.
    pub pid: Option<i32>,
    /// The other node that it asks from, if it does; its user is one of this node's all the same.
    pub node: Option<NodeId>,
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => write!(f, "user {} on node {node}", self.uid),
            None => write!(f, "user {}", self.uid),
        }
    }
}

/// What a request is answered with.
#[expect(clippy::large_enum_variant, reason = "most are the large one, and each lives once")]
pub enum Answer {
    One(Reply),
    /// How far the move is, and the answer once it has ended.
    Moving {
        progress: watch::Receiver<Progress>,
        ended: oneshot::Receiver<Answer>,
    },
    /// Events so far, and those to come.
    Events {
        recorded: Vec<Happened>,
        live: Option<broadcast::Receiver<Happened>>,
    },
    /// What another node answers.
    Passed(Box<Inquiry>),
    /// What each of several nodes answers, and why others cannot be asked. Where something is
    /// followed, nodes that are linked to later answer as well.
    Everywhere {
        asked: Vec<Inquiry>,
        not_asked: Vec<(NodeId, Failure)>,
        later: Option<mpsc::Receiver<Inquiry>>,
    },
}

/// One request on its way to the dispatcher.
pub struct Asked {
    pub caller: Caller,
    pub request: Request,
    pub answer: oneshot::Sender<Answer>,
    /// Set if what was asked for is not wanted any more, before [`Event::CalledOff`] says so.
    pub is_off: Arc<AtomicBool>,
}

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("an osmos daemon runs here already (socket {}): `osmos down` ends it", .0.display())]
    Running(PathBuf),
    #[error("cannot listen on control socket {}: {source}", path.display())]
    Bind { path: PathBuf, source: io::Error },
}

/// Makes the socket; one left by a daemon that died is replaced. `is_public` lets every user in.
pub fn bind(path: &Path, is_public: bool) -> Result<UnixListener, ControlError> {
    let failed = |source| ControlError::Bind { path: path.to_owned(), source };
    check_vacant(path)?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => (),
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    let mode = if is_public { 0o666 } else { 0o600 };
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).map_err(failed)?;
    Ok(listener)
}

/// That no daemon listens there. One that was killed still takes connections until its last thread
/// has ended.
pub fn check_vacant(path: &Path) -> Result<(), ControlError> {
    let Ok(stream) = std::os::unix::net::UnixStream::connect(path) else { return Ok(()) };
    // Of a socket that listens: who made it listen.
    let daemon = nix::sys::socket::getsockopt(&stream, nix::sys::socket::sockopt::PeerCredentials);
    match daemon {
        // One of another PID namespace has no number here.
        Ok(daemon) if daemon.pid() > 0 && procfs::is_ending(daemon.pid()) => Ok(()),
        _ => Err(ControlError::Running(path.to_owned())),
    }
}

/// Serves tools until the daemon ends.
pub async fn listen(listener: UnixListener, events: mpsc::Sender<Event>) {
    let places = Places::new(CALLERS_MAX, CALLERS_PER_USER_MAX);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("control socket: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        // One that is gone already has no credentials.
        let Ok(credentials) = stream.peer_cred() else { continue };
        let place = places.take(credentials.uid());
        let pid = credentials.pid().filter(|pid| *pid > 0);
        let caller = Caller { uid: credentials.uid(), pid, node: None };
        let events = events.clone();
        tokio::spawn(async move {
            if let Err(error) = serve(stream, caller, &place, events).await {
                tracing::debug!("control connection: {error}");
            }
        });
    }
}

async fn serve(
    stream: UnixStream,
    caller: Caller,
    place: &Place<u32>,
    events: mpsc::Sender<Event>,
) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let ended = || io::Error::other("the daemon ends");
    while let Some(line) = unless_lost(place, read_line(&mut reader)).await? {
        let request = match parse(&line) {
            Ok(request) => request,
            Err(failure) => {
                write(&mut writer, &Reply::Error(failure)).await?;
                continue;
            }
        };
        let is_manage = matches!(request, Request::Manage(_));
        let watches = watches(&request);
        let (answer, answered) = oneshot::channel();
        let is_off = Arc::new(AtomicBool::new(false));
        let asked = Asked { caller, request, answer, is_off: is_off.clone() };
        events.send(Event::Asked(asked)).await.map_err(|_| ended())?;
        let answering = async {
            let answer = answered.await.map_err(|_| ended())?;
            unless_lost(place, reply(&mut writer, answer)).await
        };
        tokio::pin!(answering);
        tokio::select! {
            done = &mut answering => done?,
            () = called_off(&mut reader, watches) => {
                is_off.store(true, Ordering::SeqCst);
                events.send(Event::CalledOff).await.map_err(|_| ended())?;
                answering.await?;
            }
        }
        if let (true, Some(pid)) = (is_manage, caller.pid) {
            // The caller execs its command now, which closes this connection.
            let rest = unless_lost(place, read_line(&mut reader)).await;
            events.send(Event::CallerLeft { pid }).await.map_err(|_| ended())?;
            return rest.map(|_| ());
        }
    }
    Ok(())
}

/// Whether the caller of a move watches it; None: no move was asked for.
fn watches(request: &Request) -> Option<bool> {
    match request {
        Request::Migrate { is_watched, .. } => Some(*is_watched),
        Request::At { request, .. } => match **request {
            Request::Migrate { is_watched, .. } => Some(is_watched),
            _ => None,
        },
        _ => None,
    }
}

/// Ends when a caller who has asked for a move (`watches`: and watches it) does not want it any
/// more.
async fn called_off(reader: &mut BufReader<OwnedReadHalf>, watches: Option<bool>) {
    if let Some(is_watched) = watches {
        let has_more = reader.fill_buf().await.map(|more| !more.is_empty());
        // Who does not watch may close the half that he needs no more, as nc(1) does.
        let is_off = match has_more {
            Ok(true) => false,
            Ok(false) => is_watched || is_gone(reader.get_ref().as_ref()),
            Err(_) => true,
        };
        if is_off {
            return;
        }
    }
    std::future::pending().await
}

/// It has closed both halves.
fn is_gone(stream: &UnixStream) -> bool {
    let mut watched = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    let is_told = poll(&mut watched, PollTimeout::ZERO).is_ok();
    let told = watched[0].revents().unwrap_or(PollFlags::empty());
    is_told && told.intersects(PollFlags::POLLHUP | PollFlags::POLLERR)
}

/// Waits for what the caller does next, for as long as it has its place.
async fn unless_lost<T>(
    place: &Place<u32>,
    next: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    tokio::select! {
        done = next => done,
        () = place.lost() => Err(io::Error::other("it gave way to newer ones")),
    }
}

/// None at the end. A line that is too long ends the connection: its end cannot be found.
async fn read_line(reader: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    reader.take(REQUEST_BYTES_MAX as u64).read_until(b'\n', &mut line).await?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) if line.len() < REQUEST_BYTES_MAX => Ok(None),
        Some(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "request line too long")),
    }
}

fn parse(line: &[u8]) -> Result<Request, Failure> {
    serde_json::from_slice(line).map_err(|error| Failure {
        code: "bad-request".to_owned(),
        text: format!("not a request that this daemon knows: {error}"),
    })
}

/// Writes an answer as lines, until there is no more of it.
pub async fn reply(writer: &mut (impl AsyncWrite + Unpin), answer: Answer) -> io::Result<()> {
    let (recorded, live) = match answer {
        Answer::One(reply) => return write(writer, &reply).await,
        Answer::Moving { progress, ended } => return follow_move(writer, progress, ended).await,
        Answer::Events { recorded, live } => (recorded, live),
        Answer::Passed(inquiry) => return pass_on(writer, *inquiry).await,
        Answer::Everywhere { asked, not_asked, later } => {
            return gather(writer, asked, not_asked, later).await;
        }
    };
    for event in recorded {
        write(writer, &Reply::Event(event)).await?;
    }
    if let Some(mut live) = live {
        loop {
            match live.recv().await {
                Ok(event) => write(writer, &Reply::Event(event)).await?,
                // A follower that is too slow loses events rather than stopping the daemon.
                Err(broadcast::error::RecvError::Lagged(lost)) => {
                    tracing::debug!("a follower of events lost {lost} of them");
                }
                Err(broadcast::error::RecvError::Closed) => break,
            }
        }
    }
    write(writer, &Reply::EventsEnd).await
}

async fn pass_on(writer: &mut (impl AsyncWrite + Unpin), mut inquiry: Inquiry) -> io::Result<()> {
    while let Some(reply) = inquiry.next().await {
        write(writer, &reply.unwrap_or_else(Reply::Error)).await?;
    }
    Ok(())
}

/// Each reply as it comes, whichever node gives it.
async fn gather(
    writer: &mut (impl AsyncWrite + Unpin),
    asked: Vec<Inquiry>,
    not_asked: Vec<(NodeId, Failure)>,
    mut later: Option<mpsc::Receiver<Inquiry>>,
) -> io::Result<()> {
    for (node, failure) in not_asked {
        write(writer, &Reply::From { node, of: Box::new(Reply::Error(failure)) }).await?;
    }
    let (tell, mut told) = mpsc::channel(GATHERED_AHEAD);
    // Ends with this, whether or not all have answered.
    let mut tasks = JoinSet::new();
    for inquiry in asked {
        tasks.spawn(hand_on(inquiry, tell.clone()));
    }
    while let Some(more) = &mut later {
        tokio::select! {
            Some(reply) = told.recv() => write(writer, &reply).await?,
            inquiry = more.recv() => match inquiry {
                Some(inquiry) => drop(tasks.spawn(hand_on(inquiry, tell.clone()))),
                // Nobody can be linked to any more: the daemon ends.
                None => later = None,
            },
            // Those that have ended take no room.
            Some(_) = tasks.join_next() => (),
        }
    }
    drop(tell);
    while let Some(reply) = told.recv().await {
        write(writer, &reply).await?;
    }
    write(writer, &Reply::AllAnswered).await
}

/// What a node answers, until nobody takes it.
async fn hand_on(mut inquiry: Inquiry, tell: mpsc::Sender<Reply>) {
    while let Some(reply) = inquiry.next().await {
        let of = Box::new(reply.unwrap_or_else(Reply::Error));
        if tell.send(Reply::From { node: inquiry.node, of }).await.is_err() {
            return;
        }
    }
}

async fn follow_move(
    writer: &mut (impl AsyncWrite + Unpin),
    mut progress: watch::Receiver<Progress>,
    mut ended: oneshot::Receiver<Answer>,
) -> io::Result<()> {
    loop {
        tokio::select! {
            answer = &mut ended => return match answer {
                Ok(Answer::One(reply)) => write(writer, &reply).await,
                // The daemon ends.
                _ => Err(io::ErrorKind::ConnectionAborted.into()),
            },
            Ok(()) = progress.changed() => {
                let progress = *progress.borrow_and_update();
                write(writer, &Reply::Progress(progress)).await?;
            }
        }
    }
}

async fn write(writer: &mut (impl AsyncWrite + Unpin), reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    writer.write_all(&line).await
}
