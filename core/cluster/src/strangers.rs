//! A view of a cluster that does not fit: who comes in, and who goes.
//!
//! Its members stand in the order of their age, the newest first, so that choosing among them is
//! mostly taking the first.

use crate::condition::Entry;
use crate::config::{Config, VIEW_MAX, WINDOW_MAX};
use crate::members::{Member, Members};
use crate::time::Time;
use crate::window::{Among, Merit, select_newest_first};
use arrayvec::ArrayVec;
use std::cmp::Reverse;
use std::slice;
use wire::ids::NodeId;

/// Those that a datagram can bring: its sender, and its window.
const STRANGERS_MAX: usize = WINDOW_MAX + 1;
/// Those that have to share the places of a view.
const CLAIMANTS_MAX: usize = VIEW_MAX + STRANGERS_MAX;

/// Nodes that a datagram told of and that are not in view. They wait here until it is clear who has
/// a place, so that no view is ever larger than a view.
#[derive(Default)]
pub(crate) struct Strangers {
    members: ArrayVec<Member, STRANGERS_MAX>,
    /// These and the members of the view, once a whole window is expected.
    familiar: Option<Familiar>,
}

impl Strangers {
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// Makes it quick to see that nobody here knows a node: as of most that a window tells of.
    pub fn expect_window(&mut self, view: &Members) {
        if view.is_partial() {
            let familiar = self.familiar.insert(Familiar::default());
            view.iter().for_each(|(node, _)| familiar.add(node));
            self.members.iter().for_each(|member| familiar.add(member.entry.node));
        }
    }

    /// It is neither in view nor among these; false also where that would have to be looked up.
    pub fn never_heard_of(&self, node: NodeId) -> bool {
        self.familiar.as_ref().is_some_and(|familiar| !familiar.may_hold(node))
    }

    #[inline]
    pub fn learn(&mut self, entry: &Entry, merit: Merit, sequence: Option<u32>) {
        if !self.never_heard_of(entry.node) {
            let mut listed = self.members.iter_mut();
            if let Some(known) = listed.find(|member| member.entry.node == entry.node) {
                known.learn(entry, sequence);
                return;
            }
        }
        // No datagram brings more of them.
        let _ = self.members.try_push(Member::of_merit(entry, merit, sequence));
        if let Some(familiar) = &mut self.familiar {
            familiar.add(entry.node);
        }
    }
}

/// A set of nodes that holds all that were added and, seldom, another (Bloom 1970, with one hash).
#[derive(Default)]
struct Familiar {
    words: [u64; Familiar::WORDS],
}

impl Familiar {
    const WORDS: usize = 8;

    fn place(node: NodeId) -> (usize, u64) {
        (node.0 as usize / 64 % Familiar::WORDS, 1 << (node.0 % 64))
    }

    fn add(&mut self, node: NodeId) {
        let (word, bit) = Familiar::place(node);
        self.words[word] |= bit;
    }

    fn may_hold(&self, node: NodeId) -> bool {
        let (word, bit) = Familiar::place(node);
        self.words[word] & bit != 0
    }
}

impl Members {
    /// After a datagram: who is worth a place comes in, and who is not goes.
    pub fn admit(&mut self, now: Time, strangers: &mut Strangers, config: &Config) {
        let strangers = &mut strangers.members;
        if strangers.is_empty() {
            return;
        }
        strangers.sort_by_key(|stranger| Reverse(stranger.entry.at()));
        let mut claimants: ArrayVec<&Member, CLAIMANTS_MAX> = ArrayVec::new();
        let (held, new) = (self.others.as_slice(), strangers.as_slice());
        let (mut nth_held, mut nth_new) = (0, 0);
        while let (Some(next_held), Some(next_new)) = (held.get(nth_held), new.get(nth_new)) {
            // Without a branch, as nobody can predict whose turn it is.
            let is_held = next_held.entry.at() >= next_new.entry.at();
            claimants.push([next_new, next_held][usize::from(is_held)]);
            nth_held += usize::from(is_held);
            nth_new += usize::from(!is_held);
        }
        claimants.extend(&held[nth_held..]);
        claimants.extend(&new[nth_new..]);
        let mut chosen: ArrayVec<Member, CLAIMANTS_MAX> = ArrayVec::new();
        let size = config.view_max;
        let take = |member: &&Member| {
            // A slice of one is copied as a whole, not field by field.
            let is_in = chosen.try_extend_from_slice(slice::from_ref(*member));
            debug_assert!(is_in.is_ok());
        };
        let floor = select_newest_first(now, &claimants, Among::All, size, config, take);
        if claimants.len() > size {
            self.floor = floor;
        }
        drop(claimants);
        self.reserve(chosen.len(), config);
        self.others.clear();
        self.others.extend_from_slice(&chosen);
    }

    /// Brings the member at this place to where it belongs among the newer and the older.
    pub fn settle(&mut self, mut place: usize) {
        let settling = self.others[place];
        let at = settling.entry.at();
        // Mostly it is the newest of all.
        let mut newer = self.others[..place].iter();
        if let Some(first_older) = newer.position(|other| other.entry.at() < at) {
            self.others.copy_within(first_older..place, first_older + 1);
            place = first_older;
        }
        while let Some(newer) = self.others.get(place + 1).filter(|other| other.entry.at() > at) {
            self.others[place] = *newer;
            place += 1;
        }
        self.others[place] = settling;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Condition;
    use crate::time::Span;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_part_of_a_cluster_stands_in_the_order_of_age_each_once(
            datagrams in prop::collection::vec(
                prop::collection::vec((1u32..40, 0u64..9_000, 0u32..4, 0u32..2), 1..13),
                1..60,
            ),
            is_window in any::<bool>(),
        ) {
            let config = Config { view_max: 8, ..Config::default() };
            let mut now = Time::from_micros(60_000_000);
            let mut members = Members::default();
            for node in 1..=20 {
                members.join(now - Span::from_secs(50), NodeId(node), &config);
            }
            for datagram in datagrams {
                now = now + Span::from_millis(700);
                let mut strangers = Strangers::default();
                if is_window {
                    strangers.expect_window(&members);
                }
                for (nth, (node, age_ms, runnable, life)) in datagram.into_iter().enumerate() {
                    let condition = Condition::idle(1, 1.0).with_runnable(f64::from(runnable));
                    let at = now - Span::from_millis(age_ms);
                    // Some cannot be told from others at first sight.
                    let node = NodeId(node % 20 + 512 * (node / 20));
                    let entry = Entry::new(node, life, at, Some(&condition));
                    let sequence = (nth == 0).then_some(age_ms as u32);
                    members.learn(now, &entry, sequence, &mut strangers, (0.0, &config));
                }
                members.admit(now, &mut strangers, &config);
                let known: Vec<(NodeId, Time)> =
                    members.iter().map(|(node, member)| (node, member.entry.at())).collect();
                prop_assert!(known.len() <= config.view_max);
                prop_assert!(known.is_sorted_by_key(|(_, at)| Reverse(*at)), "{known:?}");
                let nodes: BTreeSet<NodeId> = known.iter().map(|(node, _)| *node).collect();
                prop_assert_eq!(nodes.len(), known.len());
            }
        }
    }
}
