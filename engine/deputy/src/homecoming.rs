//! Coming home: the deputy's memory and threads become the guest's again, then everything of ours
//! is taken out and the process is let go.
//!
//! The body stays frozen until the very end: should anything fail before, it is still whole.

use crate::lanes::{Place, Work};
use crate::resumption::{Held, Outcome, Resumption, resolve_calls, unseen_signals, waits_of};
use crate::service::Service;
use kernel::agent::{BatchCall, Position, STAGING_BYTES};
use kernel::proc::maps;
use kernel::regs::{ERESTART_RESTARTBLOCK, ERESTARTNOINTR, Registers};
use kernel::tracee::{self, SIGINFO_BYTES, Stop};
use link::LinkReader;
use migrate::homeward::{self, execute, execute_all};
use migrate::{MigrateError, Result, injection, layout, pages, threads};
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};
use wire::forward::{ToAway, ToHome};
use wire::ids::GuestTid;
use wire::image::{self, Image};
use wire::supervisor::{MoveReport, Wait};

/// Receives the image and makes the process a plain one. The reader is the link to the frozen body.
/// With the report come the waits that go on here against a deadline that only we know.
pub fn run(service: &mut Service<'_>, mut reader: LinkReader) -> Result<(MoveReport, Vec<Wait>)> {
    let started = Instant::now();
    let mut phases_us = Vec::new();
    let mut last = started;
    let mut phase = |name: &str| {
        phases_us.push((name.to_owned(), last.elapsed().as_micros() as u64));
        last = Instant::now();
    };
    let mut held = std::mem::take(&mut service.deadly);
    let outcomes = settle_lanes(service, &mut held)?;
    phase("settle");
    let image = receive_image(service, &mut reader)?;
    restore_mappings(service, &image)?;
    phase("map");
    let bytes = receive_pages(service, &image, &mut reader)?;
    homeward::protect(&service.shared.lanes.agent, worker(service)?, &image.mappings)?;
    phase("receive");
    let plan = resolve_calls(service, &image, &outcomes, &held)?;
    let waits = waits_of(service, &image, &plan);
    adopt_threads(service, &image, &held)?;
    load_threads(service, &image, plan)?;
    phase("restore");
    remove_agent(service)?;
    service.shared.send(&ToAway::Release);
    let_go(service);
    phase("let-go");
    let total_us = started.elapsed().as_micros() as u64;
    let report = MoveReport { phases_us, freeze_us: total_us, total_us, bytes_sent: bytes };
    Ok((report, waits))
}

/// Slots whose thread still lives.
fn live_slots(service: &Service<'_>) -> Vec<usize> {
    let lanes = &service.shared.lanes;
    (0..lanes.count()).filter(|slot| !matches!(lanes.lock(*slot).work, Work::Gone)).collect()
}

/// A live slot for work that concerns the whole process.
fn worker(service: &Service<'_>) -> Result<usize> {
    let first = live_slots(service).first().copied();
    first.ok_or_else(|| MigrateError::Protocol("no thread is left".into()))
}

/// Ends what the threads are doing, remembering how it stood; afterwards all wait in the agent with
/// every signal blocked.
fn settle_lanes(
    service: &mut Service<'_>,
    held: &mut Vec<Held>,
) -> Result<HashMap<usize, Outcome>> {
    let mut outcomes = HashMap::new();
    for slot in live_slots(service) {
        outcomes.insert(slot, settle_lane(service, slot, held)?);
    }
    Ok(outcomes)
}

fn settle_lane(service: &Service<'_>, slot: usize, held: &mut Vec<Held>) -> Result<Outcome> {
    let lanes = &service.shared.lanes;
    if matches!(lanes.lock(slot).work, Work::Exiting { .. }) {
        await_exit(service, slot)?;
        return Ok(Outcome::Settled);
    }
    let (tid, waited, is_kept) = {
        let lane = lanes.lock(slot);
        match &lane.work {
            Work::Busy { since, place, .. } => {
                (lane.tid, Some(since.elapsed()), *place == Place::Guest)
            }
            _ => (lane.tid, None, false),
        }
    };
    let has_signal = stop(tid, held)?;
    let mut registers = tracee::registers(tid)?;
    let mut outcome = Outcome::Settled;
    let interrupted = Outcome::Interrupted { waited: waited.unwrap_or_default(), is_kept };
    match lanes.agent.position(&registers, slot) {
        Position::InCall(code) => {
            lanes.agent.conclude(&mut registers, code);
            if !has_signal {
                outcome = interrupted;
            }
        }
        Position::BeforeCall => {
            lanes.agent.conclude(&mut registers, ERESTARTNOINTR);
            outcome = interrupted;
        }
        Position::Idle if waited.is_some() && lanes.agent.withdraw(slot) => {
            lanes.lock(slot).work = Work::Idle;
        }
        // Linux ends some calls with EINTR for the stop alone.
        Position::AfterCall if registers.result() == -i64::from(libc::EINTR) && !has_signal => {
            outcome = interrupted;
        }
        Position::AfterCall | Position::Idle => {}
        Position::Elsewhere => {
            return Err(MigrateError::Protocol(format!("thread {tid} is not in the agent")));
        }
    }
    tracee::set_registers(tid, &registers)?;
    tracee::set_signal_mask(tid, u64::MAX)?;
    tracee::resume(tid, 0)?;
    while matches!(lanes.lock(slot).work, Work::Busy { .. }) {
        let seen = lanes.agent.doorbell();
        if lanes.complete(slot).is_none() {
            lanes.agent.wait_doorbell(seen, Some(Duration::from_secs(1)));
        }
    }
    Ok(outcome)
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
            _ => tracee::resume(tid, 0)?,
        }
    }
    lanes.lock(slot).work = Work::Gone;
    Ok(())
}

/// Stops a thread of the deputy; a signal that it was about to get is held. True if there was one.
fn stop(tid: i32, held: &mut Vec<Held>) -> Result<bool> {
    tracee::interrupt(tid)?;
    let mut has_signal = false;
    loop {
        match tracee::wait(tid)? {
            Stop::Interrupted | Stop::Group(_) => return Ok(has_signal),
            Stop::Ended(status) => return Err(MigrateError::Ended(status)),
            Stop::Signal(number) if number == libc::SIGSTOP => {
                tracee::resume_interrupted(tid, number)?;
            }
            Stop::Signal(number) => {
                // No further one; and on to the stop that we asked for, else it would come later.
                held.push((tid, number, tracee::signal_info(tid)?));
                has_signal = true;
                tracee::set_signal_mask(tid, u64::MAX)?;
                tracee::resume_interrupted(tid, 0)?;
            }
            _ => tracee::resume_interrupted(tid, 0)?,
        }
    }
}

fn receive_image(service: &Service<'_>, reader: &mut LinkReader) -> Result<Image> {
    let ToHome::Image(image) = reader.receive()? else {
        return Err(MigrateError::Protocol("expected an image".into()));
    };
    image.check(service.library.len())?;
    let lanes = &service.shared.lanes;
    let here: BTreeSet<_> =
        live_slots(service).into_iter().map(|slot| lanes.lock(slot).guest).collect();
    let mut there: BTreeSet<_> = image.threads.iter().map(|thread| thread.tid).collect();
    // A thread may have ended here while its body was frozen just before it would have.
    let ended = |tid: &GuestTid| {
        lanes.slot_of(*tid).is_some_and(|slot| matches!(lanes.lock(slot).work, Work::Gone))
    };
    there.retain(|tid| !ended(tid));
    if here != there {
        let text = format!("{} threads came home, {} are expected", there.len(), here.len());
        return Err(MigrateError::Protocol(text));
    }
    let ours = lanes.agent.base()..lanes.agent.end();
    if image.mappings.iter().any(|m| m.start.0 < ours.end && ours.start < m.end.0) {
        return Err(MigrateError::Protocol("a mapping in the place of the agent".into()));
    }
    Ok(*image)
}

fn restore_mappings(service: &Service<'_>, image: &Image) -> Result<()> {
    let agent = &service.shared.lanes.agent;
    let slot = worker(service)?;
    // Where the break cannot be set, the mappings below make up for it.
    execute(agent, slot, &[BatchCall::new(libc::SYS_brk, [image.layout[5], 0, 0, 0, 0, 0])])?;
    let ours = agent.base()..agent.end();
    let home: Vec<maps::Mapping> = maps::read(service.pid)?
        .into_iter()
        .filter(|m| !layout::is_ours(m, std::slice::from_ref(&ours)) && !m.is_kernel_provided())
        .collect();
    let library = &service.library;
    let changes = homeward::plan(&home, &image.mappings, &|m, index| library.is_same(m, index));
    homeward::change(agent, slot, &changes, library)?;
    // Whatever was written here meanwhile (results of calls that slept through the move) is not the
    // guest's memory: what was not written away is zero, and is not sent.
    homeward::empty(agent, slot, &image.mappings, &homeward::NOTHING)
}

fn receive_pages(service: &Service<'_>, image: &Image, reader: &mut LinkReader) -> Result<u64> {
    let mut bytes = 0;
    loop {
        match reader.receive()? {
            ToHome::Pages(pages) => {
                pages::check(&pages, &image.mappings)?;
                service.shared.lanes.memory.write(pages.address.0, &pages.content)?;
                bytes += pages.content.len() as u64;
            }
            ToHome::ImageSent => return Ok(bytes),
            _ => return Err(MigrateError::Protocol("expected memory contents".into())),
        }
    }
}

pub fn live_slot_of(service: &Service<'_>, thread: &image::Thread) -> Option<usize> {
    let lanes = &service.shared.lanes;
    let slot = lanes.slot_of(thread.tid)?;
    (!matches!(lanes.lock(slot).work, Work::Gone)).then_some(slot)
}

/// A thread that ended here before its body could: whoever waits for its end finds the word that
/// the kernel clears (set_tid_address(2)) cleared.
fn finish_ended(service: &Service<'_>, thread: &image::Thread) -> Result<()> {
    if thread.tid_address != 0 {
        service.shared.lanes.memory.write(thread.tid_address, &0u32.to_le_bytes())?;
    }
    Ok(())
}

/// Where in the staging area a siginfo is laid for its thread to queue.
const SIGINFO_OFFSET: usize = 4096;

/// Hands back what the kernel keeps for each thread, and queues the signals that wait for it: by
/// the thread itself, which alone may say who sent them (rt_tgsigqueueinfo(2)).
fn adopt_threads(service: &Service<'_>, image: &Image, held: &[Held]) -> Result<()> {
    let lanes = &service.shared.lanes;
    let agent = &lanes.agent;
    for thread in &image.threads {
        let Some(slot) = live_slot_of(service, thread) else {
            finish_ended(service, thread)?;
            continue;
        };
        let tid = lanes.lock(slot).tid;
        let staging = agent.staging_address(slot);
        agent.write_staging(slot, 0, &threads::adopt_scratch(thread));
        execute_all(agent, slot, "hand back thread state", &threads::adopt_calls(thread, staging))?;
        let unseen = unseen_signals(service, slot, thread);
        let forwarded =
            thread.signals.iter().chain(&unseen).map(|s| (s.number, s.siginfo.as_slice()));
        let own = held.iter().filter(|(holder, _, _)| *holder == tid);
        for (number, info) in forwarded.chain(own.map(|(_, n, info)| (*n, info.as_slice()))) {
            agent.write_staging(slot, SIGINFO_OFFSET, &info[..info.len().min(SIGINFO_BYTES)]);
            let arguments = [
                image.pid.0 as u64,
                thread.tid.0 as u64,
                number as u64,
                staging + SIGINFO_OFFSET as u64,
                0,
                0,
            ];
            let call = BatchCall::new(libc::SYS_rt_tgsigqueueinfo, arguments);
            execute_all(agent, slot, "queue a signal", &[call])?;
        }
    }
    Ok(())
}

const _: () = assert!(SIGINFO_OFFSET + SIGINFO_BYTES <= STAGING_BYTES);

/// Stops every thread and gives it the guest's registers.
fn load_threads(
    service: &Service<'_>,
    image: &Image,
    mut plan: HashMap<usize, Resumption>,
) -> Result<()> {
    let lanes = &service.shared.lanes;
    let mut nothing = Vec::new();
    for thread in &image.threads {
        let Some(slot) = live_slot_of(service, thread) else { continue };
        let Some(resumption) = plan.remove(&slot) else { continue };
        let tid = lanes.lock(slot).tid;
        stop(tid, &mut nothing)?;
        tracee::set_extended_state(tid, &thread.extended_state)?;
        match resumption.sleep {
            Some(left) => sleep_on(service, slot, tid, &resumption.registers, left)?,
            None => tracee::set_registers(tid, &resumption.registers)?,
        }
        tracee::set_signal_mask(tid, thread.signal_mask)?;
    }
    Ok(())
}

/// Puts a thread back to sleep for the rest of its time, under its own arguments.
///
/// It makes the call with what is left, is interrupted at once, and so gets a restart block of this
/// kernel with the right deadline; then its registers are made those of the original call, as if it
/// had just been interrupted in it. The kernel restarts it from the block.
fn sleep_on(
    service: &Service<'_>,
    slot: usize,
    tid: i32,
    registers: &Registers,
    left: Duration,
) -> Result<()> {
    let agent = &service.shared.lanes.agent;
    let mut shorter = *registers;
    let mut time = left.as_secs().to_le_bytes().to_vec();
    time.extend(u64::from(left.subsec_nanos()).to_le_bytes());
    agent.write_staging(slot, 0, &time);
    match registers.rax as i64 {
        libc::SYS_poll => shorter.rdx = left.as_nanos().div_ceil(1_000_000) as u64,
        libc::SYS_nanosleep => shorter.rdi = agent.staging_address(slot),
        libc::SYS_futex => shorter.r10 = agent.staging_address(slot),
        _ => shorter.rdx = agent.staging_address(slot),
    }
    tracee::set_registers(tid, &shorter)?;
    to_syscall_stop(tid)?;
    tracee::interrupt(tid)?;
    to_syscall_stop(tid)?;
    let after = tracee::registers(tid)?.result();
    // Every stop cancels the interrupt that was due (ptrace_stop in the kernel): without another
    // the thread would be restarted here and now, and run away.
    tracee::resume_interrupted(tid, 0)?;
    if !matches!(tracee::wait(tid)?, Stop::Interrupted | Stop::Group(_)) {
        ::tracing::debug!("thread {tid} did not stop after its sleep was renewed");
    }
    let mut registers = *registers;
    if after == ERESTART_RESTARTBLOCK {
        registers.interrupt(after);
    } else {
        registers.complete(after);
    }
    tracee::set_registers(tid, &registers)?;
    Ok(())
}

fn to_syscall_stop(tid: i32) -> Result<()> {
    tracee::resume_to_syscall(tid, 0)?;
    loop {
        match tracee::wait(tid)? {
            Stop::Syscall => return Ok(()),
            Stop::Ended(status) => return Err(MigrateError::Ended(status)),
            _ => tracee::resume_to_syscall(tid, 0)?,
        }
    }
}

fn remove_agent(service: &Service<'_>) -> Result<()> {
    let lanes = &service.shared.lanes;
    let tid = lanes.lock(worker(service)?).tid;
    injection::remove(service.pid, tid, service.borrowed, &lanes.agent)
}

/// Detaches from every thread, the first one last.
fn let_go(service: &Service<'_>) {
    let lanes = &service.shared.lanes;
    for slot in live_slots(service).into_iter().rev() {
        let tid = lanes.lock(slot).tid;
        if let Err(error) = tracee::detach(tid, 0) {
            ::tracing::debug!("{error}");
        }
    }
}
