//! How long a waiting call may still wait. A call that was interrupted only because the process
//! moved is made again with the time that is left.

use super::Arguments;
use crate::forward::{Call, Place, Segment};
use std::time::Duration;

/// The limit on a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// At most this long from the call on.
    Relative(Duration),
    /// Until a clock shows a time: made again as it was.
    Absolute,
    /// As long as it takes: made again as it was.
    Endless,
}

/// Where a call keeps its timeout.
#[derive(Clone, Copy)]
enum Keeps {
    /// Milliseconds as an `int`; negative is endless.
    Milliseconds(u8),
    /// A pointer to a `struct timespec`; NULL is endless.
    Timespec(u8),
    /// A pointer to a `struct timeval`; NULL is endless.
    Timeval(u8),
    Absolute,
}

const TIMER_ABSTIME: u64 = 1;
const NANOSECONDS: u64 = 1_000_000_000;
const MICROSECONDS: u64 = 1_000_000;

fn keeps(number: u32, arguments: &Arguments) -> Option<Keeps> {
    Some(match number {
        7 => Keeps::Milliseconds(2),         // poll
        232 | 281 => Keeps::Milliseconds(3), // epoll_wait, epoll_pwait
        23 => Keeps::Timeval(4),             // select
        270 => Keeps::Timespec(4),           // pselect6
        271 => Keeps::Timespec(2),           // ppoll
        441 => Keeps::Timespec(3),           // epoll_pwait2
        35 => Keeps::Timespec(0),            // nanosleep
        230 if arguments[1] & TIMER_ABSTIME != 0 => Keeps::Absolute,
        230 => Keeps::Timespec(2),    // clock_nanosleep
        128 => Keeps::Timespec(2),    // rt_sigtimedwait
        220 => Keeps::Timespec(3),    // semtimedop
        299 => Keeps::Timespec(4),    // recvmmsg
        242 | 243 => Keeps::Absolute, // mq_timedsend, mq_timedreceive
        _ => return None,
    })
}

/// The limit on this call's wait; None if it has none that could be read.
pub fn timeout(number: u32, arguments: &Arguments, segments: &[Segment]) -> Option<Timeout> {
    let (index, fraction, per_second) = match keeps(number, arguments)? {
        Keeps::Absolute => return Some(Timeout::Absolute),
        Keeps::Milliseconds(index) => {
            let milliseconds = arguments[usize::from(index)] as u32 as i32;
            return Some(match u64::try_from(milliseconds) {
                Ok(milliseconds) => Timeout::Relative(Duration::from_millis(milliseconds)),
                Err(_) => Timeout::Endless,
            });
        }
        Keeps::Timespec(index) => (index, 1, NANOSECONDS),
        Keeps::Timeval(index) => (index, NANOSECONDS / MICROSECONDS, MICROSECONDS),
    };
    if arguments[usize::from(index)] == 0 {
        return Some(Timeout::Endless);
    }
    let segment = segments.iter().find(|segment| segment.place == Place::Argument(index))?;
    let field = |offset: usize| -> Option<u64> {
        let bytes = segment.data.get(offset..offset + 8)?.try_into().ok()?;
        u64::try_from(i64::from_le_bytes(bytes)).ok()
    };
    let (seconds, part) = (field(0)?, field(8)?);
    // Linux refuses a timespec with more, and carries a timeval's over.
    let carried = seconds.checked_add(part / per_second)?;
    Some(Timeout::Relative(Duration::new(carried, (part % per_second * fraction) as u32)))
}

/// Makes a relative timeout say `left`. Nothing changes for a call without one.
pub fn with_remaining(call: &mut Call, left: Duration) {
    let Some(Timeout::Relative(_)) = timeout(call.number, &call.arguments, &call.segments) else {
        return;
    };
    let (index, part) = match keeps(call.number, &call.arguments) {
        Some(Keeps::Milliseconds(index)) => {
            // Rounded up: a wait that ends early would surprise more than one that ends late.
            let milliseconds = left.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128);
            call.arguments[usize::from(index)] = milliseconds as u64;
            return;
        }
        Some(Keeps::Timespec(index)) => (index, u64::from(left.subsec_nanos())),
        Some(Keeps::Timeval(index)) => (index, u64::from(left.subsec_micros())),
        Some(Keeps::Absolute) | None => return,
    };
    let place = Place::Argument(index);
    if let Some(segment) = call.segments.iter_mut().find(|segment| segment.place == place)
        && let Some(bytes) = segment.data.get_mut(..16)
    {
        bytes[..8].copy_from_slice(&left.as_secs().to_le_bytes());
        bytes[8..].copy_from_slice(&part.to_le_bytes());
    }
}
