//! What people call the nodes: each tells the others when a link begins.

use super::Daemon;
use crate::net::link::Link;
use wire::ids::NodeId;
use wire::node_name::NodeName;
use wire::peer::PeerMessage;

/// Nodes that a refusal lists.
const LISTED_MAX: usize = 16;

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

    /// `1 (alpha), 2, 3 (gamma)`, and how many more there are.
    pub(super) fn listed_nodes(&self) -> String {
        let nodes = self.members.all().take(LISTED_MAX).map(|member| member.node);
        let mut listed: Vec<String> = nodes
            .map(|node| match self.name_of(node) {
                Some(name) => format!("{node} ({name})"),
                None => node.to_string(),
            })
            .collect();
        match self.members.count().saturating_sub(LISTED_MAX) {
            0 => {}
            more => listed.push(format!("and {more} more (`osmos nodes`)")),
        }
        listed.join(", ")
    }

    /// As users are shown it.
    pub(super) fn name_of(&self, node: NodeId) -> Option<String> {
        let name = if node == self.me() { self.others.own_name() } else { self.others.name(node) };
        name.map(ToString::to_string)
    }
}
