//! The first step of a homecoming: every thread of the deputy leaves what it does for its body, and
//! how it stood is remembered, to go on natively or, should the homecoming fail, as before.

use crate::homecoming::Homecoming;
use crate::lanes::{Place, Work, plain_reply};
use crate::new_threads::led_by_ptrace;
use crate::resumption::{Held, Outcome};
use crate::service::Service;
use kernel::agent::Position;
use kernel::proc::process;
use kernel::regs::ERESTARTNOINTR;
use kernel::tracee::{self, Stop};
use migrate::threads;
use migrate::worker::go_on;
use migrate::{MigrateError, Result};
use std::time::Instant;

/// What a thread was made to leave for the homecoming.
pub struct Settled {
    pub outcome: Outcome,
    /// What the thread blocked.
    pub mask: u64,
    /// The call that was cut short, and is the lane's last answered one: since when it was made,
    /// and where its memory is.
    pub cut: Option<(Instant, Place)>,
}

impl Homecoming {
    /// Ends what the threads are doing, remembering how it stood; afterwards all wait in the agent
    /// with every signal blocked.
    pub fn settle_lanes(&mut self, service: &Service<'_>) -> Result<()> {
        let lanes = &service.shared.lanes;
        let (exiting, serving): (Vec<usize>, Vec<usize>) =
            lanes.live_slots().into_iter().partition(|slot| lanes.is_exiting(*slot));
        exiting.into_iter().try_for_each(|slot| await_exit(service, slot))?;
        let busy = |slot: &usize| match &lanes.lock(*slot).work {
            Work::Busy { since, place, .. } => Some((*since, *place)),
            _ => None,
        };
        let busy: Vec<_> = serving.iter().map(busy).collect();
        let tids: Vec<i32> = serving.iter().map(|slot| lanes.lock(*slot).tid).collect();
        let halts = stop_each(service.pid, &tids, &mut self.held)?;
        self.stopped.extend(&serving);
        // All of them, whatever fails: what stands stopped is taken back as one that had no call.
        let mut outcome = Ok(());
        for ((slot, busy), halt) in serving.iter().zip(busy).zip(halts) {
            outcome = outcome.and(self.settle_lane(service, *slot, busy, &halt));
        }
        for slot in serving.iter().rev().filter(|slot| !self.stopped.contains(slot)) {
            if matches!(lanes.lock(*slot).work, Work::Busy { .. }) {
                service.worker(*slot).await_done()?;
                lanes.complete(*slot);
            }
        }
        outcome
    }

    /// Has a stopped thread go back into the agent; `busy` is the call that it was making.
    fn settle_lane(
        &mut self,
        service: &Service<'_>,
        slot: usize,
        busy: Option<(Instant, Place)>,
        Halt { has_signal, mask, .. }: &Halt,
    ) -> Result<()> {
        let tid = service.shared.lanes.lock(slot).tid;
        let (has_signal, mask) = (*has_signal, *mask);
        let untouched = Settled { outcome: Outcome::Settled, mask, cut: None };
        self.settled.insert(slot, untouched);
        let is_cut = cut_short(service, slot, has_signal)?;
        let cut = busy.filter(|_| is_cut);
        let outcome = match cut.filter(|_| !has_signal) {
            Some((since, place)) => {
                Outcome::Interrupted { waited: since.elapsed(), is_kept: place == Place::Guest }
            }
            None => Outcome::Settled,
        };
        self.settled.insert(slot, Settled { outcome, mask, cut });
        tracee::set_signal_mask(tid, u64::MAX)?;
        tracee::resume(tid, 0)?;
        self.stopped.remove(&slot);
        Ok(())
    }

    /// Remembers the memory that a deputy has of its own, should it have to be one again: what `ps`
    /// reads of it, and what the calls in which it sleeps will read and write.
    pub fn keep_own_memory(&mut self, service: &Service<'_>) -> Result<()> {
        let lanes = &service.shared.lanes;
        let shown = shown_memory(service.pid)?;
        let mut wanted = vec![(shown.start, shown.end.saturating_sub(shown.start))];
        for (slot, settled) in &self.settled {
            if let (Some((_, Place::Guest)), Some((call, _))) =
                (settled.cut, &lanes.lock(*slot).answered)
            {
                wanted.extend(call.segments.iter().map(|s| (s.guest.0, u64::from(s.length))));
            }
        }
        for (address, length) in wanted {
            let mut bytes = vec![0; length.min(OWN_MEMORY_BYTES_MAX) as usize];
            let count = lanes.memory.read_some(address, &mut bytes);
            bytes.truncate(count);
            self.own_memory.push((address, bytes));
        }
        Ok(())
    }
}

/// Linux takes no more for arguments and environment than 6 MiB (execve(2)).
const OWN_MEMORY_BYTES_MAX: u64 = 6 << 20;

/// Where a process's arguments and environment lie, which `ps` reads.
pub fn shown_memory(pid: i32) -> Result<std::ops::Range<u64>> {
    let layout_words = process::stat(&pid.to_string())?.layout;
    Ok(layout_words[ARGUMENTS_BEGIN]..layout_words[ENVIRONMENT_END])
}

/// Positions in the words of `struct prctl_mm_map`.
const ARGUMENTS_BEGIN: usize = 7;
const ENVIRONMENT_END: usize = 10;

/// Ends the call of a stopped thread as the stop left it. True if it was not over.
fn cut_short(service: &Service<'_>, slot: usize, has_signal: bool) -> Result<bool> {
    let lanes = &service.shared.lanes;
    let mut lane = lanes.lock(slot);
    let tid = lane.tid;
    let mut registers = tracee::registers(tid)?;
    let is_cut = match lanes.agent.position(&registers, slot) {
        Position::InCall(code) => {
            lanes.agent.conclude(&mut registers, code);
            true
        }
        Position::BeforeCall => {
            lanes.agent.conclude(&mut registers, ERESTARTNOINTR);
            true
        }
        Position::Idle if is_not_begun(&lane.work, || lanes.agent.withdraw(slot)) => {
            if let Work::Busy { call, .. } = std::mem::replace(&mut lane.work, Work::Idle) {
                let reply = plain_reply(&call, ERESTARTNOINTR);
                lane.answered = Some((call, reply));
            }
            true
        }
        // Linux ends some calls with EINTR for the stop alone.
        Position::AfterCall => registers.result() == -i64::from(libc::EINTR) && !has_signal,
        Position::Idle => false,
        Position::Elsewhere => {
            return Err(MigrateError::Protocol(format!("thread {tid} is not in the agent")));
        }
    };
    tracee::set_registers(tid, &registers)?;
    Ok(is_cut)
}

/// Whether a thread in the agent has not begun its call, and will not: it was not handed it, or it
/// can be taken back (`withdraw`).
fn is_not_begun(work: &Work, withdraw: impl FnOnce() -> bool) -> bool {
    match work {
        Work::Busy { call, .. } => led_by_ptrace(call).is_some() || withdraw(),
        _ => false,
    }
}

/// Waits for a thread that is executing exit(2).
fn await_exit(service: &Service<'_>, slot: usize) -> Result<()> {
    let lanes = &service.shared.lanes;
    let tid = lanes.lock(slot).tid;
    // The first thread's end is not reported while others live.
    let mut is_waiting = tid != service.pid;
    while is_waiting {
        match tracee::wait(tid)? {
            Stop::Ended(_) => is_waiting = false,
            stop => go_on(tid, stop)?,
        }
    }
    lanes.lock(slot).work = Work::Gone;
    Ok(())
}

/// How a thread of the deputy stood when it was stopped.
pub struct Halt {
    /// It was about to get a signal, which is held.
    pub has_signal: bool,
    /// What it blocked.
    pub mask: u64,
    /// Job control has stopped the process, and has not continued it.
    pub is_held: bool,
}

/// Stops a thread of the deputy; a signal that it was about to get is held, if it does anything.
pub fn stop(tid: i32, held: &mut Vec<Held>) -> Result<Halt> {
    tracee::interrupt(tid)?;
    await_halt(tid, tracee::wait, held)
}

/// Stops several threads of the process `pid` likewise, all at the same time.
pub fn stop_each(pid: i32, tids: &[i32], held: &mut Vec<Held>) -> Result<Vec<Halt>> {
    tids.iter().try_for_each(|tid| tracee::interrupt(*tid))?;
    // That of the first thread last: its end is reported when that of the others was.
    let mut order: Vec<usize> = (0..tids.len()).collect();
    order.sort_by_key(|at| tids[*at] == pid);
    let mut halts: Vec<Option<Halt>> = tids.iter().map(|_| None).collect();
    for at in order {
        let wait = if tids[at] == pid { tracee::wait } else { tracee::wait_other };
        halts[at] = Some(await_halt(tids[at], wait, held)?);
    }
    Ok(halts.into_iter().flatten().collect())
}

fn await_halt(
    tid: i32,
    wait: fn(i32) -> kernel::Result<Stop>,
    held: &mut Vec<Held>,
) -> Result<Halt> {
    let mut before_signal = None;
    loop {
        match wait(tid)? {
            by @ (Stop::Interrupted | Stop::Group(_)) => {
                let mask = before_signal.map_or_else(|| tracee::signal_mask(tid), Ok)?;
                let is_held = matches!(by, Stop::Group(_));
                return Ok(Halt { has_signal: before_signal.is_some(), mask, is_held });
            }
            Stop::Ended(status) => return Err(MigrateError::Ended(status)),
            Stop::Event(tracee::EXEC_EVENT) => return Err(MigrateError::BeganProgram),
            Stop::Signal(number) if number == libc::SIGSTOP => {
                tracee::resume_interrupted(tid, number)?;
            }
            // The kernel would drop it here, were we not there.
            Stop::Signal(number) if threads::ignores(tid, number) => {
                tracee::resume_interrupted(tid, 0)?;
            }
            Stop::Signal(number) => {
                // No further one; and on to the stop that we asked for, else it would come later.
                held.push((tid, number, tracee::signal_info(tid)?));
                before_signal.get_or_insert(tracee::signal_mask(tid)?);
                tracee::set_signal_mask(tid, u64::MAX)?;
                tracee::resume_interrupted(tid, 0)?;
            }
            _ => tracee::resume_interrupted(tid, 0)?,
        }
    }
}
