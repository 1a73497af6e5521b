//! Restoring an image away from home: a body built from nothing, in its sandbox.
//!
//! The order matters: the supervisor's own memory has to go before the guest's can take its place,
//! threads come before capabilities are dropped, and the filter closes the sandbox last.

use crate::backing::Library;
use crate::elsewhere::{self, Elsewhere, Plan};
use crate::pages::Intake;
use crate::registers::Translator;
use crate::worker::{self, Worker};
use crate::{
    MigrateError, Result, homeward, injection, layout, mapping_flags, processor_ids, threads,
};
use kernel::agent::{self, Agent, BatchCall};
use kernel::features::{self, Feature};
use kernel::memory::Memory;
use kernel::patience::{self, Patience};
use kernel::proc::flags;
use kernel::proc::maps::{self, Mapping};
use kernel::regs::Registers;
use kernel::remote_call::RemoteCalls;
use kernel::sandbox::{self, Sandbox};
use kernel::seccomp::{self, Listener};
use kernel::shared::SharedMemory;
use kernel::tracee::{self, Stop};
use kernel::vdso::Stub;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;
use wire::ids::GuestTid;
use wire::image::{self, Home, Image, MappingFlags, MappingKind, Pages};

pub(crate) const MAIN_SLOT: usize = 0;

/// A body under construction, and then the body: its threads are traced by the calling thread.
pub struct Body {
    // Dropped first: killing the sandbox's init ends everything inside.
    pub sandbox: Sandbox,
    pub memory: Memory,
    pub agent: Agent,
    /// Guest thread, local thread; the index is the agent's slot.
    pub threads: Vec<(GuestTid, i32)>,
    /// Where home is another machine.
    pub elsewhere: Option<Elsewhere>,
    /// Where home's kernel keeps other registers.
    pub registers: Option<Translator>,
    pub(crate) image: Image,
    /// Flags of mappings that this kernel could not give them.
    pub missing: MappingFlags,
}

impl Body {
    /// Replaces the memory of a fresh sandbox by the image's mappings, empty. `shared` is a memory
    /// file that the sandbox inherited, as are the files of `library`, and the `stub` for a process
    /// whose home is another machine.
    pub fn lay_out(
        sandbox: Sandbox,
        shared: OwnedFd,
        image: Image,
        library: &Library,
        abroad: Option<(&Stub, &Home)>,
    ) -> Result<Body> {
        image.check(library.len())?;
        if !image.has_first_thread() {
            let text = "its first thread has ended, and others go on: it moves home only";
            return Err(MigrateError::refused("leader-ended", text));
        }
        let pid = sandbox.body_pid;
        let memory = Memory::open(pid)?;
        let own = maps::read(pid)?;
        let borrowed = injection::borrow(&memory, &own)?;
        let agent = place_agent(pid, borrowed, &own, &image, shared)?;
        enter_agent(pid, &agent, MAIN_SLOT)?;
        let main = (image.pid, pid);
        let threads = vec![main];
        let mut body = Body {
            sandbox,
            memory,
            agent,
            threads,
            elsewhere: None,
            registers: None,
            image,
            missing: MappingFlags::default(),
        };
        // What is read of the sandbox is read before it is cleared.
        let plan = abroad.map(|(stub, home)| body.plan_abroad(&own, stub, home)).transpose()?;
        body.clear(&own)?;
        match &plan {
            Some(plan) => body.execute("move the vDSO", MAIN_SLOT, &plan.own)?,
            None => body.move_kernel_mappings(&own)?,
        }
        let of_home = plan.as_ref().map_or(&[][..], |plan| &plan.home);
        body.map_all(library, of_home)?;
        if let Some(plan) = plan {
            if let Some(address) = plan.vdso_address() {
                body.memory.write(address, &plan.vdso)?;
            }
            body.execute("protect home's vDSO", MAIN_SLOT, &plan.protect)?;
            body.elsewhere = Some(plan.elsewhere);
        }
        body.flag_all()?;
        Ok(body)
    }

    fn plan_abroad(&self, own: &[Mapping], stub: &Stub, home: &Home) -> Result<Plan> {
        let taken = layout::ranges(own)
            .chain(self.image.mappings.iter().map(|m| m.start.0..m.end.0))
            .chain([self.agent.base()..self.agent.end(), reserved(&self.image)]);
        elsewhere::plan(own, &self.memory, home, &self.image, taken, stub)
    }

    /// Writes received memory contents; only into the image's mappings, only whole pages.
    pub fn write(&self, pages: &Pages, intake: &mut Intake) -> Result<()> {
        intake.check(pages, &self.image.mappings)?;
        Ok(self.memory.write(pages.address.0, &pages.content)?)
    }

    /// Makes the threads, hands over what the kernel keeps for them, and closes the sandbox with
    /// the filter. The threads end up stopped, ready to be resumed.
    pub fn finish(&mut self, rules: &[seccomp::Rule]) -> Result<Listener> {
        let _limit = Patience::of(FINISH_TIMEOUT);
        let protect = homeward::protect_calls(&self.image.mappings);
        self.execute("protect memory", MAIN_SLOT, &protect)?;
        let guard = match features::settled().has(Feature::GuardRegions) {
            true => mapping_flags::install(&self.image.guards),
            false => mapping_flags::protect(&self.image.guards),
        };
        self.execute("guard memory", MAIN_SLOT, &guard)?;
        self.adopt_process()?;
        self.make_threads()?;
        self.adopt_threads()?;
        if let Some(ids) = self.image.processors {
            processor_ids::bind(self.threads.iter().map(|(_, tid)| *tid), ids)?;
        }
        self.limit_memory()?;
        let listener = self.close_sandbox(rules)?;
        for index in 0..self.threads.len() {
            self.stop_in_agent(index)?;
        }
        for index in 0..self.threads.len() {
            self.load(index)?;
        }
        Ok(listener)
    }

    /// The image's state of the thread in this slot.
    pub fn thread_image(&self, slot: usize) -> &image::Thread {
        let tid = self.threads[slot].0;
        let found = self.image.threads.iter().find(|t| t.tid == tid);
        found.unwrap_or(&self.image.threads[0])
    }

    pub fn image(&self) -> &Image {
        &self.image
    }

    /// What of its address space is not the guest's: the agent, the place of that of home, and the
    /// vDSO of another machine's kernel.
    pub fn kept(&self) -> [Range<u64>; 3] {
        let vdso = self.elsewhere.as_ref().map_or(0..0, Elsewhere::hidden);
        [self.agent.base()..self.agent.end(), reserved(&self.image), vdso]
    }

    /// What the body's supervisor goes on with.
    pub fn into_parts(self) -> (Sandbox, Memory, Agent, Image) {
        (self.sandbox, self.memory, self.agent, self.image)
    }

    pub(crate) fn worker(&self, slot: usize) -> Worker<'_> {
        Worker { agent: &self.agent, slot, tid: self.threads[slot].1 }
    }

    pub(crate) fn execute(&self, what: &str, slot: usize, calls: &[BatchCall]) -> Result<()> {
        self.worker(slot).execute_all(what, calls)
    }

    /// Unmaps all of the supervisor's memory but the agent and what the kernel provides.
    fn clear(&self, own: &[Mapping]) -> Result<()> {
        let calls: Vec<BatchCall> = own
            .iter()
            .filter(|m| !m.is_kernel_provided())
            .map(|m| BatchCall::new(libc::SYS_munmap, [m.start, m.length(), 0, 0, 0, 0]))
            .collect();
        self.execute("clear the sandbox's memory", MAIN_SLOT, &calls)
    }

    /// Moves the vDSO and its data to where the guest knows them.
    fn move_kernel_mappings(&self, own: &[Mapping]) -> Result<()> {
        let wanted: Vec<(&str, Range<u64>)> = self
            .image
            .mappings
            .iter()
            .filter_map(|m| match &m.kind {
                MappingKind::Kernel { name } => Some((name.as_str(), m.start.0..m.end.0)),
                _ => None,
            })
            .collect();
        let mine: Vec<&Mapping> =
            own.iter().filter(|m| m.is_kernel_provided() && m.name != b"[vsyscall]").collect();
        let mut pairs = Vec::new();
        for (name, target) in &wanted {
            let same = |m: &&&Mapping| m.name == name.as_bytes() && m.length() == len(target);
            let Some(source) = mine.iter().find(same) else {
                let text = format!("its kernel has no {name} of {} bytes", len(target));
                return Err(MigrateError::refused("vdso", text));
            };
            pairs.push((source.start, target.start, len(target)));
        }
        let total: u64 = pairs.iter().map(|(_, _, length)| length).sum();
        let taken = layout::ranges(own)
            .chain(self.image.mappings.iter().map(|m| m.start.0..m.end.0))
            .chain([self.agent.base()..self.agent.end(), reserved(&self.image)]);
        let Some(mut middle) = layout::room(taken, total) else {
            return Err(MigrateError::refused("no-room", "its address space is full"));
        };
        // By way of a free place, because sources and targets may overlap.
        let (mut away, mut back) = (Vec::new(), Vec::new());
        for (source, target, length) in pairs {
            away.push(remap(source, middle, length));
            back.push(remap(middle, target, length));
            middle += length;
        }
        away.extend(back);
        let is_used = |m: &&&Mapping| wanted.iter().any(|(name, _)| m.name == name.as_bytes());
        let unused = mine.iter().filter(|m| !is_used(m));
        let calls: Vec<BatchCall> = unused
            .map(|m| BatchCall::new(libc::SYS_munmap, [m.start, m.length(), 0, 0, 0, 0]))
            .chain(away)
            .collect();
        if calls.is_empty() { Ok(()) } else { self.execute("move the vDSO", MAIN_SLOT, &calls) }
    }

    /// `of_home` stand in for what home's kernel provides.
    fn map_all(&self, library: &Library, of_home: &[BatchCall]) -> Result<()> {
        let mut calls = of_home.to_vec();
        let mut below = 0;
        for mapping in &self.image.mappings {
            let start = match mapping.kind {
                MappingKind::Anonymous { grows_down: true } => self.stack_start(mapping, below),
                _ => mapping.start.0,
            };
            let length = mapping.end.0 - start;
            below = mapping.end.0;
            let (flags, descriptor, offset) = match &mapping.kind {
                MappingKind::Kernel { .. } => continue,
                MappingKind::Anonymous { grows_down: false } => (PRIVATE_NEW, NO_FILE, 0),
                MappingKind::Anonymous { grows_down: true } => {
                    (PRIVATE_NEW | libc::MAP_GROWSDOWN as u64, NO_FILE, 0)
                }
                MappingKind::SharedAnonymous => (SHARED_NEW, NO_FILE, 0),
                MappingKind::File { backing, offset, is_shared } => {
                    let file = library.file(*backing).ok_or_else(|| {
                        MigrateError::Protocol(format!("mapping of unknown file {backing}"))
                    })?;
                    let way = if *is_shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
                    ((way | libc::MAP_FIXED) as u64, file.as_raw_fd() as u64, *offset)
                }
            };
            let protection = u64::from(homeward::filling_protection(mapping));
            let flags = flags | homeward::reservation(mapping) as u64;
            let arguments = [start, length, protection, flags, descriptor, offset];
            calls.push(BatchCall::new(libc::SYS_mmap, arguments));
        }
        let home = reserved(&self.image);
        if !home.is_empty() {
            let flags = PRIVATE_NEW | libc::MAP_NORESERVE as u64;
            let arguments = [home.start, len(&home), 0, flags, NO_FILE, 0];
            calls.push(BatchCall::new(libc::SYS_mmap, arguments));
        }
        calls.push(BatchCall::new(libc::SYS_close_range, [0, u64::from(u32::MAX), 0, 0, 0, 0]));
        self.execute("map the guest's memory", MAIN_SLOT, &calls)
    }

    /// Gives the mappings their flags, as far as this kernel has them, and notes which it has not.
    fn flag_all(&mut self) -> Result<()> {
        let mut calls = Vec::new();
        for mapping in self.image.mappings.iter().filter(|m| m.flags != MappingFlags::default()) {
            let range = mapping.start.0..mapping.end.0;
            if mapping.flags.has(MappingFlags::DROPPABLE) {
                let flags = libc::MAP_ANONYMOUS | libc::MAP_FIXED | homeward::MAP_DROPPABLE;
                let protection = u64::from(mapping.protection);
                let arguments = [range.start, len(&range), protection, flags as u64, NO_FILE, 0];
                calls.push(BatchCall::new(libc::SYS_mmap, arguments));
            }
            calls.extend(mapping_flags::advise(&range, mapping.flags));
        }
        if calls.is_empty()
            && self.image.mappings.iter().all(|m| m.flags == MappingFlags::default())
        {
            return Ok(());
        }
        self.worker(MAIN_SLOT).execute(&calls)?;
        self.missing =
            mapping_flags::missing(&flags::read_maps(self.sandbox.body_pid)?, &self.image);
        Ok(())
    }

    /// Where the stack's mapping has to start so that it never needs to grow: only the guest's own
    /// accesses make the kernel grow a stack, not ours for the results of its calls.
    fn stack_start(&self, stack: &image::Mapping, below: u64) -> u64 {
        let mapped = self.image.mappings.iter().map(|m| m.end.0 - m.start.0);
        let mapped = mapped.fold(len(&reserved(&self.image)), u64::saturating_add);
        // What is mapped ahead counts against the limit of the address space.
        let room = self.image.memory_limits.0.saturating_sub(mapped);
        let size = (stack.end.0 - stack.start.0).saturating_add(room);
        let size = size.min(self.image.stack_limit.0).min(STACK_BYTES_MAX) & !4095;
        let lowest = below.saturating_add(STACK_GAP_BYTES).next_multiple_of(4096);
        stack.end.0.saturating_sub(size).max(lowest).min(stack.start.0)
    }

    /// Makes the other threads, each with its id of home.
    fn make_threads(&mut self) -> Result<()> {
        let staging = self.agent.staging_address(MAIN_SLOT);
        let others: Vec<GuestTid> =
            self.image.threads.iter().map(|t| t.tid).filter(|t| *t != self.image.pid).collect();
        for (index, tid) in others.into_iter().enumerate() {
            self.agent.write_staging(MAIN_SLOT, 0, &tid.0.to_le_bytes());
            let arguments = sandbox::thread_arguments(staging);
            self.agent.write_staging(MAIN_SLOT, 16, &arguments);
            let call = [staging + 16, arguments.len() as u64, 0, 0, 0, 0];
            self.agent.submit(MAIN_SLOT, &[BatchCall::new(libc::SYS_clone3, call)]);
            let local = self.catch_thread(tid)?;
            let slot = index + 1;
            self.threads.push((tid, local));
            enter_agent(local, &self.agent, slot)?;
        }
        Ok(())
    }

    /// Waits for the thread that the main thread is making; it is stopped before its first
    /// instruction.
    fn catch_thread(&self, tid: GuestTid) -> Result<i32> {
        let main = self.sandbox.body_pid;
        let failed = || kernel_failure(&format!("make thread {tid}"), libc::EAGAIN);
        // A clone that fails raises no event: then the batch is done and main goes on waiting.
        loop {
            patience::check(|| format!("make thread {tid}"))?;
            match tracee::poll(main)? {
                Some(Stop::Event(_)) => break,
                Some(stop) => worker::go_on(main, stop)?,
                None if self.agent.is_done(MAIN_SLOT) => return Err(failed()),
                None => std::thread::yield_now(),
            }
        }
        let local = tracee::event_message(main)? as i32;
        if !matches!(tracee::wait(local)?, Stop::Interrupted | Stop::Group(_)) {
            return Err(failed());
        }
        tracee::resume(main, 0)?;
        self.worker(MAIN_SLOT).await_done()?;
        self.agent.clear(MAIN_SLOT);
        Ok(local)
    }

    /// Installs the filter on all threads and takes its listener out of the body.
    fn close_sandbox(&self, rules: &[seccomp::Rule]) -> Result<Listener> {
        let program = seccomp::program(rules)?;
        let staging = self.agent.staging_address(MAIN_SLOT);
        self.agent.write_staging(MAIN_SLOT, 64, &program);
        let header = seccomp::program_header(program.len(), staging + 64);
        self.agent.write_staging(MAIN_SLOT, 0, &header);
        let install = seccomp::install_call(staging);
        let worker = self.worker(MAIN_SLOT);
        let number = worker.execute(&[install])?[0];
        if number < 0 {
            return Err(kernel_failure("install the seccomp filter", -number as i32));
        }
        let process = kernel::pidfd::open(self.sandbox.body_pid)?;
        let listener = Listener::new(kernel::pidfd::duplicate_from(&process, number as i32)?);
        // The body must not keep its own listener; this very close is its first notification.
        let close = BatchCall::new(libc::SYS_close, [number as u64, 0, 0, 0, 0, 0]);
        self.agent.submit(MAIN_SLOT, &[close]);
        let mut is_closed = false;
        while !is_closed {
            patience::check(|| "close the sandbox".to_owned())?;
            if !listener.wait(worker::GLANCE_INTERVAL) {
                worker.look_after()?;
            } else if let Some(notification) = listener.receive()? {
                is_closed = listener.let_pass(notification.id);
            }
        }
        worker.await_done()?;
        self.agent.clear(MAIN_SLOT);
        Ok(listener)
    }

    fn stop_in_agent(&self, index: usize) -> Result<()> {
        let tid = self.threads[index].1;
        tracee::interrupt(tid)?;
        loop {
            match tracee::wait(tid)? {
                Stop::Interrupted | Stop::Group(_) => return Ok(()),
                Stop::Ended(status) => return Err(MigrateError::Ended(status)),
                _ => tracee::resume_interrupted(tid, 0)?,
            }
        }
    }

    /// Gives a stopped thread the guest's registers and signal mask.
    fn load(&self, slot: usize) -> Result<()> {
        let tid = self.threads[slot].1;
        let thread = self.thread_image(slot);
        let mut words = [0; kernel::regs::REGISTER_WORDS];
        words.copy_from_slice(&thread.registers);
        let registers = Registers::from_words(words);
        if !registers.is_64bit() {
            return Err(MigrateError::refused("32-bit", "it runs 32-bit code"));
        }
        match &self.registers {
            None => tracee::set_extended_state(tid, &thread.extended_state)?,
            Some(translator) => {
                let own = tracee::extended_state(tid)?;
                let state = translator.to_here(&thread.extended_state, &own)?;
                tracee::set_extended_state(tid, &state)?;
            }
        }
        tracee::set_registers(tid, &registers)?;
        tracee::set_signal_mask(tid, thread.signal_mask)?;
        Ok(())
    }
}

/// All that is left to do when the memory is there: milliseconds, and more with thousands of
/// threads on a busy node.
const FINISH_TIMEOUT: Duration = Duration::from_secs(20);
/// Most of an unlimited stack that is mapped ahead.
const STACK_BYTES_MAX: u64 = 256 << 20;
/// What Linux keeps free below a stack (stack_guard_gap).
const STACK_GAP_BYTES: u64 = 1 << 20;
const NO_FILE: u64 = u64::MAX;
const PRIVATE_NEW: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
const SHARED_NEW: u64 = (libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;

fn place_agent(
    pid: i32,
    borrowed: injection::Borrowed,
    own: &[Mapping],
    image: &Image,
    shared: OwnedFd,
) -> Result<Agent> {
    let slots = image.threads.len();
    let size = agent::size_for(slots);
    let taken = layout::ranges(own)
        .chain(image.mappings.iter().map(|m| m.start.0..m.end.0))
        .chain([reserved(image)]);
    let Some(base) = layout::room(taken, size as u64) else {
        return Err(MigrateError::refused("no-room", "its address space is full"));
    };
    let mut calls = RemoteCalls::begin(pid, borrowed.syscall)?;
    if let Some(rseq) = tracee::rseq_registration(pid)? {
        let call = threads::rseq_unregister(&rseq);
        calls.call("give up rseq", call.number as i64, call.arguments)?;
    }
    let descriptor = shared.as_raw_fd() as u64;
    let memory = SharedMemory::of_file(shared, size)?;
    injection::map(&mut calls, descriptor, base, size as u64)?;
    drop(calls);
    Ok(Agent::new(memory, base, slots))
}

/// Sets a stopped thread going in the agent, with all signals blocked.
fn enter_agent(tid: i32, agent: &Agent, slot: usize) -> Result<()> {
    let mut registers = tracee::registers(tid)?;
    agent.enter(&mut registers, slot);
    tracee::set_registers(tid, &registers)?;
    tracee::set_signal_mask(tid, u64::MAX)?;
    tracee::resume(tid, 0)?;
    Ok(())
}

fn reserved(image: &Image) -> Range<u64> {
    image.reserved.0..image.reserved.1
}

fn len(range: &Range<u64>) -> u64 {
    range.end - range.start
}

fn remap(source: u64, target: u64, length: u64) -> BatchCall {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    BatchCall::new(libc::SYS_mremap, [source, length, length, flags, target, 0])
}

fn kernel_failure(what: &str, errno: i32) -> MigrateError {
    let source = std::io::Error::from_raw_os_error(errno);
    kernel::KernelError { what: what.to_owned(), source }.into()
}
