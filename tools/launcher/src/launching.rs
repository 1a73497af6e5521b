//! The loop of a launcher: everything that happens to the job comes here, one after the other.

use crate::Options;
use crate::allocation::{Wanted, allocate};
use crate::beginning::{begin, describe, hear_signals, now_s, output};
use crate::holding::Holding;
use crate::input::Input;
use crate::output::{Output, Piece};
use crate::ranks::{BY_SIGNAL, LOST, Ranks, State, cause, has_failed};
use crate::servers::Server;
use anyhow::{Result, bail};
use client::Client;
use client::signals::signal_name;
use nix::sys::signal::{Signal, raise};
use signal_hook::consts::{
    SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, sync_channel};
use std::time::{Duration, Instant};
use wire::control::{Failure, Reply, Request};
use wire::jobs::{FromRanks, Job, JobAsk, JobState, NODE_WINDOW_BYTES, Stream, ToRanks};

/// Ranks that were told to end have so long for it.
const GRACE: Duration = Duration::from_secs(5);
/// Job servers that were told that nothing is to be left have so long for it, if somebody waits who
/// has asked for that. They try for ten seconds.
const GONE_PATIENCE: Duration = Duration::from_secs(15);
/// Events that wait while one is taken in; whoever has more waits.
const EVENTS_WAITING_MAX: usize = 1_024;
/// Reasons why ranks stay where they are that are told.
const REASONS_MAX: usize = 8;
/// Failures that are told one by one.
const TOLD_MAX: usize = 10;
/// Those that end a job ...
pub const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
/// ... and those that its ranks get as they are.
pub const PASSED_ON: [i32; 2] = [SIGUSR1, SIGUSR2];

/// What happens.
pub enum Event {
    /// A job server says something. The place is that of its node.
    Said {
        place: usize,
        said: FromRanks,
        content: Vec<u8>,
    },
    Lost {
        place: usize,
        why: String,
    },
    Signal(i32),
    /// So much of a stream was written.
    Written {
        place: usize,
        rank: u32,
        stream: Stream,
        bytes: u32,
    },
    CannotWrite(std::io::Error),
    /// All that was to be written.
    AllWritten,
    /// From this process's standard input; nothing is its end.
    Input(Vec<u8>),
    Asked {
        ask: JobAsk,
        answer: Sender<Reply>,
    },
}

/// Launches a job and stays with it to its end. Returns the exit status. `begun` is called when its
/// ranks begin.
///
/// # Errors
/// It was not begun, and why; nothing of it is anywhere then.
pub fn launch(options: &Options, begun: impl FnOnce(&Job) -> Result<()>) -> Result<u8> {
    let mut client = Client::connect(&options.socket)?;
    let status = match client.request(&Request::Status)? {
        Reply::Status(status) => status,
        other => bail!("the daemon answered {other:?}: is it of another version?"),
    };
    let wanted =
        Wanted { ranks: options.ranks, per_node: options.per_node, nodes: options.nodes.as_ref() };
    let nodes = allocate(&mut client, status.node, &wanted)?;
    let (events, heard) = sync_channel(EVENTS_WAITING_MAX);
    let has_begun = Arc::<AtomicBool>::default();
    let signals = hear_signals(&events, &has_begun)?;
    let job = describe(options, &status, &nodes);
    let mut holding = Holding::begin(&options.socket, &job, events.clone())?;
    let servers = begin(options, &mut client, &job, &nodes, (&events, &heard));
    has_begun.store(true, Ordering::SeqCst);
    let (servers, early) = match servers {
        Ok(begun) => begun,
        Err(error) => {
            let ended = Some(now_s());
            holding.changed(Job { state: JobState::Ended, ended, exit_status: Some(LOST), ..job });
            holding.finish();
            return Err(error);
        }
    };
    let mut launcher = Launcher {
        ranks: Ranks::new(&nodes),
        output: output(options, &job, events.clone())?,
        input: None,
        over: BTreeSet::new(),
        under_way: vec![0; nodes.len()],
        is_written: false,
        servers,
        job,
        holding,
        ending: None,
        gone_by: None,
        is_suspended: options.program.is_suspended,
        interrupted_by: None,
        waiting: Vec::new(),
        kills_on_bad_exit: options.kills_on_bad_exit,
        unmanaged: BTreeSet::new(),
    };
    begun(&launcher.job)?;
    let input = options.program.input;
    let readers: Vec<u32> = (0..launcher.ranks.size()).filter(|rank| input.is_for(*rank)).collect();
    if !readers.is_empty() {
        launcher.input = Some(Input::start(readers.into_iter(), events)?);
    }
    let status = launcher.run(&heard, early);
    signals.close();
    status
}

struct Launcher {
    ranks: Ranks,
    servers: Vec<Server>,
    /// The places of those that have nothing left.
    over: BTreeSet<usize>,
    /// What came of each node's streams and was not written yet, bytes.
    under_way: Vec<usize>,
    output: Output,
    is_written: bool,
    input: Option<Input>,
    job: Job,
    holding: Holding,
    /// Until when ranks have to end by themselves; it was asked for.
    ending: Option<Instant>,
    /// Until when servers have to say that nothing is left, and what they have said to be written.
    gone_by: Option<Instant>,
    is_suspended: bool,
    interrupted_by: Option<i32>,
    /// Who wants to know when it is over.
    waiting: Vec<Sender<Reply>>,
    kills_on_bad_exit: bool,
    /// Why ranks stay where they began; each reason is told once.
    unmanaged: BTreeSet<String>,
}

impl Launcher {
    fn run(mut self, heard: &Receiver<Event>, early: Vec<Event>) -> Result<u8> {
        for event in early {
            self.take(event);
        }
        while !(self.are_gone() && self.is_written) {
            if self.are_gone() {
                self.output.close();
            }
            let event = match self.ending.or(self.gone_by) {
                Some(until) => heard.recv_timeout(until.saturating_duration_since(Instant::now())),
                None => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) if self.ending.is_some() => self.kill(),
                Err(RecvTimeoutError::Timeout) => self.give_up(),
                Err(RecvTimeoutError::Disconnected) => bail!("a thread of the launcher is gone"),
            }
        }
        let status = self.exit_status();
        self.tell_failures();
        (self.job.state, self.job.ended) = (JobState::Ended, Some(now_s()));
        self.job.exit_status = Some(status);
        self.tell();
        for waiting in std::mem::take(&mut self.waiting) {
            let _ = waiting.send(self.shown());
        }
        self.holding.finish();
        if self.gone_by.is_none() {
            self.servers.iter_mut().for_each(Server::end);
        }
        Ok(status)
    }

    /// Nothing is left of any rank, as far as can be known.
    fn are_gone(&self) -> bool {
        self.over.len() == self.servers.len()
    }

    /// Nobody is waited for any longer.
    fn give_up(&mut self) {
        for place in 0..self.servers.len() {
            self.lose(place, "it does not say that nothing is left");
        }
        self.is_written = true;
    }

    fn exit_status(&self) -> u8 {
        match self.interrupted_by {
            Some(signal) => BY_SIGNAL + signal as u8,
            None => self.ranks.exit_status(),
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            // What one says that is not believed any more.
            Event::Said { place, .. } if self.over.contains(&place) => {}
            Event::Said { place, said, content } => self.hear(place, said, content),
            Event::Lost { place, why } => self.lose(place, &why),
            Event::Signal(signal) => self.signalled(signal),
            Event::Written { place, rank, stream, bytes } => {
                self.under_way[place] = self.under_way[place].saturating_sub(bytes as usize);
                self.servers[place].say(ToRanks::Taken { rank, stream, bytes });
            }
            Event::CannotWrite(error) => {
                // A reader that has seen enough (`| head`) is no failure.
                if error.kind() != std::io::ErrorKind::BrokenPipe {
                    eprintln!("osmos: cannot write what ranks write, so the job ends: {error}");
                }
                self.interrupted_by.get_or_insert(nix::libc::SIGPIPE);
                self.is_written = true;
                self.kill();
            }
            Event::AllWritten => self.is_written = true,
            Event::Input(bytes) => self.pass_on_input(&bytes),
            Event::Asked { ask, answer } => self.asked(ask, answer),
        }
    }

    fn hear(&mut self, place: usize, said: FromRanks, content: Vec<u8>) {
        let own = self.ranks.of(place);
        match said {
            FromRanks::Started { rank, pid } => {
                self.set(place, rank, State::Running { pid });
            }
            FromRanks::NotStarted { rank, errno } => {
                self.set(place, rank, State::NotStarted { errno });
            }
            FromRanks::Ended { rank, status } => {
                if let Some(State::Running { pid }) = self.ranks.state(rank) {
                    self.set(place, rank, State::Ended { pid, status });
                }
            }
            FromRanks::Output { rank, stream } if own.contains(&rank) => {
                self.under_way[place] += content.len();
                if self.under_way[place] > NODE_WINDOW_BYTES {
                    return self.lose(place, "it sends more than there is room for");
                }
                self.output.write(Piece { place, rank, stream, bytes: content });
            }
            FromRanks::InputTaken { rank, bytes } if own.contains(&rank) => {
                if let Some(input) = &mut self.input {
                    input.taken(rank, bytes as usize);
                }
            }
            FromRanks::InputClosed { rank } if own.contains(&rank) => {
                if let Some(input) = &mut self.input {
                    input.close(rank);
                }
            }
            FromRanks::NotManaged { rank, why } if own.contains(&rank) => {
                self.not_managed(place, rank, why);
            }
            FromRanks::Gone => {
                self.lose_ranks(place);
                self.over.insert(place);
            }
            other => self.lose(place, &format!("it says {other:?}")),
        }
    }

    /// A rank is not what it was.
    fn set(&mut self, place: usize, rank: u32, state: State) {
        if !self.ranks.set(place, rank, state) {
            return self.lose(place, &format!("it says that rank {rank} is {state:?}"));
        }
        if has_failed(state) && self.kills_on_bad_exit && self.ending.is_none() {
            let cause = cause(state, self.ranks.node(place));
            eprintln!("osmos: rank {rank}: {cause}: the others are ended");
            self.ask_to_end(SIGTERM);
        }
        self.go_on();
    }

    /// Whether that was the last of them.
    fn go_on(&mut self) {
        if self.ranks.are_over() {
            self.kill();
        }
        self.tell();
    }

    fn lose(&mut self, place: usize, why: &str) {
        if !self.over.insert(place) {
            return;
        }
        self.servers[place].close();
        if self.lose_ranks(place) > 0 {
            eprintln!("osmos: node {} is lost: {why}", self.ranks.node(place));
        }
    }

    /// Of what has not ended nobody will hear.
    fn lose_ranks(&mut self, place: usize) -> u32 {
        for rank in self.ranks.of(place) {
            if let Some(input) = &mut self.input {
                input.close(rank);
            }
        }
        let lost = self.ranks.lose(place);
        if lost > 0 {
            self.go_on();
        }
        lost
    }

    fn not_managed(&mut self, place: usize, rank: u32, why: String) {
        let is_running = matches!(self.ranks.state(rank), Some(State::Running { .. }));
        // The texts differ by pids only.
        let kind: String = why.chars().filter(|c| !c.is_ascii_digit()).collect();
        let is_known = self.unmanaged.len() >= REASONS_MAX || self.unmanaged.contains(&kind);
        if is_running && !is_known {
            self.unmanaged.insert(kind);
            let node = self.ranks.node(place);
            eprintln!("osmos: rank {rank} stays on node {node}, and others like it: {why}");
        }
    }

    fn pass_on_input(&mut self, bytes: &[u8]) {
        let Some(input) = &mut self.input else { return };
        for rank in input.read(bytes.len()) {
            if let Some(place) = self.ranks.place_of(rank) {
                self.servers[place].send(ToRanks::Input { rank }, bytes.to_vec());
            }
        }
    }

    fn say_all(&self, message: &ToRanks) {
        for server in &self.servers {
            server.say(message.clone());
        }
    }

    fn signal(&mut self, rank: Option<u32>, signal: i32) {
        match rank.and_then(|rank| self.ranks.place_of(rank)) {
            Some(place) => self.servers[place].say(ToRanks::Signal { rank, signal }),
            None => self.say_all(&ToRanks::Signal { rank: None, signal }),
        }
        let was_suspended = self.is_suspended;
        match (rank, signal) {
            (None, nix::libc::SIGSTOP | nix::libc::SIGTSTP) => self.is_suspended = true,
            (None, SIGCONT) => self.is_suspended = false,
            _ => {}
        }
        if was_suspended != self.is_suspended {
            self.tell();
        }
    }

    /// This process was sent a signal.
    fn signalled(&mut self, signal: i32) {
        match signal {
            SIGTSTP => {
                self.signal(None, nix::libc::SIGSTOP);
                self.servers.iter().for_each(Server::flush);
                // As any command; it goes on with SIGCONT, and its ranks with it.
                let _ = raise(Signal::SIGSTOP);
            }
            SIGCONT => self.signal(None, SIGCONT),
            signal if PASSED_ON.contains(&signal) => self.signal(None, signal),
            // What is not shown by now is not shown.
            signal if self.are_gone() => {
                self.interrupted_by = Some(signal);
                self.is_written = true;
            }
            _ if self.ending.is_some() => self.kill(),
            // Whoever asks again does not want to wait.
            _ if self.gone_by.is_some() => self.give_up(),
            signal => {
                self.interrupted_by = Some(signal);
                self.ask_to_end(signal);
                eprintln!(
                    "osmos: {}: the job ends; what is left of it in {} s is killed, or at once \
                     with the next",
                    signal_name(signal),
                    GRACE.as_secs()
                );
            }
        }
    }

    fn ask_to_end(&mut self, signal: i32) {
        self.ending = Some(Instant::now() + GRACE);
        self.job.state = JobState::Ending;
        self.signal(None, signal);
        // What is stopped hears nothing else.
        self.signal(None, SIGCONT);
        self.tell();
    }

    /// Nothing is to be left, nor to begin.
    fn kill(&mut self) {
        self.ending = None;
        if self.interrupted_by.is_some() {
            self.gone_by.get_or_insert_with(|| Instant::now() + GONE_PATIENCE);
        }
        self.job.state = JobState::Ending;
        self.say_all(&ToRanks::End);
    }

    fn asked(&mut self, ask: JobAsk, answer: Sender<Reply>) {
        let reply = match ask {
            JobAsk::Wait => return self.waiting.push(answer),
            JobAsk::Show => self.shown(),
            JobAsk::Signal { rank: Some(rank), .. } if rank >= self.ranks.size() => {
                let text = format!("job {} has {} ranks, from 0", self.job.job, self.ranks.size());
                Reply::Error(Failure { code: "no-rank".to_owned(), text })
            }
            JobAsk::Signal { signal, rank } => {
                self.signal(rank, signal);
                Reply::Done
            }
            JobAsk::Kill => {
                self.interrupted_by.get_or_insert(SIGKILL);
                self.kill();
                self.tell();
                Reply::Done
            }
        };
        // Whoever has gone needs no answer.
        let _ = answer.send(reply);
    }

    fn shown(&mut self) -> Reply {
        self.count();
        Reply::Job { of: Box::new(self.job.clone()), members: self.ranks.listed() }
    }

    fn count(&mut self) {
        let job = &mut self.job;
        job.running = self.ranks.running();
        job.failed = self.ranks.failed_count();
        if !matches!(job.state, JobState::Ending | JobState::Ended) {
            job.state = match self.is_suspended {
                true => JobState::Suspended,
                false => JobState::Running,
            };
        }
    }

    fn tell(&mut self) {
        self.count();
        self.holding.changed(self.job.clone());
    }

    fn tell_failures(&self) {
        // How one command has ended its exit status says.
        let is_plain =
            |state: State| matches!(state, State::Ended { status, .. } if status & 0x7f == 0);
        let of = self.ranks.failed();
        let is_wanted = |state: State| match (self.interrupted_by, state) {
            // That was asked for.
            (Some(by), State::Ended { status, .. }) => ![by, SIGKILL].contains(&(status & 0x7f)),
            _ => self.ranks.size() > 1 || !is_plain(state),
        };
        let failed: Vec<(u32, State)> = of.filter(|(_, state)| is_wanted(*state)).collect();
        for (rank, state) in failed.iter().take(TOLD_MAX) {
            let node = self.ranks.place_of(*rank).map(|place| self.ranks.node(place));
            let node = node.unwrap_or(self.job.job.home);
            eprintln!("osmos: rank {rank} on node {node}: {}", cause(*state, node));
        }
        if let more @ 1.. = failed.len().saturating_sub(TOLD_MAX) {
            eprintln!("osmos: and {more} more");
        }
    }
}
