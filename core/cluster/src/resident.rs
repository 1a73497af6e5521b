//! What is known of one process that runs here, as last measured. A million brains know some each:
//! so it is small.

use crate::config::Config;
use crate::habit::Habit;
use crate::input::{GroupId, ProcessSample};
use crate::memory::MemoryPlace;
use crate::own::sane;
use crate::time::Span;

#[derive(Debug, Default)]
pub(crate) struct Resident {
    /// Cores that it wants: not the last measurement, but what that and those before say.
    pub demand: f64,
    habit: Habit,
    pub used: f32,
    /// Where it is remembered.
    pub memory: MemoryPlace,
    pub here: Span,
    pub cpu: Span,
    pub rss_bytes: u64,
    forwarded_per_s: f32,
    freeze_us: u32,
    copy_us: u32,
    /// It is remembered to forward no calls: nothing changes as long as it forwards none.
    pub is_silent: bool,
    pub group: Option<GroupId>,
    /// Why it cannot move now.
    pub stays: Option<Box<str>>,
}

impl Resident {
    /// Takes in a measurement, brought into range. `before` is what it was known to want, if it
    /// was: what one wants that waits now and then is the mean over many seconds.
    pub fn measured(&mut self, sample: &ProcessSample, before: Option<f64>) {
        let demand = sane(sample.demand, 0.0, 10_000.0);
        self.demand = match before.filter(|before| *before > 0.0) {
            Some(before) => self.habit.corrected(before, demand),
            None => demand,
        };
        self.used = sane(sample.used, 0.0, 10_000.0) as f32;
        self.here = sample.here;
        self.cpu = sample.cpu;
        self.rss_bytes = sample.rss_bytes;
        self.forwarded_per_s = sane(sample.forwarded_per_s, 0.0, 1e9) as f32;
        // More than an hour is as bad as an hour.
        let us = |span: Span| u32::try_from(span.0).unwrap_or(u32::MAX);
        (self.freeze_us, self.copy_us) = (us(sample.freeze_estimate), us(sample.copy_estimate));
        self.group = sample.group;
        if self.stays.as_deref() != sample.stays.as_deref() {
            self.stays = sample.stays.as_deref().map(Box::from);
        }
    }

    /// What a move would cost it, as its node estimates.
    pub fn freeze(&self) -> Span {
        Span(u64::from(self.freeze_us))
    }

    /// For how long it would be copied before, as its node estimates.
    pub fn copy(&self) -> Span {
        Span(u64::from(self.copy_us))
    }

    /// The part of its time in which a guest waits for its home.
    pub fn waits_for_home(&self, config: &Config) -> f64 {
        (f64::from(self.forwarded_per_s) * config.forward_cost.as_secs_f64()).min(1.0)
    }
}
