//! `token`, `join`, `down` and `status`: this node and its cluster.

use crate::output;
use anyhow::Result;
use client::Client;
use wire::control::{Reply, Request, Status};

use super::unexpected;

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

pub fn down(client: &mut Client) -> Result<()> {
    match client.request(&Request::Down)? {
        Reply::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
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
    }
    Ok(())
}

fn sentence(status: &Status) -> String {
    let nodes = if status.nodes == 1 { "node" } else { "nodes" };
    output::printable(&format!(
        "node {} at {}: daemon pid {}, version {}, up for {}, in a cluster of {} {nodes}",
        status.node,
        status.address,
        status.daemon_pid,
        status.version,
        output::seconds(status.uptime_s),
        status.nodes
    ))
}
