//! What others see of the job, and what they ask: the launcher tells its daemon of the job for as
//! long as it lives, and this daemon or the next passes on what tools ask, over a socket here.

use crate::launching::Event;
use anyhow::{Context, Result, bail};
use client::Client;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::control::{Reply, Request};
use wire::jobs::{Job, JobAsk};

/// Changes are told no more often than this.
const PAUSE: Duration = Duration::from_millis(100);
/// A daemon that has ended is looked for after so long.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// For a daemon that does not answer, when the launcher has to end.
const PATIENCE: Duration = Duration::from_secs(2);
/// Questions at a time.
const ASKS_MAX: usize = 32;
const ASK_BYTES_MAX: u64 = 4 << 10;
/// For those who were answered to read it.
const READ_PATIENCE: Duration = Duration::from_secs(2);

/// Tells the daemon.
pub struct Holding {
    changes: Option<Sender<Job>>,
    teller: Option<JoinHandle<()>>,
    asks: Arc<Asks>,
}

/// Questions that are being answered.
#[derive(Default)]
struct Asks {
    count: Mutex<usize>,
    less: Condvar,
}

impl Asks {
    /// False if there are as many as there may be.
    fn begin(&self) -> bool {
        let mut count = self.count.lock().expect("nobody panics with it");
        let has_room = *count < ASKS_MAX;
        *count += usize::from(has_room);
        has_room
    }

    fn end(&self) {
        *self.count.lock().expect("nobody panics with it") -= 1;
        self.less.notify_all();
    }

    fn await_none(&self, patience: Duration) {
        let count = self.count.lock().expect("nobody panics with it");
        // Those who do not read their answers are not waited for.
        let _ = self.less.wait_timeout_while(count, patience, |count| *count > 0);
    }
}

impl Holding {
    /// Tells it for the first time, and hears questions from now on.
    ///
    /// # Errors
    /// The daemon does not take it: another job of the user has its name, say.
    pub fn begin(socket: &Path, job: &Job, events: SyncSender<Event>) -> Result<Holding> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("osmos-job-{digits}");
        let address = SocketAddr::from_abstract_name(&name)?;
        let listener = UnixListener::bind_addr(&address).context("no socket for questions")?;
        let asks = Arc::<Asks>::default();
        let count = asks.clone();
        let asked = std::thread::Builder::new().name("asks".into());
        asked.spawn(move || answer_all(&listener, &events, &count))?;
        let (mut client, told) = (Client::connect(socket)?, tell(job, &name));
        match client.request(&told)? {
            Reply::Done => {}
            other => bail!("the daemon answered {other:?}: is it of another version?"),
        }
        let (changes, heard) = channel();
        let socket = socket.to_owned();
        let teller = std::thread::Builder::new().name("holding".into());
        let job = job.clone();
        let teller = teller
            .spawn(move || tell_all(Teller { socket, name, client: Some(client), job }, &heard))?;
        Ok(Holding { changes: Some(changes), teller: Some(teller), asks })
    }

    pub fn changed(&self, job: Job) {
        if let Some(changes) = &self.changes {
            // Nobody hears it only when it is over.
            let _ = changes.send(job);
        }
    }

    /// Returns when the daemon knows how it has ended, and whoever asked has his answer; or does
    /// not take it.
    pub fn finish(&mut self) {
        self.changes = None;
        if let Some(teller) = self.teller.take() {
            let _ = teller.join();
        }
        self.asks.await_none(READ_PATIENCE);
    }
}

fn tell(job: &Job, socket: &str) -> Request {
    Request::HoldJob { of: Box::new(job.clone()), socket: socket.to_owned() }
}

struct Teller {
    socket: PathBuf,
    name: String,
    client: Option<Client>,
    job: Job,
}

fn tell_all(mut teller: Teller, changes: &Receiver<Job>) {
    loop {
        match changes.recv_timeout(LOOK_INTERVAL) {
            Ok(job) => {
                teller.job = job;
                // Many ranks begin at once.
                let until = Instant::now() + PAUSE;
                let left = || until.saturating_duration_since(Instant::now());
                let is_last = loop {
                    match changes.recv_timeout(left()) {
                        Ok(job) => teller.job = job,
                        Err(RecvTimeoutError::Timeout) => break false,
                        Err(RecvTimeoutError::Disconnected) => break true,
                    }
                };
                teller.tell();
                if is_last {
                    return;
                }
            }
            Err(RecvTimeoutError::Timeout) => teller.look(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl Teller {
    fn tell(&mut self) {
        if self.client.is_none() {
            self.client = Client::connect(&self.socket).ok();
        }
        let told = tell(&self.job, &self.name);
        let is_told = self.client.as_mut().is_some_and(|client| {
            client.set_patience(PATIENCE).is_ok() && client.request(&told).is_ok()
        });
        if !is_told {
            self.client = None;
        }
    }

    /// Whether the daemon is there; another one may be by now.
    fn look(&mut self) {
        let is_there = self.client.as_ref().is_some_and(|client| {
            let mut polled = [PollFd::new(client.as_fd(), PollFlags::POLLIN)];
            poll(&mut polled, PollTimeout::ZERO) == Ok(0)
        });
        if !is_there {
            self.client = None;
            self.tell();
        }
    }
}

fn answer_all(listener: &UnixListener, events: &SyncSender<Event>, asks: &Arc<Asks>) {
    for stream in listener.incoming().flatten() {
        let own = nix::unistd::getuid().as_raw();
        // The daemon, root's or the user's own, which has looked who asks.
        let by = getsockopt(&stream, sockopt::PeerCredentials).map(|by| by.uid());
        if !by.is_ok_and(|uid| uid == 0 || uid == own) || !asks.begin() {
            continue;
        }
        let (events, done) = (events.clone(), asks.clone());
        let answering = move || {
            if let Some(reply) = ask(&stream, &events) {
                let _ = stream.set_write_timeout(Some(READ_PATIENCE));
                let mut line = serde_json::to_vec(&reply).unwrap_or_default();
                line.push(b'\n');
                let _ = (&stream).write_all(&line);
            }
            done.end();
        };
        if std::thread::Builder::new().name("ask".into()).spawn(answering).is_err() {
            asks.end();
        }
    }
}

/// What the launcher answers; none: it ended, or whoever asked has gone.
fn ask(stream: &UnixStream, events: &SyncSender<Event>) -> Option<Reply> {
    stream.set_read_timeout(Some(READ_PATIENCE)).ok()?;
    let mut line = String::new();
    BufReader::new(stream.take(ASK_BYTES_MAX)).read_line(&mut line).ok()?;
    let ask: JobAsk = serde_json::from_str(&line).ok()?;
    let (answer, answered) = channel();
    events.send(Event::Asked { ask, answer }).ok()?;
    if ask != JobAsk::Wait {
        return answered.recv().ok();
    }
    loop {
        match answered.recv_timeout(LOOK_INTERVAL) {
            Err(RecvTimeoutError::Timeout) => {
                let mut polled = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
                if poll(&mut polled, PollTimeout::ZERO) != Ok(0) {
                    return None;
                }
            }
            outcome => return outcome.ok(),
        }
    }
}
