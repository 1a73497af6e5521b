//! What a brain answers to questions of its daemon.

use super::Brain;
use crate::answers::{Foresight, Guess, NodeForesight, NodeView, Spreading, Unforeseen, Unspread};
use crate::invariants::Violation;
use crate::time::Time;
use wire::ids::{GlobalPid, NodeId};

const PROMISES_MAX: usize = 64;

impl Brain {
    /// All members, this node included, by number.
    pub fn members(&self, now: Time) -> Vec<NodeView> {
        self.situation.nodes(now)
    }

    /// The node (perhaps this one) that promises the most to one more CPU-bound process, among
    /// those that are alive and not excluded. `process`, if it runs here, is not counted twice. The
    /// answer counts as load for a few seconds, so that a burst of questions does not pile up on
    /// one node.
    pub fn best_node(
        &mut self,
        now: Time,
        process: Option<GlobalPid>,
        excluding: &[NodeId],
    ) -> Option<NodeId> {
        let node = self.situation.best_node(now, process, excluding)?;
        let residents = &self.situation.residents;
        let is_counted = process.is_some_and(|process| residents.is_running(process));
        let promises = &mut self.situation.promises;
        if promises.len() < PROMISES_MAX && !(is_counted && node == self.situation.me) {
            promises.push((node, now + self.situation.config.reservation_ttl));
        }
        Some(node)
    }

    /// What would become of a process that runs here if it went there.
    pub fn foresee(
        &self,
        now: Time,
        process: GlobalPid,
        to: NodeId,
    ) -> Result<Foresight, Unforeseen> {
        self.situation.foresee(now, process, to)
    }

    /// The places that promise a process of this node the most, with what it gets here.
    pub fn weigh_up(&self, now: Time, process: GlobalPid) -> Option<(f64, Vec<Guess>)> {
        self.situation.weigh_up(now, process)
    }

    /// What this node would hand over to an idle one like that.
    pub fn foresee_node(
        &self,
        now: Time,
        cores: u32,
        speed: f64,
        memory_bytes: u64,
    ) -> Result<NodeForesight, Unforeseen> {
        self.situation.foresee_node(now, cores, speed, memory_bytes)
    }

    /// How many ranks of a job are best begun on each node, in the order of their numbers.
    pub fn spread(&self, now: Time, spreading: &Spreading) -> Result<Vec<(NodeId, u32)>, Unspread> {
        self.situation.spread(now, spreading)
    }

    /// The first invariant that does not hold, if there is one.
    pub fn check_invariants(&self) -> Result<(), Violation> {
        self.situation.check_invariants()
    }
}
