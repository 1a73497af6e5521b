//! What the kernel has counted for a node.

use super::tree::{node_dir, place_dir};
use super::{Hierarchy, Place, Version};
use std::fs;
use std::path::Path;
use wire::ids::NodeId;

/// Counters of one node. None where the machine does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU time of the work part since the lab came up.
    pub work_cpu_ns: Option<u64>,
    /// Of the system part: what the daemon and its supervisors have taken.
    pub system_cpu_ns: Option<u64>,
    /// How long the work part has waited for its next quota, summed over CPUs.
    pub throttled_ns: Option<u64>,
    /// Of the whole node.
    pub memory_bytes: Option<u64>,
}

/// Reads the counters of a node from all hierarchies.
pub fn usage(hierarchies: &[Hierarchy], lab: &str, node: NodeId) -> Usage {
    let mut total = Usage::default();
    for hierarchy in hierarchies {
        let work = place_dir(hierarchy, lab, node, Place::Work);
        let system = place_dir(hierarchy, lab, node, Place::System);
        let whole = node_dir(hierarchy, lab, node);
        let is_v1 = hierarchy.version == Version::V1;
        if is_v1 && hierarchy.controls("cpuacct") {
            total.work_cpu_ns = number(&work.join("cpuacct.usage"));
            total.system_cpu_ns = number(&system.join("cpuacct.usage"));
        }
        if is_v1 && hierarchy.controls("cpu") {
            total.throttled_ns = keyed(&work.join("cpu.stat"), "throttled_time");
        }
        if !is_v1 && hierarchy.controls("cpu") {
            let stat = work.join("cpu.stat");
            total.work_cpu_ns = keyed(&stat, "usage_usec").map(|us| us * 1_000);
            let used_us = keyed(&system.join("cpu.stat"), "usage_usec");
            total.system_cpu_ns = used_us.map(|us| us * 1_000);
            total.throttled_ns = keyed(&stat, "throttled_usec").map(|us| us * 1_000);
        }
        if hierarchy.controls("memory") {
            let file = if is_v1 { "memory.usage_in_bytes" } else { "memory.current" };
            total.memory_bytes = number(&whole.join(file));
        }
    }
    total
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn keyed(file: &Path, key: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}
