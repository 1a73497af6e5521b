//! `osmos bench balance`.

use crate::balance::kept::{self, Kept};
use crate::balance::policy::{POLICIES, Policy};
use crate::balance::results::{self, Results};
use crate::balance::{in_lab, report, scenarios, sensitivity, side_by_side};
use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::Value;
use sim::command::print;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Seeds of the published report: none of those that the policy was tuned with.
const SEEDS_REPORTED: [u64; 5] = [1_001, 1_002, 1_003, 1_004, 1_005];
const SEEDS_MAX: u64 = 1_000;
/// What 300 s take in a lab, s: short enough to be waited for, long enough for a brain whose own
/// times are not shortened.
const JOB_S: f64 = 30.0;
const JOB_S_QUICK: f64 = 8.0;
const STEADY_S_QUICK: f64 = 20.0;
const ROWS_QUICK: [usize; 1] = [17];
const NAMES_QUICK: [&str; 1] = ["table1"];
const POLICIES_QUICK: [Policy; 2] = [Policy::Static, Policy::Osmos];

/// Measure the balancing against exact optima and the policies of the past
#[derive(Debug, Parser)]
#[command(name = "osmos bench balance")]
#[command(after_help = "\
Without --sim or --lab both are run. The lab takes hours, Table 1 alone 25 to 40
minutes for each policy; what --resume keeps is not run again.
A lab needs root; its 16 nodes share half of this machine, which should have nothing else to do.")]
pub struct Options {
    /// Only in the simulator
    #[arg(long, conflicts_with = "lab")]
    sim: bool,
    /// Only for real, in a lab of 16 nodes, with what takes 300 s made shorter
    #[arg(long)]
    lab: bool,
    /// In the simulator: halve and double each constant of the policy, and say what that changes;
    /// two seeds take twelve minutes on two processors
    #[arg(long, requires = "sim", conflicts_with = "policies")]
    sensitivity: bool,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Write the report (Markdown, JSON, SVG) into this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// How many seeds; each gives other random choices to nodes, network and durations
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Only these policies
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    policies: Vec<Policy>,
    /// In the lab: only runs with these numbers of processes
    #[arg(long, value_name = "N", value_delimiter = ',')]
    rows: Vec<usize>,
    /// In the lab: keep each run in this directory, and do not repeat those that are there
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// In the lab: what 300 s are made to take [default: 30]
    #[arg(long, value_name = "S", value_parser = seconds)]
    job_s: Option<f64>,
    /// In the lab: how long what never ends goes on [default: 600]
    #[arg(long, value_name = "S", value_parser = seconds)]
    steady_s: Option<f64>,
    /// In the lab: one row of Table 1 and short work, to see that it works
    #[arg(long)]
    quick: bool,
    /// Only these scenarios
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
}

fn seconds(word: &str) -> Result<f64, String> {
    match word.parse::<f64>() {
        Ok(seconds) if (1.0..=3_600.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("`{word}` is no number of seconds from 1 to 3600")),
    }
}

pub fn main(words: Vec<OsString>) -> ExitCode {
    sim::command::execute("osmos bench balance", words, run)
}

fn run(options: &Options) -> Result<()> {
    if options.sensitivity {
        return vary(options);
    }
    let mut printed = serde_json::Map::new();
    let mut violations = Vec::new();
    let is_both = !options.sim && !options.lab;
    if options.sim || is_both {
        let results = simulate(options)?;
        violations.extend(results::violations(&results));
        merge(&mut printed, &results, is_both.then_some("sim"))?;
    }
    if options.lab || is_both {
        let results = play(options)?;
        violations.extend(results::violations(&results));
        merge(&mut printed, &results, is_both.then_some("lab"))?;
    }
    if options.json {
        print(&(serde_json::to_string_pretty(&printed)? + "\n"))?;
    }
    if !violations.is_empty() {
        bail!("what must hold did not:\n{}", violations.join("\n"));
    }
    Ok(())
}

/// Halves and doubles constants.
fn vary(options: &Options) -> Result<()> {
    let names = named(options, &scenarios::names());
    let seeds = seeds(options, &SEEDS_REPORTED)?;
    let found = sensitivity::measure(&names, &seeds, |what| eprintln!("{what} ..."))?;
    let report = found.report(&seeds);
    if let Some(directory) = &options.report {
        let path = directory.join("sensitivity.md");
        std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::write(&path, &report))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    match options.json {
        true => print(&(serde_json::to_string_pretty(&found)? + "\n"))?,
        false => print(&report)?,
    }
    Ok(())
}

/// Into `{scenario: {policy: ...}}`. Where both halves were run, what the simulator says stands
/// there, and what the lab says beside it.
fn merge(
    printed: &mut serde_json::Map<String, Value>,
    results: &Results,
    half: Option<&str>,
) -> Result<()> {
    for (scenario, policies) in results {
        let into = printed.entry(scenario.clone()).or_insert_with(|| Value::Object(<_>::default()));
        for (policy, standing) in policies {
            let value = serde_json::to_value(standing)?;
            match (half, into.get_mut(*policy)) {
                (Some("lab"), Some(simulated)) => simulated["lab"] = value,
                _ => into[*policy] = value,
            }
        }
    }
    Ok(())
}

fn simulate(options: &Options) -> Result<Results> {
    let names = named(options, &scenarios::names());
    let seeds = seeds(options, &SEEDS_REPORTED)?;
    let told = |name: &str| eprintln!("{name} ...");
    let results = results::run(&names, &policies(options, &POLICIES), &seeds, told)
        .map_err(anyhow::Error::msg)?;
    if let Some(directory) = &options.report {
        report::write(directory, &results, &seeds)
            .with_context(|| format!("cannot write the report to {}", directory.display()))?;
    }
    if !options.json {
        print(&report::summary(&results))?;
    }
    Ok(results)
}

fn play(options: &Options) -> Result<Results> {
    let (names, usual): (&[&str], &[Policy]) = match options.quick {
        true => (&NAMES_QUICK, &POLICIES_QUICK),
        false => (&in_lab::NAMES, &POLICIES),
    };
    let choice = in_lab::Choice {
        names: named(options, names),
        policies: policies(options, usual),
        seeds: seeds(options, &SEEDS_REPORTED[..1])?,
        rows: match (options.quick, options.rows.as_slice()) {
            (true, []) => ROWS_QUICK.to_vec(),
            (_, rows) => rows.to_vec(),
        },
        job_s: options.job_s.unwrap_or(if options.quick { JOB_S_QUICK } else { JOB_S }),
        steady_s: options.steady_s.or(options.quick.then_some(STEADY_S_QUICK)),
    };
    let temporary = std::env::temp_dir().join(format!("osmos-balance-{}", std::process::id()));
    let directory = options.resume.as_ref().unwrap_or(&temporary);
    let kept = Kept::in_directory(directory)?;
    let ran = in_lab::run(&choice, &kept, |what| eprintln!("{what} ..."));
    let pairs = ran.and_then(|()| kept.read()).map(in_lab::with_preemptive);
    if options.resume.is_none() {
        std::fs::remove_dir_all(&temporary)
            .with_context(|| format!("cannot remove {}", temporary.display()))?;
    }
    let pairs = pairs?;
    if let Some(directory) = &options.report {
        side_by_side::write(directory, &pairs)
            .with_context(|| format!("cannot write the report to {}", directory.display()))?;
    }
    let results = kept::results(&pairs, |pair| &pair.lab);
    if !options.json {
        print(&report::summary(&results))?;
    }
    Ok(results)
}

fn named(options: &Options, all: &[&str]) -> Vec<String> {
    match options.scenarios.as_slice() {
        [] => all.iter().map(|name| (*name).to_owned()).collect(),
        named => named.to_vec(),
    }
}

fn seeds(options: &Options, reported: &[u64]) -> Result<Vec<u64>> {
    if options.seeds.is_none() && options.seed.is_none() {
        return Ok(reported.to_vec());
    }
    let (first, count) = (options.seed.unwrap_or(1), options.seeds.unwrap_or(1));
    if !(1..=SEEDS_MAX).contains(&count) {
        bail!("{count} seeds; there can be 1 to {SEEDS_MAX}");
    }
    Ok((0..count).map(|nth| first.wrapping_add(nth)).collect())
}

fn policies(options: &Options, usual: &[Policy]) -> Vec<Policy> {
    match options.policies.as_slice() {
        [] => usual.to_vec(),
        named => named.to_vec(),
    }
}
