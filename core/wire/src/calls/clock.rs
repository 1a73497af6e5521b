//! Clocks and timers. Wall clocks are equal in both halves (a body has home's offsets); processor
//! time is spent in both and counted at home; whatever waits or fires does so at home, where the
//! signals are.

use super::Arguments;
use super::argument::{Argument, V, input, output, remaining};
use super::table::{Class, Rule, Test};

const TIMESPEC: u32 = 16;
const ITIMERVAL: u32 = 32;

/// REALTIME, MONOTONIC, MONOTONIC_RAW, REALTIME_COARSE, MONOTONIC_COARSE, BOOTTIME, TAI.
const WALL_CLOCKS: &[u64] = &[0, 1, 4, 5, 6, 7, 11];
const PROCESS_CPUTIME: i32 = 2;
const THREAD_CPUTIME: i32 = 3;

/// A negative clock is a process's or thread's processor time, unless its low bits say that it is
/// a descriptor's (`CLOCKFD`).
fn is_cpu_clock(clock: i32) -> bool {
    matches!(clock, PROCESS_CPUTIME | THREAD_CPUTIME) || (clock < 0 && clock & 7 != 3)
}

pub(super) const CLOCK_GETTIME: Rule = Rule::LocalIf {
    alternatives: &[&[Test { argument: 0, mask: 0xffff_ffff, values: WALL_CLOCKS }]],
    otherwise: |arguments| {
        const FORM: &[Argument] = &[V, output(TIMESPEC)];
        match arguments[0] as i32 {
            // Time spent away cannot be added to what the kernel at home has counted, so a reading
            // that did add it would be followed by a smaller one at home: no clock may do that.
            clock if is_cpu_clock(clock) => Class::Homecoming("processor-time"),
            _ => Class::Forward(FORM),
        }
    },
    text: "wall clocks are local; processor time comes home; clocks of devices are forwarded",
};

pub(super) const CLOCK_GETRES: Rule = Rule::LocalIf {
    alternatives: &[&[Test {
        argument: 0,
        mask: 0xffff_ffff,
        values: &[0, 1, PROCESS_CPUTIME as u64, THREAD_CPUTIME as u64, 4, 5, 6, 7, 11],
    }]],
    otherwise: |arguments| unless_cpu_clock(arguments, const { &[V, output(TIMESPEC)] }),
    text: "local; another process's processor time comes home; clocks of devices are forwarded",
};

pub(super) const CLOCK_NANOSLEEP: Rule = Rule::Chosen {
    by: |arguments| {
        unless_cpu_clock(arguments, const { &[V, V, input(TIMESPEC), remaining(TIMESPEC)] })
    },
    text: "forwarded; processor time comes home",
};

pub(super) const TIMER_CREATE: Rule = Rule::Chosen {
    by: |arguments| unless_cpu_clock(arguments, const { &[V, input(64), output(4)] }),
    text: "forwarded; timers on processor time come home",
};

fn unless_cpu_clock(arguments: &Arguments, form: &'static [Argument]) -> Class {
    if is_cpu_clock(arguments[0] as i32) {
        Class::Homecoming("cpu-clock")
    } else {
        Class::Forward(form)
    }
}

/// ITIMER_VIRTUAL and ITIMER_PROF run on processor time.
fn unless_cpu_timer(arguments: &Arguments, form: &'static [Argument]) -> Class {
    match arguments[0] as i32 {
        1 | 2 => Class::Homecoming("cpu-timer"),
        _ => Class::Forward(form),
    }
}

pub(super) const GETITIMER: Rule = Rule::Chosen {
    by: |arguments| unless_cpu_timer(arguments, const { &[V, output(ITIMERVAL)] }),
    text: "ITIMER_REAL is forwarded; VIRTUAL and PROF come home",
};

pub(super) const SETITIMER: Rule = Rule::Chosen {
    by: |arguments| {
        unless_cpu_timer(arguments, const { &[V, input(ITIMERVAL), output(ITIMERVAL)] })
    },
    text: "ITIMER_REAL is forwarded; VIRTUAL and PROF come home",
};
