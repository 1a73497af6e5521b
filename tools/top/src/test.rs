//! Nodes, processes and events for tests, as daemons send them.

use crate::wording::Wording;
use client::Gathered;
use client::picture::{Looked, Picture};
pub use fixtures::{joined, key, migrated, node, process};
use wire::control::{Happening, Node, Process, Reply};

pub const WORDING: Wording = Wording {
    happening,
    why: |reply| matches!(reply, Reply::Why { .. }).then(|| "it likes it there\n".to_owned()),
    migration: |migration| format!("{} moved to node {}", migration.pid, migration.to),
    owned: |owned| format!("{} guests here", owned.guests),
};

fn happening(what: &Happening) -> String {
    match what {
        Happening::Migrated(migration) => (WORDING.migration)(migration),
        Happening::NodeJoined { node, .. } => format!("node {node} joined"),
        other => format!("{other:?}"),
    }
}

pub fn picture(nodes: &[Node], processes: &[Process]) -> Picture {
    let gathered = Gathered { processes: processes.to_vec(), silent: Vec::new() };
    Picture::from(Looked { nodes: nodes.to_vec(), gathered })
}
