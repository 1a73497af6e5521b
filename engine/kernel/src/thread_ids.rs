//! Choosing the ids of threads that are made in a sandbox: each has that of its twin at home.
//!
//! The kernel gives the next id after the last one in a PID namespace. Who sets which that was has
//! to be inside of it, with a capability that the guest must not have: so the supervisor has the
//! sandbox's init write it, by ptrace. Nothing in the init's memory, and nothing of the guest's,
//! decides on what it writes.

use crate::features::{self, Feature};
use crate::patience::Patience;
use crate::remote_call::RemoteCalls;
use crate::sandbox::{Sandbox, init_places};
use crate::tracee::{self, Stop};
use crate::{KernelError, Result};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Holds the last id that was given in the PID namespace of whoever reads or writes it
/// (pid_namespaces(7)).
const NEXT_TID_FILE: &str = "/proc/sys/kernel/ns_last_pid";

/// Whether the file is there and may be written; in a container it is often read-only.
pub(crate) fn is_there() -> bool {
    try_to_open().is_some()
}

/// The file, for an init that is to write it: who writes, not who opens, needs the right to.
pub(crate) fn open() -> Option<OwnedFd> {
    if features::settled().has(Feature::ThreadIds) { try_to_open() } else { None }
}

fn try_to_open() -> Option<OwnedFd> {
    File::options().write(true).open(NEXT_TID_FILE).ok().map(OwnedFd::from)
}

/// An init does nothing else, and stops at once.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// The most digits of an id.
const TID_DIGITS: usize = 7;

impl Sandbox {
    /// Has the next thread that is made in the sandbox get this id, if nobody has it.
    ///
    /// # Errors
    /// If this machine does not let ids be chosen, or the init does not stop.
    pub fn choose_next_tid(&self, tid: i32) -> Result<()> {
        let what = "choose the id of a thread";
        let (Some(file), Some(init)) = (&self.next_tid, self.init.as_ref().map(|init| init.0))
        else {
            return Err(KernelError::errno(what, libc::EROFS));
        };
        if !(2..10_i32.pow(TID_DIGITS as u32)).contains(&tid) {
            return Err(KernelError::errno(what, libc::EINVAL));
        }
        let _limit = Patience::of(STOP_TIMEOUT);
        // Spaces are skipped; with zeroes in front it would be octal.
        let text = format!("{:>TID_DIGITS$}\n", tid - 1);
        let mut word = [0; 8];
        word.copy_from_slice(text.as_bytes());
        tracee::interrupt(init)?;
        loop {
            match tracee::wait(init)? {
                Stop::Interrupted | Stop::Group(_) => break,
                Stop::Ended(_) => return Err(KernelError::errno(what, libc::ESRCH)),
                _ => tracee::resume_interrupted(init, 0)?,
            }
        }
        let (instruction, place) = init_places();
        tracee::write_word(init, place, word)?;
        let arguments = [file.as_raw_fd() as u64, place, text.len() as u64, 0, 0, 0];
        let written = RemoteCalls::begin(init, instruction)
            .and_then(|mut calls| calls.call(what, libc::SYS_pwrite64, arguments));
        tracee::resume(init, 0)?;
        match written? {
            count if count == text.len() as u64 => Ok(()),
            _ => Err(KernelError::errno(what, libc::EIO)),
        }
    }
}
