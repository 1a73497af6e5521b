//! How soon a TCP connection goes on after the network was cut, and whether it goes on at all.

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

/// Has a write wait while more than so many bytes were written that the kernel has not sent yet
/// (tcp(7), `TCP_NOTSENT_LOWAT`).
///
/// # Errors
/// As of `setsockopt`.
pub fn bound_unsent(socket: impl AsFd, bytes: u32) -> Result<()> {
    // SAFETY: the kernel reads one int from where a live one is, and the descriptor is borrowed.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    match outcome {
        0 => Ok(()),
        _ => Err(KernelError::last("bound what a connection keeps unsent")),
    }
}

/// Bytes that were written and that the other side has not acknowledged yet (`SIOCOUTQ`, tcp(7)).
///
/// # Errors
/// As of `ioctl`.
pub fn unacknowledged(socket: impl AsFd) -> Result<u64> {
    let mut count: libc::c_int = 0;
    // SAFETY: the kernel writes one int to where a live one is, and the descriptor is borrowed.
    let outcome = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &mut count) };
    match outcome {
        0 => Ok(u64::try_from(count).unwrap_or(0)),
        _ => Err(KernelError::last("ask what a connection has still to send")),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_takes_the_bound_or_the_kernel_says_that_it_cannot() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        bound_resend_pause(&stream).unwrap();
        let other = std::fs::File::open("/dev/null").unwrap();
        assert!(bound_resend_pause(&other).is_err(), "it is no socket");
        assert!(unacknowledged(&other).is_err(), "it is no socket");
    }

    #[test]
    fn what_nobody_reads_is_not_acknowledged_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        assert_eq!(unacknowledged(&stream).unwrap(), 0);
        stream.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(count) = stream.write(&[0; 65_536]) {
            written += count;
        }
        assert!(unacknowledged(&stream).unwrap() > 0, "more than the other side has room for");
        other.read_exact(&mut vec![0; written]).unwrap();
        // What has been read was received, and acknowledging it takes no longer than a moment.
        while unacknowledged(&stream).unwrap() > 0 {
            std::thread::yield_now();
        }
    }
}
