//! Files by which a process looks at itself: opened here as at home, and read through its body,
//! which puts in what is true of the body ([docs/self.md](../../../docs/self.md)).
//!
//! They are files of the deputy, so that a process that is home again, and whoever got such a file
//! from it, has the right one. Who reads one in a way that the body knows nothing of (by a
//! duplicate, by `sendfile`, on a node that the body has moved on to) does so at home.

use crate::service::Shared;
use kernel::pidfd;
use kernel::proc::maps::Mapping;
use kernel::proc::process;
use migrate::backing::Library;
use migrate::{layout, refusal};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::{Whence, lseek};
use std::fs::{File, read_link};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::calls::{self, tells_of_body};
use wire::forward::{Call, Declined, MappedName, OwnFileTold, ToAway};
use wire::ids::GuestTid;
use wire::limits::OWN_FILE_BYTES_MAX;

/// What is known of them while the process is away.
pub struct OwnFiles {
    /// One was opened since the process left.
    is_any_open: AtomicBool,
    mapped: Mutex<Vec<MappedName>>,
    /// The process is in a cgroup of ours: its own file would tell that one.
    is_displaced: bool,
}

impl OwnFiles {
    /// Of a process that left with these files mapped.
    pub fn of(library: &Library, maps: &[Mapping], is_displaced: bool) -> OwnFiles {
        let mapped = if maps.iter().any(is_named_here) { vec![] } else { library.mapped_names() };
        let mapped = Mutex::new(mapped);
        OwnFiles { is_any_open: AtomicBool::new(false), mapped, is_displaced }
    }

    /// It has mapped one more, with that number in its list.
    pub fn add(&self, index: u32, name: MappedName) {
        let mut mapped = self.mapped();
        // Where some name cannot be told, none is.
        if mapped.len() == index as usize && index > 0 {
            mapped.push(name);
        }
    }

    fn mapped(&self) -> MutexGuard<'_, Vec<MappedName>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why this call is not made here, if it reads such a file. Notes it if it opens one.
    pub fn decline(&self, pid: i32, call: &Call) -> Option<Declined> {
        if calls::own_file(call.number, &call.arguments, &call.segments, None).is_some() {
            self.is_any_open.store(true, Ordering::SeqCst);
        }
        if !self.is_any_open.load(Ordering::SeqCst) {
            return None;
        }
        let number = calls::reads_from(call.number, &call.arguments)?;
        let name = read_link(format!("/proc/{pid}/fd/{number}")).ok()?;
        is_own(pid, &name).then_some(Declined::OwnFile)
    }
}

/// A mapping whose name a body does not have: memory that a program has named, or `/dev/zero`.
fn is_named_here(mapping: &Mapping) -> bool {
    mapping.name.starts_with(b"[anon") || layout::is_private_zero(mapping)
}

/// Whether a file of this name tells of the process what is true only of its body.
fn is_own(pid: i32, name: &std::path::Path) -> bool {
    // Most are none of `/proc`, and need no look at the process.
    if !name.starts_with("/proc") {
        return false;
    }
    let threads = process::threads(pid).unwrap_or_default();
    // Of a process that cannot be read any more nothing is told.
    let own = refusal::own_numbers(pid, &threads);
    own.map_or(true, |own| tells_of_body(name.as_os_str().as_bytes(), &own))
}

/// Tells the body what the kernel here shows of the process by one of its descriptors.
pub fn tell(shared: &Shared, (tid, id): (GuestTid, u64), descriptor: i32) {
    let told = read(shared, descriptor).unwrap_or_else(|error| {
        ::tracing::debug!("file {descriptor} of {}: {error}", shared.pid);
        vec![]
    });
    let mapped = shared.own_files.mapped().clone();
    shared.send(&ToAway::OwnFile(OwnFileTold { tid, id, text: told, mapped }));
}

/// What is told of a file that only its body can read, to say that it is one.
const MEANT: &[u8] = b"of the body";

fn read(shared: &Shared, descriptor: i32) -> io::Result<Vec<u8>> {
    let (file, name) = open(shared.pid, descriptor)?;
    if shared.own_files.is_displaced && name.ends_with("cgroup") {
        return Err(io::Error::other("it is not in its cgroup"));
    }
    // One that shows memory would show that of what has stayed here.
    if ["maps", "cmdline", "environ"].iter().any(|file| name.ends_with(file)) {
        return Ok(MEANT.to_vec());
    }
    let file = File::from(file);
    let mut text = vec![];
    let mut part = [0; 4096];
    loop {
        match file.read_at(&mut part, text.len() as u64)? {
            0 => return Ok(text),
            count => text.extend_from_slice(&part[..count]),
        }
        if text.len() > OWN_FILE_BYTES_MAX {
            return Err(io::Error::other("it is too long"));
        }
    }
}

/// The very file that the process has under this number, if it is one of these.
fn open(pid: i32, descriptor: i32) -> io::Result<(OwnedFd, PathBuf)> {
    let file = pidfd::open(pid)
        .and_then(|process| pidfd::duplicate_from(&process, descriptor))
        .map_err(|error| error.source)?;
    let name = read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let is_of_proc = fstatfs(&file)?.filesystem_type() == PROC_SUPER_MAGIC;
    match is_of_proc && is_own(pid, &name) {
        true => Ok((file, name)),
        false => Err(io::Error::other("it does not show the process")),
    }
}

/// Has the next reader go on where the body has come to.
pub fn seek(shared: &Shared, descriptor: i32, position: u64) {
    let Ok((file, _)) = open(shared.pid, descriptor) else { return };
    let position = i64::try_from(position).unwrap_or(i64::MAX);
    if let Err(error) = lseek(&file, position, Whence::SeekSet) {
        ::tracing::debug!("file {descriptor} of {}: {error}", shared.pid);
    }
}
