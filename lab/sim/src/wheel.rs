//! Events in the order of their time: a wheel of slots that hold about a dozen events each.
//!
//! Almost all events of a cluster lie less than a few seconds ahead. They go into the slot of their
//! time unsorted, and a slot is sorted when its time comes: cheaper than one large heap, whose
//! every step would miss the caches. What lies further ahead waits in an ordered map of slots.

use cluster::Time;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

/// All slots together last that long, in powers of two of a microsecond: two seconds.
const TURN_BITS: u32 = 21;
/// With more, an event that is due at once is put into a long line; with fewer, the slots take more
/// of the caches than the events.
const EVENTS_IN_SLOT: usize = 12;
const SLOT_BITS_MIN: u32 = 6;
const SLOT_BITS_MAX: u32 = 14;
const _: () = assert!(SLOT_BITS_MAX <= u16::BITS);
/// Into a longer line nobody is put in the middle.
const LINE_MAX: usize = 64;
/// The memory of so many slots that are past, if each has no more places than that, serves those to
/// come: the last first, as it is still in a cache.
const SPARE_MAX: usize = 64;
const SPARE_PLACES_MAX: usize = 256;

/// An event of a slot. A million nodes have some millions of them: so it is small.
struct Entry<E> {
    /// Since the beginning of its slot.
    offset: u16,
    event: E,
}

/// An event that came to the present slot when its line was long.
struct Late<E> {
    offset: u16,
    number: u32,
    event: E,
}

impl<E> Late<E> {
    fn order(&self) -> Reverse<(u16, u32)> {
        Reverse((self.offset, self.number))
    }
}

impl<E> Ord for Late<E> {
    fn cmp(&self, other: &Late<E>) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl<E> PartialOrd for Late<E> {
    fn partial_cmp(&self, other: &Late<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Late<E> {
    fn eq(&self, other: &Late<E>) -> bool {
        self.order() == other.order()
    }
}

impl<E> Eq for Late<E> {}

pub(crate) struct Wheel<E> {
    /// Slots that lie less than a turn ahead, by their number modulo theirs; in each the events
    /// as they were scheduled.
    slots: Vec<Vec<Entry<E>>>,
    /// How long a slot is, in powers of two of a microsecond.
    slot_bits: u32,
    far: BTreeMap<u64, Vec<Entry<E>>>,
    /// What is left of the present slot, the last first.
    present: Vec<Entry<E>>,
    /// Those that came when that was long. While there are any, all come here: so each was
    /// scheduled later than all that are left in line.
    late: BinaryHeap<Late<E>>,
    late_count: u32,
    slot: u64,
    /// Memory of slots that are past.
    spare: Vec<Vec<Entry<E>>>,
}

impl<E> Wheel<E> {
    /// For about so many events in a second.
    pub fn starting_at(now: Time, events_per_s: usize) -> Wheel<E> {
        let slot_us = EVENTS_IN_SLOT * 1_000_000 / events_per_s.max(1);
        let slot_bits = slot_us.max(1).ilog2().clamp(SLOT_BITS_MIN, SLOT_BITS_MAX);
        Wheel {
            slots: (0..1 << (TURN_BITS - slot_bits)).map(|_| Vec::new()).collect(),
            slot_bits,
            far: BTreeMap::new(),
            present: Vec::new(),
            late: BinaryHeap::new(),
            late_count: 0,
            spare: Vec::new(),
            slot: now.0 >> slot_bits,
        }
    }

    /// What was to happen before the present slot happens at its beginning. Events of one moment
    /// happen in the order in which they were scheduled.
    pub fn schedule(&mut self, at: Time, event: E) {
        let slot = at.0 >> self.slot_bits;
        let offset = if slot < self.slot { 0 } else { (at.0 - (slot << self.slot_bits)) as u16 };
        if slot <= self.slot && (self.present.len() > LINE_MAX || !self.late.is_empty()) {
            self.late_count = if self.late.is_empty() { 0 } else { self.late_count + 1 };
            return self.late.push(Late { offset, number: self.late_count, event });
        }
        let entry = Entry { offset, event };
        if slot <= self.slot {
            let place = self.present.partition_point(|other| other.offset > offset);
            self.present.insert(place, entry);
        } else if slot - self.slot < self.slots.len() as u64 {
            let place = self.place(slot);
            let slot = &mut self.slots[place];
            if slot.capacity() == 0 {
                *slot = self.spare.pop().unwrap_or_default();
            }
            slot.push(entry);
        } else {
            self.far.entry(slot).or_default().push(entry);
        }
    }

    /// One of the events that are left in the present slot, counted from 0: the next.
    pub fn peek(&self, nth: usize) -> Option<&E> {
        let place = self.present.len().checked_sub(nth + 1)?;
        self.present.get(place).map(|entry| &entry.event)
    }

    /// The next event, if it happens by `end`.
    pub fn next_until(&mut self, end: Time) -> Option<(Time, E)> {
        loop {
            let begins = self.slot << self.slot_bits;
            if !self.late.is_empty() {
                return self.next_of_many(begins, end);
            }
            let is_due = |first: &mut Entry<E>| begins + u64::from(first.offset) <= end.0;
            if let Some(first) = self.present.pop_if(is_due) {
                return Some((Time(begins + u64::from(first.offset)), first.event));
            }
            if !self.present.is_empty() || self.slot >= end.0 >> self.slot_bits {
                return None;
            }
            self.turn();
        }
    }

    /// The same when some are late.
    #[inline(never)]
    fn next_of_many(&mut self, begins: u64, end: Time) -> Option<(Time, E)> {
        let late = self.late.peek()?.offset;
        let first = self.present.last().map(|first| first.offset).filter(|first| *first <= late);
        let at = Time(begins + u64::from(first.unwrap_or(late)));
        if at > end {
            return None;
        }
        let event = match first {
            Some(_) => self.present.pop()?.event,
            None => self.late.pop()?.event,
        };
        Some((at, event))
    }

    fn place(&self, slot: u64) -> usize {
        slot as usize & (self.slots.len() - 1)
    }

    /// On to the next slot.
    fn turn(&mut self) {
        self.slot += 1;
        if let Some(first) = self.far.first_entry()
            && *first.key() <= self.slot
        {
            // They were scheduled when this was more than a turn ahead: before all others.
            self.present.append(&mut first.remove());
        }
        let place = self.place(self.slot);
        let mut slot = std::mem::take(&mut self.slots[place]);
        self.present.append(&mut slot);
        if (1..=SPARE_PLACES_MAX).contains(&slot.capacity()) && self.spare.len() < SPARE_MAX {
            self.spare.push(slot);
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
    use std::collections::BTreeSet;

    #[test]
    fn events_come_in_the_order_of_time_and_then_of_scheduling() {
        for events_per_s in [0, 50, 3_000, 1_000_000_000] {
            come_in_order(events_per_s);
        }
    }

    fn come_in_order(events_per_s: usize) {
        let mut dice = Dice::seeded(1);
        let mut wheel = Wheel::starting_at(Time::ZERO, events_per_s);
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
    fn events_that_are_due_at_once_take_their_places_in_short_and_long_lines() {
        for events_per_s in [50, 3_000, 1_000_000_000] {
            let mut dice = Dice::seeded(2);
            let mut wheel = Wheel::starting_at(Time::ZERO, events_per_s);
            let mut expected: BTreeSet<(u64, u32)> = BTreeSet::new();
            let mut now = 0;
            for nth in 0..60_000 {
                // Now and then a crowd comes at one time.
                let is_coming = nth % 1_000 < 300 || dice.below(2) == 0;
                if is_coming {
                    let at = now + dice.below(1_000);
                    expected.insert((at, nth));
                    wheel.schedule(Time(at), nth);
                } else if let Some((at, nth)) = wheel.next_until(Time(u64::MAX >> 1)) {
                    now = at.0;
                    assert_eq!(expected.pop_first(), Some((at.0, nth)));
                }
            }
            while let Some((at, nth)) = expected.pop_first() {
                assert_eq!(wheel.next_until(Time(at)), Some((Time(at), nth)));
            }
        }
    }

    #[test]
    fn what_lies_beyond_the_end_waits() {
        let mut wheel = Wheel::starting_at(Time::ZERO, 1_000);
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
