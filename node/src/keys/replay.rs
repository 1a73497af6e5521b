//! Refuses a call that was made before: each caller's time stamps must grow.
//!
//! The newest stamp of each key is kept on disk by the node, so that a restart does not open the
//! door to old recordings. A node's own stamps grow even if its clock is set back
//! ([`super::stamps`]).

use std::collections::BTreeMap;
use wire::peer::NodeKey;

/// Keys remembered at most; only holders of the cluster's key ever get this far.
const CALLERS_MAX: usize = 65_536;

/// The newest call of each caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    newest_ns: BTreeMap<NodeKey, u64>,
}

impl Replay {
    pub fn restore(newest_ns: impl IntoIterator<Item = (NodeKey, u64)>) -> Replay {
        Replay { newest_ns: newest_ns.into_iter().take(CALLERS_MAX).collect() }
    }

    pub fn newest(&self) -> impl Iterator<Item = (NodeKey, u64)> + '_ {
        self.newest_ns.iter().map(|(key, sent_ns)| (*key, *sent_ns))
    }

    /// The newest stamp of one caller; 0 if it has never called.
    pub fn newest_of(&self, caller: NodeKey) -> u64 {
        self.newest_ns.get(&caller).copied().unwrap_or(0)
    }

    /// True once for each stamp of a caller, and only if it is newer than all before it.
    pub fn is_new(&mut self, caller: NodeKey, sent_ns: u64) -> bool {
        if self.newest_ns.len() >= CALLERS_MAX && !self.newest_ns.contains_key(&caller) {
            return false;
        }
        let newest = self.newest_ns.entry(caller).or_insert(0);
        let is_new = sent_ns > *newest;
        *newest = sent_ns.max(*newest);
        is_new
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const ANNA: NodeKey = NodeKey([1; 32]);
    const BERT: NodeKey = NodeKey([2; 32]);

    #[test]
    fn a_call_is_new_once() {
        let mut replay = Replay::default();
        assert!(replay.is_new(ANNA, 10));
        assert!(!replay.is_new(ANNA, 10));
        assert!(!replay.is_new(ANNA, 9));
        assert!(replay.is_new(ANNA, 11));
    }

    #[test]
    fn callers_do_not_affect_each_other() {
        let mut replay = Replay::default();
        assert!(replay.is_new(ANNA, 10));
        assert!(replay.is_new(BERT, 5));
    }

    #[test]
    fn a_restart_does_not_make_an_old_call_new() {
        let mut replay = Replay::default();
        assert!(replay.is_new(ANNA, 10));
        let mut restored = Replay::restore(replay.newest());
        assert!(!restored.is_new(ANNA, 10));
    }
}
