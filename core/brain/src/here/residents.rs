//! The processes that run on this node, and what is remembered of each: how it behaved and why it
//! should be left in peace for now.

use super::calls::remember_calls;
use super::memory::{Memories, Memory, NEVER};
use super::resident::Resident;
use crate::config::Config;
use crate::facts::{Attained, Candidate, Condition, demand_at_home};
use crate::input::{Arrival, Placement, ProcessSample};
use crate::reasons::StayCause;
use crate::rule::Wish;
use crate::time::{Span, Time};
use std::collections::BTreeMap;
use wire::ids::{GlobalPid, NodeId};

/// Guests leave nothing behind after this long; what was born here is remembered until it ends.
const GUEST_MEMORY: Span = Span::from_secs(60);
/// What a process counts for before it has been measured.
const NEWCOMER_DEMAND: f64 = 1.0;
/// Until then an arrival must have shown in a measurement.
const ARRIVAL_MEMORY: Span = Span::from_secs(3);

#[derive(Debug)]
pub(crate) struct Residents {
    pub(crate) me: NodeId,
    pub(crate) running: BTreeMap<GlobalPid, Resident>,
    /// Those that are in no measurement yet.
    newcomers: BTreeMap<GlobalPid, Newcomer>,
    pub(crate) memories: Memories,
    /// Of all that run here and of the newcomers: asked for far more often than it changes.
    demand: f64,
    /// Some process may have come with work done that has not been looked at here yet.
    may_await_look: bool,
    /// Nothing can be forgotten before that, unless the running change.
    forget_due: Time,
}

#[derive(Clone, Copy, Debug)]
struct Newcomer {
    since: Time,
    /// As measured where it came from; None: born here.
    demand: Option<f64>,
}

impl Residents {
    pub fn new(me: NodeId) -> Residents {
        Residents {
            me,
            running: BTreeMap::new(),
            newcomers: BTreeMap::new(),
            memories: Memories::default(),
            demand: 0.0,
            may_await_look: false,
            forget_due: Time::ZERO,
        }
    }

    /// Replaces what is known of the running processes; those `moving` need not be listed. Returns
    /// whether others run now than before.
    pub fn sampled(
        &mut self,
        now: Time,
        samples: &[ProcessSample],
        is_moving: impl Fn(GlobalPid) -> bool,
        config: &Config,
    ) -> bool {
        let mut sorted = Vec::new();
        let samples = if samples.is_sorted_by_key(|sample| sample.process) {
            samples
        } else {
            sorted.extend_from_slice(samples);
            sorted.sort_unstable_by_key(|sample| sample.process);
            &sorted
        };
        let changed = !samples.iter().map(|sample| sample.process).eq(self.running.keys().copied());
        if changed {
            let is_listed = |process: &GlobalPid| {
                samples.binary_search_by_key(process, |sample| sample.process).is_ok()
            };
            self.running.retain(|process, _| is_moving(*process) || is_listed(process));
            self.forget_due = Time::ZERO;
        }
        if changed || !self.newcomers.is_empty() {
            samples.iter().for_each(|sample| self.measured(sample, config));
            self.remember_all_calls(now, samples, config);
        } else {
            // As mostly: each in the place where it was.
            for (known, sample) in self.running.values_mut().zip(samples) {
                known.measured(sample, Some(known.demand), config);
                if sample.process.home != self.me {
                    remember_calls(&mut self.memories, known, now, sample, config);
                }
            }
        }
        self.newcomers.retain(|_, newcomer| now.since(newcomer.since) < ARRIVAL_MEMORY);
        self.add_up();
        changed
    }

    /// A process that came with work done has not been looked at here yet.
    pub fn awaits_first_look(&mut self) -> bool {
        let is_uncounted = |memory: &Memory| memory.came_with.is_some_and(|c| !c.is_counted());
        // Mostly nobody came since the last look.
        self.may_await_look = self.may_await_look && self.memories.iter().any(is_uncounted);
        self.may_await_look
    }

    /// Work that came with a process is counted from its first look on; a thread had that share
    /// here until now.
    pub fn count_work(&mut self, samples: &[ProcessSample], share: f64) {
        for sample in samples {
            let memory = self.memories.get_mut(sample.process);
            if let Some(came_with) = memory.and_then(|memory| memory.came_with.as_mut()) {
                came_with.looked_at(sample.here, share, sample.cpu);
            }
        }
    }

    fn measured(&mut self, sample: &ProcessSample, config: &Config) {
        let newcomer = self.newcomers.remove(&sample.process);
        let process = sample.process;
        if self.running.len() >= config.processes_max && !self.running.contains_key(&process) {
            return;
        }
        let mut before = newcomer.and_then(|newcomer| newcomer.demand);
        let known = match self.running.get_mut(&process) {
            Some(known) => {
                before = Some(known.demand);
                known
            }
            None => self.running.entry(process).or_default(),
        };
        known.measured(sample, before, config);
    }

    /// It has just come and counts, with this demand if that is known, until it is measured: else
    /// this node would pass for idle.
    pub fn expect(&mut self, now: Time, process: GlobalPid, demand: Option<f64>, config: &Config) {
        let is_new = !self.is_running(process) && self.newcomers.len() < config.processes_max;
        if is_new {
            self.newcomers.insert(process, Newcomer { since: now, demand });
            self.add_up();
        }
    }

    /// Cores that all that runs here would use, if it had as many.
    pub fn demand(&self) -> f64 {
        self.demand
    }

    /// To be called when the running or the newcomers have changed.
    fn add_up(&mut self) {
        self.demand = self.total_demand();
    }

    fn total_demand(&self) -> f64 {
        let measured: f64 = self.running.values().map(|sample| sample.demand).sum();
        let expected = self.newcomers.values().map(|n| n.demand.unwrap_or(NEWCOMER_DEMAND));
        measured + expected.sum::<f64>()
    }

    /// The standard deviation of how many threads are runnable at one moment: one that waits for
    /// 0.3 of its time is runnable at 0.7 of the looks.
    pub fn unrest(&self) -> f64 {
        // Of no negative and no huge number: not the fraction that a library has to be asked for.
        let parts = self.running.values().map(|r| r.demand - f64::from(r.demand as u32));
        parts.map(|part| part * (1.0 - part)).sum::<f64>().sqrt()
    }

    /// What nobody will ask for any more goes.
    pub fn forget(&mut self, now: Time) {
        if now < self.forget_due {
            return;
        }
        let (me, running) = (self.me, &self.running);
        // Nothing that is touched from now on is forgotten before that.
        let mut due = now + GUEST_MEMORY;
        self.memories.retain(|process, memory| {
            if process.home == me || running.contains_key(process) {
                return true;
            }
            let stays = now.since(memory.touched_at) < GUEST_MEMORY;
            if stays {
                due = due.min(memory.touched_at + GUEST_MEMORY);
            }
            stays
        });
        self.forget_due = due;
    }

    pub fn arrived(&mut self, now: Time, process: GlobalPid, how: Arrival, config: &Config) {
        let memory = self.memories.touch(now, process, config);
        memory.arrived_at = now;
        memory.stayed_for = None;
        memory.has_moved = how != Arrival::Born;
        memory.came_from = None;
        match how {
            Arrival::Born | Arrival::Began { .. } => {}
            Arrival::Balanced { from } => memory.came_from = Some(from),
            Arrival::Ordered { .. } => {
                memory.rest_until = memory.rest_until.max(now + config.ordered_hold);
            }
            Arrival::CameHome { .. } => self.rest_longer(now, process, config),
        }
    }

    /// A move came to nothing, or did not last: rest, longer each time, forgotten in time.
    pub fn rest_longer(&mut self, now: Time, process: GlobalPid, config: &Config) {
        let memory = self.memories.touch(now, process, config);
        if now.since(memory.setback_at) > config.setback_max * 2 {
            memory.setbacks = 0;
        }
        memory.setbacks = memory.setbacks.saturating_add(1);
        memory.setback_at = now;
        memory.rest_until = memory.rest_until.max(memory.set_back_until(config));
    }

    /// The fault was not the process's own: a short rest, so that others get their turn.
    pub fn rest_briefly(&mut self, now: Time, process: GlobalPid, config: &Config) {
        let until = now + config.rest;
        let memory = self.memories.touch(now, process, config);
        memory.rest_until = memory.rest_until.max(until);
    }

    pub fn placed(&mut self, now: Time, process: GlobalPid, placement: Placement, config: &Config) {
        self.memories.touch(now, process, config).pinned = placement == Placement::Pinned;
    }

    /// It comes with that much work done.
    pub fn told_progress(&mut self, now: Time, process: GlobalPid, work_s: f64, config: &Config) {
        let memory = self.memories.touch(now, process, config);
        memory.came_with = Some(Attained::elsewhere(work_s));
        self.may_await_look = true;
    }

    /// Processes of other nodes that run here.
    pub fn guests(&self) -> impl Iterator<Item = GlobalPid> {
        self.processes().filter(|process| process.home != self.me)
    }

    /// What it was last measured to be, if it runs here.
    pub fn known(&self, process: GlobalPid) -> Option<&Resident> {
        self.running.get(&process)
    }

    pub fn count(&self) -> usize {
        self.running.len()
    }

    /// It runs elsewhere now.
    pub fn departed(&mut self, now: Time, process: GlobalPid) {
        if self.memories.of(process).says_nothing(now) {
            self.memories.remove(process);
        } else if let Some(memory) = self.memories.get_mut(process) {
            memory.arrived_at = NEVER;
            memory.came_with = None;
            memory.touched_at = now;
        }
        self.newcomers.remove(&process);
        self.running.remove(&process);
        self.forget_due = Time::ZERO;
        self.add_up();
    }

    pub fn ended(&mut self, process: GlobalPid) {
        self.memories.remove(process);
        self.newcomers.remove(&process);
        self.running.remove(&process);
        self.add_up();
    }

    /// It runs here, or has just arrived and is in no measurement yet.
    pub fn is_present(&self, process: GlobalPid) -> bool {
        self.is_running(process) || self.newcomers.contains_key(&process)
    }

    /// What it wants here by the last measurement.
    pub fn demand_of(&self, process: GlobalPid) -> f64 {
        self.running.get(&process).map_or(0.0, |sample| sample.demand)
    }

    pub fn is_running(&self, process: GlobalPid) -> bool {
        self.running.contains_key(&process)
    }

    /// Those that run here, by number.
    pub fn processes(&self) -> impl Iterator<Item = GlobalPid> {
        self.running.keys().copied()
    }

    pub fn counts_within(&self, max: usize) -> bool {
        self.running.len() <= max && self.newcomers.len() <= max && self.memories.len() <= max
    }

    pub fn is_added_up(&self) -> bool {
        self.demand == self.total_demand()
    }

    /// The least that a process here could ask for, if there is one that is worth a move.
    pub fn wish(&self, own: &Condition, noise: f64, config: &Config) -> Option<Wish> {
        let (mut least, mut most, mut calls) = (f64::INFINITY, 0f64, 0f32);
        for (process, resident) in &self.running {
            let mut dense = resident.demand;
            if process.home != self.me && !resident.is_silent {
                let memory = self.memories.of(*process);
                calls = calls.max(memory.calls_per_cpu_s.unwrap_or(0.0));
                dense += resident.waits_for_home(config);
            }
            if dense >= config.demand_min {
                (least, most) = (least.min(resident.demand), most.max(dense));
            }
        }
        let drag = 1.0 + f64::from(calls) * config.forward_cost.as_secs_f64();
        (most > 0.0).then(|| Wish::of(own, (least, most), drag, noise, config))
    }

    /// The process as a candidate, or why it stays.
    pub fn candidate(
        &self,
        now: Time,
        process: GlobalPid,
        config: &Config,
    ) -> Result<Candidate, StayCause> {
        let resident = self.running.get(&process).ok_or(StayCause::Unable)?;
        let memory = self.memories.of(process);
        match self.cause(now, process, resident, memory, config) {
            Some(cause) => Err(cause),
            None => Ok(self.describe(now, process, resident, memory, config)),
        }
    }

    /// Why the process stays whatever the place, if it does.
    pub fn stay_cause(
        &self,
        now: Time,
        process: GlobalPid,
        resident: &Resident,
        config: &Config,
    ) -> Option<StayCause> {
        self.cause(now, process, resident, self.memories.of(process), config)
    }

    fn cause(
        &self,
        now: Time,
        process: GlobalPid,
        resident: &Resident,
        memory: &Memory,
        config: &Config,
    ) -> Option<StayCause> {
        let dense =
            || demand_at_home(resident.demand, self.waits_for_home(process, resident, config));
        if memory.pinned {
            Some(StayCause::Pinned)
        } else if resident.stays.is_some() {
            Some(StayCause::Unable)
        } else if resident.demand < config.demand_min && dense() < config.demand_min {
            Some(StayCause::Light)
        } else if resident.left.is_some_and(|left| left < config.left_min) {
            Some(StayCause::Brief)
        } else if been_here(now, resident, memory)
            < residency(config.residency_for_room, resident, memory, config)
        {
            Some(StayCause::Young)
        } else if now < memory.rest_until {
            Some(StayCause::Resting)
        } else {
            None
        }
    }

    fn waits_for_home(&self, process: GlobalPid, resident: &Resident, config: &Config) -> f64 {
        if process.home == self.me { 0.0 } else { resident.waits_for_home(config) }
    }

    /// The process as one that has to leave, whatever it gains; None if it cannot.
    pub fn evictable(&self, now: Time, process: GlobalPid, config: &Config) -> Option<Candidate> {
        let resident = self.running.get(&process)?;
        let memory = self.memories.of(process);
        // Not the rest after a move that was ordered: whoever has to leave does not wait for it.
        let is_tried = now < memory.set_back_until(config);
        let can_move = resident.stays.is_none() && !memory.pinned && !is_tried;
        can_move.then(|| self.describe(now, process, resident, memory, config))
    }

    /// The process, whether it can move or not.
    pub fn described(&self, now: Time, process: GlobalPid, config: &Config) -> Option<Candidate> {
        let resident = self.running.get(&process)?;
        let fresh = Memory::fresh(now);
        let memory = self.memories.get(process).unwrap_or(&fresh);
        Some(self.describe(now, process, resident, memory, config))
    }

    fn describe(
        &self,
        now: Time,
        process: GlobalPid,
        resident: &Resident,
        memory: &Memory,
        config: &Config,
    ) -> Candidate {
        let here = been_here(now, resident, memory);
        Candidate {
            process,
            demand: resident.demand,
            calls_per_cpu_s: f64::from(memory.calls_per_cpu_s.unwrap_or(0.0)),
            waits_for_home: self.waits_for_home(process, resident, config),
            cpu: resident.cpu,
            came_with: memory.came_with,
            rss_bytes: resident.rss_bytes,
            freeze: resident.freeze,
            copy: resident.copy,
            left: resident.left,
            group: resident.group,
            here,
            is_new: here < residency(config.residency, resident, memory, config),
            came_from: memory.came_from.filter(|_| {
                memory.arrived_at != NEVER && now.since(memory.arrived_at) < config.return_after
            }),
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
        match self.running.get_mut(&process) {
            Some(resident) => note_stay(resident, self.memories.touch(now, process, c), cause),
            None => self.memories.touch(now, process, c).note_stay(cause),
        }
    }
}

/// Whether it is news that it stays for that.
fn note_stay(resident: &mut Resident, memory: &mut Memory, cause: StayCause) -> bool {
    let is_other = cause == StayCause::Unable && std::mem::take(&mut resident.stays_anew);
    memory.note_stay(cause) || is_other
}

/// As far as this node saw it come, or was told.
fn been_here(now: Time, resident: &Resident, memory: &Memory) -> Span {
    match memory.arrived_at {
        NEVER => resident.here,
        at => resident.here.min(now.since(at)),
    }
}

/// How long a process stays before a move for which that is the usual.
fn residency(usual: Span, resident: &Resident, memory: &Memory, config: &Config) -> Span {
    match memory.has_moved {
        true => usual.max(resident.freeze * 4),
        // What is known to take long need not have done so before.
        false if resident.left.is_some() => Span::ZERO,
        // What its freeze may cost is weighed against its past alone: it has one.
        false => config.infancy,
    }
}
