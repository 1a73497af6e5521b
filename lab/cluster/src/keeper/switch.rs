//! The lab's switch: process 1 of the whole lab, owner of the bridge, parent of the nodes.

use super::{COMMIT, GO, Report};
use crate::record::{self, Record};
use crate::{mounts, network};
use anyhow::{Context, Result, bail};
use nix::sched::CloneFlags;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use wire::ids::NodeId;

/// Leaves the terminal of `osmos lab up` and makes the namespaces around the lab.
pub fn enter(lab_dir: &str) -> Result<()> {
    nix::unistd::setsid().context("cannot leave the terminal")?;
    std::env::set_current_dir("/")?;
    super::new_namespaces(
        CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS,
    )?;
    super::start_init("switch-init", &[lab_dir])
}

/// Builds the lab, then keeps it for as long as this process lives.
pub fn keep(lab_dir: &Path) -> Result<()> {
    Report::Started { pid: super::pid_outside()? }.print()?;
    // Of its own: standard input goes once the lab is made.
    let mut builder =
        BufReader::new(File::from(std::io::stdin().as_fd().try_clone_to_owned()?)).lines();
    // From here on the builder has written down who we are.
    expect(&mut builder, GO)?;
    let record = record::read(lab_dir)?.context("the lab is not written down")?;
    mounts::be_at_the_root()?;
    mounts::stage_programs(lab_dir)?;
    network::make_switch()?;
    for node in record.spec.nodes() {
        let pid = build_node(&record, lab_dir, node)
            .with_context(|| format!("cannot build node {node}"))?;
        Report::Built { node, pid }.print()?;
    }
    Report::Ready.print()?;
    super::block_child_signals()?;
    std::thread::spawn(move || {
        if let Err(error) = expect(&mut builder, COMMIT) {
            // And with this process the whole lab.
            eprintln!("osmos lab-keeper: {error:#}");
            std::process::exit(1);
        }
    });
    super::reap_for_ever()
}

fn expect(builder: &mut impl Iterator<Item = std::io::Result<String>>, word: &str) -> Result<()> {
    match builder.next() {
        Some(Ok(line)) if line == word => Ok(()),
        _ => bail!("whoever made the lab has ended, and the lab with it"),
    }
}

/// Starts one node and lays its cable as soon as its network namespace exists.
fn build_node(record: &Record, lab_dir: &Path, node: NodeId) -> Result<i32> {
    let mut starter = Command::new("/proc/self/exe")
        .args(["lab-keeper", "node"])
        .arg(lab_dir)
        .arg(node.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start its keeper")?;
    let mut input = starter.stdin.take().context("its keeper has no input")?;
    let mut output = BufReader::new(starter.stdout.take().context("its keeper has no output")?);
    starter.wait().context("lost its keeper")?;
    let Report::Started { pid } = next_report(&mut output)? else {
        bail!("its keeper answers out of turn");
    };
    network::connect(node, pid, record.spec.link)?;
    writeln!(input, "{GO}").context("its keeper does not listen")?;
    match next_report(&mut output)? {
        Report::Ready => Ok(pid),
        _ => bail!("its keeper answers out of turn"),
    }
}

fn next_report(output: &mut BufReader<ChildStdout>) -> Result<Report> {
    let mut line = String::new();
    output.read_line(&mut line).context("cannot hear its keeper")?;
    match serde_json::from_str(&line) {
        Ok(Report::Failed { text }) => bail!("{text}"),
        Ok(report) => Ok(report),
        Err(_) => bail!("its keeper ended before it was ready"),
    }
}
