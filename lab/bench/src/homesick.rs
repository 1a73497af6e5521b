//! What a call costs a large program that is away and has to come home for it: to start a thread.

use crate::Setting;
use crate::driven::Driven;
use crate::figure::Figure;
use crate::lab::{Lab, Share};
use crate::statistics::Samples;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

const MEGABYTES: u32 = 500;
/// One that comes home sooner than that is left there for longer each time.
const STAY: Duration = Duration::from_millis(2500);
/// Of one call, milliseconds.
const CALL_MS_MAX: f64 = 30.0;

pub fn run(setting: &Setting) -> Result<Vec<Figure>> {
    let lab = Lab::up(setting, 2, Share::Whole)?;
    let program = setting.programs.path("starter");
    let words = ["osmos", "run", "--node", "2", "--", &program, &MEGABYTES.to_string()];
    let mut driven = Driven::start(&mut lab.command(1, &words))?;
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
    let what = format!("a program of {MEGABYTES} MB away that starts a thread");
    let calls = Samples::new(calls_ms).context("no rounds")?;
    Ok(vec![Figure::new(what, "ms", &calls).with_note(note).at_most(CALL_MS_MAX)])
}
