//! A node itself: what its start and end take, and what it is in memory.

use super::{Amount, Footprint, STARTS, Timed, Took, tell};
use crate::engine::driven::Driven;
use crate::engine::stage::Stage;
use anyhow::{Context, Result};
use kernel::proc::process;
use std::fs;
use std::time::Instant;

/// A daemon beside the lab's own, in directories that are made for it.
const UP: &str = "osmos up --runtime-dir $D/run --state-dir $D/state --listen 127.0.0.1:7999 \
                  > /dev/null 2>&1";
const DOWN: &str = "osmos down --socket $D/run/control.sock";

/// Start and end as a user sees them: until the command comes back. What it takes to begin a
/// command in the lab at all stands beside them.
pub fn times(stage: &Stage, amount: &Amount) -> Result<Vec<Timed>> {
    tell("a node starts and ends");
    let directory = stage.output(2, &["mktemp", "-d"])?;
    let directory = directory.trim();
    let shell = |script: &str| -> Result<f64> {
        let began = Instant::now();
        stage.output(2, &["sh", "-c", &format!("D={directory}; {script}")])?;
        Ok(began.elapsed().as_secs_f64() * 1e6)
    };
    let (mut nothing, mut starts, mut ends) = (vec![], vec![], vec![]);
    for _ in 0..amount.times(STARTS) {
        nothing.push(shell("true")?);
        starts.push(shell(UP)?);
        ends.push(shell(DOWN)?);
    }
    stage.output(2, &["rm", "-r", directory])?;
    let row = |what: &str, took: Vec<f64>| -> Result<Timed> {
        Ok(Timed { what: what.into(), place: "native", us: Took::of_steps(took)? })
    };
    Ok(vec![
        row("a command that does nothing", nothing)?,
        row("osmos up", starts)?,
        row("osmos down", ends)?,
    ])
}

/// Of the daemon of a node with nothing to do, and of the supervisors of one process that is away.
pub fn footprint(stage: &Stage, program: &str) -> Result<Vec<Footprint>> {
    tell("footprint");
    let daemon_kib = pss_kib(stage.daemon_pid(1)?)?;
    let create = [program, "bench-os", "create", "4096", "untouched"];
    let words = [&["osmos", "run", "--node", "2", "--"], &create[..]].concat();
    let driven = Driven::start(&mut stage.command(1, &words))?;
    stage.await_arrival(driven.pid(), 2)?;
    let pid = driven.pid();
    let at_home = child(stage.daemon_pid(1)?, &format!("deputy-{pid}"))?;
    let away = child(stage.daemon_pid(2)?, "body")?;
    let of_process = [
        ("supervisor at home of a process that is away", pss_kib(at_home)?),
        ("supervisor away of the same", pss_kib(away)?),
    ];
    driven.end()?;
    let rows = [("daemon of a node, idle", daemon_kib)].into_iter().chain(of_process);
    Ok(rows.map(|(what, kib)| Footprint { what, kib }).collect())
}

/// Proportional set size, KiB (`smaps_rollup` of proc(5)).
fn pss_kib(pid: i32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).with_context(|| format!("{path} says no Pss"))
}

/// A child of this process that has this name.
fn child(parent: i32, name: &str) -> Result<i32> {
    let listed = fs::read_dir("/proc").context("cannot list processes")?.flatten();
    let mut pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_it = |pid: &i32| {
        process::stat(&pid.to_string())
            .is_ok_and(|stat| stat.parent == parent && stat.command == name.as_bytes())
    };
    pids.find(is_it).with_context(|| format!("process {parent} has no child `{name}`"))
}
