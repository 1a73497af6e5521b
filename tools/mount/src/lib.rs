//! `osmos mount`: the files of all nodes in one directory, by FUSE ([decision
//! 0048](../../../docs/decisions/0048-files-of-all-nodes.md)).
//!
//! ```text
//!   kernel ──► requests ──► files ──► tree: which file of which node
//!               (fuser)       ├─────► top: /1 /2 /here /home /selected
//!                             └─────► remote: one link a node ──► its file server
//!                                        └─ answers come, and do what is left to do
//! ```
//!
//! No call waits for an answer in the thread that took it: what is to be done with the answer is
//! kept with the question and done by the link's own thread. So a node that does not answer holds
//! up nobody but those who asked it, for [`remote::SILENCE_MAX`] at most, and a signal that would
//! kill them ends their waiting ([`waiting`]).
//!
//! What others see of what is written here, and the other way round, is what NFS promises: whoever
//! opens a file sees all that was in it when another closed it.

mod answers;
mod cluster;
mod files;
mod mounting;
mod remote;
mod requests;
mod top;
mod tree;
mod waiting;

pub use mounting::{Options, mount, say_ready, unmount};
