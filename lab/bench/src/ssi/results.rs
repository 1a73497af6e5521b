//! What is measured, and what follows from it.

use crate::provenance::Provenance;
use crate::ssi::keys::Child;
use serde::{Deserialize, Serialize};

/// Processor time of one pair on a machine of today, s: only for how long to wait.
const PAIR_S: f64 = 0.02;

/// The same for all runs of a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub keys: u32,
    pub children: u32,
    pub seed: u64,
    /// Each node has what it would have if so many shared the half of the machine.
    pub of_nodes: u32,
    /// Children of the load beside which a migration is measured.
    pub load_children: u32,
    /// What is migrated computes for so long, s.
    pub cycle_s: f64,
}

impl Settings {
    /// What the run takes one node, about, s.
    pub fn least_run_s(&self) -> f64 {
        f64::from(self.keys) * PAIR_S * f64::from(self.of_nodes)
    }
}

/// One run of the workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// `native`, or a policy.
    pub manager: String,
    pub nodes: u32,
    pub run_s: f64,
    /// Of the machine meanwhile, in pieces in a second of a processor.
    pub pace: f64,
    /// Through the network of the home node, in both directions.
    pub home_bytes: u64,
    /// Through all networks, each byte once.
    pub bytes: u64,
    /// Of each node's processor that was used.
    pub used_pct: Vec<f64>,
    /// Of all nodes' processors that daemons, supervisors and copies used: beside their quotas.
    #[serde(default)]
    pub osmos_pct: f64,
    pub migrations: u32,
    pub freeze_ms_mean: f64,
    /// From when all children were there until they were spread evenly; none: they never were.
    pub balanced_after_s: Option<f64>,
    pub children: Vec<Child>,
    #[serde(default)]
    pub made: Option<Provenance>,
}

impl Run {
    /// Processor time that was used, in seconds of a node.
    pub fn work_s(&self) -> f64 {
        self.used_pct.iter().sum::<f64>() / 100.0 * self.run_s
    }
}

/// What a single migration costs a program that only computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    pub nodes: u32,
    pub is_loaded: bool,
    pub native_s: f64,
    pub moved_s: f64,
    pub moves: u32,
    pub total_ms_mean: f64,
    pub freeze_ms_mean: f64,
}

impl Overhead {
    pub fn cost_ms(&self) -> f64 {
        (self.moved_s - self.native_s) * 1e3
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    pub settings: Settings,
    pub runs: Vec<Run>,
    pub overheads: Vec<Overhead>,
}

/// The runs of one manager on so many nodes, as one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    pub nodes: u32,
    pub runs: usize,
    pub run_s: f64,
    /// Between the fastest and the slowest run.
    pub run_s_spread: f64,
    /// Processor time that the work took, in seconds of a node: the same each time, if a machine
    /// has nothing else to do, and its processors no neighbours.
    pub work_s: f64,
    pub speed_up: f64,
    pub efficiency_pct: f64,
    /// The same, had the nodes paid for what daemons, supervisors and copies used.
    pub efficiency_charged_pct: f64,
    /// The most that is possible: its longest child, or all work on all nodes, whichever is longer.
    pub efficiency_pct_max: f64,
    pub home_kib: f64,
    pub migrations: f64,
    pub balanced_after_s: Option<f64>,
}

impl Results {
    /// Run times of all in seconds of one machine's pace: that of the first native run.
    fn steady_s(&self, run: &Run) -> f64 {
        let reference = self.runs.iter().find(|run| run.manager == NATIVE);
        run.run_s * reference.map_or(1.0, |reference| run.pace / reference.pace)
    }

    /// Of one node without Osmos, s; none: that was not run.
    pub fn alone_s(&self) -> Option<f64> {
        mean(self.of(NATIVE, 1).map(|run| self.steady_s(run)))
    }

    fn of<'a>(&'a self, manager: &'a str, nodes: u32) -> impl Iterator<Item = &'a Run> + Clone {
        self.runs.iter().filter(move |run| run.manager == manager && run.nodes == nodes)
    }

    /// What came of a manager on each number of nodes.
    pub fn points(&self, manager: &str) -> Vec<Point> {
        let mut counts: Vec<u32> =
            self.runs.iter().filter(|run| run.manager == manager).map(|run| run.nodes).collect();
        counts.sort_unstable();
        counts.dedup();
        counts.into_iter().filter_map(|nodes| self.point(manager, nodes)).collect()
    }

    fn point(&self, manager: &str, nodes: u32) -> Option<Point> {
        let runs = self.of(manager, nodes);
        let times = runs.clone().map(|run| self.steady_s(run));
        let run_s = mean(times.clone())?;
        let alone_s = self.alone_s()?;
        let speed_up = alone_s / run_s;
        let per_node = |speed_up: f64| 100.0 * speed_up / f64::from(nodes);
        let osmos_pct = mean(runs.clone().map(|run| run.osmos_pct))?;
        Some(Point {
            nodes,
            runs: runs.clone().count(),
            run_s,
            run_s_spread: times.clone().fold(0.0, f64::max) - times.fold(f64::MAX, f64::min),
            work_s: mean(runs.clone().map(Run::work_s))?,
            speed_up,
            efficiency_pct: per_node(speed_up),
            efficiency_charged_pct: per_node(speed_up) / (1.0 + osmos_pct / 100.0),
            efficiency_pct_max: per_node(self.speed_up_max(nodes)),
            home_kib: mean(runs.clone().map(|run| run.home_bytes as f64 / 1024.0))?,
            migrations: mean(runs.clone().map(|run| f64::from(run.migrations)))?,
            balanced_after_s: mean(runs.filter_map(|run| run.balanced_after_s)),
        })
    }

    /// No schedule can do more: a child computes on one node at a time.
    fn speed_up_max(&self, nodes: u32) -> f64 {
        let native = self.runs.iter().find(|run| run.manager == NATIVE);
        let used = native.map_or(&[][..], |run| &run.children).iter().map(|child| child.used_s);
        let (total, longest) = (used.clone().sum::<f64>(), used.fold(0.0, f64::max));
        if longest > 0.0 { f64::from(nodes).min(total / longest) } else { f64::from(nodes) }
    }

    /// Children whose pairs are not those that a native run made.
    pub fn violations(&self) -> Vec<String> {
        let digests = |run: &Run| -> Vec<(u32, u32, u64)> {
            run.children.iter().map(|child| (child.nth, child.keys, child.digest)).collect()
        };
        let Some(native) = self.runs.iter().find(|run| run.manager == NATIVE) else {
            return Vec::new();
        };
        let expected = digests(native);
        let wrong = self.runs.iter().filter(|run| digests(run) != expected);
        wrong
            .map(|run| format!("other pairs than natively: {} on {} nodes", run.manager, run.nodes))
            .collect()
    }
}

/// The manager of runs without Osmos.
pub const NATIVE: &str = "native";

/// None of nothing.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(manager: &str, nodes: u32, run_s: f64, pace: f64) -> Run {
        let child = |nth, used_s| Child { nth, keys: 1, used_s, digest: 7 };
        Run {
            manager: manager.into(),
            nodes,
            run_s,
            pace,
            home_bytes: 2048,
            bytes: 2048,
            used_pct: vec![50.0; nodes as usize],
            osmos_pct: 0.0,
            migrations: 2,
            freeze_ms_mean: 0.0,
            balanced_after_s: Some(1.0),
            children: vec![child(0, 6.0), child(1, 4.0)],
            made: None,
        }
    }

    fn results(runs: Vec<Run>) -> Results {
        let settings =
            Settings { keys: 2, children: 2, seed: 1, of_nodes: 8, load_children: 4, cycle_s: 1.0 };
        Results { settings, runs, overheads: vec![] }
    }

    #[test]
    fn speed_up_is_against_one_node_without_osmos_at_the_same_pace() {
        let all = results(vec![run(NATIVE, 1, 100.0, 1.0), run("osmos", 2, 40.0, 1.5)]);
        let point = &all.points("osmos")[0];
        assert!((point.run_s - 60.0).abs() < 1e-9, "what takes 40 s on a machine faster by a half");
        assert!((point.speed_up - 100.0 / 60.0).abs() < 1e-9);
        assert!((point.work_s - 40.0).abs() < 1e-9, "two nodes at half for 40 s");
        assert!((point.efficiency_pct - 100.0 / 1.2).abs() < 1e-9);
        // Ten seconds of work, of which one child has six.
        assert!((point.efficiency_pct_max - 100.0 * 10.0 / 6.0 / 2.0).abs() < 1e-9);
        assert!(results(vec![run("osmos", 2, 40.0, 1.0)]).points("osmos").is_empty());
    }

    #[test]
    fn pairs_that_differ_from_the_native_ones_are_told() {
        let mut wrong = run("fifo", 3, 1.0, 1.0);
        wrong.children[1].digest = 8;
        let all = results(vec![run(NATIVE, 1, 1.0, 1.0), run("osmos", 2, 1.0, 1.0), wrong]);
        assert_eq!(all.violations(), ["other pairs than natively: fifo on 3 nodes"]);
    }
}
