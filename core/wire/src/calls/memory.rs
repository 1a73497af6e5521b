//! Memory and futex calls: local where they concern only this process's private memory.

use super::Arguments;
use super::argument::{V, input};
use super::table::{Class, Emulation, Rule, Test};

/// An `int` argument: Linux looks at the lower half only.
const INT: u64 = 0xffff_ffff;

const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_SHARED_VALIDATE: u64 = 3;
const MAP_TYPE: u64 = 0xf;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_GROWSDOWN: u64 = 0x100;
const MAP_LOCKED: u64 = 0x2000;
const MAP_HUGETLB: u64 = 0x4_0000;

const PLAIN_MAPPING: Test = Test {
    argument: 3,
    mask: MAP_TYPE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_LOCKED | MAP_HUGETLB,
    values: &[MAP_PRIVATE | MAP_ANONYMOUS],
};

pub(super) const MMAP: Rule = Rule::LocalIf {
    alternatives: &[&[PLAIN_MAPPING]],
    otherwise: special_mapping,
    text: "private anonymous memory is local; of a file that is mapped private, or shared to be \
           read only, home says which it is, and one that the node has is mapped there; others, \
           and other shared, locked, huge and growing mappings, come home",
};

fn special_mapping(arguments: &Arguments) -> Class {
    let flags = arguments[3];
    match flags & MAP_TYPE {
        _ if is_file_mapping(arguments) => Class::Emulate(Emulation::FileMapping, &[]),
        MAP_SHARED | MAP_SHARED_VALIDATE => Class::Homecoming("shared-memory"),
        _ if flags & MAP_ANONYMOUS == 0 => Class::Homecoming("file-mapping"),
        _ => Class::Homecoming("special-mapping"),
    }
}

const PROT_WRITE: u64 = 2;
const PROT_READ_WRITE_EXEC: u64 = 7;
/// What a body's kernel is asked for as home's would be: MAP_FIXED, DENYWRITE, EXECUTABLE,
/// NORESERVE, POPULATE, NONBLOCK, STACK, FIXED_NOREPLACE.
const FILE_MAPPING_FLAGS: u64 =
    0x10 | 0x800 | 0x1000 | 0x4000 | 0x8000 | 0x1_0000 | 0x2_0000 | 0x10_0000;

/// Whether mmap with these arguments maps a file in a way that can be had where the same file is:
/// private, or shared to be read only.
pub fn is_file_mapping(arguments: &Arguments) -> bool {
    let [_, length, protection, flags, _, _] = *arguments;
    let is_plain = flags & !(FILE_MAPPING_FLAGS | MAP_TYPE) == 0;
    let is_own = match flags & MAP_TYPE {
        MAP_PRIVATE => true,
        MAP_SHARED => protection & PROT_WRITE == 0,
        _ => false,
    };
    is_plain && is_own && length > 0 && protection & !PROT_READ_WRITE_EXEC == 0
}

const PROT_GROWS: u64 = 0x0300_0000;

pub(super) const MPROTECT: Rule = Rule::LocalIf {
    alternatives: &[&[Test { argument: 2, mask: PROT_GROWS, values: &[0] }]],
    otherwise: |_| Class::Homecoming("growing-mapping"),
    text: "local, but for PROT_GROWSDOWN and PROT_GROWSUP",
};

/// A length of 0 makes a second mapping of shared memory, which is one memory at home only. All
/// others are as local as a rule can say: the body's filter lets most of them pass.
pub(super) const MREMAP: Rule = Rule::Chosen {
    by: |arguments| match arguments[1] {
        0 => Class::Homecoming("aliased-memory"),
        _ => Class::Local,
    },
    text: "local; a second mapping of the same memory (an old size of 0) comes home",
};

/// Advice that changes nothing a later capture would not see: NORMAL, RANDOM, SEQUENTIAL,
/// WILLNEED, DONTNEED, FREE, HUGEPAGE, NOHUGEPAGE, DONTDUMP, DODUMP, COLD, PAGEOUT, POPULATE_READ,
/// POPULATE_WRITE, DONTNEED_LOCKED. Advice for fork or about guard pages is not among them: the
/// flags it leaves on a mapping have to exist at home. Nor is any that is younger than Linux 5.19.
const ADVICE: &[u64] = &[0, 1, 2, 3, 4, 8, 14, 15, 16, 17, 20, 21, 22, 23, 24];

pub(super) const MADVISE: Rule = Rule::LocalIf {
    alternatives: &[&[Test { argument: 2, mask: INT, values: ADVICE }]],
    otherwise: |_| Class::Homecoming("unlisted-advice"),
    text: "paging and huge-page advice is local; fork, merge, poison and guard advice comes home",
};

/// The operation without FUTEX_PRIVATE_FLAG (128) and FUTEX_CLOCK_REALTIME (256).
const FUTEX_OPERATION: u64 = INT & !0x180;
const FUTEX_WAIT: u64 = 0;
/// WAKE, REQUEUE, CMP_REQUEUE, WAKE_OP, LOCK_PI, UNLOCK_PI, TRYLOCK_PI, WAIT_BITSET, WAKE_BITSET,
/// WAIT_REQUEUE_PI, CMP_REQUEUE_PI, LOCK_PI2: what timeouts these have are absolute, and a body
/// has home's clocks.
const FUTEX_TIMELESS: &[u64] = &[1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13];

pub(super) const FUTEX: Rule = Rule::LocalIf {
    alternatives: &[
        &[Test { argument: 1, mask: FUTEX_OPERATION, values: FUTEX_TIMELESS }],
        &[
            Test { argument: 1, mask: FUTEX_OPERATION, values: &[FUTEX_WAIT] },
            Test { argument: 3, mask: u64::MAX, values: &[0] },
        ],
    ],
    otherwise: timed_futex,
    text: "local; FUTEX_WAIT with a (relative) timeout is emulated: the deadline has to survive a \
           move",
};

fn timed_futex(arguments: &Arguments) -> Class {
    if arguments[1] & FUTEX_OPERATION == FUTEX_WAIT {
        Class::Emulate(Emulation::FutexWait, const { &[V, V, V, input(16)] })
    } else {
        Class::Homecoming("unlisted-futex")
    }
}

/// ARCH_SET_GS, ARCH_SET_FS, ARCH_GET_FS, ARCH_GET_GS.
const SEGMENT_BASES: &[u64] = &[0x1001, 0x1002, 0x1003, 0x1004];

pub(super) const ARCH_PRCTL: Rule = Rule::LocalIf {
    alternatives: &[&[Test { argument: 0, mask: INT, values: SEGMENT_BASES }]],
    otherwise: |_| Class::Homecoming("unlisted-arch-prctl"),
    text: "the FS and GS bases are local; everything else comes home",
};

pub(super) const GET_ROBUST_LIST: Rule = Rule::LocalIf {
    alternatives: &[&[Test { argument: 0, mask: INT, values: &[0] }]],
    otherwise: |_| Class::Homecoming("other-process"),
    text: "a thread's own is local; another's comes home",
};

/// QUERY, GLOBAL, GLOBAL_EXPEDITED, PRIVATE_EXPEDITED, its SYNC_CORE and its RSEQ variant.
const BARRIERS: &[u64] = &[0, 1, 2, 8, 32, 128];
const GET_REGISTRATIONS: u32 = 512;

pub(super) const MEMBARRIER: Rule = Rule::LocalIf {
    alternatives: &[&[Test { argument: 0, mask: INT, values: BARRIERS }]],
    otherwise: |arguments| match arguments[0] as u32 {
        GET_REGISTRATIONS => Class::Forward(&[V, V, V]),
        // A registration belongs to the memory at home; every body has them all.
        _ => Class::Homecoming("barrier-registration"),
    },
    text: "barriers are local; registrations come home",
};
