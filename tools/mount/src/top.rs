//! The directory of all nodes: a directory for each by its number, a symbolic link to that by its
//! name, and three that depend on who looks: `here`, the node where he runs; `home`, where he was
//! born; `selected`, the node that somebody of his session has chosen by writing its number or name
//! to `.select`, or else home. As MOSIX had them.
//!
//! Where all users share the mount each has such a directory, `.UID`, which the others cannot
//! enter, and the nodes of the one above it are links to those of whoever looks.

use crate::cluster::{Cluster, Nodes};
use crate::tree::{Portion, top_of};
use crate::waiting::{process_of, session_of};
use std::collections::HashMap;
use std::sync::Mutex;
use wire::ids::NodeId;

pub const ALL: u64 = 1;
const HERE: u64 = 2;
const HOME: u64 = 3;
const SELECTED: u64 = 4;
pub const SELECT: u64 = 5;
/// Directories of users: from here on, one for each portion.
const PORTIONS: u64 = 1 << 16;
/// Links to nodes: from here on, two for each, by number and by name.
const LINKS: u64 = 1 << 18;
const LINKS_END: u64 = 1 << 32;
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
        HERE | HOME | SELECTED | LINKS..LINKS_END => Kind::Link,
        _ => Kind::Directory,
    }
}

/// Whether finding out where a link leads takes asking the daemon.
pub fn is_asked_for(file: u64) -> bool {
    file == HERE
}

/// A directory of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directory {
    /// That of one user, or the only one.
    Of(Portion),
    /// The one that all users share.
    Shared,
}

/// The directory of a user in the one that all share.
pub fn directory_of(portion: Portion) -> u64 {
    PORTIONS + u64::from(portion.0)
}

/// Whose directory it is, if it is one.
pub fn portion_of(file: u64) -> Option<Portion> {
    let portion = file.checked_sub(PORTIONS)?;
    u16::try_from(portion).ok().map(Portion)
}

fn link_to(node: NodeId, is_name: bool) -> u64 {
    LINKS + 2 * u64::from(node.0) + u64::from(is_name)
}

#[derive(Default)]
pub struct Top {
    selected: Mutex<HashMap<i32, NodeId>>,
}

impl Top {
    pub fn find(&self, nodes: &Nodes, directory: Directory, name: &str) -> Option<u64> {
        if let Some((_, file)) = FIXED.iter().find(|(fixed, _)| *fixed == name) {
            return Some(*file);
        }
        if let Some(node) = number(name).filter(|node| nodes.has(*node)) {
            return Some(by_number(node, directory));
        }
        nodes.named(name).map(|node| link_to(node, true))
    }

    pub fn list(&self, nodes: &Nodes, directory: Directory) -> Vec<(String, u64)> {
        let number = |(node, _): &(NodeId, _)| (node.to_string(), by_number(*node, directory));
        let numbers = nodes.all.iter().map(number);
        // A name that means something else, or another node, is not one of these.
        let names = nodes.all.iter().filter_map(|(node, name)| {
            let (name, own) = (name.as_ref()?, link_to(*node, true));
            let found = self.find(nodes, directory, name).filter(|file| *file == own);
            found.map(|file| (name.clone(), file))
        });
        let fixed = FIXED.iter().map(|(name, file)| ((*name).to_owned(), *file));
        fixed.chain(numbers).chain(names).collect()
    }

    /// Where a link leads whoever this thread, of this user, belongs to.
    pub fn target(
        &self,
        cluster: &Cluster,
        file: u64,
        (thread, uid): (u32, u32),
    ) -> Option<String> {
        let nodes = cluster.nodes();
        let node = match file {
            HERE => {
                let place = process_of(thread).map(|pid| cluster.place_of(pid));
                place.and_then(|place| place.ok().flatten()).or(nodes.me)
            }
            HOME => nodes.me,
            SELECTED => self.selected_by(thread).filter(|node| nodes.has(*node)).or(nodes.me),
            LINKS..LINKS_END => {
                let node = NodeId(((file - LINKS) / 2) as u32);
                if file == link_to(node, false) {
                    return Some(format!(".{uid}/{node}"));
                }
                Some(node)
            }
            _ => None,
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

fn by_number(node: NodeId, directory: Directory) -> u64 {
    match directory {
        Directory::Of(portion) => top_of(portion, node),
        Directory::Shared => link_to(node, false),
    }
}

/// The user whose directory has this name: `.1000`.
pub fn user_of(name: &str) -> Option<u32> {
    let digits = name.strip_prefix('.')?;
    digits.parse().ok().filter(|uid: &u32| uid.to_string() == digits)
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
        let (top, own) = (Top::default(), Directory::Of(Portion(0)));
        assert_eq!(top.find(&nodes(), own, "2"), Some(top_of(Portion(0), NodeId(2))));
        assert_eq!(top.find(&nodes(), own, "alpha").map(kind_of), Some(Kind::Link));
        assert_eq!(top.find(&nodes(), own, "here"), Some(HERE));
        for none in ["5", "02", "+2", "0", "", "..", "beta", "1/etc"] {
            assert_eq!(top.find(&nodes(), own, none), None, "{none}");
        }
        let names = top.list(&nodes(), own).into_iter().map(|(name, _)| name);
        let all = ["here", "home", "selected", ".select", "1", "2", "3", "4", "alpha"];
        assert_eq!(names.collect::<Vec<_>>(), all);
    }

    #[test]
    fn where_all_share_it_a_number_leads_to_the_directory_of_whoever_looks() {
        let top = Top::default();
        let file = top.find(&nodes(), Directory::Shared, "3").unwrap();
        assert_eq!((kind_of(file), portion_of(file)), (Kind::Link, None));
        assert_eq!(portion_of(directory_of(Portion(7))), Some(Portion(7)));
        assert_eq!([".1000", ".0", ".01", "1000", ".select", "."].map(user_of), {
            [Some(1000), Some(0), None, None, None, None]
        });
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
