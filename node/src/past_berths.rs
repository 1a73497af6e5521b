//! Tickets of berths that ended before their visitor came: its body died, or the move was called
//! off. Whoever names one was invited and is no stranger: it is turned away at once, where a
//! stranger is met with silence. Else a process that was to move here would wait for seconds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use wire::ids::Ticket;

/// Longer than any visitor is on the way.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// With more of them the oldest is forgotten, and its visitor meets with silence.
const KEPT_MAX: usize = 256;

#[derive(Default)]
pub struct PastBerths {
    /// The oldest first.
    ended: VecDeque<(Instant, Ticket)>,
}

impl PastBerths {
    pub fn note(&mut self, now: Instant, ticket: Ticket) {
        while self.ended.front().is_some_and(|(at, _)| now.duration_since(*at) >= KEPT_FOR)
            || self.ended.len() >= KEPT_MAX
        {
            self.ended.pop_front();
        }
        self.ended.push_back((now, ticket));
    }

    pub fn holds(&self, now: Instant, ticket: Ticket) -> bool {
        let mut ended = self.ended.iter();
        ended.any(|(at, other)| *other == ticket && now.duration_since(*at) < KEPT_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_known_for_a_while_and_as_many_as_there_is_room_for() {
        let mut past = PastBerths::default();
        let start = Instant::now();
        past.note(start, Ticket([1; 16]));
        assert!(past.holds(start, Ticket([1; 16])));
        assert!(!past.holds(start, Ticket([2; 16])));
        assert!(!past.holds(start + KEPT_FOR, Ticket([1; 16])));
        for _ in 0..KEPT_MAX {
            past.note(start, Ticket([3; 16]));
        }
        assert!(!past.holds(start, Ticket([1; 16])), "the oldest gave way");
        assert_eq!(past.ended.len(), KEPT_MAX);
    }
}
