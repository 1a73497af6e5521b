//! The policies that are compared: configurations of one and the same brain.

use brain::{Config, Decision, WindowPolicy};
use serde::Serialize;
use std::str::FromStr;

/// No policy has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy `{0}`; there are {known}", known = names())]
pub struct UnknownPolicy(String);

fn names() -> String {
    POLICIES.map(Policy::name).join(", ")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// PVM: one process after another to the next node, and there they stay.
    Static,
    /// MOSIX and openMosix: the eight entries that arrived last, the published decision.
    Fifo,
    /// The same with the filter of the improved load vector: only nodes with less load are kept.
    Lvm,
    Osmos,
    /// Osmos without turns on crowded nodes.
    OsmosNorotate,
}

pub const POLICIES: [Policy; 5] =
    [Policy::Static, Policy::Fifo, Policy::Lvm, Policy::Osmos, Policy::OsmosNorotate];

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(word: &str) -> Result<Policy, UnknownPolicy> {
        let found = POLICIES.into_iter().find(|policy| policy.name() == word);
        found.ok_or_else(|| UnknownPolicy(word.to_owned()))
    }
}

impl Policy {
    pub fn name(self) -> &'static str {
        match self {
            Policy::Static => "static",
            Policy::Fifo => "fifo",
            Policy::Lvm => "lvm",
            Policy::Osmos => "osmos",
            Policy::OsmosNorotate => "osmos_norotate",
        }
    }

    /// In an experiment that is so many times shorter than the one that MOSIX was measured by, its
    /// loads decay as much faster: they would weigh more else than they did.
    pub fn config_of(self, shortened: f64) -> Config {
        Config { mosix_pace: shortened, ..self.config() }
    }

    /// As a daemon is told of it: `NAME:SHORTENED`.
    pub fn word(self, shortened: f64) -> String {
        format!("{}:{shortened}", self.name())
    }

    /// The configuration that [`Policy::word`] names.
    pub fn config_of_word(word: &str) -> Result<Config, UnknownPolicy> {
        let (name, shortened) = word.split_once(':').unwrap_or((word, "1"));
        let is_sensible = |shortened: &f64| shortened.is_finite() && *shortened > 0.0;
        let shortened = shortened.parse().ok().filter(is_sensible);
        let shortened = shortened.ok_or_else(|| UnknownPolicy(word.to_owned()))?;
        Ok(name.parse::<Policy>()?.config_of(shortened))
    }

    pub fn config(self) -> Config {
        let usual = Config::default();
        match self {
            Policy::Static => Config { decision: Decision::Off, ..usual },
            Policy::Fifo => Config {
                decision: Decision::Mosix,
                window_policy: WindowPolicy::Fifo,
                window: 8,
                rotates: false,
                ..usual
            },
            Policy::Lvm => Config { window_policy: WindowPolicy::Lvm, ..Policy::Fifo.config() },
            Policy::Osmos => usual,
            Policy::OsmosNorotate => Config { rotates: false, ..usual },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_known_by_their_names_and_others_are_named() {
        for policy in POLICIES {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        let config = Policy::config_of_word(&Policy::Fifo.word(10.0)).unwrap();
        assert_eq!(config, Config { mosix_pace: 10.0, ..Policy::Fifo.config() });
        assert_eq!(Policy::config_of_word("osmos").unwrap(), Policy::Osmos.config());
        for wrong in ["fifo:", "fifo:0", "fifo:nan", "mosix:1"] {
            assert!(Policy::config_of_word(wrong).is_err(), "{wrong}");
        }
        let error = "mosix".parse::<Policy>().expect_err("no such policy").to_string();
        assert!(error.contains("`mosix`") && error.contains("osmos_norotate"), "{error}");
    }
}
