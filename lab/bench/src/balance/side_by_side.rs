//! The report of the lab: each run beside the same run in the simulator.

use crate::balance::kept::{Pair, results};
use crate::balance::paper::{self, JOB_S, TABLE_1};
use crate::balance::plot::{self, Series};
use crate::balance::policy::POLICIES;
use crate::balance::real::CHARGED_S;
use crate::balance::trial::over_pct;
use crate::balance::{optimum, report, scenarios};
use crate::provenance::Provenance;
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Writes `balance-lab.md`, `balance-lab.json` and the plot.
pub fn write(directory: &Path, pairs: &[Pair]) -> Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("balance-lab.json"), serde_json::to_string(pairs)? + "\n")?;
    let mut text = head(pairs);
    text.push_str(&report::summary(&results(pairs, |pair| &pair.lab)));
    text.push_str("\nThe simulator, the same runs:\n\n");
    text.push_str(&report::summary(&results(pairs, |pair| &pair.sim)));
    let _ = writeln!(text, "\n{}", agreement(pairs));
    if let Some(plot) = table_plot(pairs) {
        fs::write(directory.join("balance-lab-table1.svg"), plot)?;
        text.push_str("\n![Table 1 in a lab](balance-lab-table1.svg)\n");
    }
    for name in scenarios::names() {
        let own: Vec<&Pair> = pairs.iter().filter(|pair| pair.scenario == name).collect();
        if !own.is_empty() {
            text.push_str(&section(name, &own));
        }
    }
    fs::write(directory.join("balance-lab.md"), text)?;
    Ok(())
}

fn head(pairs: &[Pair]) -> String {
    let mut scales: Vec<f64> = pairs.iter().map(|pair| pair.job_s).collect();
    scales.sort_by(f64::total_cmp);
    scales.dedup();
    // Runs of Table 1 are shown against another optimum once more.
    let runs = pairs.iter().filter(|pair| pair.scenario != "table1_preemptive");
    let scales: Vec<String> =
        scales.iter().map(|s| format!("{s} s (1/{:.0})", 300.0 / s)).collect();
    format!(
        "# How well Osmos balances: the real half\n\n\
         Written by `osmos bench balance --lab --report DIR`. Sixteen nodes of a lab on one \
         machine, each\nwith a CPU quota on one processor, real daemons, real processes that are \
         really moved. What is 300 s\nlong in the scenario takes {} here; the brain's own times \
         (looks, rounds, rests) are not\nshortened. Beside each run stands the same run in the \
         simulator, the mean of nine with other chances\n(of one where works are drawn): the same \
         shortened work, the same brain, and moves that take as\nlong as they took in the lab. \
         What one job takes alone is measured before and after each run (before\nonly, where load \
         of others goes on or nodes come and go), with one job on each node at the same time\n\
         (on as many nodes as there are jobs, where these are fewer), and corrected by the pace \
         that the\nmachine had meanwhile. Where the note `kept_awake` or \
         `expedited` in the JSON is 0,\nthe machine did not allow it: nodes are less equal there, \
         and moves gain a little. Daemons, supervisors, copies and encryption\nare not within the \
         quotas of nodes of a sixteenth of a processor, where whoever wakes up would wait for the \
         next\nmillisecond of it. \"Charged\" is what the run would have taken, had all nodes paid \
         for what these used. How:\n`docs/decisions/0009-lab-experiments.md`. {}\n\n",
        scales.join(", "),
        Provenance::of_runs(runs.map(|pair| pair.made.as_ref())),
    )
}

/// How far lab and simulator are apart.
/// Rows of a policy are compared, as means of their runs, with the means of their twins: what
/// single runs differ by is chance.
fn agreement(pairs: &[Pair]) -> String {
    if !pairs.iter().any(|pair| pair.scenario == "table1") {
        return String::new();
    }
    let mut text = String::from(
        "| lab against simulator, Table 1 | rows | runs | on average | at worst | within 2 % |\n\
         |---|---:|---:|---:|---:|---:|\n",
    );
    for policy in POLICIES {
        let mut rows = BTreeMap::<&str, Vec<f64>>::new();
        let is_own = |pair: &&Pair| pair.scenario == "table1" && pair.policy == policy.name();
        for pair in pairs.iter().filter(is_own) {
            rows.entry(&pair.lab.label).or_default().push(pair.difference_pct());
        }
        if rows.is_empty() {
            continue;
        }
        let all: Vec<f64> = rows.values().map(|row| mean(row)).collect();
        let worst =
            all.iter().copied().fold(0.0, |a: f64, b| if b.abs() > a.abs() { b } else { a });
        let within = all.iter().filter(|difference| difference.abs() <= 2.0).count();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:+.2} % | {worst:+.2} % | {within} |",
            policy.name(),
            all.len(),
            rows.values().map(Vec::len).sum::<usize>(),
            mean(&all),
        );
    }
    text
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

fn section(name: &str, pairs: &[&Pair]) -> String {
    let mut text = format!("\n## {name}\n\n{}\n\n", scenarios::about(name));
    text.push_str(
        "| | policy | lab s | over | charged s | simulator s | over | difference | moves, lab \
         | turns | moves, simulator | turns | freeze ms | frozen s | worst part | mean completion \
         s |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for (nth, pair) in pairs.iter().enumerate() {
        let (lab, sim) = (&pair.lab, &pair.sim);
        let _ = writeln!(
            text,
            "| {} | {} | {:.2} | {:+.2} % | {} | {:.2} | {:+.2} % | {:+.2} % | {} | {} | {} | {} \
             | {:.0} | {:.2} | {:.2} % | {:.1} |",
            lab.label,
            pair.policy,
            lab.measured,
            lab.over_optimum_pct,
            charged(pair),
            sim.measured,
            sim.over_optimum_pct,
            pair.difference_pct(),
            lab.migrations - lab.rotations,
            lab.rotations,
            sim.migrations - sim.rotations,
            sim.rotations,
            if lab.migrations > 0 { pair.freeze_ms } else { 0.0 },
            lab.frozen_s,
            lab.frozen_pct_max,
            lab.completion_mean_s,
        );
        let is_last = pairs.get(nth + 1).is_none_or(|next| next.lab.label != lab.label);
        if name.starts_with("table1") && is_last {
            text.push_str(&published(pair));
        }
    }
    text.push_str(&notes(pairs));
    text
}

/// What the run would have taken, had the nodes paid for Osmos. Older runs do not say.
fn charged(pair: &Pair) -> String {
    pair.lab.notes.get(CHARGED_S).map_or("–".into(), |charged_s| format!("{charged_s:.2}"))
}

/// The paper's own rows beside ours, as if its 300 s had been as short.
fn published(pair: &Pair) -> String {
    let Some(row) = paper::row_of(pair.lab.processes) else { return String::new() };
    let measured = row.published().into_iter().map(|(system, measured_s)| {
        let short_s = measured_s * pair.job_s / JOB_S;
        let over = over_pct(short_s, pair.lab.optimum);
        let rest = " |".repeat(12);
        format!("| {} | {system} | {short_s:.2} | {over:+.2} % |{rest}\n", pair.lab.label)
    });
    measured.collect()
}

/// The largest of each further figure of the lab.
fn notes(pairs: &[&Pair]) -> String {
    let mut names: Vec<&String> = pairs.iter().flat_map(|pair| pair.lab.notes.keys()).collect();
    names.sort();
    names.dedup();
    let shown: Vec<String> = names.iter().map(|name| (*name).clone()).collect();
    let mut text = format!("\n| worst of all runs in the lab | {} |\n|---|", shown.join(" | "));
    text.push_str(&"---:|".repeat(names.len()));
    text.push('\n');
    for policy in POLICIES {
        let own: Vec<&&Pair> = pairs.iter().filter(|pair| pair.policy == policy.name()).collect();
        if own.is_empty() {
            continue;
        }
        let _ = write!(text, "| {} |", policy.name());
        for name in &names {
            let values = own.iter().filter_map(|pair| pair.lab.notes.get(*name));
            let _ = write!(text, " {:.2} |", values.copied().fold(0.0, f64::max));
        }
        text.push('\n');
    }
    text
}

fn table_plot(pairs: &[Pair]) -> Option<String> {
    let own: Vec<&Pair> = pairs.iter().filter(|pair| pair.scenario == "table1").collect();
    let job_s = own.first()?.job_s;
    let mut series: Vec<Series> = POLICIES
        .iter()
        .map(|policy| {
            let mut rows = BTreeMap::<usize, Vec<f64>>::new();
            for pair in own.iter().filter(|pair| pair.policy == policy.name()) {
                rows.entry(pair.lab.processes).or_default().push(pair.lab.measured);
            }
            let points = rows.into_iter().map(|(count, runs)| (count as f64, mean(&runs)));
            Series { name: policy.name().into(), points: points.collect() }
        })
        .filter(|series| !series.points.is_empty())
        .collect();
    let scaled = TABLE_1.iter().map(|row| (row.processes as f64, row.mosix_s * job_s / JOB_S));
    series.push(Series { name: "MOSIX 1996".into(), points: scaled.collect() });
    let best = TABLE_1
        .iter()
        .map(|row| (row.processes as f64, optimum::preemptive(&vec![job_s; row.processes], 16)));
    series.push(Series { name: "optimum".into(), points: best.collect() });
    let title = format!("N processes of {job_s} s on 16 nodes of a lab");
    Some(plot::lines(&title, "processes", "seconds", &series))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::kept::tests::pair;

    #[test]
    fn rows_agree_by_the_mean_of_their_runs() {
        // 33 s against 32 s, and as much less: 3.1 % to both sides.
        let above = pair("osmos", "N=17");
        let mut below = above.clone();
        below.lab.measured = 31.0;
        let said = agreement(&[above.clone(), below, pair("fifo", "N=17")]);
        assert!(said.contains("| osmos | 1 | 2 | +0.00 % | +0.00 % | 1 |"), "{said}");
        assert!(said.contains("| fifo | 1 | 1 | +3.12 % | +3.12 % | 0 |"), "{said}");
    }
}
