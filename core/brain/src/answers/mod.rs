//! What the brain answers to questions: what it knows of the nodes, what a move would bring,
//! and how ranks of a job are best spread.

mod foresight;
mod spread;
mod view;

pub use foresight::{Foresight, Guess, NodeForesight, Unforeseen};
pub use spread::{Spreading, Unspread};
pub use view::NodeView;
