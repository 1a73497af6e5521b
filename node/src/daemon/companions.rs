//! Processes that share memory leave home together ([decision 0034](../../../docs/decisions/)).
//!
//! That there are others is found by the supervisor of the one that was to move, which is refused
//! for that. Then the move is begun again with all of them: a supervisor for each, one berth, and
//! a page of memory by which the supervisors agree when to stop and whether they have left.

use super::Daemon;
use super::memory_groups::is_for_all;
use super::moves::{NotMoved, TRIES_MAX, not_moved};
use crate::keys;
use crate::process::{Cause, Launch, Move, Order, Process, Stage};
use crate::procfs;
use kernel::agreement::{Agreement, Verdict};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::ids::{HomePid, Ticket};
use wire::memory_group::{BOUND, COMPANION_STAYS, Companion};
use wire::peer::{MoveEnd, Owner};
use wire::supervisor::{Berth, Reason, ToDeputy};

/// How long a process waits for those that are to leave with it: until a move of theirs is refused
/// for the same reason, or they are home.
const GATHERING_PATIENCE: Duration = Duration::from_secs(10);

/// Of those who wait for each other the lowest takes the others along: users first.
type Rank = (bool, HomePid);

fn rank(moving: &Move, pid: HomePid) -> Rank {
    (moving.order.cause != Cause::User, pid)
}

/// Why others do not come along.
enum Hindrance {
    NotYet(String),
    Never(NotMoved),
}

impl Daemon {
    /// Begins a move again, with all whom the process shares memory with, that was refused because
    /// there are such; false if it is to stay refused.
    pub(super) fn takes_others(&mut self, pid: HomePid, reason: &Reason) -> bool {
        let Some(process) = self.processes.get(&pid) else { return false };
        let Some(moving) = process.moving.as_ref().filter(|_| reason.code == BOUND) else {
            return false;
        };
        let (me, to) = (self.me(), moving.order.to);
        if !is_for_all(moving) || to == me {
            return false;
        }
        if process.at != me {
            return self.goes_by_way_of_home(pid);
        }
        if moving.bound_to.members.is_empty() || !moving.companions.is_empty() {
            return false;
        }
        // The berth of the first try.
        self.free_berth(pid, to, MoveEnd::Stayed);
        self.gather(pid, Instant::now() + GATHERING_PATIENCE);
        true
    }

    /// Notes for those who go with it why a process stays; says why it does if that is for one of
    /// them.
    pub(super) fn explain_company(&mut self, pid: HomePid, reason: Reason) -> Reason {
        if reason.code == COMPANION_STAYS {
            let moving = self.processes.get(&pid).and_then(|process| process.moving.as_ref());
            let text = moving.and_then(|moving| moving.hindrance.clone());
            return Reason { text: text.unwrap_or(reason.text), ..reason };
        }
        let moves = self.processes.values_mut().filter_map(|process| process.moving.as_mut());
        for moving in moves.filter(|moving| moving.companions.contains(&pid)) {
            let text = format!(
                "process {pid}, which it shares memory with, could not leave: {}",
                reason.text
            );
            moving.hindrance.get_or_insert(text);
        }
        reason
    }

    /// Begins a move again that failed for something that may be over: one of a group did not
    /// leave, which may have ended or been just made; or a program that is beginning has mapped
    /// another library. False if it is to stay failed.
    pub(super) fn tries_again(&mut self, pid: HomePid, reason: &Reason) -> bool {
        let me = self.me();
        let Some(process) = self.processes.get_mut(&pid).filter(|process| process.at == me) else {
            return false;
        };
        let again = |moving: &mut Move| {
            let is_off = moving.order.is_off.load(Ordering::SeqCst);
            let is_over_soon = match reason.code.as_str() {
                COMPANION_STAYS => is_for_all(moving),
                "mapping" | "changed" => moving.companions.is_empty(),
                _ => false,
            };
            is_over_soon && moving.order.tries < TRIES_MAX && !is_off
        };
        let Some(moving) = process.moving.take_if(again) else { return false };
        self.leave_alone(pid, &moving);
        self.free_berth(pid, moving.order.to, MoveEnd::Stayed);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.waiting.push_front(moving.order);
        }
        self.next_order(pid);
        self.gather_again();
        true
    }

    /// Has a process leave with the others, or wait until they can.
    fn gather(&mut self, pid: HomePid, until: Instant) {
        let not_moved = match self.take_others(pid) {
            Ok(()) => return,
            Err(Hindrance::NotYet(text)) if Instant::now() >= until => {
                not_moved(MoveEnd::Stayed, BOUND, text)
            }
            Err(Hindrance::NotYet(_)) => {
                if let Some(moving) = self.processes.get_mut(&pid).and_then(|p| p.moving.as_mut()) {
                    moving.stage = Stage::Gathering { until };
                }
                return;
            }
            Err(Hindrance::Never(not_moved)) => not_moved,
        };
        self.move_failed(pid, not_moved);
    }

    /// A process rests, or has ended: others may have waited for that.
    pub(super) fn gather_again(&mut self) {
        let is_gathering = |process: &Process| match process.moving.as_ref()?.stage {
            Stage::Gathering { until } => Some((process.pid, until)),
            _ => None,
        };
        let gathering: Vec<_> = self.processes.values().filter_map(is_gathering).collect();
        for (pid, until) in gathering {
            // One of them may have been taken along by another.
            if self.processes.get(&pid).and_then(is_gathering).is_some() {
                self.gather(pid, until);
            }
        }
    }

    /// They come home together, and leave from there; false if that was tried often enough.
    fn goes_by_way_of_home(&mut self, pid: HomePid) -> bool {
        let me = self.me();
        let Some(process) = self.processes.get_mut(&pid) else { return false };
        let moving = process.moving.take_if(|moving| moving.order.tries < TRIES_MAX);
        let Some(Move { order, .. }) = moving else { return false };
        let (cause, to) = (order.cause, order.to);
        process.waiting.push_front(order);
        self.free_berth(pid, to, MoveEnd::Stayed);
        let why = format!("on its way to node {to}, with those it shares memory with");
        self.order_move(pid, Order::new(me, cause, why));
        true
    }

    fn take_others(&mut self, pid: HomePid) -> Result<(), Hindrance> {
        let me = self.me();
        let core_speed = self.load.capacity().core_speed;
        let process = self.processes.get_mut(&pid);
        let Some((owner, moving)) = process.and_then(|p| Some((p.owner, p.moving.as_mut()?)))
        else {
            return Ok(());
        };
        let to = moving.order.to;
        let rank = rank(moving, pid);
        let mut others = moving.bound_to.members.clone();
        others.retain(|other| *other != pid);
        // One that has ended would be taken in and let go of again and again.
        others.retain(|other| procfs::read_stat(other.0).is_some_and(|stat| !stat.has_ended()));
        others.iter().for_each(|other| self.inherit_unseen(*other));
        for other in &others {
            self.check_companion(*other, (owner, rank))?;
        }
        for other in &others {
            if self.processes.get(other).is_some_and(|process| process.moving.is_some()) {
                let text = format!("process {pid}, which it shares memory with, takes it along");
                self.give_way(*other, not_moved(MoveEnd::Stayed, BOUND, text));
            }
            if let Some(process) = self.processes.get_mut(other) {
                let why = format!("process {pid} went there, which it shares memory with");
                let order = Order::new(to, Cause::Companion, why);
                process.moving = Some(Move::new(order, me, core_speed));
            }
        }
        if let Some(moving) = self.processes.get_mut(&pid).and_then(|p| p.moving.as_mut()) {
            (moving.companions, moving.stage) = (others, Stage::Moving);
        }
        self.begin_leaving(pid, to).map_err(Hindrance::Never)
    }

    /// A child of a managed process that no look at `/proc` has found yet.
    fn inherit_unseen(&mut self, child: HomePid) {
        if self.processes.contains_key(&child) {
            return;
        }
        if let Some(stat) = procfs::read_stat(child.0) {
            self.inherit(&stat, HomePid(stat.parent));
        }
    }

    /// Whether another can be taken along now.
    fn check_companion(
        &self,
        other: HomePid,
        (owner, rank): (Owner, Rank),
    ) -> Result<(), Hindrance> {
        let text = |what: &str| format!("it shares memory with process {other}, which {what}");
        let never =
            |what: &str| Err(Hindrance::Never(not_moved(MoveEnd::Stayed, BOUND, text(what))));
        let not_yet = |what: &str| Err(Hindrance::NotYet(text(what)));
        let Some(process) = self.processes.get(&other) else {
            return never("is not under osmos");
        };
        let runs = matches!(process.launch, Launch::Running | Launch::Found);
        match process {
            process if process.owner.uid != owner.uid => never("belongs to another user"),
            process if process.at != self.me() => not_yet("is away; try again"),
            Process { moving: Some(moving), .. }
                if !matches!(moving.stage, Stage::Gathering { .. })
                    || self::rank(moving, other) < rank =>
            {
                not_yet("is on the move; try again")
            }
            process if process.has_ended => not_yet("is just ending; try again"),
            _ if !runs => not_yet("has just been started; try again"),
            _ => Ok(()),
        }
    }

    /// Memory of those who come along with a process.
    pub(super) fn companions_bytes(&self, pid: HomePid) -> u64 {
        let others = self.companions_of(pid).iter().filter_map(|other| self.processes.get(other));
        others.map(|other| other.consumption.rss_bytes).fold(0, u64::saturating_add)
    }

    pub(super) fn companions_of(&self, pid: HomePid) -> &[HomePid] {
        let moving = self.processes.get(&pid).and_then(|process| process.moving.as_ref());
        moving.map_or(&[], |moving| &moving.companions)
    }

    /// Has a process leave with its companions, which come to the same berth by keys of their own.
    pub(super) fn leave_together(&mut self, pid: HomePid, berth: Berth) -> Result<(), NotMoved> {
        let failed = |error: std::io::Error| {
            let text = format!("cannot have its group leave: {error}");
            not_moved(MoveEnd::Stayed, "no-agreement", text)
        };
        let moving = self.processes.get(&pid).and_then(|process| process.moving.as_ref());
        let named = moving.map_or_else(Vec::new, |moving| moving.bound_to.named.clone());
        let others = self.companions_of(pid).to_vec();
        let members: Vec<HomePid> = std::iter::once(pid).chain(others.iter().copied()).collect();
        let agreement = Arc::new(Agreement::create().map_err(|error| failed(error.source))?);
        for member in &members {
            if let Some(moving) = self.processes.get_mut(member).and_then(|p| p.moving.as_mut()) {
                moving.agreement = Some(agreement.clone());
            }
        }
        let page = || agreement.file().try_clone().map_err(failed);
        let mut companions = Vec::with_capacity(others.len());
        for other in &others {
            let ticket =
                keys::random().map(Ticket).map_err(std::io::Error::other).map_err(failed)?;
            let key = keys::random().map_err(std::io::Error::other).map_err(failed)?;
            companions.push(Companion { pid: *other, ticket, key });
        }
        self.hand_memory_to(&members);
        for Companion { pid: other, ticket, key } in &companions {
            let berth = Berth { ticket: *ticket, key: *key, ..berth.clone() };
            let (members, named) = (members.clone(), named.clone());
            let group = ToDeputy::Group { members, companions: vec![], named };
            self.have_leave(*other, berth, Some((&group, page()?)))?;
        }
        let group = ToDeputy::Group { members, companions, named };
        self.have_leave(pid, berth, Some((&group, page()?)))
    }

    /// Has the supervisors of a group have open what it shares. One that does not get it reads all
    /// of that.
    fn hand_memory_to(&mut self, members: &[HomePid]) {
        let owner = members.first().and_then(|pid| self.processes.get(pid)).map(|p| p.owner);
        let Some(owner) = owner else { return };
        let pids: Vec<i32> = members.iter().map(|pid| pid.0).collect();
        for file in migrate::group::memory_files(&pids, owner.uid) {
            for member in members {
                let Ok(file) = file.try_clone() else { continue };
                // One that does not listen will not leave either.
                let _ = self.tell_deputy_with(*member, &ToDeputy::SharedMemory, Some(file.into()));
            }
        }
    }

    /// The one with which a process was to leave does not leave either: its target may be waiting
    /// for this one.
    fn end_company(&self, pid: HomePid, moving: &Move) {
        let stays = |agreement: &Arc<Agreement>| matches!(agreement.verdict(), Verdict::No(_));
        if !moving.agreement.as_ref().is_some_and(stays) {
            return;
        }
        for (leader, to) in self.processes.values().filter_map(|process| {
            let moving = process.moving.as_ref()?;
            moving.companions.contains(&pid).then_some((process.pid, moving.order.to))
        }) {
            self.free_berth(leader, to, MoveEnd::Stayed);
        }
    }

    /// The move of a process is off, and so are those of its companions. The supervisor of one that
    /// has begun hears of it by what they agree by.
    pub(super) fn leave_alone(&mut self, pid: HomePid, moving: &Move) {
        moving.agreement.iter().for_each(|agreement| agreement.refuse(pid.0 as u32));
        self.end_company(pid, moving);
        for other in &moving.companions {
            let process = self.processes.get(other);
            let has_not_begun = process.is_some_and(|process| {
                let cause = process.moving.as_ref().map(|moving| moving.order.cause);
                cause == Some(Cause::Companion) && process.deputy.is_none()
            });
            if has_not_begun {
                let text = format!("process {pid}, which it shares memory with, stays");
                self.move_failed(*other, not_moved(MoveEnd::Stayed, BOUND, text));
            }
        }
    }
}
