//! The source's half of balancing: which process to offer to whom, and what becomes of the offer.

use crate::brain::Brain;
use crate::config::Decision;
use crate::facts::{Candidate, Condition, Entry};
use crate::handshake::{Departure, Stage};
use crate::here::Resident;
use crate::input::MoveOutcome;
use crate::messages::{Body, Offer, OfferId, Refusal, to_ms};
use crate::others::Status;
use crate::output::{Outbox, Output, Verdict};
use crate::reasons::{PlaceSeen, PlacesCompared, StayCause, Why};
use crate::rule::{Burden, Gain, GainKind, drag, is_beyond_doubt, judge, may_gain, pays};
use crate::time::{Span, Time};
use wire::ids::{GlobalPid, NodeId};
use wire::motive::Motive;

/// Targets weighed in one go: the best few, since the very best is everybody's best.
const TARGETS_WEIGHED: usize = 3;

/// A place where a process might go, as far as this node knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub node: NodeId,
    pub condition: Condition,
    pub age: Span,
}

struct Choice {
    candidate: Candidate,
    target: Target,
    gain: Gain,
}

impl Brain {
    /// Offers processes to other nodes, or to `only`, as long as that promises a gain.
    pub(crate) fn hand_over(&mut self, now: Time, only: Option<NodeId>, outbox: &mut Outbox) {
        if self.config.decision != Decision::Osmos || self.residents.count() == 0 {
            return;
        }
        while self.departures.count() < self.config.outbound_max && self.offers_left > 0 {
            let Some(choice) = self.choose(now, only, outbox) else { return };
            self.offers_left -= 1;
            let why = self.reason(now, &choice);
            let Choice { candidate, target, .. } = choice;
            self.make_offer(now, candidate, target.node, Motive::Balance, None, why, outbox);
        }
    }

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

    /// The process with the cheapest move that pays, with the target that promises it the most.
    fn choose(&mut self, now: Time, only: Option<NodeId>, outbox: &mut Outbox) -> Option<Choice> {
        let own = self.condition_for_leaving(now, None)?;
        if let Some(cause) = self.hopeless(now, only, &own) {
            if only.is_none() {
                self.all_stay(now, cause, outbox);
            }
            return None;
        }
        let targets = self.targets(now, only);
        let mut best: Option<((f64, bool, f64), Choice)> = None;
        let mut is_unripe = false;
        let processes: Vec<GlobalPid> = self.residents.processes().collect();
        for process in processes {
            if self.departures.contains(process) {
                continue;
            }
            let chosen = self
                .may_leave_for_room(now, process)
                .and_then(|candidate| self.best_target(now, own, candidate, &targets));
            match chosen {
                Err(cause) if only.is_none() => {
                    is_unripe |= cause == StayCause::Young;
                    self.record_stay(now, process, cause, outbox);
                }
                Err(_) => {}
                Ok(choice) => {
                    let price = self.price(&choice);
                    if best.as_ref().is_none_or(|(lowest, _)| price < *lowest) {
                        best = Some((price, choice));
                    }
                }
            }
        }
        if only.is_none() {
            self.is_unripe = is_unripe;
        }
        best.map(|(_, choice)| choice)
    }

    /// Why no process of this node could go anywhere (or to `only`), if that is plain without
    /// weighing each against each place: as it mostly is.
    fn hopeless(&self, now: Time, only: Option<NodeId>, own: &Condition) -> Option<StayCause> {
        let Some(wish) = self.residents.wish(own, self.noise(), &self.config) else {
            return Some(StayCause::NoGain);
        };
        let mut is_anybody_known = false;
        for entry in self.members.useful_entries(now, only, &self.config) {
            is_anybody_known = true;
            if may_gain(entry, &wish) {
                return None;
            }
        }
        Some(if is_anybody_known { StayCause::NoGain } else { StayCause::NobodyKnown })
    }

    /// First whose user has least. Of a group, who is furthest behind goes where it gets more, and
    /// who is furthest ahead where it gets less; of others, whose freeze weighs least against what
    /// is left of it.
    fn price(&self, choice: &Choice) -> (f64, bool, f64) {
        let candidate = &choice.candidate;
        let is_better = choice.gain.rate_after >= choice.gain.rate_before;
        let share = self.share_of_owner(candidate.process);
        let share = if is_better { share } else { -share };
        if candidate.group.is_some() && self.config.rotates {
            let attained_s = candidate.attained_s(self.own.pace);
            return (share, false, if is_better { attained_s } else { -attained_s });
        }
        (share, true, candidate.freeze.as_secs_f64() / candidate.left_s().max(0.001))
    }

    /// The best few targets for a CPU-bound process, in random order among near equals. Seldom
    /// asked for: mostly nothing can go anywhere.
    fn targets(&mut self, now: Time, only: Option<NodeId>) -> Vec<Target> {
        let departures = &self.departures;
        let barred = self.barred_to_all().cloned();
        let seen = |entry: &Entry| {
            let condition = entry.condition()?;
            let pending = departures.offered_to(entry.node);
            Some(condition.with_runnable(condition.runnable + pending))
        };
        let mut ranked: [(f64, Option<&Entry>); TARGETS_WEIGHED] =
            [(f64::NEG_INFINITY, None); TARGETS_WEIGHED];
        for entry in self.members.useful_entries(now, only, &self.config) {
            if entry.is_closed || self.members.exclusions.holds(now, entry.node) {
                continue;
            }
            if barred.as_ref().is_some_and(|barred| barred.contains(&entry.node)) {
                continue;
            }
            let Some(condition) = seen(entry) else { continue };
            let spread = 1.0 + self.config.dead_band * self.random.fraction();
            let mut next = (condition.share_after(1.0) * spread, Some(entry));
            for place in &mut ranked {
                if next.0 > place.0 {
                    std::mem::swap(place, &mut next);
                }
            }
        }
        let best = ranked.into_iter().filter_map(|(_, entry)| entry);
        let target = |entry: &Entry| {
            Some(Target { node: entry.node, condition: seen(entry)?, age: now.since(entry.at) })
        };
        best.filter_map(target).collect()
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
        let (mut gains, mut is_new) = (false, false);
        let home = self.home_as_target(now, &candidate, targets);
        for target in targets.iter().copied().chain(home) {
            if self.is_barred(candidate.process, target.node) {
                continue;
            }
            let burden = self.burden(&candidate, target.node);
            let Some(gain) = judge(&own, &target.condition, burden, self.noise(), &self.config)
            else {
                continue;
            };
            if candidate.came_from == Some(target.node)
                && gain.kind == GainKind::LargerShare
                && !is_beyond_doubt(&gain, &target.condition, burden, &self.config)
            {
                continue;
            }
            if candidate.is_new && gain.kind == GainKind::LargerShare {
                is_new = true;
                continue;
            }
            gains = true;
            if !pays(&gain, &candidate, self.own.pace) {
                continue;
            }
            if best.as_ref().is_none_or(|best| gain.rate_after > best.gain.rate_after) {
                best = Some(Choice { candidate, target, gain });
            }
        }
        best.ok_or(match (gains, is_new) {
            (true, _) => StayCause::Unpaid,
            (false, true) => StayCause::Young,
            (false, false) => StayCause::NoGain,
        })
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

    fn reason(&self, now: Time, choice: &Choice) -> Why {
        let Choice { candidate, target, gain } = choice;
        let seen = |condition: Condition| PlaceSeen {
            runnable: condition.runnable,
            cores: condition.cores,
            speed: condition.speed,
        };
        let own = self.condition_for_leaving(now, Some(candidate.process));
        Why::Gain(Box::new(PlacesCompared {
            gain: *gain,
            here: own.map(seen).unwrap_or_default(),
            there: seen(target.condition),
            node: target.node,
            age: target.age,
            freeze: candidate.freeze,
            cpu: candidate.cpu,
        }))
    }

    /// Offers a process of this node, for itself or in return for another.
    #[expect(clippy::too_many_arguments, reason = "an offer has that many sides")]
    pub(crate) fn make_offer(
        &mut self,
        now: Time,
        candidate: Candidate,
        to: NodeId,
        motive: Motive,
        in_return_for: Option<OfferId>,
        why: impl Into<Why>,
        outbox: &mut Outbox,
    ) {
        let process = candidate.process;
        if self.is_barred(process, to) {
            return;
        }
        let Some(own) = self.condition_for_leaving(now, Some(process)) else { return };
        let offer = Offer {
            id: self.next_offer_id(),
            process,
            demand: candidate.demand_at(to),
            calls_per_cpu_s: candidate.calls_per_cpu_s as u32,
            rss_bytes: candidate.rss_bytes,
            motive,
            group: candidate.group,
            attained_ms: to_ms(candidate.attained_s(self.own.pace)),
            in_return_for,
            holder: self.holder_of(process),
        };
        self.reservations.take(process);
        let repeat_at = now + self.config.offer_patience;
        let stage = Stage::Offered { sends: 1 };
        self.departures.begin(Departure { to, offer, stage, repeat_at, why: why.into() });
        self.send_as(now, to, Some(own), Body::Offer(offer), outbox);
    }

    /// Offers that were not answered are repeated, then given up; while a process moves its place
    /// is kept by repeating too.
    pub(crate) fn repeat_offers(&mut self, now: Time, outbox: &mut Outbox) {
        if self.departures.is_empty() {
            return;
        }
        for process in self.departures.due(now) {
            let Some(departure) = self.departures.get_mut(process) else { continue };
            let is_forsaken = match departure.stage {
                // The place for its partner has lapsed: nobody comes.
                Stage::Waiting { partner } => !self.reservations.contains(partner),
                _ => false,
            };
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
                Stage::Waiting { .. } | Stage::Overdue { .. } => {
                    departure.repeat_at = now + self.config.tick;
                    false
                }
            };
            let (to, offer) = (departure.to, departure.offer);
            if is_forsaken {
                self.withdraw(now, process, outbox);
            } else if given_up {
                self.withdraw(now, process, outbox);
                self.members.exclusions.was_deaf(now, to, &mut self.random, &self.config);
                let why = Why::Deaf(to);
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
        let Some(departure) = self.departures.get_mut(process) else { return };
        if departure.is_leaving() {
            return;
        }
        let Offer { motive, in_return_for, .. } = departure.offer;
        // An exchange is answered by an offer in return, not by this.
        let is_answer = motive != Motive::Exchange || in_return_for.is_some();
        if !is_answer || !self.may_go(now, process, motive) {
            return self.withdraw(now, process, outbox);
        }
        self.begin_move(now, process, outbox);
        self.hand_over(now, None, outbox);
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

    /// A place is kept for it: the process goes.
    pub(crate) fn begin_move(&mut self, now: Time, process: GlobalPid, outbox: &mut Outbox) {
        let Some(departure) = self.departures.get_mut(process) else { return };
        // Only offers that come to nothing use up the round's supply.
        self.offers_left += 1;
        departure.stage = Stage::Moving { since: now };
        departure.repeat_at = now + self.config.tick;
        let (to, why) = (departure.to, departure.why.clone());
        let motive = departure.offer.motive;
        let verdict = Verdict::Move { to };
        outbox.push(Output::RecordDecision { process, verdict, why: why.clone() });
        outbox.push(Output::Move { process, to, motive, why });
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
        if self.departures.iter().any(|d| d.offer.process == process && d.is_leaving()) {
            return;
        }
        let ended = self.departures.end(process);
        if let Some(for_offer) = ended.and_then(|departure| departure.offer.in_return_for) {
            self.reservations.release(from, for_offer);
        }
        if refusal != Refusal::Even {
            let there = self.members.runnable_of(from);
            let (random, config) = (&mut self.random, &self.config);
            self.members.exclusions.refused(now, from, there, random, config);
        }
        let why = Why::Refused(from, refusal.into());
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
        let ours = departure.is_some_and(|departure| departure.is_moving());
        let (verdict, why) = match outcome {
            MoveOutcome::Moved => {
                self.members.exclusions.lift(to);
                self.residents.departed(now, process);
                (Verdict::Moved { to }, Why::Moved { freeze })
            }
            MoveOutcome::Stayed => {
                self.residents.set_back(now, process, &self.config);
                (Verdict::NotMoved { to }, Why::Unmoved)
            }
            MoveOutcome::Failed => {
                self.residents.rest(now, process, &self.config);
                if ours {
                    self.members.exclusions.failed(now, to, &mut self.random, &self.config);
                }
                (Verdict::NotMoved { to }, Why::Failed(to))
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

    /// Offers of processes are taken back that do not run here any more, or move with others now.
    pub(crate) fn withdraw_vanished(&mut self, now: Time, outbox: &mut Outbox) {
        if self.departures.is_empty() {
            return;
        }
        let offered = self.departures.iter().filter(|d| !d.is_moving());
        let vanished: Vec<GlobalPid> = offered
            .map(|departure| departure.offer.process)
            .filter(|process| self.residents.known(*process).is_none_or(Resident::is_another))
            .collect();
        for process in vanished {
            self.withdraw(now, process, outbox);
        }
    }
}
