//! The simulated cluster: unchanged brains, and everything around them.
//!
//! One event after another in the order of time; every chance comes from dice with a seed. So a run
//! is a function of scenario, configuration and seed.

use crate::agenda::Agenda;
use crate::check::Checks;
use crate::dice::Dice;
use crate::node::{Power, SimNode};
use crate::outcome::{Outcome, Tally};
use crate::process::SimProcess;
use crate::scenario::{NodeGroup, Scenario};
use crate::script::Queue;
use crate::users::UserShares;
use brain::{Brain, Config, Identity, Input, Life, Outbox, Output, Span, Status, Time, looks};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::ids::NodeId;

/// Nodes and processes are counted from 0.
pub(crate) enum Event {
    /// The one in this place of the mail.
    Datagram {
        place: u32,
    },
    Wake {
        node: u32,
    },
    /// All nodes of this phase look at themselves.
    Looks {
        phase: u16,
    },
    /// A node looks because processes were born there.
    LooksAgain {
        node: u32,
    },
    LooksAtNewborns {
        node: u32,
    },
    /// The process of this node that needs the least more is done, unless that has changed.
    Completion {
        node: u32,
        number: u32,
    },
    Copy {
        process: u32,
        number: u32,
    },
    Freeze {
        process: u32,
        number: u32,
    },
    Thaw {
        process: u32,
        number: u32,
    },
    /// The order could not be carried out; its node is told.
    OrderFailed {
        process: u32,
        number: u32,
    },
    JobStarts {
        job: u32,
    },
    /// The next process of a job whose processes start one after another.
    NextStarts {
        job: u32,
    },
    Background {
        nth: u32,
        is_on: bool,
    },
    Happens {
        nth: u32,
    },
    /// It is told of some others.
    Introduced {
        node: u32,
    },
    Starves {
        node: u32,
        ms_max: u32,
    },
}

/// A datagram on its way.
pub(crate) struct Letter {
    from: u32,
    pub to: u32,
    bytes: Vec<u8>,
}

/// Looks of one node are this far apart.
const LOOK_EVERY_MS: u16 = (looks::PAUSE.0 / 1_000) as u16;
/// More nodes than that are not introduced to each other at the same moment: what they would all
/// say then would take more memory than they do.
const TOGETHER_MAX: usize = 4_096;
/// Others that a node of a large cluster is told of, unless the scenario says.
const TOLD_USUALLY: usize = 300;
/// More than the datagrams of an IP network and the seal of the daemon add to a brain's bytes:
/// Ethernet frame 18, IP 20, UDP 8, seal 46.
const OVERHEAD_BYTES: u64 = 92;

pub struct World {
    pub(crate) now: Time,
    pub(crate) scenario: Scenario,
    pub(crate) nodes: Vec<SimNode>,
    pub(crate) processes: Vec<SimProcess>,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) dice: Dice,
    pub(crate) tally: Tally,
    pub(crate) checks: Checks,
    /// Nodes by the millisecond of a quarter of a second in which they look.
    pub(crate) phases: Vec<Vec<u32>>,
    pub(crate) loss_permille: u32,
    /// Nodes below this number and the others do not hear each other.
    pub(crate) cut: Option<u32>,
    /// Processes that have yet to end or to be started.
    pub(crate) open: usize,
    /// Jobs that have yet to start, or some of whose processes have.
    pub(crate) jobs_open: usize,
    /// By the job's number.
    pub(crate) queues: BTreeMap<u32, Queue>,
    /// What processes of a job took, as the daemon of their home remembers it by their name.
    pub(crate) lives: BTreeMap<(u32, u32), Life>,
    /// The background threads: on which node, and whether they compute.
    pub(crate) background: Vec<(u32, bool)>,
    pub(crate) user_shares: UserShares,
    config: Arc<Config>,
    seed: u64,
    waiting: VecDeque<(u32, Input)>,
    is_telling: bool,
    /// Datagrams on their way, and the places of those that have arrived.
    pub(crate) mail: Vec<Letter>,
    mail_places: Vec<u32>,
    outbox: Outbox,
    pub(crate) brains_took: Option<Duration>,
    /// What daemons measure, for one after another.
    pub(crate) sampled: Option<Box<Input>>,
    has_ended: bool,
}

impl World {
    pub fn new(scenario: Scenario, config: Config, seed: u64) -> Result<World, String> {
        scenario.check()?;
        let now = Time::from_micros(1_000_000);
        let config = match scenario.view {
            Some(view_max) => Config { view_max, ..config },
            None => config,
        };
        let mut world = World {
            now,
            nodes: Vec::with_capacity(scenario.nodes_count()),
            processes: Vec::new(),
            agenda: Agenda::default(),
            dice: Dice::seeded(seed),
            tally: Tally::default(),
            checks: Checks::default(),
            phases: vec![Vec::new(); usize::from(LOOK_EVERY_MS)],
            loss_permille: scenario.network.loss_permille,
            cut: None,
            open: 0,
            jobs_open: scenario.jobs.len(),
            queues: BTreeMap::new(),
            lives: BTreeMap::new(),
            background: Vec::new(),
            user_shares: UserShares::default(),
            config: Arc::new(config),
            seed,
            waiting: VecDeque::new(),
            is_telling: false,
            mail: Vec::new(),
            mail_places: Vec::new(),
            outbox: Outbox::new(),
            brains_took: None,
            sampled: None,
            has_ended: false,
            scenario,
        };
        for group in world.scenario.nodes.clone() {
            world.add_nodes(&group);
        }
        if world.nodes.len() <= TOGETHER_MAX {
            world.introduce(0);
        } else {
            for node in 0..world.nodes.len() as u32 {
                let offset = Span(world.dice.below(1_000_000));
                world.agenda.schedule(now + offset, Event::Introduced { node });
            }
        }
        world.schedule_script();
        Ok(world)
    }

    /// Nodes that start now; they know nobody yet.
    pub(crate) fn add_nodes(&mut self, group: &NodeGroup) {
        for _ in 0..group.count {
            let index = self.nodes.len() as u32;
            let seed = self.seed.wrapping_mul(0x0001_0000_01b3).wrapping_add(u64::from(index));
            let identity = Identity { node: NodeId(index + 1), incarnation: 1, seed };
            let brain = Brain::new(identity, Arc::clone(&self.config));
            let memory = group.memory_mib << 20;
            let mut node = SimNode::new(brain, group.cores, group.speed, memory, self.now);
            node.looks = self.scenario.has_background().then(Box::default);
            self.nodes.push(node);
            self.note_stand(index);
            self.tell(index, Input::Started);
            let phase = self.dice.below(u64::from(LOOK_EVERY_MS)) as u16;
            let members = &mut self.phases[usize::from(phase)];
            members.push(index);
            if members.len() == 1 {
                let at = self.now + Span::from_millis(u64::from(phase));
                self.agenda.schedule(at, Event::Looks { phase });
            }
        }
    }

    /// Tells a node of some others; they will hear of it.
    fn introduce_one(&mut self, node: u32) {
        let count = self.nodes.len() as u64;
        for _ in 0..self.scenario.members_told.unwrap_or(TOLD_USUALLY) {
            let other = NodeId(self.dice.below(count) as u32 + 1);
            self.tell(node, Input::MemberJoined { node: other });
        }
    }

    /// Tells the nodes from `first` on, and the others, of each other.
    pub(crate) fn introduce(&mut self, first: usize) {
        let count = self.nodes.len();
        let join = |other: usize| Input::MemberJoined { node: NodeId(other as u32 + 1) };
        for node in first..count {
            match self.scenario.members_told {
                Some(told) if told < count => {
                    for _ in 0..told {
                        let other = self.dice.below(count as u64) as usize;
                        self.tell(node as u32, join(other));
                        self.tell(other as u32, join(node));
                    }
                }
                _ => {
                    for other in (0..count).filter(|other| *other != node) {
                        self.tell(node as u32, join(other));
                        if other < first {
                            self.tell(other as u32, join(node));
                        }
                    }
                }
            }
        }
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// From now on measures what the brains take of a processor, which slows the world down.
    pub fn measure_brains(&mut self) {
        self.brains_took = Some(Duration::ZERO);
    }

    /// Plays the scenario to its end.
    pub fn run(mut self) -> Outcome {
        let limit = Time::from_micros(1_000_000) + Span::from_secs_f64(self.scenario.limit_s);
        while self.step(limit) {}
        self.check_places();
        Outcome::of(self)
    }

    /// Plays on for so long; for a look in between.
    pub fn run_for_s(&mut self, s: f64) {
        let end = self.now + Span::from_secs_f64(s);
        while self.step(end) {}
        self.now = self.now.max(end);
    }

    /// The mean age of all that the nodes know of each other.
    pub fn age_mean_s(&self) -> f64 {
        let (mut sum_s, mut count) = (0.0, 0u64);
        for (index, node) in self.nodes.iter().enumerate() {
            let views = node.brain.members(self.now);
            let others = views.iter().filter(|view| view.node.0 as usize != index + 1);
            for age in others.filter_map(|view| view.age) {
                sum_s += age.as_secs_f64();
                count += 1;
            }
        }
        sum_s / count.max(1) as f64
    }

    /// What each process has computed so far, in seconds of a reference core.
    pub fn work_done_s(&mut self) -> Vec<f64> {
        let now = self.now;
        self.nodes.iter_mut().for_each(|node| node.pass(now));
        let done_s = |process: &SimProcess| match process.runs_on() {
            Some(node) => process.done_s(node, &self.nodes[node as usize]),
            None => process.done_settled_s(),
        };
        self.processes.iter().map(done_s).collect()
    }

    fn step(&mut self, end: Time) -> bool {
        if self.has_ended {
            return false;
        }
        let Some((at, event)) = self.agenda.next_until(end) else { return false };
        self.now = at;
        self.happen(event);
        let has_work = !self.processes.is_empty() || self.jobs_open > 0;
        self.has_ended = has_work && self.open == 0 && self.jobs_open == 0;
        true
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Datagram { place } => self.deliver(place),
            Event::Wake { node } => self.wake(node),
            Event::Looks { phase } => self.look_all(phase),
            Event::LooksAgain { node } => self.look_again(node),
            Event::LooksAtNewborns { node } => self.look(node),
            Event::Completion { node, number } => self.complete(node, number),
            Event::Copy { process, number } => self.copy(process, number),
            Event::Freeze { process, number } => self.freeze(process, number),
            Event::Thaw { process, number } => self.thaw(process, number),
            Event::OrderFailed { process, number } => self.order_failed(process, number),
            Event::JobStarts { job } => self.start_job(job),
            Event::NextStarts { job } => self.start_next(job),
            Event::Background { nth, is_on } => self.switch_background(nth, is_on),
            Event::Happens { nth } => self.script_event(nth),
            Event::Starves { node, ms_max } => self.starve(node, ms_max),
            Event::Introduced { node } => self.introduce_one(node),
        }
    }

    fn deliver(&mut self, place: u32) {
        let to = self.mail[place as usize].to;
        if let Power::Starved(until) = self.nodes[to as usize].power
            && until > self.now
        {
            return self.agenda.schedule(until, Event::Datagram { place });
        }
        let letter = &mut self.mail[place as usize];
        let (from, bytes) = (NodeId(letter.from + 1), std::mem::take(&mut letter.bytes));
        self.mail_places.push(place);
        self.tell_at_once(to, &Input::DatagramReceived { from, bytes });
    }

    fn wake(&mut self, node: u32) {
        let sleeper = &self.nodes[node as usize];
        match sleeper.power {
            // Only the latest order counts.
            _ if sleeper.wake_at > self.now => {}
            Power::Off => {}
            Power::Starved(until) if until > self.now => {
                self.agenda.schedule(until, Event::Wake { node });
            }
            _ => self.tell(node, Input::TimePassed),
        }
    }

    fn look_all(&mut self, phase: u16) {
        let nodes = std::mem::take(&mut self.phases[usize::from(phase)]);
        for node in &nodes {
            self.look(*node);
        }
        self.phases[usize::from(phase)] = nodes;
        let next = self.now + Span::from_millis(u64::from(LOOK_EVERY_MS));
        self.agenda.schedule(next, Event::Looks { phase });
        self.check_idleness();
    }

    /// Facts wait for each other: a brain is never called from within itself.
    pub(crate) fn tell(&mut self, node: u32, input: Input) {
        if self.is_telling {
            self.waiting.push_back((node, input));
        } else {
            self.tell_at_once(node, &input);
        }
    }

    /// Tells a brain when none is being told anything.
    pub(crate) fn tell_at_once(&mut self, node: u32, input: &Input) {
        self.is_telling = true;
        self.think(node, input);
        while let Some((node, input)) = self.waiting.pop_front() {
            self.think(node, &input);
        }
        self.is_telling = false;
    }

    fn think(&mut self, node: u32, input: &Input) {
        let began = self.brains_took.map(|_| Instant::now());
        let told = &mut self.nodes[node as usize];
        if told.is_on() {
            told.brain.handle(self.now, input, &mut self.outbox);
        }
        if let (Some(took), Some(began)) = (&mut self.brains_took, began) {
            *took += began.elapsed();
        }
        if let Err(violation) = told.brain.check_invariants() {
            self.checks.violated(format!("brain of node {}: {violation}", node + 1));
        }
        if !self.outbox.is_empty() {
            let mut outbox = std::mem::take(&mut self.outbox);
            outbox.drain().for_each(|output| self.carry_out(node, output));
            self.outbox = outbox;
        }
    }

    fn carry_out(&mut self, node: u32, output: Output) {
        match output {
            Output::SendDatagram { to, bytes } => self.send(node, to, bytes),
            Output::Move { process, to, motive, .. } => {
                self.order_move(node, process, to.0 - 1, motive);
            }
            Output::WakeAt(at) => {
                let at = at.max(self.now);
                self.nodes[node as usize].wake_at = at;
                self.agenda.schedule(at, Event::Wake { node });
            }
            Output::RecordDecision { verdict, .. } => self.tally.decided(verdict),
            Output::MemberStatus { node: about, status } => {
                let is_on = self.nodes[about.0 as usize - 1].is_on();
                if status == Status::Gone && is_on && self.hears(node, about.0 - 1) {
                    self.tally.false_deaths += 1;
                }
            }
        }
    }

    fn send(&mut self, from: u32, to: NodeId, bytes: Vec<u8>) {
        self.tally.datagrams += 1;
        self.tally.bytes += bytes.len() as u64 + OVERHEAD_BYTES;
        let Some(to) = to.0.checked_sub(1).filter(|to| (*to as usize) < self.nodes.len()) else {
            return;
        };
        if !self.hears(from, to) || self.dice.happens(self.loss_permille) {
            return;
        }
        let at = self.now + self.latency();
        let letter = Letter { from, to, bytes };
        let place = match self.mail_places.pop() {
            Some(place) => {
                self.mail[place as usize] = letter;
                place
            }
            None => {
                self.mail.push(letter);
                self.mail.len() as u32 - 1
            }
        };
        self.agenda.schedule(at, Event::Datagram { place });
    }

    pub(crate) fn latency(&mut self) -> Span {
        let network = &self.scenario.network;
        let spread = network.latency_us_max.saturating_sub(network.latency_us_min) + 1;
        Span(network.latency_us_min + self.dice.below(spread))
    }

    /// Whether the network carries anything between the two.
    pub(crate) fn hears(&self, one: u32, other: u32) -> bool {
        self.cut.is_none_or(|cut| (one < cut) == (other < cut))
    }
}
