//! The processor of this machine against what a process asks of one.

use crate::{MigrateError, Result};
use kernel::{features, processor};
use wire::image::Prospect;
use wire::processor::{Demand, Processor};

/// This machine's processor as programs see it.
pub fn own() -> Processor {
    let seen = Processor::read(processor::cpuid, processor::kept_registers(), processor::hwcap2());
    seen.without(features::settled().without_of_processor())
}

/// What a process of this home asks for: all that it was shown here, or the baseline that it was
/// told to keep to.
pub fn demand(baseline: Option<&Processor>) -> Demand {
    let own = own();
    let kept_at_home = own.registers.clone();
    match baseline {
        Some(baseline) => {
            Demand { processor: own.common(baseline), is_baseline: true, kept_at_home }
        }
        None => Demand { processor: own, is_baseline: false, kept_at_home },
    }
}

/// Whether the process can run here.
///
/// # Errors
/// Refused, with what this processor lacks, keeps otherwise, or has too much of.
pub fn check(prospect: &Prospect) -> Result<()> {
    let verdict = prospect.processor.check(&own());
    verdict.map_err(|unfit| MigrateError::refused(unfit.code(), unfit.to_string()))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_process_of_this_machine_can_run_on_it() {
        assert_eq!(demand(None).check(&own()), Ok(()));
        let less = own().without(["sse4_2"]);
        assert_eq!(demand(Some(&less)).check(&own()), Ok(()));
        assert_eq!(demand(Some(&less)).check(&less), Ok(()));
        assert_eq!(demand(None).check(&less).unwrap_err().code(), "cpu-features");
    }
}
