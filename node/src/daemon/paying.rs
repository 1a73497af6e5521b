//! What moves are expected to cost, and what they did: the one is learned from the other.

use super::Daemon;
use crate::process::LastFreeze;
use wire::control::Migration;
use wire::freeze_budget::FreezeBudget;
use wire::ids::{GlobalPid, HomePid, NodeId};
use wire::move_cost::{COPIED_AHEAD_BYTES_MIN, Price};
use wire::supervisor::MoveReport;

/// What of so much memory is left for the freeze of the next move. A first one is copied ahead to
/// the end, where that can be.
fn rest_bytes(last: LastFreeze, rss_bytes: u64, copies_ahead: bool) -> u64 {
    match (last.us, copies_ahead && rss_bytes >= COPIED_AHEAD_BYTES_MIN) {
        (0, true) => 0,
        (0, false) => rss_bytes,
        _ => last.bytes.min(rss_bytes),
    }
}

impl Daemon {
    /// Of a move from here to another node, if it is known to which; None for all.
    pub(super) fn price(&self, (last, rss_bytes): (LastFreeze, u64), to: Option<NodeId>) -> Price {
        self.price_between(self.me(), to, (last, rss_bytes))
    }

    fn price_between(
        &self,
        from: NodeId,
        to: Option<NodeId>,
        (last, rss_bytes): (LastFreeze, u64),
    ) -> Price {
        let pace = to.map_or(self.paces.any(), |to| self.paces.of(from, to));
        let rest_bytes = rest_bytes(last, rss_bytes, kernel::tracking::is_possible());
        pace.price_within(rss_bytes, rest_bytes, self.limits_between(from, to).bandwidth)
    }

    /// How long a move may have the process stand still: as its user, or else this node's owner has
    /// said.
    pub(super) fn freeze_budget(&self, pid: HomePid) -> FreezeBudget {
        let own = self.processes.get(&pid).and_then(|process| process.freeze_budget);
        own.or(self.wishes.state.freeze_budget_ms).unwrap_or_default()
    }

    /// Of a process that runs here.
    pub(super) fn price_of(&self, process: GlobalPid, to: NodeId) -> Option<Price> {
        let known = match process.home == self.me() {
            true => self.processes.get(&process.pid).map(|process| process.weight()),
            false => self.guests.values().find(|g| g.process == process).map(|g| g.weight()),
        };
        Some(self.price(known?, Some(to)))
    }

    /// Notes what the move that is about to begin is expected to cost. A homecoming sends what was
    /// written away, of which nobody here knows.
    pub(super) fn expect_price(&mut self, pid: HomePid) {
        let Some(process) = self.processes.get(&pid) else { return };
        let Some(moving) = &process.moving else { return };
        let price = self.price_between(moving.from, Some(moving.order.to), process.weight());
        if let Some(moving) = self.processes.get_mut(&pid).and_then(|p| p.moving.as_mut()) {
            moving.expected = Some(price);
        }
    }

    /// What was expected stands beside what it was, and the next is expected by both.
    pub(super) fn compare_prices(
        &mut self,
        expected: Option<Price>,
        migration: Migration,
        report: &MoveReport,
    ) -> Migration {
        // One that nobody has timed (its daemon died) teaches nothing.
        if report.freeze_us > 0 {
            let link = (migration.from, migration.to);
            let limit = self.limits_between(migration.from, Some(migration.to)).bandwidth;
            self.paces.learn(link, report, expected.map(|price| price.freeze_s), limit);
        }
        let ms = |seconds: f64| seconds * 1e3;
        Migration {
            expected_freeze_ms: expected.map(|price| ms(price.freeze_s)),
            expected_total_ms: expected.map(|price| ms(price.total_s)),
            ..migration
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_first_move_leaves_nothing_for_its_freeze_and_a_later_one_what_the_last_did() {
        let large = 64 * COPIED_AHEAD_BYTES_MIN;
        let never = LastFreeze::default();
        assert_eq!(rest_bytes(never, large, true), 0);
        assert_eq!(rest_bytes(never, large, false), large, "nothing is copied ahead");
        assert_eq!(rest_bytes(never, 1 << 20, true), 1 << 20, "too little for that");
        let last = LastFreeze { us: 7_000, bytes: 3 << 20 };
        assert_eq!(rest_bytes(last, large, true), 3 << 20);
        assert_eq!(rest_bytes(last, 1 << 20, true), 1 << 20, "it has shrunk");
    }
}
