//! Supervisors that are started before a process needs one: a bounded number for each user whose
//! processes have needed one in the last seconds.
//!
//! To start a program takes the kernel and the dynamic linker two milliseconds, and a process that
//! is made away begins only when its supervisor at home is there. Whoever has just needed one is
//! the likeliest to need another: shells, builds and test suites make one process after the other.
//! A node that nothing happens on has none ready (`docs/decisions/0036-ready-supervisors.md`).

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use wire::peer::Owner;

/// For each user and half. Two that are needed at once are not rare: a pipeline, `make -j2`.
const READY_PER_USER: usize = 2;
/// Of all users together: each takes a few hundred KiB.
const READY_MAX: usize = 16;
/// How long one is kept after its user has last needed one.
const READY_FOR: Duration = Duration::from_secs(3);

/// Which half a supervisor is for; its process is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Deputy,
    Body,
}

pub type Key = (Kind, Owner);

/// What is ready, whatever that is, for each user and half.
pub struct Ready<T>(HashMap<Key, Shelf<T>>);

struct Shelf<T> {
    idle: VecDeque<T>,
    /// How many are being started.
    begun: usize,
    /// Somebody looks after a while whether they are needed still.
    is_watched: bool,
    last_use: Instant,
}

impl<T> Default for Ready<T> {
    fn default() -> Ready<T> {
        Ready(HashMap::new())
    }
}

impl<T> Ready<T> {
    /// One that is ready, if there is one.
    pub fn take(&mut self, key: Key) -> Option<T> {
        // The one that has waited longest is the likeliest to have got through its start.
        self.0.get_mut(&key)?.idle.pop_front()
    }

    /// This user has just needed one. Whether one more is to be started: it is counted as begun
    /// then, and [`Ready::finish`] follows.
    pub fn begins(&mut self, key: Key, now: Instant) -> bool {
        let count = |shelf: &Shelf<T>| shelf.idle.len() + shelf.begun;
        let all: usize = self.0.values().map(count).sum();
        let own = self.0.get_mut(&key).map_or(0, |shelf| {
            shelf.last_use = now;
            count(shelf)
        });
        if own >= READY_PER_USER || all >= READY_MAX {
            return false;
        }
        let fresh = || Shelf { idle: VecDeque::new(), begun: 0, is_watched: false, last_use: now };
        self.0.entry(key).or_insert_with(fresh).begun += 1;
        true
    }

    /// One that was begun is there, or could not be started. True if nobody watches this user's:
    /// the caller does then, and calls [`Ready::expire`] until there is nothing left.
    pub fn finish(&mut self, key: Key, one: Option<T>) -> bool {
        let Some(shelf) = self.0.get_mut(&key) else { return false };
        shelf.begun -= 1;
        shelf.idle.extend(one);
        !std::mem::replace(&mut shelf.is_watched, true)
    }

    /// All that is ready, of which nothing stays.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        std::mem::take(&mut self.0).into_values().flat_map(|shelf| shelf.idle)
    }

    /// Drops what is ready for a user who has needed none lately; when to look again, if not.
    pub fn expire(&mut self, key: Key, now: Instant) -> Option<Instant> {
        let shelf = self.0.get_mut(&key)?;
        let until = shelf.last_use + READY_FOR;
        if now < until {
            return Some(until);
        }
        shelf.idle.clear();
        shelf.is_watched = false;
        if shelf.begun == 0 {
            self.0.remove(&key);
        }
        None
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const ONE: Key = (Kind::Deputy, Owner { uid: 1000, gid: 1000 });

    fn filled(ready: &mut Ready<u32>, key: Key, now: Instant) -> usize {
        assert_eq!(ready.take(key), None);
        let mut count = 0;
        while ready.begins(key, now) {
            assert_eq!(ready.finish(key, Some(count)), count == 0, "one watches");
            count += 1;
        }
        count as usize
    }

    #[test]
    fn nobody_has_one_ready_who_has_needed_none() {
        let mut ready = Ready::<u32>::default();
        assert_eq!(ready.take(ONE), None);
        let now = Instant::now();
        assert_eq!(filled(&mut ready, ONE, now), READY_PER_USER);
        let other_half = (Kind::Body, ONE.1);
        assert_eq!(ready.take(other_half), None, "for the other half there is none");
        let other_user = (Kind::Deputy, Owner { uid: 1001, gid: 1000 });
        assert_eq!(ready.take(other_user), None);
        assert_eq!(ready.take(ONE), Some(0), "the oldest first");
        assert!(ready.begins(ONE, now), "the next takes its place");
        assert!(!ready.begins(ONE, now), "one that is being started counts");
        assert!(!ready.finish(ONE, None));
        assert!(ready.begins(ONE, now), "and does not any more if it could not be");
    }

    #[test]
    fn what_is_not_needed_for_a_while_is_dropped() {
        let mut ready = Ready::<u32>::default();
        let now = Instant::now();
        filled(&mut ready, ONE, now);
        let later = now + READY_FOR / 2;
        assert_eq!(ready.take(ONE), Some(0));
        assert!(ready.begins(ONE, later));
        assert!(!ready.finish(ONE, None));
        let until = later + READY_FOR;
        assert_eq!(ready.expire(ONE, now + READY_FOR), Some(until), "it was needed meanwhile");
        assert_eq!(ready.expire(ONE, until), None);
        assert!(ready.0.is_empty());
        assert_eq!(ready.expire(ONE, until), None);
    }

    #[test]
    fn all_that_is_ready_can_be_had_and_what_is_being_started_then_goes() {
        let mut ready = Ready::<u32>::default();
        let now = Instant::now();
        filled(&mut ready, ONE, now);
        assert_eq!(ready.take(ONE), Some(0));
        assert!(ready.begins(ONE, now));
        assert_eq!(ready.drain().collect::<Vec<_>>(), [1]);
        assert!(!ready.finish(ONE, Some(2)), "nobody is to watch it");
        assert_eq!(ready.take(ONE), None);
    }

    #[test]
    fn one_that_is_started_when_the_others_are_dropped_goes_when_it_is_there() {
        let mut ready = Ready::<u32>::default();
        let now = Instant::now();
        assert!(ready.begins(ONE, now));
        let late = now + READY_FOR;
        assert_eq!(ready.expire(ONE, late), None);
        assert!(ready.finish(ONE, Some(7)));
        assert_eq!(ready.expire(ONE, late), None, "whoever adds one looks at once");
        assert!(ready.0.is_empty());
    }

    #[test]
    fn what_one_who_needs_it_all_the_time_leaves_is_watched_once_and_others_leave_nothing() {
        let mut ready = Ready::<u32>::default();
        let now = Instant::now();
        let watched = (0..1000).filter(|_| {
            ready.take(ONE);
            ready.begins(ONE, now) && ready.finish(ONE, Some(1))
        });
        assert_eq!(watched.count(), 1);
        let none_could_be_started = (Kind::Body, ONE.1);
        assert!(ready.begins(none_could_be_started, now));
        assert!(ready.finish(none_could_be_started, None), "who asked for it watches");
        assert_eq!(ready.expire(none_could_be_started, now + READY_FOR), None);
        assert!(!ready.0.contains_key(&none_could_be_started));
    }

    #[test]
    fn all_users_together_have_no_more_than_so_many() {
        let mut ready = Ready::<u32>::default();
        let now = Instant::now();
        let users = (0..).map(|uid| (Kind::Body, Owner { uid, gid: 0 }));
        let counts: Vec<usize> =
            users.take(READY_MAX).map(|key| filled(&mut ready, key, now)).collect();
        assert_eq!(counts.iter().sum::<usize>(), READY_MAX);
    }
}
