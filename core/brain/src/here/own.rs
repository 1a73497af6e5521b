//! What else than the processes it manages runs on this node, and what the node can give.
//!
//! A measured mean lags: a process that left half a window ago would still count half. So the load
//! of the managed processes is not taken from such a mean but added up from what each of them wants
//! ([`super::residents`]), which is exact the moment that one comes or goes; only what nobody
//! manages is measured as a mean of the node.

use crate::config::Config;
use crate::facts::Condition;
use crate::input::LoadSample;
use crate::time::{Span, Time};

/// What a quota or a calibration can sensibly give.
const SPEED_MIN: f64 = 0.001;
const SPEED_MAX: f64 = 10_000.0;
const RUNNABLE_MAX: f64 = 1e6;
const SECOND: Span = Span::from_secs(1);
/// A measurement older than that says nothing of now.
const FRESH: Span = Span::from_secs(3);

#[derive(Debug, Default)]
pub(crate) struct Own {
    /// Its `runnable` is that of the others.
    measured: Option<(Time, Condition)>,
    /// When a second began, and what ran then besides.
    second_ago: (Time, f64),
    /// The mean over the last several seconds.
    slow: f64,
    /// By how much the others' load differs from one second to the next.
    pub spread: f64,
    /// Reference seconds done in one second of processor time.
    pub pace: f64,
    /// The part of the time in which something waited for memory.
    pub memory_pressure: f64,
}

/// A measured number brought into range; what is none becomes `low`.
pub(crate) fn sane(value: f64, low: f64, high: f64) -> f64 {
    if value.is_nan() { low } else { value.clamp(low, high) }
}

impl Own {
    pub fn sampled(&mut self, now: Time, sample: &LoadSample, config: &Config) {
        let others = sane(sample.others, 0.0, RUNNABLE_MAX);
        let condition = Condition {
            cores: sample.cores.clamp(1, u32::from(u16::MAX)),
            speed: sane(sample.speed, SPEED_MIN, SPEED_MAX),
            runnable: others,
            memory_total_bytes: sample.memory_total_bytes,
            memory_free_bytes: sample.memory_free_bytes.min(sample.memory_total_bytes),
            is_closed: false,
        };
        self.pace = sane(sample.pace, SPEED_MIN, SPEED_MAX);
        self.memory_pressure = sane(sample.memory_pressure, 0.0, 1.0);
        let before = self.measured.replace((now, condition));
        self.note_spread(now, others, before.is_none(), config);
        self.note_slow(before.map(|(at, _)| now.since(at)), others, config);
    }

    fn note_slow(&mut self, passed: Option<Span>, others: f64, config: &Config) {
        let part =
            passed.map_or(1.0, |passed| passed.as_secs_f64() / config.slow_load.as_secs_f64());
        self.slow += (others - self.slow) * part.min(1.0);
    }

    /// Programs that wait now and then make each measurement differ from the last; a step up or
    /// down does so once.
    fn note_spread(&mut self, now: Time, others: f64, is_first: bool, config: &Config) {
        let (at, before) = self.second_ago;
        if !is_first {
            if now.since(at) < SECOND {
                return;
            }
            let difference = (others - before).abs();
            let error = difference.min(config.spread_max) - self.spread;
            self.spread += error / config.spread_memory.as_secs_f64();
        }
        self.second_ago = (now, others);
    }

    /// What nobody manages, as last measured; not averaged.
    pub fn others(&self, now: Time) -> Option<f64> {
        let measured = self.measured.as_ref().filter(|(at, _)| now.since(*at) <= FRESH);
        measured.map(|(_, condition)| condition.runnable)
    }

    pub fn cores(&self) -> Option<u32> {
        self.measured.map(|(_, condition)| condition.cores)
    }

    /// What is runnable on this node with managed processes that want `demand` cores, if it was
    /// measured not too long ago.
    pub fn runnable(&self, now: Time, demand: f64, config: &Config) -> Option<f64> {
        let mut others = self.others(now)?;
        // Where each second differs from the last, only the mean over several says anything.
        let least = config.spread_min;
        if self.spread > least {
            let unrest = ((self.spread - least) / least).min(1.0);
            others += (self.slow - others) * unrest;
        }
        Some((others + demand).max(0.0))
    }

    /// Of `runnable` threads; None before the first measurement.
    pub fn condition_of(&self, runnable: f64) -> Option<Condition> {
        self.measured.map(|(_, condition)| condition.with_runnable(runnable))
    }

    /// The condition of this node with managed processes that want `demand` cores, if it was
    /// measured not too long ago.
    pub fn condition(&self, now: Time, demand: f64, config: &Config) -> Option<Condition> {
        self.condition_of(self.runnable(now, demand, config)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(others: f64) -> LoadSample {
        LoadSample { cores: 1, speed: 1.0, pace: 1.0, others, ..LoadSample::default() }
    }

    #[test]
    fn what_the_managed_processes_want_is_added_to_what_else_runs() {
        let mut own = Own::default();
        own.sampled(Time::ZERO, &sample(0.5), &Config::default());
        assert_eq!(
            own.condition(Time::ZERO, 2.0, &Config::default()).expect("was measured").runnable,
            2.5
        );
    }

    #[test]
    fn nonsense_measurements_are_brought_into_range_and_old_ones_forgotten() {
        let mut own = Own::default();
        let nonsense = LoadSample { speed: f64::NAN, others: f64::NEG_INFINITY, ..sample(0.0) };
        own.sampled(Time::ZERO, &nonsense, &Config::default());
        let condition = own.condition(Time::ZERO, 0.0, &Config::default()).expect("was measured");
        assert_eq!((condition.speed, condition.runnable), (SPEED_MIN, 0.0));
        assert_eq!(own.condition(Time::ZERO + Span::from_secs(4), 0.0, &Config::default()), None);
    }
}
