//! How soon a TCP connection goes on after the network was cut.

use crate::{KernelError, Result};
use std::os::fd::{AsFd, AsRawFd};

/// Of `linux/tcp.h`, since Linux 6.15; in milliseconds, from 1 000 to 120 000.
const TCP_RTO_MAX_MS: libc::c_int = 44;
/// So long at most after the network is back a connection goes on.
static RESEND_PAUSE_MS: libc::c_int = 1_000;

/// Pauses between attempts to send what was not acknowledged are at most a second long. Usually
/// they double up to two minutes, so that a connection stands still for about as long again as the
/// network did. Returns whether this kernel can do that: without it only time is lost.
///
/// # Errors
/// As of `setsockopt`.
pub fn bound_resend_pause(socket: impl AsFd) -> Result<bool> {
    // SAFETY: the kernel reads one int from where a live one is, and the descriptor is borrowed.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            (&raw const RESEND_PAUSE_MS).cast(),
            size_of_val(&RESEND_PAUSE_MS) as libc::socklen_t,
        )
    };
    match outcome {
        0 => Ok(true),
        _ => match KernelError::last("bound the pauses of a connection") {
            error if error.source.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_takes_the_bound_or_the_kernel_says_that_it_cannot() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        bound_resend_pause(&stream).unwrap();
        let other = std::fs::File::open("/dev/null").unwrap();
        assert!(bound_resend_pause(&other).is_err(), "it is no socket");
    }
}
