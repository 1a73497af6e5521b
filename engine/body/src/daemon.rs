//! The socket to the node daemon that started this supervisor.

use migrate::{MigrateError, Result};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::supervisor::{FromBody, PACKET_BYTES_MAX, ToBody};

pub struct Daemon(OwnedFd);

impl Daemon {
    pub fn new(socket: OwnedFd) -> Daemon {
        Daemon(socket)
    }

    /// Waits for the next message, and the connection that comes with it if there is one.
    pub fn receive(&self) -> Result<(ToBody, Option<TcpStream>)> {
        let packet = kernel::packet::receive(&self.0, PACKET_BYTES_MAX)?;
        let Some((bytes, descriptor)) = packet else {
            return Err(MigrateError::Protocol("the daemon closed its socket".into()));
        };
        let message = postcard::from_bytes(&bytes)
            .map_err(|error| MigrateError::Protocol(format!("message of the daemon: {error}")))?;
        Ok((message, descriptor.map(TcpStream::from)))
    }

    /// Tells the daemon; it may be gone, which does not concern the body.
    pub fn send(&self, message: &FromBody) {
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
