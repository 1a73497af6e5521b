//! What this node knows of its own load between measurements.
//!
//! A measured mean lags: a process that left half a window ago still counts half. Each arrival and
//! departure is therefore kept as a correction that fades exactly as the mean catches up. Without
//! it a node hands over a second process for the same imbalance, or takes in two for one idle core.

use crate::condition::Condition;
use crate::config::Config;
use crate::input::LoadSample;
use crate::time::{Span, Time};

/// Corrections kept: as many as can happen between two measurements on a busy node.
const CORRECTIONS_MAX: usize = 256;
/// What a quota or a calibration can sensibly give.
const SPEED_MIN: f64 = 0.001;
const SPEED_MAX: f64 = 10_000.0;
const RUNNABLE_MAX: f64 = 1e6;

#[derive(Clone, Copy, Debug)]
struct Correction {
    at: Time,
    threads: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Own {
    measured: Option<(Time, Condition)>,
    measured_over: Span,
    corrections: Vec<Correction>,
}

/// A measured number brought into range; what is none becomes `low`.
pub(crate) fn sane(value: f64, low: f64, high: f64) -> f64 {
    if value.is_nan() { low } else { value.clamp(low, high) }
}

impl Own {
    pub fn sampled(&mut self, now: Time, sample: &LoadSample) {
        let condition = Condition {
            cores: sample.cores.clamp(1, u32::from(u16::MAX)),
            speed: sane(sample.speed, SPEED_MIN, SPEED_MAX),
            runnable: sane(sample.runnable, 0.0, RUNNABLE_MAX),
            memory_total_bytes: sample.memory_total_bytes,
            memory_free_bytes: sample.memory_free_bytes.min(sample.memory_total_bytes),
        };
        self.measured = Some((now, condition));
        self.measured_over = sample.measured_over;
        let window = sample.measured_over;
        self.corrections.retain(|correction| now.since(correction.at) < window);
    }

    /// `threads` (negative: fewer) run here from now on.
    pub fn changed(&mut self, now: Time, threads: f64) {
        if self.corrections.len() == CORRECTIONS_MAX {
            self.corrections.remove(0);
        }
        self.corrections.push(Correction { at: now, threads });
    }

    /// The present condition, if it was measured not too long ago.
    pub fn condition(&self, now: Time, config: &Config) -> Option<Condition> {
        let (at, condition) = self.measured?;
        if now.since(at) > config.tick * 3 {
            return None;
        }
        let unseen: f64 =
            self.corrections.iter().map(|c| c.threads * self.unseen_part(at, c.at)).sum();
        Some(condition.with_runnable(condition.runnable + unseen))
    }

    /// How much of a change at `change` the mean taken at `sample` does not show yet.
    fn unseen_part(&self, sample: Time, change: Time) -> f64 {
        if change >= sample {
            return 1.0;
        }
        let window = self.measured_over.0;
        let seen = sample.since(change).0.min(window);
        if window == 0 { 0.0 } else { (window - seen) as f64 / window as f64 }
    }

    pub fn corrections_bounded(&self) -> bool {
        self.corrections.len() <= CORRECTIONS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(runnable: f64) -> LoadSample {
        let measured_over = Span::from_secs(1);
        LoadSample { cores: 1, speed: 1.0, runnable, measured_over, ..LoadSample::default() }
    }

    fn runnable(own: &Own, now: Time) -> f64 {
        own.condition(now, &Config::default()).expect("was measured").runnable
    }

    #[test]
    fn a_departure_counts_at_once_and_only_once_while_the_mean_catches_up() {
        let mut own = Own::default();
        let start = Time::from_micros(10_000_000);
        own.sampled(start, &sample(4.0));
        own.changed(start + Span::from_millis(250), -1.0);
        assert_eq!(runnable(&own, start + Span::from_millis(300)), 3.0);
        // A mean over the last second, taken at 1 s: 4 for a quarter of it, 3 for the rest.
        own.sampled(start + Span::from_secs(1), &sample(3.25));
        assert_eq!(runnable(&own, start + Span::from_millis(1_100)), 3.0);
        own.sampled(start + Span::from_secs(2), &sample(3.0));
        assert_eq!(runnable(&own, start + Span::from_secs(2)), 3.0);
    }

    #[test]
    fn nonsense_measurements_are_brought_into_range_and_old_ones_forgotten() {
        let mut own = Own::default();
        let nonsense = LoadSample { speed: f64::NAN, runnable: f64::NEG_INFINITY, ..sample(0.0) };
        own.sampled(Time::ZERO, &nonsense);
        let condition = own.condition(Time::ZERO, &Config::default()).expect("was measured");
        assert_eq!((condition.speed, condition.runnable), (SPEED_MIN, 0.0));
        assert_eq!(own.condition(Time::ZERO + Span::from_secs(4), &Config::default()), None);
    }
}
