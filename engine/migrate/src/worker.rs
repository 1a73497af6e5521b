//! A traced thread that executes batches in the agent, and what may stop it meanwhile.
//!
//! All its signals are blocked, but SIGSTOP cannot be, and SIGCONT has every traced thread stop,
//! blocked or not (ptrace(2), "Group-stop"). A thread that has stopped waits for its tracer: so
//! whoever waits for a batch looks after the thread as well.
//!
//! Job control is left to the kernel. A SIGSTOP is passed on, so that the process counts as stopped
//! and its parent is told; the thread is resumed nevertheless, as a tracer may, and stops when it
//! is let go. A SIGCONT that comes before that has ended the stop, as it would have without us.

use crate::{MigrateError, Result};
use kernel::KernelError;
use kernel::agent::{self, Agent, BatchCall};
use kernel::tracee::{self, Stop};
use std::time::{Duration, Instant};

/// A batch that takes longer means that the process is broken.
const BATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks at a thread that takes its time: a stop wakes nobody who waits for a batch.
pub const GLANCE_INTERVAL: Duration = Duration::from_millis(1);

/// A thread in the agent, traced by the calling thread.
#[derive(Clone, Copy)]
pub struct Worker<'a> {
    pub agent: &'a Agent,
    pub slot: usize,
    pub tid: i32,
}

impl Worker<'_> {
    /// Executes calls; the results, errors included.
    pub fn execute(&self, calls: &[BatchCall]) -> Result<Vec<i64>> {
        let mut results = Vec::with_capacity(calls.len());
        for batch in calls.chunks(agent::BATCH_MAX) {
            self.agent.submit(self.slot, batch);
            results.extend(self.collect(batch)?);
        }
        Ok(results)
    }

    /// The results of one batch that was submitted, errors included: threads that are handed theirs
    /// one after another, and are waited for then, work at the same time.
    pub fn collect(&self, batch: &[BatchCall]) -> Result<Vec<i64>> {
        self.await_done()?;
        let results = (0..batch.len()).map(|index| self.agent.result(self.slot, index)).collect();
        self.agent.clear(self.slot);
        Ok(results)
    }

    /// As [`Worker::execute`], but any error number is an error.
    pub fn execute_all(&self, what: &str, calls: &[BatchCall]) -> Result<()> {
        check(what, calls, &self.execute(calls)?)
    }

    /// Waits until what was submitted is done.
    pub fn await_done(&self) -> Result<()> {
        let deadline = Instant::now() + BATCH_TIMEOUT;
        while !self.agent.await_done(self.slot, Instant::now() + GLANCE_INTERVAL) {
            self.look_after()?;
            if Instant::now() > deadline {
                return Err(KernelError {
                    what: format!("wait for thread {} to execute what it was asked to", self.tid),
                    source: std::io::Error::from_raw_os_error(libc::ETIMEDOUT),
                }
                .into());
            }
        }
        Ok(())
    }

    /// Sets the thread going again if it has stopped.
    pub fn look_after(&self) -> Result<()> {
        while let Some(stop) = tracee::poll(self.tid)? {
            go_on(self.tid, stop)?;
        }
        Ok(())
    }
}

/// # Errors
/// The first of these calls that ended with an error number.
pub fn check(what: &str, calls: &[BatchCall], results: &[i64]) -> Result<()> {
    let failed = calls.iter().zip(results).find(|(_, result)| (-4095..0).contains(*result));
    failed.map_or(Ok(()), |(call, result)| {
        Err(KernelError {
            what: format!("{what} (call {} {:x?})", call.number, call.arguments),
            source: std::io::Error::from_raw_os_error(-*result as i32),
        }
        .into())
    })
}

/// A thread, and what it is to execute: no more than one batch.
pub type Batch<'a> = (Worker<'a>, Vec<BatchCall>);

/// Has threads, each in the agent with nothing to do, execute a batch each at the same time; the
/// results, errors included, in order from the last thread to the first.
pub fn try_each(batches: &[Batch<'_>]) -> Result<Vec<Vec<i64>>> {
    batches.iter().for_each(|(worker, batch)| worker.agent.submit_quietly(worker.slot, batch));
    // Whoever was handed its batch last is mostly done last.
    batches.iter().rev().map(|(worker, batch)| worker.collect(batch)).collect()
}

/// The same, but any error number is an error: when all have come to the end of theirs.
pub fn execute_each(what: &str, batches: &[Batch<'_>]) -> Result<()> {
    let results = try_each(batches)?;
    let mut all = batches.iter().rev().zip(&results);
    all.try_for_each(|((_, batch), results)| check(what, batch, results))
}

/// Stops threads that run, all at the same time. `first` is the first of their process, if it is
/// among them.
///
/// # Errors
/// Also when one of them ended.
pub fn stop_each(first: i32, tids: &[i32]) -> Result<()> {
    tids.iter().try_for_each(|tid| tracee::interrupt(*tid))?;
    // Its end is reported when that of the others was.
    let (first, others): (Vec<i32>, Vec<i32>) = tids.iter().partition(|tid| **tid == first);
    others.into_iter().try_for_each(|tid| await_stop(tid, tracee::wait_other))?;
    first.into_iter().try_for_each(|tid| await_stop(tid, tracee::wait))
}

fn await_stop(tid: i32, wait: fn(i32) -> kernel::Result<Stop>) -> Result<()> {
    loop {
        match wait(tid)? {
            Stop::Interrupted | Stop::Group(_) => return Ok(()),
            Stop::Ended(status) => return Err(MigrateError::Ended(status)),
            Stop::Signal(libc::SIGSTOP) => tracee::resume_interrupted(tid, libc::SIGSTOP)?,
            _ => tracee::resume_interrupted(tid, 0)?,
        }
    }
}

/// Sets a thread going again that stopped though nobody asked it to.
pub fn go_on(tid: i32, stop: Stop) -> Result<()> {
    match stop {
        Stop::Ended(status) => Err(MigrateError::Ended(status)),
        Stop::Signal(libc::SIGSTOP) => Ok(tracee::resume(tid, libc::SIGSTOP)?),
        _ => Ok(tracee::resume(tid, 0)?),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::{injection, threads};
    use kernel::memory::Memory;
    use kernel::proc::{maps, process};
    use kernel::tracee::SeizeOptions;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};
    use wire::ids::GuestTid;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn until_state(pid: i32, wanted: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let state = process::stat(&pid.to_string()).unwrap().state as char;
            if wanted.contains(state) {
                return;
            }
            assert!(Instant::now() < deadline, "{pid} is {state}, not one of {wanted}");
            std::thread::yield_now();
        }
    }

    /// Has a process do a batch in the agent after each of these signals, and lets it go.
    fn work_while_signalled(child: &Child, signals: &[i32]) {
        let pid = child.id() as i32;
        tracee::seize(pid, SeizeOptions { exit_kill: true, ..SeizeOptions::default() }).unwrap();
        tracee::interrupt(pid).unwrap();
        assert_eq!(tracee::wait(pid).unwrap(), Stop::Interrupted);
        let maps = maps::read(pid).unwrap();
        let borrowed = injection::borrow(&Memory::open(pid).unwrap(), &maps).unwrap();
        let stopped = threads::read(pid, GuestTid(pid)).unwrap();
        let slots = 1;
        let place = injection::place(&maps, slots).unwrap();
        let agent = injection::inject(pid, pid, borrowed, &maps, (&place, slots)).unwrap();
        let mut registers = stopped.registers;
        agent.enter(&mut registers, 0);
        tracee::set_registers(pid, &registers).unwrap();
        tracee::resume(pid, 0).unwrap();
        let worker = Worker { agent: &agent, slot: 0, tid: pid };
        let calls = [BatchCall::new(libc::SYS_getpid, [0; 6])];
        for signal in signals {
            tracee::send_signal(pid, pid, *signal).unwrap();
            until_state(pid, "t");
            let began = Instant::now();
            assert_eq!(worker.execute(&calls).unwrap(), [i64::from(pid)]);
            assert!(began.elapsed() < PATIENCE, "signal {signal} stalled it");
        }
        tracee::interrupt(pid).unwrap();
        assert!(matches!(tracee::wait(pid).unwrap(), Stop::Interrupted | Stop::Group(_)));
        threads::put_back(&stopped).unwrap();
        injection::remove(pid, borrowed, &agent).unwrap();
        tracee::detach(pid, 0).unwrap();
    }

    #[test]
    fn job_control_stalls_no_batch_and_holds_afterwards_as_without_us() {
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let pid = child.id() as i32;
        until_state(pid, "S");
        work_while_signalled(&child, &[libc::SIGCONT, libc::SIGSTOP, libc::SIGCONT]);
        until_state(pid, "S");
        work_while_signalled(&child, &[libc::SIGCONT, libc::SIGSTOP]);
        until_state(pid, "T");
        tracee::send_signal(pid, pid, libc::SIGCONT).unwrap();
        child.stdin.take().unwrap().write_all(b"alive\n").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "alive\n");
        assert!(child.wait().unwrap().success());
    }
}
