//! What has to be known of a file before a process maps it away from its home.

use crate::proc::maps;
use crate::{KernelError, Result};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

const PAGE: usize = 4096;
/// Of asm-generic/fcntl.h.
const F_SETSIG: i32 = 10;
const OTHERS_WRITE: u32 = 0o022;

/// How `/proc/PID/maps` names a mapping of this file, private or shared (`kind`) and with this
/// protection, at this offset: device and inode, which are not always those of the file (one of an
/// overlay is mapped from the layer below).
///
/// # Errors
/// It cannot be mapped so.
pub fn name(file: &File, (protection, kind): (i32, i32), offset: u64) -> Result<(u64, u64)> {
    let descriptor = file.as_raw_fd();
    // SAFETY: the kernel chooses a place where nothing is, and nobody else knows of it.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), PAGE, protection, kind, descriptor, offset as i64)
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

/// Whether somebody may be writing to the file just now. Its owner is told by the kernel whether
/// anybody has it open for that (fcntl(2), "Leases"); of a file of somebody else it is taken that
/// nobody has if nobody but him may, and of one on a file system that does not tell that somebody
/// has.
pub fn may_be_written(file: &File) -> bool {
    // Whoever opens it to write in this moment breaks the lease, of which the holder is told by
    // SIGIO, which would end it. This one does nothing.
    if control(file, F_SETSIG, libc::SIGURG).is_err() {
        return true;
    }
    match control(file, libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => control(file, libc::F_SETLEASE, libc::F_UNLCK).is_err(),
        Err(libc::EACCES) => {
            let mode = file.metadata().map_or(u32::MAX, |metadata| metadata.mode());
            mode & OTHERS_WRITE != 0
        }
        // EAGAIN: it is open for writing.
        Err(_) => true,
    }
}

fn control(file: &File, command: i32, argument: i32) -> std::result::Result<(), i32> {
    // SAFETY: the arguments are plain numbers, and the descriptor is borrowed.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::fs::OpenOptions;

    #[test]
    fn a_file_is_named_as_it_is_mapped() {
        let own = File::open(std::env::current_exe().unwrap()).unwrap();
        let (_, inode) =
            name(&own, (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE), 4096).unwrap();
        assert_eq!(inode, own.metadata().unwrap().ino());
        let how = (libc::PROT_READ, libc::MAP_PRIVATE);
        assert!(name(&File::open("/proc").unwrap(), how, 0).is_err());
    }

    #[test]
    fn who_writes_to_a_file_is_seen() {
        let path = std::env::temp_dir().join(format!("osmos-written-{}", std::process::id()));
        let writer = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert!(may_be_written(&reader));
        drop(writer);
        assert!(!may_be_written(&reader));
        std::fs::remove_file(&path).unwrap();
    }
}
