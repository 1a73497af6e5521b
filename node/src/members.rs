//! Who belongs to the cluster, as this node knows it. A node is its key; its number and address are
//! what others call it by.
//!
//! No number is given twice, though no two nodes need to agree on it: each gives numbers of its own
//! range only, and remembers which. The first node of a cluster has the small ones, and gives them
//! for others that reach it.
//!
//! A node that was forgotten stays so: what is told of it by those who have not heard is not
//! believed, and nobody accepts its key. It joins anew with another number and another key.

use std::collections::{BTreeMap, VecDeque};
use wire::ids::NodeId;
use wire::peer::{FORGOTTEN_MAX, Forgotten, Member, NodeKey};

/// Nodes of one cluster.
pub const MEMBERS_MAX: usize = 65_535;

/// Numbers of one node's range.
const RANGE: u32 = 10_000;

/// The numbers that a node gives: node 1 those below 10,000, node N those from 10,000 N on. None
/// for a node whose number is too large for that.
fn range_of(node: NodeId) -> Option<std::ops::Range<u32>> {
    if node == NodeId(1) {
        return Some(2..RANGE);
    }
    let first = node.0.checked_mul(RANGE)?;
    Some(first..first.checked_add(RANGE)?)
}

/// What a report about a member changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    Known,
    New,
    /// It is reached at another address now.
    Relocated,
    /// The number belongs to another key, or the key to another number: the report is not believed.
    Conflict,
    /// It belongs to the cluster no more.
    Forgotten,
    Full,
}

/// All members, this node included.
#[derive(Clone, Debug)]
pub struct Members {
    me: NodeId,
    all: BTreeMap<NodeId, Member>,
    /// The latest last.
    forgotten: VecDeque<Forgotten>,
    /// The last number of this node's own range that it has given.
    given: u32,
}

impl Members {
    pub fn new(me: Member, others: impl IntoIterator<Item = Member>) -> Members {
        let all = BTreeMap::from([(me.node, me)]);
        let mut members = Members { me: me.node, all, forgotten: VecDeque::new(), given: 0 };
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

    /// With what this node remembers of before.
    pub fn remembering(mut self, forgotten: Vec<Forgotten>, given: u32) -> Members {
        self.given = given;
        for gone in forgotten {
            self.forget(gone);
        }
        self
    }

    pub fn forgotten(&self) -> impl Iterator<Item = &Forgotten> + '_ {
        self.forgotten.iter()
    }

    pub fn given(&self) -> u32 {
        self.given
    }

    /// The next number of this node's range, which is given by that; None if all of them are.
    pub fn give_number(&mut self) -> Option<NodeId> {
        let range = range_of(self.me)?;
        let members = self.all.keys().copied();
        let known = members.chain(self.forgotten.iter().map(|gone| gone.node)).map(|node| node.0);
        let last = known.filter(|number| range.contains(number)).chain([self.given]).max();
        let next = last.map_or(range.start, |last| (last + 1).max(range.start));
        if !range.contains(&next) {
            return None;
        }
        self.given = next;
        Some(NodeId(next))
    }

    pub fn is_forgotten(&self, node: NodeId, key: NodeKey) -> bool {
        self.forgotten.iter().any(|gone| gone.node == node || gone.key == key)
    }

    /// True if that is news. This node never believes that it was forgotten: who has forgotten it
    /// does not speak to it.
    pub fn forget(&mut self, gone: Forgotten) -> bool {
        let me = self.me();
        let is_known = self.forgotten.contains(&gone);
        if is_known || gone.node == me.node || gone.key == me.key {
            return false;
        }
        let is_member = self.all.get(&gone.node).is_some_and(|known| known.key == gone.key);
        if self.forgotten.len() >= FORGOTTEN_MAX {
            // Of nodes that nobody here has known, no news is better than news without end.
            if !is_member {
                return false;
            }
            self.forgotten.pop_front();
        }
        if is_member {
            self.all.remove(&gone.node);
        }
        self.forgotten.push_back(gone);
        true
    }

    /// Believes a third party's report, but not about what is known already.
    pub fn merge(&mut self, member: Member) -> Merge {
        if self.is_forgotten(member.node, member.key) {
            return Merge::Forgotten;
        }
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
        assert_eq!(members.give_number(), Some(NodeId(3)));
        assert_eq!(members.give_number(), Some(NodeId(4)), "3 was given");
    }

    #[test]
    fn two_nodes_that_do_not_hear_each_other_never_give_the_same_number() {
        let nodes = [1, 2, 3, 10_001, 20_000, 429_497];
        let mut given = std::collections::BTreeSet::new();
        for me in nodes {
            let all = nodes.map(|node| member(node, (node % 251) as u8, 1));
            let others = all.into_iter().filter(|other| other.node.0 != me);
            let mut members = Members::new(member(me, (me % 251) as u8, 1), others);
            while let Some(number) = members.give_number() {
                assert!(given.insert(number), "{number} by {me}");
                assert!(nodes.iter().all(|node| NodeId(*node) != number), "{number} is taken");
            }
        }
        // The last one's range does not exist; 4 to 9,999; of the range of 2, 20,000 is taken.
        assert_eq!(given.len(), 9_996 + 9_999 + 10_000 + 10_000 + 10_000);
    }

    #[test]
    fn neither_number_nor_key_of_a_forgotten_node_counts_again() {
        let mut members = Members::new(member(1, 1, 1), [member(2, 2, 2)]);
        let gone = Forgotten { node: NodeId(2), key: NodeKey([2; 32]) };
        assert!(members.forget(gone) && !members.forget(gone), "news once");
        assert!(members.get(NodeId(2)).is_none());
        assert_eq!(members.merge(member(2, 2, 2)), Merge::Forgotten, "others have not heard yet");
        assert_eq!(members.introduce(member(9, 2, 2)), Merge::Forgotten, "its key");
        assert_eq!(members.merge(member(2, 3, 2)), Merge::Forgotten, "its number");
        assert_eq!(members.give_number(), Some(NodeId(3)));
        let me = Forgotten { node: NodeId(1), key: NodeKey([1; 32]) };
        assert!(!members.forget(me) && members.get(NodeId(1)).is_some());
        let forgotten = members.forgotten().copied().collect();
        let restored = Members::new(member(1, 1, 1), [member(2, 2, 2)]).remembering(forgotten, 3);
        assert!(restored.get(NodeId(2)).is_none());
        assert_eq!(restored.given(), 3);
    }

    #[test]
    fn what_is_remembered_of_forgotten_nodes_is_bounded() {
        let mut members = Members::new(member(1, 1, 1), []);
        for nth in 2..FORGOTTEN_MAX as u32 + 12 {
            let mut key = NodeKey([9; 32]);
            key.0[..4].copy_from_slice(&nth.to_le_bytes());
            members.forget(Forgotten { node: NodeId(nth), key });
        }
        assert_eq!(members.forgotten().count(), FORGOTTEN_MAX);
        members.merge(member(50_000, 8, 1));
        assert!(members.forget(Forgotten { node: NodeId(50_000), key: NodeKey([8; 32]) }));
        assert_eq!(members.forgotten().count(), FORGOTTEN_MAX);
        assert_eq!(members.merge(member(50_000, 8, 1)), Merge::Forgotten);
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
