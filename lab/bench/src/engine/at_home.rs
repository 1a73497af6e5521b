//! A process that computes at home under Osmos, against the same one without: nothing is attached
//! to it, so there must be no difference at all.

use crate::engine::Setting;
use crate::engine::driven::Driven;
use crate::engine::figure::Figure;
use crate::engine::pairs::take_turns;
use crate::engine::stage::{Share, Stage};
use crate::engine::statistics::Samples;
use anyhow::{Context, Result, ensure};

/// Noise aside: what a ratio may differ from 1 by.
const TOLERANCE: f64 = 0.005;
const UNDER_OSMOS: [&str; 4] = ["osmos", "run", "--home", "--"];
const COUNTS: u32 = 3;

pub fn run(setting: &Setting) -> Result<Vec<Figure>> {
    let stage = Stage::up(setting, 1, Share::Whole)?;
    let compute = setting.programs.path("compute");
    let rounds = rounds_for(&stage, &compute, setting.effort.compute_s)?;
    let once = |before: &[&str]| -> Result<[f64; 2]> {
        let words = [before, &[&compute, "cpu"]].concat();
        let mut driven = Driven::start(&mut stage.command(1, &words))?;
        let times = driven.round(rounds)?;
        driven.end()?;
        Ok(times.map(|ns: f64| ns / 1e9))
    };
    let [cpu, wall] = take_turns(setting.effort.pairs, || once(&UNDER_OSMOS), || once(&[]))?;
    let mut figures = vec![
        Figure::new("computing at home, wall time", "s", &wall.measured)
            .with_paired_floor("native", &wall.floor, &wall.ratios)
            .ratio_of_one(TOLERANCE),
        Figure::new("computing at home, processor time", "s", &cpu.measured)
            .with_paired_floor("native", &cpu.floor, &cpu.ratios)
            .ratio_of_one(TOLERANCE),
    ];
    figures.extend(instructions(&stage, &compute, setting.effort.counted_rounds)?);
    Ok(figures)
}

/// Rounds that take so long on this machine, natively.
pub fn rounds_for(stage: &Stage, compute: &str, seconds: f64) -> Result<u64> {
    const TRIED: u64 = 10_000;
    let mut driven = Driven::start(&mut stage.command(1, &[compute, "cpu"]))?;
    let [cpu_ns, _] = driven.round(TRIED)?;
    driven.end()?;
    ensure!(cpu_ns > 0.0, "{TRIED} rounds took no time");
    Ok((TRIED as f64 * seconds * 1e9 / cpu_ns).ceil() as u64)
}

/// Retired instructions, which no noise can change; none if there is no valgrind.
fn instructions(stage: &Stage, compute: &str, rounds: u64) -> Result<Option<Figure>> {
    if !needs::has("valgrind") {
        return Ok(None);
    }
    let rounds = rounds.to_string();
    let valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let count = |before: &[&str]| -> Result<f64> {
        let words = [before, &valgrind, &[compute, "once", &rounds]].concat();
        let output = stage.command(1, &words).output().context("cannot run valgrind")?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "valgrind: {}", told.trim());
        let counted = told.lines().find_map(|line| line.split_once("Collected : "));
        let (_, counted) = counted.with_context(|| format!("valgrind says {}", told.trim()))?;
        counted.trim().parse().with_context(|| format!("valgrind counted `{counted}`"))
    };
    let mut counted = [Vec::new(), Vec::new()];
    for _ in 0..COUNTS {
        counted[0].push(count(&UNDER_OSMOS)?);
        counted[1].push(count(&[])?);
    }
    let are_equal = counted.iter().flatten().all(|count| *count == counted[0][0]);
    let [managed, native] = counted.map(Samples::new);
    let (managed, native) = managed.zip(native).context("valgrind counted nothing")?;
    let figure = Figure::new("instructions of a small round at home", "", &managed);
    Ok(Some(figure.with_floor("native", &native).with_target("all equal", are_equal)))
}
