//! Calls about the process itself whose class depends on their arguments, and the files of `/proc`
//! that describe the half that is not at home.

use super::Arguments;
use super::argument::{Argument, V, input, output};
use super::own_file::own_file;
use super::table::{Class, Emulation, Rule, Test};
use crate::forward::Segment;

const PR_SET_VMA: u64 = 0x5356_4d41;

pub(super) const PRCTL: Rule = Rule::LocalIf {
    alternatives: &[&[Test { argument: 0, mask: 0xffff_ffff, values: &[PR_SET_VMA] }]],
    otherwise: prctl,
    text: "names of mappings are local; name, death signal, subreaper, privileges lock and \
           harmless queries are forwarded; everything else comes home",
};

fn prctl(arguments: &Arguments) -> Class {
    match arguments[0] as u32 {
        // PR_SET_PDEATHSIG, GET_DUMPABLE, GET_KEEPCAPS, GET_SECCOMP, CAPBSET_READ,
        // GET_SECUREBITS, GET_TIMERSLACK, SET_CHILD_SUBREAPER, SET_NO_NEW_PRIVS,
        // GET_NO_NEW_PRIVS, GET_SPECULATION_CTRL. What sets a mode that the body has, too, comes
        // home, and the body gets it when it is made again.
        1 | 3 | 7 | 21 | 23 | 27 | 30 | 36 | 38 | 39 | 52 => Class::Forward(&[V, V, V, V, V]),
        // PR_GET_PDEATHSIG, PR_GET_CHILD_SUBREAPER
        2 | 37 => Class::Forward(const { &[V, output(4)] }),
        15 => Class::Forward(const { &[V, Argument::Text(16)] }), // PR_SET_NAME
        16 => Class::Forward(const { &[V, output(16)] }),         // PR_GET_NAME
        // PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET
        47 if arguments[1] == 1 => Class::Forward(&[V, V, V, V, V]),
        _ => Class::Homecoming("unlisted-prctl"),
    }
}

/// CPU, DATA, STACK, RSS, MEMLOCK, AS, RTTIME: limits on what a body consumes. A new one has to
/// bind the body's kernel too, which restoring the process does.
fn binds_body(resource: u64) -> bool {
    matches!(resource as u32, 0 | 2 | 3 | 5 | 8 | 9 | 15)
}

const LIMIT: u32 = 16;

const LIMITS_TEXT: &str = "forwarded; new limits on memory and processor time come home, but for a \
                           process that has its maker's memory (vfork)";

pub(super) const SETRLIMIT: Rule =
    Rule::Chosen { by: |_| Class::Forward(const { &[V, input(LIMIT)] }), text: LIMITS_TEXT };

pub(super) const PRLIMIT64: Rule = Rule::Chosen {
    by: |_| Class::Forward(const { &[V, V, input(LIMIT), output(LIMIT)] }),
    text: LIMITS_TEXT,
};

/// Whether a call sets a limit that binds a body, too.
pub fn limits_body(number: u32, arguments: &Arguments) -> bool {
    match number {
        // setrlimit, prlimit64
        160 => binds_body(arguments[0]),
        302 => arguments[2] != 0 && binds_body(arguments[1]),
        _ => false,
    }
}

pub(super) const SET_IDS: Rule = Rule::Chosen {
    by: |_| Class::Forward(&[V, V, V]),
    text: "forwarded if no id can change by it; else it comes home",
};

/// A call that sets ids of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdCall {
    pub is_of_user: bool,
    /// How many ids it is given.
    pub count: usize,
}

/// What ids a call sets; None for all other calls.
pub fn id_call(number: u32) -> Option<IdCall> {
    // setuid, setreuid, setresuid; setgid, setregid, setresgid.
    let (is_of_user, count) = match number {
        105 => (true, 1),
        113 => (true, 2),
        117 => (true, 3),
        106 => (false, 1),
        114 => (false, 2),
        119 => (false, 3),
        _ => return None,
    };
    Some(IdCall { is_of_user, count })
}

/// What clone makes of these flags is a thread like that of every C library, or a process like
/// that of fork or vfork.
pub(super) const CLONE: Rule = Rule::Chosen {
    by: |arguments| match super::thread::is_task(arguments) {
        true => Class::Emulate(Emulation::NewTask, &[]),
        false => Class::Homecoming("new-process"),
    },
    text: "a thread or a process is made in both halves; what shares some of both comes home",
};

const PERSONALITY_QUERY: u32 = 0xffff_ffff;

pub(super) const PERSONALITY: Rule = Rule::Chosen {
    by: |arguments| {
        if arguments[0] as u32 == PERSONALITY_QUERY {
            Class::Forward(&[V])
        } else {
            Class::Homecoming("personality")
        }
    },
    text: "the query is forwarded; a change comes home",
};

const OPEN: u32 = 2;
const CHDIR: u32 = 80;
const OPENAT: u32 = 257;
const OPENAT2: u32 = 437;

/// Files of `/proc/PID` that show a process's memory.
const MEMORY_FILES: &[&[u8]] = &[
    b"mem",
    b"maps",
    b"smaps",
    b"smaps_rollup",
    b"numa_maps",
    b"pagemap",
    b"map_files",
    b"clear_refs",
    b"cmdline",
    b"environ",
];

/// Files that show how a process runs, and what it uses.
const ACTIVITY_FILES: &[&[u8]] = &[
    b"stat",
    b"statm",
    b"status",
    b"sched",
    b"schedstat",
    b"stack",
    b"syscall",
    b"wchan",
    b"cgroup",
];

/// Why this call has to happen at home, if it has to: an open of such a file, unless its body knows
/// what to make of it ([`own_file`]); and to enter a directory of such files, in which they have
/// names that do not show what they are.
pub(super) fn home_only_path(
    number: u32,
    arguments: &Arguments,
    segments: &[Segment],
    own: Option<i32>,
) -> Option<&'static str> {
    if own_file(number, arguments, segments, own).is_some() {
        return None;
    }
    let index = match number {
        OPEN | CHDIR => 0,
        OPENAT | OPENAT2 => 1,
        _ => return None,
    };
    let path = super::argument_bytes(segments, index)?;
    let path = path.strip_suffix(b"\0").unwrap_or(path);
    let is_home_only = if number == CHDIR { enters_body(path) } else { shows_body(path) };
    is_home_only.then_some("proc-self")
}

/// A path in `/proc` as whose process it is about (`/proc/self/...`: the caller's own), whether it
/// is below `task/TID`, where the same names are the same files of a thread, and the file.
pub(super) fn of_process(path: &[u8]) -> Option<(Whose<'_>, bool, &[u8])> {
    let is_name = |name: &&[u8]| !name.is_empty() && *name != b".";
    let mut names = path.split(|&byte| byte == b'/').filter(is_name);
    if path.first() != Some(&b'/') || names.next() != Some(b"proc") {
        return None;
    }
    let whose = match names.next()? {
        b"self" => Whose::Own,
        b"thread-self" => Whose::OwnThread,
        pid if pid.iter().all(u8::is_ascii_digit) => Whose::Number(pid),
        _ => return None,
    };
    let mut file = names.next().unwrap_or_default();
    let is_of_thread = file == b"task";
    if is_of_thread {
        names.next();
        file = names.next().unwrap_or_default();
    }
    Some((whose, is_of_thread, file))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose<'a> {
    Own,
    OwnThread,
    Number(&'a [u8]),
}

/// With a number only the memory itself counts: it may be any process, mostly is another, and a
/// program that lists all processes should not travel for each.
fn shows_body(path: &[u8]) -> bool {
    match of_process(path) {
        Some((Whose::Own | Whose::OwnThread, _, file)) => is_of_body(file) || file.is_empty(),
        Some((Whose::Number(_), _, file)) => {
            MEMORY_FILES.contains(&file) && file != b"cmdline" && file != b"environ"
        }
        None => false,
    }
}

fn enters_body(path: &[u8]) -> bool {
    matches!(of_process(path), Some((Whose::Own | Whose::OwnThread, ..)))
}

fn is_of_body(file: &[u8]) -> bool {
    MEMORY_FILES.contains(&file) || ACTIVITY_FILES.contains(&file)
}

/// Whether an open file of this name tells of a process with one of these numbers what is true only
/// of its body: it is read when it is used. So does a directory in which such files are.
pub fn tells_of_body(path: &[u8], pids: &[i32]) -> bool {
    let is_one = |pid: &[u8]| {
        let pid = std::str::from_utf8(pid).ok().and_then(|pid| pid.parse().ok());
        pid.is_some_and(|pid| pids.contains(&pid))
    };
    match of_process(path) {
        Some((Whose::Number(pid), _, file)) => is_one(pid) && (is_of_body(file) || file.is_empty()),
        _ => false,
    }
}
