//! A page of memory by which several processes agree on one of two words, whoever of them ends.

use crate::shared::{SharedMemory, futex_wait, futex_wake};
use crate::{KernelError, Result};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const PAGE_BYTES: usize = 4096;
/// Offsets: what was decided, how often anything has changed, by whose word, and how many have come
/// to each stage.
const WORD: usize = 0;
const NEWS: usize = 4;
const WHO: usize = 8;
const COUNTS: usize = 12;

const OPEN: u32 = 0;
const YES: u32 = 1;
const NO: u32 = 2;

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Open,
    Yes,
    /// By the word of this one; 0 for a moment yet, or if that is nobody in particular.
    No(u32),
}

pub struct Agreement(SharedMemory);

impl Agreement {
    /// Nobody who is given it can change its size: to touch a page that has gone would end whoever
    /// does.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn create() -> Result<Agreement> {
        let failed = |errno: Errno| KernelError::errno("make an agreement", errno as i32);
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let memory =
            SharedMemory::of_file(memfd_create(c"osmos", flags).map_err(failed)?, PAGE_BYTES)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(memory.file(), FcntlArg::F_ADD_SEALS(seals)).map_err(failed)?;
        Ok(Agreement(memory))
    }

    /// One that another process has made.
    ///
    /// # Errors
    /// It cannot be mapped.
    pub fn of(file: OwnedFd) -> Result<Agreement> {
        Ok(Agreement(SharedMemory::of_file(file, PAGE_BYTES)?))
    }

    pub fn file(&self) -> &OwnedFd {
        self.0.file()
    }

    pub fn verdict(&self) -> Verdict {
        match self.0.word(WORD).load(Ordering::SeqCst) {
            YES => Verdict::Yes,
            NO => Verdict::No(self.0.word(WHO).load(Ordering::SeqCst)),
            _ => Verdict::Open,
        }
    }

    /// Yes, unless no came first.
    pub fn agree(&self) {
        self.decide(YES, 0);
    }

    /// No, unless yes came first.
    pub fn refuse(&self, who: u32) {
        self.decide(NO, who);
    }

    fn decide(&self, what: u32, who: u32) {
        let order = Ordering::SeqCst;
        if self.0.word(WORD).compare_exchange(OPEN, what, order, order).is_ok() {
            self.0.word(WHO).store(who, order);
        }
        self.tell();
    }

    /// One more has come to this stage.
    pub fn arrive(&self, stage: usize) {
        self.0.word(COUNTS + 4 * stage).fetch_add(1, Ordering::SeqCst);
        self.tell();
    }

    pub fn arrived(&self, stage: usize) -> u32 {
        self.0.word(COUNTS + 4 * stage).load(Ordering::SeqCst)
    }

    fn tell(&self) {
        self.news().fetch_add(1, Ordering::SeqCst);
        futex_wake(self.news(), i32::MAX as u32);
    }

    fn news(&self) -> &AtomicU32 {
        self.0.word(NEWS)
    }

    /// What to hand to [`Agreement::wait`]: taken before looking at anything.
    pub fn seen(&self) -> u32 {
        self.news().load(Ordering::SeqCst)
    }

    /// Returns when something has changed since, or after this time.
    pub fn wait(&self, seen: u32, timeout: Duration) {
        futex_wait(self.news(), seen, Some(timeout));
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn whoever_is_given_it_can_agree_and_not_take_it_away() {
        let ours = Agreement::create().unwrap();
        let theirs = ours.file().try_clone().unwrap();
        for size in [0, 2 * PAGE_BYTES as i64] {
            assert!(nix::unistd::ftruncate(&theirs, size).is_err(), "{size}");
        }
        let theirs = Agreement::of(theirs).unwrap();
        assert_eq!(ours.verdict(), Verdict::Open);
        theirs.refuse(7);
        ours.agree();
        assert_eq!((ours.verdict(), theirs.verdict()), (Verdict::No(7), Verdict::No(7)));
    }
}
