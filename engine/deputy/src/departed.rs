//! The threads of a process that leaves: where each goes on, and what it leaves behind.

use crate::limited_sleep;
use crate::processor_time::{self, TOLD_BYTES, Whose};
use kernel::agent::{Agent, BatchCall};
use kernel::haste::Haste;
use kernel::memory::Memory;
use kernel::proc::process::ThreadStatus;
use kernel::proc::sleep::Sleep;
use kernel::regs::{ERESTART_RESTARTBLOCK, Registers};
use kernel::tracee;
use migrate::threads::{self, Interruption, Stopped};
use migrate::worker::{self, Worker};
use migrate::{MigrateError, Result, attributes};
use std::collections::HashMap;
use wire::ids::GuestTid;
use wire::image::{self, InFlight, Priority};
use wire::limits::THREADS_MAX;
use wire::processor::Processor;
use wire::processor_time::PastClock;
use wire::supervisor::Wait;

/// A thread as it left; its index is its slot.
pub struct DepartedThread {
    /// As it was stopped: to put it back.
    pub stopped: Stopped,
    /// The same, in front of the call that it has to make again: to go on elsewhere.
    settled: Registers,
    /// The result with which that call was interrupted.
    interrupted: Option<i64>,
    /// End of a wait that was restored here before, or that only we know the end of, on the
    /// monotonic clock.
    wait_until_ns: Option<u64>,
    /// The call that goes on sleeping here.
    pub kept: Option<InFlight>,
    /// The words of memory that such a call reads again when it is restarted.
    pub kept_memory: Option<(u64, Vec<u8>)>,
}

/// What a thread has told of itself: how its calls ended, and what they wrote.
pub struct Told {
    results: Vec<i64>,
    staging: [u8; TELLING_BYTES],
}

/// What the last supervisor of the process, when it came home, had to say to the next.
#[derive(Default)]
pub struct Remembered {
    /// Waits that threads were put back into.
    pub waits: Vec<Wait>,
    /// Processor clocks.
    pub clocks: Vec<PastClock>,
    /// What its program was told to keep to, if it was.
    pub baseline: Option<Processor>,
    /// It was started with a filter of ours.
    pub is_mobile: bool,
}

impl Remembered {
    /// Adds a part of the clocks; what no process has is left out.
    pub fn add_clocks(&mut self, part: Vec<PastClock>) {
        let room = (THREADS_MAX + 1).saturating_sub(self.clocks.len());
        self.clocks.extend(part.into_iter().filter(PastClock::is_plausible).take(room));
    }
}

/// What was known of sleeping threads before they were stopped.
pub struct Waiting {
    /// The call that each sleeps in.
    pub calls: HashMap<i32, u32>,
    /// Waits that threads were put back into when the process came home last.
    pub waits: Vec<Wait>,
    /// Since when those sleep that made theirs themselves.
    pub sleeps: HashMap<i32, Sleep>,
}

/// Where a thread stands that was stopped.
pub struct Standing {
    pub tid: i32,
    pub guest: GuestTid,
    pub registers: Registers,
    /// When the wait that it was stopped in ends, on the monotonic clock, if only we know that.
    pub until_ns: Option<u64>,
    /// How often it has gone to sleep so far, this stop included; only of one that is put back.
    pub sleeps: Option<u64>,
}

impl Standing {
    /// Of a thread that was only stopped.
    pub fn of(tid: i32, guest: GuestTid, registers: Registers) -> Standing {
        Standing { tid, guest, registers, until_ns: None, sleeps: None }
    }

    /// Whether it may have been stopped in a wait whose end only we know.
    pub fn may_end_by_our_word(registers: &Registers) -> bool {
        let cut = [ERESTART_RESTARTBLOCK, -i64::from(libc::EINTR)];
        registers.interrupted_call().is_some() && cut.contains(&registers.result())
    }

    /// The call that it makes again because Linux ended it for the stop.
    fn call_made_again(&self) -> Option<u32> {
        let is_ended = self.registers.result() == -i64::from(libc::EINTR);
        self.registers.interrupted_call().filter(|_| is_ended && self.until_ns.is_some())
    }
}

impl Waiting {
    /// The restored wait that the thread is still in, if it is in one.
    fn restored(&self, standing: &Standing) -> Option<&Wait> {
        let registers = &standing.registers;
        let is_restarted = registers.interrupted_call() == Some(threads::RESTART_SYSCALL)
            && registers.result() == ERESTART_RESTARTBLOCK;
        let is_same = |wait: &&Wait| wait.tid == standing.guest && wait.argument == registers.rdi;
        self.waits.iter().find(is_same).filter(|_| is_restarted)
    }

    /// The call behind a `restart_syscall`, if it can be known.
    fn call_behind(&self, standing: &Standing) -> Option<u32> {
        let restored = self.restored(standing).map(|wait| wait.number);
        restored.or_else(|| self.calls.get(&standing.tid).copied())
    }

    /// What the next supervisor must know of a thread that is put back without having left: it goes
    /// on in a call that now looks like any other restarted one.
    fn wait_of(&self, standing: &Standing) -> Option<Wait> {
        let registers = &standing.registers;
        let number = match registers.interrupted_call()? {
            _ if registers.result() != ERESTART_RESTARTBLOCK => standing.call_made_again()?,
            threads::RESTART_SYSCALL => self.call_behind(standing)?,
            number => number,
        };
        let known = self.restored(standing).and_then(|wait| wait.until_ns);
        Some(Wait {
            tid: standing.guest,
            number,
            argument: registers.rdi,
            until_ns: known.or(standing.until_ns),
            sleeps: standing.sleeps.map(|count| count + 1),
        })
    }

    /// All that is known of waits when a departure has failed.
    pub fn after_failure(self, threads: &[Standing]) -> Vec<Wait> {
        let mut waits: Vec<Wait> =
            threads.iter().filter_map(|thread| self.wait_of(thread)).collect();
        let is_told_anew = |wait: &Wait| threads.iter().any(|thread| thread.guest == wait.tid);
        waits.extend(self.waits.into_iter().filter(|wait| !is_told_anew(wait)));
        waits
    }

    /// When a wait ends that was restored here, or was made again because of a stop (signal(7)).
    fn end_of(&self, stopped: &Stopped, sleeps: u64, settled: &Registers) -> Option<u64> {
        let Stopped { tid, guest, registers, .. } = *stopped;
        // To stand stopped now is one more.
        let is_same_sleep =
            |wait: &Wait| wait.sleeps.is_some_and(|before| before.checked_add(1) == Some(sleeps));
        let is_again = |wait: &&Wait| {
            wait.tid == guest
                && u64::from(wait.number) == settled.rax
                && wait.argument == settled.rdi
                && settled.rip != registers.rip
                && registers.result() == -i64::from(libc::EINTR)
                && is_same_sleep(wait)
        };
        let standing = Standing::of(tid, guest, registers);
        self.restored(&standing).or_else(|| self.waits.iter().find(is_again))?.until_ns
    }

    /// When a wait ends that the thread made itself and will make again.
    fn end_of_first(
        &self,
        stopped: &Stopped,
        sleeps: u64,
        settled: &Registers,
        memory: &Memory,
    ) -> Option<u64> {
        let sleep = self.sleeps.get(&stopped.tid)?;
        let number = stopped.registers.interrupted_call()?;
        let is_again = settled.rip != stopped.registers.rip
            && u64::from(number) == settled.rax
            && sleep.lasted_until_the_stop(sleeps);
        let limit = limited_sleep::limit(number, &settled.arguments(), memory)?;
        let end_ns = sleep.since_ns.checked_add(u64::try_from(limit.as_nanos()).ok()?);
        end_ns.filter(|_| is_again)
    }
}

impl DepartedThread {
    /// Finds out where the thread goes on, and whether its call has to go on sleeping here.
    /// False if it cannot be known what it waits in. It may be inside of a restartable `sequence`.
    pub fn new(
        (mut stopped, sequence): (Stopped, u64),
        status: &ThreadStatus,
        memory: &Memory,
        waiting: &Waiting,
    ) -> (DepartedThread, bool) {
        threads::abort_rseq(&mut stopped, sequence, memory);
        let standing = Standing::of(stopped.tid, stopped.guest, stopped.registers);
        let restarted = waiting.call_behind(&standing);
        let mut settled = stopped.registers;
        let has_signal = status.pending & !stopped.signal_mask != 0;
        let interruption = threads::settle(&mut settled, restarted, has_signal);
        let Interruption::Keeps(number) = interruption else {
            let interrupted = threads::interruption_of(&stopped.registers, &settled);
            let wait_until_ns = waiting
                .end_of(&stopped, status.sleeps, &settled)
                .or_else(|| waiting.end_of_first(&stopped, status.sleeps, &settled, memory));
            let departed = DepartedThread {
                stopped,
                settled,
                interrupted,
                wait_until_ns,
                kept: None,
                kept_memory: None,
            };
            return (departed, interruption == Interruption::None);
        };
        let arguments = stopped.registers.arguments();
        let segments = crate::in_flight::kept_segments(number, &arguments);
        let kept_memory = segments.first().map(|segment| {
            let mut bytes = vec![0; segment.length as usize];
            let count = memory.read_some(segment.guest.0, &mut bytes);
            bytes.truncate(count);
            (segment.guest.0, bytes)
        });
        // The body's thread stands in front of the call, and finds it in flight.
        settled.orig_rax = u64::from(number);
        settled.rewind();
        let kept = Some(InFlight { sequence: FIRST_SEQUENCE, number, arguments, segments });
        let departed = DepartedThread {
            stopped,
            settled,
            interrupted: None,
            wait_until_ns: None,
            kept,
            kept_memory,
        };
        (departed, true)
    }

    /// Sets the stopped thread going in the agent, where it finds what it is to tell.
    pub fn begin_telling(&self, agent: &Agent, slot: usize) -> Result<()> {
        agent.write_staging(slot, ATTRIBUTES_OFFSET, &[0; 4]);
        agent.submit_quietly(slot, &self.tell_calls(agent.staging_address(slot)));
        let mut registers = self.stopped.registers;
        agent.enter(&mut registers, slot);
        tracee::set_registers(self.stopped.tid, &registers)?;
        tracee::resume(self.stopped.tid, 0)?;
        Ok(())
    }

    /// Attributes first: their calls may fail.
    fn tell_calls(&self, staging: u64) -> Vec<BatchCall> {
        let mut calls = attributes::tell_calls(staging + ATTRIBUTES_OFFSET as u64).to_vec();
        calls.extend(threads::tell_calls(staging));
        calls.extend(processor_time::tell_calls(Whose::Thread, staging + CLOCK_OFFSET as u64));
        calls.extend(self.stopped.rseq.as_ref().map(threads::rseq_unregister));
        calls
    }

    /// What it has told.
    pub fn collect(&self, worker: Worker<'_>) -> Result<Told> {
        let Worker { agent, slot, .. } = worker;
        let results = worker.collect(&self.tell_calls(agent.staging_address(slot)))?;
        let mut staging = [0; TELLING_BYTES];
        agent.read_staging(slot, 0, &mut staging);
        Ok(Told { results, staging })
    }

    pub fn image(
        &self,
        told: &Told,
        past: Option<&PastClock>,
        haste: &Haste,
    ) -> Result<image::Thread> {
        let Told { results, staging } = told;
        let calls = self.tell_calls(0);
        let Some((of_attributes, others)) = results.split_first_chunk() else {
            return Err(MigrateError::Protocol("a thread that did not tell".into()));
        };
        worker::check("read thread state", &calls[of_attributes.len()..], others)?;
        let (kernel_side, staging) = staging.split_at(CLOCK_OFFSET);
        let (clock, counter) = staging.split_at(TOLD_BYTES);
        let told = threads::told(kernel_side);
        let counter = counter.try_into().unwrap_or_default();
        let attributes = attributes::told(self.stopped.tid, of_attributes, counter)?;
        Ok(image::Thread {
            tid: self.stopped.guest,
            registers: self.settled.to_words().to_vec(),
            extended_state: self.stopped.extended_state.clone(),
            signal_mask: self.stopped.signal_mask,
            alternate_stack: told.alternate_stack,
            robust_list: tracee::robust_list(self.stopped.tid)?,
            priority: match haste.is_on(self.stopped.tid) {
                true => Priority::default(),
                false => crate::priorities::read(self.stopped.tid)?,
            },
            tid_address: told.tid_address,
            rseq: self.stopped.rseq.as_ref().map(threads::rseq_image),
            in_flight: self.kept.clone(),
            sequence: self.kept.as_ref().map_or(0, |kept| kept.sequence),
            signals_seen: 0,
            signals: vec![],
            wait_until_ns: self.wait_until_ns,
            interrupted: self.interrupted,
            clock: processor_time::told(clock, past),
            attributes,
        })
    }

    /// Has the deputy's thread, which is stopped, block what the guest's does.
    pub fn give_mask(&self) -> Result<()> {
        Ok(tracee::set_signal_mask(self.stopped.tid, self.stopped.signal_mask)?)
    }

    /// Where it stands, to be put back.
    pub fn standing(&self) -> Standing {
        let Stopped { tid, guest, registers, .. } = self.stopped;
        Standing { until_ns: self.wait_until_ns, ..Standing::of(tid, guest, registers) }
    }

    /// Its rights to memory by key, where the processor has them.
    pub fn rights_by_key(&self) -> Option<u32> {
        attributes::rights_by_key(&self.stopped.extended_state)
    }
}

/// Where in the staging area a thread tells its clock.
const CLOCK_OFFSET: usize = 32;
/// And where what else it has set.
const ATTRIBUTES_OFFSET: usize = CLOCK_OFFSET + TOLD_BYTES;
const TELLING_BYTES: usize = ATTRIBUTES_OFFSET + 4;

/// Number of a call that a thread was in when it left.
const FIRST_SEQUENCE: u64 = 1;

#[cfg(test)]
mod test {
    use super::*;

    const FUTEX: u32 = libc::SYS_futex as u32;
    const NANOSLEEP: u32 = libc::SYS_nanosleep as u32;

    /// A thread that was stopped in a call with a result, its first argument being 7.
    fn standing(tid: i32, call: u32, result: i64) -> Standing {
        let registers = Registers {
            orig_rax: u64::from(call),
            rax: result as u64,
            rdi: 7,
            ..Registers::default()
        };
        Standing::of(tid, GuestTid(tid + 100), registers)
    }

    fn wait(tid: i32, number: u32, until_ns: Option<u64>) -> Wait {
        Wait { tid: GuestTid(tid + 100), number, argument: 7, until_ns, sleeps: None }
    }

    #[test]
    fn a_departure_that_failed_leaves_known_what_its_threads_wait_in() {
        let calls = HashMap::from([(3, NANOSLEEP)]);
        let known = [wait(2, FUTEX, Some(9)), wait(5, FUTEX, Some(8))];
        let waiting = Waiting { calls, waits: known.to_vec(), sleeps: HashMap::new() };
        let standings = [
            standing(1, FUTEX, ERESTART_RESTARTBLOCK),
            standing(2, threads::RESTART_SYSCALL, ERESTART_RESTARTBLOCK),
            standing(3, threads::RESTART_SYSCALL, ERESTART_RESTARTBLOCK),
            standing(4, NANOSLEEP, 0),
        ];
        let expected = [
            wait(1, FUTEX, None),
            wait(2, FUTEX, Some(9)),
            wait(3, NANOSLEEP, None),
            wait(5, FUTEX, Some(8)),
        ];
        assert_eq!(waiting.after_failure(&standings), expected);
    }

    #[test]
    fn a_wait_that_is_made_again_is_known_by_its_end_and_by_nothing_else() {
        const EPOLL: u32 = libc::SYS_epoll_wait as u32;
        let cut = standing(1, EPOLL, -i64::from(libc::EINTR));
        let ending = |until_ns, sleeps| Standing {
            until_ns,
            sleeps,
            ..standing(2, EPOLL, -i64::from(libc::EINTR))
        };
        let waiting = Waiting { calls: HashMap::new(), waits: vec![], sleeps: HashMap::new() };
        let futex = Standing { until_ns: Some(6), ..standing(3, FUTEX, ERESTART_RESTARTBLOCK) };
        let waits = waiting.after_failure(&[cut, ending(Some(5), Some(40)), futex]);
        let known = Wait { sleeps: Some(41), ..wait(2, EPOLL, Some(5)) };
        assert_eq!(waits, [known, wait(3, FUTEX, Some(6))]);
    }
}
