//! What brains say to each other, and how it travels.

mod message;
mod packed;

pub use message::DATAGRAM_BYTES_MAX;
pub(crate) use message::{Body, Holder, Laggard, Message, Offer, OfferId, Refusal, from_ms, to_ms};
pub(crate) use packed::WindowRoom;
