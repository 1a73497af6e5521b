//! Which entries are worth a place: in a datagram, and in a view of a cluster that does not fit.
//!
//! The newest alone do not scale: with a thousand nodes the last idle one is found too late,
//! because news of it is crowded out by news of nobody's interest. So half of the places go to the
//! newest, which keeps the sample fair and the liveness known, and a quarter each to the best
//! places for a process and to the most crowded nodes. Urgent news comes before all.

use super::members::Member;
use crate::config::{Config, WindowPolicy};
use crate::facts::Entry;
use crate::time::Time;
use std::cmp::Reverse;

/// Ages are told apart by about the millisecond, as they travel; of equals the first come first.
const AGE_UNIT_BITS: u32 = 10;

/// What an entry must exceed in one way or another to have a chance of a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Floor {
    at: Time,
    target: f32,
    source: f32,
}

impl Default for Floor {
    fn default() -> Floor {
        Floor { at: Time::ZERO, target: -1.0, source: -1.0 }
    }
}

impl Floor {
    pub fn is_above(&self, entry: &Entry) -> bool {
        if entry.at > self.at || entry.urgency > 0 || entry.cores == 0 {
            return false;
        }
        let is_wanted = is_target(entry) && target_rank(entry) > self.target
            || is_source(entry) && source_rank(entry) > self.source;
        !is_wanted
    }
}

fn cores_milli(entry: &Entry) -> u32 {
    u32::from(entry.cores) * 1_000
}

/// Half a core stands idle there, at least, and for everybody.
fn is_target(entry: &Entry) -> bool {
    entry.spare_milli() >= 500 && !entry.is_closed
}

/// Half a thread waits there, at least.
fn is_source(entry: &Entry) -> bool {
    entry.spare_milli() <= -500
}

fn power(entry: &Entry) -> f32 {
    cores_milli(entry) as f32 * entry.speed_milli as f32
}

/// What a target is worth to who looks for a place: the share that a newcomer would get.
fn target_rank(entry: &Entry) -> f32 {
    let after = (entry.runnable_milli + 1_000).max(cores_milli(entry)) as f32;
    power(entry) / (after * 1e3)
}

/// What a source is worth to who looks for work: the crowd for each core of the reference speed.
fn source_rank(entry: &Entry) -> f32 {
    entry.runnable_milli as f32 * 1e3 / power(entry)
}

/// Which members can be chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Among {
    All,
    /// Those that have measured themselves, but not the one in this place, which is to be told.
    ToTell(Option<usize>),
}

impl Among {
    fn holds(self, place: usize, entry: &Entry) -> bool {
        match self {
            Among::All => true,
            Among::ToTell(listener) => entry.cores > 0 && Some(place) != listener,
        }
    }
}

/// Takes at most `size` of the members, in their order. Returns what others would have to exceed.
pub(crate) fn select<'a>(
    now: Time,
    members: &'a [Member],
    among: Among,
    size: usize,
    config: &Config,
    mut take: impl FnMut(&'a Member),
) -> Floor {
    let can_be = |place: &usize| among.holds(*place, &members[*place].entry);
    let candidates: Vec<usize> = (0..members.len()).filter(can_be).collect();
    if candidates.len() <= size {
        candidates.into_iter().for_each(|place| take(&members[place]));
        return Floor::default();
    }
    let mut choice = Choice { members, newest_first: candidates, is_chosen: Vec::new() };
    let floor = choice.make(now, size, config);
    let chosen = members.iter().zip(choice.is_chosen);
    chosen.filter(|(_, is_chosen)| *is_chosen).for_each(|(member, _)| take(member));
    floor
}

/// Members that can be chosen, and which are.
struct Choice<'a> {
    members: &'a [Member],
    newest_first: Vec<usize>,
    /// By place.
    is_chosen: Vec<bool>,
}

impl Choice<'_> {
    fn make(&mut self, now: Time, size: usize, config: &Config) -> Floor {
        self.is_chosen = vec![false; self.members.len()];
        let members = self.members;
        let entry = |place: &usize| &members[*place].entry;
        self.newest_first.sort_by_key(|place| now.since(entry(place).at).0 >> AGE_UNIT_BITS);
        let quarter = match config.window_policy {
            WindowPolicy::Osmos => size / 4,
            _ => 0,
        };
        let urgent = self.newest_first.iter().filter(|place| entry(place).urgency > 0);
        let urgent: Vec<usize> = urgent.copied().take(quarter).collect();
        urgent.into_iter().for_each(|place| self.is_chosen[place] = true);
        // Whoever looks for a place, or for work, has no use for what is older.
        let oldest_useful = now - config.useful_age_max;
        let is_useful = |entry: &Entry| entry.at >= oldest_useful;
        let target = self.choose_best(quarter, |entry| {
            (is_useful(entry) && is_target(entry)).then(|| target_rank(entry))
        });
        let source = self.choose_best(quarter, |entry| {
            (is_useful(entry) && is_source(entry)).then(|| source_rank(entry))
        });
        let wanted = size.saturating_sub(self.is_chosen.iter().filter(|is_in| **is_in).count());
        let left = self.newest_first.iter().filter(|place| !self.is_chosen[**place]);
        let newest: Vec<usize> = left.copied().take(wanted).collect();
        let at = newest.last().map_or(now, |place| entry(place).at);
        newest.into_iter().for_each(|place| self.is_chosen[place] = true);
        Floor { at, target, source }
    }

    /// Chooses the `wanted` of the highest rank, of equals those that stand first; returns the
    /// lowest rank of those, or -1 if there are not as many.
    fn choose_best(&mut self, wanted: usize, rank: impl Fn(&Entry) -> Option<f32>) -> f32 {
        let ranked = self.newest_first.iter().filter_map(|place| {
            rank(&self.members[*place].entry).map(|rank| (Reverse(Rank(rank)), *place))
        });
        let mut ranked: Vec<(Reverse<Rank>, usize)> = ranked.collect();
        ranked.sort_unstable();
        let lowest = match wanted {
            0 => None,
            _ => ranked.get(wanted - 1).map(|(Reverse(Rank(rank)), _)| *rank),
        };
        ranked.iter().take(wanted).for_each(|(_, place)| self.is_chosen[*place] = true);
        lowest.unwrap_or(-1.0)
    }
}

/// A number with an order.
#[derive(Clone, Copy, PartialEq)]
struct Rank(f32);

impl Eq for Rank {}

impl Ord for Rank {
    fn cmp(&self, other: &Rank) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Rank) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Condition;
    use crate::time::Span;
    use proptest::prelude::*;
    use wire::ids::NodeId;

    const NOW: Time = Time::from_micros(100_000_000);

    fn entry(node: u32, age_ms: u64, runnable: f64) -> Entry {
        let condition = Condition::idle(1, 1.0).with_runnable(runnable);
        Entry::new(NodeId(node), 1, NOW - Span::from_millis(age_ms), Some(&condition))
    }

    fn members(entries: &[Entry]) -> Vec<Member> {
        entries.iter().map(|entry| Member::heard_of(entry, None)).collect()
    }

    fn chosen(entries: &[Entry], size: usize) -> Vec<u32> {
        let mut nodes = Vec::new();
        let take = |member: &Member| nodes.push(member.entry.node.0);
        select(NOW, &members(entries), Among::All, size, &Config::default(), take);
        nodes
    }

    #[test]
    fn the_newest_are_kept_where_nothing_is_of_use() {
        let entries: Vec<Entry> = (0..40).map(|n| entry(n, u64::from(n * 7 % 40), 1.0)).collect();
        let ages: Vec<u32> = chosen(&entries, 8).iter().map(|n| n * 7 % 40).collect();
        assert_eq!(ages.iter().max(), Some(&7), "{ages:?}");
    }

    #[test]
    fn the_idle_and_the_crowded_keep_their_places_among_newer_ones() {
        let mut entries: Vec<Entry> = (0..40).map(|n| entry(n, u64::from(n), 1.0)).collect();
        entries.push(entry(77, 5_000, 0.0));
        entries.push(entry(88, 5_000, 9.0));
        let nodes = chosen(&entries, 8);
        assert!(nodes.contains(&77) && nodes.contains(&88), "{nodes:?}");
        assert_eq!(nodes.len(), 8);
        // But not for ever.
        entries[40] = entry(77, 7_000, 0.0);
        assert!(!chosen(&entries, 8).contains(&77));
    }

    proptest! {
        #[test]
        fn the_order_of_the_entries_makes_no_difference(
            drawn in prop::collection::vec((0u64..9_000, 0u32..40, 0u8..3), 1..60),
            size in 1usize..24,
        ) {
            // All differ in age and in worth, so that there is one answer.
            let entries = drawn.iter().enumerate().map(|(nth, (age_ms, tenths, urgency))| {
                let age_ms = age_ms / 120 * 120 + 2 * nth as u64;
                let runnable = f64::from(*tenths) / 10.0 + nth as f64 / 1e3;
                let urgency = urgency / 2;
                Entry { urgency, ..entry(nth as u32, age_ms, runnable) }
            });
            let mut entries: Vec<Entry> = entries.collect();
            let mut usual = chosen(&entries, size);
            entries.sort_by_key(|entry| Reverse(entry.at));
            let mut nodes = chosen(&entries, size);
            usual.sort_unstable();
            nodes.sort_unstable();
            prop_assert_eq!(nodes, usual);
        }
    }

    proptest! {
        #[test]
        fn whoever_is_told_and_who_knows_nothing_of_himself_are_left_out(
            measured in prop::collection::vec(any::<bool>(), 1..200),
            listener in 0usize..200,
            size in 1usize..24,
        ) {
            let entries = measured.iter().enumerate().map(|(nth, is_measured)| {
                let cores = u16::from(*is_measured);
                Entry { cores, ..entry(nth as u32, 3 * nth as u64, 1.0) }
            });
            let members = members(&entries.collect::<Vec<Entry>>());
            let among = Among::ToTell((listener < members.len()).then_some(listener));
            let is_asked_for = |nth: &usize| measured[*nth] && *nth != listener;
            let mut newest: Vec<usize> = (0..members.len()).filter(is_asked_for).collect();
            newest.truncate(size);
            let mut nodes = Vec::new();
            let take = |member: &Member| nodes.push(member.entry.node.0 as usize);
            select(NOW, &members, among, size, &Config::default(), take);
            prop_assert_eq!(&nodes, &newest);
        }
    }

    #[test]
    fn urgent_news_goes_first() {
        let mut entries: Vec<Entry> = (0..40).map(|n| entry(n, u64::from(n), 1.0)).collect();
        entries.push(Entry { urgency: 3, ..entry(99, 9_000, 1.0) });
        assert!(chosen(&entries, 4).contains(&99));
    }
}
