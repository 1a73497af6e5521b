//! How long a process stands still while it moves: away, on to a third node, and home.

use crate::engine::Setting;
use crate::engine::driven::Driven;
use crate::engine::figure::Figure;
use crate::engine::forward::Exchange;
use crate::engine::stage::{Share, Stage};
use crate::engine::statistics::Samples;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use wire::control::Migration;

/// What is promised for a process of one thread and one megabyte.
const FREEZE_MS_MAX: f64 = 10.0;
/// The three moves of a round trip, and the node that each leads to.
pub const LEGS: [(&str, &str); 3] = [("away", "2"), ("from node to node", "3"), ("home", "home")];

/// A process to be moved.
struct Load {
    what: &'static str,
    megabytes: u32,
    threads: u32,
    is_promised: bool,
}

const LOADS: [Load; 4] = [
    Load { what: "1 MB, 1 thread", megabytes: 1, threads: 1, is_promised: true },
    Load { what: "1 MB, 16 threads", megabytes: 1, threads: 16, is_promised: false },
    Load { what: "1 MB, 64 threads", megabytes: 1, threads: 64, is_promised: false },
    Load { what: "100 MB, 1 thread", megabytes: 100, threads: 1, is_promised: false },
];

pub fn run(setting: &Setting) -> Result<Vec<Figure>> {
    let stage = Stage::up(setting, 3, Share::Whole)?;
    let mut figures = Vec::new();
    for load in &LOADS {
        if !load.is_promised && !setting.effort.is_whole {
            continue;
        }
        let effort = &setting.effort;
        let times = if load.is_promised { effort.moves } else { effort.moves_of_large };
        let floor = transfer(setting, &stage, u64::from(load.megabytes) << 20, times)?;
        let legs = journeys(setting, &stage, load, times)?;
        for ((leg, _), migrations) in LEGS.iter().zip(legs) {
            figures.push(figure(load, leg, &migrations, &floor)?);
        }
    }
    Ok(figures)
}

/// Times to send so many bytes over TCP between two nodes, and to hear that they are there.
fn transfer(setting: &Setting, stage: &Stage, bytes: u64, times: usize) -> Result<Samples> {
    let mut exchange = Exchange::start(setting, stage, bytes as usize, 1)?;
    let mut times_ms = Vec::new();
    for _ in 0..times {
        let [_, median_ns, ..] = exchange.asking.round::<4>(1)?;
        times_ms.push(median_ns / 1e6);
    }
    Samples::new(times_ms).context("no transfers")
}

/// Round trips of one process, each as its three legs.
fn journeys(
    setting: &Setting,
    stage: &Stage,
    load: &Load,
    times: usize,
) -> Result<[Vec<Migration>; LEGS.len()]> {
    let resident = setting.programs.path("resident");
    let (megabytes, threads) = (load.megabytes.to_string(), load.threads.to_string());
    let words = ["osmos", "run", "--home", "--", &resident, &megabytes, &threads];
    let driven = Driven::start(&mut stage.command(1, &words))?;
    let mut legs = LEGS.map(|_| Vec::new());
    for _ in 0..times {
        for ((_, to), moves) in LEGS.iter().zip(&mut legs) {
            moves.push(stage.migrate(driven.pid(), to)?);
        }
    }
    let status = driven.terminate()?;
    // 128 + SIGTERM: it was alive and whole enough to die of the signal that was sent.
    ensure!(status.code() == Some(143), "the moved process ended with {status}");
    Ok(legs)
}

fn figure(load: &Load, leg: &str, moves: &[Migration], floor: &Samples) -> Result<Figure> {
    let freezes = Samples::new(moves.iter().map(|migration| migration.freeze_ms));
    let freezes = freezes.context("no moves")?;
    let totals = Samples::new(moves.iter().map(|migration| migration.total_ms));
    let total = totals.context("no moves")?.median();
    let phases = phases(moves).context("a move without phases")?;
    let note = format!(
        "max {:.1} ms; whole move {total:.1} ms: {phases}; {} bytes",
        freezes.summary().max,
        moves[0].bytes_sent
    );
    let figure = Figure::new(format!("freeze of {}, {leg}", load.what), "ms", &freezes)
        .with_floor("its bytes over TCP", floor)
        .with_note(note);
    Ok(if load.is_promised { figure.at_most(FREEZE_MS_MAX) } else { figure })
}

/// Medians of the phases, in their order.
pub fn phases(moves: &[Migration]) -> Option<String> {
    let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, ms) in moves.iter().flat_map(|migration| &migration.phases_ms) {
        all.entry(name).or_default().push(*ms);
    }
    let told = moves.first()?.phases_ms.iter().map(|(name, _)| {
        let median = Samples::new(all.get(name.as_str())?.iter().copied())?.median();
        Some(format!("{name} {median:.2}"))
    });
    told.collect::<Option<Vec<String>>>().map(|told| told.join(", "))
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::ids::NodeId;
    use wire::supervisor::MoveReport;

    fn migration(freeze_ms: f64, send_ms: f64) -> Migration {
        let phases_ms = vec![("send".into(), send_ms), ("run".into(), 1.0)];
        let report = MoveReport::default();
        Migration {
            phases_ms,
            freeze_ms,
            ..Migration::from_report(7, NodeId(1), NodeId(2), "user", &report)
        }
    }

    #[test]
    fn a_figure_tells_the_longest_freeze_and_the_phases() {
        let moves = [migration(5.0, 2.0), migration(15.0, 4.0), migration(6.0, 3.0)];
        let floor = Samples::new([1.0]).unwrap();
        let figure = figure(&LOADS[0], "away", &moves, &floor).unwrap();
        assert!(figure.target.as_ref().unwrap().is_met);
        let note = figure.note.unwrap();
        assert!(note.contains("max 15.0 ms") && note.contains("send 3.00, run 1.00"), "{note}");
    }
}
