//! Whether a node takes what it is offered.

use crate::config::Decision;
use crate::facts::Entry;
use crate::messages::{Offer, Refusal};
use crate::rule::{Burden, GainKind, drag, fits, judge};
use crate::situation::Situation;
use crate::time::Time;
use wire::ids::NodeId;
use wire::motive::Motive;

impl Situation {
    /// Whether to take what is offered, judged on the truth of this node rather than on what the
    /// source heard of it.
    pub(crate) fn would_take(
        &self,
        now: Time,
        source: &Entry,
        offer: &Offer,
    ) -> Result<(), Refusal> {
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
        let gain =
            judge(&there, &own, burden, self.noise(), &self.config).ok_or(Refusal::NoGain)?;
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

    pub(crate) fn has_memory_for(&self, now: Time, offer: &Offer) -> bool {
        let promised = self.reservations.rss_bytes();
        let margin = self.config.memory_margin;
        self.condition(now).is_some_and(|own| fits(&own, promised, offer.rss_bytes, margin))
    }
}
