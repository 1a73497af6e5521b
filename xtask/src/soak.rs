//! `cargo xtask soak`: many random moves of many processes, and what is left of them afterwards.

use anyhow::Result;
use clap::Args;
use conformance::soak::Options;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Moves that have to succeed
    #[arg(long, value_name = "N", default_value_t = 1000)]
    moves: usize,
    /// Programs that run meanwhile, of eleven kinds
    #[arg(long, value_name = "N", default_value_t = 20)]
    processes: usize,
    /// Only these kinds of programs (pipe, threads, ...)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Nodes of the lab
    #[arg(long, value_name = "N", default_value_t = 3)]
    nodes: u32,
    /// Repeats the choices of an earlier run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long the moving may take
    #[arg(long, value_name = "S", default_value_t = 600)]
    limit: u64,
    /// Kill the daemon of a node every so many seconds, and start another in its place: then it is
    /// the limit that says how long programs are moved, and N moves are the least
    #[arg(long, value_name = "S")]
    kill_daemons: Option<u64>,
    /// Soak this program instead of the one built here
    #[arg(long, value_name = "PATH")]
    osmos: Option<PathBuf>,
    /// Do without these kernel features (`osmos doctor` names them)
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    without: Vec<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Whether none was lost, none doubled, and nothing left behind.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let options = Options {
        moves: arguments.moves,
        processes: arguments.processes,
        only: arguments.only.clone(),
        nodes: arguments.nodes,
        seed: arguments.seed,
        limit: Duration::from_secs(arguments.limit),
        kill_daemons: arguments.kill_daemons.map(Duration::from_secs),
        osmos: arguments.osmos.clone(),
        without: arguments.without.clone(),
    };
    let report = conformance::soak::run(&options, &|what| eprintln!("{what} ..."))?;
    match arguments.json {
        true => println!("{}", report.json()),
        false => print!("{}", report.text()),
    }
    Ok(report.is_success())
}
