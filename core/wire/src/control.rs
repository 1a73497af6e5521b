//! User tools to their node daemon: one JSON object a line, over the daemon's unix socket.
//!
//! The daemon knows its caller by peer credentials; requests carry no identity. The JSON shapes are
//! the ones that `--json` prints: published, so only ever extended.

mod event;
mod finding;
mod listed;
mod metrics;

pub use event::{Event, Happening, used_away};
pub use finding::Finding;
pub use listed::{COMMAND_LINE_CHARS_MAX, CpuFit, Node, Process};
pub use metrics::{Bucket, Counts, DaemonUse, Metrics, SPAN_BOUNDS_S, Spans};

use crate::forecast::{Forecast, NodeForecast, PastMove, Weighed};
use crate::freeze_budget::FreezeBudget;
use crate::ids::{GlobalPid, NodeId};
use crate::jobs::{Job, JobAsk, Rank};
use crate::limits::PAGE_BYTES;
use crate::owner::{Owned, OwnerOrder};
use crate::supervisor::{Berth, MoveMethod, MoveReport, Progress, Way};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Name of the control socket in a node's runtime directory.
pub const SOCKET_NAME: &str = "control.sock";
/// A request line longer than this is refused: requests are small, only replies may be large.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// Where the daemon of the user `uid` keeps its control socket: `/run/osmos` for root, `osmos` in
/// the user's `$XDG_RUNTIME_DIR` or else `/tmp/osmos-UID` for others.
pub fn runtime_dir_default(uid: u32, xdg_runtime_dir: Option<PathBuf>) -> PathBuf {
    match xdg_runtime_dir {
        _ if uid == 0 => PathBuf::from("/run/osmos"),
        Some(dir) if dir.is_absolute() => dir.join("osmos"),
        _ => PathBuf::from(format!("/tmp/osmos-{uid}")),
    }
}

/// What a tool asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// Put the calling process (by peer credentials) under Osmos; it is about to exec its command.
    Manage(ManageOptions),
    /// Put the running process `pid` under Osmos.
    Adopt {
        pid: i32,
        /// As for a command that is managed; as Osmos thinks best if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        options: Option<Box<ManageOptions>>,
        /// It is a rank of that job, and the caller its job server: it ends with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<GlobalPid>,
    },
    /// Move a process whose home is this node. Answered when the move has ended. It is called off
    /// if the caller is gone by then.
    Migrate {
        pid: i32,
        to: Destination,
        /// From this move on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        freeze_budget_ms: Option<FreezeBudget>,
        /// Of this move; as for all moves of the process if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        way: Option<Way>,
        /// `Progress` comes before the answer, and the caller calls the move off by closing its
        /// half of the connection: it still gets the answer.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_watched: bool,
    },
    /// The processes of this node: born here (wherever they run) and guests.
    Processes,
    Nodes,
    /// Why the process is where it is: its last decisions, moves and places.
    Why {
        pid: i32,
    },
    /// What would become of a process of this node, born here or a guest, if it went there?
    WhatIf {
        pid: i32,
        to: NodeId,
    },
    /// What would another node change that is idle?
    WhatIfNode {
        cores: u32,
        speed: f64,
        memory_bytes: u64,
    },
    /// The owner of this node says what others may have of it.
    Owner(OwnerOrder),
    /// Events from now on (`follow`) after those already recorded.
    Events {
        follow: bool,
    },
    /// Make a token with which another node may join, valid once.
    Token,
    /// Join the cluster that the token belongs to.
    Join {
        address: String,
        token: String,
    },
    /// This node leaves its cluster: guests go home, own processes come home, the others forget it.
    Leave,
    /// Remove a member that is lost; one that is not only if `force`.
    Forget {
        node: NodeId,
        force: bool,
    },
    /// Give the cluster another secret.
    RenewSecret,
    /// Guests go home, own processes come home, the daemon ends.
    Down,
    /// The daemon ends and leaves everything where it is to the next one.
    HandOver,
    Status,
    /// What this node measures and has counted.
    Metrics,
    /// What this node's machine has for Osmos, and what it lacks.
    Doctor,
    /// Send a signal, by its number, to a process whose home is this node, as the caller.
    Signal {
        pid: i32,
        signal: i32,
    },
    /// Have another node answer; this one may be named, too. Its replies come as they are.
    At {
        node: NodeId,
        #[serde(rename = "ask")]
        request: Box<Request>,
    },
    /// Have all nodes answer, this one included. Each reply says of which node it is, one that does
    /// not answer has an error said of it, and `AllAnswered` comes last.
    Everywhere {
        #[serde(rename = "ask")]
        request: Box<Request>,
    },
    /// Serve the files of the node that answers to the caller, or to a user whom root names.
    ServeFiles {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<u32>,
    },
    /// What the command `pid` that was managed as a timed one, and all its descendants that have
    /// ended, have used away. Answered when it is known of all of them, and once.
    TimeAway {
        pid: i32,
    },
    /// How a job of so many ranks is best spread now: over these nodes, or all that may be used.
    Spread {
        ranks: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        per_node: Option<u32>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<NodeId>,
    },
    /// Have a job server started on the node that answers, for a job of the caller or of a user
    /// whom root names.
    ServeJob {
        job: GlobalPid,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<u32>,
    },
    /// The caller is the launcher of this job, for as long as the connection is there. Said again
    /// whenever something of it changes.
    HoldJob {
        of: Box<Job>,
        /// Where the launcher hears what is asked of it: an abstract unix socket.
        socket: String,
    },
    /// The jobs whose launchers are on this node, and those that have ended lately.
    Jobs,
    /// Ask the launcher of a job on this node.
    AskJob {
        pid: i32,
        #[serde(flatten)]
        ask: JobAsk,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManageOptions {
    pub placement: Placement,
    /// Move to a random node about every this many milliseconds.
    pub storm_ms: Option<u64>,
    /// The program is to use no more of a processor than all nodes have.
    #[serde(default)]
    pub cpu_baseline: bool,
    /// How long it may stand still for a move; as the node's owner has said if not given.
    #[serde(default)]
    pub freeze_budget_ms: Option<FreezeBudget>,
    /// How its memory is to go along when it leaves home, where an order does not say otherwise.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub way: Way,
    /// It runs under a filter of ours that has io_uring_setup answer ENOSYS, and under no other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_mobile: bool,
    /// Somebody will ask what it has used (`TimeAway`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_timed: bool,
}

/// Where a process may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Anywhere, as the brain decides.
    Balanced,
    /// Never leaves home by itself.
    Home,
    /// On that node as soon as it runs, and it stays there.
    Node(NodeId),
    /// On the node that promises the most now, balanced from then on.
    Best,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Destination {
    Home,
    Best,
    Node(NodeId),
}

/// What the daemon answers. `Event` repeats while events are followed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
    Done,
    Managed {
        node: NodeId,
        daemon_pid: i32,
        /// What the program is not to use of this processor, by name, if it keeps to a baseline.
        #[serde(default)]
        left_out: Option<Vec<String>>,
    },
    Processes {
        processes: Vec<Process>,
    },
    Nodes {
        nodes: Vec<Node>,
    },
    Migrated(Migration),
    Progress(Progress),
    Why {
        process: Process,
        decisions: Vec<Decision>,
        /// At this moment; none if that is not known here.
        #[serde(default)]
        now: Option<Weighed>,
        #[serde(default)]
        moves: Vec<PastMove>,
    },
    Forecast(Forecast),
    NodeForecast(NodeForecast),
    Owned(Owned),
    Event(Event),
    EventsEnd,
    /// What a node has said, asked by `Everywhere`.
    From {
        node: NodeId,
        of: Box<Reply>,
    },
    AllAnswered,
    Token {
        token: String,
    },
    Status(Box<Status>),
    Metrics(Box<Metrics>),
    Findings {
        /// Of the daemon.
        version: String,
        findings: Vec<Finding>,
    },
    TimeAway {
        user_s: f64,
        sys_s: f64,
    },
    /// Where the caller is served, once, if he comes soon.
    FileServer(Box<Berth>),
    /// Where the job server is, likewise.
    JobServer(Box<Berth>),
    /// Ranks for each node, in the order of their ranks.
    Spread {
        nodes: Vec<(NodeId, u32)>,
    },
    Jobs {
        jobs: Vec<Job>,
    },
    /// A job, and its ranks if it still runs.
    Job {
        of: Box<Job>,
        #[serde(default)]
        members: Vec<Rank>,
    },
    Error(Failure),
}

/// A request that was not carried out: what, and the way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Stable kebab-case word.
    pub code: String,
    /// `cannot move 4711: it has an io_uring open (fd 7); it stays home`
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Migration {
    pub pid: i32,
    pub from: NodeId,
    pub to: NodeId,
    /// Who wanted it: `user`, `placed`, `storm`, `owner`, `down`; or what the brain moved it for:
    /// `balance`, `turn`, `memory`, `owner`, `share`.
    pub cause: String,
    pub phases_ms: Vec<(String, f64)>,
    pub freeze_ms: f64,
    pub total_ms: f64,
    pub bytes_sent: u64,
    /// How its memory got there: `pre-copy`, most of it while the process ran; `hybrid`, the same,
    /// and what was written to since comes behind it; `post-copy`, nearly all of it does;
    /// `stop-and-copy`.
    #[serde(default = "stop_and_copy")]
    pub method: String,
    /// Of copying while it ran.
    #[serde(default)]
    pub rounds: u32,
    /// Pages of memory, each as often as it was sent.
    #[serde(default)]
    pub pages_sent: u64,
    /// Those of them that were sent while it stood frozen.
    #[serde(default)]
    pub pages_frozen: u64,
    /// What the last round foresaw of `freeze_ms`; none: there was no round.
    #[serde(default)]
    pub predicted_freeze_ms: Option<f64>,
    /// Pages that come behind the process, when it runs there.
    #[serde(default)]
    pub pages_late: u64,
    /// For how long it was to stand still at most.
    #[serde(default)]
    pub budget_ms: FreezeBudget,
    /// What was expected of `freeze_ms` and `total_ms` when the move was ordered, by earlier moves
    /// of the process and over that link; none: nothing was.
    #[serde(default)]
    pub expected_freeze_ms: Option<f64>,
    #[serde(default)]
    pub expected_total_ms: Option<f64>,
}

fn is_usual(way: &Way) -> bool {
    *way == Way::PreCopy
}

fn stop_and_copy() -> String {
    MoveMethod::StopAndCopy.word().to_owned()
}

impl Migration {
    pub fn from_report(
        pid: i32,
        from: NodeId,
        to: NodeId,
        cause: &str,
        report: &MoveReport,
    ) -> Migration {
        let ms = |us: u64| us as f64 / 1000.0;
        Migration {
            pid,
            from,
            to,
            cause: cause.to_owned(),
            phases_ms: report.phases_us.iter().map(|of| (of.name.clone(), ms(of.us))).collect(),
            freeze_ms: ms(report.freeze_us),
            total_ms: ms(report.total_us),
            bytes_sent: report.bytes_sent,
            method: report.method.word().to_owned(),
            rounds: report.rounds,
            pages_sent: report.pages_sent,
            pages_frozen: report.rest_bytes / PAGE_BYTES,
            predicted_freeze_ms: report.predicted_freeze_us.map(ms),
            budget_ms: report.freeze_budget,
            pages_late: report.late_bytes / PAGE_BYTES,
            expected_freeze_ms: None,
            expected_total_ms: None,
        }
    }

    /// It stood still for longer than it was to: its last round knew, or was wrong.
    pub fn is_over_budget(&self) -> bool {
        self.freeze_ms > f64::from(self.budget_ms.ms())
    }
}

/// One thing the brain decided about a process, with the numbers it used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Seconds since the epoch.
    pub time: f64,
    /// `move`, `stay`, `refused`, `came-home`, `clocks`.
    pub verdict: String,
    pub reason: String,
    /// The places that were weighed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weighed: Option<Weighed>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub node: NodeId,
    pub address: String,
    pub daemon_pid: i32,
    pub version: String,
    /// By its clock when it answered, seconds since the epoch.
    #[serde(default)]
    pub time: Option<f64>,
    /// Which cluster it is in: nodes that say the same are in the same one. Another secret is
    /// another name.
    #[serde(default)]
    pub cluster: Option<String>,
    pub nodes: u32,
    pub uptime_s: f64,
    /// Gossip datagrams that no member of this cluster had made, or that were old.
    #[serde(default)]
    pub datagrams_dropped: u64,
    /// What its owner has decided, and what is here.
    #[serde(default)]
    pub owner: Owned,
    /// What people call this node.
    #[serde(default)]
    pub name: Option<String>,
    /// A service manager watches this daemon, so that it takes its own place when it hands over.
    #[serde(default)]
    pub is_service: bool,
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::ids::HomePid;
    use crate::supervisor::Phase;

    #[test]
    fn an_event_about_a_migration_survives_its_line() {
        let phase = Phase { name: "connect".into(), us: 310 };
        let report = MoveReport { phases_us: vec![phase], ..Default::default() };
        let migration = Migration::from_report(4711, NodeId(1), NodeId(2), "turn", &report);
        let pid = Some(GlobalPid { home: NodeId(1), pid: HomePid(4711) });
        let reply = Reply::Event(Event { time: 1.5, pid, what: Happening::Migrated(migration) });
        let line = serde_json::to_string(&reply).unwrap();
        assert_eq!(serde_json::from_str::<Reply>(&line).unwrap(), reply, "{line}");
    }
    #[test]
    fn a_migration_of_an_earlier_version_is_read() {
        let line = r#"{"pid":1,"from":1,"to":2,"cause":"user","phases_ms":[["send",1.5]],
            "freeze_ms":21.0,"total_ms":30.0,"bytes_sent":7}"#;
        let migration: Migration = serde_json::from_str(line).unwrap();
        let (method, rounds) = (migration.method.as_str(), migration.rounds);
        assert_eq!((method, rounds, migration.predicted_freeze_ms), ("stop-and-copy", 0, None));
        assert!(migration.is_over_budget(), "20 ms are the usual one");
    }
}
