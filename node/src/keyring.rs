//! What this node proves itself with, and what it has heard that was proved to it: the cluster's
//! secret, its own key, the stamps that it gives, and the newest stamps of others.
//!
//! The tasks that listen and call go by what they are shown ([`Credentials`]), not by what is here:
//! so a renewed secret can be put on the disk before anybody is told it. A call or a datagram
//! counts once ([`crate::keys::replay`]); calls are kept on the disk, datagrams are not.

use crate::call_record::CallRecord;
use crate::keys::replay::Replay;
use crate::keys::secrets::Secrets;
use crate::keys::stamps::Stamps;
use crate::keys::{ClusterSecret, NoRandomness, NodeSecret};
use crate::net::Credentials;
use crate::net::gossip::Heard;
use std::sync::Arc;
use tokio::sync::{oneshot, watch};
use wire::ids::NodeId;
use wire::peer::NodeKey;

/// What a secret is that another member has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Known,
    /// One that others may still call with.
    Old,
    /// The one that holds from now on.
    New,
}

pub struct Keyring {
    secrets: Secrets,
    shown: watch::Sender<Credentials>,
    stamps: Stamps,
    /// The newest call of each caller.
    calls: Replay,
    record: CallRecord,
    heard: Arc<Heard>,
}

impl Keyring {
    /// `shown`: with this node's key and these secrets.
    pub fn new(
        secrets: Secrets,
        shown: watch::Sender<Credentials>,
        stamps: Stamps,
        (calls, record): (Replay, CallRecord),
        heard: Arc<Heard>,
    ) -> Keyring {
        Keyring { secrets, shown, stamps, calls, record, heard }
    }

    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// What members tell each other of the secret that holds: its generation, and itself.
    pub fn secret(&self) -> (u64, [u8; 32]) {
        (self.secrets.generation, self.secrets.current.0)
    }

    /// By which users see whether nodes are in the same cluster.
    pub fn cluster_name(&self) -> String {
        self.secrets.current.name()
    }

    /// What calls and datagrams are made with. Not to be held for long: it locks.
    pub fn credentials(&self) -> watch::Ref<'_, Credentials> {
        self.shown.borrow()
    }

    /// Makes another secret, which nobody is shown yet. Returns those before.
    pub fn renew(&mut self, now_s: u64) -> Result<Secrets, NoRandomness> {
        let mut renewed = self.secrets.clone();
        renewed.renew(now_s)?;
        Ok(std::mem::replace(&mut self.secrets, renewed))
    }

    /// What was renewed could not be kept.
    pub fn put_back(&mut self, before: Secrets) {
        self.secrets = before;
    }

    /// Another member says what the secret is. Nobody is shown that yet.
    pub fn hear(&mut self, now_s: u64, generation: u64, secret: ClusterSecret) -> Told {
        let before = self.secrets.clone();
        let is_new = self.secrets.heard(now_s, generation, secret);
        match self.secrets == before {
            true => Told::Known,
            false if is_new => Told::New,
            false => Told::Old,
        }
    }

    /// From here on calls are made and taken with the secret that holds.
    pub fn show(&self) {
        let own = self.credentials().own.clone();
        self.shown.send_replace(Credentials::of(own, self.secrets.clone()));
    }

    /// This node, with the key that it has, belongs to another cluster now.
    pub fn join(&mut self, secret: ClusterSecret) {
        self.secrets = Secrets::first(secret);
        self.show();
    }

    /// Another node now, in a cluster of its own. Numbers mean other nodes from here on.
    pub fn begin_anew(&mut self, own: NodeSecret, secret: ClusterSecret) {
        self.secrets = Secrets::first(secret);
        self.shown.send_replace(Credentials::of(own, self.secrets.clone()));
        self.heard.clear();
    }

    /// Later than all that this node has ever stamped.
    pub fn stamp(&self) -> u64 {
        self.stamps.next()
    }

    /// Somebody has heard this stamp of this node.
    pub fn stamp_heard(&self, newest_ns: u64) {
        self.stamps.heard(newest_ns);
    }

    /// None if the call, or a later one, was heard before. Else it must not be answered before that
    /// says that it is kept.
    pub fn take_call(&mut self, caller: NodeKey, sent_ns: u64) -> Option<oneshot::Receiver<()>> {
        let is_new = self.calls.is_new(caller, sent_ns);
        is_new.then(|| self.record.keep(&self.calls))
    }

    /// The newest stamp of a node, of calls and datagrams.
    pub fn newest_of(&self, node: NodeId, key: NodeKey) -> u64 {
        self.calls.newest_of(key).max(self.heard.newest_of(node))
    }

    /// Datagrams that no member had made, or that were old news.
    pub fn datagrams_dropped(&self) -> u64 {
        self.heard.dropped()
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::keys::seal::Gossip;
    use crate::net::wall_clock_s;

    const FIRST: ClusterSecret = ClusterSecret([5; 32]);
    const ANNA: NodeKey = NodeKey([1; 32]);

    fn keyring() -> (Keyring, watch::Receiver<Credentials>) {
        let own = NodeSecret([7; 32]);
        let secrets = Secrets::first(FIRST);
        let (shown, seen) = watch::channel(Credentials::of(own, secrets.clone()));
        let stamps = Stamps::start(None, |_| Ok(())).unwrap();
        let record = CallRecord::start(|_: &Replay| Ok(())).unwrap();
        let calls = (Replay::default(), record);
        (Keyring::new(secrets, shown, stamps, calls, Arc::default()), seen)
    }

    #[test]
    fn a_renewed_secret_is_shown_when_that_is_said_and_can_be_put_back() {
        let (mut keyring, seen) = keyring();
        let before = keyring.renew(wall_clock_s()).unwrap();
        assert_eq!(keyring.secret().0, 1);
        assert!(seen.borrow().link_key == FIRST.link_key(), "it is not on the disk yet");
        keyring.put_back(before);
        assert_eq!(keyring.secret(), (0, FIRST.0));
        keyring.renew(wall_clock_s()).unwrap();
        keyring.show();
        assert!(seen.borrow().link_key == ClusterSecret(keyring.secret().1).link_key());
        assert!(seen.borrow().own == NodeSecret([7; 32]), "the own key is as before");
        assert_eq!(seen.borrow().old_link_keys().len(), 1);
    }

    #[test]
    fn of_two_secrets_the_later_one_holds_and_the_other_is_known() {
        let (mut keyring, _seen) = keyring();
        let [small, large] = [[1; 32], [9; 32]];
        assert_eq!(keyring.hear(100, 0, FIRST), Told::Known);
        assert_eq!(keyring.hear(100, 1, ClusterSecret(large)), Told::New);
        assert_eq!(keyring.hear(100, 1, ClusterSecret(large)), Told::Known);
        assert_eq!(keyring.hear(100, 1, ClusterSecret(small)), Told::Old, "made at the same time");
        assert_eq!(keyring.secret(), (1, large));
    }

    #[test]
    fn a_call_counts_once_and_whoever_calls_is_told_of_all_that_was_heard_of_it() {
        let (mut keyring, _seen) = keyring();
        keyring.take_call(ANNA, 10).unwrap().blocking_recv().unwrap();
        assert!(keyring.take_call(ANNA, 10).is_none());
        let gossip = |stamp| Gossip { from: NodeId(3), stamp, bytes: Vec::new() };
        assert_eq!(keyring.newest_of(NodeId(3), ANNA), 10);
        assert!(keyring.heard.take(Some(gossip(12))).is_some());
        assert_eq!(keyring.newest_of(NodeId(3), ANNA), 12);
        assert!(keyring.heard.take(Some(gossip(11))).is_none());
        assert!(keyring.heard.take(None).is_none());
        assert_eq!(keyring.datagrams_dropped(), 2);
    }

    #[test]
    fn in_another_cluster_numbers_mean_other_nodes() {
        let (mut keyring, seen) = keyring();
        keyring.join(ClusterSecret([6; 32]));
        assert!(seen.borrow().own == NodeSecret([7; 32]), "it is the same node");
        let gossip = Gossip { from: NodeId(3), stamp: 12, bytes: Vec::new() };
        assert!(keyring.heard.take(Some(gossip)).is_some());
        keyring.begin_anew(NodeSecret([8; 32]), FIRST);
        assert!(seen.borrow().own == NodeSecret([8; 32]));
        assert!(seen.borrow().link_key == FIRST.link_key());
        assert_eq!(keyring.newest_of(NodeId(3), ANNA), 0);
    }
}
