//! Why a process stays where it is, in words.

use crate::config::Config;
use crate::residents::Residents;
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
    /// The line for `osmos why` that goes with a cause.
    pub fn explain(&self, process: GlobalPid, cause: StayCause, config: &Config) -> String {
        let Some(sample) = self.sample_of(process) else {
            return "it does not run here".into();
        };
        match cause {
            StayCause::Pinned => "its user placed it here".into(),
            StayCause::Unable => {
                let reason = sample.stays.as_deref().unwrap_or("it cannot move now");
                format!("it cannot move: {reason}")
            }
            StayCause::Light => format!(
                "it wants {:.2} of a core, less than the {:.2} worth a move",
                sample.demand, config.demand_min
            ),
            StayCause::Young => format!("it has been here for {} only", sample.here),
            StayCause::Resting => "it rests after an earlier move".into(),
            StayCause::Kept => "the owner of this node keeps its own processes here".into(),
            StayCause::NobodyKnown => {
                format!("no other node is known well (news of the last {})", config.useful_age_max)
            }
            StayCause::NoGain => format!(
                "no other node known promises it {:.0} % more than here",
                config.dead_band * 100.0
            ),
            StayCause::Unpaid => format!(
                "a freeze of {} would not pay after {} of CPU time",
                sample.freeze_estimate, sample.cpu
            ),
        }
    }
}
