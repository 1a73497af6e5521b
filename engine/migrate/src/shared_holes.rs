//! Which pages of shared memory there are to be sent. A segment may be much larger than what is
//! used of it: a hole that is read is one no more, and takes memory from then on.

use kernel::proc::holes;
use kernel::proc::maps::{self, Mapping};
use kernel::proc::pagemap::Run;
use wire::image;

/// The shared mappings of a process that stands frozen, with all that are bound to it.
pub struct SharedPages {
    pid: i32,
    mappings: Vec<Mapping>,
}

impl SharedPages {
    /// Nothing is looked at of a process that has none of it.
    pub fn of(pid: i32, mappings: &[image::Mapping]) -> SharedPages {
        let has_some = mappings.iter().any(image::Mapping::is_shared_anonymous);
        let mut mappings = if has_some { maps::read(pid).unwrap_or_default() } else { vec![] };
        mappings.retain(|mapping| mapping.is_shared);
        SharedPages { pid, mappings }
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
        inside.flat_map(|m| holes::of(self.pid, m, &(range.start..range.end))).collect()
    }
}
