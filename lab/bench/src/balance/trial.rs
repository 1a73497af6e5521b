//! One run of one scenario, and what it is measured against.

use crate::balance::optimum;
use crate::balance::policy::Policy;
use brain::Config;
use serde::{Deserialize, Serialize};
use sim::scenario::{Job, NodeGroup, Place, Scenario};
use sim::{Outcome, World};
use std::collections::BTreeMap;

/// What is compared with what.
#[derive(Clone, Debug)]
pub enum Measure {
    /// The makespan with the best schedule of whole processes.
    WholeProcess,
    /// With the best preemptive schedule of these very durations on these nodes.
    Preemptive,
    /// With what nobody can beat beside the background load as it was.
    Background,
    /// With all work of the time when nodes came and went, done without a pause.
    Churn,
    /// The most that a newcomer had at a time, with its fair share.
    NewcomerPeak,
    /// Frozen and idle core time, with none.
    Lost,
    /// How long the processes of the last job took on average, with all of it running on one node
    /// that has all the cores.
    Response,
}

#[derive(Clone, Debug)]
pub struct Trial {
    pub label: String,
    pub scenario: Scenario,
    pub seed: u64,
    pub measure: Measure,
    /// Whether it enters the mean of its scenario.
    pub is_counted: bool,
    /// How many times shorter it is than what it stands for.
    pub shortened: f64,
}

/// What came of a trial, in the simulator or in a lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub label: String,
    pub seed: u64,
    pub processes: usize,
    pub measured: f64,
    pub optimum: f64,
    pub over_optimum_pct: f64,
    pub is_counted: bool,
    pub completion_mean_s: f64,
    pub migrations: u64,
    /// Those of them that were turns.
    pub rotations: u64,
    pub frozen_s: f64,
    /// The largest part of its time for which a process stood still.
    pub frozen_pct_max: f64,
    /// Sent by a node's brain, where that was measured.
    pub kbit_per_s: Option<f64>,
    /// What else is worth knowing here.
    pub notes: BTreeMap<String, f64>,
    pub violations: Vec<String>,
}

impl Row {
    /// Of runs of one trial with other chances; of what is no mean, the greatest.
    pub fn mean_of(rows: &[Row]) -> Row {
        let [first, ..] = rows else { panic!("a mean of no runs") };
        let mean = |of: fn(&Row) -> f64| rows.iter().map(of).sum::<f64>() / rows.len() as f64;
        let mut notes = BTreeMap::<String, f64>::new();
        for (name, value) in rows.iter().flat_map(|row| &row.notes) {
            let greatest = notes.entry(name.clone()).or_insert(*value);
            *greatest = greatest.max(*value);
        }
        Row {
            measured: mean(|row| row.measured),
            optimum: mean(|row| row.optimum),
            over_optimum_pct: mean(|row| row.over_optimum_pct),
            completion_mean_s: mean(|row| row.completion_mean_s),
            migrations: mean(|row| row.migrations as f64).round() as u64,
            rotations: mean(|row| row.rotations as f64).round() as u64,
            frozen_s: mean(|row| row.frozen_s),
            frozen_pct_max: rows.iter().map(|row| row.frozen_pct_max).fold(0.0, f64::max),
            kbit_per_s: first.kbit_per_s.map(|_| mean(|row| row.kbit_per_s.unwrap_or(0.0))),
            notes,
            violations: rows.iter().flat_map(|row| row.violations.clone()).collect(),
            ..first.clone()
        }
    }
}

impl Trial {
    pub fn run(&self, policy: Policy) -> Result<Row, String> {
        self.run_with(policy, policy.config_of(self.shortened))
    }

    /// The same with brains of another configuration.
    pub fn run_with(&self, policy: Policy, config: Config) -> Result<Row, String> {
        let outcome = World::new(self.placed(policy), config, self.seed)?.run();
        self.row(&outcome)
    }

    /// The scenario with its processes where this policy starts them.
    pub fn placed(&self, policy: Policy) -> Scenario {
        let mut scenario = self.scenario.clone();
        if policy == Policy::Static {
            for job in &mut scenario.jobs {
                // PVM places each where it will stay; all others start where their user is.
                if matches!(job.place, Place::Node(_)) {
                    job.place = Place::RoundRobin;
                }
            }
        }
        scenario
    }

    fn row(&self, outcome: &Outcome) -> Result<Row, String> {
        let (measured, best) = self.compare(outcome)?;
        let frozen_pct = outcome.fates.iter().map(|fate| {
            let ended_s = fate.ended_s.unwrap_or(outcome.simulated_s);
            100.0 * fate.frozen_s / (ended_s - fate.started_s).max(1e-9)
        });
        Ok(Row {
            label: self.label.clone(),
            seed: self.seed,
            processes: outcome.fates.len(),
            measured,
            optimum: best,
            over_optimum_pct: over_pct(measured, best),
            is_counted: self.is_counted,
            completion_mean_s: outcome.completion_mean_s(),
            migrations: outcome.migrations,
            rotations: outcome.rotations,
            frozen_s: outcome.frozen_s,
            frozen_pct_max: frozen_pct.fold(0.0, f64::max),
            kbit_per_s: Some(outcome.kbit_per_s),
            notes: self.notes(outcome).into_iter().map(|(n, v)| (n.to_owned(), v)).collect(),
            violations: self.violations(outcome),
        })
    }

    fn compare(&self, outcome: &Outcome) -> Result<(f64, f64), String> {
        let works: Vec<f64> =
            outcome.fates.iter().map(|fate| fate.work_s).filter(|work| *work >= 0.0).collect();
        Ok(match self.measure {
            Measure::Preemptive if !self.wants_whole_cores() => {
                (outcome.makespan_s, self.least_of_threads_s(outcome))
            }
            Measure::WholeProcess | Measure::Preemptive | Measure::Background | Measure::Churn => {
                let best = self.least_makespan_s(&works, &outcome.background);
                (outcome.makespan_s, best)
            }
            Measure::NewcomerPeak => {
                let nodes = outcome.nodes;
                let fair = (outcome.fates.len() as f64 / nodes as f64).ceil();
                (f64::from(newcomer_peak(outcome)), fair)
            }
            Measure::Response => self.responses(outcome)?,
            Measure::Lost => {
                let all_s = outcome.simulated_s * self.speeds().len() as f64;
                let lost_s = outcome.frozen_s + outcome.findings.wasted_core_s;
                (all_s, all_s - lost_s)
            }
        })
    }

    /// The mean response of the last job, here and on one machine.
    fn responses(&self, outcome: &Outcome) -> Result<(f64, f64), String> {
        let last = self.scenario.jobs.len() as u32 - 1;
        let mean_s = |outcome: &Outcome| {
            let ended = outcome.fates.iter().filter(|fate| fate.job == last);
            let took: Vec<f64> =
                ended.filter_map(|fate| Some(fate.ended_s? - fate.started_s)).collect();
            took.iter().sum::<f64>() / took.len() as f64
        };
        let groups = self.scenario.nodes.iter();
        let cores = groups.map(|group| group.count as u32 * group.cores).sum();
        let one = NodeGroup { count: 1, cores, ..self.scenario.nodes[0].clone() };
        let scenario = Scenario { nodes: vec![one], ..self.scenario.clone() };
        let alone = World::new(scenario, Policy::Static.config(), self.seed)?.run();
        Ok((mean_s(outcome), mean_s(&alone)))
    }

    /// Each thread of each process as one, and none of them faster than its process could be on the
    /// node that is best for it: a bound of what processes of several threads can reach, each on
    /// one node at a time.
    fn least_of_threads_s(&self, outcome: &Outcome) -> f64 {
        let mut threads = Vec::new();
        let mut longest_s: f64 = 0.0;
        for fate in &outcome.fates {
            let Job { threads: count, demand, .. } = self.scenario.jobs[fate.job as usize];
            threads.extend((0..count).map(|_| fate.work_s / f64::from(count)));
            let rate = |group: &NodeGroup| group.speed * f64::from(count.min(group.cores));
            let best = self.scenario.nodes.iter().map(rate).fold(0.0, f64::max);
            longest_s = longest_s.max(fate.work_s / (best * demand));
        }
        longest_s.max(optimum::preemptive_mixed(&threads, &self.speeds()))
    }

    /// What nobody can beat with these works beside background load that was as `changes` says.
    pub fn least_makespan_s(&self, works: &[f64], changes: &[(f64, u32, u16)]) -> f64 {
        let work = works.first().copied().unwrap_or(0.0);
        let speeds = self.speeds();
        let start_s = self.scenario.jobs.first().map_or(0.0, |job| job.start_s);
        match self.measure {
            Measure::WholeProcess => optimum::whole_process(works.len(), work, speeds.len()),
            Measure::Background => {
                optimum::beside_background(works.len(), work, &speeds, changes, start_s)
            }
            Measure::Churn => crate::balance::churn::bound_s(&self.scenario, works, start_s),
            _ => optimum::preemptive_mixed(works, &speeds),
        }
    }

    /// One core each.
    fn wants_whole_cores(&self) -> bool {
        self.scenario.jobs.iter().all(|job| job.threads == 1 && job.demand == 1.0)
    }

    /// One for each core.
    pub fn speeds(&self) -> Vec<f64> {
        let groups = self.scenario.nodes.iter();
        groups.flat_map(|group| vec![group.speed; group.count * group.cores as usize]).collect()
    }

    fn notes(&self, outcome: &Outcome) -> BTreeMap<&'static str, f64> {
        let mut notes = BTreeMap::from([
            ("idle_longest_s", outcome.findings.idle_longest_s),
            ("flew_back", outcome.findings.flew_back as f64),
            ("refused", outcome.refused as f64),
        ]);
        if outcome.false_deaths > 0 || matches!(self.measure, Measure::Lost) {
            let node_h = outcome.simulated_s * outcome.nodes as f64 / 3_600.0;
            notes.insert("false_deaths_per_node_hour", outcome.false_deaths as f64 / node_h);
        }
        let settled = outcome.moves.iter().filter(|made| made.at_s > SETTLED_S);
        if matches!(self.measure, Measure::Lost) {
            let kept = settled.filter(|made| !made.is_rotation).count();
            notes.insert("migrations_after_settling", kept as f64);
        }
        if self.scenario.name == "memory" {
            notes.insert("paging_s", outcome.paging_s);
            notes.insert("paging_while_room_elsewhere_s", outcome.paging_needlessly_s);
            notes.insert("killed_for_memory", outcome.killed_for_memory as f64);
        }
        if self.scenario.name == "random" {
            let works: Vec<f64> = outcome.fates.iter().map(|fate| fate.work_s).collect();
            let speeds = self.speeds();
            let equal_s = optimum::equal_progress(&works, speeds.len());
            let best_s = optimum::preemptive_mixed(&works, &speeds);
            notes.insert("equal_progress_over_optimum_pct", over_pct(equal_s, best_s));
        }
        if outcome.lost > 0 {
            notes.insert("lost", outcome.lost as f64);
        }
        notes
    }

    /// Broken invariants, and work that should have ended and did not.
    fn violations(&self, outcome: &Outcome) -> Vec<String> {
        let mut violations = outcome.findings.violations.clone();
        let endless = outcome.fates.iter().filter(|fate| fate.work_s < 0.0).count();
        if outcome.unfinished > endless {
            violations.push(format!("{} processes have not ended", outcome.unfinished - endless));
        }
        violations
    }
}

/// After that nothing has to move any more where nothing changes.
pub const SETTLED_S: f64 = 120.0;

pub fn over_pct(measured: f64, best: f64) -> f64 {
    100.0 * (measured / best.max(1e-9) - 1.0)
}

/// The most processes that the last node, which began with none, had at a time.
fn newcomer_peak(outcome: &Outcome) -> u32 {
    let newcomer = outcome.nodes as u32;
    let (mut here, mut peak) = (0u32, 0);
    for made in &outcome.moves {
        here += u32::from(made.to == newcomer);
        here = here.saturating_sub(u32::from(made.from == newcomer));
        peak = peak.max(here);
    }
    peak
}
