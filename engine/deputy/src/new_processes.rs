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
use migrate::files::Files;
use migrate::{MigrateError, Result};
use wire::calls::thread;
use wire::forward::ToAway;
use wire::ids::{GuestAddr, GuestTid, HomePid, Ticket};
use wire::supervisor::{Berth, Birth, FromDeputy};

/// A process whose body has not been made yet.
pub struct Child {
    guest: GuestTid,
    /// As this supervisor sees it.
    pid: i32,
    /// Of the thread that has made it.
    slot: usize,
    /// Its descriptor, if its maker has asked for one.
    descriptor: Option<i32>,
    /// What its supervisor is to be told.
    birth: Box<Birth>,
}

impl Service<'_> {
    /// Has a thread, which waits in the agent, make a process as clone does with these flags.
    pub(crate) fn make_process(&mut self, (tid, slot): (i32, usize), flags: u64) -> Result<Made> {
        // Memory that both are to share, or that is not there yet, cannot be in two places.
        let clears_handlers = thread::clears_handlers(flags);
        let is_shared =
            self.shared.files.as_ref().is_some_and(Files::have_parts) && !thread::is_vfork(flags);
        // A child would not know which files it has mapped since it left (0035).
        let has_mapped = self.library.has_grown();
        if is_shared || has_mapped || self.is_giving || self.daemon.is_abandoned() {
            return Ok(Made::NoRoom);
        }
        if self.unborn.iter().any(|child| child.slot == slot) {
            // It says what has become of one before it goes on.
            return Err(MigrateError::Protocol("another process before it has a body".into()));
        }
        if !thread::is_vfork(flags) && !self.have_in_common(tid)? {
            return Ok(Made::NoRoom);
        }
        let berth = self.berth_of_child()?;
        let arguments = thread::at_home(flags, self.shared.lanes.agent.staging_address(slot));
        self.make_by(tid, arguments, |service, (inside, local)| {
            let guest = GuestTid(inside);
            let descriptor = thread::opens_descriptor(flags).then(|| service.descriptor(slot));
            if clears_handlers {
                service.clear_handlers(local, slot)?;
            }
            service.lay_to_sleep(local)?;
            let pid = HomePid(local);
            // Before anything that takes time: it is not to be taken for one that was made at home.
            service.daemon.send(&FromDeputy::Forked { child: pid });
            service.readiness.iter().for_each(|readiness| readiness.give_back(local));
            let (ticket, key) = (berth.ticket, berth.key);
            let how = (clears_handlers, thread::is_vfork(flags));
            let birth = Box::new(service.birth(guest, berth, how));
            service.unborn.push(Child { guest, pid: local, slot, descriptor, birth });
            let shared = service.commons.named();
            service.shared.send(&ToAway::Child { child: guest, pid, ticket, key, shared });
            Ok(Made::Process(guest, descriptor))
        })
    }

    /// The number of the descriptor that the thread of this slot has just been given.
    fn descriptor(&self, slot: usize) -> i32 {
        let mut number = [0; size_of::<i32>()];
        self.shared.lanes.agent.read_staging(slot, 0, &mut number);
        i32::from_le_bytes(number)
    }

    /// Where the child is, which its deputy is to call.
    fn berth_of_child(&self) -> Result<Berth> {
        let (mut ticket, mut key) = (Ticket([0; 16]), [0; 32]);
        let filled = getrandom::fill(&mut ticket.0).and_then(|()| getrandom::fill(&mut key));
        filled.map_err(|error| MigrateError::refused("no-randomness", error.to_string()))?;
        Ok(Berth { ticket, key, ..self.berth.clone() })
    }

    fn birth(
        &self,
        guest: GuestTid,
        berth: Berth,
        (clears_handlers, is_vfork): (bool, bool),
    ) -> Birth {
        let lanes = &self.shared.lanes;
        let is_cleared = |action: &Action| clears_handlers && action.is_handler();
        let action = |signal| Some(lanes.action(signal)).filter(|action| !is_cleared(action));
        let actions = (1..=SIGNAL_MAX).map(|signal| action(signal).unwrap_or_default());
        Birth {
            berth,
            guest,
            agent: (GuestAddr(lanes.agent.base()), GuestAddr(lanes.agent.end())),
            slots: lanes.agent.slots() as u32,
            actions: actions.map(|action| action.words()).collect(),
            freeze_budget: self.freeze_budget,
            limits: self.limits,
            is_vfork,
            files: self.library.places().collect(),
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
        let is_it = |unborn: &Child| (unborn.guest, unborn.slot) == (child, slot);
        match self.unborn.iter().position(is_it).map(|at| self.unborn.swap_remove(at)) {
            Some(child) if has_body => self.tell_of(child),
            Some(child) => self.disown(&child)?,
            None => {}
        }
        Ok(())
    }

    /// Has the daemon start a supervisor for a child.
    fn tell_of(&self, Child { pid, birth, .. }: Child) {
        self.daemon.send(&FromDeputy::Born { child: HomePid(pid), birth });
    }

    /// The same at the end of the service, of children whose bodies nobody has looked for yet.
    /// Those of which the body has said nothing end: they would sleep for ever.
    pub fn part_from_children(&mut self) {
        while let Some(notice) = self.shared.next_notice() {
            if let Notice::ChildMade { child, has_body: true, .. } = notice
                && let Some(at) = self.unborn.iter().position(|unborn| unborn.guest == child)
            {
                let child = self.unborn.swap_remove(at);
                self.tell_of(child);
            }
        }
        self.unborn.drain(..).for_each(|unborn| crate::ending::kill(unborn.pid));
    }

    /// Ends a child that has no body, and has its maker forget it: its call is made again.
    fn disown(&mut self, child: &Child) -> Result<()> {
        {
            let mut lane = self.shared.lanes.lock(child.slot);
            if lane.child() != Some(child.guest) || !matches!(lane.work, Work::Idle) {
                return Err(MigrateError::Protocol("a child of somebody else has no body".into()));
            }
            lane.answered = None;
        }
        // One that waits for any child is not to hear of this.
        let stopped = self.stop_others(child.slot)?;
        self.disowned.push(child.guest);
        crate::ending::kill(child.pid);
        let reaped = self.reap(child);
        for (tid, is_group_stop) in stopped {
            self.go_on_after_stop(tid, is_group_stop)?;
        }
        reaped
    }

    /// Stops all threads but the one of this slot; says of each whether job control had stopped it.
    fn stop_others(&mut self, slot: usize) -> Result<Vec<(i32, bool)>> {
        let lanes = &self.shared.lanes;
        let others = lanes.live_slots().into_iter().filter(|other| *other != slot);
        let tids: Vec<i32> = others.map(|other| lanes.lock(other).tid).collect();
        let mut stopped = vec![];
        for tid in tids {
            if let Some(is_group_stop) = self.stop_for_us(tid)? {
                stopped.push((tid, is_group_stop));
            }
        }
        Ok(stopped)
    }

    /// Has its maker's thread wait for a child that ends.
    fn reap(&mut self, child: &Child) -> Result<()> {
        let process = self.shared.lanes.lock(0).guest;
        let ids = (process, self.shared.lanes.lock(child.slot).guest);
        let worker = self.worker(child.slot);
        let any = libc::__WALL as u64;
        let wait = BatchCall::new(libc::SYS_wait4, [child.guest.0 as u64, 0, any, 0, 0, 0]);
        let close = |number| BatchCall::new(libc::SYS_close, [number as u64, 0, 0, 0, 0, 0]);
        let reap: Vec<BatchCall> =
            std::iter::once(wait).chain(child.descriptor.map(close)).collect();
        let done = borrow(worker, ids, |worker| worker.execute_all("reap a child", &reap))?;
        self.heed(done)
    }

    /// Whether the signal of a stopped thread tells of the end of a child that never was.
    pub fn is_of_disowned(&mut self, tid: i32, number: i32) -> Result<bool> {
        if number != libc::SIGCHLD || self.disowned.is_empty() {
            return Ok(false);
        }
        let info = tracee::signal_info(tid)?;
        let sender = &info[SENDER_OFFSET..SENDER_OFFSET + 4];
        let is_it = |disowned: &GuestTid| sender == disowned.0.to_le_bytes();
        let at = self.disowned.iter().position(is_it);
        Ok(at.map(|at| self.disowned.swap_remove(at)).is_some())
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
