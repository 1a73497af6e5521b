//! A process that could be handed over.

use super::attained::Attained;
use crate::input::GroupId;
use crate::time::Span;
use wire::ids::{GlobalPid, NodeId};

/// A process that could be handed over now, with what the rule weighs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub process: GlobalPid,
    pub demand: f64,
    pub calls_per_cpu_s: f64,
    /// The part of its time that it waits for its home.
    pub waits_for_home: f64,
    pub cpu: Span,
    /// None for one that was born here and never left.
    pub came_with: Option<Attained>,
    pub rss_bytes: u64,
    pub freeze: Span,
    /// For how long it is copied before that.
    pub copy: Span,
    /// What it is likely to compute yet; None if nobody knows others like it.
    pub left: Option<Span>,
    pub came_from: Option<NodeId>,
    pub group: Option<GroupId>,
    pub here: Span,
    /// It came too lately for a larger share of a core that is busy (`residency`): for an idle
    /// core, or one that is faster, it need not have been here as long (`residency_for_room`).
    pub is_new: bool,
}

impl Candidate {
    /// Reference seconds of work that it has done, as far as is known, on a node of that pace.
    pub fn attained_s(&self, pace: f64) -> f64 {
        match self.came_with {
            None => self.cpu.as_secs_f64() * pace,
            Some(attained) => attained.work_s(self.cpu, pace),
        }
    }

    /// What it is taken to compute yet, in seconds of its node. What is left of a life is, in the
    /// median, as long as its past (Harchol-Balter and Downey 1997), where no more is known.
    pub fn left_s(&self) -> f64 {
        self.left.unwrap_or(self.cpu).as_secs_f64()
    }

    /// What it would want of a core at `node`: at home it no longer waits for home, so that its
    /// computing moves closer together.
    pub fn demand_at(&self, node: NodeId) -> f64 {
        if self.process.home == node {
            demand_at_home(self.demand, self.waits_for_home)
        } else {
            self.demand
        }
    }
}

/// What a process wants where it need not wait for its home.
pub(crate) fn demand_at_home(demand: f64, waits_for_home: f64) -> f64 {
    let dense = demand / (1.0 - waits_for_home).max(0.1);
    dense.min(demand + waits_for_home)
}
