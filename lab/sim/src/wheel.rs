//! Events in the order of their time: a wheel of slots of about a millisecond.
//!
//! Almost all events of a cluster lie less than a few seconds ahead. They go into the slot of their
//! time unsorted, and a slot is sorted when its time comes: cheaper than one large heap, whose
//! every step would miss the caches. What lies further ahead waits in an ordered map of slots.

use cluster::Time;
use std::cmp::Reverse;
use std::collections::BTreeMap;

const SLOT_BITS: u32 = 10;
const SLOTS: u64 = 2_048;
/// Places of a slot for which memory is kept.
const SLOT_KEPT_MAX: usize = 256;

/// An event of a slot. A million nodes have some millions of them: so it is small.
struct Entry<E> {
    /// Since the beginning of its slot.
    offset: u16,
    event: E,
}

const _: () = assert!(SLOT_BITS <= u16::BITS);

pub(crate) struct Wheel<E> {
    /// Slots that lie less than a turn ahead, by their number modulo [`SLOTS`]; in each the events
    /// as they were scheduled.
    slots: Vec<Vec<Entry<E>>>,
    far: BTreeMap<u64, Vec<Entry<E>>>,
    /// What is left of the present slot, the last first.
    present: Vec<Entry<E>>,
    slot: u64,
}

impl<E> Wheel<E> {
    pub fn starting_at(now: Time) -> Wheel<E> {
        Wheel {
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
            far: BTreeMap::new(),
            present: Vec::new(),
            slot: now.0 >> SLOT_BITS,
        }
    }

    /// What was to happen before the present slot happens at its beginning. Events of one moment
    /// happen in the order in which they were scheduled.
    pub fn schedule(&mut self, at: Time, event: E) {
        let slot = at.0 >> SLOT_BITS;
        let offset = if slot < self.slot { 0 } else { (at.0 - (slot << SLOT_BITS)) as u16 };
        let entry = Entry { offset, event };
        if slot <= self.slot {
            let place = self.present.partition_point(|other| other.offset > offset);
            self.present.insert(place, entry);
        } else if slot - self.slot < SLOTS {
            self.slots[(slot % SLOTS) as usize].push(entry);
        } else {
            self.far.entry(slot).or_default().push(entry);
        }
    }

    /// The next event, if it happens by `end`.
    pub fn next_until(&mut self, end: Time) -> Option<(Time, E)> {
        loop {
            let begins = self.slot << SLOT_BITS;
            let is_due = |first: &mut Entry<E>| begins + u64::from(first.offset) <= end.0;
            if let Some(first) = self.present.pop_if(is_due) {
                return Some((Time(begins + u64::from(first.offset)), first.event));
            }
            if !self.present.is_empty() || self.slot >= end.0 >> SLOT_BITS {
                return None;
            }
            self.turn();
        }
    }

    /// On to the next slot.
    fn turn(&mut self) {
        self.slot += 1;
        // The memory of the last serves the next, unless that is so much that two seconds of it
        // would be more than all the nodes.
        let mut empty = std::mem::take(&mut self.present);
        if empty.capacity() > SLOT_KEPT_MAX {
            empty = Vec::new();
        }
        let slot = &mut self.slots[(self.slot % SLOTS) as usize];
        self.present = std::mem::replace(slot, empty);
        if let Some(first) = self.far.first_entry()
            && *first.key() <= self.slot
        {
            // They were scheduled when this was more than a turn ahead: before all others.
            let mut first = first.remove();
            first.append(&mut self.present);
            self.present = first;
        }
        // The sort is stable: of one moment, the last scheduled stays the first in line.
        self.present.reverse();
        self.present.sort_by_key(|entry| Reverse(entry.offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn events_come_in_the_order_of_time_and_then_of_scheduling() {
        let mut dice = Dice::seeded(1);
        let mut wheel = Wheel::starting_at(Time::ZERO);
        let mut expected: Vec<(u64, u32)> = Vec::new();
        for nth in 0..5_000 {
            // From a microsecond to a minute ahead.
            let at = dice.below(10u64.pow(1 + nth % 7)) * 6 + 1;
            expected.push((at, nth));
            wheel.schedule(Time(at), nth);
        }
        expected.sort_by_key(|(at, _)| *at);
        let mut seen = Vec::new();
        while let Some((at, nth)) = wheel.next_until(Time(70_000_000)) {
            seen.push((at.0, nth));
        }
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_lies_beyond_the_end_waits() {
        let mut wheel = Wheel::starting_at(Time::ZERO);
        wheel.schedule(Time(900), 'a');
        wheel.schedule(Time(5_000_000), 'b');
        assert_eq!(wheel.next_until(Time(800)), None);
        assert_eq!(wheel.next_until(Time(4_999_999)), Some((Time(900), 'a')));
        assert_eq!(wheel.next_until(Time(4_999_999)), None);
        wheel.schedule(Time(4_999_999), 'c');
        assert_eq!(wheel.next_until(Time(4_999_999)), Some((Time(4_999_999), 'c')));
        assert_eq!(wheel.next_until(Time(5_000_000)), Some((Time(5_000_000), 'b')));
    }
}
