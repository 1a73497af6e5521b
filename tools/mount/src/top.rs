//! The directory of all nodes: a directory for each by its number, a symbolic link to that by its
//! name, and three that depend on who looks: `here`, the node where he runs; `home`, where he was
//! born; `selected`, the node that somebody of his session has chosen by writing its number or name
//! to `.select`, or else home. As MOSIX had them.

use crate::cluster::{Cluster, Nodes};
use crate::tree::top_of;
use crate::waiting::{process_of, session_of};
use std::collections::HashMap;
use std::sync::Mutex;
use wire::ids::NodeId;

pub const ALL: u64 = 1;
pub const HERE: u64 = 2;
pub const HOME: u64 = 3;
pub const SELECTED: u64 = 4;
pub const SELECT: u64 = 5;
/// Names of nodes: from here on, one for each node.
const NAMES: u64 = 1 << 16;
/// Sessions whose choice is kept.
const SELECTED_MAX: usize = 4_096;

const FIXED: [(&str, u64); 4] =
    [("here", HERE), ("home", HOME), ("selected", SELECTED), (".select", SELECT)];

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory,
    Link,
    File,
}

pub fn kind_of(file: u64) -> Kind {
    match file {
        SELECT => Kind::File,
        HERE | HOME | SELECTED => Kind::Link,
        _ if file >= NAMES && file < 1 << 32 => Kind::Link,
        _ => Kind::Directory,
    }
}

#[derive(Default)]
pub struct Top {
    selected: Mutex<HashMap<i32, NodeId>>,
}

impl Top {
    pub fn find(&self, nodes: &Nodes, name: &str) -> Option<u64> {
        if let Some((_, file)) = FIXED.iter().find(|(fixed, _)| *fixed == name) {
            return Some(*file);
        }
        if let Some(node) = number(name).filter(|node| nodes.has(*node)) {
            return Some(top_of(node));
        }
        nodes.named(name).map(|node| NAMES + u64::from(node.0))
    }

    pub fn list(&self, nodes: &Nodes) -> Vec<(String, u64)> {
        let numbers = nodes.all.iter().map(|(node, _)| (node.to_string(), top_of(*node)));
        // A name that means something else, or another node, is not one of these.
        let names = nodes.all.iter().filter_map(|(node, name)| {
            let name = name.as_ref()?;
            let own = NAMES + u64::from(node.0);
            self.find(nodes, name).filter(|file| *file == own).map(|file| (name.clone(), file))
        });
        let fixed = FIXED.iter().map(|(name, file)| ((*name).to_owned(), *file));
        fixed.chain(numbers).chain(names).collect()
    }

    /// Where a link of this directory leads whoever this thread belongs to.
    pub fn target(&self, cluster: &Cluster, file: u64, thread: u32) -> Option<String> {
        let nodes = cluster.nodes();
        let node = match file {
            HERE => {
                let place = process_of(thread).map(|pid| cluster.place_of(pid));
                place.and_then(|place| place.ok().flatten()).or(nodes.me)
            }
            HOME => nodes.me,
            SELECTED => self.selected_by(thread).filter(|node| nodes.has(*node)).or(nodes.me),
            _ => file.checked_sub(NAMES).and_then(|node| u32::try_from(node).ok()).map(NodeId),
        };
        node.map(|node| node.to_string())
    }

    /// Somebody has written this to `.select`: false if that is no node.
    pub fn select(&self, nodes: &Nodes, thread: u32, text: &[u8]) -> bool {
        let word = String::from_utf8_lossy(text);
        let word = word.trim();
        let node = number(word).filter(|node| nodes.has(*node)).or_else(|| nodes.named(word));
        let (Some(node), Some(session)) = (node, session_of(thread)) else { return false };
        let mut selected = self.selected.lock().expect("nobody panics with it");
        if selected.len() >= SELECTED_MAX {
            // Sessions end without a word.
            selected
                .retain(|session, _| std::path::Path::new(&format!("/proc/{session}")).exists());
        }
        selected.len() < SELECTED_MAX && selected.insert(session, node).is_none_or(|_| true)
    }

    /// What the session of this thread has selected.
    pub fn selected_by(&self, thread: u32) -> Option<NodeId> {
        let session = session_of(thread)?;
        self.selected.lock().expect("nobody panics with it").get(&session).copied()
    }
}

/// A number as this directory has it: `2`, and neither `02` nor `+2`.
fn number(word: &str) -> Option<NodeId> {
    let number: u32 = word.parse().ok()?;
    (number.to_string() == word && number > 0).then_some(NodeId(number))
}

#[cfg(test)]
mod test {
    use super::*;

    fn nodes() -> Nodes {
        let name = |name: &str| Some(name.to_owned());
        let all = vec![
            (NodeId(1), name("alpha")),
            (NodeId(2), name("here")),
            (NodeId(3), None),
            (NodeId(4), name("alpha")),
        ];
        Nodes { me: Some(NodeId(1)), all }
    }

    #[test]
    fn nodes_are_found_by_number_and_name_and_words_of_its_own_come_first() {
        let top = Top::default();
        assert_eq!(top.find(&nodes(), "2"), Some(top_of(NodeId(2))));
        assert_eq!(top.find(&nodes(), "alpha").map(kind_of), Some(Kind::Link));
        assert_eq!(top.find(&nodes(), "here"), Some(HERE));
        for none in ["5", "02", "+2", "0", "", "..", "beta", "1/etc"] {
            assert_eq!(top.find(&nodes(), none), None, "{none}");
        }
        let names: Vec<String> = top.list(&nodes()).into_iter().map(|(name, _)| name).collect();
        let all = ["here", "home", "selected", ".select", "1", "2", "3", "4", "alpha"];
        assert_eq!(names, all);
    }

    #[test]
    fn a_session_selects_a_node_of_the_cluster_only() {
        let (top, me) = (Top::default(), std::process::id());
        assert_eq!(top.selected_by(me), None);
        for none in [&b"7"[..], b"", b"beta\n", b"\xff", b"2 3"] {
            assert!(!top.select(&nodes(), me, none), "{none:?}");
        }
        assert!(top.select(&nodes(), me, b"3\n"));
        assert_eq!(top.selected_by(me), Some(NodeId(3)));
        assert!(top.select(&nodes(), me, b"alpha"));
        assert_eq!(top.selected_by(me), Some(NodeId(1)));
    }
}
