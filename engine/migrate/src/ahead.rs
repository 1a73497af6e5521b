//! Copying memory ahead: the rounds before a process is frozen ([decision
//! 0020](../../../docs/decisions/0020-memory-before-the-freeze.md)).

use crate::copying::{Copying, Part};
use crate::rounds::Rounds;
use crate::{Result, asking, offer};
use kernel::memory::Memory;
use kernel::proc::maps;
use kernel::proc::pagemap::Pagemap;
use kernel::tracking::Tracking;
use link::{LinkReader, LinkWriter};
use std::time::Instant;
use wire::forward::ToAway;
use wire::image::{Draft, Mapping};

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
    pub draft: Draft,
    pub copying: Copying,
    /// It has pages of earlier guests.
    pub remembers: bool,
}

impl Ahead {
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
        if self.remembers {
            let lacking = self.copying.survey(&self.draft.mappings)?;
            let had = asking::ask(memory, &lacking, link, is_wanted)?;
            self.copying.assume_held(&had, &had);
        }
        let mut rounds = Rounds::default();
        loop {
            let began = Instant::now();
            let mut send = |part: Part| {
                is_wanted()?;
                Ok(link.1.send(&ToAway::from(part))?)
            };
            let bytes = self.copying.ahead(memory, &self.draft.mappings, &mut send)?;
            let mappings = mappings()?;
            self.copying.remap(&self.draft.mappings, &mappings);
            self.draft.mappings = mappings;
            // Its answer says that all this has been taken in.
            offer::draft(link, self.draft.clone())?;
            let left = self.copying.left(&self.draft.mappings)?;
            if !rounds.goes_on(bytes, began.elapsed(), left) {
                return Ok(());
            }
        }
    }
}
