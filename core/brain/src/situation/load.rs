//! The load of a node as its brain sees it and tells it to others: what was measured, what wants to
//! run, and who is on the way.

use super::Situation;
use crate::facts::Condition;
use crate::time::Time;

impl Situation {
    /// The present condition of this node with all that runs here.
    pub(crate) fn load_here(&self, now: Time) -> Option<Condition> {
        self.own.condition(now, self.residents.demand(), &self.config)
    }

    /// The present condition of this node as others should see it: those on their way here
    /// included, those on their way elsewhere not.
    pub(crate) fn condition(&self, now: Time) -> Option<Condition> {
        let condition = self.own.condition_of(self.runnable(now)?)?;
        Some(Condition { is_closed: self.is_closed(), ..condition })
    }

    /// Of that condition what is runnable.
    pub(crate) fn runnable(&self, now: Time) -> Option<f64> {
        let runnable = self.own.runnable(now, self.residents.demand(), &self.config)?;
        let is_settled = self.promises.is_empty()
            && self.reservations.count() == 0
            && self.departures.is_empty();
        Some(if is_settled { runnable } else { self.runnable_in_the_end(runnable) })
    }

    /// Of that condition whether half a core stands idle.
    pub(crate) fn has_room(&self, runnable: f64) -> bool {
        let cores = self.own.cores().map_or(0.0, f64::from);
        cores - runnable.clamp(0.0, cores) >= 0.5
    }

    /// With those on their way here, and without those on their way elsewhere.
    fn runnable_in_the_end(&self, runnable: f64) -> f64 {
        let promised = self.promises.iter().filter(|(node, _)| *node == self.me).count() as f64;
        let coming = self.reservations.demand() + promised;
        let going = self.departures.iter().filter(|departure| departure.is_leaving());
        let leaving: f64 =
            going.map(|departure| self.residents.demand_of(departure.offer.process)).sum();
        (runnable + coming - leaving).max(0.0)
    }

    /// What must not be taken for load, of one thread: the more, the less one second is like the
    /// next here. Many cores have many processes, and of these one decides as little as elsewhere:
    /// what differs from one second to the next grows as the square root of their number.
    pub(crate) fn noise(&self) -> f64 {
        let config = &self.config;
        let unrest = config.noise_of_others * self.own.spread
            + config.noise_of_waits * self.residents.unrest();
        config.noise + unrest / f64::from(self.own.cores().unwrap_or(1).max(1)).sqrt()
    }

    /// Places that this node gives at one time.
    pub(crate) fn places_max(&self, own: &Condition) -> usize {
        own.cores as usize + 1
    }
}
