//! What a node measures of itself, for those who watch many of them (`osmos metrics`).
//!
//! Counts are since its daemon has started and only grow: whoever asks twice has what happened in
//! between, and sees by the start whether the daemon was another one. Everything is in base units,
//! seconds and bytes, as Prometheus wants it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Upper bounds of the buckets of spans, seconds. A move is to hold a program up for 20 ms at most,
/// so the bounds are closest there.
pub const SPAN_BOUNDS_S: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

/// One node, as it is now and as its daemon has counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// What people call it.
    pub name: Option<String>,
    pub version: String,
    /// When its daemon started, seconds since the epoch.
    pub started: f64,
    pub counts: Counts,
    pub cores: u32,
    /// Of one core, 1.0 being the reference speed.
    pub speed: f64,
    /// Runnable threads per core.
    pub load: f64,
    pub mem_total_bytes: u64,
    pub mem_free_bytes: u64,
    /// What guests that have left have left of their memory.
    pub imprint_bytes: u64,
    /// Its owner lets guests come now.
    pub takes_guests: bool,
    pub guests: u32,
    /// Processes that were born here: those here, and those elsewhere.
    pub own_here: u32,
    pub own_away: u32,
    /// Other nodes that it is linked to now.
    pub links: u32,
    /// All nodes of the cluster by what this one believes of them: `alive`, `suspect`, `gone`.
    pub nodes: BTreeMap<String, u32>,
    pub daemon: DaemonUse,
}

/// What happened since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Moves of processes that were born here, ordered and carried out, by who wanted them.
    pub moved: BTreeMap<String, u64>,
    /// Moves that were ordered and did not happen: the process stayed where it was.
    pub stayed: u64,
    /// Homecomings that nobody had ordered.
    pub came_home: u64,
    /// Processes that were lost with what they computed.
    pub lost: u64,
    /// Those of the moves that held a program up for longer than they were to.
    pub over_budget: u64,
    /// That moves have sent.
    pub bytes_sent: u64,
    /// How long programs stood still for moves.
    pub freezes: Spans,
    /// How long moves took from their order to their end.
    pub moves: Spans,
    /// Processes that came under Osmos here, and those of them that have ended.
    pub managed: u64,
    pub ended: u64,
    /// Calls of strangers that were met with silence.
    pub rejected: u64,
    /// Gossip datagrams that no member of this cluster had made, or that were old.
    pub datagrams_dropped: u64,
}

/// Spans of time, counted by their length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spans {
    /// All of them together.
    pub sum_s: f64,
    pub buckets: Vec<Bucket>,
    /// Those that are longer than the bounds of all buckets.
    pub longer: u64,
}

/// Spans up to a bound, and longer than the bound before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    pub up_to_s: f64,
    pub count: u64,
}

/// What the daemon itself takes of its node, without its supervisors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DaemonUse {
    /// Processor time of all its threads.
    pub cpu_s: f64,
    pub rss_bytes: u64,
    pub threads: u32,
    pub open_files: u32,
}

impl Default for Spans {
    fn default() -> Spans {
        let buckets = SPAN_BOUNDS_S.map(|up_to_s| Bucket { up_to_s, count: 0 }).to_vec();
        Spans { sum_s: 0.0, buckets, longer: 0 }
    }
}

impl Spans {
    pub fn add(&mut self, span_s: f64) {
        self.sum_s += span_s;
        match self.buckets.iter_mut().find(|bucket| span_s <= bucket.up_to_s) {
            Some(bucket) => bucket.count += 1,
            None => self.longer += 1,
        }
    }

    /// All that were added.
    pub fn count(&self) -> u64 {
        let counts = self.buckets.iter().map(|bucket| bucket.count);
        counts.fold(self.longer, u64::saturating_add)
    }
}

impl Counts {
    /// Moves that were carried out, whoever wanted them.
    pub fn moved_in_all(&self) -> u64 {
        self.moved.values().copied().fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_span_is_counted_once_where_it_belongs() {
        let mut spans = Spans::default();
        for span_s in [0.0, 0.001, 0.019, 0.02, 0.0201, 11.0] {
            spans.add(span_s);
        }
        let count = |up_to_s| spans.buckets.iter().find(|of| of.up_to_s == up_to_s).unwrap().count;
        assert_eq!((count(0.001), count(0.02), count(0.03), spans.longer), (2, 2, 1, 1));
        assert_eq!(spans.count(), 6);
        assert!((spans.sum_s - 11.0601).abs() < 1e-9);
    }
}
