//! The processes that run on this node, and what is remembered of each: how it behaved and why it
//! should be left in peace for now.

use crate::config::Config;
use crate::input::{Arrival, Placement, ProcessSample};
use crate::own::sane;
use crate::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};
use wire::ids::{GlobalPid, NodeId};

/// Why a process that could have been considered was not handed over. The order is that of the
/// checks; the word and the numbers are for `osmos why`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StayCause {
    Pinned,
    Unable,
    Light,
    Young,
    Resting,
    NobodyKnown,
    NoGain,
    Unpaid,
}

/// Guests leave nothing behind after this long; what was born here is remembered until it ends.
const GUEST_MEMORY: Span = Span::from_secs(60);
/// What a process counts for before it has been measured.
pub(crate) const NEWCOMER_DEMAND: f64 = 1.0;
/// Until then an arrival must have shown in a measurement.
const ARRIVAL_MEMORY: Span = Span::from_secs(3);
/// Used CPU below which the rate of forwarded calls per CPU second means nothing.
const USED_MIN: f64 = 0.02;
const CALLS_PER_CPU_S_MAX: f64 = 1e6;

/// What is remembered of a process between measurements and, at its home, while it is away.
#[derive(Clone, Debug)]
struct Memory {
    touched_at: Time,
    arrived_at: Option<Time>,
    /// It came from elsewhere: its first stay is over.
    has_moved: bool,
    came_from: Option<NodeId>,
    rest_until: Time,
    /// Moves in a row that came to nothing, and homecomings by itself.
    setbacks: u32,
    setback_at: Time,
    pinned: bool,
    /// Forwarded calls per CPU second when last away; None: never away.
    calls_per_cpu_s: Option<f64>,
    /// So that a decision is recorded when it changes, not each second.
    stayed_for: Option<StayCause>,
}

impl Memory {
    fn fresh(now: Time) -> Memory {
        Memory {
            touched_at: now,
            arrived_at: None,
            has_moved: false,
            came_from: None,
            rest_until: Time::ZERO,
            setbacks: 0,
            setback_at: Time::ZERO,
            pinned: false,
            calls_per_cpu_s: None,
            stayed_for: None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Residents {
    me: NodeId,
    running: BTreeMap<GlobalPid, ProcessSample>,
    memories: BTreeMap<GlobalPid, Memory>,
}

/// A process that could be handed over now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub process: GlobalPid,
    pub demand: f64,
    pub calls_per_cpu_s: f64,
    /// The part of its time that it waits for its home.
    pub waits_for_home: f64,
    pub cpu: Span,
    pub rss_bytes: u64,
    pub freeze: Span,
    pub came_from: Option<NodeId>,
}

impl Candidate {
    /// What it would want of a core at `node`: at home it no longer waits for home, so that its
    /// computing moves closer together.
    pub fn demand_at(&self, node: NodeId) -> f64 {
        if self.process.home == node {
            let dense = self.demand / (1.0 - self.waits_for_home).max(0.1);
            dense.min(self.demand + self.waits_for_home)
        } else {
            self.demand
        }
    }
}

impl Residents {
    pub fn new(me: NodeId) -> Residents {
        Residents { me, running: BTreeMap::new(), memories: BTreeMap::new() }
    }

    /// Replaces what is known of the running processes; Those `moving` need not be listed.
    pub fn sampled(
        &mut self,
        now: Time,
        samples: Vec<ProcessSample>,
        moving: &BTreeSet<GlobalPid>,
        config: &Config,
    ) {
        self.running.retain(|process, _| moving.contains(process));
        for sample in samples {
            let known = self.running.contains_key(&sample.process);
            if !known && self.running.len() >= config.processes_max {
                continue;
            }
            self.remember_calls(now, &sample, config);
            self.running.insert(sample.process, sane_sample(sample));
        }
        let me = self.me;
        let running = &self.running;
        self.memories.retain(|process, memory| {
            process.home == me
                || running.contains_key(process)
                || now.since(memory.touched_at) < GUEST_MEMORY
        });
    }

    fn remember_calls(&mut self, now: Time, sample: &ProcessSample, config: &Config) {
        if sample.process.home == self.me || sane(sample.used, 0.0, 1e6) < USED_MIN {
            return;
        }
        let forwarded = sane(sample.forwarded_per_s, 0.0, 1e9);
        let measured = (forwarded / sample.used).min(CALLS_PER_CPU_S_MAX);
        let memory = self.memory(now, sample.process, config);
        memory.calls_per_cpu_s = Some(match memory.calls_per_cpu_s {
            Some(before) => (3.0 * before + measured) / 4.0,
            None => measured,
        });
    }

    /// The memory of a process, made if there is none. The number is bounded: the one longest
    /// untouched gives way.
    fn memory(&mut self, now: Time, process: GlobalPid, config: &Config) -> &mut Memory {
        if !self.memories.contains_key(&process) && self.memories.len() >= config.processes_max {
            let stalest = self
                .memories
                .iter()
                .min_by_key(|(_, memory)| (memory.pinned, memory.touched_at))
                .map(|(process, _)| *process);
            if let Some(stalest) = stalest {
                self.memories.remove(&stalest);
            }
        }
        let memory = self.memories.entry(process).or_insert_with(|| Memory::fresh(now));
        memory.touched_at = now;
        memory
    }

    pub fn arrived(&mut self, now: Time, process: GlobalPid, how: Arrival, config: &Config) {
        let memory = self.memory(now, process, config);
        memory.arrived_at = Some(now);
        memory.stayed_for = None;
        memory.has_moved = how != Arrival::Born;
        memory.came_from = None;
        match how {
            Arrival::Born => {}
            Arrival::Balanced { from } => memory.came_from = Some(from),
            Arrival::Ordered { .. } => {
                memory.rest_until = memory.rest_until.max(now + config.ordered_hold);
            }
            Arrival::CameHome { .. } => self.set_back(now, process, config),
        }
    }

    /// A move came to nothing, or did not last: rest, longer each time, forgotten in time.
    pub fn set_back(&mut self, now: Time, process: GlobalPid, config: &Config) {
        let memory = self.memory(now, process, config);
        if now.since(memory.setback_at) > config.setback_max * 2 {
            memory.setbacks = 0;
        }
        let doublings = memory.setbacks.min(16);
        let rest = (config.setback * (1 << doublings)).min(config.setback_max);
        memory.setbacks = memory.setbacks.saturating_add(1);
        memory.setback_at = now;
        memory.rest_until = memory.rest_until.max(now + rest);
    }

    /// The fault was not the process's own: a short rest, so that others get their turn.
    pub fn rest(&mut self, now: Time, process: GlobalPid, config: &Config) {
        let until = now + config.setback;
        let memory = self.memory(now, process, config);
        memory.rest_until = memory.rest_until.max(until);
    }

    pub fn placed(&mut self, now: Time, process: GlobalPid, placement: Placement, config: &Config) {
        self.memory(now, process, config).pinned = placement == Placement::Pinned;
    }

    /// Another node measured how much the process talks to this one, its home.
    pub fn told_calls(&mut self, now: Time, process: GlobalPid, calls: u32, config: &Config) {
        self.memory(now, process, config).calls_per_cpu_s = Some(f64::from(calls));
    }

    /// It runs elsewhere now; returns what it wanted here.
    pub fn departed(&mut self, process: GlobalPid) -> Option<f64> {
        if let Some(memory) = self.memories.get_mut(&process) {
            memory.arrived_at = None;
        }
        self.running.remove(&process).map(|sample| sample.demand)
    }

    /// It has ended; returns what it wanted here, if it ran here.
    pub fn ended(&mut self, now: Time, process: GlobalPid) -> Option<f64> {
        let is_unmeasured = self.is_present(now, process);
        self.memories.remove(&process);
        match self.running.remove(&process) {
            Some(sample) => Some(sample.demand),
            None => is_unmeasured.then_some(NEWCOMER_DEMAND),
        }
    }

    /// It runs here, or has just arrived and is in no measurement yet.
    pub fn is_present(&self, now: Time, process: GlobalPid) -> bool {
        let arrived = self.memories.get(&process).and_then(|memory| memory.arrived_at);
        self.is_running(process) || arrived.is_some_and(|at| now.since(at) < ARRIVAL_MEMORY)
    }

    /// What it wants here by the last measurement; nothing while it is frozen.
    pub fn demand_of(&self, process: GlobalPid) -> f64 {
        self.running.get(&process).map_or(0.0, |sample| sample.demand)
    }

    /// It is being moved and wants nothing any more; returns what it wanted.
    pub fn frozen(&mut self, process: GlobalPid) -> f64 {
        let sample = self.running.get_mut(&process);
        sample.map_or(0.0, |sample| std::mem::take(&mut sample.demand))
    }

    /// It was not moved after all; true if it had been frozen.
    pub fn thawed(&mut self, process: GlobalPid, demand: f64) -> bool {
        match self.running.get_mut(&process) {
            Some(sample) if sample.demand == 0.0 => {
                sample.demand = demand;
                true
            }
            _ => false,
        }
    }

    pub fn is_running(&self, process: GlobalPid) -> bool {
        self.running.contains_key(&process)
    }

    pub fn processes(&self) -> impl Iterator<Item = GlobalPid> {
        self.running.keys().copied()
    }

    pub fn counts_within(&self, max: usize) -> bool {
        self.running.len() <= max && self.memories.len() <= max
    }

    /// The process as a candidate, or why it stays.
    pub fn candidate(
        &self,
        now: Time,
        process: GlobalPid,
        config: &Config,
    ) -> Result<Candidate, StayCause> {
        let sample = self.running.get(&process).ok_or(StayCause::Unable)?;
        let fresh = Memory::fresh(now);
        let memory = self.memories.get(&process).unwrap_or(&fresh);
        let waits_for_home = if process.home == self.me {
            0.0
        } else {
            (sample.forwarded_per_s * config.forward_cost.as_secs_f64()).min(1.0)
        };
        let here = match memory.arrived_at {
            Some(at) => sample.here.min(now.since(at)),
            None => sample.here,
        };
        let candidate = Candidate {
            process,
            demand: sample.demand,
            calls_per_cpu_s: memory.calls_per_cpu_s.unwrap_or(0.0),
            waits_for_home,
            cpu: sample.cpu,
            rss_bytes: sample.rss_bytes,
            freeze: sample.freeze_estimate,
            came_from: memory.came_from.filter(|_| {
                memory.arrived_at.is_some_and(|at| now.since(at) < config.return_after)
            }),
        };
        let residency = match memory.has_moved {
            true => config.residency.max(sample.freeze_estimate * 4),
            // What its freeze may cost is weighed against its past alone: it has one.
            false => config.infancy,
        };
        if memory.pinned {
            Err(StayCause::Pinned)
        } else if sample.stays.is_some() {
            Err(StayCause::Unable)
        } else if candidate.demand_at(process.home).max(candidate.demand) < config.demand_min {
            Err(StayCause::Light)
        } else if here < residency {
            Err(StayCause::Young)
        } else if now < memory.rest_until {
            Err(StayCause::Resting)
        } else {
            Ok(candidate)
        }
    }

    /// Notes why it stays; true if that is news.
    pub fn stays_for(
        &mut self,
        process: GlobalPid,
        cause: StayCause,
        now: Time,
        c: &Config,
    ) -> bool {
        let memory = self.memory(now, process, c);
        let is_news = memory.stayed_for != Some(cause);
        memory.stayed_for = Some(cause);
        is_news
    }

    /// The line for `osmos why` that goes with a cause.
    pub fn explain(&self, process: GlobalPid, cause: StayCause, config: &Config) -> String {
        let Some(sample) = self.running.get(&process) else {
            return "it does not run here".into();
        };
        match cause {
            StayCause::Pinned => "its user placed it here".into(),
            StayCause::Unable => {
                let reason = sample.stays.as_deref().unwrap_or("it cannot move now");
                format!("it cannot move: {reason}")
            }
            StayCause::Light => format!(
                "it wants {:.2} of a core, less than the {:.2} worth a move",
                sample.demand, config.demand_min
            ),
            StayCause::Young => format!("it has been here for {} only", sample.here),
            StayCause::Resting => "it rests after an earlier move".into(),
            StayCause::NobodyKnown => {
                format!("no other node is known well (news of the last {})", config.useful_age_max)
            }
            StayCause::NoGain => format!(
                "no other node known promises it {:.0} % more than here",
                config.dead_band * 100.0
            ),
            StayCause::Unpaid => format!(
                "a freeze of {} would not pay after {} of CPU time",
                sample.freeze_estimate, sample.cpu
            ),
        }
    }
}

fn sane_sample(sample: ProcessSample) -> ProcessSample {
    ProcessSample {
        demand: sane(sample.demand, 0.0, 10_000.0),
        used: sane(sample.used, 0.0, 10_000.0),
        forwarded_per_s: sane(sample.forwarded_per_s, 0.0, 1e9),
        ..sample
    }
}
