//! What this node knows of its own load between measurements.
//!
//! A measured mean lags: a process that left half a window ago still counts half. Each arrival and
//! departure is therefore kept as a correction that fades exactly as the mean catches up. Without
//! it a node hands over a second process for the same imbalance, or takes in two for one idle core.

use crate::condition::Condition;
use crate::input::LoadSample;
use crate::time::{Span, Time};

/// Corrections kept: as many as can happen between two measurements on a busy node.
const CORRECTIONS_MAX: usize = 256;
/// What a quota or a calibration can sensibly give.
const SPEED_MIN: f64 = 0.001;
const SPEED_MAX: f64 = 10_000.0;
const RUNNABLE_MAX: f64 = 1e6;
const SECOND: Span = Span::from_secs(1);
/// A measurement older than that says nothing of now.
const FRESH: Span = Span::from_secs(3);
/// One step must not pass for a lasting unrest.
const SPREAD_MAX: f64 = 2.0;
/// Unrest below that is measurement; at twice that the load has to be averaged.
const UNREST_MIN: f64 = 0.1;
const SLOW_S: f64 = 8.0;
/// Seconds over which the unrest is averaged.
const SPREAD_MEMORY: f64 = 16.0;

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
    /// What was runnable a second ago, and what is known to have changed since.
    second_ago: Option<(Time, f64)>,
    changed_since: f64,
    /// The mean over the last several seconds, known changes taken into account at once.
    slow: f64,
    slow_at: Option<Time>,
    /// By how much the load differs from one second to the next for no known reason.
    pub spread: f64,
    /// The part of the time in which something waited for memory.
    pub memory_pressure: f64,
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
            is_closed: false,
        };
        self.memory_pressure = sane(sample.memory_pressure, 0.0, 1.0);
        self.measured = Some((now, condition));
        self.measured_over = sample.measured_over;
        let window = sample.measured_over;
        self.corrections.retain(|correction| now.since(correction.at) < window);
        self.note_spread(now);
        self.note_slow(now);
    }

    fn note_slow(&mut self, now: Time) {
        let Some(runnable) = self.present(now) else { return };
        let passed = self.slow_at.map_or(1.0, |at| now.since(at).as_secs_f64() / SLOW_S);
        self.slow += (runnable - self.slow) * passed.min(1.0);
        self.slow_at = Some(now);
    }

    /// Processes that wait now and then make each measurement differ from the last; a step up or
    /// down does so once.
    fn note_spread(&mut self, now: Time) {
        let Some(runnable) = self.present(now) else { return };
        match self.second_ago {
            Some((at, before)) if now.since(at) >= SECOND => {
                let difference = (runnable - before - self.changed_since).abs();
                self.spread += (difference.min(SPREAD_MAX) - self.spread) / SPREAD_MEMORY;
            }
            Some(_) => return,
            None => {}
        }
        self.second_ago = Some((now, runnable));
        self.changed_since = 0.0;
    }

    /// Runnable threads now, as far as is known.
    fn present(&self, now: Time) -> Option<f64> {
        let (at, condition) = self.measured?;
        let unseen = self.corrections.iter().map(|c| c.threads * self.unseen_part(at, c.at));
        let is_fresh = now.since(at) <= FRESH;
        is_fresh.then(|| condition.runnable + unseen.sum::<f64>())
    }

    /// `threads` (negative: fewer) run here from now on.
    pub fn changed(&mut self, now: Time, threads: f64) {
        if self.corrections.len() == CORRECTIONS_MAX {
            self.corrections.remove(0);
        }
        self.corrections.push(Correction { at: now, threads });
        self.changed_since += threads;
        self.slow += threads;
    }

    /// The present condition, if it was measured not too long ago.
    pub fn condition(&self, now: Time) -> Option<Condition> {
        let (_, condition) = self.measured?;
        let present = self.present(now)?;
        // Where each second differs from the last, only the mean over several says anything.
        let unrest = ((self.spread - UNREST_MIN) / UNREST_MIN).clamp(0.0, 1.0);
        Some(condition.with_runnable(present + (self.slow - present) * unrest))
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
        own.condition(now).expect("was measured").runnable
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
        let condition = own.condition(Time::ZERO).expect("was measured");
        assert_eq!((condition.speed, condition.runnable), (SPEED_MIN, 0.0));
        assert_eq!(own.condition(Time::ZERO + Span::from_secs(4)), None);
    }
}
