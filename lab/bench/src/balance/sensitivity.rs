//! Which constants of the policy matter: each is halved and doubled, all else as usual, and all
//! scenarios are simulated again.
//!
//! Beside them stands the usual policy with other seeds: what differs by no more than that is
//! chance.

use crate::balance::policy::Policy;
use crate::balance::results::{self, Standing};
use crate::balance::scenarios;
use crate::balance::trial::Trial;
use anyhow::{Context, Result};
use brain::Config;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Seeds by which the reference differs.
const OTHER_SEEDS: u64 = 500;
/// A constant matters if it changes the mean of a scenario by more points than this, and than
/// chance does.
const MATTERS_PCT: f64 = 0.3;
/// Per cent above the optimum, of one scenario.
type Means = BTreeMap<String, f64>;

/// What came of one value.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// As in the brain's configuration; times in microseconds.
    pub value: Value,
    /// Against the usual value, by scenario, in points: more is worse.
    pub points: Means,
    /// Runs in which something did not hold that must.
    pub violations: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct Constant {
    pub name: String,
    pub usual: Value,
    pub halved: Option<Change>,
    pub doubled: Option<Change>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Sensitivity {
    /// Of the usual policy.
    pub usual: Means,
    /// The usual policy with other seeds.
    pub chance: Means,
    pub constants: Vec<Constant>,
}

/// `told` hears what is simulated next.
///
/// # Errors
/// A scenario is none, or the simulator refuses it.
pub fn measure(names: &[String], seeds: &[u64], mut told: impl FnMut(&str)) -> Result<Sensitivity> {
    scenarios::check(names).map_err(anyhow::Error::msg)?;
    told("the usual policy");
    let config = Config::default();
    let usual = means(&run(names, seeds, &config)?);
    let others: Vec<u64> = seeds.iter().map(|seed| seed.wrapping_add(OTHER_SEEDS)).collect();
    told("the usual policy with other seeds");
    let chance = less(&means(&run(names, &others, &config)?), &usual);
    let mut constants = Vec::new();
    for (name, value) in numbers(&config)? {
        told(&name);
        let change = |factor: f64| -> Result<Option<Change>> {
            let Some(value) = scaled(&value, factor) else { return Ok(None) };
            let standings = run(names, seeds, &with(&config, &name, &value)?)?;
            let points = less(&means(&standings), &usual);
            let rows = standings.values().flat_map(|standing| &standing.rows);
            let violations = rows.map(|row| row.violations.len()).sum();
            Ok(Some(Change { value, points, violations }))
        };
        let (halved, doubled) = (change(0.5)?, change(2.0)?);
        constants.push(Constant { name, usual: value, halved, doubled });
    }
    Ok(Sensitivity { usual, chance, constants })
}

fn run(names: &[String], seeds: &[u64], config: &Config) -> Result<BTreeMap<String, Standing>> {
    let run = |trial: &Trial| trial.run_with(Policy::Osmos, config.clone());
    results::run_scenarios(names, seeds, run).map_err(anyhow::Error::msg)
}

fn means(standings: &BTreeMap<String, Standing>) -> Means {
    let mean = |standing: &Standing| standing.over_optimum_pct_mean;
    standings.iter().map(|(name, standing)| (name.clone(), mean(standing))).collect()
}

fn less(means: &Means, usual: &Means) -> Means {
    let less = |(name, mean): (&String, &f64)| {
        (name.clone(), mean - usual.get(name).copied().unwrap_or(f64::NAN))
    };
    means.iter().map(less).collect()
}

/// The constants that are numbers, by name; but for the baseline's.
fn numbers(config: &Config) -> Result<Vec<(String, Value)>> {
    let fields = serde_json::to_value(config)?;
    let fields = fields.as_object().context("the configuration has no fields")?;
    let is_own = |name: &String| name != "mosix_pace";
    let numbers = fields.iter().filter(|(name, value)| value.is_number() && is_own(name));
    Ok(numbers.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// The value times the factor; None if it stays what it was.
fn scaled(value: &Value, factor: f64) -> Option<Value> {
    let scaled = match value.as_u64() {
        Some(whole) => Value::from((whole as f64 * factor).round().max(1.0) as u64),
        None => Value::from(value.as_f64()? * factor),
    };
    (scaled != *value).then_some(scaled)
}

fn with(config: &Config, name: &str, value: &Value) -> Result<Config> {
    let mut fields = serde_json::to_value(config)?;
    fields[name] = value.clone();
    serde_json::from_value(fields).with_context(|| format!("{name} cannot be {value}"))
}

impl Change {
    /// What it makes of the scenario that becomes worst, and of the one that becomes best.
    fn extremes(&self) -> Option<[(&String, &f64); 2]> {
        let by_points = |a: &(&String, &f64), b: &(&String, &f64)| a.1.total_cmp(b.1);
        Some([self.points.iter().max_by(by_points)?, self.points.iter().min_by(by_points)?])
    }

    fn matters(&self, chance: &Means) -> bool {
        self.points.iter().any(|(name, points)| {
            let chance = chance.get(name).map_or(0.0, |points| points.abs());
            points.abs() > MATTERS_PCT.max(chance)
        })
    }
}

impl Sensitivity {
    /// As Markdown.
    pub fn report(&self, seeds: &[u64]) -> String {
        let mut text = format!(
            "# Which constants of the policy matter\n\n\
             Written by `osmos bench balance --sim --sensitivity --report DIR` with the seeds \
             {seeds:?}.\nEach constant of `core/brain/src/config.rs` is halved and doubled, all \
             else as usual, and all scenarios\nof [the report](balance.md) are simulated again. \
             What is shown is the scenario whose mean becomes worse\nby most, and the one that \
             becomes better by most, in points of per cent above the optimum. It matters if\none \
             changes by more than {MATTERS_PCT} points, and by more than other seeds change it. \
             Times are in microseconds.\n\n"
        );
        let _ = writeln!(text, "| scenario | usual | with other seeds |\n|---|---:|---:|");
        for (name, mean) in &self.usual {
            let chance = self.chance.get(name).copied().unwrap_or(f64::NAN);
            let _ = writeln!(text, "| {name} | {mean:+.2} | {chance:+.2} |");
        }
        text.push_str(
            "\n| constant | usual | halved | doubled | matters |\n|---|---:|---|---|---|\n",
        );
        for constant in &self.constants {
            let both = [&constant.halved, &constant.doubled];
            let matters = both.into_iter().flatten().any(|change| change.matters(&self.chance));
            let [halved, doubled] = both.map(|change| change.as_ref().map_or("".into(), shown));
            let (name, usual) = (&constant.name, &constant.usual);
            let matters = if matters { "yes" } else { "" };
            let _ = writeln!(text, "| `{name}` | {usual} | {halved} | {doubled} | {matters} |");
        }
        text
    }
}

fn shown(change: &Change) -> String {
    let Some([(worst, most), (best, least)]) = change.extremes() else { return String::new() };
    let mut text = format!("{worst} {most:+.2}, {best} {least:+.2}");
    if change.violations > 0 {
        let _ = write!(text, ", {} violations", change.violations);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_the_configuration_can_be_halved_and_doubled() {
        let config = Config::default();
        let numbers = numbers(&config).expect("fields");
        assert!(numbers.len() > 25, "{numbers:?}");
        for (name, value) in numbers {
            for factor in [0.5, 2.0] {
                let Some(other) = scaled(&value, factor) else { continue };
                assert_ne!(
                    with(&config, &name, &other).expect("a configuration"),
                    config,
                    "{name}"
                );
            }
        }
        assert_eq!(scaled(&Value::from(1), 0.5), None, "half of one is one");
    }

    #[test]
    fn a_constant_that_changes_less_than_chance_does_not_matter() {
        let means = |points: &[(&str, f64)]| -> Means {
            points.iter().map(|(name, points)| ((*name).to_owned(), *points)).collect()
        };
        let change =
            |points| Change { value: Value::from(2), points: means(points), violations: 0 };
        let chance = means(&[("a", -1.0), ("b", 0.0)]);
        assert!(!change(&[("a", 0.9), ("b", 0.2)]).matters(&chance));
        assert!(change(&[("a", 0.9), ("b", -0.4)]).matters(&chance));
        assert!(change(&[("a", 1.1), ("b", 0.0)]).matters(&chance));
        let shown = shown(&change(&[("a", 1.1), ("b", -0.4)]));
        assert_eq!(shown, "a +1.10, b -0.40");
    }
}
