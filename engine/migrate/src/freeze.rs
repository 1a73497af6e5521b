//! Stopping all threads of a process, wherever they are, and letting them go again.

use crate::stepping::{self, Stepped};
use crate::{MigrateError, Result};
use kernel::child_signal::ChildSignal;
use kernel::patience::Patience;
use kernel::proc::process::{self, ThreadStatus};
use kernel::tracee::{self, SeizeOptions, Stop};
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

/// A thread that cannot be stopped for so long sits in the kernel, uninterruptible.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Readies stopped threads to be read: each is out of the `vdso`, and has got the signals that are
/// due to it: a program may count on a signal that it sends itself being handled before the call
/// returns, and elsewhere it would come later. Returns what is said of each thread afterwards.
///
/// # Errors
/// Refused if a thread does not get out of the vDSO; also when a signal ended the process.
pub fn settle(pid: i32, tids: &[i32], vdso: &Range<u64>) -> Result<Vec<ThreadStatus>> {
    let _limit = Patience::of(STOP_TIMEOUT);
    let statuses = statuses(pid, tids)?.into_iter();
    tids.iter().zip(statuses).map(|(tid, status)| settle_thread(pid, *tid, status, vdso)).collect()
}

/// Anybody may read them, so on several processors at once: of all that is done for a thread in a
/// freeze it takes longest.
fn statuses(pid: i32, tids: &[i32]) -> Result<Vec<ThreadStatus>> {
    let readers = std::thread::available_parallelism().map_or(1, usize::from).min(READERS_MAX);
    let part = tids.len().div_ceil(readers).max(READ_MIN);
    let read = |tids: &[i32]| -> kernel::Result<Vec<ThreadStatus>> {
        tids.iter().map(|tid| process::thread_status(pid, *tid)).collect()
    };
    let (own, others) = tids.split_at(part.min(tids.len()));
    let parts: kernel::Result<Vec<_>> = std::thread::scope(|scope| {
        let begun: Vec<_> = others
            .chunks(part)
            .map(|tids| (tids, std::thread::Builder::new().spawn_scoped(scope, || read(tids))))
            .collect();
        let own = read(own);
        let others = begun.into_iter().map(|(tids, reader)| match reader.map(|it| it.join()) {
            Ok(Ok(statuses)) => statuses,
            // It could not begin.
            _ => read(tids),
        });
        std::iter::once(own).chain(others).collect()
    });
    Ok(parts?.concat())
}

const READERS_MAX: usize = 4;
/// A reader that reads fewer is not worth its start.
const READ_MIN: usize = 32;

fn settle_thread(
    pid: i32,
    tid: i32,
    mut status: ThreadStatus,
    vdso: &Range<u64>,
) -> Result<ThreadStatus> {
    let mut pauses = 0;
    for _ in 0..DUE_SIGNALS_MAX {
        let mask = tracee::signal_mask(tid)?;
        if status.pending & !mask != 0 {
            // One that was sent to all threads another has taken meanwhile.
            status = process::thread_status(pid, tid)?;
        }
        if status.pending & !mask != 0 {
            // Without an interrupt, which would come before the signal; the signal's own stop is
            // certain, and the interrupt is asked for there.
            tracee::resume(tid, 0)?;
        } else {
            match stepping::leave_vdso(tid, vdso)? {
                Stepped::There => return Ok(status),
                // A fault, which its handler takes as it would without us.
                Stepped::Signal(signal) => tracee::resume_interrupted(tid, signal)?,
                Stepped::Underway if pauses == PAUSES_MAX => return Err(stepping::vdso_refusal()),
                // It goes on for a moment. We sleep meanwhile: where there is one processor, an
                // interrupt would come before its next instruction.
                Stepped::Underway => {
                    pauses += 1;
                    tracee::resume(tid, 0)?;
                    std::thread::sleep(PAUSE);
                    match tracee::interrupt(tid) {
                        Err(error) if !error.is_gone() => return Err(error.into()),
                        // That it has ended is told below.
                        _ => {}
                    }
                }
            }
        }
        await_interrupted(pid, tid)?;
        status = process::thread_status(pid, tid)?;
    }
    match stepping::is_in_vdso(&tracee::registers(tid)?, vdso) {
        true => Err(stepping::vdso_refusal()),
        false => Ok(status),
    }
}

/// For so long a thread runs out of the vDSO that could not be stepped out of it, and so often.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSES_MAX: u32 = 4;
/// A thread that is sent signals faster than it takes them is moved between two of them.
const DUE_SIGNALS_MAX: usize = 64;

fn await_interrupted(pid: i32, tid: i32) -> Result<()> {
    loop {
        match tracee::wait(tid)? {
            Stop::Interrupted => return Ok(()),
            Stop::Ended(status) if tid == pid => return Err(MigrateError::Ended(status)),
            Stop::Ended(_) => {
                let text = format!("thread {tid} ended just now");
                return Err(MigrateError::refused("thread-ended", text));
            }
            Stop::Group(signal) => {
                let text = format!("it is stopped (signal {signal}); continue it first");
                return Err(MigrateError::refused("stopped", text));
            }
            Stop::Signal(signal) => tracee::resume_interrupted(tid, signal)?,
            Stop::Syscall | Stop::Event(_) => tracee::resume_interrupted(tid, 0)?,
        }
    }
}

/// Seizes and stops every thread of `pid`; returns them, the first being `pid`.
///
/// A thread may be born while others are seized, so the listing is repeated until nothing is new.
/// Signals that arrive on the way are delivered, not lost. Nothing of the process is altered:
/// should the caller be killed, the kernel lets the threads go and they run on. Who alters
/// something says [`hold`] first.
///
/// # Errors
/// Refused if the process is stopped by job control or a thread stays in the kernel; then all
/// threads run on as if nothing had been.
pub fn freeze(pid: i32, signals: &ChildSignal) -> Result<Vec<i32>> {
    let mut seized = BTreeSet::new();
    let outcome = freeze_listed(pid, signals, &mut seized);
    if outcome.is_err() {
        for tid in &seized {
            release(*tid);
        }
    }
    outcome
}

fn freeze_listed(pid: i32, signals: &ChildSignal, seized: &mut BTreeSet<i32>) -> Result<Vec<i32>> {
    let mut stopped = BTreeSet::new();
    loop {
        let listed = process::threads(pid)?;
        let fresh: Vec<i32> = listed.iter().copied().filter(|t| !seized.contains(t)).collect();
        if fresh.is_empty() {
            stopped.retain(|tid| listed.contains(tid));
            return Ok(first_thread_first(pid, stopped));
        }
        for tid in &fresh {
            match attach(*tid) {
                Ok(()) => {
                    seized.insert(*tid);
                }
                Err(error) if error.is_gone() => continue,
                Err(error) => return Err(seize_error(pid, error)),
            }
            tracee::interrupt(*tid)?;
        }
        let waiting = fresh.into_iter().filter(|tid| seized.contains(tid)).collect();
        wait_stopped(pid, waiting, signals, &mut stopped)?;
    }
}

/// Numbers start anew below `pid_max`: threads may have lower ones than their process.
fn first_thread_first(pid: i32, tids: BTreeSet<i32>) -> Vec<i32> {
    let mut ordered: Vec<i32> = tids.into_iter().collect();
    ordered.sort_by_key(|tid| *tid != pid);
    ordered
}

fn seize_error(pid: i32, error: kernel::KernelError) -> MigrateError {
    if error.source.raw_os_error() == Some(libc::EPERM) {
        let tracer = process::status(pid)
            .ok()
            .and_then(|s| process::status_field(&s, "TracerPid").map(str::to_owned));
        return match tracer.as_deref() {
            Some("0") | None => MigrateError::refused(
                "not-permitted",
                format!("the kernel does not let us trace {pid} (see `osmos doctor`)"),
            ),
            Some(tracer) => MigrateError::refused(
                "traced",
                format!("process {tracer} traces {pid} (a debugger?); detach it first"),
            ),
        };
    }
    error.into()
}

/// Waits until each of `waiting` has stopped for our interrupt: one after another, because all have
/// to, and the first thread last, because its end is reported when that of the others was.
fn wait_stopped(
    pid: i32,
    waiting: BTreeSet<i32>,
    signals: &ChildSignal,
    stopped: &mut BTreeSet<i32>,
) -> Result<()> {
    let deadline = Instant::now() + STOP_TIMEOUT;
    for tid in first_thread_first(pid, waiting).into_iter().rev() {
        let is_there = loop {
            let waited = match tid == pid {
                true => wait_for_first(pid, signals, deadline),
                false => tracee::wait_other_until(tid, deadline),
            };
            let stop = match waited {
                Ok(Some(stop)) => stop,
                Ok(None) => {
                    let text = format!("thread {tid} stays in the kernel, uninterruptible");
                    return Err(MigrateError::refused("uninterruptible", text));
                }
                Err(error) if error.source.raw_os_error() == Some(libc::ECHILD) => Stop::Ended(0),
                Err(error) => return Err(error.into()),
            };
            match stop {
                Stop::Interrupted => break true,
                Stop::Ended(status) if tid == pid => return Err(MigrateError::Ended(status)),
                Stop::Ended(_) => break false,
                Stop::Group(signal) => {
                    let text = format!("it is stopped (signal {signal}); continue it first");
                    return Err(MigrateError::refused("stopped", text));
                }
                Stop::Signal(signal) => tracee::resume_interrupted(tid, signal)?,
                Stop::Syscall | Stop::Event(_) => tracee::resume_interrupted(tid, 0)?,
            }
        };
        if is_there {
            stopped.insert(tid);
        }
    }
    Ok(())
}

/// The next stop or end of the first thread; None if there was none by the deadline.
fn wait_for_first(
    pid: i32,
    signals: &ChildSignal,
    deadline: Instant,
) -> kernel::Result<Option<Stop>> {
    loop {
        signals.drain();
        if let Some(stop) = tracee::poll(pid)? {
            return Ok(Some(stop));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        signals.wait(left);
    }
}

/// Begins to trace a thread, which survives its tracer.
fn attach(tid: i32) -> kernel::Result<()> {
    tracee::seize(tid, SeizeOptions::default())
}

/// From now on the stopped threads die with their tracer: what follows would leave them altered
/// (masks that block everything, registers in the agent, memory that is elsewhere), and half a
/// process that runs is worse than one that has ended.
pub fn hold(tids: &[i32]) -> Result<()> {
    tids.iter().try_for_each(|tid| Ok(tracee::set_options(*tid, HELD)?))
}

/// How threads are traced that are altered. A program that they begin replaces all of that.
pub const HELD: SeizeOptions =
    SeizeOptions { follow: false, exit_kill: true, calls: false, programs: true };

/// The reverse of [`hold`], for threads that are again as they were.
pub fn unhold(tids: &[i32]) {
    for tid in tids {
        // One that is gone needs nothing.
        if let Err(error) = tracee::set_options(*tid, SeizeOptions::default()) {
            ::tracing::debug!("{error}");
        }
    }
}

/// Lets go of a thread that was seized, whatever state it is in.
fn release(tid: i32) {
    // One that runs has not been cut short.
    let _ = crate::threads::put_back_unread(tid);
    if tracee::detach(tid, 0).is_ok() {
        return;
    }
    // It runs: only a stopped thread can be detached. The thread may end instead, which is as good.
    if tracee::interrupt(tid).is_err() {
        return;
    }
    let deadline = Instant::now() + STOP_TIMEOUT;
    while let Ok(stop) = tracee::poll(tid) {
        match stop {
            Some(Stop::Signal(signal)) => {
                let _ = tracee::detach(tid, signal);
                return;
            }
            Some(Stop::Ended(_)) => return,
            Some(_) => {
                let _ = crate::threads::put_back_unread(tid);
                let _ = tracee::detach(tid, 0);
                return;
            }
            None if Instant::now() > deadline => return,
            None => std::thread::yield_now(),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};

    fn echo() -> Child {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Has a tracer, which is one thread, stop the process and then be gone, without a word.
    fn traced_by_one_who_falls(child: &Child, act: impl FnOnce(&[i32]) + Send) {
        let pid = child.id() as i32;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                attach(pid).unwrap();
                tracee::interrupt(pid).unwrap();
                assert_eq!(tracee::wait(pid).unwrap(), Stop::Interrupted);
                act(&[pid]);
            });
        });
        // A thread has been joined a little before the kernel lets go of what it traced.
        let deadline = Instant::now() + STOP_TIMEOUT;
        while process::status(pid).is_ok_and(|status| {
            process::status_field(&status, "TracerPid").is_some_and(|tracer| tracer != "0")
        }) {
            assert!(Instant::now() < deadline, "the tracer is still there");
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_first_thread_comes_first_whatever_its_number() {
        let tids = BTreeSet::from([301, 302, 32_700, 32_701]);
        assert_eq!(first_thread_first(32_700, tids), [32_700, 301, 302, 32_701]);
    }

    #[test]
    fn frozen_process_outlives_its_tracer_until_it_is_altered() {
        let mut child = echo();
        traced_by_one_who_falls(&child, |_| {});
        traced_by_one_who_falls(&child, |tids| {
            hold(tids).unwrap();
            unhold(tids);
        });
        child.stdin.as_ref().unwrap().write_all(b"alive\n").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "alive\n");
        traced_by_one_who_falls(&child, |tids| hold(tids).unwrap());
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    }
}
