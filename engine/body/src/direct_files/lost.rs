//! Which calls have a file be home's alone: they give its descriptor another name, may move its
//! position, or are about what is shared.

use crate::descriptors::Lost;
use crate::state::Shared;
use kernel::seccomp::Notification;

/// Descriptors that are not known any more after this call.
pub fn lost_by(shared: &Shared, n: &Notification) -> Option<Lost> {
    let [first, second, third, fourth, ..] = n.arguments.map(|argument| argument as i32);
    let is_open = |descriptor| shared.direct_files.is_used(descriptor);
    match i64::from(n.number) {
        // What may be written is limited from now on; memory is shared.
        libc::SYS_setrlimit | libc::SYS_prlimit64 | libc::SYS_shmat => Some(Lost::All),
        libc::SYS_mmap if fourth & libc::MAP_SHARED != 0 => Some(Lost::All),
        libc::SYS_sendfile if is_open(first) || is_open(second) => {
            Some(Lost::These([first, second]))
        }
        libc::SYS_splice | libc::SYS_copy_file_range if is_open(first) || is_open(third) => {
            Some(Lost::These([first, third]))
        }
        libc::SYS_fcntl if second == libc::F_SETFL => Some(Lost::These([first; 2])),
        // Home has the open file twice while it is read ahead: whatever is of it, and not of the
        // descriptor or the process, would end later, or be in the way.
        libc::SYS_flock if shared.direct_files.lies_at_home(first) => Some(Lost::These([first; 2])),
        libc::SYS_fcntl if shared.direct_files.lies_at_home(first) && !is_plain_control(second) => {
            Some(Lost::These([first; 2]))
        }
        number => Lost::by(shared, n).or_else(|| {
            let is_lost = is_open(first) && !leaves_position(number);
            is_lost.then_some(Lost::These([first; 2]))
        }),
    }
}

/// Whether a call leaves alone where a file is read and written next, for its first argument.
fn leaves_position(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_pread64
            | libc::SYS_preadv
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_fstat
            | libc::SYS_fcntl
            | libc::SYS_flock
            | libc::SYS_ioctl
            | libc::SYS_ftruncate
            | libc::SYS_fallocate
            | libc::SYS_fadvise64
            | libc::SYS_readahead
            | libc::SYS_sync_file_range
            | libc::SYS_fchmod
            | libc::SYS_fchown
            | libc::SYS_utimensat
            | libc::SYS_fstatfs
            | libc::SYS_newfstatat
            | libc::SYS_statx
            | libc::SYS_fgetxattr
            | libc::SYS_fsetxattr
            | libc::SYS_flistxattr
            | libc::SYS_fremovexattr
    )
}

/// Whether what is done by fcntl(2) is of the descriptor, or of the process: not of the open file.
fn is_plain_control(command: i32) -> bool {
    matches!(
        command,
        libc::F_GETFD
            | libc::F_SETFD
            | libc::F_GETFL
            | libc::F_GETLK
            | libc::F_SETLK
            | libc::F_SETLKW
    )
}
