//! A lab for one benchmark, driven like a user would: by commands in its nodes.

use crate::engine::Setting;
use anyhow::{Context, Result, bail, ensure};
use lab::{Lab, Spec};
use std::path::{Path, PathBuf};
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

/// A lab that is up; dropping it takes it down.
pub struct Stage {
    lab: Lab,
    share: Share,
}

impl Stage {
    /// So many nodes, which see the measured programs.
    pub fn up(setting: &Setting, nodes: u32, share: Share) -> Result<Stage> {
        Stage::of(Stage::spec(setting, nodes)?, share)
    }

    /// Two nodes with the whole machine, and links of that rate, if it is limited.
    pub fn up_over(setting: &Setting, rate: Option<&str>) -> Result<Stage> {
        let link = rate.map(str::parse).transpose()?;
        Stage::of(Spec { link, ..Stage::spec(setting, 2)? }, Share::Whole)
    }

    /// Two nodes with the whole machine, which do without a kernel feature.
    pub fn up_without(setting: &Setting, feature: &str) -> Result<Stage> {
        let spec = Spec { without: vec![feature.to_owned()], ..Stage::spec(setting, 2)? };
        Stage::of(spec, Share::Whole)
    }

    /// Nodes with the whole machine, which see this program itself.
    pub fn up_plain(osmos: &Path, nodes: u32) -> Result<Stage> {
        let shared = vec![osmos.to_owned()];
        Stage::of(Spec { shared, ..Spec::unlimited(osmos, LAB, nodes)? }, Share::Whole)
    }

    /// Two such nodes with links of that rate, if it is limited.
    pub fn up_plain_over(osmos: &Path, rate: Option<&str>) -> Result<Stage> {
        let (shared, link) = (vec![osmos.to_owned()], rate.map(str::parse).transpose()?);
        Stage::of(Spec { shared, link, ..Spec::unlimited(osmos, LAB, 2)? }, Share::Whole)
    }

    fn spec(setting: &Setting, nodes: u32) -> Result<Spec> {
        let shared = vec![PathBuf::from(setting.programs.directory())];
        Ok(Spec { shared, ..Spec::unlimited(&setting.osmos, LAB, nodes)? })
    }

    fn of(mut spec: Spec, share: Share) -> Result<Stage> {
        spec.is_cpu_limited = matches!(share, Share::Equal | Share::FourAndRoom);
        if share == Share::FourAndRoom {
            spec.speeds = vec![1.0, 1.0, 1.0, 1.0, 4.0];
        }
        let stage = Stage { lab: Lab::up(&spec)?, share };
        stage.lab.down_when_interrupted()?;
        stage.pin_daemons()?;
        Ok(stage)
    }

    /// Supervisors inherit the processor of the daemon that starts them.
    fn pin_daemons(&self) -> Result<()> {
        for node in self.lab.nodes().map(|node| node.id().0) {
            let Some(processor) = self.share.processor(node) else { continue };
            let pid = self.daemon_pid(node)?.to_string();
            output_of(Command::new("taskset").args(["-acp", &processor.to_string(), &pid]))?;
        }
        Ok(())
    }

    /// A command in a node, not started yet.
    pub fn command(&self, node: u32, words: &[&str]) -> Command {
        let processor = self.share.processor(node).map(|processor| processor.to_string());
        let pinned = processor.iter().flat_map(|processor| ["taskset", "-c", processor]);
        let mut words = pinned.chain(words.iter().copied());
        let program = words.next().expect("a command has a first word");
        let mut command = self.lab.node(node).command(program);
        command.args(words).stdin(Stdio::null());
        command
    }

    /// What a command prints that has to succeed.
    pub fn output(&self, node: u32, words: &[&str]) -> Result<String> {
        output_of(&mut self.command(node, words))
    }

    /// The address of a node as the others see it.
    pub fn address(&self, node: u32) -> String {
        self.lab.node(node).address().to_string()
    }

    /// The daemon of a node, as this machine numbers it.
    pub fn daemon_pid(&self, node: u32) -> Result<i32> {
        self.lab.node(node).daemon_pid().with_context(|| format!("node {node} is down"))
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

fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {}", output.status, words.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
