//! What could be a reason for a move. Each policy is asked what it proposes in a situation, and
//! changes nothing.
//!
//! A larger share is the usual reason (`balancing`, and for the node that is asked `taking`); there
//! are turns, memory, the owner of a node, fair shares of users, and work that is sought; and there
//! is the published policy of MOSIX, as a baseline.

mod balancing;
mod fairness;
mod mosix;
mod ownership;
mod rotation;
mod seeking;
mod taking;
mod ushering;

pub(crate) use mosix::Estimate;

use crate::facts::Candidate;
use crate::messages::OfferId;
use crate::reasons::Why;
use wire::ids::NodeId;
use wire::motive::Motive;

/// A move that a policy would have.
pub(crate) struct Proposal {
    pub candidate: Candidate,
    pub to: NodeId,
    pub motive: Motive,
    /// It goes in exchange for the process of that offer.
    pub in_return_for: Option<OfferId>,
    pub why: Why,
}

impl Proposal {
    fn new(candidate: Candidate, to: NodeId, motive: Motive, why: impl Into<Why>) -> Proposal {
        Proposal { candidate, to, motive, in_return_for: None, why: why.into() }
    }
}
