//! Copying memory ahead: the rounds before a process is frozen ([decision
//! 0020](../../../docs/decisions/0020-memory-before-the-freeze.md)).

use crate::copying::{Copying, Part};
use crate::rounds::Rounds;
use crate::streams::{self, Streams};
use crate::{Result, offer};
use kernel::memory::Memory;
use kernel::proc::maps;
use kernel::proc::pagemap::Pagemap;
use kernel::tracking::Tracking;
use link::{LinkReader, LinkWriter};
use std::sync::Arc;
use std::time::Instant;
use wire::forward::ToAway;
use wire::image::{Draft, Mapping, Span};
use wire::supervisor::Berth;

/// A process that uses less stands still for no longer than it takes to track its writes.
pub const BYTES_MIN: u64 = 4 << 20;

/// Has writes to all private memory be seen from now on; the process stands still. What cannot be
/// watched is sent in the freeze.
///
/// # Errors
/// The process has ended.
pub fn watch(tracking: &Tracking, pagemap: &Pagemap, maps: &[maps::Mapping]) -> Result<()> {
    for mapping in maps.iter().filter(|m| !m.is_shared && !m.is_kernel_provided()) {
        tracking.watch(pagemap, &(mapping.start..mapping.end))?;
    }
    Ok(())
}

/// What a target has been told and sent of memory.
pub struct Ahead {
    draft: Draft,
    copying: Copying,
    streams: Option<Streams>,
    /// Drafts that it was told, and the image.
    epoch: u32,
    /// Bytes that the last round has left.
    left: u64,
}

impl Ahead {
    /// For a target that was told this draft and no other.
    pub fn new(draft: Draft, copying: Copying) -> Ahead {
        Ahead { draft, copying, streams: None, epoch: 1, left: u64::MAX }
    }

    /// Makes more connections for so much memory, if they are worth it.
    ///
    /// # Errors
    /// Of the link.
    pub fn open_streams(&mut self, berth: &Berth, link: &mut LinkWriter, bytes: u64) -> Result<()> {
        self.streams = Streams::open(berth, link, bytes)?;
        Ok(())
    }

    /// Which of its pages are written to is told from now on.
    pub fn track(&mut self, pid: i32, tracking: Tracking) -> Result<()> {
        self.copying = Copying::of(pid, Some(Arc::new(tracking)))?;
        Ok(())
    }

    /// Sends memory while the process runs, until the rest is little or does not become less.
    /// `mappings` reads what they are now; `is_wanted` says whether the move is still on.
    ///
    /// # Errors
    /// Of the link or the target; the process is not touched. Refused if the move is off.
    pub fn copy(
        &mut self,
        memory: &Memory,
        link: &mut (LinkReader, LinkWriter),
        mappings: &dyn Fn() -> Result<Vec<Mapping>>,
        is_wanted: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let mut rounds = Rounds::default();
        loop {
            let began = Instant::now();
            let Ahead { draft, copying, streams, epoch, .. } = self;
            let mut send = |part: Part| {
                is_wanted()?;
                send(part, (streams.as_mut(), *epoch), &mut link.1)
            };
            let bytes = copying.ahead(memory, &draft.mappings, &mut send)?;
            tell_streamed(streams.as_ref(), &mut link.1)?;
            let mappings = mappings()?;
            self.copying.remap(&self.draft.mappings, &mappings);
            self.draft.mappings = mappings;
            // Its answer says that all this has been taken in.
            offer::draft(link, self.draft.clone())?;
            self.epoch += 1;
            self.left = self.copying.left(&self.draft.mappings)?;
            if !rounds.goes_on(bytes, began.elapsed(), self.left) {
                return Ok(());
            }
        }
    }

    /// Sends what the target lacks of a process that stands frozen, and of which it was told the
    /// image.
    ///
    /// # Errors
    /// Of the link, or of memory that cannot be read.
    pub fn finish(
        &mut self,
        memory: &Memory,
        (mappings, guards): (&[Mapping], &[Span]),
        writer: &mut LinkWriter,
    ) -> Result<u64> {
        let Ahead { draft, copying, streams, epoch, left } = self;
        *epoch += 1;
        copying.remap(&draft.mappings, mappings);
        // Little is there as soon, and in order, on the link alone.
        let mut streams = streams.as_mut().filter(|_| *left >= streams::BYTES_MIN);
        let mut send = |part| send(part, (streams.as_deref_mut(), *epoch), writer);
        let bytes = copying.finish(memory, (mappings, guards), &mut send)?;
        tell_streamed(streams.as_deref(), writer)?;
        Ok(bytes)
    }

    pub fn copying(&mut self) -> &mut Copying {
        &mut self.copying
    }

    /// Bytes that went over streams.
    pub fn bytes_streamed(&self) -> u64 {
        self.streams.as_ref().map_or(0, Streams::bytes_sent)
    }
}

fn send(
    part: Part,
    (streams, epoch): (Option<&mut Streams>, u32),
    writer: &mut LinkWriter,
) -> Result<()> {
    match (streams, part) {
        (Some(streams), Part::Pages(pages)) => {
            // A link that is silent for long means that no more comes.
            if streams.is_due() {
                tell_streamed(Some(streams), writer)?;
            }
            streams.send(epoch, pages)
        }
        (_, part) => Ok(writer.send(&ToAway::from(part))?),
    }
}

/// What is said after this comes after all that went over streams.
fn tell_streamed(streams: Option<&Streams>, writer: &mut LinkWriter) -> Result<()> {
    match streams {
        Some(streams) => Ok(writer.send(&ToAway::Streamed { parts: streams.parts() })?),
        None => Ok(()),
    }
}
