//! Memory shared between a supervisor and the process it controls, and futexes in it.

use crate::features::{self, Feature};
use crate::{KernelError, Result};
use nix::fcntl::FallocateFlags;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// A shared mapping of a memory file. The other side is hostile: everything in it may change at any
/// time, so it is only ever copied in and out, or used through atomics.
pub struct SharedMemory {
    base: std::ptr::NonNull<u8>,
    size: usize,
    file: OwnedFd,
}

// SAFETY: the mapping is plain memory that outlives the value and is accessed by copies and atomics
// only, from any thread.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes a memory file of `size` bytes (a multiple of the page size) and maps it.
    pub fn create(size: usize) -> Result<SharedMemory> {
        let name = c"osmos";
        let file = nix::sys::memfd::memfd_create(name, nix::sys::memfd::MFdFlags::MFD_CLOEXEC)
            .map_err(|e| KernelError::errno("create shared memory", e as i32))?;
        SharedMemory::of_file(file, size)
    }

    /// The same for memory that code is to be mapped from elsewhere.
    pub fn create_for_code(size: usize) -> Result<SharedMemory> {
        let arguments = [c"osmos".as_ptr() as u64, code_file_flags(), 0, 0, 0, 0];
        // SAFETY: the name is a literal, the rest are numbers.
        let made = unsafe {
            crate::sys::call("create memory for code", libc::SYS_memfd_create, arguments)
        };
        // SAFETY: the kernel has just made this descriptor for us alone.
        let file = made.map(|number| unsafe { OwnedFd::from_raw_fd(number as i32) })?;
        SharedMemory::of_file(file, size)
    }

    /// Maps an existing memory file, setting its size.
    pub fn of_file(file: OwnedFd, size: usize) -> Result<SharedMemory> {
        nix::unistd::ftruncate(file.as_fd(), size as i64)
            .map_err(|e| KernelError::errno("size shared memory", e as i32))?;
        // SAFETY: a fresh mapping at an address that the kernel chooses; it aliases nothing of
        // ours.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(KernelError::last("map shared memory"));
        }
        let base = std::ptr::NonNull::new(base.cast())
            .ok_or_else(|| KernelError::errno("map shared memory", libc::ENOMEM))?;
        Ok(SharedMemory { base, size, file })
    }

    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    /// If the range is outside the memory: a fault of ours, never of the other side.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let range = self.check(offset, bytes.len());
        // SAFETY: the range lies inside the mapping (checked); source and target cannot overlap,
        // because no reference into the mapping is ever given out. A race with the other process
        // can tear the bytes, which callers accept: they never trust this memory.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.base.as_ptr().add(range.start),
                bytes.len(),
            );
        }
    }

    /// Copies `buffer.len()` bytes from `offset`.
    ///
    /// # Panics
    /// If the range is outside the memory.
    pub fn read(&self, offset: usize, buffer: &mut [u8]) {
        let range = self.check(offset, buffer.len());
        // SAFETY: as in `write`.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.base.as_ptr().add(range.start),
                buffer.as_mut_ptr(),
                buffer.len(),
            );
        }
    }

    /// Gives back the memory of a range of whole pages, whose contents are zero then.
    pub fn discard(&self, offset: usize, length: usize) -> Result<()> {
        let range = self.check(offset, length);
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        nix::fcntl::fallocate(&self.file, flags, range.start as i64, range.len() as i64)
            .map_err(|e| KernelError::errno("give back shared memory", e as i32))
    }

    /// The aligned word at `offset` as an atomic.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        let range = self.check(offset, 4);
        assert_eq!(offset % 4, 0);
        // SAFETY: inside the mapping, aligned, and every access to it on our side is atomic.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(range.start).cast()) }
    }

    /// The aligned 64-bit word at `offset` as an atomic.
    pub fn word64(&self, offset: usize) -> &AtomicU64 {
        let range = self.check(offset, 8);
        assert_eq!(offset % 8, 0);
        // SAFETY: inside the mapping, aligned, and every access to it on our side is atomic.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(range.start).cast()) }
    }

    fn check(&self, offset: usize, length: usize) -> Range<usize> {
        let end = offset.checked_add(length).filter(|end| *end <= self.size);
        let Some(end) = end else {
            panic!("shared memory of {} bytes: {length} bytes at {offset} asked", self.size);
        };
        offset..end
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `of_file` with this size, and no reference into it
        // outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size) };
    }
}

const MFD_CLOEXEC: u64 = 1;
const MFD_EXEC: u64 = 0x10;

/// Flags of memfd_create(2) for memory that code will be mapped from.
pub fn code_file_flags() -> u64 {
    match features::settled().has(Feature::ExecutableMemfd) {
        true => MFD_CLOEXEC | MFD_EXEC,
        false => MFD_CLOEXEC,
    }
}

/// Whether a memory file can be said to be for code.
pub(crate) fn has_executable_memfd() -> bool {
    let arguments = [c"osmos".as_ptr() as u64, MFD_CLOEXEC | MFD_EXEC, 0, 0, 0, 0];
    // SAFETY: the name is a literal, the rest are numbers.
    let made = unsafe { crate::sys::call("try a memory file", libc::SYS_memfd_create, arguments) };
    // SAFETY: the kernel has just made this descriptor for us alone.
    made.map(|number| unsafe { OwnedFd::from_raw_fd(number as i32) }).is_ok()
}

/// Sleeps while the word holds `expected`, for at most `timeout`. May return early.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let time = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs() as i64,
        tv_nsec: i64::from(t.subsec_nanos()),
    });
    let time_address = time.as_ref().map_or(0, |t| std::ptr::from_ref(t) as u64);
    // SAFETY: the word is live for the call (borrowed) and the timespec is a live local.
    let _ = unsafe {
        crate::sys::call(
            "futex wait",
            libc::SYS_futex,
            [word.as_ptr() as u64, FUTEX_WAIT, u64::from(expected), time_address, 0, 0],
        )
    };
}

/// Wakes up to `count` waiters on the word, in any process that shares it.
pub fn futex_wake(word: &AtomicU32, count: u32) {
    // SAFETY: the word is live for the call; waking touches nothing else.
    let _ = unsafe {
        crate::sys::call(
            "futex wake",
            libc::SYS_futex,
            [word.as_ptr() as u64, FUTEX_WAKE, u64::from(count), 0, 0, 0],
        )
    };
}

const FUTEX_WAIT: u64 = 0;
const FUTEX_WAKE: u64 = 1;

#[cfg(test)]
pub(crate) mod test_support {
    //! Fresh memory with known addresses, for the tests of page scans.

    use std::os::fd::AsRawFd;

    pub struct Fresh {
        base: *mut u8,
        size: usize,
    }

    pub fn anonymous(size: usize) -> Fresh {
        map(size, libc::MAP_ANONYMOUS, -1)
    }

    pub fn of_file(size: usize, file: &std::fs::File) -> Fresh {
        map(size, 0, file.as_raw_fd())
    }

    pub fn shared(size: usize) -> Fresh {
        map_as(libc::MAP_SHARED, size, libc::MAP_ANONYMOUS, -1)
    }

    fn map(size: usize, flags: i32, descriptor: i32) -> Fresh {
        map_as(libc::MAP_PRIVATE, size, flags, descriptor)
    }

    fn map_as(way: i32, size: usize, flags: i32, descriptor: i32) -> Fresh {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = flags | way;
        // SAFETY: a fresh mapping.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, descriptor, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        // SAFETY: the range was just mapped; advice changes nothing about its validity.
        unsafe { libc::madvise(base, size, libc::MADV_NOHUGEPAGE) };
        Fresh { base: base.cast(), size }
    }

    impl Fresh {
        pub fn as_ptr(&self) -> *const u8 {
            self.base
        }

        pub fn advise(&self, advice: i32) {
            // SAFETY: the mapping made above; what is advised concerns children and dumps.
            let result = unsafe { libc::madvise(self.base.cast(), self.size, advice) };
            assert_eq!(result, 0);
        }

        pub fn touch(&self, offset: usize) {
            assert!(offset < self.size);
            // SAFETY: inside the mapping made above.
            unsafe { self.base.add(offset).write_volatile(1) };
        }
    }

    impl Drop for Fresh {
        fn drop(&mut self) {
            // SAFETY: made by `map` with this size.
            unsafe { libc::munmap(self.base.cast(), self.size) };
        }
    }
}
