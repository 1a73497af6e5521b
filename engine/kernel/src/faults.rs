//! Pages of another process that are put in place when it touches them, or before.
//!
//! By the same userfaultfd that tells which pages are written to ([`crate::tracking`]): ranges of a
//! process that runs are registered for missing pages as well. Whoever touches a page there that is
//! not present waits until it is put in place ([`Tracking::fill`]), protected, so that it counts as
//! not written to. Which pages have contents that are to come the kernel does not know: a page that
//! nobody has is asked for like any other, and has to be put in place as zeros.
//!
//! Faults of the kernel itself, in a system call of the process or for process_vm_readv(2), wait
//! like those of the program, but for some (seen on Linux 6.18), which fail:
//!
//! * access through `/proc/PID/mem` and ptrace: EIO;
//! * FUTEX_WAKE_OP and futexes that inherit priorities: EFAULT;
//! * what the kernel clears for a thread that ends: it stays as it is.
//!
//! Such pages have to be in place before.
//!
//! A descriptor that serves faults of the kernel takes a privilege
//! (vm.unprivileged_userfaultfd), or an open `/dev/userfaultfd` in the process that makes it.

use crate::agent::BatchCall;
use crate::proc::pagemap::PAGE_BYTES;
use crate::tracking::{
    Piece, Register, Tracking, UFFDIO_REGISTER, UFFDIO_REGISTER_MODE_WP, UFFDIO_UNREGISTER,
};
use crate::{KernelError, Result, sys};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const FLAGS: u64 = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
/// `struct uffd_msg` of linux/userfaultfd.h, and where it has what.
const MESSAGE_BYTES: usize = 32;
const ADDRESS_OFFSET: usize = 16;
const UFFD_EVENT_PAGEFAULT: u8 = 0x12;

// _IO(0xaa, 0x00), _IOR(0xaa, 0x02, struct uffdio_range),
// _IOWR(0xaa, 0x03, struct uffdio_copy), _IOWR(0xaa, 0x04, struct uffdio_zeropage)
const USERFAULTFD_IOC_NEW: u64 = 0xaa00;
const UFFDIO_WAKE: u64 = 0x8010_aa02;
const UFFDIO_COPY: u64 = 0xc028_aa03;
const UFFDIO_ZEROPAGE: u64 = 0xc020_aa04;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;
const COPY_MODE_WP: u64 = 1 << 1;

/// `struct uffdio_copy`.
#[repr(C)]
struct Copy {
    to: u64,
    from: u64,
    length: u64,
    mode: u64,
    done: i64,
}

/// `struct uffdio_zeropage`.
#[repr(C)]
struct Zero {
    start: u64,
    length: u64,
    mode: u64,
    done: i64,
}

/// What became of pages that were to be put in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// So many bytes from the start are.
    Done(u64),
    /// The first of them is there already.
    Present,
    /// There is no such memory, or it is not registered any more.
    Gone,
}

/// The device that lets a process without privileges have such a descriptor.
///
/// # Errors
/// There is none, or it is not for this user.
pub fn device() -> Result<OwnedFd> {
    let path = "/dev/userfaultfd";
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let opened: File =
        opened.map_err(|source| KernelError { what: format!("open {path}"), source })?;
    Ok(opened.into())
}

/// How a thread of a process makes the descriptor: by the device, if it has that open as this
/// number, or by the privilege.
pub fn make_call(device: Option<i32>) -> BatchCall {
    match device {
        Some(number) => {
            let arguments = [number as u64, USERFAULTFD_IOC_NEW, FLAGS, 0, 0, 0];
            BatchCall::new(libc::SYS_ioctl, arguments)
        }
        None => BatchCall::new(libc::SYS_userfaultfd, [FLAGS, 0, 0, 0, 0, 0]),
    }
}

/// Serves the pages of one process, whose writes `Tracking` watches by protection.
impl Tracking {
    /// Whoever touches a page of the range that is not present waits from now on. All of it is
    /// mapped and watched.
    ///
    /// # Errors
    /// Some of it is not ordinary private memory.
    pub fn serve(&self, range: &Range<u64>) -> Result<()> {
        let (start, length) = (range.start, range.end - range.start);
        let mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP;
        let mut register = Register { start, length, mode, ioctls: 0 };
        let what = "serve missing pages";
        // SAFETY: the argument is a live local of the size that the request states.
        unsafe { self.control(what, UFFDIO_REGISTER, &raw mut register) }
    }

    /// Takes a range out of what is watched and served: nothing of it may be missing that is to
    /// come. What it has counts as written to.
    ///
    /// # Errors
    /// Some of it is not mapped.
    pub fn leave_alone(&self, range: &Range<u64>) -> Result<()> {
        let mut piece = Piece { start: range.start, length: range.end - range.start };
        // SAFETY: as above.
        unsafe { self.control("leave memory alone", UFFDIO_UNREGISTER, &raw mut piece) }
    }

    /// The next page that somebody waits for; None if there is none just now.
    ///
    /// # Errors
    /// The process has ended.
    pub fn next_fault(&self) -> Result<Option<u64>> {
        let mut message = [0; MESSAGE_BYTES];
        loop {
            match nix::unistd::read(self.descriptor(), &mut message) {
                Ok(MESSAGE_BYTES) if message[0] == UFFD_EVENT_PAGEFAULT => {
                    let mut address = [0; 8];
                    address.copy_from_slice(&message[ADDRESS_OFFSET..ADDRESS_OFFSET + 8]);
                    return Ok(Some(u64::from_le_bytes(address) & !(PAGE_BYTES - 1)));
                }
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(nix::errno::Errno::EAGAIN) => return Ok(None),
                Err(errno) => return Err(KernelError::errno("read a fault", errno as i32)),
            }
        }
    }

    /// Readable when there is a fault.
    pub fn faults(&self) -> BorrowedFd<'_> {
        self.descriptor().as_fd()
    }

    /// Puts whole pages in place, not written to, and wakes who waits for them.
    ///
    /// # Errors
    /// The process has ended, or there is no memory.
    pub fn fill(&self, at: u64, content: &[u8]) -> Result<Put> {
        let (from, length) = (content.as_ptr() as u64, content.len() as u64);
        let mut copy = Copy { to: at, from, length, mode: COPY_MODE_WP, done: 0 };
        // SAFETY: the argument is a live local of the size that the request states; the kernel
        // reads the content, which outlives the call.
        let outcome = unsafe { self.control("fill a page", UFFDIO_COPY, &raw mut copy) };
        put(outcome, copy.done)
    }

    /// The same with zeros, without taking memory for them.
    ///
    /// # Errors
    /// As [`Tracking::fill`].
    pub fn fill_with_zeros(&self, range: &Range<u64>) -> Result<Put> {
        let (start, length) = (range.start, range.end - range.start);
        let mut zero = Zero { start, length, mode: 0, done: 0 };
        // SAFETY: the argument is a live local of the size that the request states.
        let outcome = unsafe { self.control("fill with zeros", UFFDIO_ZEROPAGE, &raw mut zero) };
        put(outcome, zero.done)
    }

    /// Has whoever waits for a page look again.
    ///
    /// # Errors
    /// The process has ended.
    pub fn wake(&self, range: &Range<u64>) -> Result<()> {
        let mut piece = Piece { start: range.start, length: range.end - range.start };
        // SAFETY: as above.
        unsafe { self.control("wake who waits for a page", UFFDIO_WAKE, &raw mut piece) }
    }

    /// # Safety
    /// The argument is of the type that the request takes.
    unsafe fn control<T>(&self, what: &str, request: u64, argument: *mut T) -> Result<()> {
        // SAFETY: the caller vouches for the argument.
        match unsafe { libc::ioctl(self.descriptor().as_raw_fd(), request, argument) } {
            0 => Ok(()),
            _ => Err(KernelError::last(what)),
        }
    }
}

fn put(outcome: Result<()>, done: i64) -> Result<Put> {
    match outcome {
        Ok(()) => Ok(Put::Done(done.unsigned_abs())),
        Err(error) => match error.source.raw_os_error() {
            // Some of it is, or the mappings are just being changed.
            Some(libc::EAGAIN) => Ok(Put::Done(done.max(0) as u64)),
            Some(libc::EEXIST) => Ok(Put::Present),
            Some(libc::ENOENT | libc::EFAULT | libc::EINVAL) => Ok(Put::Gone),
            _ => Err(error),
        },
    }
}

/// Of the calling process itself.
///
/// # Errors
/// The kernel has no such thing, or forbids it.
pub fn of_this_process() -> Result<Tracking> {
    let make = match device() {
        Ok(device) => (make_call(Some(device.as_raw_fd())), Some(device)),
        Err(_) => (make_call(None), None),
    };
    let (number, arguments) = (make.0.number as i64, make.0.arguments);
    // SAFETY: integers and a descriptor that is open.
    let fd = unsafe { sys::call("make a userfaultfd", number, arguments) }?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    Tracking::of_faults(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Whether a process without privileges can have such a thing from this one: tried on a page.
pub(crate) fn is_there() -> bool {
    let sysctl = std::fs::read("/proc/sys/vm/unprivileged_userfaultfd");
    if device().is_err() && sysctl.ok().as_deref().map(<[u8]>::trim_ascii) != Some(b"1") {
        return false;
    }
    let tries = || {
        let tracking = of_this_process()?;
        let page = Page::new()?;
        tracking.serve(&page.range())?;
        tracking.fill(page.0, &[7; PAGE_BYTES as usize])
    };
    matches!(tries(), Ok(Put::Done(PAGE_BYTES)))
}

/// A new page of this process, to which nobody refers.
struct Page(u64);

impl Page {
    fn new() -> Result<Page> {
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let arguments = [0, PAGE_BYTES, protection, flags, u64::MAX, 0];
        // SAFETY: a new mapping, where there is none.
        unsafe { sys::call("map a page", libc::SYS_mmap, arguments) }.map(Page)
    }

    fn range(&self) -> Range<u64> {
        self.0..self.0 + PAGE_BYTES
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and nobody refers to it.
        unsafe { libc::munmap(self.0 as *mut libc::c_void, PAGE_BYTES as usize) };
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::memory::Memory;
    use crate::proc::pagemap::{Pagemap, Run, Select};
    use crate::shared::test_support::anonymous;
    use std::sync::Arc;

    const PAGES: u64 = 64;

    fn page(base: u64, index: u64) -> Range<u64> {
        base + index * PAGE_BYTES..base + (index + 1) * PAGE_BYTES
    }

    #[test]
    fn who_touches_a_page_waits_for_it_and_it_counts_as_not_written_to() {
        let Ok(tracking) = of_this_process() else {
            return eprintln!("skipped: no userfaultfd that serves faults of the kernel");
        };
        let map = anonymous((PAGES * PAGE_BYTES) as usize);
        let base = map.as_ptr() as u64;
        let whole = base..base + PAGES * PAGE_BYTES;
        let pid = std::process::id() as i32;
        let pagemap = Pagemap::open(pid).unwrap();
        let tracking = Arc::new(tracking);
        map.touch(0);
        assert!(tracking.watch(&pagemap, &whole).unwrap());
        tracking.claim().walk(&pagemap, &whole, Select::Populated).unwrap().unwrap();
        tracking.serve(&whole).unwrap();
        assert_eq!(tracking.next_fault().unwrap(), None);
        let memory = Memory::open(pid).unwrap();
        // By /proc/PID/mem nothing is waited for.
        let missing = page(base, 3);
        assert!(memory.read(missing.start, &mut [0]).is_err());
        let serving = std::thread::spawn({
            let tracking = tracking.clone();
            move || {
                let waiting = [nix::poll::PollFlags::POLLIN];
                let mut faults = vec![];
                while faults.len() < 2 {
                    let mut watched = [nix::poll::PollFd::new(tracking.faults(), waiting[0])];
                    nix::poll::poll(&mut watched, nix::poll::PollTimeout::NONE).unwrap();
                    let Some(at) = tracking.next_fault().unwrap() else { continue };
                    faults.push(at);
                    let content = vec![faults.len() as u8; PAGE_BYTES as usize];
                    let put = tracking.fill(at, &content).unwrap();
                    assert_eq!(put, Put::Done(PAGE_BYTES));
                }
                faults
            }
        });
        let mut read = [0; 1];
        memory.read_pages(missing.start, &mut read).unwrap();
        assert_eq!(read, [1], "by process_vm_readv(2) it is");
        let touched = page(base, 9);
        // SAFETY of the test: none needed, the page is the test's own and read by another way.
        map.touch((touched.start - base) as usize);
        assert_eq!(serving.join().unwrap(), [missing.start, touched.start]);
        let walked =
            pagemap.walk(whole.start, whole.end, Select::Populated, false).unwrap().unwrap();
        let run = |range: &Range<u64>| Run { start: range.start, end: range.end };
        assert_eq!(walked.there, [run(&page(base, 0)), run(&missing), run(&touched)]);
        assert_eq!(walked.written, [run(&touched)], "what was put in place was not written to");
    }

    #[test]
    fn pages_that_are_there_or_gone_are_told() {
        let Ok(tracking) = of_this_process() else {
            return eprintln!("skipped: no userfaultfd that serves faults of the kernel");
        };
        let map = anonymous((PAGES * PAGE_BYTES) as usize);
        let base = map.as_ptr() as u64;
        map.touch(PAGE_BYTES as usize);
        tracking.serve(&(base..base + PAGES * PAGE_BYTES)).unwrap();
        let content = vec![3; 3 * PAGE_BYTES as usize];
        assert_eq!(tracking.fill(base, &content).unwrap(), Put::Done(PAGE_BYTES), "up to what is");
        assert_eq!(tracking.fill(base + PAGE_BYTES, &content).unwrap(), Put::Present);
        let zeros = page(base, 4).start..page(base, 6).end;
        assert_eq!(tracking.fill_with_zeros(&zeros).unwrap(), Put::Done(3 * PAGE_BYTES));
        assert_eq!(tracking.fill_with_zeros(&zeros).unwrap(), Put::Present);
        tracking.leave_alone(&page(base, 20)).unwrap();
        let put = tracking.fill(page(base, 20).start, &content[..PAGE_BYTES as usize]).unwrap();
        assert_eq!(put, Put::Gone);
    }
}
