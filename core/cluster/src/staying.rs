//! Why a process stays where it is.

use crate::brain::Brain;
use crate::config::Config;
use crate::output::{Outbox, Output, Verdict};
use crate::residents::Residents;
use crate::time::Time;
use crate::why::{Why, WhyStays};
use wire::ids::GlobalPid;

/// Why a process that could have been considered was not handed over. The order is that of the
/// checks; the word and the numbers are for `osmos why`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StayCause {
    Pinned,
    Unable,
    Light,
    Brief,
    Young,
    Resting,
    Kept,
    NobodyKnown,
    NoGain,
    Unpaid,
}

impl Residents {
    /// A cause with the numbers that go with it.
    pub fn explain(&self, process: GlobalPid, cause: StayCause, config: &Config) -> WhyStays {
        let Some(resident) = self.known(process) else { return WhyStays::Gone };
        let (demand, demand_min) = (resident.demand, config.demand_min);
        match cause {
            StayCause::Pinned => WhyStays::Pinned,
            StayCause::Unable => {
                let reason = resident.stays.as_deref().unwrap_or("it cannot move now");
                WhyStays::Unable(reason.to_owned())
            }
            StayCause::Light => WhyStays::Light { demand, demand_min },
            StayCause::Brief => WhyStays::Brief {
                left: resident.left.unwrap_or_default(),
                left_min: config.left_min,
            },
            StayCause::Young => WhyStays::Young { here: resident.here },
            StayCause::Resting => WhyStays::Resting,
            StayCause::Kept => WhyStays::Kept,
            StayCause::NobodyKnown => WhyStays::NobodyKnown { age_max: config.useful_age_max },
            StayCause::NoGain => WhyStays::NoGain { dead_band: config.dead_band },
            StayCause::Unpaid => WhyStays::Unpaid { freeze: resident.freeze, cpu: resident.cpu },
        }
    }
}

impl Brain {
    /// Each process stays for a cause of its own, or else for that.
    pub(crate) fn all_stay(&mut self, now: Time, cause: StayCause, outbox: &mut Outbox) {
        self.is_unripe = false;
        let own = self.residents.running.iter().filter_map(|(process, resident)| {
            let is_at_rest = !self.departures.contains(*process);
            is_at_rest.then(|| (*process, self.stay_cause(now, *process, resident)))
        });
        let own: Vec<(GlobalPid, Option<StayCause>)> = own.collect();
        for (process, own) in own {
            let cause = own.unwrap_or(cause);
            self.is_unripe |= cause == StayCause::Young;
            self.record_stay(now, process, cause, outbox);
        }
    }

    pub(crate) fn record_stay(
        &mut self,
        now: Time,
        process: GlobalPid,
        cause: StayCause,
        outbox: &mut Outbox,
    ) {
        if self.residents.stays_for(process, cause, now, &self.config) {
            self.record_news(process, cause, outbox);
        }
    }

    fn record_news(&self, process: GlobalPid, cause: StayCause, outbox: &mut Outbox) {
        let why = Why::Stays(self.residents.explain(process, cause, &self.config));
        outbox.push(Output::RecordDecision { process, verdict: Verdict::Stay, why });
    }
}
