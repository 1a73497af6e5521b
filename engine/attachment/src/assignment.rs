//! A supervisor learns what it is for: it may have been started before a process needed one.

use crate::Attachment;
use kernel::{KernelError, Result, packet};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use wire::assignment::{Assignment, Half};
use wire::supervisor::PACKET_BYTES_MAX;

/// What `ps` shows of a supervisor that waits for its process.
const READY_NAME: &str = "osmos-ready";

/// What this supervisor is for, and its way to the daemon: `--control-fd N` (default 3) is the
/// socket that it was started with, the rest is for [`Attachment::new`]. None if it needs no
/// supervisor after all, or is gone. `prepare` is called with where a body would be put, and by
/// what it can enter there, if that is told before.
///
/// # Errors
/// No such descriptor; what comes is no assignment.
pub fn await_assignment(
    arguments: &[String],
    mut prepare: impl FnMut(Vec<String>, Option<OwnedFd>),
) -> Result<Option<(Half, Attachment)>> {
    let mut words = arguments.iter();
    let number = words.find(|word| *word == "--control-fd").and_then(|_| words.next());
    let socket = packet::inherited(number.and_then(|number| number.parse().ok()).unwrap_or(3))?;
    show(READY_NAME);
    let half = loop {
        let received = packet::receive(&socket, PACKET_BYTES_MAX)?;
        let Some((bytes, descriptor)) = received else { return Ok(None) };
        match postcard::take_from_bytes::<Assignment>(&bytes) {
            Ok((Assignment::Half(half), [])) => break half,
            Ok((Assignment::Place { guest_cgroup }, [])) => prepare(guest_cgroup, descriptor),
            // A daemon of another version, say, which began with an order.
            _ => {
                let what = "read what this supervisor is for".into();
                return Err(KernelError { what, source: ErrorKind::InvalidData.into() });
            }
        }
    };
    match half {
        Half::Deputy { pid } => show(&format!("deputy-{pid}")),
        Half::Body => show("body"),
    }
    Ok(Some((half, Attachment::new(socket, arguments)?)))
}

/// For people only: whoever may not write there is shown the program's name.
fn show(name: &str) {
    let _ = std::fs::write("/proc/self/comm", name);
}
