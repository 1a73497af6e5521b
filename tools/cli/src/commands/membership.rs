//! `token`, `join`, `leave`, `forget`, `renew-secret`, `down` and `status`: this node and its
//! cluster.

use crate::naming::called;
use crate::output;
use crate::progress::{self, Waiting};
use anyhow::{Result, ensure};
use client::Client;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use wire::control::{Reply, Request, Status};
use wire::ids::NodeId;

use super::unexpected;

/// Once it has answered, a daemon has only to write its journal and end.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// Standard output has the token alone, so that scripts can use it. Who looks at it on a terminal
/// is told beside it what it is and what it is for.
pub fn token(client: &mut Client, json: bool) -> Result<()> {
    let token = output::printable(&new_token(client)?);
    if json {
        output::print_json(&json!({ "token": token }))?;
        return Ok(());
    }
    if !output::is_terminal() {
        output::print_line(&token)?;
        return Ok(());
    }
    let advice = advice(&ask_status(client)?.address, &token);
    eprint!("token: ");
    output::print_line(&token)?;
    eprintln!("{advice}");
    Ok(())
}

pub fn new_token(client: &mut Client) -> Result<String> {
    match client.request(&Request::Token)? {
        Reply::Token { token } => Ok(token),
        other => Err(unexpected(&other)),
    }
}

fn advice(address: &str, token: &str) -> String {
    let join = output::printable(&format!("osmos join {address} {token}"));
    format!(
        "one other machine may join with it, within a day; there: `osmos up`, and then\n  {join}"
    )
}

pub fn join(client: &mut Client, address: String, token: String, json: bool) -> Result<()> {
    let doing = format!("joining the cluster of {address}");
    let words = (doing.as_str(), "this node may join all the same: `osmos status` tells");
    done_in_time(client, &Request::Join { address, token }, words, json)?;
    status(client, json)
}

/// Returns when this node is in a cluster of its own.
pub fn leave(client: &mut Client, json: bool) -> Result<()> {
    let words =
        ("leaving the cluster", "this node goes on leaving it: `osmos status` tells when it has");
    done_in_time(client, &Request::Leave, words, json)?;
    status(client, json)
}

pub fn forget(client: &mut Client, node: NodeId, force: bool, json: bool) -> Result<()> {
    done(client, &Request::Forget { node, force })?;
    output::confirm(json, || json!({ "done": true, "node": node }))
}

pub fn renew_secret(client: &mut Client, json: bool) -> Result<()> {
    done(client, &Request::RenewSecret)?;
    output::confirm(json, || json!({ "done": true }))
}

fn done(client: &mut Client, request: &Request) -> Result<()> {
    match client.request(request)? {
        Reply::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// What may take a while; it is said what goes on.
fn done_in_time(
    client: &mut Client,
    request: &Request,
    words: (&str, &'static str),
    json: bool,
) -> Result<()> {
    match progress::ask(client, request, words, json)? {
        Reply::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Returns when the daemon has ended, so that another can be started at once.
pub fn down(client: &mut Client, json: bool) -> Result<()> {
    let words = (
        "taking this node down",
        "it goes on going down, when guests and own processes are home: `osmos status` tells",
    );
    let daemon_pid = end(client, &Request::Down, words, json)?;
    output::confirm(json, || json!({ "done": true, "daemon_pid": daemon_pid }))
}

/// Has a daemon that is a service take its own place; returns when it has begun to.
pub fn begin_to_hand_over(client: &mut Client) -> Result<()> {
    done(client, &Request::HandOver)
}

/// Has a daemon leave everything where it is to the next; returns when it has ended.
pub fn hand_over(client: &mut Client, json: bool) -> Result<()> {
    let words = (
        "waiting for the daemon that runs to end",
        "it ends, and processes wait where they are for the next one: `osmos up` starts it",
    );
    end(client, &Request::HandOver, words, json).map(|_| ())
}

/// The pid that it had.
fn end(
    client: &mut Client,
    how: &Request,
    words: (&'static str, &'static str),
    json: bool,
) -> Result<i32> {
    let daemon_pid = ask_status(client)?.daemon_pid;
    // Opened before the daemon can end: it names that process and no later one.
    let daemon = Pid::from_raw(daemon_pid)
        .filter(|_| daemon_pid > 0)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    done_in_time(client, how, words, json)?;
    if let Some(daemon) = daemon {
        wait_for_end(&daemon, daemon_pid, Waiting::begin(words.0, words.1, json)?)?;
    }
    Ok(daemon_pid)
}

fn wait_for_end(daemon: &OwnedFd, daemon_pid: i32, mut waiting: Waiting) -> Result<()> {
    let has_ended = waiting.until_or_late(daemon, Instant::now() + END_TIMEOUT)?;
    ensure!(has_ended, "the daemon (pid {daemon_pid}) has not ended after {END_TIMEOUT:?}");
    Ok(())
}

pub fn ask_status(client: &mut Client) -> Result<Status> {
    match client.request(&Request::Status)? {
        Reply::Status(status) => Ok(*status),
        other => Err(unexpected(&other)),
    }
}

pub fn status(client: &mut Client, json: bool) -> Result<()> {
    let status = ask_status(client)?;
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
    fn a_token_is_told_with_the_line_that_uses_it() {
        let advice = advice("10.0.0.1:7780", "abc\x1b");
        assert!(advice.ends_with("\n  osmos join 10.0.0.1:7780 abc?"), "{advice}");
    }

    #[test]
    fn the_end_of_a_process_is_noticed() {
        let mut child = Command::new("true").spawn().expect("started");
        let pid = Pid::from_child(&child);
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).expect("not waited for yet");
        let waiting = Waiting::begin("waiting", "it ends", true).expect("waiting");
        wait_for_end(&descriptor, child.id() as i32, waiting).expect("ends");
        assert!(child.wait().expect("waited").success());
    }
}
