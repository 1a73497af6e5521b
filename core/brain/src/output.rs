//! What the brain wants done. Outputs are imperative; the daemon carries them out and reports what
//! came of them as inputs.

use crate::others::Status;
use crate::reasons::Why;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use wire::ids::{GlobalPid, NodeId};
use wire::motive::Motive;

/// One order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Output {
    /// Give these bytes to the brain of `to`, best effort: loss and reordering are expected.
    SendDatagram { to: NodeId, bytes: Vec<u8> },
    /// Move a process that runs here. If it is a guest, its home has to be asked to do it. To be
    /// answered by one [`crate::Input::MoveEnded`].
    Move { process: GlobalPid, to: NodeId, motive: Motive, why: Why },
    /// Call with [`crate::Input::TimePassed`] at that time. Replaces the earlier one.
    WakeAt(Time),
    /// Keep for `osmos why`.
    RecordDecision { process: GlobalPid, verdict: Verdict, why: Why },
    /// What is now believed of a node.
    MemberStatus { node: NodeId, status: Status },
}

/// What was decided about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It goes to that node.
    Move { to: NodeId },
    /// It stays where it is.
    Stay,
    /// That node did not take it.
    Refused { by: NodeId },
    /// The move was carried out.
    Moved { to: NodeId },
    /// The move was tried and did not happen.
    NotMoved { to: NodeId },
    /// It came home by itself.
    CameHome { from: NodeId },
}

impl Verdict {
    /// The stable word that `osmos why --json` shows.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Move { .. } => "move",
            Verdict::Stay => "stay",
            Verdict::Refused { .. } => "refused",
            Verdict::Moved { .. } => "moved",
            Verdict::NotMoved { .. } => "not-moved",
            Verdict::CameHome { .. } => "came-home",
        }
    }
}

/// Where the brain leaves its orders, in the order in which they are to be carried out.
#[derive(Debug, Default)]
pub struct Outbox {
    outputs: Vec<Output>,
}

impl Outbox {
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// Takes all orders out.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Output> {
        self.outputs.drain(..)
    }

    /// All orders, which stay in.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    pub(crate) fn push(&mut self, output: Output) {
        self.outputs.push(output);
    }
}
