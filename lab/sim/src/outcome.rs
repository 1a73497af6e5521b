//! What a run came to.

use crate::check::Findings;
use crate::process::Whereabouts;
use crate::world::World;
use brain::{Span, Time, Verdict};
use serde::Serialize;

/// Moves that are remembered one by one.
const MOVES_MAX: usize = 100_000;

/// One move that was carried out. Nodes are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MoveMade {
    pub at_s: f64,
    pub process: u32,
    pub from: u32,
    pub to: u32,
    pub is_rotation: bool,
}

/// Counted while the world runs.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub datagrams: u64,
    pub bytes: u64,
    pub orders: u64,
    pub migrations: u64,
    pub rotations: u64,
    pub failed: u64,
    pub refused: u64,
    pub lost: u64,
    pub killed_for_memory: u64,
    pub false_deaths: u64,
    /// The most processes that any node had at a time after one arrived.
    pub crowd_max: u32,
    pub frozen: Span,
    pub paging_s: f64,
    /// The part of it while another node had room.
    pub paging_needlessly_s: f64,
    pub started_s: Vec<f64>,
    /// When, on which node (from 0), how many background threads compute from then on.
    pub background: Vec<(f64, u32, u16)>,
    pub moves: Vec<MoveMade>,
}

impl Tally {
    pub fn moved(&mut self, at: Time, process: u32, from: u32, to: u32, is_rotation: bool) {
        self.migrations += 1;
        self.rotations += u64::from(is_rotation);
        if self.moves.len() < MOVES_MAX {
            let at_s = world_s(at);
            self.moves.push(MoveMade { at_s, process, from: from + 1, to: to + 1, is_rotation });
        }
    }

    pub fn decided(&mut self, verdict: Verdict) {
        self.refused += u64::from(matches!(verdict, Verdict::Refused { .. }));
    }
}

/// Seconds since the beginning of the run.
pub(crate) fn world_s(at: Time) -> f64 {
    at.since(Time::from_micros(1_000_000)).as_secs_f64()
}

/// What one process came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fate {
    /// The number of its job in the scenario.
    pub job: u32,
    /// Reference seconds that it needed; negative for one that never ends.
    pub work_s: f64,
    pub started_s: f64,
    /// None: it runs still, or was lost.
    pub ended_s: Option<f64>,
    pub frozen_s: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// From the first start to the last end.
    pub makespan_s: f64,
    pub simulated_s: f64,
    pub nodes: usize,
    pub finished: usize,
    pub unfinished: usize,
    pub lost: u64,
    pub migrations: u64,
    pub rotations: u64,
    pub failed: u64,
    pub refused: u64,
    pub frozen_s: f64,
    pub crowd_max: u32,
    pub killed_for_memory: u64,
    pub paging_s: f64,
    pub paging_needlessly_s: f64,
    pub false_deaths: u64,
    /// Sent by one node on average, frames and seals included.
    pub kbit_per_s: f64,
    pub datagrams_per_s: f64,
    /// Microseconds of processor time that a brain takes in a second, if that was measured.
    pub brain_us_per_s: Option<f64>,
    pub findings: Findings,
    pub fates: Vec<Fate>,
    pub moves: Vec<MoveMade>,
    /// When, on which node (from 0), how many background threads computed from then on.
    pub background: Vec<(f64, u32, u16)>,
}

impl Outcome {
    pub(crate) fn of(world: World) -> Outcome {
        let World { now, nodes, processes, tally, checks, brains_took, .. } = world;
        let (simulated_s, node_count) = (world_s(now), nodes.len());
        // A million nodes and what became of their processes need not be in memory together.
        drop(nodes);
        let node_s = simulated_s * node_count as f64;
        let started = &tally.started_s;
        let fates: Vec<Fate> = processes
            .iter()
            .zip(started)
            .map(|(process, started_s)| Fate {
                job: process.kind.job,
                work_s: if process.work_s.is_finite() { process.work_s } else { -1.0 },
                started_s: *started_s,
                ended_s: match process.at {
                    Whereabouts::Ended => Some(world_s(process.halted_at)),
                    _ => None,
                },
                frozen_s: process.frozen.as_secs_f64(),
            })
            .collect();
        let first = started.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0);
        let ends = fates.iter().filter_map(|fate| fate.ended_s);
        let last = ends.clone().max_by(f64::total_cmp).unwrap_or(first);
        let finished = ends.count();
        Outcome {
            makespan_s: last - first,
            simulated_s,
            nodes: node_count,
            finished,
            unfinished: fates.len() - finished - tally.lost as usize,
            lost: tally.lost,
            migrations: tally.migrations,
            rotations: tally.rotations,
            failed: tally.failed,
            refused: tally.refused,
            frozen_s: tally.frozen.as_secs_f64(),
            crowd_max: tally.crowd_max,
            killed_for_memory: tally.killed_for_memory,
            paging_s: tally.paging_s,
            paging_needlessly_s: tally.paging_needlessly_s,
            false_deaths: tally.false_deaths,
            kbit_per_s: tally.bytes as f64 * 8.0 / 1e3 / node_s.max(1e-9),
            datagrams_per_s: tally.datagrams as f64 / node_s.max(1e-9),
            brain_us_per_s: brains_took.map(|took| took.as_secs_f64() * 1e6 / node_s.max(1e-9)),
            findings: checks.findings(),
            fates,
            moves: tally.moves,
            background: tally.background,
        }
    }

    /// Mean time from start to end of those that ended.
    pub fn completion_mean_s(&self) -> f64 {
        let taken = self.fates.iter().filter_map(|fate| Some(fate.ended_s? - fate.started_s));
        let (sum, count) = taken.fold((0.0, 0u32), |(sum, count), s| (sum + s, count + 1));
        sum / f64::from(count.max(1))
    }
}

/// The outcome in a few lines.
pub fn text(outcome: &Outcome, took_s: f64) -> String {
    let Outcome { nodes, simulated_s, makespan_s, finished, unfinished, .. } = outcome;
    let findings = &outcome.findings;
    let brains = outcome.brain_us_per_s.map_or_else(String::new, |us| {
        format!("a brain took {us:.1} us of each second: {:.4} % of a core\n", us / 1e4)
    });
    format!(
        "{nodes} nodes for {simulated_s:.1} s in {took_s:.2} s: {:.0} times real time\n\
         {finished} processes ended within {makespan_s:.1} s, {unfinished} run on, {} were lost\n\
         {} moves, {} of them turns; {} failed, {} offers refused; frozen for {:.2} s in all\n\
         each node sent {:.1} datagrams a second, {:.1} kbit/s\n\
         longest that a core stood idle while a process waited: {:.2} s; flew back: {}\n\
         {} nodes that lived were taken for dead, {:.4} in a node-hour\n\
         {brains}",
        simulated_s / took_s.max(1e-9),
        outcome.lost,
        outcome.migrations,
        outcome.rotations,
        outcome.failed,
        outcome.refused,
        outcome.frozen_s,
        outcome.datagrams_per_s,
        outcome.kbit_per_s,
        findings.idle_longest_s,
        findings.flew_back,
        outcome.false_deaths,
        outcome.false_deaths as f64 * 3_600.0 / (simulated_s * *nodes as f64).max(1e-9),
    )
}
