//! Gossip datagrams: sealed as a whole, so that they show nothing and only members can make them.
//!
//! Layout: a random 24-byte nonce, then XChaCha20-Poly1305 over sender, stamp and the brain's
//! bytes. (A random nonce of 24 bytes needs no counter that survives restarts.) A datagram that is
//! not newer than the last from its sender is dropped: late or played again, it is old news.

use crate::keys::{ClusterSecret, NoRandomness, random};
use crate::members::MEMBERS_MAX;
use chacha20poly1305::aead::{Aead, KeyInit};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use std::collections::BTreeMap;
use wire::ids::NodeId;
use wire::peer::GOSSIP_BYTES_MAX;

const NONCE_BYTES: usize = 24;
const HEAD_BYTES: usize = 12;
/// The largest sealed datagram.
pub const DATAGRAM_BYTES_MAX: usize =
    NONCE_BYTES + HEAD_BYTES + GOSSIP_BYTES_MAX + wire::secure::TAG_BYTES;

/// An opened datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gossip {
    pub from: NodeId,
    /// Grows from one datagram of a sender to the next.
    pub stamp: u64,
    pub bytes: Vec<u8>,
}

/// Seals and opens the datagrams of one cluster.
#[derive(Clone)]
pub struct Seal(XChaCha20Poly1305);

impl Seal {
    pub fn of(secret: &ClusterSecret) -> Seal {
        Seal(XChaCha20Poly1305::new(&secret.gossip_key().into()))
    }

    /// None if the brain's bytes are too many for a datagram.
    pub fn seal(&self, gossip: &Gossip) -> Result<Option<Vec<u8>>, NoRandomness> {
        if gossip.bytes.len() > GOSSIP_BYTES_MAX {
            return Ok(None);
        }
        let nonce: [u8; NONCE_BYTES] = random()?;
        let mut plain = Vec::with_capacity(HEAD_BYTES + gossip.bytes.len());
        plain.extend_from_slice(&gossip.from.0.to_le_bytes());
        plain.extend_from_slice(&gossip.stamp.to_le_bytes());
        plain.extend_from_slice(&gossip.bytes);
        let sealed = self.0.encrypt(XNonce::from_slice(&nonce), plain.as_slice());
        let sealed = sealed.expect("a datagram is far below the cipher's limit");
        Ok(Some([nonce.as_slice(), &sealed].concat()))
    }

    /// None if a member of this cluster did not make it.
    pub fn open(&self, datagram: &[u8]) -> Option<Gossip> {
        if datagram.len() > DATAGRAM_BYTES_MAX {
            return None;
        }
        let (nonce, sealed) = datagram.split_at_checked(NONCE_BYTES)?;
        let plain = self.0.decrypt(XNonce::from_slice(nonce), sealed).ok()?;
        let (from, rest) = plain.split_first_chunk::<4>()?;
        let (stamp, bytes) = rest.split_first_chunk::<8>()?;
        let from = NodeId(u32::from_le_bytes(*from));
        Some(Gossip { from, stamp: u64::from_le_bytes(*stamp), bytes: bytes.to_vec() })
    }
}

/// Senders that are remembered: as many as a cluster has members.
const SENDERS_MAX: usize = MEMBERS_MAX;

/// The newest datagram of each sender.
#[derive(Default)]
pub struct Newest(BTreeMap<NodeId, u64>);

impl Newest {
    /// 0 if nothing was heard of that sender.
    pub fn of(&self, sender: NodeId) -> u64 {
        self.0.get(&sender).copied().unwrap_or(0)
    }

    /// Numbers mean other nodes now.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// True if it is newer than all before it from that sender.
    pub fn is_new(&mut self, gossip: &Gossip) -> bool {
        // A member may name as many senders as there are numbers.
        if self.0.len() >= SENDERS_MAX && !self.0.contains_key(&gossip.from) {
            return false;
        }
        let newest = self.0.entry(gossip.from).or_insert(0);
        let is_new = gossip.stamp > *newest;
        *newest = gossip.stamp.max(*newest);
        is_new
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn gossip(stamp: u64) -> Gossip {
        Gossip { from: NodeId(3), stamp, bytes: b"load 2.5".to_vec() }
    }

    #[test]
    fn no_more_senders_are_remembered_than_a_cluster_has() {
        let mut newest = Newest::default();
        let of = |from| Gossip { from: NodeId(from), ..gossip(7) };
        assert!((1..=SENDERS_MAX as u32).all(|from| newest.is_new(&of(from))));
        assert!(!newest.is_new(&of(u32::MAX)) && newest.0.len() == SENDERS_MAX);
        assert!(newest.is_new(&Gossip { from: NodeId(1), ..gossip(8) }), "those go on");
    }

    #[test]
    fn a_member_opens_what_a_member_sealed() {
        let seal = Seal::of(&ClusterSecret([1; 32]));
        let datagram = seal.seal(&gossip(7)).unwrap().unwrap();
        assert_eq!(seal.open(&datagram), Some(gossip(7)));
        let clear = datagram.windows(4).any(|window| window == b"load");
        assert!(!clear, "nothing of it is readable");
    }

    #[test]
    fn strangers_and_altered_or_cut_datagrams_are_dropped() {
        let seal = Seal::of(&ClusterSecret([1; 32]));
        let datagram = seal.seal(&gossip(7)).unwrap().unwrap();
        assert_eq!(Seal::of(&ClusterSecret([2; 32])).open(&datagram), None);
        for index in 0..datagram.len() {
            assert_eq!(seal.open(&datagram[..index]), None);
            let mut altered = datagram.clone();
            altered[index] ^= 0x80;
            assert_eq!(seal.open(&altered), None);
        }
    }

    #[test]
    fn a_datagram_played_again_is_old_news() {
        let mut newest = Newest::default();
        assert!(newest.is_new(&gossip(7)));
        assert!(!newest.is_new(&gossip(7)));
        assert!(!newest.is_new(&gossip(6)));
        assert!(newest.is_new(&gossip(8)));
    }

    #[test]
    fn too_much_for_a_datagram_is_not_sealed() {
        let seal = Seal::of(&ClusterSecret([1; 32]));
        let bytes = vec![0; GOSSIP_BYTES_MAX];
        let fits = Gossip { from: NodeId(1), stamp: 1, bytes };
        assert_eq!(seal.seal(&fits).unwrap().unwrap().len(), DATAGRAM_BYTES_MAX);
        let bytes = vec![0; GOSSIP_BYTES_MAX + 1];
        assert_eq!(seal.seal(&Gossip { from: NodeId(1), stamp: 1, bytes }).unwrap(), None);
    }
}
