//! The policies that are compared: configurations of one and the same brain.

use cluster::{Config, Decision, WindowPolicy};
use serde::Serialize;

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
