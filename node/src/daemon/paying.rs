//! What moves are expected to cost, and what they did: the one is learned from the other.

use super::Daemon;
use super::newborns::YOUNG;
use crate::guest::Guest;
use crate::process::Weight;
use crate::procfs;
use wire::control::{Migration, Placement};
use wire::freeze_budget::FreezeBudget;
use wire::ids::{GlobalPid, HomePid, NodeId};
use wire::move_cost::{COPIED_AHEAD_BYTES_MIN, Price};
use wire::supervisor::{MoveReport, Way};

/// What of so much memory is left for the freeze of the next move. A first one is copied ahead to
/// the end, where that can be.
fn rest_bytes(Weight { last, rss_bytes, shared_bytes }: Weight, copies_ahead: bool) -> u64 {
    match (last.us, copies_ahead && rss_bytes >= COPIED_AHEAD_BYTES_MIN) {
        (0, true) => shared_bytes.min(rss_bytes),
        (0, false) => rss_bytes,
        _ => last.bytes.min(rss_bytes),
    }
}

impl Daemon {
    /// Of a move from here to another node, if it is known to which; None for all.
    pub(super) fn price(&self, weight: Weight, to: Option<NodeId>) -> Price {
        self.price_between(self.me(), to, weight)
    }

    fn price_between(&self, from: NodeId, to: Option<NodeId>, weight: Weight) -> Price {
        let pace = self.others.pace(from, to);
        let rest_bytes = rest_bytes(weight, kernel::tracking::is_possible());
        pace.price_within(weight.rss_bytes, rest_bytes, self.limits_between(from, to).bandwidth)
    }

    /// How long a move may have the process stand still: as its user, or else this node's owner has
    /// said.
    pub(super) fn freeze_budget(&self, pid: HomePid) -> FreezeBudget {
        let own = self.processes.get(&pid).and_then(|process| process.freeze_budget);
        own.or(self.wishes.state.freeze_budget_ms).unwrap_or_default()
    }

    /// How the memory of a process goes along: as was ordered, or as its user has said. One that
    /// has just begun and has little is stopped at once, if its budget allows it: copied ahead it
    /// would wait for a processor here, with all others, and what it has to do it does better
    /// there.
    pub(super) fn way_of_move(&self, pid: HomePid, to: NodeId) -> Way {
        let Some(process) = self.processes.get(&pid) else { return Way::default() };
        if let Some(ordered) = process.moving.as_ref().and_then(|moving| moving.order.way) {
            return ordered;
        }
        let is_young = process.at == self.me()
            && process.here_since.elapsed() < YOUNG
            && (matches!(process.placement, Placement::Node(_))
                || process.left(&self.programs).is_some());
        if process.way != Way::PreCopy || !is_young {
            return process.way;
        }
        let Some(bytes) = procfs::read_own_bytes(pid.0) else { return process.way };
        let limit = self.limits_between(self.me(), Some(to)).bandwidth;
        let price = self.others.pace(self.me(), Some(to)).price_within(bytes, bytes, limit);
        match price.freeze_s <= self.freeze_budget(pid).duration().as_secs_f64() {
            true => Way::StopAndCopy,
            false => process.way,
        }
    }

    /// Of a process that runs here, with those that go with it.
    pub(super) fn price_of(&self, process: GlobalPid, to: NodeId) -> Option<Price> {
        let weight_of = |process: GlobalPid| match process.home == self.me() {
            true => self.processes.get(&process.pid).map(|process| process.weight()),
            false => self.hosting.of(process).next().map(Guest::weight),
        };
        let weight = match self.memory_groups.of(process) {
            Some(group) => group.weight(group.members.iter().copied().filter_map(weight_of)),
            None => weight_of(process)?,
        };
        Some(self.price(weight, Some(to)))
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
            self.others.learn_pace(link, report, expected.map(|price| price.freeze_s), limit);
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
    use crate::process::LastFreeze;

    #[test]
    fn a_first_move_leaves_nothing_for_its_freeze_and_a_later_one_what_the_last_did() {
        let large = 64 * COPIED_AHEAD_BYTES_MIN;
        let rest =
            |last, rss_bytes, copies_ahead| rest_bytes(Weight::of(last, rss_bytes), copies_ahead);
        let never = LastFreeze::default();
        assert_eq!(rest(never, large, true), 0);
        assert_eq!(rest(never, large, false), large, "nothing is copied ahead");
        assert_eq!(rest(never, 1 << 20, true), 1 << 20, "too little for that");
        let last = LastFreeze { us: 7_000, bytes: 3 << 20 };
        assert_eq!(rest(last, large, true), 3 << 20);
        assert_eq!(rest(last, 1 << 20, true), 1 << 20, "it has shrunk");
        let shared_bytes = 2 * COPIED_AHEAD_BYTES_MIN;
        let sharing = Weight { shared_bytes, ..Weight::of(never, large) };
        assert_eq!(rest_bytes(sharing, true), shared_bytes, "shared memory is not copied ahead");
    }
}
