//! Jobs: what their launchers tell of them, and what tools ask of those.
//!
//! The daemon is not in the way of a job: what a tool wants of one it asks the launcher, by the
//! socket that this has named, and hands on what it answers. A launcher is a process of some user.
//! So it has to be that of the user whose job it is, may take only so long, and cannot say whose
//! job it is. Whoever waits for the end of a job hears of it in any case: if the launcher says
//! nothing more, the end of its connection does.

use super::inquiries::named_signal;
use super::requests::{failure, no_process};
use super::{Daemon, Event};
use crate::accounts::Names;
use crate::control::{Answer, Caller};
use crate::jobs::{ConnectionId, Known, Moment, Told, fitting};
use crate::journal::wall_clock_s;
use crate::policy;
use crate::supervisor::Identity;
use brain::{Spreading, Unspread};
use std::io;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use wire::control::{Failure, Reply};
use wire::ids::{HomePid, NodeId};
use wire::jobs::{JOB_NODES_MAX, Job, JobAsk, RANKS_MAX, RANKS_PER_NODE_MAX};
use wire::limits::CONTROL_BYTES_MAX;

/// How long a launcher may take for an answer, where it does not wait for the end of its job.
const LAUNCHER_PATIENCE: Duration = Duration::from_secs(10);

fn moment() -> Moment {
    (Instant::now(), wall_clock_s())
}

impl Daemon {
    /// The launcher of a job tells of it.
    pub(super) fn hold_job(
        &mut self,
        (caller, connection): (Caller, Option<ConnectionId>),
        of: Job,
        socket: String,
    ) -> Result<Reply, Failure> {
        let is_launcher = |pid: &i32| of.job.pid.0 == *pid && of.job.home == self.me();
        let pid = caller.pid.filter(is_launcher).filter(|_| caller.node.is_none());
        let (Some(pid), Some(connection)) = (pid, connection) else {
            let text =
                format!("only the launcher of job {} tells of it, and it is another", of.job);
            return Err(failure("not-the-launcher", text));
        };
        let launcher = Identity::of(pid).ok_or_else(|| no_process(HomePid(pid)))?;
        let of = Job { uid: caller.uid, ..of };
        if let Some(told) = self.jobs.begin(launcher, moment()) {
            tell_end(told);
        }
        if let Some(told) = self.jobs.hold((launcher, connection), of, socket, moment())? {
            tell_end(told);
        }
        Ok(Reply::Done)
    }

    pub(super) fn launcher_left(&mut self, pid: i32, connection: ConnectionId) {
        if let Some(told) = self.jobs.left(pid, connection, moment()) {
            tell_end(told);
        }
    }

    pub(super) fn answer_jobs(&self, answer: oneshot::Sender<Answer>) {
        let jobs = self.jobs.all();
        tokio::task::spawn_blocking(move || {
            let names = Names::read();
            let jobs = jobs.into_iter().map(|of| named(of, &names)).collect();
            // A caller that has gone away needs no answer.
            let _ = answer.send(Answer::One(Reply::Jobs { jobs: fitting(jobs) }));
        });
    }

    pub(super) fn ask_job(
        &mut self,
        caller: Caller,
        (pid, ask): (i32, JobAsk),
        answer: oneshot::Sender<Answer>,
    ) {
        match self.check_ask(caller, pid, ask) {
            Ok(Known::Runs((of, socket))) => {
                let act = match ask {
                    JobAsk::Show | JobAsk::Wait => None,
                    JobAsk::Signal { signal, rank: None } => Some(format!("signal {signal}")),
                    JobAsk::Signal { signal, rank: Some(rank) } => {
                        Some(format!("signal {signal} to rank {rank}"))
                    }
                    JobAsk::Kill => Some("end the job".to_owned()),
                };
                if let Some(act) = act.filter(|_| of.uid != caller.uid) {
                    self.tell_act(caller, of.job, act);
                }
                tokio::spawn(Asking { of, socket, ask }.answer(self.events.clone(), answer));
            }
            Ok(Known::Ended(of)) => tell_end((of, vec![answer])),
            Ok(Known::Not) => refuse(answer, self.no_job(pid)),
            Err(failure) => refuse(answer, failure),
        }
    }

    /// Whom to ask, if the caller may.
    fn check_ask(
        &self,
        caller: Caller,
        pid: i32,
        ask: JobAsk,
    ) -> Result<Known<(Job, String), Job>, Failure> {
        let is_acting = !matches!(ask, JobAsk::Show | JobAsk::Wait);
        if let JobAsk::Signal { signal, .. } = ask {
            named_signal(signal)?;
        }
        match self.jobs.find(pid) {
            Known::Runs(held) => {
                if is_acting {
                    policy::may_end_job(caller, pid, held.of.uid)?;
                }
                Ok(Known::Runs((held.of.clone(), held.socket.clone())))
            }
            Known::Ended(of) if is_acting => {
                policy::may_end_job(caller, pid, of.uid)?;
                Err(failure("ended", format!("job {pid} has ended")))
            }
            Known::Ended(of) => Ok(Known::Ended(of.clone())),
            Known::Not => Ok(Known::Not),
        }
    }

    fn no_job(&self, pid: i32) -> Failure {
        failure("no-job", format!("there is no job {pid} on node {}", self.me()))
    }

    /// The launcher does not say any more when its job has ended: the end of its connection will,
    /// if it has not come yet.
    pub(super) fn wait_on(&mut self, pid: i32, answer: oneshot::Sender<Answer>) {
        self.jobs.retain_waiting(|waiting| !waiting.is_closed());
        let Err(answer) = self.jobs.wait(pid, answer) else { return };
        match self.jobs.find(pid) {
            Known::Ended(of) => tell_end((of.clone(), vec![answer])),
            Known::Runs(_) | Known::Not => refuse(answer, no_answer(pid, "it is gone")),
        }
    }

    /// How ranks of a job are best spread now.
    pub(super) fn spread_ranks(
        &self,
        ranks: u32,
        per_node: Option<u32>,
        nodes: Vec<NodeId>,
    ) -> Result<Reply, Failure> {
        if !(1..=RANKS_MAX).contains(&ranks) || per_node == Some(0) {
            let text = format!("a job has 1 to {RANKS_MAX} ranks, and at least one on a node");
            return Err(failure("bad-ranks", text));
        }
        if nodes.len() > JOB_NODES_MAX {
            let text = format!("a job has {JOB_NODES_MAX} nodes at most");
            return Err(failure("too-many-nodes", text));
        }
        if let Some(node) = nodes.iter().find(|node| self.members.get(**node).is_none()) {
            return Err(self.no_such_node(*node));
        }
        let per_node_max = per_node.map_or(RANKS_PER_NODE_MAX, |max| max.min(RANKS_PER_NODE_MAX));
        let without = self.nodes_without_ranks();
        let spreading = Spreading { ranks, per_node_max, among: nodes, without };
        let spread = self.thought.brain().spread(self.brain_time(), &spreading);
        let nodes = spread.map_err(|unspread| match unspread {
            Unspread::NotAlive(node) => {
                failure("not-alive", format!("node {node} is not alive: no rank can begin there"))
            }
            Unspread::NoNode => failure("no-node", "no node takes any now"),
            Unspread::TooMany { fit } => {
                let text = format!("{ranks} ranks do not fit: {per_node_max} a node, {fit} in all");
                failure("too-many-ranks", text)
            }
        })?;
        Ok(Reply::Spread { nodes })
    }

    /// Those that are to be empty, as far as is known. What begins here is no guest.
    fn nodes_without_ranks(&self) -> Vec<NodeId> {
        let (me, drains) = (self.me(), self.wishes.state.drains);
        let views = self.thought.brain().members(self.brain_time());
        let is_without = |node: NodeId, is_closed: bool| match node == me {
            true => drains,
            false => is_closed,
        };
        let without = views.iter().filter(|view| is_without(view.node, view.is_closed));
        without.map(|view| view.node).collect()
    }
}

fn refuse(answer: oneshot::Sender<Answer>, failure: Failure) {
    // A caller that has gone away needs no answer.
    let _ = answer.send(Answer::One(Reply::Error(failure)));
}

fn no_answer(pid: i32, why: &str) -> Failure {
    failure("no-answer", format!("the launcher of job {pid} does not answer: {why}"))
}

/// As its user is called on this node.
fn named(of: Job, names: &Names) -> Job {
    Job { user: names.of(of.uid), ..of }
}

/// Tells all who want to know it how a job has ended.
fn tell_end((of, waiting): Told<oneshot::Sender<Answer>>) {
    if waiting.is_empty() {
        return;
    }
    tokio::task::spawn_blocking(move || {
        let of = Box::new(named(of, &Names::read()));
        for answer in waiting {
            // A caller that has gone away needs no answer.
            let _ = answer.send(Answer::One(Reply::Job { of: of.clone(), members: Vec::new() }));
        }
    });
}

/// A question to a launcher.
struct Asking {
    of: Job,
    socket: String,
    ask: JobAsk,
}

impl Asking {
    async fn answer(
        self,
        events: tokio::sync::mpsc::Sender<Event>,
        mut answer: oneshot::Sender<Answer>,
    ) {
        let pid = self.of.job.pid.0;
        let said = tokio::select! {
            said = self.put() => said,
            () = answer.closed() => return,
        };
        let reply = match said {
            Ok(Reply::Job { of, members }) => {
                let Job { job, uid, .. } = self.of;
                let told = Job { job, uid, ..*of };
                let told = tokio::task::spawn_blocking(move || named(told, &Names::read()));
                told.await.map(|of| Reply::Job { of: Box::new(of), members }).map_err(|_| None)
            }
            Ok(reply @ (Reply::Done | Reply::Error(_))) => Ok(reply),
            Ok(_) => Err(Some("something else than it was asked for".to_owned())),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(Some(error.to_string()))
            }
            Err(_) if self.ask == JobAsk::Wait => {
                // Nobody is left to be told once the daemon has ended.
                let _ = events.send(Event::WaitBroke { pid, answer }).await;
                return;
            }
            Err(error) => return refuse(answer, no_answer(pid, &error.to_string())),
        };
        match reply {
            // A caller that has gone away needs no answer.
            Ok(reply) => drop(answer.send(Answer::One(reply))),
            Err(Some(what)) => {
                let text =
                    format!("the launcher of job {pid} does not answer as it should: {what}");
                refuse(answer, failure("bad-answer", text));
            }
            Err(None) => refuse(answer, no_answer(pid, "the daemon ends")),
        }
    }

    async fn put(&self) -> io::Result<Reply> {
        match self.ask {
            JobAsk::Wait => self.converse().await,
            _ => timeout(LAUNCHER_PATIENCE, self.converse()).await.map_err(|_| {
                let text = format!("it has said nothing for {} s", LAUNCHER_PATIENCE.as_secs());
                io::Error::new(io::ErrorKind::TimedOut, text)
            })?,
        }
    }

    async fn converse(&self) -> io::Result<Reply> {
        let mut stream = UnixStream::connect(format!("\0{}", self.socket)).await?;
        if stream.peer_cred()?.uid() != self.of.uid {
            return Err(io::Error::other("its socket is another user's"));
        }
        let mut line = serde_json::to_vec(&self.ask)?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        line.clear();
        let mut reader = BufReader::new(stream.take(CONTROL_BYTES_MAX as u64));
        reader.read_until(b'\n', &mut line).await?;
        match line.last() {
            Some(b'\n') => serde_json::from_slice(&line)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
            _ if line.len() >= CONTROL_BYTES_MAX => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "more than it may say"))
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
