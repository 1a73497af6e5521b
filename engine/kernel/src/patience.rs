//! Limits for waits that the kernel has none for: waitpid(2) returns when a tracee stops or ends,
//! and one that does neither, because a disk or its own work in the kernel keeps it, would hold its
//! tracer for ever.
//!
//! A [`Patience`] is a deadline of the calling thread. What waits for tracees asks for it
//! ([`check`]) whenever a signal interrupts it, and a timer of the thread's own sees to it that one
//! does: once at the deadline, and again and again from then on, because the first may come just
//! before the wait begins.

use crate::proc::process;
use crate::{KernelError, Result};
use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::sync::Once;
use std::time::{Duration, Instant};

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
    /// When the deadline was found to have passed.
    static OVERDUE: Cell<Option<Instant>> = const { Cell::new(None) };
    static TIMER: RefCell<Option<Timer>> = const { RefCell::new(None) };
}

/// After the deadline the thread is interrupted this often.
const AGAIN: Duration = Duration::from_millis(20);
/// What is waited for has this long yet when the deadline is found to have passed: a machine that
/// stood still, as a virtual one that is saved or a computer that sleeps, has its clock go on, and
/// nobody could do anything meanwhile.
const GRACE: Duration = Duration::from_secs(1);
/// And a thread that could run has this long, if only no processor is there for it: on a node that
/// gives its guests little, nothing is wrong with who waits.
const GRACE_FOR_RUNNABLE: Duration = Duration::from_secs(60);

/// Waits of the calling thread end at the latest when this much time has passed, until this is
/// dropped. Where one lies within another, the earlier deadline holds.
#[derive(Debug)]
#[must_use = "the limit ends when this is dropped"]
pub struct Patience {
    before: Option<Instant>,
}

impl Patience {
    pub fn of(length: Duration) -> Patience {
        let before = DEADLINE.get();
        let deadline = Instant::now() + length;
        set(Some(before.map_or(deadline, |before| before.min(deadline))));
        Patience { before }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        set(self.before);
    }
}

/// # Errors
/// ETIMEDOUT once the calling thread's patience is at its end.
pub fn check(what: impl FnOnce() -> String) -> Result<()> {
    match overdue() < GRACE {
        true => Ok(()),
        false => Err(KernelError::errno(what(), libc::ETIMEDOUT)),
    }
}

/// As [`check`], where this thread is waited for.
pub fn check_wait(tid: i32) -> Result<()> {
    let overdue = overdue();
    let is_in_time = overdue < GRACE || (overdue < GRACE_FOR_RUNNABLE && is_runnable(tid));
    match is_in_time {
        true => Ok(()),
        false => Err(KernelError::errno(format!("wait for {tid}"), libc::ETIMEDOUT)),
    }
}

/// For how long the deadline has been known to have passed.
fn overdue() -> Duration {
    let now = Instant::now();
    if DEADLINE.get().is_none_or(|deadline| now < deadline) {
        return Duration::ZERO;
    }
    let overdue_since = OVERDUE.get().unwrap_or(now);
    OVERDUE.set(Some(overdue_since));
    now - overdue_since
}

fn is_runnable(tid: i32) -> bool {
    process::stat(&tid.to_string()).is_ok_and(|stat| stat.state == b'R')
}

fn set(deadline: Option<Instant>) {
    if DEADLINE.replace(deadline) == deadline {
        return;
    }
    OVERDUE.set(None);
    let first = deadline.map(|at| at.saturating_duration_since(Instant::now()));
    TIMER.with_borrow_mut(|timer| {
        // Without a timer, which only a lack of memory explains, waits have no limit.
        if timer.is_none() {
            *timer = Timer::new();
        }
        if let Some(timer) = timer {
            timer.set(first);
        }
    });
}

/// A timer that interrupts the thread that made it.
struct Timer(libc::timer_t);

extern "C" fn interrupt(_: libc::c_int) {}

impl Timer {
    fn new() -> Option<Timer> {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // SAFETY: all zero bytes are a valid sigaction; the handler does nothing, and without
            // SA_RESTART calls that it interrupts say so.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = interrupt as *const () as usize;
                libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
            }
        });
        // SAFETY: all zero bytes are a valid sigevent and sigset; the kernel reads and writes live
        // locals only.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut set, libc::SIGALRM);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGALRM;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer = MaybeUninit::uninit();
            let made =
                libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, timer.as_mut_ptr());
            (made == 0).then(|| Timer(timer.assume_init()))
        }
    }

    /// Interrupts the thread after that time and from then on; never again if None.
    fn set(&self, first: Option<Duration>) {
        let spec = |time: Duration| libc::timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        // Zero would mean never.
        let first = first.map(|first| first.max(Duration::from_nanos(1)));
        let time = libc::itimerspec {
            it_value: spec(first.unwrap_or_default()),
            it_interval: spec(first.map_or(Duration::ZERO, |_| AGAIN)),
        };
        // SAFETY: the timer is this value's, the time a live local.
        unsafe { libc::timer_settime(self.0, 0, &raw const time, std::ptr::null_mut()) };
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer is this value's, and nothing uses it after.
        unsafe { libc::timer_delete(self.0) };
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::tracee::{self, SeizeOptions};
    use std::process::Command;

    #[test]
    fn a_tracee_that_does_not_stop_is_waited_for_until_patience_ends() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id() as i32;
        tracee::seize(pid, SeizeOptions::default()).unwrap();
        let began = Instant::now();
        let outer = Patience::of(Duration::from_secs(20));
        let inner = Patience::of(Duration::from_millis(50));
        let error = tracee::wait(pid).unwrap_err();
        assert_eq!(error.source.raw_os_error(), Some(libc::ETIMEDOUT));
        // At its end already, and still no wait without end.
        assert!(tracee::wait(pid).is_err());
        drop(inner);
        assert!(began.elapsed() < Duration::from_secs(10));
        tracee::interrupt(pid).unwrap();
        assert_eq!(tracee::wait(pid).unwrap(), tracee::Stop::Interrupted, "and others go on");
        drop(outer);
        assert!(DEADLINE.get().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// That of the calling thread has passed so long ago.
    fn overdue_for(time: Duration) -> Patience {
        let patience = Patience::of(Duration::ZERO);
        OVERDUE.set(Instant::now().checked_sub(time));
        patience
    }

    #[test]
    fn who_has_got_no_processor_yet_is_waited_for_longer_than_who_sleeps() {
        let mut computing = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut sleeping = Command::new("sleep").arg("100").spawn().unwrap();
        let [runs, sleeps] = [&computing, &sleeping].map(|child| child.id() as i32);
        // A shell that has not come so far yet reads its files.
        while !is_runnable(runs) || is_runnable(sleeps) {
            std::thread::yield_now();
        }
        let limit = overdue_for(2 * GRACE);
        assert!(check_wait(sleeps).is_err());
        assert!(check_wait(runs).is_ok());
        drop(limit);
        let _limit = overdue_for(2 * GRACE_FOR_RUNNABLE);
        assert!(check_wait(runs).is_err());
        for child in [&mut computing, &mut sleeping] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn what_happened_while_the_machine_stood_still_is_not_too_late() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id() as i32;
        tracee::seize(pid, SeizeOptions::default()).unwrap();
        let _limit = Patience::of(Duration::ZERO);
        tracee::interrupt(pid).unwrap();
        assert_eq!(tracee::wait(pid).unwrap(), tracee::Stop::Interrupted);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
