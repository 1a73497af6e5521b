//! The life of a move, as the daemons and the engine carry it out: order, set-up and transfer of
//! the memory while the process runs on, freeze, thaw at one end or the other.
//!
//! The source keeps the process until the target has it, so a move that breaks leaves it where it
//! was. What every order is answered with is what the brain was promised: exactly one `MoveEnded`.

use crate::process::Whereabouts;
use crate::scenario::MoveCost;
use crate::script::PID_FIRST;
use crate::world::{Event, World};
use brain::{Arrival, Input, MoveOutcome, Span};
use wire::ids::{GlobalPid, NodeId};
use wire::motive::Motive;

/// A link that is silent for this long is lost.
const LINK_PATIENCE: Span = Span::from_secs(5);

impl World {
    pub(crate) fn order_move(&mut self, by: u32, global: GlobalPid, to: u32, motive: Motive) {
        let index = u32::try_from(global.pid.0 - PID_FIRST).ok();
        let here = index.filter(|index| {
            let process = self.processes.get(*index as usize);
            let is_here = process.is_some_and(|process| process.at == Whereabouts::On(by));
            is_here && (to as usize) < self.nodes.len()
        });
        let Some(index) = here else {
            let (from, to) = (NodeId(by + 1), NodeId(to + 1));
            let (outcome, freeze) = (MoveOutcome::Failed, Span::ZERO);
            return self.tell(by, Input::MoveEnded { process: global, from, to, outcome, freeze });
        };
        let process = &mut self.processes[index as usize];
        process.at = Whereabouts::Leaving { from: by, to };
        process.move_count += 1;
        process.is_rotating = motive == Motive::Exchange;
        let (home, number) = (process.home, process.move_count);
        self.tally.orders += 1;
        // A guest's home is asked to do it, and the target for a berth.
        let mut delay = self.latency();
        if home != by {
            delay += self.latency();
        }
        let is_reachable = self.hears(by, home) && self.hears(home, to) && self.hears(by, to);
        let is_on = |node: u32| self.nodes[node as usize].is_on();
        if !is_reachable || !is_on(home) || !is_on(to) {
            let at = self.now + LINK_PATIENCE;
            return self.agenda.schedule(at, Event::OrderFailed { process: index, number });
        }
        delay += self.latency();
        delay += Span::from_secs_f64(self.scenario.moves.setup_ms / 1e3);
        self.agenda.schedule(self.now + delay, Event::Copy { process: index, number });
    }

    /// The process that this number of a move is still about.
    fn moving(&self, index: u32, number: u32) -> Option<(u32, u32)> {
        let process = &self.processes[index as usize];
        match process.at {
            Whereabouts::Leaving { from, to } | Whereabouts::Frozen { from, to }
                if process.move_count == number =>
            {
                Some((from, to))
            }
            _ => None,
        }
    }

    /// Its memory is sent while it runs. What it writes to meanwhile is little.
    pub(crate) fn copy(&mut self, index: u32, number: u32) {
        let Some((from, to)) = self.moving(index, number) else { return };
        let process = &mut self.processes[index as usize];
        process.transfer = Some((from, to));
        let bytes = process.rss_bytes(process.done_settled_s());
        for end in [from, to] {
            self.nodes[end as usize].transfers += 1;
        }
        let sharing = self.nodes[from as usize].transfers.max(self.nodes[to as usize].transfers);
        let copied_s = bytes / (self.scenario.network.bytes_per_s() / f64::from(sharing));
        let at = self.now + Span::from_secs_f64(copied_s);
        self.agenda.schedule(at, Event::Freeze { process: index, number });
    }

    /// The links of both nodes are free of it, if they were not.
    pub(crate) fn end_transfer(&mut self, index: u32) {
        if let Some((from, to)) = self.processes[index as usize].transfer.take() {
            for end in [from, to] {
                self.nodes[end as usize].transfers -= 1;
            }
        }
    }

    pub(crate) fn freeze(&mut self, index: u32, number: u32) {
        let Some((from, to)) = self.moving(index, number) else { return };
        if self.dice.happens(self.scenario.moves.staying_permille) {
            return self.stay(index, MoveOutcome::Stayed);
        }
        let node = &mut self.nodes[from as usize];
        node.pass(self.now);
        let process = &mut self.processes[index as usize];
        process.settle(from, node);
        process.at = Whereabouts::Frozen { from, to };
        process.halted_at = self.now;
        let MoveCost { freeze_ms, freeze_ms_per_thread, .. } = self.scenario.moves;
        let freeze_ms = freeze_ms + freeze_ms_per_thread * process.kind.threads;
        let at = self.now + Span::from_secs_f64(freeze_ms / 1e3);
        self.agenda.schedule(at, Event::Thaw { process: index, number });
        self.share_anew(from);
    }

    pub(crate) fn thaw(&mut self, index: u32, number: u32) {
        let Some((from, to)) = self.moving(index, number) else { return };
        self.end_transfer(index);
        let process = &mut self.processes[index as usize];
        let freeze = self.now.since(process.halted_at);
        process.thawed(freeze);
        self.tally.frozen += freeze;
        let home = process.home;
        let is_broken = self.dice.happens(self.scenario.moves.failing_permille);
        let target_lives = self.nodes[to as usize].is_on() && self.hears(from, to);
        if is_broken || !target_lives || !self.hears(home, to) {
            return self.stay(index, MoveOutcome::Failed);
        }
        self.leave(index, from);
        self.settle_on(index, to);
        let process = &mut self.processes[index as usize];
        let is_back = process.left(to, self.now).is_some_and(|ago| ago < Span::from_secs(60));
        if is_back && !process.is_rotating {
            self.checks.flew_back += 1;
        }
        if !process.is_rotating {
            process.has_left(from, self.now);
        }
        let (global, rotating) = (process.global(), process.is_rotating);
        self.tally.moved(self.now, index, from, to, rotating);
        let arrivals = self.nodes[to as usize].processes.len() as u32;
        self.tally.crowd_max = self.tally.crowd_max.max(arrivals);
        let (source, target) = (NodeId(from + 1), NodeId(to + 1));
        let outcome = MoveOutcome::Moved;
        self.tell(
            from,
            Input::MoveEnded { process: global, from: source, to: target, outcome, freeze },
        );
        self.tell(
            to,
            Input::ProcessArrived { process: global, how: Arrival::Balanced { from: source } },
        );
    }

    /// The move came to nothing: the process runs where it was.
    fn stay(&mut self, index: u32, outcome: MoveOutcome) {
        let (from, to) = match self.processes[index as usize].at {
            Whereabouts::Leaving { from, to } | Whereabouts::Frozen { from, to } => (from, to),
            _ => return,
        };
        self.tally.failed += 1;
        self.end_transfer(index);
        let process = &mut self.processes[index as usize];
        let arrived_at = process.arrived_at;
        let looks = process.looks;
        let node = &mut self.nodes[from as usize];
        node.pass(self.now);
        if matches!(process.at, Whereabouts::Frozen { .. }) {
            process.enter(from, node, self.now);
        }
        process.at = Whereabouts::On(from);
        process.arrived_at = arrived_at;
        process.looks = looks;
        let global = process.global();
        self.share_anew(from);
        let (source, target, freeze) = (NodeId(from + 1), NodeId(to + 1), Span::ZERO);
        self.tell(
            from,
            Input::MoveEnded { process: global, from: source, to: target, outcome, freeze },
        );
    }

    pub(crate) fn order_failed(&mut self, index: u32, number: u32) {
        if self.moving(index, number).is_some() {
            self.stay(index, MoveOutcome::Failed);
        }
    }

    /// A process begins to run on a node.
    pub(crate) fn settle_on(&mut self, index: u32, node: u32) {
        self.nodes[node as usize].pass(self.now);
        // In the order in which a daemon lists them.
        let (global, processes) = (self.processes[index as usize].global(), &self.processes);
        let here = &mut self.nodes[node as usize].processes;
        let place = here.partition_point(|other| processes[*other as usize].global() < global);
        here.insert(place, index);
        self.processes[index as usize].enter(node, &self.nodes[node as usize], self.now);
        self.share_anew(node);
    }

    /// A process is no longer on a node, whether it ran there or was frozen.
    pub(crate) fn leave(&mut self, index: u32, node: u32) {
        self.nodes[node as usize].processes.retain(|other| *other != index);
        self.share_anew(node);
    }

    /// The process is gone for good.
    pub(crate) fn lose(&mut self, index: u32) {
        let (node, is_running) = match self.processes[index as usize].at {
            Whereabouts::On(node) | Whereabouts::Leaving { from: node, .. } => (node, true),
            Whereabouts::Frozen { from, .. } => (from, false),
            _ => return,
        };
        self.end_transfer(index);
        self.nodes[node as usize].pass(self.now);
        if is_running {
            self.processes[index as usize].settle(node, &self.nodes[node as usize]);
        }
        self.leave(index, node);
        let process = &mut self.processes[index as usize];
        process.at = Whereabouts::Lost;
        let (global, home) = (process.global(), process.home);
        self.open -= 1;
        self.tally.lost += 1;
        self.tell(node, Input::ProcessEnded { process: global });
        if home != node {
            self.tell(home, Input::ProcessEnded { process: global });
        }
        let job = self.processes[index as usize].kind.job;
        self.ended_of(job);
    }
}
