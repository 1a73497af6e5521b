//! Which pages of a mapping hold data that a copy of the process needs.
//!
//! By the PAGEMAP_SCAN ioctl (Linux 6.7), which walks page tables and so costs nothing for
//! untouched address space; where there is none, by reading `/proc/PID/pagemap` entry by entry.

use crate::features::{self, Feature};
use crate::{KernelError, Result, soft_dirty};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

pub const PAGE_BYTES: u64 = 4096;

/// A run of pages: addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub start: u64,
    pub end: u64,
}

/// Which pages to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// Resident or swapped pages, without untouched and zero pages (anonymous memory).
    Populated,
    /// Pages of a private file mapping that were written to and so differ from the file.
    Private,
    /// Guard regions (MADV_GUARD_INSTALL), where the kernel tells them.
    Guard,
}

/// What a walk over watched memory found ([`crate::tracking`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// All selected pages.
    pub there: Vec<Run>,
    /// Those of them that were written to since they were protected last.
    pub written: Vec<Run>,
}

impl Walked {
    /// Of memory of which it is not known what was written to.
    pub fn of(there: Vec<Run>) -> Walked {
        Walked { written: there.clone(), there }
    }
}

/// What one look at the page tables of a mapping has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// All selected pages, and those of them that were written to; guarded ones are neither.
    pub walked: Walked,
    pub guards: Vec<Run>,
    /// Whether it is known what was written to: else all of it counts.
    pub is_watched: bool,
}

pub struct Pagemap {
    file: File,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

// _IOWR('f', 16, struct pm_scan_arg)
const PAGEMAP_SCAN: u64 = 0xc060_6610;
const PAGE_IS_WATCHED: u64 = 1;
const PAGE_IS_WRITTEN: u64 = 1 << 1;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
const PRESENT: u64 = PAGE_IS_PRESENT | PAGE_IS_SWAPPED;
const PAGE_IS_GUARD: u64 = 1 << 8;
/// Protect what is found against writes, asynchronously.
const PM_SCAN_WP_MATCHING: u64 = 1;
/// Fail at memory that is not under such protection.
const PM_SCAN_CHECK_WPASYNC: u64 = 1 << 1;
const REGIONS: usize = 512;

impl Pagemap {
    pub fn open(pid: i32) -> Result<Pagemap> {
        let path = format!("/proc/{pid}/pagemap");
        let file =
            File::open(&path).map_err(|source| super::failed(format!("open {path}"), source))?;
        Ok(Pagemap { file, pid })
    }

    /// Of which process it is.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The selected pages between two addresses, in order, neighbours merged. All of the range is
    /// mapped, unless guard regions are looked for.
    pub fn scan(&self, start: u64, end: u64, select: Select) -> Result<Vec<Run>> {
        if select == Select::Guard && !features::settled().has(Feature::GuardRegions) {
            return Ok(vec![]);
        }
        match select == Select::Guard || features::settled().has(Feature::PageMapScan) {
            true => self.scan_fast(start, end, select),
            false => self.scan_entries(start, end, select),
        }
    }

    fn scan_fast(&self, start: u64, end: u64, select: Select) -> Result<Vec<Run>> {
        match select {
            Select::Populated => self.populated(start, end),
            _ => self.matching(start, end, &Asked::of(select)),
        }
    }

    /// What is left of the range without holes and zero pages. To skip a page takes the kernel a
    /// sixth of the time that it takes to tell it, and mostly nearly all are there: 0.5 ms for a
    /// gigabyte instead of 3.
    fn populated(&self, start: u64, end: u64) -> Result<Vec<Run>> {
        let (inverted, told) = (PAGE_IS_PRESENT, PRESENT | PAGE_IS_PFNZERO);
        let wanted = PAGE_IS_PRESENT | PAGE_IS_PFNZERO;
        let mut absent: Vec<Run> = Vec::new();
        self.each_region(
            start,
            end,
            &Asked { wanted, inverted, told, ..Asked::default() },
            |region| {
                let is = |category: u64| region.categories & category != 0;
                if !is(PRESENT) || is(PAGE_IS_PFNZERO) {
                    push(&mut absent, region.start, region.end);
                }
            },
        )?;
        let mut runs = Vec::with_capacity(absent.len() + 1);
        let mut at = start;
        for run in absent {
            if run.start > at {
                push(&mut runs, at, run.start);
            }
            at = at.max(run.end);
        }
        if at < end {
            push(&mut runs, at, end);
        }
        Ok(runs)
    }

    fn matching(&self, start: u64, end: u64, asked: &Asked) -> Result<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        self.each_region(start, end, asked, |region| push(&mut runs, region.start, region.end))?;
        Ok(runs)
    }

    /// What there is of mappings of one kind, in order, between which nothing large is mapped that
    /// is none of them; if `asks_written`, with what was written to. One look at the page tables
    /// tells all of it, of many mappings at once: it is asked what is not as most pages are, which
    /// are there, watched and not written to. A page costs the kernel the same time whatever is
    /// asked of it, and six times that if it is told.
    ///
    /// # Errors
    /// The process has ended.
    pub fn look(
        &self,
        ranges: &[Range<u64>],
        select: Select,
        asks_written: bool,
    ) -> Result<Vec<Looked>> {
        if !features::settled().has(Feature::PageMapScan) {
            let look = |range: &Range<u64>| {
                let walked = Walked::of(self.scan(range.start, range.end, select)?);
                let guards = self.scan(range.start, range.end, Select::Guard)?;
                Ok(Looked { walked, guards, is_watched: false })
            };
            return ranges.iter().map(look).collect();
        }
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return Ok(vec![]) };
        let sight = |range| Sight::of(range, select, asks_written);
        let mut sights: Vec<Sight> = ranges.iter().map(sight).collect();
        let mut at = 0;
        let asked = Asked::at_a_glance(select, asks_written);
        self.each_region(first.start, last.end, &asked, |region| {
            while ranges.get(at).is_some_and(|range| range.end <= region.start) {
                at += 1;
            }
            let inside = ranges[at..].iter().take_while(|range| range.start < region.end);
            sights[at..].iter_mut().zip(inside).for_each(|(sight, range)| sight.add(region, range));
        })?;
        Ok(sights.into_iter().zip(ranges).map(|(sight, range)| sight.end(range)).collect())
    }

    /// The selected pages of watched memory, and which of them were written to; if `protects`,
    /// those count as not written to from now on. None if some of it is not watched: then nothing
    /// is known of what was written.
    pub fn walk(
        &self,
        start: u64,
        end: u64,
        select: Select,
        protects: bool,
    ) -> Result<Option<Walked>> {
        let Some(mut written) = self.written(start, end, select, protects)? else {
            return Ok(None);
        };
        // What is written to and gone in between is sent without need, no more.
        let there = self.scan_fast(start, end, select)?;
        if select == Select::Private {
            // Where a private page of a file was given up, the kernel leaves a mark for the
            // tracking that looks like one in swap space: it is the file's again.
            let swapped = PAGE_IS_SWAPPED;
            let given_up = Asked { required: swapped, told: swapped, ..Asked::of(select) };
            written.extend(self.matching(start, end, &given_up)?);
            written.sort_unstable_by_key(|run| run.start);
        }
        Ok(Some(Walked { there, written }))
    }

    /// The selected pages that were written to since they were protected last, which they are
    /// then, if `protects`. None if some of the range is not watched.
    pub fn written(
        &self,
        start: u64,
        end: u64,
        select: Select,
        protects: bool,
    ) -> Result<Option<Vec<Run>>> {
        let flags = PM_SCAN_CHECK_WPASYNC | if protects { PM_SCAN_WP_MATCHING } else { 0 };
        let (required, told) = (PAGE_IS_WRITTEN, PAGE_IS_WRITTEN);
        match self.matching(start, end, &Asked { flags, required, told, ..Asked::of(select) }) {
            Err(error) if error.source.raw_os_error() == Some(libc::EPERM) => Ok(None),
            written => written.map(Some),
        }
    }

    /// Pages of watched shared memory that were written to since they were protected last, which
    /// they are then. A page that was written to may have left the page table since, for swap
    /// space or by advice, and counts; only the question for nothing but that tells it. None if
    /// some of the range is not watched.
    pub(crate) fn written_shared(&self, start: u64, end: u64) -> Result<Option<Vec<Run>>> {
        let flags = PM_SCAN_CHECK_WPASYNC | PM_SCAN_WP_MATCHING;
        let (required, told) = (PAGE_IS_WRITTEN, PAGE_IS_WRITTEN);
        match self.matching(start, end, &Asked { flags, required, told, ..Asked::default() }) {
            Err(error) if error.source.raw_os_error() == Some(libc::EPERM) => Ok(None),
            written => written.map(Some),
        }
    }

    /// Whether the page there is watched.
    pub(crate) fn is_watched(&self, address: u64) -> Result<bool> {
        let page = self.written(address, address + PAGE_BYTES, Select::Populated, false)?;
        Ok(page.is_some())
    }

    /// Pages, there or not, that are marked as not written to.
    pub(crate) fn unwritten(&self, start: u64, end: u64) -> Result<Vec<Run>> {
        self.matching(start, end, &Asked { excluded: PAGE_IS_WRITTEN, ..Asked::default() })
    }

    fn each_region(
        &self,
        start: u64,
        end: u64,
        asked: &Asked,
        mut found: impl FnMut(&PageRegion),
    ) -> Result<()> {
        let mut regions = [PageRegion::default(); REGIONS];
        let mut at = start;
        while at < end {
            let mut arguments = ScanArguments {
                size: size_of::<ScanArguments>() as u64,
                flags: asked.flags,
                start: at,
                end,
                walk_end: 0,
                vec: regions.as_mut_ptr() as u64,
                vec_len: REGIONS as u64,
                max_pages: 0,
                category_inverted: asked.excluded | asked.inverted,
                category_mask: asked.excluded | asked.required,
                category_anyof_mask: asked.wanted,
                return_mask: asked.told,
            };
            // SAFETY: the argument block and the region array are live locals of the sizes that
            // the block itself states.
            let count =
                unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) };
            if count < 0 {
                return Err(KernelError::last(format!("scan pages of {}", self.pid)));
            }
            regions[..(count as usize).min(REGIONS)].iter().for_each(&mut found);
            if arguments.walk_end <= at {
                // Whatever comes behind would be dropped without a word.
                let what = format!("scan pages of {} beyond {at:#x}", self.pid);
                return Err(KernelError::errno(what, libc::EIO));
            }
            at = arguments.walk_end;
        }
        Ok(())
    }

    fn scan_entries(&self, start: u64, end: u64, select: Select) -> Result<Vec<Run>> {
        Ok(self.walk_entries(start, end, select)?.there)
    }

    /// The selected pages, and those of them that may have been written to since soft-dirty bits
    /// were cleared last.
    pub(crate) fn walk_entries(&self, start: u64, end: u64, select: Select) -> Result<Walked> {
        let mut walked = Walked::default();
        let mut bytes = vec![0; 64 << 10];
        let mut at = start;
        while at < end {
            let pages = ((end - at) / PAGE_BYTES).min(bytes.len() as u64 / 8) as usize;
            let chunk = &mut bytes[..pages * 8];
            self.file.read_exact_at(chunk, at / PAGE_BYTES * 8).map_err(|source| KernelError {
                what: format!("read pagemap of {}", self.pid),
                source,
            })?;
            for entry in chunk.chunks_exact(8) {
                let mut word = [0; 8];
                word.copy_from_slice(entry);
                let entry = u64::from_le_bytes(word);
                if is_selected(entry, select) {
                    push(&mut walked.there, at, at + PAGE_BYTES);
                    if !soft_dirty::is_unwritten(entry) {
                        push(&mut walked.written, at, at + PAGE_BYTES);
                    }
                }
                at += PAGE_BYTES;
            }
        }
        Ok(walked)
    }
}

/// What a scan is asked for: categories that a page must not have, must have, of which it must have
/// one (or not have, if it is inverted), and that are told of what is found.
#[derive(Default)]
struct Asked {
    flags: u64,
    excluded: u64,
    required: u64,
    wanted: u64,
    inverted: u64,
    told: u64,
}

impl Asked {
    fn of(select: Select) -> Asked {
        let (excluded, wanted) = match select {
            Select::Populated => (PAGE_IS_PFNZERO, PRESENT),
            Select::Private => (PAGE_IS_PFNZERO | PAGE_IS_FILE, PRESENT),
            Select::Guard => (0, PAGE_IS_GUARD),
        };
        Asked { excluded, wanted, told: wanted, ..Asked::default() }
    }
}

impl Asked {
    /// Whatever differs from pages that are selected and, if `asks_written`, watched and not
    /// written to; where few are selected, these.
    fn at_a_glance(select: Select, asks_written: bool) -> Asked {
        let has_guards = features::settled().has(Feature::GuardRegions);
        let guard = if has_guards { PAGE_IS_GUARD } else { 0 };
        let (watched, written) = match asks_written {
            true => (PAGE_IS_WATCHED, PAGE_IS_WRITTEN),
            false => (0, 0),
        };
        let (inverted, differs) = (watched | PAGE_IS_PRESENT, written | PAGE_IS_PFNZERO | guard);
        let told = inverted | PAGE_IS_SWAPPED | differs;
        match select {
            Select::Populated => {
                Asked { wanted: inverted | differs, inverted, told, ..Asked::default() }
            }
            _ => Asked { told, ..Asked::of(select) },
        }
    }
}

/// What is seen of one mapping, of which regions are told in order.
struct Sight {
    select: Select,
    looked: Looked,
    /// How far it has been seen what is there.
    seen: u64,
}

impl Sight {
    fn of(range: &Range<u64>, select: Select, asks_written: bool) -> Sight {
        let looked = Looked { is_watched: asks_written, ..Looked::default() };
        Sight { select, looked, seen: range.start }
    }

    /// Of a region that touches the mapping.
    fn add(&mut self, region: &PageRegion, range: &Range<u64>) {
        let (start, end) = (region.start.max(range.start), region.end.min(range.end));
        let is = |category: u64| region.categories & category != 0;
        let Looked { walked, guards, is_watched } = &mut self.looked;
        // Pages that are not told are there.
        if self.select == Select::Populated && start > self.seen {
            push(&mut walked.there, self.seen, start);
        }
        self.seen = end;
        *is_watched &= is(PAGE_IS_WATCHED);
        if is(PAGE_IS_GUARD) {
            push(guards, start, end);
        } else if is(PRESENT) && !is(PAGE_IS_PFNZERO) {
            push(&mut walked.there, start, end);
            // Where a private page of a file was given up, the kernel leaves a mark for the
            // tracking that looks like one in swap space: it is the file's again.
            let is_given_up = self.select == Select::Private && is(PAGE_IS_SWAPPED);
            if is(PAGE_IS_WRITTEN) || is_given_up {
                push(&mut walked.written, start, end);
            }
        }
    }

    fn end(mut self, range: &Range<u64>) -> Looked {
        let Looked { walked, is_watched, .. } = &mut self.looked;
        if self.select == Select::Populated && range.end > self.seen {
            push(&mut walked.there, self.seen, range.end);
        }
        if !*is_watched {
            walked.written = walked.there.clone();
        }
        self.looked
    }
}

/// Whether there is the fast way: tried on nothing.
pub(crate) fn has_scan() -> bool {
    let own = Pagemap::open(std::process::id() as i32);
    own.is_ok_and(|own| own.scan_fast(0, PAGE_BYTES, Select::Populated).is_ok())
}

/// Whether there are guard regions, and the kernel tells them: tried on nothing.
pub(crate) fn has_guards() -> bool {
    let own = Pagemap::open(std::process::id() as i32);
    own.is_ok_and(|own| own.scan_fast(0, PAGE_BYTES, Select::Guard).is_ok())
}

/// One entry of `/proc/PID/pagemap` (Documentation/admin-guide/mm/pagemap.rst).
fn is_selected(entry: u64, select: Select) -> bool {
    let is_present = entry >> 63 & 1 == 1;
    let is_swapped = entry >> 62 & 1 == 1;
    let is_file = entry >> 61 & 1 == 1;
    (is_present || is_swapped) && !(select == Select::Private && is_file)
}

fn push(runs: &mut Vec<Run>, start: u64, end: u64) {
    match runs.last_mut() {
        Some(last) if last.end == start => last.end = end,
        _ => runs.push(Run { start, end }),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn both_ways_find_exactly_the_touched_pages() {
        let length = 64 * PAGE_BYTES as usize;
        let map = crate::shared::test_support::anonymous(length);
        let base = map.as_ptr() as u64;
        for page in [3u64, 4, 40] {
            map.touch((page * PAGE_BYTES) as usize);
        }
        let pagemap = Pagemap::open(std::process::id() as i32).unwrap();
        let expected = [
            Run { start: base + 3 * PAGE_BYTES, end: base + 5 * PAGE_BYTES },
            Run { start: base + 40 * PAGE_BYTES, end: base + 41 * PAGE_BYTES },
        ];
        let end = base + length as u64;
        assert_eq!(pagemap.scan_entries(base, end, Select::Populated).unwrap(), expected);
        match has_scan() {
            true => {
                let fast = pagemap.scan_fast(base, end, Select::Populated);
                assert_eq!(fast.unwrap(), expected);
            }
            false => assert!(!features::settled().has(Feature::PageMapScan)),
        }
    }
}
