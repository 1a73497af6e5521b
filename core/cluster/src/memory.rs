//! What is remembered of processes. A million brains remember some each: so it is small.

use crate::attained::Attained;
use crate::config::Config;
use crate::resident::Resident;
use crate::sorted::Sorted;
use crate::staying::StayCause;
use crate::time::Time;
use std::num::NonZeroU32;
use wire::ids::{GlobalPid, NodeId};

/// What is remembered of a process between measurements and, at its home, while it is away.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub touched_at: Time,
    /// [`NEVER`] if it does not run here.
    pub arrived_at: Time,
    pub rest_until: Time,
    pub setback_at: Time,
    /// None for a process that was born here and never left.
    pub came_with: Option<Attained>,
    /// Forwarded calls per CPU second when last away; None: never away.
    pub calls_per_cpu_s: Option<f32>,
    came_from: Option<NonZeroU32>,
    /// Moves in a row that came to nothing, and homecomings by itself.
    pub setbacks: u8,
    /// It came from elsewhere: its first stay is over.
    pub has_moved: bool,
    pub pinned: bool,
    /// So that a decision is recorded when it changes, not each second.
    pub stayed_for: Option<StayCause>,
}

pub(crate) const NEVER: Time = Time(u64::MAX);
/// Of a process of which nothing is remembered.
pub(crate) static NO_MEMORY: Memory = Memory::fresh(Time::ZERO);

impl Memory {
    pub const fn fresh(now: Time) -> Memory {
        Memory {
            touched_at: now,
            arrived_at: NEVER,
            rest_until: Time::ZERO,
            setback_at: Time::ZERO,
            came_with: None,
            calls_per_cpu_s: None,
            came_from: None,
            setbacks: 0,
            has_moved: false,
            pinned: false,
            stayed_for: None,
        }
    }

    /// The node from which the brains of both sent it here.
    pub fn came_from(&self) -> Option<NodeId> {
        self.came_from.map(|number| NodeId(number.get()))
    }

    pub fn note_came_from(&mut self, node: Option<NodeId>) {
        // 0 is never a node.
        self.came_from = node.and_then(|node| NonZeroU32::new(node.0));
    }

    /// Until when it is left alone after moves that came to nothing, the longer the more of them.
    pub fn set_back_until(&self, config: &Config) -> Time {
        let Some(doublings) = self.setbacks.checked_sub(1) else { return Time::ZERO };
        let rest = config.setback * (1 << doublings.min(16));
        self.setback_at + rest.min(config.setback_max)
    }

    /// That it stays for that; true if that is news.
    pub fn note_stay(&mut self, cause: StayCause) -> bool {
        self.stayed_for.replace(cause) != Some(cause)
    }

    /// Nothing in it is worth keeping once the process is elsewhere.
    pub fn says_nothing(&self, now: Time) -> bool {
        let is_at_peace = self.setbacks == 0 && self.rest_until <= now;
        is_at_peace && !self.pinned && self.calls_per_cpu_s.is_none()
    }
}

/// Of several processes: a bounded number.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    all: Sorted<GlobalPid, Memory>,
}

/// Where the memory of a process was last found: it is mostly still there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryPlace(u32);

impl Memories {
    /// A blank one if there is none.
    pub fn of(&self, process: GlobalPid) -> &Memory {
        self.get(process).unwrap_or(&NO_MEMORY)
    }

    /// The same for a process that runs here.
    #[inline]
    pub fn of_resident(&self, process: GlobalPid, resident: &Resident) -> &Memory {
        match self.all.at(resident.memory.0 as usize) {
            Some((found, memory)) if found == process => memory,
            _ => self.of(process),
        }
    }

    pub fn get(&self, process: GlobalPid) -> Option<&Memory> {
        self.all.get(&process)
    }

    pub fn get_mut(&mut self, process: GlobalPid) -> Option<&mut Memory> {
        self.all.get_mut(&process)
    }

    /// The memory of a process, made if there is none. The number is bounded: the one longest
    /// untouched gives way.
    pub fn touch(&mut self, now: Time, process: GlobalPid, config: &Config) -> &mut Memory {
        self.touch_at(&mut MemoryPlace::default(), now, process, config)
    }

    /// The same for a process whose memory has a place that is known, which is renewed.
    #[inline]
    pub fn touch_at(
        &mut self,
        place: &mut MemoryPlace,
        now: Time,
        process: GlobalPid,
        config: &Config,
    ) -> &mut Memory {
        let mut found = place.0 as usize;
        if !self.all.is_at(found, &process) {
            found = self.find_or_make(now, process, config);
            // One beyond is looked for again: nobody remembers as many.
            place.0 = u32::try_from(found).unwrap_or(u32::MAX);
        }
        let memory = self.all.value_at_mut(found);
        memory.touched_at = now;
        memory
    }

    #[inline(never)]
    fn find_or_make(&mut self, now: Time, process: GlobalPid, config: &Config) -> usize {
        if self.all.len() >= config.processes_max && !self.all.contains(&process) {
            let stalest = self
                .all
                .iter()
                .min_by_key(|(_, memory)| {
                    // What runs here is not touched at each look.
                    (memory.pinned, memory.arrived_at != NEVER, memory.touched_at)
                })
                .map(|(process, _)| process);
            if let Some(stalest) = stalest {
                self.all.remove(&stalest);
            }
        }
        self.all.place_of_or_insert_with(process, || Memory::fresh(now))
    }

    pub fn remove(&mut self, process: GlobalPid) {
        self.all.remove(&process);
    }

    pub fn retain(&mut self, keep: impl FnMut(&GlobalPid, &mut Memory) -> bool) {
        self.all.retain(keep);
    }

    pub fn iter(&self) -> impl Iterator<Item = &Memory> {
        self.all.values()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ids::HomePid;

    #[test]
    fn a_memory_is_found_though_others_have_come_and_gone() {
        let process = |pid| GlobalPid { home: NodeId(2), pid: HomePid(pid) };
        let config = Config { processes_max: 2, ..Config::default() };
        let mut memories = Memories::default();
        let at = |ms: u64| Time::from_micros(ms * 1_000);
        let mut place = MemoryPlace::default();
        memories.touch(at(1), process(1), &config).setbacks = 1;
        memories.touch_at(&mut place, at(2), process(7), &config).setbacks = 7;
        memories.remove(process(1));
        memories.touch(at(3), process(9), &config).setbacks = 9;
        assert_eq!(memories.touch_at(&mut place, at(4), process(7), &config).setbacks, 7);
        // The one longest untouched gives way.
        memories.touch(at(5), process(8), &config);
        assert_eq!(memories.of(process(9)).setbacks, 0);
        assert_eq!(memories.touch_at(&mut place, at(6), process(7), &config).setbacks, 7);
        assert_eq!(memories.len(), 2);
    }
}
