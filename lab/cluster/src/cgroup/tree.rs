//! Making, limiting and removing the cgroups of a lab.

use super::{Hierarchy, LABS_DIR, Place, Version, cpuset};
use crate::spec::Spec;
use anyhow::{Context, Result};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use wire::ids::NodeId;

/// A throttled process sleeps for the rest of the period, so a short one keeps latencies short; the
/// kernel refuses quotas under 1 ms. 10 ms lets a node of a tenth of a core still have one.
const PERIOD_US: f64 = 10_000.0;
const QUOTA_US_MIN: f64 = 1_000.0;
const PERIOD_US_MAX: f64 = 1_000_000.0;
/// By so much the periods of neighbouring nodes differ. The kernel notices at its ticks that a
/// quota is used up (every 4 ms, `account_cfs_rq_runtime`), and its interrupts count as processor
/// time of whoever runs. Where periods are multiples of the tick and of each other, the bursts of a
/// node meet the same ticks, and the same timers of other nodes, for as long as the node lives: of
/// sixteen nodes with 1 ms in each 16 ms, some needed 2.5 % more processor time for the same work
/// than others, and the same ones in each measurement. With periods of their own it is 1 %, most of
/// it between the two processors.
const PERIOD_STEP: f64 = 0.0067;
/// After so many nodes the periods are the same again.
const PERIODS: u32 = 16;
/// Weight of a node's system part against its work part (100 is the kernel's default).
const SYSTEM_WEIGHT: u64 = 800;
/// Levels of cgroups that a lab and its guests may have made. Deeper ones are not removed.
const DEPTH_MAX: usize = 16;
/// Another lab's `down` may remove the common directory between our two steps; not this often.
const CREATE_ATTEMPTS: usize = 8;

/// The file that takes processes into a node's cgroup.
pub fn procs_file(hierarchy: &Hierarchy, lab: &str, node: NodeId, place: Place) -> PathBuf {
    place_dir(hierarchy, lab, node, place).join("cgroup.procs")
}

pub fn node_dir(hierarchy: &Hierarchy, lab: &str, node: NodeId) -> PathBuf {
    hierarchy.lab_dir(lab).join(format!("node{node}"))
}

pub(super) fn place_dir(h: &Hierarchy, lab: &str, node: NodeId, place: Place) -> PathBuf {
    node_dir(h, lab, node).join(place.dir_name())
}

/// Makes one node's cgroup in one hierarchy, with its limits.
pub fn create(hierarchy: &Hierarchy, spec: &Spec, cpu_scale: f64, node: NodeId) -> Result<()> {
    let lab = spec.name.as_str();
    let dir = node_dir(hierarchy, lab, node);
    create_dir(&dir)?;
    if hierarchy.version == Version::V2 {
        // From the root down: a controller can be enabled only where the parent has it.
        let labs = hierarchy.mount.join(LABS_DIR);
        for parent in [&hierarchy.mount, &labs, &hierarchy.lab_dir(lab), &dir] {
            enable_controllers(parent, &hierarchy.controllers)?;
        }
    }
    for place in [Place::Work, Place::System] {
        create_dir(&dir.join(place.dir_name()))?;
    }
    if hierarchy.controls("cpu") {
        give_way(hierarchy)?;
    }
    if hierarchy.controls("cpuset") {
        cpuset::give_one_core(hierarchy, spec, node)?;
    }
    open_to_users(hierarchy, &dir)?;
    if hierarchy.controls("memory") {
        limit_memory(hierarchy, spec, &dir)?;
    }
    if hierarchy.controls("cpu") {
        favour_system(hierarchy, &dir)?;
        if spec.is_cpu_limited {
            limit_cpu(hierarchy, &dir, cpu_scale * spec.speed(node), node)?;
        }
    }
    Ok(())
}

fn create_dir(dir: &Path) -> Result<()> {
    let mut outcome = fs::create_dir_all(dir);
    for _ in 1..CREATE_ATTEMPTS {
        match &outcome {
            Err(error) if error.kind() == ErrorKind::NotFound => outcome = fs::create_dir_all(dir),
            _ => break,
        }
    }
    outcome.with_context(|| format!("cannot make cgroup {}", dir.display()))
}

fn enable_controllers(dir: &Path, controllers: &[String]) -> Result<()> {
    let file = dir.join("cgroup.subtree_control");
    let enabled =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    for name in controllers {
        if !enabled.split_ascii_whitespace().any(|word| word == name) {
            write(&file, &format!("+{name}"))?;
        }
    }
    Ok(())
}

/// A supervisor runs as the owner of its process and moves the body into the guests' cgroup itself.
/// Version 2 asks for the right to write in the cgroup that both places have in common, too.
fn open_to_users(hierarchy: &Hierarchy, dir: &Path) -> Result<()> {
    let mut files = vec![dir.join(Place::Work.dir_name()).join("cgroup.procs")];
    if hierarchy.version == Version::V2 {
        files.push(dir.join("cgroup.procs"));
    }
    for file in files {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666))
            .with_context(|| format!("cannot open {} to users", file.display()))?;
    }
    Ok(())
}

fn limit_memory(hierarchy: &Hierarchy, spec: &Spec, dir: &Path) -> Result<()> {
    let file = match hierarchy.version {
        Version::V1 => "memory.limit_in_bytes",
        Version::V2 => "memory.max",
    };
    match spec.memory {
        Some(size) => write(&dir.join(file), &size.bytes.to_string()),
        None => Ok(()),
    }
}

fn favour_system(hierarchy: &Hierarchy, dir: &Path) -> Result<()> {
    let dir = dir.join(Place::System.dir_name());
    match hierarchy.version {
        // 1024 shares are a weight of 100.
        Version::V1 => write(&dir.join("cpu.shares"), &(SYSTEM_WEIGHT * 1024 / 100).to_string()),
        Version::V2 => write(&dir.join("cpu.weight"), &SYSTEM_WEIGHT.to_string()),
    }
}

/// All labs together come after the rest of the machine, which watches them and does little.
///
/// With the usual weight two pairs of processes of one cgroup that wake each other all the time can
/// keep everything outside of it waiting, kernel threads included: 5 to 56 s at a time were seen on
/// Linux 6.18.44, never with the least weight. The scheduler weighs the group anew at each change,
/// and what it is owed grows by that (`reweight_entity` and `place_entity` in kernel/sched/fair.c).
fn give_way(hierarchy: &Hierarchy) -> Result<()> {
    let labs = hierarchy.mount.join(LABS_DIR);
    match hierarchy.version {
        Version::V1 => write(&labs.join("cpu.shares"), "2"),
        Version::V2 => write(&labs.join("cpu.weight"), "1"),
    }
}

fn limit_cpu(hierarchy: &Hierarchy, dir: &Path, cores: f64, node: NodeId) -> Result<()> {
    let (quota_us, period_us) = quota_us_and_period_us(cores, node);
    let dir = dir.join(Place::Work.dir_name());
    match hierarchy.version {
        Version::V1 => {
            write(&dir.join("cpu.cfs_period_us"), &period_us.to_string())?;
            write(&dir.join("cpu.cfs_quota_us"), &quota_us.to_string())
        }
        Version::V2 => write(&dir.join("cpu.max"), &format!("{quota_us} {period_us}")),
    }
}

fn quota_us_and_period_us(cores: f64, node: NodeId) -> (u64, u64) {
    let longer = 1.0 + PERIOD_STEP * f64::from(node.0 % PERIODS);
    let period_us = f64::max(PERIOD_US, QUOTA_US_MIN / cores) * longer;
    let quota_us = f64::max(cores * period_us.min(PERIOD_US_MAX), QUOTA_US_MIN).round();
    (quota_us as u64, (quota_us / cores).min(PERIOD_US_MAX).round() as u64)
}

pub(super) fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {text} to {}", file.display()))
}

/// Removes all cgroups of a lab from one hierarchy; its processes have ended.
pub fn remove_lab(hierarchy: &Hierarchy, lab: &str) -> Result<()> {
    remove_tree(&hierarchy.lab_dir(lab), DEPTH_MAX)?;
    // Stays if another lab uses it.
    match fs::remove_dir(hierarchy.mount.join(LABS_DIR)) {
        Err(error) if !is_in_use_or_gone(&error) => {
            Err(error).with_context(|| format!("cannot remove cgroup {LABS_DIR}"))
        }
        _ => Ok(()),
    }
}

fn is_in_use_or_gone(error: &std::io::Error) -> bool {
    let kinds = [ErrorKind::NotFound, ErrorKind::DirectoryNotEmpty, ErrorKind::ResourceBusy];
    kinds.contains(&error.kind())
}

fn remove_tree(dir: &Path, depth_left: usize) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("cannot list cgroup {}", dir.display()))?,
    };
    if depth_left > 0 {
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove_tree(&entry.path(), depth_left - 1)?;
            }
        }
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove cgroup {}", dir.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::spec::LabName;
    use std::collections::BTreeSet;

    /// What the kernel makes with each cgroup, as far as it is read or must exist.
    fn lay_out(dirs: &[PathBuf]) {
        for dir in dirs {
            fs::create_dir_all(dir).unwrap();
            fs::write(dir.join("cgroup.procs"), "").unwrap();
            fs::write(dir.join("cgroup.subtree_control"), "memory\n").unwrap();
        }
    }

    #[test]
    fn a_v2_node_is_limited_by_the_files_of_v2() {
        let root = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy {
            version: Version::V2,
            mount: root.path().to_owned(),
            controllers: vec!["cpu".to_owned(), "memory".to_owned()],
        };
        let mut spec = Spec::new("lab".parse::<LabName>().unwrap(), 2).unwrap();
        spec.speeds = vec![1.0, 0.5];
        spec.memory = Some("64m".parse().unwrap());
        let node = node_dir(&hierarchy, "lab", NodeId(2));
        let labs = root.path().join(LABS_DIR);
        let (work, system) = (node.join("work"), node.join("system"));
        let parents = [root.path().to_owned(), labs.clone(), labs.join("lab"), node.clone()];
        lay_out(&parents);
        lay_out(&[work.clone(), system.clone()]);
        create(&hierarchy, &spec, 0.6, NodeId(2)).unwrap();
        let read = |dir: &Path, file: &str| fs::read_to_string(dir.join(file)).unwrap();
        assert_eq!(read(&work, "cpu.max"), "3040 10133");
        assert_eq!(read(&system, "cpu.weight"), "800");
        assert_eq!(read(&node, "memory.max"), (64 << 20).to_string());
        for parent in parents {
            // `memory` is enabled already and not asked for again.
            assert_eq!(read(&parent, "cgroup.subtree_control"), "+cpu");
        }
        let mode =
            |dir: &Path| fs::metadata(dir.join("cgroup.procs")).unwrap().permissions().mode();
        assert_eq!((mode(&work) & 0o777, mode(&node) & 0o777), (0o666, 0o666));
        assert_eq!(mode(&system) & 0o022, 0);
    }

    #[test]
    fn quotas_keep_the_share_and_never_fall_below_what_the_kernel_takes() {
        for cores in [0.45, 1.0, 0.05, 0.0625, 1.0 / 48.0] {
            for node in (1..=64).map(NodeId) {
                let (quota_us, period_us) = quota_us_and_period_us(cores, node);
                let share = quota_us as f64 / period_us as f64;
                assert!((share / cores - 1.0).abs() < 1e-4, "{cores} became {share}");
                assert!(quota_us as f64 >= QUOTA_US_MIN && period_us as f64 >= PERIOD_US);
            }
        }
        assert_eq!(quota_us_and_period_us(0.0001, NodeId(5)), (1_000, 1_000_000));
    }

    #[test]
    fn nodes_of_one_speed_have_periods_of_their_own() {
        let period = |node| quota_us_and_period_us(0.0625, NodeId(node)).1;
        let periods: BTreeSet<u64> = (1..=PERIODS).map(period).collect();
        assert_eq!(periods.len(), PERIODS as usize);
        let longest = *periods.last().unwrap() as f64;
        assert!(longest < 1.11 * *periods.first().unwrap() as f64, "a node that stalls for longer");
    }
}
