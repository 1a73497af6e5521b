//! One system call in a stopped thread, leaving no trace but its effect.
//!
//! By system-call stops rather than a breakpoint after the instruction, so that neither the guest's
//! SIGTRAP nor its code is touched. The `syscall` instruction is borrowed from the vDSO (or from
//! the agent, once it is there).

use crate::patience::Patience;
use crate::regs::Registers;
use crate::tracee::{self, Stop};
use crate::{KernelError, Result, signal};
use std::time::Duration;

/// A call that takes longer means that the thread is kept in the kernel, or is not ours any more.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A stopped thread whose registers and signal mask come back when this is dropped.
pub struct RemoteCalls {
    tid: i32,
    saved: Registers,
    mask: u64,
    /// Address of a `syscall` instruction in the tracee.
    instruction: u64,
    /// Job control stopped the process meanwhile.
    is_group_stopped: bool,
    /// The thread or process that it has just made, as the calling process sees it.
    made: Option<i32>,
}

impl RemoteCalls {
    /// `tid` is stopped.
    pub fn begin(tid: i32, instruction: u64) -> Result<RemoteCalls> {
        let saved = tracee::registers(tid)?;
        let mask = tracee::signal_mask(tid)?;
        tracee::set_signal_mask(tid, u64::MAX)?;
        Ok(RemoteCalls { tid, saved, mask, instruction, is_group_stopped: false, made: None })
    }

    /// Executes the call; the result is the kernel's (negative for an error number).
    pub fn raw(&mut self, number: i64, arguments: [u64; 6]) -> Result<i64> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let regs = Registers {
            rip: self.instruction,
            rax: number as u64,
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            eflags: self.saved.eflags & !0x100,
            ..self.saved
        };
        let _limit = Patience::of(CALL_TIMEOUT);
        tracee::set_registers(self.tid, &regs)?;
        self.run_to_syscall_stop()?;
        self.run_to_syscall_stop()?;
        Ok(tracee::registers(self.tid)?.result())
    }

    /// As [`RemoteCalls::raw`], but an error number is an error.
    pub fn call(&mut self, what: &str, number: i64, arguments: [u64; 6]) -> Result<u64> {
        let result = self.raw(number, arguments)?;
        if (-4095..0).contains(&result) {
            return Err(KernelError::errno(
                format!("{what} in thread {}", self.tid),
                -result as i32,
            ));
        }
        Ok(result as u64)
    }

    /// Has it make a thread or a process, by the arguments of clone(2) and traced as it is itself:
    /// the id that the process knows it by, and that by which the caller does. What was made is
    /// stopped before its first instruction, with every signal blocked.
    ///
    /// # Errors
    /// What clone says, and whatever ends the thread that makes it.
    pub fn make_task(&mut self, arguments: [u64; 6]) -> Result<(i32, i32)> {
        self.made = None;
        let inside = self.call("make a task", libc::SYS_clone, arguments)? as i32;
        let untold = || KernelError::errno("make a task: nothing is told of it", libc::ESRCH);
        let local = self.made.take().ok_or_else(untold)?;
        let _limit = Patience::of(CALL_TIMEOUT);
        match tracee::wait_other(local)? {
            Stop::Interrupted | Stop::Group(_) => Ok((inside, local)),
            other => {
                let what = format!("catch a task at birth: it was {other:?}");
                Err(KernelError::errno(what, libc::ESRCH))
            }
        }
    }

    fn run_to_syscall_stop(&mut self) -> Result<()> {
        let mut passed_on = 0;
        loop {
            tracee::resume_to_syscall(self.tid, passed_on)?;
            passed_on = 0;
            match tracee::wait(self.tid)? {
                Stop::Syscall => return Ok(()),
                Stop::Ended(_) => {
                    let what = format!("thread {} ended during a remote call", self.tid);
                    return Err(KernelError::errno(what, libc::ESRCH));
                }
                // The one signal that cannot be blocked. The kernel does with it what is to be
                // done, and the thread runs on for us.
                Stop::Signal(libc::SIGSTOP) => passed_on = libc::SIGSTOP,
                Stop::Group(_) => self.is_group_stopped = true,
                // All else is blocked, so it is the instruction that failed: there is none any
                // more, and there will be none the next time.
                Stop::Signal(number)
                    if signal::is_fault(number, &tracee::signal_info(self.tid)?) =>
                {
                    let what = format!("make thread {} execute a call", self.tid);
                    return Err(KernelError::errno(what, libc::ENOEXEC));
                }
                Stop::Event(libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK) => {
                    self.made = Some(tracee::event_message(self.tid)? as i32);
                }
                // An interrupt that was still due, or SIGCONT.
                Stop::Interrupted | Stop::Event(_) | Stop::Signal(_) => {}
            }
        }
    }
}

impl Drop for RemoteCalls {
    fn drop(&mut self) {
        // Failure means that the thread is gone, and with it what there is to put back.
        let _ = tracee::set_registers(self.tid, &self.saved);
        let _ = tracee::set_signal_mask(self.tid, self.mask);
        if self.is_group_stopped {
            // Whoever resumes it is told by another stop, if it should be stopped still.
            let _ = tracee::interrupt(self.tid);
        }
    }
}
