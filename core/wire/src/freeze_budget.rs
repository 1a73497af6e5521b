//! How long a process may stand still when it moves.

use crate::limits::FREEZE_BUDGET_MS_MAX;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// In whole milliseconds, from one to [`FREEZE_BUDGET_MS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct FreezeBudget(u32);

/// What is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a freeze budget has 1 to {FREEZE_BUDGET_MS_MAX} ms, not {0}")]
pub struct BadFreezeBudget(u32);

impl FreezeBudget {
    pub const DEFAULT: FreezeBudget = FreezeBudget(20);

    pub fn ms(self) -> u32 {
        self.0
    }

    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0.into())
    }
}

/// The usual one.
impl Default for FreezeBudget {
    fn default() -> FreezeBudget {
        FreezeBudget::DEFAULT
    }
}

impl TryFrom<u32> for FreezeBudget {
    type Error = BadFreezeBudget;

    fn try_from(ms: u32) -> Result<FreezeBudget, BadFreezeBudget> {
        match ms {
            1..=FREEZE_BUDGET_MS_MAX => Ok(FreezeBudget(ms)),
            _ => Err(BadFreezeBudget(ms)),
        }
    }
}

impl From<FreezeBudget> for u32 {
    fn from(budget: FreezeBudget) -> u32 {
        budget.0
    }
}

impl fmt::Display for FreezeBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_budget_that_nobody_can_mean_is_refused_from_wherever_it_comes() {
        for ms in [0, FREEZE_BUDGET_MS_MAX + 1, u32::MAX] {
            let text = FreezeBudget::try_from(ms).unwrap_err().to_string();
            assert!(text.contains("1 to 60000 ms"), "{text}");
            assert!(serde_json::from_str::<FreezeBudget>(&ms.to_string()).is_err());
            let packet = postcard::to_stdvec(&ms).unwrap();
            assert!(postcard::from_bytes::<FreezeBudget>(&packet).is_err());
        }
        for ms in [1, 20, FREEZE_BUDGET_MS_MAX] {
            let budget = FreezeBudget::try_from(ms).unwrap();
            assert_eq!(serde_json::to_string(&budget).unwrap(), ms.to_string());
            let packet = postcard::to_stdvec(&budget).unwrap();
            assert_eq!(postcard::from_bytes(&packet), Ok(budget));
        }
    }
}
