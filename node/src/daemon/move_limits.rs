//! What moves may take of this node and of others, as their owners have said. The home of a process
//! orders its moves, so it has to know of both ends.

use super::Daemon;
use std::collections::BTreeMap;
use wire::ids::{HomePid, NodeId};
use wire::move_limits::MoveLimits;
use wire::peer::PeerMessage;

/// Of those that have a limit.
#[derive(Default)]
pub(super) struct OthersLimits(BTreeMap<NodeId, MoveLimits>);

impl OthersLimits {
    /// A node that is no member any more.
    pub fn forget(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    /// Those that were known were of another cluster.
    pub fn forget_all(&mut self) {
        self.0.clear();
    }
}

impl Daemon {
    pub(super) fn hear_move_limits(&mut self, node: NodeId, limits: MoveLimits) {
        match limits == MoveLimits::default() {
            true => self.others_limits.forget(node),
            false => drop(self.others_limits.0.insert(node, limits)),
        }
    }

    /// What is said when a link begins.
    pub(super) fn own_move_limits(&self) -> PeerMessage {
        PeerMessage::MoveLimits(self.wishes.state.move_limits)
    }

    /// The owner has said something else.
    pub(super) fn tell_move_limits(&self) {
        self.links.say_to_all(&self.own_move_limits());
    }

    /// Of a node that has not told there is no limit.
    pub(super) fn move_limits(&self, node: NodeId) -> MoveLimits {
        match node == self.me() {
            true => self.wishes.state.move_limits,
            false => self.others_limits.0.get(&node).copied().unwrap_or_default(),
        }
    }

    /// What both ends allow of a process's move to a node.
    pub(super) fn limits_of_move(&self, pid: HomePid, to: NodeId) -> MoveLimits {
        let from = self.processes.get(&pid).map_or(self.me(), |process| process.at);
        self.limits_between(from, Some(to))
    }

    /// What both ends of a move allow; of one that is not known nothing is.
    pub(super) fn limits_between(&self, from: NodeId, to: Option<NodeId>) -> MoveLimits {
        let there = to.map(|to| self.move_limits(to)).unwrap_or_default();
        self.move_limits(from).and(there)
    }
}
