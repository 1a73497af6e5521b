//! Whoever kills daemons while the programs are moved, and starts others in their place; and
//! whether these know all that they have to.

use crate::soak::crew::Crew;
use crate::soak::ground::Ground;
use anyhow::{Context, Result, bail};
use fastrand::Rng;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use wire::control::{Reply, Request};
use wire::ids::NodeId;

/// A killed daemon is gone before long.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// Daemons look for children of managed processes several times a second, and know supervisors that
/// call them in less.
const FIND_PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks: neither the kernel nor a daemon tells us.
const STEP: Duration = Duration::from_millis(10);

/// Kills the daemon of one node after another, in rounds of a random order, each `every` so long
/// after the last, until `until` or `is_off`. Returns how many.
pub fn run(
    ground: &Ground,
    every: Duration,
    seed: u64,
    until: Instant,
    is_off: &(dyn Fn() -> bool + Sync),
) -> Result<u64> {
    let mut draw = Rng::with_seed(seed);
    let mut round: Vec<u32> = Vec::new();
    let mut next = Instant::now() + every;
    let mut killed = 0;
    while Instant::now() < until && !is_off() {
        if Instant::now() < next {
            std::thread::sleep(STEP);
            continue;
        }
        next += every;
        if round.is_empty() {
            round = ground.nodes().map(|node| node.id().0).collect();
            draw.shuffle(&mut round);
        }
        if let Some(node) = round.pop() {
            replace_daemon(ground, node)?;
            killed += 1;
        }
    }
    Ok(killed)
}

fn replace_daemon(ground: &Ground, number: u32) -> Result<()> {
    let node = ground.node(number);
    let pid = node.daemon_pid().with_context(|| format!("node {number} is down"))?;
    kill(Pid::from_raw(pid), Signal::SIGKILL).context("cannot kill a daemon")?;
    let deadline = Instant::now() + END_PATIENCE;
    while node.daemon_pid() == Some(pid) {
        if Instant::now() > deadline {
            bail!("the daemon of node {number} does not end");
        }
        std::thread::sleep(STEP);
    }
    node.start_daemon()
}

/// Processes of programs that their home's daemon does not know, given time to find them.
pub fn unmanaged(ground: &Ground, crew: &Crew) -> Result<Vec<String>> {
    // Those that come later are children of these, and will be found as well.
    let mut missing = crew.processes(ground)?;
    let deadline = Instant::now() + FIND_PATIENCE;
    loop {
        let alive = crew.processes(ground)?;
        missing.retain(|process| alive.contains(process));
        for node in ground.nodes() {
            let known = known(ground, node.id())?;
            missing.retain(|(home, pid)| *home != node.id().0 || !known.contains(pid));
        }
        if missing.is_empty() || Instant::now() > deadline {
            let tell = |(home, pid): &(u32, i32)| format!("{pid} of node {home} is unmanaged");
            return Ok(missing.iter().map(tell).collect());
        }
        std::thread::sleep(STEP);
    }
}

/// The processes of its own that a node's daemon lists.
fn known(ground: &Ground, home: NodeId) -> Result<BTreeSet<i32>> {
    match ground.client(home.0)?.request(&Request::Processes)? {
        Reply::Processes { processes } => {
            Ok(processes.into_iter().filter(|p| p.home == home).map(|p| p.pid).collect())
        }
        other => bail!("a daemon answers {other:?} instead of its processes"),
    }
}
