//! One processor for the work of each node: nodes of one core.
//!
//! The kernel shares a processor fairly, but not a quota (Documentation/scheduler/sched-bwc.rst):
//! each processor takes its part of the quota in slices, and with short quotas whoever computes
//! alone on a processor gets as much as all together on another. Measured with three processes on
//! each of 16 nodes and two processors: one of the three got half. On a real node of one core it is
//! a third.

use super::tree::{node_dir, place_dir, write};
use super::{Hierarchy, LABS_DIR, Place, Version};
use crate::spec::Spec;
use anyhow::{Context, Result};
use std::path::Path;
use wire::ids::NodeId;

/// Binds the work of a node to one processor, so that all have about as much work.
///
/// # Errors
/// If the machine does not say which processors there are, or does not take the choice.
pub fn give_one_core(hierarchy: &Hierarchy, spec: &Spec, node: NodeId) -> Result<()> {
    let lab = spec.name.as_str();
    let dir = node_dir(hierarchy, lab, node);
    let system = dir.join(Place::System.dir_name());
    let work = place_dir(hierarchy, lab, node, Place::Work);
    let machine = match hierarchy.version {
        Version::V1 => {
            // Version 1 has nothing in a new cgroup, and takes no process into it until it has.
            let labs = hierarchy.mount.join(LABS_DIR);
            for heir in [&labs, &hierarchy.lab_dir(lab), &dir, &system, &work] {
                inherit(heir)?;
            }
            "cpuset.cpus"
        }
        Version::V2 => "cpuset.cpus.effective",
    };
    let processors = parse_list(&read(&dir.join(machine))?)
        .with_context(|| format!("cannot tell which processors {} has", dir.display()))?;
    let own = allot(&spec.speeds, &processors)[node.0 as usize - 1];
    write(&work.join("cpuset.cpus"), &own.to_string())
}

fn inherit(dir: &Path) -> Result<()> {
    let parent = dir.parent().context("a cgroup is below another")?;
    for name in ["cpuset.cpus", "cpuset.mems"] {
        if read(&dir.join(name))?.trim().is_empty() {
            write(&dir.join(name), read(&parent.join(name))?.trim())?;
        }
    }
    Ok(())
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// `0-1,4`: the list format of cpuset(7). None if it is none, or empty.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    (!numbers.is_empty()).then_some(numbers)
}

/// One of the processors for each node: the one that has least to do so far.
fn allot(speeds: &[f64], processors: &[u32]) -> Vec<u32> {
    let mut loads = vec![0.0_f64; processors.len()];
    let mut next = |speed: &f64| {
        let least = (0..loads.len()).min_by(|a, b| loads[*a].total_cmp(&loads[*b])).unwrap_or(0);
        loads[least] += speed;
        processors[least]
    };
    speeds.iter().map(&mut next).collect()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn lists_of_processors_are_those_of_the_kernel() {
        assert_eq!(parse_list("0-1,4\n"), Some(vec![0, 1, 4]));
        assert_eq!(parse_list("7"), Some(vec![7]));
        for wrong in ["", "\n", "2-1", "a", "1,,2"] {
            assert_eq!(parse_list(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn nodes_are_spread_by_their_speeds() {
        assert_eq!(allot(&[1.0; 5], &[0, 3]), [0, 3, 0, 3, 0]);
        assert_eq!(allot(&[1.0, 0.25, 0.25, 0.25, 0.25, 1.0], &[0, 1]), [0, 1, 1, 1, 1, 0]);
    }

    #[test]
    fn a_v1_node_inherits_all_processors_and_its_work_has_one() {
        let root = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy {
            version: Version::V1,
            mount: root.path().to_owned(),
            controllers: vec!["cpuset".to_owned()],
        };
        let spec = Spec::new("lab".parse().unwrap(), 2).unwrap();
        let node = node_dir(&hierarchy, "lab", NodeId(2));
        let work = node.join("work");
        for dir in [&node.join("system"), &work] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let above = work.ancestors().take_while(|dir| dir.starts_with(root.path()));
        for dir in above.chain([node.join("system").as_path()]) {
            std::fs::write(dir.join("cpuset.cpus"), "").unwrap();
            std::fs::write(dir.join("cpuset.mems"), "").unwrap();
        }
        std::fs::write(root.path().join("cpuset.cpus"), "0-1\n").unwrap();
        std::fs::write(root.path().join("cpuset.mems"), "0\n").unwrap();
        give_one_core(&hierarchy, &spec, NodeId(2)).unwrap();
        let got = |dir: &Path, file: &str| std::fs::read_to_string(dir.join(file)).unwrap();
        assert_eq!(got(&work, "cpuset.cpus"), "1");
        assert_eq!(got(&node.join("system"), "cpuset.cpus"), "0-1");
        assert_eq!(got(&work, "cpuset.mems"), "0");
    }
}
