//! All of it in one command: which machines, which pairs, which programs; or a short form of that
//! for every change.

use crate::Flavour;
use crate::machines::ground::{Ground, LAB};
use crate::machines::machine::Plan;
use crate::machines::seat::Seat;
use crate::machines::table::{Row, Table};
use crate::machines::trials::{Choice, Pair};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use wire::ids::NodeId;

/// What the short form runs: each of another kind.
const SHORT: &[&str] = &[
    "clocks_go_forward",
    "clock_nanosleep_absolute",
    "computing_only",
    "file_append",
    "memory_private_file",
    "posix_timers",
    "registers_in_handlers",
    "signal_handler_while_computing",
    "tcp_stream",
    "threads_condition_variable",
    "timerfd_ticks",
    "gzip",
    "python3-threads",
    "make",
];

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Two machines, few programs: a quarter of an hour.
    pub short: bool,
    /// Only these pairs.
    pub pairs: Vec<Pair>,
    /// Only programs whose name contains this.
    pub filter: Option<String>,
}

/// One machine or another: kernel, processor, number of processors, seconds ahead.
type Words = (&'static str, &'static str, u32, i64);

const MACHINES: &[Words] =
    &[("6.1", "max", 1, 1000), ("6.12", "max", 2, -700), ("6.12", "Nehalem", 1, 300)];
const MACHINES_SHORT: &[Words] = &[("6.1", "max", 1, 1000), ("6.12", "max", 2, -700)];
/// Those with the least processor last: programs of a baseline keep to what all members have that
/// their home has heard of.
const PAIRS: &[(u32, u32)] = &[(2, 3), (3, 2), (1, 2), (2, 1), (1, 3), (3, 1), (4, 3), (3, 4)];
const PAIRS_SHORT: &[(u32, u32)] = &[(2, 3), (3, 2)];
const MEMORY_MIB: u32 = 1024;

/// Says what this machine lacks, before anything is built.
pub fn check_programs() -> Result<()> {
    let needed = [
        (crate::machines::machine::EMULATOR, "qemu-system-x86"),
        ("ip", "iproute2"),
        ("apt-get", "apt"),
        ("dpkg-deb", "dpkg"),
        ("xz", "xz-utils"),
        ("setpriv", "util-linux"),
        ("cc", "gcc"),
        ("make", "make"),
    ];
    for (program, package) in needed {
        let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output();
        let is_there = found.is_ok_and(|output| output.status.success());
        ensure!(is_there, "machines need the program `{program}`: install the package {package}");
    }
    let tun = Path::new("/dev/net/tun");
    ensure!(tun.exists(), "machines need /dev/net/tun: the kernel's driver `tun`");
    Ok(())
}

pub fn plans(machines: &[Words]) -> Vec<Plan> {
    let plan = |(index, words): (usize, &Words)| {
        let (kernel, cpu, processors, clock_ahead_s) = *words;
        let number = index as u32 + 1;
        Plan {
            node: NodeId(number + 1),
            kernel: kernel.to_string(),
            cpu: cpu.to_string(),
            processors,
            memory_mib: MEMORY_MIB,
            clock_ahead_s,
            user: format!("user{number}"),
            // A user of one machine is nobody, or somebody else, on another one.
            uid: 1000 * number + 1,
        }
    };
    machines.iter().enumerate().map(plan).collect()
}

/// Boots the machines, tries all pairs, and takes everything down.
pub fn run(options: &Options) -> Result<Table> {
    check_programs()?;
    let (machines, pairs) = match options.short {
        true => (MACHINES_SHORT, PAIRS_SHORT),
        false => (MACHINES, PAIRS),
    };
    let pair = |(home, away): &(u32, u32)| Pair { home: NodeId(*home), away: NodeId(*away) };
    let mut pairs: Vec<Pair> = pairs.iter().map(pair).collect();
    if !options.pairs.is_empty() {
        pairs.retain(|pair| options.pairs.contains(pair));
    }
    ensure!(!pairs.is_empty(), "none of these pairs is tried");
    let tell = |what: &str| eprintln!("{what} ...");
    let ground = Ground::up(&LAB.parse()?, &plans(machines), &tell)?;
    let mut table = Table::default();
    for (index, pair) in pairs.into_iter().enumerate() {
        table.rows.push(row(&ground, pair, options, index == 0)?);
    }
    Ok(table)
}

fn row(ground: &Ground, pair: Pair, options: &Options, with_faults: bool) -> Result<Row> {
    let (home, away) = (Seat::new(ground, pair.home)?, Seat::new(ground, pair.away)?);
    let mut names = format!("{} → {}", home.description(), away.description());
    eprintln!("node {} to node {}: {names}", pair.home, pair.away);
    ground.pair_up(pair)?;
    let has_baseline = ground.needs_baseline(pair)?;
    let report = ground.try_programs(pair, &choice(options), has_baseline);
    if has_baseline {
        names.push_str(", baseline");
    }
    let mut checks = Vec::new();
    let (seconds, moves, storm) = if options.short { (15, 10, 20) } else { (120, 200, 120) };
    if report.is_ok() {
        checks = ground.check_clocks(pair, seconds, moves).context("cannot check clocks")?;
        if with_faults {
            checks.extend(ground.check_faults(pair, Duration::from_secs(storm)));
        }
    }
    let report = report.map_err(|error| format!("{error:#}"));
    Ok(Row { pair, names, report, checks })
}

fn choice(options: &Options) -> Choice {
    Choice {
        filter: options.filter.clone(),
        only: options.short.then(|| SHORT.iter().map(|name| name.to_string()).collect()),
        flavours: vec![Flavour::Storm],
        jobs: 2,
        limit: Duration::from_secs(240),
        budget: Duration::from_secs(if options.short { 600 } else { 30 * 60 }),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn machines_differ_in_clock_and_user_and_every_pair_is_of_two_that_there_are() {
        for (machines, pairs) in [(MACHINES, PAIRS), (MACHINES_SHORT, PAIRS_SHORT)] {
            let plans = plans(machines);
            for one in &plans {
                let others = plans.iter().filter(|other| other.node != one.node);
                for other in others {
                    assert!(one.clock_ahead_s != other.clock_ahead_s && one.uid != other.uid);
                }
            }
            for (home, away) in pairs {
                assert!(
                    home != away
                        && [home, away].iter().all(|node| **node <= plans.len() as u32 + 1)
                );
            }
        }
    }

    #[test]
    fn every_program_of_the_short_form_exists() {
        let guests = crate::guests::subjects().unwrap();
        let real = crate::programs::subjects();
        for name in SHORT {
            assert!(guests.iter().chain(&real).any(|subject| subject.name == *name), "{name}");
        }
    }
}
