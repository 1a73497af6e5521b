//! `osmos pvm`: the virtual machine of PVM over the nodes of the cluster, by its console as it is.
//!
//! PVM begins its daemons on other machines by a program that is called as rsh(1) is, and that a
//! variable names: here `osmos rsh`. Its console does all else: it begins the first daemon, adds
//! and lists hosts, and halts.

use super::membership;
use crate::jobs::{PvmCommand, RSH_ENVIRONMENT};
use crate::output;
use crate::progress;
use anyhow::{Context, Result, bail, ensure};
use client::Client;
use nix::libc::SIGTERM;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use wire::control::Node;
use wire::ids::NodeId;
use wire::users::Borrowers;

/// What its daemons on other nodes are told of what this user has said here.
const PASSED_ON: [&str; 7] =
    ["PVM_ALLOW_ROOT", "PVM_EXPORT", "PVM_PATH", "PVM_ROOT", "PVM_TMP", "PVM_VMID", "PVM_WD"];
/// What would make each daemon one that rules the others.
const KEPT_BACK: [&str; 3] = ["PVM_HOSTER", "PVM_RM", "PVM_TASKER"];
/// What is read of what it says.
const SAID_BYTES_MAX: u64 = 1 << 20;
const HALT: &str = "halt\n";
/// Of the console.
const PROMPT: &str = "pvm> ";

pub fn pvm(command: PvmCommand, socket: &Path) -> Result<()> {
    match command {
        PvmCommand::Up { nodes } => {
            let mut client = Client::connect(socket)?;
            let nodes = match nodes {
                Some(nodes) => nodes.find(&mut client)?,
                None => Borrowers::All,
            };
            up(&mut client, &nodes, socket)
        }
        PvmCommand::Down => console(socket, &[], HALT).map(drop),
    }
}

fn up(client: &mut Client, wanted: &Borrowers, socket: &Path) -> Result<()> {
    let here = membership::ask_status(client)?.node;
    let listed = client.nodes()?;
    let others: Vec<&str> = others(&listed, here, wanted)?;
    let own = listed.iter().find(|node| node.id == here).and_then(|node| node.name.as_deref());
    let own = own.map(|name| OsString::from(format!("-n{name}")));
    let mut words = String::new();
    if !others.is_empty() {
        words = format!("add {}\n", others.join(" "));
    }
    words.push_str("conf\nquit\n");
    let told = console(socket, &own.into_iter().collect::<Vec<_>>(), &words)?;
    output::print_text(&told)?;
    // A host is a line of its own in the table.
    let hosts: BTreeSet<&str> =
        told.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let missing: Vec<&str> = others.into_iter().filter(|name| !hosts.contains(name)).collect();
    ensure!(
        missing.is_empty(),
        "no PVM on {}: it must be installed there, and `osmos share --jobs on` said",
        missing.join(", ")
    );
    Ok(())
}

/// By their names, under which PVM looks them up.
fn others<'a>(listed: &'a [Node], here: NodeId, wanted: &Borrowers) -> Result<Vec<&'a str>> {
    let is_wanted = |node: &&Node| node.id != here && wanted.has(node.id);
    let all = matches!(wanted, Borrowers::All);
    let mut names = Vec::new();
    for node in listed.iter().filter(is_wanted) {
        if all && (node.status != "alive" || !node.takes_guests) {
            continue;
        }
        ensure!(node.status == "alive", "node {} is not alive", node.id);
        let name = node.name.as_deref().filter(|name| is_plain(name));
        names.push(name.with_context(|| format!("node {} has no name that PVM knows", node.id))?);
    }
    Ok(names)
}

/// The console takes words apart at spaces, and lines at their ends.
fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c)) && !name.starts_with('-')
}

/// Has the console carry out these lines; what it says.
fn console(socket: &Path, options: &[OsString], lines: &str) -> Result<String> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(&program);
    // What it begins, its daemon and through that all tasks here, are processes under Osmos.
    command.arg("--socket").arg(socket).args(["run", "--", "pvm"]).args(options);
    command.env("PVM_RSH", rsh(&program)?);
    let told = std::env::var(RSH_ENVIRONMENT).unwrap_or_default();
    let names: Vec<&str> =
        told.split(',').filter(|name| !name.is_empty()).chain(PASSED_ON).collect();
    command.env(RSH_ENVIRONMENT, names.join(","));
    if std::env::var_os("PVM_PATH").is_none() {
        command.env("PVM_PATH", std::env::var_os("PATH").unwrap_or_default());
    }
    for name in KEPT_BACK {
        command.env_remove(name);
    }
    // Not pipes: the daemon that it begins may keep them, and nobody would see their end.
    let [mut out, mut errors] = [tempfile::tempfile()?, tempfile::tempfile()?];
    command.stdin(Stdio::piped()).stdout(out.try_clone()?).stderr(errors.try_clone()?);
    let mut child = command.spawn().context("cannot start the console of PVM")?;
    let mut input = child.stdin.take().context("it has no input")?;
    // One that has ended says why by its output.
    let _ = input.write_all(lines.as_bytes());
    drop(input);
    let words = ("asking PVM", "its daemons go on: `osmos pvm down` ends them");
    let status = progress::during(words, false, move || child.wait())??;
    let (out, errors) = (said(&mut out)?, said(&mut errors)?);
    match status.code() {
        Some(0) => Ok(shown(&out)),
        // Its daemon ends the console with all other tasks.
        None if lines == HALT && status.signal() == Some(SIGTERM) => Ok(shown(&out)),
        Some(127) => bail!("there is no program `pvm` here: install the package pvm"),
        _ => bail!("the console of PVM: {status}: {}", output::printable(errors.trim())),
    }
}

/// What it has written so far.
fn said(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(SAID_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).replace(PROMPT, ""))
}

/// Without the commands that it repeats.
fn shown(out: &str) -> String {
    let is_said = |line: &&str| !["conf", "quit", ""].contains(line) && !line.starts_with("add ");
    out.lines().filter(is_said).map(|line| format!("{}\n", output::printable(line))).collect()
}

/// A program that does what `osmos rsh` does: PVM takes no words for it.
fn rsh(program: &Path) -> Result<PathBuf> {
    let directory = super::state_directory().context("HOME is not set")?.join("bin");
    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let link = directory.join("osmos-rsh");
    if fs::read_link(&link).is_ok_and(|target| target == program) {
        return Ok(link);
    }
    // Of an earlier version, at another place.
    let fresh = directory.join(format!("osmos-rsh.{}", std::process::id()));
    symlink(program, &fresh).and_then(|()| fs::rename(&fresh, &link))?;
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naming::tests::listed_node;

    #[test]
    fn hosts_are_the_other_nodes_by_their_names() {
        let mut nodes = vec![
            listed_node(1, Some("one")),
            listed_node(2, Some("two.example.org")),
            listed_node(3, None),
            listed_node(4, Some("four")),
        ];
        nodes[3].status = "gone".into();
        let only = |ids: &[u32]| Borrowers::Only(ids.iter().map(|id| NodeId(*id)).collect());
        let named = |wanted: &Borrowers| others(&nodes, NodeId(1), wanted);
        assert_eq!(named(&only(&[1, 2])).unwrap(), ["two.example.org"]);
        assert!(named(&only(&[3])).unwrap_err().to_string().contains("node 3 has no name"));
        assert!(named(&only(&[4])).unwrap_err().to_string().contains("node 4 is not alive"));
        assert!(named(&Borrowers::All).is_err(), "node 3 is there");
        for name in ["a b", "a\nhalt", "-n", "ä"] {
            assert!(!is_plain(name), "{name}");
        }
    }

    #[test]
    fn what_the_console_repeats_is_not_shown() {
        let out = "add two\n1 successful\n  two 80000\nconf\n2 hosts\n\nquit\n";
        assert_eq!(shown(out), "1 successful\n  two 80000\n2 hosts\n");
    }
}
