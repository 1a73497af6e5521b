//! Waits that are limited relative to their beginning, and are made again elsewhere: for the rest
//! of their time, which only the kernel that they began under could tell.

use kernel::memory::Memory;
use kernel::proc::process;
use kernel::proc::sleep::{self, Sleep};
use std::collections::HashMap;
use std::time::Duration;
use wire::calls::{self, Timeout};

const FUTEX: i64 = libc::SYS_futex;
/// FUTEX_WAIT without its flags; FUTEX_WAIT_BITSET waits until a moment.
const FUTEX_COMMAND_MASK: u64 = 127;
const FUTEX_WAIT: u64 = 0;

/// The sleeps in such waits of a process that runs.
pub fn sample(pid: i32) -> migrate::Result<HashMap<i32, Sleep>> {
    let is_limited = |tid: &i32| sleep::sleeping_call(pid, *tid).is_some_and(may_be_limited);
    let sleepers: Vec<i32> = process::threads(pid)?.into_iter().filter(is_limited).collect();
    Ok(sleep::sleeps(pid, &sleepers))
}

/// Calls that do not tell what is left of their time when a stop interrupts them. Of the others,
/// poll(2) and sleeps stay with their kernel, and select(2) and its like tell.
fn may_be_limited(number: u32) -> bool {
    matches!(
        i64::from(number),
        FUTEX
            | libc::SYS_epoll_wait
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2
            | libc::SYS_semtimedop
            | libc::SYS_rt_sigtimedwait
    )
}

/// How long this call was to wait at most.
pub fn limit(number: u32, arguments: &[u64; 6], memory: &Memory) -> Option<Duration> {
    let place = match i64::from(number) {
        FUTEX if arguments[1] & FUTEX_COMMAND_MASK == FUTEX_WAIT => arguments[3],
        libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => arguments[3],
        libc::SYS_rt_sigtimedwait => arguments[2],
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => {
            return match calls::timeout(number, arguments, &[]) {
                Some(Timeout::Relative(length)) => Some(length),
                _ => None,
            };
        }
        _ => return None,
    };
    let mut time = [0; 16];
    if place == 0 || memory.read_some(place, &mut time) != time.len() {
        return None;
    }
    let word = |i: usize| u64::from_le_bytes(time[i..i + 8].try_into().unwrap_or_default());
    Some(Duration::new(word(0), u32::try_from(word(8)).ok().filter(|ns| *ns < 1_000_000_000)?))
}
