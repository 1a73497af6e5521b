//! An idle node asks others for work: the moment it has room, not when a crowded one next looks
//! around.

use crate::config::{Config, Decision};
use crate::facts::Condition;
use crate::others::Status;
use crate::random::Random;
use crate::situation::Situation;
use crate::time::Time;
use wire::ids::NodeId;

impl Situation {
    /// Those that an idle node knows to have work for it, those first where processes get least,
    /// and one at random. None if it has no room for any.
    pub(crate) fn whom_to_ask_for_work(
        &self,
        now: Time,
        random: &mut Random,
    ) -> Option<Vec<NodeId>> {
        let own = self.condition_for_guests(now)?;
        if own.room() < 0.5 || self.reservations.count() >= self.places_max(&own) {
            return None;
        }
        if self.config.decision != Decision::Osmos || own.is_closed {
            return None;
        }
        let mut sources: Vec<(NodeId, f64)> = self
            .members
            .useful(now, &self.config)
            .filter(|(_, condition, _)| has_work_for(condition, &own, &self.config))
            .map(|(node, condition, _)| (node, condition.share()))
            .collect();
        sources.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        sources.truncate(self.config.best_few);
        let mut asked: Vec<NodeId> = sources.into_iter().map(|(node, _)| node).collect();
        let other = self.members.pick(random, |member| member.status == Status::Alive);
        asked.extend(other.filter(|node| !asked.contains(node)));
        Some(asked)
    }

    /// Whoever has room and knows of work asks again at each look; without such knowledge once in a
    /// round is enough.
    pub(crate) fn knows_of_work(&self, now: Time) -> bool {
        let Some(own) = self.condition_for_guests(now) else { return false };
        let mut known = self.members.useful(now, &self.config);
        known.any(|(_, condition, _)| has_work_for(&condition, &own, &self.config))
    }
}

/// Whether a process there would gain by a core that stands idle here: some wait, or it is slower.
fn has_work_for(there: &Condition, here: &Condition, config: &Config) -> bool {
    let is_slower = there.speed * (1.0 + config.dead_band) < here.speed;
    there.waiting() >= config.noise || (is_slower && there.runnable >= config.demand_min)
}
