//! `cargo xtask fuzz`: feeds every decoder what is none of its messages, guided by coverage.
//!
//! libFuzzer needs two things of the compiler: counters at every edge, and the places that they
//! stand for. The flags below ask LLVM for them directly, so that a stable toolchain will do. What
//! is found stays in `target/fuzz`: the next run goes on from there.

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[derive(Debug, Args)]
pub struct Arguments {
    /// How long each target is fuzzed
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// These targets only; all of them if none is named
    targets: Vec<String>,
}

/// What makes the compiler count (LLVM's SanitizerCoverage, without any sanitizer).
const COUNTING: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];
/// Named, so that the flags do not concern what runs while building.
const MACHINE: &str = "x86_64-unknown-linux-gnu";
/// Of one input, bytes: the largest that reach every limit on lists of small things.
const INPUT_BYTES_MAX: u32 = 64 << 10;
/// Of the fuzzer with all that it keeps. What one input may take is bounded by the program itself.
const MEMORY_MIB_MAX: u32 = 2048;
/// One input that takes longer than this hangs.
const INPUT_SECONDS_MAX: u32 = 10;

/// What came of one target.
struct Outcome {
    target: String,
    executions: u64,
    /// Edges reached, as libFuzzer counts them.
    coverage: u64,
    corpus: usize,
    memory_mib: u64,
    /// What the fuzzer said when it found something.
    found: Option<String>,
}

/// Whether nothing was found.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let place = Place::find()?;
    let program = place.build()?;
    let known = targets(&program)?;
    let unknown = arguments.targets.iter().find(|name| !known.contains(name));
    if let Some(name) = unknown {
        bail!("there is no target `{name}`; there are {}", known.join(", "));
    }
    let chosen = if arguments.targets.is_empty() { &known } else { &arguments.targets };
    let mut is_clean = true;
    println!(
        "{:<12} {:>12} {:>8} {:>8} {:>8}  found",
        "target", "executions", "edges", "corpus", "MiB"
    );
    for target in chosen {
        let outcome = place.fuzz(&program, target, arguments.seconds)?;
        is_clean &= outcome.found.is_none();
        println!(
            "{:<12} {:>12} {:>8} {:>8} {:>8}  {}",
            outcome.target,
            outcome.executions,
            outcome.coverage,
            outcome.corpus,
            outcome.memory_mib,
            outcome.found.as_deref().unwrap_or("nothing")
        );
    }
    Ok(is_clean)
}

/// Where things are.
struct Place {
    /// The crate of the targets.
    source: PathBuf,
    target: PathBuf,
}

impl Place {
    fn find() -> Result<Place> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let root = root.context("xtask lies in the repository")?;
        Ok(Place { source: root.join("fuzz"), target: root.join("target/fuzz") })
    }

    fn build(&self) -> Result<PathBuf> {
        eprintln!("building the targets ...");
        let status = Command::new(env!("CARGO"))
            .args(["build", "--release", "--quiet", "--target", MACHINE])
            .current_dir(&self.source)
            .env("RUSTFLAGS", COUNTING.join(" "))
            .env("CARGO_TARGET_DIR", &self.target)
            .status()
            .context("cannot start cargo")?;
        ensure!(status.success(), "the fuzz targets do not build (libFuzzer needs a C++ compiler)");
        Ok(self.target.join(MACHINE).join("release/osmos-fuzz"))
    }

    /// Fuzzes one target, behind everything else that the machine has to do.
    fn fuzz(&self, program: &Path, target: &str, seconds: u64) -> Result<Outcome> {
        let (corpus, artifacts) =
            (self.target.join("corpus").join(target), self.target.join("found"));
        fs::create_dir_all(&corpus)?;
        fs::create_dir_all(&artifacts)?;
        let seeded = Command::new(program)
            .env("OSMOS_FUZZ_TARGET", target)
            .env("OSMOS_FUZZ_SEEDS", &corpus)
            .status()?;
        ensure!(seeded.success(), "no seeds for {target}");
        eprintln!("{target}: {seconds} s ...");
        let output = Command::new("nice")
            .args(["-n", "19"])
            .arg(program)
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={INPUT_BYTES_MAX}"))
            .arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"))
            .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
            .arg(format!("-artifact_prefix={}/{target}-", artifacts.display()))
            .arg("-print_final_stats=1")
            .arg(&corpus)
            .env("OSMOS_FUZZ_TARGET", target)
            .output()
            .context("cannot start the fuzzer")?;
        let corpus = fs::read_dir(&corpus)?.count();
        Ok(outcome(target, &output, corpus))
    }
}

fn targets(program: &Path) -> Result<Vec<String>> {
    let output = Command::new(program).env("OSMOS_FUZZ_LIST", "1").output();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    let names = String::from_utf8(output.stdout).context("names of targets are text")?;
    Ok(names.lines().map(str::to_owned).collect())
}

fn outcome(target: &str, output: &Output, corpus: usize) -> Outcome {
    let told = String::from_utf8_lossy(&output.stderr);
    let found = (!output.status.success()).then(|| {
        let word = told.lines().find(|line| line.contains("panicked at") || line.contains("ERROR"));
        let file = told.lines().find_map(|line| line.split_once("Test unit written to "));
        let file = file.map_or("no file", |(_, path)| path);
        format!("{} ({file})", word.unwrap_or("it ended").trim())
    });
    Outcome {
        target: target.to_owned(),
        executions: statistic(&told, "stat::number_of_executed_units:"),
        coverage: coverage(&told),
        corpus,
        memory_mib: statistic(&told, "stat::peak_rss_mb:"),
        found,
    }
}

/// A line `NAME NUMBER`.
fn statistic(told: &str, name: &str) -> u64 {
    let line = told.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// The last `cov: NUMBER`.
fn coverage(told: &str) -> u64 {
    let after = told.lines().rev().find_map(|line| line.split_once(" cov: "));
    let number = after.and_then(|(_, rest)| rest.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod test {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    const TOLD: &str = "\
#2\tINITED cov: 120 ft: 300 corp: 9/2Kb exec/s: 0 rss: 40Mb
#524288\tpulse  cov: 411 ft: 900 corp: 80/9Kb lim: 4096 exec/s: 40000 rss: 90Mb
stat::number_of_executed_units: 600000
stat::peak_rss_mb:              93
";

    fn output(told: &str, status: i32) -> Output {
        let status = ExitStatus::from_raw(status << 8);
        Output { status, stdout: Vec::new(), stderr: told.into() }
    }

    #[test]
    fn what_the_fuzzer_tells_becomes_a_line_of_the_table() {
        let outcome = outcome("call", &output(TOLD, 0), 80);
        assert_eq!((outcome.executions, outcome.coverage), (600_000, 411));
        assert_eq!((outcome.memory_mib, outcome.found), (93, None));
    }

    #[test]
    fn what_was_found_is_said_with_the_file_that_repeats_it() {
        let told = "thread panicked at src/x.rs:7:1:\nTest unit written to /t/found/call-crash-1\n";
        let found = outcome("call", &output(told, 77), 1).found.expect("something");
        assert!(found.contains("src/x.rs:7") && found.contains("/t/found/call-crash-1"), "{found}");
    }
}
