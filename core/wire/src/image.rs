//! The state of one process, as it travels. Memory contents travel apart, as [`Pages`].

use crate::bounded;
use crate::clocks::Readings;
use crate::forward::{Segment, Signal, bytes};
use crate::ids::{GuestAddr, GuestTid};
use crate::limits::{
    BACKINGS_MAX, BOOT_BYTES_MAX, CALL_SEGMENTS_MAX, COMMAND_BYTES_MAX, GUARDS_MAX, MAPPINGS_MAX,
    MESSAGE_BYTES_MAX, PAGE_RUNS_MAX, SHARED_FILE_BYTES_MAX, SHARED_MEMORY_MAX, SIGNALS_MAX,
    THREADS_MAX, VDSO_BYTES_MAX, XSTATE_BYTES_MAX,
};
use crate::memory::check_mappings;
pub use crate::memory::{
    Draft, Mapping, MappingFlags, MappingKind, SharedMemory, SharedPlace, Span, USER_MEMORY_END,
    behind, check_shared,
};
use crate::memory_group::{Group, MemoryId};
use crate::processor::Demand;
use crate::processor_time::Clock;
use serde::{Deserialize, Serialize};

/// Everything about a process except its memory contents and what stays home with the deputy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The guest's pid as it sees itself (its innermost PID namespace).
    pub pid: GuestTid,
    #[serde(deserialize_with = "bounded::list::<_, _, THREADS_MAX>")]
    pub threads: Vec<Thread>,
    /// How many more threads follow in messages of their own.
    pub later_threads: u32,
    #[serde(deserialize_with = "bounded::list::<_, _, MAPPINGS_MAX>")]
    pub mappings: Vec<Mapping>,
    /// Ranges of them that nobody may touch, though their protection says otherwise
    /// (MADV_GUARD_INSTALL): start and end, ascending.
    #[serde(deserialize_with = "bounded::list::<_, _, GUARDS_MAX>")]
    pub guards: Vec<(GuestAddr, GuestAddr)>,
    /// `struct prctl_mm_map`: start_code, end_code, start_data, end_data, start_brk, brk,
    /// start_stack, arg_start, arg_end, env_start, env_end.
    pub layout: [u64; 11],
    /// Dispositions of signals 1..=64: handler, flags, restorer, mask.
    #[serde(deserialize_with = "bounded::list::<_, _, 64>")]
    pub actions: Vec<[u64; 4]>,
    /// Soft and hard limit of the stack, bytes.
    pub stack_limit: (u64, u64),
    /// Soft limits of the address space and of data (RLIMIT_AS, RLIMIT_DATA), bytes; u64::MAX is
    /// none.
    pub memory_limits: (u64, u64),
    /// Where the agent lies at home: nothing of the guest may be placed there while it is away.
    pub reserved: (u64, u64),
    /// Processor time of all its threads, those that have ended included.
    pub clock: Clock,
    /// The most memory that it had in use in this stay away, so far. 0 when it leaves home, which
    /// knows its own.
    pub peak_rss_kib: u64,
    /// What its clocks showed when it was captured: they never show less from then on.
    pub time: Readings,
    /// It gets no huge pages by itself (prctl(2), PR_SET_THP_DISABLE).
    pub has_no_huge_pages: bool,
    /// The ids that processors have at home, if its program asks for that of its own.
    pub processors: Option<ProcessorIds>,
}

/// Below what the ids of processors and of their NUMA nodes are: programs have tables for so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessorIds {
    pub end: u32,
    pub nodes_end: u32,
}

/// One thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    pub tid: GuestTid,
    /// `struct user_regs_struct`.
    #[serde(deserialize_with = "bounded::list::<_, _, REGISTER_WORDS>")]
    pub registers: Vec<u64>,
    /// Uncompacted XSAVE area.
    #[serde(with = "bytes")]
    pub extended_state: Vec<u8>,
    /// Blocked signals, bit n-1 for signal n.
    pub signal_mask: u64,
    /// `stack_t` of sigaltstack(2).
    #[serde(with = "bytes")]
    pub alternate_stack: Vec<u8>,
    pub robust_list: (u64, u64),
    pub priority: Priority,
    /// Cleared and woken when the thread ends (set_tid_address(2)).
    pub tid_address: u64,
    /// rseq(2): address, size, signature.
    pub rseq: Option<(u64, u32, u32)>,
    /// The call that the deputy is executing, or has executed, for this thread.
    pub in_flight: Option<InFlight>,
    /// Number of the last call that this thread forwarded.
    pub sequence: u64,
    /// Signals for this thread which home has forwarded, in all.
    pub signals_seen: u64,
    /// Those of them that no handler has got yet, in order.
    #[serde(deserialize_with = "bounded::list::<_, _, SIGNALS_MAX>")]
    pub signals: Vec<Signal>,
    /// A wait with a timeout relative to its start that runs in the body (FUTEX_WAIT): when it
    /// ends, on the guest's monotonic clock, nanoseconds.
    pub wait_until_ns: Option<u64>,
    /// It stands in front of a call that was interrupted with this result (a restart code or
    /// `-EINTR`): a signal that comes before it is in the call again has interrupted the call.
    pub interrupted: Option<i64>,
    pub clock: Clock,
    pub attributes: Attributes,
}

/// What the kernel of whichever node does with a thread because it, or its parent, said so once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// As personality(2) has it.
    pub personality: u32,
    /// How much later than asked it may be woken.
    pub timer_slack_ns: u64,
    /// Reading the time stamp counter is a fault (prctl(2), PR_SET_TSC).
    pub has_no_counter: bool,
    /// What PR_GET_SPECULATION_CTRL says of store bypass, indirect branches and the flush of L1D.
    pub speculation: [u32; 3],
}

/// How much a thread leaves to others, wherever it runs, as its home has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Priority {
    /// As setpriority(2) has it.
    pub nice: i32,
    /// As sched_setscheduler(2) has it.
    pub policy: i32,
}

/// A forwarded call whose reply the thread has not seen. The thread stands in front of its
/// `syscall` instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    pub sequence: u64,
    pub number: u32,
    pub arguments: [u64; 6],
    /// Without their bytes: only where the call's results go.
    #[serde(deserialize_with = "bounded::list::<_, _, CALL_SEGMENTS_MAX>")]
    pub segments: Vec<Segment>,
}

/// Memory contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    /// Where they belong, one after the other.
    #[serde(deserialize_with = "bounded::list::<_, _, PAGE_RUNS_MAX>")]
    pub spans: Vec<Span>,
    #[serde(with = "bytes")]
    pub content: Vec<u8>,
}

impl Pages {
    pub fn at(address: GuestAddr, content: Vec<u8>) -> Pages {
        let end = GuestAddr(address.0.saturating_add(content.len() as u64));
        Pages { spans: vec![(address, end)], content }
    }
}

/// Memory contents that are one block of LZ4.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedPages {
    #[serde(deserialize_with = "bounded::list::<_, _, PAGE_RUNS_MAX>")]
    pub spans: Vec<Span>,
    #[serde(with = "bytes")]
    pub block: Vec<u8>,
}

/// Bytes of memory that are at these places; None if they are none.
pub fn bytes_at(spans: &[Span]) -> Option<u64> {
    let mut lengths = spans.iter().map(|(start, end)| end.0.checked_sub(start.0));
    lengths.try_fold(0u64, |sum, length| sum.checked_add(length?))
}

/// The places with their contents, in order; None if there is not as much of both.
pub fn runs<'a>(spans: &[Span], content: &'a [u8]) -> Option<Vec<(GuestAddr, &'a [u8])>> {
    let mut left = content;
    let mut runs = Vec::with_capacity(spans.len());
    for (start, end) in spans {
        let length = usize::try_from(end.0.checked_sub(start.0)?).ok()?;
        let (run, rest) = left.split_at_checked(length)?;
        runs.push((*start, run));
        left = rest;
    }
    left.is_empty().then_some(runs)
}

/// A file that is mapped, and what identifies its contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backing {
    #[serde(with = "bytes")]
    pub path: Vec<u8>,
    pub size: u64,
    /// BLAKE3 of the whole file.
    pub hash: [u8; 32],
}

/// What a process keeps of its home wherever it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// Names one boot of one kernel, and one time namespace: two nodes with the same one have the
    /// same clocks and the same vDSO.
    #[serde(deserialize_with = "bounded::line::<_, BOOT_BYTES_MAX>")]
    pub boot_id: String,
    /// The vDSO's bytes; none if it has none.
    #[serde(with = "bytes")]
    pub vdso: Vec<u8>,
}

/// The head of an image stream: what the target needs before anything is frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prospect {
    /// Version of the image format: [`IMAGE_VERSION`].
    pub version: u32,
    pub pid: GuestTid,
    #[serde(deserialize_with = "bounded::line::<_, COMMAND_BYTES_MAX>")]
    pub command: String,
    pub home: Home,
    /// What the program was shown at home, which it needs wherever it goes.
    pub processor: Demand,
    #[serde(deserialize_with = "bounded::list::<_, _, BACKINGS_MAX>")]
    pub backings: Vec<Backing>,
    /// Estimated bytes of memory.
    pub memory_bytes: u64,
    /// Home keeps its memory for as long as there is room for it, and may be asked for what of it
    /// is as it was.
    pub is_kept: bool,
    /// io_uring_setup answers ENOSYS, as it does at home (`osmos run --mobile`).
    pub has_no_io_uring: bool,
    /// Those who come with it into the same sandbox, if any do.
    pub group: Option<Box<Group>>,
    /// Shared memory that lasts at home without those who have it mapped: it has a name there, or
    /// somebody has a descriptor of it. The last who has it mapped away brings it home first.
    #[serde(deserialize_with = "bounded::list::<_, _, SHARED_MEMORY_MAX>")]
    pub lasting: Vec<MemoryId>,
}

pub const IMAGE_VERSION: u32 = 15;

/// Why an image is not one that could have come from a process.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    #[error("an image of {0} threads (at most {THREADS_MAX})")]
    Threads(usize),
    #[error("an image of {0} mappings (at most {MAPPINGS_MAX})")]
    Mappings(usize),
    #[error("a mapping at {0} that is empty, unaligned, out of order or outside user memory")]
    Mapping(GuestAddr),
    #[error("a mapping at {0} with protection {1:#x}")]
    Protection(GuestAddr, u32),
    #[error("a mapping at {0} of no part of a file")]
    Offset(GuestAddr),
    #[error("{0} guard regions (at most {GUARDS_MAX}), or one that is none of its memory")]
    Guards(usize),
    #[error("a mapping at {0} of an unlisted file")]
    Backing(GuestAddr),
    #[error("{0} bytes of files that it shares (at most {SHARED_FILE_BYTES_MAX})")]
    SharedFiles(u64),
    #[error("thread {0} with {1} registers or an extended state of {2} bytes")]
    Thread(GuestTid, usize, usize),
    #[error("thread {0} twice, or with a number that no thread has")]
    Identity(GuestTid),
    #[error("thread {0} with a signal that is none")]
    Signal(GuestTid),
    #[error("thread {0} in a call of {1} parts (at most {CALL_SEGMENTS_MAX})")]
    Call(GuestTid, usize),
    #[error("a name of {0} bytes (at most {COMMAND_BYTES_MAX})")]
    Command(usize),
    #[error("shared memory of {0} bytes (whole pages, no more than a process can have)")]
    SharedMemory(u64),
    #[error("a vDSO of {0} bytes (whole pages, at most {VDSO_BYTES_MAX})")]
    Vdso(usize),
    #[error("a boot's name of {0} bytes (at most {BOOT_BYTES_MAX})")]
    Boot(usize),
    #[error("{0} mapped files (at most {BACKINGS_MAX})")]
    Backings(usize),
    #[error("a processor clock of centuries")]
    Clock,
    #[error("dispositions of {0} signals (64 expected)")]
    Actions(usize),
}

const REGISTER_WORDS: usize = 27;
/// What one thread takes at most in a message, besides what is counted apart.
const THREAD_BYTES: usize = 704;
const SIGNAL_BYTES: usize = SIGINFO_BYTES + 32;
/// Of a call in flight, with the few bytes that travel along.
const SEGMENT_BYTES: usize = 64;
/// Threads in one message: beside them the first has the mappings.
const THREADS_PART_BYTES_MAX: usize = 4 << 20;
const MAPPING_BYTES: usize = 48;
const GUARD_BYTES: usize = 16;
const _: () = assert!(
    THREADS_PART_BYTES_MAX + MAPPINGS_MAX * MAPPING_BYTES + GUARDS_MAX * GUARD_BYTES + (64 << 10)
        < MESSAGE_BYTES_MAX
);
const SIGNAL_MAX: i32 = 64;
const SIGINFO_BYTES: usize = 128;

impl Prospect {
    /// Checks what later code relies on; a prospect comes from another machine.
    pub fn check(&self) -> Result<(), ImageError> {
        if self.command.len() > COMMAND_BYTES_MAX {
            return Err(ImageError::Command(self.command.len()));
        }
        if self.home.boot_id.len() > BOOT_BYTES_MAX {
            return Err(ImageError::Boot(self.home.boot_id.len()));
        }
        let vdso = self.home.vdso.len();
        if vdso > VDSO_BYTES_MAX || !vdso.is_multiple_of(4096) {
            return Err(ImageError::Vdso(vdso));
        }
        if self.backings.len() > BACKINGS_MAX {
            return Err(ImageError::Backings(self.backings.len()));
        }
        self.group.as_ref().map_or(Ok(()), |group| group.check())
    }
}

impl Image {
    /// True if the process's first thread is among the living ones.
    pub fn has_first_thread(&self) -> bool {
        self.threads.iter().any(|thread| thread.tid == self.pid)
    }

    /// The image as it travels: with the threads that fit, and the others in parts.
    pub fn into_parts(mut self) -> (Image, Vec<Vec<Thread>>) {
        let mut parts = Vec::new();
        let mut left = THREADS_PART_BYTES_MAX;
        let mut part = Vec::new();
        for thread in std::mem::take(&mut self.threads) {
            let segments = thread.in_flight.as_ref().map_or(0, |call| call.segments.len());
            let size = THREAD_BYTES
                + thread.extended_state.len()
                + thread.signals.len() * SIGNAL_BYTES
                + segments * SEGMENT_BYTES;
            if size > left && !part.is_empty() {
                parts.push(std::mem::take(&mut part));
                left = THREADS_PART_BYTES_MAX;
            }
            left = left.saturating_sub(size);
            part.push(thread);
        }
        parts.push(part);
        self.threads = parts.remove(0);
        self.later_threads = parts.iter().map(|part| part.len() as u32).sum();
        (self, parts)
    }

    /// True while threads are to follow.
    pub fn is_incomplete(&self) -> bool {
        self.later_threads > 0
    }

    /// Adds threads that came later.
    pub fn add_threads(&mut self, threads: Vec<Thread>) -> Result<(), ImageError> {
        let total = self.threads.len() + threads.len();
        let left = self.later_threads.checked_sub(threads.len() as u32);
        match left.filter(|_| !threads.is_empty() && total <= THREADS_MAX) {
            Some(left) => self.later_threads = left,
            None => return Err(ImageError::Threads(total)),
        }
        self.threads.extend(threads);
        Ok(())
    }

    /// Checks what later code relies on; an image comes from another machine.
    pub fn check(&self, backings: usize) -> Result<(), ImageError> {
        let is_whole = !self.threads.is_empty() && !self.is_incomplete();
        if !is_whole || self.threads.len() > THREADS_MAX {
            return Err(ImageError::Threads(self.threads.len()));
        }
        if self.mappings.len() > MAPPINGS_MAX {
            return Err(ImageError::Mappings(self.mappings.len()));
        }
        if self.actions.len() != 64 {
            return Err(ImageError::Actions(self.actions.len()));
        }
        let mut clocks = self.threads.iter().map(|thread| &thread.clock).chain([&self.clock]);
        if !clocks.all(Clock::is_plausible) {
            return Err(ImageError::Clock);
        }
        check_mappings(&self.mappings, backings)?;
        self.check_guards()?;
        self.check_threads()
    }

    fn check_guards(&self) -> Result<(), ImageError> {
        let broken = Err(ImageError::Guards(self.guards.len()));
        if self.guards.len() > GUARDS_MAX {
            return broken;
        }
        let mut last_end = 0;
        for (start, end) in self.guards.iter().map(|(start, end)| (start.0, end.0)) {
            let is_aligned = start % 4096 == 0 && end % 4096 == 0;
            // Mappings are in order: the last that begins before it has to hold all of it.
            let index = self.mappings.partition_point(|m| m.start.0 <= start).checked_sub(1);
            let is_mapped = index.is_some_and(|index| end <= self.mappings[index].end.0);
            if !is_aligned || start >= end || start < last_end || !is_mapped {
                return broken;
            }
            last_end = end;
        }
        Ok(())
    }

    fn check_threads(&self) -> Result<(), ImageError> {
        let mut seen = std::collections::BTreeSet::new();
        for thread in &self.threads {
            let state = thread.extended_state.len();
            if thread.registers.len() != REGISTER_WORDS
                || state > XSTATE_BYTES_MAX
                || thread.alternate_stack.len() != 24
            {
                return Err(ImageError::Thread(thread.tid, thread.registers.len(), state));
            }
            if thread.tid.0 <= 1 || !seen.insert(thread.tid) {
                return Err(ImageError::Identity(thread.tid));
            }
            let is_signal = |signal: &Signal| {
                (1..=SIGNAL_MAX).contains(&signal.number) && signal.siginfo.len() == SIGINFO_BYTES
            };
            if !thread.signals.iter().all(is_signal) {
                return Err(ImageError::Signal(thread.tid));
            }
            let parts = thread.in_flight.as_ref().map_or(0, |call| call.segments.len());
            if parts > CALL_SEGMENTS_MAX {
                return Err(ImageError::Call(thread.tid, parts));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn thread(tid: i32) -> Thread {
        Thread {
            tid: GuestTid(tid),
            registers: vec![0; REGISTER_WORDS],
            extended_state: vec![0; 2696],
            signal_mask: 0,
            alternate_stack: vec![0; 24],
            robust_list: (0, 0),
            priority: Priority::default(),
            tid_address: 0,
            rseq: None,
            in_flight: None,
            sequence: 0,
            signals_seen: 0,
            signals: vec![],
            wait_until_ns: None,
            interrupted: None,
            clock: Clock::default(),
            attributes: Attributes::default(),
        }
    }

    fn image(threads: Vec<Thread>) -> Image {
        Image {
            pid: GuestTid(100),
            threads,
            later_threads: 0,
            mappings: vec![],
            guards: vec![],
            layout: [0; 11],
            actions: vec![[0; 4]; 64],
            stack_limit: (0, 0),
            memory_limits: (u64::MAX, u64::MAX),
            reserved: (0, 0),
            clock: Clock::default(),
            peak_rss_kib: 0,
            time: Readings::default(),
            has_no_huge_pages: false,
            processors: None,
        }
    }

    #[test]
    fn mappings_that_no_process_has_are_refused() {
        let with = |protection, kind| {
            let (start, end) = (GuestAddr(0x1000), GuestAddr(0x3000));
            let flags = MappingFlags::default();
            let mappings = vec![Mapping { start, end, protection, kind, flags }];
            Image { mappings, ..image(vec![thread(100)]) }.check(1)
        };
        let plain = MappingKind::Anonymous { grows_down: false };
        assert_eq!(with(7, plain.clone()), Ok(()));
        // PROT_SEM, PROT_GROWSDOWN and what may come.
        for protection in [8, 0x0100_0000, u32::MAX] {
            let error = with(protection, plain.clone()).unwrap_err();
            assert_eq!(error, ImageError::Protection(GuestAddr(0x1000), protection));
        }
        let file = |offset| with(1, MappingKind::File { backing: 0, offset, is_shared: false });
        assert_eq!(file(0x5000), Ok(()));
        for offset in [1, u64::MAX - 0xfff, i64::MAX as u64 - 0xfff] {
            assert_eq!(file(offset), Err(ImageError::Offset(GuestAddr(0x1000))));
        }
    }

    #[test]
    fn clocks_of_centuries_are_refused() {
        let clock = Clock { home_ns: u64::MAX, ..Clock::default() };
        let of_process = Image { clock, ..image(vec![thread(100)]) };
        let of_thread = image(vec![Thread { clock, ..thread(100) }]);
        for image in [of_process, of_thread] {
            assert_eq!(image.check(0), Err(ImageError::Clock));
        }
    }

    #[test]
    fn guards_outside_of_the_memory_are_refused() {
        let place = |page: u64| GuestAddr(page << 12);
        let kind = MappingKind::Anonymous { grows_down: false };
        let flags = MappingFlags::default();
        let mapping = Mapping { start: place(2), end: place(6), protection: 3, kind, flags };
        let with = |guards: Vec<(GuestAddr, GuestAddr)>| {
            Image { guards, mappings: vec![mapping.clone()], ..image(vec![thread(100)]) }.check(0)
        };
        assert_eq!(with(vec![(place(2), place(3)), (place(5), place(6))]), Ok(()));
        for (start, end) in [(1, 3), (5, 7), (7, 8), (4, 4), (5, 4)] {
            assert_eq!(with(vec![(place(start), place(end))]), Err(ImageError::Guards(1)));
        }
        assert!(with(vec![(place(4), place(5)), (place(2), place(3))]).is_err(), "order");
        assert!(with(vec![(GuestAddr(0x2001), place(3))]).is_err(), "no page");
    }

    #[test]
    fn signals_that_are_none_are_refused() {
        let with = |number, length| {
            let siginfo = vec![0; length];
            let signal = Signal { tid: GuestTid(100), index: 1, number, siginfo };
            image(vec![Thread { signals: vec![signal], ..thread(100) }]).check(0)
        };
        assert_eq!(with(64, 128), Ok(()));
        for (number, length) in [(0, 128), (65, 128), (-1, 128), (10, 127), (10, 129)] {
            assert_eq!(with(number, length), Err(ImageError::Signal(GuestTid(100))));
        }
    }

    #[test]
    fn threads_that_fill_a_message_come_in_parts_and_are_put_together() {
        let whole = image((0..THREADS_MAX as i32).map(|tid| thread(100 + tid)).collect());
        let (mut head, parts) = whole.clone().into_parts();
        let length = |bytes: Vec<u8>| bytes.len();
        assert!(length(postcard::to_stdvec(&head).unwrap()) < MESSAGE_BYTES_MAX);
        assert!(parts.len() > 1);
        for part in parts {
            assert!(length(postcard::to_stdvec(&part).unwrap()) < MESSAGE_BYTES_MAX);
            assert!(head.is_incomplete());
            head.add_threads(part).unwrap();
        }
        assert!(!head.is_incomplete());
        assert_eq!(head, whole);
    }

    #[test]
    fn more_threads_than_announced_are_refused() {
        let mut head = Image { later_threads: 1, ..image(vec![thread(100)]) };
        assert!(head.check(0).is_err(), "it is not complete");
        assert!(head.clone().add_threads(vec![]).is_err(), "no progress");
        assert!(head.clone().add_threads(vec![thread(101), thread(102)]).is_err());
        head.add_threads(vec![thread(101)]).unwrap();
        assert_eq!(head.check(0), Ok(()));
    }
}
