//! The node's sockets towards other nodes. Everything here runs in tasks of its own and tells the
//! daemon's one dispatcher what came; nothing here decides.

pub mod call;
pub mod gossip;
pub mod link;
pub mod listener;

use crate::keys::NodeSecret;
use crate::keys::seal::{Gossip, Seal};
use crate::keys::secrets::Secrets;
use std::time::{SystemTime, UNIX_EPOCH};

/// What proves that this node is itself and belongs to its cluster. Replaced when it joins another.
#[derive(Clone)]
pub struct Credentials {
    pub own: NodeSecret,
    pub link_key: [u8; 32],
    pub seal: Seal,
    secrets: Secrets,
}

impl Credentials {
    pub fn of(own: NodeSecret, secrets: Secrets) -> Credentials {
        let (link_key, seal) = (secrets.current.link_key(), Seal::of(&secrets.current));
        Credentials { own, link_key, seal, secrets }
    }

    /// Keys that a member may call with which was away when the secret was renewed.
    pub fn old_link_keys(&self) -> Vec<[u8; 32]> {
        self.secrets.old(wall_clock_s()).map(|old| old.link_key()).collect()
    }

    /// None if a member of this cluster did not make it.
    pub fn open(&self, datagram: &[u8]) -> Option<Gossip> {
        self.seal.open(datagram).or_else(|| {
            let mut old = self.secrets.old_of_gossip(wall_clock_s());
            old.find_map(|secret| Seal::of(&secret).open(datagram))
        })
    }
}

/// Seconds since the epoch.
pub fn wall_clock_s() -> u64 {
    wall_clock_ns() / 1_000_000_000
}

/// Nanoseconds since the epoch.
pub fn wall_clock_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
