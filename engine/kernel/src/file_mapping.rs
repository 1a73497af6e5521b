//! What has to be known of a file before a process maps it away from its home.

use crate::proc::maps;
use crate::{KernelError, Result};
use std::fs::File;
use std::os::fd::AsRawFd;

const PAGE: usize = 4096;
/// Of asm-generic/fcntl.h.
const F_SETSIG: i32 = 10;

/// How `/proc/PID/maps` names a private mapping of this file with this protection, at this offset:
/// device and inode, which are not always those of the file (one of an overlay is mapped from the
/// layer below).
///
/// # Errors
/// It cannot be mapped so.
pub fn name(file: &File, protection: i32, offset: u64) -> Result<(u64, u64)> {
    let descriptor = file.as_raw_fd();
    let private = libc::MAP_PRIVATE;
    // SAFETY: the kernel chooses a place where nothing is, and nobody else knows of it.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), PAGE, protection, private, descriptor, offset as i64)
    };
    if address == libc::MAP_FAILED {
        return Err(KernelError::last("map a file"));
    }
    let maps = maps::read(std::process::id() as i32);
    // SAFETY: the page was mapped just now, and nothing refers to it.
    unsafe { libc::munmap(address, PAGE) };
    let (maps, at) = (maps?, address as u64);
    let mapping = maps.iter().find(|mapping| (mapping.start..mapping.end).contains(&at));
    let unseen = || KernelError::errno("see a file mapped", libc::ENOENT);
    mapping.map(|mapping| (mapping.device, mapping.inode)).ok_or_else(unseen)
}

/// Whether somebody has the file open to write to it, as far as the kernel tells: to those that own
/// it (fcntl(2), "Leases"). Of the files of others it is taken that nobody has.
pub fn is_being_written(file: &File) -> bool {
    let set = |lease: i32| {
        // SAFETY: the arguments are plain numbers, and the descriptor is borrowed.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, lease) }
    };
    // Whoever opens it to write in this moment breaks the lease, of which the holder is told by
    // SIGIO, which would end it. This one does nothing.
    // SAFETY: the arguments are plain numbers, and the descriptor is borrowed.
    if unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) } != 0 {
        return true;
    }
    // Refused where the file is open for writing, anywhere.
    if set(libc::F_RDLCK) == 0 {
        set(libc::F_UNLCK);
        return false;
    }
    std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
}

#[cfg(test)]
mod test {
    use super::*;
    use std::fs::OpenOptions;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_is_named_as_it_is_mapped() {
        let own = File::open(std::env::current_exe().unwrap()).unwrap();
        let (_, inode) = name(&own, libc::PROT_READ | libc::PROT_EXEC, 4096).unwrap();
        assert_eq!(inode, own.metadata().unwrap().ino());
        assert!(name(&File::open("/proc").unwrap(), libc::PROT_READ, 0).is_err());
    }

    #[test]
    fn who_writes_to_a_file_is_seen() {
        let path = std::env::temp_dir().join(format!("osmos-written-{}", std::process::id()));
        let writer = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert!(is_being_written(&reader));
        drop(writer);
        assert!(!is_being_written(&reader));
        std::fs::remove_file(&path).unwrap();
    }
}
