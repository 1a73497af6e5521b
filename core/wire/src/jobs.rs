//! Parallel jobs: what the launcher of a job (`osmos job run`) and its job server on each node say
//! to each other, and what tools are told of jobs ([decision
//! 0053](../../../docs/decisions/0053-parallel-jobs.md)).
//!
//! A job is one command that is started several times; each of these processes is a rank. The
//! launcher stands for the job where its user is. A job server begins the ranks of one node, as
//! whom the user is there, and watches them.
//!
//! ```text
//!   launcher                       job server
//!      │ ── Prepare ─────────────────► │  looks whether the command can begin
//!      │ ◄───────── Prepared/Refused ─ │
//!      │ ── Start (first rank, count)► │  when all nodes are prepared
//!      │ ◄──────────── Started, ...  ─ │
//!      │ ◄──── Output ── Ended ──────  │  as much as was not taken yet: [`STREAM_WINDOW_BYTES`]
//!      │ ── Input ── Taken ── Signal ► │
//!      │ ── End ─────────────────────► │  nothing is left of the ranks
//!      │ ◄───────────────────── Gone ─ │
//! ```
//!
//! A message is in postcard, and behind it, if it carries content, that content as it is
//! ([`crate::files::decode`]): [`STREAM_BYTES_MAX`] of it at most.

use crate::bounded;
use crate::control::Placement;
use crate::freeze_budget::FreezeBudget;
use crate::ids::{GlobalPid, NodeId};
use crate::supervisor::Way;
use serde::{Deserialize, Serialize};

/// Ranks of one job.
pub const RANKS_MAX: u32 = 16_384;
/// Ranks of one job on one node: each takes three descriptors of its job server.
pub const RANKS_PER_NODE_MAX: u32 = 4_096;
/// Nodes of one job.
pub const JOB_NODES_MAX: usize = 1_024;
/// Characters of a job's name.
pub const JOB_NAME_CHARS_MAX: usize = 64;
/// Words of a command, and variables of its environment.
pub const WORDS_MAX: usize = 32_768;
/// All bytes of these: what one exec takes by default on Linux (a quarter of a stack of 8 MiB).
pub const PROGRAM_BYTES_MAX: usize = 2 << 20;
/// Bytes of one message of a stream.
pub const STREAM_BYTES_MAX: usize = 32 << 10;
/// Bytes of one stream of one rank that are on their way, or wait at the other end.
pub const STREAM_WINDOW_BYTES: usize = 64 << 10;
/// The same of all streams of one node.
pub const NODE_WINDOW_BYTES: usize = 4 << 20;
/// Resource limits and processors that a command is given.
pub const LIMITS_MAX: usize = 16;
pub const PROCESSORS_MAX: usize = 4_096;

/// What a daemon says to a job server that it has started, over the socket that this has as its
/// standard input. A launcher says the same to the one that it starts on its own node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToServer {
    /// First of all.
    Serve {
        key: [u8; 32],
        job: GlobalPid,
        node: NodeId,
        /// As whom it is to run.
        uid: u32,
        gid: u32,
        /// Groups of the user, where it has to become him; none: it is him already.
        groups: Option<Vec<u32>>,
    },
    /// Whoever was to come has come: the connection is ancillary data.
    Connection,
    /// The owner of the node has no more jobs of others, or it goes down.
    End,
}

/// What a launcher says to a job server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToRanks {
    /// First of all, once.
    Prepare(Box<Program>),
    /// Begin these ranks, which follow each other. Once.
    Start { first: u32, count: u32 },
    /// For the standard input of a rank, with content; without: that is its end.
    Input { rank: u32 },
    /// Of what a rank has written so much was taken: there is room for as much again.
    Taken { rank: u32, stream: Stream, bytes: u32 },
    /// To one rank and all that it has started, or to all.
    Signal { rank: Option<u32>, signal: i32 },
    /// Kill what is left.
    End,
}

/// What a job server says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromRanks {
    Prepared,
    /// The command cannot begin there; nothing has.
    Refused(#[serde(deserialize_with = "bounded::line::<_, { bounded::LINE_CHARS_MAX }>")] String),
    Started {
        rank: u32,
        pid: i32,
    },
    /// It never ran: the number of the error, as of errno(3).
    NotStarted {
        rank: u32,
        errno: i32,
    },
    /// It runs, and Osmos has nothing to do with it: it stays there.
    NotManaged {
        rank: u32,
        #[serde(deserialize_with = "bounded::line::<_, { bounded::LINE_CHARS_MAX }>")]
        why: String,
    },
    /// What a rank has written, with content; without: that is the end of the stream.
    Output {
        rank: u32,
        stream: Stream,
    },
    /// Of its input so much was taken.
    InputTaken {
        rank: u32,
        bytes: u32,
    },
    /// The rank is closed to input.
    InputClosed {
        rank: u32,
    },
    Ended {
        rank: u32,
        /// As of wait(2).
        status: i32,
    },
    /// Nothing is left of any rank, nor of what they have started.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stream {
    Output,
    Error,
}

/// What each rank runs, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    #[serde(deserialize_with = "bounded::list::<_, _, WORDS_MAX>")]
    pub command: Vec<Word>,
    /// `NAME=value`. `OSMOS_RANK` and the like are added.
    #[serde(deserialize_with = "bounded::list::<_, _, WORDS_MAX>")]
    pub environment: Vec<Word>,
    pub directory: Word,
    pub umask: u32,
    /// Of all nodes.
    pub size: u32,
    /// Who has an input; others have `/dev/null`.
    pub input: Input,
    pub nice: Option<i32>,
    #[serde(deserialize_with = "bounded::list::<_, _, PROCESSORS_MAX>")]
    pub processors: Vec<u32>,
    #[serde(deserialize_with = "bounded::list::<_, _, LIMITS_MAX>")]
    pub limits: Vec<ResourceLimit>,
    /// It is stopped before its first instruction, until it is told to continue.
    pub is_suspended: bool,
    /// What it leaves behind when it has ended goes on, as with rsh(1).
    pub leaves_daemons: bool,
    pub moving: Moving,
}

impl Program {
    /// What all words take.
    pub fn bytes(&self) -> usize {
        let words = self.command.iter().chain(&self.environment).chain([&self.directory]);
        words.map(|word| word.0.len() + 1 + size_of::<usize>()).sum()
    }
}

/// Bytes of Linux: a word of a command, a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word(
    #[serde(deserialize_with = "bounded::list::<_, _, PROGRAM_BYTES_MAX>")] pub Vec<u8>,
);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    None,
    #[default]
    First,
    All,
}

impl Input {
    pub fn is_for(self, rank: u32) -> bool {
        match self {
            Input::None => false,
            Input::First => rank == 0,
            Input::All => true,
        }
    }
}

/// By setrlimit(2); none: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    pub resource: u32,
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

/// How Osmos is to treat a rank: as options of `osmos run` have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    pub placement: Placement,
    pub storm_ms: Option<u64>,
    pub freeze_budget_ms: Option<FreezeBudget>,
    pub way: Way,
}

/// A job, as its launcher tells it to its daemon, and this to tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its launcher: its node, and its pid there.
    pub job: GlobalPid,
    pub name: String,
    pub uid: u32,
    #[serde(default)]
    pub user: Option<String>,
    pub command: String,
    pub state: JobState,
    /// Seconds since the epoch.
    pub started: f64,
    #[serde(default)]
    pub ended: Option<f64>,
    pub ranks: u32,
    pub running: u32,
    /// Ranks that have ended, and not with exit status 0.
    pub failed: u32,
    /// Where ranks have begun, and how many.
    pub nodes: Vec<(NodeId, u32)>,
    /// Of the launcher, when it has ended.
    #[serde(default)]
    pub exit_status: Option<u8>,
    /// Where its output is kept, if it is.
    #[serde(default)]
    pub logs: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    Starting,
    Running,
    Suspended,
    Ending,
    Ended,
}

/// One rank, as tools are told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    pub rank: u32,
    /// Where it began: its home.
    pub node: NodeId,
    #[serde(default)]
    pub pid: Option<i32>,
    /// `starting`, `running`, or how it has ended: `exit status 1`, `killed by SIGSEGV (core
    /// dumped)`, `lost with node 3`.
    pub state: String,
}

/// What is asked of a launcher by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum JobAsk {
    /// The job with its ranks.
    Show,
    /// Answered when it has ended.
    Wait,
    Signal {
        signal: i32,
        #[serde(default)]
        rank: Option<u32>,
    },
    /// Nothing is to be left.
    Kill,
}
