//! Our own clock.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The monotonic clock of this supervisor, nanoseconds.
pub fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| Duration::from(time).as_nanos() as u64)
}
