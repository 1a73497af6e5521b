//! Processes that share memory, and therefore move as one ([decision
//! 0034](../../../docs/decisions/0034-groups-that-share-memory.md)).

use crate::bounded;
use crate::ids::{HomePid, Ticket};
use crate::image::{ImageError, USER_MEMORY_END};
use crate::limits::{GROUP_MAX, SHARED_MEMORY_MAX};
use serde::{Deserialize, Serialize};

/// Code of the reasons for which a process with shared memory does not move alone.
pub const BOUND: &str = "shared-memory";
/// Code of the reasons for which a process does not leave because one of those does not that it was
/// to leave with.
pub const COMPANION_STAYS: &str = "companion-stays";
/// Codes of the reasons of a process that comes home because another does that it shares memory
/// with: which had to, or was asked to.
pub const GROUP: &str = "group";
pub const GROUP_ASKED: &str = "group-asked";
/// A group with the one that it is about.
pub const GROUP_PIDS_MAX: usize = GROUP_MAX + 1;

/// Processes that share memory with the one that a berth was asked for, and come with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    #[serde(deserialize_with = "bounded::list::<_, _, GROUP_MAX>")]
    pub companions: Vec<Companion>,
    /// The memory that they share, each as large as the most that one of them has mapped.
    #[serde(deserialize_with = "bounded::list::<_, _, SHARED_MEMORY_MAX>")]
    pub segments: Vec<Segment>,
}

impl Group {
    /// Checks what later code relies on; it comes from another machine.
    ///
    /// # Errors
    /// Memory of no size that a process can have.
    pub fn check(&self) -> Result<(), ImageError> {
        let is_wrong = |s: &&Segment| s.bytes > USER_MEMORY_END || !s.bytes.is_multiple_of(4096);
        match self.segments.iter().find(is_wrong) {
            Some(segment) => Err(ImageError::SharedMemory(segment.bytes)),
            None => Ok(()),
        }
    }
}

/// One of them, and by what its deputy comes to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Companion {
    /// As home's daemon knows it.
    pub pid: HomePid,
    pub ticket: Ticket,
    pub key: [u8; 32],
}

/// Shared memory, as home's kernel names it in `/proc/PID/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemoryId {
    pub device: u64,
    pub inode: u64,
}

/// Shared memory, as home's kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    pub device: u64,
    pub inode: u64,
    pub bytes: u64,
}
