//! The cluster's secret, and those before it.
//!
//! A secret is renewed by one member and told to all others over their links, each of which has
//! proved to be a member. Of two secrets the one of the later generation holds; of two of one
//! generation, made by nodes that did not hear each other, the one that is larger: so all come to
//! the same one, whatever they hear first.
//!
//! A node that was down meanwhile calls with the old one. For [`OLD_LIFE_S`] it is heard with that
//! if it is a known member by its own key, and told the new one; whoever was forgotten is not.
//! Gossip under an old secret is heard for a minute only: any holder could make it.

use crate::keys::{ClusterSecret, NoRandomness};
use serde::{Deserialize, Serialize};

/// How long a member may come back with an old secret.
pub const OLD_LIFE_S: u64 = 30 * 24 * 3600;
/// How long gossip under an old one is heard.
pub const GOSSIP_LIFE_S: u64 = 60;
/// Old secrets that are kept.
const OLD_MAX: usize = 4;

/// One that was replaced, and when: seconds since the epoch.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Old {
    secret: [u8; 32],
    replaced_s: u64,
}

/// The latest old one first.
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets {
    pub current: ClusterSecret,
    pub generation: u64,
    old: Vec<Old>,
}

/// As it is kept on the disk.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Kept {
    generation: u64,
    old: Vec<Old>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets of generation {}", self.generation)
    }
}

impl Secrets {
    pub fn first(current: ClusterSecret) -> Secrets {
        Secrets { current, generation: 0, old: Vec::new() }
    }

    pub fn restore(current: ClusterSecret, kept: Kept) -> Secrets {
        let Kept { generation, mut old } = kept;
        old.truncate(OLD_MAX);
        Secrets { current, generation, old }
    }

    pub fn kept(&self) -> Kept {
        Kept { generation: self.generation, old: self.old.clone() }
    }

    /// Those that a member may still call with.
    pub fn old(&self, now_s: u64) -> impl Iterator<Item = ClusterSecret> + '_ {
        self.replaced_within(now_s, OLD_LIFE_S)
    }

    /// Those whose gossip is still heard.
    pub fn old_of_gossip(&self, now_s: u64) -> impl Iterator<Item = ClusterSecret> + '_ {
        self.replaced_within(now_s, GOSSIP_LIFE_S)
    }

    fn replaced_within(&self, now_s: u64, life_s: u64) -> impl Iterator<Item = ClusterSecret> + '_ {
        // A clock that was set back makes none of them young again for ever: they are few.
        let is_young = move |old: &&Old| now_s.saturating_sub(old.replaced_s) < life_s;
        self.old.iter().filter(is_young).map(|old| ClusterSecret(old.secret))
    }

    /// Another one, from now on.
    pub fn renew(&mut self, now_s: u64) -> Result<(), NoRandomness> {
        let secret = ClusterSecret::generate()?;
        self.heard(now_s, self.generation.saturating_add(1), secret);
        Ok(())
    }

    /// What another member says the secret is. True if that is news.
    pub fn heard(&mut self, now_s: u64, generation: u64, secret: ClusterSecret) -> bool {
        if secret == self.current {
            self.generation = generation.max(self.generation);
            return false;
        }
        let is_later = (generation, secret.0) > (self.generation, self.current.0);
        let replaced = match is_later {
            true => std::mem::replace(&mut self.current, secret),
            false => secret,
        };
        if is_later {
            self.generation = generation;
        }
        // Of the same generation as the one that holds: nodes that have it are on their way here.
        if is_later || generation == self.generation {
            self.old.retain(|old| old.secret != replaced.0);
            self.old.insert(0, Old { secret: replaced.0, replaced_s: now_s });
            self.old.truncate(OLD_MAX);
        }
        is_later
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const DAY_S: u64 = 24 * 3600;

    fn first() -> Secrets {
        Secrets::first(ClusterSecret([1; 32]))
    }

    #[test]
    fn an_old_secret_is_good_for_a_while_and_no_longer() {
        let mut secrets = first();
        secrets.renew(1_000).unwrap();
        assert!(secrets.current != ClusterSecret([1; 32]) && secrets.generation == 1);
        let is_old = |now_s| secrets.old(now_s).any(|old| old == ClusterSecret([1; 32]));
        assert!(is_old(1_000) && is_old(1_000 + 29 * DAY_S) && !is_old(1_000 + 30 * DAY_S));
        assert_eq!(secrets.old_of_gossip(1_059).count(), 1);
        assert_eq!(secrets.old_of_gossip(1_060).count(), 0);
    }

    #[test]
    fn two_that_renewed_without_hearing_each_other_come_to_one_secret() {
        let (mut anna, mut bert) = (first(), first());
        anna.renew(5).unwrap();
        bert.renew(5).unwrap();
        let (of_anna, of_bert) = (anna.current.clone(), bert.current.clone());
        let news = [anna.heard(6, 1, of_bert.clone()), bert.heard(6, 1, of_anna.clone())];
        assert!(news[0] != news[1], "one of them is right");
        assert!(anna.current == bert.current);
        let loser = if anna.current == of_anna { of_bert } else { of_anna };
        for secrets in [anna, bert] {
            assert!(secrets.old(7).any(|old| old == loser), "others may still have it");
        }
    }

    #[test]
    fn an_earlier_secret_is_no_news_and_many_renewals_fill_no_memory() {
        let mut secrets = first();
        for second in 0..50 {
            secrets.renew(second).unwrap();
        }
        let now = secrets.current.clone();
        assert!(!secrets.heard(60, 3, ClusterSecret([255; 32])));
        assert!(secrets.current == now && secrets.old(60).count() == OLD_MAX);
        let restored = Secrets::restore(now, secrets.kept());
        assert!(restored == secrets);
    }
}
