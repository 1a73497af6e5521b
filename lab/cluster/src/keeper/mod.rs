//! The processes that a lab is made of. One hidden command of osmos for each step:
//!
//! ```text
//! osmos lab up ─► switch ─► switch-init     process 1 of the lab's PID namespace; keeps the bridge
//!                               ├─► node ─► node-init   process 1 of node 1; keeps its namespaces
//!                               └─► node ─► node-init   ...
//! ```
//! `switch` and `node` only make new namespaces and end: the PID namespace that a process makes is
//! that of its children. Node namespaces lie inside the lab's, so killing one process,
//! `switch-init`, makes the kernel kill every process of the lab, in whatever namespace guests made
//! below; and with their last process go the namespaces, their links and their mounts. There is
//! nothing else to clean but cgroups and the lab's directory, and both were written down before
//! they were made.
//!
//! Until it reads `commit` the switch ends at the end of its input, so a lab whose builder was
//! killed does not stay; nor does one that a program has made for itself, which never commits it.
//! Every keeper has the lab's log as standard error, and the log is locked: who gets the lock knows
//! that no keeper is left.

mod node;
mod switch;

use crate::disturbance;
use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use wire::ids::NodeId;

/// What a keeper waits for: that it is written down, or its cable laid; and that the lab is whole.
const COMMIT: &str = "commit";
const GO: &str = "go";

/// What a keeper tells whoever started it: one JSON object a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "kebab-case")]
pub enum Report {
    /// This process exists; the pid is that of the namespace in which `osmos lab up` ran.
    Started {
        pid: i32,
    },
    /// From the switch: a node is ready.
    Built {
        node: NodeId,
        pid: i32,
    },
    Ready,
    Failed {
        text: String,
    },
}

impl Report {
    fn print(&self) -> Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        std::io::stdout().write_all(&line).context("nobody listens to this keeper")
    }
}

/// The command that starts a lab's switch.
pub fn switch_command(osmos: &Path, lab_dir: &Path) -> Command {
    let mut command = Command::new(osmos);
    command.arg("lab-keeper").arg("switch").arg(lab_dir);
    command
}

/// Lets the switch build the lab: it is written down.
pub fn go(mut switch: impl Write) -> Result<()> {
    writeln!(switch, "{GO}").context("the lab's switch has ended")
}

/// Lets the switch stay when its builder ends.
pub fn commit(mut switch: impl Write) -> Result<()> {
    writeln!(switch, "{COMMIT}").context("the lab's switch has ended")
}

/// `osmos lab-keeper STEP LAB_DIR [NODE]`
pub fn main(arguments: &[OsString]) -> ExitCode {
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = format!("{error:#}");
            eprintln!("osmos lab-keeper: {text}");
            // If nobody listens any more, the log has it.
            let _ = Report::Failed { text }.print();
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[OsString]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    match words[..] {
        ["switch", lab_dir] => switch::enter(lab_dir),
        ["switch-init", lab_dir] => switch::keep(Path::new(lab_dir)),
        ["node", lab_dir, node] => node::enter(Path::new(lab_dir), node),
        ["node-init", lab_dir, node] => node::keep(Path::new(lab_dir), node),
        ["disturb", lab_dir, how] => disturbance::main(Path::new(lab_dir), how),
        _ => bail!("this command is for `osmos lab up` alone"),
    }
}

/// Makes namespaces, the PID namespace being that of the processes started from here on.
fn new_namespaces(mut flags: CloneFlags) -> Result<()> {
    let is_root = nix::unistd::geteuid().is_root();
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    if !is_root {
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    unshare(flags).with_context(|| match is_root {
        true => "cannot make the namespaces of the lab",
        false => {
            "cannot make the namespaces of the lab: without root it needs user namespaces (sysctl \
             user.max_user_namespaces, kernel.unprivileged_userns_clone, \
             kernel.apparmor_restrict_unprivileged_userns), or run it as root"
        }
    })?;
    if !is_root {
        // The kernel lets an ordinary user map only himself, and only without groups.
        for (file, text) in [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("0 {uid} 1")),
            ("gid_map", format!("0 {gid} 1")),
        ] {
            std::fs::write(format!("/proc/self/{file}"), text)
                .with_context(|| format!("cannot write /proc/self/{file}"))?;
        }
    }
    Ok(())
}

/// Starts the next step with this process's own streams, as process 1 of the new namespace.
fn start_init(step: &str, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("osmos").arg("lab-keeper").arg(step).args(arguments);
    command.spawn().with_context(|| format!("cannot start {step}"))?;
    Ok(())
}

/// The pid of this process where `osmos lab up` runs: /proc is still the one of that namespace.
fn pid_outside() -> Result<i32> {
    let link = std::fs::read_link("/proc/self").context("cannot read /proc/self")?;
    link.to_str().and_then(|pid| pid.parse().ok()).context("/proc/self names no process")
}

/// Before any other thread is made, which must not take the signal that this one waits for.
fn block_child_signals() -> Result<SigSet> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    signals.thread_block().context("cannot block SIGCHLD")?;
    Ok(signals)
}

/// What process 1 is for once all is made: wait for those that nobody else waits for.
fn reap_for_ever() -> Result<()> {
    let signals = block_child_signals()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    loop {
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            if status == WaitStatus::StillAlive {
                break;
            }
        }
        signals.wait().context("cannot wait for SIGCHLD")?;
    }
}
