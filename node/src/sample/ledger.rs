//! What is remembered of each process from one look to the next: who computes, and how much all of
//! them have used.
//!
//! To count the threads of a process that could run, each of them has to be looked at. That is
//! worth it only for processes that compute, and these are known by the processor time of the whole
//! process, which grows.

use super::scan::Watched;
use crate::procfs::Stat;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A process that used no processor time for so long sleeps.
const WARM: Duration = Duration::from_secs(2);
/// Of a process's ancestors, looked at on the way to the daemon.
const ANCESTORS_MAX: usize = 64;

#[derive(Clone, Debug)]
struct Entry {
    started_ticks: u64,
    parent: i32,
    cpu_ticks: u64,
    children_ticks: u64,
    /// When it was seen to compute last.
    warm: Option<Instant>,
    /// When its threads were counted last, and how many could run.
    counted: Option<(Instant, u32)>,
    /// Of the last sweep that found it.
    sweep: u64,
}

impl Entry {
    fn total_ticks(&self) -> u64 {
        self.cpu_ticks + self.children_ticks
    }

    fn is_warm(&self, now: Instant) -> bool {
        self.warm.is_some_and(|warm| now.saturating_duration_since(warm) < WARM)
    }

    fn is_of(&self, stat: &Stat) -> bool {
        self.started_ticks == stat.started_ticks
    }
}

/// Whose work a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Osmos itself: the daemon, and what it started.
    Osmos,
    /// A process that is away: what runs here of it serves its body.
    Deputy,
    Other,
}

#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<i32, Entry>,
    sweeps: u64,
    /// Clock ticks, of all looks: of those who are [`Part::Other`], and of the rest.
    used: u64,
    served: u64,
    /// What parents have inherited since the last sweep.
    inherited: u64,
}

impl Ledger {
    /// Those that have computed lately.
    pub fn warm(&self, now: Instant) -> BTreeSet<i32> {
        let is_warm = |entry: &Entry| entry.is_warm(now);
        self.entries.iter().filter(|(_, entry)| is_warm(entry)).map(|(pid, _)| *pid).collect()
    }

    /// Whether its threads are worth a look each.
    pub fn is_warm(&self, now: Instant, pid: i32) -> bool {
        self.entries.get(&pid).is_some_and(|entry| entry.is_warm(now))
    }

    pub fn counted(&self, pid: i32) -> Option<(Instant, u32)> {
        self.entries.get(&pid)?.counted
    }

    pub fn count(&mut self, now: Instant, pid: i32, runnable: u32) {
        if let Some(entry) = self.entries.get_mut(&pid) {
            entry.counted = Some((now, runnable));
        }
    }

    /// What all processes but Osmos and deputies have used, clock ticks: those that nobody has seen
    /// included, as far as somebody has waited for them. It is true after a sweep.
    pub fn used_ticks(&self) -> Option<u64> {
        (self.sweeps > 1).then_some(self.used)
    }

    /// What Osmos and deputies have used.
    pub fn served_ticks(&self) -> u64 {
        self.served
    }

    /// Takes in a look; a sweep has seen all that there are.
    pub fn take_in(
        &mut self,
        now: Instant,
        stats: &[Stat],
        is_sweep: bool,
        watched: &Watched,
        daemon: i32,
    ) {
        let is_first = self.sweeps == 0;
        self.sweeps += u64::from(is_sweep);
        let mut grown = Vec::new();
        for stat in stats {
            let (mut own, mut children) = (stat.cpu_ticks, stat.children_ticks);
            let mut entry = Entry {
                started_ticks: stat.started_ticks,
                parent: stat.parent,
                cpu_ticks: own,
                children_ticks: children,
                // One that was born just now may do anything.
                warm: (stat.is_runnable() || !is_first).then_some(now),
                counted: None,
                sweep: self.sweeps,
            };
            if let Some(before) = self.entries.get(&stat.pid).filter(|before| before.is_of(stat)) {
                own = own.saturating_sub(before.cpu_ticks);
                children = children.saturating_sub(before.children_ticks);
                let computes = own > 0 || stat.is_runnable();
                entry.warm = if computes { Some(now) } else { before.warm };
                entry.counted = before.counted;
            } else if is_first {
                (own, children) = (0, 0);
            }
            self.entries.insert(stat.pid, entry);
            if own + children > 0 {
                grown.push((stat.pid, own, children));
            }
        }
        self.add_up(&grown, is_sweep, watched, daemon);
    }

    /// Processor time of one who has ended is its parent's, from the moment that it was waited for:
    /// what was counted before is not counted again.
    fn add_up(
        &mut self,
        grown: &[(i32, u64, u64)],
        is_sweep: bool,
        watched: &Watched,
        daemon: i32,
    ) {
        for (pid, own, children) in grown {
            let part = self.part(*pid, watched, daemon);
            match part {
                Part::Other => self.used += own,
                Part::Deputy | Part::Osmos => self.served += own,
            }
            // The children of a deputy do not serve its body.
            if part != Part::Osmos {
                self.inherited += children;
            }
        }
        if !is_sweep {
            return;
        }
        let sweep = self.sweeps;
        let gone = self.entries.iter().filter(|(_, entry)| entry.sweep != sweep);
        let gone: Vec<(i32, u64)> = gone.map(|(pid, entry)| (*pid, entry.total_ticks())).collect();
        // What nobody waits for is nobody's.
        let known: u64 = gone
            .iter()
            .filter(|(pid, _)| self.part(*pid, watched, daemon) != Part::Osmos)
            .map(|(_, ticks)| ticks)
            .sum();
        self.used += std::mem::take(&mut self.inherited).saturating_sub(known);
        for (pid, _) in gone {
            self.entries.remove(&pid);
        }
    }

    /// Bodies that run are nobody's but their own, though the daemon's supervisors have them.
    pub fn part(&self, pid: i32, watched: &Watched, daemon: i32) -> Part {
        let mut at = pid;
        for _ in 0..ANCESTORS_MAX {
            if at == daemon {
                return Part::Osmos;
            }
            if watched.away.contains(&at) {
                return if at == pid { Part::Deputy } else { Part::Other };
            }
            if watched.managed.contains(&at) || watched.bodies.contains(&at) {
                return Part::Other;
            }
            if watched.inherited.contains(&at) {
                return Part::Osmos;
            }
            match self.entries.get(&at) {
                Some(entry) if entry.parent > 1 => at = entry.parent,
                _ => return Part::Other,
            }
        }
        Part::Other
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const DAEMON: i32 = 100;

    fn stat(pid: i32, parent: i32, cpu_ticks: u64, children_ticks: u64) -> Stat {
        Stat {
            pid,
            command: String::new(),
            state: 'S',
            parent,
            group: pid,
            is_exiting: false,
            cpu_ticks,
            children_ticks,
            threads: 1,
            started_ticks: 1,
        }
    }

    fn sweep(ledger: &mut Ledger, stats: &[Stat], watched: &Watched) {
        ledger.take_in(Instant::now(), stats, true, watched, DAEMON);
    }

    #[test]
    fn children_that_nobody_saw_are_counted_when_they_have_been_waited_for_and_others_once() {
        let (mut ledger, watched) = (Ledger::default(), Watched::default());
        let make = |own, children| stat(10, 1, own, children);
        sweep(&mut ledger, &[make(5, 700)], &watched);
        assert_eq!(ledger.used_ticks(), None, "what was before is not known to be new");
        sweep(&mut ledger, &[make(6, 800)], &watched);
        assert_eq!(ledger.used_ticks(), Some(101));
        // One that is seen as long as it lives, and has 30 in the end.
        sweep(&mut ledger, &[make(6, 800), stat(11, 10, 20, 0)], &watched);
        assert_eq!(ledger.used_ticks(), Some(121));
        sweep(&mut ledger, &[make(6, 830)], &watched);
        assert_eq!(ledger.used_ticks(), Some(131));
    }

    #[test]
    fn what_osmos_and_deputies_use_is_told_apart() {
        let mut ledger = Ledger::default();
        let bodies = BTreeSet::from([103]);
        let away = BTreeSet::from([50]);
        let watched = Watched { managed: away.clone(), away, bodies, ..Watched::default() };
        // The daemon, a supervisor, the init of a sandbox, a body; a deputy and a child of it.
        let stats = |ticks| {
            let children = [(100, 1), (101, 100), (102, 101), (103, 102), (50, 1), (51, 50)];
            children.map(|(pid, parent)| stat(pid, parent, ticks, 0))
        };
        sweep(&mut ledger, &stats(0), &watched);
        sweep(&mut ledger, &stats(10), &watched);
        assert_eq!((ledger.used_ticks(), ledger.served_ticks()), (Some(20), 40));
        // The body ends: its init inherits, and that is no load of this node.
        let mut left = stats(10).to_vec();
        left.retain(|stat| stat.pid != 103);
        left[2].children_ticks = 1_000;
        sweep(&mut ledger, &left, &watched);
        assert_eq!((ledger.used_ticks(), ledger.served_ticks()), (Some(20), 40));
    }

    #[test]
    fn who_computes_is_warm_for_a_while_and_a_number_that_is_used_again_is_somebody_else() {
        let (mut ledger, watched) = (Ledger::default(), Watched::default());
        let start = Instant::now();
        let look = |ledger: &mut Ledger, at, stat| {
            ledger.take_in(at, &[stat], false, &watched, DAEMON);
        };
        ledger.take_in(start, &[stat(10, 1, 5, 0)], true, &watched, DAEMON);
        assert!(!ledger.is_warm(start, 10), "nobody knows yet");
        look(&mut ledger, start, stat(10, 1, 6, 0));
        assert!(ledger.is_warm(start, 10));
        look(&mut ledger, start + WARM, stat(10, 1, 6, 0));
        assert!(!ledger.is_warm(start + WARM, 10));
        ledger.count(start, 10, 3);
        look(&mut ledger, start + WARM, Stat { started_ticks: 2, ..stat(10, 1, 0, 0) });
        assert!(ledger.is_warm(start + WARM, 10) && ledger.counted(10).is_none());
    }
}
