//! Which pages of a process are written to, while it runs. There are two ways.
//!
//! By protection: by a userfaultfd with asynchronous write protection (UFFD_FEATURE_WP_ASYNC,
//! Linux 6.7; Documentation/admin-guide/mm/pagemap.rst): the first write to a protected page takes
//! a fault that the kernel resolves by itself, some microsecond, and whether there was one is told
//! by [`crate::proc::pagemap::Pagemap::walk`]. The process is never held up, and nobody has to
//! answer.
//!
//! By soft-dirty bits, where the kernel has no such thing: nothing is protected by the userfaultfd
//! then, but what mremap(2) moves is not registered with it any more, and that tells what the bits
//! do not ([`crate::soft_dirty`]). All bits are cleared at once, and none can be read and cleared
//! in one step: so they are cleared only while the process stands still ([`Tracking::begin`]).
//!
//! The descriptor belongs to the address space of who makes it: a thread of the process has to.
//! Once it is closed the kernel takes all protection away, at some 20 ms for a gigabyte of small
//! pages in which nothing else changes the address space: so that is done piece by piece before.

use crate::features::{self, Feature};
use crate::proc::pagemap::{Looked, PAGE_BYTES, Pagemap, Run, Select, Walked};
use crate::soft_dirty::{Bits, TABLE_BYTES};
use crate::{KernelError, Result, sys};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

/// The argument of userfaultfd(2). No fault is ever told, so it needs no privilege to get those of
/// the kernel either (UFFD_USER_MODE_ONLY).
pub const DESCRIPTOR_FLAGS: u64 = (libc::O_CLOEXEC | libc::O_NONBLOCK | 1) as u64;

/// A process whose mappings can be watched.
#[derive(Debug)]
pub struct Tracking {
    descriptor: OwnedFd,
    /// What was watched: starts and ends.
    watched: Mutex<BTreeMap<u64, u64>>,
    way: Way,
    /// The number of the last [`Claim`].
    claims: Mutex<u64>,
}

/// The right to have what is told of writes begin anew. Whoever claimed it last has it, and nobody
/// else: the thread of a move that was called off may be at work still when the next has begun, and
/// what that thread were told of writes the next would never hear.
#[derive(Debug)]
pub struct Claim {
    tracking: Arc<Tracking>,
    number: u64,
}

#[derive(Debug)]
enum Way {
    Protection,
    SoftDirty(Bits),
}

/// Given up at a time: a millisecond or two.
const PIECE_BYTES: u64 = 64 << 20;
/// Of one range: what is larger is mostly empty.
const PIECES_MAX: u64 = 1024;

/// `struct uffdio_api` of linux/userfaultfd.h.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
pub(crate) struct Register {
    pub start: u64,
    pub length: u64,
    pub mode: u64,
    pub ioctls: u64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
struct Protect {
    start: u64,
    length: u64,
    mode: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
pub(crate) struct Piece {
    pub start: u64,
    pub length: u64,
}

// _IOWR(0xaa, 0x3f, struct uffdio_api), _IOWR(0xaa, 0x00, struct uffdio_register),
// _IOR(0xaa, 0x01, struct uffdio_range), _IOWR(0xaa, 0x06, struct uffdio_writeprotect)
const UFFDIO_API: u64 = 0xc018_aa3f;
pub(crate) const UFFDIO_REGISTER: u64 = 0xc020_aa00;
pub(crate) const UFFDIO_UNREGISTER: u64 = 0x8010_aa01;
const UFFDIO_WRITEPROTECT: u64 = 0xc018_aa06;
const UFFD_API: u64 = 0xaa;
pub(crate) const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
const UFFD_FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;

impl Tracking {
    /// `descriptor` was made by a thread of the process `pid`, and nobody else has it.
    ///
    /// # Errors
    /// The kernel does not have the way that it was found to have, or forbids it for this process.
    pub fn of(pid: i32, descriptor: OwnedFd) -> Result<Tracking> {
        let way = match features::settled().has(Feature::WriteTracking) {
            true => Way::Protection,
            false => Way::SoftDirty(Bits::of(pid)?),
        };
        Tracking::by(way, descriptor)
    }

    pub(crate) fn of_faults(descriptor: OwnedFd) -> Result<Tracking> {
        Tracking::by(Way::Protection, descriptor)
    }

    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    fn by(way: Way, descriptor: OwnedFd) -> Result<Tracking> {
        let features = match way {
            Way::Protection => UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_ASYNC,
            Way::SoftDirty(_) => 0,
        };
        let mut api = Api { api: UFFD_API, features, ioctls: 0 };
        // SAFETY: the argument is a live local of the size that the request states.
        let result = unsafe { libc::ioctl(descriptor.as_raw_fd(), UFFDIO_API, &raw mut api) };
        match result {
            0 => Ok(Tracking { descriptor, watched: Mutex::default(), way, claims: Mutex::new(0) }),
            _ => Err(KernelError::last("set up the tracking of writes")),
        }
    }

    /// Watches a mapping of the process from now on; false if that cannot be: it is not mapped, or
    /// under a userfaultfd of the program's own. All of it counts as written to, unless it was
    /// watched before.
    ///
    /// # Errors
    /// The process has ended.
    pub fn watch(&self, pagemap: &Pagemap, range: &Range<u64>) -> Result<bool> {
        if let Way::SoftDirty(_) = self.way {
            return Ok(tables(range).next().is_none() || self.register(range));
        }
        let was_watched = pagemap.is_watched(range.start)?;
        if !self.register(range) {
            return Ok(false);
        }
        // A mapping that mremap(2) has put between watched ones is joined with them, and then the
        // kernel (6.18) watches none of them any more, but leaves the marks of pages that were not
        // written to. They hide all writes from then on.
        if !was_watched {
            for stale in pagemap.unwritten(range.start, range.end)? {
                self.take_mark(&stale)?;
            }
        }
        Ok(true)
    }

    /// All that is to be watched is; the process stands still. By soft-dirty bits, nothing counts
    /// as written to any more.
    ///
    /// # Errors
    /// The process has ended.
    pub fn begin(&self) -> Result<()> {
        match &self.way {
            Way::Protection => Ok(()),
            Way::SoftDirty(bits) => bits.clear(),
        }
    }

    /// Whether what a walk tells can count as not written to from then on: by protection. If not,
    /// that is only so once it has begun again.
    pub fn begins_with_walks(&self) -> bool {
        matches!(self.way, Way::Protection)
    }

    /// From now on nobody who has claimed this before can have anything begin anew.
    pub fn claim(self: &Arc<Tracking>) -> Claim {
        let mut claims = self.claims.lock().expect("nobody panics with this lock");
        *claims += 1;
        Claim { tracking: self.clone(), number: *claims }
    }

    fn walk(
        &self,
        pagemap: &Pagemap,
        range: &Range<u64>,
        select: Select,
        protects: bool,
    ) -> Result<Option<Walked>> {
        match self.way {
            Way::Protection => pagemap.walk(range.start, range.end, select, protects),
            // Looked at first: what moves while the process runs is seen when it stands still.
            Way::SoftDirty(_) if !self.has_stayed(range) => Ok(None),
            Way::SoftDirty(_) => pagemap.walk_entries(range.start, range.end, select).map(Some),
        }
    }

    /// As [`Pagemap::look`].
    ///
    /// # Errors
    /// The process has ended.
    pub fn look(
        &self,
        pagemap: &Pagemap,
        ranges: &[Range<u64>],
        select: Select,
    ) -> Result<Vec<Looked>> {
        if let Way::Protection = self.way {
            return pagemap.look(ranges, select, true);
        }
        let looked = |range: &Range<u64>| {
            let walked = self.walk(pagemap, range, select, false)?;
            let is_watched = walked.is_some();
            let walked = match walked {
                Some(walked) => walked,
                None => Walked::of(pagemap.scan(range.start, range.end, select)?),
            };
            let guards = pagemap.scan(range.start, range.end, Select::Guard)?;
            Ok(Looked { walked, guards, is_watched })
        };
        ranges.iter().map(looked).collect()
    }

    /// As [`Pagemap::written`]; nothing begins anew.
    ///
    /// # Errors
    /// The process has ended.
    pub fn written(
        &self,
        pagemap: &Pagemap,
        range: &Range<u64>,
        select: Select,
    ) -> Result<Option<Vec<Run>>> {
        self.told(pagemap, range, select, false)
    }

    fn told(
        &self,
        pagemap: &Pagemap,
        range: &Range<u64>,
        select: Select,
        protects: bool,
    ) -> Result<Option<Vec<Run>>> {
        match self.way {
            Way::Protection => pagemap.written(range.start, range.end, select, protects),
            Way::SoftDirty(_) => {
                let walked = self.walk(pagemap, range, select, protects)?;
                Ok(walked.map(|walked| walked.written))
            }
        }
    }

    /// Pages of shared memory that were written to since this was asked last; all of them the first
    /// time. None if that is not known: soft-dirty bits do not tell it.
    ///
    /// # Errors
    /// The process has ended.
    pub fn written_shared(
        &self,
        pagemap: &Pagemap,
        range: &Range<u64>,
    ) -> Result<Option<Vec<Run>>> {
        match self.way {
            Way::Protection => pagemap.written_shared(range.start, range.end),
            Way::SoftDirty(_) => Ok(None),
        }
    }

    /// Whether no page table of the range was moved there since it was watched. (What is moved page
    /// by page counts as written to.)
    fn has_stayed(&self, range: &Range<u64>) -> bool {
        let watched = self.watched();
        let was_watched = |table: &Range<u64>| {
            let before = watched.range(..=table.start).next_back();
            before.is_some_and(|(_, end)| table.end <= *end)
        };
        tables(range).all(|table| was_watched(&table) && self.is_registered(table.start))
    }

    /// Whether a userfaultfd would be told of writes to the page there. It is this one, where it
    /// has been this one: there can be no second before that is moved or unmapped, and a program
    /// that has one of its own does not move.
    fn is_registered(&self, address: u64) -> bool {
        self.take_mark(&Run { start: address, end: address + PAGE_BYTES }).is_ok()
    }

    fn register(&self, range: &Range<u64>) -> bool {
        let length = range.end - range.start;
        let mode = UFFDIO_REGISTER_MODE_WP;
        let mut register = Register { start: range.start, length, mode, ioctls: 0 };
        let descriptor = self.descriptor.as_raw_fd();
        // SAFETY: the argument is a live local of the size that the request states. What it
        // changes is how writes to another process's pages are counted.
        let is_watched =
            unsafe { libc::ioctl(descriptor, UFFDIO_REGISTER, &raw mut register) == 0 };
        if is_watched {
            self.watched().insert(range.start, range.end);
        }
        is_watched
    }

    fn take_mark(&self, run: &Run) -> Result<()> {
        let mut protect = Protect { start: run.start, length: run.end - run.start, mode: 0 };
        let descriptor = self.descriptor.as_raw_fd();
        // SAFETY: the argument is a live local of the size that the request states, and is read
        // only. What it changes is how writes to another process's pages are counted.
        match unsafe { libc::ioctl(descriptor, UFFDIO_WRITEPROTECT, &raw mut protect) } {
            0 => Ok(()),
            _ => Err(KernelError::last(format!("count {:#x} as written to", run.start))),
        }
    }

    fn watched(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.watched.lock().expect("nobody panics with this lock")
    }

    /// False if there is no such process any more.
    fn give_up(&self, mut piece: Piece) -> bool {
        let descriptor = self.descriptor.as_raw_fd();
        // SAFETY: the argument is a live local of the size that the request states, and is read
        // only. What it changes is how writes to another process's pages are counted.
        let result = unsafe { libc::ioctl(descriptor, UFFDIO_UNREGISTER, &raw mut piece) };
        result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOMEM)
    }
}

impl Claim {
    pub fn tracking(&self) -> &Tracking {
        &self.tracking
    }

    /// As [`Pagemap::walk`]; what it tells counts as not written to from then on, if the walk is
    /// what begins that ([`Tracking::begins_with_walks`]).
    ///
    /// # Errors
    /// The process has ended, or another has claimed this since.
    pub fn walk(
        &self,
        pagemap: &Pagemap,
        range: &Range<u64>,
        select: Select,
    ) -> Result<Option<Walked>> {
        let _claims = self.hold()?;
        self.tracking.walk(pagemap, range, select, true)
    }

    /// Likewise, as [`Pagemap::written`].
    ///
    /// # Errors
    /// As [`Claim::walk`].
    pub fn written(
        &self,
        pagemap: &Pagemap,
        range: &Range<u64>,
        select: Select,
    ) -> Result<Option<Vec<Run>>> {
        let _claims = self.hold()?;
        self.tracking.told(pagemap, range, select, true)
    }

    /// As long as this is held no other can be claimed.
    fn hold(&self) -> Result<MutexGuard<'_, u64>> {
        let claims = self.tracking.claims.lock().expect("nobody panics with this lock");
        match *claims == self.number {
            true => Ok(claims),
            false => Err(KernelError::errno("begin anew for another move", libc::ECANCELED)),
        }
    }
}

impl Drop for Tracking {
    fn drop(&mut self) {
        for (start, end) in std::mem::take(&mut *self.watched()) {
            let piece = PIECE_BYTES.max((end - start) / PIECES_MAX).next_multiple_of(PIECE_BYTES);
            let mut at = start;
            while at < end {
                let length = piece.min(end - at);
                // What is not given up here, because it was unmapped or has moved, is with the
                // descriptor.
                if !self.give_up(Piece { start: at, length }) {
                    return;
                }
                at += length;
            }
        }
    }
}

/// The parts of a range that a page table of their own maps.
fn tables(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let first = range.start.next_multiple_of(TABLE_BYTES);
    let last = range.end / TABLE_BYTES * TABLE_BYTES;
    let starts = (first..last).step_by(TABLE_BYTES as usize);
    starts.map(|start| start..start + TABLE_BYTES)
}

/// Whether writes can be tracked, in one of the two ways.
pub fn is_possible() -> bool {
    let features = features::settled();
    features.has(Feature::WriteTracking) || features.has(Feature::SoftDirty)
}

/// Whether there is the way by protection: tried on nothing.
pub(crate) fn is_there() -> bool {
    of_this_process().is_ok()
}

/// Whether what is moved is told from what has stayed, where soft-dirty bits do not: tried on
/// untouched memory.
pub(crate) fn tells_moves() -> bool {
    let moves = |tracking: &Tracking| {
        let place = mapped_tables()?;
        let [first, second] = [place.start, place.start + TABLE_BYTES];
        let was_registered = tracking.register(&place)
            && tracking.is_registered(first)
            && tracking.is_registered(second);
        let length = TABLE_BYTES as usize;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let pointer = |address: u64| address as *mut libc::c_void;
        // SAFETY: the memory was mapped above, and nobody refers to it. Half of it is moved over
        // the other half, and all of it is unmapped.
        let moved = unsafe {
            libc::mremap(pointer(first), length, length, flags, pointer(second)) != libc::MAP_FAILED
        };
        let is_told = moved && !tracking.is_registered(second);
        // SAFETY: as above.
        unsafe { libc::munmap(pointer(first), 2 * length) };
        Some(was_registered && is_told)
    };
    let tracking = soft_dirty_of_this_process();
    tracking.is_ok_and(|tracking| moves(&tracking) == Some(true))
}

/// Untouched memory of two page tables.
fn mapped_tables() -> Option<Range<u64>> {
    let length = 3 * TABLE_BYTES as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, where there is none.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    let start = (mapped as u64).next_multiple_of(TABLE_BYTES);
    let end = start + 2 * TABLE_BYTES;
    for (from, to) in [(mapped as u64, start), (end, mapped as u64 + length as u64)] {
        if from < to {
            // SAFETY: a part of the new mapping, to which nobody refers.
            unsafe { libc::munmap(from as *mut libc::c_void, (to - from) as usize) };
        }
    }
    Some(start..end)
}

/// Of the calling process itself, by protection.
///
/// # Errors
/// The kernel has no such thing, or forbids it.
pub fn of_this_process() -> Result<Tracking> {
    Tracking::by(Way::Protection, own_descriptor()?)
}

/// Likewise by soft-dirty bits. Whether there are any is not known by that.
///
/// # Errors
/// The kernel has no such thing, or forbids it.
pub fn soft_dirty_of_this_process() -> Result<Tracking> {
    Tracking::by(Way::SoftDirty(Bits::of(std::process::id() as i32)?), own_descriptor()?)
}

fn own_descriptor() -> Result<OwnedFd> {
    let arguments = [DESCRIPTOR_FLAGS, 0, 0, 0, 0, 0];
    // SAFETY: an integer.
    let fd = unsafe { sys::call("make a userfaultfd", libc::SYS_userfaultfd, arguments) }?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod test;
