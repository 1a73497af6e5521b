//! Which events were told already. Whoever begins to follow a node's events is told those before,
//! and a node that was away for a moment is followed anew.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use wire::control::{Event, Happening};
use wire::ids::NodeId;

/// Events of one node that are known again: more than a daemon tells of those before.
const KNOWN_MAX: usize = 8_192;

/// What was told, of all nodes.
#[derive(Debug, Default)]
pub struct Told {
    nodes: BTreeMap<NodeId, Known>,
}

/// By what they say, and not by their times: two may have the same one, and clocks are set back.
#[derive(Debug, Default)]
struct Known {
    all: HashSet<u64>,
    in_order: VecDeque<u64>,
    has_told_counts: bool,
}

impl Told {
    /// Whether an event was not told yet. From here on it was.
    pub fn is_news(&mut self, of: NodeId, event: &Event) -> bool {
        let known = self.nodes.entry(of).or_default();
        // Said anew whenever somebody asks, with the time at which he did.
        if matches!(event.what, Happening::Homecalls { .. }) {
            return !std::mem::replace(&mut known.has_told_counts, true);
        }
        let mut hasher = DefaultHasher::new();
        serde_json::to_string(event).unwrap_or_default().hash(&mut hasher);
        let hash = hasher.finish();
        if !known.all.insert(hash) {
            return false;
        }
        known.in_order.push_back(hash);
        if known.in_order.len() > KNOWN_MAX
            && let Some(oldest) = known.in_order.pop_front()
        {
            known.all.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time: f64, node: u32) -> Event {
        let status = "gone".to_owned();
        Event { time, pid: None, what: Happening::NodeStatus { node: NodeId(node), status } }
    }

    #[test]
    fn each_event_is_news_once_whatever_its_time() {
        let mut told = Told::default();
        let events = [event(5.0, 7), event(5.0, 8), event(3.0, 7)];
        let mut are_news = |of| [0, 1, 2].map(|nth: usize| told.is_news(of, &events[nth]));
        assert_eq!(are_news(NodeId(1)), [true; 3], "at one time, and on a clock that was set back");
        assert_eq!(are_news(NodeId(1)), [false; 3]);
        assert_eq!(are_news(NodeId(2)), [true; 3], "another node's");
    }

    #[test]
    fn counts_are_told_once() {
        let counts =
            |time| Event { time, pid: None, what: Happening::Homecalls { counts: Vec::new() } };
        let mut told = Told::default();
        assert!(told.is_news(NodeId(1), &counts(1.0)));
        assert!(!told.is_news(NodeId(1), &counts(2.0)));
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut told = Told::default();
        for time in 0..3 * KNOWN_MAX {
            assert!(told.is_news(NodeId(1), &event(time as f64, 7)));
        }
        let known = &told.nodes[&NodeId(1)];
        assert_eq!((known.all.len(), known.in_order.len()), (KNOWN_MAX, KNOWN_MAX));
    }
}
