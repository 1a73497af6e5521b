//! Events in the order of their time; those of one moment in the order in which they were
//! scheduled.

use brain::Time;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

struct Entry<E> {
    at: Time,
    /// Counts what was scheduled.
    number: u64,
    event: E,
}

/// The greatest is the next.
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Entry<E>) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Entry<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Entry<E>) -> bool {
        self.number == other.number
    }
}

impl<E> Eq for Entry<E> {}

pub(crate) struct Agenda<E> {
    entries: BinaryHeap<Entry<E>>,
    scheduled: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Agenda<E> {
        Agenda { entries: BinaryHeap::new(), scheduled: 0 }
    }
}

impl<E> Agenda<E> {
    pub fn schedule(&mut self, at: Time, event: E) {
        self.scheduled += 1;
        self.entries.push(Entry { at, number: self.scheduled, event });
    }

    /// The next event, if it happens by `end`.
    pub fn next_until(&mut self, end: Time) -> Option<(Time, E)> {
        let next = self.entries.peek_mut().filter(|next| next.at <= end)?;
        let next = PeekMut::pop(next);
        Some((next.at, next.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn events_come_in_the_order_of_time_and_then_of_scheduling() {
        let mut dice = Dice::seeded(1);
        let mut agenda = Agenda::default();
        let mut expected: Vec<(u64, u32)> = Vec::new();
        for nth in 0..5_000 {
            // From a microsecond to a minute ahead.
            let at = dice.below(10u64.pow(1 + nth % 7)) * 6 + 1;
            expected.push((at, nth));
            agenda.schedule(Time(at), nth);
        }
        expected.sort_by_key(|(at, _)| *at);
        let next = std::iter::from_fn(|| agenda.next_until(Time(70_000_000)));
        assert_eq!(next.map(|(at, nth)| (at.0, nth)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_lies_beyond_the_end_waits() {
        let mut agenda = Agenda::default();
        agenda.schedule(Time(900), 'a');
        agenda.schedule(Time(5_000_000), 'b');
        assert_eq!(agenda.next_until(Time(800)), None);
        assert_eq!(agenda.next_until(Time(4_999_999)), Some((Time(900), 'a')));
        assert_eq!(agenda.next_until(Time(4_999_999)), None);
        agenda.schedule(Time(4_999_999), 'c');
        assert_eq!(agenda.next_until(Time(4_999_999)), Some((Time(4_999_999), 'c')));
        assert_eq!(agenda.next_until(Time(5_000_000)), Some((Time(5_000_000), 'b')));
    }
}
