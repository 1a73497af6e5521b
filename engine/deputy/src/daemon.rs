//! The socket to the node daemon that started this supervisor.

use migrate::{MigrateError, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::supervisor::{FromDeputy, PACKET_BYTES_MAX, ToDeputy};

pub struct Daemon(OwnedFd);

impl Daemon {
    pub fn new(socket: OwnedFd) -> Daemon {
        Daemon(socket)
    }

    /// Waits for the next order.
    ///
    /// # Errors
    /// Also when the daemon is gone.
    pub fn receive(&self) -> Result<ToDeputy> {
        let packet = kernel::packet::receive(&self.0, PACKET_BYTES_MAX)?;
        let Some((bytes, _)) = packet else {
            return Err(MigrateError::Protocol("the daemon closed its socket".into()));
        };
        postcard::from_bytes(&bytes)
            .map_err(|error| MigrateError::Protocol(format!("message of the daemon: {error}")))
    }

    /// Tells the daemon; it may be gone, which does not concern the process.
    pub fn send(&self, message: &FromDeputy) {
        let sent =
            postcard::to_stdvec(message).map_err(|error| error.to_string()).and_then(|bytes| {
                kernel::packet::send(&self.0, &bytes, None).map_err(|error| error.to_string())
            });
        if let Err(error) = sent {
            ::tracing::warn!("could not tell the daemon: {error}");
        }
    }
}

impl AsFd for Daemon {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
