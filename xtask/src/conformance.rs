//! `cargo xtask conformance`: the matrix of programs and flavours, or a part of it.

use anyhow::Result;
use clap::Args;
use conformance::outside::Suite;
use conformance::report::{self, Row, Run};
use conformance::subject::Kind;
use conformance::{Flavour, Method, Options};
use std::time::Duration;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Only programs whose name contains this
    #[arg(long, value_name = "PART")]
    filter: Option<String>,
    /// Only these flavours: native, home, once, ping-pong, storm (or stopped: native, but stopped
    /// and continued at random, which tests the guests themselves)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    flavour: Vec<Flavour>,
    /// Only the guests of lab/guests
    #[arg(long, conflicts_with = "real")]
    guests: bool,
    /// Only programs that nobody here wrote
    #[arg(long)]
    real: bool,
    /// None of these, but servers and runtimes from packages (`packages`), each class of stress-ng
    /// (`stress-ng`), or each executable of a directory, as an ordinary user; how it ends is
    /// compared
    #[arg(long, value_name = "SUITE", conflicts_with_all = ["guests", "real"])]
    suite: Option<Suite>,
    /// Programs at a time
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// How long a guest stays at one travel point
    #[arg(long, value_name = "MS", default_value_t = 150)]
    travel: u64,
    /// How long one program may take in one flavour
    #[arg(long, value_name = "S", default_value_t = 30)]
    limit: u64,
    /// Do it so many times, to find what fails seldom
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,
    /// Do without these kernel features (`osmos doctor` names them)
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    without: Vec<String>,
    /// Have memory travel in this way, one after the other if there are more: protection,
    /// soft-dirty, stop-and-copy, hybrid, post-copy [default: the best that the kernel can do]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    method: Vec<Method>,
    /// Have programs keep to what the processors of all nodes have
    #[arg(long)]
    cpu_baseline: bool,
    /// Print one list of reports as JSON, each with its method and round: of every method the
    /// last round, and those that failed
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn options(&self, method: Option<Method>) -> Options {
        let default = Options::default();
        Options {
            filter: self.filter.clone(),
            only: None,
            has_baseline: self.cpu_baseline,
            flavours: match self.flavour.is_empty() {
                true => default.flavours,
                false => self.flavour.clone(),
            },
            jobs: self.jobs.unwrap_or(default.jobs),
            kind: match (self.guests, self.real) {
                (true, _) => Some(Kind::Guest),
                (_, true) => Some(Kind::Real),
                _ => None,
            },
            outside: self.suite.clone(),
            without: self.without.clone(),
            method,
            travel_ms: self.travel,
            laps: default.laps,
            limit: Duration::from_secs(self.limit),
            budget: Duration::MAX,
        }
    }
}

/// Whether every trial went well.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let methods: Vec<Option<Method>> = match arguments.method.as_slice() {
        [] => vec![None],
        methods => methods.iter().copied().map(Some).collect(),
    };
    let mut runs = Vec::new();
    let done = methods.into_iter().try_for_each(|method| run_by(arguments, method, &mut runs));
    // Also what there was before the harness failed.
    if arguments.json {
        println!("{}", report::json(&runs));
    }
    done?;
    Ok(runs.iter().all(|run| run.report.is_success()))
}

/// Adds what is told in full: the last round, and those that failed.
fn run_by(arguments: &Arguments, method: Option<Method>, runs: &mut Vec<Run>) -> Result<()> {
    if let Some(method) = method {
        eprintln!("{method}");
    }
    // A sign of life for each program.
    let tell = |_: &Row| eprint!(".");
    for round in 1..=arguments.repeat {
        let report = conformance::run(&arguments.options(method), &tell)?;
        eprintln!();
        if round < arguments.repeat && report.is_success() {
            eprintln!("{}", report.summary());
            continue;
        }
        if !arguments.json {
            print!("{}", report.text());
        }
        runs.push(Run { method, round, report });
    }
    Ok(())
}
