//! `osmos bench-crew PLAN`: starts guests in a lab's node, all at one moment and as one process
//! group if they are one job, waits for each, and tells when it ended and what it said.
//!
//! It stands in the node like a user's shell, but beside the node's work: what it does to start
//! and to wait is no part of what is measured.

use crate::balance::guest;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::io::{BufRead, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

pub const READY: &str = "ready";
pub const GO: &str = "go";

/// Guests of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub guests: Vec<guest::Plan>,
    /// Under Osmos, or plain programs of the node.
    pub is_managed: bool,
    /// All in one process group, or each in its own.
    pub is_group: bool,
}

/// What became of one guest, in the order of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    pub pid: i32,
    /// Since the word to go.
    pub started_s: f64,
    pub ended_s: f64,
    pub wait_status: i32,
    pub output: String,
}

pub fn run(words: &[OsString]) -> Result<()> {
    let text = words.first().and_then(|word| word.to_str()).context("bench-crew PLAN")?;
    let plan: Plan = serde_json::from_str(text).context("that is no plan")?;
    name_guests()?;
    let mut output = std::io::stdout();
    writeln!(output, "{READY}")?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("nobody says go")?;
    anyhow::ensure!(line.trim() == GO, "`{}` is not the word to go", line.trim());
    let ended = work(&plan)?;
    writeln!(output, "{}", serde_json::to_string(&ended)?)?;
    Ok(())
}

/// The guests' program. It is this one under another name: the daemon knows by the name that
/// `osmos run` has become its command.
const GUEST: &str = "bench-guest";

/// Gives this program the guests' name as well, beside its own: in a directory that all nodes of
/// the lab have in common.
fn name_guests() -> Result<()> {
    let own = std::env::current_exe().context("cannot find this program")?;
    match std::fs::hard_link(&own, own.with_file_name(GUEST)) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot link {} to {GUEST}", own.display()))
        }
        _ => Ok(()),
    }
}

fn work(plan: &Plan) -> Result<Vec<Ended>> {
    let go = Instant::now();
    let (told, ends) = mpsc::channel();
    for (nth, guest) in plan.guests.iter().enumerate() {
        let child = command(plan, guest)?.spawn().context("cannot start a guest")?;
        let (pid, started_s) = (child.id() as i32, go.elapsed().as_secs_f64());
        let told = told.clone();
        std::thread::spawn(move || {
            let ended = await_end(child, go).map(|(ended_s, wait_status, output)| {
                (nth, Ended { pid, started_s, ended_s, wait_status, output })
            });
            // Nobody listens any more if another was lost.
            let _ = told.send(ended);
        });
    }
    drop(told);
    let mut ended = ends.into_iter().collect::<Result<Vec<(usize, Ended)>>>()?;
    ended.sort_by_key(|(nth, _)| *nth);
    Ok(ended.into_iter().map(|(_, ended)| ended).collect())
}

fn command(plan: &Plan, guest: &guest::Plan) -> Result<Command> {
    let mut command = match plan.is_managed {
        true => Command::new("osmos"),
        false => Command::new(GUEST),
    };
    if plan.is_managed {
        command.args(["run", "--", GUEST]);
    }
    command.arg("bench-guest").arg(serde_json::to_string(guest)?);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    if !plan.is_group {
        command.process_group(0);
    }
    Ok(command)
}

fn await_end(child: Child, go: Instant) -> Result<(f64, i32, String)> {
    let output = child.wait_with_output().context("lost a guest")?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok((go.elapsed().as_secs_f64(), output.status.into_raw(), text))
}
