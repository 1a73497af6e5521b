//! Signals on their last step: into the handler's frame, by the body's own kernel.

use crate::frames;
use crate::notices::raise;
use crate::state::{Agreement, Order};
use crate::tracing_loop::{End, Tracing};
use crate::unheard;
use kernel::haste::Haste;
use kernel::patience::Patience;
use kernel::proc::maps;
use kernel::remote_call::RemoteCalls;
use kernel::signal::{self, Action, FRAME_MASK_OFFSET, SA_RESETHAND};
use kernel::tracee::{self, Stop};
use migrate::stepping::{self, Stepped};
use migrate::threads::STEP_TIMEOUT;
use migrate::{MigrateError, Result, reason};
use wire::forward::{Signal, ToHome};
use wire::ids::GuestTid;

impl Tracing<'_> {
    pub(crate) fn on_signal(&mut self, tid: i32, number: i32) -> Result<End> {
        let info = tracee::signal_info(tid)?;
        if signal::is_fault(number, &info) {
            return self.on_fault(tid, number, &info);
        }
        if self.is_held {
            self.stopped.insert(tid);
            return Ok(End::Continues);
        }
        let queued = {
            let mut state = self.shared.lock();
            // One raised before a freeze may come after it, to a thread that has to be back in its
            // call first: it is raised again there.
            let thread = state.threads.get_mut(&tid).filter(|t| !t.is_between_calls());
            thread.and_then(|t| {
                let at = t.signals.iter().position(|s| s.number == number)?;
                t.signals.remove(at)
            })
        };
        match queued {
            Some(signal) => self.deliver(tid, signal, None)?,
            // Nobody but home may signal the guest.
            None => self.resume(tid, 0)?,
        }
        Ok(End::Continues)
    }

    /// Gives a thread at a signal stop the signal as home described it.
    pub(crate) fn deliver(
        &mut self,
        tid: i32,
        signal: Signal,
        mask_after: Option<u64>,
    ) -> Result<()> {
        let number = signal.number;
        let is_own_fault = signal.index == 0;
        if self.is_action_unsettled(number) || !self.has_handler(number) {
            if is_own_fault {
                // A trap whose homecoming has failed.
                let why = reason("fault", format!("signal {number} of its own making"));
                self.shared.order(Order::NeedsHome(why));
            }
            let mut state = self.shared.lock();
            if let Some(thread) = state.threads.get_mut(&tid) {
                thread.signals.push_front(signal);
            }
            if !is_own_fault {
                self.deferred.push_back((tid, number));
            }
            self.stopped.insert(tid);
            return Ok(());
        }
        if let Some(abroad) = &self.shared.abroad {
            // A handler's frame must not lead back to where the guest has nothing.
            match abroad.elsewhere.lead_out(tid) {
                Err(MigrateError::Refused(_)) if mask_after.is_none() => {
                    return self.deliver_later(tid, signal);
                }
                led_out => led_out?,
            }
        }
        let mut info = [0; tracee::SIGINFO_BYTES];
        info.copy_from_slice(&signal.siginfo);
        tracee::set_signal_info(tid, &info)?;
        match mask_after {
            None => {
                self.settle_unheard_call(tid)?;
                self.enter_handler(tid, number, Some(signal), None)
            }
            Some(_) => self.enter_handler(tid, number, None, mask_after),
        }
    }

    /// A thread that is about to enter a handler may be in a call that we were not told of.
    fn settle_unheard_call(&self, tid: i32) -> Result<()> {
        let mut registers = tracee::registers(tid)?;
        let Some(met) = unheard::result_of(&registers) else { return Ok(()) };
        let mut state = self.shared.lock();
        let thread = state.threads.get_mut(&tid);
        if thread.is_none_or(|thread| std::mem::take(&mut thread.is_cut_short)) {
            return Ok(());
        }
        registers.rax = met as u64;
        Ok(tracee::set_registers(tid, &registers)?)
    }

    /// The thread goes on, and gets the signal when it stops for it again.
    fn deliver_later(&self, tid: i32, signal: Signal) -> Result<()> {
        let mut numbers = Vec::new();
        if let Some(thread) = self.shared.lock().threads.get_mut(&tid) {
            thread.signals.push_front(signal);
            // One of the others may have been taken from it on its way.
            numbers.extend(thread.signals.iter().map(|signal| signal.number));
        }
        numbers.into_iter().for_each(|number| raise(&self.shared, tid, number));
        self.resume(tid, 0)
    }

    /// True if the body's own kernel has a handler for the signal by now.
    fn has_handler(&self, number: i32) -> bool {
        let Ok(status) = kernel::proc::process::status(self.shared.pid) else { return true };
        kernel::proc::process::status_signals(&status, "SigCgt")
            .is_none_or(|bits| bits & signal::bit(number) != 0)
    }

    /// True while the guest is just setting the disposition of this signal: home has it already,
    /// the body's kernel will in a moment.
    pub(crate) fn is_action_unsettled(&self, number: i32) -> bool {
        let state = self.shared.lock();
        state.threads.values().any(|thread| {
            thread.outstanding.as_ref().is_some_and(|o| {
                o.emulation == Some(wire::calls::Emulation::SignalAction)
                    && o.call.arguments[0] == number as u64
            })
        })
    }

    /// Lets the kernel build the handler's frame, and the thread run the handler.
    /// `signal` is put back if this kernel's frames are larger than home's and it does not fit.
    fn enter_handler(
        &mut self,
        tid: i32,
        number: i32,
        signal: Option<Signal>,
        mask_after: Option<u64>,
    ) -> Result<()> {
        match self.step_into_handler(tid, number, signal, mask_after)? {
            true => self.resume(tid, 0),
            false => Ok(()),
        }
    }

    /// Stops before the handler's first instruction; false if the thread has ended, or has to go
    /// home with the signal.
    fn step_into_handler(
        &mut self,
        tid: i32,
        number: i32,
        signal: Option<Signal>,
        mask_after: Option<u64>,
    ) -> Result<bool> {
        let _limit = Patience::of(STEP_TIMEOUT);
        let _haste = Haste::of(self.shared.pid, [tid]);
        tracee::step(tid, number)?;
        match tracee::wait(tid)? {
            Stop::Ended(_) => {
                self.on_end(tid);
                return Ok(false);
            }
            Stop::Signal(libc::SIGSEGV) => {
                // The frame does not fit its stack. At home that is death, as it should be.
                self.stopped.insert(tid);
                if let Some(signal) = signal.filter(|_| self.shared.registers.is_some())
                    && let Some(thread) = self.shared.lock().threads.get_mut(&tid)
                {
                    thread.signals.push_front(signal);
                }
                let why = reason("fault", format!("no stack for the handler of signal {number}"));
                self.shared.order(Order::NeedsHome(why));
                return Ok(false);
            }
            Stop::Signal(_) | Stop::Interrupted => {}
            other => ::tracing::debug!("thread {tid} at its handler: {other:?}"),
        }
        self.frame_for_home(tid)?;
        if let Some(mask) = mask_after {
            let sp = tracee::registers(tid)?.rsp;
            self.shared.memory.write(sp + FRAME_MASK_OFFSET, &mask.to_le_bytes())?;
        }
        let mut state = self.shared.lock();
        if let Some(action) = state.actions.get_mut(number as usize - 1)
            && action.flags & SA_RESETHAND != 0
        {
            *action = Action { handler: 0, ..*action };
        }
        Ok(true)
    }

    /// A handler that has just been entered may return at home.
    fn frame_for_home(&self, tid: i32) -> Result<()> {
        let Some(translator) = &self.shared.registers else { return Ok(()) };
        let at = tracee::registers(tid)?.rsp.wrapping_add(signal::FRAME_STATE_OFFSET);
        // It has used what it was told not to: then it is restored whole here only.
        if let Err(error) = frames::cut(&self.shared, at, |frame| translator.frame_for_home(frame))
        {
            ::tracing::warn!("body of {}: {error}", self.shared.guest_pid);
        }
        Ok(())
    }

    /// The guest's own fault: its handler runs here; without one it is death, which happens at
    /// home.
    pub(crate) fn on_fault(&mut self, tid: i32, number: i32, info: &[u8]) -> Result<End> {
        if self.is_at_home_vdso(tid)? {
            self.stopped.insert(tid);
            let text = "a function of its home's vDSO that is not known here";
            return self.need_home(reason("vdso", text));
        }
        let guest = self.shared.lock().threads.get(&tid).map(|thread| thread.guest);
        let Some(guest) = guest else { return Ok(End::Continues) };
        if let Some(mask) = self.mask_in_handler_of_fault(tid, number)?
            && !self.is_held
        {
            // Said first: what the handler blocks must be blocked at home when it runs.
            self.shared.send(ToHome::MaskChanged { tid: guest, mask });
            self.enter_handler(tid, number, None, None)?;
            return Ok(End::Continues);
        }
        self.stopped.insert(tid);
        self.keep_trap(tid, number, info);
        let text = format!("signal {number} of its own making");
        self.need_home(reason("fault", text))
    }

    /// What is blocked while a thread runs the guest's handler of a fault that it has caused. None
    /// if there is no handler that could run here.
    fn mask_in_handler_of_fault(&self, tid: i32, number: i32) -> Result<Option<u64>> {
        let mask = tracee::signal_mask(tid)?;
        let action = self.shared.lock().actions.get(number as usize - 1).copied();
        let action = action.unwrap_or_default();
        // A disposition that goes back to default as its handler is entered does so at home.
        let is_for_once = action.flags & SA_RESETHAND != 0;
        let is_blocked = mask & signal::bit(number) != 0;
        let runs_here = action.is_handler() && !is_for_once && !is_blocked;
        Ok(runs_here.then(|| action.mask_in_handler(number, mask)))
    }

    /// Leads all threads of a frozen body out of where nothing is on another machine: on its way
    /// home it may be in a vDSO that is home's own.
    ///
    /// # Errors
    /// Refused if one does not get out; all stand where they may go on.
    pub(crate) fn lead_out(&mut self, goes_home: bool) -> Result<()> {
        let _limit = Patience::of(STEP_TIMEOUT);
        let shared = self.shared.clone();
        let threads: Vec<(i32, GuestTid)> =
            shared.lock().threads.values().map(|thread| (thread.local, thread.guest)).collect();
        if let Some(abroad) = &shared.abroad {
            return threads.into_iter().try_for_each(|(tid, _)| abroad.elsewhere.lead_out(tid));
        }
        if goes_home {
            return Ok(());
        }
        let vdso = maps::vdso(&maps::read(shared.pid)?);
        for (tid, guest) in threads {
            match stepping::leave_vdso(tid, &vdso)? {
                Stepped::There => {}
                Stepped::Signal(number) => self.take_fault_frozen(tid, guest, number)?,
                Stepped::Underway => return Err(stepping::vdso_refusal()),
            }
        }
        Ok(())
    }

    /// A thread of a frozen body is about to get a signal: it takes it if that is a fault of its
    /// own which it handles.
    fn take_fault_frozen(&mut self, tid: i32, guest: GuestTid, number: i32) -> Result<()> {
        let is_fault = signal::is_fault(number, &tracee::signal_info(tid)?);
        if is_fault && let Some(mask) = self.mask_in_handler_of_fault(tid, number)? {
            self.shared.send(ToHome::MaskChanged { tid: guest, mask });
            if self.step_into_handler(tid, number, None, None)? {
                return Ok(());
            }
        }
        Err(stepping::vdso_refusal())
    }

    /// A trap is over when it is reported, and is kept; all other faults happen again.
    fn keep_trap(&self, tid: i32, number: i32, info: &[u8]) {
        if number != libc::SIGTRAP {
            return;
        }
        if let Some(thread) = self.shared.lock().threads.get_mut(&tid) {
            let (tid, siginfo) = (thread.guest, info.to_vec());
            thread.signals.push_back(Signal { tid, index: 0, number, siginfo });
        }
    }

    /// A signal that a thread was about to get when all were being stopped: one that home has
    /// forwarded is still queued.
    pub(crate) fn on_signal_while_freezing(&self, tid: i32, number: i32) -> Result<()> {
        let info = tracee::signal_info(tid)?;
        if signal::is_fault(number, &info) {
            self.keep_trap(tid, number, &info);
        }
        Ok(())
    }

    /// Whether a thread has failed in what stands for home's vDSO for being away. A fault of the
    /// caller's there is made one of the function as a whole.
    fn is_at_home_vdso(&self, tid: i32) -> Result<bool> {
        let Some(abroad) = &self.shared.abroad else { return Ok(false) };
        if abroad.elsewhere.blame_caller(tid)? {
            return Ok(false);
        }
        Ok(abroad.elsewhere.is_in_home_vdso(tracee::registers(tid)?.rip))
    }

    /// Delivers the signal that ended a call with a temporary mask: the handler runs under that
    /// mask, and what it returns to is the mask from before.
    pub(crate) fn deliver_masked(
        &mut self,
        tid: i32,
        id: u64,
        result: i64,
        mask: u64,
    ) -> Result<()> {
        let _limit = Patience::of(STEP_TIMEOUT);
        let _haste = Haste::of(self.shared.pid, [tid]);
        tracee::interrupt(tid)?;
        self.shared.listener.reply(id, result);
        if !self.await_stop(tid)? {
            return Ok(());
        }
        let before = tracee::signal_mask(tid)?;
        tracee::set_signal_mask(tid, mask)?;
        let (first, rest) = {
            let mut state = self.shared.lock();
            let Some(thread) = state.threads.get_mut(&tid) else { return Ok(()) };
            let at = thread.signals.iter().position(|s| mask & signal::bit(s.number) == 0);
            let first = at.and_then(|at| thread.signals.remove(at));
            (first, thread.signals.iter().map(|s| s.number).collect::<Vec<i32>>())
        };
        let Some(first) = first else {
            tracee::set_signal_mask(tid, before)?;
            return self.resume(tid, 0);
        };
        raise(&self.shared, tid, first.number);
        self.resume(tid, 0)?;
        match tracee::wait(tid)? {
            Stop::Signal(number) if number == first.number => {
                self.deliver(tid, first, Some(before))?;
            }
            Stop::Ended(_) => {
                self.on_end(tid);
            }
            other => ::tracing::warn!("thread {tid} got {other:?} instead of {}", first.number),
        }
        rest.into_iter().for_each(|number| raise(&self.shared, tid, number));
        Ok(())
    }

    /// Has a call that is over at home the same effect here: the thread does not make it, but is
    /// stopped behind it and given what home has. That it stops takes as long as it waits for a
    /// processor, which nobody here waits for ([`Tracing::on_stop_towards_agreement`]).
    pub(crate) fn begin_to_agree(&mut self, tid: i32, id: u64, agreement: Agreement) -> Result<()> {
        self.agreeing.insert(tid, agreement);
        match tracee::interrupt(tid) {
            Err(error) if !error.is_gone() => return Err(error.into()),
            _ => {}
        }
        match agreement {
            Agreement::Return(_) => self.shared.listener.let_pass(id),
            Agreement::Task(guest, _) => self.shared.listener.reply(id, i64::from(guest.0)),
            _ => self.shared.listener.reply(id, 0),
        };
        Ok(())
    }

    /// A thread that is to stop behind a call has stopped, or ended. True once it is where it was
    /// led to, and has what home has.
    pub(crate) fn on_stop_towards_agreement(&mut self, tid: i32, stop: Stop) -> Result<bool> {
        if !self.is_led_to_stop(tid, stop)? {
            return Ok(false);
        }
        match self.agreeing.remove(&tid) {
            Some(Agreement::Action(number, bytes)) => self.set_action(tid, number, &bytes)?,
            Some(Agreement::Mask(how, set)) => {
                let now = tracee::signal_mask(tid)?;
                tracee::set_signal_mask(tid, signal::masked(now, how, set))?;
            }
            Some(Agreement::Return(mask)) => {
                tracee::set_signal_mask(tid, signal::maskable(mask))?;
            }
            Some(Agreement::Task(guest, how)) => self.make_task(tid, guest, how)?,
            Some(Agreement::Map(file, how)) => self.map_file(tid, file, how)?,
            None => {}
        }
        Ok(true)
    }

    /// Goes on with a thread that has what home has, and need not stand still for another process.
    pub(crate) fn go_on_in_agreement(&mut self, tid: i32) -> Result<()> {
        let due: Vec<i32> = {
            let state = self.shared.lock();
            if state.stands_still(tid) {
                return Ok(());
            }
            let thread = state.threads.get(&tid);
            thread.map_or(vec![], |thread| thread.signals.iter().map(|s| s.number).collect())
        };
        due.into_iter().for_each(|number| raise(&self.shared, tid, number));
        if self.is_held {
            self.stopped.insert(tid);
            return Ok(());
        }
        self.resume(tid, 0)
    }

    /// Has a stopped thread set a disposition, which lies where the guest does not write.
    pub(crate) fn set_action(&self, tid: i32, number: i32, bytes: &[u8]) -> Result<()> {
        let slot = {
            let mut state = self.shared.lock();
            let Some(thread) = state.threads.get_mut(&tid) else { return Ok(()) };
            thread.agrees_at = Some(self.agent.staging_address(thread.slot));
            thread.slot
        };
        self.agent.write_staging(slot, 0, bytes);
        let staging = self.agent.staging_address(slot);
        let _haste = Haste::of(self.shared.pid, [tid]);
        let mut calls = RemoteCalls::begin(tid, self.agent.syscall_instruction())?;
        let arguments = [number as u64, staging, 0, 8, 0, 0];
        let outcome = calls.call("set a disposition", libc::SYS_rt_sigaction, arguments);
        drop(calls);
        if let Some(thread) = self.shared.lock().threads.get_mut(&tid) {
            thread.agrees_at = None;
        }
        outcome.map(drop).or_else(|error| if error.is_gone() { Ok(()) } else { Err(error.into()) })
    }

    /// Waits until an interrupted thread has stopped; false if it has ended.
    fn await_stop(&mut self, tid: i32) -> Result<bool> {
        loop {
            match tracee::wait(tid)? {
                Stop::Ended(_) => {
                    self.on_end(tid);
                    return Ok(false);
                }
                stop if self.is_led_to_stop(tid, stop)? => return Ok(true),
                _ => {}
            }
        }
    }

    /// Whether a thread has stopped for being interrupted. If it has for another reason it goes on,
    /// and will still stop; one that has ended does neither.
    fn is_led_to_stop(&mut self, tid: i32, stop: Stop) -> Result<bool> {
        match stop {
            Stop::Interrupted | Stop::Group(_) => return Ok(true),
            Stop::Ended(_) => {}
            Stop::Event(tracee::CALL_EVENT) => self.translate_deadline(tid, true)?,
            // A placeholder: what it stands for is still queued, and is raised again.
            _ => {
                self.restore_deadline(tid)?;
                tracee::resume_interrupted(tid, 0)?;
            }
        }
        Ok(false)
    }
}
