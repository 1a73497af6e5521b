//! A small deterministic world for brains: nodes that share their cores fairly among the processes
//! on them, a network with latency and loss, moves that take a while. No clock but the events'.

use brain::{
    Arrival, Brain, Config, Identity, Input, LoadSample, MoveOutcome, NodeView, Outbox, Output,
    ProcessSample, Span, Status, Time, Verdict,
};
use std::collections::{BTreeMap, BTreeSet};
use wire::ids::{GlobalPid, HomePid, NodeId};

pub struct Machine {
    pub brain: Brain,
    pub cores: u32,
    pub speed: f64,
    /// Runnable threads that no brain can move.
    pub background: f64,
    pub memory_bytes: u64,
    pub is_cut_off: bool,
    wake_at: Option<Time>,
}

pub struct Process {
    pub node: NodeId,
    pub moving_to: Option<NodeId>,
    pub work_s: f64,
    pub rss_bytes: u64,
    /// When away; each takes a ten-thousandth of a second.
    pub calls_per_cpu_s: f64,
    /// Every move of it ends like this.
    pub outcome: MoveOutcome,
    done_s: f64,
    cpu_s: f64,
    measured: (Time, f64),
    arrived_at: Time,
}

impl Process {
    /// The part of its time in which it is runnable: away, it waits for its calls.
    fn demand(&self, home: NodeId) -> f64 {
        if self.node == home { 1.0 } else { 1.0 / (1.0 + self.calls_per_cpu_s * 1e-4) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub at: Time,
    pub process: GlobalPid,
    pub from: NodeId,
    pub to: NodeId,
}

#[derive(Clone, Debug)]
enum Event {
    Datagram { from: NodeId, to: NodeId, bytes: Vec<u8> },
    Wake(NodeId),
    Sample(NodeId),
    Moved { process: GlobalPid, from: NodeId, to: NodeId },
}

pub struct World {
    pub now: Time,
    pub machines: BTreeMap<NodeId, Machine>,
    pub processes: BTreeMap<GlobalPid, Process>,
    pub moves: Vec<Move>,
    pub decisions: Vec<(Time, GlobalPid, Verdict, String)>,
    pub statuses: Vec<(Time, NodeId, NodeId, Status)>,
    /// Everything that any brain said, in order.
    pub trace: Vec<String>,
    pub datagrams: BTreeMap<NodeId, u64>,
    pub finished_at: BTreeMap<GlobalPid, Time>,
    /// In a thousand.
    pub loss_permille: u64,
    /// Added to or taken from each measured load, at random.
    pub noise: f64,
    /// Nodes count what is runnable at one moment, not the mean since the last count.
    /// Between two samples of a node; each is a mean over a second all the same.
    pub sample_every: Span,
    pub move_time: Span,
    /// What the nodes think that a move takes.
    pub freeze_estimate: Span,
    config: Config,
    seed: u64,
    events: BTreeMap<(Time, u64), Event>,
    sequence: u64,
    dice: u64,
    next_pid: i32,
}

impl World {
    pub fn new(seed: u64) -> World {
        World {
            now: Time::from_micros(1_000_000),
            machines: BTreeMap::new(),
            processes: BTreeMap::new(),
            moves: Vec::new(),
            decisions: Vec::new(),
            statuses: Vec::new(),
            trace: Vec::new(),
            datagrams: BTreeMap::new(),
            finished_at: BTreeMap::new(),
            loss_permille: 0,
            noise: 0.0,
            sample_every: Span::from_millis(250),
            move_time: Span::from_millis(100),
            freeze_estimate: Span::from_millis(100),
            config: Config::default(),
            seed,
            events: BTreeMap::new(),
            sequence: 0,
            dice: seed,
            next_pid: 100,
        }
    }

    /// Nodes 1, 2, ... of one core each, of these speeds, that have been up for three seconds.
    pub fn of_speeds(seed: u64, speeds: &[f64]) -> World {
        let mut world = World::new(seed);
        for speed in speeds {
            world.add_node(1, *speed);
        }
        world.run_for(Span::from_secs(3));
        world
    }

    pub fn add_node(&mut self, cores: u32, speed: f64) -> NodeId {
        let node = NodeId(self.machines.len() as u32 + 1);
        let seed = self.seed.wrapping_mul(1_000).wrapping_add(u64::from(node.0));
        let identity = Identity { node, incarnation: 1, seed };
        let machine = Machine {
            brain: Brain::new(identity, self.config.clone()),
            cores,
            speed,
            background: 0.0,
            memory_bytes: 1 << 30,
            is_cut_off: false,
            wake_at: None,
        };
        let others: Vec<NodeId> = self.machines.keys().copied().collect();
        self.machines.insert(node, machine);
        self.tell(node, Input::Started);
        for other in others {
            self.tell(node, Input::MemberJoined { node: other });
            self.tell(other, Input::MemberJoined { node });
        }
        let offset = Span(self.roll(1_000_000));
        self.schedule(self.now + offset, Event::Sample(node));
        node
    }

    /// A CPU-bound process that needs `work_s` seconds of a reference core.
    pub fn start_process(&mut self, home: NodeId, work_s: f64) -> GlobalPid {
        let process = GlobalPid { home, pid: HomePid(self.next_pid) };
        self.next_pid += 1;
        let born = Process {
            node: home,
            moving_to: None,
            work_s,
            rss_bytes: 1 << 20,
            calls_per_cpu_s: 0.0,
            outcome: MoveOutcome::Moved,
            done_s: 0.0,
            cpu_s: 0.0,
            measured: (self.now, 0.0),
            arrived_at: self.now,
        };
        self.processes.insert(process, born);
        self.tell(home, Input::ProcessArrived { process, how: Arrival::Born });
        process
    }

    pub fn start_processes(&mut self, home: NodeId, count: usize, work_s: f64) -> Vec<GlobalPid> {
        (0..count).map(|_| self.start_process(home, work_s)).collect()
    }

    /// Processes on each node, by node number.
    pub fn counts(&self) -> Vec<usize> {
        let on = |node: &NodeId| self.processes.values().filter(|p| p.node == *node).count();
        self.machines.keys().map(on).collect()
    }

    pub fn view(&self, of: NodeId) -> Vec<NodeView> {
        self.machines[&of].brain.members(self.now)
    }

    pub fn machine(&mut self, node: NodeId) -> &mut Machine {
        self.machines.get_mut(&node).expect("the node exists")
    }

    pub fn run_for(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            let next_event = self.events.first_key_value().map(|((at, _), _)| *at);
            let next = next_event.unwrap_or(end).min(end);
            let completion = self.next_completion();
            if let Some((at, process)) = completion
                && at <= next
            {
                self.advance(at);
                self.finish(process);
                continue;
            }
            self.advance(next);
            if next_event.is_none_or(|at| at > end) {
                return;
            }
            let (_, event) = self.events.pop_first().expect("there is an event");
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Datagram { from, to, bytes } => {
                if !self.machines[&from].is_cut_off && !self.machines[&to].is_cut_off {
                    self.tell(to, Input::DatagramReceived { from, bytes });
                }
            }
            Event::Wake(node) => {
                // Only the latest order counts.
                if self.machines[&node].wake_at == Some(self.now) {
                    self.tell(node, Input::TimePassed);
                }
            }
            Event::Sample(node) => {
                let sample = self.measure(node);
                self.tell(node, Input::LoadSampled(sample));
                self.schedule(self.now + self.sample_every, Event::Sample(node));
            }
            Event::Moved { process, from, to } => self.complete_move(process, from, to),
        }
    }

    fn complete_move(&mut self, process: GlobalPid, from: NodeId, to: NodeId) {
        let now = self.now;
        let moved = self.processes.get_mut(&process).expect("a frozen process cannot end");
        moved.moving_to = None;
        let outcome = moved.outcome;
        if outcome == MoveOutcome::Moved {
            moved.node = to;
            moved.arrived_at = now;
            self.moves.push(Move { at: now, process, from, to });
        }
        let freeze = self.move_time;
        self.tell(from, Input::MoveEnded { process, from, to, outcome, freeze });
        if outcome == MoveOutcome::Moved {
            self.tell(to, Input::ProcessArrived { process, how: Arrival::Balanced { from } });
        }
    }

    /// Moves a process as somebody other than a brain would: at once, and `how`.
    pub fn put(&mut self, process: GlobalPid, to: NodeId, how: Arrival) {
        let now = self.now;
        let moved = self.processes.get_mut(&process).expect("it runs");
        assert_eq!(moved.moving_to, None, "only when no brain is moving it");
        let from = std::mem::replace(&mut moved.node, to);
        moved.arrived_at = now;
        let (outcome, freeze) = (MoveOutcome::Moved, Span::ZERO);
        self.tell(from, Input::MoveEnded { process, from, to, outcome, freeze });
        self.tell(to, Input::ProcessArrived { process, how });
    }

    fn runnable_on(&self, node: NodeId) -> f64 {
        let here = self.processes.iter().filter(|(_, p)| p.node == node && p.moving_to.is_none());
        let demands: f64 = here.map(|(process, p)| p.demand(process.home)).sum();
        self.machines[&node].background + demands
    }

    /// CPU seconds per second that each process on the node gets.
    fn share_on(&self, node: NodeId) -> f64 {
        let runnable = self.runnable_on(node).max(1e-9);
        (f64::from(self.machines[&node].cores) / runnable).min(1.0)
    }

    fn next_completion(&self) -> Option<(Time, GlobalPid)> {
        let running = self.processes.iter().filter(|(_, p)| p.moving_to.is_none());
        running
            .map(|(process, p)| {
                let speed = self.machines[&p.node].speed;
                let rate = self.share_on(p.node) * speed * p.demand(process.home);
                let left_us = ((p.work_s - p.done_s).max(0.0) / rate * 1e6).ceil();
                (self.now + Span(left_us as u64), *process)
            })
            .min()
    }

    fn advance(&mut self, to: Time) {
        let us = to.since(self.now).0 as f64;
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        for node in nodes {
            let (share, speed) = (self.share_on(node), self.machines[&node].speed);
            let here = self.processes.iter_mut().filter(|(_, p)| p.node == node);
            for (id, process) in here.filter(|(_, p)| p.moving_to.is_none()) {
                let got_s = share * process.demand(id.home) * us / 1e6;
                process.cpu_s += got_s;
                process.done_s += got_s * speed;
            }
        }
        self.now = to;
    }

    fn finish(&mut self, process: GlobalPid) {
        let ended = self.processes.remove(&process).expect("it ran");
        self.finished_at.insert(process, self.now);
        self.tell(ended.node, Input::ProcessEnded { process });
        if ended.node != process.home {
            self.tell(process.home, Input::ProcessEnded { process });
        }
    }

    fn measure(&mut self, node: NodeId) -> LoadSample {
        let now = self.now;
        let noise = (self.roll(2_001) as f64 / 1_000.0 - 1.0) * self.noise;
        let machine = self.machine(node);
        let others = (machine.background + noise).max(0.0);
        let (cores, speed, memory) = (machine.cores, machine.speed, machine.memory_bytes);
        let freeze_estimate = self.freeze_estimate;
        let mut used_bytes = 0;
        let mut processes = Vec::new();
        let here = self.processes.iter_mut().filter(|(_, p)| p.node == node);
        for (process, p) in here.filter(|(_, p)| p.moving_to.is_none()) {
            let (measured_at, cpu_before_s) = std::mem::replace(&mut p.measured, (now, p.cpu_s));
            let used = (p.cpu_s - cpu_before_s) / now.since(measured_at).as_secs_f64().max(1e-6);
            let calls = if process.home == node { 0.0 } else { p.calls_per_cpu_s };
            used_bytes += p.rss_bytes;
            processes.push(ProcessSample {
                stands_for: 1,
                process: *process,
                demand: p.demand(process.home),
                used,
                here: now.since(p.arrived_at),
                cpu: Span::from_secs_f64(p.cpu_s),
                rss_bytes: p.rss_bytes,
                forwarded_per_s: calls * used,
                freeze_estimate,
                // A move is one freeze here.
                copy_estimate: Span::ZERO,
                left: None,
                stays: None,
                group: None,
                user: None,
            });
        }
        LoadSample {
            cores,
            speed,
            pace: speed,
            others,
            memory_total_bytes: memory,
            memory_free_bytes: memory.saturating_sub(used_bytes),
            memory_pressure: 0.0,
            processes,
        }
    }

    pub fn tell(&mut self, node: NodeId, input: Input) {
        let now = self.now;
        let mut outbox = Outbox::new();
        let brain = &mut self.machine(node).brain;
        brain.handle(now, input, &mut outbox);
        assert_eq!(brain.check_invariants(), Ok(()));
        let outputs: Vec<Output> = outbox.drain().collect();
        for output in outputs {
            self.trace.push(format!("{now:?} {node} {output:?}"));
            self.carry_out(node, output);
        }
    }

    fn carry_out(&mut self, node: NodeId, output: Output) {
        match output {
            Output::SendDatagram { to, bytes } => {
                *self.datagrams.entry(node).or_default() += 1;
                let latency = Span(200 + self.roll(2_000));
                if self.roll(1_000) >= self.loss_permille {
                    let datagram = Event::Datagram { from: node, to, bytes };
                    self.schedule(self.now + latency, datagram);
                }
            }
            Output::Move { process, to, why, .. } => {
                let ordered = self.processes.get_mut(&process).expect("only live ones move");
                assert_eq!(ordered.node, node, "only its own node orders a move: {why}");
                assert_eq!(ordered.moving_to, None, "two moves at once of {process}");
                ordered.moving_to = Some(to);
                let done_at = self.now + self.move_time;
                self.schedule(done_at, Event::Moved { process, from: node, to });
            }
            Output::WakeAt(at) => {
                self.machine(node).wake_at = Some(at.max(self.now));
                self.schedule(at.max(self.now), Event::Wake(node));
            }
            Output::RecordDecision { process, verdict, why } => {
                self.decisions.push((self.now, process, verdict, why.to_string()));
            }
            Output::MemberStatus { node: about, status } => {
                self.statuses.push((self.now, node, about, status));
            }
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }

    /// A number below `bound` from the world's own dice, a generator unlike the brain's.
    fn roll(&mut self, bound: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
        (self.dice >> 33) % bound
    }

    /// Pairs of moves that took one process away and back within `span`.
    pub fn round_trips(&self, span: Span) -> usize {
        let ids: BTreeSet<GlobalPid> = self.moves.iter().map(|m| m.process).collect();
        let of = |id: GlobalPid| self.moves.iter().filter(move |m| m.process == id);
        ids.into_iter()
            .map(|id| {
                of(id)
                    .zip(of(id).skip(1))
                    .filter(|(a, b)| b.to == a.from && b.at.since(a.at) < span)
                    .count()
            })
            .sum()
    }
}
