//! How fast the machine is at the moment. A virtual machine does not keep its pace, and times of a
//! lab may have to be told in the pace of another moment.
//!
//! On each processor a thread computes for some tenths of a millisecond fifty times a second, and
//! counts what it gets done in a second of its processor time. So it meets what others meet: the
//! frequency, the other half of the core, a host that takes the processor away.
//!
//! It does not compute all the time at the lowest priority (`SCHED_IDLE`), which would keep
//! processors from sleeping, too: a group whose quota is renewed does not preempt such a thread
//! before the next tick (`unthrottle_cfs_rq` wakes idle processors only), and nodes got 96 % of
//! theirs. [`Awake`] does it without a thread.
//!
//! [`Awake`]: crate::Awake

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two pieces: a hundredth of a processor is what this takes.
const PAUSE: Duration = Duration::from_millis(20);

/// A piece of work, some tenths of a millisecond long: makes one value of another.
pub type Piece = fn(u64) -> u64;

/// Counts until it is dropped.
pub struct Pacemaker {
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    pieces: AtomicU64,
    used_ns: AtomicU64,
    is_over: AtomicBool,
}

/// What was counted until a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mark {
    pieces: u64,
    used_ns: u64,
}

impl Mark {
    /// Pieces in a second of processor time from an earlier moment on; None if nothing was counted.
    pub fn pace_since(&self, earlier: &Mark) -> Option<f64> {
        let used_s = (self.used_ns - earlier.used_ns) as f64 / 1e9;
        (used_s > 0.0).then(|| (self.pieces - earlier.pieces) as f64 / used_s)
    }
}

impl Pacemaker {
    /// # Errors
    /// If it cannot be told which processors there are.
    pub fn start(piece: Piece) -> Result<Pacemaker> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).context("cannot tell the processors")?;
        let is_allowed = |number: &usize| allowed.is_set(*number).unwrap_or(false);
        let counts = Arc::new(Counts::default());
        let start = |number| {
            let counts = counts.clone();
            std::thread::spawn(move || count(number, piece, &counts))
        };
        let threads = (0..CpuSet::count()).filter(is_allowed).map(start).collect();
        Ok(Pacemaker { counts, threads })
    }

    pub fn mark(&self) -> Mark {
        Mark {
            pieces: self.counts.pieces.load(Ordering::Relaxed),
            used_ns: self.counts.used_ns.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Pacemaker {
    fn drop(&mut self) {
        self.counts.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It has nothing to panic about; and then there would be nothing more to wait for.
            let _ = thread.join();
        }
    }
}

fn count(processor: usize, piece: Piece, counts: &Counts) {
    let mut own = CpuSet::new();
    let is_bound = own.set(processor).and_then(|()| sched_setaffinity(Pid::from_raw(0), &own));
    if is_bound.is_err() {
        return;
    }
    let mut value = processor as u64;
    while !counts.is_over.load(Ordering::Relaxed) {
        let Some(before_ns) = used_ns() else { return };
        value = std::hint::black_box(piece(value));
        let Some(after_ns) = used_ns() else { return };
        counts.pieces.fetch_add(1, Ordering::Relaxed);
        counts.used_ns.fetch_add(after_ns - before_ns, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
}

/// Processor time of this thread.
fn used_ns() -> Option<u64> {
    let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
    Some(used.tv_sec() as u64 * 1_000_000_000 + used.tv_nsec() as u64)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_counted_grows_while_somebody_watches() {
        let pacemaker = Pacemaker::start(|value| value.wrapping_add(1)).unwrap();
        let first = pacemaker.mark();
        let mut last = first;
        while last.pieces < first.pieces + 3 {
            let is_counting = |thread: &JoinHandle<()>| !thread.is_finished();
            assert!(pacemaker.threads.iter().any(is_counting), "nobody counts");
            std::thread::yield_now();
            last = pacemaker.mark();
        }
        assert!(last.pace_since(&first).unwrap() > 0.0);
        assert_eq!(first.pace_since(&first), None);
    }

    #[test]
    fn a_pace_is_what_was_done_by_processor_time_whatever_the_hour() {
        let earlier = Mark { pieces: 1_000, used_ns: 5_000_000_000 };
        let later = Mark { pieces: 7_000, used_ns: 7_000_000_000 };
        assert_eq!(later.pace_since(&earlier), Some(3_000.0));
    }
}
