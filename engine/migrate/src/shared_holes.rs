//! Which pages of shared memory there are to be sent. A segment may be much larger than what is
//! used of it: a hole that is read is one no more, and takes memory from then on.

use crate::group::id_of;
use kernel::proc::holes;
use kernel::proc::maps::{self, Mapping};
use kernel::proc::pagemap::Run;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use wire::image;
use wire::memory_group::MemoryId;

/// Shared memory that a supervisor has open, by what `/proc/PID/maps` calls it here.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles(Arc<HashMap<MemoryId, File>>);

impl MemoryFiles {
    /// What cannot be told apart is left out.
    pub fn of(files: impl IntoIterator<Item = File>) -> MemoryFiles {
        let named = |file: File| {
            let metadata = file.metadata().ok()?;
            Some((MemoryId { device: metadata.dev(), inode: metadata.ino() }, file))
        };
        MemoryFiles(Arc::new(files.into_iter().filter_map(named).collect()))
    }
}

/// The shared mappings of a process that stands frozen, with all that are bound to it.
pub struct SharedPages<'a> {
    pid: i32,
    mappings: Vec<Mapping>,
    files: &'a MemoryFiles,
}

impl SharedPages<'_> {
    /// Nothing is looked at of a process that has none of it.
    pub fn of<'a>(
        pid: i32,
        mappings: &[image::Mapping],
        files: &'a MemoryFiles,
    ) -> SharedPages<'a> {
        let has_some = mappings.iter().any(image::Mapping::is_shared_anonymous);
        let mut mappings = if has_some { maps::read(pid).unwrap_or_default() } else { vec![] };
        mappings.retain(|mapping| mapping.is_shared);
        SharedPages { pid, mappings, files }
    }

    /// What has pages, and what has none, of ranges in order; what cannot be found out has.
    pub fn divide(&self, ranges: &[Run]) -> (Vec<Run>, Vec<Run>) {
        let (mut data, mut holes) = (Vec::new(), Vec::new());
        for range in ranges {
            let mut at = range.start;
            for hole in self.holes(range) {
                if hole.start > at {
                    data.push(Run { start: at, end: hole.start });
                }
                at = hole.end;
                holes.push(hole);
            }
            if at < range.end {
                data.push(Run { start: at, end: range.end });
            }
        }
        (data, holes)
    }

    fn holes(&self, range: &Run) -> Vec<Run> {
        let first = self.mappings.partition_point(|m| m.end <= range.start);
        let inside = self.mappings[first..].iter().take_while(|m| m.start < range.end);
        inside.flat_map(|mapping| self.holes_of(mapping, range)).collect()
    }

    fn holes_of(&self, mapping: &Mapping, range: &Run) -> Vec<Run> {
        let range = range.start..range.end;
        match self.files.0.get(&id_of(mapping)) {
            Some(file) => holes::of(file, mapping, &range),
            None => holes::open(self.pid, mapping)
                .map_or_else(Vec::new, |file| holes::of(&file, mapping, &range)),
        }
    }
}
