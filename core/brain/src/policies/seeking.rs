//! An idle node asks others for work: the moment it has room, not when a crowded one next looks
//! around.

use crate::brain::Brain;
use crate::config::{Config, Decision};
use crate::facts::Condition;
use crate::messages::Body;
use crate::others::Status;
use crate::output::Outbox;
use crate::time::{Span, Time};
use wire::ids::NodeId;

/// Sources asked for work by an idle node in one round, besides one at random.
const SOURCES_ASKED: usize = 3;
/// Between two questions for work outside the round, so that a burst of short processes is cheap.
const SEEK_PAUSE: Span = Span::from_millis(100);

impl Brain {
    /// An idle node asks those it knows to have work for it, those first where processes get least,
    /// and one at random.
    pub(crate) fn seek(&mut self, now: Time, outbox: &mut Outbox) {
        let Some(own) = self.condition_for_guests(now) else { return };
        if own.room() < 0.5 || self.reservations.count() >= self.places_max(&own) {
            return;
        }
        if self.config.decision != Decision::Osmos || own.is_closed {
            return;
        }
        self.sought_at = now;
        let mut sources: Vec<(NodeId, f64)> = self
            .members
            .useful(now, &self.config)
            .filter(|(_, condition, _)| has_work_for(condition, &own, &self.config))
            .map(|(node, condition, _)| (node, condition.share()))
            .collect();
        sources.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        sources.truncate(SOURCES_ASKED);
        let mut asked: Vec<NodeId> = sources.into_iter().map(|(node, _)| node).collect();
        let random = self.members.pick(&mut self.random, |member| member.status == Status::Alive);
        asked.extend(random.filter(|node| !asked.contains(node)));
        for node in asked {
            self.send(now, node, Body::Seek, outbox);
        }
    }

    /// Whoever has room and knows of work asks again at each look; without such knowledge once in a
    /// round is enough.
    pub(crate) fn seek_known_work(&mut self, now: Time, outbox: &mut Outbox) {
        if !self.may_seek(now) {
            return;
        }
        let Some(own) = self.condition_for_guests(now) else { return };
        let mut known = self.members.useful(now, &self.config);
        if known.any(|(_, condition, _)| has_work_for(&condition, &own, &self.config)) {
            drop(known);
            self.seek(now, outbox);
        }
    }

    /// Room may just have appeared: ask now, not at the next round.
    pub(crate) fn seek_at_once(&mut self, now: Time, outbox: &mut Outbox) {
        if self.may_seek(now) {
            self.seek(now, outbox);
        }
    }

    fn may_seek(&self, now: Time) -> bool {
        now.since(self.sought_at) >= SEEK_PAUSE
    }
}

/// Whether a process there would gain by a core that stands idle here: some wait, or it is slower.
fn has_work_for(there: &Condition, here: &Condition, config: &Config) -> bool {
    let is_slower = there.speed * (1.0 + config.dead_band) < here.speed;
    there.waiting() >= config.noise || (is_slower && there.runnable >= config.demand_min)
}
