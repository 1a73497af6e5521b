//! How busy each node was in the last hour: a sample now and then, a bounded number of them.

use client::picture::NodeRow;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use wire::ids::NodeId;

/// Between two samples.
pub const STEP_S: f64 = 10.0;
/// An hour of them.
const SAMPLES_MAX: usize = 360;
/// Of more nodes than these no history is kept.
const NODES_MAX: usize = 1_024;

/// Of one node, small: there are many.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Busy {
    node: NodeId,
    load: f32,
    /// Share of its memory that is in use.
    memory: f32,
}

#[derive(Debug)]
struct Sample {
    /// Seconds since the epoch.
    time: f64,
    nodes: Vec<Busy>,
}

#[derive(Debug, Default)]
pub struct History {
    samples: VecDeque<Sample>,
}

impl History {
    /// Takes a sample if the last one is old enough. Returns what browsers are to be told.
    pub fn take_in(&mut self, nodes: &[NodeRow], time: f64) -> Option<Value> {
        // A clock that was set back begins anew.
        if self.samples.back().is_some_and(|last| last.time > time) {
            self.samples.clear();
        }
        let is_due = self.samples.back().is_none_or(|last| time - last.time >= STEP_S - 0.5);
        if !is_due {
            return None;
        }
        let alive = nodes.iter().filter(|node| node.state == "alive");
        let nodes: Vec<Busy> = alive.take(NODES_MAX).map(busy).collect();
        let told: Vec<Value> =
            nodes.iter().map(|of| json!([of.node, short(of.load), short(of.memory)])).collect();
        self.samples.push_back(Sample { time, nodes });
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
        Some(json!({ "time": time, "nodes": told }))
    }

    /// All of it, a list for each node, with nothing where it was not alive.
    pub fn whole(&self) -> Value {
        let times: Vec<f64> = self.samples.iter().map(|sample| sample.time).collect();
        let empty = || vec![Value::Null; times.len()];
        let mut nodes: BTreeMap<NodeId, (Vec<Value>, Vec<Value>)> = BTreeMap::new();
        for (at, sample) in self.samples.iter().enumerate() {
            for of in &sample.nodes {
                let (load, memory) = nodes.entry(of.node).or_insert_with(|| (empty(), empty()));
                (load[at], memory[at]) = (short(of.load), short(of.memory));
            }
        }
        let nodes: Vec<Value> = nodes
            .into_iter()
            .map(|(node, (load, memory))| json!({ "id": node, "load": load, "memory": memory }))
            .collect();
        json!({ "step_s": STEP_S, "times": times, "nodes": nodes })
    }
}

fn busy(node: &NodeRow) -> Busy {
    let total = node.memory_total_bytes.max(1) as f32;
    Busy { node: node.id, load: node.load as f32, memory: node.memory_used_bytes() as f32 / total }
}

/// Two digits behind the point are more than can be seen.
fn short(value: f32) -> Value {
    json!((f64::from(value) * 100.0).round() / 100.0)
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::{node, picture};

    #[test]
    fn samples_are_as_far_apart_as_they_should_be_and_no_more_than_an_hour() {
        let mut history = History::default();
        let nodes = picture(&[node(1, "one"), node(2, "two")], &[]).nodes;
        let told = history.take_in(&nodes, 100.0).expect("the first one");
        assert_eq!(told["nodes"], json!([[1, 0.5, 0.25], [2, 0.5, 0.25]]));
        assert!(history.take_in(&nodes, 101.0).is_none());
        assert!(history.take_in(&nodes[..1], 110.0).is_some());
        let whole = history.whole();
        assert_eq!(whole["times"], json!([100.0, 110.0]));
        assert_eq!(
            whole["nodes"][1],
            json!({ "id": 2, "load": [0.5, null], "memory": [0.25, null] })
        );
        for at in 0..1_000 {
            history.take_in(&nodes, 200.0 + 10.0 * f64::from(at));
        }
        assert_eq!(history.samples.len(), SAMPLES_MAX);
        history.take_in(&nodes, 5.0);
        assert_eq!(history.samples.len(), 1, "a clock that was set back");
    }

    #[test]
    fn of_very_many_nodes_some_are_left_out() {
        let all: Vec<_> = (1..=NODES_MAX as u32 + 5).map(|id| node(id, "n")).collect();
        let mut history = History::default();
        let told = history.take_in(&picture(&all, &[]).nodes, 1.0).unwrap();
        assert_eq!(told["nodes"].as_array().map(Vec::len), Some(NODES_MAX));
    }
}
