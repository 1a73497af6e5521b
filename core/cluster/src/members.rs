//! Who belongs to the cluster, what is known of each, and who seems to be alive.
//!
//! Membership itself is told by the daemon, which knows the addresses; entries about other nodes
//! are ignored, so a datagram cannot make this table grow. Liveness is judged by silence: any newer
//! entry about a node, from wherever it was relayed, is evidence of life. As the age of relayed
//! news grows with the cluster (Amar, Barak, Drezner and Okun 2009), so does the patience; and a
//! node silent for half of it is asked directly before it is doubted.

use crate::condition::{Condition, Entry};
use crate::config::Config;
use crate::random::Random;
use crate::time::{Span, Time};
use std::collections::BTreeMap;
use std::fmt;
use wire::ids::NodeId;

/// What is believed of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    Alive,
    /// Silent for too long: no new moves to it, but nothing is given up.
    Suspect,
    /// Silent for so long that it counts as lost.
    Gone,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Alive => "alive",
            Status::Suspect => "suspect",
            Status::Gone => "gone",
        })
    }
}

/// A node that refused is not asked again for a while, and ever longer.
#[derive(Clone, Copy, Debug)]
struct Exclusion {
    until: Time,
    length: Span,
    /// Its load when it refused: well below that, the reason has gone. Negative infinity if load
    /// was not the reason.
    runnable_then: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub status: Status,
    entry: Option<Entry>,
    /// The newest evidence of life.
    alive_at: Time,
    /// When a datagram of its own last arrived.
    heard_at: Option<Time>,
    /// Of its newest datagram: the life it was sent in and its number.
    last_sequence: (u32, u32),
    probed_at: Option<Time>,
    exclusion: Option<Exclusion>,
}

impl Member {
    pub fn entry(&self) -> Option<Entry> {
        self.entry
    }

    /// What is known of it, with the age of that knowledge.
    pub fn known(&self, now: Time) -> Option<(Condition, Span)> {
        let entry = self.entry?;
        Some((entry.condition?, now.since(entry.at)))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Members {
    others: BTreeMap<NodeId, Member>,
}

/// How much younger relayed news may look than it is.
const RELAY_SKEW: Span = Span::from_millis(50);
/// Direct questions to silent nodes in one round.
const PROBES_MAX: usize = 2;

impl Members {
    /// False if the node is known already or there are too many.
    pub fn join(&mut self, now: Time, node: NodeId, config: &Config) -> bool {
        if self.others.contains_key(&node) || self.others.len() >= config.members_max {
            return false;
        }
        let member = Member {
            status: Status::Alive,
            entry: None,
            alive_at: now,
            heard_at: None,
            last_sequence: (0, 0),
            probed_at: None,
            exclusion: None,
        };
        self.others.insert(node, member);
        true
    }

    pub fn leave(&mut self, node: NodeId) -> bool {
        self.others.remove(&node).is_some()
    }

    pub fn get(&self, node: NodeId) -> Option<&Member> {
        self.others.get(&node)
    }

    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        self.others.iter().map(|(node, member)| (*node, member))
    }

    pub fn count(&self) -> usize {
        self.others.len()
    }

    /// Takes in an entry. `sequence`: it is about the node that sent it, in that datagram. Returns
    /// whether the node was thought to be silent and is alive after all.
    pub fn learn(&mut self, now: Time, entry: Entry, sequence: Option<u32>) -> bool {
        let Some(member) = self.others.get_mut(&entry.node) else { return false };
        let is_news = match (sequence, &member.entry) {
            (Some(sequence), _) => {
                member.heard_at = Some(now);
                let order = (entry.incarnation, sequence);
                let is_latest = order > member.last_sequence;
                member.last_sequence = member.last_sequence.max(order);
                is_latest
            }
            (None, None) => true,
            // Time on the way makes relayed news look younger than it is.
            (None, Some(known)) => {
                Entry { at: entry.at - RELAY_SKEW, ..entry }.is_newer_than(known)
            }
        };
        if !is_news {
            return false;
        }
        member.entry = Some(entry);
        member.alive_at = member.alive_at.max(entry.at);
        if let (Some(exclusion), Some(condition)) = (member.exclusion, entry.condition)
            && condition.runnable + 0.5 <= exclusion.runnable_then
        {
            member.exclusion = None;
        }
        let fresh = sequence.is_some() || member.silence(now) < Span::from_secs(1);
        let revived = fresh && member.status != Status::Alive;
        if revived {
            member.status = Status::Alive;
        }
        revived
    }

    /// Silence after which a node is suspect: for small clusters what the configuration says, and
    /// about half of the greatest age that gossip lets an entry reach, (n / w) ln n. That is
    /// enough, since the silent are asked directly well before.
    pub fn patience(&self, config: &Config) -> Span {
        let nodes = self.others.len() as u64 + 1;
        let log2 = u64::from(nodes.ilog2());
        let window = config.window.max(1) as u64;
        config.suspect_after + Span(config.tick.0 * nodes * log2 / (2 * window))
    }

    /// Downgrades the silent; returns whose status changed.
    pub fn doubt(&mut self, now: Time, config: &Config) -> Vec<(NodeId, Status)> {
        let suspect_after = self.patience(config);
        let gone_after = suspect_after + config.gone_after;
        let mut changed = Vec::new();
        for (node, member) in &mut self.others {
            let silence = member.silence(now);
            let status = if silence >= gone_after {
                Status::Gone
            } else if silence >= suspect_after {
                Status::Suspect
            } else {
                Status::Alive
            };
            if status > member.status {
                member.status = status;
                changed.push((*node, status));
            }
        }
        changed
    }

    /// The silent nodes to ask directly in this round, the least recently asked first.
    pub fn probe(&mut self, now: Time, config: &Config) -> Vec<NodeId> {
        let quiet = Span(self.patience(config).0 / 2);
        let mut silent: Vec<(Option<Time>, NodeId)> = self
            .iter()
            .filter(|(_, member)| member.status != Status::Gone && member.silence(now) >= quiet)
            .map(|(node, member)| (member.probed_at, node))
            .collect();
        silent.sort_unstable();
        silent.truncate(PROBES_MAX);
        for (_, node) in &silent {
            if let Some(member) = self.others.get_mut(node) {
                member.probed_at = Some(now);
            }
        }
        silent.into_iter().map(|(_, node)| node).collect()
    }

    /// The two nodes to tell in this round: one heard of recently, one of all. One round in
    /// max(5, alive) even the lost may be told, so that a healed partition is noticed.
    pub fn listeners(&self, now: Time, random: &mut Random, config: &Config) -> Vec<NodeId> {
        let heard = |member: &Member| {
            let age = member.heard_at.map(|at| now.since(at));
            age.is_some_and(|age| age <= config.useful_age_max)
        };
        let recent: Vec<NodeId> =
            self.iter().filter(|(_, member)| heard(member)).map(|(node, _)| node).collect();
        let present: Vec<NodeId> = self
            .iter()
            .filter(|(_, member)| member.status != Status::Gone)
            .map(|(node, _)| node)
            .collect();
        let all: Vec<NodeId> = self.others.keys().copied().collect();
        let even_the_lost = present.is_empty() || random.below(present.len().max(5) as u64) == 0;
        let first = random.pick(&recent);
        let mut others = if even_the_lost { all } else { present };
        others.retain(|node| Some(*node) != first);
        first.into_iter().chain(random.pick(&others)).collect()
    }

    /// The newest entries held: what gossip carries on.
    pub fn window(&self, size: usize) -> Vec<Entry> {
        let mut newest: Vec<Entry> = Vec::with_capacity(size + 1);
        for entry in self.others.values().filter_map(|member| member.entry) {
            let place = newest.partition_point(|kept| kept.at >= entry.at);
            if place < size {
                newest.insert(place, entry);
                newest.truncate(size);
            }
        }
        newest
    }

    /// Nodes whose condition is known well enough to act on.
    pub fn useful<'a>(
        &'a self,
        now: Time,
        config: &'a Config,
    ) -> impl Iterator<Item = (NodeId, Condition, Span)> + 'a {
        self.iter().filter(|(_, member)| member.status == Status::Alive).filter_map(
            move |(node, member)| {
                let (condition, age) = member.known(now)?;
                (age <= config.useful_age_max).then_some((node, condition, age))
            },
        )
    }

    /// It refused: not asked again for a while, twice as long as the last time.
    pub fn exclude(&mut self, now: Time, node: NodeId, random: &mut Random, config: &Config) {
        let last = self.others.get(&node).and_then(|member| member.exclusion);
        let length = match last {
            Some(last) => (last.length * 2).min(config.exclusion_max),
            None => config.exclusion,
        };
        let known = self.others.get(&node).and_then(|member| member.entry?.condition);
        self.exclude_for(now, node, length, known.map_or(0.0, |c| c.runnable), random);
    }

    /// Moves to it fail: twice as long as the last time, whatever its load.
    pub fn exclude_failed(
        &mut self,
        now: Time,
        node: NodeId,
        random: &mut Random,
        config: &Config,
    ) {
        self.exclude(now, node, random, config);
        if let Some(exclusion) = self.others.get_mut(&node).and_then(|m| m.exclusion.as_mut()) {
            exclusion.runnable_then = f64::NEG_INFINITY;
        }
    }

    /// It did not answer: lost messages are no reason for a growing distance.
    pub fn exclude_deaf(&mut self, now: Time, node: NodeId, random: &mut Random, config: &Config) {
        self.exclude_for(now, node, config.exclusion, f64::NEG_INFINITY, random);
    }

    fn exclude_for(
        &mut self,
        now: Time,
        node: NodeId,
        length: Span,
        runnable_then: f64,
        random: &mut Random,
    ) {
        let Some(member) = self.others.get_mut(&node) else { return };
        // Up to half as long again, so that those refused together do not come back together.
        let until = now + length + Span(random.below(length.0 / 2));
        member.exclusion = Some(Exclusion { until, length, runnable_then });
    }

    /// A move to it succeeded.
    pub fn include(&mut self, node: NodeId) {
        if let Some(member) = self.others.get_mut(&node) {
            member.exclusion = None;
        }
    }

    pub fn is_excluded(&self, now: Time, node: NodeId) -> bool {
        let exclusion = self.others.get(&node).and_then(|member| member.exclusion);
        exclusion.is_some_and(|exclusion| exclusion.until > now)
    }
}

impl Member {
    fn silence(&self, now: Time) -> Span {
        now.since(self.alive_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(2);

    fn entry(at: Time, runnable: f64) -> Entry {
        let condition = Condition {
            cores: 1,
            speed: 1.0,
            runnable,
            memory_total_bytes: 0,
            memory_free_bytes: 0,
        };
        Entry { node: NODE, incarnation: 1, at, condition: Some(condition) }
    }

    fn runnable(members: &Members, now: Time) -> f64 {
        members.get(NODE).and_then(|member| member.known(now)).expect("is known").0.runnable
    }

    #[test]
    fn news_that_was_overtaken_or_took_a_detour_does_not_replace_newer() {
        let config = Config::default();
        let now = Time::from_micros(10_000_000);
        let mut members = Members::default();
        assert!(members.join(now, NODE, &config));
        members.learn(now, entry(now, 5.0), Some(8));
        members.learn(now + Span(100), entry(now + Span(100), 4.0), Some(7));
        assert_eq!(runnable(&members, now), 5.0, "a datagram that was overtaken");
        // The same news relayed: two milliseconds on the way make it look younger.
        members.learn(now, entry(now + Span::from_millis(2), 3.0), None);
        assert_eq!(runnable(&members, now), 5.0, "a detour");
        members.learn(now, entry(now + Span::from_millis(900), 2.0), None);
        assert_eq!(runnable(&members, now), 2.0, "real news");
    }

    #[test]
    fn the_window_holds_the_newest() {
        let config = Config::default();
        let now = Time::from_micros(60_000_000);
        let mut members = Members::default();
        for node in 2..40 {
            members.join(now, NodeId(node), &config);
            let at = now - Span::from_secs(u64::from(node * 7 % 38));
            members.learn(now, Entry { node: NodeId(node), ..entry(at, 1.0) }, None);
        }
        let ages: Vec<u64> =
            members.window(8).iter().map(|e| now.since(e.at).0 / 1_000_000).collect();
        assert_eq!(ages, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn an_exclusion_doubles_up_to_its_bound_and_ends_when_the_load_has_fallen() {
        let config = Config::default();
        let mut random = Random::seeded(1);
        let mut now = Time::from_micros(10_000_000);
        let mut members = Members::default();
        members.join(now, NODE, &config);
        members.learn(now, entry(now, 3.0), Some(1));
        for expected_s in [2, 4, 8, 16, 16] {
            members.exclude(now, NODE, &mut random, &config);
            now = now + Span::from_secs(expected_s) - Span(1);
            assert!(members.is_excluded(now, NODE), "for {expected_s} s at least");
            now = now + Span::from_secs(expected_s);
            assert!(!members.is_excluded(now, NODE));
        }
        members.exclude(now, NODE, &mut random, &config);
        members.learn(now, entry(now, 2.9), Some(2));
        assert!(members.is_excluded(now, NODE), "nothing has changed there");
        members.learn(now, entry(now, 2.0), Some(3));
        assert!(!members.is_excluded(now, NODE));
    }
}
