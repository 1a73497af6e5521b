//! A view of a cluster that does not fit: who comes in, and who goes.
//!
//! Its members stand in the order of their age, the newest first.

use super::members::{Member, Members};
use super::window::{Among, select};
use crate::config::{Config, WINDOW_MAX};
use crate::facts::Entry;
use crate::time::Time;
use std::cmp::Reverse;

/// Those that a datagram can bring: its sender, and its window.
const STRANGERS_MAX: usize = WINDOW_MAX + 1;

/// Nodes that a datagram told of and that are not in view. They wait here until it is clear who has
/// a place, so that no view is ever larger than a view.
#[derive(Default)]
pub(crate) struct Strangers {
    members: Vec<Member>,
}

impl Strangers {
    pub fn count(&self) -> usize {
        self.members.len()
    }

    pub fn learn(&mut self, entry: &Entry, sequence: Option<u32>) {
        let known = self.members.iter_mut().find(|member| member.entry.node == entry.node);
        if let Some(known) = known {
            known.learn(entry, sequence);
        } else if self.members.len() < STRANGERS_MAX {
            // No datagram brings more of them.
            self.members.push(Member::heard_of(entry, sequence));
        }
    }
}

impl Members {
    /// After a datagram: who is worth a place comes in, and who is not goes.
    pub fn admit(&mut self, now: Time, strangers: Strangers, config: &Config) {
        if strangers.members.is_empty() {
            return;
        }
        let mut claimants = std::mem::take(&mut self.others);
        claimants.extend(strangers.members);
        claimants.sort_by_key(|member| Reverse(member.entry.at));
        let size = config.view_max;
        let mut chosen = Vec::with_capacity(size);
        let floor =
            select(now, &claimants, Among::All, size, config, |member| chosen.push(*member));
        if claimants.len() > size {
            self.floor = floor;
        }
        self.others = chosen;
    }

    /// Brings the member at this place to where it belongs among the newer and the older.
    pub fn settle(&mut self, place: usize) {
        let settling = self.others.remove(place);
        let at = settling.entry.at;
        let (newer, older) = self.others.split_at(place);
        let to = match newer.iter().position(|other| other.entry.at < at) {
            Some(first_older) => first_older,
            None => place + older.partition_point(|other| other.entry.at > at),
        };
        self.others.insert(to, settling);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Condition;
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
                members.admit(now, strangers, &config);
                let known: Vec<(NodeId, Time)> =
                    members.iter().map(|(node, member)| (node, member.entry.at)).collect();
                prop_assert!(known.len() <= config.view_max);
                prop_assert!(known.is_sorted_by_key(|(_, at)| Reverse(*at)), "{known:?}");
                let nodes: BTreeSet<NodeId> = known.iter().map(|(node, _)| *node).collect();
                prop_assert_eq!(nodes.len(), known.len());
            }
        }
    }
}
