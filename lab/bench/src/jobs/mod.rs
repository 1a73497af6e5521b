//! `osmos bench jobs`: what parallel programs do. What those that are away do with what lies at
//! home, against the same at home and against what the link carries, in turn over the same link of
//! a lab; and how many processes a job begins.
//!
//! Where the link has no limit it carries what the processors seal and open; those of both nodes
//! are the same, and the program needs some of them as well.

mod launching;
pub mod program;

use crate::engine::driven::{Driven, Serving};
use crate::engine::stage::Stage;
use crate::engine::statistics::Samples;
use crate::provenance::Provenance;
use crate::reporting::Reporting;
use anyhow::{Context, Result};
use clap::Parser;
use launching::Launching;
use serde::Serialize;
use std::fmt::Write;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

const ROUNDS: usize = 5;
const MIB: usize = 1 << 20;
const FILE_MIB: usize = 1 << 10;
const BLOCKS: [usize; 2] = [4 << 10, 128 << 10];
/// Of the lab: how people call it, and as `osmos lab up --link` has it.
const LINKS: [(&str, Option<&str>); 2] = [("1 Gbit/s", Some("1gbit")), ("no limit", None)];
/// Of what the link carries.
const PART_MIN: f64 = 0.7;
/// A file that has just been written is not read ahead.
const SETTLES: Duration = Duration::from_millis(200);

/// Measure what programs that are away do with what lies at home, and how fast jobs begin
#[derive(Debug, Parser)]
#[command(name = "osmos bench jobs")]
#[command(after_help = "\
It makes labs of two and four nodes, which needs root, and a file in /var/tmp, and takes a few
minutes.

Examples:
  osmos bench jobs --quick         see that it works
  osmos bench jobs --report DIR    the table as Markdown and JSON")]
pub struct Options {
    #[command(flatten)]
    reporting: Reporting,
    /// Two rounds, an eighth of the data: only to see that it works
    #[arg(long)]
    quick: bool,
}

/// What one way to use the file has brought, megabytes a second, round by round.
#[derive(Clone, Debug, Serialize)]
struct Row {
    what: String,
    at_home: Vec<f64>,
    away: Vec<f64>,
    /// By one connection, sealed, and nothing else.
    link: Vec<f64>,
    /// The median of what it is of the link, round by round, and what is promised.
    part: f64,
    part_min: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Results {
    made: Provenance,
    mib: usize,
    rows: Vec<Row>,
    launching: Launching,
}

/// Measures all of it; returns what is to be printed.
///
/// # Errors
/// If there can be no lab, or a program of it fails.
pub fn run(options: &Options) -> Result<String> {
    let osmos = std::env::current_exe().context("cannot find this program's own file")?;
    let program = osmos.to_str().context("the path of this program is not text")?;
    let (rounds, mib) = if options.quick { (2, FILE_MIB / 8) } else { (ROUNDS, FILE_MIB) };
    let directory = tempfile::Builder::new().prefix("osmos-bench-").tempdir_in("/var/tmp")?;
    let path = directory.path().join("file");
    make(&path, mib)?;
    let mut rows = Vec::new();
    for (name, rate) in LINKS {
        eprintln!("osmos bench jobs: link: {name}");
        let stage = Stage::up_plain_over(&osmos, rate)?;
        rows.extend(read_in_order(&stage, program, &path, (rounds, mib, name))?);
    }
    let launching = launching::measure(&osmos, rounds)?;
    let results = Results { made: Provenance::now(), mib, rows, launching };
    let named = ("jobs", "Parallel jobs");
    options.reporting.finish(named, &results.made, &results, table(&results))
}

/// No two of its blocks are the same.
fn make(path: &Path, mib: usize) -> Result<()> {
    let (mut file, mut random) = (File::create(path)?, fastrand::Rng::with_seed(7));
    let mut block = vec![0; MIB];
    for _ in 0..mib {
        random.fill(&mut block);
        file.write_all(&block)?;
    }
    file.sync_all()?;
    std::thread::sleep(SETTLES);
    Ok(())
}

fn read_in_order(
    stage: &Stage,
    program: &str,
    path: &Path,
    (rounds, mib, name): (usize, usize, &str),
) -> Result<Vec<Row>> {
    let path = path.to_str().context("the path of the file is not text")?;
    let mut at_home = Driven::start(&mut stage.command(1, &[program, "bench-read", path]))?;
    let run = ["osmos", "run", "--home", "--", program, "bench-read", path];
    let mut away = Driven::start(&mut stage.command(1, &run))?;
    stage.migrate(away.pid(), "2")?;
    let listening =
        Serving::start(&mut stage.command(2, &[program, "bench-copy", "listen", SEALED]))?;
    // What it carries is told by a quarter as well.
    let (address, mib) = (stage.address(2), (mib / 4).to_string());
    let address = address.rsplit_once(':').map_or(&*address, |(address, _)| address);
    let words = [program, "bench-copy", address, &listening.line, SEALED, &mib];
    let mut link = Driven::start(&mut stage.command(1, &words))?;
    let mut rows = BLOCKS.map(|block| Row {
        what: format!("reading a file in order by {} KiB; link: {name}", block >> 10),
        at_home: vec![],
        away: vec![],
        link: vec![],
        part: 0.0,
        part_min: PART_MIN,
    });
    for round in 1..=rounds {
        eprintln!("osmos bench jobs: round {round} of {rounds}");
        for (row, block) in rows.iter_mut().zip(BLOCKS) {
            let block = block as u64;
            row.at_home.push(at_home.round::<1>(block)?[0]);
            row.away.push(away.round::<1>(block)?[0]);
            row.link.push(link.round::<1>(1)?[0]);
        }
    }
    for driven in [at_home, away, link] {
        driven.end()?;
    }
    for row in &mut rows {
        let parts = row.away.iter().zip(&row.link).map(|(away, link)| away / link);
        row.part = Samples::new(parts).context("no rounds")?.median();
    }
    Ok(rows.into())
}

const SEALED: &str = "sealed";

fn table(results: &Results) -> String {
    let rounds = results.rows.first().map_or(0, |row| row.away.len());
    let mut text = format!(
        "## Files at home, read away\n\n\
         A file of {} MiB that home's kernel has in memory; megabytes a second, the median of \
         {rounds} rounds in turn, lowest and highest in brackets. The link is one connection, \
         sealed as all between nodes.\n\n",
        results.mib
    );
    text.push_str("| | at home | away | the link | of the link | target |\n");
    text.push_str("|---|---:|---:|---:|---:|---|\n");
    for row in &results.rows {
        let _ = write!(text, "| {}", row.what);
        for rates in [&row.at_home, &row.away, &row.link] {
            let mut rates = rates.clone();
            rates.sort_by(f64::total_cmp);
            let [low, middle, high] = [0, rates.len() / 2, rates.len().saturating_sub(1)]
                .map(|at| rates.get(at).copied());
            let [low, middle, high] = [low, middle, high].map(Option::unwrap_or_default);
            let _ = write!(text, " | {middle:.0} ({low:.0} to {high:.0})");
        }
        let met = if row.part >= row.part_min { "met" } else { "missed" };
        let (part, part_min) = (row.part * 100.0, row.part_min * 100.0);
        let _ = writeln!(text, " | {part:.0} % | at least {part_min:.0} %: {met} |");
    }
    let _ = write!(text, "\n## Launching\n\n{}", results.launching.table());
    text
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_row_says_what_of_the_link_was_reached_and_whether_that_is_enough() {
        let row = |part| Row {
            what: format!("reading at {part}"),
            at_home: vec![3000.0],
            away: vec![90.0, 100.0, 80.0],
            link: vec![100.0],
            part,
            part_min: 0.7,
        };
        let made = Provenance::now();
        let launching = Launching {
            ranks: 1,
            nodes: 1,
            over_nodes: vec![],
            on_one: vec![],
            by_a_shell: vec![],
            busy_ms: vec![],
            per_s_min: 1.0,
        };
        let text = table(&Results { made, mib: 1, rows: vec![row(0.9), row(0.6)], launching });
        assert!(text.contains("| 90 (80 to 100) | 100 (100 to 100) | 90 % | at least 70 %: met |"));
        assert!(text.contains("60 % | at least 70 %: missed |"), "{text}");
    }
}
