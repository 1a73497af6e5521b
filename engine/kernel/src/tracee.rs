//! A thread under ptrace.
//!
//! ptrace belongs to one operating system thread: all functions here must be called from the thread
//! that seized. Death of the tracee is an outcome ([`KernelError::is_gone`]), never a surprise.

pub use crate::waiting::{poll, poll_any, wait, wait_any, wait_other, wait_other_until};

use crate::regs::Registers;
use crate::signal;
use crate::waiting::wait_raw;
use crate::{KernelError, Result};
use nix::sys::wait::WaitPidFlag;
use std::os::raw::c_int;

/// Why a tracee stopped, or that it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// PTRACE_INTERRUPT, or a new thread's first stop.
    Interrupted,
    /// The group stop of this stopping signal (SIGSTOP, SIGTSTP, ...).
    Group(i32),
    /// About to be delivered this signal.
    Signal(i32),
    /// At the entry or exit of a system call (after [`resume_to_syscall`]).
    Syscall,
    /// A ptrace event (PTRACE_EVENT_FORK, ...).
    Event(i32),
    /// Ended: the status word of wait(2).
    Ended(i32),
}

/// Options of [`seize`] and [`set_options`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SeizeOptions {
    /// New threads and children are seized as well.
    pub follow: bool,
    /// The tracee is killed when its tracer dies.
    pub exit_kill: bool,
    /// Calls that its filter leaves to its tracer stop it ([`CALL_EVENT`]).
    pub calls: bool,
    /// A program that it begins stops it ([`EXEC_EVENT`]).
    pub programs: bool,
}

/// The [`Stop::Event`] in front of a program's first instruction.
pub const EXEC_EVENT: i32 = libc::PTRACE_EVENT_EXEC;

/// The [`Stop::Event`] in front of a call that the filter leaves to the tracer.
pub const CALL_EVENT: i32 = libc::PTRACE_EVENT_SECCOMP;

/// Attaches without stopping. `tid` is one thread.
pub fn seize(tid: i32, options: SeizeOptions) -> Result<()> {
    request("seize", libc::PTRACE_SEIZE, tid, 0, options.bits()).map(drop)
}

/// Replaces the options of a stopped thread.
pub fn set_options(tid: i32, options: SeizeOptions) -> Result<()> {
    request("set options", libc::PTRACE_SETOPTIONS, tid, 0, options.bits()).map(drop)
}

impl SeizeOptions {
    fn bits(self) -> u64 {
        let mut bits = libc::PTRACE_O_TRACESYSGOOD;
        if self.follow {
            bits |=
                libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK;
        }
        if self.calls {
            bits |= libc::PTRACE_O_TRACESECCOMP;
        }
        if self.programs {
            bits |= libc::PTRACE_O_TRACEEXEC;
        }
        if self.exit_kill {
            bits |= libc::PTRACE_O_EXITKILL;
        }
        bits as u64
    }
}

/// Makes the thread stop soon; it then reports [`Stop::Interrupted`].
pub fn interrupt(tid: i32) -> Result<()> {
    request("interrupt", libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// Lets the thread go on, delivering `signal` (0 for none).
pub fn resume(tid: i32, signal: i32) -> Result<()> {
    request("resume", libc::PTRACE_CONT, tid, 0, signal as u64).map(drop)
}

/// As [`resume`], but the thread stops again at once for [`interrupt`]. Every other stop cancels an
/// interrupt that was due (ptrace_stop in the kernel), so it has to be asked for anew.
pub fn resume_interrupted(tid: i32, signal: i32) -> Result<()> {
    interrupt(tid)?;
    resume(tid, signal)
}

/// As [`resume`], to the next entry or exit of a system call.
pub fn resume_to_syscall(tid: i32, signal: i32) -> Result<()> {
    request("resume to system call", libc::PTRACE_SYSCALL, tid, 0, signal as u64).map(drop)
}

/// As [`resume`], for one instruction; delivering a handled signal stops at the handler's first.
pub fn step(tid: i32, signal: i32) -> Result<()> {
    request("step", libc::PTRACE_SINGLESTEP, tid, 0, signal as u64).map(drop)
}

/// Keeps a group-stopped thread stopped, but lets it report SIGCONT.
pub fn listen(tid: i32) -> Result<()> {
    request("listen", libc::PTRACE_LISTEN, tid, 0, 0).map(drop)
}

/// Lets go of a stopped thread, delivering `signal` (0 for none).
pub fn detach(tid: i32, signal: i32) -> Result<()> {
    request("detach", libc::PTRACE_DETACH, tid, 0, signal as u64).map(drop)
}

/// The message of the last ptrace event: the new thread or child.
pub fn event_message(tid: i32) -> Result<u64> {
    let mut message: u64 = 0;
    let address = (&raw mut message) as u64;
    request("event message", libc::PTRACE_GETEVENTMSG, tid, 0, address)?;
    Ok(message)
}

/// Writes eight bytes of a stopped thread's memory, even where it may not.
pub fn write_word(tid: i32, address: u64, bytes: [u8; 8]) -> Result<()> {
    let word = u64::from_ne_bytes(bytes);
    request("write memory", libc::PTRACE_POKEDATA, tid, address, word).map(drop)
}

pub fn registers(tid: i32) -> Result<Registers> {
    let mut regs = Registers::default();
    let mut vector = iovec(&mut regs);
    let address = (&raw mut vector) as u64;
    request("read registers", libc::PTRACE_GETREGSET, tid, NT_PRSTATUS, address)?;
    Ok(regs)
}

pub fn set_registers(tid: i32, regs: &Registers) -> Result<()> {
    let mut regs = *regs;
    let mut vector = iovec(&mut regs);
    let address = (&raw mut vector) as u64;
    request("write registers", libc::PTRACE_SETREGSET, tid, NT_PRSTATUS, address).map(drop)
}

/// The whole extended state (x87, SSE, AVX, ...) in the uncompacted XSAVE layout. Of a processor
/// without XSAVE, which has x87 and SSE only, it is shown in the same layout.
pub fn extended_state(tid: i32) -> Result<Vec<u8>> {
    // Far larger than what is kept of each of many threads.
    let mut room = [0u8; XSTATE_BYTES];
    let what = "read extended state";
    match register_set(what, libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, &mut room) {
        Ok(bytes) => Ok(room[..bytes].to_vec()),
        Err(error) if error.source.raw_os_error() == Some(libc::ENODEV) => {
            let mut state = vec![0; LEGACY_BYTES + XSTATE_HEADER_BYTES];
            let legacy = &mut state[..LEGACY_BYTES];
            register_set(what, libc::PTRACE_GETREGSET, tid, NT_PRFPREG, legacy)?;
            state[LEGACY_BYTES] = X87_AND_SSE;
            Ok(state)
        }
        Err(error) => Err(error),
    }
}

/// As [`extended_state`] shows it on this machine.
pub fn set_extended_state(tid: i32, state: &[u8]) -> Result<()> {
    let mut state = state.to_vec();
    let what = "write extended state";
    match register_set(what, libc::PTRACE_SETREGSET, tid, NT_X86_XSTATE, &mut state) {
        Err(error)
            if error.source.raw_os_error() == Some(libc::ENODEV)
                && state.len() == LEGACY_BYTES + XSTATE_HEADER_BYTES =>
        {
            let legacy = &mut state[..LEGACY_BYTES];
            register_set(what, libc::PTRACE_SETREGSET, tid, NT_PRFPREG, legacy).map(drop)
        }
        other => other.map(drop),
    }
}

/// Reads or writes a register set; how many bytes it has.
fn register_set(what: &str, way: u32, tid: i32, set: u64, state: &mut [u8]) -> Result<usize> {
    let mut vector = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
    let address = (&raw mut vector) as u64;
    request(what, way, tid, set, address)?;
    Ok(vector.iov_len)
}

/// The blocked signals, bit n-1 for signal n.
pub fn signal_mask(tid: i32) -> Result<u64> {
    let mut mask: u64 = 0;
    let address = (&raw mut mask) as u64;
    request("read signal mask", PTRACE_GETSIGMASK, tid, 8, address)?;
    Ok(mask)
}

pub fn set_signal_mask(tid: i32, mask: u64) -> Result<()> {
    let address = (&raw const mask) as u64;
    request("write signal mask", PTRACE_SETSIGMASK, tid, 8, address).map(drop)
}

/// Size of the kernel's siginfo, bytes.
pub const SIGINFO_BYTES: usize = 128;

/// The siginfo of the signal that a thread in [`Stop::Signal`] is about to get.
pub fn signal_info(tid: i32) -> Result<[u8; SIGINFO_BYTES]> {
    let mut info = [0u8; SIGINFO_BYTES];
    let address = info.as_mut_ptr() as u64;
    request("read siginfo", libc::PTRACE_GETSIGINFO, tid, 0, address)?;
    Ok(info)
}

/// Whether a stopped thread has yet to be given the signal of a fault of its own. One that is
/// interrupted between a fault and its signal stops for the interrupt first (get_signal in the
/// kernel; 1 of 300 to 4000 interrupts of a thread that only meets breakpoints). Most faults happen
/// again if the thread is taken elsewhere without the signal; a breakpoint does not. Resumed
/// without an interrupt, it stops for the signal next. A thread that is gone has none.
pub fn has_fault_pending(tid: i32) -> Result<bool> {
    let mut infos = [[0u8; SIGINFO_BYTES]; PEEKED];
    let mut which = PeekSiginfo { from: 0, flags: 0, most: PEEKED as i32 };
    loop {
        let (address, data) = ((&raw mut which) as u64, infos.as_mut_ptr() as u64);
        let read = request("peek at signals", libc::PTRACE_PEEKSIGINFO as _, tid, address, data);
        let read = match read {
            Err(error) if error.is_gone() => return Ok(false),
            read => read?,
        };
        let read = &infos[..read as usize];
        let mut signals = read.iter().map(|info| (signal::number(info), info));
        let fault = signals.find(|(number, info)| signal::is_fault(*number, *info));
        if let Some((number, _)) = fault {
            return Ok(signal_mask(tid)? & signal::bit(number) == 0);
        }
        if read.len() < PEEKED {
            return Ok(false);
        }
        which.from += PEEKED as u64;
    }
}

/// So many signals are looked at in one call; the queue of a thread is empty mostly.
const PEEKED: usize = 8;

/// What of a thread's queue of signals is read: `struct ptrace_peeksiginfo_args`.
#[repr(C)]
struct PeekSiginfo {
    from: u64,
    flags: u32,
    most: i32,
}

pub fn set_signal_info(tid: i32, info: &[u8; SIGINFO_BYTES]) -> Result<()> {
    let address = info.as_ptr() as u64;
    request("write siginfo", libc::PTRACE_SETSIGINFO, tid, 0, address).map(drop)
}

/// Where a thread registered its restartable sequences (rseq(2)): `PTRACE_GET_RSEQ_CONFIGURATION`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RseqRegistration {
    pub address: u64,
    pub size: u32,
    pub signature: u32,
    pub flags: u32,
    pub pad: u32,
}

/// None if the thread has not registered any (or the kernel has no rseq).
pub fn rseq_registration(tid: i32) -> Result<Option<RseqRegistration>> {
    let mut rseq = RseqRegistration::default();
    let address = (&raw mut rseq) as u64;
    let size = size_of::<RseqRegistration>() as u64;
    request("read rseq", PTRACE_GET_RSEQ_CONFIGURATION, tid, size, address)?;
    Ok((rseq.address != 0).then_some(rseq))
}

const NT_PRSTATUS: u64 = 1;
const NT_PRFPREG: u64 = 2;
const NT_X86_XSTATE: u64 = 0x202;
/// What FXSAVE writes.
const LEGACY_BYTES: usize = 512;
const XSTATE_HEADER_BYTES: usize = 64;
/// In the header: in use.
const X87_AND_SSE: u8 = 0b11;
const XSTATE_BYTES: usize = 16 << 10;
// Not in every libc's headers: linux/ptrace.h.
const PTRACE_GETSIGMASK: u32 = 0x420a;
const PTRACE_SETSIGMASK: u32 = 0x420b;
const PTRACE_GET_RSEQ_CONFIGURATION: u32 = 0x420f;

fn iovec(regs: &mut Registers) -> libc::iovec {
    libc::iovec { iov_base: (&raw mut *regs).cast(), iov_len: size_of::<Registers>() }
}

/// One ptrace request. Address and data are machine words; those that are pointers point to locals
/// of the calling function, of the size that the request reads or writes.
pub(crate) fn request(what: &str, request: u32, tid: i32, address: u64, data: u64) -> Result<u64> {
    // SAFETY: each caller in this crate passes, for the request it names, either plain numbers or
    // the address of a live local of the size the kernel reads or writes (ptrace(2)); the tracee's
    // memory is another address space and cannot alias ours.
    let result = unsafe { libc::ptrace(request, tid, address, data) };
    if result == -1 {
        return Err(KernelError::last(format!("{what} of thread {tid}")));
    }
    Ok(result as u64)
}

/// Sends `signal` to one thread of a process.
pub fn send_signal(pid: i32, tid: i32, signal: i32) -> Result<()> {
    // SAFETY: tgkill takes three integers.
    unsafe {
        crate::sys::call(
            "send signal",
            libc::SYS_tgkill,
            [pid as u64, tid as u64, signal as u64, 0, 0, 0],
        )
    }
    .map(drop)
}

/// Collects a child that has ended, without waiting for one that has not.
pub fn reap(pid: i32) {
    let _ = nix::sys::wait::waitpid(
        nix::unistd::Pid::from_raw(pid),
        Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL),
    );
}

/// Whether a thread can tell where its id is cleared when it ends.
pub(crate) fn has_tid_address() -> bool {
    let mut address = 0u64;
    // SAFETY: the pointer is to a live local of the size that the call writes.
    unsafe { libc::prctl(libc::PR_GET_TID_ADDRESS, &raw mut address) == 0 }
}

/// Whether restartable sequences of tracees can be read. Tried on a child, because the kernel looks
/// for the tracee before it looks at the request.
pub(crate) fn has_rseq_configuration() -> bool {
    let Some(child) = stopped_child() else { return false };
    let has = rseq_registration(child).is_ok();
    let pid = nix::unistd::Pid::from_raw(child);
    // A child of ours that is not waited for keeps its pid: this kills nobody else.
    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    let _ = nix::sys::wait::waitpid(pid, Some(WaitPidFlag::__WALL));
    has
}

/// A copy of this process that does nothing, traced by the calling thread and stopped.
fn stopped_child() -> Option<i32> {
    // SAFETY: the copy makes system calls only, and never returns.
    let pid = match unsafe { crate::sys::fork() }.ok()? {
        0 => loop {
            // SAFETY: waits for a signal, and touches nothing.
            unsafe { libc::pause() };
        },
        pid => pid,
    };
    let is_stopped = seize(pid, SeizeOptions { exit_kill: true, ..SeizeOptions::default() })
        .is_ok()
        && interrupt(pid).is_ok()
        && matches!(wait_raw(pid, libc::__WALL, pid), Ok(Some((_, Stop::Interrupted))));
    if !is_stopped {
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(pid),
            nix::sys::signal::Signal::SIGKILL,
        );
        reap(pid);
    }
    is_stopped.then_some(pid)
}

/// The nice value of a thread (getpriority(2)).
pub fn nice(tid: i32) -> Result<i32> {
    let arguments = [libc::PRIO_PROCESS as u64, tid as u64, 0, 0, 0, 0];
    // SAFETY: getpriority takes two integers.
    let raw = unsafe { crate::sys::call("read nice value", libc::SYS_getpriority, arguments) }?;
    // The bare call counts from 1 to 40, so that no value looks like an error.
    Ok(20 - raw as i32)
}

/// Sets the nice value of a thread.
pub fn set_nice(tid: i32, nice: i32) -> Result<()> {
    let arguments = [libc::PRIO_PROCESS as u64, tid as u64, nice as u64, 0, 0, 0];
    // SAFETY: setpriority takes three integers.
    unsafe { crate::sys::call("set nice value", libc::SYS_setpriority, arguments) }.map(drop)
}

/// The scheduling policy of a thread (sched_getscheduler(2)).
pub fn policy(tid: i32) -> Result<i32> {
    let arguments = [tid as u64, 0, 0, 0, 0, 0];
    // SAFETY: sched_getscheduler takes an integer.
    let raw = unsafe {
        crate::sys::call("read scheduling policy", libc::SYS_sched_getscheduler, arguments)
    }?;
    Ok(raw as i32 & !libc::SCHED_RESET_ON_FORK)
}

/// Gives a thread a scheduling policy that is not a real-time one.
pub fn set_policy(tid: i32, policy: i32) -> Result<()> {
    // `struct sched_param`: the priority, which only real-time policies have.
    let parameter: c_int = 0;
    let place = (&raw const parameter) as u64;
    let arguments = [tid as u64, policy as u64, place, 0, 0, 0];
    // SAFETY: the pointer is to a live local of the size that the call reads.
    unsafe { crate::sys::call("set scheduling policy", libc::SYS_sched_setscheduler, arguments) }
        .map(drop)
}

/// True for the policies that come before all processes without one.
pub fn is_real_time(policy: i32) -> bool {
    matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE)
}

/// Head and length of a thread's robust futex list (get_robust_list(2)).
pub fn robust_list(tid: i32) -> Result<(u64, u64)> {
    let (mut head, mut length) = (0u64, 0u64);
    // SAFETY: both pointers are to live locals of the size that the call writes.
    unsafe {
        crate::sys::call(
            "read robust list",
            libc::SYS_get_robust_list,
            [tid as u64, (&raw mut head) as u64, (&raw mut length) as u64, 0, 0, 0],
        )
    }?;
    Ok((head, length))
}

#[cfg(test)]
mod test {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::sync::mpsc;
    use std::time::Duration;

    /// Threads beside those of the harness.
    const SLEEPERS: usize = 3;

    #[test]
    #[ignore = "a program that another test runs"]
    fn sleeping_threads() {
        for _ in 0..SLEEPERS {
            std::thread::spawn(|| std::thread::sleep(Duration::from_secs(60)));
        }
        println!("\nready");
        std::thread::sleep(Duration::from_secs(60));
    }

    #[test]
    #[ignore = "a program that another test runs"]
    fn a_fault_that_is_blocked() {
        let mut info = [0u8; SIGINFO_BYTES];
        info[..4].copy_from_slice(&libc::SIGTRAP.to_le_bytes());
        info[8..12].copy_from_slice(&libc::TRAP_BRKPT.to_le_bytes());
        let tid = nix::unistd::gettid().as_raw();
        let blocked = signal::bit(libc::SIGTRAP) | signal::bit(libc::SIGRTMIN());
        // SAFETY: both calls read locals of the size that the kernel expects.
        unsafe {
            let set = (&raw const blocked) as u64;
            let block = [libc::SIG_BLOCK as u64, set, 0, 8, 0, 0];
            crate::sys::call("block", libc::SYS_rt_sigprocmask, block).unwrap();
            let (pid, tid, at) = (std::process::id() as u64, tid as u64, info.as_ptr() as u64);
            for _ in 0..PEEKED + 1 {
                let other = [pid, tid, libc::SIGRTMIN() as u64, 0, 0, 0];
                crate::sys::call("send", libc::SYS_tgkill, other).unwrap();
            }
            let fault = [pid, tid, libc::SIGTRAP as u64, at, 0, 0];
            crate::sys::call("send", libc::SYS_rt_tgsigqueueinfo, fault).unwrap();
        }
        println!("\nready {tid}");
        std::thread::sleep(Duration::from_secs(60));
    }

    #[test]
    fn a_fault_is_pending_until_its_signal_is_given() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "tracee::test::a_fault_that_is_blocked"]);
        let mut child = command.arg("--nocapture").stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.map(|line| line.unwrap()).find(|line| line.starts_with("ready "));
        let tid = ready.unwrap()[6..].parse().unwrap();
        seize(tid, SeizeOptions { exit_kill: true, ..SeizeOptions::default() }).unwrap();
        interrupt(tid).unwrap();
        assert_eq!(wait(tid).unwrap(), Stop::Interrupted);
        assert!(!has_fault_pending(tid).unwrap(), "blocked: it would not stop for it");
        set_signal_mask(tid, !signal::bit(libc::SIGTRAP)).unwrap();
        assert!(has_fault_pending(tid).unwrap(), "behind more signals than are read at once");
        resume(tid, 0).unwrap();
        assert_eq!(wait(tid).unwrap(), Stop::Signal(libc::SIGTRAP));
        assert!(!has_fault_pending(tid).unwrap(), "it is being given");
        child.kill().unwrap();
        while !matches!(wait(tid).unwrap(), Stop::Ended(_)) {}
        let _ = child.wait();
    }

    #[test]
    fn the_end_of_a_process_is_seen_by_whoever_waits_for_its_first_thread_alone() {
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--ignored", "--exact", "tracee::test::sleeping_threads", "--nocapture"]);
            let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(lines.any(|line| line.unwrap() == "ready"));
            let pid = child.id() as i32;
            let options = SeizeOptions { follow: true, exit_kill: true, ..SeizeOptions::default() };
            let tids = crate::proc::process::threads(pid).unwrap();
            for tid in &tids {
                seize(*tid, options).unwrap();
            }
            interrupt(pid).unwrap();
            assert_eq!(wait(pid).unwrap(), Stop::Interrupted);
            child.kill().unwrap();
            tell.send((tids.len(), wait(pid).unwrap())).unwrap();
            for _ in 1..tids.len() {
                let (tid, stop) = poll_any().unwrap().expect("the end of another thread");
                assert!(tids.contains(&tid) && matches!(stop, Stop::Ended(_)), "{tid} {stop:?}");
            }
            // Its tracer has collected it, which the library need not know.
            assert!(child.wait().is_err());
            tell.send((0, Stop::Ended(0))).unwrap();
        });
        let (threads, stop) = told.recv_timeout(Duration::from_secs(30)).expect("an end");
        assert!(threads > SLEEPERS, "{threads}");
        assert_eq!(stop, Stop::Ended(libc::SIGKILL));
        told.recv_timeout(Duration::from_secs(30)).expect("nothing that happened was lost");
    }
}
