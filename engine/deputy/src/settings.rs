//! What a frozen process has set for itself, and only its own calls can tell: dispositions of
//! signals, limits, timers, the program break.

use crate::processor_time::{self, TOLD_BYTES, Whose};
use kernel::agent::BatchCall;
use kernel::signal::{ACTION_BYTES, Action, SIGNAL_MAX};
use migrate::worker::Worker;
use migrate::{MigrateError, Result};
use wire::processor_time::{Clock, PastClock};

/// What it does about each signal.
pub fn actions(worker: &Worker<'_>) -> Result<Vec<Action>> {
    let agent = worker.agent;
    let staging = agent.staging_address(0);
    let calls: Vec<BatchCall> = (1..=SIGNAL_MAX as u64)
        .map(|signal| {
            let place = staging + (signal - 1) * ACTION_BYTES as u64;
            BatchCall::new(libc::SYS_rt_sigaction, [signal, 0, place, 8, 0, 0])
        })
        .collect();
    worker.execute_all("read signal dispositions", &calls)?;
    let mut bytes = vec![0; SIGNAL_MAX as usize * ACTION_BYTES];
    agent.read_staging(0, 0, &mut bytes);
    Ok(bytes.chunks(ACTION_BYTES).filter_map(Action::decode).collect())
}

/// The program break, the stack limit and the processor clock; refuses running timers on
/// processor time.
pub fn process(worker: &Worker<'_>, pasts: &[PastClock]) -> Result<(u64, (u64, u64), Clock)> {
    let agent = worker.agent;
    let staging = agent.staging_address(0);
    let stack = [0, u64::from(libc::RLIMIT_STACK), 0, staging, 0, 0];
    let timer = |which: i32, at: u64| {
        BatchCall::new(libc::SYS_getitimer, [which as u64, staging + at, 0, 0, 0, 0])
    };
    let [usage, time] = processor_time::tell_calls(Whose::Process, staging + 96);
    let calls = [
        BatchCall::new(libc::SYS_brk, [0; 6]),
        BatchCall::new(libc::SYS_prlimit64, stack),
        timer(libc::ITIMER_VIRTUAL, 32),
        timer(libc::ITIMER_PROF, 64),
        usage,
        time,
    ];
    let results = worker.execute(&calls)?;
    let mut bytes = [0; 96 + TOLD_BYTES];
    agent.read_staging(0, 0, &mut bytes);
    let word = |i: usize| u64::from_le_bytes(bytes[i..i + 8].try_into().unwrap_or_default());
    if bytes[32 + 16..64].iter().chain(&bytes[64 + 16..96]).any(|byte| *byte != 0) {
        let text = "it has a timer on processor time (setitimer) running";
        return Err(MigrateError::refused("cpu-timer", text));
    }
    let past = processor_time::past_of_process(pasts);
    let clock = processor_time::told(&bytes[96..], past);
    Ok((results[0] as u64, (word(0), word(8)), clock))
}

/// What the process may have of memory; elsewhere it has no more.
pub fn memory_limits(worker: &Worker<'_>) -> Result<(u64, u64)> {
    let agent = worker.agent;
    let staging = agent.staging_address(0);
    let limit = |resource: u32, at: u64| {
        BatchCall::new(libc::SYS_prlimit64, [0, u64::from(resource), 0, staging + at, 0, 0])
    };
    let calls = [limit(libc::RLIMIT_AS, 0), limit(libc::RLIMIT_DATA, 16)];
    worker.execute_all("read memory limits", &calls)?;
    let mut bytes = [0; 32];
    agent.read_staging(0, 0, &mut bytes);
    let word = |i: usize| u64::from_le_bytes(bytes[i..i + 8].try_into().unwrap_or_default());
    Ok((word(0), word(16)))
}
