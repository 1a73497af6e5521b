//! What a program that is away pays for a thread, which is made where it is, and a large one for a
//! process, for which it has to come home.

use crate::Setting;
use crate::driven::Driven;
use crate::figure::Figure;
use crate::forward::Exchange;
use crate::lab::{Lab, Share};
use crate::pairs::take_turns;
use crate::statistics::Samples;
use anyhow::{Context, Result, ensure};
use std::process::Command;
use std::time::{Duration, Instant};

const MEGABYTES: u32 = 500;
/// One that comes home sooner than that is left there for longer each time.
const STAY: Duration = Duration::from_millis(2500);
/// Of one call, milliseconds.
const CALL_MS_MAX: f64 = 30.0;
/// Threads of a round.
const THREADS: u64 = 100;
const TIMES_NATIVE_MAX: f64 = 3.0;
/// As long as those of a call without memory.
const MESSAGE_BYTES: usize = 48;
/// Of a small program, whose memory is not what is measured.
const THREADS_MEGABYTES: u32 = 1;

pub fn run(setting: &Setting) -> Result<Vec<Figure>> {
    let lab = Lab::up(setting, 2, Share::Whole)?;
    Ok(vec![threads(setting, &lab)?, processes(setting, &lab)?])
}

fn start(setting: &Setting, lab: &Lab, megabytes: u32, what: &str) -> Result<Driven> {
    let program = setting.programs.path("starter");
    let megabytes = megabytes.to_string();
    let words = ["osmos", "run", "--node", "2", "--", &program, &megabytes, what];
    let driven = Driven::start(&mut lab.command(1, &words))?;
    lab.await_arrival(driven.pid(), 2)?;
    Ok(driven)
}

fn threads(setting: &Setting, lab: &Lab) -> Result<Figure> {
    let mut away = start(setting, lab, THREADS_MEGABYTES, "threads")?;
    let megabytes = THREADS_MEGABYTES.to_string();
    let mut native = Command::new(setting.programs.path("starter"));
    let mut native = Driven::start(native.args([megabytes.as_str(), "threads"]))?;
    let in_us = |driven: &mut Driven| -> Result<[f64; 1]> {
        Ok(driven.round::<1>(THREADS)?.map(|ms| ms * 1e3))
    };
    in_us(&mut away)?;
    in_us(&mut native)?;
    let [pairs] = take_turns(setting.effort.pairs, || in_us(&mut away), || in_us(&mut native))?;
    let is_away = lab
        .processes()?
        .iter()
        .any(|process| process.pid == away.pid() && process.node == wire::ids::NodeId(2));
    ensure!(is_away, "it has come home to start a thread");
    away.end()?;
    native.end()?;
    let mut exchange = Exchange::start(setting, lab, MESSAGE_BYTES, MESSAGE_BYTES)?;
    let [_, round_trip_ns, ..] = exchange.asking.round::<4>(setting.effort.calls)?;
    let most_us = TIMES_NATIVE_MAX * pairs.floor.median() + round_trip_ns / 1e3;
    let target = format!("at most {TIMES_NATIVE_MAX} x native, and a round trip: {most_us:.0} us");
    let is_met = pairs.measured.median() <= most_us;
    let what = "a thread started and waited for, away";
    Ok(Figure::new(what, "us", &pairs.measured)
        .with_paired_floor("the same, native", &pairs.floor, &pairs.ratios)
        .with_target(target, is_met))
}

fn processes(setting: &Setting, lab: &Lab) -> Result<Figure> {
    let mut driven = start(setting, lab, MEGABYTES, "processes")?;
    let (mut calls_ms, mut returns_ms) = (Vec::new(), Vec::new());
    for _ in 0..setting.effort.moves_of_large.max(2) {
        lab.await_arrival(driven.pid(), 2)?;
        std::thread::sleep(STAY);
        let [call_ms] = driven.round(1)?;
        let called = Instant::now();
        calls_ms.push(call_ms);
        lab.await_arrival(driven.pid(), 2)?;
        returns_ms.push(called.elapsed().as_secs_f64() * 1e3);
    }
    driven.end()?;
    let away = Samples::new(returns_ms).context("no rounds")?;
    let note = format!(
        "it has written to a hundredth of its pages away; away again {:.0} ms after it (at most \
         {:.0})",
        away.median(),
        away.summary().max,
    );
    let what = format!("a program of {MEGABYTES} MB away that starts a process");
    let calls = Samples::new(calls_ms).context("no rounds")?;
    Ok(Figure::new(what, "ms", &calls).with_note(note).at_most(CALL_MS_MAX))
}
