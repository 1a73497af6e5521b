//! The link to the file server of one node: made when it is first needed, and anew after it was
//! lost. Questions and what is to be done with their answers.
//!
//! ```text
//!   None ──(a question)──► connecting ──► Up ──(silence, or its end)──► None
//!                              └─(refused)──► Refused, for a moment ──► None
//! ```
//!
//! **Invariant.** Each question is answered once, by its answer or by an error. Numbers of files
//! and handles hold for one link: a question that has one is asked over that link or not at all.

use crate::waiting;
use client::{Client, Error};
use link::{Closer, LinkReader, LinkWriter};
use nix::errno::Errno;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use wire::control::{Reply, Request};
use wire::files::{Answer, Ask, Call, Served, Told, decode, encode};
use wire::ids::NodeId;
use wire::supervisor::Role;

/// A node that says nothing for so long, although it was asked, is taken for dead.
pub const SILENCE_MAX: Duration = Duration::from_secs(8);
/// It is asked whether it is there after so long.
const PING_AFTER: Duration = Duration::from_secs(2);
/// After it could not be reached, or has refused, it is not asked again for so long.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// For the daemons to find a server.
const DAEMON_PATIENCE: Duration = Duration::from_secs(6);
/// Who waits for longer may want to end.
const LOOK_AFTER: Duration = Duration::from_millis(500);

/// An answer: what it told, its content, and the link that it came over.
pub struct Heard {
    pub told: Told,
    pub content: Vec<u8>,
    pub link: u64,
}

pub type Outcome = Result<Heard, Errno>;
type Then = Box<dyn FnOnce(Outcome) + Send>;

/// Over which link a question may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// It names nothing that holds for one link only.
    Any,
    Only(u64),
}

struct Asked {
    /// None: whoever asked has gone, and what the answer brings is given back.
    then: Option<Then>,
    /// The thread that waits, if one does.
    by: Option<u32>,
    since: Instant,
    link: Option<u64>,
}

struct Sending {
    call: Call,
    content: Vec<u8>,
    over: Over,
}

struct Up {
    number: u64,
    served: Served,
    closer: Closer,
    heard: Instant,
    pinged: Instant,
}

#[derive(Default)]
struct State {
    up: Option<Up>,
    links: u64,
    calls: u64,
    asked: HashMap<u64, Asked>,
    refused: Option<(Instant, Errno)>,
    /// The link was ended because nothing came.
    is_silent: bool,
}

pub struct Remote {
    node: NodeId,
    socket: PathBuf,
    /// For whom, if it is root who asks.
    user: Option<u32>,
    state: Mutex<State>,
    queue: Mutex<Sender<Sending>>,
}

impl Remote {
    /// # Errors
    /// There is no thread to be had.
    pub fn new(node: NodeId, socket: PathBuf, user: Option<u32>) -> io::Result<Arc<Remote>> {
        let (queue, sending) = channel();
        let state = Mutex::new(State { links: 1, ..State::default() });
        let queue = Mutex::new(queue);
        let remote = Arc::new(Remote { node, socket, user, state, queue });
        let of = Arc::downgrade(&remote);
        std::thread::Builder::new().name(format!("node-{node}")).spawn(move || {
            send_all(&sending, || of.upgrade());
        })?;
        Ok(remote)
    }

    /// Asks; `then` is called once, perhaps before this returns. `by` is the thread that waits.
    pub fn ask(
        &self,
        by: Option<u32>,
        over: Over,
        ask: Ask,
        content: Vec<u8>,
        then: impl FnOnce(Outcome) + Send + 'static,
    ) {
        let then: Then = Box::new(then);
        let mut state = self.state();
        if let Some((until, errno)) = state.refused
            && Instant::now() < until
        {
            drop(state);
            return then(Err(errno));
        }
        state.calls += 1;
        let id = state.calls;
        let asked = Asked { then: Some(then), by, since: Instant::now(), link: None };
        state.asked.insert(id, asked);
        drop(state);
        let sending = Sending { call: Call { id, ask }, content, over };
        if self.queue.lock().expect("nobody panics with it").send(sending).is_err() {
            self.answer(id, Err(Errno::EIO));
        }
    }

    /// Tells something that is not answered, if the link is still there.
    pub fn tell(&self, link: u64, ask: Ask) {
        let sending =
            Sending { call: Call { id: 0, ask }, content: Vec::new(), over: Over::Only(link) };
        // Where nobody sends any more there is nobody to tell.
        let _ = self.queue.lock().expect("nobody panics with it").send(sending);
    }

    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The link that is there now.
    pub fn link(&self) -> Option<u64> {
        self.state().up.as_ref().map(|up| up.number)
    }

    /// As whom the other node serves.
    pub fn served(&self) -> Option<Served> {
        self.state().up.as_ref().map(|up| up.served)
    }

    /// Looks after silence, and after those who wait and are to end: every so often.
    pub fn look(&self) {
        let now = Instant::now();
        let mut ended = Vec::new();
        let mut state = self.state();
        for asked in state.asked.values_mut().filter(|asked| now - asked.since > LOOK_AFTER) {
            if asked.by.is_some_and(waiting::is_to_end) {
                ended.extend(asked.then.take());
            }
        }
        let oldest = state
            .asked
            .values()
            .filter(|asked| asked.link.is_some())
            .map(|asked| asked.since)
            .min();
        let mut ping = None;
        if let (Some(up), Some(oldest)) = (&mut state.up, oldest) {
            let silence = now - up.heard.max(oldest);
            if silence > SILENCE_MAX {
                up.closer.close();
                state.is_silent = true;
            } else if silence > PING_AFTER && now - up.pinged > PING_AFTER {
                up.pinged = now;
                ping = Some(up.number);
            }
        }
        drop(state);
        if let Some(link) = ping {
            self.tell(link, Ask::Ping);
        }
        ended.into_iter().for_each(|then| then(Err(Errno::EINTR)));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    fn answer(&self, id: u64, outcome: Outcome) {
        let asked = self.state().asked.remove(&id);
        match asked.map(|asked| asked.then) {
            Some(Some(then)) => then(outcome),
            Some(None) => self.give_back(outcome),
            None => {}
        }
    }

    /// Whoever asked for it has gone.
    fn give_back(&self, outcome: Outcome) {
        let Ok(Heard { told, link, .. }) = outcome else { return };
        match told {
            Told::Entry(entry) => self.tell(link, Ask::Forget(vec![(entry.file, 1)])),
            Told::Opened { handle, .. } => self.tell(link, Ask::Close { handle }),
            Told::Created { entry, handle } => {
                self.tell(link, Ask::Close { handle });
                self.tell(link, Ask::Forget(vec![(entry.file, 1)]));
            }
            Told::List(listed) => {
                let files = listed.into_iter().filter_map(|of| Some((of.entry?.file, 1)));
                self.tell(link, Ask::Forget(files.collect()));
            }
            _ => {}
        }
    }

    /// Answers all that was asked over that link, or over any.
    fn fail(&self, over: Option<u64>, errno: Errno) {
        let mut failed = Vec::new();
        self.state().asked.retain(|_, asked| {
            let is_it = over.is_none() || asked.link == over;
            if is_it {
                failed.extend(asked.then.take());
            }
            !is_it
        });
        failed.into_iter().for_each(|then| then(Err(errno)));
    }

    fn connect(self: &Arc<Remote>) -> Result<(u64, LinkWriter), Errno> {
        let (reader, writer, served) = self.call()?;
        let now = Instant::now();
        let closer = writer.closer().map_err(|_| Errno::EIO)?;
        let mut state = self.state();
        state.links += 1;
        let number = state.links;
        state.up = Some(Up { number, served, closer, heard: now, pinged: now });
        state.is_silent = false;
        drop(state);
        let remote = self.clone();
        let name = format!("from-{}", self.node);
        let listening = std::thread::Builder::new().name(name);
        listening.spawn(move || remote.hear(number, reader)).map_err(|_| Errno::EAGAIN)?;
        Ok((number, writer))
    }

    /// Has the daemons start a server, and calls that.
    fn call(&self) -> Result<(LinkReader, LinkWriter, Served), Errno> {
        let mut client = Client::connect(&self.socket).map_err(|error| errno_of(&error))?;
        client.set_patience(DAEMON_PATIENCE).map_err(|error| errno_of(&error))?;
        let nodes = client.nodes().map_err(|error| errno_of(&error))?;
        let node = nodes.iter().find(|node| node.id == self.node).ok_or(Errno::ENOENT)?;
        let request = Box::new(Request::ServeFiles { user: self.user });
        let reply = client.request(&Request::At { node: self.node, request });
        let Reply::FileServer(mut berth) = reply.map_err(|error| errno_of(&error))? else {
            return Err(Errno::EPROTO);
        };
        // It may not know where it is seen from here.
        berth.address = node.address.parse().unwrap_or(berth.address);
        let (mut reader, writer) = link::connect(&berth, Role::Files).map_err(|_| Errno::EIO)?;
        reader.set_timeout(Some(SILENCE_MAX)).map_err(|_| Errno::EIO)?;
        let served = reader.receive().map_err(|_| Errno::EIO)?;
        reader.set_timeout(None).map_err(|_| Errno::EIO)?;
        Ok((reader, writer, served))
    }

    fn hear(&self, link: u64, mut reader: LinkReader) {
        while let Ok(message) = reader.receive_bytes() {
            let Ok((Answer { id, result }, content)) = decode::<Answer>(message) else { break };
            let content = content.to_vec();
            if let Some(up) = self.state().up.as_mut().filter(|up| up.number == link) {
                up.heard = Instant::now();
            }
            let outcome = result.map(|told| Heard { told, content, link });
            self.answer(id, outcome.map_err(|number| Errno::from_raw(i32::from(number))));
        }
        self.lost(link);
    }

    fn lost(&self, link: u64) {
        let mut state = self.state();
        if let Some(up) = state.up.take_if(|up| up.number == link) {
            up.closer.close();
        }
        let errno = if state.is_silent { Errno::ETIMEDOUT } else { Errno::EIO };
        drop(state);
        self.fail(Some(link), errno);
    }
}

/// What a daemon's refusal is to a program.
fn errno_of(error: &Error) -> Errno {
    match error {
        Error::Refused(failure) => match failure.code.as_str() {
            "not-allowed" | "files-not-shown" => Errno::EACCES,
            "no-such-node" => Errno::ENOENT,
            "no-answer" => Errno::ETIMEDOUT,
            _ => Errno::EIO,
        },
        _ => Errno::EIO,
    }
}

/// Sends what is queued, and connects for that.
fn send_all(queue: &Receiver<Sending>, remote: impl Fn() -> Option<Arc<Remote>>) {
    let mut writer = None;
    for sending in queue {
        let Some(remote) = remote() else { return };
        remote.send(&sending, &mut writer);
    }
}

impl Remote {
    fn send(self: &Arc<Remote>, sending: &Sending, writer: &mut Option<(u64, LinkWriter)>) {
        let id = sending.call.id;
        loop {
            if writer.is_none() && sending.over == Over::Any {
                match self.connect() {
                    Ok(made) => *writer = Some(made),
                    Err(errno) => {
                        self.state().refused = Some((Instant::now() + REFUSED_FOR, errno));
                        return self.fail(None, errno);
                    }
                }
            }
            let Some((link, to)) = writer else { return self.answer(id, Err(Errno::ESTALE)) };
            if matches!(sending.over, Over::Only(only) if only != *link) {
                return self.answer(id, Err(Errno::ESTALE));
            }
            match self.begin_to_send(id, *link) {
                Begun::Yes => {
                    if to.send_bytes(&[&encode(&sending.call), &sending.content]).is_err() {
                        self.lost(*link);
                    }
                    return;
                }
                Begun::NotWanted => return,
                Begun::LinkLost => *writer = None,
            }
        }
    }

    /// Notes over which link it goes, if that is still there: whoever loses it answers for that.
    fn begin_to_send(&self, id: u64, link: u64) -> Begun {
        let mut state = self.state();
        if state.up.as_ref().is_none_or(|up| up.number != link) {
            return Begun::LinkLost;
        }
        // What is only told is not among these.
        if id == 0 {
            return Begun::Yes;
        }
        let Some(asked) = state.asked.get_mut(&id) else { return Begun::NotWanted };
        asked.link = Some(link);
        // A link that was made for it took its time.
        asked.since = Instant::now();
        Begun::Yes
    }
}

enum Begun {
    Yes,
    /// It was answered with an error meanwhile.
    NotWanted,
    LinkLost,
}
