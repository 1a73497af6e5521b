//! What a node can offer and what a process wants: the numbers that all else is about.

mod attained;
mod candidate;
mod condition;
mod life;

pub(crate) use attained::Attained;
pub(crate) use candidate::{Candidate, demand_at_home};
pub(crate) use condition::{Condition, Entry, RUNNABLE_MILLI_MAX, SPEED_MILLI_MAX};
pub use life::Life;
