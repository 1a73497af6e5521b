//! Which thread has which slot.

use std::collections::{HashMap, HashSet};
use wire::ids::GuestTid;

/// Threads by the id that the guest knows, which is a thread's for life.
#[derive(Default)]
pub struct Tids {
    slots: HashMap<GuestTid, usize>,
    /// Those that have ended, and whose slot another has: their bodies may not know yet.
    ended: HashSet<GuestTid>,
}

/// So many threads may end and leave their slots to others in one stay.
const ENDED_MAX: usize = 1 << 16;

impl Tids {
    /// Of the threads in the first slots.
    pub fn of(threads: impl Iterator<Item = GuestTid>) -> Tids {
        let slots = threads.enumerate().map(|(slot, tid)| (tid, slot)).collect();
        Tids { slots, ended: HashSet::new() }
    }

    pub fn slot_of(&self, tid: GuestTid) -> Option<usize> {
        self.slots.get(&tid).copied()
    }

    /// Whether a thread has ended, and another has its slot.
    pub fn has_ended(&self, tid: GuestTid) -> bool {
        self.ended.contains(&tid)
    }

    /// There has been one thread only.
    pub fn is_alone(&self) -> bool {
        self.slots.len() == 1 && self.ended.is_empty()
    }

    /// No more threads are to begin.
    pub fn is_full(&self) -> bool {
        self.ended.len() >= ENDED_MAX
    }

    /// A thread begins in the slot that another, or none, has had.
    pub fn begin(&mut self, slot: usize, before: GuestTid, tid: GuestTid) {
        if self.slots.get(&before) == Some(&slot) {
            self.slots.remove(&before);
            self.ended.insert(before);
        }
        // The kernel gives ids of ended threads again.
        self.ended.remove(&tid);
        self.slots.insert(tid, slot);
    }

    /// There was no such thread.
    pub fn forget(&mut self, tid: GuestTid) {
        self.slots.remove(&tid);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const FIRST: GuestTid = GuestTid(7);
    const SECOND: GuestTid = GuestTid(8);
    const THIRD: GuestTid = GuestTid(9);

    #[test]
    fn a_thread_that_left_its_slot_to_another_is_known_to_have_ended() {
        let mut tids = Tids::of([FIRST, SECOND].into_iter());
        tids.begin(1, SECOND, THIRD);
        assert_eq!((tids.slot_of(FIRST), tids.slot_of(SECOND)), (Some(0), None));
        assert_eq!(tids.slot_of(THIRD), Some(1));
        assert!(tids.has_ended(SECOND) && !tids.has_ended(THIRD) && !tids.has_ended(FIRST));
    }

    #[test]
    fn an_id_that_is_given_again_is_that_of_the_new_thread() {
        let mut tids = Tids::of([FIRST, SECOND].into_iter());
        tids.begin(1, SECOND, THIRD);
        tids.begin(2, GuestTid(0), SECOND);
        assert_eq!(tids.slot_of(SECOND), Some(2));
        assert!(!tids.has_ended(SECOND));
        // And in the very slot that it had.
        tids.begin(2, SECOND, SECOND);
        assert_eq!(tids.slot_of(SECOND), Some(2));
        assert!(!tids.has_ended(SECOND));
    }

    #[test]
    fn one_that_never_was_has_neither_a_slot_nor_ended() {
        let mut tids = Tids::of([FIRST].into_iter());
        tids.begin(1, GuestTid(0), SECOND);
        assert!(!tids.is_alone());
        tids.forget(SECOND);
        assert!(tids.is_alone());
        assert_eq!(tids.slot_of(SECOND), None);
        assert!(!tids.has_ended(SECOND));
    }
}
