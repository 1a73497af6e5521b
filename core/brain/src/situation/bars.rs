//! Nodes where processes of this one cannot run, as its daemon knows: their processors lack what
//! programs were shown here. They are not offered there.

use super::Situation;
use std::collections::BTreeSet;
use wire::ids::{GlobalPid, NodeId};

#[derive(Debug, Default)]
pub(crate) struct Bars {
    /// To processes that were born here.
    nodes: BTreeSet<NodeId>,
    /// But not to these, which were told to use less.
    exempt: BTreeSet<GlobalPid>,
}

impl Situation {
    pub(crate) fn nodes_barred(&mut self, nodes: &[NodeId]) {
        self.bars.get_or_insert_default().nodes = nodes.iter().copied().collect();
    }

    pub(crate) fn process_exempted(&mut self, process: GlobalPid) {
        self.bars.get_or_insert_default().exempt.insert(process);
    }

    pub(crate) fn forget_bars_of(&mut self, process: GlobalPid) {
        if let Some(bars) = &mut self.bars {
            bars.exempt.remove(&process);
        }
    }

    /// Whether the process cannot run there.
    pub(crate) fn is_barred(&self, process: GlobalPid, node: NodeId) -> bool {
        let bars = self.bars.as_ref().filter(|_| process.home == self.me);
        bars.is_some_and(|bars| bars.nodes.contains(&node) && !bars.exempt.contains(&process))
    }

    /// Nodes where no process that is here can run.
    pub(crate) fn barred_to_all(&self) -> Option<&BTreeSet<NodeId>> {
        let bars = self.bars.as_ref().filter(|bars| !bars.nodes.is_empty())?;
        let is_bound =
            |process: GlobalPid| process.home == self.me && !bars.exempt.contains(&process);
        self.residents.processes().all(is_bound).then_some(&bars.nodes)
    }
}
