//! Chores of the project, so that there are no shell scripts to keep: `cargo xtask --help`.

mod bench;
mod conformance;
mod fuzz;
mod machines;
mod package;
mod screenshots;
mod soak;
mod tidy;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Chores of the Osmos project
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Measure what Osmos costs, against native Linux and plain TCP
    Bench(bench::Arguments),
    /// Run programs in all flavours and compare them with native Linux
    Conformance(conformance::Arguments),
    /// Feed every decoder what is none of its messages, guided by coverage
    Fuzz(fuzz::Arguments),
    /// Run programs between machines with kernels, clocks and processors of their own
    Machines(machines::Arguments),
    /// Make what people install: a static program, a .deb and an .rpm
    Package(package::Arguments),
    /// Make the pictures of the README anew, of a lab in which programs move
    Screenshots,
    /// Move many processes of every kind at random for a long time, and see that none is lost,
    /// none is doubled and nothing is left behind
    Soak(soak::Arguments),
    /// Check what the compiler does not: layers, sizes, words, heads of files
    Tidy,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Chore::Machines(arguments) => return machines::main(&arguments),
        Chore::Bench(arguments) => bench::run(&arguments),
        Chore::Conformance(arguments) => conformance::run(&arguments),
        Chore::Fuzz(arguments) => fuzz::run(&arguments),
        Chore::Package(arguments) => package::run(&arguments),
        Chore::Screenshots => screenshots::run(),
        Chore::Soak(arguments) => soak::run(&arguments),
        Chore::Tidy => tidy::run(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
