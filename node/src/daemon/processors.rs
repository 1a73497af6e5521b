//! Which nodes' processors will do for which processes, as all have told: a move that their
//! difference forbids costs nobody a question.

use super::Daemon;
use super::moves::{NotMoved, not_moved};
use crate::process::Process;
use brain::Input;
use wire::control::CpuFit;
use wire::ids::{GlobalPid, HomePid, NodeId};
use wire::peer::MoveEnd;
use wire::processor::{Demand, Processor};

impl Daemon {
    pub(super) fn hear_processor(&mut self, node: NodeId, processor: Processor) {
        let processor = processor.checked();
        if !self.others.told_processor(node, processor) {
            return;
        }
        if let (_, Some(reason)) = self.others.fit(node) {
            tracing::info!("node {node}: {reason}");
        }
        let nodes = self.others.unfit_nodes(&self.others.demand(None));
        self.tell_brain(Input::NodesBarred { nodes });
    }

    /// Whether a node's processor will do for programs of this one, and why not.
    pub(super) fn cpu_fit(&self, node: NodeId) -> (CpuFit, Option<String>) {
        if node == self.me() { (CpuFit::Fits, None) } else { self.others.fit(node) }
    }

    fn demand_of(&self, process: &Process) -> Demand {
        self.others.demand(process.baseline.as_deref())
    }

    /// That the processor of a node will do for a process, as far as is known.
    pub(super) fn check_processor(&self, pid: HomePid, to: NodeId) -> Result<(), NotMoved> {
        let Some(process) = self.processes.get(&pid) else { return Ok(()) };
        match self.others.unfit(&self.demand_of(process), to) {
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
        self.others.unfit(&self.demand_of(process), node).map(|unfit| unfit.to_string())
    }

    /// The nodes whose processors will not do for a process.
    pub(super) fn unfit_nodes(&self, pid: HomePid) -> Vec<NodeId> {
        let Some(process) = self.processes.get(&pid) else { return Vec::new() };
        self.others.unfit_nodes(&self.demand_of(process))
    }

    /// The process keeps to a baseline from now on, and its children with it. Names what its
    /// program is to leave out.
    pub(super) fn give_baseline(&mut self, pid: HomePid, baseline: Box<Processor>) -> Vec<String> {
        let left_out = self.others.own_processor().lacking(&baseline);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.baseline = Some(baseline);
            let process = self.global(pid);
            self.tell_brain(Input::ProcessExempted { process });
        }
        left_out
    }
}
