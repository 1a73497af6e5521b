//! What a node daemon and the supervisors it starts say to each other, over an inherited unix
//! socket (SOCK_SEQPACKET, descriptor 3 of the supervisor, one postcard message a packet).
//!
//! A supervisor outlives its daemon. It then calls at the socket [`RETURN_SOCKET_NAME`] of the
//! node's runtime directory until the next daemon answers, which may be of another version of
//! Osmos: what is said first is a [`Greeting`] and a [`Welcome`], and those are the same in all
//! versions.
//!
//! A *home supervisor* (`osmos deputy`) exists for as long as its process is away or on the move:
//! it holds the deputy. An *away supervisor* (`osmos body`) holds one body. Both run as the owner
//! of the process, so a crash or a take-over of one costs one process, never the node.

use crate::bounded::{self, LINE_CHARS_MAX, WORD_CHARS_MAX};
use crate::freeze_budget::FreezeBudget;
pub use crate::greeting::{GREETING_BYTES, Greeting, Welcome};
use crate::ids::{GuestTid, HomePid, NodeId, Ticket};
use crate::limits::{BACKINGS_MAX, COMMAND_BYTES_MAX, GROUP_MAX, PHASES_MAX, SHARED_MEMORY_MAX};
use crate::memory::Span;
use crate::memory_group::{Companion, GROUP_PIDS_MAX, MemoryId};
use crate::move_limits::MoveLimits;
use crate::processor::Processor;
use crate::processor_time::{PastClock, ProcessorTime};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Name of the socket in a node's runtime directory at which supervisors find their next daemon.
pub const RETURN_SOCKET_NAME: &str = "return.sock";

/// Of everything below that is said after a [`Welcome`]: one more with each change. A daemon of
/// another version sends the process home, and its next supervisor is of the daemon's own.
pub const SUPERVISOR_VERSION: u16 = 7;

/// All that a daemon says after the [`crate::assignment`], to either half.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromDaemon<T> {
    /// The oldest word that it has not acknowledged yet is on its record: the supervisor need not
    /// keep that for the next daemon.
    Noted,
    Order(T),
}

/// A place reserved on another node for one arriving process, and how to reach it.
///
/// To connect: open TCP to `address`, send [`Preface`] in clear, then speak
/// [`crate::secure::Handshake`] keyed by `key`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Berth {
    pub node: NodeId,
    pub address: SocketAddr,
    pub ticket: Ticket,
    pub key: [u8; 32],
}

/// What the first 24 bytes of a TCP connection to a node say it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Daemon to daemon.
    Peer,
    /// A deputy and its body: the authority over the berth.
    Deputy,
    /// Where a body that moves on sends its image.
    Image,
    /// More memory contents of a process that comes by one of the two before: [`crate::stream`].
    Stream,
    /// Pages that a body still lacks while it runs: [`crate::late`].
    Late,
    /// A user's mount of this node's files: [`crate::files`].
    Files,
    /// The launcher of a job, to the ranks on this node: [`crate::jobs`].
    Job,
}

/// The clear-text head of a connection: `OSMOS\x01`, the role, a zero byte, the ticket (zero for a
/// peer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preface {
    pub role: Role,
    pub ticket: Ticket,
}

const PREFACE_MAGIC: &[u8; 6] = b"OSMOS\x01";
/// Length of an encoded [`Preface`], bytes.
pub const PREFACE_BYTES: usize = 24;

impl Preface {
    pub fn encode(self) -> [u8; PREFACE_BYTES] {
        let mut bytes = [0; PREFACE_BYTES];
        bytes[..6].copy_from_slice(PREFACE_MAGIC);
        bytes[6] = match self.role {
            Role::Peer => 0,
            Role::Deputy => 1,
            Role::Image => 2,
            Role::Stream => 3,
            Role::Late => 4,
            Role::Files => 5,
            Role::Job => 6,
        };
        bytes[8..].copy_from_slice(&self.ticket.0);
        bytes
    }

    /// None if the bytes are not a preface of this version.
    pub fn decode(bytes: &[u8; PREFACE_BYTES]) -> Option<Preface> {
        if &bytes[..6] != PREFACE_MAGIC || bytes[7] != 0 {
            return None;
        }
        let role = match bytes[6] {
            0 => Role::Peer,
            1 => Role::Deputy,
            2 => Role::Image,
            3 => Role::Stream,
            4 => Role::Late,
            5 => Role::Files,
            6 => Role::Job,
            _ => return None,
        };
        let mut ticket = Ticket([0; 16]);
        ticket.0.copy_from_slice(&bytes[8..]);
        Some(Preface { role, ticket })
    }
}

/// A wait that a thread was put back into at home, as a restarted call. The kernel tells neither
/// which call it is (all are `restart_syscall`) nor when it ends, so whoever knew passes it on,
/// should the process leave again before it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    pub tid: GuestTid,
    /// Number of the call.
    pub number: u32,
    /// Its first argument, by which it is recognised.
    pub argument: u64,
    /// On home's monotonic clock, nanoseconds; only of waits on futexes and of those that Linux
    /// does not restart by itself after a stop (epoll_wait and its like, signal(7)).
    pub until_ns: Option<u64>,
    /// How often the thread has gone to sleep when it is in that wait again. Another call with the
    /// same argument, later, is told from it by that.
    pub sleeps: Option<u64>,
}

/// Daemon to home supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToDeputy {
    /// Before `Leave`: what the last supervisor of this process said when it came home.
    Waits(Vec<Wait>),
    /// The same, of its clocks; in parts of [`CLOCKS_PER_PACKET`].
    Clocks(Vec<PastClock>),
    /// Before `Leave`: the program was told to use no more of a processor than this.
    Baseline(Box<Processor>),
    /// Before `Leave`: the process was started with `osmos run --mobile`, and may have that one
    /// filter.
    Mobile,
    /// Before `Group`: shared memory that a member has, which comes as ancillary data. It tells
    /// what of it is used, and a supervisor may not be allowed to open it.
    SharedMemory,
    /// Before `Leave`: the process leaves its home together with the other members, with which it
    /// shares memory. The page by which their supervisors agree comes as ancillary data. To the one
    /// for which the berth was asked for, the others are its companions.
    Group {
        #[serde(deserialize_with = "bounded::list::<_, _, GROUP_PIDS_MAX>")]
        members: Vec<HomePid>,
        #[serde(deserialize_with = "bounded::list::<_, _, GROUP_MAX>")]
        companions: Vec<Companion>,
        /// As in `BoundTo`.
        #[serde(deserialize_with = "bounded::list::<_, _, SHARED_MEMORY_MAX>")]
        named: Vec<MemoryId>,
    },
    /// Move the process to this berth, from wherever it is (home or another node).
    Leave { berth: Berth, freeze_budget: FreezeBudget, limits: MoveLimits, way: Way },
    /// The answer to `Guard`: why nobody can be kept from opening that file, if so.
    Guarded { refusal: Option<String> },
    /// A process waits that wants to open a file that is guarded for this one: it is to be home.
    Opened { by: i32 },
    /// Bring the process home.
    ComeHome { freeze_budget: FreezeBudget, limits: MoveLimits },
    /// Instead of `Leave`: the process was made by one that is away, and its body is where that of
    /// its maker is. Answered by `Moved`, `Lost` or `Ended`;
    /// by `Stayed` if it has ended already.
    Born(Box<Birth>),
    /// The move under way is not wanted any more. Answered by `Stayed`, unless the process runs
    /// elsewhere by then, or is coming home.
    CallOff { reason: Reason },
}

/// A process that was made by one that is away: what the supervisor of its maker tells its own. It
/// sleeps in the agent of its maker with all signals blocked, and its body waits in the berth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Birth {
    pub berth: Berth,
    /// As it knows itself.
    pub guest: GuestTid,
    /// Where the agent of its maker lies in its memory, and for how many threads.
    pub agent: Span,
    pub slots: u32,
    /// Dispositions of signals 1 to 64: handler, flags, restorer, mask.
    #[serde(deserialize_with = "bounded::list::<_, _, ACTIONS>")]
    pub actions: Vec<[u64; 4]>,
    pub freeze_budget: FreezeBudget,
    pub limits: MoveLimits,
    /// It has its maker's memory until it begins a program or ends: what that shares is that one's.
    pub is_vfork: bool,
    /// Device and inode of each file in its maker's list, which is the list that its body has.
    #[serde(deserialize_with = "bounded::list::<_, _, BACKINGS_MAX>")]
    pub files: Vec<(u64, u64)>,
}

const ACTIONS: usize = 64;

/// Why a process did not move, or came home: stable words for machines, and one line for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// A stable kebab-case word, e.g. `io-uring`, `unlisted-call`, `shared-memory`.
    #[serde(deserialize_with = "bounded::line::<_, WORD_CHARS_MAX>")]
    pub code: String,
    /// A lower-case fragment that names the object and the number.
    #[serde(deserialize_with = "bounded::line::<_, LINE_CHARS_MAX>")]
    pub text: String,
}

/// How the memory of a process got to where it runs now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MoveMethod {
    /// All of it while the process stood frozen.
    #[default]
    StopAndCopy,
    /// Most of it in rounds while the process ran.
    PreCopy,
    /// The same, and what was written to since came behind it, when it ran again.
    Hybrid,
    /// Nearly all of it behind the process.
    PostCopy,
}

impl MoveMethod {
    /// The stable word that tools show.
    pub fn word(self) -> &'static str {
        match self {
            MoveMethod::StopAndCopy => "stop-and-copy",
            MoveMethod::PreCopy => "pre-copy",
            MoveMethod::Hybrid => "hybrid",
            MoveMethod::PostCopy => "post-copy",
        }
    }
}

/// How the memory of a process that leaves home is to get to where it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// In rounds.
    #[default]
    PreCopy,
    /// In rounds, and behind the process if these cannot bring it near its freeze budget.
    Hybrid,
    /// Behind the process, without a round before.
    PostCopy,
    /// All of it while the process stands still.
    StopAndCopy,
}

impl Way {
    const ALL: [Way; 4] = [Way::PreCopy, Way::Hybrid, Way::PostCopy, Way::StopAndCopy];

    pub fn word(self) -> &'static str {
        match self {
            Way::PreCopy => "pre-copy",
            Way::Hybrid => "hybrid",
            Way::PostCopy => "post-copy",
            Way::StopAndCopy => "stop-and-copy",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(word: &str) -> Result<Way, String> {
        let found = Way::ALL.into_iter().find(|way| way.word() == word);
        found.ok_or_else(|| format!("`{word}` is none of `pre-copy`, `hybrid` and `post-copy`"))
    }
}

/// What became of the pages that came behind their process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filled {
    /// Pages that came because somebody waited for one of them.
    pub pages_faulted: u64,
    /// All others.
    pub pages_filled: u64,
    /// How often somebody had to wait.
    pub faults: u64,
    /// From when it ran until the last page was there.
    pub took_us: u64,
}

/// How long each phase of one move took, and what it cost. Times in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveReport {
    /// Phases in order of life, e.g. `("connect", 310)`.
    #[serde(deserialize_with = "bounded::list::<_, _, PHASES_MAX>")]
    pub phases_us: Vec<Phase>,
    /// From the first thread stopped to the first thread running again.
    pub freeze_us: u64,
    pub total_us: u64,
    pub bytes_sent: u64,
    pub method: MoveMethod,
    /// Of copying while it ran.
    pub rounds: u32,
    /// Pages of memory, each as often as it was sent.
    pub pages_sent: u64,
    /// Of memory, while it stood frozen.
    pub rest_bytes: u64,
    /// As the rounds foresaw it when they ended; None: there were none.
    pub predicted_freeze_us: Option<u64>,
    /// For how long it was to stand still at most.
    pub freeze_budget: FreezeBudget,
    /// Of memory that comes behind the process.
    pub late_bytes: u64,
}

/// How far a move is that copies memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The one under way, from 1; 0 if the process stands frozen.
    pub round: u32,
    /// Bytes of memory, so far.
    pub bytes_sent: u64,
    /// What this round has to send still, as far as is known.
    pub bytes_left: u64,
    /// The move has not begun: the process waits for pages that come behind it.
    #[serde(default)]
    pub is_filling: bool,
}

/// What a part of a move is called, and how long it took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    #[serde(deserialize_with = "bounded::line::<_, WORD_CHARS_MAX>")]
    pub name: String,
    pub us: u64,
}

/// Home supervisor to daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromDeputy {
    /// Before `CameHome`, to be given to the next supervisor of this process.
    Waits(Vec<Wait>),
    /// The same; in parts of [`CLOCKS_PER_PACKET`].
    Clocks(Vec<PastClock>),
    /// Now and then while it is on the move.
    Progress(Progress),
    /// The last of the pages that came behind the process is there.
    Filled(Filled),
    /// The process runs on `to` now.
    Moved { to: NodeId, report: MoveReport },
    /// The process is home again, a plain process with nothing attached; the supervisor ends.
    /// `reason` is `asked`, or the call or fault that needed home.
    CameHome { reason: Reason, report: MoveReport },
    /// The process was left, or put back, exactly where it was. If that is home, the supervisor
    /// ends.
    Stayed { reason: Reason },
    /// The process leaves, or was made away, and shares this file, which comes as ancillary data,
    /// with others there: whoever opens it is to wait until they are home.
    Guard,
    /// Before `Stayed`, because it shares memory with others: all of them, itself included, and
    /// which of what they share has a name, or can be had by a descriptor.
    BoundTo {
        #[serde(deserialize_with = "bounded::list::<_, _, GROUP_PIDS_MAX>")]
        members: Vec<HomePid>,
        #[serde(deserialize_with = "bounded::list::<_, _, SHARED_MEMORY_MAX>")]
        named: Vec<MemoryId>,
    },
    /// While away, about once a second and at the end: processor time of all stays away, memory,
    /// and calls forwarded since it left. Nobody says it again after the last.
    Usage { away: ProcessorTime, rss_bytes: u64, forwarded: Vec<(String, u64)>, is_last: bool },
    /// The process ended (a `wait` status word, as its parent sees it). The supervisor ends.
    Ended { wait_status: i32 },
    /// The away node was lost with the process on it; the deputy was killed.
    Lost { node: NodeId, reason: Reason },
    /// The process has made another, which nobody is to touch yet: it is where its maker is, or
    /// will never have been.
    Forked { child: HomePid },
    /// That one has a body there: it is to have a supervisor of its own.
    Born { child: HomePid, birth: Box<Birth> },
    /// To a daemon that it has just found, after all that is kept: whether a move is under way.
    Attached { is_moving: bool },
}

impl FromDeputy {
    /// Said to the next daemon as well, unless this one has noted it.
    pub fn is_kept(&self) -> bool {
        let passes = matches!(
            self,
            FromDeputy::Usage { is_last: false, .. }
                | FromDeputy::Progress(_)
                | FromDeputy::Filled(_)
                | FromDeputy::BoundTo { .. }
                | FromDeputy::Guard
        );
        !passes && !matches!(self, FromDeputy::Attached { .. })
    }
}

/// Daemon to away supervisor. `Connection` carries the connected socket as ancillary data
/// (SCM_RIGHTS), its preface already read; `Imprint` a memory file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToBody {
    /// The first message: expect one process. `guest_cgroup` is where to put the body (a directory
    /// whose `cgroup.procs` takes it), one for each controller hierarchy, empty for none.
    Expect {
        ticket: Ticket,
        key: [u8; 32],
        pid: HomePid,
        node: NodeId,
        guest_cgroup: Vec<String>,
    },
    Connection {
        role: Role,
    },
    /// On the socket of a process that a guest has made: it is a guest, and may be called.
    IsGuest,
    /// On the same: there is no process any more at home that this body would be of.
    NotComing,
    /// Before anything else, with an open `/dev/userfaultfd` as ancillary data: faults of the
    /// kernel in a guest's memory can be served, too.
    Faults,
    /// Before the connection of a deputy, with a memory file as ancillary data: what an earlier
    /// guest of the same user has left. `is_own` if that was the same process.
    Imprint {
        is_own: bool,
    },
    /// This node wants the guest gone: ask home to take it back.
    SendHome,
    /// The guest stands back behind this node's own load by that many nice values more.
    StandBack {
        nice: i32,
    },
}

/// Code of the reason of a homecoming by which a process has begun another program: nothing of it
/// came along, and its body is gone.
pub const EXEC: &str = "exec";
/// Code of the reason of a body that is gone because its process runs elsewhere now.
pub const ELSEWHERE: &str = "elsewhere";

/// Away supervisor to daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromBody {
    /// The body runs here now; `local_pid` is its pid as this node sees it.
    Running {
        local_pid: i32,
        #[serde(deserialize_with = "bounded::line::<_, COMMAND_BYTES_MAX>")]
        command: String,
    },
    /// About once a second while it runs. `threads` lists runnable threads.
    Usage { cpu_us: u64, rss_bytes: u64, runnable: Vec<GuestTid> },
    /// The body is gone from here (went home, moved on, ended or refused); the supervisor ends, or
    /// has one thing more to say.
    Gone { reason: Reason },
    /// The guest has made a process here, which home calls so: the socket that comes as ancillary
    /// data is that of its supervisor, which waits for the connection of its deputy. `is_bound`:
    /// it shares memory with the guest.
    Forked { child: HomePid, ticket: Ticket, is_bound: bool },
    /// Another process comes along with the guest, into the same sandbox. Otherwise as `Forked`.
    Joins { child: HomePid, ticket: Ticket },
    /// What the body has left, for when it comes again: a sealed memory file as ancillary data. A
    /// daemon that does not hear it has lost nothing but time.
    Imprint,
}

impl FromBody {
    /// Said to the next daemon as well, unless this one has noted it.
    pub fn is_kept(&self) -> bool {
        !matches!(
            self,
            FromBody::Usage { .. }
                | FromBody::Forked { .. }
                | FromBody::Joins { .. }
                | FromBody::Imprint
        )
    }
}

/// Size of the table of hashes that all supervisors of one user share.
pub const HASH_TABLE_BYTES: u64 = 4096 * 88;

/// What to refuse before decoding: no supervisor message is larger. A packet that is, is a fault.
pub const PACKET_BYTES_MAX: usize = 64 << 10;
/// Clocks in one packet.
pub const CLOCKS_PER_PACKET: usize = 1000;

#[cfg(test)]
mod test {
    use super::*;
    use crate::processor_time::{PROCESSOR_TIME_NS_MAX, ProcessorTime};

    #[test]
    fn a_full_part_of_clocks_fits_a_packet() {
        let time =
            ProcessorTime { user_ns: PROCESSOR_TIME_NS_MAX, system_ns: PROCESSOR_TIME_NS_MAX };
        let tid = Some(GuestTid(i32::MAX));
        let clock = PastClock { tid, started_ticks: u64::MAX, away: time, told: time };
        let message = FromDeputy::Clocks(vec![clock; CLOCKS_PER_PACKET]);
        assert!(postcard::to_stdvec(&message).unwrap().len() <= PACKET_BYTES_MAX);
    }
}
