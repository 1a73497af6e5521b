//! Questions to a file system by ioctl(2).

use crate::{KernelError, Result};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Exchanges a buffer with the file system of an open file. `command` says how long the buffer is,
/// as `_IO`, `_IOR`, `_IOW` and `_IOWR` have it; FUSE copies that much and no more.
///
/// # Errors
/// EINVAL: the buffer has another length than the command; or what the file system says.
pub fn exchange(file: impl AsFd, command: u32, buffer: &mut [u8]) -> Result<()> {
    const LENGTH_SHIFT: u32 = 16;
    const LENGTH_MASK: u32 = (1 << 14) - 1;
    let length = (command >> LENGTH_SHIFT & LENGTH_MASK) as usize;
    if length != buffer.len() {
        return Err(KernelError::errno("ioctl", libc::EINVAL));
    }
    let file = file.as_fd().as_raw_fd();
    // SAFETY: the buffer is as long as the command says that it is, and lives until this returns;
    // who takes the command for another of the same number and length finds bytes there.
    let outcome = unsafe { libc::ioctl(file, libc::Ioctl::from(command), buffer.as_mut_ptr()) };
    match outcome {
        -1 => Err(KernelError { what: "ioctl".into(), source: io::Error::last_os_error() }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_buffer_is_as_long_as_its_command_says() {
        let file = tempfile::tempfile().unwrap();
        let outcome = |command, buffer: &mut [u8]| {
            exchange(&file, command, buffer).unwrap_err().source.raw_os_error()
        };
        let command = 3 << 30 | 8 << 16 | 0x4f01;
        assert_eq!(outcome(command, &mut [0; 4]), Some(libc::EINVAL));
        assert_eq!(outcome(command, &mut [0; 8]), Some(libc::ENOTTY));
    }
}
