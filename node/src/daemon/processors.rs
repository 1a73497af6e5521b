//! Which nodes' processors will do for which processes, as all have told: a move that their
//! difference forbids costs nobody a question.

use super::Daemon;
use super::moves::{NotMoved, not_moved};
use crate::process::Process;
use brain::Input;
use std::collections::BTreeMap;
use wire::control::CpuFit;
use wire::ids::{GlobalPid, HomePid, NodeId};
use wire::peer::MoveEnd;
use wire::processor::{Demand, Processor, Unfit};

/// This node's processor, and those of others that it was linked to.
pub(super) struct Processors {
    pub own: Processor,
    others: BTreeMap<NodeId, Processor>,
}

impl Processors {
    pub fn new() -> Processors {
        Processors { own: migrate::processor::own(), others: BTreeMap::new() }
    }

    /// Those that were known were of another cluster.
    pub fn forget_others(&mut self) {
        self.others.clear();
    }

    /// A node that is no member asks nothing of anybody's programs.
    pub fn forget(&mut self, node: NodeId) {
        self.others.remove(&node);
    }

    /// What a process that was born here asks for.
    fn demand(&self, baseline: Option<&Processor>) -> Demand {
        let (processor, is_baseline) = match baseline {
            Some(baseline) => (baseline.clone(), true),
            None => (self.own.clone(), false),
        };
        Demand { processor, is_baseline, kept_at_home: self.own.registers.clone() }
    }

    /// Why such a process cannot run there. A node that has not told yet is asked, as all once
    /// were.
    fn unfit(&self, demand: &Demand, node: NodeId) -> Option<Unfit> {
        demand.check(self.others.get(&node)?).err()
    }

    /// The nodes where such a process cannot run.
    fn unfit_nodes(&self, demand: &Demand) -> Vec<NodeId> {
        let all = self.others.keys().copied();
        all.filter(|node| self.unfit(demand, *node).is_some()).collect()
    }

    /// What this node and all others that have told have in common.
    pub fn baseline(&self) -> Processor {
        self.others.values().fold(self.own.clone(), |common, other| common.common(other))
    }

    fn fit(&self, node: NodeId) -> (CpuFit, Option<String>) {
        if !self.others.contains_key(&node) {
            return (CpuFit::Unknown, None);
        }
        match self.unfit(&self.demand(None), node) {
            None => (CpuFit::Fits, None),
            Some(unfit) => (CpuFit::Baseline, Some(unfit.to_string())),
        }
    }
}

impl Daemon {
    pub(super) fn hear_processor(&mut self, node: NodeId, processor: Processor) {
        let processor = processor.checked();
        if self.processors.others.get(&node) == Some(&processor) {
            return;
        }
        self.processors.others.insert(node, processor);
        if let (_, Some(reason)) = self.processors.fit(node) {
            tracing::info!("node {node}: {reason}");
        }
        let nodes = self.processors.unfit_nodes(&self.processors.demand(None));
        self.tell_brain(Input::NodesBarred { nodes });
    }

    /// Whether a node's processor will do for programs of this one, and why not.
    pub(super) fn cpu_fit(&self, node: NodeId) -> (CpuFit, Option<String>) {
        if node == self.me() { (CpuFit::Fits, None) } else { self.processors.fit(node) }
    }

    fn demand_of(&self, process: &Process) -> Demand {
        self.processors.demand(process.baseline.as_deref())
    }

    /// That the processor of a node will do for a process, as far as is known.
    pub(super) fn check_processor(&self, pid: HomePid, to: NodeId) -> Result<(), NotMoved> {
        let Some(process) = self.processes.get(&pid) else { return Ok(()) };
        match self.processors.unfit(&self.demand_of(process), to) {
            // The brain is to look for another node.
            Some(unfit) => {
                let text = format!("node {to}: {unfit}");
                Err(not_moved(MoveEnd::Failed, unfit.code(), text))
            }
            None => Ok(()),
        }
    }

    /// Why the processor of a node will not do for a process of this home.
    pub(super) fn why_unfit(&self, process: GlobalPid, node: NodeId) -> Option<String> {
        let process = self.processes.get(&process.pid).filter(|_| process.home == self.me())?;
        self.processors.unfit(&self.demand_of(process), node).map(|unfit| unfit.to_string())
    }

    /// The nodes whose processors will not do for a process.
    pub(super) fn unfit_nodes(&self, pid: HomePid) -> Vec<NodeId> {
        let Some(process) = self.processes.get(&pid) else { return Vec::new() };
        self.processors.unfit_nodes(&self.demand_of(process))
    }

    /// The process keeps to a baseline from now on, and its children with it. Names what its
    /// program is to leave out.
    pub(super) fn give_baseline(&mut self, pid: HomePid, baseline: Box<Processor>) -> Vec<String> {
        let left_out = self.processors.own.lacking(&baseline);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.baseline = Some(baseline);
            let process = self.global(pid);
            self.tell_brain(Input::ProcessExempted { process });
        }
        left_out
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::harness;

    #[test]
    fn a_node_that_lacks_something_takes_what_was_told_not_to_use_it() {
        harness::settle_features();
        let mut processors = Processors::new();
        let less = processors.own.clone().without(["sse4_2", "popcnt"]);
        processors.others.insert(NodeId(2), less.clone());
        let registers = processors.own.clone().without(["avx_registers", "avx512_registers"]);
        processors.others.insert(NodeId(3), registers);
        assert_eq!(processors.fit(NodeId(2)).0, CpuFit::Baseline);
        assert_eq!(processors.fit(NodeId(4)).0, CpuFit::Unknown);
        let baseline = processors.baseline();
        let left_out = processors.own.lacking(&baseline);
        assert!(["sse4_2", "popcnt"].iter().all(|name| left_out.contains(&(*name).to_owned())));
        for node in [2, 3].map(NodeId) {
            assert_eq!(processors.unfit(&processors.demand(Some(&baseline)), node), None);
        }
    }
}
