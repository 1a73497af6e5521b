//! Memory ushering (Barak and Braverman 1998): a node that runs short of memory hands over
//! processes before it pages, whatever that means for the load; and none ever goes where it would
//! make another node short.
//!
//! The shortage is what is missing to the margin that a node keeps free, or, where something waits
//! for memory already, half of that margin at least. The smallest process that ends the shortage
//! goes, as it costs the least to transfer; if none does alone, the largest. It goes to the node
//! that gives it the most among those where it fits.

use super::Proposal;
use crate::facts::Candidate;
use crate::situation::Situation;
use crate::time::Time;
use wire::motive::Motive;

impl Situation {
    /// Bytes that this node is short of; 0 if it is not.
    fn shortage_bytes(&self, now: Time) -> u64 {
        let Some(own) = self.load_here(now) else { return 0 };
        let margin = (own.memory_total_bytes as f64 * self.config.memory_margin) as u64;
        let promised = self.reservations.rss_bytes();
        let free = own.memory_free_bytes.saturating_sub(promised);
        let leaving: u64 = self
            .departures
            .iter()
            .filter(|departure| departure.is_moving())
            .fold(0, |sum, departure| sum.saturating_add(departure.offer.rss_bytes));
        let missing = margin.saturating_sub(free.saturating_add(leaving));
        if missing == 0
            && leaving == 0
            && self.own.memory_pressure > self.config.memory_pressure_max
        {
            return margin / 2;
        }
        missing
    }

    pub(crate) fn usher(&self, now: Time) -> Option<Proposal> {
        let shortage = self.shortage_bytes(now);
        if shortage == 0 || self.departures.count() >= self.config.outbound_max {
            return None;
        }
        let movable = self.residents.processes().filter_map(|process| self.must_go(now, process));
        let mut by_size: Vec<Candidate> = movable.collect();
        by_size.sort_by_key(|candidate| candidate.rss_bytes);
        let enough = by_size.partition_point(|candidate| candidate.rss_bytes < shortage);
        // From the smallest that is enough upwards, then the others from the largest down.
        let (small, large) = by_size.split_at(enough);
        for candidate in large.iter().chain(small.iter().rev()) {
            let Some(target) = self.refuge(now, candidate) else { continue };
            let why = format!(
                "node {} is short of {} MiB; it frees {} MiB",
                self.me,
                shortage >> 20,
                candidate.rss_bytes >> 20
            );
            return Some(Proposal::new(*candidate, target.node, Motive::Memory, why));
        }
        None
    }
}
