//! The state of one stopped thread.

use crate::{MigrateError, Result};
use kernel::agent::BatchCall;
use kernel::memory::Memory;
use kernel::patience::Patience;
use kernel::proc::process;
use kernel::regs::{ERESTART_RESTARTBLOCK, ERESTARTNOHAND, ERESTARTNOINTR, ERESTARTSYS, Registers};
use kernel::signal::{self, Action, Effect, SIGNAL_MAX, effect};
use kernel::tracee::{self, RseqRegistration, Stop};
use std::time::Duration;
use wire::ids::GuestTid;
use wire::image;

/// What a thread is asked to do for us takes microseconds. One that takes longer is kept in the
/// kernel, or does not do what it was asked to.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// What a stopped thread's registers say, read before it was made to do anything.
#[derive(Clone, Debug)]
pub struct Stopped {
    /// As the calling process sees it.
    pub tid: i32,
    pub guest: GuestTid,
    /// As the kernel left them: what a thread that is put back gets again.
    pub registers: Registers,
    pub extended_state: Vec<u8>,
    pub signal_mask: u64,
    pub rseq: Option<RseqRegistration>,
}

/// Reads a stopped thread, and blocks all its signals, so that it can be made to work for us.
pub fn read(tid: i32, guest: GuestTid) -> Result<Stopped> {
    let stopped = Stopped {
        tid,
        guest,
        registers: tracee::registers(tid)?,
        extended_state: tracee::extended_state(tid)?,
        signal_mask: tracee::signal_mask(tid)?,
        rseq: tracee::rseq_registration(tid)?,
    };
    tracee::set_signal_mask(tid, u64::MAX)?;
    Ok(stopped)
}

/// Puts a stopped thread back as it was read.
pub fn put_back(stopped: &Stopped) -> Result<()> {
    let registers = unstopped(stopped.tid, stopped.registers, stopped.signal_mask);
    tracee::set_registers(stopped.tid, &registers)?;
    tracee::set_signal_mask(stopped.tid, stopped.signal_mask)?;
    Ok(())
}

/// Likewise a thread that was stopped and not read.
pub fn put_back_unread(tid: i32) -> Result<()> {
    let stopped = tracee::registers(tid)?;
    let registers = unstopped(tid, stopped, tracee::signal_mask(tid)?);
    if registers != stopped {
        tracee::set_registers(tid, &registers)?;
    }
    Ok(())
}

/// Linux ends some calls with EINTR for a mere stop (signal(7)). Nobody is to notice that a process
/// was stopped to be moved, and was not: such a call is made again.
fn unstopped(tid: i32, mut registers: Registers, mask: u64) -> Registers {
    let is_cut = registers.result() == EINTR
        && registers.interrupted_call().is_some_and(wire::calls::eintr_after_stop);
    if is_cut && !has_deliverable_signal(tid, mask) {
        registers.rewind();
    }
    registers
}

/// How a thread that was interrupted in a system call goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// It was not in a call, or the call was over, or it stands in front of it again.
    None,
    /// It sleeps against a deadline that only this kernel knows: the call has to go on here.
    Keeps(u32),
    /// It is in a restarted call, and nobody knows which.
    Unknown,
}

/// The result with which a thread was interrupted in a call that it has to make again away from
/// here: a signal that reaches it before it is back in the call must end the call with that.
/// None if it was not in a call, or in one that a body makes by itself.
pub fn interruption_of(before: &Registers, settled: &Registers) -> Option<i64> {
    let is_rewound = settled.rip != before.rip;
    let class = wire::calls::classify(settled.rax as u32, &settled.arguments());
    (is_rewound && class != wire::calls::Class::Local).then(|| before.result())
}

/// Finds out how to go on from the registers at a stop, and puts them in front of the call if it
/// is to be made again (signal(7), "Interruption of system calls"; the restart codes of
/// include/linux/errno.h).
///
/// `restarted` is the call behind a `restart_syscall`, which the registers no longer tell;
/// `has_signal` says that a signal is due, which then is what ended a call with EINTR.
pub fn settle(registers: &mut Registers, restarted: Option<u32>, has_signal: bool) -> Interruption {
    let Some(number) = registers.interrupted_call() else { return Interruption::None };
    match registers.result() {
        ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => {
            registers.rewind();
            Interruption::None
        }
        ERESTART_RESTARTBLOCK => {
            let behind = if number == RESTART_SYSCALL { restarted } else { Some(number) };
            match behind {
                Some(call @ (POLL | NANOSLEEP | CLOCK_NANOSLEEP)) => Interruption::Keeps(call),
                Some(call) => {
                    registers.orig_rax = u64::from(call);
                    registers.rewind();
                    Interruption::None
                }
                None => Interruption::Unknown,
            }
        }
        // Linux ends some calls with EINTR for a mere stop (signal(7)); nobody asked for that.
        EINTR if !has_signal && wire::calls::eintr_after_stop(number) => {
            registers.rewind();
            Interruption::None
        }
        _ => {
            registers.orig_rax = u64::MAX;
            Interruption::None
        }
    }
}

const EINTR: i64 = -(libc::EINTR as i64);
const POLL: u32 = libc::SYS_poll as u32;
const NANOSLEEP: u32 = libc::SYS_nanosleep as u32;
const CLOCK_NANOSLEEP: u32 = libc::SYS_clock_nanosleep as u32;
const FUTEX: u32 = libc::SYS_futex as u32;
/// restart_syscall(2).
pub const RESTART_SYSCALL: u32 = libc::SYS_restart_syscall as u32;

/// The call that a sleeping thread waits in, by the kernel function in `/proc/.../wchan`: what
/// `restart_syscall` hides. Sampled before the thread is stopped.
pub fn waiting_call(pid: i32, tid: i32) -> Option<u32> {
    let place = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/wchan")).ok()?;
    // The function that restarts a sleep counts as part of the scheduler, so its caller shows.
    if place.contains("nanosleep") || place.contains("restart_syscall") {
        Some(NANOSLEEP)
    } else if place.contains("poll") {
        Some(POLL)
    } else if place.contains("futex") {
        Some(FUTEX)
    } else {
        None
    }
}

/// True if a signal waits that does something to the thread, with this mask, as soon as it runs.
fn has_deliverable_signal(tid: i32, mask: u64) -> bool {
    let Ok(status) = process::status(tid) else { return false };
    let signals = |field| process::status_signals(&status, field).unwrap_or(0);
    (signals("SigPnd") | signals("ShdPnd")) & !mask & !ignored_in(&status) != 0
}

/// Whether the process ignores a signal. The kernel queues it all the same for who is traced: it
/// ends no call that would not have ended without us.
pub fn ignores(tid: i32, signal: i32) -> bool {
    let status = process::status(tid).unwrap_or_default();
    ignored_in(&status) & signal::bit(signal) != 0
}

/// What a status in `/proc` says to be ignored, by wish or by default.
fn ignored_in(status: &str) -> u64 {
    let signals = |field| process::status_signals(status, field).unwrap_or(0);
    let is_by_default = |number: &i32| effect(*number, &Action::default()) == Effect::Ignored;
    let by_default = (1..=SIGNAL_MAX).filter(is_by_default).fold(0, |all, n| all | signal::bit(n));
    signals("SigIgn") | by_default & !signals("SigCgt")
}

/// The descriptor of the restartable sequence that a thread may be inside of (`rseq_cs`), or 0.
pub fn sequence(stopped: &Stopped, memory: &Memory) -> u64 {
    stopped.rseq.map_or(0, |rseq| memory.read_u64(rseq.address + 8).unwrap_or(0))
}

/// If the thread is inside this restartable sequence, moves it to the sequence's abort handler, as
/// the kernel would on a signal (rseq(2)): always allowed, and needed as it loses its place.
pub fn abort_rseq(stopped: &mut Stopped, critical: u64, memory: &Memory) {
    let mut descriptor = [0u8; 32];
    if critical == 0 || memory.read(critical, &mut descriptor).is_err() {
        return;
    }
    let word = |i: usize| u64::from_le_bytes(descriptor[i..i + 8].try_into().unwrap_or_default());
    let (start, length, abort) = (word(8), word(16), word(24));
    if (start..start.saturating_add(length)).contains(&stopped.registers.rip) {
        stopped.registers.rip = abort;
    }
}

/// Puts a stopped thread, which is to make a wait again, back to sleep with a deadline of this
/// kernel: `shorter` are its `registers`, but for less time.
///
/// It makes the call with what is left, is interrupted at once, and so gets a restart block of this
/// kernel with the right deadline; then its registers are made those of the original call, as if it
/// had just been interrupted in it. The kernel restarts it from the block.
///
/// `await_entry` returns when the call may be interrupted.
pub fn renew_sleep(
    tid: i32,
    shorter: &Registers,
    registers: &Registers,
    await_entry: impl FnOnce(),
) -> Result<()> {
    let _limit = Patience::of(STEP_TIMEOUT);
    tracee::set_registers(tid, shorter)?;
    tracee::resume_to_syscall(tid, 0)?;
    await_syscall_stop(tid)?;
    tracee::resume_to_syscall(tid, 0)?;
    await_entry();
    tracee::interrupt(tid)?;
    await_syscall_stop(tid)?;
    let after = tracee::registers(tid)?.result();
    // Every stop cancels the interrupt that was due (ptrace_stop in the kernel): without another
    // the thread would be restarted here and now, and run away.
    tracee::resume_interrupted(tid, 0)?;
    if !matches!(tracee::wait(tid)?, Stop::Interrupted | Stop::Group(_)) {
        ::tracing::debug!("thread {tid} did not stop after its sleep was renewed");
    }
    let mut registers = *registers;
    match after {
        ERESTART_RESTARTBLOCK => registers.interrupt(after),
        // It was not made.
        ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => {}
        _ => registers.complete(after),
    }
    tracee::set_registers(tid, &registers)?;
    Ok(())
}

fn await_syscall_stop(tid: i32) -> Result<()> {
    loop {
        match tracee::wait(tid)? {
            Stop::Syscall => return Ok(()),
            Stop::Ended(status) => return Err(MigrateError::Ended(status)),
            Stop::Signal(libc::SIGSTOP) => tracee::resume_to_syscall(tid, libc::SIGSTOP)?,
            _ => tracee::resume_to_syscall(tid, 0)?,
        }
    }
}

const PR_GET_TID_ADDRESS: u64 = 40;
/// Size of `stack_t`, bytes.
pub const ALTERNATE_STACK_BYTES: usize = 24;

/// What the kernel keeps for a thread besides its registers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelSide {
    pub alternate_stack: Vec<u8>,
    pub tid_address: u64,
}

/// The calls by which a thread tells its kernel side into `scratch` (32 bytes): for a batch.
pub fn tell_calls(scratch: u64) -> [BatchCall; 2] {
    [
        BatchCall::new(libc::SYS_sigaltstack, [0, scratch, 0, 0, 0, 0]),
        BatchCall::new(libc::SYS_prctl, [PR_GET_TID_ADDRESS, scratch + 24, 0, 0, 0, 0]),
    ]
}

/// Decodes what [`tell_calls`] wrote.
pub fn told(scratch: &[u8]) -> KernelSide {
    let (stack, address) = scratch.split_at(ALTERNATE_STACK_BYTES);
    KernelSide {
        alternate_stack: stack.to_vec(),
        tid_address: u64::from_le_bytes(address.try_into().unwrap_or_default()),
    }
}

/// The calls by which a thread takes over its kernel side; `scratch` (64 bytes) holds what
/// [`adopt_scratch`] gives.
pub fn adopt_calls(thread: &image::Thread, scratch: u64) -> Vec<BatchCall> {
    let mut calls = vec![
        BatchCall::new(libc::SYS_set_tid_address, [thread.tid_address, 0, 0, 0, 0, 0]),
        BatchCall::new(libc::SYS_sigaltstack, [scratch, 0, 0, 0, 0, 0]),
    ];
    let (head, length) = thread.robust_list;
    if head != 0 {
        calls.push(BatchCall::new(libc::SYS_set_robust_list, [head, length, 0, 0, 0, 0]));
    }
    if let Some((address, size, signature)) = thread.rseq {
        calls.push(rseq_call(address, size, 0, signature));
    }
    calls
}

/// What the scratch memory of [`adopt_calls`] has to hold: the alternate stack, made settable.
pub fn adopt_scratch(thread: &image::Thread) -> Vec<u8> {
    const SS_ONSTACK: u8 = 1;
    let mut stack = thread.alternate_stack.clone();
    // "In use" is an answer of the kernel's, not something that can be asked for.
    stack[8] &= !SS_ONSTACK;
    stack
}

const RSEQ_FLAG_UNREGISTER: u64 = 1;

pub fn rseq_call(address: u64, size: u32, flags: u64, signature: u32) -> BatchCall {
    let arguments = [address, u64::from(size), flags, u64::from(signature), 0, 0];
    BatchCall::new(libc::SYS_rseq, arguments)
}

/// The call by which a thread gives up its rseq area.
pub fn rseq_unregister(rseq: &RseqRegistration) -> BatchCall {
    rseq_call(rseq.address, rseq.size, RSEQ_FLAG_UNREGISTER, rseq.signature)
}

/// A registration as it travels.
pub fn rseq_image(rseq: &RseqRegistration) -> (u64, u32, u32) {
    (rseq.address, rseq.size, rseq.signature)
}

#[cfg(test)]
mod test {
    use super::*;

    fn stopped_in(call: i64, result: i64) -> Registers {
        Registers { rip: 0x1002, orig_rax: call as u64, rax: result as u64, ..Default::default() }
    }

    #[test]
    fn what_is_ignored_by_wish_or_by_default_is_ignored_and_what_has_a_handler_is_not() {
        let status = "SigPnd:\t0000000000000000\nSigIgn:\t0000000000000200\n\
                      SigCgt:\t0000000000010000\n";
        let ignores = |number| ignored_in(status) & signal::bit(number) != 0;
        assert!([libc::SIGUSR1, libc::SIGURG, libc::SIGWINCH].into_iter().all(ignores));
        assert!(![libc::SIGCHLD, libc::SIGUSR2, libc::SIGTERM].into_iter().any(ignores));
    }

    #[test]
    fn interrupted_read_is_made_again() {
        let mut registers = stopped_in(libc::SYS_read, ERESTARTSYS);
        assert_eq!(settle(&mut registers, None, false), Interruption::None);
        assert_eq!((registers.rip, registers.rax), (0x1000, libc::SYS_read as u64));
    }

    #[test]
    fn sleeper_keeps_its_deadline_even_when_it_was_stopped_before() {
        let mut fresh = stopped_in(libc::SYS_nanosleep, ERESTART_RESTARTBLOCK);
        assert_eq!(settle(&mut fresh, None, false), Interruption::Keeps(NANOSLEEP));
        let mut again = stopped_in(libc::SYS_restart_syscall, ERESTART_RESTARTBLOCK);
        assert_eq!(settle(&mut again, Some(POLL), false), Interruption::Keeps(POLL));
    }

    #[test]
    fn restarted_call_that_nobody_knows_is_not_guessed() {
        let mut registers = stopped_in(libc::SYS_restart_syscall, ERESTART_RESTARTBLOCK);
        assert_eq!(settle(&mut registers, None, false), Interruption::Unknown);
    }

    #[test]
    fn restarted_futex_wait_is_made_again_under_its_own_number() {
        let mut registers = stopped_in(libc::SYS_restart_syscall, ERESTART_RESTARTBLOCK);
        assert_eq!(settle(&mut registers, Some(FUTEX), false), Interruption::None);
        assert_eq!(registers.rax, libc::SYS_futex as u64);
    }

    #[test]
    fn spurious_eintr_of_epoll_is_undone_and_a_finished_call_is_left_alone() {
        let mut epoll = stopped_in(libc::SYS_epoll_wait, EINTR);
        settle(&mut epoll, None, false);
        assert_eq!(epoll.rip, 0x1000);
        let mut asked_for = stopped_in(libc::SYS_epoll_wait, EINTR);
        settle(&mut asked_for, None, true);
        assert_eq!(asked_for.rip, 0x1002);
        let mut done = stopped_in(libc::SYS_read, 7);
        settle(&mut done, None, false);
        assert_eq!((done.rip, done.rax), (0x1002, 7));
    }
}
