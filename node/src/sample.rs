//! What this node is and how busy it is: the numbers that the brain is fed.

pub mod calibrate;
pub mod cgroup;
pub mod effort;
pub mod ledger;
pub mod scan;
pub mod steal;
pub mod unseen;
pub mod window;

use calibrate::Belief;
use kernel::proc::room::{self, Memory};
use std::path::PathBuf;
use std::time::Instant;
use steal::Steal;

/// What this node can give: its cores and what they are worth, less what a quota or the machine
/// underneath keeps back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Whole cores that can work at the same time.
    pub cores: u32,
    /// What they may use together, in CPU seconds a second: less than `cores` under a quota, or
    /// where a virtual machine does not get what it asks for.
    pub cpus: f64,
    /// Of one of them; a quota of half a core on a machine of speed 1 is one core of speed 0.5.
    pub speed: f64,
    /// Of a core without the quota: what a second of processor time is worth.
    pub core_speed: f64,
}

/// Where guests and processes run, and what one core is worth.
#[derive(Clone, Debug)]
pub struct Gauge {
    pub core: Belief,
    steal: Steal,
    /// Cgroup directories whose limits hold here, with the root of each hierarchy.
    limits: Vec<kernel::proc::cgroup::Place>,
}

impl Gauge {
    /// `guest_cgroup` empty means: where the daemon itself is.
    pub fn new(core: Belief, guest_cgroup: &[PathBuf]) -> Gauge {
        Gauge { core, steal: Steal::default(), limits: cgroup::places(guest_cgroup) }
    }

    /// To be called now and then: what is counted by differences.
    pub fn look(&mut self, now: Instant) {
        self.steal.look(now);
    }

    pub fn capacity(&self) -> Capacity {
        let usable = std::thread::available_parallelism().map_or(1, |n| n.get()) as f64;
        capacity(usable, cgroup::read_cpu_quota(&self.limits), &self.steal, self.core.speed())
    }

    /// The part of the last ten seconds in which something waited for memory. 0 where the kernel
    /// does not tell.
    pub fn memory_pressure(&self) -> f64 {
        let text = std::fs::read_to_string("/proc/pressure/memory").unwrap_or_default();
        parse_pressure(&text).unwrap_or(0.0)
    }

    /// Memory of this node, or of the cgroup in which guests run if that is less.
    pub fn memory(&self) -> Memory {
        room::memory(&self.limits)
    }
}

fn capacity(usable: f64, quota: Option<f64>, steal: &Steal, core_speed: f64) -> Capacity {
    let allowed = quota.map_or(usable, |quota| quota.min(usable));
    let cores = allowed.ceil().max(1.0);
    // A quota that is less than what is left is had in full.
    let cpus = allowed.min(usable * (1.0 - steal.part()));
    Capacity { cores: cores as u32, cpus, speed: core_speed * cpus / cores, core_speed }
}

/// `some avg10=1.23 avg60=...` in per cent.
fn parse_pressure(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some avg10="))?;
    let percent: f64 = some.split(' ').next()?.parse().ok()?;
    Some(percent / 100.0)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn pressure_is_a_part_of_the_time() {
        let text = "some avg10=12.50 avg60=1.00 avg300=0.00 total=9\nfull avg10=1.00\n";
        assert_eq!(parse_pressure(text), Some(0.125));
        assert_eq!(parse_pressure(""), None);
    }

    #[test]
    fn what_is_stolen_makes_cores_slower_and_a_small_quota_is_had_in_full() {
        let steal = Steal::of(0.25);
        let whole = capacity(4.0, None, &steal, 2.0);
        assert_eq!((whole.cores, whole.cpus, whole.speed, whole.core_speed), (4, 3.0, 1.5, 2.0));
        let limited = capacity(4.0, Some(0.5), &steal, 2.0);
        assert_eq!((limited.cores, limited.cpus, limited.speed), (1, 0.5, 1.0));
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let gauge = Gauge::new(Belief::new(1.0, true, Instant::now()), &[]);
        let capacity = gauge.capacity();
        assert!(capacity.cores >= 1 && capacity.speed > 0.0 && capacity.speed <= 1.0);
        let memory = gauge.memory();
        assert!(memory.free_bytes > 0 && memory.free_bytes <= memory.total_bytes);
    }
}
