//! The osmos daemons of a lab: one in each node, as on machines of their own.

use crate::cgroup::{self, Place};
use crate::exec::Start;
use crate::lab::{Progress, tail};
use crate::mounts::{DAEMON_FILE, NODE_KEY, NODE_MAP, OSMOS};
use crate::node::Node;
use crate::record::Record;
use anyhow::{Context, Result, bail, ensure};
use client::Client;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use wire::control::{self, Reply, Request, SOCKET_NAME};

const PORT: u16 = 7780;
/// How long daemons may take to know each other: many times what gossip needs.
const MEETING_TIMEOUT: Duration = Duration::from_secs(30);
/// A daemon cannot call us when it is ready, so it is asked this often.
const ASK_STEP: Duration = Duration::from_millis(20);
/// How long one answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts all daemons and waits until every one sees every other alive.
pub fn start_all(record: &Record, progress: &Progress) -> Result<()> {
    let nodes = || record.spec.nodes().map(|id| Node::of(record, id));
    for node in nodes() {
        start(&node)?;
        progress.say(&format!("the daemon of node {} is started", node.id()));
    }
    for node in nodes() {
        wait_until_it_sees(&node, record.spec.speeds.len())?;
        progress.say(&format!("node {} sees all others", node.id()));
    }
    Ok(())
}

/// Starts the daemon of one node as a child of the node's keeper.
pub fn start(node: &Node<'_>) -> Result<()> {
    if let Some(pid) = pid(node) {
        bail!("the daemon of node {} runs already, pid {pid}", node.id());
    }
    let log_path = node.log()?;
    let log = File::options().create(true).append(true).open(&log_path);
    let log = log.with_context(|| format!("cannot open {}", log_path.display()))?;
    let mut command = node.command_in(Place::System, Start::Detached, OsStr::new(OSMOS));
    command.arg("daemon").args(["--node-id", &node.id().to_string()]);
    command.args(["--listen", &format!("{}:{PORT}", node.address())]);
    command.args(["--map", NODE_MAP, "--cluster-key", NODE_KEY]);
    // All nodes have the same cores; how much of them it has, a daemon sees in its guests' cgroup.
    command.args(["--speed", &node.record().spec.core_speed.to_string()]);
    if node.record().spec.trusts_root {
        command.args(["--lend-root", "on", "--guest-users", "*=same"]);
    }
    if let Some(seconds) = node.record().spec.succession_patience_s {
        command.args(["--succession-patience", &seconds.to_string()]);
    }
    if let Some(policy) = &node.record().spec.policy {
        command.args(["--policy", policy]);
    }
    for place in cgroup::places_inside(&node.record().hierarchies) {
        command.arg("--guest-cgroup").arg(place.join(Place::Work.dir_name()));
    }
    for word in node.record().spec.without(node.id()) {
        command.args(["--without", word]);
    }
    let status =
        command.stdout(log.try_clone()?).stderr(log).status().context("cannot start a daemon")?;
    ensure!(
        status.success(),
        "the daemon of node {} does not start: {}",
        node.id(),
        tail(&log_path)
    );
    Ok(())
}

/// The pid here of the node's daemon, from what was noted inside when it started.
pub fn pid(node: &Node<'_>) -> Option<i32> {
    let text = std::fs::read_to_string(node.path(DAEMON_FILE).ok()?).ok()?;
    let keeper = node.keeper().ok()?;
    crate::process::pid_outside(keeper, text.trim().parse().ok()?)
}

pub fn wait_until_it_answers(node: &Node<'_>) -> Result<()> {
    wait_until_it_sees(node, 1)
}

/// Waits until the daemon of `node` counts `wanted` nodes alive, itself among them.
fn wait_until_it_sees(node: &Node<'_>, wanted: usize) -> Result<()> {
    let deadline = Instant::now() + MEETING_TIMEOUT;
    let socket = socket(node)?;
    loop {
        let outcome = alive_count(&socket);
        if outcome.as_ref().is_ok_and(|count| *count >= wanted) {
            return Ok(());
        }
        let log = node.log()?;
        if pid(node).is_none() {
            bail!("the daemon of node {} has ended: {}", node.id(), tail(&log));
        }
        if Instant::now() > deadline {
            let seen = match outcome {
                Ok(count) => format!("it sees {count} of {wanted} nodes"),
                Err(error) => format!("{error:#}"),
            };
            bail!("the daemon of node {} is not ready: {seen}\n{}", node.id(), tail(&log));
        }
        std::thread::sleep(ASK_STEP);
    }
}

fn socket(node: &Node<'_>) -> Result<PathBuf> {
    Ok(node.path("/run/osmos")?.join(SOCKET_NAME))
}

/// A connection to the daemon of a node, from outside the node.
pub fn connect(node: &Node<'_>) -> Result<Client> {
    Ok(Client::connect(&socket(node)?)?)
}

/// The nodes that a node knows, as it sees them.
pub fn known_nodes(node: &Node<'_>) -> Result<Vec<control::Node>> {
    match connect(node)?.request(&Request::Nodes)? {
        Reply::Nodes { nodes } => Ok(nodes),
        other => bail!("the daemon answered {other:?} instead of its nodes"),
    }
}

/// Asks on a thread of its own, because a daemon that hangs must not hang us.
fn alive_count(socket: &Path) -> Result<usize> {
    let (sender, receiver) = mpsc::channel();
    let socket = socket.to_owned();
    std::thread::spawn(move || {
        let reply = Client::connect(&socket).and_then(|mut client| client.request(&Request::Nodes));
        // Nobody listens any more if we have given up.
        let _ = sender.send(reply);
    });
    match receiver.recv_timeout(ANSWER_TIMEOUT) {
        Ok(Ok(Reply::Nodes { nodes })) => {
            Ok(nodes.iter().filter(|node| node.status == "alive").count())
        }
        Ok(Ok(other)) => bail!("the daemon answered {other:?}"),
        Ok(Err(error)) => Err(error).context("the daemon does not answer"),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            bail!("the daemon does not answer within {} s", ANSWER_TIMEOUT.as_secs())
        }
    }
}
