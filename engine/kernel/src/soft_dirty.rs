//! Which pages were written to, by soft-dirty bits (CONFIG_MEM_SOFT_DIRTY;
//! Documentation/admin-guide/mm/soft-dirty.rst): all of a process's are cleared at once, each is
//! set by the first write.
//!
//! A bit that is clear says less than it seems to, because what is at an address can change without
//! a write:
//! * A page that was given up (MADV_DONTNEED) and is only read is the zero page. It belongs to
//!   everybody, and so is told from a page that is mapped here and nowhere else.
//! * mremap(2) moves whole page tables, 2 MiB each, with their bits as they are (since Linux 5.0;
//!   page by page it sets them, and late kernels of 6.1 move registered memory so). What was moved
//!   is no longer registered with a userfaultfd that it was registered with before:
//!   [`crate::tracking`] looks for that.

use crate::Result;
use crate::proc::{self, pagemap};
use std::fs::{File, OpenOptions};
use std::io::Write;

/// What one page table maps.
pub(crate) const TABLE_BYTES: u64 = 2 << 20;

const PRESENT: u64 = 1 << 63;
/// Of memory: mapped here, once, and nowhere else.
const EXCLUSIVE: u64 = 1 << 56;
const SOFT_DIRTY: u64 = 1 << 55;

/// Whether a page is surely the one that was there when bits were cleared, with what was in it;
/// told by its entry of `/proc/PID/pagemap`. In swap space it may be anything.
pub(crate) fn is_unwritten(entry: u64) -> bool {
    entry & (PRESENT | EXCLUSIVE | SOFT_DIRTY) == PRESENT | EXCLUSIVE
}

/// The bits of a process.
#[derive(Debug)]
pub(crate) struct Bits {
    file: File,
    pid: i32,
}

impl Bits {
    /// # Errors
    /// They are not ours to clear.
    pub fn of(pid: i32) -> Result<Bits> {
        let path = format!("/proc/{pid}/clear_refs");
        let file = OpenOptions::new().write(true).open(&path);
        let file = file.map_err(|source| proc::failed(format!("open {path}"), source))?;
        Ok(Bits { file, pid })
    }

    /// # Errors
    /// The process has ended.
    pub fn clear(&self) -> Result<()> {
        let written = (&self.file).write_all(CLEAR);
        written.map_err(|source| proc::failed(format!("clear bits of {}", self.pid), source))
    }
}

/// To `clear_refs`.
const CLEAR: &[u8] = b"4";

/// Whether the kernel sets such bits, and also where it could save itself the fault by which it
/// does: Linux up to 6.0 lost a write behind an mprotect(2). The caller is a copy of a process that
/// ends at once; only system calls are made.
pub(crate) fn is_there() -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let length = pagemap::PAGE_BYTES as usize;
    // SAFETY: paths are constants, the page is a new one that nobody else refers to, and is written
    // to only while it is mapped writable; lengths are those of live locals.
    unsafe {
        let clear = libc::open(c"/proc/self/clear_refs".as_ptr(), libc::O_WRONLY);
        let bits = libc::open(c"/proc/self/pagemap".as_ptr(), libc::O_RDONLY);
        let page = libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0);
        if clear < 0 || bits < 0 || page == libc::MAP_FAILED {
            return false;
        }
        let clears = || libc::write(clear, CLEAR.as_ptr().cast(), CLEAR.len()) == 1;
        let touch = || page.cast::<u8>().write_volatile(1);
        let is_clean = || {
            let (mut entry, place) = (0u64, page as u64 / pagemap::PAGE_BYTES * 8);
            let read = libc::pread(bits, (&raw mut entry).cast(), 8, place as i64);
            (read == 8).then_some(is_unwritten(entry))
        };
        touch();
        let is_cleared = clears() && is_clean() == Some(true);
        libc::mprotect(page, length, libc::PROT_READ);
        libc::mprotect(page, length, protection);
        touch();
        let is_set = is_clean() == Some(false);
        is_cleared && is_set && clears() && is_clean() == Some(true)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn only_a_page_of_the_process_alone_that_is_there_and_clear_is_unwritten() {
        let file = 1 << 61;
        assert!(is_unwritten(PRESENT | EXCLUSIVE) && is_unwritten(PRESENT | EXCLUSIVE | file));
        let (swapped, zero) = (1 << 62 | EXCLUSIVE, PRESENT);
        for entry in [0, EXCLUSIVE, zero, swapped, PRESENT | EXCLUSIVE | SOFT_DIRTY] {
            assert!(!is_unwritten(entry), "{entry:#x}");
        }
    }
}
