//! Nodes, processes and events for tests, as daemons send them.

use crate::wording::Wording;
use client::Gathered;
use client::picture::{Looked, Picture};
pub use fixtures::{joined, migrated, node, process};
use wire::control::{Happening, Node, Process};

pub const WORDING: Wording = Wording {
    happening: |what| match what {
        Happening::NodeJoined { node, .. } => format!("node {node} joined"),
        Happening::Managed { command } => format!("managed: {command}"),
        _ => "moved".to_owned(),
    },
    migration: |migration| format!("{} moved to node {}", migration.pid, migration.to),
    owned: |owned| format!("{} guests", owned.guests),
    forecast: |forecast| (format!("{} would be faster", forecast.pid), "it goes".to_owned()),
};

pub fn picture(nodes: &[Node], processes: &[Process]) -> Picture {
    let gathered = Gathered { processes: processes.to_vec(), silent: Vec::new() };
    Picture::from(Looked { nodes: nodes.to_vec(), gathered })
}
