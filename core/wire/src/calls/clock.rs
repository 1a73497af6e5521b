//! Clocks and timers. Wall clocks are equal in both halves: a body has home's offsets, or its
//! supervisor adds them where no time namespace can. Processor time is spent in both and added up
//! by the body; whatever waits or fires does so at home, where the signals are.

use super::Arguments;
use super::argument::{Argument, V, input, output, remaining};
use super::table::{Class, Emulation, Rule, Test};

const TIMESPEC: u32 = 16;
const ITIMERVAL: u32 = 32;
const RUSAGE: u32 = 144;

/// REALTIME, MONOTONIC, MONOTONIC_RAW, REALTIME_COARSE, MONOTONIC_COARSE, BOOTTIME, TAI.
const WALL_CLOCKS: &[u64] = &[0, 1, 4, 5, 6, 7, 11];
const PROCESS_CPUTIME: i32 = 2;
const THREAD_CPUTIME: i32 = 3;

/// A negative clock is a process's or thread's processor time, unless its low bits say that it is
/// a descriptor's (`CLOCKFD`).
fn is_cpu_clock(clock: i32) -> bool {
    matches!(clock, PROCESS_CPUTIME | THREAD_CPUTIME) || (clock < 0 && clock & 7 != 3)
}

/// The precise ones: of the caller, or (negative, CPUCLOCK_SCHED) of any process or thread.
fn is_scheduler_clock(clock: i32) -> bool {
    matches!(clock, PROCESS_CPUTIME | THREAD_CPUTIME) || (clock < 0 && clock & 3 == 2)
}

pub(super) const CLOCK_GETTIME: Rule = Rule::LocalIf {
    alternatives: &[&[Test { argument: 0, mask: 0xffff_ffff, values: WALL_CLOCKS }]],
    otherwise: |arguments| {
        const FORM: &[Argument] = &[V, output(TIMESPEC)];
        match arguments[0] as i32 {
            clock if is_scheduler_clock(clock) => Class::Emulate(Emulation::ProcessorClock, FORM),
            // Clocks of user time, and of ticks, that no C library asks for.
            clock if is_cpu_clock(clock) => Class::Homecoming("cpu-clock"),
            _ => Class::Forward(FORM),
        }
    },
    text: "wall clocks are local; processor time is added up by the body; clocks of devices are \
           forwarded",
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

const RUSAGE_SELF: i32 = 0;
const RUSAGE_THREAD: i32 = 1;

pub(super) const GETRUSAGE: Rule = Rule::Chosen {
    by: |arguments| {
        const FORM: &[Argument] = &[V, output(RUSAGE)];
        match arguments[0] as i32 {
            RUSAGE_SELF | RUSAGE_THREAD => Class::Emulate(Emulation::ResourceUsage, FORM),
            _ => Class::Forward(FORM),
        }
    },
    text: "forwarded; the body adds the processor time used away, but not by children",
};
