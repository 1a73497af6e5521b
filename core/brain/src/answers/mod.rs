//! What the brain answers to questions: what it knows of the nodes, and what a move would bring.

mod foresight;
mod view;

pub use foresight::{Foresight, Guess, NodeForesight, Unforeseen};
pub use view::NodeView;
