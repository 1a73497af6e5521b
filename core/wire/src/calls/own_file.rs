//! Files of `/proc` by which a process looks at itself, and which it may open and read while it is
//! away: the file is that of the process at home, and its body puts in what is true of the body.

use super::process::{Whose, of_process};
use super::{Arguments, argument_bytes};
use crate::forward::Segment;

const READ: u32 = 0;
const OPEN: u32 = 2;
const PREAD64: u32 = 17;
const READV: u32 = 19;
const SENDFILE: u32 = 40;
const OPENAT: u32 = 257;
const SPLICE: u32 = 275;
const PREADV: u32 = 295;
const COPY_FILE_RANGE: u32 = 326;
const PREADV2: u32 = 327;

/// What such a file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    Stat,
    Statm,
    Status,
    Cmdline,
    Environ,
    Maps,
    Cgroup,
}

/// A file that a process opens to look at itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnFile {
    pub shows: Shows,
    /// What is true of one thread, the one that opens it, and not of the whole process.
    pub is_of_thread: bool,
}

/// Flags of an open that reads: close-on-exec, O_LARGEFILE, O_NOCTTY, O_NOFOLLOW.
const HARMLESS: u64 = 0o2_000_000 | 0o100_000 | 0o400 | 0o400_000;

/// The file that this call opens, if it is one of these, to be read only, and of the caller; `own`
/// is the number of its process, and whatever number will do without one.
pub fn own_file(
    number: u32,
    arguments: &Arguments,
    segments: &[Segment],
    own: Option<i32>,
) -> Option<OwnFile> {
    let (path, flags) = match number {
        OPEN => (0, arguments[1]),
        OPENAT => (1, arguments[2]),
        _ => return None,
    };
    if flags & 0xffff_ffff & !HARMLESS != 0 {
        return None;
    }
    let path = argument_bytes(segments, path)?;
    let (whose, is_of_thread, file) = of_process(path.strip_suffix(b"\0")?)?;
    let is_own = match whose {
        Whose::Own | Whose::OwnThread => true,
        Whose::Number(number) => {
            let number: Option<i32> = std::str::from_utf8(number).ok()?.parse().ok();
            own.is_none_or(|own| number == Some(own))
        }
    };
    // One thread may ask about another: that comes home.
    if !is_own || is_of_thread {
        return None;
    }
    let shows = match file {
        b"stat" => Shows::Stat,
        b"statm" => Shows::Statm,
        b"status" => Shows::Status,
        b"cmdline" => Shows::Cmdline,
        b"environ" => Shows::Environ,
        b"maps" => Shows::Maps,
        b"cgroup" => Shows::Cgroup,
        _ => return None,
    };
    Some(OwnFile { shows, is_of_thread: whose == Whose::OwnThread })
}

/// The descriptor that this call reads from, if it reads.
pub fn reads_from(number: u32, arguments: &Arguments) -> Option<i32> {
    match number {
        READ | PREAD64 | READV | PREADV | PREADV2 | SPLICE | COPY_FILE_RANGE => {
            Some(arguments[0] as i32)
        }
        SENDFILE => Some(arguments[1] as i32),
        _ => None,
    }
}
