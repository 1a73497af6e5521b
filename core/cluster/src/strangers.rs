//! A view of a cluster that does not fit: who comes in, and who goes.
//!
//! Its members stand in the order of their age, the newest first, so that choosing among them is
//! mostly taking the first.

use crate::condition::Entry;
use crate::config::{Config, VIEW_MAX, WINDOW_MAX};
use crate::members::{Member, Members};
use crate::time::Time;
use crate::window::{Chosen, select_newest_first};
use arrayvec::ArrayVec;
use std::cmp::Reverse;
use std::slice;

/// Those that a datagram can bring: its sender, and its window.
const STRANGERS_MAX: usize = WINDOW_MAX + 1;
/// Those that have to share the places of a view.
const CLAIMANTS_MAX: usize = VIEW_MAX + STRANGERS_MAX;

/// Nodes that a datagram told of and that are not in view. They wait here until it is clear who has
/// a place, so that no view is ever larger than a view.
#[derive(Default)]
pub(crate) struct Strangers {
    members: ArrayVec<Member, STRANGERS_MAX>,
}

impl Strangers {
    pub fn count(&self) -> usize {
        self.members.len()
    }

    pub fn learn(&mut self, entry: &Entry, sequence: Option<u32>) {
        let mut listed = self.members.iter_mut();
        if let Some(known) = listed.find(|member| member.entry.node == entry.node) {
            known.learn(entry, sequence);
        } else {
            // No datagram brings more of them.
            let _ = self.members.try_push(Member::heard_of(entry, sequence));
        }
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
        let mut held = self.others.as_slice();
        for stranger in &*strangers {
            let at = stranger.entry.at();
            let newer = held.iter().take_while(|held| held.entry.at() >= at).count();
            claimants.extend(&held[..newer]);
            claimants.push(stranger);
            held = &held[newer..];
        }
        claimants.extend(held);
        let Chosen { places, floor } =
            select_newest_first(now, &claimants, config.view_max, config);
        if claimants.len() > config.view_max {
            self.floor = floor;
        }
        let mut chosen: ArrayVec<Member, CLAIMANTS_MAX> = ArrayVec::new();
        places.iter().for_each(|place| {
            // A slice of one is copied as a whole, not field by field.
            let is_in = chosen.try_extend_from_slice(slice::from_ref(claimants[place]));
            debug_assert!(is_in.is_ok());
        });
        drop(claimants);
        self.reserve(chosen.len(), config);
        self.others.clear();
        self.others.extend_from_slice(&chosen);
    }

    /// Brings the member at this place to where it belongs among the newer and the older.
    pub fn settle(&mut self, mut place: usize) {
        let settling = self.others[place];
        let at = settling.entry.at();
        while place > 0 && self.others[place - 1].entry.at() < at {
            self.others[place] = self.others[place - 1];
            place -= 1;
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
    use wire::ids::NodeId;

    proptest! {
        #[test]
        fn a_part_of_a_cluster_stands_in_the_order_of_age_each_once(
            datagrams in prop::collection::vec(
                prop::collection::vec((1u32..40, 0u64..9_000, 0u32..4, 0u32..2), 1..13),
                1..60,
            ),
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
                for (nth, (node, age_ms, runnable, life)) in datagram.into_iter().enumerate() {
                    let condition = Condition::idle(1, 1.0).with_runnable(f64::from(runnable));
                    let at = now - Span::from_millis(age_ms);
                    let entry = Entry::new(NodeId(node), life, at, Some(&condition));
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
