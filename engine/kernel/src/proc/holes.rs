//! Where shared memory has no pages. A page table does not tell that: what others have written to
//! is not in it. To read a hole fills it with a page of zeros, which the memory keeps.
//!
//! The memory is a file of tmpfs even if it has no name, and `/proc/PID/map_files` opens it; a file
//! of tmpfs knows by lseek(2) where it has data, what is swapped out included (`shmem_file_llseek`
//! in mm/shmem.c). The kernel opens that only for who has CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE
//! in the first user namespace.

use crate::proc::maps::Mapping;
use crate::proc::pagemap::{PAGE_BYTES, Run};
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::unistd::{Whence, lseek};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

/// The memory behind a shared mapping; None if we may not open it. A daemon opens it for its users,
/// so nothing is opened but tmpfs: a file system of a user's own may never answer.
pub fn open(pid: i32, mapping: &Mapping) -> Option<File> {
    if !tmpfs_devices().contains(&mapping.device) {
        return None;
    }
    let path = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
    File::open(path).ok()
}

/// Of memory without a name, and of `/dev/shm` as we see it.
fn tmpfs_devices() -> &'static [u64] {
    static DEVICES: OnceLock<Vec<u64>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let unnamed = memfd_create(c"osmos", MFdFlags::MFD_CLOEXEC).ok().map(File::from);
        let unnamed = unnamed.and_then(|file| file.metadata().ok());
        let is_tmpfs = statfs("/dev/shm").is_ok_and(|it| it.filesystem_type() == TMPFS_MAGIC);
        let named = is_tmpfs.then(|| std::fs::metadata("/dev/shm").ok()).flatten();
        unnamed.into_iter().chain(named).map(|metadata| metadata.dev()).collect()
    })
}

/// The holes of a mapping of this file within a range of addresses, in order. There are none behind
/// the end of the file: nothing can be read there.
pub fn of(file: &File, mapping: &Mapping, within: &Range<u64>) -> Vec<Run> {
    let (start, end) = (mapping.start.max(within.start), mapping.end.min(within.end));
    let Ok(length) = file.metadata().map(|metadata| metadata.len()) else { return vec![] };
    if start >= end {
        return vec![];
    }
    let offset = |address: u64| mapping.offset + (address - mapping.start);
    let last = offset(end).min(length.next_multiple_of(PAGE_BYTES));
    let address = |offset: u64| offset - mapping.offset + mapping.start;
    let run = |hole: &Range<u64>| Run { start: address(hole.start), end: address(hole.end) };
    in_file(file, offset(start)..last).iter().map(run).collect()
}

fn in_file(file: &File, range: Range<u64>) -> Vec<Range<u64>> {
    let mut holes = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let data = match seek(file, at, Whence::SeekData) {
            Ok(data) => data.clamp(at, range.end),
            // No data behind this.
            Err(Errno::ENXIO) => range.end,
            // One that does not know where it has data.
            Err(_) => return vec![],
        };
        if data > at {
            holes.push(at..data);
        }
        at = match seek(file, data, Whence::SeekHole) {
            // The end of the file counts as one, and may be inside of a page.
            Ok(hole) if data < range.end && hole > data => hole.next_multiple_of(PAGE_BYTES),
            _ => break,
        };
    }
    holes
}

fn seek(file: &File, at: u64, whence: Whence) -> nix::Result<u64> {
    lseek(file, at as i64, whence).map(|offset| offset as u64)
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::proc::maps;
    use nix::libc;
    use std::os::unix::fs::FileExt;

    const PAGES: u64 = 1 << 20;

    #[test]
    fn only_pages_that_somebody_has_written_to_are_no_holes() {
        let (length, protection) = (PAGES * PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE);
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a mapping of its own, which nothing else here has.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), length as usize, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let start = start as u64;
        let page = |number: u64| start + number * PAGE_BYTES;
        for number in [3, 4, PAGES - 2] {
            // SAFETY: it lies in the mapping.
            unsafe { std::ptr::write_volatile(page(number) as *mut u8, 1) };
        }
        let pid = std::process::id() as i32;
        let all = maps::read(pid).unwrap();
        let mapping = all.iter().find(|m| m.start <= start && start < m.end).unwrap();
        let run = |range: Range<u64>| Run { start: page(range.start), end: page(range.end) };
        let Some(file) = open(pid, mapping) else {
            eprintln!("skipped: /proc/PID/map_files cannot be opened");
            return;
        };
        let known = of(&file, mapping, &(start..start + length));
        let inside = of(&file, mapping, &(page(1)..page(6)));
        // SAFETY: it was mapped above, and nothing refers to it any more.
        unsafe { libc::munmap(start as *mut libc::c_void, length as usize) };
        assert_eq!(known, [run(0..3), run(5..PAGES - 2), run(PAGES - 1..PAGES)]);
        assert_eq!(inside, [run(1..3), run(5..6)]);
    }

    fn memory_file() -> File {
        memfd_create(c"holes", MFdFlags::MFD_CLOEXEC).unwrap().into()
    }

    #[test]
    fn a_file_that_ends_inside_of_a_page_has_all_of_that() {
        let file = memory_file();
        file.write_all_at(&[1; 32], PAGE_BYTES).unwrap();
        assert_eq!(in_file(&file, 0..2 * PAGE_BYTES), std::slice::from_ref(&(0..PAGE_BYTES)));
    }

    #[test]
    fn behind_the_end_of_a_file_there_are_no_holes() {
        let file = memory_file();
        file.set_len(3 * PAGE_BYTES).unwrap();
        let all = 0..3 * PAGE_BYTES;
        assert_eq!(in_file(&file, all.clone()), std::slice::from_ref(&all));
        let (behind, end) = (4 * PAGE_BYTES, 3 * PAGE_BYTES);
        assert_eq!(in_file(&file, behind..end), []);
    }
}
