//! Real runs take hours in all, so each is kept as it ends: a file for each, from which the
//! report is made, and which is not measured again.

use crate::balance::policy::{POLICIES, Policy};
use crate::balance::results::{Results, Standing};
use crate::balance::trial::Row;
use crate::provenance::Provenance;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// One run in a lab beside the same run in the simulator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pair {
    pub scenario: String,
    pub policy: String,
    /// What 300 s of the scenario took, s.
    pub job_s: f64,
    /// Of a move in the lab, on average, ms.
    pub setup_ms: f64,
    pub freeze_ms: f64,
    pub lab: Row,
    pub sim: Row,
    #[serde(default)]
    pub made: Option<Provenance>,
}

impl Pair {
    fn file_name(&self) -> String {
        name_of(&self.scenario, &self.policy, &self.lab.label, self.lab.seed)
    }

    /// By how many per cent the lab took longer than the simulator.
    pub fn difference_pct(&self) -> f64 {
        crate::balance::trial::over_pct(self.lab.measured, self.sim.measured)
    }
}

/// Plain characters only.
fn name_of(scenario: &str, policy: &str, label: &str, seed: u64) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let label: String = label.chars().map(plain).collect();
    format!("{scenario}.{policy}.{label}.{seed}.json")
}

/// Writes a file whole or not at all: a run may be interrupted at any moment.
pub fn write_whole(path: &Path, what: &impl Serialize) -> Result<()> {
    let unfinished = path.with_extension("unfinished");
    fs::write(&unfinished, serde_json::to_string_pretty(what)? + "\n")
        .and_then(|()| fs::rename(&unfinished, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Where runs are kept.
pub struct Kept(PathBuf);

impl Kept {
    pub fn in_directory(directory: &Path) -> Result<Kept> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Kept(directory.to_owned()))
    }

    pub fn has(&self, scenario: &str, policy: Policy, label: &str, seed: u64) -> bool {
        self.0.join(name_of(scenario, policy.name(), label, seed)).exists()
    }

    pub fn keep(&self, pair: &Pair) -> Result<()> {
        write_whole(&self.0.join(pair.file_name()), pair)
    }

    /// All that are there, in the order of their names.
    pub fn read(&self) -> Result<Vec<Pair>> {
        let listed = fs::read_dir(&self.0)
            .with_context(|| format!("cannot list {}", self.0.display()))?
            .flatten()
            .map(|entry| entry.path());
        let mut paths: Vec<PathBuf> =
            listed.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
        paths.sort();
        let read = |path: &PathBuf| {
            let text = fs::read_to_string(path)?;
            let pair = serde_json::from_str(&text);
            pair.with_context(|| format!("{} is no run", path.display()))
        };
        let mut pairs = paths.iter().map(read).collect::<Result<Vec<Pair>>>()?;
        pairs.sort_by_key(|pair| (pair.lab.processes, pair.lab.seed));
        Ok(pairs)
    }
}

/// The pairs as results of the lab, or of the simulator beside it.
pub fn results(pairs: &[Pair], row: fn(&Pair) -> &Row) -> Results {
    let mut results = Results::new();
    for policy in POLICIES {
        let own = || pairs.iter().filter(|pair| pair.policy == policy.name());
        let scenarios: BTreeSet<&str> = own().map(|pair| pair.scenario.as_str()).collect();
        for scenario in scenarios {
            let of = own().filter(|pair| pair.scenario == scenario);
            let rows = of.map(|pair| row(pair).clone()).collect();
            let standing = Standing::of(rows);
            results.entry(scenario.to_owned()).or_default().insert(policy.name(), standing);
        }
    }
    results
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::BTreeMap;

    pub(crate) fn row(label: &str, measured: f64) -> Row {
        Row {
            label: label.into(),
            seed: 1,
            processes: 17,
            measured,
            optimum: 30.0,
            over_optimum_pct: 100.0 * (measured / 30.0 - 1.0),
            is_counted: true,
            completion_mean_s: 1.0,
            migrations: 3,
            rotations: 1,
            frozen_s: 0.1,
            frozen_pct_max: 0.2,
            kbit_per_s: None,
            notes: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    #[test]
    fn the_mean_of_runs_has_the_greatest_of_what_is_no_mean() {
        let notes = |value| BTreeMap::from([("refused".to_owned(), value)]);
        let one = Row { notes: notes(5.0), ..row("N=17", 30.0) };
        let other = Row { notes: notes(7.0), migrations: 6, ..row("N=17", 33.0) };
        let mean = Row::mean_of(&[one, other]);
        assert!((mean.measured - 31.5).abs() < 1e-9 && (mean.over_optimum_pct - 5.0).abs() < 1e-9);
        assert_eq!((mean.migrations, mean.notes["refused"], mean.seed), (5, 7.0, 1));
    }

    pub(crate) fn pair(policy: &str, label: &str) -> Pair {
        Pair {
            scenario: "table1".into(),
            policy: policy.into(),
            job_s: 30.0,
            setup_ms: 20.0,
            freeze_ms: 10.0,
            lab: row(label, 33.0),
            sim: row(label, 32.0),
            made: None,
        }
    }

    #[test]
    fn what_was_kept_is_not_measured_again_and_comes_back_as_results() {
        let directory = tempfile::tempdir().expect("a directory");
        let kept = Kept::in_directory(directory.path()).expect("made");
        assert!(!kept.has("table1", Policy::Osmos, "N=17", 1));
        kept.keep(&pair("osmos", "N=17")).expect("kept");
        kept.keep(&pair("osmos", "N=17, ../x")).expect("kept");
        kept.keep(&pair("fifo", "N=17")).expect("kept");
        assert!(kept.has("table1", Policy::Osmos, "N=17", 1));
        assert!(!kept.has("table1", Policy::Osmos, "N=17", 2));
        let pairs = kept.read().expect("read");
        assert_eq!(pairs.len(), 3);
        assert!((pairs[0].difference_pct() - 3.125).abs() < 1e-9);
        let lab = results(&pairs, |pair| &pair.lab);
        assert_eq!(lab["table1"]["osmos"].rows.len(), 2);
        assert!((lab["table1"]["fifo"].over_optimum_pct_mean - 10.0).abs() < 1e-9);
        assert_eq!(lab["table1"]["osmos"].migrations, 6);
    }
}
