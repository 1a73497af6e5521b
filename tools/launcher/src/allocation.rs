//! How many ranks begin where. Who says that there is to be one on each node has it so; else the
//! brain of this node's daemon spreads them.

use anyhow::{Result, bail, ensure};
use client::Client;
use wire::control::{Reply, Request};
use wire::ids::NodeId;
use wire::jobs::{JOB_NODES_MAX, RANKS_MAX};
use wire::users::Borrowers;

/// What was said of it.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    pub ranks: Option<u32>,
    pub per_node: Option<u32>,
    pub nodes: Option<&'a Borrowers>,
}

/// In the order of the nodes' numbers, ranks following each other; none without any.
pub fn allocate(client: &mut Client, me: NodeId, wanted: &Wanted) -> Result<Vec<(NodeId, u32)>> {
    let Wanted { ranks, per_node, nodes } = wanted;
    if nodes.is_none() && per_node.is_none() {
        return Ok(vec![(me, check(ranks.unwrap_or(1))?)]);
    }
    let nodes = match nodes {
        None | Some(Borrowers::All) => open(client, me)?,
        Some(Borrowers::Only(nodes)) => nodes.clone(),
    };
    ensure!(!nodes.is_empty(), "no node was named");
    ensure!(nodes.len() <= JOB_NODES_MAX, "a job has {JOB_NODES_MAX} nodes at most");
    let (ranks, per_node) = match (ranks, per_node) {
        (None, each) => {
            let each = each.unwrap_or(1);
            let all = u64::from(each) * nodes.len() as u64;
            (u32::try_from(all).unwrap_or(u32::MAX), Some(each))
        }
        (Some(ranks), per_node) => (*ranks, *per_node),
    };
    let request = Request::Spread { ranks: check(ranks)?, per_node, nodes };
    match client.request(&request)? {
        Reply::Spread { nodes } => {
            let sum: u64 = nodes.iter().map(|(_, count)| u64::from(*count)).sum();
            ensure!(sum == u64::from(ranks), "the daemon spread {sum} ranks, not {ranks}");
            Ok(nodes.into_iter().filter(|(_, count)| *count > 0).collect())
        }
        other => bail!("the daemon answered {other:?}: is it of another version?"),
    }
}

fn check(ranks: u32) -> Result<u32> {
    ensure!((1..=RANKS_MAX).contains(&ranks), "a job has 1 to {RANKS_MAX} ranks, not {ranks}");
    Ok(ranks)
}

/// Those that are there, but for the ones whose owners have nothing come.
fn open(client: &mut Client, me: NodeId) -> Result<Vec<NodeId>> {
    let nodes = client.nodes()?.into_iter();
    let open = nodes.filter(|of| of.status == "alive" && (of.takes_guests || of.id == me));
    Ok(open.map(|node| node.id).collect())
}
