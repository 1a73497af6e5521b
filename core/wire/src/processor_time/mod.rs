//! Processor time that was spent in more than one place, told as one clock.
//!
//! Home's kernel counts what the deputy uses, the kernel of each other node what the body uses
//! there, and none knows of the rest. So the sum travels with the image, and the body's supervisor
//! tells it to the guest (docs/decisions/0006-processor-time.md). [`layout`] has the structures by
//! which Linux tells it.

pub mod layout;

use crate::ids::GuestTid;
use serde::{Deserialize, Serialize};

/// A clock of more than this is no clock of a process: 73 years, of which a sum of several still
/// fits a `u64`, and its seconds an `i64`.
pub const PROCESSOR_TIME_NS_MAX: u64 = 1 << 61;

/// Processor time as `getrusage` divides it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessorTime {
    pub user_ns: u64,
    pub system_ns: u64,
}

impl ProcessorTime {
    pub fn total_ns(self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: ProcessorTime) -> ProcessorTime {
        ProcessorTime {
            user_ns: self.user_ns.saturating_add(other.user_ns),
            system_ns: self.system_ns.saturating_add(other.system_ns),
        }
    }

    /// The greater user time and the greater system time of the two.
    #[must_use]
    pub fn at_least(self, other: ProcessorTime) -> ProcessorTime {
        ProcessorTime {
            user_ns: self.user_ns.max(other.user_ns),
            system_ns: self.system_ns.max(other.system_ns),
        }
    }

    pub fn is_plausible(self) -> bool {
        self.total_ns() <= PROCESSOR_TIME_NS_MAX
    }
}

/// The processor time of a process, or of one of its threads, up to one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// As home's kernel counted, as far as that is known away.
    pub home_ns: u64,
    /// In all stays away.
    pub away: ProcessorTime,
    /// What the guest was told last: neither part may go back.
    pub told: ProcessorTime,
}

impl Clock {
    pub fn total_ns(&self) -> u64 {
        self.home_ns.saturating_add(self.away.total_ns())
    }

    /// False if no process can have such a clock.
    pub fn is_plausible(&self) -> bool {
        self.home_ns <= PROCESSOR_TIME_NS_MAX
            && self.away.is_plausible()
            && self.told.is_plausible()
    }
}

/// What a clock owes to stays away that are over: home's kernel does not know it, so it is kept for
/// the next stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastClock {
    /// None for the whole process.
    pub tid: Option<GuestTid>,
    /// When the thread started, clock ticks after home's boot: its number may be another thread's
    /// by now. 0 for the process.
    pub started_ticks: u64,
    pub away: ProcessorTime,
    pub told: ProcessorTime,
}

impl PastClock {
    /// True if it is about this thread.
    pub fn is_of(&self, tid: GuestTid, started_ticks: u64) -> bool {
        self.tid == Some(tid) && self.started_ticks == started_ticks
    }

    pub fn is_plausible(&self) -> bool {
        self.away.is_plausible() && self.told.is_plausible()
    }
}

/// Divides precise time by imprecise shares, neither part less than what was told before: as Linux
/// itself does when it is asked for user and system time (`cputime_adjust` in
/// kernel/sched/cputime.c), which it knows by clock ticks only.
pub fn divide(total_ns: u64, shares: ProcessorTime, told: ProcessorTime) -> ProcessorTime {
    if told.total_ns() >= total_ns {
        return told;
    }
    let all = u128::from(shares.user_ns) + u128::from(shares.system_ns);
    // The share is at most 1, so the result fits.
    let share = (u128::from(total_ns) * u128::from(shares.system_ns)).checked_div(all);
    let system_ns = (share.unwrap_or(0) as u64).max(told.system_ns);
    let user_ns = (total_ns - system_ns).max(told.user_ns);
    ProcessorTime { user_ns, system_ns: total_ns - user_ns }
}

#[cfg(test)]
mod test {
    use super::*;

    fn time(user_ns: u64, system_ns: u64) -> ProcessorTime {
        ProcessorTime { user_ns, system_ns }
    }

    const NOTHING: ProcessorTime = ProcessorTime { user_ns: 0, system_ns: 0 };

    #[test]
    fn time_is_divided_by_its_shares_and_nothing_is_lost() {
        assert_eq!(divide(1000, time(3, 1), NOTHING), time(750, 250));
        assert_eq!(divide(1000, time(0, 1), NOTHING), time(0, 1000));
        assert_eq!(divide(1000, time(1, 0), NOTHING), time(1000, 0));
        assert_eq!(divide(7, time(1, 2), NOTHING), time(3, 4));
    }

    #[test]
    fn time_without_shares_is_user_time() {
        assert_eq!(divide(1000, NOTHING, NOTHING), time(1000, 0));
    }

    #[test]
    fn neither_part_goes_back_when_shares_change() {
        let mut told = NOTHING;
        for (total_ns, shares) in
            [(100, time(0, 1)), (110, time(1, 0)), (110, time(1, 1)), (300, time(1, 9))]
        {
            let next = divide(total_ns, shares, told);
            assert!(next.user_ns >= told.user_ns && next.system_ns >= told.system_ns, "{next:?}");
            assert_eq!(next.total_ns(), total_ns);
            told = next;
        }
    }

    #[test]
    fn less_time_than_was_told_changes_nothing() {
        assert_eq!(divide(5, time(1, 1), time(10, 20)), time(10, 20));
    }

    #[test]
    fn the_largest_times_are_divided_without_overflow() {
        let max = PROCESSOR_TIME_NS_MAX;
        assert_eq!(divide(max, time(max, max), NOTHING), time(max / 2, max / 2));
        assert_eq!(divide(u64::MAX, time(u64::MAX, u64::MAX), NOTHING).total_ns(), u64::MAX);
    }

    #[test]
    fn a_clock_of_centuries_is_no_clock() {
        let plausible = Clock { home_ns: PROCESSOR_TIME_NS_MAX, ..Clock::default() };
        assert!(plausible.is_plausible());
        assert!(!Clock { home_ns: u64::MAX, ..Clock::default() }.is_plausible());
        let away = time(PROCESSOR_TIME_NS_MAX, 1);
        assert!(!Clock { away, ..Clock::default() }.is_plausible());
        assert!(!Clock { told: time(u64::MAX, u64::MAX), ..Clock::default() }.is_plausible());
    }

    #[test]
    fn a_past_clock_is_not_that_of_a_later_thread_of_the_same_number() {
        let past =
            PastClock { tid: Some(GuestTid(7)), started_ticks: 5, away: time(1, 0), told: NOTHING };
        assert!(past.is_of(GuestTid(7), 5));
        assert!(!past.is_of(GuestTid(7), 6) && !past.is_of(GuestTid(8), 5));
    }
}
