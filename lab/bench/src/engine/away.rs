//! A process that computes away, against the same one that was started on that node.

use crate::engine::Setting;
use crate::engine::at_home::rounds_for;
use crate::engine::driven::Driven;
use crate::engine::figure::Figure;
use crate::engine::pairs::take_turns;
use crate::engine::stage::{Share, Stage};
use anyhow::{Context, Result, ensure};

/// What is promised: within 1 %.
const TOLERANCE: f64 = 0.01;
const AWAY: u32 = 2;
/// A node with a quota of processor time gets it in slices of 0.1 s: a round has many of them.
const CAPPED_ROUND_FACTOR: f64 = 2.0;

pub fn run(setting: &Setting) -> Result<Vec<Figure>> {
    let mut figures = vec![compare(setting, Share::Whole, setting.effort.compute_s, "idle node")?];
    if setting.effort.is_whole {
        let seconds = setting.effort.compute_s * CAPPED_ROUND_FACTOR;
        figures.push(compare(setting, Share::Equal, seconds, "capped node")?);
    }
    Ok(figures)
}

fn compare(setting: &Setting, share: Share, seconds: f64, node: &str) -> Result<Figure> {
    let stage = Stage::up(setting, 2, share)?;
    let compute = setting.programs.path("compute");
    let rounds = rounds_for(&stage, &compute, seconds)?;
    let away = || -> Result<[f64; 1]> {
        let words = ["osmos", "run", "--node", "2", "--", &compute];
        let mut driven = Driven::start(&mut stage.command(1, &words))?;
        stage.await_arrival(driven.pid(), AWAY)?;
        let times = driven.round(rounds)?;
        ensure_stayed(&stage, driven.pid())?;
        driven.end()?;
        Ok(times.map(|ns: f64| ns / 1e9))
    };
    let native = || -> Result<[f64; 1]> {
        let mut driven = Driven::start(&mut stage.command(AWAY, &[&compute]))?;
        let times = driven.round(rounds)?;
        driven.end()?;
        Ok(times.map(|ns: f64| ns / 1e9))
    };
    let [wall] = take_turns(setting.effort.pairs, away, native)?;
    let figure = Figure::new(format!("computing away, {node}, wall time"), "s", &wall.measured)
        .with_paired_floor("native on that node", &wall.floor, &wall.ratios);
    Ok(figure.ratio_of_one(TOLERANCE))
}

/// A round that was not computed away says nothing about being away.
pub fn ensure_stayed(stage: &Stage, pid: i32) -> Result<()> {
    let processes = stage.processes()?;
    let process = processes.iter().find(|process| process.pid == pid);
    let process = process.with_context(|| format!("process {pid} is not managed"))?;
    let (node, moves) = (process.node, process.migrations);
    ensure!(
        node.0 == AWAY && moves == 1,
        "process {pid} is on node {node} after {moves} moves: {}",
        process.reason
    );
    Ok(())
}
