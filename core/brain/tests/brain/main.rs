//! Brains in a small deterministic world: what they promise each other and their users.

mod balancing;
mod gossip;
mod predictions;
mod world;
