//! The loop of a job server: what the launcher says, what ranks write and read, and their ends, one
//! after the other in one thread. That thread starts the ranks, which the kernel kills with it.
//!
//! Nothing in it waits but for all of it at once. Writing to the launcher may take as long as the
//! network does; how much can be under way is bounded by the windows of [`crate::rank`].

use crate::adoption::Adoption;
use crate::descendants;
use crate::listening::{Event, Source, listen};
use crate::program::{self, Prepared};
use crate::rank::{FromRank, Got, Rank, ToRank};
use kernel::spawning;
use kernel::wake_up;
use link::{LinkReader, LinkWriter};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, WaitOptions, getrlimit, setrlimit, wait};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use wire::files::encode;
use wire::ids::{GlobalPid, NodeId};
use wire::jobs::{
    FromRanks, NODE_WINDOW_BYTES, RANKS_PER_NODE_MAX, STREAM_BYTES_MAX, Stream, ToRanks,
};

/// While everything is to end, who is left is killed again after so long: he may have been born
/// since.
const KILL_PAUSE: Duration = Duration::from_millis(50);
/// What cannot be killed for so long (it waits for a disk, or is another user's) is left, and said.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// A stream that somebody else holds open is waited for so long when all ranks are gone.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);
const EVENTS_MAX: usize = 64;
/// Words of the launcher that wait while this is at work; more are left to the network.
const EVENTS_WAITING_MAX: usize = 256;

/// Where this serves, and whom.
pub struct Place {
    pub job: GlobalPid,
    pub node: NodeId,
    pub door: Option<PathBuf>,
}

/// How far it is.
enum Stage {
    /// Nothing was prepared yet.
    New,
    Prepared(Prepared),
    Running,
    /// Everything is to end.
    Ending {
        since: Instant,
        /// Since nothing is left that came of ranks.
        alone_since: Option<Instant>,
    },
}

struct Server {
    place: Place,
    stage: Stage,
    ranks: BTreeMap<u32, Rank>,
    by_pid: HashMap<i32, u32>,
    writer: LinkWriter,
    /// The launcher is there.
    is_heard: bool,
    epoll: Epoll,
    /// Of all streams, what is under way; also of those that have ended.
    under_way: usize,
    /// Streams that are not read until there is room.
    full: BTreeSet<(u32, Stream)>,
    events: SyncSender<Event>,
    wake_up: Arc<EventFd>,
    /// What ranks leave behind is not killed.
    leaves_daemons: bool,
    /// As it was given to this process, and is given to ranks.
    descriptors: Rlimit,
    place_to_read: Vec<u8>,
}

/// Serves one job until nothing of it is left here.
pub fn serve(
    (reader, writer): (LinkReader, LinkWriter),
    daemon: OwnedFd,
    place: Place,
) -> io::Result<()> {
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    children.thread_block()?;
    let signals = SignalFd::with_flags(&children, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let wake_up = Arc::new(wake_up::make().map_err(|error| error.source)?);
    let (events, heard) = sync_channel(EVENTS_WAITING_MAX);
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let readable = |source: Source| EpollEvent::new(EpollFlags::EPOLLIN, source.number());
    epoll.add(&signals, readable(Source::Child))?;
    epoll.add(&*wake_up, readable(Source::Woken))?;
    // Three descriptors a rank.
    let descriptors = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: descriptors.maximum, ..descriptors })?;
    listen(reader, daemon, &events, &wake_up)?;
    let mut server = Server {
        place,
        stage: Stage::New,
        ranks: BTreeMap::new(),
        by_pid: HashMap::new(),
        writer,
        is_heard: true,
        epoll,
        under_way: 0,
        full: BTreeSet::new(),
        leaves_daemons: false,
        events,
        wake_up,
        descriptors,
        place_to_read: vec![0; STREAM_BYTES_MAX],
    };
    server.run(&signals, &heard)
}

impl Server {
    fn run(&mut self, signals: &SignalFd, heard: &Receiver<Event>) -> io::Result<()> {
        let mut ready = [EpollEvent::empty(); EVENTS_MAX];
        while !self.is_over()? {
            let timeout = match self.stage {
                Stage::Ending { .. } => {
                    EpollTimeout::try_from(KILL_PAUSE).unwrap_or(EpollTimeout::ZERO)
                }
                _ => EpollTimeout::NONE,
            };
            let count = match self.epoll.wait(&mut ready, timeout) {
                Err(nix::errno::Errno::EINTR) => 0,
                waited => waited?,
            };
            for event in &ready[..count] {
                match Source::of(event.data()) {
                    // What it is about is looked for below.
                    Source::Woken => drop(self.wake_up.read()),
                    Source::Child => while let Ok(Some(_)) = signals.read_signal() {},
                    Source::Output(rank, stream) => self.pass_on(rank, stream),
                    Source::Input(rank) => self.feed(rank),
                }
            }
            while let Ok(event) = heard.try_recv() {
                self.take(event);
            }
            self.reap()?;
        }
        Ok(())
    }

    fn say(&mut self, message: &FromRanks, content: &[u8]) {
        if self.is_heard && self.writer.send_bytes(&[&encode(message), content]).is_err() {
            self.lost("it takes nothing more");
        }
    }

    fn lost(&mut self, why: &str) {
        self.is_heard = false;
        tracing::info!("job {}: its launcher is gone: {why}", self.place.job);
        self.end();
    }

    /// Everything is to end.
    fn end(&mut self) {
        if !matches!(self.stage, Stage::Ending { .. }) {
            self.stage = Stage::Ending { since: Instant::now(), alone_since: None };
        }
        if !self.is_left() {
            descendants::kill_all();
        }
    }

    /// All ranks have ended, and the rest is nobody's business.
    fn is_left(&self) -> bool {
        self.leaves_daemons && self.by_pid.is_empty()
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Said(said, content) => self.hear(said, &content),
            Event::NotTaken(rank, why) => {
                // One that has ended meanwhile is no reason to say anything.
                let is_there = |server: &Server| server.by_pid.values().any(|of| *of == rank);
                if self.reap().is_ok() && is_there(self) {
                    self.say(&FromRanks::NotManaged { rank, why }, &[]);
                }
            }
            Event::Lost(why) => self.lost(&why),
            Event::NotWanted => self.end(),
        }
    }

    fn hear(&mut self, said: ToRanks, content: &[u8]) {
        match said {
            ToRanks::Prepare(program) => self.prepare(*program),
            ToRanks::Start { first, count } => self.start(first, count),
            ToRanks::Input { rank } => self.input(rank, content),
            ToRanks::Taken { rank, stream, bytes } => self.taken(rank, stream, bytes as usize),
            ToRanks::Signal { rank, signal } => self.signal(rank, signal),
            ToRanks::End => self.end(),
        }
    }

    fn prepare(&mut self, program: wire::jobs::Program) {
        if !matches!(self.stage, Stage::New) {
            return self.lost("it prepares twice");
        }
        match Prepared::new(program, self.place.job, self.place.node) {
            Ok(prepared) => {
                self.stage = Stage::Prepared(prepared);
                self.say(&FromRanks::Prepared, &[]);
            }
            Err(why) => self.say(&FromRanks::Refused(why), &[]),
        }
    }

    fn start(&mut self, first: u32, count: u32) {
        let prepared = match std::mem::replace(&mut self.stage, Stage::Running) {
            Stage::Prepared(prepared) => prepared,
            stage => {
                self.stage = stage;
                return self.lost("nothing is prepared");
            }
        };
        let size = prepared.program.size;
        if count > RANKS_PER_NODE_MAX || first.checked_add(count).is_none_or(|end| end > size) {
            return self.lost("it begins ranks that there are not");
        }
        let (events, bell) = (self.events.clone(), self.wake_up.clone());
        self.leaves_daemons = prepared.program.leaves_daemons;
        let job = (!self.leaves_daemons).then_some(self.place.job);
        let door = self.place.door.clone();
        let mut adoption =
            Adoption::new(door, job, &prepared.program.moving, move |(rank, why)| {
                if events.send(Event::NotTaken(rank, why)).is_ok() {
                    let _ = bell.write(1);
                }
            });
        for rank in first..first + count {
            let place = program::Place { rank, local: rank - first, local_size: count };
            match self.begin(&prepared, &mut adoption, place) {
                Ok(pid) => self.say(&FromRanks::Started { rank, pid }, &[]),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(nix::libc::EIO);
                    self.say(&FromRanks::NotStarted { rank, errno }, &[]);
                }
            }
        }
    }

    fn begin(
        &mut self,
        prepared: &Prepared,
        adoption: &mut Adoption,
        place: program::Place,
    ) -> io::Result<i32> {
        let mut conditions = prepared.conditions(adoption.tracer());
        // Not what this process has of it.
        let number = nix::libc::RLIMIT_NOFILE;
        if !conditions.limits.iter().any(|(resource, ..)| *resource == number) {
            let value = |of: Option<u64>| of.unwrap_or(u64::MAX);
            let Rlimit { current, maximum } = self.descriptors;
            conditions.limits.push((number, value(current), value(maximum)));
        }
        let mut child = spawning::spawn(&mut prepared.command(place), &conditions)?;
        let rank = Rank::new(&mut child)?;
        let pid = rank.pid;
        for (stream, of) in [(Stream::Output, &rank.output), (Stream::Error, &rank.error)] {
            if let Some(of) = of {
                self.watch(Source::Output(place.rank, stream), of, EpollFlags::EPOLLIN);
            }
        }
        if let Some(input) = &rank.input {
            // Only whether anybody reads it.
            self.watch(Source::Input(place.rank), input, EpollFlags::empty());
        }
        self.by_pid.insert(pid, place.rank);
        self.ranks.insert(place.rank, rank);
        adoption.adopt(place.rank, pid);
        Ok(pid)
    }

    fn watch(&self, source: Source, pipe: impl AsFd, flags: EpollFlags) {
        if let Err(error) = self.epoll.add(pipe, EpollEvent::new(flags, source.number())) {
            tracing::error!("a stream of a rank is not watched: {error}");
        }
    }

    /// Sends on what a rank has written, as far as there is room.
    fn pass_on(&mut self, rank: u32, stream: Stream) {
        let mut place = std::mem::take(&mut self.place_to_read);
        loop {
            let of_all = NODE_WINDOW_BYTES.saturating_sub(self.under_way);
            let Some(of) = self.ranks.get_mut(&rank).and_then(|of| of.stream(stream).as_mut())
            else {
                break;
            };
            let room = of.room(of_all);
            if room == 0 {
                self.pause(rank, stream);
                break;
            }
            match of.read(&mut place[..room]) {
                Got::Bytes(count) => {
                    self.under_way += count;
                    self.say(&FromRanks::Output { rank, stream }, &place[..count]);
                    // Others are to have their turn.
                    if count < room {
                        break;
                    }
                }
                Got::NothingYet => break,
                Got::End => {
                    self.close(rank, stream);
                    break;
                }
            }
        }
        self.place_to_read = place;
    }

    /// Not looked at until there is room: not even at its end, of which the kernel tells always.
    fn pause(&mut self, rank: u32, stream: Stream) {
        if self.full.insert((rank, stream))
            && let Some(of) = self.stream(rank, stream)
        {
            let _ = self.epoll.delete(of);
        }
    }

    fn stream(&self, rank: u32, stream: Stream) -> Option<&FromRank> {
        let rank = self.ranks.get(&rank)?;
        match stream {
            Stream::Output => rank.output.as_ref(),
            Stream::Error => rank.error.as_ref(),
        }
    }

    fn close(&mut self, rank: u32, stream: Stream) {
        if let Some(of) = self.ranks.get_mut(&rank).and_then(|of| of.stream(stream).take()) {
            let _ = self.epoll.delete(of.as_fd());
            self.full.remove(&(rank, stream));
            self.say(&FromRanks::Output { rank, stream }, &[]);
        }
    }

    fn taken(&mut self, rank: u32, stream: Stream, bytes: usize) {
        // One that has ended may have been taken to its end only now.
        if let Some(of) = self.ranks.get_mut(&rank).and_then(|of| of.stream(stream).as_mut())
            && !of.taken(bytes)
        {
            return self.lost("it takes more than was sent");
        }
        let was_full = self.under_way >= NODE_WINDOW_BYTES;
        self.under_way = self.under_way.saturating_sub(bytes);
        // Where there was room for others, only this one can have waited for it.
        let waiting = match was_full {
            true => std::mem::take(&mut self.full),
            false => self.full.take(&(rank, stream)).into_iter().collect(),
        };
        for (rank, stream) in waiting {
            if let Some(of) = self.stream(rank, stream) {
                self.watch(Source::Output(rank, stream), of, EpollFlags::EPOLLIN);
            }
        }
    }

    fn input(&mut self, rank: u32, content: &[u8]) {
        // It may have ended, or closed its input, before it could be known.
        let Some(input) = self.ranks.get_mut(&rank).and_then(|of| of.input.as_mut()) else {
            return;
        };
        if content.is_empty() {
            input.end();
        } else if !input.add(content) {
            return self.lost("it sends more than there is room for");
        }
        self.feed(rank);
    }

    /// Has a rank read what waits for it.
    fn feed(&mut self, rank: u32) {
        let Some(input) = self.ranks.get_mut(&rank).and_then(|of| of.input.as_mut()) else {
            return;
        };
        let written = input.write();
        let is_over = written.is_err() || input.is_done() || !is_read(input);
        if let Ok(bytes @ 1..) = written {
            self.say(&FromRanks::InputTaken { rank, bytes: bytes as u32 }, &[]);
        }
        let Some(of) = self.ranks.get_mut(&rank) else { return };
        if is_over {
            if let Some(input) = of.input.take() {
                let _ = self.epoll.delete(input.as_fd());
            }
            self.say(&FromRanks::InputClosed { rank }, &[]);
        } else if let Some(input) = &of.input {
            let wants = match input.is_waiting() {
                true => EpollFlags::EPOLLOUT,
                false => EpollFlags::empty(),
            };
            let mut event = EpollEvent::new(wants, Source::Input(rank).number());
            let _ = self.epoll.modify(input.as_fd(), &mut event);
        }
    }

    fn signal(&mut self, rank: Option<u32>, signal: i32) {
        let Some(signal) = rustix::process::Signal::from_named_raw(signal) else {
            return self.lost("it sends a signal that there is not");
        };
        match rank {
            None => drop(descendants::signal(None, signal)),
            // One that has ended is not signalled.
            Some(rank) => {
                if let Some((pid, _)) = self.by_pid.iter().find(|(_, of)| **of == rank) {
                    descendants::signal(Some(*pid), signal);
                }
            }
        }
    }

    /// Takes in who has ended. Returns whether there is nobody left.
    fn reap(&mut self) -> io::Result<bool> {
        loop {
            let (pid, status) = match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => (pid.as_raw_nonzero().get(), status.as_raw()),
                Ok(None) => return Ok(false),
                Err(Errno::CHILD) => return Ok(true),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if let Some(rank) = self.by_pid.remove(&pid) {
                // What it has written comes before its end.
                self.pass_on(rank, Stream::Output);
                self.pass_on(rank, Stream::Error);
                self.say(&FromRanks::Ended { rank, status }, &[]);
            }
        }
    }

    /// Whether nothing is left to do; while everything ends that is hurried on.
    fn is_over(&mut self) -> io::Result<bool> {
        let Stage::Ending { since, alone_since } = self.stage else { return Ok(false) };
        let alone_since = match alone_since {
            Some(moment) => moment,
            None if self.reap()? || self.is_left() => Instant::now(),
            None if since.elapsed() > KILL_PATIENCE => {
                tracing::warn!("job {}: some of it cannot be killed", self.place.job);
                Instant::now()
            }
            None => {
                descendants::kill_all();
                return Ok(false);
            }
        };
        self.stage = Stage::Ending { since, alone_since: Some(alone_since) };
        let is_drained =
            self.ranks.values().all(|rank| rank.output.is_none() && rank.error.is_none());
        // What waits for the launcher is not lost; what nobody closes was given to others.
        let may_come = !self.full.is_empty() || alone_since.elapsed() < DRAIN_PATIENCE;
        if self.is_heard && !is_drained && may_come {
            return Ok(false);
        }
        self.say(&FromRanks::Gone, &[]);
        Ok(true)
    }
}

/// Whether anybody has the other end of the pipe.
fn is_read(input: &ToRank) -> bool {
    let mut polled = [PollFd::new(input.as_fd(), PollFlags::empty())];
    match poll(&mut polled, PollTimeout::ZERO) {
        Ok(_) => !polled[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLERR)),
        Err(_) => true,
    }
}
