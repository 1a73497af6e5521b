//! The dispatcher: one task that owns all state of a node and takes in one event after another.
//!
//! Sockets, supervisors and looks at `/proc` are tasks of their own; each tells what it saw as an
//! [`Event`] and is told what to do through a queue that never blocks this task. So nothing here
//! needs a lock, and what happened has one order.
//!
//! The state is kept in parts, which do not know each other; each says at its head what it is for.
//! What is done here connects them: one is asked, another is told, the journal and the brain hear
//! of it.
//!
//! | part | what it knows |
//! |---|---|
//! | [`Keyring`] | what this node proves itself with, and what it has heard that was proved |
//! | [`Members`], [`Others`] | who belongs to the cluster, and what is known of each |
//! | [`Links`] | whom this node is linked to, and whom it calls when |
//! | [`Admissions`] | who is about to join here |
//! | [`Passage`] | whether this node joins, leaves or goes down |
//! | [`Registry`], [`Supervisors`] | its own processes, and who serves them |
//! | [`Hosting`] | what it has of others: guests, and the memory that they leave |
//! | [`MemoryGroups`], [`Programs`] | who shares memory; what programs of a name have taken |
//! | [`Looks`], [`Load`] | when to look at `/proc`; how busy this node is |
//! | [`Thought`] | the brain, and what is on its way in |
//! | [`UserServers`] | whose files are shown and whose ranks begin here, or are to |
//! | [`Jobs`] | whose launchers are here; [`RankServers`]: whose ranks are |
//! | [`Inquiries`] | what tools here have asked other nodes, and theirs this one |
//! | [`Wishes`](owner::Wishes), [`Tallies`](tallies::Tallies) | what owners and users wait for |
//!
//! What connects them, by what it is about:
//!
//! * [`cluster`](self::cluster): calls, links, members, messages of other nodes
//! * [`membership`]: nodes that leave or are forgotten, the secret, and the numbers of new ones;
//!   [`names`]: what people call them
//! * [`requests`]: what user tools ask; [`listing`]: what `ps`, `nodes`, `why` show;
//!   [`metrics`]: what is measured for those who watch many nodes;
//!   [`inquiries`](self::inquiries): what tools of one node ask another
//! * [`processes`]: managed processes: how they come, what is seen of them, how they end
//! * [`adopting`]: those that run already; [`newborns`]: those that have just begun; [`forks`]:
//!   those that are made away
//! * [`processors`]: whose processors will do for which processes
//! * [`moves`]: one move from order to end; [`deputies`]: the supervisors that carry it out
//! * [`lending`]: what leaves this home at all; [`move_limits`]: what moves may take of nodes
//! * [`linking`]: moves that wait for a link to their target
//! * [`calling_off`]: moves that are not wanted any more
//! * [`companions`]: those who share memory with one that moves; [`memory_groups`]: how they are
//!   weighed
//! * [`paying`]: what moves are expected to cost, and did; [`foresight`]: what would become of one
//! * [`time_away`]: what processes use while they are away; [`tallies`]: all that a command does
//! * [`guests`]: processes of other nodes that run here; [`imprints`](self::imprints): what they
//!   leave; [`spare`]: that they have no more memory than there is
//! * [`user_servers`](self::user_servers): this node's files, and ranks of jobs, for users of
//!   others
//! * [`jobs`](self::jobs): jobs whose launchers are here; [`ranks`]: processes that end with the
//!   job server that has begun them
//! * [`owner`]: what the owner of this node wants for himself; [`acts`]: what is done to processes
//!   of others
//! * [`thinking`]: feeding the brain and doing what it says
//! * [`start`](mod@self::start): from a configuration to a running node
//! * [`succession`]: what an earlier daemon has left, and what the next one is left

mod acts;
mod adopting;
mod calling_off;
mod cluster;
mod companions;
mod deputies;
mod foresight;
mod forks;
mod guests;
mod imprints;
mod inquiries;
mod jobs;
mod lending;
mod linking;
mod listing;
mod membership;
mod memory_groups;
mod metrics;
mod move_limits;
mod moves;
mod names;
mod newborns;
mod owner;
mod paying;
mod processes;
mod processors;
mod ranks;
mod requests;
mod spare;
mod start;
mod succession;
mod tallies;
mod thinking;
mod time_away;
mod user_servers;

#[cfg(test)]
pub use start::Node;
pub use start::{StartError, start};

use crate::admissions::Admissions;
use crate::config::Config;
use crate::control::{Answer, Asked};
use crate::hosting::Hosting;
use crate::inquiries::Inquiries;
use crate::jobs::{ConnectionId, Jobs};
use crate::journal::Journal;
use crate::keyring::Keyring;
use crate::keys::seal::Gossip;
use crate::links::Links;
use crate::load::Load;
use crate::looks::Looks;
use crate::members::Members;
use crate::memory_groups::{MemoryGroup, MemoryGroups};
use crate::net::call::CallError;
use crate::net::link::{LinkId, OpenLink};
use crate::net::listener::{Calling, Welcome};
use crate::openings::{Opening, Openings};
use crate::others::Others;
use crate::passage::Passage;
use crate::process::Process;
use crate::programs::Programs;
use crate::registry::Registry;
use crate::rejections::Rejections;
use crate::returning::Returned;
use crate::roster::Roster;
use crate::sample::scan::Scan;
use crate::spawning::Spawn;
use crate::state::State;
use crate::supervisor::{Identity, News, Supervisor, SupervisorId};
use crate::supervisors::Supervisors;
use crate::thought::Thought;
use crate::user_servers::{Kind, UserServers};
use ranks::RankServers;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use wire::ids::{GlobalPid, HomePid, NodeId, Ticket};
use wire::peer::PeerMessage;
use wire::supervisor::{FromBody, Role};

/// How long supervisors that were kept ready may take to end.
const READY_PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks at the clock for everything that is not urgent.
const TICK: Duration = Duration::from_millis(250);
/// Everything that can happen to a node.
pub enum Event {
    /// A user tool asks.
    Asked(Asked),
    /// Somebody does not want any more what he has asked for.
    CalledOff,
    /// A tool that asked to be managed has closed its connection: it runs its command now.
    CallerLeft {
        pid: i32,
    },
    /// A connection that stood for a job has ended.
    LauncherLeft {
        pid: i32,
        connection: ConnectionId,
    },
    /// A launcher does not tell any more when its job has ended.
    WaitBroke {
        pid: i32,
        answer: oneshot::Sender<Answer>,
    },
    /// A job server that has begun ranks has ended.
    RankServerEnded(Identity),
    /// Somebody calls with a token; which secret has he to know?
    TokenNamed {
        ticket: Ticket,
        reply: oneshot::Sender<Option<[u8; 32]>>,
    },
    /// An authenticated call.
    Calling(Calling),
    /// A handshake succeeded.
    Linked {
        node: NodeId,
        open: OpenLink,
        is_dialed: bool,
    },
    DialFailed {
        node: NodeId,
        error: CallError,
    },
    /// A join succeeded or failed.
    Joined(Box<Result<(OpenLink, PeerMessage, SocketAddr), CallError>>),
    Said {
        node: NodeId,
        link: LinkId,
        message: PeerMessage,
    },
    LinkLost {
        node: NodeId,
        link: LinkId,
        error: io::Error,
    },
    /// A stranger was met with silence.
    Rejected {
        from: SocketAddr,
        reason: String,
    },
    /// A supervisor of another node connects to a berth here, or says that it does.
    Visited {
        role: Role,
        ticket: Ticket,
        reply: oneshot::Sender<Welcome>,
    },
    Gossiped(Gossip),
    Supervised {
        id: SupervisorId,
        news: News,
    },
    /// A supervisor that an earlier daemon has started looks for its next.
    Returned(Returned),
    ProcessEnded {
        pid: HomePid,
        started_ticks: u64,
    },
    Scanned(io::Result<Scan>),
    /// Who shares memory with whom was looked at again.
    GroupsLooked(Vec<MemoryGroup>),
    /// What a core is worth under the present load.
    SpeedMeasured(f64),
    /// Somebody opens memory that processes share which are away.
    Opening(Opening),
    /// SIGTERM.
    Stop,
}

/// All state of a node. What a part keeps only its own file touches.
struct Daemon {
    config: Config,
    state: State,
    started: Instant,
    keyring: Keyring,
    /// Where this node says that it listens: unspecified if others see that better.
    listens: SocketAddr,
    members: Members,
    others: Others,
    links: Links,
    admissions: Admissions,
    passage: Passage,
    rejections: Rejections,
    /// Who keeps others from opening files in memory, if that is needed and possible.
    openings: Option<Openings>,
    user_servers: UserServers,
    jobs: Jobs<oneshot::Sender<Answer>>,
    rank_servers: RankServers,

    spawn: Arc<dyn Spawn>,
    supervisors: Supervisors,
    processes: Registry,
    hosting: Hosting,
    memory_groups: MemoryGroups,
    roster: Roster,
    tallies: tallies::Tallies,

    looks: Looks,
    programs: Programs,
    load: Load,
    thought: Thought,

    inquiries: Inquiries,
    journal: Journal,
    wishes: owner::Wishes,
    events: mpsc::Sender<Event>,
}

impl Daemon {
    /// Takes in events until the node has gone down; then answers those who asked for it.
    async fn run(mut self, mut events: mpsc::Receiver<Event>) -> Ending {
        self.begin();
        loop {
            let wake = self.next_wake();
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.take_in(event),
                    None => break,
                },
                () = tokio::time::sleep_until(wake.into()) => (),
            }
            self.pass_time(Instant::now());
            if self.is_drained() || self.passage.is_handing_over() {
                break;
            }
        }
        let ending = match self.passage.is_handing_over() {
            true => Ending::HandedOver,
            false => Ending::Down,
        };
        if matches!(ending, Ending::Down) {
            self.user_servers.end_all(Kind::Files);
        }
        self.end().await;
        ending
    }

    fn take_in(&mut self, event: Event) {
        match event {
            Event::Asked(asked) => self.answer_request(asked),
            Event::CalledOff => {
                self.called_off();
                self.call_off_inquiries();
            }
            Event::CallerLeft { pid } => self.caller_left(HomePid(pid)),
            Event::LauncherLeft { pid, connection } => self.launcher_left(pid, connection),
            Event::WaitBroke { pid, answer } => self.wait_on(pid, answer),
            Event::RankServerEnded(server) => self.end_ranks_of(server),
            Event::TokenNamed { ticket, reply } => {
                let _ = reply.send(self.admissions.psk(Instant::now(), ticket));
            }
            Event::Calling(calling) => self.take_call(calling),
            Event::Linked { node, open, is_dialed } => self.linked(node, open, is_dialed),
            Event::DialFailed { node, error } => self.dial_failed(node, error),
            Event::Joined(result) => self.join_ended(*result),
            Event::Said { node, link, message } => self.hear(node, link, message),
            Event::LinkLost { node, link, error } => self.link_lost(node, link, error),
            Event::Rejected { from, reason } => self.rejected(from, reason),
            Event::Visited { role, ticket, reply } => {
                let _ = reply.send(self.visited(role, ticket));
            }
            Event::Gossiped(gossip) => self.gossiped(gossip),
            Event::Supervised { id, news } => self.supervised(id, news),
            Event::Returned(returned) => self.supervisor_returned(returned),
            Event::ProcessEnded { pid, started_ticks } => self.process_ended(pid, started_ticks),
            Event::Scanned(scan) => self.scanned(scan),
            Event::GroupsLooked(found) => self.memory_groups.looked(found, Instant::now()),
            Event::SpeedMeasured(speed) => self.speed_measured(speed),
            Event::Opening(opening) => self.somebody_opens(&opening),
            Event::Stop => self.begin_drain(None),
        }
    }

    /// A message of a supervisor goes to the half that it serves.
    fn supervised(&mut self, id: SupervisorId, news: News) {
        if let Some(pid) = self.processes.of_deputy(id) {
            match news {
                News::Packet(bytes, descriptor) => {
                    self.hear_deputy(pid, id, (&bytes, descriptor));
                }
                News::Ended => self.deputy_ended(pid, id),
            }
        } else if self.hosting.contains(id) {
            match news {
                News::Packet(bytes, descriptor) => self.hear_body(id, &bytes, descriptor),
                News::Ended => self.body_ended(id),
            }
        } else {
            match news {
                News::Packet(bytes, file)
                    if postcard::from_bytes(&bytes) == Ok(FromBody::Imprint) =>
                {
                    self.hear_imprint(id, file);
                }
                News::Packet(..) => {}
                News::Ended => self.hosting.imprints_mut().expect_no_more(id),
            }
        }
    }

    /// When something is due although nothing happens.
    fn next_wake(&self) -> Instant {
        let storms = self.processes.values().filter(|process| process.is_ready());
        let storms = storms.filter_map(|process| process.storm.map(|storm| storm.next));
        // A node that goes down begins no storm.
        let storms = storms.filter(|_| !self.passage.is_going_down());
        let now = Instant::now();
        let look = self.looks.next(now, self.is_idle());
        let due = storms.chain(self.thought.wake()).chain(look);
        due.fold(now + TICK, Instant::min)
    }

    /// Everything that is due by now.
    fn pass_time(&mut self, now: Instant) {
        self.time_passed_for_brain(now);
        self.call_members(now);
        self.admit_without_answer(now);
        self.go_on_leaving(now);
        self.expire_guests(now);
        self.user_servers.expire(now);
        self.jobs.expire(now);
        self.give_up_waiting(now);
        self.place_processes(now);
        self.bring_again(now);
        self.grant_wishes(now);
        self.look_after_imprints(now);
        self.look_after_memory(now);
        self.look_at_groups(now);
        self.begin_scan(now);
        self.look_for_newborns(now);
        self.keep_programs(now, false);
    }

    fn me(&self) -> NodeId {
        self.members.me().node
    }

    fn global(&self, pid: HomePid) -> GlobalPid {
        GlobalPid { home: self.me(), pid }
    }

    fn serve_supervisor(&mut self, started: crate::spawning::Started) -> io::Result<Supervisor> {
        let id = self.supervisors.next_id();
        let report = reporting(self.events.clone());
        crate::supervisor::serve(id, started, report)
    }

    /// From now on nobody comes or is moved; everybody goes home.
    fn begin_drain(&mut self, answer: Option<oneshot::Sender<Answer>>) {
        if self.passage.begin_drain(Instant::now(), answer) {
            tracing::info!("going down: {} guests are sent home", self.hosting.len());
            self.farewell();
            self.user_servers.end_all(Kind::Jobs);
            self.send_guests_home(|_| true);
            self.bring_home(|_| true);
        }
    }

    fn is_drained(&self) -> bool {
        if !self.passage.is_going_down() {
            return false;
        }
        let me = self.me();
        let is_home = |process: &Process| process.at == me && process.moving.is_none();
        let all_home = self.hosting.is_empty() && self.processes.values().all(is_home);
        self.passage.is_drained(Instant::now(), all_home)
    }

    async fn end(&mut self) {
        self.keep_programs(Instant::now(), true);
        if !self.passage.is_handing_over() {
            let me = self.me();
            let away = self.processes.values().filter(|process| process.at != me);
            for process in away {
                tracing::error!("process {} could not be brought home in time", process.pid);
            }
            self.roster.clear();
        }
        for link in self.links.take_all() {
            link.finish().await;
        }
        // What is in a cgroup of ours keeps it from being removed.
        for mut supervisor in self.spawn.drop_ready() {
            let _ = tokio::time::timeout(READY_PATIENCE, supervisor.wait()).await;
        }
        for asker in self.passage.end() {
            let _ = asker.send(Answer::One(wire::control::Reply::Done));
        }
    }
}

/// How a daemon has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Down,
    /// Everything stays where it is, for the next daemon.
    HandedOver,
}

/// Tells the dispatcher what a supervisor says.
fn reporting(
    events: mpsc::Sender<Event>,
) -> impl Fn(SupervisorId, News) -> BoxFuture + Send + Sync + 'static {
    move |id, news| {
        let events = events.clone();
        Box::pin(async move {
            // Nobody is left to be told once the daemon has ended.
            let _ = events.send(Event::Supervised { id, news }).await;
        })
    }
}

type BoxFuture = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
