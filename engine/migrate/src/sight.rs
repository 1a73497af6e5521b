//! What a process's page tables tell of its memory, all of it by one look.
//!
//! In a freeze every walk over page tables counts: half a millisecond for a gigabyte, and more for
//! each question about mappings that are many and small. So what there is, what was written to and
//! what is guarded is asked at once, before it is known what that is to be compared with.

use crate::{Result, mapping_flags};
use kernel::proc::pagemap::{Looked, Pagemap, Run, Select, Walked};
use kernel::tracking::Tracking;
use wire::image::{Mapping, MappingKind, Span};

/// What was seen of each mapping of a process that stands frozen.
#[derive(Debug, Default)]
pub struct Sight(pub(crate) Vec<Looked>);

impl Sight {
    /// Of a process of which it is not asked what was written to.
    ///
    /// # Errors
    /// The process has ended.
    pub fn of(pagemap: &Pagemap, mappings: &[Mapping]) -> Result<Sight> {
        Sight::by(pagemap, None, mappings)
    }

    pub(crate) fn by(
        pagemap: &Pagemap,
        tracking: Option<&Tracking>,
        mappings: &[Mapping],
    ) -> Result<Sight> {
        let mut looked = Vec::with_capacity(mappings.len());
        for alike in mappings.chunk_by(|a, b| select(a) == select(b)) {
            looked.extend(look(pagemap, tracking, alike)?);
        }
        Ok(Sight(looked))
    }

    /// The pages there are of each of its mappings; guarded ones are none.
    pub fn there(&self) -> impl Iterator<Item = &[Run]> {
        self.0.iter().map(|looked| &looked.walked.there[..])
    }

    /// Its guard regions.
    ///
    /// # Errors
    /// Refused if there are too many.
    pub fn guards(&self) -> Result<Vec<Span>> {
        mapping_flags::few(self.0.iter().flat_map(|looked| &looked.guards).copied())
    }
}

/// Looks at mappings one after another of which the same pages are selected.
fn look(
    pagemap: &Pagemap,
    tracking: Option<&Tracking>,
    mappings: &[Mapping],
) -> Result<Vec<Looked>> {
    let Some(select) = mappings.first().and_then(select) else {
        let look = |mapping: &Mapping| {
            let walked = Walked::of(shared(mapping));
            let guards = match mapping.kind {
                MappingKind::Kernel { .. } => vec![],
                _ => pagemap.scan(mapping.start.0, mapping.end.0, Select::Guard)?,
            };
            Ok(Looked { walked, guards, is_watched: false })
        };
        return mappings.iter().map(look).collect();
    };
    let ranges: Vec<_> = mappings.iter().map(|m| m.start.0..m.end.0).collect();
    Ok(match tracking {
        Some(tracking) => tracking.look(pagemap, &ranges, select)?,
        None => pagemap.look(&ranges, select, false)?,
    })
}

/// What page tables do not tell: pages of shared memory may be there without being in those of this
/// process.
pub(crate) fn shared(mapping: &Mapping) -> Vec<Run> {
    match mapping.kind {
        MappingKind::SharedAnonymous { .. } | MappingKind::SharedFile { .. } => {
            vec![Run { start: mapping.start.0, end: mapping.end.0 }]
        }
        _ => vec![],
    }
}

/// Which pages of a mapping differ from what the target can make itself; None if page tables do not
/// tell.
pub(crate) fn select(mapping: &Mapping) -> Option<Select> {
    match mapping.kind {
        MappingKind::Anonymous { .. } => Some(Select::Populated),
        MappingKind::File { is_shared: false, .. } => Some(Select::Private),
        MappingKind::SharedAnonymous { .. }
        | MappingKind::SharedFile { .. }
        | MappingKind::File { is_shared: true, .. }
        | MappingKind::Kernel { .. } => None,
    }
}
