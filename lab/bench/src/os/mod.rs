//! `osmos bench os`: what Windows NT, Linux and QNX were compared by as the basis of clusters
//! (*Windows NT, Linux, and QNX as the Basis for Cluster Systems*, 2001): processes made and
//! ended, suspended and resumed, streams against the size of messages, a node's start and end, and
//! its footprint. Here for processes that are native, at home under Osmos, started on another node,
//! and migrated there, side by side on one machine.
//!
//! * [`program`]: what is measured; [`places`]: where; [`node`]: a node itself
//! * [`report`]: for people

mod node;
mod places;
mod program;
mod report;

use crate::engine::stage::Stage;
use crate::provenance::Provenance;
use crate::reporting::Reporting;
use anyhow::{Context, Result};
use clap::Parser;
use places::Measuring;
use serde::Serialize;
use std::ffi::OsString;
use std::process::ExitCode;

/// As in the paper: programs of 2 KB to 10 MB, fifty times.
const SIZES: [usize; 5] = [2 << 10, 10 << 10, 100 << 10, 1 << 20, 10 << 20];
const CREATIONS: u64 = 50;
/// As in the paper.
const SUSPENSIONS: u64 = 500;
const MESSAGES: [usize; 9] = [1, 4, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10];
/// How many bytes one stream has, at most, and how many messages.
const STREAM_BYTES: u64 = 32 << 20;
const STREAM_MESSAGES: u64 = 20_000;
const STARTS: u64 = 10;
/// Rounds of which the first is not counted.
const ROUNDS: usize = 5;

/// Measure processes, streams and nodes, as Windows NT, Linux and QNX were compared
#[derive(Debug, Parser)]
#[command(name = "osmos bench os")]
#[command(after_help = "\
It makes a stage of two nodes, which needs root, and takes some minutes.

Examples:
  osmos bench os --quick            see that it works
  osmos bench os --report DIR       tables and figures as Markdown and JSON")]
pub struct Options {
    #[command(flatten)]
    reporting: Reporting,
    /// A tenth of the repetitions, three sizes: only to see that it works
    #[arg(long)]
    quick: bool,
}

/// How much is measured.
struct Amount {
    sizes: Vec<usize>,
    messages: Vec<usize>,
    /// Of what the full run does.
    part: u64,
    rounds: usize,
}

impl Amount {
    fn of(options: &Options) -> Amount {
        match options.quick {
            false => {
                Amount { sizes: SIZES.into(), messages: MESSAGES.into(), part: 1, rounds: ROUNDS }
            }
            true => Amount {
                sizes: vec![SIZES[0], SIZES[3]],
                messages: vec![64, 4 << 10, 64 << 10],
                part: 10,
                rounds: 2,
            },
        }
    }

    fn times(&self, full: u64) -> u64 {
        (full / self.part).max(1)
    }

    fn stream_messages(&self, bytes: usize) -> u64 {
        self.times(STREAM_MESSAGES.min(STREAM_BYTES / bytes as u64))
    }
}

/// What one step took, us: of the rounds, the median of medians and what lies about it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Took {
    median: f64,
    p10: f64,
    p90: f64,
    mean: f64,
}

/// A row of a table: what, where, and what it took.
#[derive(Clone, Debug, Serialize)]
struct Timed {
    what: String,
    place: &'static str,
    us: Took,
}

#[derive(Clone, Debug, Serialize)]
struct Stream {
    message_bytes: usize,
    place: &'static str,
    megabytes_per_s: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Footprint {
    what: &'static str,
    /// Resident, with what is shared with others in equal parts.
    kib: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Results {
    made: Provenance,
    creation: Vec<Timed>,
    suspension: Vec<Timed>,
    streams: Vec<Stream>,
    node: Vec<Timed>,
    footprint: Vec<Footprint>,
}

/// Runs the hidden command that these process arguments (program name first) are, if they are one:
/// the programs that are measured.
pub fn hidden_main(arguments: &[OsString]) -> Option<ExitCode> {
    let (step, rest) = arguments.get(1..)?.split_first()?;
    if step != "bench-os" {
        return None;
    }
    Some(match program::run(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("osmos bench-os: {error:#}");
            ExitCode::FAILURE
        }
    })
}

/// Measures all of it; returns what is to be printed.
///
/// # Errors
/// If there can be no lab, or a program of it fails.
pub fn run(options: &Options) -> Result<String> {
    let osmos = std::env::current_exe().context("cannot find this program's own file")?;
    let stage = Stage::up_plain(&osmos, 2)?;
    let program = osmos.to_str().context("the path of this program is not text")?;
    let results = measure(&Measuring { stage: &stage, program, amount: &Amount::of(options) })?;
    drop(stage);
    let named = ("os", "Processes, streams and nodes");
    options.reporting.finish(named, &results.made, &results, report::text(&results))
}

fn measure(measuring: &Measuring<'_>) -> Result<Results> {
    let Measuring { stage, program, amount } = measuring;
    Ok(Results {
        made: Provenance::now(),
        creation: measuring.creation()?,
        suspension: measuring.suspension()?,
        streams: measuring.streams()?,
        node: node::times(stage, amount)?,
        footprint: node::footprint(stage, program)?,
    })
}

fn tell(what: &str) {
    eprintln!("osmos bench os: {what}");
}
