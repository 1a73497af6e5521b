//! Whatever measures, and shows people what it measured.
//!
//! * [`engine`]: `cargo xtask bench`: what calls and moves cost, against native Linux
//! * [`balance`]: `osmos bench balance`: how well work is spread, against exact optima
//! * [`ssi`], [`os`]: `osmos bench ssi` and `osmos bench os`: the benchmarks of 2009 and 2001
//! * [`files`]: `osmos bench files`: files of another node, against sshfs
//! * [`jobs`]: `osmos bench jobs`: what programs that are away do with what lies at home
//! * [`copy`]: what a link carries
//! * [`sources`]: `osmos bench report`: all of it beside what was published
//! * [`reporting`]: what is printed and written of one run
//! * [`provenance`]: what a kept result comes from
//! * [`demo`]: `osmos demo`: what users gain, in two to three minutes

pub mod balance;
pub mod copy;
pub mod demo;
pub mod engine;
pub mod files;
pub mod jobs;
pub mod os;
pub mod provenance;
mod reporting;
pub mod sources;
pub mod ssi;

use clap::CommandFactory;
use std::ffi::OsString;
use std::process::ExitCode;

/// `osmos bench`, for manual pages and shells that complete words.
pub fn definition() -> clap::Command {
    clap::Command::new("bench")
        .about("Measure Osmos: its balancing, processes, streams and nodes")
        .subcommand_required(true)
        .subcommands([
            balance::command::Options::command().name("balance"),
            ssi::Options::command().name("ssi"),
            os::Options::command().name("os"),
            files::Options::command().name("files"),
            jobs::Options::command().name("jobs"),
            sources::Options::command().name("report"),
        ])
}

/// Runs the hidden command that these process arguments (program name first) are, if they are one:
/// what a lab's nodes are made to run.
pub fn hidden_main(arguments: &[OsString]) -> Option<ExitCode> {
    let (step, rest) = arguments.get(1..)?.split_first()?;
    let step = step.to_str()?;
    let outcome = match step {
        "bench-guest" => balance::guest::run(rest),
        "bench-crew" => balance::crew::run(rest),
        "bench-files" => files::program::run(rest),
        "bench-read" => jobs::program::run(rest),
        "bench-copy" => copy::run(rest),
        _ => return os::hidden_main(arguments),
    };
    Some(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("osmos {step}: {error:#}");
            ExitCode::FAILURE
        }
    })
}
