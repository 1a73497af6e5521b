//! Coming home: the deputy's memory and threads become the guest's again, then everything of ours
//! is taken out and the process is let go.
//!
//! One of the two halves runs, and the body is the one until the process here has everything. Up to
//! then whatever fails is taken back ([`crate::withdrawal`]) and the body goes on where it is. From
//! `Release` on there is only home, and nothing is left that could fail.

use crate::arriving::{self, Arriving};
use crate::lanes::Work;
use crate::processor_time;
use crate::refilling::{check_place, receive_pages, restore_memory};
use crate::resumption::{Held, Resumption, count_sleeps, resolve_calls, unseen_signals, waits_of};
use crate::service::Service;
use crate::settling::{Settled, stop_each};
use crate::together;
use crate::withdrawal;
use kernel::agent::{BatchCall, STAGING_BYTES};
use kernel::haste::Haste;
use kernel::memory::Memory;
use kernel::proc::process;
use kernel::regs::Registers;
use kernel::signal::{Action, is_plain_default};
use kernel::tracee::{self, SIGINFO_BYTES};
use link::{LinkError, LinkReader};
use migrate::homeward;
use migrate::rounds::Rounds;
use migrate::stopwatch::Stopwatch;
use migrate::worker::{self, Batch, Worker};
use migrate::{MigrateError, Result, freeze, injection, mapping_flags, threads};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use wire::forward::{ToAway, ToHome};
use wire::ids::GuestTid;
use wire::image::{self, Image};
use wire::processor_time::PastClock;
use wire::supervisor::{MoveReport, Wait};

/// How a homecoming ended.
pub enum Ending {
    /// The process is a plain one.
    Home(Home),
    /// It cannot be taken in, and is a deputy as before. The body stands frozen, or (`goes_on`)
    /// runs already because it was what failed.
    Away { error: MigrateError, reader: LinkReader, goes_on: bool },
}

/// What is to be told of a process that is home.
pub struct Home {
    pub report: MoveReport,
    /// Waits that go on here against a deadline that only we know.
    pub waits: Vec<Wait>,
    /// Clocks of which home's kernel knows only a part.
    pub clocks: Vec<PastClock>,
}

/// How far the body is with sending itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sending {
    #[default]
    UnderWay,
    /// It waits to hear what home holds, or that it is to go on.
    Awaits,
    Done,
    /// It failed, and the body runs again.
    GivenUp,
}

/// A homecoming under way: what has to be undone if it fails.
#[derive(Default)]
pub struct Homecoming {
    /// Signals that threads were about to get.
    pub held: Vec<Held>,
    /// What was done to the threads, by slot.
    pub settled: HashMap<usize, Settled>,
    /// Slots whose thread stands stopped.
    pub stopped: BTreeSet<usize>,
    pub image: Option<Image>,
    pub sending: Sending,
    /// What the deputy itself needs of the memory that is replaced: addresses and bytes.
    pub own_memory: Vec<(u64, Vec<u8>)>,
    /// Signals of the body that wait here now: slot and number.
    pub queued: Vec<(usize, i32)>,
    /// And those of them that found their handler again: slot, number, and what it was.
    pub rearmed: Vec<(usize, i32, Action)>,
}

/// Receives the image and makes the process a plain one. The reader is the link to the frozen body.
///
/// # Errors
/// What cannot be taken back: the process has ended, or its body is lost.
pub fn run(service: &mut Service<'_>, mut reader: LinkReader) -> Result<Ending> {
    // Until all is done, or taken back.
    let _haste = Haste::of(service.pid, process::threads(service.pid)?);
    let held = std::mem::take(&mut service.death.signals);
    let mut homecoming = Homecoming { held, ..Homecoming::default() };
    // Silence for so long means that no more will come.
    reader.set_timeout(Some(link::LOSS_TIMEOUT))?;
    match homecoming.take_in(service, &mut reader) {
        Ok(home) => Ok(Ending::Home(home)),
        Err(error) if is_final(&error) => {
            service.death.signals = homecoming.held;
            Err(error)
        }
        Err(error) => {
            ::tracing::warn!("process {} cannot come home: {error}", service.pid);
            let goes_on = withdrawal::withdraw(service, homecoming, &mut reader)?;
            reader.set_timeout(None)?;
            Ok(Ending::Away { error, reader, goes_on })
        }
    }
}

/// True for the end of the process, of its program and of the link; all else leaves two whole
/// halves.
pub fn is_final(error: &MigrateError) -> bool {
    match error {
        MigrateError::Ended(_) | MigrateError::BeganProgram => true,
        MigrateError::Kernel(error) => error.is_gone(),
        // A message that does not decode was read to its end.
        MigrateError::Link(error) => !matches!(error, LinkError::Decode(_)),
        _ => false,
    }
}

impl Homecoming {
    fn take_in(&mut self, service: &mut Service<'_>, reader: &mut LinkReader) -> Result<Home> {
        let ahead = service.shared.arriving().as_ref().map(Arriving::progress);
        let mut watch = Stopwatch::start();
        self.settle_lanes(service)?;
        watch.phase("settle");
        let mut image = receive_image(service, reader, &mut self.sending)?;
        self.end_unborn(service, &image)?;
        check_threads(service, &image)?;
        let (home, late) = service.own.take(service.pid)?;
        mapping_flags::correct(&mut image.mappings, late);
        self.keep_own_memory(service)?;
        let image = &*self.image.insert(image);
        let first = reader.receive()?;
        let is_asked = matches!(first, ToHome::AsksHeld(_));
        let told = match &first {
            ToHome::AsksHeld(told) => MoveReport::clone(told),
            _ => Rounds::within(service.freeze_budget).tell(0, MoveReport::default()),
        };
        if is_asked {
            self.sending = Sending::Awaits;
        }
        let kept = service.take_kept(is_asked);
        *service.shared.arriving() = None;
        let held = restore_memory(service, image, &home, kept)?;
        watch.phase("map");
        let first = if is_asked {
            service.tell_held(&held)?;
            self.sending = Sending::UnderWay;
            reader.receive()?
        } else {
            first
        };
        let (bytes, awaits_others) =
            receive_pages(service, image, (reader, first), &mut self.sending)?;
        homeward::protect(worker(service)?, &image.mappings)?;
        let guards = mapping_flags::install(&image.guards);
        worker(service)?.execute_all("guard memory", &guards)?;
        watch.phase("receive");
        if awaits_others {
            // What is written from here on is not to be overwritten by what another still brings.
            let said = (&ToAway::HasMemory, &ToHome::MemoryIsIn);
            together::await_word(service, reader, said, &mut self.sending)?;
            watch.phase("await-memory");
        }
        let shown = image.time;
        let plan = resolve_calls(service, image, &self.settled, &self.held)?;
        let mut waits = waits_of(service, image, &plan);
        let clocks = processor_time::pasts(service, image);
        service.shared.used_away.hear(image.clock.away);
        adopt_defaults(service, image)?;
        self.adopt_threads(service)?;
        self.load_threads(service, plan)?;
        watch.phase("restore");
        if awaits_others {
            let said = (&ToAway::Prepared, &ToHome::GoesHome);
            together::await_word(service, reader, said, &mut self.sending)?;
            watch.phase("await-others");
        }
        migrate::time::await_no_less(shown, migrate::time::now);
        together::accept(remove_agent(service), awaits_others)?;
        count_sleeps(service, &mut waits);
        commit(service);
        watch.phase("let-go");
        let report = arriving::report((ahead, told), bytes, watch);
        Ok(Home { report, waits, clocks })
    }
}

/// A live thread for work that concerns the whole process.
pub fn worker<'a>(service: &'a Service<'_>) -> Result<Worker<'a>> {
    let first = service.shared.lanes.live_slots().first().map(|slot| service.worker(*slot));
    first.ok_or_else(|| MigrateError::Protocol("no thread is left".into()))
}

fn receive_image(
    service: &Service<'_>,
    reader: &mut LinkReader,
    sending: &mut Sending,
) -> Result<Image> {
    let mut image = match reader.receive()? {
        ToHome::Image(image) => image,
        // It could not be read.
        ToHome::Stayed(reason) => {
            *sending = Sending::GivenUp;
            return Err(MigrateError::Refused(reason));
        }
        _ => return Err(MigrateError::Protocol("expected an image".into())),
    };
    while image.is_incomplete() {
        match reader.receive()? {
            ToHome::Threads(threads) => image.add_threads(threads)?,
            _ => return Err(MigrateError::Protocol("expected threads".into())),
        }
    }
    image.check(service.library.len())?;
    check_place(service, &image.mappings)?;
    Ok(*image)
}

/// The threads that come home are those that are here.
fn check_threads(service: &Service<'_>, image: &Image) -> Result<()> {
    let lanes = &service.shared.lanes;
    let here: BTreeSet<_> =
        lanes.live_slots().into_iter().map(|slot| lanes.lock(slot).guest).collect();
    let mut there: BTreeSet<_> = image.threads.iter().map(|thread| thread.tid).collect();
    // A thread may have ended here while its body was frozen just before it would have.
    let ended = |tid: &GuestTid| {
        lanes.has_ended(*tid)
            || lanes.slot_of(*tid).is_some_and(|slot| matches!(lanes.lock(slot).work, Work::Gone))
    };
    there.retain(|tid| !ended(tid));
    if here != there {
        let text = format!("{} threads came home, {} are expected", there.len(), here.len());
        return Err(MigrateError::Protocol(text));
    }
    Ok(())
}

pub fn live_slot_of(service: &Service<'_>, thread: &image::Thread) -> Option<usize> {
    let lanes = &service.shared.lanes;
    let slot = lanes.slot_of(thread.tid)?;
    (!matches!(lanes.lock(slot).work, Work::Gone)).then_some(slot)
}

/// A thread that ended here before its body could: whoever waits for its end finds the word that
/// the kernel clears (set_tid_address(2)) cleared, and the robust mutexes that it held without an
/// owner. Nobody has to be woken: all threads look again when they go on.
fn finish_ended(service: &Service<'_>, thread: &image::Thread) -> Result<()> {
    let memory = &service.shared.lanes.memory;
    // As in the kernel, a list that is broken is followed no further.
    let _ = release_robust_mutexes(memory, thread.robust_list.0, thread.tid.0 as u32);
    if thread.tid_address != 0 {
        memory.write(thread.tid_address, &0u32.to_le_bytes())?;
    }
    Ok(())
}

/// The kernel's bound (ROBUST_LIST_LIMIT), against lists that bite their tail.
const ROBUST_MUTEXES_MAX: usize = 2048;
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;

/// Does what the kernel does with the list of a thread that ends (get_robust_list(2),
/// `exit_robust_list`): the futexes that it owns are marked.
fn release_robust_mutexes(memory: &Memory, head: u64, tid: u32) -> kernel::Result<()> {
    if head == 0 {
        return Ok(());
    }
    let offset = memory.read_u64(head + 8)?;
    let pending = memory.read_u64(head + 16)?;
    let mut entries = vec![pending];
    let mut next = memory.read_u64(head)?;
    while next & !1 != head && entries.len() <= ROBUST_MUTEXES_MAX {
        entries.push(next);
        next = memory.read_u64(next & !1)?;
    }
    // The lowest bit tells one that inherits priorities.
    for entry in entries.into_iter().map(|entry| entry & !1).filter(|entry| *entry != 0) {
        let place = entry.wrapping_add(offset);
        let mut word = [0; 4];
        memory.read(place, &mut word)?;
        let word = u32::from_le_bytes(word);
        if word & FUTEX_TID_MASK == tid {
            let died = word & libc::FUTEX_WAITERS | libc::FUTEX_OWNER_DIED;
            memory.write(place, &died.to_le_bytes())?;
        }
    }
    Ok(())
}

/// Where in the staging area a siginfo is laid for its thread to queue.
const SIGINFO_OFFSET: usize = 4096;

impl Homecoming {
    /// Hands back what the kernel keeps for each thread, and queues the signals that wait for it:
    /// by the thread itself, which alone may say who sent them (rt_tgsigqueueinfo(2)).
    fn adopt_threads(&mut self, service: &Service<'_>) -> Result<()> {
        let Some(image) = &self.image else { return Ok(()) };
        let lanes = &service.shared.lanes;
        let mut batches: Vec<Batch<'_>> = Vec::with_capacity(image.threads.len());
        let mut living = Vec::with_capacity(image.threads.len());
        for thread in &image.threads {
            let Some(slot) = live_slot_of(service, thread) else {
                finish_ended(service, thread)?;
                continue;
            };
            lanes.agent.write_staging(slot, 0, &threads::adopt_scratch(thread));
            let calls = threads::adopt_calls(thread, lanes.agent.staging_address(slot));
            batches.push((service.worker(slot), calls));
            living.push((slot, thread));
        }
        worker::execute_each("hand back thread state", &batches)?;
        for (slot, thread) in living {
            for signal in thread.signals.iter().chain(&unseen_signals(service, slot, thread)) {
                // Its own faults (0) were never sent there.
                if signal.index > 0
                    && let Some(action) = lanes.before_reset(signal.number)
                    && service.action(signal.number)?.handler == 0
                {
                    set_disposition(service, slot, signal.number, &action)?;
                    self.rearmed.push((slot, signal.number, action));
                }
                queue_signal(service, slot, signal.number, &signal.siginfo)?;
                self.queued.push((slot, signal.number));
            }
            let tid = lanes.lock(slot).tid;
            while let Some(at) = self.held.iter().position(|(holder, _, _)| *holder == tid) {
                let (_, number, info) = self.held[at];
                queue_signal(service, slot, number, &info)?;
                self.held.remove(at);
            }
        }
        Ok(())
    }
}

/// Whether home has set it, or will, and the body has not heard of that.
fn is_being_set(image: &Image, signal: i32) -> bool {
    let calls = image.threads.iter().filter_map(|thread| thread.in_flight.as_ref());
    calls
        .filter(|call| i64::from(call.number) == libc::SYS_rt_sigaction)
        .any(|call| call.arguments[0] as i32 == signal)
}

/// Takes over the flags and masks of dispositions that are the default: the body does not tell of
/// those that it sets again.
fn adopt_defaults(service: &Service<'_>, image: &Image) -> Result<()> {
    let lanes = &service.shared.lanes;
    let Some(slot) = lanes.live_slots().first().copied() else { return Ok(()) };
    for (signal, words) in (1..).zip(&image.actions) {
        let (here, there) = (lanes.action(signal), Action::from_words(*words));
        let are_plain = [here, there].iter().all(|action| is_plain_default(signal, action));
        if there != here && are_plain && !is_being_set(image, signal) {
            set_disposition(service, slot, signal, &there)?;
            lanes.set_action(signal, there);
        }
    }
    Ok(())
}

/// Has the thread of a slot, which has nothing to do, set what a signal does. A handler that is to
/// be entered once is entered by a signal that comes home before it was, and not the default.
pub fn set_disposition(
    service: &Service<'_>,
    slot: usize,
    number: i32,
    action: &Action,
) -> Result<()> {
    let agent = &service.shared.lanes.agent;
    agent.write_staging(slot, SIGINFO_OFFSET, &action.encode());
    let place = agent.staging_address(slot) + SIGINFO_OFFSET as u64;
    let call = BatchCall::new(libc::SYS_rt_sigaction, [number as u64, place, 0, 8, 0, 0]);
    service.worker(slot).execute_all("set a disposition", &[call])
}

/// Has the thread of a slot, which has nothing to do, queue a signal to itself.
pub fn queue_signal(service: &Service<'_>, slot: usize, number: i32, info: &[u8]) -> Result<()> {
    let lanes = &service.shared.lanes;
    let process = lanes.lock(0).guest;
    let guest = lanes.lock(slot).guest;
    queue_signal_by(service.worker(slot), (process, guest), number, info)
}

/// Likewise a thread of that process and of that id, as they know themselves.
pub fn queue_signal_by(
    worker: Worker<'_>,
    (process, guest): (GuestTid, GuestTid),
    number: i32,
    info: &[u8],
) -> Result<()> {
    let info = &info[..info.len().min(SIGINFO_BYTES)];
    worker.agent.write_staging(worker.slot, SIGINFO_OFFSET, info);
    let place = worker.agent.staging_address(worker.slot) + SIGINFO_OFFSET as u64;
    let arguments = [process.0 as u64, guest.0 as u64, number as u64, place, 0, 0];
    let call = BatchCall::new(libc::SYS_rt_tgsigqueueinfo, arguments);
    worker.execute_all("queue a signal", &[call])
}

const _: () = assert!(SIGINFO_OFFSET + SIGINFO_BYTES <= STAGING_BYTES);

impl Homecoming {
    /// Stops every thread and gives it the guest's registers.
    fn load_threads(
        &mut self,
        service: &Service<'_>,
        mut plan: HashMap<usize, Resumption>,
    ) -> Result<()> {
        let Some(image) = &self.image else { return Ok(()) };
        let lanes = &service.shared.lanes;
        let mut resumed = |thread| {
            let slot = live_slot_of(service, thread)?;
            Some((thread, (slot, lanes.lock(slot).tid, plan.remove(&slot)?)))
        };
        let threads: Vec<_> = image.threads.iter().filter_map(&mut resumed).collect();
        let tids: Vec<i32> = threads.iter().map(|(_, (_, tid, _))| *tid).collect();
        // Nothing but SIGSTOP comes through their masks.
        stop_each(service.pid, &tids, &mut Vec::new())?;
        self.stopped.extend(threads.iter().map(|(_, (slot, ..))| *slot));
        for (thread, (slot, tid, resumption)) in threads {
            tracee::set_extended_state(tid, &thread.extended_state)?;
            match resumption.sleep {
                Some(left) => sleep_on(service, slot, tid, &resumption.registers, left)?,
                None => tracee::set_registers(tid, &resumption.registers)?,
            }
            tracee::set_signal_mask(tid, thread.signal_mask)?;
        }
        Ok(())
    }
}

/// Puts a thread back to sleep for the rest of its time.
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
    threads::renew_sleep(tid, &shorter, registers, || {})
}

fn remove_agent(service: &Service<'_>) -> Result<()> {
    let lanes = &service.shared.lanes;
    injection::remove(worker(service)?.tid, service.borrowed, &lanes.agent)
}

/// The process here is whole: from now on it is the one that runs, even if we fall here.
///
/// First it no longer dies with us, then the body is let go, then the threads: should this
/// supervisor be killed in between, the body ends with its link and the kernel lets the threads
/// run.
fn commit(service: &Service<'_>) {
    let lanes = &service.shared.lanes;
    let tids: Vec<i32> =
        lanes.live_slots().into_iter().rev().map(|slot| lanes.lock(slot).tid).collect();
    freeze::unhold(&tids);
    service.shared.send(&ToAway::Release);
    // The first thread last.
    for tid in tids {
        if let Err(error) = tracee::detach(tid, 0) {
            ::tracing::debug!("{error}");
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const OWN: u32 = 7;
    const OTHER: u32 = 8;

    #[test]
    fn robust_mutexes_of_a_thread_that_ended_have_no_owner_and_those_of_others_keep_theirs() {
        // The head (next, offset, pending), and two entries, each with its word behind it.
        let mut words = [0u64; 8];
        let at = |index: usize, words: &[u64; 8]| (&raw const words[index]) as u64;
        let (first, second) = (at(4, &words), at(6, &words));
        words[0] = first;
        words[1] = 8;
        words[4] = second;
        words[5] = u64::from(OWN | libc::FUTEX_WAITERS);
        words[6] = at(0, &words);
        words[7] = u64::from(OTHER);
        let memory = Memory::open(std::process::id() as i32).unwrap();
        release_robust_mutexes(&memory, at(0, &words), OWN).unwrap();
        let seen = std::hint::black_box(&words);
        assert_eq!(seen[5], u64::from(libc::FUTEX_WAITERS | libc::FUTEX_OWNER_DIED));
        assert_eq!(seen[7], u64::from(OTHER));
        assert!(release_robust_mutexes(&memory, 1, OWN).is_err(), "no such list");
        release_robust_mutexes(&memory, 0, OWN).unwrap();
    }
}
