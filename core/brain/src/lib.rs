//! The brain of one node: who else there is, how loaded they are, and which process should run
//! where. See `docs/decisions/0004-brain.md` for the reasons.
//!
//! A pure state machine. It has no clock, no sockets, no threads and its own random source, so the
//! daemon, a simulator and a replay of recorded inputs run the same code with the same results:
//!
//! ```text
//!   facts (Input) ──► Brain::handle(now, input, &mut outbox) ──► orders (Output)
//!        ▲                                                           │
//!        └────────────── the daemon carries them out ◄───────────────┘
//! ```

mod answers;
mod brain;
mod config;
mod facts;
mod handshake;
mod here;
mod input;
mod invariants;
pub mod looks;
mod messages;
mod others;
mod output;
mod policies;
mod random;
mod reasons;
mod recording;
mod rule;
mod situation;
mod time;

pub use answers::{Foresight, Guess, NodeForesight, NodeView, Spreading, Unforeseen, Unspread};
pub use brain::{Brain, Identity};
pub use config::{Config, Decision, VIEW_MAX, WINDOW_MAX, WindowPolicy};
pub use facts::Life;
pub use input::{
    Arrival, GroupId, Input, LoadSample, MoveOutcome, Ownership, Placement, Priority,
    ProcessSample, UserId, UserShare,
};
pub use invariants::Violation;
pub use messages::DATAGRAM_BYTES_MAX;
pub use others::Status;
pub use output::{Outbox, Output, Verdict};
pub use reasons::{PlacesCompared, Why, WhyRefused, WhyStays};
pub use recording::{Replay, ReplayError, asked, began, told};
pub use time::{Span, Time};
