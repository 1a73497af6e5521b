//! Threads that the guest makes while it is away ([decision 0030](../../../docs/decisions/)), and
//! what they have in common with processes ([`crate::new_processes`]).
//!
//! Home makes one first: its id is the thread's, here as there. Then the thread that asked, stopped
//! behind its call, makes one here with the same arguments, which home was told and no other thread
//! of the guest can change. Home gives its half no signal before it has heard that this one lives.
//!
//! What cannot be done here is done at home: the call is made again there, and home's half of the
//! thread ends as if it had never been.

use crate::new_processes::may_fork;
use crate::notices::needs_home;
use crate::state::{Shared, State, Thread};
use crate::tracing_loop::Tracing;
use crate::{notices, priority};
use kernel::regs::Registers;
use kernel::remote_call::RemoteCalls;
use kernel::seccomp::Notification;
use kernel::tracee;
use migrate::making::Made;
use migrate::threads::STEP_TIMEOUT;
use migrate::{MigrateError, Result};
use std::sync::atomic::Ordering;
use wire::calls::{Arguments, Emulation, thread};
use wire::forward::{Call, Direction, Place, Segment, ToHome, Yield};
use wire::ids::{GuestAddr, GuestTid};
use wire::processor_time::Clock;

/// Why a thread or a process is made at home.
const AT_HOME: &str = "new-task";
/// Arguments of clone: what it makes, the stack, where its id or its descriptor goes, the thread
/// pointer.
const FLAGS: usize = 0;
const STACK: usize = 1;
const PLACE: usize = 2;
const TLS: usize = 4;

/// What is to be sent home for a call that makes a thread or a process; any other comes home.
pub(crate) fn forward(shared: &Shared, state: &mut State, n: &Notification) -> Option<Call> {
    let is_made_here = !shared.makes_no_tasks.load(Ordering::SeqCst);
    let arguments = arguments(shared, n).filter(|_| is_made_here);
    let found = arguments.and_then(|arguments| {
        let commons = match thread::is_thread(arguments[FLAGS]) {
            true => Some(vec![]),
            false => may_fork(shared, arguments[FLAGS]),
        };
        Some((arguments, commons?))
    });
    let Some((arguments, commons)) = found else {
        return needs_home(shared, state, n, AT_HOME);
    };
    let (is_process, is_held_back) = (thread::is_process(&arguments), state.holds_processes);
    if let Some(maker) = state.threads.get_mut(&(n.tid as i32)) {
        if is_process && is_held_back {
            maker.is_held_back = true;
            maker.parked = Some(n.id);
            return None;
        }
        maker.is_making_process = is_process;
    }
    if !commons.is_empty() {
        shared.queue(ToHome::Shares(commons));
    }
    let descriptor = thread::opens_descriptor(arguments[FLAGS]).then_some(Segment {
        guest: GuestAddr(arguments[PLACE]),
        length: size_of::<i32>() as u32,
        direction: Direction::Out,
        place: Place::Argument(PLACE as u8),
        yields: Yield::Whole,
        data: vec![],
    });
    let (emulation, segments) = (Some(Emulation::NewTask), descriptor.into_iter().collect());
    notices::record_call(shared, state, n, thread::CLONE, arguments, segments, emulation)
}

/// The arguments of clone that make what the call makes. None if that is none of the usual.
fn arguments(shared: &Shared, n: &Notification) -> Option<Arguments> {
    if n.number as u32 == thread::FORK {
        return Some([thread::SIGCHLD, 0, 0, 0, 0, 0]);
    }
    if n.number as u32 == thread::VFORK_CALL {
        return Some([thread::VFORK_FLAGS | thread::SIGCHLD, 0, 0, 0, 0, 0]);
    }
    if n.number as u32 == thread::CLONE {
        return Some(thread::of_clone(n.arguments));
    }
    let [address, length, ..] = n.arguments;
    if !(thread::ARGS_BYTES_MIN..=thread::ARGS_BYTES_MAX).contains(&length) {
        return None;
    }
    let mut args = vec![0; length as usize];
    let is_read = shared.memory.read_as_guest(address, &mut args) == args.len();
    if is_read { thread::of_clone3(&args) } else { None }
}

/// Home has made nothing, and says that this is for want of room: the call is made there.
pub(crate) fn make_at_home(shared: &Shared, state: &mut State, tid: i32, id: u64) {
    shared.makes_no_tasks.store(true, Ordering::SeqCst);
    let why = migrate::reason("call", format!("clone: {AT_HOME}"));
    notices::await_home(shared, state, (tid, id), why);
}

/// Whether the main thread has it make this call.
pub(crate) fn is_made_for_us(thread: &Thread, n: &Notification) -> bool {
    thread.makes == Some((n.number as u32, n.arguments))
}

impl Tracing<'_> {
    /// Has a thread, which stands behind its call, make the thread or process that home has made
    /// already.
    pub(crate) fn make_task(&mut self, tid: i32, guest: GuestTid, how: Arguments) -> Result<()> {
        let made = self.try_to_make_task(tid, guest, how);
        if let Some(maker) = self.shared.lock().threads.get_mut(&tid) {
            maker.is_making_process = false;
        }
        made
    }

    fn try_to_make_task(&mut self, tid: i32, guest: GuestTid, how: Arguments) -> Result<()> {
        let before = tracee::registers(tid)?;
        let is_process = thread::is_process(&how);
        let made = match is_process {
            true => self.make_child(tid, guest, (&how, &before)),
            false => self.make_twin(tid, guest, (&how, &before)),
        };
        match made {
            Ok(()) => Ok(()),
            Err(MigrateError::Kernel(error)) if error.is_gone() => Ok(()),
            Err(error) => {
                ::tracing::debug!("body of {}: task {guest}: {error}", self.shared.guest_pid);
                self.shared.makes_no_tasks.store(true, Ordering::SeqCst);
                match is_process {
                    true => self.say_child_made(tid, guest, false),
                    false => self.shared.send(ToHome::Call(last_call(guest))),
                }
                let mut again = before;
                again.rewind();
                Ok(tracee::set_registers(tid, &again)?)
            }
        }
    }

    fn make_twin(
        &mut self,
        tid: i32,
        guest: GuestTid,
        (how, before): (&Arguments, &Registers),
    ) -> Result<()> {
        let slot = self.shared.family.free_slot(&self.shared, self.agent.slots())?;
        let mask = tracee::signal_mask(tid)?;
        let local = self.make_by_clone(tid, guest, how)?;
        tracee::set_registers(local, &first_registers(how, before))?;
        tracee::set_signal_mask(local, mask)?;
        self.enlist(tid, Made { guest, local, slot });
        // Said first: no call of it may come before.
        self.shared.send(ToHome::MaskChanged { tid: guest, mask });
        let is_frozen = self.shared.lock().is_frozen;
        if is_frozen || self.is_held {
            self.stopped.insert(local);
            return Ok(());
        }
        self.resume(local, 0)
    }

    /// Has a thread make a task with this id inside of the sandbox; returns how we know it. It is
    /// stopped at its birth.
    pub(crate) fn make_by_clone(
        &mut self,
        tid: i32,
        guest: GuestTid,
        how: &Arguments,
    ) -> Result<i32> {
        let family = self.shared.family.clone();
        // No other body of the sandbox makes one until this has its id.
        let mut last_tid = self.begin_making(&family);
        // A kernel gives ids in turn; home's often come so, too.
        if last_tid.checked_add(1) != Some(guest.0) {
            self.choose_next_tid(guest.0)?;
        }
        self.expect_call(tid, Some((thread::CLONE, *how)));
        let _limit = kernel::patience::Patience::of(STEP_TIMEOUT);
        let made = RemoteCalls::begin(tid, self.agent.syscall_instruction())
            .and_then(|mut calls| calls.make_task(*how));
        self.expect_call(tid, None);
        let (inside, local) = made?;
        *last_tid = inside;
        if inside != guest.0 {
            dismiss(local, self.agent.syscall_instruction());
            return Err(MigrateError::Protocol(format!("task {guest} would be {inside}")));
        }
        Ok(local)
    }

    /// The call that a thread makes for us next passes unseen.
    pub(crate) fn expect_call(&self, tid: i32, call: Option<(u32, Arguments)>) {
        if let Some(thread) = self.shared.lock().threads.get_mut(&tid) {
            thread.makes = call;
        }
    }

    /// Notes a thread that begins as its maker is.
    fn enlist(&self, maker: i32, made: Made) {
        let mut state = self.shared.lock();
        let Some(maker) = state.threads.get(&maker) else { return };
        let traits = (maker.priority, maker.attributes, maker.extended_bytes);
        let thread = Thread::begun(self.shared.pid, made, traits, Clock::default());
        priority::begin(&thread, state.stands_back);
        state.threads.insert(made.local, thread);
    }
}

/// As the kernel starts it: behind the call, which gives it 0, on its own stack.
pub(crate) fn first_registers(how: &Arguments, before: &Registers) -> Registers {
    let mut registers = Registers { rax: 0, orig_rax: u64::MAX, ..*before };
    if how[STACK] != 0 {
        registers.rsp = how[STACK];
    }
    if thread::has_thread_pointer(how[FLAGS]) {
        registers.fs_base = how[TLS];
    }
    registers
}

/// Ends home's half of a thread that does not begin here.
fn last_call(guest: GuestTid) -> Call {
    let number = libc::SYS_exit as u32;
    Call { tid: guest, sequence: 1, signals_seen: 0, number, arguments: [0; 6], segments: vec![] }
}

/// Ends a task that has got another's id. Nobody knows it, and to end is all that it may.
fn dismiss(local: i32, instruction: u64) {
    let ended = RemoteCalls::begin(local, instruction)
        .and_then(|mut calls| calls.raw(libc::SYS_exit, [0; 6]));
    if let Err(error) = ended
        && !error.is_gone()
    {
        ::tracing::warn!("thread {local}: {error}");
    }
}
