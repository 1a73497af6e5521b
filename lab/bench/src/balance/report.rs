//! The report: a summary, a table for each scenario, plots, and all figures as JSON.

use crate::balance::paper::{self, TABLE_1};
use crate::balance::plot::{self, Series};
use crate::balance::policy::{POLICIES, Policy};
use crate::balance::results::{Results, Standing};
use crate::balance::scenarios;
use crate::balance::trial::{Row, over_pct};
use crate::provenance::Provenance;
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Writes `balance.md`, `balance.json` and the plots.
pub fn write(directory: &Path, results: &Results, seeds: &[u64]) -> Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("balance.json"), serde_json::to_string(results)? + "\n")?;
    let mut text = head(seeds);
    text.push_str(&summary(results));
    if let Some(plot) = overview(results) {
        fs::write(directory.join("balance-overview.svg"), plot)?;
        text.push_str("\n![what each policy loses](balance-overview.svg)\n");
    }
    for name in scenarios::names() {
        let Some(policies) = results.get(name) else { continue };
        text.push_str(&section(name, policies));
        if name == "table1" {
            fs::write(directory.join("balance-table1.svg"), table_plot(policies))?;
            text.push_str("\n![Table 1](balance-table1.svg)\n");
        }
    }
    fs::write(directory.join("balance.md"), text)?;
    Ok(())
}

fn head(seeds: &[u64]) -> String {
    format!(
        "# How well Osmos balances: the simulated half\n\n\
         Written by `osmos bench balance --sim --report DIR` with the seeds {seeds:?}, none of \
         which was used\nto choose the constants of the policy. Each figure is per cent above the \
         optimum that the section\nnames. The brains are those of the daemon; what is simulated \
         around them is described in\n`docs/decisions/0007-simulator-and-rotation.md`; a move \
         takes what it takes Osmos (`cargo xtask\nbench migrate` and `freeze`). {}\n\n",
        Provenance::now().program_and_commit()
    )
}

/// One line for each scenario.
pub fn summary(results: &Results) -> String {
    let mut text = String::from("Mean (worst) per cent above the optimum:\n\n| scenario |");
    let shown: Vec<&str> = POLICIES
        .iter()
        .map(|policy| policy.name())
        .filter(|name| results.values().any(|policies| policies.contains_key(name)))
        .collect();
    for policy in &shown {
        let _ = write!(text, " {policy} |");
    }
    let _ = writeln!(text, "\n|---|{}", "---:|".repeat(shown.len()));
    for name in scenarios::names() {
        let Some(policies) = results.get(name) else { continue };
        let _ = write!(text, "| {name} |");
        let most = policies.values().map(Standing::rows_counted).max().unwrap_or_default();
        for policy in &shown {
            match policies.get(policy) {
                Some(standing) if standing.rows_counted() == 0 => text.push_str(" – |"),
                Some(standing) => {
                    let (mean, max) =
                        (standing.over_optimum_pct_mean, standing.over_optimum_pct_max);
                    let _ = write!(text, " {mean:+.2} ({max:+.2})");
                    // Means of other rows are not to be compared.
                    let count = standing.rows_counted();
                    if count < most {
                        let _ = write!(text, ", {count} of {most} rows");
                    }
                    text.push_str(" |");
                }
                None => text.push_str(" |"),
            }
        }
        text.push('\n');
    }
    text
}

/// Where the mean completion time with turns differs by more from that without, per cent.
const TURNS_SHOWN_PCT: f64 = 1.0;

/// What turns bring and cost: the end of the last process, and the mean end of all.
fn turns(policies: &BTreeMap<&'static str, Standing>) -> String {
    let of = |policy: Policy| policies.get(policy.name()).map(Standing::by_label);
    let (Some(with), Some(without)) = (of(Policy::Osmos), of(Policy::OsmosNorotate)) else {
        return String::new();
    };
    let pct = |rows: (&[&Row], &[&Row]), figure: fn(&Row) -> f64| {
        over_pct(mean(rows.0, figure), mean(rows.1, figure))
    };
    let mut text = String::new();
    for ((label, with), (_, without)) in with.iter().zip(&without) {
        let completion = pct((with, without), |row| row.completion_mean_s);
        // Where nothing ends there is no mean.
        if completion.abs() > TURNS_SHOWN_PCT && mean(without, |row| row.completion_mean_s) > 0.0 {
            let measured = pct((with, without), |row| row.measured);
            let _ = writeln!(text, "| {label} | {measured:+.1} % | {completion:+.1} % |");
        }
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "\n| with turns against without | what is measured | mean completion |\n\
         |---|---:|---:|\n{text}"
    )
}

fn section(name: &str, policies: &BTreeMap<&'static str, Standing>) -> String {
    let mut text = format!("\n## {name}\n\n{}\n\n", scenarios::about(name));
    let shown: Vec<(&str, &Standing)> = POLICIES
        .iter()
        .filter_map(|policy| Some((policy.name(), policies.get(policy.name())?)))
        .collect();
    let Some((_, first)) = shown.first() else { return text };
    let is_published = name.starts_with("table1");
    let systems = TABLE_1[0].published().map(|(system, _)| system);
    let others = systems.iter().filter(|_| is_published);
    let columns: Vec<&str> =
        shown.iter().map(|(policy, _)| *policy).chain(others.copied()).collect();
    let _ = writeln!(text, "| | {} |", columns.join(" | "));
    let _ = writeln!(text, "|---|{}", "---:|".repeat(columns.len()));
    for (label, rows) in first.by_label() {
        let _ = write!(text, "| {label} |");
        for (_, standing) in &shown {
            let rows: Vec<&Row> = standing.rows.iter().filter(|row| row.label == label).collect();
            let over = mean(&rows, |row| row.over_optimum_pct);
            let _ = write!(text, " {:.1} ({over:+.2} %) |", mean(&rows, |row| row.measured));
        }
        if let Some(row) = rows.first().filter(|_| is_published) {
            text.push_str(&published(row));
        }
        text.push('\n');
    }
    text.push_str(&costs(&shown));
    text.push_str(&turns(policies));
    text.push_str(&notes(&shown));
    text
}

/// What was measured in 1996, in the same table.
fn published(row: &Row) -> String {
    let cell = |(_, measured_s): (&str, f64)| {
        format!(" {measured_s:.1} ({:+.2} %) |", over_pct(measured_s, row.optimum))
    };
    paper::row_of(row.processes).into_iter().flat_map(|row| row.published()).map(cell).collect()
}

fn mean(rows: &[&Row], of: impl Fn(&Row) -> f64) -> f64 {
    rows.iter().map(|row| of(row)).sum::<f64>() / rows.len().max(1) as f64
}

/// What the gain costs, for each policy.
fn costs(shown: &[(&str, &Standing)]) -> String {
    let mut text = String::from(
        "\n| policy | migrations a run | of them turns | frozen s a run | worst frozen part | mean \
         completion s | kbit/s a node |\n|---|---:|---:|---:|---:|---:|---:|\n",
    );
    for (policy, standing) in shown {
        let rows: Vec<&Row> = standing.rows.iter().collect();
        let worst = rows.iter().map(|row| row.frozen_pct_max).fold(0.0, f64::max);
        let _ = writeln!(
            text,
            "| {policy} | {:.1} | {:.1} | {:.2} | {worst:.2} % | {:.1} | {:.1} |",
            mean(&rows, |row| row.migrations as f64),
            mean(&rows, |row| row.rotations as f64),
            mean(&rows, |row| row.frozen_s),
            mean(&rows, |row| row.completion_mean_s),
            mean(&rows, |row| row.kbit_per_s.unwrap_or(0.0)),
        );
    }
    text
}

/// The largest of each further figure.
fn notes(shown: &[(&str, &Standing)]) -> String {
    let mut names: Vec<&String> = Vec::new();
    for (_, standing) in shown {
        for name in standing.rows.iter().flat_map(|row| row.notes.keys()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let shown_names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    let mut text = format!("\n| worst of all runs | {} |\n|---|", shown_names.join(" | "));
    text.push_str(&"---:|".repeat(names.len()));
    text.push('\n');
    for (policy, standing) in shown {
        let _ = write!(text, "| {policy} |");
        for name in &names {
            let values = standing.rows.iter().filter_map(|row| row.notes.get(*name));
            let _ = write!(text, " {:.2} |", values.copied().fold(0.0, f64::max));
        }
        text.push('\n');
    }
    text
}

fn table_plot(policies: &BTreeMap<&'static str, Standing>) -> String {
    let mut series: Vec<Series> = POLICIES
        .iter()
        .filter_map(|policy| Some((policy.name(), policies.get(policy.name())?)))
        .map(|(name, standing)| {
            let points = standing.by_label().into_iter().map(|(_, rows)| {
                let count = rows.first().map_or(0, |row| row.processes) as f64;
                (count, mean(&rows, |row| row.measured))
            });
            Series { name: name.into(), points: points.collect() }
        })
        .collect();
    let published = TABLE_1.iter().map(|row| (row.processes as f64, row.mosix_s));
    series.push(Series { name: "MOSIX 1996".into(), points: published.collect() });
    let best = TABLE_1.iter().map(|row| {
        let best = crate::balance::optimum::preemptive(&vec![300.0; row.processes], 16);
        (row.processes as f64, best)
    });
    series.push(Series { name: "optimum".into(), points: best.collect() });
    plot::lines("N processes of 300 s on 16 nodes", "processes", "seconds", &series)
}

/// What each policy loses in each scenario whose yardstick is a time.
fn overview(results: &Results) -> Option<String> {
    let timed = ["table1_preemptive", "random", "background", "mixed", "large", "churn"];
    let groups: Vec<String> =
        timed.into_iter().filter(|name| results.contains_key(*name)).map(String::from).collect();
    if groups.is_empty() {
        return None;
    }
    let series: Vec<Series> = POLICIES
        .iter()
        .map(|policy| {
            let points = groups.iter().enumerate().filter_map(|(nth, group)| {
                let standing = results.get(group)?.get(policy.name())?;
                Some((nth as f64, standing.over_optimum_pct_mean))
            });
            Series { name: policy.name().into(), points: points.collect() }
        })
        .collect();
    Some(plot::bars("Above the optimum", &groups, "per cent", &series))
}
