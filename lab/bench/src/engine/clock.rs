//! What it costs to read a clock on a machine that is not home, where the functions of the vDSO are
//! Osmos's own: against the same program that was started there.

use crate::engine::Setting;
use crate::engine::away::ensure_stayed;
use crate::engine::driven::Driven;
use crate::engine::figure::Figure;
use crate::engine::pairs::take_turns;
use crate::engine::stage::Stage;
use anyhow::Result;

const AWAY: u32 = 2;
const READINGS: u64 = 2_000_000;
/// What is promised: so much more, nanoseconds.
const MORE_NS_MAX: f64 = 5.0;

pub fn run(setting: &Setting) -> Result<Vec<Figure>> {
    // Without it the nodes of a lab do not know that they share their clocks.
    let stage = Stage::up_without(setting, "boot-id")?;
    let clock = setting.programs.path("clock");
    let away = || -> Result<[f64; 2]> {
        let words = ["osmos", "run", "--node", "2", "--", &clock];
        let mut driven = Driven::start(&mut stage.command(1, &words))?;
        stage.await_arrival(driven.pid(), AWAY)?;
        let times = driven.round(READINGS)?;
        ensure_stayed(&stage, driven.pid())?;
        driven.end()?;
        Ok(times)
    };
    let native = || -> Result<[f64; 2]> {
        let mut driven = Driven::start(&mut stage.command(AWAY, &[&clock]))?;
        let times = driven.round(READINGS)?;
        driven.end()?;
        Ok(times)
    };
    let [day, monotonic] = take_turns(setting.effort.pairs, away, native)?;
    let figure = |what: &str, paired: &crate::engine::pairs::Pairs| {
        let more_ns = paired.measured.median() - paired.floor.median();
        Figure::new(format!("reading the {what} on another machine"), "ns", &paired.measured)
            .with_paired_floor("native there", &paired.floor, &paired.ratios)
            .with_target(format!("at most {MORE_NS_MAX} ns more"), more_ns <= MORE_NS_MAX)
            .with_note(format!("{more_ns:.1} ns more"))
    };
    Ok(vec![figure("time of day", &day), figure("monotonic clock", &monotonic)])
}
