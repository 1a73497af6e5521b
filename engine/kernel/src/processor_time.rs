//! Processor time of other processes and their threads.

use crate::proc::process;
use nix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// CPUCLOCK_SCHED in the kernel's numbers for clocks of other processes
/// (include/linux/posix-timers_types.h), below the complement of the pid.
const SCHEDULER_CLOCK: i32 = 2;

/// Processor time of a whole process, nanoseconds; 0 if it is gone. What its threads have used
/// since they last left a processor may be missing.
pub fn process_ns(pid: i32) -> u64 {
    let clock = ClockId::from_raw((!pid) << 3 | SCHEDULER_CLOCK);
    clock_gettime(clock).map_or(0, |time| Duration::from(time).as_nanos() as u64)
}

/// Files that clocks of this process may hold open, so that those of many threads do not use up its
/// descriptors. A clock beyond them opens its file for each reading, which takes 5 us more.
const HELD_MAX: usize = 256;
static HELD: AtomicUsize = AtomicUsize::new(0);

/// The processor time of one thread. No clock id reaches into another process's threads, but
/// `/proc` tells.
#[derive(Debug)]
pub struct ThreadClock {
    /// Opened when it is read first: most threads of many never are.
    schedule: OnceLock<Option<File>>,
    thread: String,
}

impl ThreadClock {
    pub fn of(pid: i32, tid: i32) -> ThreadClock {
        ThreadClock { schedule: OnceLock::new(), thread: format!("{pid}/task/{tid}") }
    }

    /// What it holds open, if it may.
    fn schedule(&self) -> Option<&File> {
        let hold = || {
            let may_hold = HELD.fetch_add(1, Ordering::Relaxed) < HELD_MAX;
            let schedule = may_hold.then(|| self.open()).flatten();
            if schedule.is_none() {
                HELD.fetch_sub(1, Ordering::Relaxed);
            }
            schedule
        };
        self.schedule.get_or_init(hold).as_ref()
    }

    /// Nanoseconds, exact while the thread sleeps; 0 if it is gone.
    pub fn read_ns(&self) -> u64 {
        let counted = match self.schedule() {
            Some(file) => read_schedule(file),
            None => self.open().as_ref().and_then(read_schedule),
        };
        // Kernels without scheduler statistics still count ticks.
        counted.unwrap_or_else(|| {
            let (user_ns, system_ns) = self.ticks();
            user_ns.saturating_add(system_ns)
        })
    }

    /// User and system time in whole clock ticks, nanoseconds.
    pub fn ticks(&self) -> (u64, u64) {
        process::stat(&self.thread).map_or((0, 0), |stat| (stat.user_ns, stat.system_ns))
    }

    fn open(&self) -> Option<File> {
        File::open(format!("/proc/{}/schedstat", self.thread)).ok()
    }
}

impl Drop for ThreadClock {
    fn drop(&mut self) {
        if self.schedule.get().is_some_and(Option::is_some) {
            HELD.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn read_schedule(file: &File) -> Option<u64> {
    let mut text = [0; 64];
    let length = file.read_at(&mut text, 0).ok()?;
    parse_schedule(&text[..length])
}

/// The time on processors, of `schedstat`: time, waiting time, runs. None if nothing was counted.
fn parse_schedule(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let ns = numbers.next()??;
    let runs = numbers.nth(1)??;
    (runs > 0).then_some(ns)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn clocks_of_a_process_and_its_thread_advance_with_its_work() {
        let pid = std::process::id() as i32;
        let tid = nix::unistd::gettid().as_raw();
        let thread = ThreadClock::of(pid, tid);
        let before = (process_ns(pid), thread.read_ns());
        let mut x = 1u64;
        while process_ns(pid) < before.0 + 5_000_000 || thread.read_ns() < before.1 + 1_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
    }

    #[test]
    fn more_clocks_than_may_hold_a_file_tell_the_time_all_the_same() {
        let (pid, tid) = (std::process::id() as i32, nix::unistd::gettid().as_raw());
        // Other tests hold some, too.
        let clocks: Vec<ThreadClock> =
            (0..2 * HELD_MAX).map(|_| ThreadClock::of(pid, tid)).collect();
        let held = clocks.iter().filter(|clock| clock.schedule().is_some()).count();
        assert!(held <= HELD_MAX && held > 0, "{held}");
        let (first, last) = (clocks[0].read_ns(), clocks[2 * HELD_MAX - 1].read_ns());
        assert!(last >= first, "{last} after {first}");
        drop(clocks);
        assert!(ThreadClock::of(pid, tid).schedule().is_some());
    }

    #[test]
    fn statistics_that_count_nothing_are_no_clock() {
        assert_eq!(parse_schedule(b"185224377 35227684 703\n"), Some(185_224_377));
        assert_eq!(parse_schedule(b"0 0 0\n"), None);
        assert_eq!(parse_schedule(b""), None);
        assert_eq!(parse_schedule(b"7 1 x\n"), None);
    }

    #[test]
    fn clock_of_a_process_that_is_gone_stands_at_zero() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(process_ns(child.id() as i32), 0);
    }
}
