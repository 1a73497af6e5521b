//! Which calls change the contents of a file, or agree with others about them. Memory that is
//! mapped to such a file is elsewhere while its process is away, so they are made at home.

use super::argument_bytes;
use super::table::name;
use crate::forward::{Call, Place};

/// What a call may change the contents of, or lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched<'a> {
    Nothing,
    /// The file behind this descriptor.
    Descriptor(i32),
    /// The file of this name, as seen from a directory: a descriptor, or AT_FDCWD.
    Path(i32, &'a [u8]),
    /// Descriptors of any files go to other processes.
    HandedOver,
}

const AT_FDCWD: i32 = -100;
const O_TRUNC: u64 = 0o1000;
const FICLONE: u32 = 0x4004_9409;
const FICLONERANGE: u32 = 0x4020_940d;

/// What this call touches, whatever becomes of it.
pub fn touched(call: &Call) -> Touched<'_> {
    let [first, second, third, ..] = call.arguments;
    let descriptor = |register: u64| Touched::Descriptor(register as u32 as i32);
    let path = |directory: i32, argument: u8| match argument_bytes(&call.segments, argument) {
        Some(path) => Touched::Path(directory, path.split(|byte| *byte == 0).next().unwrap_or(&[])),
        None => Touched::Nothing,
    };
    match name(call.number).unwrap_or_default() {
        "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "ftruncate" | "fallocate"
        | "sendfile" | "flock" => descriptor(first),
        "copy_file_range" | "splice" => descriptor(third),
        // F_GETLK, SETLK, SETLKW, OFD_GETLK, OFD_SETLK, OFD_SETLKW
        "fcntl" if matches!(second as u32, 5..=7 | 36..=38) => descriptor(first),
        "ioctl" if matches!(second as u32, FICLONE | FICLONERANGE) => descriptor(first),
        "truncate" | "creat" => path(AT_FDCWD, 0),
        "open" if second & O_TRUNC != 0 => path(AT_FDCWD, 0),
        "openat" if third & O_TRUNC != 0 => path(first as u32 as i32, 1),
        "openat2" if flags_of_openat2(call) & O_TRUNC != 0 => path(first as u32 as i32, 1),
        "sendmsg" | "sendmmsg" if has_control_bytes(call) => Touched::HandedOver,
        _ => Touched::Nothing,
    }
}

/// The descriptor that this call reads contents by, if it does.
pub fn read_by(call: &Call) -> Option<i32> {
    let [first, second, ..] = call.arguments;
    match name(call.number).unwrap_or_default() {
        "read" | "pread64" | "readv" | "preadv" | "preadv2" | "splice" | "copy_file_range"
        | "lseek" => Some(first as u32 as i32),
        "sendfile" => Some(second as u32 as i32),
        _ => None,
    }
}

/// The first word of a `struct open_how`.
fn flags_of_openat2(call: &Call) -> u64 {
    let how = argument_bytes(&call.segments, 2);
    let flags = how.and_then(|how| how.get(..8)?.try_into().ok());
    flags.map_or(0, u64::from_le_bytes)
}

/// A `struct mmsghdr`, which begins with a `struct msghdr`; and where that has its control bytes.
const MMSGHDR_BYTES: u32 = 64;
const CONTROL_OFFSET: u32 = 32;

fn has_control_bytes(call: &Call) -> bool {
    let headers = call.segments.iter().position(|s| s.place == Place::Argument(1));
    let is_control = |place: Place| match place {
        Place::Pointer { segment, offset } => {
            Some(usize::from(segment)) == headers && offset % MMSGHDR_BYTES == CONTROL_OFFSET
        }
        Place::Argument(_) => false,
    };
    call.segments.iter().any(|segment| is_control(segment.place))
}
