//! The lab that the demo plays in, and the home node's daemon.

use crate::audio;
use anyhow::{Context, Result, bail, ensure};
use lab::{Lab, Spec};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::control::{Event, Node, Process, Reply, Request};
use wire::ids::NodeId;

/// Two strong nodes and two half as fast.
pub const SPEEDS: [f64; 4] = [1.0, 1.0, 0.5, 0.5];
pub const HOME: NodeId = NodeId(1);
pub const STRONGEST_OTHER: NodeId = NodeId(2);
/// Where the tracks are: below /tmp, which every node has for itself.
const DIRECTORY: &str = "/tmp/musictest";
const LAB_NAME: &str = "demo";
/// Gossip takes a round or two; a node that is slower than this never hears.
const SPEEDS_TIMEOUT: Duration = Duration::from_secs(20);
const SPEEDS_POLL: Duration = Duration::from_millis(100);

pub struct Stage {
    lab: Lab,
    interrupted: Arc<AtomicBool>,
}

impl Stage {
    pub fn up() -> Result<Stage> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, interrupted.clone())
                .context("cannot watch for interruption")?;
        }
        let mut spec = Spec::new(LAB_NAME.parse()?, SPEEDS.len() as u32)?;
        spec.speeds = SPEEDS.to_vec();
        // Shared fairly: of a quota alone some programs of a node get more than others.
        spec.has_one_core_each = true;
        let lab = Lab::up(&spec).context("cannot build the lab")?;
        let stage = Stage { lab, interrupted };
        stage.check_privacy()?;
        stage.wait_for_speeds()?;
        Ok(stage)
    }

    /// A node that has not heard of another yet can send nothing there: what is timed begins when
    /// every node knows the speed of every node.
    fn wait_for_speeds(&self) -> Result<()> {
        let started = Instant::now();
        let count = SPEEDS.len();
        for id in self.lab.nodes().map(|node| node.id()) {
            loop {
                let nodes = self.lab.node(id.0).known_nodes()?;
                let knows = |node: &&Node| node.status == "alive" && node.speed > 0.0;
                let known = nodes.iter().filter(knows).count();
                if known == count {
                    break;
                }
                if self.interrupted.load(Ordering::Relaxed) {
                    bail!("interrupted");
                }
                ensure!(
                    started.elapsed() < SPEEDS_TIMEOUT,
                    "node {id} knows the speeds of {known} of {count} nodes after {:?}",
                    SPEEDS_TIMEOUT
                );
                std::thread::sleep(SPEEDS_POLL);
            }
        }
        Ok(())
    }

    /// The lab is gone when this returns, and so is all that was in it.
    pub fn down(self) -> Result<()> {
        self.lab.down().context("cannot take the lab down")
    }

    pub fn speeds(&self) -> &'static [f64] {
        &SPEEDS
    }

    pub fn missing(&self) -> &[String] {
        self.lab.missing()
    }

    /// Cores of this machine that a node has; None if it cannot be limited.
    pub fn cores(&self, node: NodeId) -> Option<f64> {
        self.lab.node(node.0).cpu_share()
    }

    pub fn interrupted(&self) -> &AtomicBool {
        &self.interrupted
    }

    /// A command in a node, as if typed there.
    pub fn command(&self, node: NodeId, words: &[&str]) -> Command {
        let mut command = self.lab.node(node.0).command(words[0]);
        command.args(&words[1..]).current_dir("/");
        command
    }

    /// The words of a script that runs in the tracks' directory.
    pub fn in_tracks(&self, script: &str) -> String {
        format!("cd {DIRECTORY} && {script}")
    }

    /// What is home's alone must not be seen elsewhere, or the demo would prove nothing.
    fn check_privacy(&self) -> Result<()> {
        let probe = self.lab.node(HOME.0).path(DIRECTORY)?;
        fs::create_dir(&probe).with_context(|| format!("cannot make {}", probe.display()))?;
        for node in self.lab.nodes().filter(|node| node.id() != HOME) {
            let path = node.path(DIRECTORY)?;
            ensure!(!path.exists(), "{DIRECTORY} of node {HOME} is also on node {}", node.id());
        }
        Ok(())
    }

    /// Writes the tracks into a node's directory.
    pub fn write_tracks(&self, node: NodeId, tracks: u32, bytes: u64) -> Result<()> {
        let directory = self.lab.node(node.0).path(DIRECTORY)?;
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        for number in 1..=tracks {
            let path = directory.join(format!("track{number:02}.wav"));
            let what = || format!("cannot write {}", path.display());
            let mut file = BufWriter::new(File::create(&path).with_context(what)?);
            audio::write_track(&mut file, number, audio::samples_for(bytes)).with_context(what)?;
            file.flush().with_context(what)?;
        }
        Ok(())
    }

    /// The checksums of the encoded tracks in a node's directory, which are removed.
    pub fn take_checksums(&self, node: NodeId, outputs: &str) -> Result<String> {
        let script = self.in_tracks(&format!("sha256sum {outputs} && rm -f {outputs}"));
        let output = self
            .command(node, &["sh", "-c", &script])
            .output()
            .context("cannot start sha256sum")?;
        if !output.status.success() {
            bail!("no encoded tracks: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The processes that the home node knows.
    pub fn processes(&self) -> Result<Vec<Process>> {
        match self.lab.node(HOME.0).client()?.request(&Request::Processes)? {
            Reply::Processes { processes } => Ok(processes),
            other => bail!("the daemon answered {other:?} instead of its processes"),
        }
    }

    /// All that the home node recorded so far.
    pub fn events(&self) -> Result<Vec<Event>> {
        let events: client::Result<Vec<Event>> =
            self.lab.node(HOME.0).client()?.events(false)?.collect();
        Ok(events?)
    }

    /// The clock of events.
    pub fn now_epoch_s(&self) -> Result<f64> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is wrong")?;
        Ok(since.as_secs_f64())
    }
}
