//! `osmos lab-enter LAB_DIR NODE PLACE START BLOCKED -- COMMAND...`: already in the PID namespace
//! of the node, joins the rest of it and becomes the command.

use super::Start;
use crate::cgroup::{Place, procs_file};
use crate::mounts::{DAEMON_FILE, PROGRAMS_DIR};
use crate::process::Keeper;
use crate::record::{self, Record};
use anyhow::{Context, Result, bail, ensure};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, Signal, raise};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use wire::ids::NodeId;

/// As shells have it: what was to be run was not found, or cannot be run; and our own failures.
const STATUS_NOT_FOUND: u8 = 127;
const STATUS_NOT_RUN: u8 = 126;
const STATUS_NO_NODE: u8 = 125;

pub fn main(arguments: &[OsString]) -> ExitCode {
    match enter(arguments) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("osmos lab exec: {error:#}");
            ExitCode::from(STATUS_NO_NODE)
        }
    }
}

/// Returns only if the command does not run here: it was detached, or it cannot run.
fn enter(arguments: &[OsString]) -> Result<u8> {
    let [lab_dir, node, place, start, blocked, dashes, program, words @ ..] = arguments else {
        bail!("lab-enter is for `osmos lab exec` alone");
    };
    ensure!(dashes == "--", "lab-enter is for `osmos lab exec` alone");
    let text = |word: &OsStr| word.to_str().unwrap_or_default().to_owned();
    let node = NodeId(text(node).parse().context("no node number")?);
    let place = Place::from_dir_name(&text(place)).context("no place in a node")?;
    let start = Start::from_word(&text(start)).context("no way to start")?;
    let record = record::read(Path::new(lab_dir))?.context("the lab is gone")?;

    join_cgroups(&record, node, place)?;
    let dir = std::env::current_dir();
    join_namespaces(record.keeper(node)?)
        .with_context(|| format!("cannot enter node {node} of lab `{}`", record.spec.name))?;
    // The caller's directory, where the node has it.
    if !dir.is_ok_and(|dir| std::env::set_current_dir(dir).is_ok()) {
        std::env::set_current_dir("/")?;
    }
    let mut command = Command::new(program);
    command.args(words).env("PATH", search_path());
    restore_signal_mask(&text(blocked))?;
    match start {
        Start::Now => {}
        Start::InForeground => raise(Signal::SIGSTOP).context("cannot wait for the terminal")?,
        Start::Detached => return detach(&mut command),
    }
    let error = command.exec();
    eprintln!("osmos lab exec: node {node}: cannot run {}: {error}", program.display());
    Ok(if error.kind() == ErrorKind::NotFound { STATUS_NOT_FOUND } else { STATUS_NOT_RUN })
}

/// The command blocks the signals that `lab exec` was started with blocked, no others.
fn restore_signal_mask(blocked: &str) -> Result<()> {
    let mut mask = SigSet::empty();
    for name in blocked.split(',').filter(|name| !name.is_empty()) {
        mask.add(name.parse().with_context(|| format!("`{name}` is no signal"))?);
    }
    mask.thread_set_mask().context("cannot set the signal mask")
}

fn join_cgroups(record: &Record, node: NodeId, place: Place) -> Result<()> {
    for hierarchy in &record.hierarchies {
        let file = procs_file(hierarchy, record.spec.name.as_str(), node, place);
        std::fs::write(&file, "0")
            .with_context(|| format!("cannot enter cgroup {}", file.display()))?;
    }
    Ok(())
}

fn join_namespaces(keeper: &Keeper) -> Result<()> {
    // The mount namespace comes last: from inside the node the keeper is called otherwise.
    let kinds = [
        ("net", CloneFlags::CLONE_NEWNET),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("ipc", CloneFlags::CLONE_NEWIPC),
        ("mnt", CloneFlags::CLONE_NEWNS),
    ];
    let open = |kind: &str| File::open(format!("/proc/{}/ns/{kind}", keeper.pid));
    let mut files = Vec::with_capacity(kinds.len());
    for (kind, flag) in kinds {
        let file = open(kind).with_context(|| format!("cannot open its {kind} namespace"))?;
        files.push((file, kind, flag));
    }
    // Compared after opening: what is open now is the keeper's and not a later process's.
    ensure!(keeper.is_alive(), "its keeper has ended");
    for (file, kind, flag) in files {
        setns(file, flag).with_context(|| format!("cannot join its {kind} namespace"))?;
    }
    Ok(())
}

fn search_path() -> OsString {
    let mut path = OsString::from(PROGRAMS_DIR);
    if let Some(rest) = std::env::var_os("PATH").filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    path
}

/// Leaves the command behind as a child of the node's keeper, and notes its pid inside the node.
fn detach(command: &mut Command) -> Result<u8> {
    nix::unistd::setsid().context("cannot leave the terminal")?;
    let child = command.stdin(Stdio::null()).spawn().context("cannot start the node's daemon")?;
    std::fs::write(DAEMON_FILE, child.id().to_string())
        .with_context(|| format!("cannot write {DAEMON_FILE}"))?;
    Ok(0)
}
