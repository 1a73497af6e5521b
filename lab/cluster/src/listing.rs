//! `osmos lab ps`: the nodes of this user's labs, for people and for programs.

use crate::lab::Lab;
use crate::record;
use crate::spec::LabName;
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write;
use wire::ids::NodeId;

/// One node in the published form of `osmos lab ps --json`. Only ever extended.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub lab: String,
    pub node: NodeId,
    pub host_name: String,
    pub address: String,
    /// As asked for, relative to the other nodes.
    pub speed: f64,
    /// Cores that its programs may use together; null if not limited.
    pub cpu_share: Option<f64>,
    pub cpu_used_s: Option<f64>,
    pub throttled_s: Option<f64>,
    pub memory_limit_bytes: Option<u64>,
    pub memory_used_bytes: Option<u64>,
    pub link: Option<String>,
    /// `up`, or `gone` if its keeper was killed.
    pub status: &'static str,
    pub processes: usize,
    pub keeper_pid: Option<i32>,
    pub daemon_pid: Option<i32>,
    pub log: String,
}

/// The labs that are up, and in words those that are not whole.
pub fn labs(only: Option<&LabName>) -> Result<(Vec<Lab>, Vec<String>)> {
    if let Some(name) = only {
        return Ok((vec![Lab::open(name)?], Vec::new()));
    }
    let (mut labs, mut broken) = (Vec::new(), Vec::new());
    for name in record::lab_names()? {
        match Lab::open(&name) {
            Ok(lab) => labs.push(lab),
            Err(error) => broken.push(format!("{error:#}")),
        }
    }
    Ok((labs, broken))
}

pub fn rows(lab: &Lab) -> Result<Vec<Row>> {
    let spec = &lab.record().spec;
    let seconds = |ns: u64| ns as f64 / 1e9;
    lab.nodes()
        .map(|node| {
            let usage = node.usage();
            let has_memory = lab.record().hierarchies.iter().any(|own| own.controls("memory"));
            let keeper_pid = node.keeper().ok().map(|keeper| keeper.pid);
            Ok(Row {
                lab: spec.name.to_string(),
                node: node.id(),
                host_name: node.host_name(),
                address: node.address().to_string(),
                speed: spec.speed(node.id()),
                cpu_share: node.cpu_share(),
                cpu_used_s: usage.work_cpu_ns.map(seconds),
                throttled_s: usage.throttled_ns.map(seconds),
                memory_limit_bytes: spec.memory.filter(|_| has_memory).map(|size| size.bytes),
                memory_used_bytes: usage.memory_bytes,
                link: spec.link.map(|rate| rate.to_string()),
                status: if keeper_pid.is_some() { "up" } else { "gone" },
                processes: node.process_count(),
                keeper_pid,
                daemon_pid: node.daemon_pid(),
                log: node.log()?.display().to_string(),
            })
        })
        .collect()
}

/// The table for people.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:<8} {:>4} {:<14} {:<11} {:>5} {:>6} {:>8} {:>9} {:>8} {:>5} {:>7} {:>7}",
        "LAB",
        "NODE",
        "HOST",
        "ADDRESS",
        "SPEED",
        "CORES",
        "USED s",
        "MEM MiB",
        "LINK",
        "PROCS",
        "KEEPER",
        "DAEMON"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "{:<8} {:>4} {:<14} {:<11} {:>5} {:>6} {:>8} {:>9} {:>8} {:>5} {:>7} {:>7}",
            row.lab,
            row.node.0,
            row.host_name,
            row.address,
            row.speed,
            or_dash(row.cpu_share.map(|share| format!("{share:.3}"))),
            or_dash(row.cpu_used_s.map(|used| format!("{used:.2}"))),
            memory(row),
            or_dash(row.link.clone()),
            row.processes,
            or_dash(row.keeper_pid.map(|pid| pid.to_string())),
            or_dash(row.daemon_pid.map(|pid| pid.to_string())),
        );
    }
    text
}

fn memory(row: &Row) -> String {
    let mib = |bytes: u64| (bytes >> 20).to_string();
    match (row.memory_used_bytes, row.memory_limit_bytes) {
        (Some(used), Some(limit)) => format!("{}/{}", mib(used), mib(limit)),
        (Some(used), None) => mib(used),
        (None, _) => "-".to_owned(),
    }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}
