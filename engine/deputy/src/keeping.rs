//! Memory of a process that is away stays at home as long as there is room for it, so that only
//! what was written elsewhere has to come back ([decision 0020](../../../docs/decisions/)). It is
//! the first thing to be given back when memory becomes short.

use crate::arriving::{Arriving, pages};
use crate::frozen::Frozen;
use crate::group::Group;
use crate::homecoming::queue_signal_by;
use crate::lanes::Work;
use crate::service::Service;
use crate::settling::{Halt, shown_memory, stop};
use kernel::proc::cgroup::{Mounts, Place};
use kernel::proc::maps;
use kernel::proc::pagemap::Run;
use kernel::proc::room::{self, Memory};
use kernel::tracee;
use migrate::kept::Kept;
use migrate::worker::Worker;
use migrate::{MigrateError, Result, emptying};
use wire::forward::ToAway;
use wire::ids::{GuestAddr, GuestTid};
use wire::image::{self, Span};
use wire::limits::DISCARDS_MAX;

/// So much of all memory has to be free (a fourth) for that of a process to be kept.
const ROOM_PARTS: u64 = 4;
/// With less than this part (an eighth) it is given back.
const SHORTAGE_PARTS: u64 = 8;
/// Discarded at a time: the process is served in between.
const DISCARD_BYTES: u64 = 64 << 20;

/// That memory is kept, and what of it not.
pub struct Keeping {
    /// Written to by calls in which threads of the deputy sleep.
    pub lost: Vec<Run>,
    pub places: Vec<Place>,
}

/// Whether there is room to keep the memory of this process.
pub fn has_room(pid: i32) -> bool {
    has_free(&places(pid), ROOM_PARTS)
}

pub fn places(pid: i32) -> Vec<Place> {
    Mounts::read().places_of(&pid.to_string())
}

fn has_free(places: &[Place], parts: u64) -> bool {
    let Memory { total_bytes, free_bytes } = room::memory(places);
    free_bytes >= total_bytes / parts
}

impl Frozen {
    /// The memory lives elsewhere now: here what is private of it is kept as it is, or dropped.
    /// What it shares with its group is dropped first, and the group told.
    ///
    /// # Errors
    /// The process has ended, and is lost.
    pub fn keep_memory(
        &self,
        is_kept: bool,
        mappings: &[image::Mapping],
        group: &Group,
    ) -> Result<Option<Keeping>> {
        let dropped = self.drop_memory(mappings.iter().filter(|m| m.is_shared_anonymous()));
        group.has_emptied();
        dropped.map_err(MigrateError::lost)?;
        if !is_kept {
            let private = mappings.iter().filter(|m| !m.is_shared_anonymous());
            return self.drop_memory(private).map(|()| None).map_err(MigrateError::lost);
        }
        let lost = self.written_by_sleepers().map(|(start, length)| pages(start, length));
        Ok(Some(Keeping { lost: lost.collect(), places: places(self.pid) }))
    }

    fn drop_memory<'a>(&self, mappings: impl Iterator<Item = &'a image::Mapping>) -> Result<()> {
        let mappings: Vec<_> = mappings.cloned().collect();
        // What `ps` reads of a process is in its memory: its arguments and environment stay.
        let shown = shown_memory(self.pid)?;
        // What fails stays here, unused: it costs memory, not correctness.
        if let Err(error) = emptying::empty(self.worker(0)?, &mappings, &shown) {
            ::tracing::warn!("process {}: {error}", self.pid);
        }
        Ok(())
    }
}

impl Service<'_> {
    /// What was kept, or has come ahead, for a body that asks. From here on nothing is.
    pub fn take_kept(&mut self, is_asked_for: bool) -> Kept {
        self.surplus.clear();
        let kept = self.kept().filter(|_| is_asked_for);
        self.keeping = None;
        kept.unwrap_or_default()
    }

    /// What of the memory is as the body thinks that it is here; None if nothing is.
    pub fn kept(&self) -> Option<Kept> {
        let keeping = self.keeping.as_ref()?;
        let arriving = self.shared.arriving();
        let lost = arriving.iter().flat_map(Arriving::lost).collect::<Vec<_>>();
        Some(Kept::but(keeping.lost.iter().copied().chain(lost)))
    }

    pub fn tell_held(&self, spans: &[Span]) -> Result<()> {
        let mut left = spans;
        loop {
            let (some, rest) = left.split_at(left.len().min(DISCARDS_MAX));
            let is_last = rest.is_empty();
            self.shared.writer().send(&ToAway::Holds { spans: some.to_vec(), is_last })?;
            if is_last {
                return Ok(());
            }
            left = rest;
        }
    }

    /// Gives up what is kept if memory is short; what there is to discard then is the surplus.
    ///
    /// # Errors
    /// The process has ended.
    pub fn watch_room(&mut self) -> Result<()> {
        let is_short = |keeping: &Keeping| !has_free(&keeping.places, SHORTAGE_PARTS);
        // What comes behind the body is nowhere else.
        if self.is_giving {
            return Ok(());
        }
        if self.keeping.take_if(|keeping| is_short(keeping)).is_none() {
            return Ok(());
        }
        ::tracing::info!("process {}: its memory is not kept any more, for lack of room", self.pid);
        let shown = shown_memory(self.pid)?;
        let ours = self.shared.lanes.agent.base()..self.shared.lanes.agent.end();
        let is_guests = |m: &&maps::Mapping| {
            !m.is_shared && !m.is_kernel_provided() && (m.end <= ours.start || ours.end <= m.start)
        };
        for mapping in maps::read(self.pid)?.iter().filter(is_guests) {
            let mut at = mapping.start;
            while at < mapping.end {
                let end = mapping.end.min(at + DISCARD_BYTES);
                // What `ps` reads of a process stays.
                if end <= shown.start || shown.end <= at {
                    self.surplus.push((GuestAddr(at), GuestAddr(end)));
                }
                at = end;
            }
        }
        Ok(())
    }

    /// Discards some of the surplus, if there is any, by a thread that has nothing to do.
    ///
    /// # Errors
    /// The process has ended.
    pub fn discard_surplus(&mut self) -> Result<()> {
        let mut bytes = 0;
        let mut fits = |(start, end): &mut Span| {
            bytes += end.0 - start.0;
            bytes <= DISCARD_BYTES
        };
        let mut spans = Vec::new();
        while let Some(span) = self.surplus.pop_if(&mut fits) {
            spans.push(span);
        }
        if spans.is_empty() {
            return Ok(());
        }
        // Memory that is locked stays: it costs memory, not correctness.
        let discard = |worker: Worker<'_>| worker.execute(&emptying::discard_calls(&spans));
        match self.by_idle_thread(discard)? {
            Some(done) => drop(self.heed(done)?),
            None => self.surplus.append(&mut spans),
        }
        Ok(())
    }

    /// Has a thread that has nothing to do work for the whole process, while the others serve. None
    /// if there is none.
    ///
    /// # Errors
    /// The process has ended, or the thread cannot go on as before.
    pub fn by_idle_thread<T>(
        &self,
        work: impl FnOnce(Worker<'_>) -> Result<T>,
    ) -> Result<Option<Done<T>>> {
        let slots = self.shared.lanes.live_slots();
        let process = self.shared.lanes.lock(0).guest;
        for slot in slots {
            // The lock keeps the body's next call out.
            let lane = self.shared.lanes.lock(slot);
            if matches!(lane.work, Work::Idle) && lane.mask_due.is_none() {
                let worker = Worker { agent: &self.shared.lanes.agent, slot, tid: lane.tid };
                return borrow(worker, (process, lane.guest), work).map(Some);
            }
        }
        Ok(None)
    }

    /// What a thread has done, and that job control has stopped it meanwhile.
    ///
    /// # Errors
    /// What has failed of its work.
    pub fn heed<T>(&mut self, done: Done<T>) -> Result<T> {
        self.set_held(done.is_held);
        done.outcome
    }
}

/// What a borrowed thread has done.
pub struct Done<T> {
    outcome: Result<T>,
    /// Job control has stopped it.
    is_held: bool,
}

/// Has a thread do something else for a while, known to itself by these ids of process and thread.
pub fn borrow<T>(
    worker: Worker<'_>,
    ids: (GuestTid, GuestTid),
    work: impl FnOnce(Worker<'_>) -> Result<T>,
) -> Result<Done<T>> {
    let mut held = Vec::new();
    let Halt { mask, .. } = stop(worker.tid, &mut held)?;
    // A signal would have it stop, and perhaps make it do something else.
    tracee::set_signal_mask(worker.tid, u64::MAX)?;
    tracee::resume(worker.tid, 0)?;
    let outcome = work(worker);
    for (_, number, info) in held {
        queue_signal_by(worker, ids, number, &info)?;
    }
    let Halt { is_held, .. } = stop(worker.tid, &mut Vec::new())?;
    tracee::set_signal_mask(worker.tid, mask)?;
    if is_held {
        tracee::listen(worker.tid)?
    } else {
        tracee::resume(worker.tid, 0)?
    }
    Ok(Done { outcome, is_held })
}
