//! The address space of a body before there is a body: laid out in its sandbox from a draft, while
//! the process still runs elsewhere ([decision 0020](../../../docs/decisions/)).
//!
//! The supervisor's own memory has to go before the guest's can take its place. The image comes
//! when the process stands frozen, and only what has changed since the draft is left to do then.

use crate::backing::Library;
use crate::elsewhere::{self, Elsewhere, Plan};
use crate::emptying;
use crate::homeward::{self, Change};
use crate::imprint::Imprints;
use crate::intake::Intake;
use crate::making::{self, Made};
use crate::outward::{Body, MAIN_SLOT, enter_agent};
use crate::worker::Worker;
use crate::{MigrateError, Result, injection, layout, locked, mapping_flags, threads};
use kernel::agent::{self, Agent, BatchCall};
use kernel::memory::Memory;
use kernel::proc::flags;
use kernel::proc::maps::{self, Mapping};
use kernel::proc::pagemap::Run;
use kernel::remote_call::RemoteCalls;
use kernel::sandbox::Sandbox;
use kernel::shared::SharedMemory;
use kernel::tracee;
use kernel::tracking::Tracking;
use kernel::vdso::Stub;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use wire::hashes::{Lacking, PageHashes};
use wire::image::{self, Draft, Home, Image, MappingFlags, MappingKind, Pages, Span};

/// One thread, traced by the calling one, waits in the agent for what is to become of it.
pub struct Shell {
    // Dropped first: killing the sandbox's init ends everything inside.
    sandbox: Sandbox,
    memory: Memory,
    agent: Agent,
    elsewhere: Option<Elsewhere>,
    missing: MappingFlags,
    /// Flags of which it is known whether they are missing.
    sought: MappingFlags,
    draft: Draft,
    /// The draft's mappings as they are laid out: the stack is whole.
    pub(crate) laid: Vec<image::Mapping>,
    pub(crate) tracking: Option<Arc<Tracking>>,
    /// The mappings of which what was written to was last told anew.
    pub(crate) followed: Vec<image::Mapping>,
    /// What lets faults of the kernel be served, if it is not a right.
    pub(crate) device: Option<OwnedFd>,
    /// The draft's threads, the first one left out.
    made: Vec<Made>,
}

impl Shell {
    /// Replaces the memory of a fresh sandbox by the draft's mappings, empty. `shared` is a memory
    /// file that the sandbox inherited, as are the files of `library`, and the `stub` for a process
    /// whose home is another machine.
    ///
    /// # Errors
    /// Refused if this node cannot have such memory; the draft may also be one that no process has.
    pub fn lay_out(
        sandbox: Sandbox,
        shared: OwnedFd,
        draft: Draft,
        library: &mut Library,
        abroad: Option<(&Stub, &Home)>,
    ) -> Result<Shell> {
        draft.check(library.len())?;
        let pid = sandbox.body_pid;
        let memory = Memory::open(pid)?;
        let own = maps::read(pid)?;
        let borrowed = injection::borrow(&memory, &own)?;
        let agent = place_agent(pid, borrowed, &own, &draft, shared)?;
        enter_agent(pid, &agent, MAIN_SLOT)?;
        let (elsewhere, laid, none) = (None, layout::whole_stack(&draft), MappingFlags::default());
        let (missing, sought, tracking) = (none, none, None);
        let mut shell = Shell {
            sandbox,
            memory,
            agent,
            elsewhere,
            missing,
            sought,
            draft,
            laid,
            tracking,
            followed: vec![],
            device: None,
            made: vec![],
        };
        // What is read of the sandbox is read before it is cleared.
        let plan = abroad.map(|(stub, home)| shell.plan_abroad(&own, stub, home)).transpose()?;
        shell.clear(&own)?;
        match &plan {
            Some(plan) => shell.execute("move the vDSO", &plan.own)?,
            None => shell.move_kernel_mappings(&own)?,
        }
        let of_home = plan.as_ref().map_or(&[][..], |plan| &plan.home);
        shell.map_all(library, of_home)?;
        if let Some(plan) = plan {
            if let Some(address) = plan.vdso_address() {
                shell.memory.write(address, &plan.vdso)?;
            }
            shell.execute("protect home's vDSO", &plan.protect)?;
            shell.elsewhere = Some(plan.elsewhere);
        }
        let all: Vec<_> = shell.laid.iter().map(|m| (m.start.0..m.end.0, m)).collect();
        locked::advise(shell.worker(), &flag_calls(&all), &shell.draft.mappings)?;
        shell.look_again(library)?;
        shell.made = making::make_early(shell.worker(), &shell.draft.tids)?;
        Ok(shell)
    }

    /// Makes of the last draft's mappings those of the next one. What is mapped on keeps its
    /// contents.
    ///
    /// # Errors
    /// Refused if that is not the process of the draft any more; a new attempt may succeed.
    pub fn redraft(&mut self, draft: Draft, library: &mut Library) -> Result<()> {
        draft.check(library.len())?;
        if draft.reserved != self.draft.reserved || draft.threads != self.draft.threads {
            return Err(MigrateError::Protocol("a draft of something else".into()));
        }
        self.conform(draft, library)
    }

    /// Likewise of the image's, when the process stands frozen.
    ///
    /// # Errors
    /// As [`Shell::redraft`].
    pub fn settle(&mut self, image: &Image, library: &mut Library) -> Result<()> {
        image.check(library.len())?;
        if !image.has_first_thread() {
            let text = "its first thread has ended, and others go on";
            return Err(MigrateError::refused("leader-ended", text));
        }
        if self.draft.reserved != image.reserved {
            return Err(MigrateError::Protocol("an image of another draft".into()));
        }
        let (threads, tids) = (self.draft.threads, self.draft.tids.clone());
        if image.threads.len() > threads as usize {
            return Err(changed("has begun more threads than there is room for"));
        }
        let Image { stack_limit, memory_limits, reserved, .. } = *image;
        let mappings = image.mappings.clone();
        let draft = Draft { mappings, stack_limit, memory_limits, reserved, threads, tids };
        self.conform(draft, library)
    }

    /// What memory contents are checked against.
    pub fn mappings(&self) -> &[image::Mapping] {
        &self.draft.mappings
    }

    /// Writes received memory contents; only into the draft's mappings, only whole pages.
    pub fn write(&self, pages: &Pages, intake: &mut Intake) -> Result<()> {
        let runs = intake.check(&pages.spans, &pages.content, &self.draft.mappings)?;
        Ok(runs.into_iter().try_for_each(|(at, bytes)| self.memory.write_pages(at, bytes))?)
    }

    /// Puts in place what earlier guests have left of these pages; returns which are lacking.
    pub fn recall(
        &self,
        hashes: &PageHashes,
        imprints: &mut Imprints,
        intake: &mut Intake,
    ) -> Result<Lacking> {
        intake.check_asked(&hashes.spans, &self.draft.mappings)?;
        let (pages, lacking) = imprints.recall(hashes)?;
        self.write(&pages, intake)?;
        Ok(lacking)
    }

    /// Makes memory untouched again.
    pub fn discard(&self, spans: &[Span], intake: &mut Intake) -> Result<()> {
        intake.check_discarded(spans, &self.draft.mappings)?;
        let calls = emptying::discard_calls_in(spans, &self.draft.mappings);
        self.execute("discard memory", &calls)
    }

    /// Memory that comes behind the process is untouched until then.
    pub fn set_aside(&self, spans: &[Span], intake: &mut Intake) -> Result<()> {
        let stale = intake.check_late(spans, &self.draft.mappings)?;
        self.execute("discard memory", &emptying::discard_calls(&stale))
    }

    /// The contents of its memory are there, and the image was settled. If home keeps its memory,
    /// it is seen from here on what is written to; `fresh` is what has come since that began last.
    pub fn complete(mut self, image: Image, is_kept: bool, fresh: &[Run]) -> Result<Body> {
        self.track()?;
        if is_kept {
            self.begin_kept_again(fresh)?;
        }
        let all = [0, u64::from(u32::MAX), 0, 0, 0, 0];
        let close = BatchCall::new(libc::SYS_close_range, all);
        self.execute("close the sandbox's files", &[close])?;
        let first = Made { guest: image.pid, local: self.sandbox.body_pid, slot: MAIN_SLOT };
        let Shell { sandbox, memory, agent, elsewhere, missing, tracking, made, .. } = self;
        let threads = [first].into_iter().chain(made).collect();
        let (registers, images) = (None, vec![]);
        Ok(Body {
            sandbox,
            memory,
            agent,
            threads,
            images,
            elsewhere,
            registers,
            image,
            tracking,
            missing,
        })
    }

    pub fn pid(&self) -> i32 {
        self.sandbox.body_pid
    }

    fn conform(&mut self, draft: Draft, library: &mut Library) -> Result<()> {
        if draft == self.draft {
            return Ok(());
        }
        let of_kernel = |draft: &Draft| -> Vec<image::Mapping> {
            draft.mappings.iter().filter(is_of_kernel).cloned().collect()
        };
        if of_kernel(&draft) != of_kernel(&self.draft) {
            return Err(changed("has unmapped or moved what the kernel provides"));
        }
        self.draft = draft;
        let wanted = layout::whole_stack(&self.draft);
        let is_kept = |m: &image::Mapping| {
            self.kept().iter().any(|kept| m.start.0 < kept.end && kept.start < m.end.0)
        };
        if wanted.iter().any(is_kept) {
            return Err(changed("has mapped memory where there is no room for it"));
        }
        let changes = homeward::plan(&self.laid, &wanted, &is_same_kind);
        self.laid = wanted;
        self.change(&changes, library)?;
        self.look_again(library)
    }

    fn change(&self, changes: &[Change], library: &Library) -> Result<()> {
        let (mut calls, mut fresh, mut advice) = (Vec::new(), Vec::new(), Vec::new());
        for change in changes {
            match change {
                Change::Unmap(range) => {
                    let arguments = [range.start, len(range), 0, 0, 0, 0];
                    calls.push(BatchCall::new(libc::SYS_munmap, arguments));
                }
                Change::Protect(range, protection) => {
                    let arguments = [range.start, len(range), u64::from(*protection), 0, 0, 0];
                    calls.push(BatchCall::new(libc::SYS_mprotect, arguments));
                }
                Change::Map(range, mapping, offset) => {
                    calls.push(map_call(range, mapping, *offset, library)?);
                    fresh.push((range.clone(), mapping));
                }
                // Here a stack is mapped as large as it may ever grow, and shared memory as what it
                // stands for in the sandbox.
                Change::Grow(range, mapping) | Change::Share(range, _, mapping) => {
                    calls.push(map_call(range, mapping, 0, library)?);
                    fresh.push((range.clone(), mapping));
                }
                Change::Advise(calls) => advice.extend(calls),
            }
        }
        self.execute("change the guest's memory", &calls)?;
        advice.splice(0..0, flag_calls(&fresh));
        locked::advise(self.worker(), &advice, &self.draft.mappings)
    }

    /// Notes how files are named here, and which flags this kernel could not give.
    fn look_again(&mut self, library: &mut Library) -> Result<()> {
        library.learn(&maps::read(self.pid())?, &self.draft.mappings);
        let flags = self.draft.mappings.iter().map(|m| m.flags);
        let wanted = flags.fold(MappingFlags::default(), MappingFlags::with);
        // The kernel counts all pages for their flags: that is left to when there are none, if none
        // comes that was not there before.
        if wanted.without(self.sought) != MappingFlags::default() {
            let here = flags::read_maps(self.pid())?;
            let missing = mapping_flags::missing(&here, &self.draft.mappings);
            (self.missing, self.sought) = (self.missing.with(missing), self.sought.with(wanted));
        }
        Ok(())
    }

    fn plan_abroad(&self, own: &[Mapping], stub: &Stub, home: &Home) -> Result<Plan> {
        let taken =
            taken(own, &self.draft).chain(std::iter::once(self.agent.base()..self.agent.end()));
        elsewhere::plan(own, &self.memory, home, &self.draft.mappings, taken, stub)
    }

    /// What of the address space is not the guest's.
    fn kept(&self) -> [Range<u64>; 3] {
        let hidden = self.elsewhere.as_ref().map_or(0..0, Elsewhere::hidden);
        [self.agent.base()..self.agent.end(), reserved(&self.draft), hidden]
    }

    pub(crate) fn worker(&self) -> Worker<'_> {
        Worker { agent: &self.agent, slot: MAIN_SLOT, tid: self.sandbox.body_pid }
    }

    fn execute(&self, what: &str, calls: &[BatchCall]) -> Result<()> {
        self.worker().execute_all(what, calls)
    }

    /// Unmaps all of the supervisor's memory but the agent and what the kernel provides.
    fn clear(&self, own: &[Mapping]) -> Result<()> {
        let calls: Vec<BatchCall> = own
            .iter()
            .filter(|m| !m.is_kernel_provided())
            .map(|m| BatchCall::new(libc::SYS_munmap, [m.start, m.length(), 0, 0, 0, 0]))
            .collect();
        self.execute("clear the sandbox's memory", &calls)
    }

    /// Moves the vDSO and its data to where the guest knows them.
    fn move_kernel_mappings(&self, own: &[Mapping]) -> Result<()> {
        let of_kernel = |m: &'_ image::Mapping| match &m.kind {
            MappingKind::Kernel { name } => Some((name.clone(), m.start.0..m.end.0)),
            _ => None,
        };
        let wanted: Vec<(String, Range<u64>)> =
            self.draft.mappings.iter().filter_map(of_kernel).collect();
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
        let taken =
            taken(own, &self.draft).chain(std::iter::once(self.agent.base()..self.agent.end()));
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
        if calls.is_empty() { Ok(()) } else { self.execute("move the vDSO", &calls) }
    }

    /// `of_home` stand in for what home's kernel provides.
    fn map_all(&self, library: &Library, of_home: &[BatchCall]) -> Result<()> {
        let mut calls = of_home.to_vec();
        for mapping in self.laid.iter().filter(|m| !is_of_kernel(m)) {
            let offset = match mapping.kind {
                MappingKind::File { offset, .. } => offset,
                _ => 0,
            };
            calls.push(map_call(&(mapping.start.0..mapping.end.0), mapping, offset, library)?);
        }
        let home = reserved(&self.draft);
        if !home.is_empty() {
            let flags = PRIVATE_NEW | libc::MAP_NORESERVE as u64;
            let arguments = [home.start, len(&home), 0, flags, NO_FILE, 0];
            calls.push(BatchCall::new(libc::SYS_mmap, arguments));
        }
        self.execute("map the guest's memory", &calls)
    }
}

/// A file from this offset. Its descriptor is one that the sandbox inherited.
fn map_call(
    range: &Range<u64>,
    mapping: &image::Mapping,
    mut offset: u64,
    library: &Library,
) -> Result<BatchCall> {
    let (flags, descriptor) = match &mapping.kind {
        MappingKind::Anonymous { grows_down: true } => {
            (PRIVATE_NEW | libc::MAP_GROWSDOWN as u64, NO_FILE)
        }
        MappingKind::SharedAnonymous { home: Some(place) } => match library.common(place) {
            Some(file) => {
                offset = place.offset + (range.start - mapping.start.0);
                ((libc::MAP_SHARED | libc::MAP_FIXED) as u64, file.as_raw_fd() as u64)
            }
            None => (SHARED_NEW, NO_FILE),
        },
        MappingKind::SharedAnonymous { home: None } | MappingKind::SharedFile { .. } => {
            (SHARED_NEW, NO_FILE)
        }
        MappingKind::File { backing, is_shared, .. } => {
            let file = library.file(*backing).ok_or_else(|| {
                MigrateError::Protocol(format!("mapping of unknown file {backing}"))
            })?;
            let way = if *is_shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
            ((way | libc::MAP_FIXED) as u64, file.as_raw_fd() as u64)
        }
        MappingKind::Anonymous { .. } | MappingKind::Kernel { .. } => (PRIVATE_NEW, NO_FILE),
    };
    let protection = u64::from(homeward::filling_protection(mapping));
    let flags = flags | homeward::reservation(mapping) as u64;
    let arguments = [range.start, len(range), protection, flags, descriptor, offset];
    Ok(BatchCall::new(libc::SYS_mmap, arguments))
}

/// Calls that give new mappings their flags, as far as this kernel has them.
fn flag_calls(fresh: &[(Range<u64>, &image::Mapping)]) -> Vec<BatchCall> {
    let mut calls = Vec::new();
    for (range, mapping) in fresh.iter().filter(|(_, m)| m.flags != MappingFlags::default()) {
        if mapping.flags.has(MappingFlags::DROPPABLE) {
            let flags = libc::MAP_ANONYMOUS | libc::MAP_FIXED | homeward::MAP_DROPPABLE;
            let protection = u64::from(mapping.protection);
            let arguments = [range.start, len(range), protection, flags as u64, NO_FILE, 0];
            calls.push(BatchCall::new(libc::SYS_mmap, arguments));
        }
        calls.extend(mapping_flags::advise(range, mapping.flags));
    }
    calls
}

/// Whether memory that is laid out goes on, at this address, as what is wanted.
pub(crate) fn is_same_kind(laid: &image::Mapping, wanted: &image::Mapping, at: u64) -> bool {
    image::behind(laid, at).kind == image::behind(wanted, at).kind
}

fn is_of_kernel(mapping: &&image::Mapping) -> bool {
    matches!(mapping.kind, MappingKind::Kernel { .. })
}

/// The process is not any more what the target was told.
fn changed(how: &str) -> MigrateError {
    MigrateError::refused("changed", format!("it {how} while it was being moved; try again"))
}

fn place_agent(
    pid: i32,
    borrowed: injection::Borrowed,
    own: &[Mapping],
    draft: &Draft,
    shared: OwnedFd,
) -> Result<Agent> {
    let slots = draft.threads as usize;
    let size = agent::size_for(slots);
    let Some(base) = layout::room(taken(own, draft), size as u64) else {
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

/// Where nothing of ours can be placed.
fn taken<'a>(own: &'a [Mapping], draft: &'a Draft) -> impl Iterator<Item = Range<u64>> + 'a {
    layout::ranges(own)
        .chain(draft.mappings.iter().map(|m| m.start.0..m.end.0))
        .chain([reserved(draft)])
}

fn reserved(draft: &Draft) -> Range<u64> {
    draft.reserved.0..draft.reserved.1
}

fn len(range: &Range<u64>) -> u64 {
    range.end - range.start
}

fn remap(source: u64, target: u64, length: u64) -> BatchCall {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    BatchCall::new(libc::SYS_mremap, [source, length, length, flags, target, 0])
}

const NO_FILE: u64 = u64::MAX;
const PRIVATE_NEW: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
const SHARED_NEW: u64 = (libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
