//! Which pages of a process are written to, while it runs.
//!
//! By a userfaultfd with asynchronous write protection (UFFD_FEATURE_WP_ASYNC, Linux 6.7;
//! Documentation/admin-guide/mm/pagemap.rst): the first write to a protected page takes a fault
//! that the kernel resolves by itself, some microsecond, and whether there was one is told by
//! [`crate::proc::pagemap::Pagemap::walk`]. The process is never held up, and nobody has to answer.
//!
//! The descriptor belongs to the address space of who makes it: a thread of the process has to.
//! Once it is closed the kernel takes all protection away, at some 20 ms for a gigabyte of small
//! pages in which nothing else changes the address space: so that is done piece by piece before.

use crate::proc::pagemap::{Pagemap, Run};
use crate::{KernelError, Result, sys};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};

/// The argument of userfaultfd(2). No fault is ever told, so it needs no privilege to get those of
/// the kernel either (UFFD_USER_MODE_ONLY).
pub const DESCRIPTOR_FLAGS: u64 = (libc::O_CLOEXEC | libc::O_NONBLOCK | 1) as u64;

/// A process whose mappings can be watched.
#[derive(Debug)]
pub struct Tracking {
    descriptor: OwnedFd,
    /// What was watched: starts and ends.
    watched: Mutex<BTreeMap<u64, u64>>,
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
struct Register {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
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
struct Piece {
    start: u64,
    length: u64,
}

// _IOWR(0xaa, 0x3f, struct uffdio_api), _IOWR(0xaa, 0x00, struct uffdio_register),
// _IOR(0xaa, 0x01, struct uffdio_range), _IOWR(0xaa, 0x06, struct uffdio_writeprotect)
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_UNREGISTER: u64 = 0x8010_aa01;
const UFFDIO_WRITEPROTECT: u64 = 0xc018_aa06;
const UFFD_API: u64 = 0xaa;
const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
const UFFD_FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;

impl Tracking {
    /// `descriptor` was made by a thread of the process, and nobody else has it.
    pub fn of(descriptor: OwnedFd) -> Result<Tracking> {
        let features = UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_ASYNC;
        let mut api = Api { api: UFFD_API, features, ioctls: 0 };
        // SAFETY: the argument is a live local of the size that the request states.
        let result = unsafe { libc::ioctl(descriptor.as_raw_fd(), UFFDIO_API, &raw mut api) };
        match result {
            0 => Ok(Tracking { descriptor, watched: Mutex::default() }),
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

/// Whether there is such a thing: tried on nothing.
pub(crate) fn is_there() -> bool {
    of_this_process().is_ok()
}

/// Of the calling process itself.
///
/// # Errors
/// The kernel has no such thing, or forbids it.
pub fn of_this_process() -> Result<Tracking> {
    let arguments = [DESCRIPTOR_FLAGS, 0, 0, 0, 0, 0];
    // SAFETY: an integer.
    let fd = unsafe { sys::call("make a userfaultfd", libc::SYS_userfaultfd, arguments) }?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    Tracking::of(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::features::{self, Feature};
    use crate::proc::pagemap::{PAGE_BYTES, Select};
    use crate::shared::test_support::{Fresh, anonymous, of_file};

    struct Watched {
        map: Fresh,
        base: u64,
        pagemap: Pagemap,
        tracking: Tracking,
    }

    const PAGES: u64 = 64;

    fn watched() -> Option<Watched> {
        let tracking = of_this_process().ok()?;
        let map = anonymous((PAGES * PAGE_BYTES) as usize);
        let base = map.as_ptr() as u64;
        let pagemap = Pagemap::open(std::process::id() as i32).unwrap();
        Some(Watched { map, base, pagemap, tracking })
    }

    impl Watched {
        fn watch(&self, pages: Range<u64>) -> bool {
            let address = |page| self.base + page * PAGE_BYTES;
            self.tracking.watch(&self.pagemap, &(address(pages.start)..address(pages.end))).unwrap()
        }

        fn touch(&self, page: u64) {
            self.map.touch((page * PAGE_BYTES) as usize);
        }

        /// Pages that are there, and those that were written to.
        fn walk(&self, protects: bool) -> Option<(Vec<u64>, Vec<u64>)> {
            let end = self.base + PAGES * PAGE_BYTES;
            let walked = self.pagemap.walk(self.base, end, Select::Populated, protects).unwrap()?;
            let number = |at: u64| (at - self.base) / PAGE_BYTES;
            let pages = |runs: Vec<Run>| {
                runs.iter().flat_map(|run| number(run.start)..number(run.end)).collect()
            };
            Some((pages(walked.there), pages(walked.written)))
        }
    }

    #[test]
    fn exactly_what_was_written_since_the_last_walk_is_told() {
        let Some(it) = watched() else {
            assert!(!features::settled().has(Feature::WriteTracking));
            return;
        };
        [3, 4, 40].into_iter().for_each(|page| it.touch(page));
        assert_eq!(it.walk(true), None, "it is not watched yet");
        assert!(it.watch(0..PAGES));
        assert_eq!(it.walk(true), Some((vec![3, 4, 40], vec![3, 4, 40])), "all counts as written");
        assert_eq!(it.walk(true), Some((vec![3, 4, 40], vec![])));
        it.touch(4);
        it.touch(50);
        assert_eq!(it.walk(false), Some((vec![3, 4, 40, 50], vec![4, 50])));
        assert_eq!(it.walk(true), Some((vec![3, 4, 40, 50], vec![4, 50])), "it was only looked at");
        assert_eq!(it.walk(true), Some((vec![3, 4, 40, 50], vec![])));
        it.map.advise(libc::MADV_DONTNEED);
        assert_eq!(it.walk(true), Some((vec![], vec![])));
        it.touch(3);
        assert_eq!(it.walk(true), Some((vec![3], vec![3])), "a page that was gone meanwhile");
    }

    #[test]
    fn memory_that_is_partly_unwatched_is_not_guessed_at() {
        let Some(it) = watched() else { return };
        (0..PAGES).for_each(|page| it.touch(page));
        assert!(it.watch(0..PAGES / 2));
        assert_eq!(it.walk(true), None);
        assert!(it.watch(PAGES / 2..PAGES));
        let all: Vec<u64> = (0..PAGES).collect();
        let (there, written) = it.walk(true).unwrap();
        assert_eq!(there, all);
        let late: Vec<u64> = (PAGES / 2..PAGES).collect();
        assert!(late.iter().all(|page| written.contains(page)));
        let nowhere = 0..PAGE_BYTES;
        assert!(!it.tracking.watch(&it.pagemap, &nowhere).unwrap(), "nothing is mapped there");
    }

    #[test]
    fn what_the_kernel_stopped_watching_counts_as_written_when_it_is_watched_again() {
        let Some(it) = watched() else { return };
        let thirds = [0, PAGES / 4, PAGES / 2, PAGES];
        (0..PAGES).for_each(|page| it.touch(page));
        // The middle is elsewhere when all is watched, and returns.
        let elsewhere = anonymous((thirds[2] - thirds[1]) as usize * PAGE_BYTES as usize);
        let range = |from: u64, to: u64| {
            (it.base as usize + (from * PAGE_BYTES) as usize, ((to - from) * PAGE_BYTES) as usize)
        };
        let (middle, length) = range(thirds[1], thirds[2]);
        let away = elsewhere.as_ptr() as usize;
        remap(middle, away, length);
        for pair in [[thirds[0], thirds[1]], [thirds[2], thirds[3]]] {
            assert!(it.watch(pair[0]..pair[1]));
        }
        let moved = away as u64..(away + length) as u64;
        assert!(it.tracking.watch(&it.pagemap, &moved).unwrap());
        let protect = |start, end| it.pagemap.written(start, end, Select::Populated, true).unwrap();
        for (start, length) in [range(thirds[0], thirds[1]), range(thirds[2], thirds[3])] {
            assert!(protect(start as u64, (start + length) as u64).is_some());
        }
        assert!(protect(moved.start, moved.end).is_some());
        remap(away, middle, length);
        std::mem::forget(elsewhere);
        (0..PAGES).for_each(|page| it.touch(page));
        for pair in thirds.windows(2) {
            it.watch(pair[0]..pair[1]);
        }
        let all: Vec<u64> = (0..PAGES).collect();
        let written = it.walk(true).expect("it is watched").1;
        assert_eq!(written, all, "all that may have been written to without being seen");
        it.touch(1);
        assert_eq!(it.walk(true).expect("it is watched").1, [1]);
    }

    fn remap(from: usize, to: usize, length: usize) {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let pointer = |address: usize| address as *mut libc::c_void;
        // SAFETY: both ranges belong to the test, and nothing refers to what is there.
        let to = unsafe { libc::mremap(pointer(from), length, length, flags, pointer(to)) };
        assert_ne!(to, libc::MAP_FAILED);
    }

    #[test]
    fn private_pages_of_a_file_that_were_given_up_count_as_written() {
        let Ok(tracking) = of_this_process() else { return };
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 * PAGE_BYTES).unwrap();
        let map = of_file(4 * PAGE_BYTES as usize, &file);
        let base = map.as_ptr() as u64;
        let end = base + 4 * PAGE_BYTES;
        let pagemap = Pagemap::open(std::process::id() as i32).unwrap();
        let walk = |protects| {
            pagemap.walk(base, end, Select::Private, protects).unwrap().expect("it is watched")
        };
        map.touch(0);
        assert!(tracking.watch(&pagemap, &(base..end)).unwrap());
        let first = vec![Run { start: base, end: base + PAGE_BYTES }];
        assert_eq!(walk(true).written, first);
        assert_eq!((walk(true).there, walk(true).written), (first, vec![]));
        map.advise(libc::MADV_DONTNEED);
        let given_up = walk(false);
        assert_eq!(given_up.there, given_up.written, "none is as it was");
    }
}
