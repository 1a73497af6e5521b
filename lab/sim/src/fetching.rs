//! What the next events need is fetched from memory while those before them are at work.
//!
//! A thousand nodes fill a processor's second cache, and no event is about a node that was there
//! lately. But the order of events is known ahead: so a node is fetched some events before it is
//! needed, and what it points to when it has come.

use crate::world::{Event, World};

/// Events ahead of which a node is fetched.
const EVENTS_AHEAD: usize = 5;
/// Nodes that look at the same moment and are fetched before that.
const NODES_AHEAD: usize = 5;
/// Of these, in what they point to as well.
const WHOLE_AHEAD: usize = 3;

impl World {
    /// To be called for each event, when it is about to happen.
    #[inline]
    pub(crate) fn fetch_ahead(&self) {
        match self.wheel.peek(EVENTS_AHEAD) {
            Some(Event::Wake { node }) => self.nodes[*node as usize].fetch_for_gossip(),
            Some(Event::Looks { phase }) => {
                let nodes = self.phases[usize::from(*phase)].iter().take(NODES_AHEAD);
                nodes.for_each(|node| self.nodes[*node as usize].fetch());
            }
            // A node is fetched when a datagram is sent to it.
            _ => {}
        }
        match self.wheel.peek(0) {
            Some(Event::Datagram { place }) => {
                self.nodes[self.mail[*place as usize].to as usize].brain.fetch_members();
            }
            Some(Event::Wake { node }) => self.nodes[*node as usize].brain.fetch_members(),
            Some(Event::Looks { phase }) => {
                let nodes = self.phases[usize::from(*phase)].iter().take(WHOLE_AHEAD);
                nodes.for_each(|node| self.fetch_looked_at(*node));
            }
            _ => {}
        }
    }

    /// The same for those behind this one of the nodes that look now.
    #[inline]
    pub(crate) fn fetch_for_looks(&self, nodes: &[u32], nth: usize) {
        if let Some(node) = nodes.get(nth + NODES_AHEAD) {
            self.nodes[*node as usize].fetch();
        }
        if let Some(node) = nodes.get(nth + WHOLE_AHEAD) {
            self.fetch_looked_at(*node);
        }
    }

    fn fetch_looked_at(&self, node: u32) {
        let node = &self.nodes[node as usize];
        for nth in &node.processes {
            self.processes[*nth as usize].fetch();
        }
        node.brain.fetch_residents();
    }
}
