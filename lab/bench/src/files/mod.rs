//! `osmos bench files`: what files of another node cost through `osmos mount`, against the same
//! where they lie and against sshfs, in turn over the same link of a lab; and what they cost a
//! process that is away, where they lie and elsewhere.
//!
//! NFS would be the third: the kernel has it or has not, and a lab cannot bring it.

pub mod program;

use crate::engine::stage::Stage;
use crate::provenance::Provenance;
use crate::reporting::Reporting;
use anyhow::{Context, Result, ensure};
use clap::Parser;
use program::Rates;
use serde::Serialize;
use std::fmt::Write;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

const MOUNT: &str = "/tmp/mfs";
const SHARED: &str = "/tmp/mfs-shared";
const SSHFS: &str = "/tmp/sshfs";
/// Of node 2.
const DIRECTORY: &str = "/tmp/bench-files";
const ROUNDS: usize = 5;
const MIB: u64 = 256;
const SMALL: u64 = 5_000;
/// A server of sshd has its keys in a moment.
const SSHD_PATIENCE: Duration = Duration::from_secs(10);

/// Measure files of another node through `osmos mount`, where they lie, and through sshfs
#[derive(Debug, Parser)]
#[command(name = "osmos bench files")]
#[command(after_help = "\
It makes a lab of three nodes, which needs root, and takes a few minutes. Through sshfs only where
sshfs, ssh and sshd are installed.

Examples:
  osmos bench files --quick         see that it works
  osmos bench files --report DIR    the table as Markdown and JSON")]
pub struct Options {
    #[command(flatten)]
    reporting: Reporting,
    /// One round, an eighth of the data: only to see that it works
    #[arg(long)]
    quick: bool,
}

/// All rounds in one place.
#[derive(Clone, Debug, Serialize)]
struct Place {
    name: &'static str,
    rounds: Vec<Rates>,
}

#[derive(Clone, Debug, Serialize)]
struct Results {
    made: Provenance,
    mib: u64,
    small: u64,
    places: Vec<Place>,
}

/// Measures all of it; returns what is to be printed.
///
/// # Errors
/// If there can be no lab, or a program of it fails.
pub fn run(options: &Options) -> Result<String> {
    let osmos = std::env::current_exe().context("cannot find this program's own file")?;
    let program = osmos.to_str().context("the path of this program is not text")?;
    let stage = Stage::up_plain(&osmos, 3)?;
    stage.output(2, &["osmos", "share", "write"])?;
    // As an ordinary user has it, and as all users share root's.
    stage.output(1, &["osmos", "mount", "--private", MOUNT])?;
    stage.output(1, &["osmos", "mount", SHARED])?;
    let mounted = format!("{MOUNT}/2{DIRECTORY}");
    let mut places = vec![
        ("where they lie", Runs::On(2), DIRECTORY.to_owned()),
        ("osmos mount", Runs::On(1), mounted.clone()),
        ("the same, shared by all users", Runs::On(1), format!("{SHARED}/2{DIRECTORY}")),
        ("away on their node", Runs::AwayOn(2), mounted.clone()),
        ("away on another node", Runs::AwayOn(3), mounted),
    ];
    match mount_by_ssh(&stage) {
        Ok(()) => places.push(("sshfs", Runs::On(1), format!("{SSHFS}{DIRECTORY}"))),
        Err(error) => eprintln!("osmos bench files: without sshfs: {error:#}"),
    }
    let (rounds, part) = if options.quick { (1, 8) } else { (ROUNDS, 1) };
    let (mib, small) = (MIB / part, SMALL / part);
    let mut measured: Vec<Place> =
        places.iter().map(|(name, ..)| Place { name, rounds: Vec::new() }).collect();
    for round in 1..=rounds {
        eprintln!("osmos bench files: round {round} of {rounds}");
        for (place, (_, runs, directory)) in measured.iter_mut().zip(&places) {
            let (mib, small) = (mib.to_string(), small.to_string());
            let words = [program, "bench-files", directory, &mib, &small];
            let told = match runs {
                Runs::On(node) => stage.output(*node, &words)?,
                Runs::AwayOn(node) => away(&stage, *node, &words)?,
            };
            place.rounds.push(serde_json::from_str(&told)?);
        }
    }
    let results = Results { made: Provenance::now(), mib, small, places: measured };
    let named = ("files", "Files of another node");
    options.reporting.finish(named, &results.made, &results, table(&results))
}

/// Where the program is.
#[derive(Clone, Copy)]
enum Runs {
    On(u32),
    /// Its home is node 1.
    AwayOn(u32),
}

/// What a program of node 1 prints that begins when it is on another.
fn away(stage: &Stage, node: u32, words: &[&str]) -> Result<String> {
    let number = node.to_string();
    let run = ["osmos", "run", "--node", &number, "--"];
    let mut command = stage.command(1, &[&run, words, &[program::WAITS]].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut output = BufReader::new(child.stdout.take().context("its output is a pipe")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    stage.await_arrival(line.trim().parse().context("it tells its pid")?, node)?;
    drop(child.stdin.take());
    line.clear();
    output.read_to_string(&mut line)?;
    ensure!(child.wait()?.success(), "the program that was away has failed");
    Ok(line)
}

/// A server on node 2 with keys of its own, and its root on node 1.
fn mount_by_ssh(stage: &Stage) -> Result<()> {
    let keys = "mkdir -p -m 700 /tmp/ssh /run/sshd && cd /tmp/ssh && \
                ssh-keygen -q -t ed25519 -N '' -f host && \
                ssh-keygen -q -t ed25519 -N '' -f user && cp user.pub allowed && \
                \"$(command -v sshd)\" -p 2222 -h /tmp/ssh/host \
                -o AuthorizedKeysFile=/tmp/ssh/allowed -o StrictModes=no -o PermitRootLogin=yes \
                -o PidFile=/tmp/ssh/pid -E /tmp/ssh/log && cat user";
    let path = "PATH=$PATH:/usr/sbin:/sbin";
    let key = stage.output(2, &["sh", "-c", &format!("{path}; {keys}")])?;
    let address = stage.address(2);
    let address = address.rsplit_once(':').map_or(&*address, |(address, _)| address);
    let mount = format!(
        "mkdir -p {SSHFS} && (umask 077; printf '%s\\n' \"$1\" > /tmp/key) && sshfs -p 2222 -o \
         IdentityFile=/tmp/key,StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null \
         root@{address}:/ {SSHFS}"
    );
    let began = Instant::now();
    loop {
        match stage.output(1, &["sh", "-c", &mount, "sh", key.trim_end()]) {
            Ok(_) => return Ok(()),
            Err(error) if began.elapsed() > SSHD_PATIENCE => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// What of a round, and how people call it.
type Row = (&'static str, fn(&Rates) -> f64);

const ROWS: [Row; 7] = [
    ("write one after the other, MiB/s", |rates| rates.write),
    ("read one after the other, MiB/s", |rates| rates.read),
    ("read 4 KiB at random, a second", |rates| rates.random),
    ("create, a second", |rates| rates.create),
    ("stat, a second", |rates| rates.stat),
    ("list and stat, a second", |rates| rates.list),
    ("remove, a second", |rates| rates.remove),
];

fn table(results: &Results) -> String {
    let mut text = format!(
        "A file of {} MiB, {} empty files; the median of {} rounds in turn, lowest and highest in \
         brackets.\n\n|",
        results.mib,
        results.small,
        results.places[0].rounds.len()
    );
    let names: Vec<&str> = results.places.iter().map(|place| place.name).collect();
    let _ = write!(text, " | {}", names.join(" | "));
    text.push_str(" |\n|---");
    results.places.iter().for_each(|_| text.push_str("|---:"));
    text.push_str("|\n");
    for (name, of) in ROWS {
        let _ = write!(text, "| {name}");
        for place in &results.places {
            let mut rates: Vec<f64> = place.rounds.iter().map(of).collect();
            rates.sort_by(f64::total_cmp);
            let (low, high) = (rates[0], rates[rates.len() - 1]);
            let _ = write!(text, " | {:.0} ({low:.0} to {high:.0})", rates[rates.len() / 2]);
        }
        text.push_str(" |\n");
    }
    text
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_table_has_the_median_of_each_place_and_what_lies_about_it() {
        let rates = |write| Rates {
            write,
            read: 2.0,
            random: 3.0,
            create: 4.0,
            stat: 5.0,
            list: 6.0,
            remove: 7.0,
        };
        let rounds = [9.0, 1.0, 5.0].map(rates).to_vec();
        let places = vec![Place { name: "here", rounds }];
        let made = Provenance::now();
        let text = table(&Results { made, mib: 1, small: 2, places });
        assert!(text.contains("| write one after the other, MiB/s | 5 (1 to 9) |"), "{text}");
        assert!(text.contains("median of 3 rounds"), "{text}");
    }
}
