//! Real daemons on the loopback interface, several in one process, each with its own directories.
//! Where a supervisor would run, the test itself holds the other end of its socket.

mod control;
pub(crate) mod harness;
mod inquiries;
mod jobs;
mod links;
mod membership;
mod moves;
mod names;
