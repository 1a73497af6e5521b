//! The source's half of a move: a process is offered, and what becomes of the offer.

use super::Brain;
use crate::config::Decision;
use crate::handshake::{Departure, Stage};
use crate::here::Resident;
use crate::input::MoveOutcome;
use crate::messages::{Body, Offer, OfferId, Refusal, to_ms};
use crate::output::{Outbox, Output, Verdict};
use crate::policies::Proposal;
use crate::reasons::{StayCause, Why};
use crate::time::{Span, Time};
use wire::ids::{GlobalPid, NodeId};
use wire::motive::Motive;

impl Brain {
    /// Offers processes to other nodes, or to `only`, as long as that promises a gain.
    pub(super) fn hand_over(&mut self, now: Time, only: Option<NodeId>, outbox: &mut Outbox) {
        let config = &self.situation.config;
        if config.decision != Decision::Osmos || self.situation.residents.count() == 0 {
            return;
        }
        while self.offers_left > 0
            && self.situation.departures.count() < self.situation.config.outbound_max
        {
            let weighed = self.situation.best_move(now, only, &mut self.random);
            if let Some(stays) = weighed.stays {
                self.is_unripe = stays.iter().any(|(_, cause)| *cause == StayCause::Young);
                for (process, cause) in stays {
                    self.record_stay(now, process, cause, outbox);
                }
            }
            let Some(proposal) = weighed.proposal else { return };
            self.offers_left -= 1;
            self.propose(now, proposal, outbox);
        }
    }

    /// Offers a process of this node, for itself or in return for another.
    pub(super) fn propose(&mut self, now: Time, proposal: Proposal, outbox: &mut Outbox) {
        let Proposal { candidate, to, motive, in_return_for, why } = proposal;
        let process = candidate.process;
        if self.situation.is_barred(process, to) {
            return;
        }
        let own = self.situation.condition_for_leaving(now, Some(process));
        let Some(own) = own else { return };
        let offer = Offer {
            id: self.next_offer_id(),
            process,
            demand: candidate.demand_at(to),
            calls_per_cpu_s: candidate.calls_per_cpu_s as u32,
            rss_bytes: candidate.rss_bytes,
            motive,
            group: candidate.group,
            attained_ms: to_ms(candidate.attained_s(self.situation.own.pace)),
            in_return_for,
            holder: self.situation.holder_of(process),
        };
        self.situation.reservations.take(process);
        let repeat_at = now + self.situation.config.offer_patience;
        let stage = Stage::Offered { sends: 1 };
        self.situation.departures.begin(Departure { to, offer, stage, repeat_at, why });
        self.send_as(now, to, Some(own), Body::Offer(offer), outbox);
    }

    /// Offers that were not answered are repeated, then given up; while a process moves its place
    /// is kept by repeating too.
    pub(super) fn repeat_offers(&mut self, now: Time, outbox: &mut Outbox) {
        if self.situation.departures.is_empty() {
            return;
        }
        for process in self.situation.departures.due(now) {
            let Some(departure) = self.situation.departures.get_mut(process) else { continue };
            let is_forsaken = match departure.stage {
                // The place for its partner has lapsed: nobody comes.
                Stage::Waiting { partner } => !self.situation.reservations.contains(partner),
                _ => false,
            };
            let given_up = match &mut departure.stage {
                Stage::Offered { sends } if *sends >= self.situation.config.offer_sends_max => true,
                Stage::Offered { sends } => {
                    *sends += 1;
                    departure.repeat_at = now + self.situation.config.offer_patience;
                    false
                }
                Stage::Moving { since } => {
                    departure.repeat_at = now + self.situation.config.tick;
                    if now.since(*since) >= self.situation.config.move_patience {
                        departure.stage = Stage::Overdue { since: *since };
                    }
                    false
                }
                Stage::Waiting { .. } | Stage::Overdue { .. } => {
                    departure.repeat_at = now + self.situation.config.tick;
                    false
                }
            };
            let (to, offer) = (departure.to, departure.offer);
            if is_forsaken {
                self.withdraw(now, process, outbox);
            } else if given_up {
                self.withdraw(now, process, outbox);
                self.situation.members.exclusions.was_deaf(
                    now,
                    to,
                    &mut self.random,
                    &self.situation.config,
                );
                let why = Why::Deaf(to);
                let verdict = Verdict::NotMoved { to };
                outbox.push(Output::RecordDecision { process, verdict, why });
            } else {
                let own = self.situation.condition_for_leaving(now, Some(process));
                self.send_as(now, to, own, Body::Offer(offer), outbox);
            }
        }
    }

    pub(super) fn offer_accepted(
        &mut self,
        now: Time,
        from: NodeId,
        id: OfferId,
        outbox: &mut Outbox,
    ) {
        let Some(process) = self.situation.departures.answered(from, id) else {
            // Nobody wants that place (any more).
            self.send(now, from, Body::Release(id), outbox);
            return;
        };
        let Some(departure) = self.situation.departures.get_mut(process) else { return };
        if departure.is_leaving() {
            return;
        }
        let Offer { motive, in_return_for, .. } = departure.offer;
        // An exchange is answered by an offer in return, not by this.
        let is_answer = motive != Motive::Exchange || in_return_for.is_some();
        if !is_answer || !self.situation.may_go(now, process, motive) {
            return self.withdraw(now, process, outbox);
        }
        self.begin_move(now, process, outbox);
        self.hand_over(now, None, outbox);
    }

    /// A place is kept for it: the process goes.
    pub(super) fn begin_move(&mut self, now: Time, process: GlobalPid, outbox: &mut Outbox) {
        let Some(departure) = self.situation.departures.get_mut(process) else { return };
        // Only offers that come to nothing use up the round's supply.
        self.offers_left += 1;
        departure.stage = Stage::Moving { since: now };
        departure.repeat_at = now + self.situation.config.tick;
        let (to, why) = (departure.to, departure.why.clone());
        let motive = departure.offer.motive;
        let verdict = Verdict::Move { to };
        outbox.push(Output::RecordDecision { process, verdict, why: why.clone() });
        outbox.push(Output::Move { process, to, motive, why });
    }

    pub(super) fn offer_refused(
        &mut self,
        now: Time,
        from: NodeId,
        id: OfferId,
        refusal: Refusal,
        outbox: &mut Outbox,
    ) {
        let Some(process) = self.situation.departures.answered(from, id) else { return };
        // A place that was given and then refused on repetition: the move is under way and decides.
        if self.situation.departures.iter().any(|d| d.offer.process == process && d.is_leaving()) {
            return;
        }
        let ended = self.situation.departures.end(process);
        if let Some(for_offer) = ended.and_then(|departure| departure.offer.in_return_for) {
            self.situation.reservations.release(from, for_offer);
        }
        if refusal != Refusal::Even {
            let there = self.situation.members.runnable_of(from);
            let (random, config) = (&mut self.random, &self.situation.config);
            self.situation.members.exclusions.refused(now, from, there, random, config);
        }
        let why = Why::Refused(from, refusal.into());
        let verdict = Verdict::Refused { by: from };
        outbox.push(Output::RecordDecision { process, verdict, why });
        self.hand_over(now, None, outbox);
    }

    pub(super) fn move_ended(
        &mut self,
        now: Time,
        process: GlobalPid,
        to: NodeId,
        outcome: MoveOutcome,
        freeze: Span,
        outbox: &mut Outbox,
    ) {
        let departure = self.situation.departures.end(process);
        // Somebody else moved it while it was on offer to another node: that place is not needed.
        if let Some(departure) = &departure
            && (departure.to != to || outcome != MoveOutcome::Moved)
        {
            self.send(now, departure.to, Body::Release(departure.offer.id), outbox);
        }
        let ours = departure.is_some_and(|departure| departure.is_moving());
        let (verdict, why) = match outcome {
            MoveOutcome::Moved => {
                self.situation.members.exclusions.lift(to);
                self.situation.residents.departed(now, process);
                (Verdict::Moved { to }, Why::Moved { freeze })
            }
            MoveOutcome::Stayed => {
                self.situation.residents.rest_longer(now, process, &self.situation.config);
                (Verdict::NotMoved { to }, Why::Unmoved)
            }
            MoveOutcome::Failed => {
                self.situation.residents.rest_briefly(now, process, &self.situation.config);
                if ours {
                    self.situation.members.exclusions.failed(
                        now,
                        to,
                        &mut self.random,
                        &self.situation.config,
                    );
                }
                (Verdict::NotMoved { to }, Why::Failed(to))
            }
        };
        outbox.push(Output::RecordDecision { process, verdict, why });
        self.hand_over(now, None, outbox);
        self.seek_at_once(now, outbox);
    }

    /// Takes back what was said about a process, if anything was.
    pub(super) fn withdraw(&mut self, now: Time, process: GlobalPid, outbox: &mut Outbox) {
        if let Some(departure) = self.situation.departures.end(process) {
            self.send(now, departure.to, Body::Release(departure.offer.id), outbox);
        }
    }

    /// Offers of processes are taken back that do not run here any more, or move with others now.
    pub(super) fn withdraw_vanished(&mut self, now: Time, outbox: &mut Outbox) {
        if self.situation.departures.is_empty() {
            return;
        }
        let offered = self.situation.departures.iter().filter(|d| !d.is_moving());
        let vanished: Vec<GlobalPid> = offered
            .map(|departure| departure.offer.process)
            .filter(|process| {
                self.situation.residents.known(*process).is_none_or(Resident::is_another)
            })
            .collect();
        for process in vanished {
            self.withdraw(now, process, outbox);
        }
    }

    pub(super) fn record_stay(
        &mut self,
        now: Time,
        process: GlobalPid,
        cause: StayCause,
        outbox: &mut Outbox,
    ) {
        if self.situation.residents.stays_for(process, cause, now, &self.situation.config) {
            self.record_news(process, cause, outbox);
        }
    }

    fn record_news(&self, process: GlobalPid, cause: StayCause, outbox: &mut Outbox) {
        let why =
            Why::Stays(self.situation.residents.explain(process, cause, &self.situation.config));
        outbox.push(Output::RecordDecision { process, verdict: Verdict::Stay, why });
    }
}
