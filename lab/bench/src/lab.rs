//! A lab for one benchmark, driven like a user would: by `osmos lab`.

use crate::Setting;
use anyhow::{Context, Result, bail, ensure};
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use wire::control::{Event, Migration, Process};
use wire::ids::NodeId;

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
    /// Four equal nodes that have half of the machine, and a fifth that has the rest.
    FourAndRoom,
    /// All nodes have the same one processor: nothing waits for a halted one to wake up.
    One,
    /// Each node has one processor of its own, as if each were a machine.
    Own,
}

impl Share {
    /// The processor that a node keeps to.
    fn processor(self, node: u32) -> Option<u32> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        match self {
            Share::Whole | Share::Equal | Share::FourAndRoom => None,
            Share::One => Some(0),
            Share::Own => Some((node - 1) % processors),
        }
    }
}

/// This machine cannot have a lab: then nothing can be measured on it.
#[derive(Debug)]
pub struct NoLab(String);

impl fmt::Display for NoLab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no lab on this machine: {}", self.0)
    }
}

impl std::error::Error for NoLab {}

/// A lab that is up; dropping it takes it down.
pub struct Lab {
    osmos: String,
    share: Share,
}

/// A node as `osmos lab ps --json` tells of it.
#[derive(serde::Deserialize)]
struct Row {
    node: u32,
    address: String,
    daemon_pid: Option<i32>,
}

impl Lab {
    pub fn up(setting: &Setting, nodes: u32, share: Share) -> Result<Lab> {
        Lab::up_with(setting, nodes, share, &[])
    }

    /// Two nodes with the whole machine, and links of that rate, if it is limited.
    pub fn up_over(setting: &Setting, rate: Option<&str>) -> Result<Lab> {
        let words: Vec<&str> = rate.iter().flat_map(|rate| ["--link", rate]).collect();
        Lab::up_with(setting, 2, Share::Whole, &words)
    }

    /// Whose nodes do without a kernel feature.
    pub fn up_without(
        setting: &Setting,
        nodes: u32,
        share: Share,
        feature: Option<&str>,
    ) -> Result<Lab> {
        let words: Vec<&str> = feature.iter().flat_map(|word| ["--without", word]).collect();
        Lab::up_with(setting, nodes, share, &words)
    }

    fn up_with(setting: &Setting, nodes: u32, share: Share, more: &[&str]) -> Result<Lab> {
        let words = [&["--share", setting.programs.directory()], more].concat();
        Lab::up_of(&setting.osmos, nodes, share, &words)
    }

    /// Two nodes with the whole machine, which see this program itself.
    pub fn up_plain(osmos: &Path) -> Result<Lab> {
        let program = osmos.to_str().context("the path of osmos is not text")?;
        Lab::up_of(osmos, 2, Share::Whole, &["--share", program])
    }

    fn up_of(osmos: &Path, nodes: u32, share: Share, more: &[&str]) -> Result<Lab> {
        let osmos = osmos.to_str().context("the path of osmos is not text")?;
        let lab = Lab { osmos: osmos.to_owned(), share };
        // What an earlier run that was killed may have left.
        let _ = lab.osmos(&["lab", "down", "--name", LAB]).output();
        let nodes = nodes.to_string();
        let mut words = vec!["lab", "up", "--name", LAB, "--nodes", &nodes];
        match share {
            Share::Equal => {}
            Share::FourAndRoom => words.extend(["--speeds", "1,1,1,1,4"]),
            Share::Whole | Share::One | Share::Own => words.push("--no-cpu-limit"),
        }
        words.extend(more);
        output_of(&mut lab.osmos(&words)).map_err(|error| NoLab(format!("{error:#}")))?;
        lab.pin_daemons()?;
        Ok(lab)
    }

    /// Supervisors inherit the processor of the daemon that starts them.
    fn pin_daemons(&self) -> Result<()> {
        for row in self.rows()? {
            let Some(processor) = self.share.processor(row.node) else { continue };
            let pid = row.daemon_pid.with_context(|| format!("node {} is down", row.node))?;
            let words = ["-acp", &processor.to_string(), &pid.to_string()];
            output_of(Command::new("taskset").args(words))?;
        }
        Ok(())
    }

    fn osmos(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.osmos);
        command.args(words).stdin(Stdio::null());
        command
    }

    fn rows(&self) -> Result<Vec<Row>> {
        let listing = output_of(&mut self.osmos(&["lab", "ps", "--name", LAB, "--json"]))?;
        serde_json::from_str(&listing).context("`osmos lab ps --json`")
    }

    /// A command in a node, not started yet.
    pub fn command(&self, node: u32, words: &[&str]) -> Command {
        let number = node.to_string();
        let mut command = self.osmos(&["lab", "exec", "--name", LAB, &number, "--"]);
        if let Some(processor) = self.share.processor(node) {
            command.args(["taskset", "-c", &processor.to_string()]);
        }
        command.args(words);
        command
    }

    /// What a command prints that has to succeed.
    pub fn output(&self, node: u32, words: &[&str]) -> Result<String> {
        output_of(&mut self.command(node, words))
    }

    /// The address of a node as the others see it.
    pub fn address(&self, node: u32) -> Result<String> {
        let row = self.rows()?.into_iter().find(|row| row.node == node);
        Ok(row.with_context(|| format!("the lab has no node {node}"))?.address)
    }

    /// The daemon of a node, as this machine numbers it.
    pub fn daemon_pid(&self, node: u32) -> Result<i32> {
        let row = self.rows()?.into_iter().find(|row| row.node == node);
        row.and_then(|row| row.daemon_pid).with_context(|| format!("node {node} is down"))
    }

    /// The processes whose home is node 1.
    pub fn processes(&self) -> Result<Vec<Process>> {
        let listing = self.output(1, &["osmos", "ps", "--json"])?;
        serde_json::from_str(&listing).context("`osmos ps --json`")
    }

    /// What happened on node 1, in order.
    pub fn events(&self) -> Result<Vec<Event>> {
        let lines = self.output(1, &["osmos", "events", "--json"])?;
        let event = |line| serde_json::from_str(line).context("`osmos events --json`");
        lines.lines().map(event).collect()
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

    /// Moves a process to a node, or finds it there: the balancing may have been sooner.
    pub fn put(&self, pid: i32, node: NodeId) -> Result<()> {
        match self.migrate(pid, &node.to_string()) {
            Err(error) if !format!("{error:#}").contains("already") => Err(error),
            _ => Ok(()),
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
