//! What looking at a node may cost it: a part of one core.
//!
//! Each look takes some microseconds for each process that it looks at; on a node with thousands of
//! them, four looks a second would take a third of a core. So the processor time of a look is
//! measured, and the next one of its kind waits until its share of the time has made up for it.

use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Saved up at most: a node that was idle for long does not look without a pause afterwards.
const SAVED_S_MAX: f64 = 0.01;

/// One kind of looks, and what they may take.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Of one core.
    share: f64,
    /// Seconds of processor time; below zero: it is not time yet.
    left_s: f64,
    counted: Option<Instant>,
}

impl Effort {
    pub fn of(share: f64) -> Effort {
        Effort { share, left_s: SAVED_S_MAX, counted: None }
    }

    /// Whether there is something left to spend by now.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let since = self.counted.replace(now);
        let passed = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.left_s = (self.left_s + passed.as_secs_f64() * self.share).min(SAVED_S_MAX);
        self.is_left()
    }

    pub fn is_left(&self) -> bool {
        self.left_s > 0.0
    }

    /// Something was done that took so much.
    pub fn took(&mut self, time: Duration) {
        self.left_s -= time.as_secs_f64();
    }
}

/// Processor time of this thread: what others take of the core meanwhile is not ours.
pub fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn looks_take_their_share_of_the_time_and_no_more_however_long_one_is() {
        for look_s in [0.000_1, 0.001, 0.04, 2.0] {
            let mut effort = Effort::of(0.005);
            let (start, mut spent_s) = (Instant::now(), 0.0);
            for quarter in 0..40_000 {
                if effort.is_due(start + Duration::from_millis(250) * quarter) {
                    effort.took(Duration::from_secs_f64(look_s));
                    spent_s += look_s;
                }
            }
            assert!(spent_s <= 10_000.0 * 0.005 + look_s + SAVED_S_MAX, "{look_s}: {spent_s}");
            let most_s = (40_000.0 * look_s).min(10_000.0 * 0.005);
            assert!(spent_s >= most_s * 0.95, "{look_s}: {spent_s}");
        }
    }
}
