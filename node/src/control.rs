//! The control socket: user tools come here. One JSON request a line, one or more JSON replies.
//!
//! Anyone may connect; who it is comes from the kernel (peer credentials), what he may do is
//! decided by [`crate::policy`]. A caller can cost no more than one bounded line at a time.
//!
//! A connection by which the launcher of a job has told of it stands for that job until it ends. So
//! it has a place among those of launchers, and takes none from tools.

use crate::daemon::Event;
use crate::inquiries::Inquiry;
use crate::jobs::{ConnectionId, JOBS_MAX, JOBS_OF_USER_MAX};
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
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use wire::control::{Event as Happened, Failure, REQUEST_BYTES_MAX, Reply, Request};
use wire::ids::NodeId;
use wire::jobs::JobAsk;
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
    /// By which it is asked; none: through another request, or by another node.
    pub connection: Option<ConnectionId>,
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
    let launchers = Places::new(JOBS_MAX, JOBS_OF_USER_MAX);
    let mut connections: ConnectionId = 0;
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
        connections += 1;
        let mut connection =
            Connection { id: connections, caller, place, events: events.clone(), launches: false };
        let launchers = launchers.clone();
        tokio::spawn(async move {
            if let Err(error) = connection.serve(stream, &launchers).await {
                tracing::debug!("control connection: {error}");
            }
            connection.end().await;
        });
    }
}

/// One of a tool.
struct Connection {
    id: ConnectionId,
    caller: Caller,
    place: Place<u32>,
    events: mpsc::Sender<Event>,
    /// It stands for a job.
    launches: bool,
}

impl Connection {
    async fn serve(&mut self, stream: UnixStream, launchers: &Places<u32>) -> io::Result<()> {
        let (reader, mut writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        while let Some(line) = unless_lost(&self.place, read_line(&mut reader)).await? {
            let request = match parse(&line) {
                Ok(request) => request,
                Err(failure) => {
                    write(&mut writer, &Reply::Error(failure)).await?;
                    continue;
                }
            };
            if !self.answer(request, (&mut reader, &mut writer), launchers).await? {
                break;
            }
        }
        Ok(())
    }

    /// False if nothing more is asked.
    async fn answer(
        &mut self,
        request: Request,
        (reader, writer): (&mut BufReader<OwnedReadHalf>, &mut OwnedWriteHalf),
        launchers: &Places<u32>,
    ) -> io::Result<bool> {
        let is_manage = matches!(request, Request::Manage(_));
        let is_launcher = matches!(request, Request::HoldJob { .. });
        let heed = Heed::of(&request);
        let (answer, answered) = oneshot::channel();
        let is_off = Arc::new(AtomicBool::new(false));
        let (caller, connection) = (self.caller, Some(self.id));
        let asked = Asked { caller, connection, request, answer, is_off: is_off.clone() };
        self.tell(Event::Asked(asked)).await?;
        let mut holds = false;
        let done = {
            let answering = async {
                let answered = async { answered.await.map_err(|_| the_daemon_ends()) };
                let answer = match heed {
                    Some(Heed::Wait) => unless_lost(&self.place, answered).await?,
                    _ => answered.await?,
                };
                holds = is_launcher && matches!(answer, Answer::One(Reply::Done));
                unless_lost(&self.place, reply(writer, answer)).await
            };
            tokio::pin!(answering);
            tokio::select! {
                done = &mut answering => done,
                () = called_off(reader, heed) => {
                    // Nobody has to know but whoever was to answer, and that sees it.
                    if heed == Some(Heed::Wait) {
                        return Ok(false);
                    }
                    is_off.store(true, Ordering::SeqCst);
                    self.tell(Event::CalledOff).await?;
                    answering.await
                }
            }
        };
        if holds && !self.launches {
            self.launches = true;
            self.place = launchers.take(caller.uid);
        }
        done?;
        if let (true, Some(pid)) = (is_manage, caller.pid) {
            // The caller execs its command now, which closes this connection.
            let rest = unless_lost(&self.place, read_line(reader)).await;
            self.tell(Event::CallerLeft { pid }).await?;
            return rest.map(|_| false);
        }
        Ok(true)
    }

    /// What it stood for has ended.
    async fn end(self) {
        if let (true, Some(pid)) = (self.launches, self.caller.pid) {
            // Nobody is left to be told once the daemon has ended.
            let _ = self.tell(Event::LauncherLeft { pid, connection: self.id }).await;
        }
    }

    async fn tell(&self, event: Event) -> io::Result<()> {
        self.events.send(event).await.map_err(|_| the_daemon_ends())
    }
}

fn the_daemon_ends() -> io::Error {
    io::Error::other("the daemon ends")
}

/// What it means that a caller leaves before it has its answer; other callers just miss theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heed {
    /// The move that it has asked for is off; one that is watched also if it closes its half.
    Move { is_watched: bool },
    /// It does not wait any more.
    Wait,
}

impl Heed {
    fn of(request: &Request) -> Option<Heed> {
        match request {
            Request::Migrate { is_watched, .. } => Some(Heed::Move { is_watched: *is_watched }),
            Request::AskJob { ask: JobAsk::Wait, .. } => Some(Heed::Wait),
            Request::At { request, .. } => match **request {
                // No request goes through more than one other.
                Request::At { .. } => None,
                _ => Heed::of(request),
            },
            _ => None,
        }
    }
}

/// Ends when a caller who is to be heeded does not want any more what it has asked for.
async fn called_off(reader: &mut BufReader<OwnedReadHalf>, heed: Option<Heed>) {
    if let Some(heed) = heed {
        let has_more = reader.fill_buf().await.map(|more| !more.is_empty());
        // Who does not watch may close the half that he needs no more, as nc(1) does.
        let may_close_half = heed == Heed::Move { is_watched: false };
        let is_off = match has_more {
            Ok(true) => false,
            Ok(false) => !may_close_half || is_gone(reader.get_ref().as_ref()),
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
