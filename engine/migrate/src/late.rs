//! Memory that comes behind its process, as the source sees it: what it has the target do without,
//! and in what order it gives that away later ([decision
//! 0026](../../../docs/decisions/0026-pages-behind-the-process.md)).
//!
//! Nothing of it is told in the freeze that can be told before: while the process runs still the
//! target discards what is not the same any more, and has it as late. In the freeze that is only
//! what was written to since.

use crate::copying::{Copying, Pass};
use crate::held::{self, Held, union, within};
use crate::parts::{Part, Send};
use crate::sight::Sight;
use crate::{MigrateError, Result};
use kernel::memory::Memory;
use kernel::proc::pagemap::Run;
use wire::image::{Mapping, MappingFlags, MappingKind, Span};
use wire::limits::{DISCARDS_MAX, LATE_RANGES_MAX};

/// Whether pages of a mapping may come behind the process. The kernel serves faults in ordinary
/// private memory. A stack is small, and mostly needed at once.
pub fn may_be_late(mapping: &Mapping) -> bool {
    let is_ordinary = matches!(mapping.kind, MappingKind::Anonymous { grows_down: false });
    is_ordinary && !mapping.flags.has(MappingFlags::DROPPABLE)
}

impl Copying {
    /// Has the target do without what it lacks of ordinary memory of a process that runs. False if
    /// that is too much in pieces.
    ///
    /// # Errors
    /// Of `send`, or the process has ended.
    pub fn set_aside(
        &mut self,
        memory: &Memory,
        mappings: &[Mapping],
        send: Send<'_>,
    ) -> Result<bool> {
        let mut lacking = Vec::new();
        memory.between_writes(|| -> Result<()> {
            for mapping in mappings {
                let (walked, is_watched) = self.walk(mapping)?;
                walked.written.iter().for_each(|run| self.changed.add(*run));
                let runs = union(&walked.written, &self.held.lacks(&walked.there));
                runs.iter().for_each(|run| self.held.remove(*run));
                if is_watched && may_be_late(mapping) {
                    lacking.extend(self.late.lacks(&runs));
                }
            }
            Ok(())
        })?;
        self.put_aside(&lacking, send)
    }

    fn put_aside(&mut self, runs: &[Run], send: Send<'_>) -> Result<bool> {
        if self.late.count() + runs.len() > LATE_RANGES_MAX {
            return Ok(false);
        }
        for some in runs.chunks(DISCARDS_MAX) {
            send(Part::Late(held::spans(some)))?;
            for run in some {
                self.sent.remove(*run);
                self.late.add(*run);
            }
        }
        Ok(true)
    }

    /// Sends what the target needs of a process that stands frozen: all that cannot be late, what
    /// `must` not be, and up to `room` bytes of what was written to last. Returns how many bytes
    /// that is.
    ///
    /// # Errors
    /// As [`Copying::finish`].
    pub fn finish_late(
        &mut self,
        memory: &Memory,
        whole @ (mappings, _): (&[Mapping], &[Span]),
        sight: Sight,
        (must, mut room): (&Held, u64),
        send: Send<'_>,
    ) -> Result<u64> {
        let (there, mut lacking) = self.compare_all(whole, sight);
        self.discard(&union(&self.sent.beyond(&there), &self.late.beyond(&there)), send)?;
        let fresh = Held::of(&self.fresh);
        let mut aside = Vec::new();
        for (mapping, runs) in mappings.iter().zip(&mut lacking) {
            if !may_be_late(mapping) {
                continue;
            }
            let others = must.lacks(runs);
            let hot = first(&within(&others, &fresh), &mut room);
            let later = Held::of(&hot).lacks(&others);
            *runs = Held::of(&later).lacks(runs);
            aside.extend(self.late.lacks(&later));
        }
        if !self.put_aside(&aside, send)? {
            let text = "its memory is in too many pieces to come behind it; try again";
            return Err(MigrateError::refused("late-pieces", text));
        }
        // Zeros are not sent: a late page of zeros has to be discarded instead.
        for run in lacking.iter().flatten() {
            within(&[*run], &self.late).into_iter().for_each(|run| self.sent.add(run));
            self.late.remove(*run);
        }
        self.send_all(memory, (mappings, &lacking), Pass::Frozen, send)
    }

    /// What comes behind the process.
    pub fn late(&self) -> &Held {
        &self.late
    }

    /// What was written to last, as far as the last pass saw it.
    pub fn fresh(&self) -> &[Run] {
        &self.fresh
    }
}

/// The first of these runs, as far as there is room for them.
fn first(runs: &[Run], room: &mut u64) -> Vec<Run> {
    let mut taken = Vec::new();
    for run in runs {
        let length = (run.end - run.start).min(*room & !4095);
        if length == 0 {
            break;
        }
        *room -= length;
        taken.push(Run { start: run.start, end: run.start + length });
    }
    taken
}

/// What of late memory is given away next, when nobody waits for any.
///
/// What was written to last is likely to be needed first; then what lies behind the page that was
/// asked for last, because programs go through their memory upwards; then the rest. One that is
/// seen to go upwards has written behind it and waits for what is ahead of it, so then that comes
/// before what was written to last.
#[derive(Debug)]
pub struct Order {
    /// What is not given away yet.
    left: Held,
    hot: Vec<Run>,
    cursor: u64,
    /// The page that was asked for last lies about where the one before did.
    goes_upwards: bool,
}

impl Order {
    pub fn of(late: Held, fresh: &[Run]) -> Order {
        let mut hot = within(fresh, &late);
        hot.reverse();
        Order { left: late, hot, cursor: 0, goes_upwards: false }
    }

    pub fn left(&self) -> u64 {
        self.left.bytes()
    }

    /// The page there and what lies around it, mostly behind; nothing if that was given away, or
    /// never was late.
    pub fn around(&mut self, address: u64, bytes: u64) -> Vec<Run> {
        // The address is the body's word.
        let Some(end) = address.checked_add(PAGE).filter(|end| end.checked_add(bytes).is_some())
        else {
            return vec![];
        };
        let page = Run { start: address, end };
        // Also if it is on the way: somebody waits there.
        self.goes_upwards = address.abs_diff(self.cursor) <= CLOSE_BYTES;
        if within(&[page], &self.left).is_empty() {
            return vec![];
        }
        let start = address.saturating_sub((bytes / 4) & !(PAGE - 1));
        let mut room = bytes.max(PAGE);
        // The page itself in any case.
        let mut taken = self.take(&[page], &mut room);
        taken.extend(self.take(&[Run { start: page.end, end: page.end + bytes }], &mut room));
        taken.extend(self.take(&[Run { start, end: address }], &mut room));
        self.cursor = page.end;
        taken.sort_unstable_by_key(|run| run.start);
        union(&taken, &[])
    }

    /// What is left of a range.
    pub fn range(&mut self, range: Run, bytes: u64) -> Vec<Run> {
        let mut room = bytes;
        self.take(&[range], &mut room)
    }

    /// What comes next.
    pub fn next(&mut self, bytes: u64) -> Vec<Run> {
        let mut room = bytes;
        let mut taken = Vec::new();
        while !self.goes_upwards && room >= PAGE && taken.len() < PIECES_MAX {
            let Some(run) = self.hot.pop() else { break };
            taken.extend(self.take(&[run], &mut room));
            if room < PAGE {
                // What is left of it.
                self.hot.push(run);
            }
        }
        let all = [Run { start: self.cursor, end: u64::MAX }, Run { start: 0, end: self.cursor }];
        for part in all {
            while room >= PAGE && taken.len() < PIECES_MAX {
                let Some(run) = self.left.first_from(part.start).filter(|r| r.start < part.end)
                else {
                    break;
                };
                let end = run.end.min(part.end).min(run.start + (room & !(PAGE - 1)));
                let run = Run { start: run.start, end };
                self.left.remove(run);
                room -= run.end - run.start;
                self.cursor = run.end;
                taken.push(run);
            }
        }
        taken.sort_unstable_by_key(|run| run.start);
        union(&taken, &[])
    }

    /// Whole pages, whatever is asked for.
    fn take(&mut self, runs: &[Run], room: &mut u64) -> Vec<Run> {
        let whole = |run: &Run| {
            let start = run.start.checked_next_multiple_of(PAGE)?;
            Some(Run { start, end: run.end & !(PAGE - 1) }).filter(|run| run.start < run.end)
        };
        let runs: Vec<Run> = runs.iter().filter_map(whole).collect();
        let mut taken = first(&within(&runs, &self.left), room);
        taken.truncate(PIECES_MAX);
        taken.iter().for_each(|run| self.left.remove(*run));
        taken
    }
}

const PAGE: u64 = kernel::proc::pagemap::PAGE_BYTES;
/// More than is on the way at any time, before or behind where somebody waits.
const CLOSE_BYTES: u64 = 1 << 20;
/// Of one answer.
const PIECES_MAX: usize = 64;

#[cfg(test)]
mod test {
    use super::*;

    fn run(start: u64, end: u64) -> Run {
        Run { start: start * PAGE, end: end * PAGE }
    }

    #[test]
    fn pages_are_given_away_once_the_hottest_first_and_then_those_behind_the_last_fault() {
        let mut order = Order::of(Held::of(&[run(0, 100)]), &[run(40, 42), run(90, 120)]);
        assert_eq!(order.next(PAGE), [run(40, 41)]);
        assert_eq!(order.around(70 * PAGE, 4 * PAGE), [run(70, 74)]);
        assert_eq!(order.around(70 * PAGE, 4 * PAGE), [], "it is on the way");
        assert_eq!(order.around(3000 * PAGE, PAGE), [], "it never was late");
        assert_eq!(order.around(!(PAGE - 1), PAGE), [], "no page ends behind the last");
        assert_eq!(order.next(2 * PAGE), [run(41, 42), run(90, 91)]);
        assert_eq!(order.range(run(10, 20), 5 * PAGE), [run(10, 15)]);
        let mut given = Held::of(&[run(40, 42), run(70, 74), run(90, 91), run(10, 15)]);
        while order.left() > 0 {
            let runs = order.next(7 * PAGE);
            assert!(!runs.is_empty());
            for run in runs {
                assert_eq!(given.lacks(&[run]), [run], "once");
                given.add(run);
            }
        }
        assert_eq!(given.beyond(&[]), [run(0, 100)]);
        assert_eq!(order.next(PAGE), []);
    }

    #[test]
    fn what_is_ahead_of_a_program_that_goes_upwards_comes_before_what_was_written_to_last() {
        let mut order = Order::of(Held::of(&[run(0, 5000)]), &[run(1000, 1010)]);
        assert_eq!(order.around(2000 * PAGE, 2 * PAGE), [run(2000, 2002)]);
        assert_eq!(order.next(PAGE), [run(1000, 1001)], "one page tells no direction");
        assert_eq!(order.around(2002 * PAGE, 2 * PAGE), [run(2002, 2004)]);
        assert_eq!(order.next(2 * PAGE), [run(2004, 2006)]);
        assert_eq!(order.around(2004 * PAGE, 2 * PAGE), [], "it is on the way, and waited for");
        assert_eq!(order.next(2 * PAGE), [run(2006, 2008)]);
        assert_eq!(order.around(4000 * PAGE, PAGE), [run(4000, 4001)]);
        assert_eq!(order.next(2 * PAGE), [run(1001, 1003)], "it has jumped");
    }

    #[test]
    fn only_whole_pages_are_given_away() {
        let mut order = Order::of(Held::of(&[run(0, 8)]), &[]);
        assert_eq!(order.around(4 * PAGE, PAGE + 7), [run(4, 5)]);
        assert_eq!(order.around(5 * PAGE, 3 * PAGE), [run(5, 8)]);
        assert_eq!(order.range(Run { start: 1, end: 3 * PAGE - 1 }, 8 * PAGE), [run(1, 2)]);
        assert_eq!(order.range(Run { start: 9 * PAGE, end: 0 }, PAGE), []);
        assert_eq!(order.next(2 * PAGE + 1), [run(0, 1), run(2, 3)]);
        let mut order = Order::of(Held::of(&[run(0, 4)]), &[]);
        order.range(run(3, 4), PAGE);
        assert_eq!(order.around(2 * PAGE, 2 * PAGE), [run(2, 3)], "half a page before it is none");
    }

    #[test]
    fn around_a_page_at_the_end_lies_what_is_before_it() {
        let mut order = Order::of(Held::of(&[run(0, 8)]), &[]);
        assert_eq!(order.around(7 * PAGE, 8 * PAGE), [run(5, 8)]);
    }
}
