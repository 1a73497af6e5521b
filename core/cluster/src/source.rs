//! The source's half of balancing: which process to offer to whom, and what becomes of the offer.

use crate::brain::Brain;
use crate::condition::Condition;
use crate::departures::{Departure, Stage};
use crate::input::MoveOutcome;
use crate::message::{Body, Offer, OfferId, Refusal};
use crate::output::{Outbox, Output, Verdict};
use crate::residents::{Candidate, StayCause};
use crate::rule::{Burden, Gain, GainKind, drag, is_beyond_doubt, judge, pays};
use crate::time::{Span, Time};
use wire::ids::{GlobalPid, NodeId};

/// Targets weighed in one go: the best few, since the very best is everybody's best.
const TARGETS_WEIGHED: usize = 3;

/// A place where a process might go, as far as this node knows.
#[derive(Clone, Copy, Debug)]
struct Target {
    node: NodeId,
    condition: Condition,
    age: Span,
}

struct Choice {
    candidate: Candidate,
    target: Target,
    gain: Gain,
}

impl Brain {
    /// Offers processes to other nodes, or to `only`, as long as that promises a gain.
    pub(crate) fn hand_over(&mut self, now: Time, only: Option<NodeId>, outbox: &mut Outbox) {
        while self.departures.count() < self.config.outbound_max && self.offers_left > 0 {
            let Some(choice) = self.choose(now, only, outbox) else { return };
            self.offers_left -= 1;
            self.make_offer(now, choice, outbox);
        }
    }

    /// The condition of this node from the view of one of its processes: other departures have
    /// left already, `process` has not.
    fn condition_for_leaving(&self, now: Time, process: Option<GlobalPid>) -> Option<Condition> {
        let condition = self.condition(now)?;
        let offered = self.departures.demand_offered(process);
        let moving = |process: &GlobalPid| {
            self.departures.iter().any(|d| d.offer.process == *process && d.is_moving())
        };
        let own = process.filter(moving).map_or(0.0, |process| self.residents.demand_of(process));
        Some(condition.with_runnable(condition.runnable - offered + own))
    }

    /// The process with the cheapest move that pays, with the target that promises it the most.
    fn choose(&mut self, now: Time, only: Option<NodeId>, outbox: &mut Outbox) -> Option<Choice> {
        let own = self.condition_for_leaving(now, None)?;
        let targets = self.targets(now, only);
        let mut best: Option<(f64, Choice)> = None;
        let mut staying = Vec::new();
        for process in self.residents.processes() {
            if self.departures.contains(process) {
                continue;
            }
            let chosen = self
                .residents
                .candidate(now, process, &self.config)
                .and_then(|candidate| self.best_target(now, own, candidate, &targets));
            match chosen {
                Err(cause) => staying.push((process, cause)),
                Ok(choice) => {
                    let past = choice.candidate.cpu.as_secs_f64();
                    let price = choice.candidate.freeze.as_secs_f64() / past.max(0.001);
                    if best.as_ref().is_none_or(|(lowest, _)| price < *lowest) {
                        best = Some((price, choice));
                    }
                }
            }
        }
        if only.is_none() {
            self.record_stays(now, staying, outbox);
        }
        best.map(|(_, choice)| choice)
    }

    /// The best few targets for a CPU-bound process, in random order among near equals.
    fn targets(&mut self, now: Time, only: Option<NodeId>) -> Vec<Target> {
        let mut found: Vec<Target> = self
            .members
            .useful(now, &self.config)
            .filter(|(node, ..)| only.is_none_or(|only| only == *node))
            .filter(|(node, ..)| !self.members.is_excluded(now, *node))
            .map(|(node, condition, age)| {
                let pending = self.departures.offered_to(node);
                let condition = condition.with_runnable(condition.runnable + pending);
                Target { node, condition, age }
            })
            .collect();
        let mut ranked: Vec<(f64, Target)> = found
            .drain(..)
            .map(|target| {
                let spread = 1.0 + self.config.dead_band * self.random.fraction();
                (target.condition.share_after(1.0) * spread, target)
            })
            .collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        ranked.truncate(TARGETS_WEIGHED);
        found.extend(ranked.into_iter().map(|(_, target)| target));
        found
    }

    /// The target that promises this process the most, its home always considered.
    fn best_target(
        &self,
        now: Time,
        own: Condition,
        candidate: Candidate,
        targets: &[Target],
    ) -> Result<Choice, StayCause> {
        if targets.is_empty() {
            return Err(StayCause::NobodyKnown);
        }
        let mut best: Option<Choice> = None;
        let mut gains = false;
        let home = self.home_as_target(now, &candidate, targets);
        for target in targets.iter().copied().chain(home) {
            let burden = self.burden(&candidate, target.node);
            let Some(gain) = judge(&own, &target.condition, burden, &self.config) else { continue };
            if candidate.came_from == Some(target.node)
                && gain.kind == GainKind::LargerShare
                && !is_beyond_doubt(&gain, &target.condition, burden, &self.config)
            {
                continue;
            }
            gains = true;
            if !pays(&gain, candidate.cpu, own.speed, candidate.freeze) {
                continue;
            }
            if best.as_ref().is_none_or(|best| gain.rate_after > best.gain.rate_after) {
                best = Some(Choice { candidate, target, gain });
            }
        }
        best.ok_or(if gains { StayCause::Unpaid } else { StayCause::NoGain })
    }

    fn home_as_target(
        &self,
        now: Time,
        candidate: &Candidate,
        targets: &[Target],
    ) -> Option<Target> {
        let home = candidate.process.home;
        let listed = targets.iter().any(|target| target.node == home);
        if listed || home == self.me || self.members.is_excluded(now, home) {
            return None;
        }
        let (node, condition, age) =
            self.members.useful(now, &self.config).find(|(node, ..)| *node == home)?;
        Some(Target { node, condition, age })
    }

    fn burden(&self, candidate: &Candidate, target: NodeId) -> Burden {
        let calls = candidate.calls_per_cpu_s;
        let cost = self.config.forward_cost;
        Burden {
            demand: candidate.demand_at(target),
            drag_source: drag(candidate.process, self.me, calls, cost),
            drag_target: drag(candidate.process, target, calls, cost),
        }
    }

    fn record_stays(
        &mut self,
        now: Time,
        staying: Vec<(GlobalPid, StayCause)>,
        outbox: &mut Outbox,
    ) {
        for (process, cause) in staying {
            if self.residents.stays_for(process, cause, now, &self.config) {
                let why = self.residents.explain(process, cause, &self.config);
                outbox.push(Output::RecordDecision { process, verdict: Verdict::Stay, why });
            }
        }
    }

    fn make_offer(&mut self, now: Time, choice: Choice, outbox: &mut Outbox) {
        let Choice { candidate, target, gain } = choice;
        let Some(own) = self.condition_for_leaving(now, Some(candidate.process)) else { return };
        let why = format!(
            "{}: rate {:.2} here ({:.1} runnable on {} cores at {:.2}), {:.2} on node {} ({:.1} on \
             {} at {:.2}, known {} ago); freeze {}, CPU time so far {}",
            gain.kind.text(),
            gain.rate_before,
            own.runnable,
            own.cores,
            own.speed,
            gain.rate_after,
            target.node,
            target.condition.runnable,
            target.condition.cores,
            target.condition.speed,
            target.age,
            candidate.freeze,
            candidate.cpu,
        );
        let offer = Offer {
            id: self.next_offer_id(),
            process: candidate.process,
            demand: candidate.demand_at(target.node),
            calls_per_cpu_s: candidate.calls_per_cpu_s as u32,
            rss_bytes: candidate.rss_bytes,
        };
        self.reservations.take(candidate.process);
        let repeat_at = now + self.config.offer_patience;
        let stage = Stage::Offered { sends: 1 };
        self.departures.begin(Departure { to: target.node, offer, stage, repeat_at, why });
        self.send_as(now, target.node, Some(own), Body::Offer(offer), outbox);
    }

    /// Offers that were not answered are repeated, then given up; while a process moves its place
    /// is kept by repeating too.
    pub(crate) fn repeat_offers(&mut self, now: Time, outbox: &mut Outbox) {
        for process in self.departures.due(now) {
            let Some(departure) = self.departures.get_mut(process) else { continue };
            let given_up = match &mut departure.stage {
                Stage::Offered { sends } if *sends >= self.config.offer_sends_max => true,
                Stage::Offered { sends } => {
                    *sends += 1;
                    departure.repeat_at = now + self.config.offer_patience;
                    false
                }
                Stage::Moving { since } => {
                    departure.repeat_at = now + self.config.tick;
                    if now.since(*since) >= self.config.move_patience {
                        departure.stage = Stage::Overdue { since: *since };
                    }
                    false
                }
                Stage::Overdue { .. } => {
                    departure.repeat_at = now + self.config.tick;
                    false
                }
            };
            let (to, offer) = (departure.to, departure.offer);
            if given_up {
                self.withdraw(now, process, outbox);
                self.members.exclude_deaf(now, to, &mut self.random, &self.config);
                let why = format!("node {to} did not answer");
                let verdict = Verdict::NotMoved { to };
                outbox.push(Output::RecordDecision { process, verdict, why });
            } else {
                let own = self.condition_for_leaving(now, Some(process));
                self.send_as(now, to, own, Body::Offer(offer), outbox);
            }
        }
    }

    pub(crate) fn offer_accepted(
        &mut self,
        now: Time,
        from: NodeId,
        id: OfferId,
        outbox: &mut Outbox,
    ) {
        let Some(process) = self.departures.answered(from, id) else {
            // Nobody wants that place (any more).
            self.send(now, from, Body::Release(id), outbox);
            return;
        };
        let may_go = self.residents.candidate(now, process, &self.config).is_ok();
        let repeat_at = now + self.config.tick;
        let Some(departure) = self.departures.get_mut(process) else { return };
        if departure.is_moving() {
            return;
        }
        if !may_go {
            self.withdraw(now, process, outbox);
            return;
        }
        // Only offers that come to nothing use up the round's supply.
        self.offers_left += 1;
        departure.stage = Stage::Moving { since: now };
        departure.repeat_at = repeat_at;
        let why = departure.why.clone();
        let verdict = Verdict::Move { to: from };
        outbox.push(Output::RecordDecision { process, verdict, why: why.clone() });
        outbox.push(Output::Move { process, to: from, why });
        self.hand_over(now, None, outbox);
    }

    pub(crate) fn offer_refused(
        &mut self,
        now: Time,
        from: NodeId,
        id: OfferId,
        refusal: Refusal,
        outbox: &mut Outbox,
    ) {
        let Some(process) = self.departures.answered(from, id) else { return };
        // A place that was given and then refused on repetition: the move is under way and decides.
        if self.departures.iter().any(|d| d.offer.process == process && d.is_moving()) {
            return;
        }
        self.departures.end(process);
        self.members.exclude(now, from, &mut self.random, &self.config);
        let why = format!("node {from} refused: {}", refusal.text());
        let verdict = Verdict::Refused { by: from };
        outbox.push(Output::RecordDecision { process, verdict, why });
        self.hand_over(now, None, outbox);
    }

    pub(crate) fn move_ended(
        &mut self,
        now: Time,
        process: GlobalPid,
        to: NodeId,
        outcome: MoveOutcome,
        freeze: Span,
        outbox: &mut Outbox,
    ) {
        let departure = self.departures.end(process);
        // Somebody else moved it while it was on offer to another node: that place is not needed.
        if let Some(departure) = &departure
            && (departure.to != to || outcome != MoveOutcome::Moved)
        {
            self.send(now, departure.to, Body::Release(departure.offer.id), outbox);
        }
        let demand = departure.as_ref().map_or(0.0, |departure| departure.offer.demand);
        if outcome != MoveOutcome::Moved && self.residents.thawed(process, demand) {
            self.own.changed(now, demand);
        }
        let ours = departure.is_some_and(|departure| departure.is_moving());
        let (verdict, why) = match outcome {
            MoveOutcome::Moved => {
                self.members.include(to);
                if let Some(demand) = self.residents.departed(process) {
                    // It has not been runnable here since it was frozen.
                    self.own.changed(now - freeze, -demand);
                }
                (Verdict::Moved { to }, format!("moved, frozen for {freeze}"))
            }
            MoveOutcome::Stayed => {
                self.residents.set_back(now, process, &self.config);
                (Verdict::NotMoved { to }, "it could not be moved and runs on".into())
            }
            MoveOutcome::Failed => {
                self.residents.rest(now, process, &self.config);
                if ours {
                    self.members.exclude_failed(now, to, &mut self.random, &self.config);
                }
                (Verdict::NotMoved { to }, format!("node {to} or the way to it failed"))
            }
        };
        outbox.push(Output::RecordDecision { process, verdict, why });
        self.hand_over(now, None, outbox);
        self.seek_at_once(now, outbox);
    }

    /// Takes back what was said about a process, if anything was.
    pub(crate) fn withdraw(&mut self, now: Time, process: GlobalPid, outbox: &mut Outbox) {
        if let Some(departure) = self.departures.end(process) {
            self.send(now, departure.to, Body::Release(departure.offer.id), outbox);
        }
    }

    /// Offers of processes that do not run here any more are taken back.
    pub(crate) fn withdraw_vanished(&mut self, now: Time, outbox: &mut Outbox) {
        let offered = self.departures.iter().filter(|d| !d.is_moving());
        let vanished: Vec<GlobalPid> = offered
            .map(|departure| departure.offer.process)
            .filter(|process| !self.residents.is_running(*process))
            .collect();
        for process in vanished {
            self.withdraw(now, process, outbox);
        }
    }
}
