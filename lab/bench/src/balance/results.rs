//! Runs the trials and puts the results into the shape that `--json` prints.

use crate::balance::optimum;
use crate::balance::policy::Policy;
use crate::balance::scenarios;
use crate::balance::trial::{Row, Trial, over_pct};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One policy in one scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// Over the rows that count, of each the mean of its runs; not a number (null in JSON) where
    /// there are none.
    pub over_optimum_pct_mean: f64,
    /// Of all runs of these rows.
    pub over_optimum_pct_max: f64,
    pub rows: Vec<Row>,
    /// Of all rows.
    pub migrations: u64,
    pub frozen_s: f64,
}

/// By scenario and policy.
pub type Results = BTreeMap<String, BTreeMap<&'static str, Standing>>;

/// Where a run has not kept what must hold.
pub fn violations(results: &Results) -> Vec<String> {
    let mut found = Vec::new();
    for (scenario, policies) in results {
        for (policy, standing) in policies {
            for row in &standing.rows {
                let at = format!("{scenario}, {policy}, {}, seed {}", row.label, row.seed);
                found.extend(row.violations.iter().map(|violation| format!("{at}: {violation}")));
            }
        }
    }
    found
}

/// `told` hears of each policy when it begins.
pub fn run(
    names: &[String],
    policies: &[Policy],
    seeds: &[u64],
    mut told: impl FnMut(&str),
) -> Result<Results, String> {
    scenarios::check(names)?;
    let mut results = Results::new();
    for policy in policies {
        told(policy.name());
        for (name, standing) in run_scenarios(names, seeds, |trial| trial.run(*policy))? {
            results.entry(name).or_default().insert(policy.name(), standing);
        }
    }
    Ok(results)
}

/// By scenario. `run`: one trial.
pub fn run_scenarios(
    names: &[String],
    seeds: &[u64],
    run: impl Fn(&Trial) -> Result<Row, String> + Sync,
) -> Result<BTreeMap<String, Standing>, String> {
    let mut standings = BTreeMap::<String, Standing>::new();
    for name in names {
        // The same runs serve both yardsticks.
        let standing = match standings.get("table1").filter(|_| name == "table1_preemptive") {
            Some(runs) => Standing::of(runs.rows.iter().cloned().map(preemptive).collect()),
            None => {
                let trials = scenarios::trials(name, seeds).ok_or("no such scenario")?;
                Standing::of(run_all(&trials, &run)?)
            }
        };
        standings.insert(name.clone(), standing);
    }
    Ok(standings)
}

/// A row of Table 1 against the other optimum.
fn preemptive(row: Row) -> Row {
    let best = optimum::preemptive(&vec![300.0; row.processes], 16);
    Row { optimum: best, over_optimum_pct: over_pct(row.measured, best), ..row }
}

/// On all cores; the order of the rows is that of the trials.
fn run_all(
    trials: &[Trial],
    run: &(impl Fn(&Trial) -> Result<Row, String> + Sync),
) -> Result<Vec<Row>, String> {
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get()).min(trials.len());
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<Row, String>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    let Some(trial) = trials.get(nth) else { return };
                    let row = run(trial);
                    if let Ok(mut done) = done.lock() {
                        done.push((nth, row));
                    }
                }
            });
        }
    });
    let mut rows = done.into_inner().map_err(|_| "a run has panicked".to_owned())?;
    rows.sort_by_key(|(nth, _)| *nth);
    rows.into_iter().map(|(_, row)| row).collect()
}

impl Standing {
    pub fn of(rows: Vec<Row>) -> Standing {
        let counted: Vec<&Row> = rows.iter().filter(|row| row.is_counted).collect();
        let over_pct = |runs: &[&Row]| runs.iter().map(|row| row.over_optimum_pct).sum::<f64>();
        let labels = by_label(counted.iter().copied());
        let means = labels.iter().map(|(_, runs)| over_pct(runs) / runs.len() as f64);
        Standing {
            over_optimum_pct_mean: means.sum::<f64>() / labels.len() as f64,
            over_optimum_pct_max: counted
                .iter()
                .map(|row| row.over_optimum_pct)
                .fold(f64::NAN, f64::max),
            migrations: rows.iter().map(|row| row.migrations).sum(),
            frozen_s: rows.iter().map(|row| row.frozen_s).sum(),
            rows,
        }
    }

    /// Rows of which the mean is.
    pub fn rows_counted(&self) -> usize {
        by_label(self.rows.iter().filter(|row| row.is_counted)).len()
    }

    pub fn by_label(&self) -> Vec<(String, Vec<&Row>)> {
        by_label(&self.rows)
    }
}

/// Rows of equal labels as one, in the order in which they first come.
fn by_label<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<(String, Vec<&'a Row>)> {
    let mut labels: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in rows {
        match labels.iter_mut().find(|(label, _)| *label == row.label) {
            Some((_, rows)) => rows.push(row),
            None => labels.push((row.label.clone(), vec![row])),
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::kept::tests::row;

    #[test]
    fn a_row_that_was_run_more_often_weighs_no_more() {
        let one = Standing::of(vec![row("N=17", 33.0), row("N=17", 36.0), row("N=20", 30.0)]);
        assert!((one.over_optimum_pct_mean - 7.5).abs() < 1e-9);
        assert!((one.over_optimum_pct_max - 20.0).abs() < 1e-9);
        assert_eq!(one.rows_counted(), 2);
    }

    #[test]
    fn of_no_rows_that_count_there_is_no_mean() {
        let few = Standing::of(vec![Row { is_counted: false, ..row("N=4", 33.0) }]);
        assert!(few.over_optimum_pct_mean.is_nan() && few.over_optimum_pct_max.is_nan());
        let told = serde_json::to_value(&few).expect("JSON");
        assert!(told["over_optimum_pct_mean"].is_null());
    }
}
