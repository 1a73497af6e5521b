//! One picture of the cluster: its nodes, and every process once, as who shows them needs it.
//!
//! All texts come from other nodes and other people's processes. They are made printable and cut
//! here, where they come in, so that nothing behind this has to think of it.

use crate::words::printable;
use crate::{Client, Gathered, Result};
use std::collections::{BTreeMap, HashMap};
use wire::control::{Node, Process};
use wire::ids::{GlobalPid, HomePid, NodeId};

/// Processes beyond this are left out, and whoever shows them says so.
pub const PROCESSES_MAX: usize = 1 << 17;
/// Characters of a command line that are kept: more than any screen shows in a line.
const TEXT_CHARS_MAX: usize = 1_024;

/// What the daemon and all other nodes have answered.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    pub nodes: Vec<Node>,
    pub gathered: Gathered,
}

/// Asks all nodes of themselves and of their processes.
///
/// # Errors
/// The daemon does not answer. Of other nodes that do not, the picture says so.
pub fn look(client: &mut Client) -> Result<Looked> {
    Ok(Looked { nodes: client.nodes()?, gathered: client.processes_everywhere()? })
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// In the order of their numbers.
    pub nodes: Vec<NodeRow>,
    pub processes: Vec<ProcessRow>,
    pub silent: BTreeMap<NodeId, String>,
    /// So many processes more.
    pub left_out: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NodeRow {
    pub id: NodeId,
    pub name: String,
    pub address: String,
    /// `alive`, `suspect`, `gone`.
    pub state: String,
    pub cores: f64,
    pub speed: f64,
    pub load: f64,
    pub memory_total_bytes: u64,
    pub memory_free_bytes: u64,
    pub guests: u32,
    pub takes_guests: bool,
    /// The one whose daemon is asked.
    pub is_asked: bool,
}

impl NodeRow {
    pub fn memory_used_bytes(&self) -> u64 {
        self.memory_total_bytes.saturating_sub(self.memory_free_bytes)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProcessRow {
    pub key: GlobalPid,
    pub user: String,
    pub node: NodeId,
    pub state: String,
    pub cpu_s: f64,
    pub memory_bytes: u64,
    pub moves: u64,
    pub reason: String,
    pub command: String,
    /// At the same home.
    pub parent: Option<GlobalPid>,
}

impl ProcessRow {
    pub fn is_away(&self) -> bool {
        self.node != self.key.home
    }
}

impl From<Looked> for Picture {
    fn from(Looked { nodes, gathered }: Looked) -> Picture {
        let Gathered { mut processes, silent } = gathered;
        let left_out = processes.len().saturating_sub(PROCESSES_MAX);
        processes.truncate(PROCESSES_MAX);
        let mut guests: HashMap<NodeId, u32> = HashMap::new();
        for process in processes.iter().filter(|process| process.node != process.home) {
            *guests.entry(process.node).or_default() += 1;
        }
        let count = |node: &Node| guests.get(&node.id).copied().unwrap_or(0);
        let mut nodes: Vec<NodeRow> =
            nodes.iter().map(|node| node_row(node, count(node))).collect();
        nodes.sort_by_key(|node| node.id);
        nodes.dedup_by_key(|node| node.id);
        let processes = processes.iter().map(process_row).collect();
        let silent = silent.into_iter().map(|(node, why)| (node, short(&why.text))).collect();
        Picture { nodes, processes, silent, left_out }
    }
}

fn node_row(node: &Node, guests: u32) -> NodeRow {
    NodeRow {
        id: node.id,
        name: short(node.name.as_deref().unwrap_or_default()),
        address: short(&node.address),
        state: short(&node.status),
        cores: node.cores,
        speed: node.speed,
        load: node.load,
        memory_total_bytes: node.mem_total_bytes,
        memory_free_bytes: node.mem_free_bytes,
        guests,
        takes_guests: node.takes_guests,
        is_asked: node.info_age_s == 0.0,
    }
}

fn process_row(process: &Process) -> ProcessRow {
    let key = |pid| GlobalPid { home: process.home, pid: HomePid(pid) };
    let uid = process.uid.map(|uid| uid.to_string());
    ProcessRow {
        key: key(process.pid),
        user: short(process.user.as_deref().or(uid.as_deref()).unwrap_or("-")),
        node: process.node,
        state: short(&process.state),
        cpu_s: process.cpu_s,
        memory_bytes: process.rss_bytes,
        moves: process.migrations,
        reason: short(&process.reason),
        command: short(process.shown_command()),
        parent: process.parent.map(key),
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => printable(&text[..end]),
        None => printable(text),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use fixtures::{node, process};
    use wire::control::Failure;

    #[test]
    fn guests_are_counted_and_nodes_sorted() {
        let nodes = vec![node(2, "two"), node(1, "one")];
        let gathered = Gathered {
            processes: vec![process(1, 10, 2), process(2, 7, 2)],
            silent: vec![(NodeId(3), Failure { code: "gone".into(), text: "no\x1b[2J".into() })],
        };
        let picture = Picture::from(Looked { nodes, gathered });
        let shown: Vec<_> = picture.nodes.iter().map(|n| (n.id.0, n.guests)).collect();
        assert_eq!(shown, [(1, 0), (2, 1)]);
        assert_eq!(picture.silent[&NodeId(3)], "no?[2J");
    }

    #[test]
    fn what_is_too_much_is_left_out_and_counted() {
        let processes = (0..PROCESSES_MAX as i32 + 3).map(|pid| process(1, pid, 1)).collect();
        let gathered = Gathered { processes, silent: Vec::new() };
        let picture = Picture::from(Looked { nodes: Vec::new(), gathered });
        assert_eq!((picture.processes.len(), picture.left_out), (PROCESSES_MAX, 3));
    }

    #[test]
    fn what_others_wrote_is_printable_and_bounded() {
        let mut hostile = process(1, 10, 1);
        hostile.command_line = Some(format!("a\x1b]0;b\u{202e}{}", "x".repeat(1 << 20)));
        hostile.user = Some("ro\not".into());
        let row = process_row(&hostile);
        assert!(row.command.starts_with("a?]0;b?xxx"), "{}", &row.command[..20]);
        assert_eq!((row.command.chars().count(), row.user.as_str()), (TEXT_CHARS_MAX, "ro?ot"));
        hostile.command_line = Some(" ".into());
        assert_eq!(process_row(&hostile).command, "sleep", "its short name is better than nothing");
    }
}
