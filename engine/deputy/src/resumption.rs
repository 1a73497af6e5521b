//! What becomes of the calls that were in flight when the body came home.

use crate::homecoming::live_slot_of;
use crate::in_flight::remaining;
use crate::service::Service;
use crate::settling::Settled;
use kernel::proc::sleep;
use kernel::regs::{
    ERESTART_RESTARTBLOCK, ERESTARTNOHAND, ERESTARTNOINTR, ERESTARTSYS, REGISTER_WORDS, Registers,
};
use kernel::tracee::SIGINFO_BYTES;
use migrate::Result;
use std::collections::HashMap;
use std::time::Duration;
use wire::calls;
use wire::forward::{Call, Reply, Signal};
use wire::image::{self, Image};
use wire::supervisor::Wait;

/// A signal that waits for its thread: local thread, number, siginfo.
pub type Held = (i32, i32, [u8; SIGINFO_BYTES]);

/// How the thread's call stood when the body came home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was over, or none was made.
    Settled,
    /// We interrupted it: it goes on natively, after having waited this long. A kept one has slept
    /// here since before the process left.
    Interrupted { waited: Duration, is_kept: bool },
}

/// How a thread goes on.
pub struct Resumption {
    pub registers: Registers,
    /// It sleeps against a deadline that has to be set anew: what is left.
    pub sleep: Option<Duration>,
}

/// Finds out, for every thread, how it goes on; writes the results of calls that ended meanwhile.
pub fn resolve_calls(
    service: &Service<'_>,
    image: &Image,
    settled: &HashMap<usize, Settled>,
    held: &[Held],
) -> Result<HashMap<usize, Resumption>> {
    let lanes = &service.shared.lanes;
    let mut plan = HashMap::new();
    for thread in &image.threads {
        let Some(slot) = live_slot_of(service, thread) else { continue };
        let mut words = [0; REGISTER_WORDS];
        words.copy_from_slice(&thread.registers);
        let mut resumption = Resumption { registers: Registers::from_words(words), sleep: None };
        let (tid, answered) = {
            let lane = lanes.lock(slot);
            (lane.tid, lane.answered.clone())
        };
        let has_signal = !thread.signals.is_empty()
            || !unseen_signals(service, slot, thread).is_empty()
            || held.iter().any(|(holder, _, _)| *holder == tid);
        let outcome = settled.get(&slot).map_or(Outcome::Settled, |settled| settled.outcome);
        let is_futex_wait = resumption.registers.rax == libc::SYS_futex as u64;
        if let Some(until_ns) = thread.wait_until_ns.filter(|_| is_futex_wait) {
            let now_ns = migrate::time::now().monotonic_ns as u64;
            resumption.sleep = Some(Duration::from_nanos(until_ns.saturating_sub(now_ns)));
        }
        if let (Some(in_flight), Some((call, reply))) = (&thread.in_flight, &answered)
            && in_flight.sequence == reply.sequence
        {
            let mut reply = reply.clone();
            if let (ERESTARTNOINTR, Some(result)) = (reply.result, thread.interrupted) {
                reply.result = result;
            }
            resolve(service, call, &reply, outcome, has_signal, &mut resumption);
        } else if let Some(result) = thread.interrupted {
            resume_interrupted(&mut resumption.registers, result, has_signal);
        }
        plan.insert(slot, resumption);
    }
    Ok(plan)
}

/// Brings one thread, which stands in front of its call, to where the call has left it.
fn resolve(
    service: &Service<'_>,
    call: &Call,
    reply: &Reply,
    outcome: Outcome,
    has_signal: bool,
    resumption: &mut Resumption,
) {
    let registers = &mut resumption.registers;
    let number = i64::from(call.number);
    let is_made_again = [libc::SYS_rt_sigprocmask, libc::SYS_clone].contains(&number);
    if registers.rax != u64::from(call.number) || is_made_again {
        // rt_sigreturn and rt_sigprocmask are made again: their mask is set from the image. So is a
        // call that made a thread, which has never begun.
        return;
    }
    let is_written = write_outputs(service, call, reply);
    let is_restart = (ERESTART_RESTARTBLOCK..=ERESTARTSYS).contains(&reply.result);
    let is_idle_eintr = reply.result == -i64::from(libc::EINTR)
        && calls::eintr_after_stop(call.number)
        && !has_signal;
    match outcome {
        // The kernel itself puts the thread back in front of the call when it resumes, unless a
        // signal comes that has to end it.
        Outcome::Interrupted { waited, is_kept } if is_restart && !has_signal => match reply.result
        {
            ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => registers.interrupt(reply.result),
            // One that slept here all along has its own restart block still, with the guest's own
            // pointers; any other gets one.
            _ if is_kept => registers.interrupt(reply.result),
            _ => resumption.sleep = remaining(call, waited),
        },
        Outcome::Interrupted { waited, .. } if is_idle_eintr => {
            let mut arguments = registers.arguments();
            crate::in_flight::shorten(call, waited, &mut arguments);
            let [rdi, rsi, rdx, r10, r8, r9] = arguments;
            *registers = Registers { rdi, rsi, rdx, r10, r8, r9, ..*registers };
        }
        _ if is_restart => registers.interrupt(reply.result),
        _ if !is_written => registers.complete(-i64::from(libc::EFAULT)),
        _ => registers.complete(reply.result),
    }
}

/// A thread that had not come back to a call that it was interrupted in.
fn resume_interrupted(registers: &mut Registers, result: i64, has_signal: bool) {
    match result {
        ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => registers.interrupt(result),
        // A handler is due: Linux ends the call for it. Without one the call is made again.
        _ if has_signal => registers.complete(-i64::from(libc::EINTR)),
        _ => {}
    }
}

fn write_outputs(service: &Service<'_>, call: &Call, reply: &Reply) -> bool {
    let memory = &service.shared.lanes.memory;
    calls::apply(&call.segments, &reply.outputs).is_ok_and(|writes| {
        writes.into_iter().all(|(at, bytes)| memory.write_as_guest(at.0, bytes) == bytes.len())
    })
}

/// Signals that were on their way to the body when it had its image taken.
pub fn unseen_signals(service: &Service<'_>, slot: usize, thread: &image::Thread) -> Vec<Signal> {
    let lane = service.shared.lanes.lock(slot);
    let is_unseen = |signal: &&Signal| signal.index > thread.signals_seen;
    lane.signals_unseen.iter().filter(is_unseen).cloned().collect()
}

/// The threads that go back to sleep in a restarted call.
pub fn waits_of(
    service: &Service<'_>,
    image: &Image,
    plan: &HashMap<usize, Resumption>,
) -> Vec<Wait> {
    let wait_of = |thread: &image::Thread| {
        let resumption = plan.get(&service.shared.lanes.slot_of(thread.tid)?)?;
        let registers = &resumption.registers;
        let number = match (resumption.sleep, registers.interrupted_call()) {
            (Some(_), _) => u32::try_from(registers.rax).ok()?,
            (None, Some(number)) if registers.result() == ERESTART_RESTARTBLOCK => number,
            // Made again as it was, because its timeout lies in the guest's memory.
            (None, None) if thread.wait_until_ns.is_some() => u32::try_from(registers.rax).ok()?,
            _ => return None,
        };
        let until_ns = thread.wait_until_ns;
        let argument = registers.rdi;
        Some(Wait { tid: thread.tid, number, argument, until_ns, sleeps: None })
    };
    image.threads.iter().filter_map(wait_of).collect()
}

/// Notes how often the threads, which stand ready to be let go, will have gone to sleep then.
pub fn count_sleeps(service: &Service<'_>, waits: &mut [Wait]) {
    let lanes = &service.shared.lanes;
    for wait in waits {
        let tid = lanes.slot_of(wait.tid).map(|slot| lanes.lock(slot).tid);
        let count = tid.and_then(|tid| sleep::count(service.pid, tid));
        wait.sleeps = count.map(|count| count + 1);
    }
}
