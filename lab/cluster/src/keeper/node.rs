//! A node's keeper: process 1 of the node.

use super::{GO, Report};
use crate::cgroup::{Place, procs_file};
use crate::record::{self, Record};
use crate::{mounts, network};
use anyhow::{Context, Result, bail, ensure};
use nix::sched::CloneFlags;
use std::path::Path;
use wire::ids::NodeId;

/// Joins the node's cgroups while the machine's are still in sight, and makes its namespaces.
pub fn enter(lab_dir: &Path, word: &str) -> Result<()> {
    let (record, node) = read(lab_dir, word)?;
    for hierarchy in &record.hierarchies {
        let file = procs_file(hierarchy, record.spec.name.as_str(), node, Place::System);
        std::fs::write(&file, "0")
            .with_context(|| format!("cannot enter cgroup {}", file.display()))?;
    }
    // The whole lab shares one user namespace, if it has one: this process is root in it.
    super::new_namespaces(
        CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS,
    )?;
    let lab_dir = lab_dir.to_str().context("the lab's directory is not plain text")?;
    super::start_init("node-init", &[lab_dir, word])
}

/// Makes the node from inside, then keeps it for as long as this process lives.
pub fn keep(lab_dir: &Path, word: &str) -> Result<()> {
    let (record, node) = read(lab_dir, word)?;
    Report::Started { pid: super::pid_outside()? }.print()?;
    match std::io::stdin().lines().next() {
        Some(Ok(line)) if line == GO => {}
        _ => bail!("the lab's switch ended"),
    }
    nix::unistd::sethostname(record.spec.host_name(node)).context("cannot set the host name")?;
    network::start_node(node, record.spec.link)?;
    mounts::make_node(&record, lab_dir, node)?;
    Report::Ready.print()?;
    super::reap_for_ever()
}

fn read(lab_dir: &Path, word: &str) -> Result<(Record, NodeId)> {
    let record = record::read(lab_dir)?.context("the lab is not written down")?;
    let number: u32 = word.parse().with_context(|| format!("`{word}` is not a node"))?;
    let count = record.spec.speeds.len();
    ensure!((1..=count).contains(&(number as usize)), "the lab has no node {number}");
    Ok((record, NodeId(number)))
}
