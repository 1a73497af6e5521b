//! Locks of ranges of files, and those of whole files (flock(2)), which are the same here as over
//! NFS.

use super::{Asker, Files, Open};
use crate::answers::errno;
use crate::waiting;
use fuser::{LockOwner, ReplyEmpty, ReplyLock};
use nix::errno::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;
use wire::files::{Ask, Lock, LockKind, Told};

/// Between two tries to get a lock that somebody else has: at first, and at most.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// # Errors
/// It is no kind of lock.
pub fn lock_of(owner: LockOwner, (start, end): (u64, u64), kind: i32) -> Result<Lock, Errno> {
    let kind = match kind {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::None,
        _ => return Err(Errno::EINVAL),
    };
    Ok(Lock { owner: owner.0, start, end, kind })
}

impl Files {
    pub fn test_lock(&self, by: Asker, open: &Open, lock: Lock, reply: ReplyLock) {
        let ask = Ask::TestLock { handle: open.handle, lock };
        self.ask_open(Some(by), open, ask, Vec::new(), move |outcome| {
            match outcome.map(|heard| heard.told) {
                Ok(Told::Lock(found)) => {
                    let kind = match found.kind {
                        LockKind::Read => libc::F_RDLCK,
                        LockKind::Write => libc::F_WRLCK,
                        LockKind::None => libc::F_UNLCK,
                    };
                    reply.locked(found.start, found.end, kind, 0);
                }
                Ok(_) => reply.error(errno(Errno::EPROTO)),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    pub fn set_lock(
        self: &Arc<Files>,
        by: Asker,
        open: Arc<Open>,
        lock: Lock,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        open.is_used.store(true, Ordering::Relaxed);
        let ask = Ask::SetLock { handle: open.handle, lock };
        let (files, again) = (self.clone(), open.clone());
        self.ask_open(Some(by), &open, ask, Vec::new(), move |outcome| match outcome {
            Ok(_) => reply.ok(),
            Err(Errno::EAGAIN | Errno::EACCES) if waits => {
                let wait = move || match files.await_lock(by, &again, lock) {
                    Ok(()) => reply.ok(),
                    Err(error) => reply.error(errno(error)),
                };
                // Without a thread the reply is dropped, which answers it with EIO.
                drop(std::thread::Builder::new().name("lock".into()).spawn(wait));
            }
            Err(error) => reply.error(errno(error)),
        });
    }

    /// As over NFS, nobody tells when a lock is given up: it is asked for again, less and less
    /// often, until it is had, or whoever waits for it gets a signal.
    fn await_lock(&self, by: Asker, open: &Open, lock: Lock) -> Result<(), Errno> {
        let mut pause = PAUSE;
        loop {
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
            if waiting::is_signalled(by.thread) {
                return Err(Errno::EINTR);
            }
            let (told, tells) = channel();
            let ask = Ask::SetLock { handle: open.handle, lock };
            self.ask_open(None, open, ask, Vec::new(), move |outcome| {
                // Somebody listens, below.
                let _ = told.send(outcome.map(|_| ()));
            });
            match tells.recv().unwrap_or(Err(Errno::EIO)) {
                Err(Errno::EAGAIN | Errno::EACCES) => {}
                ended => return ended,
            }
        }
    }
}
