//! The target's half of a move: what is offered is taken or refused, a place is kept, and the
//! process comes.

use super::Brain;
use crate::facts::Entry;
use crate::handshake::{Reservation, Stage};
use crate::input::Arrival;
use crate::messages::{Body, Offer, OfferId, Refusal, from_ms};
use crate::output::{Outbox, Output, Verdict};
use crate::reasons::Why;
use crate::time::Time;
use wire::ids::{GlobalPid, NodeId};
use wire::motive::Motive;

impl Brain {
    pub(super) fn offer_received(
        &mut self,
        now: Time,
        source: Entry,
        offer: Offer,
        outbox: &mut Outbox,
    ) {
        self.situation.hear_holder(now, &offer);
        let expires_at = now + self.situation.config.reservation_ttl;
        let renewed =
            self.situation.reservations.renew(offer.process, source.node, offer.id, expires_at);
        let verdict = match (renewed, offer.motive, offer.in_return_for) {
            (true, ..) => Ok(()),
            (false, Motive::Exchange, None) => {
                return self.exchange_offered(now, source, offer, outbox);
            }
            (false, Motive::Exchange, Some(id)) => {
                self.exchange_answered(now, &source, id, offer.process, outbox)
            }
            _ => self.situation.would_take(now, &source, &offer),
        };
        let body = match verdict {
            // The answer to an exchange is an offer in return, which is repeated by itself.
            Ok(()) if offer.motive == Motive::Exchange && offer.in_return_for.is_none() => return,
            Ok(()) => {
                self.reserve(now, &source, &offer, expires_at);
                Body::Accept(offer.id)
            }
            Err(refusal) => Body::Refuse(offer.id, refusal),
        };
        self.send(now, source.node, body, outbox);
    }

    fn reserve(&mut self, now: Time, source: &Entry, offer: &Offer, expires_at: Time) {
        let reservation = Reservation {
            source: source.node,
            offer: offer.id,
            demand: offer.demand,
            rss_bytes: offer.rss_bytes,
            calls_per_cpu_s: offer.calls_per_cpu_s,
            attained_s: from_ms(offer.attained_ms),
            expires_at,
        };
        self.situation.reservations.reserve(offer.process, reservation);
        self.situation.note_holder(now, offer);
    }

    /// A node with more room would change places with one of the same group that is behind.
    fn exchange_offered(&mut self, now: Time, source: Entry, offer: Offer, outbox: &mut Outbox) {
        let is_present = self.situation.residents.is_present(offer.process);
        let in_return = match self.situation.in_return(now, &source, &offer) {
            Ok(_) if is_present => Err(Refusal::Present),
            Ok(_) if !self.situation.has_memory_for(now, &offer) => Err(Refusal::Memory),
            verdict => verdict,
        };
        match in_return {
            Ok(proposal) => {
                self.propose(now, proposal, outbox);
                self.reserve(now, &source, &offer, now + self.situation.config.reservation_ttl);
            }
            Err(refusal) => {
                let body = Body::Refuse(offer.id, refusal);
                self.send(now, source.node, body, outbox);
            }
        }
    }

    /// The crowded node has named who comes in return: that one goes first.
    fn exchange_answered(
        &mut self,
        now: Time,
        source: &Entry,
        id: OfferId,
        partner: GlobalPid,
        outbox: &mut Outbox,
    ) -> Result<(), Refusal> {
        let process = self.situation.departures.answered(source.node, id).ok_or(Refusal::Even)?;
        if !self.situation.may_go(now, process, Motive::Exchange) {
            self.withdraw(now, process, outbox);
            return Err(Refusal::Even);
        }
        let repeat_at = now + self.situation.config.tick;
        if let Some(departure) = self.situation.departures.get_mut(process)
            && !departure.is_leaving()
        {
            departure.stage = Stage::Waiting { partner };
            departure.repeat_at = repeat_at;
        }
        Ok(())
    }

    pub(super) fn process_arrived(
        &mut self,
        now: Time,
        process: GlobalPid,
        how: Arrival,
        outbox: &mut Outbox,
    ) {
        let place = self.situation.reservations.take(process);
        self.situation.residents.arrived(now, process, how, &self.situation.config);
        if let Some(place) = &place {
            self.situation.residents.told_calls(
                now,
                process,
                place.calls_per_cpu_s,
                &self.situation.config,
            );
            self.situation.residents.told_progress(
                now,
                process,
                place.attained_s,
                &self.situation.config,
            );
        }
        self.situation.residents.expect(
            now,
            process,
            place.map(|place| place.demand),
            &self.situation.config,
        );
        if let Some(partner) = self.situation.departures.waiting_for(process) {
            self.go_in_turn(now, partner, outbox);
        }
        if let Arrival::CameHome { from } = how {
            let why = Why::CameHome(from);
            let verdict = Verdict::CameHome { from };
            outbox.push(Output::RecordDecision { process, verdict, why });
        }
    }

    /// Its partner has come: now it goes.
    fn go_in_turn(&mut self, now: Time, process: GlobalPid, outbox: &mut Outbox) {
        if self.situation.may_go(now, process, Motive::Exchange) {
            self.begin_move(now, process, outbox);
        } else {
            self.withdraw(now, process, outbox);
        }
    }

    /// A node has left or is lost: places kept for it are free, and what was offered to it goes
    /// elsewhere. Moves under way end by themselves.
    pub(super) fn forget_promises_of(&mut self, now: Time, node: NodeId, outbox: &mut Outbox) {
        self.situation.reservations.release_all_of(node);
        let offered: Vec<GlobalPid> = self
            .situation
            .departures
            .iter()
            .filter(|departure| departure.to == node && !departure.is_moving())
            .map(|departure| departure.offer.process)
            .collect();
        for process in offered {
            self.withdraw(now, process, outbox);
        }
    }
}
