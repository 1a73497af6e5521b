//! Processes made by vfork(2), and by what posix_spawn(3) is made of ([decision
//! 0033](../../../docs/decisions/)).
//!
//! Such a child has its maker's memory, and its maker stands still until the child has begun
//! another program or ended. Here it has a copy, as after fork; when it is done, whatever it is
//! done by, what it has changed is written into its maker, which goes on then. Nothing but the
//! child runs meanwhile, so nobody can tell the copy from the memory itself.
//!
//! ```text
//!   maker's thread                           child's thread
//!     make_child: stands still ─────────────►  lives, and is done: stands still
//!     remap ◄──────────────────── Remap ─────  if its mappings have changed
//!                                              writes what has changed into the maker
//!     goes on ◄────────────── ChildDone ─────  ends
//! ```

use crate::mapping_changes::{self, Changes, MappingCall};
use crate::state::{Order, Shared};
use crate::tracing_loop::Tracing;
use kernel::memory::Memory;
use kernel::patience::Patience;
use kernel::proc::maps::{self, Mapping};
use kernel::proc::pagemap::{PAGE_BYTES, Pagemap, Run, Select};
use kernel::remote_call::RemoteCalls;
use kernel::tracee::{self, Stop};
use migrate::held::Held;
use migrate::{MigrateError, Result, mapping_flags};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use wire::ids::GuestTid;
use wire::image::MappingFlags;

/// A thread stops at once, or the kernel keeps it.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two looks whether the maker is still there.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// What is copied at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// What a child knows of the process whose memory it has for a while.
pub(crate) struct Maker {
    pub(crate) body: Arc<Shared>,
    /// The child's private mappings when it was made.
    maps: Vec<Mapping>,
    /// What is of each of both: where the kernel writes for its thread, and memory that it wipes in
    /// a copy.
    own: Vec<Range<u64>>,
}

/// That a thread stands still until a process that it has made is done with its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) tid: i32,
    pub(crate) child: GuestTid,
}

/// Why a process that stands still does not move, nor the one for which it does.
pub(crate) fn refusal() -> MigrateError {
    let text = "it shares its memory with a process that has just been made (vfork, posix_spawn), \
                until that begins its program; try again";
    MigrateError::refused("vfork", text)
}

impl Tracing<'_> {
    /// What a child, stopped where it begins, has to know of this process, whose thread `tid` makes
    /// it.
    ///
    /// # Errors
    /// Refused if the copy would not be what the memory is.
    pub(crate) fn as_maker(&self, tid: i32, child: i32) -> Result<Maker> {
        let mut own = self.memory_of_its_own()?;
        if let Some(rseq) = tracee::rseq_registration(tid)? {
            own.push(rseq.address..rseq.address + u64::from(rseq.size));
        }
        Ok(Maker { body: self.shared.clone(), maps: private_maps(child, &self.shared)?, own })
    }

    /// Memory that a copy does not have.
    fn memory_of_its_own(&self) -> Result<Vec<Range<u64>>> {
        let flagged: Vec<(Range<u64>, MappingFlags)> = match self
            .shared
            .was_advised
            .load(Ordering::SeqCst)
        {
            true => kernel::proc::flags::read_maps(self.shared.pid)?
                .iter()
                .map(|m| (m.start..m.end, mapping_flags::flags_of(m)))
                .collect(),
            false => {
                self.fixed.origin.mappings.iter().map(|m| (m.start.0..m.end.0, m.flags)).collect()
            }
        };
        // One is not copied at all; of the other the kernel may make one page of two equal ones,
        // which then nobody has alone.
        let differs = |flags: MappingFlags| {
            flags.has(MappingFlags::NOT_FORKED) || flags.has(MappingFlags::MERGEABLE)
        };
        if flagged.iter().any(|(_, flags)| differs(*flags)) {
            let text = "it has memory that a copy of it would not have";
            return Err(MigrateError::refused("memory-flags", text));
        }
        let is_wiped = |flags: MappingFlags| flags.has(MappingFlags::WIPED_ON_FORK);
        Ok(flagged
            .into_iter()
            .filter(|(_, flags)| is_wiped(*flags))
            .map(|(range, _)| range)
            .collect())
    }

    /// A process that has its maker's memory gives it back, at its end here.
    pub(crate) fn give_memory_back(&mut self) {
        let shared = self.shared.clone();
        let Some(maker) = &shared.maker else { return };
        let outcome = match self.shared.family.has(&maker.body) {
            true => self.stand_still().and_then(|is_there| match is_there {
                true => self.write_back(maker),
                false => Ok(()),
            }),
            false => return,
        };
        if let Err(error) = &outcome {
            ::tracing::warn!("what process {} has left to its maker: {error}", shared.guest_pid);
        }
        let is_whole = outcome.is_ok();
        maker.body.order(Order::ChildDone { child: shared.guest_pid, is_whole });
    }

    /// Stops the body's only thread, if it is not stopped yet; false if it has ended.
    fn stand_still(&mut self) -> Result<bool> {
        let tid = self.shared.pid;
        if self.stopped.contains(&tid) {
            return Ok(true);
        }
        self.shared.lock().is_frozen = true;
        let _limit = Patience::of(STOP_TIMEOUT);
        match tracee::interrupt(tid) {
            Err(error) if error.is_gone() => return Ok(false),
            interrupted => interrupted?,
        }
        self.answer_outstanding();
        match tracee::wait(tid) {
            Ok(Stop::Ended(_)) => Ok(false),
            Err(error) if error.is_gone() => Ok(false),
            stopped => stopped.map(|_| true).map_err(Into::into),
        }
    }

    /// Writes what it has changed into its maker.
    fn write_back(&self, maker: &Maker) -> Result<()> {
        let pid = self.shared.pid;
        let now = private_maps(pid, &self.shared)?;
        let changes = mapping_changes::between(&maker.maps, &now).ok_or_else(|| {
            MigrateError::Protocol("it has mapped what a copy cannot have mapped".into())
        })?;
        let mut calls = changes.calls.clone();
        if changes.moves_break {
            let mut of_child = RemoteCalls::begin(pid, self.agent.syscall_instruction())?;
            let place = of_child.call("read the program break", libc::SYS_brk, [0; 6])?;
            calls.push((libc::SYS_brk, [place, 0, 0, 0, 0, 0]));
        }
        // What it has given up is found before anything changes.
        calls.extend(given_up(pid, maker, &now)?);
        let changed = changed(pid, &now, &changes)?;
        if !calls.is_empty() {
            self.have_remapped(maker, calls)?;
        }
        for run in changed {
            copy(&self.shared.memory, &maker.body.memory, run, &maker.own)?;
        }
        Ok(())
    }

    /// Has the maker's thread change its mappings.
    fn have_remapped(&self, maker: &Maker, calls: Vec<MappingCall>) -> Result<()> {
        let (done, is_done) = channel();
        maker.body.order(Order::Remap { child: self.shared.guest_pid, calls, done });
        loop {
            match is_done.recv_timeout(LOOK_INTERVAL) {
                Ok(()) => return Ok(()),
                Err(RecvTimeoutError::Timeout) if self.shared.family.has(&maker.body) => {}
                Err(_) => {
                    return Err(MigrateError::Protocol("its maker is gone, or failed".into()));
                }
            }
        }
    }

    /// Changes the mappings of a process that stands still, as its child has changed its own.
    pub(crate) fn remap(
        &self,
        child: GuestTid,
        calls: &[MappingCall],
        done: &Sender<()>,
    ) -> Result<()> {
        let waiting = self.shared.lock().waiting.filter(|waiting| waiting.child == child);
        let Some(Waiting { tid, .. }) = waiting else { return Ok(()) };
        let mut thread = RemoteCalls::begin(tid, self.agent.syscall_instruction())?;
        for (number, arguments) in calls {
            let result = thread.call("change mappings as its child has", *number, *arguments)?;
            // It says where the break is, whatever was asked for.
            if *number == libc::SYS_brk && result != arguments[0] {
                let text = format!("its program break cannot be at {:#x}", arguments[0]);
                return Err(MigrateError::Protocol(text));
            }
        }
        drop(thread);
        // One that does not wait any more has no use for it.
        let _ = done.send(());
        Ok(())
    }

    /// A process that had this one's memory is done with it.
    ///
    /// # Errors
    /// If that may have left the memory in pieces.
    pub(crate) fn child_is_done(&mut self, child: GuestTid, is_whole: bool) -> Result<()> {
        let waiting = self.shared.lock().waiting.take_if(|waiting| waiting.child == child);
        let Some(Waiting { tid, .. }) = waiting else { return Ok(()) };
        if !is_whole {
            let text = format!("what its child {child} has changed of its memory is lost");
            return Err(MigrateError::Protocol(text));
        }
        self.go_on_in_agreement(tid)
    }
}

/// Mappings that a copy has as copies, in order.
fn private_maps(pid: i32, shared: &Shared) -> Result<Vec<Mapping>> {
    let mut maps = maps::read(pid)?;
    let is_kept = |m: &Mapping| shared.kept.contains(&(m.start..m.end));
    maps.retain(|m| !m.is_shared && !m.is_kernel_provided() && !is_kept(m));
    Ok(maps)
}

/// Pages of which the child has others than its maker.
fn changed(pid: i32, now: &[Mapping], changes: &Changes) -> Result<Vec<Run>> {
    let pagemap = Pagemap::open(pid)?;
    let mut runs = Vec::new();
    for mapping in now {
        runs.extend(pagemap.unshared(mapping.start, mapping.end)?);
    }
    // What was moved there is its maker's page still, which has it elsewhere.
    for range in &changes.fresh {
        runs.extend(pagemap.scan(range.start, range.end, Select::Populated)?);
    }
    Ok(runs)
}

/// The calls that give up what the maker has and the child has not any more, where both have the
/// same mapping.
fn given_up(pid: i32, maker: &Maker, now: &[Mapping]) -> Result<Vec<MappingCall>> {
    let (of_maker, of_child) = (Pagemap::open(maker.body.pid)?, Pagemap::open(pid)?);
    let mut calls = Vec::new();
    for mapping in maker.maps.iter() {
        let both = now.iter().map(|m| mapping.start.max(m.start)..mapping.end.min(m.end));
        for range in both.filter(|range| !range.is_empty()) {
            let there = of_maker.scan(range.start, range.end, Select::Private)?;
            let mut left = Held::of(&of_child.scan(range.start, range.end, Select::Private)?);
            for own in &maker.own {
                let end = own.end.next_multiple_of(PAGE_BYTES);
                left.add(Run { start: own.start & !(PAGE_BYTES - 1), end });
            }
            for run in left.lacks(&there) {
                let advice = libc::MADV_DONTNEED as u64;
                let arguments = [run.start, run.end - run.start, advice, 0, 0, 0];
                calls.push((libc::SYS_madvise, arguments));
            }
        }
    }
    Ok(calls)
}

/// Copies a run of pages, but for what each has for itself.
fn copy(from: &Memory, to: &Memory, run: Run, own: &[Range<u64>]) -> Result<()> {
    let mut bytes = vec![0; (run.end - run.start).min(CHUNK_BYTES) as usize];
    let mut at = run.start;
    while at < run.end {
        let length = (run.end - at).min(CHUNK_BYTES);
        let chunk = &mut bytes[..length as usize];
        from.read_pages(at, chunk)?;
        for piece in outside(&(at..at + length), own) {
            let inside = (piece.start - at) as usize..(piece.end - at) as usize;
            // Not by pid: that may be another's by now.
            to.write(piece.start, &chunk[inside])?;
        }
        at += length;
    }
    Ok(())
}

/// What is left of a range without others.
fn outside(range: &Range<u64>, others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = vec![range.clone()];
    for other in others {
        left = left
            .into_iter()
            .flat_map(|piece| {
                [piece.start..piece.end.min(other.start), piece.start.max(other.end)..piece.end]
            })
            .filter(|piece| !piece.is_empty())
            .collect();
    }
    left
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_left_of_a_range_without_others_is_all_else() {
        assert_eq!(outside(&(10..20), &[]), vec![10..20]);
        assert_eq!(outside(&(10..20), &[12..14, 18..30, 0..5]), [10..12, 14..18]);
        assert_eq!(outside(&(10..20), &[0..11, 11..40]), []);
    }
}
