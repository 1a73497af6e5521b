//! Packets with descriptors over a SOCK_SEQPACKET unix socket: a daemon and its supervisors.

use crate::{KernelError, Result};
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recv, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Takes over the descriptor that this process was started with.
///
/// # Errors
/// EBADF if there is no such descriptor.
pub fn inherited(fd: RawFd) -> Result<OwnedFd> {
    if fd < 0 {
        return Err(KernelError::errno(format!("take over descriptor {fd}"), libc::EBADF));
    }
    let flags = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC);
    // SAFETY: not negative, and borrowed only for the fcntl that proves the descriptor is open.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    nix::fcntl::fcntl(borrowed, flags)
        .map_err(|e| KernelError::errno(format!("take over descriptor {fd}"), e as i32))?;
    // SAFETY: it is open, and by the contract of our command lines it was passed to us to own.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends one packet if that is possible without waiting; false if the other end takes none now.
pub fn send_now(socket: &OwnedFd, bytes: &[u8]) -> Result<bool> {
    send(socket, bytes, &[])
}

/// The same, with a descriptor.
pub fn send_with(socket: &OwnedFd, bytes: &[u8], descriptor: &OwnedFd) -> Result<bool> {
    let descriptors = [descriptor.as_raw_fd()];
    send(socket, bytes, &[ControlMessage::ScmRights(&descriptors)])
}

fn send(socket: &OwnedFd, bytes: &[u8], rights: &[ControlMessage<'_>]) -> Result<bool> {
    let slices = [IoSlice::new(bytes)];
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    match sendmsg::<UnixAddr>(socket.as_raw_fd(), &slices, rights, flags, None) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::ENOBUFS) => Ok(false),
        Err(errno) => Err(KernelError::errno("send packet", errno as i32)),
    }
}

/// The other end is there, and has sent nothing that was not received.
pub fn is_silent(socket: &OwnedFd) -> bool {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
    recv(socket.as_raw_fd(), &mut [0], flags) == Err(Errno::EAGAIN)
}

/// Receives one packet of at most `size_max` bytes, waiting for it. None at the end of the stream.
pub fn receive(socket: &OwnedFd, size_max: usize) -> Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let mut bytes = vec![0; size_max];
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let (length, descriptor) = {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut slices, Some(&mut space), flags)
            .map_err(|e| KernelError::errno("receive packet", e as i32))?;
        let mut descriptor = None;
        let parts = message.cmsgs().map_err(|e| KernelError::errno("receive packet", e as i32))?;
        for part in parts {
            if let ControlMessageOwned::ScmRights(fds) = part {
                for fd in fds {
                    // SAFETY: the kernel has just installed this descriptor for us alone.
                    descriptor = Some(unsafe { OwnedFd::from_raw_fd(fd) });
                }
            }
        }
        (message.bytes, descriptor)
    };
    if length == 0 && descriptor.is_none() {
        return Ok(None);
    }
    bytes.truncate(length);
    Ok(Some((bytes, descriptor)))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn descriptor_that_is_none_is_refused() {
        for fd in [-1, i32::MIN, i32::MAX] {
            assert_eq!(inherited(fd).unwrap_err().source.raw_os_error(), Some(libc::EBADF));
        }
    }
}
