//! Moves that wait for a link to their target, or lose it. Nodes that start together know of each
//! other before they have called each other, and a link that broke is made again in less than a
//! second: whoever asks for a move in between is not to be told that a node which is up cannot be
//! reached.

use super::Daemon;
use super::moves::not_moved;
use crate::process::{Cause, Process, Stage};
use std::time::{Duration, Instant};
use wire::ids::{HomePid, NodeId};
use wire::peer::MoveEnd;

/// Nodes call each other again after less than that.
const LINK_PATIENCE: Duration = Duration::from_secs(3);

impl Daemon {
    /// Lets a move wait for a link to its target, if it is one that somebody asked for, to a node
    /// that seems to be alive. The brain finds another node instead.
    pub(super) fn waits_for_link(&mut self, pid: HomePid, to: NodeId) -> bool {
        let may_come = !self.links.contains_key(&to) && self.is_usable(to);
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
        let waits = |process: &&Process| {
            process.moving.as_ref().is_some_and(|moving| {
                moving.order.to == node && matches!(moving.stage, Stage::Linking { .. })
            })
        };
        let waiting = self.processes.values().filter(waits).map(|process| process.pid);
        for pid in waiting.collect::<Vec<_>>() {
            if let Err(not_moved) = self.ask_for_berth(pid, node) {
                self.move_failed(pid, not_moved);
            }
        }
    }

    /// Moves that waited in vain.
    pub(super) fn give_up_linking(&mut self, now: Instant) {
        let unlinked = |process: &Process| {
            let moving = process.moving.as_ref()?;
            let is_late = matches!(moving.stage, Stage::Linking { until } if until <= now);
            is_late.then_some((process.pid, moving.order.to))
        };
        let unlinked: Vec<_> = self.processes.values().filter_map(unlinked).collect();
        for (pid, to) in unlinked {
            let text = format!("node {to} cannot be reached");
            self.move_failed(pid, not_moved(MoveEnd::Failed, "unreachable", text));
        }
    }

    /// The link to a node broke: what was asked there gets no answer.
    pub(super) fn berths_lost(&mut self, node: NodeId) {
        let lost: Vec<(u64, HomePid)> = self
            .berths_asked
            .iter()
            .filter(|(_, pid)| {
                let moving = self.processes.get(pid).and_then(|process| process.moving.as_ref());
                moving.is_some_and(|moving| moving.order.to == node)
            })
            .map(|(request, pid)| (*request, *pid))
            .collect();
        for (request, pid) in lost {
            self.berths_asked.remove(&request);
            let text = format!("the link to node {node} broke");
            self.move_failed(pid, not_moved(MoveEnd::Failed, "unreachable", text));
        }
    }
}
