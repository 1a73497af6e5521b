//! A supervisor comes before what its node runs itself only as long as it works little.
//!
//! Where the daemon may, it gives its supervisors a better nice value than all programs have:
//! others wait for what they do. But what a body's supervisor does is what the guest asks for, and
//! a guest that asks without end would take a processor from the programs of the node's owner. So
//! it has precedence for half a second of processor time in five; from then on it competes like the
//! guest itself, until it has been calm for a while.

use crate::state::Shared;
use kernel::proc::process;
use kernel::tracee;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use std::time::{Duration, Instant};

/// What a supervisor may use with precedence, and in which time at least: the first is more than
/// most moves take.
const BUDGET: Duration = Duration::from_millis(500);
const PERIOD: Duration = Duration::from_secs(5);
/// Between two looks at one that has used too much.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// One that has used less than this between two looks is calm.
const CALM: Duration = Duration::from_millis(50);

/// Watches this process until it ends.
pub fn watch(shared: &Shared) {
    let Ok(precedence) = tracee::nice(0) else { return };
    // One that stands back already, or as far as others do, takes nothing from anybody.
    if precedence >= 0 {
        return;
    }
    loop {
        await_use(BUDGET, PERIOD);
        set_nice(shared.lock().stands_back);
        await_calm();
        // It may not be allowed to any more. Then it stays as it is.
        set_nice(precedence);
    }
}

/// Returns when this process has used that much processor time within less than `period`. As long
/// as it uses none, nothing wakes up for this.
fn await_use(budget: Duration, period: Duration) {
    loop {
        let began = Instant::now();
        let clock = ClockId::CLOCK_PROCESS_CPUTIME_ID;
        if clock_nanosleep(clock, ClockNanosleepFlags::empty(), &budget.into()).is_err() {
            // Interrupted: what was used so far is forgiven. (Nothing signals this thread.)
            continue;
        }
        if began.elapsed() < period {
            return;
        }
    }
}

fn await_calm() {
    loop {
        let before = used();
        std::thread::sleep(LOOK_INTERVAL);
        if used().saturating_sub(before) < CALM {
            return;
        }
    }
}

/// Processor time of this process.
fn used() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Of all threads of this process.
fn set_nice(nice: i32) {
    let own = nix::unistd::getpid().as_raw();
    for tid in process::threads(own).unwrap_or_default() {
        if let Err(error) = tracee::set_nice(tid, nice) {
            ::tracing::debug!("{error}");
        }
    }
}
