//! Who belongs to the cluster, as this node knows it. A node is its key; its number and address are
//! what others call it by.

use std::collections::BTreeMap;
use wire::ids::NodeId;
use wire::peer::{Member, NodeKey};

/// Nodes of one cluster.
const MEMBERS_MAX: usize = 65_535;

/// What a report about a member changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    Known,
    New,
    /// It is reached at another address now.
    Relocated,
    /// The number belongs to another key, or the key to another number: the report is not believed.
    Conflict,
    Full,
}

/// All members, this node included.
#[derive(Clone, Debug)]
pub struct Members {
    me: NodeId,
    all: BTreeMap<NodeId, Member>,
}

impl Members {
    pub fn new(me: Member, others: impl IntoIterator<Item = Member>) -> Members {
        let all = BTreeMap::from([(me.node, me)]);
        let mut members = Members { me: me.node, all };
        for other in others {
            members.merge(other);
        }
        members
    }

    pub fn me(&self) -> Member {
        self.all[&self.me]
    }

    pub fn get(&self, node: NodeId) -> Option<&Member> {
        self.all.get(&node)
    }

    pub fn by_key(&self, key: NodeKey) -> Option<&Member> {
        self.all.values().find(|member| member.key == key)
    }

    pub fn all(&self) -> impl Iterator<Item = &Member> + '_ {
        self.all.values()
    }

    pub fn others(&self) -> impl Iterator<Item = &Member> + '_ {
        self.all.values().filter(|member| member.node != self.me)
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The lowest number above all that are taken.
    pub fn next_free(&self) -> NodeId {
        NodeId(self.all.last_key_value().map_or(1, |(last, _)| last.0.saturating_add(1)))
    }

    /// Believes a third party's report, but not about what is known already.
    pub fn merge(&mut self, member: Member) -> Merge {
        if let Some(known) = self.all.get(&member.node) {
            return if known.key == member.key { Merge::Known } else { Merge::Conflict };
        }
        if member.node.0 == 0 || self.by_key(member.key).is_some() {
            return Merge::Conflict;
        }
        if self.all.len() >= MEMBERS_MAX {
            return Merge::Full;
        }
        self.all.insert(member.node, member);
        Merge::New
    }

    /// Believes what a node says of itself, its key being proved: its address may have changed.
    pub fn introduce(&mut self, member: Member) -> Merge {
        match self.all.get_mut(&member.node) {
            Some(known) if known.key == member.key && known.address != member.address => {
                known.address = member.address;
                Merge::Relocated
            }
            _ => self.merge(member),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::net::SocketAddr;

    fn member(node: u32, key: u8, port: u16) -> Member {
        let address = SocketAddr::from(([10, 0, 0, 1], port));
        Member { node: NodeId(node), address, key: NodeKey([key; 32]) }
    }

    #[test]
    fn a_number_is_never_given_to_a_second_key() {
        let mut members = Members::new(member(1, 1, 1), [member(2, 2, 2)]);
        assert_eq!(members.merge(member(2, 9, 2)), Merge::Conflict);
        assert_eq!(members.introduce(member(2, 9, 2)), Merge::Conflict);
        assert_eq!(members.merge(member(3, 2, 2)), Merge::Conflict, "one key, two numbers");
        assert_eq!(members.merge(member(0, 3, 2)), Merge::Conflict, "0 is never a node");
        assert_eq!(members.next_free(), NodeId(3));
    }

    #[test]
    fn only_a_node_itself_says_that_it_has_moved() {
        let mut members = Members::new(member(1, 1, 1), [member(2, 2, 2)]);
        assert_eq!(members.merge(member(2, 2, 5)), Merge::Known);
        assert_eq!(members.get(NodeId(2)).unwrap().address.port(), 2);
        assert_eq!(members.introduce(member(2, 2, 5)), Merge::Relocated);
        assert_eq!(members.get(NodeId(2)).unwrap().address.port(), 5);
    }
}
