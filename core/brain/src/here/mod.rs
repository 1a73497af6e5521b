//! What is measured on this node: its own load, and the processes that run here with what is
//! remembered of each.

mod calls;
mod explain;
mod habit;
mod memory;
mod own;
mod resident;
mod residents;

pub(crate) use memory::NEVER;
pub(crate) use own::{Own, sane};
pub(crate) use resident::Resident;
pub(crate) use residents::Residents;
