//! How a job of equal ranks is best spread over nodes: `osmos job run --nodes`.
//!
//! Rank by rank to the node that gives the next one the most of a processor, beside those that were
//! given a place before. What a node gives each never grows with their number, so the slowest rank
//! is as fast as it can be. Nothing is decided here: ranks begin where their launcher has them
//! begin.

use super::view::NodeView;
use crate::others::Status;
use crate::situation::Situation;
use crate::time::Time;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use wire::ids::NodeId;

/// Which ranks are to be spread over which nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spreading {
    pub ranks: u32,
    /// Each node takes so many at most.
    pub per_node_max: u32,
    /// These nodes; none: all that are alive and known, and this one.
    pub among: Vec<NodeId>,
    /// But not these. Without effect on nodes that are named.
    pub without: Vec<NodeId>,
}

/// Why they cannot be spread so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unspread {
    #[error("node {0} is not alive")]
    NotAlive(NodeId),
    #[error("there is no node for them")]
    NoNode,
    #[error("{fit} of them fit")]
    TooMany { fit: u64 },
}

/// A node, and how many ranks it was given.
#[derive(Clone, Copy, Debug)]
struct Place {
    node: NodeId,
    cores: f64,
    speed: f64,
    runnable: f64,
    placed: u32,
}

impl Place {
    /// One of which nothing is known counts as a core of the reference.
    fn of(view: &NodeView) -> Place {
        let (cores, speed) = match view.cores {
            0 => (1.0, 1.0),
            cores => (f64::from(cores), view.speed),
        };
        Place { node: view.node, cores, speed, runnable: view.runnable, placed: 0 }
    }

    /// What one more rank would get.
    fn next_share(&self) -> f64 {
        let threads = self.runnable + f64::from(self.placed) + 1.0;
        self.speed * (self.cores / threads).min(1.0)
    }
}

/// The one that comes next is the greatest.
impl Ord for Place {
    fn cmp(&self, other: &Place) -> Ordering {
        let by_share = self.next_share().total_cmp(&other.next_share());
        by_share
            .then_with(|| other.placed.cmp(&self.placed))
            .then_with(|| other.node.cmp(&self.node))
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Place) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Place) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Place {}

impl Situation {
    /// How many ranks each node is given, in the order of their numbers.
    pub fn spread(&self, now: Time, spreading: &Spreading) -> Result<Vec<(NodeId, u32)>, Unspread> {
        let places = places(&self.nodes(now), self.me, spreading)?;
        spread(places, spreading)
    }
}

fn places(views: &[NodeView], me: NodeId, spreading: &Spreading) -> Result<Vec<Place>, Unspread> {
    let is_alive = |view: &&NodeView| view.status == Status::Alive;
    if spreading.among.is_empty() {
        let usable = views.iter().filter(is_alive).filter(|view| {
            let is_known = view.cores > 0 || view.node == me;
            is_known && !spreading.without.contains(&view.node)
        });
        return Ok(usable.map(Place::of).collect());
    }
    let alive: BTreeMap<NodeId, Place> =
        views.iter().filter(is_alive).map(|view| (view.node, Place::of(view))).collect();
    let mut named = BTreeMap::new();
    for node in &spreading.among {
        let place = alive.get(node).ok_or(Unspread::NotAlive(*node))?;
        named.insert(*node, *place);
    }
    Ok(named.into_values().collect())
}

fn spread(places: Vec<Place>, spreading: &Spreading) -> Result<Vec<(NodeId, u32)>, Unspread> {
    let (ranks, max) = (spreading.ranks, spreading.per_node_max);
    if places.is_empty() {
        return Err(Unspread::NoNode);
    }
    let fit = places.len() as u64 * u64::from(max);
    if u64::from(ranks) > fit {
        return Err(Unspread::TooMany { fit });
    }
    let mut open = BinaryHeap::from(places);
    let mut given = BTreeMap::new();
    for _ in 0..ranks {
        let Some(mut place) = open.pop() else { break };
        place.placed += 1;
        given.insert(place.node, place.placed);
        if place.placed < max {
            open.push(place);
        }
    }
    Ok(given.into_iter().collect())
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::time::Span;
    use proptest::prelude::*;

    fn view(node: u32, cores: u32, speed: f64, runnable: f64) -> NodeView {
        NodeView {
            node: NodeId(node),
            status: Status::Alive,
            cores,
            speed,
            runnable,
            memory_total_bytes: 1 << 30,
            memory_free_bytes: 1 << 30,
            is_closed: false,
            age: Some(Span::ZERO),
        }
    }

    fn ranks(ranks: u32) -> Spreading {
        Spreading { ranks, per_node_max: u32::MAX, among: vec![], without: vec![] }
    }

    fn nodes(numbers: &[u32]) -> Vec<NodeId> {
        numbers.iter().copied().map(NodeId).collect()
    }

    /// As node 1 sees it.
    fn spread(views: &[NodeView], spreading: &Spreading) -> Result<Vec<(u32, u32)>, Unspread> {
        let spread = super::spread(places(views, NodeId(1), spreading)?, spreading)?;
        Ok(spread.into_iter().map(|(node, count)| (node.0, count)).collect())
    }

    #[test]
    fn each_rank_goes_where_it_gets_the_most_and_equal_nodes_take_turns() {
        let equal = [view(1, 4, 1.0, 0.0), view(2, 4, 1.0, 0.0), view(3, 4, 1.0, 0.0)];
        assert_eq!(spread(&equal, &ranks(1)), Ok(vec![(1, 1)]));
        assert_eq!(spread(&equal, &ranks(8)), Ok(vec![(1, 3), (2, 3), (3, 2)]));
        // Twice as fast: its four cores first, then it is as good with twice as many.
        let fast = [view(1, 4, 1.0, 0.0), view(2, 4, 2.0, 0.0)];
        assert_eq!(spread(&fast, &ranks(4)), Ok(vec![(2, 4)]));
        assert_eq!(spread(&fast, &ranks(12)), Ok(vec![(1, 4), (2, 8)]));
        assert_eq!(spread(&fast, &ranks(18)), Ok(vec![(1, 6), (2, 12)]));
        let busy = [view(1, 4, 1.0, 4.0), view(2, 4, 1.0, 0.0)];
        assert_eq!(spread(&busy, &ranks(4)), Ok(vec![(2, 4)]));
        assert_eq!(spread(&busy, &ranks(8)), Ok(vec![(1, 2), (2, 6)]));
    }

    #[test]
    fn a_bound_for_each_node_is_kept_to_and_what_does_not_fit_is_said() {
        let views = [view(1, 8, 4.0, 0.0), view(2, 1, 1.0, 0.0)];
        let bounded = |ranks, per_node_max| Spreading { per_node_max, ..self::ranks(ranks) };
        assert_eq!(spread(&views, &bounded(5, 3)), Ok(vec![(1, 3), (2, 2)]));
        assert_eq!(spread(&views, &bounded(6, 3)), Ok(vec![(1, 3), (2, 3)]));
        assert_eq!(spread(&views, &bounded(7, 3)), Err(Unspread::TooMany { fit: 6 }));
        assert_eq!(spread(&[], &ranks(1)), Err(Unspread::NoNode));
    }

    #[test]
    fn nodes_that_are_named_are_used_and_no_other_and_each_has_to_be_alive() {
        let suspect = NodeView { status: Status::Suspect, ..view(3, 4, 1.0, 0.0) };
        let views = [view(1, 4, 1.0, 0.0), view(2, 4, 1.0, 0.0), suspect, view(4, 0, 0.0, 0.0)];
        let among = |numbers: &[u32]| Spreading { among: nodes(numbers), ..ranks(4) };
        assert_eq!(spread(&views, &ranks(4)), Ok(vec![(1, 2), (2, 2)]));
        assert_eq!(spread(&views, &among(&[2, 2])), Ok(vec![(2, 4)]));
        assert_eq!(spread(&views, &among(&[2, 3])), Err(Unspread::NotAlive(NodeId(3))));
        assert_eq!(spread(&views, &among(&[9])), Err(Unspread::NotAlive(NodeId(9))));
        // Nothing is known of it, and somebody wants it all the same.
        assert_eq!(spread(&views, &among(&[4])), Ok(vec![(4, 4)]));
        let without = Spreading { without: nodes(&[1]), ..ranks(4) };
        assert_eq!(spread(&views, &without), Ok(vec![(2, 4)]));
        let unmeasured = [view(1, 0, 0.0, 0.0)];
        assert_eq!(spread(&unmeasured, &ranks(2)), Ok(vec![(1, 2)]), "there is always this one");
    }

    /// What the slowest of the ranks gets.
    fn slowest(views: &[NodeView], counts: &[u32]) -> f64 {
        let used = views.iter().zip(counts).filter(|(_, count)| **count > 0);
        let shares =
            used.map(|(view, count)| Place { placed: count - 1, ..Place::of(view) }.next_share());
        shares.fold(f64::INFINITY, f64::min)
    }

    /// All ways to give that many ranks to nodes that take so many each.
    fn all_ways(nodes: usize, ranks: u32, max: u32) -> Vec<Vec<u32>> {
        if nodes == 0 {
            return if ranks == 0 { vec![vec![]] } else { vec![] };
        }
        let firsts = 0..=ranks.min(max);
        let of_first = |first| {
            let rests = all_ways(nodes - 1, ranks - first, max);
            rests.into_iter().map(move |rest| [vec![first], rest].concat())
        };
        firsts.flat_map(of_first).collect()
    }

    proptest! {
        #[test]
        fn no_other_way_has_the_last_rank_end_earlier(
            kinds in proptest::collection::vec((1u32..4, 1u32..5, 0u32..5), 1..5),
            count in 1u32..8,
            max in 1u32..8,
        ) {
            let views: Vec<NodeView> = kinds
                .iter()
                .zip(1..)
                .map(|((cores, speed, load), node)| {
                    view(node, *cores, f64::from(*speed) / 2.0, f64::from(*load) / 2.0)
                })
                .collect();
            let spreading = Spreading { per_node_max: max, ..ranks(count) };
            let ways = all_ways(views.len(), count, max);
            match spread(&views, &spreading) {
                Ok(spread) => {
                    let spread: BTreeMap<u32, u32> = spread.into_iter().collect();
                    let count_of = |view: &NodeView| spread.get(&view.node.0).copied();
                    let counts: Vec<u32> =
                        views.iter().map(|view| count_of(view).unwrap_or(0)).collect();
                    prop_assert!(ways.contains(&counts));
                    let best = ways.iter().map(|way| slowest(&views, way)).fold(0.0, f64::max);
                    prop_assert_eq!(slowest(&views, &counts), best);
                }
                Err(unspread) => {
                    prop_assert!(ways.is_empty());
                    let fit = views.len() as u64 * u64::from(max);
                    prop_assert_eq!(unspread, Unspread::TooMany { fit });
                }
            }
        }
    }
}
