//! What servers tell, in the words of this kernel.

use fuser::{FileAttr, FileType, INodeNo};
use nix::errno::Errno;
use std::time::{Duration, SystemTime};
use wire::files::{Attributes, Served, SetTime, Time};

/// How long this kernel takes a name or attribute for as it was told, if nobody opens the file.
pub const VALID: Duration = Duration::from_secs(1);

/// Before and after 1970, some ten thousand years.
const SECONDS_MAX: u64 = 1 << 38;

/// Who has mounted this: files of the user whom a server serves are his.
#[derive(Clone, Copy, Debug)]
pub struct Mine {
    pub uid: u32,
    pub gid: u32,
}

pub fn attr(file: u64, is: &Attributes, served: Option<Served>, mine: Mine) -> FileAttr {
    let (uid, gid) = match served {
        Some(served) => (
            if is.uid == served.uid { mine.uid } else { is.uid },
            if is.gid == served.gid { mine.gid } else { is.gid },
        ),
        None => (is.uid, is.gid),
    };
    FileAttr {
        ino: INodeNo(file),
        size: is.size,
        blocks: is.blocks,
        atime: time(is.accessed),
        mtime: time(is.modified),
        ctime: time(is.changed),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(is.mode),
        perm: (is.mode & 0o7777) as u16,
        nlink: is.links,
        uid,
        gid,
        rdev: is.special,
        blksize: is.block_bytes,
        flags: 0,
    }
}

/// Of the directory of all nodes.
pub fn own_attr(file: u64, kind: FileType, perm: u16, mine: Mine) -> FileAttr {
    let epoch = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(file),
        size: 0,
        blocks: 0,
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind,
        perm,
        nlink: if kind == FileType::Directory { 2 } else { 1 },
        uid: mine.uid,
        gid: mine.gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn kind(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// A time that no clock can show is 1970: another machine may say anything.
fn time(at: Time) -> SystemTime {
    if at.seconds.unsigned_abs() > SECONDS_MAX {
        return SystemTime::UNIX_EPOCH;
    }
    let nanoseconds = Duration::from_nanos(at.nanoseconds.into());
    let seconds = Duration::from_secs(at.seconds.unsigned_abs());
    let whole = match at.seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(seconds),
        _ => SystemTime::UNIX_EPOCH.checked_sub(seconds),
    };
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(SystemTime::UNIX_EPOCH)
}

pub fn set_time(time: fuser::TimeOrNow) -> SetTime {
    let fuser::TimeOrNow::SpecificTime(time) = time else { return SetTime::Now };
    let at = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Time { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            let part = before.subsec_nanos();
            let seconds = -(before.as_secs() as i64) - i64::from(part > 0);
            Time { seconds, nanoseconds: if part > 0 { 1_000_000_000 - part } else { 0 } }
        }
    };
    SetTime::At(at)
}

pub fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno as i32)
}

/// Where a symbolic link leads, seen from a directory so deep below the top of its node: what
/// begins at the root there begins at the top here.
pub fn target(target: Vec<u8>, depth: usize) -> Vec<u8> {
    let Some(rest) = target.strip_prefix(b"/") else { return target };
    let rest: &[u8] = &rest[rest.iter().take_while(|byte| **byte == b'/').count()..];
    let mut led = b"../".repeat(depth);
    led.extend(rest);
    if led.is_empty() { b".".to_vec() } else { led }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn links_to_the_root_of_a_node_stay_on_that_node() {
        let led = |from: &str, depth| String::from_utf8(target(from.into(), depth)).unwrap();
        assert_eq!(led("/etc/passwd", 2), "../../etc/passwd");
        assert_eq!(led("//etc", 0), "etc");
        assert_eq!(led("/", 1), "../");
        assert_eq!(led("/", 0), ".");
        assert_eq!(led("../x", 3), "../x");
    }

    #[test]
    fn times_before_1970_and_absurd_ones_are_times() {
        let there_and_back = |seconds, nanoseconds| {
            let told = Time { seconds, nanoseconds };
            set_time(fuser::TimeOrNow::SpecificTime(time(told))) == SetTime::At(told)
        };
        assert!(
            there_and_back(1_800_000_000, 5) && there_and_back(-3, 250) && there_and_back(-3, 0)
        );
        for seconds in [i64::MIN, i64::MAX, 1 << 39] {
            assert_eq!(time(Time { seconds, nanoseconds: 0 }), SystemTime::UNIX_EPOCH);
        }
    }

    #[test]
    fn files_of_the_user_who_is_served_are_ones_own() {
        let served = Some(Served { uid: 1001, gid: 100, may_write: true });
        let mine = Mine { uid: 1000, gid: 1000 };
        let is = Attributes { uid: 1001, gid: 5, mode: 0o104_755, ..Attributes::default() };
        let shown = attr(77, &is, served, mine);
        assert_eq!((shown.uid, shown.gid, shown.perm), (1000, 5, 0o4755));
        assert_eq!(shown.kind, FileType::RegularFile);
    }
}
