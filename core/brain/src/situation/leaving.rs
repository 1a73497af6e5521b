//! Who may leave this node, and where a process could go.

use super::Situation;
use crate::facts::{Candidate, Condition};
use crate::here::Resident;
use crate::others::Status;
use crate::reasons::StayCause;
use crate::rule::{Burden, drag, fits};
use crate::time::{Span, Time};
use wire::ids::{GlobalPid, NodeId};
use wire::motive::Motive;

/// A place where a process might go, as far as this node knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub node: NodeId,
    pub condition: Condition,
    pub age: Span,
}

impl Situation {
    /// The condition of this node from the view of one of its processes: other departures have
    /// left already, `process` has not.
    pub(crate) fn condition_for_leaving(
        &self,
        now: Time,
        process: Option<GlobalPid>,
    ) -> Option<Condition> {
        let condition = self.condition(now)?;
        let offered = self.departures.demand_offered(process);
        let moving = |process: &GlobalPid| {
            self.departures.iter().any(|d| d.offer.process == *process && d.is_moving())
        };
        let own = process.filter(moving).map_or(0.0, |process| self.residents.demand_of(process));
        Some(condition.with_runnable(condition.runnable - offered + own))
    }

    /// Whether what let the process be offered still holds.
    pub(crate) fn may_go(&self, now: Time, process: GlobalPid, motive: Motive) -> bool {
        match motive {
            Motive::Balance => self.residents.candidate(now, process, &self.config).is_ok(),
            Motive::Exchange | Motive::Share => {
                let candidate = self.residents.candidate(now, process, &self.config);
                candidate.is_ok_and(|candidate| !candidate.is_new)
            }
            Motive::Memory | Motive::Owner => {
                self.residents.evictable(now, process, &self.config).is_some()
            }
        }
    }

    /// The process as a candidate for leaving by balancing, or why it stays.
    pub(crate) fn may_leave(&self, now: Time, process: GlobalPid) -> Result<Candidate, StayCause> {
        let candidate = self.may_leave_for_room(now, process)?;
        if candidate.is_new { Err(StayCause::Young) } else { Ok(candidate) }
    }

    /// The same for a move that puts an idle core to work.
    pub(crate) fn may_leave_for_room(
        &self,
        now: Time,
        process: GlobalPid,
    ) -> Result<Candidate, StayCause> {
        let candidate = self.residents.candidate(now, process, &self.config)?;
        if self.is_kept(process) { Err(StayCause::Kept) } else { Ok(candidate) }
    }

    /// Why the process does not leave by balancing whatever the place, if it does not.
    pub(crate) fn stay_cause(
        &self,
        now: Time,
        process: GlobalPid,
        resident: &Resident,
    ) -> Option<StayCause> {
        let cause = self.residents.stay_cause(now, process, resident, &self.config);
        cause.or_else(|| self.is_kept(process).then_some(StayCause::Kept))
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
            let fits = fits(&condition, 0, candidate.rss_bytes, margin);
            let is_open = is_home || !condition.is_closed;
            let is_barred = self.is_barred(candidate.process, node);
            if !fits || !is_open || is_barred || self.members.exclusions.holds(now, node) {
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

    pub(crate) fn home_as_target(
        &self,
        now: Time,
        candidate: &Candidate,
        targets: &[Target],
    ) -> Option<Target> {
        let home = candidate.process.home;
        let listed = targets.iter().any(|target| target.node == home);
        if listed || home == self.me || self.members.exclusions.holds(now, home) {
            return None;
        }
        let member = self.members.get(home).filter(|member| member.status == Status::Alive)?;
        let (condition, age) = member.known(now)?;
        (age <= self.config.useful_age_max).then_some(Target { node: home, condition, age })
    }

    pub(crate) fn burden(&self, candidate: &Candidate, target: NodeId) -> Burden {
        let calls = candidate.calls_per_cpu_s;
        let cost = self.config.forward_cost;
        Burden {
            demand: candidate.demand_at(target),
            drag_source: drag(candidate.process, self.me, calls, cost),
            drag_target: drag(candidate.process, target, calls, cost),
        }
    }
}
