//! One member of the cluster, as trials use it: a machine, or the lab's node, where commands of an
//! ordinary user run. What a program of trials asks of one it asks of the other in the same words.

use crate::machines::ground::Ground;
use crate::machines::machine::Machine;
use crate::stage::Stage;
use anyhow::{Context, Result, bail, ensure};
use std::cell::Cell;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use wire::control::CpuFit;
use wire::ids::NodeId;

/// The lab's only node.
pub const LAB_NODE: NodeId = NodeId(1);
/// Of the lab's node: a user whom this machine need not know.
const LAB_UID: u32 = 7001;
/// How often a daemon that starts or ends is asked whether it has.
const STEP: Duration = Duration::from_millis(200);
/// How long a daemon may take to start, to end, and to be known.
const DAEMON_PATIENCE: Duration = Duration::from_secs(90);

/// What a command printed, and how it ended.
#[derive(Debug)]
pub struct Said {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

#[derive(Clone, Copy)]
pub struct Seat<'a> {
    ground: &'a Ground,
    node: NodeId,
}

impl<'a> Seat<'a> {
    pub fn new(ground: &'a Ground, node: NodeId) -> Result<Seat<'a>> {
        ensure!(
            node == LAB_NODE || ground.machine(node).is_some(),
            "there is no node {node} among the machines"
        );
        Ok(Seat { ground, node })
    }

    pub fn node(&self) -> NodeId {
        self.node
    }

    /// None for the lab's node.
    pub fn machine(&self) -> Option<&'a Machine> {
        self.ground.machine(self.node)
    }

    /// Its kernel and processor, for people.
    pub fn description(&self) -> String {
        match self.machine() {
            Some(machine) => {
                let plan = &machine.plan;
                format!("{} {} x{}", plan.kernel, plan.cpu, plan.processors)
            }
            None => {
                let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
                let release = release.unwrap_or_default();
                let mut numbers = release.split('.');
                let (major, minor) = (numbers.next(), numbers.next());
                format!("{}.{} host", major.unwrap_or("?"), minor.unwrap_or("?"))
            }
        }
    }

    /// The words that lead a command there, as its ordinary user or as root.
    fn prefix(&self, as_root: bool) -> Result<Vec<String>> {
        let own = std::env::current_exe().context("cannot find this program's own file")?;
        let own = own.to_str().context("this program's path is not text")?.to_string();
        let words: Vec<String> = match self.machine() {
            Some(machine) => {
                let uid = if as_root { 0 } else { machine.plan.uid };
                let node = self.node.to_string();
                let words = ["machines", "exec", "--uid", &uid.to_string(), &node, "--"];
                [own].into_iter().chain(words.map(String::from)).collect()
            }
            None => {
                let spec = &self.ground.lab().record().spec;
                let osmos = spec.osmos.to_str().context("the path of osmos is not text")?;
                let name = spec.name.as_str();
                let words = [osmos, "lab", "exec", "--name", name, "1", "--"];
                let mut words = words.map(String::from).to_vec();
                if !as_root {
                    let uid = LAB_UID.to_string();
                    let user =
                        ["setpriv", "--reuid", &uid, "--regid", &uid, "--clear-groups", "--"];
                    words.extend(user.map(String::from));
                }
                words
            }
        };
        Ok(words)
    }

    /// A stage for programs whose home this is, with these nodes to move to.
    pub fn stage(&self, away: &[NodeId]) -> Result<Stage> {
        Stage::over(self.prefix(false)?, away.iter().map(|node| node.0).collect())
    }

    /// Starts a shell script there.
    pub fn start(&self, as_root: bool, script: &str) -> Result<Child> {
        let prefix = self.prefix(as_root)?;
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args(["sh", "-c", script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().with_context(|| format!("cannot run {}", prefix[0]))
    }

    /// Runs a shell script there, and ends it if it takes longer than this.
    pub fn run(&self, as_root: bool, script: &str, patience: Duration) -> Result<Said> {
        finish(self.start(as_root, script)?, patience).with_context(|| format!("`{script}`"))
    }

    /// Runs a shell script that has to succeed; returns what it printed.
    pub fn must(&self, as_root: bool, script: &str, patience: Duration) -> Result<String> {
        let said = self.run(as_root, script, patience)?;
        if !said.status.success() {
            bail!("`{script}` gave {}: {}{}", said.status, said.stdout, said.stderr.trim());
        }
        Ok(said.stdout)
    }

    /// Whether its daemon answers.
    pub fn has_daemon(&self) -> Result<bool> {
        let said = self.run(true, "osmos status > /dev/null 2>&1", DAEMON_PATIENCE)?;
        Ok(said.status.success())
    }

    pub fn start_daemon(&self) -> Result<()> {
        match self.machine() {
            Some(machine) => self.ground.start_daemon(machine),
            None => self.ground.lab().node(LAB_NODE.0).start_daemon(),
        }
    }

    /// Ends its daemon as a fault would.
    pub fn kill_daemon(&self) -> Result<()> {
        let status = self.must(true, "osmos status --json", DAEMON_PATIENCE)?;
        let status: wire::control::Status =
            serde_json::from_str(&status).context("`osmos status --json` is none")?;
        let pid = status.daemon_pid;
        let script =
            format!("kill -9 {pid} && while kill -0 {pid} 2> /dev/null; do sleep 0.1; done");
        self.must(true, &script, DAEMON_PATIENCE).map(drop)
    }

    /// Ends its daemon in order.
    pub fn stop_daemon(&self) -> Result<()> {
        self.must(true, "osmos down", DAEMON_PATIENCE)?;
        self.await_that("its daemon ends", || Ok(!self.has_daemon()?))
    }

    /// Waits until its daemon sees exactly these nodes alive, itself among them.
    pub fn await_alive(&self, wanted: &[NodeId]) -> Result<()> {
        let mut wanted: Vec<NodeId> = wanted.to_vec();
        wanted.sort_unstable();
        self.await_that("its daemon sees who is there", || Ok(self.alive()? == wanted))
    }

    /// Whether the processor of another member will do for programs of this one.
    pub fn await_fit(&self, other: NodeId) -> Result<CpuFit> {
        let fit = Cell::new(CpuFit::Unknown);
        self.await_that("another node tells of its processor", || {
            let nodes = self.nodes()?.into_iter();
            nodes.filter(|node| node.id == other).for_each(|node| fit.set(node.cpu));
            Ok(fit.get() != CpuFit::Unknown)
        })?;
        Ok(fit.get())
    }

    fn nodes(&self) -> Result<Vec<wire::control::Node>> {
        let text = self.must(true, "osmos nodes --json", DAEMON_PATIENCE)?;
        serde_json::from_str(&text).context("`osmos nodes --json` lists none")
    }

    fn alive(&self) -> Result<Vec<NodeId>> {
        let nodes = self.nodes()?;
        let alive = nodes.iter().filter(|node| node.status == "alive");
        let mut alive: Vec<NodeId> = alive.map(|node| node.id).collect();
        alive.sort_unstable();
        Ok(alive)
    }

    fn await_that(&self, what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + DAEMON_PATIENCE;
        while !is_so()? {
            ensure!(Instant::now() < deadline, "node {}: waited in vain that {what}", self.node);
            std::thread::sleep(STEP);
        }
        Ok(())
    }
}

/// Waits for a command and its output; kills it if that takes too long.
pub fn finish(mut child: Child, patience: Duration) -> Result<Said> {
    let stdout = child.stdout.take().context("it is piped")?;
    let stderr = child.stderr.take().context("it is piped")?;
    let hear = |mut stream: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stream.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let (stdout, stderr) = (hear(Box::new(stdout)), hear(Box::new(stderr)));
    let deadline = Instant::now() + patience;
    let status = loop {
        if let Some(status) = child.try_wait().context("lost a command")? {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            bail!("it has not ended within {} s", patience.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let text = |thread: std::thread::JoinHandle<String>| thread.join().expect("it does not panic");
    Ok(Said { status, stdout: text(stdout), stderr: text(stderr) })
}
