//! The files that this kernel knows of, and which of which node each is.
//!
//! A file is known here by a number that is made of its node, device and inode: the same whenever
//! it is looked up, because programs compare them. What its server calls it holds for one link.
//! After that was lost a file is found again by the names that led to it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard};
use wire::files::{Attributes, Entry, ROOT, Time};
use wire::ids::NodeId;

/// Numbers from here on are files of nodes; below it are those of the directories of all nodes.
const FILES_FROM: u64 = 1 << 48;

/// Whom a part of the mount is for: each user has files of his own, although they may be the same
/// ones, because the kernel asks nobody who may see what it knows already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Portion(pub u16);

/// A file of a node, as its server calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    pub link: u64,
    pub number: u64,
}

/// Device and inode.
type Id = (u64, u64);

struct Known {
    portion: Portion,
    node: NodeId,
    id: Id,
    place: (u64, Vec<u8>),
    called: Called,
    /// How often its server told of it over that link.
    told: u64,
    /// How often this kernel was told.
    told_kernel: u64,
    /// What this kernel's pages of it were when it was opened last.
    pages: Option<(Time, Time, u64)>,
    /// Bytes that are on their way to it, and how far they reach.
    writing: Writing,
}

/// What was written and is not answered yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Writing {
    pub bytes: usize,
    pub end: u64,
    /// The first that failed and was not told yet.
    pub failed: Option<nix::errno::Errno>,
    /// How often it is open and may be read and written on its node besides: no write is answered
    /// then before it has arrived.
    pub direct: usize,
}

#[derive(Default)]
pub struct Tree(Mutex<HashMap<u64, Known>>);

/// What is not known any more to this kernel: of which node, and as its server calls it.
pub struct Forgotten {
    pub portion: Portion,
    pub node: NodeId,
    pub called: Called,
    pub times: u64,
}

/// Where a file is found.
pub enum Way {
    /// The top of its node, or over that link.
    Known(Portion, NodeId, Option<Called>),
    /// By that name in that directory, and it must be that file.
    ByName {
        portion: Portion,
        directory: u64,
        name: Vec<u8>,
        id: (u64, u64),
    },
    Unknown,
}

/// The number of the top of a node's files, as that portion has it.
pub fn top_of(portion: Portion, node: NodeId) -> u64 {
    ((u64::from(portion.0) + 1) << 32) + u64::from(node.0)
}

fn node_of_top(file: u64) -> Option<(Portion, NodeId)> {
    let portion = (file >> 32).checked_sub(1).filter(|_| file < FILES_FROM)?;
    Some((Portion(portion as u16), NodeId(file as u32)))
}

/// Whether it is answered without asking any node.
pub fn is_fixed(file: u64) -> bool {
    file < FILES_FROM
}

fn number_of(portion: Portion, node: NodeId, id: Id) -> u64 {
    let mut hasher = DefaultHasher::new();
    (portion, node, id).hash(&mut hasher);
    hasher.finish() | FILES_FROM
}

/// Two files with one number in 2^63 are still two.
fn free_number(known: &HashMap<u64, Known>, portion: Portion, node: NodeId, id: Id) -> u64 {
    let mut file = number_of(portion, node, id);
    while known.get(&file).is_some_and(|of| (of.portion, of.node, of.id) != (portion, node, id)) {
        file = (file + 1) | FILES_FROM;
    }
    file
}

impl Tree {
    /// A server has told of a file there: its number here, of which the kernel is told.
    pub fn told(
        &self,
        (portion, node, link): (Portion, NodeId, u64),
        place: (u64, Vec<u8>),
        entry: &Entry,
    ) -> u64 {
        let id = (entry.attributes.device, entry.attributes.inode);
        let called = Called { link, number: entry.file };
        let mut known = self.known();
        let file = free_number(&known, portion, node, id);
        let new = || Known {
            portion,
            node,
            id,
            place: place.clone(),
            called,
            told: 0,
            told_kernel: 0,
            pages: None,
            writing: Writing::default(),
        };
        let of = known.entry(file).or_insert_with(new);
        if of.called != called {
            // Of another link; or the file that had the number is gone, and this is another.
            (of.called, of.told, of.pages) = (called, 0, None);
        }
        of.place = place;
        of.told += 1;
        of.told_kernel += 1;
        file
    }

    /// The number that it would have.
    pub fn number(&self, portion: Portion, node: NodeId, attributes: &Attributes) -> u64 {
        free_number(&self.known(), portion, node, (attributes.device, attributes.inode))
    }

    /// It was found again, where it was.
    fn refound(&self, file: u64, called: Called) {
        if let Some(of) = self.known().get_mut(&file) {
            if of.called != called {
                (of.called, of.told, of.pages) = (called, 0, None);
            }
            of.told += 1;
        }
    }

    /// A file was found by its name: false if it is another.
    pub fn found(&self, file: u64, id: (u64, u64), link: u64, entry: &Entry) -> bool {
        let is_it = (entry.attributes.device, entry.attributes.inode) == id;
        if is_it {
            self.refound(file, Called { link, number: entry.file });
        }
        is_it
    }

    /// How to speak of a file, if that is the link to its node now.
    pub fn way(&self, file: u64, link: impl Fn(Portion, NodeId) -> Option<u64>) -> Way {
        if let Some((portion, node)) = node_of_top(file) {
            return Way::Known(portion, node, None);
        }
        let known = self.known();
        let Some(of) = known.get(&file) else { return Way::Unknown };
        if link(of.portion, of.node) == Some(of.called.link) {
            return Way::Known(of.portion, of.node, Some(of.called));
        }
        let (directory, name) = of.place.clone();
        Way::ByName { portion: of.portion, directory, name, id: of.id }
    }

    /// The kernel does not know it any more, so often.
    pub fn forget(&self, file: u64, times: u64) -> Option<Forgotten> {
        let mut known = self.known();
        let of = known.get_mut(&file)?;
        of.told_kernel = of.told_kernel.saturating_sub(times);
        if of.told_kernel > 0 {
            return None;
        }
        let of = known.remove(&file)?;
        Some(Forgotten { portion: of.portion, node: of.node, called: of.called, times: of.told })
    }

    /// How many directories below the top of its node the file lies.
    pub fn depth(&self, file: u64) -> usize {
        let known = self.known();
        let mut depth: usize = 0;
        let mut at = file;
        while let Some(of) = known.get(&at).filter(|_| depth < 4_096) {
            at = of.place.0;
            depth += 1;
        }
        depth.saturating_sub(1)
    }

    /// What was at `from` is at `to` now.
    pub fn renamed(&self, from: (u64, &[u8]), to: (u64, &[u8])) {
        for of in self.known().values_mut() {
            if (of.place.0, &of.place.1[..]) == from {
                of.place = (to.0, to.1.to_vec());
            }
        }
    }

    /// It is opened, and is like this: whether this kernel's pages of it still hold.
    pub fn opened(&self, file: u64, attributes: &Attributes) -> bool {
        let now = (attributes.modified, attributes.changed, attributes.size);
        let mut known = self.known();
        let Some(of) = known.get_mut(&file) else { return false };
        of.pages.replace(now) == Some(now)
    }

    pub fn writing<T>(&self, file: u64, change: impl FnOnce(&mut Writing) -> T) -> Option<T> {
        self.known().get_mut(&file).map(|of| change(&mut of.writing))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Known>> {
        self.0.lock().expect("nobody panics with it")
    }
}

/// The root of a node's files, as every server calls it.
pub const TOP: u64 = ROOT;

#[cfg(test)]
mod test {
    use super::*;

    const NODE: NodeId = NodeId(2);
    const PORTION: Portion = Portion(0);

    fn entry(file: u64, inode: u64) -> Entry {
        Entry { file, attributes: Attributes { device: 9, inode, ..Attributes::default() } }
    }

    #[test]
    fn a_file_has_one_number_for_as_long_as_the_kernel_knows_it_and_after() {
        let tree = Tree::default();
        let place = || (top_of(PORTION, NODE), b"a".to_vec());
        let first = tree.told((PORTION, NODE, 1), place(), &entry(5, 70));
        assert_eq!(tree.told((PORTION, NODE, 1), place(), &entry(5, 70)), first);
        assert_ne!(tree.told((PORTION, NodeId(3), 1), place(), &entry(5, 70)), first);
        let another = tree.told((Portion(1), NODE, 1), place(), &entry(5, 70));
        assert_ne!(another, first, "another user's");
        assert!(tree.forget(first, 1).is_none());
        let forgotten = tree.forget(first, 1).unwrap();
        assert_eq!((forgotten.called, forgotten.times), (Called { link: 1, number: 5 }, 2));
        assert_eq!(tree.told((PORTION, NODE, 1), place(), &entry(8, 70)), first);
    }

    #[test]
    fn over_another_link_a_file_is_found_by_its_name_and_only_if_it_is_the_same() {
        let tree = Tree::default();
        let file =
            tree.told((PORTION, NODE, 1), (top_of(PORTION, NODE), b"a".to_vec()), &entry(5, 70));
        let below = tree.told((PORTION, NODE, 1), (file, b"b".to_vec()), &entry(6, 71));
        assert_eq!((tree.depth(file), tree.depth(below)), (0, 1));
        assert!(matches!(tree.way(file, |_, _| Some(1)), Way::Known(PORTION, NODE, Some(_))));
        let Way::ByName { directory, name, id, .. } = tree.way(below, |_, _| Some(2)) else {
            panic!("its link is gone");
        };
        assert_eq!((directory, &name[..], id), (file, &b"b"[..], (9, 71)));
        assert!(!tree.found(below, id, 2, &entry(9, 72)));
        assert!(tree.found(below, id, 2, &entry(9, 71)));
        assert!(matches!(tree.way(below, |_, _| Some(2)), Way::Known(PORTION, NODE, Some(_))));
        let forgotten = tree.forget(below, 1).unwrap();
        assert_eq!((forgotten.called.number, forgotten.times), (9, 1));
    }

    #[test]
    fn pages_hold_from_one_opening_to_the_next_if_nothing_has_changed() {
        let tree = Tree::default();
        let file =
            tree.told((PORTION, NODE, 1), (top_of(PORTION, NODE), b"a".to_vec()), &entry(5, 70));
        let mut attributes = entry(5, 70).attributes;
        assert!(!tree.opened(file, &attributes));
        assert!(tree.opened(file, &attributes));
        attributes.size = 3;
        assert!(!tree.opened(file, &attributes));
    }
}
