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

use crate::brain::Brain;
use crate::facts::{Candidate, Condition, Entry};
use crate::input::GroupId;
use crate::messages::{Body, Laggard, Offer, OfferId, Refusal, from_ms, to_ms};
use crate::output::Outbox;
use crate::reasons::Why;
use crate::time::{Span, Time};
use wire::ids::NodeId;
use wire::motive::Motive;

/// One of a group, with the work that it has done.
#[derive(Clone, Copy, Debug)]
struct Standing {
    candidate: Candidate,
    attained_s: f64,
}

impl Brain {
    /// A crowded node tells some with more room how far its laggard is behind.
    pub(crate) fn rotate(&mut self, now: Time, outbox: &mut Outbox) {
        let Some(own) = self.calm(now) else { return };
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
            return;
        }
        let Some(behind) = self.least(now, None) else { return };
        let Some(group) = behind.candidate.group else { return };
        let laggard = Laggard { group, attained_ms: to_ms(behind.attained_s) };
        let mut draw = || rich[self.random.below(rich.len() as u64) as usize];
        let (one, other) = (draw(), draw());
        self.send(now, one, Body::Lag(laggard), outbox);
        if other != one {
            self.send(now, other, Body::Lag(laggard), outbox);
        }
    }

    /// The condition of this node, if nothing is under way that could change it.
    fn calm(&self, now: Time) -> Option<Condition> {
        let is_busy = !self.departures.is_empty() || self.reservations.count() > 0;
        if !self.config.rotates || is_busy || self.residents.count() == 0 {
            return None;
        }
        self.condition(now)
    }

    /// A crowded node says how far its laggard is behind.
    pub(crate) fn lag_heard(
        &mut self,
        now: Time,
        from: NodeId,
        laggard: Laggard,
        outbox: &mut Outbox,
    ) {
        let Some(own) = self.calm(now) else { return };
        let there = self.members.get(from).and_then(|member| member.known(now));
        let Some((there, _)) = there else { return };
        let Some(ahead) = self.furthest(now, Some(laggard.group)) else { return };
        let gap_s = ahead.attained_s - from_ms(laggard.attained_ms);
        if gap_s > self.gap_min_s(&ahead, own.share(), there.share()) {
            self.offer_exchange(now, ahead, from, outbox);
        }
    }

    fn offer_exchange(&mut self, now: Time, ahead: Standing, to: NodeId, outbox: &mut Outbox) {
        if self.members.exclusions.holds(now, to) {
            return;
        }
        let why = Why::Ahead(to, ahead.attained_s);
        self.make_offer(now, ahead.candidate, to, Motive::Exchange, None, why, outbox);
    }

    /// How far apart two must be to change places between these shares.
    fn gap_min_s(&self, ahead: &Standing, share_rich: f64, share_poor: f64) -> f64 {
        let freeze_s = ahead.candidate.freeze.as_secs_f64();
        let gain = (share_rich - share_poor).max(0.0);
        let best = (self.config.rotation_caution * freeze_s * gain * ahead.attained_s).sqrt();
        best.max(2.0 * freeze_s * share_rich)
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

    /// The first half of an exchange, on the crowded node: who goes in return?
    pub(crate) fn weigh_exchange(
        &self,
        now: Time,
        source: &Entry,
        offer: &Offer,
    ) -> Result<Candidate, Refusal> {
        let own = self.calm(now).ok_or(Refusal::Busy)?;
        let there = source.condition().ok_or(Refusal::Unready)?;
        let group = offer.group.ok_or(Refusal::Even)?;
        let behind = self.least(now, Some(group)).ok_or(Refusal::Even)?;
        let ahead =
            Standing { candidate: behind.candidate, attained_s: from_ms(offer.attained_ms) };
        let gap_s = ahead.attained_s - behind.attained_s;
        let (rich, poor) = (there.share(), own.share());
        let is_poorer = poor * (1.0 + self.config.dead_band) < rich;
        if is_poorer && gap_s > self.gap_min_s(&ahead, rich, poor) {
            Ok(behind.candidate)
        } else {
            Err(Refusal::Even)
        }
    }

    /// The second half: the crowded node offers its laggard for the one it was offered.
    pub(crate) fn return_offer(
        &mut self,
        now: Time,
        behind: Candidate,
        to: NodeId,
        for_offer: OfferId,
        outbox: &mut Outbox,
    ) {
        let why = Why::Behind(to);
        self.make_offer(now, behind, to, Motive::Exchange, Some(for_offer), why, outbox);
    }
}
