//! Why a process stays, in the numbers that it stays for.

use super::residents::Residents;
use crate::config::Config;
use crate::reasons::{StayCause, WhyStays};
use wire::ids::GlobalPid;

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
