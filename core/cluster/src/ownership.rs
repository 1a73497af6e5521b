//! The owner of a node comes first: what he closes stays closed, and guests that he wants gone go
//! elsewhere, not necessarily home.

use crate::brain::Brain;
use crate::message::Motive;
use crate::output::Outbox;
use crate::residents::Candidate;
use crate::source::Target;
use crate::time::Time;
use wire::ids::GlobalPid;

impl Brain {
    /// Whether guests are turned away.
    pub(crate) fn is_closed(&self) -> bool {
        let ownership = self.ownership;
        if ownership.is_closed || ownership.expels {
            return true;
        }
        ownership.guests_max.is_some_and(|max| {
            let coming = self.reservations.processes().filter(|p| p.home != self.me).count();
            self.residents.guests().count() + coming >= max as usize
        })
    }

    /// Guests go: each to where it is best off, and if nobody takes it, home.
    pub(crate) fn expel(&mut self, now: Time, outbox: &mut Outbox) {
        if !self.ownership.expels {
            return;
        }
        let guests: Vec<GlobalPid> = self.residents.guests().collect();
        for process in guests {
            if self.departures.count() >= self.config.outbound_max {
                return;
            }
            let Some(candidate) = self.must_go(now, process) else { continue };
            let Some(target) = self.refuge(now, &candidate) else { continue };
            let why = format!("the owner of node {} wants it for himself", self.me);
            self.make_offer(now, candidate, target.node, Motive::Owner, None, why, outbox);
        }
    }

    /// The process as one that has to leave whatever it gains; None if it cannot move at all.
    pub(crate) fn must_go(&self, now: Time, process: GlobalPid) -> Option<Candidate> {
        if self.departures.contains(process) {
            return None;
        }
        self.residents.evictable(now, process, &self.config)
    }

    /// Where a process that must leave gets the most, among nodes with memory for it.
    pub(crate) fn refuge(&self, now: Time, candidate: &Candidate) -> Option<Target> {
        let margin = self.config.memory_margin;
        let mut best: Option<(f64, Target)> = None;
        for (node, condition, age) in self.members.useful(now, &self.config) {
            let pending = self.departures.offered_to(node);
            let is_home = node == candidate.process.home;
            let fits = crate::rule::fits(&condition, 0, candidate.rss_bytes, margin);
            let is_open = is_home || !condition.is_closed;
            if !fits || !is_open || self.members.exclusions.holds(now, node) {
                continue;
            }
            let condition = condition.with_runnable(condition.runnable + pending);
            let share = condition.share_after(candidate.demand);
            if best.as_ref().is_none_or(|(most, _)| share > *most) {
                best = Some((share, Target { node, condition, age }));
            }
        }
        best.map(|(_, target)| target)
    }
}
