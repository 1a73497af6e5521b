//! Files and directories that the other node has open.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Files that one connection may have open.
const OPEN_MAX: usize = 65_536;
/// Handles of one file have its number in this, so that they find its worker.
pub const WORKERS: u64 = 8;
/// What of the flags of open(2) the other node decides.
const FLAGS: OFlags = OFlags::ACCMODE
    .union(OFlags::APPEND)
    .union(OFlags::TRUNC)
    .union(OFlags::DIRECTORY)
    .union(OFlags::SYNC)
    .union(OFlags::DSYNC);

pub struct Open {
    pub file: File,
    /// The number of the file.
    pub number: u64,
    pub flags: OFlags,
    /// Connections of those who have it besides.
    pub used_by: Mutex<Vec<OwnedFd>>,
}

impl Open {
    pub fn new(file: File, number: u64, flags: OFlags) -> Open {
        Open { file, number, flags, used_by: Mutex::default() }
    }

    /// Whether whoever has the descriptor can read and write by it as the other node would: where
    /// nothing depends on who does it.
    pub fn is_plain(&self) -> bool {
        !self.flags.intersects(
            OFlags::APPEND.union(OFlags::SYNC).union(OFlags::DSYNC).union(OFlags::DIRECTORY),
        )
    }
}

#[derive(Default)]
pub struct Handles {
    open: Mutex<HashMap<u64, Arc<Open>>>,
    count: AtomicU64,
}

/// The flags that are the other node's to decide, and ours. Whoever opens a FIFO or a device must
/// not wait for it.
pub fn flags_of(flags: i32) -> OFlags {
    let asked = OFlags::from_bits_retain(flags.cast_unsigned()) & FLAGS;
    asked | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY
}

/// Whether a file that is opened so can be changed.
pub fn changes(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC)
}

/// Opens what a descriptor stands for.
///
/// # Errors
/// Those of open(2).
pub fn open_again(file: impl AsFd, flags: OFlags) -> Result<File, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

impl Handles {
    /// # Errors
    /// EMFILE.
    pub fn add(&self, file: File, number: u64, flags: OFlags) -> Result<u64, Errno> {
        let handle = self.count.fetch_add(1, Ordering::Relaxed) * WORKERS + number % WORKERS;
        let mut open = self.open();
        if open.len() >= OPEN_MAX {
            return Err(Errno::MFILE);
        }
        open.insert(handle, Arc::new(Open::new(file, number, flags)));
        Ok(handle)
    }

    /// # Errors
    /// EBADF.
    pub fn get(&self, handle: u64) -> Result<Arc<Open>, Errno> {
        self.open().get(&handle).cloned().ok_or(Errno::BADF)
    }

    pub fn close(&self, handle: u64) {
        // Outside of the lock: closing may take its time.
        let closed = self.open().remove(&handle);
        drop(closed);
    }

    pub fn is_empty(&self) -> bool {
        self.open().is_empty()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Open>>> {
        self.open.lock().expect("nobody panics with it")
    }
}
