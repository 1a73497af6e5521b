//! What could be a reason for a move beside a larger share: turns, memory, the owner of a node,
//! fair shares of users, work that is sought, processors that lack something; and the published
//! policy of MOSIX, as a baseline.

mod bars;
mod fairness;
mod mosix;
mod ownership;
mod rotation;
mod seeking;
mod ushering;

pub(crate) use bars::Bars;
pub(crate) use fairness::Shares;
pub(crate) use mosix::Estimate;
pub(crate) use ownership::Owner;
