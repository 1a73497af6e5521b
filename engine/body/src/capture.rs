//! The image of a frozen body.

use crate::state::{Shared, Thread};
use crate::unheard;
use kernel::agent::{Agent, BatchCall};
use kernel::features::{self, Feature};
use kernel::memory::Memory;
use kernel::proc::pagemap::{Pagemap, Select};
use kernel::proc::{flags, maps};
use kernel::signal::Action;
use kernel::tracee;
use migrate::backing::Library;
use migrate::threads::{KernelSide, Stopped};
use migrate::worker::{self, Worker};
use migrate::{Result, injection, layout, mapping_flags, threads};
use std::ops::Range;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use wire::ids::{GuestAddr, GuestTid};
use wire::image::{self, Draft, Image, MappingFlags, MappingKind};
use wire::processor_time::Clock;

/// What does not change while a body lives here, but for the files that it maps.
pub struct Fixed {
    /// Where the agent lies.
    pub agent: Range<u64>,
    /// It grows as the guest maps files here.
    library: RwLock<Library>,
    /// The image that the body was made from.
    pub origin: Image,
    /// What this kernel could not give its mappings.
    pub missing: MappingFlags,
}

impl Fixed {
    pub fn of(agent: Range<u64>, library: Library, origin: Image, missing: MappingFlags) -> Fixed {
        Fixed { agent, library: RwLock::new(library), origin, missing }
    }

    /// The files that it maps.
    pub fn library(&self) -> RwLockReadGuard<'_, Library> {
        self.library.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn library_to_change(&self) -> RwLockWriteGuard<'_, Library> {
        self.library.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for a child, which goes its own way from here on.
    pub fn for_child(&self) -> Fixed {
        let (agent, library) = (self.agent.clone(), self.library().clone());
        Fixed::of(agent, library, self.origin.clone(), self.missing)
    }
}

/// Mappings as the guest knows them, and their guard regions.
type Space = (Vec<image::Mapping>, Vec<(GuestAddr, GuestAddr)>);

/// What its memory is like while it runs still.
pub fn draft(shared: &Shared, fixed: &Fixed) -> Result<Draft> {
    let threads = shared.lock().threads.len();
    Ok(Draft {
        mappings: mappings(shared, fixed)?,
        stack_limit: fixed.origin.stack_limit,
        memory_limits: fixed.origin.memory_limits,
        reserved: fixed.origin.reserved,
        threads: injection::slots_for(threads, fixed.origin.memory_limits.0) as u32,
        tids: living_threads(shared),
    })
}

fn living_threads(shared: &Shared) -> Vec<GuestTid> {
    let state = shared.lock();
    let tids = state.threads.values().map(|thread| thread.guest);
    tids.filter(|tid| *tid != shared.guest_pid).collect()
}

/// Its mappings as the guest knows them, while it runs.
pub fn mappings(shared: &Shared, fixed: &Fixed) -> Result<Vec<image::Mapping>> {
    let (mappings, _) = space(shared, fixed, &flags::read_maps_aside(shared.pid)?)?;
    Ok(mappings)
}

/// What of its address space is not the guest's.
pub fn ours(shared: &Shared, fixed: &Fixed) -> Vec<Range<u64>> {
    let reserved = fixed.origin.reserved;
    let elsewhere = shared.abroad.iter().flat_map(|abroad| abroad.elsewhere.ours());
    [fixed.agent.clone(), reserved.0..reserved.1].into_iter().chain(elsewhere).collect()
}

fn space(shared: &Shared, fixed: &Fixed, maps: &[maps::Mapping]) -> Result<Space> {
    let mut mappings = layout::of_guest(maps, &ours(shared, fixed), &*fixed.library())?;
    let elsewhere = shared.abroad.as_ref().map(|abroad| &abroad.elsewhere);
    mappings.extend(elsewhere.iter().flat_map(|elsewhere| elsewhere.provided()).cloned());
    mappings.sort_unstable_by_key(|mapping| mapping.start.0);
    trim_stack(shared, &fixed.origin, &mut mappings)?;
    mapping_flags::carry(&mut mappings, &fixed.origin, fixed.missing);
    let guards = match features::settled().has(Feature::GuardRegions) {
        // None is made away from home.
        true if fixed.origin.guards.is_empty() => vec![],
        true => mapping_flags::guards(&Pagemap::open(shared.pid)?, &mappings)?,
        false => mapping_flags::uncover(&mut mappings, &fixed.origin),
    };
    Ok((mappings, guards))
}

/// Captures everything but memory contents. All threads are stopped, and were led out
/// (`Tracing::lead_out`).
/// `known` are its mappings as they were a moment ago, if nothing was advised since.
pub fn image(
    shared: &Shared,
    fixed: &Fixed,
    agent: &Agent,
    known: &[maps::Mapping],
) -> Result<Image> {
    let maps = flags::read_maps_again(shared.pid, known)?;
    let (mappings, guards) = space(shared, fixed, &maps)?;
    let mut layout_words = fixed.origin.layout;
    let state = shared.lock();
    // Read first, like those of the threads: what capturing makes them compute is not the guest's.
    let clock = state.meter.clock();
    let clocks: Vec<Clock> = state.threads.values().map(|thread| thread.meter.clock()).collect();
    let stopped = state.threads.values().map(|thread| read(thread, &shared.memory));
    let stopped = stopped.collect::<Result<Vec<_>>>()?;
    let slots = state.threads.values().map(|thread| thread.slot);
    let (told, program_break) = ask(shared.pid, agent, &stopped, &slots.collect::<Vec<_>>())?;
    layout_words[kernel::proc::process::BREAK] = program_break;
    let mut images = Vec::with_capacity(stopped.len());
    let threads = state.threads.values().zip(clocks);
    for (((thread, clock), stopped), told) in threads.zip(stopped).zip(told) {
        images.push(thread_image(shared, (thread, clock), stopped, told)?);
    }
    images.sort_unstable_by_key(|thread| thread.tid);
    let actions = state.actions.iter().map(Action::words).collect();
    Ok(Image {
        pid: shared.guest_pid,
        threads: images,
        later_threads: 0,
        mappings,
        guards,
        layout: layout_words,
        actions,
        stack_limit: fixed.origin.stack_limit,
        memory_limits: fixed.origin.memory_limits,
        reserved: fixed.origin.reserved,
        clock,
        peak_rss_kib: state.peak.rss_kib(),
        time: shared.guest_time(),
        has_no_huge_pages: fixed.origin.has_no_huge_pages,
        processors: fixed.origin.processors,
    })
}

/// Where a stack begins that was so `before`, and is mapped from `mapped` on: there, or as far down
/// as it was used.
pub fn stack_start(pagemap: &Pagemap, before: &image::Mapping, mapped: u64) -> Result<u64> {
    let touched = pagemap.scan(mapped, before.end.0, Select::Populated)?;
    let lowest = touched.first().map_or(before.start.0, |run| run.start);
    Ok(lowest.min(before.start.0).max(mapped))
}

/// The stack is mapped whole here (`outward`); what the guest never touched does not travel.
fn trim_stack(shared: &Shared, origin: &Image, mappings: &mut [image::Mapping]) -> Result<()> {
    let is_stack = |m: &&image::Mapping| m.kind == MappingKind::Anonymous { grows_down: true };
    let Some(before) = origin.mappings.iter().find(is_stack) else { return Ok(()) };
    let pagemap = Pagemap::open(shared.pid)?;
    for mapping in mappings {
        if mapping.end != before.end || mapping.start >= before.start {
            continue;
        }
        mapping.start = GuestAddr(stack_start(&pagemap, before, mapping.start.0)?);
        mapping.kind = MappingKind::Anonymous { grows_down: true };
    }
    Ok(())
}

/// What is to be known before it does anything. A restartable sequence ends here: in the agent the
/// kernel forgets that the thread was inside of one.
fn read(thread: &Thread, memory: &Memory) -> Result<Stopped> {
    let tid = thread.local;
    let mut stopped = Stopped {
        tid,
        guest: thread.guest,
        registers: tracee::registers(tid)?,
        extended_state: tracee::extended_state(tid)?,
        signal_mask: tracee::signal_mask(tid)?,
        rseq: tracee::rseq_registration(tid)?,
    };
    let sequence = threads::sequence(&stopped, memory);
    threads::abort_rseq(&mut stopped, sequence, memory);
    Ok(stopped)
}

/// Has the threads, at the same time, tell what only they can: in the agent, each in its slot.
/// Afterwards they stand stopped as they were. Returns besides where the program break is.
fn ask(
    pid: i32,
    agent: &Agent,
    stopped: &[Stopped],
    slots: &[usize],
) -> Result<(Vec<KernelSide>, u64)> {
    let worker = |at: usize| Worker { agent, slot: slots[at], tid: stopped[at].tid };
    let calls = |at: usize| {
        let mut calls = threads::tell_calls(agent.staging_address(slots[at])).to_vec();
        // The break is that of the process.
        calls.push(BatchCall::new(libc::SYS_brk, [0; 6]));
        calls
    };
    for (at, Stopped { tid, registers, .. }) in stopped.iter().enumerate() {
        agent.submit_quietly(slots[at], &calls(at));
        let mut registers = *registers;
        agent.enter(&mut registers, slots[at]);
        tracee::set_signal_mask(*tid, u64::MAX)?;
        tracee::set_registers(*tid, &registers)?;
        tracee::resume(*tid, 0)?;
    }
    let mut told = Vec::with_capacity(stopped.len());
    let mut program_break = 0;
    let mut outcome = Ok(());
    // Who was set going last is mostly done last.
    for at in (0..stopped.len()).rev() {
        let (calls, results) = (calls(at), worker(at).collect(&calls(at))?);
        program_break = results[calls.len() - 1] as u64;
        outcome = outcome.and(worker::check("read thread state", &calls, &results));
        let mut scratch = [0; 32];
        agent.read_staging(slots[at], 0, &mut scratch);
        told.push(threads::told(&scratch));
    }
    told.reverse();
    let tids: Vec<i32> = stopped.iter().map(|stopped| stopped.tid).collect();
    worker::stop_each(pid, &tids)?;
    for Stopped { tid, registers, signal_mask, .. } in stopped {
        tracee::set_registers(*tid, registers)?;
        tracee::set_signal_mask(*tid, *signal_mask)?;
    }
    outcome.map(|()| (told, program_break))
}

fn thread_image(
    shared: &Shared,
    (thread, clock): (&Thread, Clock),
    mut stopped: Stopped,
    told: KernelSide,
) -> Result<image::Thread> {
    let tid = thread.local;
    let is_in_timed_wait = stopped.registers.result() == kernel::regs::ERESTART_RESTARTBLOCK;
    let mut extended_state = std::mem::take(&mut stopped.extended_state);
    if let Some(translator) = &shared.registers {
        extended_state = translator.to_home(&extended_state, thread.extended_bytes)?;
    }
    let mut registers = stopped.registers;
    // Only waits on futexes are local and have a restart block here.
    threads::settle(&mut registers, Some(libc::SYS_futex as u32), false);
    Ok(image::Thread {
        tid: thread.guest,
        registers: registers.to_words().to_vec(),
        extended_state,
        signal_mask: stopped.signal_mask,
        alternate_stack: told.alternate_stack,
        robust_list: tracee::robust_list(tid)?,
        priority: thread.priority,
        tid_address: told.tid_address,
        rseq: stopped.rseq.as_ref().map(threads::rseq_image),
        in_flight: thread.in_flight.clone(),
        sequence: thread.sequence,
        signals_seen: thread.signals_seen,
        signals: thread.signals.iter().cloned().collect(),
        wait_until_ns: thread
            .continued_wait_ns
            .or(thread.wait_until_ns.filter(|_| is_in_timed_wait || thread.in_flight.is_some())),
        interrupted: thread.interrupted.or_else(|| match thread.in_flight {
            Some(_) => None,
            None => unheard::interruption(&stopped.registers, &registers, thread.is_cut_short),
        }),
        clock,
        attributes: thread.attributes,
    })
}
