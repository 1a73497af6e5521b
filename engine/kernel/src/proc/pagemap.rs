//! Which pages of a mapping hold data that a copy of the process needs.
//!
//! By the PAGEMAP_SCAN ioctl (Linux 6.7), which walks page tables and so costs nothing for
//! untouched address space; where there is none, by reading `/proc/PID/pagemap` entry by entry.

use crate::features::{self, Feature};
use crate::{KernelError, Result};
use std::fs::File;
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
const PAGE_IS_WRITTEN: u64 = 1 << 1;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
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

    /// The selected pages between two addresses, in order, neighbours merged.
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
        let (excluded, wanted) = categories(select);
        let mut runs: Vec<Run> = Vec::new();
        let asked = Asked { flags: 0, excluded, wanted, told: wanted };
        self.each_region(start, end, &asked, |region| push(&mut runs, region.start, region.end))?;
        Ok(runs)
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
        let (excluded, wanted) = categories(select);
        let flags = PM_SCAN_CHECK_WPASYNC | if protects { PM_SCAN_WP_MATCHING } else { 0 };
        let asked = Asked { flags, excluded, wanted, told: wanted | PAGE_IS_WRITTEN };
        let mut walked = Walked::default();
        let outcome = self.each_region(start, end, &asked, |region| {
            push(&mut walked.there, region.start, region.end);
            if region.categories & PAGE_IS_WRITTEN != 0 {
                push(&mut walked.written, region.start, region.end);
            }
        });
        match outcome {
            Err(error) if error.source.raw_os_error() == Some(libc::EPERM) => Ok(None),
            outcome => outcome.map(|()| Some(walked)),
        }
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
                category_inverted: asked.excluded,
                category_mask: asked.excluded,
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
        let mut runs = Vec::new();
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
                if is_selected(u64::from_le_bytes(word), select) {
                    push(&mut runs, at, at + PAGE_BYTES);
                }
                at += PAGE_BYTES;
            }
        }
        Ok(runs)
    }
}

/// Categories that a page must not have, and of which it must have one.
fn categories(select: Select) -> (u64, u64) {
    match select {
        Select::Populated => (PAGE_IS_PFNZERO, PAGE_IS_PRESENT | PAGE_IS_SWAPPED),
        Select::Private => (PAGE_IS_PFNZERO | PAGE_IS_FILE, PAGE_IS_PRESENT | PAGE_IS_SWAPPED),
        Select::Guard => (0, PAGE_IS_GUARD),
    }
}

/// What a scan is asked for.
struct Asked {
    flags: u64,
    excluded: u64,
    wanted: u64,
    /// Categories that are told of what is found.
    told: u64,
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
        assert_eq!(pagemap.scan_fast(base, end, Select::Populated).unwrap(), expected);
    }
}
