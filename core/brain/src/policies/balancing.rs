//! The pairwise rule over all processes and places: which process to hand over, and to whom.

use super::Proposal;
use crate::facts::{Candidate, Condition, Entry};
use crate::random::Random;
use crate::reasons::{PlaceSeen, PlacesCompared, StayCause, Why};
use crate::rule::{Gain, GainKind, is_beyond_doubt, judge, may_gain, pays};
use crate::situation::{Situation, Target};
use crate::time::Time;
use wire::ids::{GlobalPid, NodeId};
use wire::motive::Motive;

/// What came of looking for a process to hand over.
#[derive(Default)]
pub(crate) struct Weighed {
    pub proposal: Option<Proposal>,
    /// Why the others stay. None if that was not asked, or nothing is known of this node.
    pub stays: Option<Vec<(GlobalPid, StayCause)>>,
}

struct Choice {
    candidate: Candidate,
    target: Target,
    gain: Gain,
}

/// Who goes first: the least, by one key after another.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Precedence {
    /// What its user has: first whose user has least. Of those that get less by their move, first
    /// whose user has most.
    share: f64,
    /// Threads, less than none if it gets more: the widest first; of those that get less, last.
    width: f64,
    /// Those of a group go before others.
    is_alone: bool,
    /// Of a group, who is furthest behind goes where it gets more, and who is furthest ahead where
    /// it gets less; of others, whose freeze weighs least against what is left of it.
    progress_or_cost: f64,
}

impl Situation {
    /// The process that comes first ([`Precedence`]) of those with a move that pays, to the target
    /// that promises it the most, or to `only`.
    pub(crate) fn best_move(
        &self,
        now: Time,
        only: Option<NodeId>,
        random: &mut Random,
    ) -> Weighed {
        let Some(own) = self.condition_for_leaving(now, None) else { return Weighed::default() };
        if let Some(cause) = self.hopeless(now, only, &own) {
            let stays = only.is_none().then(|| self.all_stay(now, cause));
            return Weighed { proposal: None, stays };
        }
        let targets = self.targets(now, only, random);
        let mut best: Option<(Precedence, Choice)> = None;
        let mut stays = Vec::new();
        for process in self.residents.processes() {
            if self.departures.contains(process) {
                continue;
            }
            let chosen = self
                .may_leave_for_room(now, process)
                .and_then(|candidate| self.best_target(now, own, candidate, &targets));
            match chosen {
                Err(cause) => stays.push((process, cause)),
                Ok(choice) => {
                    let precedence = self.precedence(&choice);
                    if best.as_ref().is_none_or(|(first, _)| precedence < *first) {
                        best = Some((precedence, choice));
                    }
                }
            }
        }
        let proposal = best.map(|(_, choice)| {
            let why = self.reason(now, &choice);
            Proposal::new(choice.candidate, choice.target.node, Motive::Balance, why)
        });
        Weighed { proposal, stays: only.is_none().then_some(stays) }
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

    fn precedence(&self, choice: &Choice) -> Precedence {
        let candidate = &choice.candidate;
        let is_better = choice.gain.rate_after >= choice.gain.rate_before;
        let share = self.share_of_owner(candidate.process);
        let share = if is_better { share } else { -share };
        let width = candidate.demand.round().max(1.0);
        let width = if is_better { -width } else { width };
        if candidate.group.is_some() && self.config.rotates {
            let attained_s = candidate.attained_s(self.own.pace) / candidate.demand.max(1.0);
            let progress_s = if is_better { attained_s } else { -attained_s };
            return Precedence { share, width, is_alone: false, progress_or_cost: progress_s };
        }
        let cost = candidate.freeze.as_secs_f64() / candidate.left_s().max(0.001);
        Precedence { share, width, is_alone: true, progress_or_cost: cost }
    }

    /// The best few targets for a CPU-bound process, in random order among near equals. Seldom
    /// asked for: mostly nothing can go anywhere.
    fn targets(&self, now: Time, only: Option<NodeId>, random: &mut Random) -> Vec<Target> {
        let departures = &self.departures;
        let barred = self.barred_to_all();
        let seen = |entry: &Entry| {
            let condition = entry.condition()?;
            let pending = departures.offered_to(entry.node);
            Some(condition.with_runnable(condition.runnable + pending))
        };
        let mut ranked: Vec<(f64, Option<&Entry>)> =
            vec![(f64::NEG_INFINITY, None); self.config.best_few];
        for entry in self.members.useful_entries(now, only, &self.config) {
            if entry.is_closed || self.members.exclusions.holds(now, entry.node) {
                continue;
            }
            if barred.is_some_and(|barred| barred.contains(&entry.node)) {
                continue;
            }
            let Some(condition) = seen(entry) else { continue };
            let spread = 1.0 + self.config.dead_band * random.fraction();
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

    /// Each process stays for a cause of its own, or else for that.
    fn all_stay(&self, now: Time, cause: StayCause) -> Vec<(GlobalPid, StayCause)> {
        let at_rest = self.residents.running.iter();
        let at_rest = at_rest.filter(|(process, _)| !self.departures.contains(**process));
        at_rest
            .map(|(process, resident)| {
                (*process, self.stay_cause(now, *process, resident).unwrap_or(cause))
            })
            .collect()
    }
}
