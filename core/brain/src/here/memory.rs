//! What is remembered of processes.

use crate::config::Config;
use crate::facts::Attained;
use crate::reasons::StayCause;
use crate::time::Time;
use std::collections::BTreeMap;
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
    /// The node from which the brains of both sent it here.
    pub came_from: Option<NodeId>,
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

    /// Until when it is left alone after moves that came to nothing, the longer the more of them.
    pub fn set_back_until(&self, config: &Config) -> Time {
        let Some(doublings) = self.setbacks.checked_sub(1) else { return Time::ZERO };
        let rest = config.rest * (1 << doublings.min(16));
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
    all: BTreeMap<GlobalPid, Memory>,
}

impl Memories {
    /// A blank one if there is none.
    pub fn of(&self, process: GlobalPid) -> &Memory {
        self.get(process).unwrap_or(&NO_MEMORY)
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
        if self.all.len() >= config.processes_max && !self.all.contains_key(&process) {
            // What runs here is not touched at each look.
            let stalest = self.all.iter().min_by_key(|(_, memory)| {
                (memory.pinned, memory.arrived_at != NEVER, memory.touched_at)
            });
            if let Some(stalest) = stalest.map(|(process, _)| *process) {
                self.all.remove(&stalest);
            }
        }
        let memory = self.all.entry(process).or_insert_with(|| Memory::fresh(now));
        memory.touched_at = now;
        memory
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
    fn the_memory_longest_untouched_gives_way() {
        let process = |pid| GlobalPid { home: NodeId(2), pid: HomePid(pid) };
        let config = Config { processes_max: 2, ..Config::default() };
        let mut memories = Memories::default();
        let at = |ms: u64| Time::from_micros(ms * 1_000);
        memories.touch(at(1), process(7), &config).setbacks = 7;
        memories.touch(at(2), process(9), &config).setbacks = 9;
        assert_eq!(memories.touch(at(3), process(7), &config).setbacks, 7);
        memories.touch(at(4), process(8), &config);
        assert_eq!(memories.of(process(9)).setbacks, 0);
        assert_eq!(memories.of(process(7)).setbacks, 7);
        assert_eq!(memories.len(), 2);
    }
}
