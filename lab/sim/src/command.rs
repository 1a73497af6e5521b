//! `osmos sim`: play a scenario, or replay what a daemon has recorded.

use crate::builtin;
use crate::scenario::Scenario;
use crate::world::World;
use crate::{Outcome, outcome};
use anyhow::{Context, Result, anyhow, bail};
use brain::{Config, Replay};
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Recordings are read whole.
const RECORDING_BYTES_MAX: u64 = 1 << 30;
const SCENARIO_BYTES_MAX: u64 = 1 << 20;

/// Play a cluster that does not exist, with the balancing of real ones
#[derive(Debug, Parser)]
#[command(
    name = "osmos sim",
    after_help = "\
Examples:
  osmos sim sixteen                  16 nodes, 24 processes
  osmos sim --show sixteen > my.json the same as a file to begin with
  osmos sim my.json --seed 7 --json
  osmos sim thousand --cost          what gossip and brains cost
  osmos sim --replay FILE            what `osmos up --record FILE` has recorded, decided again

Built in: sixteen, starved, thousand, hundred-thousand, million"
)]
pub struct Options {
    /// A JSON file, or the name of a scenario that is built in
    #[arg(value_name = "SCENARIO", required_unless_present = "replay")]
    scenario: Option<PathBuf>,
    /// Of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Without turns on crowded nodes
    #[arg(long)]
    no_rotation: bool,
    /// Print all of the outcome as JSON
    #[arg(long)]
    json: bool,
    /// Measure what the brains take of a processor (the run itself is slower then)
    #[arg(long)]
    cost: bool,
    /// Print the scenario instead of playing it
    #[arg(long)]
    show: bool,
    /// Replay a recording and see that the same is decided
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    replay: Option<PathBuf>,
}

/// `osmos sim`, for manual pages and shells that complete words.
pub fn definition() -> clap::Command {
    Options::command().name("sim")
}

pub fn main(words: Vec<OsString>) -> ExitCode {
    execute("osmos sim", words, run)
}

/// Runs a command with the options that its words give, by the conventions of Linux tools: what it
/// says of errors goes to stderr, and 2 is the status for words that it does not understand.
pub fn execute<O: Parser>(
    name: &str,
    words: Vec<OsString>,
    run: impl FnOnce(&O) -> Result<()>,
) -> ExitCode {
    let options = match O::try_parse_from(words) {
        Ok(options) => options,
        Err(error) => {
            // Help and version are no errors, and printing them to a closed pipe is none of ours.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// To standard output. A reader that has seen enough (`... | head`) is no failure.
pub fn print(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

fn run(options: &Options) -> Result<()> {
    if let Some(path) = &options.replay {
        return replay(path);
    }
    let Some(named) = &options.scenario else { bail!("no scenario is named") };
    let scenario = load(named)?;
    if options.show {
        return Ok(print(&(serde_json::to_string_pretty(&scenario)? + "\n"))?);
    }
    let config = Config { rotates: !options.no_rotation, ..Config::default() };
    let began = Instant::now();
    let mut world = World::new(scenario, config, options.seed).map_err(|error| anyhow!(error))?;
    if options.cost {
        world.measure_brains();
    }
    let outcome = world.run();
    let took_s = began.elapsed().as_secs_f64();
    if options.json {
        print(&(serde_json::to_string_pretty(&outcome)? + "\n"))?;
    } else {
        print(&outcome::text(&outcome, took_s))?;
    }
    check(&outcome)
}

/// A name that is built in, or a file.
fn load(named: &Path) -> Result<Scenario> {
    if let Some(scenario) = named.to_str().and_then(builtin::scenario) {
        return Ok(scenario);
    }
    let shown = named.display();
    let text = read(named, SCENARIO_BYTES_MAX)?;
    serde_json::from_slice(&text).with_context(|| format!("{shown} is no scenario"))
}

fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let shown = path.display();
    let length = std::fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
    if length > bytes_max {
        bail!("{shown} has {length} bytes; {bytes_max} are read at most");
    }
    std::fs::read(path).with_context(|| format!("cannot read {shown}"))
}

fn check(outcome: &Outcome) -> Result<()> {
    let violations = &outcome.findings.violations;
    if !violations.is_empty() {
        bail!("what must hold did not:\n{}", violations.join("\n"));
    }
    Ok(())
}

fn replay(path: &Path) -> Result<()> {
    let bytes = read(path, RECORDING_BYTES_MAX)?;
    let mut rest = bytes.as_slice();
    let mut replay = Replay::new();
    let mut outputs = 0;
    while !rest.is_empty() {
        let (left, said) = replay.step(rest).with_context(|| path.display().to_string())?;
        rest = left;
        outputs += said.len();
    }
    let frames = replay.frames();
    Ok(print(&format!("{frames} frames replayed, {outputs} outputs, all as recorded\n"))?)
}
