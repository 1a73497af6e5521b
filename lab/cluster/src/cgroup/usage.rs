//! What the kernel has counted for a node.

use super::tree::{node_dir, place_dir};
use super::{Hierarchy, Place, Version};
use std::fs;
use std::path::Path;
use wire::ids::NodeId;

/// Counters of one node. None where the machine does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU time since the lab came up.
    pub cpu_ns: Option<u64>,
    /// Of its work part.
    pub work_cpu_ns: Option<u64>,
    /// How long it has waited for its next quota, summed over CPUs.
    pub throttled_ns: Option<u64>,
    pub memory_bytes: Option<u64>,
}

/// Reads the counters of a node from all hierarchies.
pub fn usage(hierarchies: &[Hierarchy], lab: &str, node: NodeId) -> Usage {
    let mut total = Usage::default();
    for hierarchy in hierarchies {
        let work = place_dir(hierarchy, lab, node, Place::Work);
        let whole = node_dir(hierarchy, lab, node);
        let is_v1 = hierarchy.version == Version::V1;
        if is_v1 && hierarchy.controls("cpuacct") {
            total.cpu_ns = number(&whole.join("cpuacct.usage"));
            total.work_cpu_ns = number(&work.join("cpuacct.usage"));
        }
        if is_v1 && hierarchy.controls("cpu") {
            total.throttled_ns = keyed(&whole.join("cpu.stat"), "throttled_time");
        }
        if !is_v1 && hierarchy.controls("cpu") {
            let ns = |part: &Path, key| Some(keyed(&part.join("cpu.stat"), key)? * 1_000);
            total.cpu_ns = ns(&whole, "usage_usec");
            total.work_cpu_ns = ns(&work, "usage_usec");
            total.throttled_ns = ns(&whole, "throttled_usec");
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
