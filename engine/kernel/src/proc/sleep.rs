//! Since when a thread sleeps.
//!
//! Nothing says so directly. The scheduler notes when it last charged a thread for processor time
//! (`se.exec_start` of `/proc/PID/sched`), which for one that sleeps is when it went to sleep; but
//! it does so on a clock of the processor that the thread ran on, which stands still while a
//! hypervisor gives the processor to others. What time it is on that clock is read off a thread
//! that runs there: the calling one.
//!
//! All that is inexact here makes a sleep look shorter than it was.

use super::process::{stat, status_field};
use crate::clocks;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::ClockId;
use nix::unistd::Pid;
use std::collections::HashMap;

/// One sleep of a thread, while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// On the monotonic clock.
    pub since_ns: u64,
    /// How often the thread had gone to sleep, this time included.
    count: u64,
}

impl Sleep {
    /// True if a thread that has stopped since then, and has gone to sleep so often by now, had not
    /// woken before.
    pub fn lasted_until_the_stop(&self, sleeps: u64) -> bool {
        // To stand stopped counts as a sleep, too.
        sleeps == self.count + 1
    }
}

/// How often a thread has gone to sleep so far; to stand stopped counts as well.
pub fn count(pid: i32, tid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    status_field(&text, "voluntary_ctxt_switches")?.parse().ok()
}

/// The call that a thread sleeps in; None if it does not.
pub fn sleeping_call(pid: i32, tid: i32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// The sleeps of these threads of a process, as far as they can be known.
pub fn sleeps(pid: i32, tids: &[i32]) -> HashMap<i32, Sleep> {
    let mut by_processor: HashMap<usize, Vec<(i32, u64, u64)>> = HashMap::new();
    for tid in tids {
        if let Some((processor, count, charged_ns)) = last_charged(pid, *tid) {
            by_processor.entry(processor).or_default().push((*tid, count, charged_ns));
        }
    }
    let mut sleeps = HashMap::new();
    if by_processor.is_empty() {
        return sleeps;
    }
    let own = Pid::from_raw(0);
    let Ok(allowed) = sched_getaffinity(own) else { return sleeps };
    for (processor, sleepers) in by_processor {
        let Some((there_ns, now_ns)) = clock_of(processor) else { continue };
        for (tid, count, charged_ns) in sleepers {
            let slept_ns = there_ns.saturating_sub(charged_ns);
            sleeps.insert(tid, Sleep { since_ns: now_ns.saturating_sub(slept_ns), count });
        }
    }
    // What was allowed before is allowed again.
    let _ = sched_setaffinity(own, &allowed);
    sleeps
}

/// Where a sleeping thread ran last, how often it has slept, and when it was last charged.
fn last_charged(pid: i32, tid: i32) -> Option<(usize, u64, u64)> {
    let task = format!("{pid}/task/{tid}");
    let count = self::count(pid, tid)?;
    let stat = stat(&task).ok().filter(|stat| stat.state == b'S')?;
    let charged_ns = charged_ns(&std::fs::read_to_string(format!("/proc/{task}/sched")).ok()?)?;
    // One that was given to another processor in its sleep is not known.
    (charged_ns != 0).then_some((stat.processor, count, charged_ns))
}

/// What time it is on the scheduler's clock of a processor, and on the monotonic clock.
fn clock_of(processor: usize) -> Option<(u64, u64)> {
    let mut there = CpuSet::new();
    there.set(processor).ok()?;
    sched_setaffinity(Pid::from_raw(0), &there).ok()?;
    // Has the scheduler charge us up to now.
    std::thread::yield_now();
    let there_ns = charged_ns(&std::fs::read_to_string("/proc/thread-self/sched").ok()?)?;
    Some((there_ns, clocks::ns(ClockId::CLOCK_MONOTONIC) as u64))
}

/// `se.exec_start : MILLISECONDS.NANOSECONDS`, as the scheduler prints it.
fn charged_ns(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("se.exec_start"))?;
    let (milliseconds, nanoseconds) = line.rsplit(':').next()?.trim().split_once('.')?;
    let nanoseconds = nanoseconds.parse::<u64>().ok()?;
    milliseconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(nanoseconds)
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::tracee::{self, SeizeOptions, Stop};
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    #[test]
    fn line_of_the_scheduler_is_read() {
        let text = "cat (7, #threads: 1)\n---\nse.exec_start      :      27019430.479406\nnext : 1";
        assert_eq!(charged_ns(text), Some(27_019_430_479_406));
        assert_eq!(charged_ns("se.exec_start : many"), None);
    }

    #[test]
    fn sleep_begins_when_the_thread_went_to_sleep_and_not_before() {
        let before_ns = clocks::ns(ClockId::CLOCK_MONOTONIC) as u64;
        let mut child: Child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let deadline = Instant::now() + Duration::from_secs(5);
        while sleeping_call(pid, pid) != Some(libc::SYS_clock_nanosleep as u32) {
            assert!(Instant::now() < deadline, "it does not sleep");
            std::thread::yield_now();
        }
        let asleep_ns = clocks::ns(ClockId::CLOCK_MONOTONIC) as u64;
        std::thread::sleep(Duration::from_millis(200));
        let found = sleeps(pid, &[pid]);
        tracee::seize(pid, SeizeOptions::default()).unwrap();
        tracee::interrupt(pid).unwrap();
        assert_eq!(tracee::wait(pid).unwrap(), Stop::Interrupted);
        assert!(found[&pid].lasted_until_the_stop(count(pid, pid).unwrap()));
        tracee::resume_interrupted(pid, 0).unwrap();
        assert_eq!(tracee::wait(pid).unwrap(), Stop::Interrupted);
        assert!(!found[&pid].lasted_until_the_stop(count(pid, pid).unwrap()), "it has slept anew");
        child.kill().unwrap();
        child.wait().unwrap();
        let since_ns = found[&pid].since_ns;
        // Time that a hypervisor has taken meanwhile is missing: it can be later.
        assert!(since_ns >= before_ns && since_ns < asleep_ns + 150_000_000, "{since_ns}");
    }
}
