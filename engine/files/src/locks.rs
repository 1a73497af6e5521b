//! Locks of ranges of files, which processes of the other node have.
//!
//! To this kernel all of them would be one process. Locks that belong to an open file description
//! (fcntl(2), F_OFD_SETLK) are told apart by that, so each of their owners has one for each file,
//! and gives all locks of it up by closing it. They and those of processes here exclude each other.

use crate::handles::{Open, open_again};
use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard};
use wire::files::{Lock, LockKind};

/// Files in which somebody has locks, counted for each owner.
const OWNED_MAX: usize = 16_384;

/// File, and owner.
type Key = (u64, u64);

#[derive(Default)]
pub struct Locks(Mutex<HashMap<Key, Arc<File>>>);

impl Locks {
    /// # Errors
    /// EAGAIN if another has it; else those of fcntl(2).
    pub fn set(&self, open: &Open, lock: Lock) -> Result<(), Errno> {
        let key = (open.number, lock.owner);
        let held = self.held().get(&key).cloned();
        let file = match held {
            Some(file) => file,
            None if lock.kind == LockKind::None => return Ok(()),
            None => self.add(key, open)?,
        };
        let asked = flock(lock)?;
        fcntl(&file, FcntlArg::F_OFD_SETLK(&asked)).map_err(of_nix)?;
        Ok(())
    }

    /// Who would be in the way; of whom is not known who it is, if it is none of this node.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn test(&self, open: &Open, lock: Lock) -> Result<Lock, Errno> {
        let key = (open.number, lock.owner);
        let held = self.held().get(&key).cloned();
        let mut found = flock(lock)?;
        // Its own locks are in nobody's way.
        let file = held.as_deref().unwrap_or(&open.file);
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut found)).map_err(of_nix)?;
        let kind = match i32::from(found.l_type) {
            libc::F_RDLCK => LockKind::Read,
            libc::F_WRLCK => LockKind::Write,
            _ => return Ok(Lock { kind: LockKind::None, ..lock }),
        };
        let start = found.l_start.cast_unsigned();
        let end = match found.l_len {
            0 => i64::MAX.cast_unsigned(),
            length => start + length.cast_unsigned() - 1,
        };
        Ok(Lock { owner: 0, start, end, kind })
    }

    /// One of its processes has closed the file: it has no locks of it any more (close(2)).
    pub fn release(&self, number: u64, owner: u64) {
        let released = self.held().remove(&(number, owner));
        drop(released);
    }

    fn add(&self, key: Key, open: &Open) -> Result<Arc<File>, Errno> {
        let flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
        // Who may have a lock for writing the other kernel knows; this one wants to see it open so.
        let file = open_again(&open.file, flags | OFlags::RDWR)
            .or_else(|_| open_again(&open.file, flags | (open.flags & OFlags::ACCMODE)))?;
        let file = Arc::new(file);
        let mut held = self.held();
        if held.len() >= OWNED_MAX {
            return Err(Errno::NOLCK);
        }
        held.insert(key, file.clone());
        Ok(file)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Key, Arc<File>>> {
        self.0.lock().expect("nobody panics with it")
    }
}

fn flock(lock: Lock) -> Result<libc::flock, Errno> {
    let start = i64::try_from(lock.start).map_err(|_| Errno::INVAL)?;
    let length = match i64::try_from(lock.end) {
        Ok(end) if end < i64::MAX => {
            end.checked_sub(start).filter(|length| *length >= 0).map(|length| length + 1)
        }
        _ => Some(0),
    };
    let kind = match lock.kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
        LockKind::None => libc::F_UNLCK,
    };
    Ok(libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length.ok_or(Errno::INVAL)?,
        l_pid: 0,
    })
}

fn of_nix(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(errno as i32)
}

#[cfg(test)]
mod test {
    use super::*;
    use std::io::Write;

    fn open(number: u64) -> (tempfile::NamedTempFile, Open) {
        let mut made = tempfile::NamedTempFile::new().unwrap();
        made.write_all(&[0; 100]).unwrap();
        let file = made.reopen().unwrap();
        let file = Open::new(file, number, OFlags::RDWR);
        (made, file)
    }

    fn lock(owner: u64, start: u64, end: u64, kind: LockKind) -> Lock {
        Lock { owner, start, end, kind }
    }

    #[test]
    fn owners_exclude_each_other_and_share_what_they_only_read() {
        let (_made, file) = open(5);
        let locks = Locks::default();
        assert_eq!(locks.set(&file, lock(1, 0, 9, LockKind::Write)), Ok(()));
        assert_eq!(locks.set(&file, lock(2, 5, 5, LockKind::Read)), Err(Errno::AGAIN));
        assert_eq!(locks.set(&file, lock(2, 10, u64::MAX, LockKind::Read)), Ok(()));
        assert_eq!(locks.set(&file, lock(1, 20, 29, LockKind::Read)), Ok(()));
        let found = locks.test(&file, lock(2, 0, 100, LockKind::Read)).unwrap();
        assert_eq!((found.start, found.end, found.kind), (0, 9, LockKind::Write));
        let own = locks.test(&file, lock(1, 0, 9, LockKind::Write)).unwrap();
        assert_eq!(own.kind, LockKind::None);
        locks.release(5, 1);
        assert_eq!(locks.set(&file, lock(2, 0, 9, LockKind::Write)), Ok(()));
    }

    #[test]
    fn a_range_that_is_none_is_refused() {
        let (_made, file) = open(5);
        let locks = Locks::default();
        for (start, end) in [(9, 3), (u64::MAX, u64::MAX)] {
            assert_eq!(locks.set(&file, lock(1, start, end, LockKind::Read)), Err(Errno::INVAL));
        }
    }
}
