//! What a machine was found to have, or to lack, for Osmos.

use serde::{Deserialize, Serialize};

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub name: String,
    pub present: bool,
    /// Without it this machine cannot be a node.
    pub required: bool,
    /// What was seen.
    pub seen: String,
    /// What is lost while it is missing, and the way out.
    pub consequence: String,
    /// The command, for root of that machine, after which it is there; none: it takes more than a
    /// command, another kernel for example.
    #[serde(default)]
    pub mend: Option<String>,
}
