//! Every maximum in the system, in one place, so that they can be compared with each other.

use std::time::Duration;

/// Plain bytes in one encrypted frame. The Noise protocol allows 65,535 with its 16-byte tag.
pub const FRAME_PLAIN_BYTES_MAX: usize = 65_519;
/// One message between supervisors (a forwarded call, an image part), which may span frames.
pub const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// What one forwarded call may carry in either direction; a larger one brings the process home.
pub const CALL_BYTES_MAX: usize = 4 << 20;
/// What is sent of one file before it is read: it may wait in front of another reply, and 1 MiB
/// takes 8 ms on a gigabit.
pub const AHEAD_BYTES_MAX: u64 = 1 << 20;
/// The same, in one message: whole pages that fill two frames.
pub const AHEAD_PART_BYTES: usize = 31 * PAGE_BYTES as usize;
/// Files of one process that are read ahead at a time.
pub const AHEAD_FILES_MAX: usize = 8;
/// Memory segments of one forwarded call (an iovec may have 1,024 parts, a message a few more).
pub const CALL_SEGMENTS_MAX: usize = 1_100;
/// Threads of one process that may move.
pub const THREADS_MAX: usize = 4_096;
/// Signals that wait for one thread: what fits a message.
pub const SIGNALS_MAX: usize = 65_536;
/// Ranges of one message that tells of memory to be discarded, or held.
pub const DISCARDS_MAX: usize = 16_384;
/// Ranges of memory that a home may hold of one process.
pub const HELD_MAX: usize = 1 << 20;
/// Memory mappings of one process that may move (Linux allows 65,530 by default).
pub const MAPPINGS_MAX: usize = 65_530;
/// Mappings of shared memory that a process has made away when it makes another process there.
pub const SHARED_MEMORY_MAX: usize = 1_024;
/// Processes that move together with another because they share memory with it.
pub const GROUP_MAX: usize = 64;
/// Guard regions of one process that may move: each of its threads may have one.
pub const GUARDS_MAX: usize = 16_384;
/// Extended processor state of one thread: room for AMX.
pub const XSTATE_BYTES_MAX: usize = 16 << 10;
/// Length of a command's name: 15 bytes for Linux, three times that if they are no text.
pub const COMMAND_BYTES_MAX: usize = 64;
/// A kernel's vDSO; that of Linux 6.18 has two pages.
pub const VDSO_BYTES_MAX: usize = 64 << 10;
/// Name of one boot of a kernel.
pub const BOOT_BYTES_MAX: usize = 96;
/// Mapped files of one process that may move.
pub const BACKINGS_MAX: usize = 4_096;
/// Largest file that is sent to be mapped from memory.
pub const BACKING_BYTES_MAX: u64 = 1 << 30;
/// All files together that are sent for one process: they take memory of the target's.
pub const BACKINGS_BYTES_MAX: u64 = 2 << 30;
/// Files that are hashed for one move, besides those whose hash is known: seconds.
pub const HASHED_BYTES_MAX: u64 = 8 << 30;
/// What a process may have grown, besides to the double, while its files were sent ahead.
pub const GROWTH_BYTES_MAX: u64 = 256 << 20;
/// Files that one process may have mapped shared and writable, in all: they travel while it stands
/// still, and the node that has it keeps them twice.
pub const SHARED_FILE_BYTES_MAX: u64 = 256 << 20;
/// What home tells of one file by which a process looks at itself (`/proc/self/status`, ...).
pub const OWN_FILE_BYTES_MAX: usize = 64 << 10;
/// The longest text of one that a body makes up (`/proc/self/maps`); a longer one is read at home.
pub const OWN_TEXT_BYTES_MAX: usize = 8 << 20;
/// How many of them a process may have open away; more are read at home.
pub const OWN_FILES_MAX: usize = 64;
/// Guest memory in one page message.
pub const PAGE_RUN_BYTES_MAX: usize = 1 << 20;
/// Places of it.
pub const PAGE_RUNS_MAX: usize = 1024;
/// What memory is counted in.
pub const PAGE_BYTES: u64 = 4096;
/// How long a process may stand still at most, as far as anybody may say.
pub const FREEZE_BUDGET_MS_MAX: u32 = 60_000;
/// What an owner may leave of a network to one move, bits a second: less moves nothing, and more
/// there is not.
pub const BANDWIDTH_MIN: u64 = 10_000_000;
pub const BANDWIDTH_MAX: u64 = 1_000_000_000_000;
/// Phases of one move.
pub const PHASES_MAX: usize = 32;
/// Pages of one message that are told by their hashes: as much memory as one run.
pub const HASHED_PAGES_MAX: usize = PAGE_RUN_BYTES_MAX / 4096;
/// What people call a node: a label of a host name may have as many.
pub const NODE_NAME_BYTES_MAX: usize = 63;
/// What one guest may leave of its memory on a node, and what is looked through for one that comes.
pub const IMPRINT_BYTES_MAX: u64 = 8 << 30;
/// What so many guests have left is looked through for one that comes.
pub const IMPRINTS_PER_GUEST_MAX: usize = 8;
/// What so many guests have left is kept by one node.
pub const IMPRINTS_MAX: usize = 64;
/// How long a node keeps what a guest has left.
pub const IMPRINT_AGE_MAX: Duration = Duration::from_secs(600);
/// Connections for memory contents, besides the link.
pub const STREAMS_MAX: usize = 8;
/// Pages of one message that come behind a process: 256 KiB take 2 ms on a gigabit.
pub const LATE_BYTES_MAX: usize = 256 << 10;
/// Ranges of memory that come behind one process.
pub const LATE_RANGES_MAX: usize = 1 << 18;
/// One message between a daemon and its supervisors, or a tool and its daemon.
pub const CONTROL_BYTES_MAX: usize = 4 << 20;

const _: () = assert!(AHEAD_PART_BYTES + 64 < 2 * FRAME_PLAIN_BYTES_MAX);
const _: () = assert!(CALL_BYTES_MAX + CALL_SEGMENTS_MAX * 64 < MESSAGE_BYTES_MAX);
const _: () = assert!(PAGE_RUN_BYTES_MAX + PAGE_RUNS_MAX * 32 < MESSAGE_BYTES_MAX);
