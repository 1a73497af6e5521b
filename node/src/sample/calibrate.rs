//! How fast one core is, compared with a fixed reference; measured at the first start, and again
//! while others compute, as a core that shares its clock, its caches and its units is another one.
//!
//! A short mixed load (integer arithmetic with dependent reads from a table that does not fit the
//! innermost cache) is timed by the CPU clock of its thread, so that neither a CPU quota nor other
//! processes change the result. The best of several runs counts: noise only ever slows down.

use nix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::{Duration, Instant};

const TABLE_WORDS: usize = 1 << 16;
const STEPS: u64 = 2_000_000;
/// When the node starts: about 0.1 s.
pub const RUNS_FIRST: u32 = 7;
/// While it works: about 30 ms a minute, the twentieth part of what gossip may cost.
pub const RUNS_AGAIN: u32 = 3;
/// CPU time that the reference core needs for [`STEPS`]: a 3 GHz x86-64 server core of 2020.
const REFERENCE_NS: f64 = 10_000_000.0;

/// The speed of the core that this runs on; 1.0 is the reference. Takes about 15 ms a run.
pub fn measure_core_speed(runs: u32) -> nix::Result<f64> {
    let mut table: Vec<u64> = (0..TABLE_WORDS as u64).map(|n| n.wrapping_mul(SPREAD)).collect();
    let mut best = Duration::MAX;
    for _ in 0..runs {
        let start = thread_cpu_time()?;
        black_box(work(black_box(&mut table)));
        best = best.min(thread_cpu_time()?.saturating_sub(start));
    }
    let best_ns = best.as_nanos().max(1) as f64;
    Ok((REFERENCE_NS / best_ns * 1000.0).round() / 1000.0)
}

/// Knuth's multiplicative constant: spreads consecutive numbers over all bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

fn work(table: &mut [u64]) -> u64 {
    let mut state = SPREAD;
    for _ in 0..STEPS {
        let index = (state >> 48) as usize % TABLE_WORDS;
        state = (state ^ table[index]).wrapping_mul(SPREAD).rotate_left(23);
        table[index] = state;
    }
    state
}

fn thread_cpu_time() -> nix::Result<Duration> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from)
}

/// Between two measurements, and after one that nobody has confirmed yet.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
const CONFIRM_AFTER: Duration = Duration::from_secs(10);
/// Speeds further apart than that are different ones.
const TOLERANCE: f64 = 1.1;

/// The speed that a node believes in. One measurement that differs may be an accident; two that
/// agree are not.
#[derive(Clone, Debug)]
pub struct Belief {
    speed: f64,
    doubtful: Option<f64>,
    /// None: its owner has said what the speed is.
    next: Option<Instant>,
}

impl Belief {
    pub fn new(speed: f64, is_given: bool, now: Instant) -> Belief {
        Belief { speed, doubtful: None, next: (!is_given).then(|| now + AGAIN_AFTER) }
    }

    pub fn speed(&self) -> f64 {
        self.speed
    }

    /// Whether it is time for a measurement, which then has begun.
    pub fn begin(&mut self, now: Instant) -> bool {
        let is_due = self.next.is_some_and(|next| next <= now);
        if is_due {
            self.next = Some(now + AGAIN_AFTER);
        }
        is_due
    }

    /// True if another speed is believed in from now on.
    pub fn measured(&mut self, now: Instant, speed: f64) -> bool {
        if agree(speed, self.speed) {
            self.doubtful = None;
            return false;
        }
        match self.doubtful.take() {
            Some(doubtful) if agree(doubtful, speed) => {
                self.speed = (doubtful * speed).sqrt();
                true
            }
            _ => {
                self.doubtful = Some(speed);
                self.next = self.next.map(|_| now + CONFIRM_AFTER);
                false
            }
        }
    }
}

fn agree(one: f64, other: f64) -> bool {
    (one / other).max(other / one) <= TOLERANCE
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn two_measurements_of_one_machine_agree() {
        let (first, second) =
            (measure_core_speed(RUNS_FIRST).unwrap(), measure_core_speed(RUNS_FIRST).unwrap());
        assert!(first > 0.0);
        // A virtual machine may change its pace by two in between.
        assert!((first / second).max(second / first) < 4.0, "{first} and {second}");
    }

    #[test]
    fn another_speed_is_believed_in_when_two_measurements_agree() {
        let now = Instant::now();
        let mut belief = Belief::new(1.0, false, now);
        assert!(!belief.begin(now) && belief.begin(now + AGAIN_AFTER));
        assert!(!belief.begin(now + AGAIN_AFTER), "one at a time");
        assert!(!belief.measured(now, 1.08) && !belief.measured(now, 0.5), "accidents");
        assert!(!belief.measured(now, 1.0) && !belief.measured(now, 0.5), "and it was one");
        assert!(belief.begin(now + CONFIRM_AFTER), "sooner when in doubt");
        assert!(belief.measured(now, 0.52));
        assert!((belief.speed() - 0.51).abs() < 0.001, "{}", belief.speed());
    }

    #[test]
    fn what_the_owner_says_is_not_measured() {
        let now = Instant::now();
        assert!(!Belief::new(1.0, true, now).begin(now + AGAIN_AFTER * 9));
    }
}
