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

mod brain;
mod condition;
mod config;
mod departures;
mod input;
mod invariants;
mod members;
mod message;
mod output;
mod own;
mod random;
mod reservations;
mod residents;
mod rule;
mod source;
mod target;
mod time;
mod view;

pub use brain::{Brain, Identity};
pub use config::{Config, WINDOW_MAX};
pub use input::{Arrival, Input, LoadSample, MoveOutcome, Placement, ProcessSample};
pub use invariants::Violation;
pub use members::Status;
pub use message::DATAGRAM_BYTES_MAX;
pub use output::{Outbox, Output, Verdict};
pub use time::{Span, Time};
pub use view::NodeView;
