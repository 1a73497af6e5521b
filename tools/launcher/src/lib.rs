//! `osmos job run`: stands for a parallel job at its user's terminal ([decision
//! 0053](../../../docs/decisions/0053-parallel-jobs.md)).
//!
//! ```text
//!   signals ──┐                                  ┌──► node 1: its job server ──► ranks 0..3
//!   input ────┤                                  │
//!   asks ─────┼──► launching: one loop, one ─────┼──► node 2: ...
//!   servers ──┤    event after the other         │
//!   output ◄──┘         └──► holding: the daemon └──► output, labelled
//! ```
//!
//! * [`allocation`]: how many ranks begin where
//! * [`servers`]: the job servers, and the links to them
//! * [`beginning`]: what comes before the first rank; [`launching`]: the loop;
//!   [`ranks`]: what has become of each, pure
//! * [`output`], [`input`]: the streams of this process
//! * [`holding`]: what others see of the job, and what they ask
//!
//! **Invariant.** When this process ends, however it does, its links end, and with them all ranks.

mod allocation;
mod beginning;
mod holding;
mod input;
mod launching;
mod output;
mod ranks;
mod servers;

pub use launching::launch;

use std::path::PathBuf;
use wire::jobs::Program;
use wire::users::Borrowers;

/// What is to be launched, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The daemon's.
    pub socket: PathBuf,
    pub name: Option<String>,
    /// Of all nodes; how many there are is found out if it is not said.
    pub ranks: Option<u32>,
    pub per_node: Option<u32>,
    /// Where ranks begin; none: here.
    pub nodes: Option<Borrowers>,
    /// Its size is not known yet.
    pub program: Program,
    /// Each line says of which rank it is.
    pub labels: bool,
    pub kills_on_bad_exit: bool,
    /// Output is kept there and not shown.
    pub log: Option<PathBuf>,
}
