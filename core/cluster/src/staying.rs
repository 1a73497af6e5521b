//! Why a process stays where it is.

use crate::config::Config;
use crate::residents::Residents;
use crate::why::WhyStays;
use wire::ids::GlobalPid;

/// Why a process that could have been considered was not handed over. The order is that of the
/// checks; the word and the numbers are for `osmos why`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StayCause {
    Pinned,
    Unable,
    Light,
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
            StayCause::Young => WhyStays::Young { here: resident.here },
            StayCause::Resting => WhyStays::Resting,
            StayCause::Kept => WhyStays::Kept,
            StayCause::NobodyKnown => WhyStays::NobodyKnown { age_max: config.useful_age_max },
            StayCause::NoGain => WhyStays::NoGain { dead_band: config.dead_band },
            StayCause::Unpaid => WhyStays::Unpaid { freeze: resident.freeze, cpu: resident.cpu },
        }
    }
}
