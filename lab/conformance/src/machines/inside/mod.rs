//! What runs in a machine: its process 1, which makes of an unpacked image a system, and an agent,
//! which runs the commands that the harness sends.
//!
//! They are two processes, because process 1 has to wait for every orphan, and the agent for its
//! own children only.

mod agent;
mod system;

use anyhow::{Context, Result, bail};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::process::{Command, ExitCode};

const AGENT: &str = "agent";

pub fn main() -> ExitCode {
    let word = std::env::args().nth(1);
    let outcome = match word.as_deref() {
        Some(AGENT) => agent::serve(),
        _ if std::process::id() == 1 => keep(),
        _ => {
            Err(anyhow::anyhow!("this program is process 1 of a machine of `cargo xtask machines`"))
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("machine-init: {error:#}");
            if std::process::id() == 1 {
                // Without its process 1 a machine is of no use; the harness sees that it ends.
                let _ = reboot(RebootMode::RB_POWER_OFF);
            }
            ExitCode::FAILURE
        }
    }
}

/// Makes the system, starts the agent, and waits for orphans for as long as the machine runs.
fn keep() -> Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    signals.thread_block().context("cannot block SIGCHLD")?;
    system::make()?;
    let agent =
        Command::new("/proc/self/exe").arg(AGENT).spawn().context("cannot start the agent")?;
    let agent = Pid::from_raw(agent.id() as i32);
    loop {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(_) => break,
                Ok(status) if status.pid() == Some(agent) => {
                    bail!("the agent has ended: {status:?}")
                }
                Ok(_) => {}
            }
        }
        signals.wait().context("cannot wait for SIGCHLD")?;
    }
}
