//! The source's half of the handshake: processes offered to another node, and those being moved.
//!
//! ```text
//!            ┌── no answer: repeat, then give up ──┐
//!  offered ──┼── refused ──────────────────────────┼──► at rest again
//!            └── accepted ──► moving ── move ended ┴──► gone, or at rest again
//!                  └► waiting for its partner ─┘        (an exchange)
//! ```
//! A process is in this table at most once: it can never have two moves outstanding.

use crate::messages::{Offer, OfferId};
use crate::reasons::Why;
use crate::time::Time;
use std::collections::BTreeMap;
use wire::ids::{GlobalPid, NodeId};
use wire::motive::Motive;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Offered {
        sends: u32,
    },
    /// It changes places with that one, and goes when that one has come: so no core stands idle.
    Waiting {
        partner: GlobalPid,
    },
    Moving {
        since: Time,
    },
    /// Moving for so long that it no longer holds up others. It still has a move outstanding.
    Overdue {
        since: Time,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Departure {
    pub to: NodeId,
    pub offer: Offer,
    pub stage: Stage,
    /// When to repeat the offer: for an answer, or to keep the place while moving.
    pub repeat_at: Time,
    pub why: Why,
}

impl Departure {
    pub fn is_moving(&self) -> bool {
        self.moving_since().is_some()
    }

    /// It will not stay: others need not count it.
    pub fn is_leaving(&self) -> bool {
        self.is_moving() || matches!(self.stage, Stage::Waiting { .. })
    }

    pub fn moving_since(&self) -> Option<Time> {
        match self.stage {
            Stage::Offered { .. } | Stage::Waiting { .. } => None,
            Stage::Moving { since } | Stage::Overdue { since } => Some(since),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Departures {
    under_way: BTreeMap<GlobalPid, Departure>,
}

impl Departures {
    pub fn begin(&mut self, departure: Departure) {
        self.under_way.insert(departure.offer.process, departure);
    }

    pub fn end(&mut self, process: GlobalPid) -> Option<Departure> {
        self.under_way.remove(&process)
    }

    pub fn get_mut(&mut self, process: GlobalPid) -> Option<&mut Departure> {
        self.under_way.get_mut(&process)
    }

    pub fn contains(&self, process: GlobalPid) -> bool {
        self.under_way.contains_key(&process)
    }

    /// Those that hold up others.
    pub fn count(&self) -> usize {
        self.iter().filter(|departure| !matches!(departure.stage, Stage::Overdue { .. })).count()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Departure> {
        self.under_way.values()
    }

    /// The process that this answer of `target` is about.
    pub fn answered(&self, target: NodeId, offer: OfferId) -> Option<GlobalPid> {
        self.iter()
            .find(|departure| departure.to == target && departure.offer.id == offer)
            .map(|departure| departure.offer.process)
    }

    pub fn is_moving(&self, process: GlobalPid) -> bool {
        self.under_way.get(&process).is_some_and(Departure::is_moving)
    }

    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Demand of the processes on offer, without `except`. For one that changes places with another
    /// one comes.
    pub fn demand_offered(&self, except: Option<GlobalPid>) -> f64 {
        self.iter()
            .filter(|d| !d.is_moving() && d.offer.motive != Motive::Exchange)
            .filter(|d| Some(d.offer.process) != except)
            .map(|d| d.offer.demand)
            .sum()
    }

    /// Demand offered to `target` that it may not count yet.
    pub fn offered_to(&self, target: NodeId) -> f64 {
        let offered = self.iter().filter(|d| d.to == target && !d.is_moving());
        offered.filter(|d| d.offer.motive != Motive::Exchange).map(|d| d.offer.demand).sum()
    }

    /// The process that waits for this one to come.
    pub fn waiting_for(&self, partner: GlobalPid) -> Option<GlobalPid> {
        let waiting = self.iter().find(|d| d.stage == Stage::Waiting { partner });
        waiting.map(|departure| departure.offer.process)
    }

    /// Those to repeat by `now`.
    pub fn due(&self, now: Time) -> Vec<GlobalPid> {
        let due = self.iter().filter(|departure| departure.repeat_at <= now);
        due.map(|departure| departure.offer.process).collect()
    }

    pub fn next_due(&self) -> Option<Time> {
        self.iter().map(|departure| departure.repeat_at).min()
    }
}
