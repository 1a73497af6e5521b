//! Load that looks do not see: compilers that live for fifty milliseconds, processes of users whom
//! `/proc` hides, those that have begun to compute since the last look over all.
//!
//! They use processor time, and that is counted exactly. Where more of it is used than threads were
//! seen that could run, the rest is theirs.

use std::time::{Duration, Instant};

/// Over which time and threads are compared: counters of processor time move in steps of ten
/// milliseconds.
const COMPARE_EVERY: Duration = Duration::from_millis(400);
/// In threads: a mean of a few looks is off by that, one way and the other.
const DOUBT: f64 = 0.2;
/// Seconds over which differences are averaged, or chance would pass for load.
const MEMORY_S: f64 = 1.0;

/// What was used, compared with what was seen.
#[derive(Clone, Debug, Default)]
pub struct Unseen {
    last: Option<(Instant, f64)>,
    /// When compared last: what had been used and seen by then, in seconds of threads.
    since: Option<(Instant, f64, f64)>,
    seen_s: f64,
    difference: f64,
}

impl Unseen {
    /// `seen` threads could run at that moment; all processes together had used `used_s` of
    /// processor time, if that is known, and a thread that computes without a pause gets `share` of
    /// a core.
    pub fn look(&mut self, at: Instant, seen: f64, used_s: Option<f64>, share: f64) {
        if let Some((before, seen_before)) = self.last.replace((at, seen)) {
            let passed_s = at.saturating_duration_since(before).as_secs_f64();
            self.seen_s += passed_s * (seen + seen_before) / 2.0;
        }
        let Some(used_s) = used_s else { return };
        let Some((since, used_before, seen_before)) = self.since else {
            self.since = Some((at, used_s, self.seen_s));
            return;
        };
        let passed = at.saturating_duration_since(since);
        if passed < COMPARE_EVERY {
            return;
        }
        self.since = Some((at, used_s, self.seen_s));
        let passed_s = passed.as_secs_f64();
        let computed_s = (used_s - used_before) / share;
        let missed = (computed_s - (self.seen_s - seen_before)) / passed_s;
        // Threads that wait for a core are seen and use nothing: that says nothing of others.
        let missed = missed.max(-DOUBT);
        self.difference += (missed - self.difference) * (passed_s / MEMORY_S).min(1.0);
    }

    /// In threads.
    pub fn threads(&self) -> f64 {
        if self.difference > DOUBT { self.difference } else { 0.0 }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Looks four times a second; each second uses so much, and each look sees so many.
    fn watched(seconds: u32, used_per_s: f64, seen: impl Fn(u32) -> f64) -> Unseen {
        let mut unseen = Unseen::default();
        let start = Instant::now();
        for nth in 0..seconds * 4 {
            let at = start + Duration::from_millis(250) * nth;
            unseen.look(at, seen(nth), Some(used_per_s * f64::from(nth) / 4.0), 1.0);
        }
        unseen
    }

    #[test]
    fn what_lives_too_shortly_to_be_seen_is_known_by_what_it_uses_within_two_seconds() {
        let after_two_seconds = watched(2, 2.0, |_| 0.0).threads();
        assert!(after_two_seconds > 1.5, "{after_two_seconds}");
        assert!((watched(20, 2.0, |_| 0.0).threads() - 2.0).abs() < 0.01);
    }

    #[test]
    fn what_was_seen_is_not_counted_twice_and_chance_is_no_load() {
        assert_eq!(watched(20, 2.0, |_| 2.0).threads(), 0.0);
        assert_eq!(watched(20, 2.0, |_| 30.0).threads(), 0.0, "they wait for a core");
        // Found at half of the looks, and it uses half of the time.
        assert_eq!(watched(60, 0.5, |nth| f64::from(nth % 2)).threads(), 0.0);
    }

    #[test]
    fn a_long_wait_for_a_core_does_not_hide_what_comes_after_it() {
        let mut unseen = watched(60, 2.0, |_| 30.0);
        let start = Instant::now() + Duration::from_secs(60);
        for nth in 0..8 {
            let at = start + Duration::from_millis(250) * nth;
            unseen.look(at, 0.0, Some(1_000.0 + f64::from(nth) / 2.0), 1.0);
        }
        assert!(unseen.threads() > 1.0, "{}", unseen.threads());
    }
}
