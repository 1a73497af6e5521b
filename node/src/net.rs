//! The node's sockets towards other nodes. Everything here runs in tasks of its own and tells the
//! daemon's one dispatcher what came; nothing here decides.

pub mod call;
pub mod gossip;
pub mod link;
pub mod listener;

use crate::keys::NodeSecret;
use crate::keys::seal::Seal;
use std::time::{SystemTime, UNIX_EPOCH};

/// What proves that this node is itself and belongs to its cluster. Replaced when it joins another.
#[derive(Clone)]
pub struct Credentials {
    pub own: NodeSecret,
    pub link_key: [u8; 32],
    pub seal: Seal,
}

/// Nanoseconds since the epoch: stamps of calls and datagrams.
pub fn wall_clock_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
