//! `cargo xtask bench`: what Osmos costs, each figure with its floor and its target.

use anyhow::Result;
use bench::engine::{Bench, Effort};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Which: at-home, away, forward, freeze, migrate, homesick, throughput, spread, owner, clock,
    /// behind, builds [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<Bench>,
    /// Only see that they work, in half a minute: the figures mean little
    #[arg(long)]
    quick: bool,
    /// Pairs of a measured and a native round
    #[arg(long, value_name = "N")]
    pairs: Option<usize>,
    /// Moves of the smallest process, each way
    #[arg(long, value_name = "N")]
    moves: Option<usize>,
    /// Moves of the larger ones, each way
    #[arg(long, value_name = "N")]
    moves_of_large: Option<usize>,
    /// Runs of the programs that are to be spread, and returns of an owner
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Of the programs that `migrate` moves only those whose names have this in them, as `256`
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// A C project that `builds` makes, with a makefile; more than once for more [default: the
    /// guests of lab/guests]
    #[arg(long, value_name = "DIR")]
    source: Vec<PathBuf>,
    /// Measure this program instead of the one built here
    #[arg(long, value_name = "PATH")]
    osmos: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn effort(&self) -> Effort {
        let effort = if self.quick { Effort::quick() } else { Effort::full() };
        Effort {
            pairs: self.pairs.unwrap_or(effort.pairs),
            moves: self.moves.unwrap_or(effort.moves),
            moves_of_large: self.moves_of_large.unwrap_or(effort.moves_of_large),
            spread_runs: self.runs.unwrap_or(effort.spread_runs),
            owner_runs: self.runs.unwrap_or(effort.owner_runs),
            only: self.only.clone(),
            sources: self.source.clone(),
            ..effort
        }
    }
}

/// Whether every promise was kept.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let benches = match arguments.names.as_slice() {
        [] => &Bench::ALL,
        names => names,
    };
    let tell = |name: &str| eprintln!("{name} ...");
    let report =
        bench::engine::run(benches, arguments.effort(), arguments.osmos.as_deref(), &tell)?;
    match arguments.json {
        true => println!("{}", report.json()),
        false => print!("{}", report.text()),
    }
    Ok(report.is_success())
}
