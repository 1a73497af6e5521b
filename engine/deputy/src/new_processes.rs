//! Processes that the body makes ([decision 0031](../../../docs/decisions/)): the process makes one
//! here, its natural child, and the body makes its own when it has heard of it. The child here
//! sleeps in the agent of its maker, with all signals blocked, until a supervisor of its own takes
//! it ([`crate::born_away`]), which the daemon starts.
//!
//! What a process shares with its child, or could not be taken apart here, has it made at home.

use crate::keeping::borrow;
use crate::lanes::{Lane, Work};
use crate::new_threads::Made;
use crate::notice::Notice;
use crate::service::Service;
use kernel::agent::BatchCall;
use kernel::regs::Registers;
use kernel::signal::{Action, SIGNAL_MAX};
use kernel::tracee;
use migrate::{MigrateError, Result};
use wire::calls::thread::{self, SIGCHLD};
use wire::forward::ToAway;
use wire::ids::{GuestAddr, GuestTid, HomePid, Ticket};
use wire::supervisor::{Berth, Birth, FromDeputy};

/// A process that waits for a supervisor of its own, or has one by now.
pub struct Child {
    guest: GuestTid,
    /// As this supervisor sees it.
    pid: i32,
    /// What its supervisor is to be told, until the daemon has been.
    birth: Option<Box<Birth>>,
}

impl Service<'_> {
    /// Has a thread, which waits in the agent, make a process; without its handlers, if they are to
    /// be cleared.
    pub(crate) fn make_process(
        &mut self,
        (tid, slot): (i32, usize),
        clears_handlers: bool,
    ) -> Result<Made> {
        // Other threads could wait for this child before it is known to have a body; and memory
        // that both are to share, or that is not there yet, cannot be in two places.
        let is_plain = self.shared.lanes.is_alone() && self.shared.files.is_none();
        if !is_plain || self.is_giving || self.daemon.is_abandoned() {
            return Ok(Made::NoRoom);
        }
        if self.last_child.as_ref().is_some_and(|last| last.birth.is_some()) {
            // It says what has become of one before it goes on.
            return Err(MigrateError::Protocol("another process before it has a body".into()));
        }
        let berth = self.berth_of_child()?;
        let arguments = [SIGCHLD, 0, 0, 0, 0, 0];
        self.make_by(tid, arguments, |service, (inside, local)| {
            let guest = GuestTid(inside);
            if clears_handlers {
                service.clear_handlers(local, slot)?;
            }
            service.lay_to_sleep(local)?;
            let pid = HomePid(local);
            // Before anything that takes time: it is not to be taken for one that was made at home.
            service.daemon.send(&FromDeputy::Forked { child: pid });
            service.readiness.iter().for_each(|readiness| readiness.give_back(local));
            let (ticket, key) = (berth.ticket, berth.key);
            let birth = Some(Box::new(service.birth(guest, berth, clears_handlers)));
            service.last_child = Some(Child { guest, pid: local, birth });
            service.shared.send(&ToAway::Child { child: guest, pid, ticket, key });
            Ok(Made::Task(guest))
        })
    }

    /// Where the child is, which its deputy is to call.
    fn berth_of_child(&self) -> Result<Berth> {
        let (mut ticket, mut key) = (Ticket([0; 16]), [0; 32]);
        let filled = getrandom::fill(&mut ticket.0).and_then(|()| getrandom::fill(&mut key));
        filled.map_err(|error| MigrateError::refused("no-randomness", error.to_string()))?;
        Ok(Berth { ticket, key, ..self.berth.clone() })
    }

    fn birth(&self, guest: GuestTid, berth: Berth, clears_handlers: bool) -> Birth {
        let lanes = &self.shared.lanes;
        let is_cleared = |action: &Action| clears_handlers && action.is_handler();
        let action = |signal| Some(lanes.action(signal)).filter(|action| !is_cleared(action));
        let actions = (1..=SIGNAL_MAX).map(|signal| action(signal).unwrap_or_default());
        Birth {
            berth,
            guest,
            agent: (GuestAddr(lanes.agent.base()), GuestAddr(lanes.agent.end())),
            slots: lanes.agent.slots() as u32,
            actions: actions.map(|a| [a.handler, a.flags, a.restorer, a.mask]).collect(),
            freeze_budget: self.freeze_budget,
            limits: self.limits,
        }
    }

    /// Gives a process at its birth the default in the place of each handler of its maker, whose
    /// thread has this slot and waits.
    fn clear_handlers(&self, pid: i32, slot: usize) -> Result<()> {
        let lanes = &self.shared.lanes;
        let handled = (1..=SIGNAL_MAX).filter(|signal| lanes.action(*signal).is_handler());
        self.set_action(pid, slot, &Action::default(), handled)
    }

    /// Lets go of a process at its birth, in a call that no signal ends but those that nobody can
    /// block: it needs nothing of the agent, whose memory it shares with its maker.
    fn lay_to_sleep(&self, pid: i32) -> Result<()> {
        let before = tracee::registers(pid)?;
        let asleep = Registers {
            rip: self.shared.lanes.agent.syscall_instruction(),
            rax: libc::SYS_pause as u64,
            orig_rax: u64::MAX,
            ..before
        };
        tracee::set_registers(pid, &asleep)?;
        tracee::set_signal_mask(pid, u64::MAX)?;
        Ok(tracee::detach(pid, 0)?)
    }

    /// The body has made its half of the process that a thread has made, or could not.
    pub fn child_made(&mut self, slot: usize, child: GuestTid, has_body: bool) -> Result<()> {
        let is_it = |last: &Child| last.guest == child && last.birth.is_some();
        if !self.last_child.as_ref().is_some_and(is_it) {
            return Ok(());
        }
        if has_body {
            self.tell_of(child);
            return Ok(());
        }
        self.disown(slot)
    }

    /// Has the daemon start a supervisor for the child.
    fn tell_of(&mut self, child: GuestTid) {
        let Some(last) = self.last_child.as_mut().filter(|last| last.guest == child) else {
            return;
        };
        if let Some(birth) = last.birth.take() {
            let child = HomePid(last.pid);
            self.daemon.send(&FromDeputy::Born { child, birth });
        }
    }

    /// The same at the end of the service, of a child whose body nobody has looked for yet. One of
    /// which the body has said nothing ends: it would sleep for ever.
    pub fn part_from_child(&mut self) {
        while let Some(notice) = self.shared.next_notice() {
            if let Notice::ChildMade { child, has_body: true, .. } = notice {
                self.tell_of(child);
            }
        }
        if let Some(unborn) = self.last_child.take_if(|last| last.birth.is_some()) {
            crate::ending::kill(unborn.pid);
        }
    }

    /// Ends a child that has no body, and has its maker forget it: its call is made again.
    fn disown(&mut self, slot: usize) -> Result<()> {
        let Some(last) = self.last_child.take() else { return Ok(()) };
        let is_its_makers = {
            let mut lane = self.shared.lanes.lock(slot);
            let is_it = lane.child() == Some(last.guest) && matches!(lane.work, Work::Idle);
            if is_it {
                lane.answered = None;
            }
            is_it
        };
        if !is_its_makers {
            return Err(MigrateError::Protocol("a child of somebody else has no body".into()));
        }
        self.disowned = Some(last.guest);
        crate::ending::kill(last.pid);
        let process = self.shared.lanes.lock(0).guest;
        let ids = (process, self.shared.lanes.lock(slot).guest);
        let worker = self.worker(slot);
        let any = libc::__WALL as u64;
        let reap = [BatchCall::new(libc::SYS_wait4, [last.guest.0 as u64, 0, any, 0, 0, 0])];
        let done = borrow(worker, ids, |worker| worker.execute_all("reap a child", &reap))?;
        self.heed(done)
    }

    /// Whether the signal of a stopped thread tells of the end of a child that never was.
    pub fn is_of_disowned(&mut self, tid: i32, number: i32) -> Result<bool> {
        let Some(disowned) = self.disowned.filter(|_| number == libc::SIGCHLD) else {
            return Ok(false);
        };
        let info = tracee::signal_info(tid)?;
        let is_it = info[SENDER_OFFSET..SENDER_OFFSET + 4] == disowned.0.to_le_bytes();
        self.disowned.take_if(|_| is_it);
        Ok(is_it)
    }
}

impl Lane {
    /// The process that the last call of this thread has made, if it has made one.
    pub fn child(&self) -> Option<GuestTid> {
        let (call, reply) = self.answered.as_ref()?;
        let is_it = call.number == thread::CLONE && thread::is_process(&call.arguments);
        (is_it && reply.result > 0).then_some(GuestTid(reply.result as i32))
    }
}

/// Of `si_pid` in a siginfo that tells of a child (sigaction(2)).
const SENDER_OFFSET: usize = 16;
