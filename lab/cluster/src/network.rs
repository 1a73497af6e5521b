//! The lab's network: a bridge in a network namespace of its own, one cable to each node, nothing
//! in the machine's own network. Made with iproute2, which every distribution has.

use crate::record::address;
use crate::spec::Rate;
use anyhow::{Context, Result, bail, ensure};
use std::io::{ErrorKind, Write};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use wire::ids::NodeId;

const BRIDGE: &str = "br0";
/// A node's only link, as it sees it.
const NODE_LINK: &str = "eth0";
const PREFIX_BITS: u8 = 24;
/// What a limited link may send at once, as time at its rate: below it the kernel's timer costs
/// rate, above it a message arrives faster than the link allows.
const BURST_S: f64 = 0.002;
/// The largest packet the kernel hands to a link in one piece must fit the burst.
const BURST_BYTES_MIN: u64 = 65_536 + 1_500;
/// What may wait at a limited link before packets are dropped, milliseconds at its rate.
const QUEUE_MS: u32 = 50;

/// Makes the bridge in this network namespace.
pub fn make_switch() -> Result<()> {
    ip(&[
        "link set lo up".to_owned(),
        format!("link add {BRIDGE} type bridge forward_delay 0"),
        format!("link set {BRIDGE} up"),
    ])
}

/// Lays a cable from the bridge here to the namespace of process `pid`, and limits what comes down.
pub fn connect(node: NodeId, pid: i32, rate: Option<Rate>) -> Result<()> {
    let link = switch_link(node);
    ip(&[
        format!("link add {link} type veth peer name {NODE_LINK} netns /proc/{pid}/ns/net"),
        format!("link set {link} master {BRIDGE} up"),
    ])?;
    limit(&link, rate)
}

/// Plugs a link of this namespace into the bridge.
pub fn plug(link: &str) -> Result<()> {
    ip(&[format!("link set {link} master {BRIDGE} up")])
}

/// Gives a link of this namespace an address of its own.
pub fn attend(link: &str, address: Ipv4Addr, prefix_bits: u8) -> Result<()> {
    ip(&[format!("addr add {address}/{prefix_bits} dev {link}"), format!("link set {link} up")])
}

/// Takes a link of this namespace down, or brings it up again.
pub fn set_link(link: &str, is_up: bool) -> Result<()> {
    ip(&[format!("link set {link} {}", if is_up { "up" } else { "down" })])
}

/// Brings up the network inside a node, and limits what goes up.
pub fn start_node(node: NodeId, rate: Option<Rate>) -> Result<()> {
    ip(&[
        "link set lo up".to_owned(),
        format!("addr add {}/{PREFIX_BITS} brd + dev {NODE_LINK}", address(node)),
        format!("link set {NODE_LINK} up"),
    ])?;
    limit(NODE_LINK, rate)
}

fn switch_link(node: NodeId) -> String {
    format!("node{node}")
}

fn limit(link: &str, rate: Option<Rate>) -> Result<()> {
    let Some(rate) = rate else { return Ok(()) };
    let burst = burst_bytes(rate);
    let line = format!(
        "qdisc add dev {link} root tbf rate {}bit burst {burst}b latency {QUEUE_MS}ms",
        rate.bits_per_s
    );
    iproute2("tc", &[line])
}

fn burst_bytes(rate: Rate) -> u64 {
    let bytes = rate.bits_per_s as f64 / 8.0 * BURST_S;
    (bytes as u64).max(BURST_BYTES_MIN)
}

fn ip(lines: &[String]) -> Result<()> {
    iproute2("ip", lines)
}

/// Says what has to be installed, before anything is made.
pub fn check_programs(has_rate: bool) -> Result<()> {
    let programs: &[&str] = if has_rate { &["ip", "tc"] } else { &["ip"] };
    for program in programs {
        let is_there = std::env::split_paths(&search_path()).any(|dir| dir.join(program).is_file());
        ensure!(is_there, "{}", missing(program));
    }
    Ok(())
}

fn missing(program: &str) -> String {
    format!("a lab needs the program `{program}`: install the package iproute2")
}

/// Ordinary users often lack the directories of `ip` and `tc` in their PATH.
pub(crate) fn search_path() -> String {
    std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin"
}

/// Runs several commands of `ip` or `tc` in one process.
fn iproute2(program: &str, lines: &[String]) -> Result<()> {
    feed(Command::new(program).args(["-batch", "-"]), &(lines.join("\n") + "\n"), &missing(program))
}

/// Runs a program that reads its orders from its standard input. `missing` is the complaint if it
/// is not there.
///
/// # Errors
/// If it fails, with what it says about it.
pub(crate) fn feed(command: &mut Command, orders: &str, missing: &str) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let spawned = command
        .env("PATH", search_path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("{missing}"),
        child => child.with_context(|| format!("cannot run `{program}`"))?,
    };
    // A program that ends early says why in its status and on its standard error.
    let written = match child.stdin.take() {
        Some(mut input) => input.write_all(orders.as_bytes()),
        None => Ok(()),
    };
    let output = child.wait_with_output().with_context(|| format!("lost `{program}`"))?;
    ensure!(
        output.status.success(),
        "`{program}` failed at `{}`: {}",
        orders.trim().replace('\n', "; "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    written.with_context(|| format!("`{program}` did not read its orders"))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_burst_holds_the_largest_packet_and_two_milliseconds() {
        let slow = burst_bytes(Rate { bits_per_s: 64_000 });
        assert_eq!(slow, BURST_BYTES_MIN);
        assert_eq!(burst_bytes(Rate { bits_per_s: 1_000_000_000 }), 250_000);
    }

    #[test]
    fn names_of_links_fit_the_kernel() {
        assert!(switch_link(NodeId(crate::spec::NODES_MAX)).len() < 16);
    }
}
