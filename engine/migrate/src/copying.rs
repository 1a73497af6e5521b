//! The source's side of a process's memory: which pages the target lacks, and reading them out.
//!
//! Most of it can be copied while the process runs (decision 0020): what is written to meanwhile is
//! told by [`kernel::tracking`], and what the target holds is remembered here. So each pass, and
//! the last one, in which the process stands frozen, is the same comparison, and what the program
//! does with its address space in between need not be seen.

use crate::copies::Copies;
use crate::held::{self, Held, union};
use crate::intake::unmapped;
use crate::parts::{Batch, Part, RUN_BYTES, Send, is_zero, unreadable};
use crate::shared_ahead::SharedAhead;
use crate::shared_holes::{MemoryFiles, SharedPages};
use crate::sight::{self, Sight, select};
use crate::{Result, mapping_flags};
use kernel::memory::Memory;
use kernel::proc::pagemap::{Looked, PAGE_BYTES, Pagemap, Run, Walked};
use kernel::tracking::{Claim, Tracking};
use wire::ids::GuestAddr;
use wire::image::{Mapping, MappingKind, Span};
use wire::limits::DISCARDS_MAX;

/// The memory of one process on its way to one target.
pub struct Copying {
    pub(crate) pagemap: Pagemap,
    claim: Option<Claim>,
    /// What was sent while the process ran, if that is how it is found what was written to.
    copies: Option<Copies>,
    /// Pages that the target has as they were when they were last seen here.
    pub(crate) held: Held,
    /// Pages of which the target has some contents: these, older ones, or of what was there before.
    pub(crate) sent: Held,
    /// Pages that come behind the process: the target has nothing there.
    pub(crate) late: Held,
    /// Pages that were written to, as far as that was seen.
    pub(crate) changed: Held,
    /// Those of them that the last pass has found.
    pub(crate) fresh: Vec<Run>,
    /// Those that were not, when the process stood frozen.
    unchanged: Vec<Run>,
    /// The target has the shared files themselves.
    leaves_files: bool,
    /// Shared memory that another process brings, which moves with this one.
    by_others: Held,
    /// Where shared memory that this one brings has no pages, when the process stood frozen.
    holes: Vec<Run>,
    /// What of it was sent while the process ran.
    pub(crate) shared_ahead: SharedAhead,
    /// Shared memory that is open here.
    pub(crate) memory_files: MemoryFiles,
}

/// What becomes of pages of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zeros {
    Sent,
    /// The target starts from untouched memory.
    Skipped,
    /// The target may have something else there.
    Discarded,
}

/// Whether the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Running,
    Frozen,
}

impl Copying {
    /// # Errors
    /// The process has ended, or is not ours to look at.
    pub fn of(pid: i32, claim: Option<Claim>) -> Result<Copying> {
        let pagemap = Pagemap::open(pid)?;
        let (held, sent, late, changed) = Default::default();
        let (fresh, unchanged, leaves_files, copies) = (vec![], vec![], false, None);
        Ok(Copying {
            pagemap,
            claim,
            copies,
            held,
            sent,
            late,
            changed,
            fresh,
            unchanged,
            leaves_files,
            by_others: Held::default(),
            holes: vec![],
            shared_ahead: SharedAhead::default(),
            memory_files: MemoryFiles::default(),
        })
    }

    /// Of a process that has little memory, whose writes are not told: what is sent while it runs
    /// is compared with what is there when it stands frozen.
    ///
    /// # Errors
    /// As [`Copying::of`].
    pub fn comparing(pid: i32) -> Result<Copying> {
        Ok(Copying { copies: Some(Copies::default()), ..Copying::of(pid, None)? })
    }

    /// Whether it is found in the freeze what was written to a mapping that is not watched.
    fn compares(&self, mapping: &Mapping) -> bool {
        self.copies.is_some() && select(mapping).is_some()
    }

    /// The target is the process's home, which has the files that are mapped shared, with all that
    /// was written to them.
    pub fn leave_files(&mut self) {
        self.leaves_files = true;
    }

    /// Another process brings this shared memory, and comes to the same place at the same time.
    pub fn leave_to_others(&mut self, brought: Held) {
        self.by_others = brought;
    }

    /// The target has something at all these places, and at the `same` ones what was here when
    /// writes began to be watched.
    pub fn assume_held(&mut self, all: &[Span], same: &[Span]) {
        for (known, spans) in [(&mut self.sent, all), (&mut self.held, same)] {
            held::runs(spans).into_iter().for_each(|run| known.add(run));
        }
    }

    /// The target has something at these places and nowhere else, whatever it was told since: it
    /// may not have changed its mappings as it was told to.
    pub fn learn(&mut self, spans: &[Span]) {
        let runs = held::runs(spans);
        self.held.beyond(&runs).into_iter().for_each(|run| self.held.remove(run));
        self.sent = Held::default();
        runs.into_iter().for_each(|run| self.sent.add(run));
    }

    /// What the target has may be something else, all of it.
    pub fn doubt_all(&mut self) {
        self.held = Held::default();
    }

    /// What the target has there may be something else.
    pub fn doubt(&mut self, runs: &[Run]) {
        runs.iter().for_each(|run| self.held.remove(*run));
    }

    /// Whether another pass would send only what was written to since the last.
    pub fn can_repeat(&self) -> bool {
        self.tracking().is_some_and(Tracking::begins_with_walks)
    }

    /// Whatever is there may have been written to.
    pub fn assume_changed(&mut self, runs: &[Run]) {
        runs.iter().for_each(|run| self.changed.add(*run));
    }

    /// Pages of private memory that were written to neither in any pass nor before the first, once
    /// it has been finished.
    pub fn unchanged(&self) -> &[Run] {
        &self.unchanged
    }

    /// What a target that changes its mappings from `old` to `new` does not hold any more.
    pub fn remap(&mut self, old: &[Mapping], new: &[Mapping]) {
        unmapped(old, new).into_iter().for_each(|run| self.forget(run));
    }

    /// The target has nothing there.
    fn forget(&mut self, run: Run) {
        self.held.remove(run);
        self.sent.remove(run);
        self.late.remove(run);
    }

    /// What the target lacks of private memory whose writes are watched, in order, before any of it
    /// is sent. What is written to from now on is for the next time.
    ///
    /// # Errors
    /// The process has ended.
    pub fn survey(&mut self, mappings: &[Mapping]) -> Result<Vec<Run>> {
        let mut lacking = Vec::new();
        for mapping in mappings {
            let (walked, is_watched) = self.walk(mapping)?;
            walked.written.iter().for_each(|run| self.changed.add(*run));
            walked.written.iter().for_each(|run| self.held.remove(*run));
            if is_watched {
                lacking.extend(self.held.lacks(&walked.there));
            }
        }
        Ok(lacking)
    }

    /// Sends what the target lacks of a process that runs; returns how many bytes. What is written
    /// to from now on is for the next time.
    pub fn ahead(&mut self, memory: &Memory, mappings: &[Mapping], send: Send<'_>) -> Result<u64> {
        let (mut there, mut lacking) = (Vec::new(), Vec::with_capacity(mappings.len()));
        self.fresh.clear();
        let walked: Result<()> = memory.between_writes(|| {
            mappings.iter().try_for_each(|mapping| {
                let (walked, is_watched) = self.walk(mapping)?;
                self.compare(walked, &[], &mut there, &mut lacking);
                let is_known = is_watched || self.compares(mapping);
                if let Some(lacking) = lacking.last_mut().filter(|_| !is_known) {
                    // Memory whose writes are not seen is sent when nothing writes any more.
                    lacking.clear();
                }
                Ok(())
            })
        });
        if walked.is_err() {
            self.forget_sent(&lacking);
        }
        walked?;
        let mut copies = self.copies.take();
        let mut keep = |part: Part| {
            if let (Some(copies), Part::Pages(pages)) = (&mut copies, &part) {
                copies.keep(pages);
            }
            send(part)
        };
        let sent = self.send_pass(memory, (mappings, there, lacking), Pass::Running, &mut keep);
        self.copies = copies;
        sent
    }

    /// Sees what there is of a process that stands frozen; what it is to be compared with need not
    /// be known yet.
    ///
    /// # Errors
    /// The process has ended.
    pub fn see(&self, memory: &Memory, mappings: &[Mapping]) -> Result<Sight> {
        memory.between_writes(|| Sight::by(&self.pagemap, self.tracking(), mappings))
    }

    /// Sends what the target lacks of a process that stands frozen, of which that was seen.
    pub fn finish(
        &mut self,
        memory: &Memory,
        whole @ (mappings, _): (&[Mapping], &[Span]),
        sight: Sight,
        send: Send<'_>,
    ) -> Result<u64> {
        if let Some(copies) = self.copies.take() {
            self.held = copies.unchanged(memory, &self.held);
            self.copies = Some(copies);
        }
        self.shared_ahead.check(&self.by_others)?;
        let (there, mut lacking) = self.compare_all(whole, sight);
        self.shared_ahead.leave_out(memory, (mappings, &self.sent), &mut lacking);
        self.send_pass(memory, (mappings, there, lacking), Pass::Frozen, send)
    }

    /// Bytes that [`Copying::finish`] would read if the process were frozen now.
    pub fn left(&self, mappings: &[Mapping]) -> Result<u64> {
        let Sight(looked) = Sight::by(&self.pagemap, self.tracking(), mappings)?;
        let private = looked.iter().zip(mappings).filter(|(_, m)| select(m).is_some());
        Ok(private.fold(0, |bytes, (Looked { walked, is_watched, .. }, _)| match is_watched {
            true => bytes + length(&union(&walked.written, &self.held.lacks(&walked.there))),
            // As if nothing were written to meanwhile: that is found in the freeze.
            false if self.copies.is_some() => bytes + length(&self.held.lacks(&walked.there)),
            false => bytes + length(&walked.there),
        }))
    }

    /// What there is of a process that stands frozen, and what the target lacks of each mapping.
    pub(crate) fn compare_all(
        &mut self,
        (mappings, guards): (&[Mapping], &[Span]),
        Sight(looked): Sight,
    ) -> (Vec<Run>, Vec<Vec<Run>>) {
        let (mut there, mut lacking) = (Vec::new(), Vec::with_capacity(mappings.len()));
        self.fresh.clear();
        self.holes.clear();
        let files = self.memory_files.clone();
        let shared = SharedPages::of(self.pagemap.pid(), mappings, &files);
        for (mapping, Looked { mut walked, is_watched, .. }) in mappings.iter().zip(looked) {
            if self.leaves(mapping) {
                walked = Walked::default();
            }
            if !is_watched && self.compares(mapping) {
                walked.written = self.held.lacks(&walked.there);
            } else if !is_watched {
                // Mapped since, or moved. What earlier walks were told of it is lost.
                self.held.remove(whole(mapping));
            }
            self.compare(walked, guards, &mut there, &mut lacking);
            if mapping.is_shared_anonymous() {
                // It is there all the same, so that nothing is discarded that another brings.
                let runs = lacking.last_mut().expect("of this mapping");
                let (data, holes) = shared.divide(&self.by_others.lacks(runs));
                *runs = data;
                if self.zeros(mapping) == Zeros::Discarded {
                    self.holes.extend(holes);
                }
            }
        }
        self.unchanged = self.changed.lacks(&there);
        (there, lacking)
    }

    /// Adds what there is of a mapping, and what of that the target lacks.
    fn compare(
        &mut self,
        walked: Walked,
        guards: &[Span],
        there: &mut Vec<Run>,
        lacking: &mut Vec<Vec<Run>>,
    ) {
        let walked = Walked {
            there: mapping_flags::unguarded(walked.there, guards),
            written: mapping_flags::unguarded(walked.written, guards),
        };
        walked.written.iter().for_each(|run| self.changed.add(*run));
        self.fresh.extend_from_slice(&walked.written);
        lacking.push(union(&walked.written, &self.held.lacks(&walked.there)));
        there.extend(walked.there);
    }

    fn send_pass(
        &mut self,
        memory: &Memory,
        (mappings, there, lacking): (&[Mapping], Vec<Run>, Vec<Vec<Run>>),
        pass: Pass,
        send: Send<'_>,
    ) -> Result<u64> {
        let mut gone = self.sent.beyond(&there);
        gone.append(&mut self.holes);
        let outcome = self
            .discard(&gone, send)
            .and_then(|()| self.send_all(memory, (mappings, &lacking), pass, send));
        if outcome.is_err() {
            self.forget_sent(&lacking);
        }
        outcome
    }

    /// They count as not written to any more, and may not have come there.
    pub(crate) fn forget_sent(&mut self, lacking: &[Vec<Run>]) {
        lacking.iter().flatten().for_each(|run| self.held.remove(*run));
    }

    pub(crate) fn send_all(
        &mut self,
        memory: &Memory,
        (mappings, lacking): (&[Mapping], &[Vec<Run>]),
        pass: Pass,
        send: Send<'_>,
    ) -> Result<u64> {
        let (mut bytes, mut batch) = (0, Batch::default());
        for (mapping, runs) in mappings.iter().zip(lacking) {
            let zeros = self.zeros(mapping);
            for run in runs {
                bytes += self.send_run(memory, *run, (zeros, pass), &mut batch, send)?;
            }
        }
        batch.send(send)?;
        Ok(bytes)
    }

    fn zeros(&self, mapping: &Mapping) -> Zeros {
        match mapping.kind {
            MappingKind::Anonymous { .. } | MappingKind::SharedFile { .. } => Zeros::Skipped,
            // Home has what was in it when the process left.
            MappingKind::SharedAnonymous { .. } if self.leaves_files => Zeros::Discarded,
            // Who has sent what of it ahead is not known, see `shared_ahead`.
            MappingKind::SharedAnonymous { home: Some(_) } => Zeros::Discarded,
            MappingKind::SharedAnonymous { home: None } => Zeros::Skipped,
            _ => Zeros::Sent,
        }
    }

    /// Whether it is a file that the target has.
    fn leaves(&self, mapping: &Mapping) -> bool {
        self.leaves_files && matches!(mapping.kind, MappingKind::SharedFile { .. })
    }

    fn shared(&self, mapping: &Mapping) -> Vec<Run> {
        if self.leaves(mapping) { vec![] } else { sight::shared(mapping) }
    }

    /// The pages that count of a mapping of a process that runs, and those that were written to
    /// since the last pass; and whether it is known which are.
    pub(crate) fn walk(&mut self, mapping: &Mapping) -> Result<(Walked, bool)> {
        let range = mapping.start.0..mapping.end.0;
        let Some(select) = select(mapping) else {
            return Ok((Walked::of(self.shared(mapping)), false));
        };
        if let Some(claim) = &self.claim {
            if let Some(walked) = claim.walk(&self.pagemap, &range, select)? {
                return Ok((walked, true));
            }
            // Mapped since, or moved. What the walk was told of a part of it is lost.
            self.held.remove(whole(mapping));
        }
        Ok((Walked::of(self.pagemap.scan(range.start, range.end, select)?), false))
    }

    fn tracking(&self) -> Option<&Tracking> {
        self.claim.as_ref().map(Claim::tracking)
    }

    pub(crate) fn discard(&mut self, gone: &[Run], send: Send<'_>) -> Result<()> {
        for some in gone.chunks(DISCARDS_MAX) {
            let ranges = some.iter().map(|run| (GuestAddr(run.start), GuestAddr(run.end)));
            send(Part::Discard(ranges.collect()))?;
            some.iter().for_each(|run| self.forget(*run));
        }
        Ok(())
    }

    pub(crate) fn send_run(
        &mut self,
        memory: &Memory,
        run: Run,
        (zeros, pass): (Zeros, Pass),
        batch: &mut Batch,
        send: Send<'_>,
    ) -> Result<u64> {
        let (mut at, mut bytes) = (run.start, 0);
        let mut content = vec![0; (run.end - at).min(RUN_BYTES) as usize];
        while at < run.end {
            let length = (run.end - at).min(RUN_BYTES);
            let content = &mut content[..length as usize];
            match memory.read_pages(at, content) {
                Ok(()) => bytes += self.send_content(at, content, zeros, batch, send)?,
                // It was unmapped meanwhile: the next pass will tell.
                Err(_) if pass == Pass::Running => {
                    self.held.remove(Run { start: at, end: at + length });
                }
                Err(error) => return Err(unreadable(at, error)),
            }
            at += length;
        }
        Ok(bytes)
    }

    /// Sends the parts of `content` between zero pages, or all of it.
    fn send_content(
        &mut self,
        address: u64,
        content: &[u8],
        zeros: Zeros,
        batch: &mut Batch,
        send: Send<'_>,
    ) -> Result<u64> {
        let page = PAGE_BYTES as usize;
        let whole = Run { start: address, end: address + content.len() as u64 };
        let is_zero = |page: &[u8]| zeros != Zeros::Sent && is_zero(page);
        let zero: Vec<bool> = content.chunks(page).map(is_zero).collect();
        if !zero.contains(&true) {
            self.held.add(whole);
            self.sent.add(whole);
            batch.add(address, content, send)?;
            return Ok(content.len() as u64);
        }
        let (mut index, mut bytes, mut blank) = (0, 0, Vec::new());
        for group in zero.chunk_by(|a, b| a == b) {
            let part = index * page..(index + group.len()) * page;
            let start = address + part.start as u64;
            if group[0] {
                blank.push(Run { start, end: address + part.end as u64 });
            } else {
                bytes += part.len() as u64;
                self.sent.add(Run { start, end: address + part.end as u64 });
                batch.add(start, &content[part], send)?;
            }
            index += group.len();
        }
        // What was sent there before was something else.
        let untouched: Vec<Run> = self.sent.lacks(&blank);
        let mut stale = Held::default();
        blank.iter().for_each(|run| stale.add(*run));
        if zeros == Zeros::Skipped {
            untouched.iter().for_each(|run| stale.remove(*run));
        }
        self.discard(&stale.beyond(&[]), send)?;
        self.held.add(whole);
        Ok(bytes)
    }
}

pub(crate) fn whole(mapping: &Mapping) -> Run {
    Run { start: mapping.start.0, end: mapping.end.0 }
}

fn length(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}

#[cfg(test)]
mod test;
