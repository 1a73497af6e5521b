//! Policies are asked, and what they propose is done.

use super::Brain;
use crate::messages::{Body, Laggard};
use crate::output::Outbox;
use crate::time::Time;
use wire::ids::NodeId;

impl Brain {
    /// Everything that could be a reason to hand a process over.
    pub(super) fn consider_all(&mut self, now: Time, outbox: &mut Outbox) {
        if let Some(proposal) = self.situation.usher(now) {
            self.propose(now, proposal, outbox);
        }
        self.clear_out(now, outbox);
        if let Some(favour) = self.situation.favour_the_poor(now) {
            if let Some(shares) = self.situation.shares.as_mut().filter(|_| favour.makes_room) {
                shares.made_room_at = Some(now);
            }
            self.propose(now, favour.proposal, outbox);
        }
        self.hand_over(now, None, outbox);
        self.weighed = (now, self.situation.runnable(now).unwrap_or(0.0));
    }

    /// Those go that the owner does not want here.
    pub(super) fn clear_out(&mut self, now: Time, outbox: &mut Outbox) {
        for (process, why) in self.situation.unwanted() {
            if let Some(proposal) = self.situation.clear_out(now, process, &why) {
                self.propose(now, proposal, outbox);
            }
        }
    }

    pub(super) fn decide_as_mosix(&mut self, now: Time, outbox: &mut Outbox) {
        let estimate = self.estimate.get_or_insert_default();
        if let Some(proposal) = self.situation.as_mosix_would(now, estimate, &mut self.random) {
            self.propose(now, proposal, outbox);
        }
    }

    /// Asks others for work.
    pub(super) fn seek(&mut self, now: Time, outbox: &mut Outbox) {
        let asked = self.situation.whom_to_ask_for_work(now, &mut self.random);
        let Some(asked) = asked else { return };
        self.sought_at = now;
        for node in asked {
            self.send(now, node, Body::Seek, outbox);
        }
    }

    pub(super) fn seek_known_work(&mut self, now: Time, outbox: &mut Outbox) {
        if self.may_seek(now) && self.situation.knows_of_work(now) {
            self.seek(now, outbox);
        }
    }

    /// Room may just have appeared: ask now, not at the next round.
    pub(super) fn seek_at_once(&mut self, now: Time, outbox: &mut Outbox) {
        if self.may_seek(now) {
            self.seek(now, outbox);
        }
    }

    fn may_seek(&self, now: Time) -> bool {
        now.since(self.sought_at) >= self.situation.config.seek_pause
    }

    /// A crowded node tells some with more room how far its laggard is behind.
    pub(super) fn tell_of_laggard(&mut self, now: Time, outbox: &mut Outbox) {
        let told = self.situation.laggard(now, &mut self.random);
        let Some((laggard, [one, other])) = told else { return };
        self.send(now, one, Body::Lag(laggard), outbox);
        if other != one {
            self.send(now, other, Body::Lag(laggard), outbox);
        }
    }

    /// A crowded node says how far its laggard is behind.
    pub(super) fn lag_heard(
        &mut self,
        now: Time,
        from: NodeId,
        laggard: Laggard,
        outbox: &mut Outbox,
    ) {
        if let Some(proposal) = self.situation.ahead_of(now, from, laggard) {
            self.propose(now, proposal, outbox);
        }
    }
}
