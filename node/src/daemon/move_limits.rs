//! What moves may take of this node and of others, as their owners have said. The home of a process
//! orders its moves, so it has to know of both ends.

use super::Daemon;
use wire::ids::{HomePid, NodeId};
use wire::move_limits::MoveLimits;
use wire::peer::PeerMessage;

impl Daemon {
    pub(super) fn hear_move_limits(&mut self, node: NodeId, limits: MoveLimits) {
        self.others.told_limits(node, limits);
    }

    /// What is said when a link begins.
    pub(super) fn own_move_limits(&self) -> PeerMessage {
        PeerMessage::MoveLimits(self.wishes.state.move_limits)
    }

    /// The owner has said something else.
    pub(super) fn tell_move_limits(&self) {
        self.links.say_to_all(&self.own_move_limits());
    }

    /// Of this node or another one.
    pub(super) fn move_limits(&self, node: NodeId) -> MoveLimits {
        match node == self.me() {
            true => self.wishes.state.move_limits,
            false => self.others.limits(node),
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
