//! Moving a stopped thread by what it executes itself, out of code that must not be left in the
//! middle.

use crate::threads::STEP_TIMEOUT;
use crate::{MigrateError, Result};
use kernel::patience::Patience;
use kernel::regs::Registers;
use kernel::signal::bit;
use kernel::thread_state::{self, BREAKPOINTS};
use kernel::tracee::{self, Stop};
use std::ops::Range;

/// More than almost all functions of a vDSO need. On a machine so slow that its clock ticks between
/// any two readings of a thread that is stepped, none are enough: the vDSO reads again for ever.
const STEPS_MAX: usize = 256;

/// How far a thread came that was stepped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Stepped {
    /// As far as it was to.
    There,
    /// It stands at the stop of a signal that it is about to get: most likely of a fault, which
    /// happens again if the thread goes on without the signal.
    Signal(i32),
    /// [`STEPS_MAX`] steps were not enough.
    Underway,
}

/// Steps a thread out of the vDSO, whose data belongs to this machine: a clock reading begun here
/// must not be finished elsewhere.
pub fn leave_vdso(tid: i32, vdso: &Range<u64>) -> Result<Stepped> {
    let registers = tracee::registers(tid)?;
    match is_in_vdso(&registers, vdso) {
        true => step_while(tid, |registers| vdso.contains(&registers.rip)),
        false => Ok(Stepped::There),
    }
}

/// Elsewhere is nothing where it stands.
pub fn is_in_vdso(registers: &Registers, vdso: &Range<u64>) -> bool {
    vdso.contains(&registers.rip) && registers.interrupted_call().is_none()
}

/// Why a process cannot be sent: a thread of it is where [`is_in_vdso`] says.
pub fn vdso_refusal() -> MigrateError {
    MigrateError::refused("vdso", "a thread of it does not leave the vDSO; try again")
}

/// Has a stopped thread execute one instruction after another for as long as `goes_on` says so. It
/// may change the registers of the thread where it has it stop.
pub fn step_while(tid: i32, mut goes_on: impl FnMut(&mut Registers) -> bool) -> Result<Stepped> {
    undisturbed(tid, || {
        let mut passed_on = 0;
        for _ in 0..STEPS_MAX {
            let before = tracee::registers(tid)?;
            let mut registers = before;
            if !goes_on(&mut registers) {
                if registers != before {
                    tracee::set_registers(tid, &registers)?;
                }
                return Ok(Stepped::There);
            }
            tracee::step(tid, passed_on)?;
            passed_on = match await_trap(tid)? {
                Some(libc::SIGSTOP) => libc::SIGSTOP,
                Some(signal) => return Ok(Stepped::Signal(signal)),
                None => 0,
            };
        }
        Ok(Stepped::Underway)
    })
}

/// Lets a stopped thread run to one of these `places`. It stays where it is if the machine has no
/// breakpoints to give.
pub fn run_to(tid: i32, places: &[u64; BREAKPOINTS]) -> Result<Stepped> {
    undisturbed(tid, || {
        match thread_state::set_breakpoints(tid, places) {
            Err(error) if !error.is_gone() => return Ok(Stepped::Underway),
            set => set?,
        }
        let came = run_to_breakpoint(tid, places);
        // Nobody but us expects them, so they go whatever happened.
        match thread_state::clear_breakpoints(tid) {
            Err(error) if came.is_ok() => Err(error.into()),
            _ => came,
        }
    })
}

fn run_to_breakpoint(tid: i32, places: &[u64]) -> Result<Stepped> {
    let mut passed_on = 0;
    loop {
        tracee::resume(tid, passed_on)?;
        passed_on = match await_trap(tid)? {
            Some(libc::SIGSTOP) => libc::SIGSTOP,
            Some(signal) => return Ok(Stepped::Signal(signal)),
            None if places.contains(&tracee::registers(tid)?.rip) => return Ok(Stepped::There),
            None => 0,
        };
    }
}

/// Waits for the next stop of a thread that runs to a trap of ours, and returns the signal if it is
/// something else.
fn await_trap(tid: i32) -> Result<Option<i32>> {
    match tracee::wait(tid)? {
        Stop::Ended(status) => Err(MigrateError::Ended(status)),
        // SIGSTOP cannot be blocked; the kernel has the process count as stopped, and this thread
        // goes on for us.
        Stop::Signal(signal) => Ok((signal != libc::SIGTRAP).then_some(signal)),
        _ => Ok(None),
    }
}

/// Does something with a thread that gets no signal meanwhile but those that it may cause itself.
fn undisturbed<T>(tid: i32, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let _limit = Patience::of(STEP_TIMEOUT);
    let mask = tracee::signal_mask(tid)?;
    // The kernel resets the disposition of a fault that is blocked (force_sig_info_to_task). One
    // that the guest blocks is its end, as it would be without us.
    let faults = bit(libc::SIGSEGV) | bit(libc::SIGBUS);
    tracee::set_signal_mask(tid, !(faults & !mask | bit(libc::SIGTRAP)))?;
    let outcome = work();
    match tracee::set_signal_mask(tid, mask) {
        Err(error) if outcome.is_ok() => Err(error.into()),
        _ => outcome,
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::{freeze, machine};
    use kernel::child_signal::ChildSignal;
    use nix::sys::signal::Signal;
    use nix::unistd::Pid;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    /// A test of this file that is a program for another, its thread and the number that it tells.
    struct Program {
        child: Child,
        tid: i32,
        number: u64,
    }

    impl Program {
        fn start(name: &str) -> Program {
            let mut command = Command::new(std::env::current_exe().unwrap());
            let name = format!("stepping::test::{name}");
            command.args(["--ignored", "--exact", &name, "--nocapture"]);
            let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let told =
                lines.map(|line| line.unwrap()).find(|line| line.starts_with("told ")).unwrap();
            let mut numbers = told.split(' ').skip(1).map(|number| number.parse().unwrap());
            let (tid, number) = (numbers.next().unwrap(), numbers.next().unwrap());
            Program { child, tid: tid as i32, number }
        }

        fn seize(&self) {
            tracee::seize(self.tid, freeze::HELD).unwrap();
            self.stop();
        }

        fn stop(&self) {
            tracee::interrupt(self.tid).unwrap();
            assert_eq!(tracee::wait(self.tid).unwrap(), Stop::Interrupted);
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            let _ = self.child.kill();
            // The first thread can be waited for when all others were.
            while tracee::wait(self.tid).is_ok_and(|stop| !matches!(stop, Stop::Ended(_))) {}
            let _ = self.child.wait();
        }
    }

    fn tell(number: u64) {
        println!("\ntold {} {number}", nix::unistd::gettid());
    }

    #[inline(never)]
    fn landmark(number: u64) -> u64 {
        std::hint::black_box(number).rotate_left(1)
    }

    #[test]
    #[ignore = "a program that another test runs"]
    fn passing_a_landmark() {
        tell(landmark as *const () as u64);
        let mut number = 1;
        loop {
            number = landmark(number);
        }
    }

    #[test]
    #[ignore = "a program that another test runs"]
    fn reading_a_clock() {
        tell(0);
        loop {
            std::hint::black_box(std::time::Instant::now());
        }
    }

    #[test]
    fn a_thread_runs_to_a_place_and_then_on() {
        let program = Program::start("passing_a_landmark");
        program.seize();
        let mask = tracee::signal_mask(program.tid).unwrap();
        for _ in 0..3 {
            let places = [0, 0, program.number, 0];
            assert_eq!(run_to(program.tid, &places).unwrap(), Stepped::There);
            assert_eq!(tracee::registers(program.tid).unwrap().rip, program.number);
        }
        assert_eq!(tracee::signal_mask(program.tid).unwrap(), mask);
        assert_eq!(thread_state::tie(program.tid), None, "no breakpoint is left");
        tracee::resume(program.tid, 0).unwrap();
        program.stop();
    }

    #[test]
    fn a_thread_is_out_of_the_vdso_when_it_is_settled() {
        let program = Program::start("reading_a_clock");
        let pid = program.child.id() as i32;
        let vdso = machine::vdso_of(pid).unwrap();
        program.seize();
        let is_inside = || is_in_vdso(&tracee::registers(program.tid).unwrap(), &vdso);
        let mut insides = 0;
        for _ in 0..1_000 {
            insides += usize::from(is_inside());
            freeze::settle(pid, &[program.tid], &vdso).unwrap();
            assert!(!is_inside());
            tracee::resume(program.tid, 0).unwrap();
            program.stop();
        }
        assert!(insides > 0, "it was never stopped there");
    }

    #[test]
    #[ignore = "a program that another test runs"]
    fn sleeping_in_threads() {
        for _ in 0..3 {
            std::thread::spawn(std::thread::park);
        }
        tell(0);
        std::thread::park();
    }

    #[test]
    fn a_signal_to_all_threads_is_due_to_one_of_them() {
        let program = Program::start("sleeping_in_threads");
        let pid = program.child.id() as i32;
        let vdso = machine::vdso_of(pid).unwrap();
        let tids = freeze::freeze(pid, &ChildSignal::new().unwrap()).unwrap();
        assert!(tids.len() > 3, "{tids:?}");
        // To a traced process it is not ignored before it is delivered.
        nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGCHLD).unwrap();
        let settled = freeze::settle(pid, &tids, &vdso);
        for tid in tids {
            // One that was waited for in vain runs.
            tracee::interrupt(tid).unwrap();
            let _ = tracee::detach(tid, 0).or_else(|_| {
                tracee::wait(tid)?;
                tracee::detach(tid, 0)
            });
        }
        settled.expect("all have got what is due to them");
    }

    #[test]
    fn a_thread_that_stays_in_what_it_is_to_leave_is_refused_and_goes_on() {
        let program = Program::start("passing_a_landmark");
        let pid = program.child.id() as i32;
        program.seize();
        let places = [program.number, 0, 0, 0];
        assert_eq!(run_to(program.tid, &places).unwrap(), Stepped::There, "out of its last call");
        let refused = freeze::settle(pid, &[program.tid], &(0..u64::MAX));
        assert_eq!(refused.expect_err("it is there still").reason().code, "vdso");
        assert_eq!(run_to(program.tid, &places).unwrap(), Stepped::There);
    }

    #[test]
    fn a_thread_that_does_not_get_there_in_so_many_steps_is_left_as_it_was() {
        let program = Program::start("passing_a_landmark");
        program.seize();
        let mask = tracee::signal_mask(program.tid).unwrap();
        assert_eq!(step_while(program.tid, |_| true).unwrap(), Stepped::Underway);
        assert_eq!(tracee::signal_mask(program.tid).unwrap(), mask);
        assert_eq!(step_while(program.tid, |_| false).unwrap(), Stepped::There);
    }
}
