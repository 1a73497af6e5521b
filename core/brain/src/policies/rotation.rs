//! Processes that started together take turns on the crowded nodes, so that none of them is left
//! behind and all end at nearly the same time: earlier than the best schedule in which each stays
//! where a core is shared.
//!
//! Seventeen equal processes on sixteen nodes: whoever shares a node gets half of what the others
//! get, and would be at half when they are done. Instead the one that has got on furthest, on a
//! node with room to breathe, changes places with the one that is furthest behind on a crowded
//! node. The two nodes stay as full as they were, so nobody else notices.
//!
//! When is it worth it? A change of places freezes two processes for M each. Waiting until the gap
//! is larger means fewer changes but a larger gap at the end. With shares that differ by d, and a
//! the work done so far as the best guess of the work left, the sum of both losses is least at a
//! gap of about sqrt(2 M d a); below what two freezes cost, 2 M s at a share of s, a change cannot
//! pay at all.
//!
//! Nor is it worth it as long as all cores are busy without it. Of 25 on 16 nodes seven have a core
//! each. When they are done the 18 others are enough for all nodes, and nothing was lost by letting
//! the seven end early. Only of these 18 would some be left behind when the others are done. So a
//! laggard that is behind by no more than it gets less has no turn while those that get no more
//! than it are enough to keep all cores busy once the others have ended. All ends as early, with
//! fewer moves, and on average processes end earlier: equal progress has all of them end last.
//!
//! ```text
//!   rich                      poor
//!     │◄── lag: so far behind ─│  once a second, to two of the nodes with more room
//!     │── offer a, exchange ──►│  has one of the group that is behind by enough? keeps a place
//!     │◄── offer b, in return ─│
//!     │  keeps a place
//!     │── accept b ───────────►│  b moves
//!     │  when b has come, a moves
//! ```
//! As the one from the crowded node goes first, no core stands idle while two processes are frozen.
//!
//! Each offer is repeated until it is answered, as all are; so either both move, or none, or, if a
//! node dies in between, one: as with any move.

use super::Proposal;
use crate::facts::{Candidate, Condition, Entry};
use crate::input::GroupId;
use crate::messages::{Laggard, Offer, Refusal, from_ms, to_ms};
use crate::random::Random;
use crate::reasons::Why;
use crate::situation::Situation;
use crate::time::{Span, Time};
use wire::ids::NodeId;
use wire::motive::Motive;

/// One of a group, with the work that it has done.
#[derive(Clone, Copy, Debug)]
struct Standing {
    candidate: Candidate,
    attained_s: f64,
}

impl Situation {
    /// How far the laggard of a crowded node is behind, and to which two of the nodes with more
    /// room to say so; perhaps it is one.
    pub(crate) fn laggard(&self, now: Time, random: &mut Random) -> Option<(Laggard, [NodeId; 2])> {
        let own = self.calm(now)?;
        let enough = own.share() * (1.0 + self.config.dead_band);
        // Nobody gets more there than a core has to give: most are ruled out by that.
        let enough_milli = (enough * 1e3) as u32;
        let is_rich = |entry: &&Entry| {
            entry.runnable_milli > 500
                && entry.speed_milli >= enough_milli
                && entry.condition().is_some_and(|condition| condition.share() > enough)
        };
        let known = self.members.useful_entries(now, None, &self.config);
        let rich: Vec<NodeId> = known.filter(is_rich).map(|entry| entry.node).collect();
        if rich.is_empty() {
            return None;
        }
        let behind = self.least(now, None)?;
        let laggard =
            Laggard { group: behind.candidate.group?, attained_ms: to_ms(behind.attained_s) };
        let mut draw = || rich[random.below(rich.len() as u64) as usize];
        Some((laggard, [draw(), draw()]))
    }

    /// The condition of this node, if nothing is under way that could change it.
    fn calm(&self, now: Time) -> Option<Condition> {
        let is_busy = !self.departures.is_empty() || self.reservations.count() > 0;
        if !self.config.rotates || is_busy || self.residents.count() == 0 {
            return None;
        }
        self.condition(now)
    }

    /// A crowded node says how far its laggard is behind: who has got on enough further here?
    pub(crate) fn ahead_of(&self, now: Time, from: NodeId, laggard: Laggard) -> Option<Proposal> {
        let own = self.calm(now)?;
        let (there, _) = self.members.get(from)?.known(now)?;
        let ahead = self.furthest(now, Some(laggard.group))?;
        let gap_s = ahead.attained_s - from_ms(laggard.attained_ms);
        if gap_s <= self.gap_min_s(now, &ahead, own.share(), there.share())
            || self.members.exclusions.holds(now, from)
        {
            return None;
        }
        let why = Why::Ahead(from, ahead.attained_s);
        Some(Proposal::new(ahead.candidate, from, Motive::Exchange, why))
    }

    /// How far apart two must be to change places between these shares.
    fn gap_min_s(&self, now: Time, ahead: &Standing, share_rich: f64, share_poor: f64) -> f64 {
        let freeze_s = ahead.candidate.freeze.as_secs_f64();
        let gain = (share_rich - share_poor).max(0.0);
        let best = (2.0 * freeze_s * gain * ahead.attained_s).sqrt();
        let apart_s = best.max(2.0 * freeze_s * share_rich);
        match self.keeps_cores_busy(now, share_poor) {
            // It is behind by as much as it gets less, and can wait.
            true => apart_s + ahead.attained_s * gain / share_rich,
            false => apart_s,
        }
    }

    /// Whether those that get no more than such a share are enough for all cores, when those that
    /// get more have ended. Unknown, and taken for not so, where the cluster is known in part: its
    /// most crowded nodes are heard of most.
    fn keeps_cores_busy(&self, now: Time, share_poor: f64) -> bool {
        if self.members.is_partial() {
            return false;
        }
        let enough = share_poor * (1.0 + self.config.dead_band);
        let known = self.members.useful_entries(now, None, &self.config);
        let (mut cores, mut left) = (0.0, 0.0);
        for condition in known.filter_map(Entry::condition).chain(self.condition(now)) {
            cores += f64::from(condition.cores);
            if condition.share() <= enough {
                left += condition.runnable;
            }
        }
        left + self.config.doubt > cores * (1.0 + self.config.rotation_spare)
    }

    /// Those of a group (or of any) that may take turns now.
    fn standings(&self, now: Time, group: Option<GroupId>) -> impl Iterator<Item = Standing> {
        self.residents.processes().filter_map(move |process| {
            let candidate = self.may_leave(now, process).ok()?;
            let own_group = candidate.group?;
            if group.is_some_and(|group| own_group != group) || self.departures.contains(process) {
                return None;
            }
            // However often it takes its turn, it must not stand still for more than that.
            let pause_s = candidate.freeze.as_secs_f64() / self.config.rotation_frozen_max;
            let is_rested = candidate.here >= Span::from_secs_f64(pause_s);
            let attained_s = candidate.attained_s(self.own.pace);
            is_rested.then_some(Standing { candidate, attained_s })
        })
    }

    fn furthest(&self, now: Time, group: Option<GroupId>) -> Option<Standing> {
        let standings = self.standings(now, group);
        standings.max_by(|a, b| a.attained_s.total_cmp(&b.attained_s))
    }

    fn least(&self, now: Time, group: Option<GroupId>) -> Option<Standing> {
        let standings = self.standings(now, group);
        standings.min_by(|a, b| a.attained_s.total_cmp(&b.attained_s))
    }

    /// On the crowded node: who goes in return for what is offered?
    pub(crate) fn in_return(
        &self,
        now: Time,
        source: &Entry,
        offer: &Offer,
    ) -> Result<Proposal, Refusal> {
        let own = self.calm(now).ok_or(Refusal::Busy)?;
        let there = source.condition().ok_or(Refusal::Unready)?;
        let group = offer.group.ok_or(Refusal::Even)?;
        let behind = self.least(now, Some(group)).ok_or(Refusal::Even)?;
        let ahead =
            Standing { candidate: behind.candidate, attained_s: from_ms(offer.attained_ms) };
        let gap_s = ahead.attained_s - behind.attained_s;
        let (rich, poor) = (there.share(), own.share());
        let is_poorer = poor * (1.0 + self.config.dead_band) < rich;
        if is_poorer && gap_s > self.gap_min_s(now, &ahead, rich, poor) {
            let why = Why::Behind(source.node);
            let proposal = Proposal::new(behind.candidate, source.node, Motive::Exchange, why);
            Ok(Proposal { in_return_for: Some(offer.id), ..proposal })
        } else {
            Err(Refusal::Even)
        }
    }
}
