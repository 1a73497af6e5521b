//! A node's keys. What each is for and who holds it:
//!
//! | key | holders | proves |
//! |---|---|---|
//! | [`NodeSecret`] (x25519) | one node | which node it is |
//! | [`ClusterSecret`] (32 bytes) | every node of the cluster | that it is a node of the cluster |
//! | token secret ([`token`]) | one node and whoever was handed the token | may join, once |
//!
//! Both the first two are needed to be answered at all. See `docs/decisions/0003-node-links.md`.

pub mod handshake;
pub mod replay;
pub mod seal;
pub mod secrets;
pub mod stamps;
pub mod token;

use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use std::fmt;
use wire::ids::NodeId;
use wire::peer::NodeKey;

/// The operating system gave no random bytes; nothing secret can be made without.
#[derive(Debug, thiserror::Error)]
#[error("the kernel gives no random bytes: {0}")]
pub struct NoRandomness(getrandom::Error);

/// Random bytes for keys and tickets.
pub fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(NoRandomness)?;
    Ok(bytes)
}

/// The secret half of a node's static key.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeSecret(pub [u8; 32]);

/// What all nodes of one cluster share.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret(pub [u8; 32]);

impl fmt::Debug for NodeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeSecret")
    }
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret")
    }
}

impl NodeSecret {
    pub fn generate() -> Result<NodeSecret, NoRandomness> {
        random().map(NodeSecret)
    }

    pub fn public(&self) -> NodeKey {
        let mut dh = DefaultResolver
            .resolve_dh(&DHChoice::Curve25519)
            .expect("the default resolver has Curve25519");
        dh.set(&self.0);
        let mut key = [0; 32];
        key.copy_from_slice(dh.pubkey());
        NodeKey(key)
    }
}

impl ClusterSecret {
    pub fn generate() -> Result<ClusterSecret, NoRandomness> {
        random().map(ClusterSecret)
    }

    /// The secret of a cluster whose nodes share a key file.
    pub fn of_key_file(content: &[u8]) -> ClusterSecret {
        ClusterSecret(blake3::derive_key("osmos 2025 cluster secret from key file", content))
    }

    /// What nodes of the same cluster say of it, and which tells nobody the secret.
    pub fn name(&self) -> String {
        let hash = blake3::derive_key("osmos 2026 cluster name", &self.0);
        hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The static key of one node of a cluster whose nodes share a key file: every node can work
    /// out all of them, so the first call already knows whom it calls.
    pub fn node_of_map(&self, node: NodeId) -> NodeSecret {
        let mut hasher = blake3::Hasher::new_derive_key("osmos 2025 node key of map cluster");
        hasher.update(&self.0).update(&node.0.to_le_bytes());
        NodeSecret(*hasher.finalize().as_bytes())
    }

    /// The pre-shared key of links between members.
    pub fn link_key(&self) -> [u8; 32] {
        blake3::derive_key("osmos 2025 peer link", &self.0)
    }

    /// The key of gossip datagrams.
    pub fn gossip_key(&self) -> [u8; 32] {
        blake3::derive_key("osmos 2025 gossip datagram", &self.0)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn nodes_of_a_map_cluster_know_each_others_keys_without_meeting() {
        let here = ClusterSecret::of_key_file(b"the same file on every node");
        let there = ClusterSecret::of_key_file(b"the same file on every node");
        let key = here.node_of_map(NodeId(2)).public();
        assert_eq!(key, there.node_of_map(NodeId(2)).public());
        assert_ne!(key, there.node_of_map(NodeId(3)).public());
        let stranger = ClusterSecret::of_key_file(b"another file, another cluster");
        assert_ne!(key, stranger.node_of_map(NodeId(2)).public());
    }

    #[test]
    fn keys_for_different_purposes_differ() {
        let secret = ClusterSecret::generate().unwrap();
        assert_ne!(secret.link_key(), secret.gossip_key());
        assert_ne!(secret.link_key(), secret.0);
    }

    #[test]
    fn secrets_do_not_print_themselves() {
        assert_eq!(format!("{:?}", ClusterSecret([7; 32])), "ClusterSecret");
        assert_eq!(format!("{:?}", NodeSecret([7; 32])), "NodeSecret");
    }
}
