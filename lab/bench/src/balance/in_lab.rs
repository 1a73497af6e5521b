//! The real half of the experiments: which of them a lab plays, one run after another.

use crate::balance::kept::{Kept, Pair};
use crate::balance::policy::Policy;
use crate::balance::real::{self, Real};
use crate::balance::trial::{Measure, Trial, over_pct};
use crate::balance::{optimum, scenarios};
use crate::provenance::Provenance;
use anyhow::{Context, Result, ensure};
use sim::scenario::Place;

/// What a lab plays, unless somebody names something else.
pub const NAMES: [&str; 6] =
    ["table1", "table1_preemptive", "background", "mixed", "steady", "memory"];
/// What it also plays.
const IF_NAMED: [&str; 3] = ["random", "loss", "churn"];
/// What the paper's processes of 300 s are shortened from.
const USUAL_S: f64 = 300.0;
/// How long nothing may move where nothing changes.
const STEADY_S: f64 = 600.0;

/// Runs of which the machine's state says that they mean nothing are repeated so often.
const REPEATS_MAX: u32 = 2;

/// What is to be run.
pub struct Choice {
    pub names: Vec<String>,
    pub policies: Vec<Policy>,
    pub seeds: Vec<u64>,
    /// Only these numbers of processes; all if empty.
    pub rows: Vec<usize>,
    /// What 300 s of a scenario take, s.
    pub job_s: f64,
    /// How long an endless run goes on, s, if not for ten minutes.
    pub steady_s: Option<f64>,
}

/// Runs all that is chosen and not kept yet. `told` hears of each run when it begins.
pub fn run(choice: &Choice, kept: &Kept, mut told: impl FnMut(&str)) -> Result<()> {
    for name in choice.names.iter().filter(|name| *name != "table1_preemptive") {
        for trial in trials(choice, name)? {
            for policy in &choice.policies {
                if kept.has(name, *policy, &trial.label, trial.seed) {
                    continue;
                }
                let what = format!("{name}, {}, {}", trial.label, policy.name());
                told(&what);
                let real = run_surely(&trial, *policy, &mut told).with_context(|| what.clone())?;
                let sim = real::simulated(&trial, *policy, &real.moves)?;
                kept.keep(&Pair {
                    scenario: name.clone(),
                    policy: policy.name().to_owned(),
                    job_s: choice.job_s,
                    setup_ms: real.moves.setup_ms,
                    freeze_ms: real.moves.freeze_ms,
                    lab: real.row,
                    sim,
                    made: Some(Provenance::now()),
                })?;
            }
        }
    }
    Ok(())
}

/// Until the machine was the same before and after, or as often as is reasonable. How often says
/// the note `repeated`.
fn run_surely(trial: &Trial, policy: Policy, told: &mut impl FnMut(&str)) -> Result<Real> {
    let mut repeated = 0;
    loop {
        let mut real = real::run(trial, policy)?;
        match &real.unsure {
            Some(why) if repeated < REPEATS_MAX => told(&format!("once more, as {why}")),
            _ => {
                real.row.notes.insert("repeated".into(), f64::from(repeated));
                return Ok(real);
            }
        }
        repeated += 1;
    }
}

fn trials(choice: &Choice, name: &str) -> Result<Vec<Trial>> {
    let is_played = NAMES.contains(&name) || IF_NAMED.contains(&name);
    ensure!(
        is_played || !scenarios::names().contains(&name),
        "{name} is for the simulator; a lab plays {NAMES:?}, and {IF_NAMED:?} if they are named"
    );
    let trials = scenarios::trials(name, &choice.seeds).with_context(|| {
        format!("there is no scenario {name}; there are {:?}", scenarios::names())
    })?;
    let shortened = trials.into_iter().map(|trial| {
        let mut trial = trial.shortened(USUAL_S / choice.job_s);
        if matches!(trial.measure, Measure::Lost) {
            trial.scenario.limit_s = choice.steady_s.unwrap_or(STEADY_S);
            trial.label = trial.label.replace("for an hour", "that go on");
        }
        trial
    });
    let is_asked = |trial: &Trial| choice.rows.is_empty() || choice.rows.contains(&count(trial));
    // Of a scenario that is played in part the rest is left to the simulator.
    let playable = |trial: &Trial| real::check(&trial.scenario).is_ok();
    Ok(shortened.filter(is_asked).filter(playable).collect())
}

fn count(trial: &Trial) -> usize {
    let nodes = trial.scenario.nodes_count();
    let of = |place: Place| if place == Place::Each { nodes } else { 1 };
    trial.scenario.jobs.iter().map(|job| job.count * of(job.place)).sum()
}

/// The runs of Table 1 against the best preemptive schedule.
pub fn with_preemptive(mut pairs: Vec<Pair>) -> Vec<Pair> {
    let of_table = |pair: &&Pair| pair.scenario == "table1";
    let mut again: Vec<Pair> = pairs.iter().filter(of_table).cloned().collect();
    for pair in &mut again {
        pair.scenario = "table1_preemptive".into();
        for row in [&mut pair.lab, &mut pair.sim] {
            row.optimum = optimum::preemptive(&vec![pair.job_s; row.processes], 16);
            row.over_optimum_pct = over_pct(row.measured, row.optimum);
        }
    }
    pairs.extend(again);
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(rows: &[usize]) -> Choice {
        Choice {
            names: Vec::new(),
            policies: Vec::new(),
            seeds: vec![1],
            rows: rows.to_vec(),
            job_s: 30.0,
            steady_s: None,
        }
    }

    #[test]
    fn what_a_lab_cannot_play_is_left_out_or_refused_by_name() {
        let played = |name| trials(&choice(&[]), name).map(|trials| trials.len());
        assert_eq!(played("table1").expect("a scenario"), 19);
        assert_eq!(played("memory").expect("one of two"), 1);
        assert_eq!(played("steady").expect("two of three"), 2);
        assert_eq!(played("loss").expect("four sizes"), 16);
        assert_eq!(played("churn").expect("with a crash and without"), 2);
        for name in ["large", "flood", "no-such-scenario"] {
            let error = format!("{:#}", played(name).expect_err(name));
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn rows_are_chosen_by_their_number_of_processes() {
        let chosen = trials(&choice(&[17, 31]), "table1").expect("a scenario");
        let labels: Vec<&str> = chosen.iter().map(|trial| trial.label.as_str()).collect();
        assert_eq!(labels, ["N=17", "N=31"]);
    }
}
