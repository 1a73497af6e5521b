//! Which pages of a process are written to, while it runs.
//!
//! By a userfaultfd with asynchronous write protection (UFFD_FEATURE_WP_ASYNC, Linux 6.7;
//! Documentation/admin-guide/mm/pagemap.rst): the first write to a protected page takes a fault
//! that the kernel resolves by itself, some microsecond, and whether there was one is told by
//! [`crate::proc::pagemap::Pagemap::walk`]. The process is never held up, and nobody has to answer.
//!
//! The descriptor belongs to the address space of who makes it: a thread of the process has to.
//! Once it is closed the kernel takes all protection away.

use crate::{KernelError, Result, sys};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The argument of userfaultfd(2). No fault is ever told, so it needs no privilege to get those of
/// the kernel either (UFFD_USER_MODE_ONLY).
pub const DESCRIPTOR_FLAGS: u64 = (libc::O_CLOEXEC | libc::O_NONBLOCK | 1) as u64;

/// A process whose mappings can be watched.
#[derive(Debug)]
pub struct Tracking {
    descriptor: OwnedFd,
}

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

// _IOWR(0xaa, 0x3f, struct uffdio_api), _IOWR(0xaa, 0x00, struct uffdio_register)
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
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
            0 => Ok(Tracking { descriptor }),
            _ => Err(KernelError::last("set up the tracking of writes")),
        }
    }

    /// Watches a range of the process from now on; false if that cannot be: it is not mapped, or
    /// under a userfaultfd of the program's own. All of it counts as written to.
    pub fn watch(&self, range: &Range<u64>) -> bool {
        let length = range.end - range.start;
        let mode = UFFDIO_REGISTER_MODE_WP;
        let mut register = Register { start: range.start, length, mode, ioctls: 0 };
        let descriptor = self.descriptor.as_raw_fd();
        // SAFETY: the argument is a live local of the size that the request states. What it
        // changes is how writes to another process's pages are counted.
        unsafe { libc::ioctl(descriptor, UFFDIO_REGISTER, &raw mut register) == 0 }
    }
}

/// Whether there is such a thing: tried on nothing.
pub(crate) fn is_there() -> bool {
    own().and_then(Tracking::of).is_ok()
}

/// A descriptor for this process.
fn own() -> Result<OwnedFd> {
    let arguments = [DESCRIPTOR_FLAGS, 0, 0, 0, 0, 0];
    // SAFETY: an integer.
    let fd = unsafe { sys::call("make a userfaultfd", libc::SYS_userfaultfd, arguments) }?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::features::{self, Feature};
    use crate::proc::pagemap::{PAGE_BYTES, Pagemap, Run, Select};
    use crate::shared::test_support::{Anonymous, anonymous};

    struct Watched {
        map: Anonymous,
        base: u64,
        pagemap: Pagemap,
        tracking: Tracking,
    }

    const PAGES: u64 = 64;

    fn watched() -> Option<Watched> {
        let tracking = own().and_then(Tracking::of).ok()?;
        let map = anonymous((PAGES * PAGE_BYTES) as usize);
        let base = map.as_ptr() as u64;
        let pagemap = Pagemap::open(std::process::id() as i32).unwrap();
        Some(Watched { map, base, pagemap, tracking })
    }

    impl Watched {
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
        assert!(it.tracking.watch(&(it.base..it.base + PAGES * PAGE_BYTES)));
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
        let half = it.base + PAGES / 2 * PAGE_BYTES;
        assert!(it.tracking.watch(&(it.base..half)));
        assert_eq!(it.walk(true), None);
        assert!(it.tracking.watch(&(it.base..it.base + PAGES * PAGE_BYTES)));
        let all: Vec<u64> = (0..PAGES).collect();
        let (there, written) = it.walk(true).unwrap();
        assert_eq!(there, all);
        let late: Vec<u64> = (PAGES / 2..PAGES).collect();
        assert!(late.iter().all(|page| written.contains(page)));
        assert!(!it.tracking.watch(&(0..PAGE_BYTES)), "nothing is mapped there");
    }
}
