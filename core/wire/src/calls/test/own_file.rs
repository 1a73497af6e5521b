//! Files by which a process looks at itself, and those that it looks at from home only.

use super::{Memory, OWN_PROCESS, WRITABLE, call, number};
use crate::calls::{OwnFile, Shows, Unmarshalled, marshal, own_file, stage};

const BASE: u64 = 0x7000_0000;
const READ: u64 = 0;
const CLOEXEC: u64 = 0o2_000_000;
/// O_WRONLY, O_RDWR, O_CREAT, O_DIRECTORY, O_PATH.
const OTHERWISE: [u64; 5] = [1, 2, 0o100, 0o200_000, 0o10_000_000];

/// What becomes of an open, and which of its own files it opens, with its number and without.
#[allow(clippy::type_complexity)]
fn opens(path: &str, flags: u64) -> ([Option<OwnFile>; 2], Result<(), Unmarshalled>) {
    let mut memory = Memory::new(3);
    memory.put(WRITABLE, path.as_bytes());
    memory.put(WRITABLE + path.len() as u64, &[0]);
    let arguments = [u64::MAX, WRITABLE, flags, 0, 0, 0];
    let open = number("openat");
    let segments = match marshal(open, &arguments, &memory) {
        Ok(marshalled) => marshalled.segments,
        Err(error) => return ([None; 2], Err(error)),
    };
    let own = [Some(OWN_PROCESS), None].map(|own| own_file(open, &arguments, &segments, own));
    let sent = call(open, arguments, segments);
    assert!(stage(&sent, BASE, 8192).is_ok(), "home takes what a body sends: {path}");
    (own, Ok(()))
}

#[test]
fn files_by_which_a_process_looks_at_itself_are_its_bodys_to_read() {
    let file = |shows, is_of_thread| Some(OwnFile { shows, is_of_thread });
    for (path, own) in [
        ("/proc/self/stat", file(Shows::Stat, false)),
        ("//proc/./self//maps", file(Shows::Maps, false)),
        ("/proc/thread-self/status", file(Shows::Status, true)),
        ("/proc/4712/statm", file(Shows::Statm, false)),
        ("/proc/4712/maps", file(Shows::Maps, false)),
    ] {
        assert_eq!(opens(path, CLOEXEC), ([own; 2], Ok(())), "{path}");
    }
    for path in ["/proc/4711/stat", "/proc/self/fd/0", "/proc/cpuinfo", "/proc/self/io"] {
        assert_eq!(opens(path, READ).0[0], None, "{path}");
    }
    let home = Err(Unmarshalled::NeedsHome("proc-self"));
    for flags in OTHERWISE {
        assert_eq!(opens("/proc/self/stat", flags).1, home, "{flags:#o}");
    }
}

#[test]
fn files_that_show_the_body_are_opened_at_home() {
    let opens = |path: &str| opens(path, READ).1;
    let home = Err(Unmarshalled::NeedsHome("proc-self"));
    for path in ["/proc/self/smaps", "/proc/thread-self/sched", "//proc//self/task/9/status"] {
        assert_eq!(opens(path), home, "{path}");
    }
    assert_eq!(opens("/proc/4711/mem"), home);
    assert_eq!(opens("/proc/4711/maps"), home, "it may be one of its own threads");
    for path in ["/proc/4711/stat", "/proc/self/fd/0", "/proc/cpuinfo", "proc/self/maps", "/"] {
        assert!(opens(path).is_ok(), "{path}");
    }
}
