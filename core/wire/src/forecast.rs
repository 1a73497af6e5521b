//! What `osmos why` and `osmos what-if` show: places with what they promise, moves with what they
//! were expected to bring and what they brought.

use crate::ids::NodeId;
use serde::{Deserialize, Serialize};

/// A place for a process, as far as is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// None for a node that does not exist.
    pub node: Option<NodeId>,
    /// What one of its threads would get, in reference seconds per second.
    pub rate: f64,
    /// Threads that are runnable there without it.
    pub runnable: f64,
    pub cores: u32,
    pub speed: f64,
    /// How old this knowledge is.
    pub info_age_s: f64,
    /// Why it is not moved there by itself; none: it would be.
    pub but: Option<String>,
}

/// What a process gets where it is, and what other places promise: the best few.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Weighed {
    pub rate_here: f64,
    pub places: Vec<Place>,
}

/// What a move would come to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    pub pid: i32,
    pub home: NodeId,
    pub from: NodeId,
    pub to: Place,
    pub rate_before: f64,
    pub freeze_ms: f64,
    /// From the order to its end; for most of it the process runs where it is.
    #[serde(default)]
    pub total_ms: f64,
    /// By how much freezes of moves over that link were others than expected; none: no move yet.
    #[serde(default)]
    pub freeze_error_ms: Option<f64>,
    pub cpu_s: f64,
    /// After how long its greater rate has made up for the freeze; none: never.
    pub payback_ms: Option<f64>,
}

/// What another node would change here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeForecast {
    pub cores: u32,
    pub speed: f64,
    /// In the order in which they would go.
    pub handed_over: Vec<Forecast>,
    /// Runnable threads of this node.
    pub runnable_before: f64,
    pub runnable_after: f64,
    /// What a thread gets on this node.
    pub rate_before: f64,
    pub rate_after: f64,
}

/// A move that was carried out. Rates are progress: processor seconds per second, times the speed
/// of the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PastMove {
    /// Seconds since the epoch.
    pub time: f64,
    pub from: NodeId,
    pub to: NodeId,
    /// As in [`crate::control::Migration`], or `itself`: it came home by itself.
    pub cause: String,
    pub freeze_ms: f64,
    /// As the brain that ordered it expected.
    pub rate_expected: Option<f64>,
    /// Measured in the last seconds before it.
    pub rate_before: Option<f64>,
    /// Measured in the first seconds after it; none: too short a stay, or too early to say.
    pub rate_after: Option<f64>,
    /// Over how long that was measured.
    pub measured_s: f64,
    /// The one over the other: 1.0 is no difference.
    pub gain: Option<f64>,
}
