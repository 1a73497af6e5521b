//! What this node's daemon knows of the cluster, as old as [`LOOK_INTERVAL`] at most: nobody who
//! lists a directory waits for a daemon.

use client::Client;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::control::{Reply, Request};
use wire::ids::NodeId;

pub const LOOK_INTERVAL: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(2);
/// The first time nothing can be shown without an answer.
const FIRST_PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    pub me: Option<NodeId>,
    /// With what people call them.
    pub all: Vec<(NodeId, Option<String>)>,
}

impl Nodes {
    pub fn has(&self, node: NodeId) -> bool {
        self.all.iter().any(|(other, _)| *other == node)
    }

    pub fn named(&self, name: &str) -> Option<NodeId> {
        self.all.iter().find(|(_, called)| called.as_deref() == Some(name)).map(|(node, _)| *node)
    }
}

pub struct Cluster {
    socket: PathBuf,
    nodes: Mutex<Arc<Nodes>>,
}

impl Cluster {
    /// # Errors
    /// The daemon does not answer.
    pub fn new(socket: &Path) -> client::Result<Cluster> {
        let nodes = ask(socket, FIRST_PATIENCE)?;
        Ok(Cluster { socket: socket.to_owned(), nodes: Mutex::new(Arc::new(nodes)) })
    }

    /// Asks the daemon anew. What was known stays so while it does not answer.
    pub fn look(&self) {
        if let Ok(nodes) = ask(&self.socket, PATIENCE) {
            *self.nodes.lock().expect("nobody panics with it") = Arc::new(nodes);
        }
    }

    pub fn nodes(&self) -> Arc<Nodes> {
        self.nodes.lock().expect("nobody panics with it").clone()
    }

    /// Where a process of this node is at this moment.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn place_of(&self, pid: i32) -> client::Result<Option<NodeId>> {
        let mut client = Client::connect(&self.socket)?;
        client.set_patience(PATIENCE)?;
        let me = self.nodes().me;
        Ok(match client.request(&Request::Processes)? {
            Reply::Processes { processes } => processes
                .iter()
                .find(|process| process.pid == pid && Some(process.home) == me)
                .map(|process| process.node),
            _ => None,
        })
    }
}

fn ask(socket: &Path, patience: Duration) -> client::Result<Nodes> {
    let mut client = Client::connect(socket)?;
    client.set_patience(patience)?;
    let me = match client.request(&Request::Status)? {
        Reply::Status(status) => Some(status.node),
        _ => None,
    };
    let nodes = client.nodes()?.into_iter().map(|node| (node.id, node.name));
    Ok(Nodes { me, all: nodes.collect() })
}
