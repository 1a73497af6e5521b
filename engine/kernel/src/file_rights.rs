//! Acting on files as a user would, in a process that has more rights than he.
//!
//! An open file asks nobody who reads it. But the kernel looks at who writes: a quota and the last
//! blocks of a file system are no limit for root, and what root writes keeps its set-user-id bits.

use crate::{KernelError, Result};
use nix::unistd::{Uid, setfsuid};
use std::io;

/// Effective, permitted and inheritable: the low words of each, then the high ones (capset(2)).
type Capabilities = [u32; 6];
const EFFECTIVE: [usize; 2] = [0, 3];
/// `_LINUX_CAPABILITY_VERSION_3`, and the calling thread.
const MYSELF: [u32; 2] = [0x2008_0522, 0];

/// Does something with the calling thread being that user to file systems, and without any
/// capability. A process that has none is a user already, and nobody else.
///
/// # Errors
/// The kernel does not let it, or did not give back what the thread had: then it may not go on as
/// before.
pub fn as_user<T>(uid: u32, act: impl FnOnce() -> T) -> Result<T> {
    let before = capabilities()?;
    if EFFECTIVE.iter().all(|word| before[*word] == 0) {
        return Ok(act());
    }
    let none = [0, before[1], before[2], 0, before[4], before[5]];
    let own = setfsuid(Uid::from_raw(uid));
    let done = set_capabilities(none).map(|()| act());
    let restored = set_capabilities(before);
    setfsuid(own);
    restored.and(done)
}

fn capabilities() -> Result<Capabilities> {
    let mut words: Capabilities = [0; 6];
    // SAFETY: arrays of the sizes that the kernel reads and writes for that version.
    let outcome = unsafe { libc::syscall(libc::SYS_capget, MYSELF.as_ptr(), words.as_mut_ptr()) };
    checked("capget", outcome).map(|()| words)
}

fn set_capabilities(words: Capabilities) -> Result<()> {
    // SAFETY: arrays of the sizes that the kernel reads for that version.
    checked("capset", unsafe { libc::syscall(libc::SYS_capset, MYSELF.as_ptr(), words.as_ptr()) })
}

fn checked(what: &str, outcome: i64) -> Result<()> {
    match outcome {
        0 => Ok(()),
        _ => Err(KernelError { what: what.into(), source: io::Error::last_os_error() }),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::fs::{File, Permissions, metadata};
    use std::os::unix::fs::{FileExt, PermissionsExt};

    #[test]
    fn what_a_user_writes_loses_its_set_user_id_bit_whoever_writes_for_him() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        let file = File::create(&path).unwrap();
        file.set_permissions(Permissions::from_mode(0o4755)).unwrap();
        let before = capabilities().unwrap();
        as_user(61_000, || file.write_all_at(b"new", 0)).unwrap().unwrap();
        assert_eq!(metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
        assert_eq!(capabilities().unwrap(), before);
        // And the thread is itself again.
        std::fs::write(directory.path().join("other"), "").unwrap();
    }
}
