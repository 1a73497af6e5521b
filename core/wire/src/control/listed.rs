//! What listings are made of: processes and nodes, as a daemon tells tools of them.

use crate::ids::{GlobalPid, NodeId};
use crate::move_limits::MoveLimits;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    pub home: NodeId,
    /// Where it runs now.
    pub node: NodeId,
    /// `running`, `moving`, `pinned`.
    pub state: String,
    pub command: String,
    pub cpu_s: f64,
    pub rss_bytes: u64,
    pub migrations: u64,
    /// Seconds since the epoch, if it ever moved.
    pub last_move: Option<f64>,
    /// Why it is where it is, in a line.
    pub reason: String,
    /// Whose it is, by number at home; none: the node asked does not know.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The name of that user at home.
    #[serde(default)]
    pub user: Option<String>,
    /// The program and its arguments, as ps(1) shows them, cut to [`COMMAND_LINE_CHARS_MAX`].
    #[serde(default)]
    pub command_line: Option<String>,
    /// Its parent at home.
    #[serde(default)]
    pub parent: Option<i32>,
    /// None: the node asked does not know.
    #[serde(default)]
    pub threads: Option<u32>,
    /// The job that it is a rank of, or descends from one.
    #[serde(default)]
    pub job: Option<GlobalPid>,
}

impl Process {
    /// The command line where it is known, else the name.
    pub fn shown_command(&self) -> &str {
        let line = self.command_line.as_deref().filter(|line| !line.trim().is_empty());
        line.unwrap_or(&self.command)
    }
}

/// More of a command line is not told.
pub const COMMAND_LINE_CHARS_MAX: usize = 1_024;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    pub address: String,
    /// `alive`, `suspect`, `gone`.
    pub status: String,
    pub cores: f64,
    /// Of one core, 1.0 being the reference speed.
    pub speed: f64,
    /// Runnable processes per core.
    pub load: f64,
    pub mem_total_bytes: u64,
    pub mem_free_bytes: u64,
    /// How old this knowledge is; 0 for the node asked.
    pub info_age_s: f64,
    /// Its owner lets guests come now.
    #[serde(default = "yes")]
    pub takes_guests: bool,
    /// Whether programs that were started on the node asked can run there.
    #[serde(default)]
    pub cpu: CpuFit,
    /// What its processor lacks, keeps otherwise, or has too much of.
    #[serde(default)]
    pub cpu_reason: Option<String>,
    /// What its owner lets a move take, from there or to there.
    #[serde(default)]
    pub move_limits: MoveLimits,
    /// That moves from the node asked to that one have gone at; none: none was measured.
    #[serde(default)]
    pub bytes_per_s: Option<f64>,
    /// What people call it; none: it has not told, or has no name.
    #[serde(default)]
    pub name: Option<String>,
}

/// Whether a node's processor will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuFit {
    /// For all programs.
    Fits,
    /// For those that were started with `--cpu-baseline`.
    Baseline,
    /// It has not told yet.
    #[default]
    Unknown,
}

impl CpuFit {
    /// As people are shown it.
    pub fn word(self) -> &'static str {
        match self {
            CpuFit::Fits => "fits",
            CpuFit::Baseline => "baseline",
            CpuFit::Unknown => "?",
        }
    }
}

fn yes() -> bool {
    true
}
