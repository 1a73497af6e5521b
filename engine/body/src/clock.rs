//! Clocks: the body's processor time, and our own monotonic one.

use nix::time::ClockId;
use std::time::Duration;

/// CPUCLOCK_SCHED in the kernel's numbers for clocks of other processes
/// (include/linux/posix-timers_types.h): ~pid in the upper bits, bit 2 for "one thread".
const SCHEDULER_CLOCK: i32 = 2;

/// Processor time of a whole process here, nanoseconds; 0 if it is gone.
pub fn process_ns(pid: i32) -> u64 {
    read(ClockId::from_raw((!pid) << 3 | SCHEDULER_CLOCK))
}

fn read(clock: ClockId) -> u64 {
    nix::time::clock_gettime(clock).map_or(0, |time| Duration::from(time).as_nanos() as u64)
}

/// The monotonic clock of this supervisor, nanoseconds.
pub fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn own_clocks_advance_with_work() {
        let pid = std::process::id() as i32;
        let before = process_ns(pid);
        let mut x = 1u64;
        while process_ns(pid) < before + 1_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
    }
}
