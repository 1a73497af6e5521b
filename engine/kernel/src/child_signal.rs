//! Waiting for something to happen to tracees, with a limit.
//!
//! Stops and ends of tracees raise SIGCHLD; with it blocked and read from a descriptor one can wait
//! for it beside other things, and for no longer than one wants. The signal is only a hint: the
//! truth is in [`crate::tracee::poll_any`].
//!
//! ptrace belongs to a thread, but the signal goes to the whole process. Where several threads have
//! tracees, whichever takes the signal passes it on to the others.

use crate::{KernelError, Result, wake_up};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::EventFd;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

pub struct ChildSignal {
    signals: SignalFd,
    /// Another thread has taken a signal.
    passed_on: Arc<EventFd>,
    all: Listeners,
    /// Readable when one of both is.
    both: Epoll,
}

/// Those of all threads that have tracees.
type Listeners = Arc<Mutex<Vec<Weak<EventFd>>>>;

impl ChildSignal {
    /// Blocks SIGCHLD in the calling thread; threads started later inherit that.
    pub fn new() -> Result<ChildSignal> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGCHLD);
        set.thread_block().map_err(|e| KernelError::errno("block SIGCHLD", e as i32))?;
        ChildSignal::among(Listeners::default())
    }

    /// For another thread of this process, in which SIGCHLD is blocked as well.
    pub fn for_another_thread(&self) -> Result<ChildSignal> {
        ChildSignal::among(self.all.clone())
    }

    fn among(all: Listeners) -> Result<ChildSignal> {
        let failed = |errno: nix::Error| KernelError::errno("watch SIGCHLD", errno as i32);
        let mut set = SigSet::empty();
        set.add(Signal::SIGCHLD);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&set, flags).map_err(failed)?;
        let passed_on = Arc::new(wake_up::make()?);
        let both = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        let readable = EpollEvent::new(EpollFlags::EPOLLIN, 0);
        both.add(&signals, readable).map_err(failed)?;
        both.add(&*passed_on, readable).map_err(failed)?;
        let it = ChildSignal { signals, passed_on, all, both };
        it.all().push(Arc::downgrade(&it.passed_on));
        Ok(it)
    }

    fn all(&self) -> MutexGuard<'_, Vec<Weak<EventFd>>> {
        self.all.lock().expect("no thread of the supervisor panicked")
    }

    /// Forgets the signals so far. To be called before polling tracees.
    pub fn drain(&self) {
        let _ = self.passed_on.read();
        let mut has_taken = false;
        while let Ok(Some(_)) = self.signals.read_signal() {
            has_taken = true;
        }
        if has_taken {
            self.pass_on();
        }
    }

    fn pass_on(&self) {
        let mut all = self.all();
        if all.len() > 1 {
            all.retain(|other| other.strong_count() > 0);
            let others = all.iter().filter_map(Weak::upgrade);
            // The counter cannot overflow: it is read whenever it is not zero.
            others.filter(|other| !Arc::ptr_eq(other, &self.passed_on)).for_each(|other| {
                let _ = other.write(1);
            });
        }
    }

    /// Sleeps until a signal comes or `timeout` has passed; false in the latter case.
    pub fn wait(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // Rounded up, so that the last millisecond is not spun away.
            let ms = i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
            let mut watched = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
            match poll(&mut watched, PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)) {
                Err(nix::errno::Errno::EINTR) => {}
                Ok(count) => return count > 0,
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for ChildSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.both.0.as_fd()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn whoever_takes_a_signal_passes_it_on() {
        // In a thread of its own, whose children nobody else waits for.
        std::thread::spawn(|| {
            let one = ChildSignal::new().unwrap();
            let other = one.for_another_thread().unwrap();
            assert!(!one.wait(SHORT) && !other.wait(SHORT));
            nix::sys::signal::raise(Signal::SIGCHLD).unwrap();
            assert!(one.wait(SHORT) && other.wait(SHORT));
            one.drain();
            assert!(!one.wait(SHORT) && other.wait(SHORT), "the other still hears of it");
            other.drain();
            assert!(!one.wait(SHORT) && !other.wait(SHORT), "and does not pass it on");
            drop(other);
            nix::sys::signal::raise(Signal::SIGCHLD).unwrap();
            one.drain();
            assert_eq!(one.all().len(), 1);
        })
        .join()
        .unwrap();
    }
}
