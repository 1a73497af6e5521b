//! Copying memory ahead: the rounds before a process is frozen ([decision
//! 0020](../../../docs/decisions/0020-memory-before-the-freeze.md)).

use crate::copying::{Copying, Part};
use crate::rounds::Rounds;
use crate::{Result, offer};
use kernel::memory::Memory;
use kernel::proc::maps;
use kernel::proc::pagemap::Pagemap;
use kernel::tracking::Tracking;
use link::{LinkReader, LinkWriter};
use std::time::Instant;
use wire::forward::ToAway;
use wire::image::{Draft, Mapping};
use wire::supervisor::Progress;

pub use wire::move_cost::COPIED_AHEAD_BYTES_MIN as BYTES_MIN;

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

/// Told how far a move is; says whether it goes on.
pub type GoesOn<'a> = &'a dyn Fn(&Progress) -> Result<()>;

/// What a target has been told and sent of memory.
pub struct Ahead {
    pub draft: Draft,
    pub copying: Copying,
}

impl Ahead {
    /// Sends memory while the process runs, until the rest is little or does not become less;
    /// `rounds` is told what they show, and `goes_on` how far it is, whenever something is sent.
    /// `mappings` reads what they are now.
    ///
    /// # Errors
    /// Of the link, the target or `goes_on`; the process is not touched.
    pub fn copy(
        &mut self,
        memory: &Memory,
        link: &mut (LinkReader, LinkWriter),
        mappings: &dyn Fn() -> Result<Vec<Mapping>>,
        (rounds, goes_on): (&mut Rounds, GoesOn<'_>),
    ) -> Result<()> {
        let bytes_left = self.copying.left(&self.draft.mappings)?;
        let mut progress = Progress { bytes_left, ..Progress::default() };
        loop {
            let began = Instant::now();
            progress.round += 1;
            let mut send = |part: Part| {
                goes_on(&progress)?;
                let bytes = part.bytes();
                link.1.send(&ToAway::from(part))?;
                progress.bytes_sent += bytes;
                progress.bytes_left = progress.bytes_left.saturating_sub(bytes);
                Ok(())
            };
            let bytes = self.copying.ahead(memory, &self.draft.mappings, &mut send)?;
            let mappings = mappings()?;
            self.copying.remap(&self.draft.mappings, &mappings);
            self.draft.mappings = mappings;
            // Its answer says that all this has been taken in.
            offer::draft(link, self.draft.clone())?;
            let left = self.copying.left(&self.draft.mappings)?;
            progress.bytes_left = left;
            goes_on(&progress)?;
            if !rounds.goes_on(bytes, began.elapsed(), left) {
                return Ok(());
            }
        }
    }
}
