//! How often what is told as an event has happened, as numbers that only grow. Pure.
//!
//! Whatever happens to a process goes through the journal once, so it is counted there: a number
//! can never say something else than the events do.

use wire::control::{Counts, Happening};

const MS_PER_S: f64 = 1e3;

pub fn count(counts: &mut Counts, what: &Happening) {
    match what {
        Happening::Managed { .. } => counts.managed += 1,
        Happening::Ended { .. } => counts.ended += 1,
        Happening::Migrated(migration) => {
            // The words of causes are ours, and few.
            *counts.moved.entry(migration.cause.clone()).or_default() += 1;
            counts.over_budget += u64::from(migration.is_over_budget());
            counts.bytes_sent = counts.bytes_sent.saturating_add(migration.bytes_sent);
            counts.freezes.add(migration.freeze_ms / MS_PER_S);
            counts.moves.add(migration.total_ms / MS_PER_S);
        }
        Happening::CameHome { .. } => counts.came_home += 1,
        Happening::Stayed { .. } => counts.stayed += 1,
        Happening::Lost { .. } => counts.lost += 1,
        Happening::Filled(_)
        | Happening::UsedAway { .. }
        | Happening::Homecalls { .. }
        | Happening::NodeJoined { .. }
        | Happening::NodeStatus { .. }
        | Happening::NodeForgotten { .. }
        | Happening::SecretRenewed { .. }
        | Happening::ActedOn { .. }
        | Happening::Owned(_)
        // Counted where it is known of those that are not told.
        | Happening::Rejected { .. } => {}
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::control::Migration;
    use wire::ids::NodeId;
    use wire::supervisor::{MoveReport, Reason};

    fn migrated(cause: &str, freeze_us: u64, bytes_sent: u64) -> Happening {
        let report = MoveReport { freeze_us, total_us: 300_000, bytes_sent, ..Default::default() };
        Happening::Migrated(Migration::from_report(7, NodeId(1), NodeId(2), cause, &report))
    }

    #[test]
    fn each_end_of_a_move_is_counted_as_what_it_was() {
        let mut counts = Counts::default();
        let reason = Reason { code: "c".into(), text: "t".into() };
        for what in [
            Happening::Managed { command: "awk".into() },
            migrated("user", 9_000, 1_000),
            migrated("balance", 40_000, 500),
            migrated("user", 0, 1),
            Happening::Stayed { reason: reason.clone() },
            Happening::CameHome { reason: reason.clone() },
            Happening::CameHome { reason: reason.clone() },
            Happening::Lost { node: NodeId(2), reason },
            Happening::Ended { wait_status: None },
            Happening::NodeStatus { node: NodeId(2), status: "gone".into() },
        ] {
            count(&mut counts, &what);
        }
        assert_eq!((counts.moved["user"], counts.moved["balance"]), (2, 1));
        assert_eq!((counts.stayed, counts.came_home, counts.lost), (1, 2, 1));
        assert_eq!((counts.managed, counts.ended), (1, 1));
        assert_eq!((counts.bytes_sent, counts.over_budget), (1_501, 1));
        assert_eq!((counts.freezes.count(), counts.moves.count()), (3, 3));
        assert!((counts.freezes.sum_s - 0.049).abs() < 1e-9, "{}", counts.freezes.sum_s);
    }
}
