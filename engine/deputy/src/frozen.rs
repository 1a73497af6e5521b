//! A process whose threads all stand still, because it is to leave or to be made ready for that:
//! what is read of it, and how it is put back.

use crate::announcing::{guest_tid, guest_tids};
use crate::departed::{DepartedThread, Remembered, Standing, Told, Waiting};
use crate::departure::{Away, Left};
use crate::lanes::Lane;
use crate::limited_sleep;
use crate::processor_time;
use crate::settings;
use crate::settling::{Halt, stop, stop_each};
use kernel::agent::Agent;
use kernel::child_signal::ChildSignal;
use kernel::features::{self, Feature};
use kernel::haste::Haste;
use kernel::memory::Memory;
use kernel::proc::pagemap::Pagemap;
use kernel::proc::process::ThreadStatus;
use kernel::proc::{maps, process, sleep};
use kernel::remote_call::RemoteCalls;
use kernel::signal::Action;
use kernel::tracee;
use kernel::tracking::{self, Tracking};
use link::{LinkReader, LinkWriter};
use migrate::backing::Library;
use migrate::injection::{self, Borrowed};
use migrate::worker::{self, Worker};
use migrate::{
    MigrateError, Result, ahead, attributes, freeze, layout, locked, machine, processor_ids,
    stepping, threads,
};
use std::collections::HashMap;
use std::ops::Range;
use wire::ids::GuestTid;
use wire::image::Image;
use wire::processor_time::PastClock;
use wire::supervisor::{Berth, MoveReport, Wait};

/// A frozen process, until it has left or was put back.
pub struct Frozen {
    pub pid: i32,
    pub tids: Vec<i32>,
    /// What is said of the first of them, once it was read.
    statuses: Vec<ThreadStatus>,
    seen: Seen,
    threads: Vec<DepartedThread>,
    agent: Option<Agent>,
    /// So many of them are telling what was asked of them.
    telling: usize,
    /// All but the first were stopped again, or may have been, and have the guest's masks.
    are_halted: bool,
    halts: Vec<Halt>,
    borrowed: Option<Borrowed>,
    /// Its program may ask which processor it runs on.
    asks_processor: bool,
    /// Where the agent is to lie, and for how many threads, as the target was told.
    agent_place: (Range<u64>, usize),
}

/// What was seen of a process just before it is stopped, because it would take too long then, or
/// would not be there any more.
pub struct Seen {
    /// It may have a filter: ours.
    is_mobile: bool,
    /// Its threads are hurried until it has left, or is as before.
    haste: Haste,
    waiting: Waiting,
    /// Clocks of earlier stays away.
    pasts: Vec<PastClock>,
    /// Those of its threads, by local number.
    past_threads: HashMap<i32, PastClock>,
    /// Where it lay when its program began.
    vdso: Range<u64>,
    /// How the guest knows its threads, those left out that began last.
    guests: HashMap<i32, GuestTid>,
}

impl Seen {
    pub fn of(pid: i32, remembered: &Remembered) -> Result<Seen> {
        let guests = guest_tids(pid)?;
        let pasts = remembered.clocks.clone();
        let past_threads = processor_time::past_of_threads(&pasts, pid, &guests);
        let calls = guests.keys().filter_map(|tid| Some((*tid, threads::waiting_call(pid, *tid)?)));
        let calls = calls.collect();
        let waits = remembered.waits.clone();
        let waiting = Waiting { calls, waits, sleeps: limited_sleep::sample(pid)? };
        let haste = Haste::of(pid, guests.keys().copied());
        let is_mobile = remembered.is_mobile;
        let vdso = machine::vdso_of(pid)?;
        Ok(Seen { is_mobile, haste, waiting, pasts, past_threads, vdso, guests })
    }
}

/// What [`Away`] has besides the threads.
pub type Parts = ((LinkReader, LinkWriter), Memory, Library, Vec<Action>, u64, MoveReport, Left);

/// A thread that was given up in the middle of something that it did for us runs still, and has to
/// stop before it can be put back: else it would die with us.
fn await_stopped(tid: i32) -> Result<()> {
    match tracee::registers(tid) {
        Ok(_) => Ok(()),
        Err(error) if error.is_gone() => stop(tid, &mut Vec::new()).map(drop),
        Err(error) => Err(error.into()),
    }
}

/// Puts back what a sleeping call reads again of memory that was emptied. What was not, a shared
/// mapping of a file that cannot be written to, has it still.
fn keep_memory(memory: &Memory, address: u64, bytes: &[u8]) -> Result<()> {
    let mut there = vec![0; bytes.len()];
    if memory.read_some(address, &mut there) == bytes.len() && there == bytes {
        return Ok(());
    }
    Ok(memory.write(address, bytes)?)
}

impl Frozen {
    /// Stops all threads of a process.
    ///
    /// # Errors
    /// It runs on as if nothing had been, or has ended.
    pub fn freeze(
        pid: i32,
        seen: Seen,
        signals: &ChildSignal,
        (asks_processor, agent_place): (bool, (Range<u64>, usize)),
    ) -> Result<Frozen> {
        let tids = freeze::freeze(pid, signals)?;
        Ok(Frozen {
            pid,
            tids,
            statuses: vec![],
            seen,
            threads: vec![],
            agent: None,
            telling: 0,
            are_halted: false,
            halts: vec![],
            borrowed: None,
            asks_processor,
            agent_place,
        })
    }

    /// Whether it was started with a filter of ours.
    pub fn is_mobile(&self) -> bool {
        self.seen.is_mobile
    }

    /// Readies the threads to be read ([`freeze::settle`]).
    ///
    /// # Errors
    /// Also when a signal that was due to one has ended the process.
    pub fn settle(&mut self) -> Result<()> {
        self.statuses = freeze::settle(self.pid, &self.tids, &self.seen.vdso)?;
        Ok(())
    }

    /// Has the process make what tells which of its pages are written to, and takes it over. None
    /// if it cannot: it may have no descriptor left.
    ///
    /// Mappings are watched from here on and no others, because here they stand still: of one that
    /// changes meanwhile a part would be watched, and mremap(2) of both parts fails.
    pub fn track(&mut self, memory: &Memory) -> Result<Option<Tracking>> {
        if self.may_write_unseen()? {
            return Ok(None);
        }
        let maps = maps::read(self.pid)?;
        self.choose_to_read()?;
        // A restartable sequence ends here as it would by any other call.
        self.read_threads(memory)?;
        let borrowed = injection::borrow(memory, &maps)?;
        let mut calls = RemoteCalls::begin(self.tids[0], borrowed.syscall)?;
        let make = [tracking::DESCRIPTOR_FLAGS, 0, 0, 0, 0, 0];
        let made = calls.raw(libc::SYS_userfaultfd, make)?;
        let Ok(number @ 0..) = i32::try_from(made) else {
            ::tracing::debug!("process {}: no userfaultfd: {made}", self.pid);
            return Ok(None);
        };
        let taken = kernel::pidfd::open(self.pid)
            .and_then(|process| kernel::pidfd::duplicate_from(&process, number));
        calls.call("close a userfaultfd", libc::SYS_close, [number as u64, 0, 0, 0, 0, 0])?;
        drop(calls);
        match taken.and_then(|descriptor| Tracking::of(self.pid, descriptor)) {
            Ok(tracking) => {
                ahead::watch(&tracking, &Pagemap::open(self.pid)?, &maps)?;
                Ok(Some(tracking))
            }
            Err(error) => {
                ::tracing::debug!("process {}: {error}", self.pid);
                Ok(None)
            }
        }
    }

    /// Each thread, and what is said of it.
    pub fn statuses(&self) -> impl Iterator<Item = (i32, ThreadStatus)> {
        self.tids.iter().copied().zip(self.statuses.iter().copied())
    }

    /// Only the first thread is made to do something, and of those that wait it has to be known
    /// until when: all others are let go as they stopped, and need not be read.
    fn choose_to_read(&mut self) -> Result<()> {
        let (mut chosen, mut others) = (vec![], vec![]);
        for tid in &self.tids {
            let is_chosen =
                *tid == self.tids[0] || Standing::may_end_by_our_word(&tracee::registers(*tid)?);
            if is_chosen { chosen.push(*tid) } else { others.push(*tid) }
        }
        let statuses = chosen.iter().map(|tid| process::thread_status(self.pid, *tid));
        self.statuses = statuses.collect::<kernel::Result<_>>()?;
        chosen.extend(others);
        self.tids = chosen;
        Ok(())
    }

    /// Whether something may be written to its memory without that being told: into pages that are
    /// protected while a call that has taken hold of them is under way. Where nothing is protected
    /// but what stands still, there is no such call.
    pub fn may_write_unseen(&self) -> Result<bool> {
        let protects_while_running = features::settled().has(Feature::WriteTracking);
        Ok(protects_while_running && process::reads_directly(self.pid)?)
    }

    /// Reads those threads whose status was, and makes them ready to work for us.
    fn read_threads(&mut self, memory: &Memory) -> Result<()> {
        freeze::hold(&self.tids[..self.statuses.len()])?;
        let waiting = &self.seen.waiting;
        for (tid, status) in self.tids.iter().copied().zip(&self.statuses) {
            attributes::check_stopped(tid)?;
            let stopped = threads::read(tid, GuestTid(status.innermost_id))?;
            let sequence = threads::sequence(&stopped, memory);
            self.asks_processor |= processor_ids::uses_rseq(&stopped, sequence);
            let is_64bit = stopped.registers.is_64bit();
            let (departed, is_known) =
                DepartedThread::new((stopped, sequence), status, memory, waiting);
            self.threads.push(departed);
            if !is_64bit {
                return Err(MigrateError::refused("32-bit", "it runs 32-bit code"));
            }
            if !is_known {
                let text =
                    format!("thread {tid} is in a wait that somebody interrupted; try again");
                return Err(MigrateError::refused("restarted-wait", text));
            }
        }
        Ok(())
    }

    /// Likewise threads that are to go on elsewhere from where they stand.
    pub fn read_places(&mut self, memory: &Memory, maps: &[maps::Mapping]) -> Result<()> {
        self.read_threads(memory)?;
        // Its program may have moved it.
        let vdso = maps::vdso(maps);
        let mut stopped = self.threads.iter().map(|thread| &thread.stopped.registers);
        match stopped.any(|registers| stepping::is_in_vdso(registers, &vdso)) {
            true => Err(stepping::vdso_refusal()),
            false => Ok(()),
        }
    }

    /// Places the agent and sets every thread going in it, to tell what only it can tell.
    pub fn enter_agent(&mut self, memory: &Memory, maps: &[maps::Mapping]) -> Result<()> {
        let borrowed = injection::borrow(memory, maps)?;
        self.borrowed = Some(borrowed);
        let (place, slots) = (&self.agent_place.0, self.agent_place.1);
        if self.threads.len() > slots {
            let text = "it has begun many threads while it was being moved; try again";
            return Err(MigrateError::refused("changed", text));
        }
        let before = process::locked_kib(self.pid)?;
        let agent = injection::inject(self.pid, self.tids[0], borrowed, maps, (place, slots))?;
        let agent = self.agent.insert(agent);
        for (slot, departed) in self.threads.iter().enumerate() {
            departed.begin_telling(agent, slot)?;
            self.telling = slot + 1;
        }
        locked::check_agent(before, process::locked_kib(self.pid)?)
    }

    fn agent(&self) -> Result<&Agent> {
        self.agent.as_ref().ok_or_else(|| MigrateError::Protocol("no agent".into()))
    }

    pub(crate) fn worker(&self, slot: usize) -> Result<Worker<'_>> {
        Ok(Worker { agent: self.agent()?, slot, tid: self.threads[slot].stopped.tid })
    }

    /// What the threads have told.
    fn collect(&mut self) -> Result<Vec<Told>> {
        let mut all = Vec::with_capacity(self.telling);
        // The last to be asked is mostly the last to be done.
        while let Some(slot) = self.telling.checked_sub(1) {
            all.push(self.threads[slot].collect(self.worker(slot)?)?);
            self.telling = slot;
        }
        all.reverse();
        Ok(all)
    }

    /// Puts the image together, but for its guard regions.
    pub fn image(
        &mut self,
        maps: &[maps::Mapping],
        library: &Library,
    ) -> Result<(Image, Vec<Action>)> {
        let told = self.collect()?;
        let agent = self.agent()?;
        let actions = settings::actions(&self.worker(0)?)?;
        let (program_break, stack_limit, clock) =
            settings::process(&self.worker(0)?, &self.seen.pasts)?;
        let keys = self.threads.iter().filter_map(|thread| thread.rights_by_key());
        // Only those of a thread that has been given some are not the least.
        let keys = keys.max_by_key(|rights| !attributes::are_without_keys(*rights));
        let has_no_huge_pages = attributes::of_process(self.worker(0)?, 0, keys)?;
        let mut layout_words = process::stat(&self.pid.to_string())?.layout;
        layout_words[process::BREAK] = program_break;
        let mut images = Vec::with_capacity(self.threads.len());
        for (departed, told) in self.threads.iter().zip(&told) {
            let past = self.seen.past_threads.get(&departed.stopped.tid);
            images.push(departed.image(told, past, &self.seen.haste)?);
        }
        let mappings = layout::of_guest(maps, &[], library)?;
        let image = Image {
            pid: images[0].tid,
            threads: images,
            later_threads: 0,
            guards: vec![],
            mappings,
            layout: layout_words,
            actions: actions.iter().map(Action::words).collect(),
            stack_limit,
            memory_limits: settings::memory_limits(&self.worker(0)?)?,
            reserved: (agent.base(), agent.end()),
            clock,
            peak_rss_kib: 0,
            time: migrate::time::now(),
            has_no_huge_pages,
            processors: self.asks_processor.then(processor_ids::own),
        };
        Ok((image, actions))
    }

    /// Where the calls in which threads go on sleeping here write to: addresses and bytes.
    pub fn written_by_sleepers(&self) -> impl Iterator<Item = (u64, u64)> {
        let kept = self.threads.iter().filter_map(|departed| departed.kept.as_ref());
        let segments = kept.flat_map(|call| &call.segments);
        segments.map(|segment| (segment.guest.0, u64::from(segment.length)))
    }

    /// Stops the deputy's threads and gives them the guest's signal masks while the target makes
    /// the body: all but the first, which may have memory to give back. They stand until
    /// [`Frozen::settle_away`], and are not to be given work.
    pub fn halt_others(&mut self) -> Result<()> {
        let tids = self.tids_read();
        self.are_halted = true;
        self.halts = stop_each(self.pid, &tids[1..], &mut Vec::new())?;
        self.threads[1..].iter().try_for_each(|departed| departed.give_mask())
    }

    /// Has those that were stopped early wait in the agent again.
    fn unhalt_others(&mut self) {
        for departed in self.threads.iter().skip(1).filter(|_| self.are_halted) {
            let tid = departed.stopped.tid;
            // One that has not stopped need not go on.
            let _ = tracee::set_signal_mask(tid, u64::MAX).and_then(|()| tracee::resume(tid, 0));
        }
        self.are_halted = false;
    }

    /// Gives the deputy's threads the guest's signal masks, and sleepers their calls back. True if
    /// job control has stopped the process meanwhile.
    pub fn settle_away(&mut self, memory: &Memory) -> Result<bool> {
        let agent = self.agent.as_ref().ok_or_else(|| MigrateError::Protocol("no agent".into()))?;
        let mut is_held = false;
        let halts = [stop(self.pid, &mut Vec::new())?].into_iter().chain(self.halts.drain(..));
        self.threads[0].give_mask()?;
        for ((slot, departed), halt) in self.threads.iter().enumerate().zip(halts) {
            let tid = departed.stopped.tid;
            if departed.kept.is_some() {
                if let Some((address, bytes)) = &departed.kept_memory {
                    keep_memory(memory, *address, bytes)?;
                }
                let mut registers = departed.stopped.registers;
                agent.enter_inside_call(&mut registers, slot);
                tracee::set_registers(tid, &registers)?;
            }
            is_held |= halt.is_held;
            if halt.is_held { tracee::listen(tid)? } else { tracee::resume(tid, 0)? }
        }
        Ok(is_held)
    }

    pub fn into_away(
        mut self,
        berth: Berth,
        (link, memory, library, actions, memory_bytes, report, left): Parts,
        is_held: bool,
    ) -> Result<Away> {
        let (Some(agent), Some(borrowed)) = (self.agent, self.borrowed) else {
            return Err(MigrateError::Protocol("no agent".into()));
        };
        let pid = self.pid;
        let past = processor_time::past_of_process(&self.seen.pasts);
        let used = past.map(|past| past.away).unwrap_or_default();
        let lanes = self.threads.into_iter().map(|thread| Lane::of(pid, thread)).collect();
        let relief = self.seen.haste.take_relief();
        Ok(Away {
            pid,
            berth,
            link,
            agent,
            memory,
            library,
            borrowed,
            lanes,
            actions,
            memory_bytes,
            report,
            used,
            relief,
            left,
            is_held,
        })
    }

    /// Makes everything as it was and lets go.
    /// Returns what is to be known of threads that go on waiting.
    pub fn put_back(mut self) -> Vec<Wait> {
        let standings = self.standings();
        match self.try_put_back() {
            Ok(()) => freeze::unhold(&self.tids),
            Err(error) => ::tracing::error!("process {}: putting it back: {error}", self.pid),
        }
        for tid in &self.tids[self.threads.len()..] {
            let _ = threads::put_back_unread(*tid);
        }
        for tid in &self.tids {
            let _ = tracee::detach(*tid, 0);
        }
        self.seen.waiting.after_failure(&standings)
    }

    /// Where the threads were stopped, those included that were not read yet.
    fn standings(&self) -> Vec<Standing> {
        let read = self.threads.iter().map(|departed| departed.standing());
        let unread = self.tids[self.threads.len()..].iter().filter_map(|tid| {
            let known = self.seen.guests.get(tid).copied();
            let guest = known.or_else(|| guest_tid(self.pid, *tid).ok())?;
            Some(Standing::of(*tid, guest, tracee::registers(*tid).ok()?))
        });
        let counted = |standing: Standing| {
            let is_needed = Standing::may_end_by_our_word(&standing.registers);
            let sleeps = is_needed.then(|| sleep::count(self.pid, standing.tid)).flatten();
            Standing { sleeps, ..standing }
        };
        read.chain(unread).map(counted).collect()
    }

    fn tids_read(&self) -> Vec<i32> {
        self.threads.iter().map(|departed| departed.stopped.tid).collect()
    }

    fn try_put_back(&mut self) -> Result<()> {
        self.collect()?;
        self.unhalt_others();
        let Some(agent) = &self.agent else {
            return self.threads.iter().try_for_each(|departed| {
                await_stopped(departed.stopped.tid)?;
                threads::put_back(&departed.stopped)
            });
        };
        let mut batches = Vec::new();
        for (slot, departed) in self.threads.iter().enumerate() {
            if let Some(rseq) = &departed.stopped.rseq {
                let (address, size, signature) = threads::rseq_image(rseq);
                let call = threads::rseq_call(address, size, 0, signature);
                batches.push((self.worker(slot)?, vec![call]));
            }
        }
        // Busy means that it was never given up.
        worker::try_each(&batches)?;
        stop_each(self.pid, &self.tids_read(), &mut Vec::new())?;
        self.threads.iter().try_for_each(|departed| threads::put_back(&departed.stopped))?;
        if let Some(borrowed) = self.borrowed {
            injection::remove(self.tids[0], borrowed, agent)?;
        }
        Ok(())
    }
}
