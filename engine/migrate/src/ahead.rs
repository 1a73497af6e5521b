//! Copying memory ahead: the rounds before a process is frozen ([decision
//! 0020](../../../docs/decisions/0020-memory-before-the-freeze.md)).

use crate::copying::{Copying, Part};
use crate::rounds::Rounds;
use crate::{Result, offer};
use kernel::memory::Memory;
use kernel::proc::maps;
use kernel::proc::pagemap::{Pagemap, Run};
use kernel::tracking::Tracking;
use link::{LinkReader, LinkWriter};
use std::time::Instant;
use wire::forward::ToAway;
use wire::image::{Draft, Mapping, Span};

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
    Ok(tracking.begin()?)
}

/// Who takes memory in before the image.
pub trait Taker {
    /// # Errors
    /// Of the link; or the move is off.
    fn send(&mut self, part: Part) -> Result<()>;

    /// Tells it what the memory is like by now, and waits until all that was sent has been taken
    /// in. A taker that may have lost some of what it had says what it still has.
    ///
    /// # Errors
    /// As [`Taker::send`], and refused if it cannot have such memory.
    fn draft(&mut self, draft: &Draft) -> Result<Option<Vec<Span>>>;
}

/// The target of a move, on a link of its own.
pub struct Target<'a> {
    pub link: &'a mut (LinkReader, LinkWriter),
    /// Whether the move is still on.
    pub is_wanted: &'a dyn Fn() -> Result<()>,
}

impl Taker for Target<'_> {
    fn send(&mut self, part: Part) -> Result<()> {
        (self.is_wanted)()?;
        Ok(self.link.1.send(&ToAway::from(part))?)
    }

    fn draft(&mut self, draft: &Draft) -> Result<Option<Vec<Span>>> {
        offer::draft(self.link, draft.clone())?;
        Ok(None)
    }
}

/// What a target has been told and sent of memory.
pub struct Ahead {
    pub draft: Draft,
    pub copying: Copying,
}

impl Ahead {
    /// Sends memory while the process runs, until the rest is little or does not become less.
    /// `mappings` reads what they are now.
    ///
    /// # Errors
    /// Of the link or the taker; the process is not touched. What the taker is known to have is
    /// true nevertheless.
    pub fn copy(
        &mut self,
        memory: &Memory,
        taker: &mut dyn Taker,
        mappings: &dyn Fn() -> Result<Vec<Mapping>>,
    ) -> Result<()> {
        self.copy_by(memory, taker, mappings, &mut || Ok(None))
    }

    /// Likewise. Where a pass cannot begin anew what is told of writes, `renew` does, and returns
    /// what was told until then; or not, then there is no other round.
    ///
    /// # Errors
    /// As [`Ahead::copy`].
    pub fn copy_by(
        &mut self,
        memory: &Memory,
        taker: &mut dyn Taker,
        mappings: &dyn Fn() -> Result<Vec<Mapping>>,
        renew: &mut dyn FnMut() -> Result<Option<Vec<Run>>>,
    ) -> Result<()> {
        let mut rounds = Rounds::default();
        loop {
            let began = Instant::now();
            let mut send = |part: Part| taker.send(part);
            let bytes = self.copying.ahead(memory, &self.draft.mappings, &mut send)?;
            let mappings = mappings()?;
            self.copying.remap(&self.draft.mappings, &mappings);
            self.draft.mappings = mappings;
            // Its answer says that all this has been taken in.
            if let Some(spans) = taker.draft(&self.draft)? {
                self.copying.retain(&spans);
            }
            let left = self.copying.left(&self.draft.mappings)?;
            if !rounds.goes_on(bytes, began.elapsed(), left) {
                return Ok(());
            }
            if !self.copying.can_repeat() {
                match renew()? {
                    Some(unseen) => self.copying.doubt(&unseen),
                    None => return Ok(()),
                }
            }
        }
    }
}
