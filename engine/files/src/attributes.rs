//! What of a file is told, and which files are not shown at all.

use kernel::proc::mounts::is_of_all_nodes;
use rustix::fs::{AtFlags, Statx, StatxFlags, fstatfs, statx};
use rustix::io::Errno;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use wire::files::{Attributes, Time};

/// File systems that are no files but the kernel's own: through them one reads and commands
/// processes and devices (statfs(2) has the numbers).
const KERNELS_OWN: [u64; 15] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x6165_676c, // pstore
    0xcafe_4a11, // bpf
    0x1cd1,      // devpts
    0xf97c_ff8c, // selinux
    0x6265_6570, // configfs
    0xde5e_81e4, // efivarfs
    0x6573_5543, // fusectl
    0x1980_0202, // mqueue
];
const FUSE: u64 = 0x6573_5546;

/// A file as this kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
    /// When it was made, where the file system tells: a number may be given to another file.
    pub made: Option<(i64, u32)>,
}

pub struct Seen {
    pub id: FileId,
    pub attributes: Attributes,
}

/// # Errors
/// Those of statx(2).
pub fn look(file: impl AsFd) -> Result<Seen, Errno> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(seen(&statx(file, "", AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW, mask)?))
}

fn seen(told: &Statx) -> Seen {
    let time =
        |at: rustix::fs::StatxTimestamp| Time { seconds: at.tv_sec, nanoseconds: at.tv_nsec };
    let device = rustix::fs::makedev(told.stx_dev_major, told.stx_dev_minor);
    let has_made = told.stx_mask & StatxFlags::BTIME.bits() != 0;
    let made = has_made.then_some((told.stx_btime.tv_sec, told.stx_btime.tv_nsec));
    let special = rustix::fs::makedev(told.stx_rdev_major, told.stx_rdev_minor);
    Seen {
        id: FileId { device, inode: told.stx_ino, made },
        attributes: Attributes {
            device,
            inode: told.stx_ino,
            mode: told.stx_mode.into(),
            links: told.stx_nlink,
            uid: told.stx_uid,
            gid: told.stx_gid,
            size: told.stx_size,
            blocks: told.stx_blocks,
            block_bytes: told.stx_blksize,
            special: u32::try_from(special).unwrap_or(0),
            accessed: time(told.stx_atime),
            modified: time(told.stx_mtime),
            changed: time(told.stx_ctime),
        },
    }
}

/// Whether the file system that begins there is shown.
///
/// # Errors
/// EACCES if it is the kernel's own; ELOOP if it shows the files of all nodes, whose files show it.
pub fn check_shown(file: BorrowedFd<'_>, device: u64) -> Result<(), Errno> {
    let kind = fstatfs(file)?.f_type as u64 & 0xffff_ffff;
    if KERNELS_OWN.contains(&kind) {
        return Err(Errno::ACCESS);
    }
    if kind == FUSE {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let number = (rustix::fs::major(device), rustix::fs::minor(device));
        if is_of_all_nodes(&mounts, number) {
            return Err(Errno::LOOP);
        }
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;
    use std::fs::File;

    #[test]
    fn file_systems_of_the_kernel_are_not_shown_and_others_are() {
        let device = |file: &File| look(file).unwrap().id.device;
        let proc = File::open("/proc").unwrap();
        assert_eq!(check_shown(proc.as_fd(), device(&proc)), Err(Errno::ACCESS));
        let root = File::open("/").unwrap();
        assert_eq!(check_shown(root.as_fd(), device(&root)), Ok(()));
    }
}
