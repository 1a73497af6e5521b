//! What one node knows of another: its condition, who it was, and when.

use crate::time::Time;
use wire::ids::NodeId;

/// What a node can offer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Condition {
    pub cores: u32,
    /// Of one core; 1.0 is the reference.
    pub speed: f64,
    /// Runnable threads, pinned ones and those on their way to it included.
    pub runnable: f64,
    pub memory_total_bytes: u64,
    pub memory_free_bytes: u64,
}

impl Condition {
    pub fn with_runnable(self, runnable: f64) -> Condition {
        Condition { runnable: runnable.max(0.0), ..self }
    }

    /// Cores in use by `runnable` threads.
    pub fn busy(&self, runnable: f64) -> f64 {
        runnable.clamp(0.0, f64::from(self.cores))
    }

    /// Cores that stand idle.
    pub fn room(&self) -> f64 {
        f64::from(self.cores) - self.busy(self.runnable)
    }

    /// Threads that wait for a core.
    pub fn waiting(&self) -> f64 {
        self.runnable - self.busy(self.runnable)
    }

    /// The rate, in reference seconds per second, of each of `runnable` threads.
    pub fn share_among(&self, runnable: f64) -> f64 {
        let cores = f64::from(self.cores);
        if runnable <= cores { self.speed } else { self.speed * cores / runnable }
    }

    /// What a thread that runs here gets.
    pub fn share(&self) -> f64 {
        self.share_among(self.runnable)
    }

    /// What a process of this demand would get if it came here.
    pub fn share_after(&self, demand: f64) -> f64 {
        self.share_among(self.runnable + demand)
    }
}

/// One entry of the window: a node at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entry {
    pub node: NodeId,
    pub incarnation: u32,
    /// When it was true, on the clock of whoever holds the entry.
    pub at: Time,
    /// None if the node has not measured itself yet.
    pub condition: Option<Condition>,
}

impl Entry {
    /// A later life beats any earlier one; within a life, the later moment.
    pub fn is_newer_than(&self, other: &Entry) -> bool {
        (self.incarnation, self.at) > (other.incarnation, other.at)
    }
}
