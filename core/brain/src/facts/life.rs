//! What a program took before it ended, time after time: how long one that runs it now is likely to
//! go on.
//!
//! What is left of a process's life is, where nothing else is known, as long as its past. Of a
//! compiler that has just begun that says that it is not worth a move, and when it is, it is nearly
//! done. But the one before it took a second, and the one before that, too.

use crate::time::Span;
use serde::{Deserialize, Serialize};

/// Ends that must have been seen before anything is said.
const ENDS_MIN: u32 = 3;
/// Of the latest end against those before: as for round trips (Jacobson, "Congestion avoidance and
/// control", 1988).
const MEAN_WEIGHT: f64 = 1.0 / 8.0;
const DEVIATION_WEIGHT: f64 = 1.0 / 4.0;
/// Who differs by no more than that part of the mean from one to the next is done when the mean is.
const ALIKE: f64 = 0.25;
/// Who has taken so many deviations more than the mean is another kind.
const DEVIATIONS: f64 = 3.0;
/// No life is as long, s.
const LONGEST_S: f64 = 1e9;

/// Processor time of a whole life: mean and mean deviation, s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Life {
    ends: u32,
    mean_s: f64,
    deviation_s: f64,
}

impl Life {
    /// The first that was seen.
    pub fn first(took: Span) -> Life {
        let took_s = took.as_secs_f64();
        Life { ends: 1, mean_s: took_s, deviation_s: took_s / 2.0 }
    }

    /// Another one took so long.
    pub fn ended(&mut self, took: Span) {
        let error_s = took.as_secs_f64() - self.mean_s;
        self.mean_s += error_s * MEAN_WEIGHT;
        self.deviation_s += (error_s.abs() - self.deviation_s) * DEVIATION_WEIGHT;
        self.ends = self.ends.saturating_add(1);
    }

    /// How much one that has computed for so long is likely to compute yet; None if those before it
    /// do not tell.
    pub fn left(&self, past: Span) -> Option<Span> {
        if self.ends < ENDS_MIN {
            return None;
        }
        let past_s = past.as_secs_f64();
        let left_s = self.mean_s - past_s;
        let is_alike = self.deviation_s <= self.mean_s * ALIKE;
        let is_of_them = past_s <= self.mean_s + self.deviation_s * DEVIATIONS;
        // Of those that differ it is known that they take long, and not when they are done.
        let is_long = self.deviation_s <= self.mean_s && left_s > past_s;
        let is_known = is_long || is_alike && is_of_them;
        // Who has outlived the mean goes on for as long as they differ.
        is_known.then(|| Span::from_secs_f64(left_s.max(self.deviation_s)))
    }

    /// Whether a life can be like that: it may come from a file.
    pub fn is_sound(&self) -> bool {
        let is_time = |seconds: f64| seconds.is_finite() && (0.0..=LONGEST_S).contains(&seconds);
        is_time(self.mean_s) && is_time(self.deviation_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Span {
        Span::from_millis(ms)
    }

    fn after(lives_ms: &[u64]) -> Life {
        let mut life = Life::first(ms(lives_ms[0]));
        lives_ms[1..].iter().for_each(|took| life.ended(ms(*took)));
        life
    }

    #[test]
    fn one_like_those_before_takes_as_long_as_they_did() {
        let life = after(&[1_000, 1_200, 900, 1_100].repeat(3));
        let left = life.left(ms(100)).unwrap();
        assert!((ms(850)..ms(1_000)).contains(&left), "{left:?}");
        let left = life.left(ms(1_200)).unwrap();
        assert!((ms(50)..ms(200)).contains(&left), "{left:?}");
        assert_eq!(life.left(ms(5_000)), None, "it is another kind");
        // It is too early to say when they are done, but not that they take long.
        let life = after(&[1_000, 1_200, 900]);
        assert!(life.left(ms(100)).is_some());
        assert_eq!(life.left(ms(900)), None);
    }

    #[test]
    fn those_that_differ_tell_nothing() {
        assert_eq!(after(&[1_000, 1_000]).left(ms(1)), None, "too few");
        assert_eq!(after(&[10, 20_000, 30, 9_000, 15, 12_000]).left(ms(1)), None);
    }
}
