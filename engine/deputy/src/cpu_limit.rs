//! RLIMIT_CPU of a process that is away: its kernel sees the deputy only, which hardly computes, so
//! this supervisor adds the body's time and does what the kernel would (setrlimit(2)).

use kernel::proc::process::{Limit, cpu_limit_s};
use kernel::processor_time::process_ns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const NS_PER_S: u64 = 1_000_000_000;

/// What has been said to a process about its limit.
#[derive(Debug, Default)]
pub struct CpuLimit {
    /// Seconds of processor time at which it hears again that it is over its soft limit.
    next_s: u64,
}

impl CpuLimit {
    /// Sends what is due to a process that has used `away_ns` in all its stays away. Called about
    /// once a second: as often as the kernel repeats itself.
    pub fn enforce(&mut self, pid: i32, away_ns: u64) {
        // As it is now: somebody may have changed it.
        let Ok(limit) = cpu_limit_s(pid) else { return };
        if limit == Limit::default() {
            return;
        }
        let used_s = process_ns(pid).saturating_add(away_ns) / NS_PER_S;
        if let Some(signal) = self.due(used_s, limit)
            && let Err(errno) = kill(Pid::from_raw(pid), signal)
        {
            ::tracing::debug!("{signal} for process {pid}: {errno}");
        }
    }

    fn due(&mut self, used_s: u64, limit: Limit) -> Option<Signal> {
        let is_over = |bound: Option<u64>| bound.is_some_and(|bound_s| used_s >= bound_s);
        if is_over(limit.hard) {
            return Some(Signal::SIGKILL);
        }
        if !is_over(limit.soft) || used_s < self.next_s {
            return None;
        }
        self.next_s = used_s.saturating_add(1);
        Some(Signal::SIGXCPU)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn soft_limit_is_told_once_a_second_and_the_hard_one_kills() {
        let limit = Limit { soft: Some(10), hard: Some(12) };
        let mut said = CpuLimit::default();
        assert_eq!(said.due(9, limit), None);
        assert_eq!(said.due(10, limit), Some(Signal::SIGXCPU));
        assert_eq!(said.due(10, limit), None);
        assert_eq!(said.due(11, limit), Some(Signal::SIGXCPU));
        assert_eq!(said.due(12, limit), Some(Signal::SIGKILL));
    }

    #[test]
    fn a_process_without_a_limit_hears_nothing() {
        assert_eq!(CpuLimit::default().due(u64::MAX, Limit::default()), None);
    }
}
