//! What is known of each other node beyond where it is: its name, its processor, what moves may
//! take of it, and how fast memory moves to and from it.
//!
//! All of it saves questions and is wrong for a moment at most: a node says what it has when it is
//! linked to and when that changes, and each move corrects what was expected of it. How loaded a
//! node is, and whether it lives, is the brain's.

use crate::paces::Paces;
use std::collections::BTreeMap;
use wire::control::CpuFit;
use wire::ids::NodeId;
use wire::move_cost::Pace;
use wire::move_limits::{Bandwidth, MoveLimits};
use wire::node_name::NodeName;
use wire::processor::{Demand, Processor, Unfit};
use wire::supervisor::MoveReport;

pub struct Others {
    /// This node's processor, with which others are compared.
    own: Processor,
    /// What people call this node.
    own_name: Option<NodeName>,
    /// Of those that have told one.
    names: BTreeMap<NodeId, NodeName>,
    /// Of the nodes that this one was linked to.
    processors: BTreeMap<NodeId, Processor>,
    /// Of those that have a limit.
    limits: BTreeMap<NodeId, MoveLimits>,
    paces: Paces,
}

impl Others {
    pub fn new(own_name: Option<NodeName>) -> Others {
        let (names, processors, limits, paces) = Default::default();
        Others { own: migrate::processor::own(), own_name, names, processors, limits, paces }
    }

    /// A node that is no member any more. It asks nothing of anybody's programs, and its number may
    /// be given again.
    pub fn forget(&mut self, node: NodeId) {
        self.names.remove(&node);
        self.processors.remove(&node);
        self.limits.remove(&node);
        self.paces.forget(node);
    }

    /// Those that were known were of another cluster.
    pub fn forget_all(&mut self) {
        self.names.clear();
        self.processors.clear();
        self.limits.clear();
        self.paces = Paces::default();
    }

    pub fn own_name(&self) -> Option<&NodeName> {
        self.own_name.as_ref()
    }

    /// A node says what it is called.
    pub fn told_name(&mut self, node: NodeId, name: NodeName) {
        self.names.insert(node, name);
    }

    pub fn name(&self, node: NodeId) -> Option<&NodeName> {
        self.names.get(&node)
    }

    pub fn own_processor(&self) -> &Processor {
        &self.own
    }

    /// A node says what processor it has. False if that was known.
    pub fn told_processor(&mut self, node: NodeId, processor: Processor) -> bool {
        if self.processors.get(&node) == Some(&processor) {
            return false;
        }
        self.processors.insert(node, processor);
        true
    }

    /// What a process that was born here asks for.
    pub fn demand(&self, baseline: Option<&Processor>) -> Demand {
        let (processor, is_baseline) = match baseline {
            Some(baseline) => (baseline.clone(), true),
            None => (self.own.clone(), false),
        };
        Demand { processor, is_baseline, kept_at_home: self.own.registers.clone() }
    }

    /// Why such a process cannot run there. A node that has not told yet is asked, as all once
    /// were.
    pub fn unfit(&self, demand: &Demand, node: NodeId) -> Option<Unfit> {
        demand.check(self.processors.get(&node)?).err()
    }

    /// The nodes where such a process cannot run.
    pub fn unfit_nodes(&self, demand: &Demand) -> Vec<NodeId> {
        let all = self.processors.keys().copied();
        all.filter(|node| self.unfit(demand, *node).is_some()).collect()
    }

    /// What this node and all others that have told have in common.
    pub fn baseline(&self) -> Processor {
        self.processors.values().fold(self.own.clone(), |common, other| common.common(other))
    }

    /// Whether a node's processor will do for programs of this one, and why not.
    pub fn fit(&self, node: NodeId) -> (CpuFit, Option<String>) {
        if !self.processors.contains_key(&node) {
            return (CpuFit::Unknown, None);
        }
        match self.unfit(&self.demand(None), node) {
            None => (CpuFit::Fits, None),
            Some(unfit) => (CpuFit::Baseline, Some(unfit.to_string())),
        }
    }

    /// A node says what moves may take of it.
    pub fn told_limits(&mut self, node: NodeId, limits: MoveLimits) {
        if limits == MoveLimits::default() {
            self.limits.remove(&node);
        } else {
            self.limits.insert(node, limits);
        }
    }

    /// Of a node that has not told there is no limit.
    pub fn limits(&self, node: NodeId) -> MoveLimits {
        self.limits.get(&node).copied().unwrap_or_default()
    }

    /// How fast memory moves between two nodes, either of which may be this one; None: to a node
    /// that is not chosen yet.
    pub fn pace(&self, from: NodeId, to: Option<NodeId>) -> Pace {
        to.map_or(self.paces.any(), |to| self.paces.of(from, to))
    }

    /// A move within that limit has been carried out that was taken to freeze for `foreseen_s`.
    pub fn learn_pace(
        &mut self,
        link: (NodeId, NodeId),
        report: &MoveReport,
        foreseen_s: Option<f64>,
        limit: Option<Bandwidth>,
    ) {
        self.paces.learn(link, report, foreseen_s, limit);
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::harness;

    #[test]
    fn a_node_that_lacks_something_takes_what_was_told_not_to_use_it() {
        harness::settle_features();
        let mut others = Others::new(None);
        let less = others.own.clone().without(["sse4_2", "popcnt"]);
        assert!(others.told_processor(NodeId(2), less.clone()));
        assert!(!others.told_processor(NodeId(2), less), "that was known");
        let registers = others.own.clone().without(["avx_registers", "avx512_registers"]);
        others.told_processor(NodeId(3), registers);
        assert_eq!(others.fit(NodeId(2)).0, CpuFit::Baseline);
        assert_eq!(others.fit(NodeId(4)).0, CpuFit::Unknown);
        let baseline = others.baseline();
        let left_out = others.own.lacking(&baseline);
        assert!(["sse4_2", "popcnt"].iter().all(|name| left_out.contains(&(*name).to_owned())));
        for node in [2, 3].map(NodeId) {
            assert_eq!(others.unfit(&others.demand(Some(&baseline)), node), None);
        }
    }

    #[test]
    fn of_a_node_that_is_forgotten_nothing_is_known() {
        harness::settle_features();
        let (mut others, two) = (Others::new(None), NodeId(2));
        let limits = MoveLimits { bandwidth: "500Mbit".parse().ok(), ..MoveLimits::default() };
        others.told_processor(two, others.own.clone());
        others.told_limits(two, limits);
        let report = MoveReport { freeze_us: 5_000, pages_sent: 4_096, ..MoveReport::default() };
        let unknown = others.pace(NodeId(1), Some(NodeId(3)));
        others.learn_pace((NodeId(1), two), &report, None, None);
        others.told_name(two, "delta".parse().unwrap());
        assert_eq!((others.limits(two), others.fit(two).0), (limits, CpuFit::Fits));
        assert_ne!(others.pace(NodeId(1), Some(two)), unknown);
        assert_eq!(others.name(two).map(NodeName::as_str), Some("delta"));
        others.forget(two);
        assert_eq!((others.name(two), others.limits(two)), (None, MoveLimits::default()));
        assert_eq!(others.fit(two).0, CpuFit::Unknown);
        assert_eq!(others.pace(NodeId(1), Some(two)), others.pace(NodeId(1), None));
        others.told_limits(two, limits);
        others.told_limits(two, MoveLimits::default());
        assert!(others.limits.is_empty(), "only limits are remembered");
    }
}
