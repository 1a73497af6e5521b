//! The nodes that the demo plays on, in a lab where one can be had, and the home node's daemon.

use crate::demo::loopback::{CANNOT_SHOW, Loopback};
use crate::demo::{audio, work};
use anyhow::{Context, Result, bail, ensure};
use client::Client;
use lab::{Lab, Spec};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::control::{Event, Happening, Node, Process, Reply, Request};
use wire::ids::NodeId;

/// Two strong nodes and two half as fast.
pub const SPEEDS: [f64; 4] = [1.0, 1.0, 0.5, 0.5];
/// Nodes that share the machine's processors.
const SAME_SPEEDS: [f64; 4] = [1.0; 4];
pub const HOME: NodeId = NodeId(1);
pub const STRONGEST_OTHER: NodeId = NodeId(2);
/// Where the tracks are: below /tmp, which every node has for itself.
const DIRECTORY: &str = "/tmp/musictest";
const LAB_NAME: &str = "demo";
/// Gossip takes a round or two; a node that is slower than this never hears.
const SPEEDS_TIMEOUT: Duration = Duration::from_secs(20);
const SPEEDS_POLL: Duration = Duration::from_millis(100);

/// Where the nodes are.
enum Ground {
    Lab(Box<Lab>),
    /// This machine allows no lab, for this reason.
    Loopback(Loopback, Vec<String>),
}

pub struct Stage {
    ground: Ground,
    speeds: &'static [f64],
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
        let (ground, speeds) = match Lab::up(&spec) {
            Ok(lab) => (Ground::Lab(Box::new(lab)), &SPEEDS[..]),
            Err(error) => match lab::try_smallest(&spec.osmos) {
                Ok(_) => return Err(error).context("cannot build the lab"),
                Err(reason) => (on_loopback(&reason)?, &SAME_SPEEDS[..]),
            },
        };
        let stage = Stage { ground, speeds, interrupted };
        stage.check_privacy()?;
        stage.wait_for_speeds()?;
        Ok(stage)
    }

    /// A node that has not heard of another yet can send nothing there: what is timed begins when
    /// every node knows the speed of every node.
    fn wait_for_speeds(&self) -> Result<()> {
        let started = Instant::now();
        let count = self.speeds.len();
        for id in self.nodes() {
            loop {
                let nodes = self.known_nodes(id)?;
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

    fn known_nodes(&self, node: NodeId) -> Result<Vec<Node>> {
        match self.client(node)?.request(&Request::Nodes)? {
            Reply::Nodes { nodes } => Ok(nodes),
            other => bail!("the daemon answered {other:?} instead of its nodes"),
        }
    }

    fn client(&self, node: NodeId) -> Result<Client> {
        match &self.ground {
            Ground::Lab(lab) => lab.node(node.0).client(),
            Ground::Loopback(loopback, _) => loopback.client(node),
        }
    }

    fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (1..=self.speeds.len() as u32).map(NodeId)
    }

    /// The nodes are gone when this returns, and so is all that was in them.
    pub fn down(self) -> Result<()> {
        match self.ground {
            Ground::Lab(lab) => lab.down().context("cannot take the lab down"),
            Ground::Loopback(loopback, _) => {
                drop(loopback);
                Ok(())
            }
        }
    }

    pub fn speeds(&self) -> &'static [f64] {
        self.speeds
    }

    pub fn missing(&self) -> &[String] {
        match &self.ground {
            Ground::Lab(lab) => lab.missing(),
            Ground::Loopback(_, missing) => missing,
        }
    }

    /// Cores of this machine that a node has; None if it cannot be limited.
    pub fn cores(&self, node: NodeId) -> Option<f64> {
        match &self.ground {
            Ground::Lab(lab) => lab.node(node.0).cpu_share(),
            Ground::Loopback(..) => None,
        }
    }

    pub fn interrupted(&self) -> &AtomicBool {
        &self.interrupted
    }

    /// A command in a node, as if typed there.
    pub fn command(&self, node: NodeId, words: &[&str]) -> Command {
        let mut command = match &self.ground {
            Ground::Lab(lab) => lab.node(node.0).command(words[0]),
            Ground::Loopback(loopback, _) => loopback.command(node, words[0]),
        };
        command.args(&words[1..]).current_dir("/");
        command
    }

    /// The words of a script that runs in the tracks' directory of a node.
    pub fn in_tracks(&self, node: NodeId, script: &str) -> String {
        let directory = match &self.ground {
            Ground::Lab(_) => PathBuf::from(DIRECTORY),
            Ground::Loopback(loopback, _) => loopback.files_of(node),
        };
        format!("cd {} && {script}", work::quoted(&directory.to_string_lossy()))
    }

    /// The tracks' directory of a node as this program can open it.
    fn tracks_of(&self, node: NodeId) -> Result<PathBuf> {
        match &self.ground {
            Ground::Lab(lab) => lab.node(node.0).path(DIRECTORY),
            Ground::Loopback(loopback, _) => Ok(loopback.files_of(node)),
        }
    }

    /// What is home's alone must not be seen elsewhere, or a lab would prove nothing.
    fn check_privacy(&self) -> Result<()> {
        let Ground::Lab(lab) = &self.ground else { return Ok(()) };
        let probe = self.tracks_of(HOME)?;
        fs::create_dir(&probe).with_context(|| format!("cannot make {}", probe.display()))?;
        for node in lab.nodes().filter(|node| node.id() != HOME) {
            let path = node.path(DIRECTORY)?;
            ensure!(!path.exists(), "{DIRECTORY} of node {HOME} is also on node {}", node.id());
        }
        Ok(())
    }

    /// Writes the tracks into a node's directory.
    pub fn write_tracks(&self, node: NodeId, tracks: u32, bytes: u64) -> Result<()> {
        let directory = self.tracks_of(node)?;
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

    /// Name and BLAKE3 hash of each encoded track in a node's directory, which are removed. Done
    /// here and by no program, because the smallest machine may lack it.
    pub fn take_checksums(&self, node: NodeId, suffix: &str) -> Result<String> {
        let directory = self.tracks_of(node)?;
        let mut sums = BTreeMap::new();
        for entry in fs::read_dir(&directory).context("no encoded tracks")? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !name.ends_with(&format!(".{suffix}")) {
                continue;
            }
            let what = || format!("cannot read {}", path.display());
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(File::open(&path).with_context(what)?).with_context(what)?;
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            sums.insert(name, hasher.finalize().to_hex());
        }
        ensure!(!sums.is_empty(), "no encoded tracks in {}", directory.display());
        Ok(sums.iter().map(|(name, hash)| format!("{hash}  {name}\n")).collect())
    }

    /// The processes that the home node knows.
    pub fn processes(&self) -> Result<Vec<Process>> {
        match self.client(HOME)?.request(&Request::Processes)? {
            Reply::Processes { processes } => Ok(processes),
            other => bail!("the daemon answered {other:?} instead of its processes"),
        }
    }

    /// All that the home node recorded so far.
    pub fn events(&self) -> Result<Vec<Event>> {
        let events: client::Result<Vec<Event>> = self.client(HOME)?.events(false)?.collect();
        Ok(events?)
    }

    /// Why the last process stayed at home that was to leave, if any was.
    pub fn refusal(&self) -> Result<Option<String>> {
        let stayed = self.events()?.into_iter().rev().find_map(|event| match event.what {
            Happening::Stayed { reason } => Some(reason.text),
            _ => None,
        });
        Ok(stayed)
    }

    /// The clock of events.
    pub fn now_epoch_s(&self) -> Result<f64> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is wrong")?;
        Ok(since.as_secs_f64())
    }
}

/// The next best, and what it lacks.
fn on_loopback(reason: &anyhow::Error) -> Result<Ground> {
    let reason = format!("no separate nodes: {reason:#}");
    let way_out = "in a container, allow namespaces (docker run --privileged, or --cap-add \
                   SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined)";
    let loopback = Loopback::up(SAME_SPEEDS.len() as u32)
        .with_context(|| format!("{reason}; nor can nodes run without them; {way_out}"))?;
    let missing = [reason, way_out.to_owned(), CANNOT_SHOW.to_owned()];
    Ok(Ground::Loopback(loopback, missing.to_vec()))
}
