//! Eight programs started on one of four equal nodes: how soon they are spread evenly, and how much
//! longer than the least possible they take.

use crate::Setting;
use crate::figure::Figure;
use crate::lab::{Lab, Share};
use crate::statistics::Samples;
use anyhow::{Context, Result, ensure};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use wire::control::Process;

const NODES: u32 = 4;
const PROGRAMS: usize = 8;
const EACH: usize = PROGRAMS / NODES as usize;
/// From the start of the programs, s.
const SPREAD_S_MAX: f64 = 5.0;
const RATIO_MAX: f64 = 1.10;
/// Between two looks at where the programs are.
const LOOK: Duration = Duration::from_millis(100);
/// Programs that take so much longer than the least possible have gone wrong.
const RUN_FACTOR_MAX: f64 = 10.0;

/// The tutorial's program, with as many outer rounds as wanted.
fn program(rounds: u64) -> String {
    format!("BEGIN {{for(i=0;i<{rounds};i++)for(j=0;j<10000;j++);}}")
}

pub fn run(setting: &Setting) -> Result<Vec<Figure>> {
    let lab = Lab::up(setting, NODES, Share::Equal)?;
    let program = program(rounds_for(&lab, setting.effort.spread_s)?);
    let (mut spread_s, mut wall_s, mut ideal_s) = (Vec::new(), Vec::new(), Vec::new());
    let mut never = 0;
    for _ in 0..setting.effort.spread_runs {
        let alone_s = alone(&lab, &program)?;
        // Equal nodes that have EACH programs each, at the speed that one of them has just shown.
        let ideal = alone_s * EACH as f64;
        let seen = all_at_once(&lab, &program, ideal * RUN_FACTOR_MAX)?;
        never += usize::from(seen.spread_s.is_none());
        // It would have been later than the end.
        spread_s.push(seen.spread_s.unwrap_or(seen.wall_s));
        wall_s.push(seen.wall_s);
        ideal_s.push(ideal);
    }
    let mut figures = Vec::new();
    let runs = setting.effort.spread_runs;
    let spread = Samples::new(spread_s).context("no runs")?;
    let mut figure = Figure::new("eight awk programs spread 2-2-2-2 after", "s", &spread);
    figure = figure.at_most(SPREAD_S_MAX);
    if never > 0 {
        let text = format!("at most {SPREAD_S_MAX} s, every time");
        figure =
            figure.with_target(text, false).with_note(format!("never in {never} of {runs} runs"));
    }
    figures.push(figure);
    let (wall, ideal) = (Samples::new(wall_s), Samples::new(ideal_s.iter().copied()));
    let (wall, ideal) = wall.zip(ideal).context("no runs")?;
    figures.push(
        Figure::new("eight awk programs, wall time", "s", &wall)
            .with_floor("twice one alone on its node", &ideal)
            .ratio_at_most(RATIO_MAX),
    );
    Ok(figures)
}

/// Outer rounds that take so long on a node of this lab, alone.
fn rounds_for(lab: &Lab, seconds: f64) -> Result<u64> {
    const TRIED: u64 = 2000;
    let tried_s = alone(lab, &program(TRIED))?;
    Ok((TRIED as f64 * seconds / tried_s).ceil() as u64)
}

/// How long one program takes, natively and alone in the lab.
fn alone(lab: &Lab, program: &str) -> Result<f64> {
    let started = Instant::now();
    lab.output(2, &["awk", program])?;
    Ok(started.elapsed().as_secs_f64())
}

struct Seen {
    wall_s: f64,
    /// When there were first as many programs on each node as on any other.
    spread_s: Option<f64>,
}

/// Starts the programs on node 1 and looks where they are until all have ended.
fn all_at_once(lab: &Lab, program: &str, limit_s: f64) -> Result<Seen> {
    let started = Instant::now();
    let words = ["osmos", "run", "--", "awk", program];
    let children: std::io::Result<Vec<Child>> = (0..PROGRAMS)
        .map(|_| lab.command(1, &words).stdin(Stdio::null()).stdout(Stdio::null()).spawn())
        .collect();
    let mut running = Running(children.context("cannot start the programs")?);
    let mut spread_s = None;
    while running.is_any()? {
        ensure!(started.elapsed().as_secs_f64() < limit_s, "the programs run for ever");
        if spread_s.is_none() && is_even(&lab.processes()?) {
            spread_s = Some(started.elapsed().as_secs_f64());
        }
        std::thread::sleep(LOOK);
    }
    let wall_s = started.elapsed().as_secs_f64();
    Ok(Seen { wall_s, spread_s })
}

/// Programs that end with their owner.
struct Running(Vec<Child>);

impl Running {
    /// Whether any still runs; all that ended must have ended well.
    fn is_any(&mut self) -> Result<bool> {
        let mut is_any = false;
        for child in &mut self.0 {
            match child.try_wait()? {
                None => is_any = true,
                Some(status) => ensure!(status.success(), "awk ended with {status}"),
            }
        }
        Ok(is_any)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // What is inside the lab ends with the lab.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn is_even(processes: &[Process]) -> bool {
    let on = |node: u32| processes.iter().filter(|process| process.node.0 == node).count();
    processes.len() == PROGRAMS && (1..=NODES).all(|node| on(node) == EACH)
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::ids::NodeId;

    fn processes(nodes: &[u32]) -> Vec<Process> {
        let process = |node: &u32| Process {
            pid: 1,
            home: NodeId(1),
            node: NodeId(*node),
            state: "running".into(),
            command: "awk".into(),
            cpu_s: 0.0,
            rss_bytes: 0,
            migrations: 0,
            last_move: None,
            reason: String::new(),
        };
        nodes.iter().map(process).collect()
    }

    #[test]
    fn even_is_two_on_each_of_four() {
        assert!(is_even(&processes(&[1, 2, 3, 4, 4, 3, 2, 1])));
        assert!(!is_even(&processes(&[1, 1, 1, 2, 2, 3, 3, 4])));
        assert!(!is_even(&processes(&[1, 2, 3, 4])), "not all have been started");
    }

    #[test]
    fn the_tutorials_program_is_kept() {
        assert_eq!(program(10_000), "BEGIN {for(i=0;i<10000;i++)for(j=0;j<10000;j++);}");
    }
}
