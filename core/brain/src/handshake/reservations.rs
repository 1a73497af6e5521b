//! The target's half of the handshake: places kept for processes on their way here.
//!
//! A reservation counts as load from the moment it is given, so that no second source is promised
//! the same idle core. It lapses by itself: a source that crashed or lost its way costs three
//! seconds. Repetition of an offer renews it; arrival of the process turns it into real load.

use crate::messages::OfferId;
use crate::time::Time;
use std::collections::BTreeMap;
use wire::ids::{GlobalPid, NodeId};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation {
    pub source: NodeId,
    pub offer: OfferId,
    pub demand: f64,
    pub rss_bytes: u64,
    /// How much the process was seen to talk to its home.
    pub calls_per_cpu_s: u32,
    /// Reference seconds of work that it had done when it was offered.
    pub attained_s: f64,
    pub expires_at: Time,
}

/// At most one place per process.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    places: BTreeMap<GlobalPid, Reservation>,
}

impl Reservations {
    pub fn reserve(&mut self, process: GlobalPid, reservation: Reservation) {
        self.places.insert(process, reservation);
    }

    /// Renews the place that this very offer holds; false if it holds none.
    pub fn renew(
        &mut self,
        process: GlobalPid,
        source: NodeId,
        offer: OfferId,
        expires_at: Time,
    ) -> bool {
        match self.places.get_mut(&process) {
            Some(place) if place.source == source && place.offer == offer => {
                place.expires_at = expires_at;
                true
            }
            _ => false,
        }
    }

    pub fn release(&mut self, source: NodeId, offer: OfferId) {
        self.places.retain(|_, place| place.source != source || place.offer != offer);
    }

    pub fn release_all_of(&mut self, source: NodeId) {
        self.places.retain(|_, place| place.source != source);
    }

    pub fn take(&mut self, process: GlobalPid) -> Option<Reservation> {
        self.places.remove(&process)
    }

    pub fn expire(&mut self, now: Time) {
        self.places.retain(|_, place| place.expires_at > now);
    }

    pub fn contains(&self, process: GlobalPid) -> bool {
        self.places.contains_key(&process)
    }

    pub fn count(&self) -> usize {
        self.places.len()
    }

    pub fn demand(&self) -> f64 {
        self.places.values().map(|place| place.demand).sum()
    }

    pub fn rss_bytes(&self) -> u64 {
        self.places.values().fold(0, |sum, place| sum.saturating_add(place.rss_bytes))
    }

    pub fn processes(&self) -> impl Iterator<Item = GlobalPid> {
        self.places.keys().copied()
    }
}
