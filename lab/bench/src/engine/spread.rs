//! Eight programs started on one of four equal nodes: how soon they are spread evenly, and how much
//! longer than the least possible they take.

use crate::engine::Setting;
use crate::engine::figure::Figure;
use crate::engine::stage::{Share, Stage};
use crate::engine::statistics::Samples;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::control::{Event, Happening};
use wire::ids::NodeId;

const NODES: u32 = 4;
const HOME: NodeId = NodeId(1);
const PROGRAMS: usize = 8;
const EACH: usize = PROGRAMS / NODES as usize;
/// From the start of the programs, s.
const SPREAD_S_MAX: f64 = 5.0;
const RATIO_MAX: f64 = 1.10;
/// Between two looks at which programs have ended.
const LOOK: Duration = Duration::from_millis(5);
/// Programs that take so much longer than the least possible have gone wrong.
const RUN_FACTOR_MAX: f64 = 10.0;

/// The tutorial's program, with as many outer rounds as wanted.
fn program(rounds: u64) -> String {
    format!("BEGIN {{for(i=0;i<{rounds};i++)for(j=0;j<10000;j++);}}")
}

pub fn run(setting: &Setting) -> Result<Vec<Figure>> {
    let stage = Stage::up(setting, NODES, Share::Equal)?;
    let program = program(rounds_for(&stage, setting.effort.spread_s)?);
    let (mut spread_s, mut wall_s, mut ideal_s) = (Vec::new(), Vec::new(), Vec::new());
    let mut never = 0;
    for _ in 0..setting.effort.spread_runs {
        let alone_s = alone(&stage, &program)?;
        // Equal nodes that have EACH programs each, at the speed that one of them has just shown.
        let ideal = alone_s * EACH as f64;
        let seen = all_at_once(&stage, &program, ideal * RUN_FACTOR_MAX)?;
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
fn rounds_for(stage: &Stage, seconds: f64) -> Result<u64> {
    const TRIED: u64 = 2000;
    let tried_s = alone(stage, &program(TRIED))?;
    Ok((TRIED as f64 * seconds / tried_s).ceil() as u64)
}

/// How long one program takes, natively and alone in the lab.
fn alone(stage: &Stage, program: &str) -> Result<f64> {
    let started = Instant::now();
    stage.output(2, &["awk", program])?;
    Ok(started.elapsed().as_secs_f64())
}

struct Seen {
    wall_s: f64,
    /// When there were first as many programs on each node as on any other.
    spread_s: Option<f64>,
}

/// Starts the programs on node 1 and waits until all have ended. Where they were is read from the
/// events afterwards: asking meanwhile would be a load of its own.
fn all_at_once(stage: &Stage, program: &str, limit_s: f64) -> Result<Seen> {
    let since_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    let started = Instant::now();
    let words = ["osmos", "run", "--", "awk", program];
    let children: std::io::Result<Vec<Child>> = (0..PROGRAMS)
        .map(|_| stage.command(1, &words).stdin(Stdio::null()).stdout(Stdio::null()).spawn())
        .collect();
    let mut running = Running(children.context("cannot start the programs")?);
    while running.is_any()? {
        ensure!(started.elapsed().as_secs_f64() < limit_s, "the programs run for ever");
        std::thread::sleep(LOOK);
    }
    let wall_s = started.elapsed().as_secs_f64();
    let even_s = first_even(stage.events()?.iter().filter(|event| event.time >= since_s));
    Ok(Seen { wall_s, spread_s: even_s.map(|at_s| at_s - since_s) })
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

/// When all programs were first spread evenly, in the seconds of the events. They all start on
/// node 1, which tells these events in their order.
fn first_even<'a>(events: impl Iterator<Item = &'a Event>) -> Option<f64> {
    let mut places = BTreeMap::new();
    for event in events {
        let Some(process) = event.pid else { continue };
        match &event.what {
            Happening::Managed { .. } => places.insert(process, HOME),
            Happening::Migrated(migration) => places.insert(process, migration.to),
            Happening::CameHome { .. } => places.insert(process, HOME),
            Happening::Ended { .. } => places.remove(&process),
            _ => None,
        };
        let on = |node: u32| places.values().filter(|place| place.0 == node).count();
        if (1..=NODES).all(|node| on(node) == EACH) {
            return Some(event.time);
        }
    }
    None
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::control::Migration;
    use wire::ids::{GlobalPid, HomePid};
    use wire::supervisor::MoveReport;

    fn process(pid: i32) -> Option<GlobalPid> {
        Some(GlobalPid { home: HOME, pid: HomePid(pid) })
    }

    fn managed(pid: i32) -> Event {
        let what = Happening::Managed { command: "awk".into() };
        Event { time: f64::from(pid), pid: process(pid), what }
    }

    fn moved(time: f64, pid: i32, to: u32) -> Event {
        let report = MoveReport::default();
        let migration = Migration::from_report(pid, HOME, NodeId(to), "balance", &report);
        Event { time, pid: process(pid), what: Happening::Migrated(migration) }
    }

    #[test]
    fn even_is_two_on_each_of_four_whoever_they_are() {
        let starts = (1..=8).map(managed);
        let moves = [(3, 2), (4, 2), (5, 3), (6, 3), (7, 4), (8, 3), (8, 4)];
        let at_s = 10.0;
        let moves: Vec<Event> = moves.iter().map(|(pid, to)| moved(at_s, *pid, *to)).collect();
        let mut events: Vec<Event> = starts.chain(moves).collect();
        assert_eq!(first_even(events.iter()), Some(at_s));
        let last = events.pop().expect("eight moves");
        assert_eq!(first_even(events.iter()), None, "two, two, three and one");
        events.push(Event { what: Happening::Ended { wait_status: None }, ..managed(1) });
        events.push(last);
        assert_eq!(first_even(events.iter()), None, "one has ended");
    }

    #[test]
    fn the_tutorials_program_is_kept() {
        assert_eq!(program(10_000), "BEGIN {for(i=0;i<10000;i++)for(j=0;j<10000;j++);}");
    }
}
