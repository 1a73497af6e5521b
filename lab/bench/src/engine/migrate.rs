//! How long programs of all sizes stand still while they move, as they see it themselves, and what
//! travels for it: away, home, away again, and away once more by way of another node; those of many
//! threads also from node to node.

use crate::engine::Setting;
use crate::engine::driven::Driven;
use crate::engine::figure::Figure;
use crate::engine::freeze::{LEGS, phases};
use crate::engine::stage::{Share, Stage};
use crate::engine::statistics::Samples;
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};
use wire::control::{Migration, Status};

/// A program to be moved, and what is promised of it.
struct Traveller {
    what: &'static str,
    megabytes: u32,
    /// Size of its address space.
    room_megabytes: u32,
    /// Of its pages that it writes to each second.
    percent: f64,
    /// The longest freeze, milliseconds: away, and home again.
    freeze_ms_max: [f64; 2],
    /// How long it stays away before it comes home.
    stay: Duration,
    is_large: bool,
    /// Whether it comes again to where it was, and nodes remember it.
    comes_again: bool,
}

const SHORT: Duration = Duration::from_millis(200);
/// In which a hundredth of the pages is written to, at one percent a second.
const SECOND: Duration = Duration::from_secs(1);

const TRAVELLERS: [Traveller; 6] = [
    Traveller {
        what: "1 MB",
        megabytes: 1,
        room_megabytes: 1,
        percent: 0.0,
        freeze_ms_max: [5.0, 5.0],
        stay: SHORT,
        is_large: false,
        comes_again: false,
    },
    Traveller {
        what: "8 MB",
        megabytes: 8,
        room_megabytes: 8,
        percent: 1.0,
        freeze_ms_max: [8.0, 8.0],
        stay: SHORT,
        is_large: false,
        comes_again: true,
    },
    Traveller {
        what: "100 MB, idle",
        megabytes: 100,
        room_megabytes: 100,
        percent: 0.0,
        freeze_ms_max: [10.0, 10.0],
        stay: SHORT,
        is_large: false,
        comes_again: true,
    },
    Traveller {
        what: "1 GiB, 1 % written a second",
        megabytes: 1024,
        room_megabytes: 1024,
        percent: 1.0,
        freeze_ms_max: [10.0, 10.0],
        stay: SECOND,
        is_large: true,
        comes_again: true,
    },
    Traveller {
        what: "50 MB of 8 GiB",
        megabytes: 50,
        room_megabytes: 8192,
        percent: 0.0,
        freeze_ms_max: [10.0, 10.0],
        stay: SHORT,
        is_large: true,
        comes_again: false,
    },
    Traveller {
        what: "4 GiB, idle",
        megabytes: 4096,
        room_megabytes: 4096,
        percent: 0.0,
        freeze_ms_max: [15.0, 15.0],
        stay: SHORT,
        is_large: true,
        comes_again: false,
    },
];

/// Of what the first visit of a program to a node takes, percent: all that a later one may.
const AGAIN_PERCENT_MAX: f64 = 20.0;
/// Within which what a program leaves on a node is there.
const IMPRINT_TIMEOUT: Duration = Duration::from_secs(20);

/// What was seen of moves in one direction.
#[derive(Default)]
struct Leg {
    /// The longest gap that the program saw while it moved, milliseconds.
    gaps_ms: Vec<f64>,
    moves: Vec<Migration>,
}

/// The whole move of the smallest, away and home again, milliseconds.
const TOTAL_MS_MAX: f64 = 20.0;

/// A program of many threads: most sleep, and some of them and one that never does look at the
/// clock (`guests/crowd.c`).
struct Crowd {
    threads: u32,
    megabytes: u32,
    /// The longest freeze in each direction, milliseconds.
    freeze_ms_max: f64,
}

const CROWDS: [Crowd; 2] = [
    Crowd { threads: 256, megabytes: 20, freeze_ms_max: 20.0 },
    Crowd { threads: 1000, megabytes: 20, freeze_ms_max: 80.0 },
];

/// In the order of a journey.
#[derive(Default)]
struct Legs {
    away: Leg,
    home: Leg,
    again: Leg,
    /// Again, by way of another node.
    around: Leg,
}

pub fn run(setting: &Setting) -> Result<Vec<Figure>> {
    let stage = Stage::up(setting, 3, Share::Whole)?;
    let mut figures = Vec::new();
    for traveller in TRAVELLERS.iter().filter(|it| setting.effort.has(it.what)) {
        if traveller.is_large && !setting.effort.is_whole {
            continue;
        }
        let effort = &setting.effort;
        let times = if traveller.is_large { effort.moves_of_large } else { effort.moves };
        let legs = journeys(setting, &stage, traveller, times)?;
        let [away, home] = traveller.freeze_ms_max;
        for (leg, name, limit) in [(&legs.away, "away", away), (&legs.home, "home", home)] {
            figures.push(figure(traveller.what, name, leg)?.at_most(limit));
            if traveller.megabytes == 1 {
                figures.push(whole_move(traveller.what, name, leg)?.at_most(TOTAL_MS_MAX));
            }
        }
        if traveller.comes_again {
            let later =
                [(&legs.again, "away again"), (&legs.around, "away again by way of another node")];
            for (leg, name) in later {
                figures.push(figure(traveller.what, name, leg)?.at_most(away));
                figures.push(share(traveller, name, leg, &legs.away)?);
            }
        }
    }
    for crowd in CROWDS.iter().filter(|_| setting.effort.is_whole) {
        let what = format!(
            "{} threads with {} MB, which sleep but for one",
            crowd.threads, crowd.megabytes
        );
        if !setting.effort.has(&what) {
            continue;
        }
        let legs = journeys_of_crowd(setting, &stage, crowd, setting.effort.moves_of_large)?;
        for (leg, (name, _)) in legs.iter().zip(LEGS) {
            figures.push(figure(&what, name, leg)?.at_most(crowd.freeze_ms_max));
        }
    }
    ensure!(!figures.is_empty(), "none of its programs is called so");
    Ok(figures)
}

fn journeys(setting: &Setting, stage: &Stage, traveller: &Traveller, times: usize) -> Result<Legs> {
    let program = setting.programs.path("traveller");
    let numbers = [traveller.megabytes, traveller.room_megabytes].map(|number| number.to_string());
    let percent = traveller.percent.to_string();
    let words = ["osmos", "run", "--home", "--", &program, &numbers[0], &numbers[1], &percent];
    let mut driven = Driven::start(&mut stage.command(1, &words))?;
    let mut legs = Legs::default();
    for _ in 0..times {
        for node in [2, 3] {
            // Who takes no guests keeps nothing of those that have left.
            stage.output(node, &["osmos", "block"])?;
            stage.output(node, &["osmos", "noblock"])?;
        }
        go(stage, traveller, &mut driven, "2", &mut legs.away)?;
        go(stage, traveller, &mut driven, "home", &mut legs.home)?;
        if traveller.comes_again {
            await_imprint(stage, traveller)?;
            go(stage, traveller, &mut driven, "2", &mut legs.again)?;
            go(stage, traveller, &mut driven, "3", &mut Leg::default())?;
            await_imprint(stage, traveller)?;
            go(stage, traveller, &mut driven, "2", &mut legs.around)?;
            go(stage, traveller, &mut driven, "home", &mut Leg::default())?;
        }
    }
    driven.end()?;
    Ok(legs)
}

/// Round trips by way of two nodes.
fn journeys_of_crowd(
    setting: &Setting,
    stage: &Stage,
    crowd: &Crowd,
    times: usize,
) -> Result<[Leg; LEGS.len()]> {
    let program = setting.programs.path("crowd");
    let numbers = [crowd.threads, crowd.megabytes].map(|number| number.to_string());
    let words = ["osmos", "run", "--home", "--", &program, &numbers[0], &numbers[1]];
    let mut driven = Driven::start(&mut stage.command(1, &words))?;
    let mut legs = LEGS.map(|_| Leg::default());
    for _ in 0..times {
        for (leg, (_, to)) in legs.iter_mut().zip(LEGS) {
            driven.round::<2>(1)?;
            leg.moves.push(stage.migrate(driven.pid(), to)?);
            // Those who sleep have looked at the clock since.
            std::thread::sleep(SHORT);
            let [gap_ms, threads] = driven.round(1)?;
            ensure!(threads == f64::from(crowd.threads), "{threads} threads");
            leg.gaps_ms.push(gap_ms);
        }
    }
    driven.end()?;
    Ok(legs)
}

/// How long it takes from the order to the end, beside what is promised of it.
fn whole_move(what: &str, leg: &str, seen: &Leg) -> Result<Figure> {
    let totals = Samples::new(seen.moves.iter().map(|migration| migration.total_ms));
    let totals = totals.context("no moves")?;
    let note = format!("max {:.1} ms", totals.summary().max);
    Ok(Figure::new(format!("whole move of {what}, {leg}"), "ms", &totals).with_note(note))
}

fn go(
    stage: &Stage,
    traveller: &Traveller,
    driven: &mut Driven,
    to: &str,
    leg: &mut Leg,
) -> Result<()> {
    driven.round::<2>(1)?;
    leg.moves.push(stage.migrate(driven.pid(), to)?);
    let [gap_ms, _] = driven.round(1)?;
    leg.gaps_ms.push(gap_ms);
    std::thread::sleep(traveller.stay);
    Ok(())
}

/// Until node 2 has written down what the program has left there.
fn await_imprint(stage: &Stage, traveller: &Traveller) -> Result<()> {
    let deadline = Instant::now() + IMPRINT_TIMEOUT;
    loop {
        let told: Status = serde_json::from_str(&stage.output(2, &["osmos", "status", "--json"])?)?;
        if told.owner.imprint_bytes >= u64::from(traveller.megabytes) << 20 {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "node 2 does not keep what {} leaves", traveller.what);
        // Nothing tells when that is but to be asked.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a later visit sends, to what the first does.
fn share(traveller: &Traveller, name: &str, later: &Leg, first: &Leg) -> Result<Figure> {
    let pairs = later.moves.iter().zip(&first.moves);
    let percent = pairs
        .map(|(later, first)| 100.0 * later.bytes_sent as f64 / first.bytes_sent.max(1) as f64);
    let percent = Samples::new(percent).context("no moves")?;
    let what = format!("bytes sent of {}, {name}, of those of its first visit", traveller.what);
    Ok(Figure::new(what, "%", &percent).at_most(AGAIN_PERCENT_MAX))
}

fn figure(what: &str, leg: &str, seen: &Leg) -> Result<Figure> {
    let median = |value: fn(&Migration) -> f64| -> Result<f64> {
        Ok(Samples::new(seen.moves.iter().map(value)).context("no moves")?.median())
    };
    let gaps = Samples::new(seen.gaps_ms.iter().copied()).context("no moves")?;
    ensure!(!seen.moves.is_empty(), "no moves");
    let megabytes = median(|migration| migration.bytes_sent as f64)? / f64::from(1 << 20);
    let note = format!(
        "max {:.1} ms; {megabytes:.1} MB sent; reported {:.1} of {:.0} ms for the whole move: {}",
        gaps.summary().max,
        median(|migration| migration.freeze_ms)?,
        median(|migration| migration.total_ms)?,
        phases(&seen.moves).context("a move without phases")?,
    );
    let what = format!("longest gap of {what}, {leg}");
    Ok(Figure::new(what, "ms", &gaps).with_note(note))
}
