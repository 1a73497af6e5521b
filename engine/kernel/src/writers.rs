//! Whether anybody has a file open for writing.
//!
//! The kernel says so to whoever asks for a read lease (fcntl(2), `F_SETLEASE`), and tells no other
//! way. The lease is given back at once. Who opens the file for writing in that microsecond waits
//! for it, or is told EWOULDBLOCK if he does not want to wait.

use crate::{KernelError, Result};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: i32,
    pid: i32,
}

/// As <fcntl.h> has them.
const F_OWNER_TID: i32 = 0;
const F_GETSIG: i32 = 11;
const F_SETOWN_EX: i32 = 15;

/// True if nobody has this file open for writing, nor has mapped it so. The file is one that is
/// open for reading only. None: the kernel does not say, because the file is of another user, or
/// whoever has it open is told of it by signals.
///
/// # Errors
/// What was changed of the open file for the question could not be changed back.
pub fn are_none(file: impl AsFd) -> Result<Option<bool>> {
    let file = file.as_fd().as_raw_fd();
    let is_plain = control(file, libc::F_GETLEASE, 0).is_ok_and(|it| it == libc::F_UNLCK)
        && control(file, libc::F_GETOWN, 0).is_ok_and(|it| it == 0)
        && control(file, F_GETSIG, 0).is_ok_and(|it| it == 0);
    if !is_plain {
        return Ok(None);
    }
    // Who opens it meanwhile has the kernel signal the owner: that is this thread, which blocks it.
    // A signal that waits for one thread ends with it, and nobody else is told.
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGIO);
    let failed = |error: nix::Error| KernelError::errno("block SIGIO", error as i32);
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&blocked), None).map_err(failed)?;
    let owner = Owner { kind: F_OWNER_TID, pid: nix::unistd::gettid().as_raw() };
    // SAFETY: the kernel reads a structure of that shape, which lives until this returns.
    let set = unsafe { libc::fcntl(file, F_SETOWN_EX, &raw const owner) };
    if set == -1 {
        return Ok(None);
    }
    match control(file, libc::F_SETLEASE, libc::F_RDLCK) {
        // It takes the owner with it.
        Ok(_) => control(file, libc::F_SETLEASE, libc::F_UNLCK).map(|_| Some(true)),
        Err(error) => {
            control(file, libc::F_SETOWN, 0)?;
            let is_written = error.source.raw_os_error() == Some(libc::EAGAIN);
            Ok(is_written.then_some(false))
        }
    }
}

fn control(file: RawFd, command: i32, argument: i32) -> Result<i32> {
    // SAFETY: the commands of this module that come here take an integer, or nothing.
    match unsafe { libc::fcntl(file, command, argument) } {
        -1 => Err(KernelError::last("ask who writes a file")),
        told => Ok(told),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::fs::{File, OpenOptions};

    fn asked(file: &File) -> Option<bool> {
        // In a thread of its own, which is left with a signal blocked.
        std::thread::scope(|scope| scope.spawn(|| are_none(file).unwrap()).join().unwrap())
    }

    #[test]
    fn a_file_has_writers_while_it_is_open_or_mapped_for_writing() {
        let named = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(named.path(), [7; 100]).unwrap();
        let path = named.into_temp_path();
        let file = File::open(&path).unwrap();
        assert_eq!(asked(&file), Some(true));
        let writer = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert_eq!(asked(&file), Some(false));
        let length = std::num::NonZeroUsize::new(100).unwrap();
        let (protection, flags) = (
            nix::sys::mman::ProtFlags::PROT_READ | nix::sys::mman::ProtFlags::PROT_WRITE,
            nix::sys::mman::MapFlags::MAP_SHARED,
        );
        // SAFETY: a mapping that nobody uses, at a place of the kernel's choice.
        let at = unsafe { nix::sys::mman::mmap(None, length, protection, flags, &writer, 0) };
        let at = at.unwrap();
        drop(writer);
        assert_eq!(asked(&file), Some(false), "mapped");
        // SAFETY: the mapping that was just made.
        unsafe { nix::sys::mman::munmap(at, 100) }.unwrap();
        assert_eq!(asked(&file), Some(true));
        for command in [libc::F_GETOWN, F_GETSIG] {
            assert_eq!(control(file.as_raw_fd(), command, 0).unwrap(), 0);
        }
        assert_eq!(control(file.as_raw_fd(), libc::F_GETLEASE, 0).unwrap(), libc::F_UNLCK);
    }

    #[test]
    fn a_lease_or_an_owner_of_somebody_elses_stays_as_it_is() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let file = File::open(named.path()).unwrap();
        drop(named.into_temp_path().keep().map(std::fs::remove_file));
        let number = file.as_raw_fd();
        control(number, libc::F_SETOWN, nix::unistd::getpid().as_raw()).unwrap();
        assert_eq!(asked(&file), None);
        assert_eq!(control(number, libc::F_GETOWN, 0).unwrap(), nix::unistd::getpid().as_raw());
        control(number, libc::F_SETOWN, 0).unwrap();
        assert_eq!(asked(&file), Some(true));
    }
}
