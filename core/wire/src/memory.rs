//! The memory of a process but for its contents: mappings, and a draft of them.

use crate::bounded::{self, WORD_CHARS_MAX};
use crate::ids::{GuestAddr, GuestTid};
use crate::image::ImageError;
use crate::limits::{MAPPINGS_MAX, SHARED_FILE_BYTES_MAX, THREADS_MAX};
use crate::memory_group::MemoryId;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// End of the address range that a 64-bit program may use (47 bits, less a guard page).
pub const USER_MEMORY_END: u64 = (1 << 47) - 4096;
/// PROT_READ, PROT_WRITE, PROT_EXEC: all that `/proc/PID/maps` can show.
const PROTECTION_BITS: u32 = 7;
/// Where files end for Linux (`loff_t`).
const FILE_OFFSET_MAX: u64 = i64::MAX as u64;

/// The address space that an image is to fill, while the process still runs: the target makes it
/// before the freeze. How it is then the image says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    #[serde(deserialize_with = "bounded::list::<_, _, MAPPINGS_MAX>")]
    pub mappings: Vec<Mapping>,
    /// As in the image.
    pub stack_limit: (u64, u64),
    /// As in the image.
    pub memory_limits: (u64, u64),
    /// As in the image, which has the same.
    pub reserved: (u64, u64),
    /// The image has no more threads than these.
    pub threads: u32,
    /// Those that there are, the first of all left out: what begins or ends until the image comes,
    /// that says.
    #[serde(deserialize_with = "bounded::list::<_, _, THREADS_MAX>")]
    pub tids: Vec<GuestTid>,
}

/// A range of memory: its first address, and the first behind it.
pub type Span = (GuestAddr, GuestAddr);

/// One memory mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    pub start: GuestAddr,
    pub end: GuestAddr,
    /// PROT_* bits.
    pub protection: u32,
    pub kind: MappingKind,
    pub flags: MappingFlags,
}

impl Mapping {
    /// Shared memory without a file.
    pub fn is_shared_anonymous(&self) -> bool {
        matches!(self.kind, MappingKind::SharedAnonymous { .. })
    }

    /// Of shared memory that others may have as well, what is at the start of this.
    pub fn shared_place(&self) -> Option<SharedPlace> {
        match self.kind {
            MappingKind::SharedAnonymous { home } => home,
            _ => None,
        }
    }
}

/// The part of a mapping behind an address in it.
pub fn behind(mapping: &Mapping, address: u64) -> Mapping {
    let kind = match &mapping.kind {
        MappingKind::File { backing, offset, is_shared } => MappingKind::File {
            backing: *backing,
            offset: offset + (address - mapping.start.0),
            is_shared: *is_shared,
        },
        MappingKind::SharedFile { device, inode, offset } => MappingKind::SharedFile {
            device: *device,
            inode: *inode,
            offset: offset + (address - mapping.start.0),
        },
        MappingKind::SharedAnonymous { home: Some(place) } => MappingKind::SharedAnonymous {
            home: Some(SharedPlace {
                offset: place.offset + (address - mapping.start.0),
                ..*place
            }),
        },
        kind => kind.clone(),
    };
    Mapping { start: GuestAddr(address), kind, ..*mapping }
}

/// What was asked for a mapping besides its protection (madvise(2), mmap(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingFlags(pub u16);

impl MappingFlags {
    pub const NOT_FORKED: MappingFlags = MappingFlags(1);
    pub const WIPED_ON_FORK: MappingFlags = MappingFlags(1 << 1);
    pub const NOT_DUMPED: MappingFlags = MappingFlags(1 << 2);
    pub const HUGE_PAGES: MappingFlags = MappingFlags(1 << 3);
    pub const NO_HUGE_PAGES: MappingFlags = MappingFlags(1 << 4);
    pub const MERGEABLE: MappingFlags = MappingFlags(1 << 5);
    pub const RANDOM: MappingFlags = MappingFlags(1 << 6);
    pub const SEQUENTIAL: MappingFlags = MappingFlags(1 << 7);
    pub const NOT_RESERVED: MappingFlags = MappingFlags(1 << 8);
    pub const DROPPABLE: MappingFlags = MappingFlags(1 << 9);
    /// Its pages are never swapped out (mlock(2)).
    pub const LOCKED: MappingFlags = MappingFlags(1 << 10);
    /// With [`MappingFlags::LOCKED`]: those that are there (MLOCK_ONFAULT).
    pub const LOCKED_ON_FAULT: MappingFlags = MappingFlags(1 << 11);

    pub fn has(self, other: MappingFlags) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn with(self, other: MappingFlags) -> MappingFlags {
        MappingFlags(self.0 | other.0)
    }

    /// Those that are in both.
    pub fn and(self, other: MappingFlags) -> MappingFlags {
        MappingFlags(self.0 & other.0)
    }

    pub fn without(self, other: MappingFlags) -> MappingFlags {
        MappingFlags(self.0 & !other.0)
    }
}

/// A place in shared memory, as a kernel names it in `/proc/PID/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedPlace {
    pub device: u64,
    pub inode: u64,
    pub offset: u64,
}

impl SharedPlace {
    /// Which memory that is in.
    pub fn memory(&self) -> MemoryId {
        MemoryId { device: self.device, inode: self.inode }
    }
}

/// Shared memory that a process has mapped away, where `away` is what the kernel there calls it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedMemory {
    pub mapping: Mapping,
    pub away: SharedPlace,
}

impl SharedMemory {
    /// What home calls it; None if home does not know it yet.
    pub fn home(&self) -> Option<SharedPlace> {
        match self.mapping.kind {
            MappingKind::SharedAnonymous { home } => home,
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MappingKind {
    /// Private anonymous memory; a stack that grows downwards if so marked.
    Anonymous { grows_down: bool },
    /// Shared anonymous memory, which no process has that is elsewhere. Home knows it as this; it
    /// knows nothing of what was mapped away, unless a process was made since.
    SharedAnonymous { home: Option<SharedPlace> },
    /// Part of a file: what was written to it travels as pages.
    File { backing: u32, offset: u64, is_shared: bool },
    /// Provided by the kernel: `[vdso]`, `[vvar]`, ...
    Kernel {
        #[serde(deserialize_with = "bounded::line::<_, WORD_CHARS_MAX>")]
        name: String,
    },
    /// Part of a file, shared with nobody else who writes to it, which may be written to by way of
    /// the memory: all of its contents travel as pages, and what is written goes back as
    /// `ToHome::Written`. The file is named as home's kernel names it in `/proc/PID/maps`.
    SharedFile { device: u64, inode: u64, offset: u64 },
}

/// In order, whole pages of user memory, and parts of files that are listed.
pub(crate) fn check_mappings(mappings: &[Mapping], backings: usize) -> Result<(), ImageError> {
    let (mut last_end, mut shared_bytes) = (0, 0u64);
    for mapping in mappings {
        let (start, end) = (mapping.start.0, mapping.end.0);
        let is_aligned = start % 4096 == 0 && end % 4096 == 0;
        if !is_aligned || start >= end || start < last_end || end > USER_MEMORY_END {
            return Err(ImageError::Mapping(mapping.start));
        }
        last_end = end;
        if mapping.protection & !PROTECTION_BITS != 0 {
            return Err(ImageError::Protection(mapping.start, mapping.protection));
        }
        let offset = match mapping.kind {
            MappingKind::File { backing, .. } if backing as usize >= backings => {
                return Err(ImageError::Backing(mapping.start));
            }
            MappingKind::File { offset, .. } => offset,
            MappingKind::SharedAnonymous { home: Some(place) } => place.offset,
            MappingKind::SharedFile { offset, .. } => {
                shared_bytes = shared_bytes.saturating_add(end - start);
                offset
            }
            _ => continue,
        };
        if shared_bytes > SHARED_FILE_BYTES_MAX {
            return Err(ImageError::SharedFiles(shared_bytes));
        }
        if offset % 4096 != 0 || offset > FILE_OFFSET_MAX - (end - start) {
            return Err(ImageError::Offset(mapping.start));
        }
    }
    Ok(())
}

/// Checks what a body says of the shared memory that it has.
///
/// # Errors
/// They are not in order, or no such memory.
pub fn check_shared(shared: &[SharedMemory]) -> Result<(), ImageError> {
    let mappings: Vec<Mapping> = shared.iter().map(|shared| shared.mapping.clone()).collect();
    match mappings.iter().find(|mapping| !mapping.is_shared_anonymous()) {
        Some(mapping) => Err(ImageError::Mapping(mapping.start)),
        None => check_mappings(&mappings, 0),
    }
}

impl Draft {
    /// # Errors
    /// As [`Image::check`].
    pub fn check(&self, backings: usize) -> Result<(), ImageError> {
        let threads = self.threads as usize;
        if threads == 0 || threads > THREADS_MAX {
            return Err(ImageError::Threads(threads));
        }
        if self.tids.len() >= threads {
            return Err(ImageError::Threads(self.tids.len() + 1));
        }
        let mut seen = HashSet::new();
        if let Some(tid) = self.tids.iter().find(|tid| tid.0 <= 1 || !seen.insert(**tid)) {
            return Err(ImageError::Identity(*tid));
        }
        if self.mappings.len() > MAPPINGS_MAX {
            return Err(ImageError::Mappings(self.mappings.len()));
        }
        let (start, end) = self.reserved;
        if start > end || start % 4096 != 0 || end % 4096 != 0 || end > USER_MEMORY_END {
            return Err(ImageError::Mapping(GuestAddr(start)));
        }
        check_mappings(&self.mappings, backings)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn threads_of_a_draft_are_different_ones_and_no_more_than_announced() {
        let check = |tids: &[i32]| {
            let tids = tids.iter().copied().map(GuestTid).collect();
            let (limit, reserved) = ((0, 0), (4096, 8192));
            let (stack_limit, memory_limits) = (limit, limit);
            Draft { mappings: vec![], stack_limit, memory_limits, reserved, threads: 3, tids }
                .check(0)
        };
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[7, 8]), Ok(()));
        assert_eq!(check(&[7, 8, 9]), Err(ImageError::Threads(4)), "the first one is not named");
        assert_eq!(check(&[7, 7]), Err(ImageError::Identity(GuestTid(7))));
        assert_eq!(check(&[1]), Err(ImageError::Identity(GuestTid(1))), "the sandbox's own");
    }
}
