//! What is known of one process that runs here, as last measured.

use super::habit::Habit;
use super::own::sane;
use crate::config::Config;
use crate::input::{GroupId, ProcessSample};
use crate::time::Span;

#[derive(Debug, Default)]
pub(crate) struct Resident {
    /// Cores that it wants: not the last measurement, but what that and those before say.
    pub demand: f64,
    /// How many processes it is; None before it was measured.
    stands_for: Option<u32>,
    /// That was another number at the measurement before.
    is_another: bool,
    habit: Habit,
    pub used: f32,
    pub here: Span,
    pub cpu: Span,
    pub rss_bytes: u64,
    forwarded_per_s: f32,
    /// What a move would cost it, as its node estimates.
    pub freeze: Span,
    /// For how long it would be copied before, as its node estimates.
    pub copy: Span,
    /// What it is likely to compute yet, if others like it are known.
    pub left: Option<Span>,
    /// It is remembered to forward no calls: nothing changes as long as it forwards none.
    pub is_silent: bool,
    pub group: Option<GroupId>,
    /// Why it cannot move now.
    pub stays: Option<Box<str>>,
    /// That has changed, and was not told.
    pub stays_anew: bool,
}

impl Resident {
    /// Takes in a measurement, brought into range. `before` is what it was known to want, if it
    /// was: what one wants that waits now and then is the mean over many seconds.
    pub fn measured(&mut self, sample: &ProcessSample, before: Option<f64>, config: &Config) {
        let demand = sane(sample.demand, 0.0, 10_000.0);
        // What others want is no habit of this one, now that it stands for them, or they for it.
        let before_that = self.stands_for.replace(sample.stands_for);
        self.is_another = before_that.is_some_and(|before| before != sample.stands_for);
        if self.is_another {
            self.habit = Habit::default();
        }
        self.demand = match before.filter(|before| *before > 0.0 && !self.is_another) {
            Some(before) => self.habit.corrected(before, demand, config),
            None => demand,
        };
        self.used = sane(sample.used, 0.0, 10_000.0) as f32;
        self.here = sample.here;
        self.cpu = sample.cpu;
        self.rss_bytes = sample.rss_bytes;
        self.forwarded_per_s = sane(sample.forwarded_per_s, 0.0, 1e9) as f32;
        self.left = sample.left;
        (self.freeze, self.copy) = (sample.freeze_estimate, sample.copy_estimate);
        self.group = sample.group;
        if self.stays.as_deref() != sample.stays.as_deref() {
            self.stays = sample.stays.as_deref().map(Box::from);
            self.stays_anew = true;
        }
    }

    /// Whether what was thought of it before the last measurement was of fewer or more processes.
    pub fn is_another(&self) -> bool {
        self.is_another
    }

    /// The part of its time in which a guest waits for its home.
    pub fn waits_for_home(&self, config: &Config) -> f64 {
        (f64::from(self.forwarded_per_s) * config.forward_cost.as_secs_f64()).min(1.0)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::ids::{GlobalPid, HomePid, NodeId};

    fn sample(stands_for: u32, demand: f64) -> ProcessSample {
        ProcessSample {
            process: GlobalPid { home: NodeId(1), pid: HomePid(7) },
            stands_for,
            demand,
            used: 0.0,
            here: Span::ZERO,
            cpu: Span::ZERO,
            rss_bytes: 0,
            forwarded_per_s: 0.0,
            freeze_estimate: Span::ZERO,
            copy_estimate: Span::ZERO,
            left: None,
            stays: None,
            group: None,
            user: None,
        }
    }

    /// Or their demand would count twice for seconds, once there and once here.
    #[test]
    fn what_others_want_is_wanted_at_once_by_whom_they_go_with() {
        let mut resident = Resident::default();
        resident.measured(&sample(1, 1.0), None, &Config::default());
        resident.measured(&sample(1, 0.5), Some(resident.demand), &Config::default());
        assert!(resident.demand > 0.5, "it may be a moment's");
        assert!(!resident.is_another());
        resident.measured(&sample(3, 2.5), Some(resident.demand), &Config::default());
        assert_eq!((resident.demand, resident.is_another()), (2.5, true));
        resident.measured(&sample(0, 0.0), Some(resident.demand), &Config::default());
        assert_eq!(resident.demand, 0.0);
        // One that has come, and was measured where it came from.
        let mut arrived = Resident::default();
        arrived.measured(&sample(3, 1.0), Some(2.0), &Config::default());
        assert!(arrived.demand > 1.0 && arrived.demand < 2.0 && !arrived.is_another());
    }

    #[test]
    fn another_reason_to_stay_is_news() {
        let mut resident = Resident::default();
        let because = |why: &str| ProcessSample { stays: Some(why.into()), ..sample(1, 1.0) };
        resident.measured(&because("it is starting"), None, &Config::default());
        assert!(std::mem::take(&mut resident.stays_anew));
        resident.measured(&because("it is starting"), None, &Config::default());
        assert!(!resident.stays_anew);
        resident.measured(&because("it goes with another"), None, &Config::default());
        assert!(resident.stays_anew);
    }
}
