//! What a program that is away pays for threads and processes, which are made where it is, for
//! files, which are mapped there, and for another program in its place, which begins at home.

use crate::engine::Setting;
use crate::engine::driven::Driven;
use crate::engine::figure::Figure;
use crate::engine::forward::Exchange;
use crate::engine::pairs::take_turns;
use crate::engine::stage::{Share, Stage};
use crate::engine::statistics::Samples;
use anyhow::{Context, Result, ensure};
use std::process::Command;
use wire::control::Happening;
use wire::ids::HomePid;

const MEGABYTES: u32 = 500;
/// Of one call, milliseconds.
const CALL_MS_MAX: f64 = 30.0;
/// What one may take longer than natively by which a program becomes another, milliseconds.
const PROGRAM_MS_MAX: f64 = 5.0;
/// Threads of a round, processes, and mappings.
const THREADS: u64 = 100;
const PROCESSES: u64 = 20;
const MAPPINGS: u64 = 100;
const TIMES_NATIVE_MAX: f64 = 3.0;
/// As long as those of a call without memory.
const MESSAGE_BYTES: usize = 48;
/// Of a small program, whose memory is not what is measured.
const SMALL_MEGABYTES: u32 = 1;

pub fn run(setting: &Setting) -> Result<Vec<Figure>> {
    let stage = Stage::up(setting, 2, Share::Whole)?;
    let threads = "a thread started and waited for, away";
    let forks = "fork of a program of 1 MB, away";
    let mut figures = vec![
        small(setting, &stage, ("threads", THREADS), threads)?,
        small(setting, &stage, ("forks", PROCESSES), forks)?,
        small(setting, &stage, ("maps", MAPPINGS), "mmap of a file that the node has, away")?,
        processes(setting, &stage, SMALL_MEGABYTES)?,
        processes(setting, &stage, MEGABYTES)?,
        spawns(setting, &stage, SMALL_MEGABYTES)?,
        spawns(setting, &stage, MEGABYTES)?,
    ];
    for megabytes in [SMALL_MEGABYTES, MEGABYTES] {
        figures.extend(programs(setting, &stage, megabytes)?);
    }
    Ok(figures)
}

fn start(setting: &Setting, stage: &Stage, megabytes: u32, what: &str) -> Result<Driven> {
    let program = setting.programs.path("starter");
    let megabytes = megabytes.to_string();
    let words = ["osmos", "run", "--node", "2", "--", &program, &megabytes, what];
    let driven = Driven::start(&mut stage.command(1, &words))?;
    stage.await_arrival(driven.pid(), 2)?;
    Ok(driven)
}

/// Of a small program, beside the same at home.
fn small(
    setting: &Setting,
    stage: &Stage,
    (starts, count): (&str, u64),
    what: &str,
) -> Result<Figure> {
    let mut away = start(setting, stage, SMALL_MEGABYTES, starts)?;
    let megabytes = SMALL_MEGABYTES.to_string();
    let mut native = Command::new(setting.programs.path("starter"));
    let mut native = Driven::start(native.args([megabytes.as_str(), starts]))?;
    let in_us = |driven: &mut Driven| -> Result<[f64; 1]> {
        Ok(driven.round::<1>(count)?.map(|ms| ms * 1e3))
    };
    in_us(&mut away)?;
    in_us(&mut native)?;
    let [pairs] = take_turns(setting.effort.pairs, || in_us(&mut away), || in_us(&mut native))?;
    ensure_away(stage, &away)?;
    away.end()?;
    native.end()?;
    let mut exchange = Exchange::start(setting, stage, MESSAGE_BYTES, MESSAGE_BYTES)?;
    let [_, round_trip_ns, ..] = exchange.asking.round::<4>(setting.effort.calls)?;
    let most_us = TIMES_NATIVE_MAX * pairs.floor.median() + round_trip_ns / 1e3;
    let target = format!("at most {TIMES_NATIVE_MAX} x native, and a round trip: {most_us:.0} us");
    let is_met = pairs.measured.median() <= most_us;
    Ok(Figure::new(what, "us", &pairs.measured)
        .with_paired_floor("the same, native", &pairs.floor, &pairs.ratios)
        .with_target(target, is_met))
}

/// Until a process has been made, has begun, run and ended.
fn processes(setting: &Setting, stage: &Stage, megabytes: u32) -> Result<Figure> {
    let mut driven = start(setting, stage, megabytes, "processes")?;
    let mut calls_ms = Vec::new();
    for _ in 0..setting.effort.moves_of_large.max(2) {
        let [call_ms] = driven.round(1)?;
        calls_ms.push(call_ms);
    }
    ensure_away(stage, &driven)?;
    driven.end()?;
    let what = format!("a program of {megabytes} MB away that starts a process and waits for it");
    let calls = Samples::new(calls_ms).context("no rounds")?;
    let note = "it has written to a hundredth of its pages before each";
    Ok(Figure::new(what, "ms", &calls).with_note(note.to_owned()).at_most(CALL_MS_MAX))
}

/// Until posix_spawn(3) has begun a program, at home, and that has ended.
fn spawns(setting: &Setting, stage: &Stage, megabytes: u32) -> Result<Figure> {
    let mut away = start(setting, stage, megabytes, "spawns")?;
    let mut native = Command::new(setting.programs.path("starter"));
    let mut native = Driven::start(native.args([megabytes.to_string().as_str(), "spawns"]))?;
    let rounds = setting.effort.moves_of_large.max(2);
    let [pairs] = take_turns(rounds, || away.round::<1>(1), || native.round::<1>(1))?;
    ensure_away(stage, &away)?;
    away.end()?;
    native.end()?;
    let what = format!("/bin/true begun by posix_spawn and waited for, of {megabytes} MB away");
    Ok(Figure::new(what, "ms", &pairs.measured)
        .with_paired_floor("the same, native", &pairs.floor, &pairs.ratios)
        .at_most(CALL_MS_MAX))
}

fn ensure_away(stage: &Stage, driven: &Driven) -> Result<()> {
    let is_away = stage
        .processes()?
        .iter()
        .any(|process| process.pid == driven.pid() && process.node == wire::ids::NodeId(2));
    ensure!(is_away, "it has come home");
    Ok(())
}

/// From its call to the new program's first line, by a program that is away each time; and from
/// when that has begun, at home, until it is away.
fn programs(setting: &Setting, stage: &Stage, megabytes: u32) -> Result<Vec<Figure>> {
    let mut away = start(setting, stage, megabytes, "programs")?;
    let mut native = Command::new(setting.programs.path("starter"));
    let mut native = Driven::start(native.args([megabytes.to_string().as_str(), "programs"]))?;
    let pid = away.pid();
    let rounds = setting.effort.moves_of_large.max(2);
    let away_round = || -> Result<[f64; 1]> {
        stage.await_arrival(pid, 2)?;
        away.round::<1>(1)
    };
    let [pairs] = take_turns(rounds, away_round, || native.round::<1>(1))?;
    stage.await_arrival(pid, 2)?;
    let stays = Samples::new(stays_ms(stage, pid)?).context("it has not come home")?;
    away.end()?;
    native.end()?;
    let what = format!("a program of {megabytes} MB away that becomes another");
    // That its memory is given back takes long natively, too.
    let most_ms = pairs.floor.median() + PROGRAM_MS_MAX;
    let target = format!("at most native and {PROGRAM_MS_MAX} ms: {most_ms:.1} ms");
    let is_met = pairs.measured.median() <= most_ms;
    let begun = Figure::new(what, "ms", &pairs.measured)
        .with_paired_floor("the same, native", &pairs.floor, &pairs.ratios)
        .with_target(target, is_met);
    let what = format!("the new program, of {megabytes} MB, at home until it is away again");
    let note = "it is left alone until it is 10 ms old, unless it is known to take long";
    Ok(vec![begun, Figure::new(what, "ms", &stays).with_note(note.to_owned())])
}

/// Between each homecoming of a process and the move that followed it, as home's daemon noted them.
fn stays_ms(stage: &Stage, pid: i32) -> Result<Vec<f64>> {
    let mut home_s = None;
    let mut stays = Vec::new();
    for event in stage.events()? {
        if event.pid.is_none_or(|it| it.pid != HomePid(pid)) {
            continue;
        }
        match event.what {
            Happening::CameHome { .. } => home_s = Some(event.time),
            Happening::Migrated(_) => {
                stays.extend(home_s.take().map(|home_s| (event.time - home_s) * 1e3));
            }
            _ => {}
        }
    }
    Ok(stays)
}
