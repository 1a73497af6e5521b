//! Waiting for tracees to stop or end: for one of them, for any, until a moment. Used as functions
//! of [`crate::tracee`].

use crate::patience::{self, Patience};
use crate::tracee::Stop;
use crate::{KernelError, Result};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::raw::c_int;
use std::time::Instant;

thread_local! {
    /// What happened to others while one thread was waited for, in order.
    static PUT_BY: RefCell<VecDeque<(i32, Stop)>> = const { RefCell::new(VecDeque::new()) };
}

fn take_put_by(is_wanted: impl Fn(i32) -> bool) -> Option<(i32, Stop)> {
    PUT_BY.with_borrow_mut(|put_by| {
        let place = put_by.iter().position(|(tid, _)| is_wanted(*tid))?;
        put_by.remove(place)
    })
}

/// Waits for the next stop or end of this thread, as long as the caller's [`patience`] lasts.
///
/// The end of a process's first thread is reported only when its other threads, which end with it,
/// have been waited for (ptrace(2), "execve(2) under ptrace" and `delay_group_leader` in the
/// kernel). So everybody is waited for here, and what happened to others is put by for
/// [`poll_any`], [`wait_any`] and [`poll`].
pub fn wait(tid: i32) -> Result<Stop> {
    next_of(tid, 0).map(|stop| stop.unwrap_or(Stop::Ended(0)))
}

/// As [`wait`], for a thread that is not the first of its process: its end is reported whoever
/// else has been waited for, so nobody else needs to be looked at. That counts where many threads
/// are waited for one after another, because to find any that has stopped the kernel goes through
/// all of them.
pub fn wait_other(tid: i32) -> Result<Stop> {
    if let Some((_, stop)) = take_put_by(|other| other == tid) {
        return Ok(stop);
    }
    patience::check_wait(tid)?;
    let waited = wait_raw(tid, libc::__WALL, tid)?;
    Ok(waited.map_or(Stop::Ended(0), |(_, stop)| stop))
}

/// The same, but not beyond a moment; None if there was nothing by then. Nobody else's stops wake
/// the caller, as SIGCHLD would.
pub fn wait_other_until(tid: i32, deadline: Instant) -> Result<Option<Stop>> {
    if let Some((_, stop)) = take_put_by(|other| other == tid) {
        return Ok(Some(stop));
    }
    // Has the wait be interrupted then.
    let _limit = Patience::of(deadline.saturating_duration_since(Instant::now()));
    loop {
        match waitpid(tid, libc::__WALL) {
            Ok(waited) => return Ok(waited.map(|(_, stop)| stop)),
            Err(error) if error.raw_os_error() != Some(libc::EINTR) => {
                return Err(KernelError { what: format!("wait for {tid}"), source: error });
            }
            Err(_) if Instant::now() >= deadline => return Ok(None),
            Err(_) => {}
        }
    }
}

/// The next stop or end of this thread; with `WNOHANG` in `flags` None if there is none yet.
fn next_of(tid: i32, flags: c_int) -> Result<Option<Stop>> {
    if let Some((_, stop)) = take_put_by(|other| other == tid) {
        return Ok(Some(stop));
    }
    loop {
        patience::check_wait(tid)?;
        // Fails if it is nobody to wait for, which waiting for anybody would not tell.
        if let Some((_, stop)) = wait_raw(tid, libc::__WALL | libc::WNOHANG, tid)? {
            return Ok(Some(stop));
        }
        match wait_raw(-1, libc::__WALL | libc::__WNOTHREAD | flags, tid)? {
            Some((waited, stop)) if waited == tid => return Ok(Some(stop)),
            Some(other) => PUT_BY.with_borrow_mut(|put_by| put_by.push_back(other)),
            None => return Ok(None),
        }
    }
}

/// The next stop or end of any child or tracee of this thread, without waiting.
pub fn poll_any() -> Result<Option<(i32, Stop)>> {
    if let Some(put_by) = take_put_by(|_| true) {
        return Ok(Some(put_by));
    }
    match wait_raw(-1, libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG, -1) {
        Err(error) if error.source.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        other => other,
    }
}

/// Waits for the next stop or end of any child or tracee of this thread.
pub fn wait_any() -> Result<(i32, Stop)> {
    if let Some(put_by) = take_put_by(|_| true) {
        return Ok(put_by);
    }
    let waited = wait_raw(-1, libc::__WALL | libc::__WNOTHREAD, -1)?;
    waited.ok_or_else(|| KernelError::errno("wait for any thread", libc::ECHILD))
}

/// The next stop or end of this thread, without waiting; as in [`wait`], what happened to others
/// meanwhile is put by.
pub fn poll(tid: i32) -> Result<Option<Stop>> {
    next_of(tid, libc::WNOHANG)
}

/// waitpid(2), as long as the caller's patience with `awaited` lasts.
pub(crate) fn wait_raw(tid: i32, flags: c_int, awaited: i32) -> Result<Option<(i32, Stop)>> {
    loop {
        match waitpid(tid, flags) {
            Ok(waited) => return Ok(waited),
            Err(error) if error.raw_os_error() != Some(libc::EINTR) => {
                return Err(KernelError { what: format!("wait for {tid}"), source: error });
            }
            Err(_) => patience::check_wait(awaited)?,
        }
    }
}

fn waitpid(tid: i32, flags: c_int) -> io::Result<Option<(i32, Stop)>> {
    let mut status: c_int = 0;
    // SAFETY: `status` is a valid place for the status word; no other memory is involved.
    match unsafe { libc::waitpid(tid, &raw mut status, flags) } {
        0 => Ok(None),
        waited if waited > 0 => Ok(Some((waited, decode(status)))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Decodes a status word of wait(2) for a thread that was seized (ptrace(2), "Stopped states").
fn decode(status: c_int) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended(status);
    }
    let signal = libc::WSTOPSIG(status);
    let event = status >> 16;
    match event {
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Stop::Interrupted,
        libc::PTRACE_EVENT_STOP => Stop::Group(signal),
        0 if signal == (libc::SIGTRAP | 0x80) => Stop::Syscall,
        0 => Stop::Signal(signal),
        _ => Stop::Event(event),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::tracee::{self, SeizeOptions};
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn one_that_does_not_stop_is_waited_for_until_the_moment_that_was_given() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id() as i32;
        tracee::seize(pid, SeizeOptions::default()).unwrap();
        let began = Instant::now();
        let moment = began + Duration::from_millis(30);
        assert_eq!(wait_other_until(pid, moment).unwrap(), None);
        assert!(Instant::now() >= moment && began.elapsed() < Duration::from_secs(10));
        tracee::interrupt(pid).unwrap();
        let later = Instant::now() + Duration::from_secs(10);
        assert_eq!(wait_other_until(pid, later).unwrap(), Some(Stop::Interrupted));
        child.kill().unwrap();
        assert!(matches!(wait_other_until(pid, later).unwrap(), Some(Stop::Ended(_))));
        // It has been collected.
        assert!(wait_other_until(pid, later).is_err() && child.wait().is_err());
    }
}
