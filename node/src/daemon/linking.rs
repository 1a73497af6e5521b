//! Moves that wait for a link to their target, or lose it. Nodes that start together know of each
//! other before they have called each other, and a link that broke is made again in less than a
//! second: whoever asks for a move in between is not to be told that a node which is up cannot be
//! reached.

use super::Daemon;
use super::moves::not_moved;
use crate::process::{Cause, Move, Process, Stage};
use std::time::{Duration, Instant};
use wire::ids::{HomePid, NodeId};
use wire::peer::MoveEnd;

/// Nodes call each other again after less than that.
const LINK_PATIENCE: Duration = Duration::from_secs(3);

impl Daemon {
    /// Lets a move wait for a link to its target, if it is one that somebody asked for, to a node
    /// that seems to be alive. The brain finds another node instead.
    pub(super) fn waits_for_link(&mut self, pid: HomePid, to: NodeId) -> bool {
        let may_come = !self.links.contains(to) && self.is_usable(to);
        let process = self.processes.get_mut(&pid);
        let Some(moving) = process.and_then(|process| process.moving.as_mut()) else {
            return false;
        };
        let waits = may_come && matches!(moving.order.cause, Cause::User | Cause::Placed);
        if waits {
            moving.stage = Stage::Linking { until: Instant::now() + LINK_PATIENCE };
        }
        waits
    }

    /// There is a link to a node: what waits for it goes on.
    pub(super) fn ask_after_linking(&mut self, node: NodeId) {
        let waits = |moving: &Move| {
            moving.order.to == node && matches!(moving.stage, Stage::Linking { .. })
        };
        for (pid, to) in self.moves_that(waits) {
            if let Err(not_moved) = self.ask_for_berth(pid, to) {
                self.move_failed(pid, not_moved);
            }
        }
    }

    /// Moves that waited in vain, for a link, an answer, or others.
    pub(super) fn give_up_waiting(&mut self, now: Instant) {
        let is_late = |moving: &Move| match moving.stage {
            Stage::Linking { until } | Stage::Asking { until, .. } => until <= now,
            Stage::Gathering { .. } | Stage::Moving | Stage::Inherited => false,
        };
        self.fail_unreachable(is_late, |to| format!("node {to} cannot be reached"));
        self.gather_again();
    }

    /// The link to a node broke: what was asked there gets no answer. Moves that supervisors are at
    /// work on are theirs, and do not need it.
    pub(super) fn berths_lost(&mut self, node: NodeId) {
        let asks =
            |moving: &Move| moving.order.to == node && matches!(moving.stage, Stage::Asking { .. });
        self.fail_unreachable(asks, |to| format!("the link to node {to} broke"));
    }

    fn fail_unreachable(&mut self, is_it: impl Fn(&Move) -> bool, text: impl Fn(NodeId) -> String) {
        for (pid, to) in self.moves_that(is_it) {
            self.move_failed(pid, not_moved(MoveEnd::Failed, "unreachable", text(to)));
        }
    }

    /// The processes whose moves are as `is_it` says, and where these go.
    fn moves_that(&self, is_it: impl Fn(&Move) -> bool) -> Vec<(HomePid, NodeId)> {
        let of = |process: &Process| {
            let moving = process.moving.as_ref().filter(|moving| is_it(moving))?;
            Some((process.pid, moving.order.to))
        };
        self.processes.values().filter_map(of).collect()
    }
}
