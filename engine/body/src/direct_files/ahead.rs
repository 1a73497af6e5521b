//! Files that lie at home, whose bytes home sends before they are read
//! ([decision 0052](../../../../docs/decisions/0052-reading-ahead.md)).
//!
//! What lies here is what home's file has contained since it was given, up to the last message of
//! home's: home says of a change before anything else (`Changed`). So a read is answered
//! from it as if it had been made when that message left home, and nothing that the guest knows
//! happened later. What is not here is asked for, and awaited.
//!
//! Home makes a read that may meet the end of the file, and whatever is no plain reading.

use super::deed::{Deed, Span, scatter};
use kernel::memory::Memory;
use kernel::seccomp::Notification;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use wire::forward::ToHome;
use wire::limits::AHEAD_BYTES_MAX;
use wire::read_ahead::Asked;

/// What is sent ahead at first, once reads follow each other.
const REACH_BYTES_MIN: u64 = 128 << 10;
/// What others do at home takes effect after so long, also for a guest that is told nothing.
const FRESH: Duration = Duration::from_millis(100);
/// So much has to be read, one after the other, before home is asked. A call counts as what travels
/// meanwhile.
const WORTH_BYTES: u64 = 64 << 10;
const WORTH_BYTES_MAX: u64 = 64 << 20;
const CALL_BYTES: u64 = 16 << 10;

/// A file that home reads, call by call.
#[derive(Clone, Copy)]
pub struct Lies {
    size: u64,
    used_bytes: u64,
    worth_bytes: u64,
    /// Where the next read at a place begins, if it follows the last.
    next: u64,
}

impl Lies {
    pub fn of(size: u64) -> Lies {
        Lies { size, used_bytes: 0, worth_bytes: WORTH_BYTES, next: 0 }
    }

    /// Counts what is done with it: true if home is to be asked for it.
    pub fn is_worth(&mut self, deed: &Deed) -> bool {
        let Deed::Read(span) = deed else {
            self.used_bytes = 0;
            return false;
        };
        // More is read at home.
        if span.bytes() > AHEAD_BYTES_MAX {
            self.used_bytes = 0;
            return false;
        }
        if let Some(at) = span.at() {
            let is_next = at == self.next;
            self.next = at.saturating_add(span.bytes());
            if !is_next {
                self.used_bytes = 0;
                return false;
            }
        }
        let moved = span.bytes().min(self.size).saturating_add(CALL_BYTES);
        self.used_bytes = self.used_bytes.saturating_add(moved);
        self.used_bytes >= self.worth_bytes
    }

    /// It did not pay: the next time it has to be worth more.
    pub fn doubled(self) -> Lies {
        let worth_bytes = (self.worth_bytes * 2).min(WORTH_BYTES_MAX);
        Lies { used_bytes: 0, worth_bytes, ..self }
    }

    /// It is to be asked for as if it had just been opened.
    fn again(self) -> Lies {
        Lies { used_bytes: 0, ..self }
    }
}

/// What becomes of a call.
pub enum Outcome {
    Result(i64),
    /// Its bytes are on the way.
    Waits,
    /// Home makes it; it moves no position.
    AtHome,
    /// Home makes it, and all that is done with the file from now on.
    GoesHome,
}

/// A file whose bytes come.
pub struct Ahead {
    id: u64,
    size: u64,
    lies: Lies,
    position: u64,
    /// What home knows.
    told: u64,
    /// What is here, from this place to that; and what was asked for.
    parts: VecDeque<Vec<u8>>,
    start: u64,
    end: u64,
    asked: u64,
    /// Counts the places where it was asked for anew: what comes of an earlier one is of no use.
    stretch: u64,
    /// Where the next read begins if it follows the last, and how much is asked for beyond it then.
    next: u64,
    reach: u64,
    /// Home was asked whether all is as it was.
    is_asked: bool,
    /// Something of it was read here.
    has_paid: bool,
    /// Calls that are made again when something has come.
    waiting: Vec<Notification>,
}

impl Ahead {
    pub fn of(id: u64, (position, size): (u64, u64), lies: Lies) -> Ahead {
        Ahead {
            id,
            size,
            lies,
            position,
            told: position,
            parts: VecDeque::new(),
            start: position,
            end: position,
            asked: position,
            stretch: 0,
            next: position,
            reach: REACH_BYTES_MIN,
            is_asked: false,
            has_paid: false,
            waiting: vec![],
        }
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    /// As a file that home reads.
    pub fn lies(&self) -> Lies {
        if self.has_paid { self.lies.again() } else { self.lies.doubled() }
    }

    /// Where home is to go on, unless it knows.
    pub fn untold(&mut self) -> Option<u64> {
        let before = std::mem::replace(&mut self.told, self.position);
        (before != self.position).then_some(self.position)
    }

    pub fn leaves(&self) -> ToHome {
        ToHome::Ahead(Asked::Leaves { id: self.id })
    }

    /// Whether something is under way; then the call is made after it.
    pub fn has_wait(&mut self, n: &Notification) -> bool {
        let is_busy = !self.waiting.is_empty();
        if is_busy {
            self.waiting.push(*n);
        }
        is_busy
    }

    pub fn take_waiting(&mut self) -> Vec<Notification> {
        std::mem::take(&mut self.waiting)
    }

    /// Does what a call is, when home was last heard then; what home is to be told is told.
    pub fn take(
        &mut self,
        n: &Notification,
        deed: &Deed,
        heard: Option<Instant>,
        memory: &Memory,
        tell: impl FnOnce(ToHome),
    ) -> Outcome {
        if self.has_wait(n) {
            return Outcome::Waits;
        }
        match deed {
            Deed::Read(span) => self.read(n, span, heard, memory, tell),
            Deed::Seek { offset, whence } => self.seek(*offset, *whence),
            Deed::Write(_) | Deed::Sync { .. } => Outcome::AtHome,
        }
    }

    fn seek(&mut self, offset: i64, whence: i32) -> Outcome {
        let base = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => self.position,
            _ => return Outcome::GoesHome,
        };
        match base.checked_add_signed(offset).filter(|to| *to <= self.size) {
            Some(to) => {
                self.position = to;
                Outcome::Result(to as i64)
            }
            None => Outcome::GoesHome,
        }
    }

    fn read(
        &mut self,
        n: &Notification,
        span: &Span,
        heard: Option<Instant>,
        memory: &Memory,
        tell: impl FnOnce(ToHome),
    ) -> Outcome {
        let at = span.at().unwrap_or(self.position);
        let length = span.bytes();
        let is_ours = length > 0 && length <= AHEAD_BYTES_MAX;
        let end = at.checked_add(length).filter(|end| is_ours && *end <= self.size);
        let Some(end) = end else {
            return if span.at().is_some() { Outcome::AtHome } else { Outcome::GoesHome };
        };
        let is_next = at == self.next;
        let is_here = (self.start..=self.asked).contains(&at);
        if span.at().is_some() && !is_next && !is_here {
            // One of many at any places: others are made meanwhile.
            return Outcome::AtHome;
        }
        let asks = self.ask(at, end, is_next || is_here);
        let is_missing = end > self.end;
        let is_old = heard.is_none_or(|at| at.elapsed() > FRESH);
        let is_due = is_old && !is_missing && !self.is_asked;
        if let Some((from, to)) = asks.or(is_due.then_some((self.asked, self.asked))) {
            self.is_asked |= from == to;
            tell(ToHome::Ahead(Asked::Send { id: self.id, stretch: self.stretch, from, to }));
        }
        if is_missing || is_old {
            self.waiting.push(*n);
            return Outcome::Waits;
        }
        Outcome::Result(self.hand_over(span, at, end, memory))
    }

    /// What home is to send for a read from here to there.
    fn ask(&mut self, at: u64, end: u64, follows: bool) -> Option<(u64, u64)> {
        if at < self.start || at > self.asked {
            self.parts.clear();
            (self.start, self.end, self.asked) = (at, at, at);
            self.stretch += 1;
        }
        if !follows {
            self.reach = REACH_BYTES_MIN;
        } else if end > self.end && end <= self.asked {
            // It is waited for already: the guest is faster than the link.
            self.reach = (self.reach * 2).min(AHEAD_BYTES_MAX);
        }
        let beyond = if follows { at.saturating_add(self.reach).min(self.size) } else { end };
        let to = beyond.max(end);
        let is_due = end > self.asked || to.saturating_sub(self.asked) >= self.reach / 2;
        (is_due && to > self.asked).then(|| (std::mem::replace(&mut self.asked, to), to))
    }

    /// Writes into the guest's memory what is here: the result.
    fn hand_over(&mut self, span: &Span, at: u64, end: u64, memory: &Memory) -> i64 {
        let count = match self.within_one(at, end) {
            Some(bytes) => scatter(memory, span, bytes),
            None => scatter(memory, span, &self.gathered(at, end)),
        } as u64;
        let to = at + count;
        (self.next, self.has_paid) = (to, true);
        if span.at().is_none() {
            self.position = to;
        }
        while let Some(first) = self.parts.front() {
            let after = self.start + first.len() as u64;
            if after > to {
                break;
            }
            self.start = after;
            self.parts.pop_front();
        }
        if count == 0 { -i64::from(libc::EFAULT) } else { count as i64 }
    }

    fn within_one(&self, at: u64, end: u64) -> Option<&[u8]> {
        let mut from = self.start;
        for part in &self.parts {
            let to = from + part.len() as u64;
            if at < to {
                return (end <= to).then(|| &part[(at - from) as usize..(end - from) as usize]);
            }
            from = to;
        }
        None
    }

    fn gathered(&self, at: u64, end: u64) -> Vec<u8> {
        let mut all = Vec::with_capacity((end - at) as usize);
        let mut from = self.start;
        for part in &self.parts {
            let to = from + part.len() as u64;
            let (first, last) = (at.clamp(from, to), end.clamp(from, to));
            all.extend_from_slice(&part[(first - from) as usize..(last - from) as usize]);
            from = to;
        }
        all
    }

    /// What has come; those who waited make their calls again.
    pub fn hear(&mut self, stretch: u64, at: u64, bytes: Vec<u8>) -> Vec<Notification> {
        let length = bytes.len() as u64;
        if length == 0 {
            self.is_asked = false;
        } else if stretch != self.stretch || at != self.end || length > self.asked - self.end {
            return vec![];
        } else {
            self.end += length;
            self.parts.push_back(bytes);
        }
        self.take_waiting()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const SIZE: u64 = 10 << 20;

    fn ahead() -> Ahead {
        Ahead::of(7, (0, SIZE), Lies::of(SIZE))
    }

    /// What home sends for a question.
    fn answer(ahead: &mut Ahead, (from, to): (u64, u64)) {
        let bytes = (from..to).map(|at| (at % 251) as u8).collect();
        ahead.hear(ahead.stretch, from, bytes);
    }

    #[test]
    fn more_is_asked_for_the_longer_the_link_is_waited_for_but_no_more_than_may_lie_here() {
        let mut it = ahead();
        assert_eq!(it.ask(0, 4096, true), Some((0, REACH_BYTES_MIN)));
        for _ in 0..10 {
            assert_eq!(it.ask(0, 4096, true).map_or(it.asked, |asked| asked.1), it.asked);
            assert!(it.asked <= AHEAD_BYTES_MAX, "{}", it.asked);
        }
        assert_eq!(it.asked, AHEAD_BYTES_MAX);
        // Nothing beyond the end of the file.
        assert_eq!(it.ask(SIZE - 4096, SIZE, true), Some((SIZE - 4096, SIZE)));
    }

    #[test]
    fn a_read_elsewhere_asks_for_itself_alone_and_has_what_comes_late_dropped() {
        let mut it = ahead();
        let first = it.ask(0, 4096, true).unwrap();
        let before = it.stretch;
        assert_eq!(it.ask(5 << 20, (5 << 20) + 100, false), Some((5 << 20, (5 << 20) + 100)));
        assert!(it.hear(before, first.0, vec![1; 4096]).is_empty());
        assert_eq!(it.end, 5 << 20);
        // Nor is more taken than was asked for, or what begins elsewhere.
        it.hear(it.stretch, 5 << 20, vec![1; 101]);
        it.hear(it.stretch, (5 << 20) + 1, vec![1; 10]);
        assert_eq!(it.end, 5 << 20);
        it.hear(it.stretch, 5 << 20, vec![1; 100]);
        assert_eq!(it.end, (5 << 20) + 100);
    }

    #[test]
    fn bytes_are_those_of_their_place_however_they_came() {
        let mut it = ahead();
        let (from, to) = it.ask(0, 4096, true).unwrap();
        for part in (from..to).step_by(1000) {
            answer(&mut it, (part, (part + 1000).min(to)));
        }
        for (at, end) in [(0, 1000), (1, 999), (999, 1001), (500, 40_000), (131_000, 131_072)] {
            let expected: Vec<u8> = (at..end).map(|at| (at % 251) as u8).collect();
            assert_eq!(it.gathered(at, end), expected);
            assert!(it.within_one(at, end).is_none_or(|bytes| bytes == expected));
        }
        assert!(it.within_one(0, 1000).is_some() && it.within_one(999, 1001).is_none());
    }

    #[test]
    fn a_place_beyond_the_file_or_from_its_end_is_homes_to_find() {
        let mut it = ahead();
        assert!(matches!(it.seek(100, libc::SEEK_SET), Outcome::Result(100)));
        assert!(matches!(it.seek(-50, libc::SEEK_CUR), Outcome::Result(50)));
        assert_eq!(it.untold(), Some(50));
        assert_eq!(it.untold(), None);
        for (offset, whence) in [(-51, libc::SEEK_CUR), (-1, libc::SEEK_SET), (0, libc::SEEK_END)] {
            assert!(matches!(it.seek(offset, whence), Outcome::GoesHome));
        }
        assert!(matches!(it.seek(SIZE as i64 + 1, libc::SEEK_SET), Outcome::GoesHome));
        assert_eq!(it.untold(), None);
    }
}
