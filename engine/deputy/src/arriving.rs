//! Memory of a body that comes home, taken in while it runs still ([decision
//! 0020](../../../docs/decisions/)).
//!
//! The deputy serves its body meanwhile, and that needs none of this memory but for the calls in
//! which threads have slept since the process left: those read and write where the guest has it.
//! Their pages are left alone, and come when the body stands frozen.
//!
//! To change mappings takes a thread of the process, one that has nothing to do. If there is none,
//! everything comes when the body is frozen: a program whose threads all wait for home hardly
//! notices.

use crate::homecoming;
use crate::keeping::{Keeping, places};
use crate::lanes::{Place, Work};
use crate::refilling::{self, restore_mappings, set_break};
use crate::service::Service;
use crate::settling::shown_memory;
use kernel::memory::Memory;
use kernel::proc::flags;
use kernel::proc::pagemap::{PAGE_BYTES, Pagemap, Run};
use migrate::held::Held;
use migrate::intake::{self, Intake};
use migrate::sight::Sight;
use migrate::stopwatch::{Stopwatch, micros};
use migrate::worker::Worker;
use migrate::{Result, mapping_flags};
use std::ops::Range;
use std::time::Instant;
use wire::forward::ToAway;
use wire::ids::GuestAddr;
use wire::image::{Draft, Mapping, Pages, Span};
use wire::limits::HELD_MAX;
use wire::supervisor::{MoveReport, Phase};

/// What comes before the image.
pub struct Arriving {
    mappings: Vec<Mapping>,
    intake: Intake,
    /// Memory of calls in which threads of the deputy sleep.
    asleep: Held,
    /// What is not here as the body has sent it.
    lost: Held,
    bytes: u64,
    since: Instant,
}

impl Arriving {
    /// Takes in contents that the body has sent, in so many bytes.
    ///
    /// # Errors
    /// No honest body sends such.
    pub fn write(&mut self, memory: &Memory, pages: &Pages, sent: u64) -> Result<()> {
        self.bytes += sent;
        for (address, content) in self.intake.check(&pages.spans, &pages.content, &self.mappings)? {
            let run = Run { start: address, end: address + content.len() as u64 };
            // One that cannot be written to may have been guarded when the process left.
            let is_here =
                !touches(&self.asleep, &run) && memory.write_pages(address, content).is_ok();
            if is_here { self.lost.remove(run) } else { self.lost.add(run) }
        }
        Ok(())
    }

    /// Memory that is untouched again: it is emptied when the body is frozen.
    ///
    /// # Errors
    /// No honest body says such.
    pub fn discard(&mut self, spans: &[Span]) -> Result<()> {
        self.intake.check_discarded(spans, &self.mappings)?;
        spans.iter().for_each(|(start, end)| self.lost.add(Run { start: start.0, end: end.0 }));
        Ok(())
    }

    /// What is not here as the body thinks that it is.
    pub fn lost(&self) -> impl Iterator<Item = Run> {
        self.lost.beyond(&[]).into_iter()
    }

    /// How many bytes have come, and since when.
    pub fn progress(&self) -> (u64, Instant) {
        (self.bytes, self.since)
    }
}

/// What a homecoming was like, of which the body has told its rounds.
pub fn report(
    (ahead, told): (Option<(u64, Instant)>, MoveReport),
    bytes: u64,
    watch: Stopwatch,
) -> MoveReport {
    let freeze_us = watch.total_us();
    let (bytes_ahead, since) = ahead.unwrap_or((0, Instant::now()));
    let copied_us = ahead.map_or(0, |_| micros(since.elapsed()).saturating_sub(freeze_us));
    let mut phases_us = watch.into_phases();
    if ahead.is_some() {
        phases_us.insert(0, Phase { name: "copy".into(), us: copied_us });
    }
    let (pages, total_us) = ((bytes_ahead + bytes) / PAGE_BYTES, freeze_us + copied_us);
    let bytes_sent = bytes_ahead + bytes;
    MoveReport { phases_us, freeze_us, total_us, bytes_sent, pages_sent: pages, ..told }
}

fn touches(pages: &Held, run: &Run) -> bool {
    pages.lacks(&[*run]) != [*run]
}

impl Service<'_> {
    /// Makes of the deputy's mappings those that its body has by now, and tells what it has of the
    /// memory. What cannot be done now is left to when the body is frozen.
    ///
    /// # Errors
    /// The process has ended, or is broken.
    pub fn lay_out_ahead(&mut self, draft: Draft, heap_end: GuestAddr) -> Result<()> {
        match self.try_to_lay_out(draft, heap_end) {
            Ok(Some(held)) if held.len() <= HELD_MAX => return self.tell_held(&held),
            Ok(_) => {}
            Err(error) if homecoming::is_final(&error) => return Err(error),
            Err(error) => {
                ::tracing::warn!("process {}: nothing can come ahead: {error}", self.pid);
                // Mappings may be changed in part.
                self.keeping = None;
                *self.shared.arriving() = None;
            }
        }
        self.shared.send(&ToAway::Unready);
        Ok(())
    }

    /// What is here of the memory; None if nothing can be laid out now, and all is as before.
    fn try_to_lay_out(&mut self, draft: Draft, heap_end: GuestAddr) -> Result<Option<Vec<Span>>> {
        draft.check(self.library.len())?;
        refilling::check_place(self, &draft.mappings)?;
        let before = self.shared.arriving().as_ref().map(|it| (it.mappings.clone(), it.progress()));
        let mut kept = self.kept().unwrap_or_default();
        if before.as_ref().is_some_and(|(mappings, _)| *mappings == draft.mappings) {
            let sight = Sight::of(&Pagemap::open(self.pid)?, &draft.mappings)?;
            return Ok(Some(kept.there(&draft.mappings, &sight)));
        }
        let asleep = self.memory_of_sleepers();
        let is_mapped = |run: &Run| intake::is_covered(&draft.mappings, run.start, run.end);
        if !asleep.beyond(&[]).iter().all(is_mapped) {
            return Ok(None);
        }
        let (here, late) = self.own.take(self.pid)?;
        let mut mappings = draft.mappings.clone();
        mapping_flags::correct(&mut mappings, late);
        let mut spared = asleep.clone();
        let shown = shown_memory(self.pid)?;
        spared.add(pages(shown.start, shown.end.saturating_sub(shown.start)));
        let is_fixed =
            |range: &Range<u64>| touches(&asleep, &Run { start: range.start, end: range.end });
        let lay_out = |worker: Worker<'_>| {
            set_break(worker, heap_end.0)?;
            let here = (self.pid, &here[..]);
            if !restore_mappings(worker, (here, &self.library), &mappings, &is_fixed, &mut kept)? {
                return Ok(None);
            }
            let sight = Sight::of(&Pagemap::open(self.pid)?, &mappings)?;
            kept.empty_private(worker, (&mappings, &sight), &spared).map(Some)
        };
        let Some(done) = self.by_idle_thread(lay_out)? else {
            self.own.know(here);
            return Ok(None);
        };
        let Some(held) = self.heed(done)? else { return Ok(None) };
        self.surplus.clear();
        self.own.know(flags::read_maps(self.pid)?);
        self.keeping = Some(Keeping { lost: asleep.beyond(&[]), places: places(self.pid) });
        let (bytes, since) = before.map_or((0, Instant::now()), |(_, progress)| progress);
        let (intake, lost) = (Intake::default(), Held::default());
        let arriving = Arriving { mappings: draft.mappings, intake, asleep, lost, bytes, since };
        *self.shared.arriving() = Some(arriving);
        Ok(Some(held))
    }

    /// Pages that calls read and write which threads of the deputy were in when the process left.
    fn memory_of_sleepers(&self) -> Held {
        let mut asleep = Held::default();
        for slot in 0..self.shared.lanes.count() {
            if let Work::Busy { call, place: Place::Guest, .. } = &self.shared.lanes.lock(slot).work
            {
                let segments = call.segments.iter();
                segments.for_each(|s| asleep.add(pages(s.guest.0, u64::from(s.length))));
            }
        }
        asleep
    }
}

/// The pages that these bytes lie in.
pub fn pages(start: u64, length: u64) -> Run {
    let page = |address: u64| address & !(PAGE_BYTES - 1);
    let end = start.saturating_add(length).saturating_add(PAGE_BYTES - 1);
    Run { start: page(start), end: page(end) }
}
