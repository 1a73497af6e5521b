//! Naming, counting and ending the processes of a lab, by identity and namespace: never by name.

use anyhow::{Context, Result, bail};
use kernel::proc::process::{Stat, stat, status, status_field};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long the processes of a lab may take to vanish once killed.
const DEATH_TIMEOUT: Duration = Duration::from_secs(15);
/// When, meanwhile, we look for those that hold others up, and how often again.
const DEATH_STEP_MIN: Duration = Duration::from_millis(20);
const DEATH_STEP: Duration = Duration::from_millis(250);

/// Process 1 of a PID namespace of the lab: when it dies, the kernel kills all others in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeper {
    pub pid: i32,
    /// Clock ticks after boot: with the pid it names a process for good.
    pub start_ticks: u64,
    /// `pid:[4026532...]`, the namespace it keeps.
    pub pid_namespace: String,
}

impl Keeper {
    pub fn of_pid(pid: i32) -> Result<Keeper> {
        let start_ticks = stat(&pid.to_string())?.start_ticks;
        let pid_namespace =
            namespace_of(pid).with_context(|| format!("process {pid} shows no namespace"))?;
        Ok(Keeper { pid, start_ticks, pid_namespace })
    }

    /// True until the process and all others in its namespace have ended.
    pub fn is_alive(&self) -> bool {
        self.is_here() && stat(&self.pid.to_string()).is_ok_and(|stat| stat.state != b'Z')
    }

    /// Not reused by a process that came later.
    fn is_here(&self) -> bool {
        stat(&self.pid.to_string()).is_ok_and(|stat| stat.start_ticks == self.start_ticks)
    }

    /// Kills everything in the namespace and below, and waits until the kernel is done with it.
    ///
    /// `inner` are the namespaces below, for finding who keeps the kernel from being done.
    pub fn kill_all(&self, inner: &[Keeper]) -> Result<()> {
        let pid = rustix::process::Pid::from_raw(self.pid).context("a keeper has no pid")?;
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            pidfd => pidfd.with_context(|| format!("cannot open process {}", self.pid))?,
        };
        // Compared after opening: from here on the descriptor names what was compared.
        if !self.is_here() {
            return Ok(());
        }
        match pidfd_send_signal(&pidfd, rustix::process::Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot kill process {}", self.pid));
            }
        }
        let namespaces: Vec<&Keeper> = inner.iter().chain([self]).collect();
        let deadline = Instant::now() + DEATH_TIMEOUT;
        let mut step = DEATH_STEP_MIN;
        while !becomes_readable(pidfd.as_fd(), step)? {
            step = DEATH_STEP;
            let holders = wake_holders(&namespaces);
            if Instant::now() > deadline {
                bail!(still_there(&holders));
            }
        }
        // If it is ours to wait for, nobody else does.
        let _ = waitpid(Pid::from_raw(self.pid), Some(WaitPidFlag::WNOHANG));
        Ok(())
    }
}

/// From now on this process is the parent of what its children leave behind, commands in nodes
/// above all; [`Keeper::kill_all`] waits for those.
///
/// Process 1 does that on machines, and not in all containers: there it may be any program, and one
/// that waits for nobody would keep a lab from ending.
pub fn adopt_orphans() -> Result<()> {
    set_child_subreaper(true).context("cannot become the parent of orphans")
}

fn becomes_readable(fd: std::os::fd::BorrowedFd<'_>, patience: Duration) -> Result<bool> {
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    match poll(&mut fds, timeout) {
        Err(Errno::EINTR) => Ok(false),
        ready => Ok(ready.context("cannot wait for the lab to end")? > 0),
    }
}

/// A PID namespace ends only when each process in it was waited for by its parent, and the parent
/// of an `osmos lab exec` command is outside. One that is stopped (^Z) does not wait: wake it.
fn wake_holders(namespaces: &[&Keeper]) -> Vec<i32> {
    let processes = processes_in(namespaces);
    let is_member = |pid: i32| processes.iter().any(|own| own.pid == pid);
    let is_keeper = |pid: i32| namespaces.iter().any(|keeper| keeper.pid == pid);
    let held =
        processes.iter().filter(|process| !is_keeper(process.pid) && !is_member(process.parent));
    let mut holders = Vec::new();
    for process in held {
        // Children of our own in there are orphans that we have adopted: commands are started by
        // other processes of this program, which wait for them unless they are killed.
        let pid = Pid::from_raw(process.pid);
        if waitpid(pid, Some(WaitPidFlag::WNOHANG)).is_err() {
            holders.push(process.parent);
        }
    }
    holders.sort_unstable();
    holders.dedup();
    for holder in &holders {
        // A holder that ended in between is what we want.
        let _ = kill(Pid::from_raw(*holder), Signal::SIGCONT);
    }
    holders
}

/// Why a lab has not ended, and what to do. Without holders the kernel is still at it.
fn still_there(holders: &[i32]) -> String {
    if holders.is_empty() {
        let seconds = DEATH_TIMEOUT.as_secs();
        return format!(
            "the lab's processes are killed, and not gone after {seconds} s: this machine is busy; \
             run `osmos lab down` again"
        );
    }
    let pids: Vec<String> = holders.iter().map(i32::to_string).collect();
    format!(
        "the lab's processes do not end: processes {} outside it hold some of them; end those, \
         then run `osmos lab down` again",
        pids.join(", ")
    )
}

/// The processes whose own PID namespace is one of these, as this namespace sees them.
pub fn processes_in(namespaces: &[&Keeper]) -> Vec<Stat> {
    let is_ours = |pid: &i32| {
        namespace_of(*pid)
            .is_some_and(|own| namespaces.iter().any(|keeper| keeper.pid_namespace == own))
    };
    all_pids().filter(is_ours).filter_map(|pid| stat(&pid.to_string()).ok()).collect()
}

/// The pid here of the process that the node kept by `keeper` knows as `inner`.
pub fn pid_outside(keeper: &Keeper, inner: i32) -> Option<i32> {
    processes_in(&[keeper]).into_iter().map(|process| process.pid).find(|pid| {
        let text = status(*pid).unwrap_or_default();
        let innermost = status_field(&text, "NSpid").and_then(|pids| pids.split('\t').next_back());
        innermost == Some(&inner.to_string())
    })
}

/// Processes of a user namespace that outlived its lab. Only rootless labs have one of their own; a
/// `lab exec` that waits outside the PID namespace is in it.
pub fn kill_user_namespace(user_namespace: &str) {
    for pid in all_pids() {
        let link = std::fs::read_link(format!("/proc/{pid}/ns/user"));
        if link.is_ok_and(|own| own.as_os_str() == user_namespace) {
            // It may have ended by itself meanwhile.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

fn all_pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn namespace_of(pid: i32) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
    Some(link.to_str()?.to_owned())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn only_holders_that_there_are_are_blamed() {
        let text = still_there(&[7, 12]);
        assert!(text.contains("processes 7, 12 outside it hold some"), "{text}");
        let text = still_there(&[]);
        assert!(!text.contains("outside") && text.contains("`osmos lab down` again"), "{text}");
    }
}
