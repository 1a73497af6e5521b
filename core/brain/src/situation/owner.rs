//! What the owner of a node has decided: he comes first.
//!
//! A node that **yields** keeps its cores for load of its own: all that is runnable there but
//! guests. Guests have what that leaves, those of better priority first; whoever is left with less
//! than half of a core goes to where it gets the most. To others such a node shows only the cores
//! that are left, and for ten seconds the cores that its owner used, so that guests do not fly to
//! and fro with each of his pauses.

use super::Situation;
use crate::config::Config;
use crate::facts::Condition;
use crate::here::sane;
use crate::input::{Ownership, ProcessSample};
use crate::time::Time;
use std::cmp::Reverse;
use wire::ids::{GlobalPid, NodeId};

/// What the owner has decided, and what he uses himself.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    pub wants: Ownership,
    /// Runnable threads that are no guests' at the last two looks: one look may be mistaken about
    /// who has just come or gone.
    seen: [f64; 2],
    /// The most of it lately, and until when that counts.
    held: f64,
    held_until: Time,
}

impl Owner {
    fn look(&mut self, now: Time, threads: f64, config: &Config) {
        let hold = config.owner_hold;
        self.seen = [self.seen[1], threads];
        let load = self.load();
        if load >= self.held.round() - config.core_left_min {
            // As many cores as before, or more.
            self.held_until = now + hold;
            self.held = self.held.max(load);
        }
        if now >= self.held_until {
            (self.held, self.held_until) = (load, now + hold);
        }
    }

    /// Runnable threads that are no guests'.
    pub fn load(&self) -> f64 {
        self.seen[0].min(self.seen[1])
    }

    /// What guests may have of a node in that condition.
    fn leaves(&self, own: Condition) -> Condition {
        let taken = self.held.round().min(f64::from(own.cores));
        let cores = own.cores - taken as u32;
        match cores {
            0 => Condition { is_closed: true, ..own },
            _ => Condition { cores, ..own.with_runnable(own.runnable - taken) },
        }
    }
}

impl Situation {
    pub(crate) fn owner_decided(&mut self, wants: Ownership) {
        let owner = self.owner.get_or_insert_default();
        owner.wants = wants;
        owner.wants.priorities.sort_unstable_by_key(|(home, _)| *home);
    }

    fn wants(&self) -> Option<&Ownership> {
        self.owner.as_ref().map(|owner| &owner.wants)
    }

    /// Whether guests are turned away.
    pub(crate) fn is_closed(&self) -> bool {
        let Some(wants) = self.wants() else { return false };
        if wants.is_closed || wants.expels || wants.drains {
            return true;
        }
        wants.guests_max.is_some_and(|max| {
            let coming = self.reservations.processes().filter(|p| p.home != self.me).count();
            self.residents.guests().count() + coming >= max as usize
        })
    }

    /// Whether nothing shall run here, not even what was born here.
    pub(crate) fn is_drained(&self) -> bool {
        self.wants().is_some_and(|wants| wants.drains)
    }

    /// The present condition of this node as guests have it.
    pub(crate) fn condition_for_guests(&self, now: Time) -> Option<Condition> {
        let own = self.condition(now)?;
        match &self.owner {
            Some(owner) if owner.wants.yields => Some(owner.leaves(own)),
            _ => Some(own),
        }
    }

    /// The present condition of this node as a process of that home has it.
    pub(crate) fn condition_for(&self, now: Time, home: NodeId) -> Option<Condition> {
        let own = self.condition_for_guests(now)?;
        if home == self.me {
            return self.condition(now);
        }
        let Some(wants) = self.wants().filter(|wants| wants.yields) else { return Some(own) };
        let priority = wants.priority_of(home);
        let (mut before, mut after) = (0.0, 0.0);
        for guest in self.residents.guests() {
            match wants.priority_of(guest.home).cmp(&priority) {
                std::cmp::Ordering::Less => before += self.residents.demand_of(guest),
                std::cmp::Ordering::Greater => after += self.residents.demand_of(guest),
                std::cmp::Ordering::Equal => {}
            }
        }
        // Those of worse priority make room.
        let is_closed = own.is_closed || f64::from(own.cores) - before < self.config.core_left_min;
        Some(Condition { is_closed, ..own.with_runnable(own.runnable - after) })
    }

    /// Whether one more guest of that size is within what the owner allows.
    pub(crate) fn has_guest_memory_for(&self, rss_bytes: u64) -> bool {
        let Some(max) = self.wants().and_then(|wants| wants.guest_memory_max_bytes) else {
            return true;
        };
        let used = self.guests_ranked().iter().fold(self.reservations.rss_bytes(), |sum, guest| {
            sum.saturating_add(self.rss_bytes_of(*guest))
        });
        used.saturating_add(rss_bytes) <= max
    }

    pub(crate) fn rss_bytes_of(&self, process: GlobalPid) -> u64 {
        self.residents.known(process).map_or(0, |resident| resident.rss_bytes)
    }

    pub(crate) fn is_kept(&self, process: GlobalPid) -> bool {
        process.home == self.me && self.wants().is_some_and(|wants| wants.stays)
    }

    /// What is runnable here and no guest's, as of this look.
    pub(crate) fn note_own_load(&mut self, now: Time, samples: &[ProcessSample]) {
        if self.owner.is_none() {
            return;
        }
        // Not averaged where each second differs from the last: the owner does not wait.
        let Some(others) = self.own.others(now) else { return };
        let local = samples.iter().filter(|sample| sample.process.home == self.me);
        let demand: f64 = local.map(|sample| sane(sample.demand, 0.0, 1e4)).sum();
        if let Some(owner) = &mut self.owner {
            owner.look(now, others + demand, &self.config);
        }
    }

    /// Guests that are not leaving already: those of better priority first, and of one home who has
    /// been here longer.
    pub(crate) fn guests_ranked(&self) -> Vec<GlobalPid> {
        let Some(wants) = self.wants() else { return Vec::new() };
        let guests = self.residents.guests().filter(|guest| !self.departures.is_moving(*guest));
        let mut ranked: Vec<GlobalPid> = guests.collect();
        ranked.sort_by_key(|guest| {
            let here = self.residents.known(*guest).map(|resident| resident.here);
            (wants.priority_of(guest.home), Reverse(here), *guest)
        });
        ranked
    }

    /// Guests for which better ones, and the owner before all, leave no core; the worst first.
    pub(crate) fn crowded_out(&self, owner: &Owner, ranked: &[GlobalPid]) -> Vec<GlobalPid> {
        let Some(cores) = self.own.cores() else { return Vec::new() };
        if !owner.wants.yields {
            return Vec::new();
        }
        let priority = |guest: &GlobalPid| owner.wants.priority_of(guest.home);
        let mut left = f64::from(cores) - owner.load();
        let mut out = Vec::new();
        for equals in ranked.chunk_by(|a, b| priority(a) == priority(b)) {
            let demand: f64 = equals.iter().map(|guest| self.residents.demand_of(*guest)).sum();
            // Those that sleep take nothing from anybody.
            if demand > self.config.noise && left < self.config.core_left_min.min(demand) {
                out.extend(equals);
            }
            left -= demand;
        }
        out.reverse();
        out
    }

    /// Whether guests have to make room for the owner's own load.
    pub(crate) fn is_owner_pressed(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| {
            owner.wants.yields && !self.crowded_out(owner, &self.guests_ranked()).is_empty()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Priority;

    #[test]
    fn a_core_that_the_owner_used_is_kept_for_him_through_a_pause() {
        let mut owner = Owner::default();
        // He is waited for ten seconds.
        let config = Config::default();
        let at = |s: u64| Time::from_micros(s * 1_000_000);
        let own = Condition::idle(2, 1.0);
        for (s, threads) in [(1, 1.0), (2, 1.0), (3, 0.0), (4, 0.0)] {
            owner.look(at(s), threads, &config);
        }
        assert_eq!(owner.load(), 0.0);
        assert_eq!(owner.leaves(own.with_runnable(1.0)).cores, 1);
        assert_eq!(owner.leaves(own.with_runnable(1.0)).runnable, 0.0);
        owner.look(at(13), 0.0, &config);
        assert_eq!(owner.leaves(own).cores, 2);
    }

    #[test]
    fn one_look_that_shows_more_is_no_load_of_the_owners() {
        let mut owner = Owner::default();
        owner.look(Time::from_micros(1), 3.0, &Config::default());
        assert_eq!(owner.load(), 0.0);
        assert!(!owner.leaves(Condition::idle(1, 1.0)).is_closed);
        owner.look(Time::from_micros(2), 2.0, &Config::default());
        assert!(owner.leaves(Condition::idle(1, 1.0)).is_closed, "no core is left");
    }

    #[test]
    fn homes_without_a_priority_have_the_one_in_the_middle() {
        let priorities = vec![(NodeId(2), Priority(1)), (NodeId(5), Priority(90))];
        let wants = Ownership { priorities, ..Ownership::default() };
        let of = |home| wants.priority_of(NodeId(home)).0;
        assert_eq!([of(1), of(2), of(5), of(9)], [50, 1, 90, 50]);
    }
}
