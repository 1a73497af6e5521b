//! What is known of other nodes, from what they say: who there is, who seems to be alive, how
//! loaded each is, whom to tell what, and who is better not asked for a while.

mod exclusions;
mod members;
mod strangers;
mod window;

pub use members::Status;
pub(crate) use members::{Members, load_of};
pub(crate) use strangers::Strangers;
