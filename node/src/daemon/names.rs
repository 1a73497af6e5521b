//! What people call the nodes: each tells the others when a link begins.

use super::Daemon;
use crate::net::link::Link;
use wire::ids::NodeId;
use wire::node_name::NodeName;
use wire::peer::PeerMessage;

impl Daemon {
    pub(super) fn tell_name(&self, link: &Link) {
        if let Some(name) = self.others.own_name() {
            link.send(PeerMessage::Name(name.to_string()));
        }
    }

    /// A node says what it is called. What is no name leaves it with the one that it had, or none.
    pub(super) fn hear_name(&mut self, node: NodeId, name: &str) {
        match name.parse::<NodeName>() {
            Ok(name) => self.others.told_name(node, name),
            Err(error) => tracing::warn!("node {node} tells a name that is none: {error}"),
        }
    }

    /// As users are shown it.
    pub(super) fn name_of(&self, node: NodeId) -> Option<String> {
        let name = if node == self.me() { self.others.own_name() } else { self.others.name(node) };
        name.map(ToString::to_string)
    }
}
