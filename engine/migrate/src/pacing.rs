//! What is sent ahead of a process that runs leaves some of the network to others, if the owner of
//! one of the two nodes wants that.
//!
//! Whoever has sent something waits until as much may have been sent, at the same pace. A sender
//! that was late may make up for a moment of that and no more: so over any time the limit holds but
//! for that moment and for what is sent at one time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::move_limits::Bandwidth;

/// Waiting takes longer than was asked for, and so may sending: that much is made up for.
const LATE_MAX: Duration = Duration::from_millis(10);

/// The pace of one move, whatever threads send.
pub struct Pacing {
    /// None: as fast as it can be.
    limit: Mutex<Option<Limit>>,
    is_lifted: Condvar,
}

struct Limit {
    bytes_per_s: f64,
    /// When as much as was sent so far may have been.
    due: Option<Instant>,
}

impl Limit {
    /// The same after so many bytes more, which were sent since `began`.
    fn due_after(&mut self, bytes: usize, began: Instant) -> Instant {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
        let earliest = began.checked_sub(LATE_MAX).unwrap_or(began);
        let from = self.due.map_or(began, |due| due.max(earliest));
        *self.due.insert(from + takes)
    }
}

impl Pacing {
    pub fn of(limit: Option<Bandwidth>) -> Pacing {
        let limit = limit.map(|limit| Limit { bytes_per_s: limit.bytes_per_s(), due: None });
        Pacing { limit: Mutex::new(limit), is_lifted: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Limit>> {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on nobody waits, and who does need not any more.
    pub fn lift(&self) {
        *self.lock() = None;
        self.is_lifted.notify_all();
    }

    /// Waits until so many bytes, which were sent since `began`, may have been.
    pub fn sent(&self, bytes: usize, began: Instant) {
        let mut limit = self.lock();
        let Some(due) = limit.as_mut().map(|limit| limit.due_after(bytes, began)) else { return };
        while limit.is_some() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.is_lifted.wait_timeout(limit, left);
            limit = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// 10 ms for 100 kB.
    const LIMIT: &str = "80Mbit";
    const BYTES: usize = 100_000;
    const TAKES: Duration = Duration::from_millis(10);

    fn limit() -> Limit {
        let limit: Bandwidth = LIMIT.parse().unwrap();
        Limit { bytes_per_s: limit.bytes_per_s(), due: None }
    }

    #[test]
    fn what_several_send_is_due_one_after_the_other() {
        let (mut limit, began) = (limit(), Instant::now());
        for count in 1..=50 {
            assert_eq!(limit.due_after(BYTES, began), began + TAKES * count);
        }
    }

    #[test]
    fn who_was_late_makes_up_for_a_moment_and_no_more() {
        let (mut limit, began) = (limit(), Instant::now());
        limit.due_after(BYTES, began);
        let late = began + TAKES + LATE_MAX / 2;
        assert_eq!(limit.due_after(BYTES, late), began + TAKES * 2);
        let later = began + Duration::from_secs(9);
        assert_eq!(limit.due_after(BYTES, later), later - LATE_MAX + TAKES);
    }

    #[test]
    fn sending_takes_as_long_as_the_limit_wants_it_to() {
        let (pacing, began) = (Pacing::of(LIMIT.parse().ok()), Instant::now());
        let send = || (0..5).for_each(|_| pacing.sent(BYTES, began));
        std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(send))));
        assert!(began.elapsed() >= TAKES * 10);
    }

    #[test]
    fn nothing_waits_without_a_limit_or_when_it_is_lifted() {
        // Else both would end in some centuries.
        Pacing::of(None).sent(usize::MAX >> 12, Instant::now());
        let pacing = Pacing::of(LIMIT.parse().ok());
        std::thread::scope(|scope| {
            scope.spawn(|| pacing.sent(usize::MAX >> 12, Instant::now()));
            pacing.lift();
        });
        pacing.sent(usize::MAX >> 12, Instant::now());
    }
}
