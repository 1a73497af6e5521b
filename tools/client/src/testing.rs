//! Nodes and processes for tests, as daemons send them.

use crate::Gathered;
use crate::picture::{Looked, Picture};
use serde_json::json;
use wire::control::{Node, Process};

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
