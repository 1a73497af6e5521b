//! What guests have left of their memory here, for when they come again ([decision
//! 0023](../../docs/decisions/0023-pages-of-earlier-guests.md)): which there are, whose, and for
//! how long. How much there may be is for the daemon to say.

use crate::supervisor::{Supervisor, SupervisorId};
use migrate::imprint;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use wire::ids::{GlobalPid, NodeId};
use wire::limits::{IMPRINT_AGE_MAX, IMPRINT_BYTES_MAX, IMPRINTS_MAX, IMPRINTS_PER_GUEST_MAX};

/// How long the supervisor of a body that has left may take to write down what that leaves.
const WRITING_TIMEOUT: Duration = Duration::from_secs(60);

/// Whose memory it is. Nobody else's process is compared with it: equal hashes would tell him what
/// it contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    pub home: NodeId,
    pub uid_at_home: u32,
    pub uid_here: u32,
}

struct Imprint {
    process: GlobalPid,
    user: User,
    file: OwnedFd,
    bytes: u64,
    left_at: Instant,
}

/// A body that has left, and may leave something.
struct Leaving {
    process: GlobalPid,
    user: User,
    /// Its socket is open for as long as this is there.
    _supervisor: Supervisor,
    until: Instant,
}

#[derive(Default)]
pub struct Imprints {
    /// In the order in which they were left.
    all: VecDeque<Imprint>,
    leaving: BTreeMap<SupervisorId, Leaving>,
}

impl Imprints {
    pub fn bytes(&self) -> u64 {
        self.all.iter().map(|imprint| imprint.bytes).sum()
    }

    /// The body of this supervisor is gone, which may say one thing more.
    pub fn expect(&mut self, now: Instant, process: GlobalPid, user: User, from: Supervisor) {
        let until = now + WRITING_TIMEOUT;
        let leaving = Leaving { process, user, until, _supervisor: from.clone() };
        self.leaving.insert(from.id, leaving);
    }

    /// A supervisor has ended, or what it says is of no use.
    pub fn expect_no_more(&mut self, id: SupervisorId) {
        self.leaving.remove(&id);
    }

    /// Keeps what a supervisor hands over that was expected to, instead of what its process has
    /// left before; false if it is none, or more than there is room for.
    pub fn keep(&mut self, now: Instant, id: SupervisorId, file: OwnedFd, room: u64) -> bool {
        let Some(Leaving { process, user, .. }) = self.leaving.remove(&id) else { return false };
        self.forget(process);
        let bytes = match sealed_bytes(&file) {
            Some(bytes) if bytes <= room => bytes,
            _ => return false,
        };
        if self.all.len() == IMPRINTS_MAX {
            self.all.pop_front();
        }
        self.all.push_back(Imprint { process, user, file, bytes, left_at: now });
        true
    }

    /// What is of use for a process that comes, and whether it has left that itself: its own first,
    /// then the newest.
    pub fn of(&self, process: GlobalPid, user: User) -> Vec<(bool, OwnedFd)> {
        let of_user = || self.all.iter().rev().filter(|imprint| imprint.user == user);
        let (own, others) = (
            of_user().filter(|imprint| imprint.process == process),
            of_user().filter(|imprint| imprint.process != process),
        );
        let mut bytes = 0;
        let mut fits = |imprint: &&Imprint| {
            bytes += imprint.bytes;
            bytes <= 2 * IMPRINT_BYTES_MAX
        };
        let chosen = own.chain(others).take(IMPRINTS_PER_GUEST_MAX).take_while(&mut fits);
        let shared = chosen.filter_map(|imprint| {
            let file = imprint.file.try_clone().ok()?;
            Some((imprint.process == process, file))
        });
        shared.collect()
    }

    /// It is here again, with all of it.
    pub fn forget(&mut self, process: GlobalPid) {
        self.all.retain(|imprint| imprint.process != process);
    }

    /// Only those of such users stay.
    pub fn retain(&mut self, is_welcome: impl Fn(User) -> bool) {
        self.all.retain(|imprint| is_welcome(imprint.user));
        self.leaving.retain(|_, leaving| is_welcome(leaving.user));
    }

    pub fn expire(&mut self, now: Instant) {
        self.all.retain(|imprint| now.duration_since(imprint.left_at) < IMPRINT_AGE_MAX);
        self.leaving.retain(|_, leaving| now < leaving.until);
    }

    /// Gives up so much, or all, the oldest first; returns how much it was.
    pub fn give_back(&mut self, bytes: u64) -> u64 {
        let mut given = 0;
        while given < bytes {
            let Some(oldest) = self.all.pop_front() else { break };
            given += oldest.bytes;
        }
        given
    }
}

/// How much memory a file takes whose contents cannot change any more, nor get any where there are
/// none; None for any other.
fn sealed_bytes(file: &OwnedFd) -> Option<u64> {
    let seals = SealFlag::from_bits_retain(fcntl(file, FcntlArg::F_GET_SEALS).ok()?);
    if !seals.contains(imprint::seals()) {
        return None;
    }
    let stat = nix::sys::stat::fstat(file).ok()?;
    let bytes = u64::try_from(stat.st_size).ok()?;
    let is_whole = u64::try_from(stat.st_blocks).ok()?.saturating_mul(512) >= bytes;
    imprint::pages_of(bytes).filter(|count| *count > 0 && is_whole).map(|_| bytes)
}

#[cfg(test)]
mod test {
    use super::*;
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use std::fs::File;
    use std::io::Write;
    use wire::ids::HomePid;

    const EACH: u64 = 4096 + 8;
    const ANNA: User = User { home: NodeId(1), uid_at_home: 1000, uid_here: 2000 };

    fn process(pid: i32) -> GlobalPid {
        GlobalPid { home: NodeId(1), pid: HomePid(pid) }
    }

    fn open() -> File {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        memfd_create(c"test", flags).unwrap().into()
    }

    fn sealed(file: File) -> OwnedFd {
        fcntl(&file, FcntlArg::F_ADD_SEALS(imprint::seals())).unwrap();
        file.into()
    }

    fn file(bytes: u64, is_sealed: bool) -> OwnedFd {
        let mut file = open();
        file.write_all(&vec![1; bytes as usize]).unwrap();
        if is_sealed { sealed(file) } else { file.into() }
    }

    fn sparse(bytes: u64) -> OwnedFd {
        let file = open();
        file.set_len(bytes).unwrap();
        sealed(file)
    }

    impl Imprints {
        fn take(&mut self, now: Instant, pid: i32, user: User, file: OwnedFd, room: u64) -> bool {
            let supervisor = Supervisor::deaf();
            let id = supervisor.id;
            self.expect(now, process(pid), user, supervisor);
            self.keep(now, id, file, room)
        }

        fn whose(&self, pid: i32, user: User) -> Vec<bool> {
            self.of(process(pid), user).iter().map(|(is_own, _)| *is_own).collect()
        }
    }

    #[test]
    fn nobody_is_given_what_another_users_process_has_left() {
        let now = Instant::now();
        let mut imprints = Imprints::default();
        assert!(imprints.take(now, 7, ANNA, file(EACH, true), EACH));
        assert_eq!(imprints.whose(7, ANNA), [true]);
        assert_eq!(imprints.whose(8, ANNA), [false]);
        let others = [
            User { home: NodeId(2), ..ANNA },
            User { uid_at_home: 1001, ..ANNA },
            User { uid_here: 2001, ..ANNA },
        ];
        for other in others {
            assert!(imprints.whose(7, other).is_empty());
        }
    }

    #[test]
    fn only_what_cannot_change_any_more_and_is_small_enough_is_kept() {
        let now = Instant::now();
        let mut imprints = Imprints::default();
        let lies = [
            (file(EACH, false), EACH),
            (file(EACH, true), EACH - 1),
            (file(EACH + 1, true), 2 * EACH),
            (file(0, true), EACH),
            (sparse(EACH), EACH),
            (sparse((IMPRINT_BYTES_MAX / 4096 + 1) * EACH), u64::MAX),
            (tempfile::tempfile().unwrap().into(), EACH),
            (std::io::pipe().unwrap().0.into(), EACH),
        ];
        for (lie, room) in lies {
            assert!(!imprints.take(now, 7, ANNA, lie, room));
        }
        assert!(!imprints.keep(now, SupervisorId(9), file(EACH, true), EACH), "of a stranger");
        assert_eq!(imprints.bytes(), 0);
        assert!(imprints.take(now, 7, ANNA, file(EACH, true), EACH));
        assert!(imprints.take(now, 7, ANNA, file(2 * EACH, true), 2 * EACH), "instead of that");
        assert_eq!(imprints.bytes(), 2 * EACH);
    }

    #[test]
    fn the_oldest_go_first_and_each_after_its_time() {
        let now = Instant::now();
        let mut imprints = Imprints::default();
        for pid in 0..IMPRINTS_MAX as i32 + 1 {
            let later = now + Duration::from_secs(pid as u64);
            assert!(imprints.take(later, pid, ANNA, file(EACH, true), EACH));
        }
        assert_eq!(imprints.bytes(), IMPRINTS_MAX as u64 * EACH);
        assert!(!imprints.whose(0, ANNA).contains(&true), "the first had to go");
        assert_eq!(imprints.whose(9, ANNA), [vec![true], vec![false; 7]].concat());
        assert_eq!(imprints.give_back(EACH + 1), 2 * EACH);
        assert!(!imprints.whose(2, ANNA).contains(&true) && imprints.whose(3, ANNA)[0]);
        imprints.forget(process(3));
        assert!(!imprints.whose(3, ANNA)[0]);
        imprints.expire(now + IMPRINT_AGE_MAX + Duration::from_secs(4));
        assert!(!imprints.whose(4, ANNA)[0] && imprints.whose(5, ANNA)[0]);
        imprints.retain(|user| user != ANNA);
        assert_eq!((imprints.bytes(), imprints.give_back(1)), (0, 0));
    }
}
