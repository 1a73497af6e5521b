//! The image of a frozen body.

use crate::state::{Shared, Thread};
use kernel::agent::Agent;
use kernel::features::{self, Feature};
use kernel::proc::pagemap::{Pagemap, Select};
use kernel::proc::{flags, maps};
use kernel::regs::Registers;
use kernel::remote_call::RemoteCalls;
use kernel::tracee;
use migrate::backing::Library;
use migrate::{Result, layout, mapping_flags, threads};
use std::ops::Range;
use wire::ids::GuestAddr;
use wire::image::{self, Draft, Image, MappingFlags, MappingKind};

/// What does not change while a body lives here.
pub struct Fixed {
    /// Where the agent lies.
    pub agent: Range<u64>,
    pub library: Library,
    /// The image that the body was made from.
    pub origin: Image,
    /// What this kernel could not give its mappings.
    pub missing: MappingFlags,
}

/// Mappings as the guest knows them, and their guard regions.
type Space = (Vec<image::Mapping>, Vec<(GuestAddr, GuestAddr)>);

/// What its memory is like while it runs still.
pub fn draft(shared: &Shared, fixed: &Fixed) -> Result<Draft> {
    Ok(Draft {
        mappings: mappings(shared, fixed)?,
        stack_limit: fixed.origin.stack_limit,
        memory_limits: fixed.origin.memory_limits,
        reserved: fixed.origin.reserved,
        // None begins away from home.
        threads: fixed.origin.threads.len() as u32,
    })
}

/// Its mappings as the guest knows them, while it runs.
pub fn mappings(shared: &Shared, fixed: &Fixed) -> Result<Vec<image::Mapping>> {
    let (mappings, _) = space(shared, fixed, &flags::read_maps(shared.pid)?)?;
    Ok(mappings)
}

fn space(shared: &Shared, fixed: &Fixed, maps: &[maps::Mapping]) -> Result<Space> {
    let reserved = fixed.origin.reserved;
    let mut ours = vec![fixed.agent.clone(), reserved.0..reserved.1];
    let elsewhere = shared.abroad.as_ref().map(|abroad| &abroad.elsewhere);
    ours.extend(elsewhere.iter().flat_map(|elsewhere| elsewhere.ours()));
    let mut mappings = layout::of_guest(maps, &ours, &fixed.library)?;
    mappings.extend(elsewhere.iter().flat_map(|elsewhere| elsewhere.provided()).cloned());
    mappings.sort_unstable_by_key(|mapping| mapping.start.0);
    trim_stack(shared, &fixed.origin, &mut mappings)?;
    mapping_flags::carry(&mut mappings, &fixed.origin, fixed.missing);
    let guards = match features::settled().has(Feature::GuardRegions) {
        true => mapping_flags::guards(&Pagemap::open(shared.pid)?, &mappings)?,
        false => mapping_flags::uncover(&mut mappings, &fixed.origin),
    };
    Ok((mappings, guards))
}

/// Captures everything but memory contents. All threads are stopped.
/// `known` are its mappings as they were a moment ago, if nothing was advised since.
pub fn image(
    shared: &Shared,
    fixed: &Fixed,
    agent: &Agent,
    known: &[maps::Mapping],
) -> Result<Image> {
    let maps = flags::read_maps_again(shared.pid, known)?;
    let (mappings, guards) = space(shared, fixed, &maps)?;
    let elsewhere = shared.abroad.as_ref().map(|abroad| &abroad.elsewhere);
    let mut layout_words = fixed.origin.layout;
    layout_words[BREAK] = 0; // the first thread asked tells
    let vdso = maps.iter().find(|m| m.name == b"[vdso]").map_or(0..0, |m| m.start..m.end);
    let state = shared.lock();
    for thread in state.threads.values() {
        match elsewhere {
            Some(elsewhere) => elsewhere.lead_out(thread.local)?,
            None => threads::leave_vdso(thread.local, &vdso)?,
        }
    }
    // Read first, like those of the threads: what capturing makes them compute is not the guest's.
    let clock = state.meter.clock();
    let mut images = Vec::with_capacity(state.threads.len());
    for thread in state.threads.values() {
        images.push(thread_image(shared, agent, thread, &mut layout_words)?);
    }
    images.sort_unstable_by_key(|thread| thread.tid);
    let actions = state.actions.iter().map(|a| [a.handler, a.flags, a.restorer, a.mask]).collect();
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

/// The stack is mapped whole here (`outward`); what the guest never touched does not travel.
fn trim_stack(shared: &Shared, origin: &Image, mappings: &mut [image::Mapping]) -> Result<()> {
    let is_stack = |m: &&image::Mapping| m.kind == MappingKind::Anonymous { grows_down: true };
    let Some(before) = origin.mappings.iter().find(is_stack) else { return Ok(()) };
    let pagemap = Pagemap::open(shared.pid)?;
    for mapping in mappings {
        if mapping.end != before.end || mapping.start >= before.start {
            continue;
        }
        let touched = pagemap.scan(mapping.start.0, mapping.end.0, Select::Populated)?;
        let lowest = touched.first().map_or(before.start.0, |run| run.start);
        mapping.start = GuestAddr(lowest.min(before.start.0));
        mapping.kind = MappingKind::Anonymous { grows_down: true };
    }
    Ok(())
}

/// Position of the program break in the layout words (`struct prctl_mm_map`).
const BREAK: usize = 5;

fn thread_image(
    shared: &Shared,
    agent: &Agent,
    thread: &Thread,
    layout_words: &mut [u64; 11],
) -> Result<image::Thread> {
    let tid = thread.local;
    let clock = thread.meter.clock();
    let registers: Registers = tracee::registers(tid)?;
    let is_in_timed_wait = registers.result() == kernel::regs::ERESTART_RESTARTBLOCK;
    let mut extended_state = tracee::extended_state(tid)?;
    if let Some(translator) = &shared.registers {
        extended_state = translator.to_home(&extended_state, thread.extended_bytes)?;
    }
    let signal_mask = tracee::signal_mask(tid)?;
    let rseq = tracee::rseq_registration(tid)?;
    let mut stopped = threads::Stopped {
        tid,
        guest: thread.guest,
        registers,
        extended_state: vec![],
        signal_mask,
        rseq,
    };
    threads::abort_rseq(&mut stopped, &shared.memory);
    let mut registers = stopped.registers;
    // Only waits on futexes are local and have a restart block here.
    threads::settle(&mut registers, Some(libc::SYS_futex as u32), false);
    let mut calls = RemoteCalls::begin(tid, agent.syscall_instruction())?;
    let told = threads::ask(&mut calls, &shared.memory, agent.staging_address(thread.slot))?;
    if layout_words[BREAK] == 0 {
        layout_words[BREAK] = calls.call("read the break", libc::SYS_brk, [0; 6])?;
    }
    drop(calls);
    Ok(image::Thread {
        tid: thread.guest,
        registers: registers.to_words().to_vec(),
        extended_state,
        signal_mask,
        alternate_stack: told.alternate_stack,
        robust_list: tracee::robust_list(tid)?,
        priority: thread.priority,
        tid_address: told.tid_address,
        rseq: rseq.as_ref().map(threads::rseq_image),
        in_flight: thread.in_flight.clone(),
        sequence: thread.sequence,
        signals_seen: thread.signals_seen,
        signals: thread.signals.iter().cloned().collect(),
        wait_until_ns: thread
            .continued_wait_ns
            .or(thread.wait_until_ns.filter(|_| is_in_timed_wait || thread.in_flight.is_some())),
        interrupted: thread.interrupted.or_else(|| match thread.in_flight {
            Some(_) => None,
            None => threads::interruption_of(&stopped.registers, &registers),
        }),
        clock,
        attributes: thread.attributes,
    })
}
