//! The published decision of MOSIX, as a baseline: once a second, from a load that rises slowly in
//! one's own eyes and falls slowly in the eyes of others, one process moves to the node that would
//! still be less loaded than this one.
//!
//! The figures are those of the published sources: an exported load that decays by an eighth each
//! second, a margin of 1.3 processes, the second most hungry process (Kerrighed's port of it);
//! loads within a twentieth of a process are equal and one of these nodes is drawn, and a node that
//! was chosen counts for three seconds as if it had a process more (`infod`). Nobody is asked
//! first.

use super::Proposal;
use crate::config::Config;
use crate::facts::Condition;
use crate::others::load_of;
use crate::random::Random;
use crate::situation::Situation;
use crate::time::{Span, Time};
use wire::ids::{GlobalPid, NodeId};
use wire::motive::Motive;

/// What the load of a candidate must stay below by: 130 % of what one process adds.
const MARGIN: f64 = 1.3;
/// Loads of candidates that differ by no more are equal: 5 in `infod`, where a process adds 100.
const EQUAL: f64 = 0.05;
/// For so long a node that was chosen counts as if it had a process more.
const VIRTUAL_LOAD: Span = Span::from_secs(3);
/// What is kept of what one believes oneself, when it rises, and of what one tells others, when it
/// falls, after a second.
const OWN_KEPT: f64 = 5.0 / 8.0;
const EXPORTED_KEPT: f64 = 7.0 / 8.0;

/// The two loads of MOSIX, in runnable threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Estimate {
    /// What this node believes of itself.
    own: f64,
    /// What it tells others.
    pub exported: f64,
    /// Its own, for each core of the reference speed.
    load: f64,
    /// Nodes that were chosen, and until when they count as having a process more.
    chosen: Vec<(NodeId, Time)>,
}

impl Estimate {
    /// Once a second.
    fn measured(&mut self, own: &Condition, config: &Config) {
        let now = own.runnable;
        let approach = |known: f64, kept: f64| now + (known - now) * kept.powf(config.mosix_pace);
        self.own = if now > self.own { approach(self.own, OWN_KEPT) } else { now };
        let is_rising = now >= self.exported;
        self.exported = if is_rising { now } else { approach(self.exported, EXPORTED_KEPT) };
        self.load = load_of(&own.with_runnable(self.own));
    }

    pub fn load(&self) -> f64 {
        self.load
    }

    /// Processes that a node counts as having more than it says.
    fn virtual_load(&self, node: NodeId) -> f64 {
        self.chosen.iter().filter(|(chosen, _)| *chosen == node).count() as f64
    }
}

impl Situation {
    /// Once a second.
    pub(crate) fn as_mosix_would(
        &self,
        now: Time,
        estimate: &mut Estimate,
        random: &mut Random,
    ) -> Option<Proposal> {
        estimate.measured(&self.load_here(now)?, &self.config);
        estimate.chosen.retain(|(_, until)| now < *until);
        if self.departures.count() > 0 {
            return None;
        }
        let load_of_candidate = |(node, condition, _): (NodeId, Condition, Span)| {
            let one = 1.0 / (f64::from(condition.cores) * condition.speed);
            let more = MARGIN + estimate.virtual_load(node);
            (load_of(&condition) + more * one, node)
        };
        let candidates: Vec<(f64, NodeId)> =
            self.members.useful(now, &self.config).map(load_of_candidate).collect();
        let least = candidates.iter().map(|(load, _)| *load).reduce(f64::min)?;
        if least >= estimate.load {
            return None;
        }
        let is_equal = |(load, _): &&(f64, NodeId)| *load <= least + EQUAL && *load < estimate.load;
        let equal: Vec<_> = candidates.iter().filter(is_equal).collect();
        let (load, to) = *equal[random.below(equal.len() as u64) as usize];
        let process = self.second_hungriest(now)?;
        let candidate = self.residents.candidate(now, process, &self.config).ok()?;
        let why = format!("a load of {load:.2} there, {:.2} here", estimate.load);
        let shortened = VIRTUAL_LOAD.as_secs_f64() / self.config.mosix_pace;
        estimate.chosen.push((to, now + Span::from_secs_f64(shortened)));
        Some(Proposal::new(candidate, to, Motive::Balance, why))
    }

    /// Of those that have been here for a second.
    fn second_hungriest(&self, now: Time) -> Option<GlobalPid> {
        let running = self.residents.running.iter().filter(|(process, sample)| {
            let can_move = self.residents.candidate(now, **process, &self.config).is_ok();
            can_move && sample.here >= self.config.residency
        });
        let mut hungry: Vec<(f32, GlobalPid)> =
            running.map(|(process, sample)| (sample.used, *process)).collect();
        hungry.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        hungry.get(1).or(hungry.first()).map(|(_, process)| *process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(runnable: f64) -> Condition {
        Condition::idle(1, 1.0).with_runnable(runnable)
    }

    #[test]
    fn a_load_that_has_gone_is_told_for_seconds_and_in_a_shorter_experiment_for_less() {
        let told_after = |rounds: usize, mosix_pace: f64| {
            let config = Config { mosix_pace, ..Config::default() };
            let mut estimate = Estimate::default();
            estimate.measured(&own(2.0), &config);
            (0..rounds).for_each(|_| estimate.measured(&own(0.0), &config));
            estimate.exported
        };
        assert_eq!(told_after(1, 1.0), 1.75);
        assert!((told_after(8, 1.0) - 0.69).abs() < 0.01, "{}", told_after(8, 1.0));
        assert!((told_after(1, 8.0) - told_after(8, 1.0)).abs() < 1e-12);
    }

    #[test]
    fn a_node_that_was_chosen_counts_as_having_a_process_more() {
        let chosen = vec![(NodeId(2), Time(9)), (NodeId(3), Time(9)), (NodeId(2), Time(9))];
        let estimate = Estimate { chosen, ..Estimate::default() };
        assert_eq!([1, 2, 3].map(|node| estimate.virtual_load(NodeId(node))), [0.0, 2.0, 1.0]);
    }
}
