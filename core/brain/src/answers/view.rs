//! What the brain answers to questions of the daemon: `osmos nodes`, `--best`.

use crate::facts::Condition;
use crate::others::Status;
use crate::situation::Situation;
use crate::time::{Span, Time};
use wire::ids::{GlobalPid, NodeId};

/// One node as this brain sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    pub node: NodeId,
    pub status: Status,
    /// 0 while nothing is known of the node; so are the figures below.
    pub cores: u32,
    /// Of one core; 1.0 is the reference.
    pub speed: f64,
    /// Runnable threads, those on their way to it included.
    pub runnable: f64,
    pub memory_total_bytes: u64,
    pub memory_free_bytes: u64,
    /// Its owner takes no guests now.
    pub is_closed: bool,
    /// How old this knowledge is; None if nothing has been heard of the node yet.
    pub age: Option<Span>,
}

impl NodeView {
    /// Runnable threads per core.
    pub fn load(&self) -> f64 {
        self.runnable / f64::from(self.cores.max(1))
    }

    fn new(node: NodeId, status: Status, known: Option<(Condition, Span)>) -> NodeView {
        let condition = known.map(|(condition, _)| condition);
        NodeView {
            node,
            status,
            cores: condition.map_or(0, |c| c.cores),
            speed: condition.map_or(0.0, |c| c.speed),
            runnable: condition.map_or(0.0, |c| c.runnable),
            memory_total_bytes: condition.map_or(0, |c| c.memory_total_bytes),
            memory_free_bytes: condition.map_or(0, |c| c.memory_free_bytes),
            is_closed: condition.is_some_and(|c| c.is_closed),
            age: known.map(|(_, age)| age),
        }
    }
}

impl Situation {
    /// All members, this node included, by number.
    pub fn nodes(&self, now: Time) -> Vec<NodeView> {
        let is_closed = self.condition_for_guests(now).is_some_and(|own| own.is_closed);
        let known = self.condition(now).map(|own| (Condition { is_closed, ..own }, Span::ZERO));
        let mut views: Vec<NodeView> = self
            .members
            .iter()
            .map(|(node, member)| NodeView::new(node, member.status, member.known(now)))
            .collect();
        views.push(NodeView::new(self.me, Status::Alive, known));
        views.sort_by_key(|view| view.node);
        views
    }

    /// The node (perhaps this one) that promises the most to one more CPU-bound process, among
    /// those that are alive and not excluded. `process`, if it runs here, is not counted twice.
    pub fn best_node(
        &self,
        now: Time,
        process: Option<GlobalPid>,
        excluding: &[NodeId],
    ) -> Option<NodeId> {
        let counted = process.is_some_and(|process| self.residents.is_running(process));
        let own = self.condition(now).map(|condition| {
            let runnable = condition.runnable - if counted { 1.0 } else { 0.0 };
            (self.me, condition.with_runnable(runnable))
        });
        let open = self.members.useful(now, &self.config).filter(|(_, c, _)| !c.is_closed);
        let others = open.map(|(node, condition, _)| {
            let promised = self.promises.iter().filter(|(to, _)| *to == node).count() as f64;
            (node, condition.with_runnable(condition.runnable + promised))
        });
        let mut best: Option<(NodeId, f64)> = None;
        for (node, condition) in own.into_iter().chain(others) {
            let share = condition.share_after(1.0);
            if !excluding.contains(&node) && best.is_none_or(|(_, most)| share > most) {
                best = Some((node, share));
            }
        }
        best.map(|(node, _)| node)
    }
}
