//! `osmos bench balance`.

use crate::policy::{POLICIES, Policy};
use crate::results;
use crate::{report, scenarios};
use anyhow::{Context, Result, bail};
use clap::Parser;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Seeds of the published report: none of those that the policy was tuned with.
const SEEDS_REPORTED: [u64; 5] = [1_001, 1_002, 1_003, 1_004, 1_005];
const SEEDS_MAX: u64 = 1_000;

/// Measure the balancing against exact optima and the policies of the past
#[derive(Debug, Parser)]
#[command(name = "osmos bench balance")]
pub struct Options {
    /// In the simulator (the default)
    #[arg(long)]
    sim: bool,
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
    policies: Vec<String>,
    /// Only these scenarios
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
}

pub fn main(words: Vec<OsString>) -> ExitCode {
    sim::command::execute("osmos bench balance", words, run)
}

fn run(options: &Options) -> Result<()> {
    let names = match options.scenarios.as_slice() {
        [] => scenarios::NAMES.map(str::to_owned).to_vec(),
        named => named.to_vec(),
    };
    let seeds = seeds(options)?;
    let policies = policies(&options.policies)?;
    let told = |name: &str| eprintln!("{name} ...");
    let results = results::run(&names, &policies, &seeds, told).map_err(anyhow::Error::msg)?;
    if let Some(directory) = &options.report {
        report::write(directory, &results, &seeds)
            .with_context(|| format!("cannot write the report to {}", directory.display()))?;
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&results)?);
    } else {
        print!("{}", report::summary(&results));
    }
    let violations = results::violations(&results);
    if !violations.is_empty() {
        bail!("what must hold did not:\n{}", violations.join("\n"));
    }
    Ok(())
}

fn seeds(options: &Options) -> Result<Vec<u64>> {
    if options.seeds.is_none() && options.seed.is_none() {
        return Ok(SEEDS_REPORTED.to_vec());
    }
    let (first, count) = (options.seed.unwrap_or(1), options.seeds.unwrap_or(1));
    if !(1..=SEEDS_MAX).contains(&count) {
        bail!("{count} seeds; there can be 1 to {SEEDS_MAX}");
    }
    Ok((0..count).map(|nth| first.wrapping_add(nth)).collect())
}

fn policies(named: &[String]) -> Result<Vec<Policy>> {
    if named.is_empty() {
        return Ok(POLICIES.to_vec());
    }
    let find = |name: &String| {
        let found = POLICIES.into_iter().find(|policy| policy.name() == name);
        found.with_context(|| format!("there is no policy {name}"))
    };
    named.iter().map(find).collect()
}
