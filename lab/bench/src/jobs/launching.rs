//! How many short processes a second a job begins over the nodes of a lab, and what a shell begins
//! by itself on this machine: each of them is begun, watched to its end and told of.

use crate::engine::stage::Stage;
use crate::engine::statistics::Samples;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const NODES: u32 = 4;
const RANKS: u32 = 1_000;
const PER_S_MIN: f64 = 500.0;
/// What a shell starts one after the other.
const LOOP: &str = "i=0; while [ $i -lt 1000 ]; do /bin/true; i=$((i+1)); done";

#[derive(Clone, Debug, Serialize)]
pub struct Launching {
    pub ranks: u32,
    pub nodes: u32,
    /// Processes a second, round by round: of a job over all nodes, of one on its launcher's node,
    /// of a shell without Osmos.
    pub over_nodes: Vec<f64>,
    pub on_one: Vec<f64>,
    pub by_a_shell: Vec<f64>,
    /// Processor time of this whole machine for one process of a job over all nodes, milliseconds.
    pub busy_ms: Vec<f64>,
    pub per_s_min: f64,
}

pub fn measure(osmos: &Path, rounds: usize) -> Result<Launching> {
    let stage = Stage::up_plain(osmos, NODES)?;
    for node in 1..=NODES {
        stage.output(node, &["osmos", "share", "--jobs", "on"])?;
    }
    let ranks = RANKS.to_string();
    let job = ["osmos", "job", "run", "-n", &ranks];
    let program = ["--", "/bin/true"];
    let here = [&job[..], &program].concat();
    let all = [&job[..], &["--nodes", "all"], &program].concat();
    let mut launching = Launching {
        ranks: RANKS,
        nodes: NODES,
        over_nodes: vec![],
        on_one: vec![],
        by_a_shell: vec![],
        busy_ms: vec![],
        per_s_min: PER_S_MIN,
    };
    // What is read for the first time is read from a disk.
    stage.output(1, &all)?;
    for round in 1..=rounds {
        eprintln!("osmos bench jobs: launching, round {round} of {rounds}");
        let busy = busy_s()?;
        launching.over_nodes.push(per_s(|| stage.output(1, &all).map(drop))?);
        launching.busy_ms.push((busy_s()? - busy) * 1e3 / f64::from(RANKS));
        launching.on_one.push(per_s(|| stage.output(1, &here).map(drop))?);
        launching.by_a_shell.push(per_s(|| {
            let status = Command::new("/bin/sh").args(["-c", LOOP]).status()?;
            ensure!(status.success(), "a shell fails");
            Ok(())
        })?);
    }
    Ok(launching)
}

fn per_s(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    work()?;
    Ok(f64::from(RANKS) / began.elapsed().as_secs_f64())
}

/// Processor time that this machine has used since it began: user, nice, system, irq, softirq
/// (proc(5)), in ticks of a hundredth.
fn busy_s() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let all = text.lines().next().context("no line in /proc/stat")?;
    let ticks: Vec<f64> = all.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    ensure!(ticks.len() > 6, "/proc/stat says {all:?}");
    Ok([0, 1, 2, 5, 6].map(|at| ticks[at]).iter().sum::<f64>() / 100.0)
}

impl Launching {
    pub fn table(&self) -> String {
        let median = |of: &[f64]| Samples::new(of.iter().copied()).map_or(0.0, |of| of.median());
        let range = |of: &[f64]| {
            let least = of.iter().copied().fold(f64::INFINITY, f64::min);
            let most = of.iter().copied().fold(0.0, f64::max);
            format!("{:.0} ({least:.0} to {most:.0})", median(of))
        };
        let reached = median(&self.over_nodes);
        let met = if reached >= self.per_s_min { "met" } else { "missed" };
        format!(
            "{} processes that end at once (`/bin/true`), begun, watched and told of by one `osmos \
             job run`; a second, the launcher's own start and end included. The lab's nodes share \
             this machine's processors, which is what bounds it: {:.1} ms of them for each \
             process.\n\n\
             | a job over {} nodes | a job on its launcher's node | a shell, one after the other, \
             without Osmos | target |\n|---:|---:|---:|---|\n\
             | {} | {} | {} | at least {:.0}: {met} |\n",
            self.ranks,
            median(&self.busy_ms),
            self.nodes,
            range(&self.over_nodes),
            range(&self.on_one),
            range(&self.by_a_shell),
            self.per_s_min,
        )
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_table_says_whether_it_is_fast_enough() {
        let launching = |rate| Launching {
            ranks: 1000,
            nodes: 4,
            over_nodes: vec![rate, rate + 1.0, rate - 1.0],
            on_one: vec![1.0],
            by_a_shell: vec![2.0],
            busy_ms: vec![1.5],
            per_s_min: 500.0,
        };
        let row = "| 600 (599 to 601) | 1 (1 to 1) | 2 (2 to 2) | at least 500: met |";
        assert!(launching(600.0).table().contains(row));
        assert!(launching(400.0).table().contains("at least 500: missed"));
    }

    #[test]
    fn the_machine_is_busy_while_something_runs() {
        let before = busy_s().unwrap();
        let mut value = 1_u64;
        while busy_s().unwrap() <= before {
            value = std::hint::black_box(value.wrapping_mul(3));
        }
    }
}
