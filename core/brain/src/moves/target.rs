//! The target's half of balancing: whether to take what is offered, judged on the truth of this
//! node rather than on what the source heard of it.

use crate::brain::Brain;
use crate::config::Decision;
use crate::facts::Entry;
use crate::handshake::{Reservation, Stage};
use crate::input::Arrival;
use crate::messages::{Body, Offer, OfferId, Refusal, from_ms};
use crate::output::{Outbox, Output, Verdict};
use crate::reasons::Why;
use crate::rule::{Burden, GainKind, drag, fits, judge};
use crate::time::Time;
use wire::ids::{GlobalPid, NodeId};
use wire::motive::Motive;

impl Brain {
    pub(crate) fn offer_received(
        &mut self,
        now: Time,
        source: Entry,
        offer: Offer,
        outbox: &mut Outbox,
    ) {
        self.hear_holder(now, &offer);
        let expires_at = now + self.config.reservation_ttl;
        let renewed = self.reservations.renew(offer.process, source.node, offer.id, expires_at);
        let verdict = match (renewed, offer.motive, offer.in_return_for) {
            (true, ..) => Ok(()),
            (false, Motive::Exchange, None) => {
                return self.exchange_offered(now, source, offer, outbox);
            }
            (false, Motive::Exchange, Some(id)) => {
                self.exchange_answered(now, &source, id, offer.process, outbox)
            }
            _ => self.weigh(now, &source, &offer),
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
        self.reservations.reserve(offer.process, reservation);
        self.note_holder(now, offer);
    }

    /// A node with more room would change places with one of the same group that is behind.
    fn exchange_offered(&mut self, now: Time, source: Entry, offer: Offer, outbox: &mut Outbox) {
        let is_present = self.residents.is_present(offer.process);
        let behind = match self.weigh_exchange(now, &source, &offer) {
            Ok(_) if is_present => Err(Refusal::Present),
            Ok(_) if !self.has_memory_for(now, &offer) => Err(Refusal::Memory),
            verdict => verdict,
        };
        match behind {
            Ok(behind) => {
                self.return_offer(now, behind, source.node, offer.id, outbox);
                self.reserve(now, &source, &offer, now + self.config.reservation_ttl);
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
        let process = self.departures.answered(source.node, id).ok_or(Refusal::Even)?;
        if !self.may_go(now, process, Motive::Exchange) {
            self.withdraw(now, process, outbox);
            return Err(Refusal::Even);
        }
        let repeat_at = now + self.config.tick;
        if let Some(departure) = self.departures.get_mut(process)
            && !departure.is_leaving()
        {
            departure.stage = Stage::Waiting { partner };
            departure.repeat_at = repeat_at;
        }
        Ok(())
    }

    fn has_memory_for(&self, now: Time, offer: &Offer) -> bool {
        let promised = self.reservations.rss_bytes();
        let margin = self.config.memory_margin;
        self.condition(now).is_some_and(|own| fits(&own, promised, offer.rss_bytes, margin))
    }

    fn weigh(&self, now: Time, source: &Entry, offer: &Offer) -> Result<(), Refusal> {
        let process = offer.process;
        if self.residents.is_present(process) || self.departures.contains(process) {
            return Err(Refusal::Present);
        }
        let own = self.condition_for(now, process.home).ok_or(Refusal::Unready)?;
        let there = source.condition().ok_or(Refusal::Unready)?;
        let is_guest = process.home != self.me;
        if is_guest && (own.is_closed || !self.has_guest_memory_for(offer.rss_bytes)) {
            return Err(Refusal::Owner);
        }
        if !is_guest && self.is_drained() {
            return Err(Refusal::Owner);
        }
        if self.config.decision == Decision::Mosix {
            return Ok(());
        }
        if self.reservations.count() >= self.places_max(&own) {
            return Err(Refusal::Busy);
        }
        if !self.has_memory_for(now, offer) {
            return Err(Refusal::Memory);
        }
        if offer.motive == Motive::Share && !self.evens_shares(offer) {
            return Err(Refusal::Share);
        }
        if offer.motive != Motive::Balance {
            return Ok(());
        }
        let calls = f64::from(offer.calls_per_cpu_s);
        let drag_at = |node: NodeId| drag(process, node, calls, self.config.forward_cost);
        let burden = Burden {
            demand: offer.demand,
            drag_source: drag_at(source.node),
            drag_target: drag_at(self.me),
        };
        let gain = judge(&there, &own, burden, self.noise(), &self.config).ok_or(Refusal::Load)?;
        // Where a core is idle nobody loses.
        match gain.kind {
            GainKind::LargerShare
                if self.takes_from_poorer(offer)
                    || self.crowds_its_own(now, offer, gain.rate_before) =>
            {
                Err(Refusal::Share)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn process_arrived(
        &mut self,
        now: Time,
        process: GlobalPid,
        how: Arrival,
        outbox: &mut Outbox,
    ) {
        let place = self.reservations.take(process);
        self.residents.arrived(now, process, how, &self.config);
        if let Some(place) = &place {
            self.residents.told_calls(now, process, place.calls_per_cpu_s, &self.config);
            self.residents.told_progress(now, process, place.attained_s, &self.config);
        }
        self.residents.expect(now, process, place.map(|place| place.demand), &self.config);
        if let Some(partner) = self.departures.waiting_for(process) {
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
        if self.may_go(now, process, Motive::Exchange) {
            self.begin_move(now, process, outbox);
        } else {
            self.withdraw(now, process, outbox);
        }
    }

    /// A node has left or is lost: places kept for it are free, and what was offered to it goes
    /// elsewhere. Moves under way end by themselves.
    pub(crate) fn forget_promises_of(&mut self, now: Time, node: NodeId, outbox: &mut Outbox) {
        self.reservations.release_all_of(node);
        let offered: Vec<GlobalPid> = self
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
