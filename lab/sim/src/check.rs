//! What must hold in every run, whatever the scenario: watched while it runs, told at its end.

use crate::node::SimNode;
use crate::process::Whereabouts;
use crate::world::World;
use brain::{Span, Time};
use serde::Serialize;

/// Between two looks at all nodes.
const LOOK_EVERY: Span = Span::from_millis(250);
/// All processes are counted this often.
const COUNT_EVERY: Span = Span::from_secs(10);
/// A freeze longer than this has not thawed.
const FREEZE_MAX: Span = Span::from_secs(600);
const VIOLATIONS_MAX: usize = 20;
/// No core of the node stands idle.
const BUSY: Time = Time(u64::MAX);

#[derive(Debug, Default)]
pub(crate) struct Checks {
    looked_at: Time,
    counted_at: Time,
    /// For each node, since when it has had an idle core while a process waited elsewhere.
    idle_since: Vec<Time>,
    /// Of each node. Apart from the nodes, as going through a thousand of these misses the caches.
    stands: Vec<f64>,
    pub idle_longest: Span,
    /// Core seconds that stood idle while a process waited.
    pub wasted_s: f64,
    /// Moves back to where the process came from within a minute, rotation aside.
    pub flew_back: u64,
    pub violations: Vec<String>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Findings {
    /// The longest that a core stood idle while a process that could move waited elsewhere.
    pub idle_longest_s: f64,
    pub wasted_core_s: f64,
    pub flew_back: u64,
    /// Broken invariants; empty if all is well.
    pub violations: Vec<String>,
}

impl Checks {
    pub fn violated(&mut self, text: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(text);
        }
    }

    pub fn findings(&self) -> Findings {
        Findings {
            idle_longest_s: self.idle_longest.as_secs_f64(),
            wasted_core_s: self.wasted_s,
            flew_back: self.flew_back,
            violations: self.violations.clone(),
        }
    }
}

/// Cores that stand idle on a node and are open to others; less than none if threads of processes
/// that could move wait there.
fn stand(node: &SimNode) -> f64 {
    if !node.is_on() {
        return 0.0;
    }
    let movable = node.demand() - f64::from(node.background);
    let waiting = node.waiting().min(movable);
    if waiting > 0.0 {
        return -waiting;
    }
    if node.is_closed { 0.0 } else { node.idle_cores() }
}

impl World {
    /// To be called when a node is new, its threads have changed, or whether it is there or open.
    pub(crate) fn note_stand(&mut self, index: u32) {
        self.checks.stands.resize(self.nodes.len(), 0.0);
        self.checks.stands[index as usize] = stand(&self.nodes[index as usize]);
    }

    /// Is a core idle while something waits that could use it?
    pub(crate) fn check_idleness(&mut self) {
        let passed = self.now.since(self.checks.looked_at);
        if passed < LOOK_EVERY {
            return;
        }
        self.checks.looked_at = self.now;
        self.checks.idle_since.resize(self.nodes.len(), BUSY);
        let cut = self.cut.map_or(self.nodes.len(), |cut| cut as usize);
        for side in [0..cut.min(self.nodes.len()), cut.min(self.nodes.len())..self.nodes.len()] {
            let stands = &self.checks.stands[side.clone()];
            let waiting: f64 = stands.iter().map(|stand| (-stand).max(0.0)).sum();
            let mut idle = 0.0;
            for (since, room) in self.checks.idle_since[side].iter_mut().zip(stands) {
                // `as` makes nothing of less than none.
                idle += f64::from(*room as u32);
                if *room < 1.0 || waiting < 1.0 {
                    *since = BUSY;
                } else {
                    *since = self.now.min(*since);
                    let lasted = self.now.since(*since);
                    self.checks.idle_longest = self.checks.idle_longest.max(lasted);
                }
            }
            self.checks.wasted_s += idle.min(waiting.floor()) * passed.as_secs_f64();
        }
        if self.now.since(self.checks.counted_at) >= COUNT_EVERY {
            self.checks.counted_at = self.now;
            self.check_places();
        }
    }

    /// Every process is in exactly one place, and the nodes stand as was noted.
    pub(crate) fn check_places(&mut self) {
        let mut listed = vec![0u32; self.processes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            if self.checks.stands[index] != stand(node) {
                self.checks.violated(format!("how node {} stands was not noted", index + 1));
            }
            for process in &node.processes {
                listed[*process as usize] += 1;
                let there = match self.processes[*process as usize].at {
                    Whereabouts::On(at) => at,
                    Whereabouts::Leaving { from, .. } | Whereabouts::Frozen { from, .. } => from,
                    _ => u32::MAX,
                };
                if there as usize != index {
                    let text = format!("process {process} is listed on node {}", index + 1);
                    self.checks.violated(text);
                }
            }
        }
        for (index, process) in self.processes.iter().enumerate() {
            let expected = match process.at {
                Whereabouts::On(_) | Whereabouts::Leaving { .. } | Whereabouts::Frozen { .. } => 1,
                _ => 0,
            };
            if listed[index] != expected {
                let text = format!("process {index} is in {} places", listed[index]);
                self.checks.violated(text);
            }
            let is_frozen = matches!(process.at, Whereabouts::Frozen { .. });
            if is_frozen && self.now.since(process.halted_at) > FREEZE_MAX {
                self.checks.violated(format!("process {index} was frozen and did not thaw"));
            }
        }
    }
}
