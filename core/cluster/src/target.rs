//! The target's half of balancing: whether to take what is offered, judged on the truth of this
//! node rather than on what the source heard of it.

use crate::brain::Brain;
use crate::condition::Entry;
use crate::input::Arrival;
use crate::message::{Body, Offer, Refusal};
use crate::output::{Outbox, Output, Verdict};
use crate::reservations::Reservation;
use crate::residents::NEWCOMER_DEMAND;
use crate::rule::{Burden, drag, fits, judge};
use crate::time::Time;
use wire::ids::{GlobalPid, NodeId};

impl Brain {
    pub(crate) fn offer_received(
        &mut self,
        now: Time,
        source: Entry,
        offer: Offer,
        outbox: &mut Outbox,
    ) {
        let expires_at = now + self.config.reservation_ttl;
        let renewed = self.reservations.renew(offer.process, source.node, offer.id, expires_at);
        let verdict = if renewed { Ok(()) } else { self.weigh(now, &source, &offer) };
        let body = match verdict {
            Ok(()) => {
                let reservation = Reservation {
                    source: source.node,
                    offer: offer.id,
                    demand: offer.demand,
                    rss_bytes: offer.rss_bytes,
                    calls_per_cpu_s: offer.calls_per_cpu_s,
                    expires_at,
                };
                self.reservations.reserve(offer.process, reservation);
                Body::Accept(offer.id)
            }
            Err(refusal) => Body::Refuse(offer.id, refusal),
        };
        self.send(now, source.node, body, outbox);
    }

    fn weigh(&self, now: Time, source: &Entry, offer: &Offer) -> Result<(), Refusal> {
        let process = offer.process;
        if self.residents.is_present(now, process) || self.departures.contains(process) {
            return Err(Refusal::Present);
        }
        let own = self.condition(now).ok_or(Refusal::Unready)?;
        let there = source.condition.ok_or(Refusal::Unready)?;
        if self.reservations.count() >= self.places_max(&own) {
            return Err(Refusal::Busy);
        }
        let margin = self.config.memory_margin;
        if !fits(&own, self.reservations.rss_bytes(), offer.rss_bytes, margin) {
            return Err(Refusal::Memory);
        }
        let calls = f64::from(offer.calls_per_cpu_s);
        let drag_at = |node: NodeId| drag(process, node, calls, self.config.forward_cost);
        let burden = Burden {
            demand: offer.demand,
            drag_source: drag_at(source.node),
            drag_target: drag_at(self.me),
        };
        judge(&there, &own, burden, &self.config).map(|_| ()).ok_or(Refusal::Load)
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
        }
        // A newborn counts too: until the next measurement shows it, this node would pass for idle.
        self.own.changed(now, place.map_or(NEWCOMER_DEMAND, |place| place.demand));
        if let Arrival::CameHome { from } = how {
            let why = format!("it came home from node {from}: a call or a fault needed it here");
            let verdict = Verdict::CameHome { from };
            outbox.push(Output::RecordDecision { process, verdict, why });
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
