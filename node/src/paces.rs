//! How fast memory moves from one node to another, as moves of this home's processes have shown.

use std::collections::BTreeMap;
use wire::ids::NodeId;
use wire::move_cost::Pace;
use wire::move_limits::Bandwidth;
use wire::supervisor::MoveReport;

/// Pairs of nodes that are remembered: more than have moves at one time.
const LINKS_MAX: usize = 1_024;

#[derive(Clone, Debug, Default)]
pub struct Paces {
    links: BTreeMap<(NodeId, NodeId), Pace>,
    /// Of all of them, for those of which nothing is known.
    all: Pace,
}

impl Paces {
    pub fn of(&self, from: NodeId, to: NodeId) -> Pace {
        self.links.get(&(from, to)).copied().unwrap_or(self.any())
    }

    /// Of a link that is not chosen yet.
    pub fn any(&self) -> Pace {
        self.all.elsewhere()
    }

    /// A move within that limit has been carried out that was taken to freeze for `foreseen_s`.
    pub fn learn(
        &mut self,
        (from, to): (NodeId, NodeId),
        report: &MoveReport,
        foreseen_s: Option<f64>,
        limit: Option<Bandwidth>,
    ) {
        let mut pace = self.of(from, to);
        pace.learn(report, foreseen_s, limit);
        self.all.learn(report, foreseen_s, limit);
        self.links.insert((from, to), pace);
        if self.links.len() > LINKS_MAX {
            self.links.pop_first();
        }
    }

    /// The node belongs to the cluster no more; its number may be given again.
    pub fn forget(&mut self, node: NodeId) {
        self.links.retain(|(from, to), _| *from != node && *to != node);
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::supervisor::Phase;

    fn report(bytes_per_s: f64) -> MoveReport {
        let pages_sent = 65_536;
        let us = (pages_sent as f64 * 4096.0 / bytes_per_s * 1e6) as u64;
        let phases_us = vec![Phase { name: "copy".into(), us }];
        MoveReport { phases_us, pages_sent, freeze_us: 5_000, ..MoveReport::default() }
    }

    #[test]
    fn each_link_has_its_own_pace_and_what_is_unknown_that_of_all() {
        let [one, two, three] = [1, 2, 3].map(NodeId);
        let mut paces = Paces::default();
        for _ in 0..20 {
            paces.learn((one, two), &report(1e9), Some(0.005), None);
            paces.learn((one, three), &report(1e7), Some(0.005), None);
        }
        let [fast, slow] = [two, three].map(|to| paces.of(one, to).bytes_per_s);
        assert!(fast > 0.9e9 && slow < 1.1e7, "{fast} {slow}");
        let between = paces.of(two, three);
        assert!((slow..fast).contains(&between.bytes_per_s) && between.error_s.is_none());
        paces.forget(three);
        assert_eq!(paces.of(one, three), paces.any());
        assert_eq!(paces.of(one, two).bytes_per_s, fast);
        for number in 10..5_000 {
            paces.learn((one, NodeId(number)), &report(1e8), None, None);
        }
        assert!(paces.links.len() <= LINKS_MAX);
    }
}
