//! `token`, `join`, `leave`, `forget`, `renew-secret`, `down` and `status`: this node and its
//! cluster.

use crate::naming::called;
use crate::output;
use anyhow::{Context, Result, ensure};
use client::Client;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use wire::control::{Reply, Request, Status};
use wire::ids::NodeId;

use super::unexpected;

/// Once it has answered, a daemon has only to write its journal and end.
const END_TIMEOUT: Duration = Duration::from_secs(30);

pub fn token(client: &mut Client) -> Result<()> {
    match client.request(&Request::Token)? {
        Reply::Token { token } => output::print_line(&output::printable(&token))?,
        other => return Err(unexpected(&other)),
    }
    Ok(())
}

pub fn join(client: &mut Client, address: String, token: String) -> Result<()> {
    match client.request(&Request::Join { address, token })? {
        Reply::Done => status(client, false),
        other => Err(unexpected(&other)),
    }
}

/// Returns when this node is in a cluster of its own.
pub fn leave(client: &mut Client) -> Result<()> {
    match client.request(&Request::Leave)? {
        Reply::Done => status(client, false),
        other => Err(unexpected(&other)),
    }
}

pub fn forget(client: &mut Client, node: NodeId, force: bool) -> Result<()> {
    done(client, &Request::Forget { node, force })
}

pub fn renew_secret(client: &mut Client) -> Result<()> {
    done(client, &Request::RenewSecret)
}

fn done(client: &mut Client, request: &Request) -> Result<()> {
    match client.request(request)? {
        Reply::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Returns when the daemon has ended, so that another can be started at once.
pub fn down(client: &mut Client) -> Result<()> {
    end(client, &Request::Down)
}

/// The same, of a daemon that leaves everything where it is to the next.
pub fn hand_over(client: &mut Client) -> Result<()> {
    end(client, &Request::HandOver)
}

fn end(client: &mut Client, how: &Request) -> Result<()> {
    let daemon_pid = match client.request(&Request::Status)? {
        Reply::Status(status) => status.daemon_pid,
        other => return Err(unexpected(&other)),
    };
    // Opened before the daemon can end: it names that process and no later one.
    let daemon = Pid::from_raw(daemon_pid)
        .filter(|_| daemon_pid > 0)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    match client.request(how)? {
        Reply::Done => daemon.map_or(Ok(()), |daemon| wait_for_end(&daemon, daemon_pid)),
        other => Err(unexpected(&other)),
    }
}

fn wait_for_end(daemon: &OwnedFd, daemon_pid: i32) -> Result<()> {
    let mut ends = [PollFd::new(daemon.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(END_TIMEOUT).context("that is too long to wait")?;
    let ended = poll(&mut ends, timeout).context("cannot wait for the daemon")?;
    ensure!(ended > 0, "the daemon (pid {daemon_pid}) has not ended after {END_TIMEOUT:?}");
    Ok(())
}

pub fn status(client: &mut Client, json: bool) -> Result<()> {
    let status = match client.request(&Request::Status)? {
        Reply::Status(status) => status,
        other => return Err(unexpected(&other)),
    };
    if json {
        output::print_json(&status)?;
    } else {
        output::print_line(&sentence(&status))?;
        output::print_line(&super::owner::sentence(&status.owner))?;
    }
    Ok(())
}

fn sentence(status: &Status) -> String {
    let nodes = output::counted(status.nodes, "node", "nodes");
    output::printable(&format!(
        "{} at {}: daemon pid {}, version {}, up for {}, in a cluster of {nodes}",
        called(status.node, status.name.as_deref()),
        status.address,
        status.daemon_pid,
        status.version,
        output::seconds(status.uptime_s)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_end_of_a_process_is_noticed() {
        let mut child = Command::new("true").spawn().expect("started");
        let pid = Pid::from_child(&child);
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).expect("not waited for yet");
        wait_for_end(&descriptor, child.id() as i32).expect("ends");
        assert!(child.wait().expect("waited").success());
    }
}
