//! Nodes, processes and events for tests, as daemons send them.

use crate::wording::Wording;
use client::Gathered;
use client::picture::{Looked, Picture};
use serde_json::json;
use wire::control::{Event, Happening, Node, Process};
use wire::ids::{GlobalPid, HomePid, NodeId};

pub const WORDING: Wording = Wording {
    happening: |what| match what {
        Happening::NodeJoined { node, .. } => format!("node {node} joined"),
        Happening::Managed { command } => format!("managed: {command}"),
        _ => "moved".to_owned(),
    },
    migration: |migration| format!("{} moved to node {}", migration.pid, migration.to),
    forecast: |forecast| (format!("{} would be faster", forecast.pid), "it goes".to_owned()),
};

pub fn process(home: u32, pid: i32, node: u32) -> Process {
    let process = json!({
        "pid": pid, "home": home, "node": node, "state": "running", "command": "sleep",
        "cpu_s": 0.0, "rss_bytes": 1 << 20, "migrations": 0, "last_move": null,
        "reason": "born here",
    });
    serde_json::from_value(process).expect("a process")
}

pub fn node(id: u32, name: &str) -> Node {
    let node = json!({
        "id": id, "address": format!("10.0.0.{id}:7780"), "name": name, "status": "alive",
        "cores": 4.0, "speed": 1.0, "load": 0.5, "mem_total_bytes": 4u64 << 30,
        "mem_free_bytes": 3u64 << 30, "info_age_s": if id == 1 { 0.0 } else { 0.3 },
    });
    serde_json::from_value(node).expect("a node")
}

pub fn picture(nodes: &[Node], processes: &[Process]) -> Picture {
    let gathered = Gathered { processes: processes.to_vec(), silent: Vec::new() };
    Picture::from(Looked { nodes: nodes.to_vec(), gathered })
}

pub fn key(home: u32, pid: i32) -> GlobalPid {
    GlobalPid { home: NodeId(home), pid: HomePid(pid) }
}

pub fn migrated(home: u32, pid: i32, to: u32, time: f64) -> Event {
    let migration = json!({
        "pid": pid, "from": home, "to": to, "cause": "user", "phases_ms": [], "freeze_ms": 1.0,
        "total_ms": 2.0, "bytes_sent": 4096,
    });
    let migration = serde_json::from_value(migration).expect("a migration");
    Event { time, pid: Some(key(home, pid)), what: Happening::Migrated(migration) }
}

pub fn joined(node: u32, time: f64) -> Event {
    let what = Happening::NodeJoined { node: NodeId(node), address: "10.0.0.9:7780".into() };
    Event { time, pid: None, what }
}
