//! The half of `osmos lab exec` that stays outside, between the caller's shell and the command.

use super::terminal::Terminal;
use crate::cgroup::Place;
use crate::process::Keeper;
use crate::record::{Record, labs_dir};
use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, Signal, kill, killpg, raise};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpgrp};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use wire::ids::NodeId;

/// Signals that somebody sends to the front but means for the command.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// How the command begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At once.
    Now,
    /// Once it has the terminal.
    InForeground,
    /// As a service of the node: in a session of its own, a child of the node's keeper.
    Detached,
}

impl Start {
    pub fn word(self) -> &'static str {
        match self {
            Start::Now => "now",
            Start::InForeground => "in-foreground",
            Start::Detached => "detached",
        }
    }

    pub fn from_word(word: &str) -> Option<Start> {
        [Start::Now, Start::InForeground, Start::Detached]
            .into_iter()
            .find(|start| start.word() == word)
    }
}

/// A command for a node.
pub struct Request<'a> {
    pub record: &'a Record,
    pub node: NodeId,
    pub place: Place,
    pub start: Start,
    pub words: &'a [OsString],
}

/// Runs the command to its end; returns its exit status, 128 + N for death by signal N.
///
/// The calling process must be single-threaded if the lab is not root's.
pub fn run(request: &Request<'_>) -> Result<u8> {
    let keeper = request.record.keeper(request.node)?;
    let terminal = Terminal::open().filter(|_| request.start == Start::Now);
    let is_foreground = terminal.as_ref().is_some_and(Terminal::is_ours);
    let start = if is_foreground { Start::InForeground } else { request.start };
    let blocked_before = SigSet::thread_get_mask().context("cannot read the signal mask")?;
    let signals = block_signals()?;
    let pid = spawn_inside(request, start, &blocked_before, keeper)?;
    let front = Front { command: pid, terminal };
    if is_foreground {
        front.begin_in_foreground()?;
    }
    front.follow(&signals)
}

/// The signals that the front waits for instead of being interrupted by them.
fn block_signals() -> Result<SigSet> {
    let mut signals = SigSet::empty();
    for signal in PASSED_ON {
        signals.add(signal);
    }
    signals.add(Signal::SIGCHLD);
    signals.add(Signal::SIGCONT);
    let mut blocked = signals;
    // Taking the terminal back is done from the background, and our own stops are by SIGSTOP.
    blocked.add(Signal::SIGTTOU);
    blocked.add(Signal::SIGTSTP);
    blocked.thread_block().context("cannot block signals")?;
    Ok(signals)
}

/// Starts `lab-enter` as a process of the node's PID namespace and a group of its own, as a shell
/// of the node would: a process sees no group but those of its own namespace.
fn spawn_inside(
    request: &Request<'_>,
    start: Start,
    blocked_before: &SigSet,
    keeper: &Keeper,
) -> Result<Pid> {
    let namespace = |owner: &str, kind: &str| -> Result<File> {
        let path = format!("/proc/{owner}/ns/{kind}");
        File::open(&path).with_context(|| format!("cannot open {path}"))
    };
    let pid = keeper.pid.to_string();
    let (own, inner) = (namespace("self", "pid")?, namespace(&pid, "pid")?);
    let is_rootless = !nix::unistd::geteuid().is_root();
    let node = request.node;
    let mut command = enter_command(request, start, blocked_before)?;
    if is_rootless {
        setns(namespace(&pid, "user")?, CloneFlags::CLONE_NEWUSER)
            .with_context(|| format!("cannot enter the user namespace of node {node}"))?;
    }
    setns(inner, CloneFlags::CLONE_NEWPID)
        .with_context(|| format!("cannot enter node {node}: only the owner of the lab can"))?;
    // One that is to lead a session may not lead a group before.
    if start != Start::Detached {
        command.process_group(0);
    }
    let child = command.spawn();
    if !is_rootless {
        // Whoever joined a user namespace cannot come back; he holds it until he ends.
        setns(own, CloneFlags::CLONE_NEWPID).context("cannot leave the node again")?;
    }
    let child = child.context("cannot start osmos lab-enter")?;
    Ok(Pid::from_raw(child.id() as i32))
}

fn enter_command(request: &Request<'_>, start: Start, blocked: &SigSet) -> Result<Command> {
    let blocked: Vec<&str> = blocked.iter().map(Signal::as_str).collect();
    let mut command = Command::new("/proc/self/exe");
    command.arg("lab-enter").arg(lab_dir(request.record)?).arg(request.node.to_string());
    command.arg(request.place.dir_name()).arg(start.word()).arg(blocked.join(","));
    command.arg("--").args(request.words);
    Ok(command)
}

fn lab_dir(record: &Record) -> Result<PathBuf> {
    Ok(labs_dir()?.join(record.spec.name.as_str()))
}

/// A running command and the terminal it shares with us.
struct Front {
    command: Pid,
    terminal: Option<Terminal>,
}

impl Front {
    /// `lab-enter` stops itself until it has the terminal: otherwise its first read could stop it.
    fn begin_in_foreground(&self) -> Result<()> {
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(self.command), flags).context("lost the command")?;
        self.resume();
        Ok(())
    }

    /// Lets the command run on, in the foreground if the caller's shell has put us there.
    fn resume(&self) {
        if let Some(terminal) = self.terminal.as_ref().filter(|terminal| terminal.is_ours()) {
            terminal.give_to(self.command);
        }
        // A command that has ended in between is seen by the next wait.
        let _ = killpg(self.command, Signal::SIGCONT);
    }

    fn follow(&self, signals: &SigSet) -> Result<u8> {
        loop {
            match signals.wait().context("cannot wait for signals")? {
                Signal::SIGCHLD => {
                    if let Some(status) = self.look()? {
                        return Ok(status);
                    }
                }
                // From `fg`, which has made us the foreground by now, or from `bg`.
                Signal::SIGCONT => self.resume(),
                passed_on => {
                    let _ = kill(self.command, passed_on);
                }
            }
        }
    }

    /// The exit status of the command, if it has ended. Stops with it if it has stopped.
    fn look(&self) -> Result<Option<u8>> {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
        match waitpid(self.command, Some(flags)).context("lost the command")? {
            WaitStatus::Exited(_, status) => {
                self.take_terminal_back();
                Ok(Some(status as u8))
            }
            WaitStatus::Signaled(_, signal, _) => {
                self.take_terminal_back();
                Ok(Some(128 + signal as u8))
            }
            WaitStatus::Stopped(..) => {
                self.stop();
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// As ^Z does to a group: whatever shares our pipeline stops, too. SIGCONT ends it, and clears
    /// the SIGTSTP that is still pending here.
    fn stop(&self) {
        self.take_terminal_back();
        let _ = killpg(getpgrp(), Signal::SIGTSTP);
        let _ = raise(Signal::SIGSTOP);
    }

    fn take_terminal_back(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back_from(self.command);
        }
    }
}
