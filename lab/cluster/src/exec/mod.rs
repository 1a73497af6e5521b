//! `osmos lab exec`: a command in a node, as if it were typed there.
//!
//! ```text
//! osmos lab exec (front, stays outside)  ─►  osmos lab-enter  ═exec═►  the command
//! ```
//! The front makes the node's PID namespace that of its next child and starts `lab-enter` in it;
//! that one joins the node's cgroup and other namespaces and becomes the command. The front itself
//! joins nothing that it keeps, so a front that is stopped does not keep a lab alive. It stands
//! for the command towards the caller's shell: same terminal, same stops, same status.

mod enter;
mod front;
mod terminal;

pub use enter::main as enter_main;
pub use front::{Request, Start, run};
