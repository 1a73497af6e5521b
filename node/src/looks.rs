//! When to look at `/proc`, and when again.
//!
//! There are two kinds of looks. One goes over all processes, on a thread of its own, four times a
//! second where there is something to see; after a birth one comes as soon as the brain may think
//! of moving whoever was born. The other is made every few milliseconds for as long as processes
//! are being born, and only at those that are young ([decision 0037](../../docs/decisions/)): it
//! costs one small file, and no more of a core than [`Effort`] allows.

use crate::procfs;
use crate::sample::effort::Effort;
use crate::sample::scan::Scanner;
use brain::looks;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between two looks over all processes.
const SCAN_PAUSE: Duration = Duration::from_micros(looks::PAUSE.0);
/// Without managed processes and guests there is less to see.
const SCAN_IDLE: Duration = Duration::from_secs(1);
/// A newborn is looked at then, when the brain may think of moving it.
const SCAN_NEWBORN: Duration = Duration::from_micros(looks::AFTER_BIRTH.0);
/// Between two looks at newborns.
pub const NEWBORN_PAUSE: Duration = Duration::from_micros(looks::NEWBORN_PAUSE.0);
/// So long after a birth there may be more.
const EXPECTANT: Duration = Duration::from_secs(2);
/// Numbers given between two looks that are looked at one by one: a look over all finds the others.
const NEW_MAX: i32 = 256;
/// Of one core, for all looks at newborns.
const SHARE: f64 = 0.01;

pub struct Looks {
    /// With what is known from one look over all to the next.
    scanner: Arc<Mutex<Scanner>>,
    is_scanning: bool,
    /// When the last look over all began.
    scanned_at: Option<Instant>,
    /// When the latest process was born here, and when to look over all for those that were born
    /// lately.
    born_at: Option<Instant>,
    newborn_scan: Option<Instant>,
    newborns: Newborns,
}

/// What is known from one look at newborns to the next.
struct Newborns {
    effort: Effort,
    last_number: Option<i32>,
    looked_at: Option<Instant>,
    until: Option<Instant>,
}

impl Newborns {
    fn next_look(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)?;
        Some(self.looked_at.map_or(now, |at| at + NEWBORN_PAUSE))
    }
}

impl Default for Looks {
    fn default() -> Looks {
        let (last_number, looked_at, until) = Default::default();
        Looks {
            scanner: Arc::default(),
            is_scanning: false,
            scanned_at: None,
            born_at: None,
            newborn_scan: None,
            newborns: Newborns { effort: Effort::of(SHARE), last_number, looked_at, until },
        }
    }
}

impl Looks {
    /// A process has come under Osmos that may have begun just now.
    pub fn born(&mut self, now: Instant) {
        self.born_at = Some(now);
        self.newborn_scan.get_or_insert(now + SCAN_NEWBORN);
        self.expect_more(now);
    }

    /// Somebody has begun, who may make others.
    pub fn expect_more(&mut self, now: Instant) {
        self.newborns.until = Some(now + EXPECTANT);
    }

    /// When to look next, at whatever it is. `is_idle`: there is nothing managed here.
    pub fn next(&self, now: Instant, is_idle: bool) -> Option<Instant> {
        let scan = self.next_scan(is_idle).filter(|_| !self.is_scanning);
        let newborns = self.newborns.next_look(now);
        scan.into_iter().chain(newborns).min()
    }

    /// When to look over all again; None: at once.
    fn next_scan(&self, is_idle: bool) -> Option<Instant> {
        let pause = if is_idle { SCAN_IDLE } else { SCAN_PAUSE };
        let regular = self.scanned_at? + pause;
        Some(self.newborn_scan.map_or(regular, |due| due.min(regular)))
    }

    /// Begins a look over all if it is time: one at a time. What to look with is for the thread
    /// that does it.
    pub fn begin_scan(&mut self, now: Instant, is_idle: bool) -> Option<Arc<Mutex<Scanner>>> {
        if self.is_scanning || self.next_scan(is_idle).is_some_and(|due| now < due) {
            return None;
        }
        self.is_scanning = true;
        self.scanned_at = Some(now);
        self.newborn_scan = self.born_at.map(|at| at + SCAN_NEWBORN).filter(|due| now < *due);
        Some(Arc::clone(&self.scanner))
    }

    pub fn scan_ended(&mut self) {
        self.is_scanning = false;
    }

    /// True if it is time to look at newborns, and there is something left to spend on it.
    pub fn begin_newborns(&mut self, now: Instant) -> bool {
        if self.newborns.next_look(now).is_none_or(|due| now < due) {
            return false;
        }
        self.newborns.looked_at = Some(now);
        self.newborns.effort.is_due(now)
    }

    /// A look at newborns took so much of a processor.
    pub fn newborns_took(&mut self, time: Duration) {
        self.newborns.effort.took(time);
    }

    /// The numbers that were given since the last look at newborns, `last` being the latest.
    pub fn new_numbers(&mut self, last: Option<i32>) -> Range<i32> {
        let before = std::mem::replace(&mut self.newborns.last_number, last);
        procfs::numbers_since(before, last, NEW_MAX)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn one_look_over_all_follows_another_and_seldom_where_nothing_is_managed() {
        let (mut looks, now) = (Looks::default(), Instant::now());
        assert!(looks.begin_scan(now, true).is_some(), "the first is made at once");
        assert_eq!(looks.next(now, true), None, "it is being made");
        assert!(looks.begin_scan(now + SCAN_IDLE, true).is_none());
        looks.scan_ended();
        assert_eq!(looks.next(now, true), Some(now + SCAN_IDLE));
        assert_eq!(looks.next(now, false), Some(now + SCAN_PAUSE));
        assert!(looks.begin_scan(now + SCAN_PAUSE, true).is_none());
        assert!(looks.begin_scan(now + SCAN_PAUSE, false).is_some());
    }

    #[test]
    fn whoever_was_born_is_looked_at_before_the_next_regular_look() {
        let (mut looks, now) = (Looks::default(), Instant::now());
        assert!(looks.begin_scan(now, false).is_some());
        looks.scan_ended();
        looks.born(now);
        let later = now + Duration::from_millis(20);
        looks.born(later);
        assert!(looks.begin_scan(later, false).is_none());
        let first = now + SCAN_NEWBORN;
        assert_eq!(looks.next_scan(false), Some(first));
        assert!(looks.begin_scan(first, false).is_some());
        looks.scan_ended();
        assert_eq!(looks.next_scan(false), Some(later + SCAN_NEWBORN), "the second is too young");
        assert!(looks.begin_scan(later + SCAN_NEWBORN, false).is_some());
        looks.scan_ended();
        assert_eq!(looks.next_scan(false), Some(later + SCAN_NEWBORN + SCAN_PAUSE));
    }

    #[test]
    fn looks_at_newborns_end_when_nobody_was_born_for_a_while() {
        let (mut looks, now) = (Looks::default(), Instant::now());
        assert!(!looks.begin_newborns(now));
        looks.expect_more(now);
        assert_eq!(looks.next(now, true), Some(now));
        assert!(looks.begin_newborns(now));
        assert_eq!(looks.next(now, true), Some(now + NEWBORN_PAUSE));
        assert!(!looks.begin_newborns(now), "that is too soon");
        looks.newborns_took(Duration::from_secs(1));
        assert!(!looks.begin_newborns(now + NEWBORN_PAUSE), "they have taken their share");
        assert_eq!(looks.next(now, true), Some(now + 2 * NEWBORN_PAUSE));
        assert_eq!(looks.next(now + EXPECTANT, true), None);
    }

    #[test]
    fn numbers_are_looked_at_once_and_not_after_they_have_begun_again() {
        let mut looks = Looks::default();
        assert_eq!(looks.new_numbers(Some(100)), 0..0, "who was there before is known");
        assert_eq!(looks.new_numbers(Some(103)), 101..104);
        assert_eq!(looks.new_numbers(Some(103)), 104..104);
        assert_eq!(looks.new_numbers(Some(7)), 0..0);
        assert_eq!(looks.new_numbers(Some(7 + NEW_MAX)), 0..0, "a look over all finds them");
        assert_eq!(looks.new_numbers(None), 0..0);
    }
}
