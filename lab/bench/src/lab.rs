//! A lab for one benchmark, driven like a user would: by `osmos lab`.

use crate::Setting;
use anyhow::{Context, Result, bail, ensure};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use wire::control::{Migration, Process};

/// It has the name of what it is for.
const LAB: &str = "bench";
/// A process is on its way for much less; a lab under load may be slow.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(20);

/// How a lab's processors are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Each node has the whole machine: for latencies, and where one node computes at a time.
    Whole,
    /// Equal nodes, which together have the machine.
    Equal,
    /// Each node has the same one processor.
    One,
}

/// A lab that is up; dropping it takes it down.
pub struct Lab {
    /// What comes before `osmos`.
    prefix: Vec<String>,
    osmos: String,
}

impl Lab {
    pub fn up(setting: &Setting, nodes: u32, share: Share) -> Result<Lab> {
        let prefix: &[&str] = if share == Share::One { &["taskset", "-c", "0"] } else { &[] };
        let osmos = setting.osmos.to_str().context("the path of osmos is not text")?;
        let prefix = prefix.iter().map(|word| word.to_string()).collect();
        let lab = Lab { prefix, osmos: osmos.to_owned() };
        // What an earlier run that was killed may have left.
        let _ = lab.osmos(&["lab", "down", "--name", LAB]).output();
        let nodes = nodes.to_string();
        let programs = setting.programs.directory();
        let mut words = vec!["lab", "up", "--name", LAB, "--nodes", &nodes, "--share", programs];
        if share != Share::Equal {
            words.push("--no-cpu-limit");
        }
        output_of(&mut lab.osmos(&words))?;
        Ok(lab)
    }

    fn osmos(&self, words: &[&str]) -> Command {
        let mut all = self.prefix.iter().map(String::as_str).chain([self.osmos.as_str()]);
        let mut command = Command::new(all.next().unwrap_or("osmos"));
        command.args(all).args(words).stdin(Stdio::null());
        command
    }

    /// A command in a node, not started yet.
    pub fn command(&self, node: u32, words: &[&str]) -> Command {
        let node = node.to_string();
        let mut command = self.osmos(&["lab", "exec", "--name", LAB, &node, "--"]);
        command.args(words);
        command
    }

    /// What a command prints that has to succeed.
    pub fn output(&self, node: u32, words: &[&str]) -> Result<String> {
        output_of(&mut self.command(node, words))
    }

    /// The address of a node as the others see it.
    pub fn address(&self, node: u32) -> Result<String> {
        #[derive(serde::Deserialize)]
        struct Row {
            node: u32,
            address: String,
        }
        let listing = output_of(&mut self.osmos(&["lab", "ps", "--name", LAB, "--json"]))?;
        let rows: Vec<Row> = serde_json::from_str(&listing).context("`osmos lab ps --json`")?;
        let row = rows.into_iter().find(|row| row.node == node);
        Ok(row.with_context(|| format!("the lab has no node {node}"))?.address)
    }

    /// The processes whose home is node 1.
    pub fn processes(&self) -> Result<Vec<Process>> {
        let listing = self.output(1, &["osmos", "ps", "--json"])?;
        serde_json::from_str(&listing).context("`osmos ps --json`")
    }

    /// Waits until the process is on that node.
    pub fn await_arrival(&self, pid: i32, node: u32) -> Result<()> {
        let deadline = Instant::now() + ARRIVAL_TIMEOUT;
        loop {
            let processes = self.processes()?;
            let process = processes.iter().find(|process| process.pid == pid);
            let process = process.with_context(|| format!("process {pid} is not managed"))?;
            if process.node.0 == node && process.state != "moving" {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("process {pid} is not on node {node}: {}", process.reason);
            }
            // The daemon tells of moves only when asked, or after they ended.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Moves a process; `to` is a node's number or `home`.
    pub fn migrate(&self, pid: i32, to: &str) -> Result<Migration> {
        let told = self.output(1, &["osmos", "migrate", &pid.to_string(), to, "--json"])?;
        serde_json::from_str(&told).context("`osmos migrate --json`")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = output_of(&mut self.osmos(&["lab", "down", "--name", LAB])) {
            eprintln!("cannot take the lab down: {error:#}");
        }
    }
}

fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {}", output.status, words.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
