//! Who belongs to the cluster, what is known of each, and who seems to be alive.
//!
//! While the cluster fits into the view, membership is what the daemon tells, which knows the
//! addresses: entries about other nodes are ignored. Liveness is judged by silence: any newer entry
//! about a node, from wherever it was relayed, is evidence of life. As the age of relayed news
//! grows with the cluster (Amar, Barak, Drezner and Okun 2009), so does the patience; and a node
//! silent for half of it is asked directly before it is doubted.
//!
//! A larger cluster does not fit. Then the view is a part of it that changes all the time: what is
//! heard of comes in, and what is neither new nor useful goes. Nobody is doubted there: whoever
//! falls silent is forgotten, and a place on a dead node is never given. As the newest entries of
//! all are spread by those who hold them, the view stays a fair sample (Newscast: Jelasity, Kowal-
//! czyk and van Steen 2003), and what it costs does not depend on the number of nodes.

use super::exclusions::Exclusions;
use super::strangers::Strangers;
use super::window::{Among, Floor, select};
use crate::config::{Config, WindowPolicy};
use crate::facts::{Condition, Entry};
use crate::messages::WindowRoom;
use crate::random::Random;
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::fmt;
use wire::ids::NodeId;

/// What is believed of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// Before anything is known of it: without a condition, as of when it joined.
    pub entry: Entry,
    /// Of its newest datagram in the life that the entry is of.
    last_sequence: u32,
    pub status: Status,
}

impl Member {
    /// What is known of it, with the age of that knowledge.
    pub fn known(&self, now: Time) -> Option<(Condition, Span)> {
        Some((self.entry.condition()?, now.since(self.entry.at)))
    }

    fn silence(&self, now: Time) -> Span {
        now.since(self.entry.at)
    }

    pub fn heard_of(entry: &Entry, sequence: Option<u32>) -> Member {
        Member { entry: *entry, last_sequence: sequence.unwrap_or(0), status: Status::Alive }
    }

    /// Takes in an entry about it, if that is news.
    pub fn learn(&mut self, entry: &Entry, sequence: Option<u32>) -> bool {
        let known = &self.entry;
        let is_first_of_life = entry.incarnation > known.incarnation;
        let is_news = match sequence {
            Some(sequence) => {
                let is_latest = is_first_of_life
                    || (entry.incarnation == known.incarnation && sequence > self.last_sequence);
                if is_latest {
                    self.last_sequence = sequence;
                }
                is_latest
            }
            // Time on the way makes relayed news look younger than it is.
            None => {
                let earlier = entry.as_of(entry.at - RELAY_SKEW);
                let is_first = known.cores == 0 && known.incarnation == 0;
                let is_news = is_first || earlier.is_newer_than(known);
                if is_news && is_first_of_life {
                    self.last_sequence = 0;
                }
                is_news
            }
        };
        if is_news {
            // The later evidence of life counts, whichever entry it came with.
            let at = if is_first_of_life { entry.at } else { entry.at.max(known.at) };
            self.entry = entry.as_of(at);
        }
        is_news
    }
}

#[derive(Debug, Default)]
pub(crate) struct Members {
    /// By number of the node, while all are known; else the newest first.
    pub others: Vec<Member>,
    /// The cluster has more nodes than the view has places.
    is_partial: bool,
    /// When the silent were last asked directly.
    probes: Vec<(NodeId, Time)>,
    pub exclusions: Exclusions,
    /// What a stranger's entry must exceed to come into a view that is full.
    pub floor: Floor,
    /// For the window policies of old: the load vector, the latest arrival first.
    arrived: Vec<Entry>,
}

/// How much younger relayed news may look than it is.
const RELAY_SKEW: Span = Span::from_millis(50);
/// Direct questions to silent nodes in one round.
const PROBES_MAX: usize = 2;
/// Nodes of a cluster that is larger than the view, for all that is known.
const NODES_PARTIAL: u32 = 1_024;

impl Members {
    /// Its place, or where it would be.
    fn find(&self, node: NodeId) -> Result<usize, usize> {
        if self.is_partial {
            let place = self.others.iter().position(|member| member.entry.node == node);
            return place.ok_or(self.others.len());
        }
        self.others.binary_search_by(|member| member.entry.node.cmp(&node))
    }

    /// False if the node is known already.
    pub fn join(&mut self, now: Time, node: NodeId, config: &Config) -> bool {
        let Err(place) = self.find(node) else { return false };
        if self.others.len() >= config.view_max {
            self.is_partial = true;
            self.others.sort_by_key(|member| Reverse(member.entry.at));
            return false;
        }
        self.others.insert(place, Member::heard_of(&Entry::new(node, 0, now, None), None));
        true
    }

    pub fn leave(&mut self, node: NodeId) -> bool {
        let Ok(place) = self.find(node) else { return false };
        self.others.remove(place);
        self.arrived.retain(|entry| entry.node != node);
        true
    }

    pub fn place_of(&self, node: NodeId) -> Option<usize> {
        self.find(node).ok()
    }

    /// What is known of the node in that place is of a later life than this.
    pub fn is_of_earlier_life(&self, place: usize, entry: &Entry) -> bool {
        self.others.get(place).is_some_and(|known| known.entry.incarnation > entry.incarnation)
    }

    pub fn get(&self, node: NodeId) -> Option<&Member> {
        self.place_of(node).map(|place| &self.others[place])
    }

    /// The cluster has more nodes than are known here.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        self.others.iter().map(|member| (member.entry.node, member))
    }

    pub fn count(&self) -> usize {
        self.others.len()
    }

    /// Rounds for which urgent news is passed on before other news: enough to reach nearly all.
    pub fn urgency(&self) -> u8 {
        let nodes = if self.is_partial { NODES_PARTIAL } else { self.others.len() as u32 + 1 };
        // 1.386 log2 n, as in the published daemon.
        u8::try_from(nodes.ilog2() * 1_386 / 1_000 + 1).unwrap_or(u8::MAX)
    }

    /// Takes in an entry. `sequence`: it is about the node that sent it, in that datagram. Returns
    /// whether the node was thought to be silent and is alive after all. `load` is this node's own.
    /// In a cluster that is larger than the view, who is not in view comes to the `strangers`.
    pub fn learn(
        &mut self,
        now: Time,
        entry: &Entry,
        sequence: Option<u32>,
        strangers: &mut Strangers,
        (load, config): (f64, &Config),
    ) -> bool {
        let place = self.place_of(entry.node);
        self.learn_at(now, place, entry, sequence, strangers, (load, config))
    }

    /// The same of a node that has this place, or none.
    pub fn learn_at(
        &mut self,
        now: Time,
        place: Option<usize>,
        entry: &Entry,
        sequence: Option<u32>,
        strangers: &mut Strangers,
        (load, config): (f64, &Config),
    ) -> bool {
        if let Some(place) = place {
            return self.learn_of_member(now, place, entry, sequence, (load, config));
        }
        if self.is_partial {
            let is_full = self.others.len() + strangers.count() >= config.view_max;
            if !(is_full && self.floor.is_above(entry)) {
                strangers.learn(entry, sequence);
            }
        }
        false
    }

    fn learn_of_member(
        &mut self,
        now: Time,
        place: usize,
        entry: &Entry,
        sequence: Option<u32>,
        (load, config): (f64, &Config),
    ) -> bool {
        let member = &mut self.others[place];
        if !member.learn(entry, sequence) {
            return false;
        }
        if !self.exclusions.is_empty()
            && let Some(condition) = entry.condition()
        {
            self.exclusions.learn(entry.node, condition.runnable);
        }
        let is_fresh = sequence.is_some() || member.silence(now) < Span::from_secs(1);
        let revived = is_fresh && member.status != Status::Alive;
        if revived {
            member.status = Status::Alive;
        }
        if self.is_partial {
            self.settle(place);
        }
        self.note_arrival(entry, load, config);
        revived
    }

    fn note_arrival(&mut self, entry: &Entry, load: f64, config: &Config) {
        let is_wanted = match config.window_policy {
            WindowPolicy::Osmos | WindowPolicy::Newest => return,
            WindowPolicy::Fifo => true,
            WindowPolicy::Lvm => entry.condition().is_some_and(|c| load_of(&c) < load),
        };
        if is_wanted {
            self.arrived.retain(|other| other.node != entry.node);
            self.arrived.truncate(config.window.saturating_sub(1));
            self.arrived.insert(0, *entry);
        }
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
        let mut changed = Vec::new();
        if self.is_partial {
            return changed;
        }
        let suspect_after = self.patience(config);
        let gone_after = suspect_after + config.gone_after;
        for member in &mut self.others {
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
                changed.push((member.entry.node, status));
            }
        }
        changed
    }

    /// The silent nodes to ask directly in this round, the least recently asked first.
    pub fn probe(&mut self, now: Time, config: &Config) -> Vec<NodeId> {
        if self.is_partial {
            return Vec::new();
        }
        let quiet = Span(self.patience(config).0 / 2);
        let is_silent =
            |member: &Member| member.status != Status::Gone && member.silence(now) >= quiet;
        let others = &self.others;
        self.probes.retain(|(node, _)| {
            let found = others.binary_search_by(|member| member.entry.node.cmp(node));
            found.is_ok_and(|place| is_silent(&others[place]))
        });
        let mut silent: Vec<(Time, NodeId)> = self
            .iter()
            .filter(|(_, member)| is_silent(member))
            .map(|(node, _)| {
                let asked = self.probes.iter().find(|(other, _)| *other == node);
                (asked.map_or(Time::ZERO, |(_, at)| *at), node)
            })
            .collect();
        silent.sort_unstable();
        silent.truncate(PROBES_MAX);
        for (_, node) in &silent {
            self.probes.retain(|(other, _)| other != node);
            self.probes.push((*node, now));
        }
        silent.into_iter().map(|(_, node)| node).collect()
    }

    /// The two nodes to tell in this round: one heard of recently, one of all. One round in
    /// max(5, alive) even the lost may be told, so that a healed partition is noticed. Where only
    /// a part of the cluster is known, all of it is recent: one is told, two if it is urgent.
    pub fn listeners(
        &self,
        now: Time,
        is_urgent: bool,
        random: &mut Random,
        config: &Config,
    ) -> [Option<NodeId>; 2] {
        let is_recent = |member: &Member| {
            member.entry.cores > 0 && member.silence(now) <= config.useful_age_max
        };
        if config.listeners == 1 {
            return [self.pick(random, |_| true), None];
        }
        let first = self.pick(random, |member| is_recent(member));
        if self.is_partial && !is_urgent && first.is_some() {
            return [first, None];
        }
        let is_other = |member: &Member| Some(member.entry.node) != first;
        let present = self.others.iter().filter(|member| member.status != Status::Gone).count();
        let even_the_lost = present == 0 || random.below(present.max(5) as u64) == 0;
        let second = self.pick(random, |member| {
            is_other(member) && (even_the_lost || member.status != Status::Gone)
        });
        [first, second]
    }

    /// One of those wanted, each equally likely.
    pub fn pick(&self, random: &mut Random, is_wanted: impl Fn(&Member) -> bool) -> Option<NodeId> {
        // Where most are wanted the first try mostly succeeds; the bound is for where few are.
        for _ in 0..4 {
            let member = self.others.get(random.below(self.others.len() as u64) as usize)?;
            if is_wanted(member) {
                return Some(member.entry.node);
            }
        }
        let wanted = self.others.iter().filter(|member| is_wanted(member)).count();
        let nth = random.below(wanted as u64) as usize;
        let member = self.others.iter().filter(|member| is_wanted(member)).nth(nth)?;
        Some(member.entry.node)
    }

    /// What gossip carries on, in `to`'s view of it: the listener knows itself better.
    pub fn window(&self, now: Time, to: NodeId, room: &mut WindowRoom, config: &Config) {
        let size = config.window;
        if matches!(config.window_policy, WindowPolicy::Fifo | WindowPolicy::Lvm) {
            let held = self.arrived.iter().filter(|entry| entry.node != to);
            return held.take(size).for_each(|entry| room.add(entry, now));
        }
        let among = Among::ToTell(self.find(to).ok());
        select(now, &self.others, among, size, config, |member| room.add(&member.entry, now));
    }

    /// Passing on urgent news uses up its urgency.
    pub fn passed_on(&mut self) {
        let others = self.others.iter_mut().map(|member| &mut member.entry);
        for entry in others.chain(&mut self.arrived).filter(|entry| entry.urgency > 0) {
            entry.urgency -= 1;
        }
    }

    /// Nodes whose condition is known well enough to act on.
    pub fn useful<'a>(
        &'a self,
        now: Time,
        config: &'a Config,
    ) -> impl Iterator<Item = (NodeId, Condition, Span)> + 'a {
        self.useful_entries(now, None, config)
            .filter_map(move |entry| Some((entry.node, entry.condition()?, now.since(entry.at))))
    }

    /// What is known of them, or of `only`, in figures.
    pub fn useful_entries<'a>(
        &'a self,
        now: Time,
        only: Option<NodeId>,
        config: &Config,
    ) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let is_queue = matches!(config.window_policy, WindowPolicy::Fifo | WindowPolicy::Lvm);
        let places = match only {
            None => 0..self.others.len(),
            Some(node) => self.find(node).map_or(0..0, |place| place..place + 1),
        };
        let oldest = now - config.useful_age_max;
        let is_alive = |member: &&Member| member.status == Status::Alive;
        let alive = self.others[places].iter().filter(is_alive).map(move |member| {
            let of_member = |entry: &&Entry| entry.node == member.entry.node;
            if is_queue { self.arrived.iter().find(of_member) } else { Some(&member.entry) }
        });
        alive.flatten().filter(move |entry| entry.at >= oldest && entry.cores > 0)
    }

    /// Runnable threads there at last knowledge.
    pub fn runnable_of(&self, node: NodeId) -> f64 {
        let condition = self.get(node).and_then(|member| member.entry.condition());
        condition.map_or(0.0, |condition| condition.runnable)
    }
}

/// Load in the sense of openMosix: runnable threads for each core of the reference speed.
pub(crate) fn load_of(condition: &Condition) -> f64 {
    condition.runnable / (f64::from(condition.cores) * condition.speed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(2);

    fn entry(node: NodeId, at: Time, runnable: f64) -> Entry {
        let condition = Condition::idle(1, 1.0).with_runnable(runnable);
        Entry::new(node, 1, at, Some(&condition))
    }

    fn learn(members: &mut Members, now: Time, entry: Entry, sequence: Option<u32>) {
        members.learn(now, &entry, sequence, &mut Strangers::default(), (0.0, &Config::default()));
    }

    #[test]
    fn news_that_was_overtaken_or_took_a_detour_does_not_replace_newer() {
        let config = Config::default();
        let now = Time::from_micros(10_000_000);
        let mut members = Members::default();
        assert!(members.join(now - Span::from_secs(5), NODE, &config));
        learn(&mut members, now, entry(NODE, now, 5.0), Some(8));
        let later = now + Span(100);
        learn(&mut members, later, entry(NODE, later, 4.0), Some(7));
        assert_eq!(members.runnable_of(NODE), 5.0, "a datagram that was overtaken");
        // The same news relayed: two milliseconds on the way make it look younger.
        learn(&mut members, now, entry(NODE, now + Span::from_millis(2), 3.0), None);
        assert_eq!(members.runnable_of(NODE), 5.0, "a detour");
        learn(&mut members, now, entry(NODE, now + Span::from_millis(900), 2.0), None);
        assert_eq!(members.runnable_of(NODE), 2.0, "real news");
    }

    /// The published ones: what has arrived is acted on, or what was of use when it arrived.
    #[test]
    fn the_load_vector_takes_in_all_news_and_the_improved_one_only_what_is_of_use() {
        let now = Time::from_micros(10_000_000);
        let held = |window_policy| {
            let config = Config { window_policy, window: 3, ..Config::default() };
            let mut members = Members::default();
            for node in 2..=6 {
                members.join(now, NodeId(node), &config);
            }
            // This node has a load of 2. The second has room, and then has none any more.
            let news = [(2, 0.0), (3, 3.0), (4, 1.0), (2, 5.0)];
            for (sequence, (node, runnable)) in (1..).zip(news) {
                let news = entry(NodeId(node), now, runnable);
                let mut strangers = Strangers::default();
                members.learn(now, &news, Some(sequence), &mut strangers, (2.0, &config));
            }
            let held = members.useful(now, &config);
            held.map(|(node, condition, _)| (node.0, condition.runnable)).collect::<Vec<_>>()
        };
        assert_eq!(held(WindowPolicy::Fifo), [(2, 5.0), (3, 3.0), (4, 1.0)]);
        assert_eq!(held(WindowPolicy::Lvm), [(2, 0.0), (4, 1.0)]);
    }

    #[test]
    fn a_cluster_that_fits_is_known_as_a_whole_and_strangers_are_ignored() {
        let config = Config { view_max: 3, ..Config::default() };
        let now = Time::from_micros(10_000_000);
        let mut members = Members::default();
        for node in 1..=3 {
            assert!(members.join(now, NodeId(node), &config));
        }
        learn(&mut members, now, entry(NodeId(9), now, 0.0), None);
        assert_eq!(members.count(), 3);
        assert!(!members.is_partial());
    }

    #[test]
    fn a_larger_cluster_is_known_in_part_and_the_part_changes() {
        let config = Config { view_max: 8, ..Config::default() };
        let now = Time::from_micros(60_000_000);
        let mut members = Members::default();
        for node in 1..=20 {
            members.join(now - Span::from_secs(50), NodeId(node), &config);
        }
        for node in 100..120 {
            let at = now - Span::from_millis(u64::from(node));
            let mut strangers = Strangers::default();
            let news = entry(NodeId(node), at, 1.0);
            members.learn(now, &news, None, &mut strangers, (0.0, &config));
            members.admit(now, strangers, &config);
        }
        assert_eq!(members.count(), 8);
        assert!(members.iter().all(|(node, _)| node.0 >= 100), "the newest are kept");
        assert!(members.is_partial());
        assert!(members.doubt(now + Span::from_secs(3_600), &config).is_empty());
    }
}
