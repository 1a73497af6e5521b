//! The links to other nodes, and the calls that make them: at most one of either to each node.
//!
//! Two nodes that find each other call each other, so one of them is to wait, and if both have
//! called at the same time both must keep the same link. Who does not answer is called less and
//! less often: a node that is down for a minute is to be there again at once, and one that is gone
//! for good is to cost nothing. A link that was replaced may still be heard of ([`LinkId`]): what
//! it says, or that it is lost, does not count any more.

use crate::daemon::Event;
use crate::net::link::{Link, LinkId, OpenLink, Speaker};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use wire::ids::NodeId;
use wire::peer::{Member, PeerMessage};

/// The node with the higher number calls; the other one only if nobody called for so long.
const PATIENCE_OF_LOWER: Duration = Duration::from_secs(3);
/// After a failed call, wait; doubles up to the second.
const REDIAL_FIRST: Duration = Duration::from_millis(250);
const REDIAL_SOON: Duration = Duration::from_secs(8);
/// Who does not answer for some minutes is called less and less often, up to that.
const REDIAL_MAX: Duration = Duration::from_secs(300);
const FAILURES_SOON: u32 = 64;
/// And after a day not at all, until it is heard of: gossip still looks for it.
const FAILURES_MAX: u32 = 360;

/// How long to wait after so many calls that failed; None: for ever.
fn rest_after(failures: u32) -> Option<Duration> {
    let doubled = |first: Duration, times: u32, most: Duration| {
        (first * 2u32.saturating_pow(times.min(10))).min(most)
    };
    match failures.checked_sub(FAILURES_SOON) {
        None => Some(doubled(REDIAL_FIRST, failures, REDIAL_SOON)),
        Some(_) if failures >= FAILURES_MAX => None,
        Some(late) => Some(doubled(REDIAL_SOON, late, REDIAL_MAX)),
    }
}

/// A call that is being made, or the rest after one that failed.
struct Dial {
    is_calling: bool,
    /// Not before that; None: not until it is heard of.
    next: Option<Instant>,
    failures: u32,
}

impl Dial {
    fn is_due(&self, now: Instant) -> bool {
        !self.is_calling && self.next.is_some_and(|next| next <= now)
    }
}

/// What there is to be told of a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The calls before it did not fail.
    pub is_first: bool,
    /// There is no other one until the node is heard of.
    pub is_last: bool,
}

/// Whether of two links between `me` and `other` the one is kept, and not the one that comes
/// later: of two that called each other at the same time, the call of the higher number counts.
fn is_kept(me: NodeId, other: NodeId, is_dialed: bool, is_later_dialed: bool) -> bool {
    is_dialed != is_later_dialed && is_dialed == (me > other)
}

#[derive(Default)]
pub struct Links {
    open: BTreeMap<NodeId, Link>,
    /// Links that there ever were.
    count: u64,
    dials: BTreeMap<NodeId, Dial>,
}

impl Links {
    pub fn contains(&self, node: NodeId) -> bool {
        self.open.contains_key(&node)
    }

    /// Those to whom there is a link, the lowest number first.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.open.keys().copied()
    }

    /// False if there is no link to that node, or it takes nothing.
    pub fn say(&self, node: NodeId, message: PeerMessage) -> bool {
        self.open.get(&node).is_some_and(|link| link.send(message))
    }

    pub fn speaker(&self, node: NodeId) -> Option<Speaker> {
        self.open.get(&node).map(Link::speaker)
    }

    pub fn say_to_all(&self, message: &PeerMessage) {
        self.say_to_all_but(None, message);
    }

    /// `but`: who has said so itself, or whom it is not meant for.
    pub fn say_to_all_but(&self, but: Option<NodeId>, message: &PeerMessage) {
        for (node, link) in &self.open {
            if Some(*node) != but {
                // One that takes nothing is about to be lost.
                link.send(message.clone());
            }
        }
    }

    /// Whether the link to a node stays, and not the one that has just been made beside it.
    pub fn keeps_old(&self, me: NodeId, node: NodeId, is_dialed: bool) -> bool {
        let open = self.open.get(&node);
        open.is_some_and(|link| is_kept(me, node, link.is_dialed, is_dialed))
    }

    /// Begins to serve a link, which is the one to that node when it is [inserted](Links::insert).
    pub fn start(
        &mut self,
        node: NodeId,
        open: OpenLink,
        is_dialed: bool,
        events: mpsc::Sender<Event>,
    ) -> Link {
        self.count += 1;
        Link::start(LinkId(self.count), node, is_dialed, open, events)
    }

    /// Returns the link that it replaces.
    pub fn insert(&mut self, node: NodeId, link: Link) -> Option<Link> {
        self.open.insert(node, link)
    }

    /// Whether that link is still the one to its node.
    pub fn is_current(&self, node: NodeId, link: LinkId) -> bool {
        self.open.get(&node).is_some_and(|current| current.id == link)
    }

    /// False if another one has taken its place.
    pub fn lost(&mut self, node: NodeId, link: LinkId) -> bool {
        let is_current = self.is_current(node, link);
        if is_current {
            self.open.remove(&node);
        }
        is_current
    }

    /// A node that is no member any more: it is not called either.
    pub fn remove(&mut self, node: NodeId) -> Option<Link> {
        self.dials.remove(&node);
        self.open.remove(&node)
    }

    /// Nobody is linked to, or called, any more.
    pub fn take_all(&mut self) -> impl Iterator<Item = Link> + use<> {
        self.dials.clear();
        std::mem::take(&mut self.open).into_values()
    }

    /// The members that are to be called now, each with how many calls have failed. From here on
    /// they are being called.
    pub fn due_calls<'a>(
        &mut self,
        members: impl Iterator<Item = &'a Member>,
        me: NodeId,
        now: Instant,
    ) -> Vec<(Member, u32)> {
        let mut due = Vec::new();
        for member in members.filter(|member| !self.open.contains_key(&member.node)) {
            let next = if me > member.node { now } else { now + PATIENCE_OF_LOWER };
            let first = Dial { is_calling: false, next: Some(next), failures: 0 };
            let dial = self.dials.entry(member.node).or_insert(first);
            if dial.is_due(now) {
                dial.is_calling = true;
                due.push((*member, dial.failures));
            }
        }
        due
    }

    /// None if that is no news: the node has called meanwhile, or is not to be called any more.
    pub fn dial_failed(&mut self, node: NodeId, now: Instant) -> Option<Unanswered> {
        if self.open.contains_key(&node) {
            self.dials.remove(&node);
            return None;
        }
        let dial = self.dials.get_mut(&node)?;
        let is_first = dial.failures == 0;
        dial.next = rest_after(dial.failures).map(|rest| now + rest);
        dial.failures = dial.failures.saturating_add(1);
        dial.is_calling = false;
        Some(Unanswered { is_first, is_last: dial.next.is_none() })
    }

    /// A handshake with a node has succeeded, in a call of this node or of the other.
    pub fn answered(&mut self, node: NodeId, is_dialed: bool) {
        // While a call of ours is on its way there must be no second one: if the link that came in
        // meanwhile is lost to it, each new call would end the link that the last one has made.
        if is_dialed || self.dials.get(&node).is_some_and(|dial| !dial.is_calling) {
            self.dials.remove(&node);
        }
    }

    /// A member that does not answer calls is there after all.
    pub fn heard_of(&mut self, node: NodeId, now: Instant) {
        let Some(dial) = self.dials.get_mut(&node).filter(|dial| !dial.is_calling) else { return };
        if dial.failures > FAILURES_SOON {
            dial.failures = 0;
            dial.next = Some(now);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::peer::NodeKey;

    const ME: NodeId = NodeId(5);
    const LOWER: NodeId = NodeId(2);
    const HIGHER: NodeId = NodeId(7);

    fn member(node: NodeId) -> Member {
        Member { node, address: "10.0.0.1:7780".parse().unwrap(), key: NodeKey([1; 32]) }
    }

    impl Links {
        /// Those who are called now, of these.
        fn called(&mut self, nodes: &[NodeId], now: Instant) -> Vec<(NodeId, u32)> {
            let members: Vec<Member> = nodes.iter().copied().map(member).collect();
            let due = self.due_calls(members.iter(), ME, now);
            due.into_iter().map(|(member, failures)| (member.node, failures)).collect()
        }

        /// Calls a node in vain until it is not called any more; returns when that was.
        fn call_in_vain(&mut self, node: NodeId, mut now: Instant) -> Instant {
            loop {
                assert_eq!(self.called(&[node], now).len(), 1);
                let failed = self.dial_failed(node, now).unwrap();
                match self.dials[&node].next {
                    Some(next) => now = next,
                    None => {
                        assert!(failed.is_last);
                        return now;
                    }
                }
            }
        }
    }

    #[test]
    fn who_does_not_answer_is_called_less_and_less_often_and_in_the_end_not_at_all() {
        let rests: Vec<Duration> = (0..).map_while(rest_after).collect();
        assert_eq!(rests[..3], [250, 500, 1_000].map(Duration::from_millis));
        assert!(rests[..64].iter().all(|rest| *rest <= REDIAL_SOON), "a restart is noticed soon");
        assert!(rests.iter().sum::<Duration>() > Duration::from_secs(86_400));
        assert!(rests.len() < 500 && rests.iter().all(|rest| *rest <= REDIAL_MAX));
    }

    #[test]
    fn lower_numbers_are_called_at_once_and_higher_ones_if_they_do_not_call() {
        let (mut links, now) = (Links::default(), Instant::now());
        assert_eq!(links.called(&[LOWER, HIGHER], now), [(LOWER, 0)]);
        assert_eq!(links.called(&[LOWER, HIGHER], now), [], "one call at a time");
        let later = now + PATIENCE_OF_LOWER;
        assert_eq!(links.called(&[LOWER, HIGHER], later), [(HIGHER, 0)]);
    }

    #[test]
    fn a_call_that_failed_is_made_again_after_a_rest_and_the_first_is_told_of() {
        let (mut links, now) = (Links::default(), Instant::now());
        assert_eq!(links.called(&[LOWER], now), [(LOWER, 0)]);
        let first = Unanswered { is_first: true, is_last: false };
        assert_eq!(links.dial_failed(LOWER, now), Some(first));
        assert_eq!(links.called(&[LOWER], now), []);
        let again = now + REDIAL_FIRST;
        assert_eq!(links.called(&[LOWER], again), [(LOWER, 1)]);
        let second = Unanswered { is_first: false, is_last: false };
        assert_eq!(links.dial_failed(LOWER, again), Some(second));
        assert_eq!(links.called(&[LOWER], again + REDIAL_FIRST), []);
        assert_eq!(links.called(&[LOWER], again + 2 * REDIAL_FIRST), [(LOWER, 2)]);
        links.answered(LOWER, true);
        assert_eq!(links.dial_failed(LOWER, again), None, "nobody calls it");
        assert_eq!(links.dial_failed(HIGHER, now), None, "nobody ever did");
    }

    #[test]
    fn who_is_heard_of_is_called_again_as_if_it_had_never_been_silent() {
        let (mut links, now) = (Links::default(), Instant::now());
        let gone = links.call_in_vain(LOWER, now);
        let later = gone + Duration::from_secs(86_400);
        assert_eq!(links.called(&[LOWER], later), []);
        links.heard_of(LOWER, later);
        assert_eq!(links.called(&[LOWER], later), [(LOWER, 0)]);
        links.heard_of(LOWER, later);
        assert_eq!(links.called(&[LOWER], later), [], "it is being called");
        let failed = Unanswered { is_first: true, is_last: false };
        assert_eq!(links.dial_failed(LOWER, later), Some(failed));
        links.heard_of(LOWER, later);
        assert_eq!(links.called(&[LOWER], later), [], "that is too soon");
    }

    #[test]
    fn a_call_of_the_other_side_does_not_end_one_that_is_on_its_way() {
        let (mut links, now) = (Links::default(), Instant::now());
        assert_eq!(links.called(&[LOWER], now), [(LOWER, 0)]);
        links.answered(LOWER, false);
        assert_eq!(links.called(&[LOWER], now), [], "it would be a second one");
        links.answered(LOWER, true);
        assert_eq!(links.called(&[LOWER], now), [(LOWER, 0)], "no link has come of it");
        links.dial_failed(LOWER, now);
        links.answered(LOWER, false);
        assert!(links.dials.is_empty());
        assert_eq!(links.called(&[LOWER], now), [(LOWER, 0)]);
        links.remove(LOWER);
        assert!(links.dials.is_empty());
    }

    #[test]
    fn both_ends_keep_the_same_one_of_two_links() {
        // Node 5 has called node 2, and was called by it. Either may come first at either end.
        for is_first_dialed in [true, false] {
            let kept_here = is_kept(ME, LOWER, is_first_dialed, !is_first_dialed);
            let is_kept_of_higher = is_first_dialed == kept_here;
            assert!(is_kept_of_higher);
            let kept_there = is_kept(LOWER, ME, is_first_dialed, !is_first_dialed);
            let is_kept_of_lower = is_first_dialed == kept_there;
            assert!(!is_kept_of_lower);
        }
        assert!(!is_kept(ME, LOWER, true, true), "a new one of the same side replaces it");
        assert!(!is_kept(ME, LOWER, false, false));
    }
}
