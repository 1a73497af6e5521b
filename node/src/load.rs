//! How busy this node is and what it can give, as of the last look.
//!
//! What is measured is a number of threads at moments; what counts is their mean over a while, so
//! every look goes into windows. What a core is worth is measured anew while the node is busy: a
//! core that works beside others is another one than a core alone.

use crate::sample::scan::Scan;
use crate::sample::unseen::Unseen;
use crate::sample::window::Window;
use crate::sample::{Capacity, Gauge};
use kernel::proc::room::Memory;
use std::time::Instant;

pub struct Load {
    gauge: Gauge,
    /// Threads that could run, Osmos itself excluded.
    runnable: Window,
    /// What is of no managed process.
    others: Window,
    /// Beyond those.
    unseen: Unseen,
    capacity: Capacity,
    memory: Memory,
}

impl Load {
    pub fn new(gauge: Gauge) -> Load {
        let (capacity, memory) = (gauge.capacity(), gauge.memory());
        let (runnable, others) = (Window::default(), Window::default());
        Load { gauge, runnable, others, unseen: Unseen::default(), capacity, memory }
    }

    /// Takes in what a look over all processes has found. True if what a core is worth is to be
    /// measured now.
    pub fn look(&mut self, scan: &Scan) -> bool {
        self.runnable.look(scan.at, f64::from(scan.runnable));
        self.others.look(scan.at, f64::from(scan.others));
        self.gauge.look(scan.at);
        let is_busy = self.runnable.mean() >= self.capacity.cpus / 2.0;
        let is_due = is_busy && self.gauge.core.begin(scan.at);
        self.capacity = self.gauge.capacity();
        self.memory = self.gauge.memory();
        let share = self.share_of_thread();
        self.unseen.look(scan.at, f64::from(scan.runnable), scan.used_s, share);
        is_due
    }

    /// A core was measured; returns what it is worth if that is another speed than before.
    pub fn speed_measured(&mut self, now: Instant, speed: f64) -> Option<f64> {
        self.gauge.core.measured(now, speed).then(|| self.gauge.core.speed())
    }

    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// As of the last look, less what was given away since.
    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// What it is at this moment: that reads nine files.
    pub fn memory_now(&self) -> Memory {
        self.gauge.memory()
    }

    pub fn memory_pressure(&self) -> f64 {
        self.gauge.memory_pressure()
    }

    /// So much memory was freed since the last look.
    pub fn freed(&mut self, bytes: u64) {
        let free = self.memory.free_bytes.saturating_add(bytes);
        self.memory.free_bytes = free.min(self.memory.total_bytes);
    }

    /// All threads that want a core.
    pub fn threads(&self) -> f64 {
        self.runnable.mean() + self.unseen.threads()
    }

    /// Those of them that are of no managed process.
    pub fn threads_of_others(&self) -> f64 {
        self.others.mean() + self.unseen.threads()
    }

    /// Of a core, what one thread gets that computes without a pause and has the node for itself:
    /// under a quota of half a core, half of one.
    pub fn share_of_thread(&self) -> f64 {
        self.capacity.cpus / f64::from(self.capacity.cores)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::sample::calibrate::Belief;
    use std::time::Duration;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn scan(at: Instant, runnable: u32) -> Scan {
        Scan { at, runnable, others: 1, usage: Default::default(), born: Vec::new(), used_s: None }
    }

    #[test]
    fn a_core_is_measured_now_and_then_while_the_node_is_busy() {
        let now = Instant::now();
        let mut load = Load::new(Gauge::new(Belief::new(1.0, false, now), &[]));
        assert!(!load.look(&scan(now + HOUR, 0)), "it is idle");
        let later = now + 2 * HOUR;
        let threads = 8 * load.capacity().cores;
        let mut began = Vec::new();
        for nth in 0..40 {
            began.push(load.look(&scan(later + Duration::from_millis(250) * nth, threads)));
        }
        assert_eq!(began.iter().filter(|is_due| **is_due).count(), 1);
        assert_eq!(load.speed_measured(later, 1.0), None);
        assert_eq!(load.threads(), f64::from(threads));
        assert_eq!(load.threads_of_others(), 1.0);
    }

    #[test]
    fn no_more_memory_is_free_than_there_is() {
        let mut load = Load::new(Gauge::new(Belief::new(1.0, true, Instant::now()), &[]));
        let before = load.memory();
        load.freed(1);
        assert!(load.memory().free_bytes > before.free_bytes || before.free_bytes == 0);
        load.freed(u64::MAX);
        assert_eq!(load.memory().free_bytes, before.total_bytes);
    }
}
