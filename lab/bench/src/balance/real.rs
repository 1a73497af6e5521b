//! One trial in a lab, for real: the same scenario, the same works, the same optimum as in the
//! simulator, and real processes that are really moved.

use crate::balance::crew::{self, Ended};
use crate::balance::guest::{self, Memory};
use crate::balance::happenings::{self, Happenings};
use crate::balance::policy::Policy;
use crate::balance::scale::{self, Turns};
use crate::balance::stage::{Crew, Stage, Unit, Used};
use crate::balance::trial::{Measure, Row, Trial, over_pct};
use anyhow::{Context, Result, ensure};
use sim::scenario::{Job, MoveCost, Scenario, Work};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wire::control::{Event, Happening, Migration};
use wire::ids::GlobalPid;

/// Guests that take so much longer than the least possible have gone wrong.
const PATIENCE: f64 = 12.0;
/// A move back within this is flying to and fro, s.
const FLIGHT_S: f64 = 60.0;
/// The part of an endless run after which nothing has to move any more.
const SETTLED_PART: f64 = 0.2;
const SIGKILL: i32 = 9;
/// Simulated runs beside one real one.
const TWINS: u64 = 9;
const INSTANT_MBIT_PER_S: f64 = 1e9;

/// The units of before and after a run may differ by this, beyond what the pace explains, %.
const UNIT_DRIFT_PCT_MAX: f64 = 1.5;
/// The part of their quotas that nodes get if the machine has nothing else to do, %.
const QUOTA_HAD_PCT_MIN: f64 = 98.0;

/// The note that says when the run would have ended, had all nodes paid for what daemons,
/// supervisors and copies used.
pub const CHARGED_S: &str = "charged_s";
/// How much of the nodes' processor time these used.
const OSMOS_PCT: &str = "osmos_pct_of_nodes";

/// What came of a run, and what a move took in it.
pub struct Real {
    pub row: Row,
    pub moves: MoveCost,
    /// Why its times mean nothing, as the native measurements around it show.
    pub unsure: Option<String>,
}

/// What a lab can play.
pub fn check(scenario: &Scenario) -> Result<()> {
    let nodes = scenario.nodes_count() + happenings::newcomers(scenario).len();
    ensure!(nodes <= 32, "a lab of {nodes} nodes is too large");
    ensure!(scenario.nodes.iter().all(|group| group.cores == 1), "nodes of a lab have one core");
    let mut sizes = scenario.nodes.iter().map(|group| group.memory_mib);
    let first = sizes.next().unwrap_or_default();
    ensure!(sizes.all(|size| size == first), "nodes of a lab have equal memories");
    let computes = scenario.jobs.iter().all(|job| job.demand >= 1.0);
    ensure!(computes, "guests of a lab wait for nothing while they compute");
    Happenings::of(scenario, 0, 0.0).map(|_| ())
}

/// `trial` is as long as it is to be.
pub fn run(trial: &Trial, policy: Policy) -> Result<Real> {
    let scenario = trial.placed(policy);
    check(&scenario)?;
    let nodes = scenario.nodes_count();
    let drawn: Vec<Vec<(u32, f64)>> =
        (0..).zip(&scenario.jobs).map(|(nth, job)| job.draw(nth, nodes, trial.seed)).collect();
    let works: Vec<f64> = drawn.iter().flatten().map(|(_, work_s)| *work_s).collect();
    let stage = Stage::up(&scenario, policy, trial.shortened)?;
    let busy = works.len() + scenario.background.iter().map(|others| others.count).sum::<usize>();
    let unit = stage.measure_unit(busy)?;
    stage.part_with_newcomers()?;
    stage.wait_until_known()?;
    let start_s = scenario.jobs.first().map_or(0.0, |job| job.start_s);
    let patience_s = match works.iter().all(|work_s| work_s.is_finite()) {
        true => PATIENCE * trial.least_makespan_s(&works, &[]),
        false => scenario.limit_s * 1.2 + PATIENCE,
    };
    let others = scale::turns(&scenario.background, nodes, trial.seed, start_s + patience_s);
    let crews = crews(&scenario, &drawn, unit.rounds_per_s);
    // They begin before the work, and are there to its end.
    let others_running = stage.accompany(&company(&others))?;
    if !others.is_empty() {
        std::thread::sleep(Duration::from_secs_f64(start_s));
    }
    let happenings = Happenings::of(&scenario, trial.seed, patience_s)?;
    let since_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    let (before, began) = (Used::of_all(&stage.used()), stage.mark());
    let ended = stage.run_amid(&happenings, &crews, Duration::from_secs_f64(patience_s))?;
    let used = Used::of_all(&stage.used()).since(before);
    let pace = stage.pace_since(&began)?;
    let mut events = stage.events(crews.iter().map(|crew| crew.node))?;
    events.retain(|event| event.time >= since_s);
    drop(others_running);
    // What others compute goes on until the lab ends, and would be measured as a slower node; and
    // where nodes have gone there is less to measure.
    let is_as_before = others.is_empty() && happenings.keep_nodes();
    let after = if is_as_before { stage.measure_unit(busy)? } else { unit };
    let units = [unit, after];
    let (is_awake, is_expedited) = (stage.is_awake(), stage.is_expedited());
    stage.down()?;
    let firsts = ended.iter().flatten().map(|guest| since_s + guest.ended_s);
    let is_endless = works.iter().any(|work_s| work_s.is_infinite());
    let steady_until_s = firsts.filter(|_| is_endless).fold(f64::INFINITY, f64::min);
    let crashed = happenings::crashing(&scenario);
    let seen = Seen {
        steady_until_s,
        crews,
        ended,
        events,
        since_s,
        used,
        works,
        others,
        units,
        pace,
        is_awake,
        is_expedited,
        crashed,
    };
    Ok(Real { row: seen.row(trial), moves: seen.move_cost(), unsure: seen.unsure() })
}

/// One for each job and node.
fn crews(scenario: &Scenario, drawn: &[Vec<(u32, f64)>], rounds_per_s: f64) -> Vec<Crew> {
    let mut crews = Vec::new();
    for (job, drawn) in scenario.jobs.iter().zip(drawn) {
        let mut by_node: BTreeMap<u32, Vec<guest::Plan>> = BTreeMap::new();
        for (node, work_s) in drawn {
            let guest = guest_of(job, *work_s, scenario.limit_s, rounds_per_s);
            by_node.entry(*node).or_default().push(guest);
        }
        crews.extend(by_node.into_iter().map(|(node, guests)| Crew {
            node: node + 1,
            plan: crew::Plan { guests, is_managed: true, is_group: job.is_group },
        }));
    }
    crews
}

fn guest_of(job: &Job, work_s: f64, limit_s: f64, rounds_per_s: f64) -> guest::Plan {
    if work_s.is_infinite() {
        return guest::Plan::Endless { seconds: limit_s };
    }
    let kib = |mib: f64| (mib * 1024.0) as u64;
    let memory = (job.growth_mib_per_s > 0.0).then(|| Memory {
        kib_first: kib(job.rss_mib),
        kib_last: kib(job.rss_mib_max),
        rounds_per_kib: (rounds_per_s / (job.growth_mib_per_s * 1024.0)) as u64,
    });
    guest::Plan::Compute { rounds: (work_s * rounds_per_s) as u64, memory }
}

fn company(others: &[Turns]) -> Vec<Crew> {
    let crew = |turns: &Turns| Crew {
        node: turns.node + 1,
        plan: crew::Plan {
            guests: vec![guest::Plan::ComeAndGo { turns_ms: turns.turns_ms.clone() }],
            is_managed: false,
            is_group: false,
        },
    };
    others.iter().map(crew).collect()
}

/// A run as it was seen.
struct Seen {
    crews: Vec<Crew>,
    ended: Vec<Vec<Ended>>,
    events: Vec<Event>,
    /// When it began, in seconds since the epoch.
    since_s: f64,
    /// When the first of those ended that would go on for ever: what moves then is no steady load.
    steady_until_s: f64,
    used: Used,
    works: Vec<f64>,
    others: Vec<Turns>,
    /// Before the run and after it.
    units: [Unit; 2],
    /// Of the machine in between, as in [`Unit::pace`].
    pace: f64,
    /// Its processors did not sleep.
    is_awake: bool,
    /// Moved processes entered cgroups at once.
    is_expedited: bool,
    /// Nodes that did, with all that ran there.
    crashed: BTreeSet<u32>,
}

impl Seen {
    /// A second of this run in seconds of the unit that the works were made for.
    fn second(&self) -> f64 {
        let [before, after] = self.units.map(|unit| unit.at(self.pace));
        (before + after) / 2.0 / self.units[0].rounds_per_s
    }

    /// By how many per cent the second unit differs from the first when both have one pace.
    fn unit_drift_pct(&self) -> f64 {
        let [before, after] = self.units;
        100.0 * (after.at(before.pace) / before.rounds_per_s - 1.0)
    }

    fn quota_had_pct(&self) -> f64 {
        100.0 * self.units.map(|unit| unit.had).into_iter().fold(f64::INFINITY, f64::min)
    }

    fn unsure(&self) -> Option<String> {
        unsure(self.unit_drift_pct(), self.quota_had_pct())
    }

    fn row(&self, trial: &Trial) -> Row {
        let ended = || self.ended.iter().flatten().filter(|guest| !self.is_lost(guest));
        let makespan_s = ended().map(|guest| guest.ended_s).fold(0.0, f64::max);
        let taken_s: f64 = ended().map(|guest| guest.ended_s - guest.started_s).sum();
        let second = self.second();
        let works: Vec<f64> = self.works.iter().map(|work_s| work_s / second).collect();
        let (measured, optimum) = match trial.measure {
            Measure::Lost => (makespan_s * trial.speeds().iter().sum::<f64>(), self.used.work_s),
            // Load of others began as long before the guests as it does in the simulator.
            _ => {
                let least_s = trial.least_makespan_s(&works, &scale::changes(&self.others));
                (makespan_s * second, least_s * second)
            }
        };
        let mut notes = self.notes(trial);
        let speed: f64 = trial.speeds().iter().sum();
        let charged_s = makespan_s + self.used.system_s / speed;
        notes.insert(CHARGED_S.into(), charged_s * second);
        notes.insert(OSMOS_PCT.into(), 100.0 * self.used.system_s / (makespan_s * speed));
        Row {
            label: trial.label.clone(),
            seed: trial.seed,
            processes: self.works.len(),
            measured,
            optimum,
            over_optimum_pct: over_pct(measured, optimum),
            is_counted: trial.is_counted,
            completion_mean_s: taken_s * second / self.works.len().max(1) as f64,
            migrations: self.migrations().count() as u64,
            rotations: self.turns().count() as u64,
            // No figures at all add up to a zero below zero.
            frozen_s: 0.0 + self.migrations().map(|(_, _, made)| made.freeze_ms).sum::<f64>() / 1e3,
            frozen_pct_max: self.frozen_pct_max(),
            kbit_per_s: None,
            violations: self.violations(notes.contains_key("killed_for_memory")),
            notes,
        }
    }

    /// It was on a node that crashed.
    fn is_lost(&self, guest: &Ended) -> bool {
        !self.crashed.is_empty() && guest.wait_status & 0x7f == SIGKILL
    }

    fn migrations(&self) -> impl Iterator<Item = (f64, GlobalPid, &Migration)> {
        self.events.iter().filter_map(|event| match &event.what {
            Happening::Migrated(made) if event.time < self.steady_until_s => {
                Some((event.time, event.pid?, made))
            }
            _ => None,
        })
    }

    fn turns(&self) -> impl Iterator<Item = (f64, GlobalPid, &Migration)> {
        self.migrations().filter(|(_, _, made)| is_turn(made))
    }

    /// Moves that are meant to last.
    fn moves(&self) -> impl Iterator<Item = (f64, GlobalPid, &Migration)> {
        self.migrations().filter(|(_, _, made)| !is_turn(made))
    }

    /// The largest part of its time for which a guest stood still.
    fn frozen_pct_max(&self) -> f64 {
        let mut frozen_ms: BTreeMap<GlobalPid, f64> = BTreeMap::new();
        for (_, process, made) in self.migrations() {
            *frozen_ms.entry(process).or_default() += made.freeze_ms;
        }
        let guests = self
            .crews
            .iter()
            .zip(&self.ended)
            .flat_map(|(crew, ended)| ended.iter().map(move |guest| (crew.node, guest)));
        let part = |(node, guest): (u32, &Ended)| {
            let of = |process: &&GlobalPid| process.home.0 == node && process.pid.0 == guest.pid;
            let stood_ms = frozen_ms.iter().find(|(process, _)| of(process)).map_or(0.0, |f| *f.1);
            stood_ms / 10.0 / (guest.ended_s - guest.started_s).max(1e-9)
        };
        guests.map(part).fold(0.0, f64::max)
    }

    fn notes(&self, trial: &Trial) -> BTreeMap<String, f64> {
        let mut notes = BTreeMap::new();
        let mut note = |name: &str, value: f64| notes.insert(name.to_owned(), value);
        note("quota_had_pct", self.quota_had_pct());
        note("unit_drift_pct", self.unit_drift_pct().abs());
        note("kept_awake", f64::from(u8::from(self.is_awake)));
        note("expedited", f64::from(u8::from(self.is_expedited)));
        note("pace_drift_pct", 100.0 * (self.pace / self.units[0].pace - 1.0).abs());
        let work_s: f64 = self.works.iter().sum();
        if work_s.is_finite() {
            note("used_for_work_pct", 100.0 * self.used.work_s * self.second() / work_s);
        }
        let freezes = || self.migrations().map(|(_, _, made)| made.freeze_ms);
        let count = self.migrations().count();
        if count > 0 {
            note("freeze_ms_mean", freezes().sum::<f64>() / count as f64);
            note("freeze_ms_max", freezes().fold(0.0, f64::max));
        }
        let homeward = |event: &&Event| matches!(event.what, Happening::CameHome { .. });
        note("came_home", self.events.iter().filter(homeward).count() as f64);
        note("flew_back", self.flew_back() as f64);
        if matches!(trial.measure, Measure::Lost) {
            let settled_s = self.since_s + trial.scenario.limit_s * SETTLED_PART;
            let late = self.moves().filter(|(time, ..)| *time > settled_s).count();
            note("migrations_after_settling", late as f64);
        }
        if !self.crashed.is_empty() {
            let lost = self.ended.iter().flatten().filter(|guest| self.is_lost(guest));
            note("lost", lost.count() as f64);
        }
        if trial.scenario.jobs.iter().any(|job| job.growth_mib_per_s > 0.0) {
            let killed = |guest: &&Ended| guest.wait_status & 0x7f == SIGKILL;
            let killed = self.ended.iter().flatten().filter(killed).count();
            note("killed_for_memory", killed as f64);
        }
        notes
    }

    fn flew_back(&self) -> usize {
        let mut last: BTreeMap<GlobalPid, (f64, &Migration)> = BTreeMap::new();
        let mut count = 0;
        for (time, process, made) in self.moves() {
            let before = last.insert(process, (time, made));
            let is_back = |(left_at, left): (f64, &Migration)| {
                left.from == made.to && time - left_at < FLIGHT_S
            };
            count += usize::from(before.is_some_and(is_back));
        }
        count
    }

    /// Guests that did not end well, or did not do what they should.
    fn violations(&self, may_be_killed: bool) -> Vec<String> {
        let mut violations = Vec::new();
        for (crew, ended) in self.crews.iter().zip(&self.ended) {
            for (plan, guest) in crew.plan.guests.iter().zip(ended) {
                let Ended { pid, wait_status, output, .. } = guest;
                let node = crew.node;
                if may_be_killed && wait_status & 0x7f == SIGKILL || self.is_lost(guest) {
                    continue;
                }
                if *wait_status != 0 {
                    violations.push(format!("guest {pid} of node {node} ended with {wait_status}"));
                } else if let guest::Plan::Compute { rounds, .. } = plan
                    && *output != guest::expected(*rounds).to_string()
                {
                    violations.push(format!("guest {pid} of node {node} says {output}"));
                }
            }
        }
        for event in &self.events {
            if let Happening::Lost { node, reason } = &event.what
                && !self.crashed.contains(&node.0)
            {
                violations.push(format!("a process was lost on node {node}: {}", reason.text));
            }
        }
        violations
    }

    /// What a move took here, for the simulator.
    fn move_cost(&self) -> MoveCost {
        let count = self.migrations().count().max(1) as f64;
        let mean = |of: fn(&Migration) -> f64| {
            self.migrations().map(|(_, _, made)| of(made)).sum::<f64>() / count
        };
        if self.migrations().next().is_none() {
            return MoveCost::default();
        }
        MoveCost {
            setup_ms: mean(|made| (made.total_ms - made.freeze_ms).max(0.0)),
            freeze_ms: mean(|made| made.freeze_ms),
            freeze_ms_per_thread: 0.0,
            ..MoveCost::default()
        }
    }
}

/// Told by nothing that Osmos does: what is measured cannot choose its runs.
fn unsure(unit_drift_pct: f64, quota_had_pct: f64) -> Option<String> {
    if unit_drift_pct.abs() > UNIT_DRIFT_PCT_MAX {
        return Some(format!("native work took {:+.1} % longer after it", -unit_drift_pct));
    }
    (quota_had_pct < QUOTA_HAD_PCT_MIN)
        .then(|| format!("nodes got {quota_had_pct:.1} % of their quotas"))
}

/// It changed places with another of its group, and will again.
fn is_turn(made: &Migration) -> bool {
    made.cause == "turn"
}

/// The same trial in the simulator, with moves that take what they took in the lab; several times
/// with other chances, where these do not draw other works. One run of a lab is one throw of dice.
pub fn simulated(trial: &Trial, policy: Policy, moves: &MoveCost) -> Result<Row> {
    let mut twin = trial.clone();
    twin.scenario.moves = moves.clone();
    // The transfer is part of what was measured.
    twin.scenario.network.mbit_per_s = INSTANT_MBIT_PER_S;
    let draws = twin.scenario.jobs.iter().any(|job| matches!(job.work, Work::Uniform(..)));
    let seeds = trial.seed..trial.seed + if draws { 1 } else { TWINS };
    let rows = seeds.map(|seed| Trial { seed, ..twin.clone() }.run(policy));
    let rows = rows.collect::<Result<Vec<Row>, String>>();
    Ok(Row::mean_of(&rows.map_err(anyhow::Error::msg).context("the simulated twin")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_on_a_machine_that_changed_means_nothing() {
        assert_eq!(unsure(-1.4, 98.1), None);
        let slower = unsure(-8.8, 100.0).expect("it became slower");
        assert!(slower.contains("+8.8 % longer"), "{slower}");
        let busy = unsure(0.0, 93.0).expect("it had something else to do");
        assert!(busy.contains("93.0 % of their quotas"), "{busy}");
    }
}
