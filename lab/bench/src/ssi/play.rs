//! One run in a lab: the workload on so many nodes, and what it took.

use crate::balance::crew::{self, Ended};
use crate::balance::guest;
use crate::balance::happenings;
use crate::balance::policy::Policy;
use crate::balance::stage::{Crew, Stage, Used};
use crate::provenance::Provenance;
use crate::ssi::keys::{self, Child};
use crate::ssi::results::{Overhead, Run, Settings};
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::control::{Event, Happening};
use wire::ids::{GlobalPid, NodeId};

const HOME: u32 = 1;
/// A run that takes so much longer than one node would has gone wrong.
const PATIENCE: f64 = 4.0;
/// For the daemons, which have to find each other and to be found idle.
const PATIENCE_MIN: Duration = Duration::from_secs(120);
/// Of the load beside which a migration is measured: it ends with the lab.
const ENDLESS_KEYS: u32 = 1 << 30;
/// Between two looks at what a daemon tells only when asked.
const POLL: Duration = Duration::from_millis(50);

/// Who has the nodes: nobody but the kernel, or Osmos by one of the policies.
pub type BalancedBy = Option<Policy>;

pub fn name_of(manager: BalancedBy) -> String {
    manager.map_or("native", Policy::name).to_owned()
}

/// Runs the workload, started at node 1 of so many. Natively it stays there.
pub fn run(settings: &Settings, nodes: u32, manager: BalancedBy) -> Result<Run> {
    let policy = manager.unwrap_or(Policy::Static);
    let stage = Stage::up_equal(nodes, settings.of_nodes, policy)?;
    stage.wait_until_known()?;
    let plan = keys::Plan { keys: settings.keys, children: settings.children, seed: settings.seed };
    let since_s = now_s()?;
    let before = Counters::read(&stage, nodes)?;
    let began = stage.mark();
    let ended =
        stage.run(&[crew(guest::Plan::Keys(plan), manager.is_some())], patience(settings))?;
    let pace = stage.pace_since(&began)?;
    let used = Counters::read(&stage, nodes)?.since(&before);
    let events = stage.events([HOME])?;
    stage.down()?;
    let root = only(&ended)?;
    ensure!(root.wait_status == 0, "the workload ended with status {:#x}", root.wait_status);
    let children = root.output.lines().map(serde_json::from_str).collect::<Result<Vec<_>, _>>();
    let mut children: Vec<Child> = children.context("a child does not say what it has done")?;
    children.sort_by_key(|child| child.nth);
    let run_s = root.ended_s - root.started_s;
    let seen = Seen::of(&events, since_s, root.pid);
    Ok(Run {
        manager: name_of(manager),
        nodes,
        run_s,
        pace,
        home_bytes: used.bytes[0],
        bytes: used.bytes.iter().sum::<u64>() / 2,
        used_pct: used.used.iter().map(|node| 100.0 * node.work_s / run_s).collect(),
        osmos_pct: 100.0 * Used::of_all(&used.used).system_s / (run_s * f64::from(nodes)),
        migrations: seen.migrations,
        freeze_ms_mean: seen.freeze_ms_mean,
        balanced_after_s: seen.balanced_after_s(nodes, settings.children),
        children,
        made: Some(Provenance::now()),
    })
}

/// One migration away and no way back: a program that only computes, started at home and moved
/// once, against the same one that stays there natively.
pub fn overhead(settings: &Settings, nodes: u32, is_loaded: bool) -> Result<Overhead> {
    let stage = Stage::up_equal(nodes, settings.of_nodes, Policy::Osmos)?;
    stage.wait_until_known()?;
    let unit = stage.measure_unit(1)?;
    let rounds = (unit.rounds_per_s * settings.cycle_s) as u64;
    let dummy = guest::Plan::Compute { rounds, memory: None };
    let native = stage.run(&[crew(dummy.clone(), false)], patience(settings))?;
    let native_s = took_s(only(&native)?);
    let load =
        keys::Plan { keys: ENDLESS_KEYS, children: settings.load_children, seed: settings.seed };
    let loading = match is_loaded {
        true => Some(stage.accompany(&[crew(guest::Plan::Keys(load), true)])?),
        false => None,
    };
    let to = match is_loaded {
        true => await_spread(&stage, settings.load_children)?,
        false => nodes,
    };
    let since_s = now_s()?;
    let running = stage.accompany(&[crew(dummy, true)])?;
    let pid = await_managed(&stage, since_s)?;
    migrate(&stage, pid, to)?;
    let ended = running.ends(patience(settings))?;
    let events = stage.events([HOME])?;
    drop(loading);
    stage.down()?;
    let moved = events.iter().filter_map(|event| match &event.what {
        Happening::Migrated(made) if event.pid.is_some_and(|p| p.pid.0 == pid) => Some(made),
        _ => None,
    });
    let moves: Vec<(f64, f64)> = moved.map(|made| (made.total_ms, made.freeze_ms)).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| moves.iter().map(of).sum::<f64>() / moves.len() as f64;
    ensure!(!moves.is_empty(), "the program was not moved");
    Ok(Overhead {
        nodes,
        is_loaded,
        native_s,
        moved_s: took_s(only(&ended)?),
        moves: moves.len() as u32,
        total_ms_mean: mean(|(total_ms, _)| *total_ms),
        freeze_ms_mean: mean(|(_, freeze_ms)| *freeze_ms),
    })
}

/// Moves it, or finds it there: the balancing may have been sooner.
fn migrate(stage: &Stage, pid: i32, to: u32) -> Result<()> {
    let words = ["migrate", &pid.to_string(), &to.to_string()];
    match happenings::osmos(stage.lab(), HOME, &words) {
        Err(error) if !format!("{error:#}").contains("already") => Err(error),
        _ => Ok(()),
    }
}

fn crew(guest: guest::Plan, is_managed: bool) -> Crew {
    Crew { node: HOME, plan: crew::Plan { guests: vec![guest], is_managed, is_group: false } }
}

fn patience(settings: &Settings) -> Duration {
    PATIENCE_MIN.max(Duration::from_secs_f64(settings.least_run_s() * PATIENCE))
}

fn only(ended: &[Vec<Ended>]) -> Result<&Ended> {
    ended.first().and_then(|crew| crew.first()).context("nothing was run")
}

fn took_s(ended: &Ended) -> f64 {
    ended.ended_s - ended.started_s
}

fn now_s() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

/// The first process that is managed from then on.
fn await_managed(stage: &Stage, since_s: f64) -> Result<i32> {
    let deadline = Instant::now() + PATIENCE_MIN;
    loop {
        let events = stage.events([HOME])?;
        let managed = events.iter().find_map(|event| match &event.what {
            Happening::Managed { .. } if event.time >= since_s => event.pid,
            _ => None,
        });
        match managed {
            Some(process) => return Ok(process.pid.0),
            None if Instant::now() >= deadline => bail!("the program does not begin"),
            None => std::thread::sleep(POLL),
        }
    }
}

/// Until the children of the load are spread over the nodes; returns the node with the fewest, home
/// apart.
fn await_spread(stage: &Stage, children: u32) -> Result<u32> {
    let nodes = stage.lab().nodes().count() as u32;
    let deadline = Instant::now() + PATIENCE_MIN;
    loop {
        let seen = Seen::of(&stage.events([HOME])?, 0.0, 0);
        if seen.balanced_after_s(nodes, children).is_some() {
            let counts = seen.counts(nodes);
            let fewest = (HOME + 1..=nodes).rev().min_by_key(|node| counts[*node as usize - 1]);
            return fewest.context("there is no node");
        }
        ensure!(Instant::now() < deadline, "the load does not spread over the nodes");
        std::thread::sleep(POLL);
    }
}

/// What the nodes have used so far, node by node.
struct Counters {
    bytes: Vec<u64>,
    used: Vec<Used>,
}

impl Counters {
    fn read(stage: &Stage, nodes: u32) -> Result<Counters> {
        let bytes = (1..=nodes).map(|node| stage.network_bytes(node)).collect::<Result<_>>()?;
        Ok(Counters { bytes, used: stage.used() })
    }

    fn since(self, before: &Counters) -> Counters {
        let bytes = self.bytes.iter().zip(&before.bytes).map(|(now, then)| now - then).collect();
        let used = self.used.iter().zip(&before.used).map(|(now, then)| now.since(*then)).collect();
        Counters { bytes, used }
    }
}

/// What events tell of the children.
struct Seen {
    /// When each came under management, and where it was then or went later.
    places: Vec<(f64, GlobalPid, NodeId)>,
    migrations: u32,
    freeze_ms_mean: f64,
}

impl Seen {
    /// `root` is none of them.
    fn of(events: &[Event], since_s: f64, root: i32) -> Seen {
        let mut places = Vec::new();
        let mut freezes_ms = Vec::new();
        let later = events.iter().filter(|event| event.time >= since_s);
        for event in later {
            let Some(process) = event.pid.filter(|process| process.pid.0 != root) else { continue };
            match &event.what {
                Happening::Managed { .. } => places.push((event.time, process, NodeId(HOME))),
                Happening::Migrated(made) => {
                    places.push((event.time, process, made.to));
                    freezes_ms.push(made.freeze_ms);
                }
                Happening::CameHome { .. } => places.push((event.time, process, NodeId(HOME))),
                _ => {}
            }
        }
        let count = freezes_ms.len();
        let freeze_ms_mean = freezes_ms.iter().sum::<f64>() / count.max(1) as f64;
        Seen { places, migrations: count as u32, freeze_ms_mean }
    }

    /// Processes on each node in the end.
    fn counts(&self, nodes: u32) -> Vec<u32> {
        let at = self.places.iter().map(|(_, process, node)| (*process, *node));
        count(&at.collect(), nodes)
    }

    /// How long after the last child was there they were first spread as evenly as can be, s.
    fn balanced_after_s(&self, nodes: u32, children: u32) -> Option<f64> {
        let mut at: BTreeMap<GlobalPid, NodeId> = BTreeMap::new();
        let mut complete_at = None;
        let known: BTreeSet<GlobalPid> =
            self.places.iter().map(|(_, process, _)| *process).collect();
        // The parent is managed as well, if it is not left out by its number.
        let first = (known.len() as u32 > children).then(|| self.places.first()).flatten();
        let parent = first.map(|(_, process, _)| *process);
        for (time, process, node) in self.places.iter().filter(|place| Some(place.1) != parent) {
            at.insert(*process, *node);
            if at.len() as u32 != children {
                continue;
            }
            let begun_at = *complete_at.get_or_insert(*time);
            let counts = count(&at, nodes);
            let (least, most) = (counts.iter().min()?, counts.iter().max()?);
            if most - least <= 1 {
                return Some(time - begun_at);
            }
        }
        None
    }
}

/// Processes on each of the nodes, which are numbered from 1.
fn count(at: &BTreeMap<GlobalPid, NodeId>, nodes: u32) -> Vec<u32> {
    let on = |node: u32| at.values().filter(|place| place.0 == node).count() as u32;
    (1..=nodes).map(on).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ids::HomePid;

    fn process(pid: i32) -> GlobalPid {
        GlobalPid { home: NodeId(HOME), pid: HomePid(pid) }
    }

    fn seen(places: &[(f64, i32, u32)]) -> Seen {
        let places = places.iter().map(|(time, pid, node)| (*time, process(*pid), NodeId(*node)));
        Seen { places: places.collect(), migrations: 0, freeze_ms_mean: 0.0 }
    }

    #[test]
    fn children_are_balanced_when_no_node_has_two_more_than_another() {
        let born = [(1.0, 11, 1), (1.25, 12, 1), (1.5, 13, 1)];
        assert_eq!(seen(&born).balanced_after_s(2, 3), None);
        let moved = [&born[..], &[(2.5, 12, 2)]].concat();
        assert_eq!(seen(&moved).balanced_after_s(2, 3), Some(1.0));
        assert_eq!(seen(&moved).balanced_after_s(3, 3), None, "one node has none, another two");
        assert_eq!(seen(&born).balanced_after_s(1, 3), Some(0.0), "there is one node only");
        assert_eq!(seen(&born[..2]).balanced_after_s(2, 3), None, "one is not there yet");
    }

    #[test]
    fn the_parent_is_none_of_them() {
        let places = [(0.5, 10, 1), (1.0, 11, 1), (1.25, 12, 1), (1.75, 12, 2)];
        assert_eq!(seen(&places).balanced_after_s(2, 2), Some(0.5));
    }
}
