//! The published decision of MOSIX, as a baseline: once a second, from a load that rises slowly in
//! one's own eyes and falls slowly in the eyes of others, one process moves to the node that would
//! still be less loaded than this one.
//!
//! The figures are those of the published sources: an exported load that decays by an eighth each
//! second, a margin of 1.3 processes, the second most hungry process. Nobody is asked first.

use super::Proposal;
use crate::facts::Condition;
use crate::others::load_of;
use crate::situation::Situation;
use crate::time::Time;
use wire::ids::{GlobalPid, NodeId};
use wire::motive::Motive;

/// What the load of a candidate must stay below by: 130 % of what one process adds.
const MARGIN: f64 = 1.3;

/// The two loads of MOSIX, in runnable threads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Estimate {
    /// What this node believes of itself.
    own: f64,
    /// What it tells others.
    pub exported: f64,
    /// Its own, for each core of the reference speed.
    load: f64,
}

impl Estimate {
    /// Once a second.
    fn measured(&mut self, own: &Condition) {
        let now = own.runnable;
        self.own = if now > self.own { (5.0 * self.own + 3.0 * now) / 8.0 } else { now };
        self.exported = if now >= self.exported { now } else { (7.0 * self.exported + now) / 8.0 };
        self.load = load_of(&own.with_runnable(self.own));
    }

    pub fn load(&self) -> f64 {
        self.load
    }
}

impl Situation {
    /// Once a second.
    pub(crate) fn as_mosix_would(&self, now: Time, estimate: &mut Estimate) -> Option<Proposal> {
        estimate.measured(&self.load_here(now)?);
        let load_here = estimate.load;
        if self.departures.count() > 0 {
            return None;
        }
        let mut best: Option<(f64, NodeId)> = None;
        for (node, condition, _) in self.members.useful(now, &self.config) {
            let one = 1.0 / (f64::from(condition.cores) * condition.speed);
            let candidate = load_of(&condition) + MARGIN * one;
            if best.as_ref().is_none_or(|(least, _)| candidate < *least) {
                best = Some((candidate, node));
            }
        }
        let (load, to) = best?;
        if load >= load_here {
            return None;
        }
        let process = self.second_hungriest(now)?;
        let candidate = self.residents.candidate(now, process, &self.config).ok()?;
        let why = format!("a load of {load:.2} there, {load_here:.2} here");
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
