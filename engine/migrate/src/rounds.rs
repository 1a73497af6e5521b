//! When copying ahead is over, and the process is frozen for the rest.
//!
//! Each round sends what was written to during the one before. Where that becomes less from round
//! to round it ends when the rest fits into the budget; where it does not, more rounds only cost.

use crate::stopwatch::micros;
use kernel::proc::pagemap::PAGE_BYTES;
use std::time::Duration;
use wire::freeze_budget::FreezeBudget;
use wire::move_cost::{FIXED_S, freeze_s};
use wire::supervisor::{MoveMethod, MoveReport};

/// A rest that takes no longer than that is nothing: what is left of a freeze is not memory.
const REST_S_MIN: f64 = 0.0005;
/// Of a link that has not been measured: a tenth of a gigabit.
const BYTES_PER_S_GUESSED: f64 = 12e6;
/// However slowly it becomes less.
const ROUNDS_MAX: usize = 30;
/// A round that leaves more than this part of what the one before left has hardly helped.
const PROGRESS_MIN: f64 = 0.8;
/// So many of these in a row are the end.
const IDLE_ROUNDS_MAX: usize = 2;
/// Where the rest can come behind the process, the first of them is the end if it is foreseen to
/// stand still for so many budgets.
const FAR_BUDGETS: u32 = 5;

/// What the rounds have shown so far.
#[derive(Clone, Debug)]
pub struct Rounds {
    budget: FreezeBudget,
    bytes: u64,
    took: Duration,
    count: usize,
    left: u64,
    idle: usize,
    /// The rest can come behind the process.
    may_be_late: bool,
}

impl Rounds {
    /// None so far; the process is to stand still for no longer than `budget`.
    pub fn within(budget: FreezeBudget) -> Rounds {
        let (bytes, took, count, left, idle) = Default::default();
        Rounds { budget, bytes, took, count, left, idle, may_be_late: false }
    }

    /// The rest can come behind the process, if it is far too much.
    pub fn let_be_late(&mut self) {
        self.may_be_late = true;
    }

    /// Whether more rounds would not bring the process near its budget, and the rest can come
    /// behind it.
    pub fn are_in_vain(&self) -> bool {
        let is_far = self.count > 0 && self.predicted() > self.budget.duration() * FAR_BUDGETS;
        self.may_be_late && is_far
    }

    /// Bytes that travel within half of the budget.
    pub fn room(&self) -> u64 {
        let bytes_per_s = if self.count == 0 { BYTES_PER_S_GUESSED } else { self.bytes_per_s() };
        (bytes_per_s * self.budget.duration().as_secs_f64() / 2.0) as u64
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// A round has sent `bytes` in that time, and `left` bytes have been written to since; true if
    /// another one is worth it.
    pub fn goes_on(&mut self, bytes: u64, took: Duration, left: u64) -> bool {
        let before = if self.count == 0 { bytes } else { self.left };
        self.left = left;
        self.bytes += bytes;
        self.took += took;
        self.count += 1;
        let has_helped = (left as f64) < PROGRESS_MIN * before as f64;
        self.idle = if has_helped { 0 } else { self.idle + 1 };
        let fits = self.predicted() <= self.budget.duration() || self.rest_s() <= REST_S_MIN;
        let is_idle = self.idle >= IDLE_ROUNDS_MAX || self.idle > 0 && self.are_in_vain();
        !fits && !is_idle && self.count < ROUNDS_MAX
    }

    fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.took.as_secs_f64().max(1e-6)
    }

    /// For how long the rest would travel.
    fn rest_s(&self) -> f64 {
        freeze_s(0.0, self.left as f64, self.bytes_per_s())
    }

    /// How long the process would stand still if it were frozen now.
    pub fn predicted(&self) -> Duration {
        let frozen_s = freeze_s(FIXED_S, self.left as f64, self.bytes_per_s());
        Duration::from_secs_f64(frozen_s.min(1e9))
    }

    /// What they say of a move that has sent `frozen_bytes` of memory after them.
    pub fn tell(&self, frozen_bytes: u64, report: MoveReport) -> MoveReport {
        let has_run = self.count > 0;
        MoveReport {
            method: if has_run { MoveMethod::PreCopy } else { MoveMethod::StopAndCopy },
            rounds: self.count as u32,
            pages_sent: (self.bytes + frozen_bytes) / PAGE_BYTES,
            rest_bytes: frozen_bytes,
            predicted_freeze_us: has_run.then(|| micros(self.predicted())),
            freeze_budget: self.budget,
            ..report
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const BYTES_PER_S: f64 = 200e6;

    fn usual() -> Rounds {
        Rounds::within(FreezeBudget::DEFAULT)
    }

    /// A process of so many bytes that writes at this rate (bytes a second) to all of it equally;
    /// returns the rounds and what is left at the end.
    fn play(bytes: f64, written_per_s: f64) -> (usize, f64) {
        let rounds = play_within(FreezeBudget::DEFAULT, bytes, written_per_s);
        (rounds.count(), rounds.left as f64)
    }

    fn play_within(budget: FreezeBudget, bytes: f64, written_per_s: f64) -> Rounds {
        let (mut rounds, mut left) = (Rounds::within(budget), bytes);
        loop {
            let took_s = left / BYTES_PER_S;
            let sent = left;
            left = bytes * (1.0 - (-written_per_s * took_s / bytes).exp());
            if !rounds.goes_on(sent as u64, Duration::from_secs_f64(took_s), left as u64) {
                return rounds;
            }
        }
    }

    #[test]
    fn what_is_written_slowly_fits_into_the_budget_after_some_rounds() {
        let (count, left) = play(1e9, 0.0);
        assert_eq!((count, left), (1, 0.0));
        let (count, left) = play(1e9, 10e6);
        assert!((2..=4).contains(&count) && left / BYTES_PER_S < 0.016, "{count} {left}");
        let (count, left) = play(1e9, 100e6);
        assert!((3..=12).contains(&count) && left / BYTES_PER_S < 0.016, "{count} {left}");
    }

    #[test]
    fn what_is_written_faster_than_it_is_sent_ends_soon() {
        let (count, left) = play(1e9, 5e9);
        assert!(count <= 2 && left > 0.9e9, "{count} {left}");
    }

    #[test]
    fn where_the_rest_can_be_late_a_round_that_does_not_help_is_the_last() {
        let mut late = usual();
        late.let_be_late();
        assert!(!late.are_in_vain(), "nothing is known yet");
        assert!(!late.goes_on(1 << 30, Duration::from_secs(9), 900 << 20));
        assert!(late.are_in_vain());
        let mut usual = usual();
        assert!(usual.goes_on(1 << 30, Duration::from_secs(9), 900 << 20));
        assert!(!usual.are_in_vain());
        // One that helps goes on, and a rest that is nearly in the budget is sent.
        late = usual_late();
        assert!(late.goes_on(1 << 30, Duration::from_secs(9), 300 << 20));
        late = usual_late();
        assert!(late.goes_on(8 << 20, Duration::from_millis(80), 8 << 20));
        assert!(!late.are_in_vain());
    }

    fn usual_late() -> Rounds {
        let mut rounds = usual();
        rounds.let_be_late();
        rounds
    }

    #[test]
    fn a_round_that_took_no_time_predicts_no_nonsense() {
        assert!(!usual().goes_on(0, Duration::ZERO, 0));
        let mut rounds = usual();
        assert!(rounds.goes_on(0, Duration::from_secs(1), u64::MAX));
        assert!(rounds.predicted() > FreezeBudget::DEFAULT.duration());
    }

    #[test]
    fn a_smaller_budget_takes_more_rounds_and_a_larger_one_less() {
        let budget = |ms| FreezeBudget::try_from(ms).unwrap();
        let [small, usual, large] = [5, 20, 500].map(|ms| play_within(budget(ms), 1e9, 100e6));
        assert!(small.count() > usual.count() && usual.count() > large.count());
        for (rounds, ms) in [(small, 5), (usual, 20), (large, 500)] {
            assert!(rounds.predicted() <= budget(ms).duration(), "{ms} {:?}", rounds.predicted());
        }
    }

    #[test]
    fn a_budget_that_no_freeze_can_keep_to_ends_when_rounds_do_not_help_any_more() {
        let least = FreezeBudget::try_from(1).unwrap();
        let idle = play_within(least, 1e9, 0.0);
        assert_eq!((idle.count(), idle.left), (1, 0));
        let busy = play_within(least, 1e9, 100e6);
        assert!(busy.count() < ROUNDS_MAX && busy.rest_s() < 0.001, "{busy:?}");
        assert!(busy.predicted() > least.duration());
        let report = busy.tell(PAGE_BYTES, MoveReport::default());
        assert!(report.predicted_freeze_us.unwrap() > 1_000, "the report says so");
        assert_eq!((report.freeze_budget, report.method), (least, MoveMethod::PreCopy));
        assert_eq!(report.pages_sent, busy.bytes / PAGE_BYTES + 1);
    }

    #[test]
    fn a_move_without_a_round_foresees_nothing() {
        let report = usual().tell(3 * PAGE_BYTES, MoveReport::default());
        assert_eq!((report.rounds, report.pages_sent, report.predicted_freeze_us), (0, 3, None));
        assert_eq!(report.method, MoveMethod::StopAndCopy);
    }
}
