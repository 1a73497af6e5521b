//! Calls that change the contents of files are told from all others.

use super::{call, number};
use crate::calls::contents::{Touched, read_by, touched};
use crate::forward::{Direction, Place, Segment, Yield};
use crate::ids::GuestAddr;

fn segment(place: Place, data: &[u8]) -> Segment {
    let (guest, length) = (GuestAddr(0x1000), data.len() as u32);
    let (direction, yields) = (Direction::In, Yield::Whole);
    Segment { guest, length, direction, place, yields, data: data.to_vec() }
}

fn of(name: &str, arguments: [u64; 6], segments: &[Segment]) -> String {
    format!("{:?}", touched(&call(number(name), arguments, segments.to_vec())))
}

#[test]
fn what_writes_by_a_descriptor_names_it() {
    let nothing = format!("{:?}", Touched::Nothing);
    let five = format!("{:?}", Touched::Descriptor(5));
    for name in ["write", "pwrite64", "writev", "pwritev2", "ftruncate", "fallocate", "flock"] {
        assert_eq!(of(name, [5, 0, 0, 0, 0, 0], &[]), five, "{name}");
    }
    assert_eq!(of("sendfile", [5, 6, 0, 9, 0, 0], &[]), five);
    assert_eq!(of("splice", [4, 0, 5, 0, 9, 0], &[]), five);
    assert_eq!(of("copy_file_range", [4, 0, 5, 0, 9, 0], &[]), five);
    assert_eq!(of("fcntl", [5, 6, 0, 0, 0, 0], &[]), five, "F_SETLK");
    assert_eq!(of("fcntl", [5, 3, 0, 0, 0, 0], &[]), nothing, "F_GETFL");
    assert_eq!(of("ioctl", [5, 0x4004_9409, 6, 0, 0, 0], &[]), five, "FICLONE");
    assert_eq!(of("ioctl", [5, 0x5401, 0, 0, 0, 0], &[]), nothing, "TCGETS");
    for name in ["read", "pread64", "fsync", "fstat", "close", "lseek"] {
        assert_eq!(of(name, [5, 0, 0, 0, 0, 0], &[]), nothing, "{name}");
    }
}

#[test]
fn what_empties_a_file_by_its_name_names_it() {
    let path = |argument| segment(Place::Argument(argument), b"a/b\0");
    let here = format!("{:?}", Touched::Path(-100, b"a/b"));
    let there = format!("{:?}", Touched::Path(7, b"a/b"));
    let nothing = format!("{:?}", Touched::Nothing);
    assert_eq!(of("truncate", [1, 0, 0, 0, 0, 0], &[path(0)]), here);
    assert_eq!(of("creat", [1, 0, 0, 0, 0, 0], &[path(0)]), here);
    assert_eq!(of("open", [1, 0o1001, 0, 0, 0, 0], &[path(0)]), here);
    assert_eq!(of("open", [1, 2, 0, 0, 0, 0], &[path(0)]), nothing);
    assert_eq!(of("openat", [7, 1, 0o1001, 0, 0, 0], &[path(1)]), there);
    assert_eq!(of("openat", [7, 1, 2, 0, 0, 0], &[path(1)]), nothing);
    let how = segment(Place::Argument(2), &0o1001u64.to_le_bytes());
    assert_eq!(of("openat2", [7, 1, 1, 24, 0, 0], &[path(1), how]), there);
}

#[test]
fn descriptors_that_are_sent_are_told_from_plain_words() {
    let header = segment(Place::Argument(1), &[1; 56]);
    let parts = segment(Place::Pointer { segment: 0, offset: 16 }, &[1; 48]);
    let part = segment(Place::Pointer { segment: 1, offset: 32 }, b"words");
    let control = segment(Place::Pointer { segment: 0, offset: 32 }, &[1; 20]);
    let plain = [header, parts, part];
    assert_eq!(of("sendmsg", [5, 1, 0, 0, 0, 0], &plain), format!("{:?}", Touched::Nothing));
    let with = [&plain[..], &[control]].concat();
    let handed_over = format!("{:?}", Touched::HandedOver);
    assert_eq!(of("sendmsg", [5, 1, 0, 0, 0, 0], &with), handed_over);
    assert_eq!(of("sendmmsg", [5, 1, 1, 0, 0, 0], &with), handed_over);
}

#[test]
fn what_reads_by_a_descriptor_names_it() {
    let of = |name: &str, arguments| read_by(&call(number(name), arguments, vec![]));
    for name in ["read", "pread64", "readv", "preadv2", "splice", "copy_file_range", "lseek"] {
        assert_eq!(of(name, [5, 0, 6, 0, 0, 0]), Some(5), "{name}");
    }
    assert_eq!(of("sendfile", [6, 5, 0, 9, 0, 0]), Some(5));
    for name in ["write", "fstat", "close", "dup2", "getpid"] {
        assert_eq!(of(name, [5, 6, 0, 0, 0, 0]), None, "{name}");
    }
}
