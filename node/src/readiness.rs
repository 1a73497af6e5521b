//! Waiting for a descriptor in the event loop.

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers `descriptor` with the event loop.
#[expect(
    deprecated,
    reason = "the constructor is unsound only for types whose descriptor can change; an OwnedFd \
              keeps its own open and unchanged, and its unsafe successor is not for this crate"
)]
pub fn register(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, interest)
}
