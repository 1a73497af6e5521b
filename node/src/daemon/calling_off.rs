//! Moves that are not wanted any more: whoever asked for one has gone, or asks for another.
//!
//! Until the process stands frozen at its target, and is about to run there, it runs on where it
//! was. What is too late for that is carried out: the next order finds the process where it is
//! then.

use super::Daemon;
use super::moves::not_moved;
use super::requests::failure;
use crate::process::{Cause, ORDERS_MAX, Order, Process, Stage};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use wire::control::Failure;
use wire::ids::HomePid;
use wire::peer::MoveEnd;
use wire::supervisor::{Progress, Reason, ToDeputy};

/// Of moves that are called off.
const CALLED_OFF: &str = "called-off";

/// What is answered to an order that was called off before its turn.
pub(super) fn called_off_before(pid: HomePid) -> Failure {
    let text = format!("cannot move {pid}: it was called off before it had begun");
    failure(CALLED_OFF, text)
}

impl Daemon {
    /// An order for a process that is on the move, or is just being made away. The latest that
    /// somebody gives counts: what goes elsewhere is called off for it.
    pub(super) fn order_behind(&mut self, pid: HomePid, order: Order) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let may_wait = matches!(order.cause, Cause::User | Cause::Drain | Cause::Owner);
        if !may_wait || process.waiting.len() >= ORDERS_MAX {
            let at = process.at;
            self.report_end(pid, &order, at, MoveEnd::Stayed, 0);
            let text = format!("cannot move {pid}: it is on the move already");
            return self.refuse_order(order, failure("moving", text));
        }
        let (before, to) = (process.moving.as_ref().map(|moving| moving.order.to), order.to);
        process.waiting.push_back(order);
        if before.is_some_and(|before| before != to) {
            self.call_off(pid, &format!("it is wanted on node {to}"));
        }
    }

    /// Somebody who has asked for a move does not want it any more.
    pub(super) fn called_off(&mut self) {
        let is_off = |order: &Order| order.is_off.load(Ordering::SeqCst);
        let is_concerned = |process: &&Process| {
            let moving = process.moving.iter().map(|moving| &moving.order);
            moving.chain(&process.waiting).any(is_off)
        };
        let concerned = self.processes.values().filter(is_concerned);
        let pids: Vec<HomePid> = concerned.map(|process| process.pid).collect();
        for pid in pids {
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            let waiting = std::mem::take(&mut process.waiting);
            let (off, on): (VecDeque<Order>, _) = waiting.into_iter().partition(is_off);
            process.waiting = on;
            let is_moving_off = process.moving.as_ref().is_some_and(|moving| is_off(&moving.order));
            for order in off {
                self.refuse_order(order, called_off_before(pid));
            }
            if is_moving_off {
                self.call_off(pid, "whoever asked for it wants it no more");
            }
        }
    }

    /// Has the process stay where it is, if it is not too late.
    pub(super) fn call_off(&mut self, pid: HomePid, why: &str) {
        let Some(process) = self.processes.get(&pid) else { return };
        let Some(moving) = &process.moving else { return };
        let text = format!("the move to node {} was called off: {why}", moving.order.to);
        match moving.stage {
            Stage::Linking { .. } | Stage::Asking { .. } | Stage::Gathering { .. } => {
                self.move_failed(pid, not_moved(MoveEnd::Stayed, CALLED_OFF, text));
            }
            Stage::Moving | Stage::Inherited => {
                let reason = Reason { code: CALLED_OFF.to_owned(), text };
                if let Some(deputy) = &process.deputy {
                    // One that is gone has said, or will be seen, how the move has ended.
                    deputy.send(&ToDeputy::CallOff { reason }, None);
                }
            }
        }
    }

    /// Whoever watches the move is told how far it is.
    pub(super) fn has_got_on(&self, pid: HomePid, progress: Progress) {
        let moving = self.processes.get(&pid).and_then(|process| process.moving.as_ref());
        if let Some(watcher) = moving.and_then(|moving| moving.order.progress.as_ref()) {
            watcher.send_replace(progress);
        }
    }
}
