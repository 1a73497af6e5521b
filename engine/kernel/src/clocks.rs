//! This machine's clocks.

use nix::time::{ClockId, clock_gettime};

/// What one of them shows, nanoseconds; 0 if there is no such clock (clock_gettime(2)).
pub fn ns(clock: ClockId) -> i64 {
    clock_gettime(clock).map_or(0, |time| {
        time.tv_sec().saturating_mul(1_000_000_000).saturating_add(time.tv_nsec())
    })
}
