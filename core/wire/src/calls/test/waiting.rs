//! Timeouts and temporary masks of calls that wait.

use super::{Memory, WRITABLE, call, number};
use crate::calls::{
    Met, Timeout, eintr_after_stop, has_temporary_mask, marshal, met_by_handler, timeout,
    with_remaining,
};
use crate::forward::Call;
use std::time::Duration;

fn waiting(name: &str, arguments: [u64; 6], memory: &Memory) -> Call {
    let number = number(name);
    let marshalled = marshal(number, &arguments, memory).expect("it travels");
    call(number, marshalled.arguments, marshalled.segments)
}

fn limit(call: &Call) -> Option<Timeout> {
    timeout(call.number, &call.arguments, &call.segments)
}

fn memory_with_time(seconds: i64, part: i64) -> Memory {
    let mut memory = Memory::new(0);
    memory.put(WRITABLE, &seconds.to_le_bytes());
    memory.put(WRITABLE + 8, &part.to_le_bytes());
    memory
}

#[test]
fn milliseconds_shrink_and_round_up() {
    let memory = Memory::new(0);
    let mut poll = waiting("poll", [WRITABLE, 1, 5000, 0, 0, 0], &memory);
    assert_eq!(limit(&poll), Some(Timeout::Relative(Duration::from_secs(5))));
    with_remaining(&mut poll, Duration::from_micros(1500));
    assert_eq!(poll.arguments[2], 2);

    let forever = u64::from(u32::MAX);
    let mut endless = waiting("epoll_wait", [3, WRITABLE, 1, forever, 0, 0], &memory);
    assert_eq!(limit(&endless), Some(Timeout::Endless));
    with_remaining(&mut endless, Duration::from_secs(1));
    assert_eq!(endless.arguments[3], forever);
}

#[test]
fn timespecs_and_timevals_shrink() {
    let memory = memory_with_time(2, 500);
    let left = Duration::new(1, 7000);
    for (name, arguments, index, part, first) in [
        ("nanosleep", [WRITABLE, 0, 0, 0, 0, 0], 0, 7000_u64, Duration::new(2, 500)),
        ("clock_nanosleep", [1, 0, WRITABLE, 0, 0, 0], 0, 7000, Duration::new(2, 500)),
        ("ppoll", [0, 0, WRITABLE, 0, 8, 0], 0, 7000, Duration::new(2, 500)),
        ("pselect6", [0, 0, 0, 0, WRITABLE, 0], 0, 7000, Duration::new(2, 500)),
        ("select", [0, 0, 0, 0, WRITABLE, 0], 0, 7, Duration::new(2, 500_000)),
    ] {
        let mut call = waiting(name, arguments, &memory);
        assert_eq!(limit(&call), Some(Timeout::Relative(first)), "{name}");
        with_remaining(&mut call, left);
        let data = &call.segments[index].data;
        assert_eq!(data[..8], 1_u64.to_le_bytes(), "{name}");
        assert_eq!(data[8..16], part.to_le_bytes(), "{name}");
    }
}

#[test]
fn absolute_and_endless_waits_are_left_alone() {
    let memory = memory_with_time(2, 500);
    let mut absolute = waiting("clock_nanosleep", [1, 1, WRITABLE, 0, 0, 0], &memory);
    assert_eq!(limit(&absolute), Some(Timeout::Absolute));
    let before = absolute.clone();
    with_remaining(&mut absolute, Duration::from_secs(1));
    assert_eq!(absolute, before);
    let endless = waiting("ppoll", [0, 0, 0, 0, 8, 0], &memory);
    assert_eq!(limit(&endless), Some(Timeout::Endless));
    let read = waiting("read", [3, WRITABLE, 8, 0, 0, 0], &memory);
    assert_eq!(limit(&read), None);
    // Linux refuses a negative time; nothing here computes with it.
    let negative = memory_with_time(-1, 0);
    assert_eq!(limit(&waiting("nanosleep", [WRITABLE, 0, 0, 0, 0, 0], &negative)), None);
}

#[test]
fn temporary_masks_are_found() {
    let mut memory = Memory::new(0);
    let mask = 0x1234_u64;
    memory.put(WRITABLE, &mask.to_le_bytes());
    memory.put(WRITABLE + 64, &WRITABLE.to_le_bytes());
    memory.put(WRITABLE + 72, &8_u64.to_le_bytes());
    let found = |name: &str, arguments: [u64; 6]| {
        let call = waiting(name, arguments, &memory);
        has_temporary_mask(call.number, &call.arguments, &call.segments)
    };
    let set = WRITABLE + 256;
    assert_eq!(found("rt_sigsuspend", [WRITABLE, 8, 0, 0, 0, 0]), Some(mask));
    assert_eq!(found("ppoll", [0, 0, 0, WRITABLE, 8, 0]), Some(mask));
    assert_eq!(found("ppoll", [0, 0, 0, 0, 8, 0]), None);
    assert_eq!(found("epoll_pwait", [3, set, 1, 0, WRITABLE, 8]), Some(mask));
    assert_eq!(found("pselect6", [9, set, 0, 0, 0, WRITABLE + 64]), Some(mask));
    assert_eq!(found("pselect6", [9, set, 0, 0, 0, 0]), None);
    assert_eq!(found("rt_sigtimedwait", [WRITABLE, 0, 0, 8, 0, 0]), None);
}

#[test]
fn calls_that_a_stop_interrupts_are_known() {
    for name in ["epoll_wait", "epoll_pwait", "epoll_pwait2", "semop", "rt_sigtimedwait"] {
        assert!(eintr_after_stop(number(name)), "{name}");
    }
    for name in ["poll", "nanosleep", "pause", "close", "rt_sigsuspend", "wait4"] {
        assert!(!eintr_after_stop(number(name)), "{name}");
    }
}

#[test]
fn only_calls_that_wait_are_ended_by_a_signal_that_meets_them_at_their_begin() {
    let met = |name, arguments: [u64; 4]| {
        let [first, second, third, fourth] = arguments;
        met_by_handler(number(name), &[first, second, third, fourth, 0, 0])
    };
    for name in ["pause", "rt_sigtimedwait", "select", "msgrcv"] {
        assert_eq!(met(name, [0; 4]), Met::Interrupted, "{name}");
    }
    for (name, at) in [("poll", 2), ("epoll_wait", 3), ("epoll_pwait", 3)] {
        let mut arguments = [0; 4];
        assert_eq!(met(name, arguments), Met::MadeAgain, "{name} only looks");
        arguments[at] = u64::from(u32::MAX);
        assert_eq!(met(name, arguments), Met::Interrupted, "{name}");
    }
    for (name, at) in [("wait4", 2), ("waitid", 3)] {
        let mut arguments = [0; 4];
        assert_eq!(met(name, arguments), Met::AsHandlerSays, "{name}");
        arguments[at] = 1;
        assert_eq!(met(name, arguments), Met::MadeAgain, "{name} only looks");
    }
    // F_SETLKW, F_OFD_SETLKW; F_SETLK
    let of_lock = |command| met("fcntl", [3, command, 0, 0]);
    assert_eq!(of_lock(7), Met::AsHandlerSays);
    assert_eq!(of_lock(38), Met::AsHandlerSays);
    assert_eq!(of_lock(6), Met::MadeAgain);
    for name in ["getppid", "timer_settime", "read", "write", "openat", "nanosleep"] {
        assert_eq!(met(name, [0; 4]), Met::MadeAgain, "{name}");
    }
}
