//! Signals of a process that is away. Home is the authority: the kernel here decides which thread
//! gets a signal and what it does; only running a handler needs the body.

use crate::lanes::{CALL_STAGING_BYTES, Lane, Work, plain_reply};
use crate::replies::{self, Begun};
use crate::service::Service;
use kernel::agent::Position;
use kernel::regs::{ERESTARTNOINTR, Registers};
use kernel::remote_call::RemoteCalls;
use kernel::signal::{self, Action, Effect, SA_RESETHAND};
use kernel::tracee::{self, SIGINFO_BYTES, Stop};
use migrate::{MigrateError, Result};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::forward::{Call, Reply, ToAway};
use wire::memory_group::GROUP;
use wire::supervisor::Reason;

/// How long one that is to die at home keeps trying to get there.
const DEATH_PATIENCE: Duration = Duration::from_secs(10);

/// How a process dies of signals for which home has to have its memory: for a core file, or because
/// others see what was written to it.
#[derive(Default)]
pub struct Death {
    /// Such signals, held until it is home: who gets them, and what they tell.
    pub signals: Vec<(i32, i32, [u8; SIGINFO_BYTES])>,
    /// It is not brought home for it any more, and dies without its memory.
    is_away: bool,
    /// Once it could not come home.
    tried_until: Option<Instant>,
}

impl Death {
    /// It could not come home. If others of its group called that off, who have ended or are about
    /// to, it tries again: what they left to it would be lost.
    pub fn cannot_be_at_home(&mut self, why: &Reason) {
        let until = *self.tried_until.get_or_insert_with(|| Instant::now() + DEATH_PATIENCE);
        self.is_away |= why.code != GROUP || Instant::now() >= until;
    }
}

impl Service<'_> {
    pub fn on_stop(&mut self, tid: i32, stop: Stop) -> Result<()> {
        match stop {
            Stop::Ended(status) => self.on_end(tid, status),
            Stop::Signal(number) => self.on_signal(tid, number),
            Stop::Group(_) => {
                self.set_held(true);
                tolerate(tracee::listen(tid))
            }
            Stop::Interrupted if self.apply_mask(tid)? => self.pass_on(tid, 0),
            Stop::Interrupted => {
                self.set_held(false);
                tolerate(tracee::resume(tid, 0))
            }
            Stop::Event(tracee::EXEC_EVENT) => Err(MigrateError::BeganProgram),
            Stop::Syscall | Stop::Event(_) => tolerate(tracee::resume(tid, 0)),
        }
    }

    /// Has the body stand still, or go on, if it does not do so already.
    pub fn set_held(&mut self, is_held: bool) {
        if self.is_held != is_held {
            self.is_held = is_held;
            self.shared.send(if is_held { &ToAway::Stop } else { &ToAway::Continue });
        }
    }

    fn on_end(&mut self, tid: i32, status: i32) -> Result<()> {
        let Some(slot) = self.shared.lanes.slot_of_local(tid) else { return Ok(()) };
        let reply = {
            let mut lane = self.shared.lanes.lock(slot);
            let work = std::mem::replace(&mut lane.work, Work::Gone);
            let tid = lane.guest;
            match work {
                Work::Exiting { sequence } => {
                    Some(Reply { tid, sequence, result: 0, outputs: vec![], home_ns: 0 })
                }
                _ => None,
            }
        };
        // The first thread's end is reported last, when all others have ended: the process's end.
        if tid == self.pid {
            return Err(MigrateError::Ended(status));
        }
        if let Some(reply) = reply {
            self.shared.reply(reply);
        }
        Ok(())
    }

    /// Has a thread stop to get another mask. The interrupt may come with a signal's stop instead.
    pub fn change_mask(&mut self, slot: usize) -> Result<()> {
        let lane = self.shared.lanes.lock(slot);
        if lane.mask_due.is_none() { Ok(()) } else { tolerate(tracee::interrupt(lane.tid)) }
    }

    /// Gives a stopped thread the mask that is due to it; false if none is.
    fn apply_mask(&mut self, tid: i32) -> Result<bool> {
        let Some(slot) = self.shared.lanes.slot_of_local(tid) else { return Ok(false) };
        let (mask, waiting) = {
            let mut lane = self.shared.lanes.lock(slot);
            let Some(mask) = lane.mask_due.take() else { return Ok(false) };
            (mask, lane.waiting.take())
        };
        tolerate(tracee::set_signal_mask(tid, mask))?;
        if let Some(call) = waiting {
            self.begin_waiting(slot, call)?;
        }
        Ok(true)
    }

    /// Begins a call that had to wait for the thread's mask.
    pub fn begin_waiting(&self, slot: usize, call: Call) -> Result<()> {
        match replies::begin(&self.shared, slot, call) {
            Some(Begun::UnderWay) => self.shared.wake_waiter(),
            Some(Begun::Over) => {}
            None => return Err(MigrateError::Protocol("a call that cannot be made".into())),
        }
        Ok(())
    }

    fn on_signal(&mut self, tid: i32, number: i32) -> Result<()> {
        self.apply_mask(tid)?;
        if self.is_of_disowned(tid, number)? {
            return tolerate(tracee::resume(tid, 0));
        }
        let action = self.action(number)?;
        match signal::effect(number, &action) {
            Effect::Handler => self.forward_signal(tid, number, &action),
            Effect::EndsWithCore if !self.death.is_away => self.die_at_home(tid, number),
            // What was written to files that it shares is to be there.
            Effect::Ends if self.shared.files.is_some() && !self.death.is_away => {
                self.die_at_home(tid, number)
            }
            Effect::Ignored => self.pass_on(tid, number),
            Effect::Stops | Effect::Ends | Effect::EndsWithCore => {
                tolerate(tracee::resume(tid, number))
            }
        }
    }

    /// The process dies of a signal, and needs its memory for that (a core file): home first, then
    /// the signal.
    fn die_at_home(&mut self, tid: i32, number: i32) -> Result<()> {
        let info = tracee::signal_info(tid)?;
        self.death.signals.push((tid, number, info));
        // Before the call is over by which it may have sent that to itself.
        self.shared.is_dying.store(true, Ordering::SeqCst);
        tolerate(tracee::resume(tid, 0))
    }

    /// The disposition of a signal. The kernel is asked whether there is a handler, because the
    /// guest may be changing it at this moment.
    pub fn action(&self, number: i32) -> Result<Action> {
        let noted = self.shared.lanes.action(number);
        let status = kernel::proc::process::status(self.pid)?;
        let has = |field| {
            kernel::proc::process::status_signals(&status, field)
                .is_some_and(|bits| bits & signal::bit(number) != 0)
        };
        Ok(match (has("SigCgt"), has("SigIgn")) {
            (true, _) if noted.is_handler() => noted,
            (true, _) => Action { handler: u64::MAX, ..Action::default() },
            (false, true) => Action { handler: 1, ..noted },
            (false, false) => Action { handler: 0, ..noted },
        })
    }

    /// A tracee stops for us, and even for a signal that it ignores, and some calls then end with
    /// EINTR, which without us they would not: they are made again.
    fn pass_on(&mut self, tid: i32, number: i32) -> Result<()> {
        if let Some(slot) = self.shared.lanes.slot_of_local(tid) {
            let lane = self.shared.lanes.lock(slot);
            let mut registers = tracee::registers(tid)?;
            let agent = &self.shared.lanes.agent;
            if let Work::Busy { call, since, .. } = &lane.work
                && agent.position(&registers, slot) == Position::AfterCall
                && registers.result() == -i64::from(libc::EINTR)
                && wire::calls::eintr_after_stop(call.number)
            {
                let mut arguments = registers.arguments();
                crate::in_flight::shorten(call, since.elapsed(), &mut arguments);
                agent.redo(&mut registers, call.number, arguments);
                tracee::set_registers(tid, &registers)?;
            }
        }
        tolerate(tracee::resume(tid, number))
    }

    /// Has the body run the handler. What the thread was doing here ends as it would have ended for
    /// the signal, and is blocked meanwhile what the handler blocks.
    fn forward_signal(&mut self, tid: i32, number: i32, action: &Action) -> Result<()> {
        let Some(slot) = self.shared.lanes.slot_of_local(tid) else {
            return tolerate(tracee::resume(tid, 0));
        };
        let info = tracee::signal_info(tid)?;
        let mut registers = tracee::registers(tid)?;
        let mut crossed = None;
        {
            let mut lane = self.shared.lanes.lock(slot);
            self.end_call(slot, &mut lane, &mut registers, &mut crossed)?;
            // Under the lock: a call is either seen to cross this signal or was ended by it.
            let signal = lane.number_signal(number, info.to_vec());
            self.shared.send(&ToAway::Signal(signal));
        }
        let mask = tracee::signal_mask(tid)?;
        tracee::set_signal_mask(tid, action.mask_in_handler(number, mask))?;
        if action.flags & SA_RESETHAND != 0 {
            self.reset_action(tid, number)?;
        }
        if let Some(reply) = crossed {
            self.shared.reply(reply);
        }
        tolerate(tracee::resume(tid, 0))
    }

    /// Ends what the stopped thread is doing for its body, because a handler has to run.
    fn end_call(
        &self,
        slot: usize,
        lane: &mut Lane,
        registers: &mut Registers,
        crossed: &mut Option<Reply>,
    ) -> Result<()> {
        let agent = &self.shared.lanes.agent;
        if !matches!(lane.work, Work::Busy { .. }) {
            return Ok(()); // nothing to end, or its own end
        }
        match agent.position(registers, slot) {
            Position::InCall(code) => agent.conclude(registers, code),
            Position::BeforeCall => agent.conclude(registers, ERESTARTNOINTR),
            Position::Idle if agent.withdraw(slot) => {
                if let Work::Busy { call, .. } = std::mem::replace(&mut lane.work, Work::Idle) {
                    let reply = plain_reply(&call, ERESTARTNOINTR);
                    lane.answered = Some((call, reply.clone()));
                    *crossed = Some(reply);
                }
                return Ok(());
            }
            _ => return Ok(()),
        }
        tracee::set_registers(lane.tid, registers)?;
        Ok(())
    }

    /// SA_RESETHAND: the disposition goes back to default as the handler is entered.
    fn reset_action(&mut self, tid: i32, number: i32) -> Result<()> {
        let slot = self.shared.lanes.slot_of_local(tid).unwrap_or(0);
        let action = self.shared.lanes.reset_action(number);
        self.set_action(tid, slot, &action, [number])
    }

    /// Has a stopped thread set what these signals do, by way of a slot of the agent.
    pub(crate) fn set_action(
        &self,
        tid: i32,
        slot: usize,
        action: &Action,
        signals: impl IntoIterator<Item = i32>,
    ) -> Result<()> {
        let agent = &self.shared.lanes.agent;
        let offset = CALL_STAGING_BYTES;
        agent.write_staging(slot, offset, &action.encode());
        let place = agent.staging_address(slot) + offset as u64;
        let mut calls = RemoteCalls::begin(tid, agent.syscall_instruction())?;
        for signal in signals {
            let arguments = [signal as u64, place, 0, 8, 0, 0];
            calls.call("set a disposition", libc::SYS_rt_sigaction, arguments)?;
        }
        Ok(())
    }
}

/// That a thread was killed meanwhile is not an error: its end is reported by itself.
fn tolerate(result: kernel::Result<()>) -> Result<()> {
    match result {
        Err(error) if !error.is_gone() => Err(error.into()),
        _ => Ok(()),
    }
}
