//! One move of one process, from the order to its end. Moves of one process happen one after
//! another; the daemon asks for the berth and tells the deputy, the supervisors do the rest.

use super::Daemon;
use super::calling_off::called_off_before;
use super::requests::failure;
use super::thinking::group_id;
use crate::control::Answer;
use crate::journal::wall_clock_s;
use crate::process::{Bound, Cause, LastFreeze, Move, Order, Retry, Stage};
use crate::sample::scan;
use crate::supervisor::{Supervisor, SupervisorId};
use brain::{Arrival, Input, MoveOutcome, Span};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::control::{Failure, Happening, Migration, Reply};
use wire::ids::{GlobalPid, HomePid, NodeId};
use wire::memory_group::GROUP_ASKED;
use wire::motive::Motive;
use wire::move_cost::Price;
use wire::peer::{BerthGrant, BerthRequest, MoveEnd, PeerMessage, Refusal};
use wire::supervisor::{Berth, EXEC, FromDeputy, MoveReport, Reason, ToDeputy};

/// How long a node may take to answer that it has a berth.
const BERTH_PATIENCE: Duration = Duration::from_secs(5);
/// How often a user's move is begun again after a homecoming got in its way.
pub(super) const TRIES_MAX: u32 = 3;
/// A stay abroad shorter than this was not worth the journey: wait longer before the next.
const SHORT_STAY: Duration = Duration::from_secs(2);

/// How a move did not happen.
pub(super) struct NotMoved {
    end: MoveEnd,
    pub(super) reason: Reason,
}

pub(super) fn not_moved(end: MoveEnd, code: &str, text: impl Into<String>) -> NotMoved {
    NotMoved { end, reason: Reason { code: code.to_owned(), text: text.into() } }
}

impl Daemon {
    /// Begins a move, or lets it wait for the one under way.
    pub(super) fn order_move(&mut self, pid: HomePid, order: Order) {
        let me = self.me();
        self.settle_launch(pid, Instant::now());
        let Some(process) = self.processes.get_mut(&pid) else {
            let text = format!("cannot move {pid}: it is not under osmos any more");
            return self.refuse_order(order, failure("no-process", text));
        };
        if process.moving.is_some() || !process.has_begun() {
            return self.order_behind(pid, order);
        }
        if order.is_off.load(Ordering::SeqCst) {
            self.refuse_order(order, called_off_before(pid));
            return self.next_order(pid);
        }
        let from = process.at;
        let mut order = order;
        order.tries += 1;
        let to = order.to;
        let core_speed = self.load.capacity().core_speed;
        let is_users = matches!(order.cause, Cause::User);
        let is_of_group = self.memory_groups.is_weighed_as_one(GlobalPid { home: me, pid });
        process.moving = Some(Move { is_of_group, ..Move::new(order, from, core_speed) });
        if to == from && is_users {
            // It has waited for another move, which is off.
            process.moved_by_user(to, me);
        }
        let begun = if to == from {
            Err(not_moved(MoveEnd::Stayed, "already-there", format!("it is on node {to} already")))
        } else if to == me {
            self.keep_process(pid);
            let freeze_budget = self.freeze_budget(pid);
            let limits = self.limits_between(from, Some(to));
            self.tell_deputy(pid, &ToDeputy::ComeHome { freeze_budget, limits })
        } else {
            self.begin_leaving(pid, to)
        };
        if let Err(not_moved) = begun {
            self.move_failed(pid, not_moved);
        }
    }

    pub(super) fn ask_for_berth(&mut self, pid: HomePid, to: NodeId) -> Result<(), NotMoved> {
        let failed = |code, text| Err(not_moved(MoveEnd::Failed, code, text));
        if self.passage.is_closing() {
            return failed("draining", "this node is going down, or leaves its cluster".to_owned());
        }
        let request = self.processes.next_request();
        let Some(uid) = self.processes.get(&pid).map(|process| process.owner.uid) else {
            return Ok(());
        };
        let (me, user_milli) = (self.me(), self.user_milli(uid));
        let companions_bytes = self.companions_bytes(pid);
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        if process.at == me
            && let Some(bytes) = scan::memory_of(pid.0, process.started_ticks)
        {
            // Not what the last look found: it may have grown since, or never been looked at.
            process.consumption.rss_bytes = bytes;
            process.look_again();
        }
        let is_pinned = process.is_pinned();
        let expected_us = process.expected_us(&self.programs);
        let Some(moving) = &mut process.moving else { return Ok(()) };
        moving.stage = Stage::Asking { request, until: Instant::now() + BERTH_PATIENCE };
        let berth = BerthRequest {
            pid,
            owner: process.owner,
            from: moving.from,
            rss_bytes: process.consumption.rss_bytes.saturating_add(companions_bytes),
            cpu_us: process.consumption.cpu_us(),
            freeze_us: process.last_freeze.us,
            freeze_bytes: process.last_freeze.bytes,
            is_ordered: !matches!(moving.order.cause, Cause::Brain(_) | Cause::Wanted { .. }),
            is_pinned,
            user_milli,
            group: process.activity.group.and_then(|group| group_id(me, group)).map(Into::into),
            expected_us,
        };
        if !self.links.say(to, PeerMessage::BerthAsked { request, berth }) {
            return failed("unreachable", format!("node {to} cannot be reached"));
        }
        Ok(())
    }

    pub(super) fn berth_answered(
        &mut self,
        node: NodeId,
        request: u64,
        answer: Result<BerthGrant, Refusal>,
    ) {
        let Some((pid, moving)) = self.processes.asking(node, request) else { return };
        moving.stage = Stage::Moving;
        let begun = match answer {
            Ok(grant) => self.leave(pid, node, grant),
            Err(refusal) => {
                let text = format!("node {node} takes no guest: {refusal}");
                Err(not_moved(MoveEnd::Failed, refusal.code(), text))
            }
        };
        if let Err(not_moved) = begun {
            self.move_failed(pid, not_moved);
        }
    }

    fn leave(&mut self, pid: HomePid, node: NodeId, grant: BerthGrant) -> Result<(), NotMoved> {
        let Some(member) = self.members.get(node) else {
            return Err(not_moved(MoveEnd::Failed, "no-node", format!("there is no node {node}")));
        };
        let BerthGrant { ticket, key, core_speed_milli } = grant;
        if let Some(moving) = self.processes.get_mut(&pid).and_then(|p| p.moving.as_mut()) {
            moving.core_speed = f64::from(core_speed_milli) / 1e3;
        }
        let berth = Berth { node, address: member.address, ticket, key };
        match self.companions_of(pid).is_empty() {
            true => self.have_leave(pid, berth, None),
            false => self.leave_together(pid, berth),
        }
    }

    pub(super) fn hear_deputy(
        &mut self,
        pid: HomePid,
        id: SupervisorId,
        (bytes, descriptor): (&[u8], Option<OwnedFd>),
    ) {
        let Ok(message) = postcard::from_bytes::<FromDeputy>(bytes) else {
            tracing::error!("supervisor {} of process {pid} says nonsense: dropped", id.0);
            self.drop_deputy(pid);
            return self.keep_process(pid);
        };
        let is_kept = message.is_kept();
        let deputy = self.processes.get(&pid).and_then(|process| process.deputy.clone());
        match message {
            FromDeputy::Guard => self.guard(pid, descriptor),
            message => self.take_word(pid, message),
        }
        if is_kept {
            // In this order: what is noted must be there for the next daemon.
            self.keep_process(pid);
            deputy.inspect(Supervisor::note);
        }
    }

    fn take_word(&mut self, pid: HomePid, message: FromDeputy) {
        match message {
            FromDeputy::Waits(waits) => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.waits = waits;
                }
            }
            FromDeputy::Clocks(part) => self.remember_clocks(pid, part),
            FromDeputy::Progress(progress) => self.has_got_on(pid, progress),
            FromDeputy::Filled(filled) => self.has_filled(pid, filled),
            FromDeputy::Moved { to, report } => self.moved(pid, to, &report),
            FromDeputy::CameHome { reason, report } => {
                self.came_home(pid, reason, &report);
                self.forget_if_ended(pid);
            }
            FromDeputy::Stayed { reason } => {
                if self.processes.get(&pid).is_some_and(|process| process.at == self.me()) {
                    self.drop_deputy(pid);
                }
                let reason = self.explain_company(pid, reason);
                if !self.takes_others(pid, &reason) && !self.tries_again(pid, &reason) {
                    self.move_failed(pid, NotMoved { end: MoveEnd::Stayed, reason });
                }
                self.forget_if_ended(pid);
            }
            FromDeputy::Usage { away, rss_bytes, forwarded, .. } => {
                self.used_away(pid, away, rss_bytes, &forwarded);
            }
            FromDeputy::Ended { wait_status } => self.forget_process(pid, Some(wait_status)),
            FromDeputy::Lost { node, reason } => {
                self.drop_deputy(pid);
                self.lost(pid, node, reason);
            }
            FromDeputy::Forked { child } => self.process_forked(pid, child),
            FromDeputy::Born { child, birth } => self.process_born(pid, child, birth),
            FromDeputy::BoundTo { members, named } => self.bound_to(pid, Bound { members, named }),
            // It came with a descriptor.
            FromDeputy::Guard => {}
            FromDeputy::Attached { is_moving } => self.deputy_attached(pid, is_moving),
        }
    }

    /// An end that was seen while there was a deputy to tell of it, and now there is none.
    fn forget_if_ended(&mut self, pid: HomePid) {
        let process = self.processes.get(&pid);
        if process.is_some_and(|process| process.has_ended && process.deputy.is_none()) {
            self.forget_process(pid, None);
        }
    }

    fn moved(&mut self, pid: HomePid, to: NodeId, report: &MoveReport) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let from = process.at;
        let Some(moving) = process.moving.take_if(|moving| moving.order.to == to) else {
            tracing::error!("process {pid} says that it moved to node {to}, unasked");
            return;
        };
        let Order { cause, why, .. } = &moving.order;
        process.arrived(to, report.freeze_us, cause.word(), why, moving.core_speed);
        // They travel with it, and come home with it.
        process.clocks.clear();
        process.last_freeze = LastFreeze { us: report.freeze_us, bytes: report.rest_bytes };
        self.tell_of_move(pid, (moving.order, moving.expected), from, report);
        self.next_order(pid);
    }

    /// Everybody who has to know learns of a move that was carried out.
    fn tell_of_move(
        &mut self,
        pid: HomePid,
        (order, expected): (Order, Option<Price>),
        from: NodeId,
        report: &MoveReport,
    ) {
        let me = self.me();
        if let Some(process) = self.processes.get_mut(&pid)
            && matches!(order.cause, Cause::User | Cause::Owner | Cause::Companion)
        {
            process.moved_by_user(order.to, me);
        }
        let migration = Migration::from_report(pid.0, from, order.to, order.cause.word(), report);
        let migration = self.compare_prices(expected, migration, report);
        let global = self.global(pid);
        self.journal.record(Some(global), Happening::Migrated(migration.clone()));
        self.report_end(pid, &order, from, MoveEnd::Moved, report.freeze_us);
        if let Some(answer) = order.answer {
            // A caller that has gone away needs no answer.
            let _ = answer.send(Answer::One(Reply::Migrated(migration)));
        }
    }

    /// The process is home, because that was asked or because it had to.
    pub(super) fn came_home(&mut self, pid: HomePid, reason: Reason, report: &MoveReport) {
        self.drop_deputy(pid);
        let (me, core_speed) = (self.me(), self.load.capacity().core_speed);
        let global = self.global(pid);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let from = process.at;
        let journey_us = process.consumption.journey_ended();
        let moving = process.moving.take();
        match moving {
            Some(Move { order, .. }) if order.to == me => {
                let word = order.cause.word();
                process.arrived(me, report.freeze_us, word, &order.why, core_speed);
                let how = match order.cause {
                    Cause::Brain(_) | Cause::Wanted { .. } => Arrival::Balanced { from },
                    _ => Arrival::Ordered { from },
                };
                self.tell_of_move(pid, (order, None), from, report);
                // What is said of one is said of all that it shares memory with.
                for process in BTreeSet::from([global, self.memory_groups.first_of(global)]) {
                    self.tell_brain(Input::ProcessArrived { process, how });
                }
            }
            other => {
                let now = Instant::now();
                let was_short = now.saturating_duration_since(process.here_since) < SHORT_STAY;
                // Which program it is it says anew, and where it runs is to be decided anew.
                let has_begun = reason.code == EXEC;
                process.retry = if has_begun {
                    self.looks.expect_more(now);
                    process.retry_of_program(&self.programs, now)
                } else {
                    let retry = process.retry.filter(|_| was_short);
                    Some(retry.map_or_else(|| Retry::first(now), |retry| retry.next(now)))
                };
                process.arrived(me, report.freeze_us, "itself", &reason.text, core_speed);
                if reason.code == GROUP_ASKED {
                    process.moved_by_user(me, me);
                }
                process.decide(wall_clock_s(), "came-home", &reason.text);
                self.journal.record(Some(global), Happening::CameHome { reason: reason.clone() });
                let unordered = Order::new(me, Cause::Brain(Motive::Balance), reason.text.clone());
                self.report_end(pid, &unordered, from, MoveEnd::Moved, report.freeze_us);
                let how = match has_begun {
                    true => Arrival::Began { from },
                    false => Arrival::CameHome { from },
                };
                self.tell_brain(Input::ProcessArrived { process: global, how });
                if let Some(Move { order, .. }) = other {
                    self.order_after_homecoming(pid, order, reason);
                }
            }
        }
        self.tell_of_time_away(pid, journey_us);
        self.next_order(pid);
        self.gather_again();
    }

    /// A move onwards met a homecoming: what a user wants is begun again, from home.
    fn order_after_homecoming(&mut self, pid: HomePid, order: Order, reason: Reason) {
        self.free_berth(pid, order.to, MoveEnd::Stayed);
        if order.cause == Cause::User && order.tries < TRIES_MAX {
            if let Some(process) = self.processes.get_mut(&pid) {
                process.waiting.push_front(order);
            }
            return;
        }
        let text = format!("cannot move {pid}: it had to come home first: {}", reason.text);
        self.report_end(pid, &order, self.me(), MoveEnd::Stayed, 0);
        self.refuse_order(order, Failure { code: reason.code, text });
    }

    pub(super) fn move_failed(&mut self, pid: HomePid, not_moved: NotMoved) {
        self.give_way(pid, not_moved);
        self.next_order(pid);
        self.gather_again();
    }

    /// The same, for whoever moves the process next.
    pub(super) fn give_way(&mut self, pid: HomePid, not_moved: NotMoved) {
        let NotMoved { end, reason } = not_moved;
        let me = self.me();
        let global = self.global(pid);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let moving = process.moving.take();
        process.reason.clone_from(&reason.text);
        process.decide(wall_clock_s(), "not-moved", &reason.text);
        self.journal.record(Some(global), Happening::Stayed { reason: reason.clone() });
        // Nobody had ordered a homecoming that the process itself needed.
        let Some(moving) = moving else { return };
        self.leave_alone(pid, &moving);
        let Move { order, from, .. } = moving;
        self.report_end(pid, &order, from, end, 0);
        self.give_up_place(pid, &order, end);
        let stays = if from == me { "home".to_owned() } else { format!("on node {from}") };
        let text = format!("cannot move {pid}: {}; it stays {stays}", reason.text);
        self.refuse_order(order, Failure { code: reason.code, text });
    }

    /// Tells the brain that the process left, or did not leave, how that ended.
    pub(super) fn report_end(
        &mut self,
        pid: HomePid,
        order: &Order,
        from: NodeId,
        end: MoveEnd,
        us: u64,
    ) {
        let (me, to) = (self.me(), order.to);
        let asked_by = match order.cause {
            Cause::Wanted { by, .. } => Some(by),
            _ => None,
        };
        for node in [Some(from), asked_by.filter(|by| *by != from)].into_iter().flatten() {
            if node != me {
                // A node that cannot be told has lost the process or will learn of it by itself.
                self.links.say(node, PeerMessage::MoveEnded { pid, to, end, freeze_us: us });
                continue;
            }
            let outcome = outcome(end);
            let (process, freeze) = (self.global(pid), Span::from_micros(us));
            self.tell_brain(Input::MoveEnded { process, from: me, to, outcome, freeze });
        }
    }

    /// Tells a node that it keeps a place for nothing, before the place expires.
    pub(super) fn free_berth(&self, pid: HomePid, to: NodeId, end: MoveEnd) {
        if to != self.me() {
            self.links.say(to, PeerMessage::MoveEnded { pid, to, end, freeze_us: 0 });
        }
    }

    /// The place that the process was to have by this order is not needed.
    pub(super) fn give_up_place(&self, pid: HomePid, order: &Order, end: MoveEnd) {
        match order.cause {
            Cause::MadeAway => self.call_birth_off(pid, order.to),
            _ => self.free_berth(pid, order.to, end),
        }
    }

    /// Nobody calls for a process that was made on this node.
    pub(super) fn call_birth_off(&self, pid: HomePid, made_on: NodeId) {
        if made_on != self.me() {
            self.links.say(made_on, PeerMessage::BirthOff { pid });
        }
    }

    pub(super) fn refuse_order(&mut self, order: Order, failure: Failure) {
        if let Some(answer) = order.answer {
            // A caller that has gone away needs no answer.
            let _ = answer.send(Answer::One(Reply::Error(failure)));
        }
    }

    pub(super) fn next_order(&mut self, pid: HomePid) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if process.moving.is_none()
            && process.has_begun()
            && let Some(order) = process.waiting.pop_front()
        {
            self.order_move(pid, order);
        }
    }

    /// The process is lost: what it was on `node`, or its hold at home, is gone. The kernel kills
    /// what is left of it at home, which is noticed like any other end.
    pub(super) fn lost(&mut self, pid: HomePid, node: NodeId, reason: Reason) {
        let (me, global) = (self.me(), self.global(pid));
        self.journal.record(Some(global), Happening::Lost { node, reason: reason.clone() });
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.at = me;
        process.consumption.journey_ended();
        if let Some(moving) = process.moving.take() {
            // Its supervisor has not told the others.
            self.leave_alone(pid, &moving);
            let Move { order, from, .. } = moving;
            let text = format!("cannot move {pid}: it is lost: {}", reason.text);
            self.report_end(pid, &order, from, MoveEnd::Stayed, 0);
            self.give_up_place(pid, &order, MoveEnd::Stayed);
            self.refuse_order(order, Failure { code: reason.code, text });
        }
        self.forget_if_ended(pid);
    }

    /// The brain of the node where the process is a guest wants it elsewhere.
    pub(super) fn move_wanted(
        &mut self,
        by: NodeId,
        pid: HomePid,
        to: NodeId,
        (motive, reason): (Motive, String),
    ) {
        let is_there = self.processes.get(&pid).is_some_and(|process| {
            process.at == by && process.moving.is_none() && !process.is_pinned()
        });
        let order = Order::new(to, Cause::Wanted { by, motive }, reason);
        if is_there && self.members.get(to).is_some() {
            self.order_move(pid, order);
        } else {
            let end = PeerMessage::MoveEnded { pid, to, end: MoveEnd::Stayed, freeze_us: 0 };
            self.links.say(by, end);
        }
    }
}

pub(super) fn outcome(end: MoveEnd) -> MoveOutcome {
    match end {
        MoveEnd::Moved => MoveOutcome::Moved,
        MoveEnd::Stayed => MoveOutcome::Stayed,
        MoveEnd::Failed => MoveOutcome::Failed,
    }
}
