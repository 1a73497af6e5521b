//! When copying ahead is over, and the process is frozen for the rest.
//!
//! Each round sends what was written to during the one before. Where that becomes less from round
//! to round it ends when the rest fits into the budget; where it does not, more rounds only cost.

use std::time::Duration;

/// How long a process is to stand still at most.
pub const BUDGET: Duration = Duration::from_millis(20);
/// What a freeze takes besides memory: threads, their state, two round trips.
const FIXED_S: f64 = 0.004;
/// However slowly it becomes less.
const ROUNDS_MAX: usize = 30;
/// A round that leaves more than this part of what the one before left has hardly helped.
const PROGRESS_MIN: f64 = 0.8;
/// So many of these in a row are the end.
const IDLE_ROUNDS_MAX: usize = 2;

/// What the rounds have shown so far.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    bytes: u64,
    took: Duration,
    count: usize,
    left: u64,
    idle: usize,
}

impl Rounds {
    pub fn count(&self) -> usize {
        self.count
    }

    /// A round has sent `bytes` in that time, and `left` bytes have been written to since; true if
    /// another one is worth it.
    pub fn goes_on(&mut self, bytes: u64, took: Duration, left: u64) -> bool {
        let before = if self.count == 0 { bytes } else { self.left };
        self.left = left;
        self.bytes += bytes;
        self.took += took;
        self.count += 1;
        let has_helped = (left as f64) < PROGRESS_MIN * before as f64;
        self.idle = if has_helped { 0 } else { self.idle + 1 };
        self.predicted() > BUDGET && self.idle < IDLE_ROUNDS_MAX && self.count < ROUNDS_MAX
    }

    /// How long the process would stand still if it were frozen now.
    pub fn predicted(&self) -> Duration {
        let bytes_per_s = self.bytes as f64 / self.took.as_secs_f64().max(1e-6);
        Duration::from_secs_f64((FIXED_S + self.left as f64 / bytes_per_s.max(1.0)).min(1e9))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const BYTES_PER_S: f64 = 200e6;

    /// A process of so many bytes that writes at this rate (bytes a second) to all of it equally;
    /// returns the rounds and what is left at the end.
    fn play(bytes: f64, written_per_s: f64) -> (usize, f64) {
        let (mut rounds, mut left) = (Rounds::default(), bytes);
        loop {
            let took_s = left / BYTES_PER_S;
            let sent = left;
            left = bytes * (1.0 - (-written_per_s * took_s / bytes).exp());
            if !rounds.goes_on(sent as u64, Duration::from_secs_f64(took_s), left as u64) {
                return (rounds.count(), left);
            }
        }
    }

    #[test]
    fn what_is_written_slowly_fits_into_the_budget_after_some_rounds() {
        let (count, left) = play(1e9, 0.0);
        assert_eq!((count, left), (1, 0.0));
        let (count, left) = play(1e9, 10e6);
        assert!((2..=4).contains(&count) && left / BYTES_PER_S < 0.016, "{count} {left}");
        let (count, left) = play(1e9, 100e6);
        assert!((3..=12).contains(&count) && left / BYTES_PER_S < 0.016, "{count} {left}");
    }

    #[test]
    fn what_is_written_faster_than_it_is_sent_ends_soon() {
        let (count, left) = play(1e9, 5e9);
        assert!(count <= 2 && left > 0.9e9, "{count} {left}");
    }

    #[test]
    fn a_round_that_took_no_time_predicts_no_nonsense() {
        let mut rounds = Rounds::default();
        assert!(!rounds.goes_on(0, Duration::ZERO, 0));
        let mut rounds = Rounds::default();
        assert!(rounds.goes_on(0, Duration::from_secs(1), u64::MAX));
        assert!(rounds.predicted() > BUDGET);
    }
}
