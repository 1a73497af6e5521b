//! What a body and its deputy say to each other, and how one system call travels.
//!
//! A call is described by its number, its six arguments and the pieces of guest memory
//! ([`Segment`]) that it reads or writes. The deputy lays the segments out in its staging area,
//! patches the pointers and executes; what the call wrote comes back segment by segment.

use crate::bounded;
use crate::clocks::Readings;
use crate::files::Offer;
use crate::freeze_budget::FreezeBudget;
use crate::hashes::{Lacking, PageHashes};
use crate::ids::{GuestAddr, GuestTid, HomePid, Ticket};
use crate::image::{
    Backing, Draft, Image, PackedPages, Pages, Priority, Prospect, SharedMemory, Span, Thread,
};
use crate::limits::{
    BACKINGS_MAX, BOOT_BYTES_MAX, CALL_SEGMENTS_MAX, DISCARDS_MAX, SHARED_MEMORY_MAX, THREADS_MAX,
};
use crate::move_limits::MoveLimits;
use crate::processor_time::{Clock, ProcessorTime};
use crate::read_ahead;
use crate::supervisor::{Berth, Filled, MoveReport, Progress, Reason};
use serde::{Deserialize, Serialize};

/// Which way the bytes of a segment travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    In,
    Out,
    InOut,
}

/// Where the address of a staged segment has to be written before the call executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// Argument 0..5 of the call.
    Argument(u8),
    /// Eight bytes at `offset` inside an earlier segment (an iovec, a message header).
    Pointer { segment: u16, offset: u32 },
}

/// How many bytes of an `Out` or `InOut` segment are worth sending back after success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Yield {
    /// All of it, if the call did not fail.
    Whole,
    /// As many as the call's result says (read, readlink, getdents).
    Result,
    /// The result says how many units of this many bytes (epoll_wait: 12).
    ResultUnits(u16),
    /// A head of this many bytes, then as many as the result says (msgrcv: 8).
    ResultAfter(u16),
    /// What is left of the result after the `Result`-yielding segments before it (readv).
    ResultRest,
    /// All of it, even if the call failed (timeouts that Linux updates on interruption).
    Always,
    /// As many as the little-endian u32 at `offset` of that segment says after the call, at most
    /// the segment (a socket address, an option value).
    Counted { segment: u16, offset: u32 },
}

/// One piece of guest memory that a forwarded call reads or writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    pub guest: GuestAddr,
    pub length: u32,
    pub direction: Direction,
    pub place: Place,
    pub yields: Yield,
    /// The bytes, for `In` and `InOut`; empty for `Out`.
    #[serde(with = "bytes")]
    pub data: Vec<u8>,
}

/// One system call of one thread on its way to the deputy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub tid: GuestTid,
    /// Counts this thread's calls since the process left home: the key of at-most-once.
    pub sequence: u64,
    /// How many [`ToAway::Signal`]s for this thread the body had received. If the deputy has sent
    /// more, the call crossed a signal: it is not executed, and restarts after the handler.
    pub signals_seen: u64,
    pub number: u32,
    pub arguments: [u64; 6],
    #[serde(deserialize_with = "bounded::list::<_, _, CALL_SEGMENTS_MAX>")]
    pub segments: Vec<Segment>,
}

/// Result of a call that makes a thread or a process, if home has made none for want of room: the
/// process makes it there. Linux has no such result for one (ENOSYS).
pub const NO_ROOM_FOR_TASK: i64 = -38;

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    pub tid: GuestTid,
    pub sequence: u64,
    /// The raw result: a value, `-errno`, or one of the kernel's restart codes (-512 .. -516).
    pub result: i64,
    /// (segment, bytes) for what the call wrote.
    #[serde(deserialize_with = "bounded::list::<_, _, CALL_SEGMENTS_MAX>")]
    pub outputs: Vec<Output>,
    /// Processor time of the thread at home, all in all; 0 if nobody looked.
    pub home_ns: u64,
}

/// What a call wrote into one of its segments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    pub segment: u16,
    #[serde(with = "bytes")]
    pub data: Vec<u8>,
}

/// A signal on its way to a handler in the body: the kernel's siginfo, as it is (128 bytes).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    pub tid: GuestTid,
    /// Counts the signals forwarded to this thread: one that comes twice is recognised, one that
    /// was sent into a body that was just leaving is sent again. 0 for the body's own faults.
    pub index: u64,
    pub number: i32,
    #[serde(with = "bytes")]
    pub siginfo: Vec<u8>,
}

/// Byte strings as length and bytes, not as a sequence of numbers.
pub mod bytes {
    use serde::{Deserializer, Serializer, de};
    use std::fmt;

    pub fn serialize<S: Serializer>(data: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(data)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: de::Error>(self, v: &[u8]) -> Result<Vec<u8>, E> {
                Ok(v.to_vec())
            }
            fn visit_byte_buf<E: de::Error>(self, v: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(v)
            }
        }
        deserializer.deserialize_byte_buf(Visitor)
    }
}

/// What an away supervisor is told: by the deputy, or (the image part) by the node that the body
/// moves on from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAway {
    /// An image is about to come over this link. Answered by `Welcome` or `Refused`.
    Prospect(Box<Prospect>),
    /// The image will come over another connection to the same berth. Home is this boot.
    AwaitImage {
        #[serde(deserialize_with = "bounded::line::<_, BOOT_BYTES_MAX>")]
        boot_id: String,
    },
    /// What home's clocks show (`AskTime`).
    Time(Readings),
    /// Part of a mapped file that the target lacks.
    BackingPart {
        backing: u32,
        offset: u64,
        #[serde(with = "bytes")]
        content: Vec<u8>,
    },
    /// All asked-for files are complete. Answered by `Stored`.
    BackingsSent,
    /// What the memory will be like, or is like by now. Answered by `Drafted` or `Refused`, when
    /// all that was sent before has been taken in.
    Draft(Box<Draft>),
    Image(Box<Image>),
    /// More threads of that image.
    Threads(#[serde(deserialize_with = "bounded::list::<_, _, THREADS_MAX>")] Vec<Thread>),
    /// Any number of times, after a draft or the image: the last counts.
    Pages(Pages),
    /// Memory that is untouched again, from address to address.
    Discard(#[serde(deserialize_with = "bounded::list::<_, _, DISCARDS_MAX>")] Vec<Span>),
    /// After a draft, if the target remembers earlier guests: what it has of these pages it puts
    /// there. Answered by `Lacks`, in order.
    Hashes(PageHashes),
    /// Up to so many connections are made for memory contents ([`crate::stream`]); what follows
    /// here comes when they are made.
    Streams {
        count: u32,
    },
    /// So many parts have gone over those connections, in all: what follows here comes after them.
    Streamed {
        parts: u64,
    },
    /// One more connection is made, for memory that is to come behind the process
    /// ([`crate::late`]).
    LateLink,
    /// Memory that is discarded, because it comes behind the process, but for what comes before
    /// by `Pages`.
    Late(#[serde(deserialize_with = "bounded::list::<_, _, DISCARDS_MAX>")] Vec<Span>),
    /// So many bytes come behind the process in all: that both mean the same.
    LateBytes(u64),
    /// Some of the memory that is as home has it, after the pages of a body that moves on.
    Unchanged(#[serde(deserialize_with = "bounded::list::<_, _, DISCARDS_MAX>")] Vec<Span>),
    /// Answered by `Restored` or `Refused`.
    ImageSent,
    /// The body is the process from now on.
    Run,
    Reply(Reply),
    /// Before the reply to a call that maps a file, if it may be mapped where the body is.
    FileToMap(FileToMap),
    /// Before the reply to a call that makes a process: by what its own deputy will come to the
    /// child that the body makes.
    Child {
        child: GuestTid,
        /// As home's daemon knows it.
        pid: HomePid,
        ticket: Ticket,
        key: [u8; 32],
        /// The memory of `Shares` that home did not know, as it is called there now.
        #[serde(deserialize_with = "bounded::list::<_, _, SHARED_MEMORY_MAX>")]
        shared: Vec<SharedMemory>,
    },
    Signal(Signal),
    /// The process was stopped (job control), or continued.
    Stop,
    Continue,
    /// A thread has got this priority at home.
    Priority {
        tid: GuestTid,
        priority: Priority,
    },
    /// Memory that home has as it was when the process left, or as it was sent since, and that need
    /// not be sent unless it has changed (`ComesAhead`, `AsksHeld`), from address to address. More
    /// follows, or not.
    Holds {
        #[serde(deserialize_with = "bounded::list::<_, _, DISCARDS_MAX>")]
        spans: Vec<Span>,
        is_last: bool,
    },
    /// Home can take nothing in before the image (`ComesAhead`).
    Unready,
    /// Freeze, and send the image here; memory may come before, so that it stands still for no
    /// longer than that.
    Recall {
        freeze_budget: FreezeBudget,
        limits: MoveLimits,
    },
    /// Send the image to that berth, and have the process stand still for no longer than that if
    /// it can be.
    MoveOn {
        berth: Berth,
        freeze_budget: FreezeBudget,
        limits: MoveLimits,
    },
    /// The body need not move on any more. Answered by `Stayed`, unless it is frozen by then.
    CallOff(Reason),
    /// The move that was under way is off: go on running.
    Resume,
    /// Home has all memory of a process that does not come alone (`ImageSent`), and waits for
    /// `MemoryIsIn` or `Stayed`.
    HasMemory,
    /// And everything else; it waits for `GoesHome` or `Stayed`.
    Prepared,
    /// The process lives elsewhere, or has ended: destroy the body.
    Release,
    /// The call is not executed. The thread makes it once the process is home.
    Decline {
        tid: GuestTid,
        sequence: u64,
        because: Declined,
    },
    /// Answers `ReadsOwn`.
    OwnFile(OwnFileTold),
    /// What a thread has just opened lies on some node, and may be one that the body can read and
    /// write where it is, should that pay. The reply comes behind it.
    Opened(Opened),
    /// Answers `WantsFile`.
    DirectFile(DirectFile),
    Ahead(read_ahead::Told),
}

/// Why home does not make a call for a body that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Declined {
    /// It would change a file that the process has mapped shared.
    SharedFile,
    /// It reads a file that shows the process, in a way that its body knows nothing of.
    OwnFile,
    /// It gives the process other ids.
    Credentials,
    /// It ends the first thread, while others go on.
    FirstThread,
    /// It makes another program of the process, as it can be made only of one that is home.
    Exec,
}

/// What home has of a file by which a process looks at itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnFileTold {
    pub tid: GuestTid,
    /// Of the question.
    pub id: u64,
    /// The file as the kernel at home shows it; empty if it cannot be read from elsewhere.
    #[serde(with = "bytes")]
    pub text: Vec<u8>,
    /// How home names the files that the process maps, in the order of the image's backings; none
    /// if there is something among its mappings that only home can name.
    #[serde(deserialize_with = "bounded::list::<_, _, BACKINGS_MAX>")]
    pub mapped: Vec<MappedName>,
}

/// A file in the directory of all nodes' files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    pub tid: GuestTid,
    /// Of the call that has opened it.
    pub sequence: u64,
    pub descriptor: i32,
    pub size: u64,
}

/// A file that the body can read and write where it is, instead of at home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectFile {
    pub descriptor: i32,
    /// Of the question.
    pub id: u64,
    pub position: u64,
    /// None: it cannot.
    pub offer: Option<Offer>,
}

/// A file that a thread is about to map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileToMap {
    pub tid: GuestTid,
    /// Of the call.
    pub sequence: u64,
    /// Its place in the list of files that the process maps: among them, or next to the last.
    pub index: u32,
    pub backing: Backing,
}

/// How `/proc/PID/maps` names a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedName {
    /// As `stat` packs them (`makedev`).
    pub device: u64,
    pub inode: u64,
    #[serde(with = "bytes")]
    pub name: Vec<u8>,
}

/// What an away supervisor tells the deputy (or, first two, the source of an image).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToHome {
    /// The berth takes the process; these files have to be sent.
    Welcome {
        #[serde(deserialize_with = "bounded::list::<_, _, BACKINGS_MAX>")]
        missing: Vec<u32>,
        /// The node has pages of earlier guests of this user: to ask by hashes is worth it.
        remembers: bool,
        /// It can have pages come behind the process.
        serves_faults: bool,
    },
    Refused(Reason),
    /// Asks home for the time. Answered by `Time`, at once.
    AskTime,
    Stored,
    /// The draft's memory is there, with what has been sent of its contents.
    Drafted,
    /// Which of the pages that were told by their hashes have to be sent; the others are there.
    Lacks(Lacking),
    /// Complete, and ready to run.
    Restored,
    Running,
    Call(Call),
    /// Before a call that makes a process: all shared memory that the two will have in common, in
    /// order. What home does not know yet it has named in its answer (`ToAway::Child`).
    Shares(
        #[serde(deserialize_with = "bounded::list::<_, _, SHARED_MEMORY_MAX>")] Vec<SharedMemory>,
    ),
    /// The thread has had the reply to this call, and has made no other since: what the call has
    /// read need not be kept any longer.
    Taken {
        tid: GuestTid,
        sequence: u64,
    },
    /// A thread that was restored with a call in flight waits for its reply again.
    Awaits {
        tid: GuestTid,
        sequence: u64,
    },
    /// A fault handler runs, a mask was changed without a call, or a thread has begun: what it
    /// blocks.
    MaskChanged {
        tid: GuestTid,
        mask: u64,
    },
    /// The body comes home and runs still: what its memory is like by now, and where its program
    /// break is, but for the rest of a page. Answered by `Holds` or `Unready`. Pages may follow.
    ComesAhead {
        draft: Box<Draft>,
        heap_end: GuestAddr,
    },
    /// The process needs its home; it is frozen, its image follows.
    NeedsHome(Reason),
    /// Frozen as asked (`Recall`); the image follows.
    Frozen,
    Image(Box<Image>),
    Threads(#[serde(deserialize_with = "bounded::list::<_, _, THREADS_MAX>")] Vec<Thread>),
    /// After an image: which memory need not be sent? Answered by `Holds`, or `Resume`. What was
    /// sent ahead.
    AsksHeld(Box<MoveReport>),
    /// As `ToAway::Pages`, after `Holds` or an image.
    Pages(Pages),
    /// The same, compressed, where that makes them arrive sooner.
    PackedPages(PackedPages),
    /// As `ToAway::Discard`.
    Discard(#[serde(deserialize_with = "bounded::list::<_, _, DISCARDS_MAX>")] Vec<Span>),
    /// If others that it shares memory with come home, too, home waits for them twice: answered by
    /// `HasMemory`.
    ImageSent {
        awaits_others: bool,
    },
    /// Home has the memory of all that a process shares memory with: whatever it writes to it now
    /// stays. Answered by `Prepared`.
    MemoryIsIn,
    /// All that a process shares memory with is at home: it runs there from now on.
    GoesHome,
    /// All that came behind the body is there.
    Filled(Filled),
    /// A few times a second while a body that moves on is copied ahead.
    Progress(Progress),
    /// The image has reached the next node (`MoveOn`), which has restored it. What it took so far:
    /// the process is still frozen.
    MovedOn(Box<MoveReport>),
    /// The body could not be frozen, sent or received: it goes on running here.
    Stayed(Reason),
    /// The body had to be ended here, and the process is lost with it.
    Gone(Reason),
    /// The body of the process that this thread has made waits for its deputy. Or there is none:
    /// the child ends as if it had never been, and whoever asked for it asks again at home.
    ChildMade {
        tid: GuestTid,
        child: GuestTid,
        has_body: bool,
    },
    /// About once a second, and before the process ends by its own call: processor time of all
    /// stays away, memory now.
    Usage {
        away: ProcessorTime,
        rss_bytes: u64,
    },
    /// Before a call by which the process begins another program: its clock, and that of its only
    /// thread, because nobody can tell them afterwards.
    Clocks {
        process: Clock,
        thread: Clock,
    },
    /// What was written to files that the process has mapped shared: any bytes, not whole pages.
    /// What is sent behind it comes after it.
    Written(Pages),
    /// A thread reads, from its start, a file by which its process looks at itself. Answered by
    /// `OwnFile`.
    ReadsOwn {
        tid: GuestTid,
        id: u64,
        descriptor: i32,
    },
    /// The body has read such a file up to here: whoever reads it next, here or at home, goes on
    /// there.
    Seeks {
        descriptor: i32,
        position: u64,
    },
    /// Can the body have this file itself? No call is under way that is about it. Answered by
    /// `DirectFile`.
    WantsFile {
        descriptor: i32,
        id: u64,
    },
    /// Said before anything that might follow from it: up to here the body has read or written such
    /// a file by itself, and whether it has written.
    UsedDirectly {
        descriptor: i32,
        position: u64,
        has_written: bool,
    },
    Ahead(read_ahead::Asked),
}
