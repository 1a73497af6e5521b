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

mod attained;
mod bars;
mod brain;
mod calls;
mod candidate;
mod condition;
mod config;
mod departures;
mod exclusions;
mod fairness;
mod foresight;
mod habit;
mod input;
mod invariants;
mod load;
mod members;
mod memory;
mod message;
mod mosix;
mod output;
mod own;
mod ownership;
mod packed;
mod random;
mod recording;
mod reservations;
mod resident;
mod residents;
mod rotation;
mod rule;
mod seeking;
mod source;
mod staying;
mod strangers;
mod target;
mod time;
mod ushering;
mod view;
mod why;
mod window;

pub use brain::{Brain, Identity};
pub use config::{Config, Decision, VIEW_MAX, WINDOW_MAX, WindowPolicy};
pub use foresight::{Foresight, Guess, NodeForesight, Unforeseen};
pub use input::{
    Arrival, GroupId, Input, LoadSample, MoveOutcome, Ownership, Placement, Priority,
    ProcessSample, UserId, UserShare,
};
pub use invariants::Violation;
pub use members::Status;
pub use message::DATAGRAM_BYTES_MAX;
pub use output::{Outbox, Output, Verdict};
pub use recording::{Replay, ReplayError, asked, began, told};
pub use time::{Span, Time};
pub use view::NodeView;
pub use why::{PlacesCompared, Why, WhyRefused, WhyStays};
