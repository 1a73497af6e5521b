//! This machine's clocks.

use nix::time::{ClockId, clock_gettime};

/// What they show at one moment, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    pub monotonic_ns: i64,
    pub boot_ns: i64,
    pub raw_ns: i64,
    pub real_ns: i64,
    pub tai_ns: i64,
    pub coarse_ns: i64,
    pub real_coarse_ns: i64,
}

/// Reads them all. The order is that of a departing process's interest: what is read last is a
/// few hundred nanoseconds younger.
pub fn read() -> Clocks {
    Clocks {
        coarse_ns: ns(ClockId::CLOCK_MONOTONIC_COARSE),
        real_coarse_ns: ns(ClockId::CLOCK_REALTIME_COARSE),
        raw_ns: ns(ClockId::CLOCK_MONOTONIC_RAW),
        tai_ns: ns(ClockId::CLOCK_TAI),
        real_ns: ns(ClockId::CLOCK_REALTIME),
        boot_ns: ns(ClockId::CLOCK_BOOTTIME),
        monotonic_ns: ns(ClockId::CLOCK_MONOTONIC),
    }
}

/// One clock, by its id (clock_gettime(2)); 0 if there is no such clock.
pub fn ns(clock: ClockId) -> i64 {
    clock_gettime(clock).map_or(0, |time| {
        time.tv_sec().saturating_mul(1_000_000_000).saturating_add(time.tv_nsec())
    })
}
