//! Calls that outlive a move: sleepers that keep their deadline in this kernel, and what becomes of
//! a call in flight when its body comes home.

use kernel::memory::Memory;
use std::time::Duration;
use wire::calls::{self, Timeout};
use wire::forward::{Call, Direction, Output, Place, Segment, Yield};
use wire::ids::GuestAddr;

const POLLFD_BYTES: u64 = 8;
const TIMESPEC_BYTES: u32 = 16;
/// More descriptors than poll(2) takes by default.
const POLLFD_MAX: u64 = 1 << 16;

/// What a sleeping poll, nanosleep or clock_nanosleep writes into the guest's memory.
pub fn kept_segments(number: u32, arguments: &[u64; 6]) -> Vec<Segment> {
    let (index, length, yields) = match i64::from(number) {
        libc::SYS_poll => {
            let length = arguments[1].min(POLLFD_MAX) * POLLFD_BYTES;
            (0, length as u32, Yield::Whole)
        }
        libc::SYS_nanosleep => (1, TIMESPEC_BYTES, Yield::Always),
        _ => (3, TIMESPEC_BYTES, Yield::Always),
    };
    let address = arguments[index];
    if address == 0 || length == 0 {
        return vec![];
    }
    vec![Segment {
        guest: GuestAddr(address),
        length,
        direction: Direction::InOut,
        place: Place::Argument(index as u8),
        yields,
        data: vec![],
    }]
}

/// What such a call wrote: it did so where the guest has it, in the deputy's own memory.
pub fn collect_kept(call: &Call, result: i64, memory: &Memory) -> Vec<Output> {
    let is_worth = |segment: &&(usize, &Segment)| match segment.1.yields {
        // A sleep tells the time left only when it was interrupted.
        Yield::Always => result < 0,
        _ => result >= 0,
    };
    call.segments
        .iter()
        .enumerate()
        .filter(|segment| is_worth(&segment))
        .map(|(index, segment)| {
            let mut data = vec![0; segment.length as usize];
            let count = memory.read_some(segment.guest.0, &mut data);
            data.truncate(count);
            Output { segment: index as u16, data }
        })
        .collect()
}

/// Shortens a timeout that is itself an argument by the time already waited.
pub fn shorten(call: &Call, waited: Duration, arguments: &mut [u64; 6]) {
    let Some(Timeout::Relative(length)) =
        calls::timeout(call.number, &call.arguments, &call.segments)
    else {
        return;
    };
    let mut shorter = call.clone();
    calls::with_remaining(&mut shorter, length.saturating_sub(waited));
    for (index, argument) in arguments.iter_mut().enumerate() {
        // Only the timeout differs; pointers stay those of the staging area.
        if shorter.arguments[index] != call.arguments[index] {
            *argument = shorter.arguments[index];
        }
    }
}

/// Time left of a call's relative timeout; None if it has none.
pub fn remaining(call: &Call, waited: Duration) -> Option<Duration> {
    match calls::timeout(call.number, &call.arguments, &call.segments)? {
        Timeout::Relative(length) => Some(length.saturating_sub(waited)),
        Timeout::Absolute | Timeout::Endless => None,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn sleeper_without_a_place_for_the_rest_writes_nothing() {
        assert_eq!(kept_segments(libc::SYS_nanosleep as u32, &[0x1000, 0, 0, 0, 0, 0]), []);
        let poll = kept_segments(libc::SYS_poll as u32, &[0x2000, 3, 100, 0, 0, 0]);
        assert_eq!((poll[0].guest.0, poll[0].length), (0x2000, 24));
    }
}
