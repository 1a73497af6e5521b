//! The state of one process, as it travels. Memory contents travel apart, as [`Pages`].

use crate::forward::{Segment, Signal, bytes};
use crate::ids::{GuestAddr, GuestTid};
use crate::limits::{MAPPINGS_MAX, THREADS_MAX, XSTATE_BYTES_MAX};
use serde::{Deserialize, Serialize};

/// Everything about a process except its memory contents and what stays home with the deputy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The guest's pid as it sees itself (its innermost PID namespace).
    pub pid: GuestTid,
    pub threads: Vec<Thread>,
    pub mappings: Vec<Mapping>,
    /// `struct prctl_mm_map`: start_code, end_code, start_data, end_data, start_brk, brk,
    /// start_stack, arg_start, arg_end, env_start, env_end.
    pub layout: [u64; 11],
    /// Dispositions of signals 1..=64: handler, flags, restorer, mask.
    pub actions: Vec<[u64; 4]>,
    /// Soft and hard limit of the stack, bytes.
    pub stack_limit: (u64, u64),
    /// Where the agent lies at home: nothing of the guest may be placed there while it is away.
    pub reserved: (u64, u64),
}

/// One thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    pub tid: GuestTid,
    /// `struct user_regs_struct`.
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
    pub signals: Vec<Signal>,
    /// A wait with a timeout relative to its start that runs in the body (FUTEX_WAIT): when it
    /// ends, on the guest's monotonic clock, nanoseconds.
    pub wait_until_ns: Option<u64>,
    /// It stands in front of a call that was interrupted with this result (a restart code or
    /// `-EINTR`): a signal that comes before it is in the call again has interrupted the call.
    pub interrupted: Option<i64>,
}

/// A forwarded call whose reply the thread has not seen. The thread stands in front of its
/// `syscall` instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    pub sequence: u64,
    pub number: u32,
    pub arguments: [u64; 6],
    /// Without their bytes: only where the call's results go.
    pub segments: Vec<Segment>,
}

/// One memory mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    pub start: GuestAddr,
    pub end: GuestAddr,
    /// PROT_* bits.
    pub protection: u32,
    pub kind: MappingKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MappingKind {
    /// Private anonymous memory; a stack that grows downwards if so marked.
    Anonymous { grows_down: bool },
    /// Shared anonymous memory with no other user.
    SharedAnonymous,
    /// Part of a file: what was written to it travels as pages.
    File { backing: u32, offset: u64, is_shared: bool },
    /// Provided by the kernel: `[vdso]`, `[vvar]`, ...
    Kernel { name: String },
}

/// A run of memory contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    pub address: GuestAddr,
    #[serde(with = "bytes")]
    pub content: Vec<u8>,
}

/// A file that is mapped, and what identifies its contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backing {
    #[serde(with = "bytes")]
    pub path: Vec<u8>,
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub changed_ns: i64,
    /// BLAKE3 of the whole file.
    pub hash: [u8; 32],
}

/// The machine that an image comes from: what another must match to run it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Names one boot of one kernel: two nodes with the same one share file system and clocks.
    pub boot_id: String,
    pub kernel: String,
    /// The words of `flags` in `/proc/cpuinfo`.
    pub cpu_flags: Vec<String>,
    /// Size of the XSAVE area: signal frames and lazy binding depend on it.
    pub xstate_bytes: u32,
    /// BLAKE3 of the vDSO's bytes.
    pub vdso_hash: [u8; 32],
}

/// The head of an image stream: what the target needs before anything is frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prospect {
    /// Version of the image format: [`IMAGE_VERSION`].
    pub version: u32,
    pub pid: GuestTid,
    pub command: String,
    pub machine: Machine,
    pub backings: Vec<Backing>,
    /// Estimated bytes of memory.
    pub memory_bytes: u64,
    /// The guest's monotonic and boot-time clocks now, nanoseconds.
    pub clocks_ns: (i64, i64),
}

pub const IMAGE_VERSION: u32 = 1;

/// Why an image is not one that could have come from a process.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    #[error("an image of {0} threads (at most {THREADS_MAX})")]
    Threads(usize),
    #[error("an image of {0} mappings (at most {MAPPINGS_MAX})")]
    Mappings(usize),
    #[error("a mapping at {0} that is empty, unaligned, out of order or outside user memory")]
    Mapping(GuestAddr),
    #[error("a mapping at {0} of an unlisted file")]
    Backing(GuestAddr),
    #[error("thread {0} with {1} registers or an extended state of {2} bytes")]
    Thread(GuestTid, usize, usize),
    #[error("thread {0} twice, or with a number that no thread has")]
    Identity(GuestTid),
    #[error("dispositions of {0} signals (64 expected)")]
    Actions(usize),
}

/// End of the address range that a 64-bit program may use (47 bits, less a guard page).
pub const USER_MEMORY_END: u64 = (1 << 47) - 4096;
const REGISTER_WORDS: usize = 27;

impl Image {
    /// True if the process's first thread is among the living ones.
    pub fn has_first_thread(&self) -> bool {
        self.threads.iter().any(|thread| thread.tid == self.pid)
    }

    /// Checks what later code relies on; an image comes from another machine.
    pub fn check(&self, backings: usize) -> Result<(), ImageError> {
        if self.threads.is_empty() || self.threads.len() > THREADS_MAX {
            return Err(ImageError::Threads(self.threads.len()));
        }
        if self.mappings.len() > MAPPINGS_MAX {
            return Err(ImageError::Mappings(self.mappings.len()));
        }
        if self.actions.len() != 64 {
            return Err(ImageError::Actions(self.actions.len()));
        }
        self.check_mappings(backings)?;
        self.check_threads()
    }

    fn check_mappings(&self, backings: usize) -> Result<(), ImageError> {
        let mut last_end = 0;
        for mapping in &self.mappings {
            let (start, end) = (mapping.start.0, mapping.end.0);
            let is_aligned = start % 4096 == 0 && end % 4096 == 0;
            if !is_aligned || start >= end || start < last_end || end > USER_MEMORY_END {
                return Err(ImageError::Mapping(mapping.start));
            }
            last_end = end;
            if let MappingKind::File { backing, .. } = mapping.kind
                && backing as usize >= backings
            {
                return Err(ImageError::Backing(mapping.start));
            }
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
        }
        Ok(())
    }
}
