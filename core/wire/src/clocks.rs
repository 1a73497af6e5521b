//! What the clocks of a machine show, and how far another's are from them.

use serde::{Deserialize, Serialize};

/// What a machine's clocks show at one moment, nanoseconds. Nothing about them is certain: the
/// time of day may be before 1970, and one machine's monotonic clock says nothing of another's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readings {
    /// CLOCK_MONOTONIC.
    pub monotonic_ns: i64,
    /// CLOCK_BOOTTIME.
    pub boot_ns: i64,
    /// CLOCK_MONOTONIC_RAW.
    pub raw_ns: i64,
    /// CLOCK_REALTIME.
    pub real_ns: i64,
    /// CLOCK_TAI.
    pub tai_ns: i64,
    /// CLOCK_MONOTONIC_COARSE and CLOCK_REALTIME_COARSE: what the others showed at the last tick.
    pub coarse_ns: i64,
    pub real_coarse_ns: i64,
}

impl Readings {
    /// The same operation on each clock of two machines, or moments.
    pub fn combine(self, other: Readings, operation: impl Fn(i64, i64) -> i64) -> Readings {
        Readings {
            monotonic_ns: operation(self.monotonic_ns, other.monotonic_ns),
            boot_ns: operation(self.boot_ns, other.boot_ns),
            raw_ns: operation(self.raw_ns, other.raw_ns),
            real_ns: operation(self.real_ns, other.real_ns),
            tai_ns: operation(self.tai_ns, other.tai_ns),
            coarse_ns: operation(self.coarse_ns, other.coarse_ns),
            real_coarse_ns: operation(self.real_coarse_ns, other.real_coarse_ns),
        }
    }

    pub fn plus(self, other: Readings) -> Readings {
        self.combine(other, i64::saturating_add)
    }

    pub fn minus(self, other: Readings) -> Readings {
        self.combine(other, i64::saturating_sub)
    }

    /// How long it is, at most `most_ns`, until no clock shows less than `floor`, nanoseconds. A
    /// clock that is further behind than that was set back, and nothing is gained by waiting.
    pub fn wait_for_ns(self, floor: Readings, most_ns: i64) -> u64 {
        let behind = floor.minus(self);
        let all = [
            behind.monotonic_ns,
            behind.boot_ns,
            behind.raw_ns,
            behind.real_ns,
            behind.tai_ns,
            behind.coarse_ns,
            behind.real_coarse_ns,
        ];
        let longest = all.into_iter().filter(|ns| (1..=most_ns).contains(ns)).max();
        longest.map_or(0, i64::unsigned_abs)
    }
}

/// How far another machine's clocks are ahead of ours, as far as is known: asked for and answered
/// over a link, which takes time in both directions that nobody can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    pub ahead: Readings,
    /// Half the time that question and answer took: what each clock may be off by, nanoseconds.
    pub error_ns: i64,
}

impl Offset {
    /// From what the other's clocks showed between two looks at ours.
    pub fn measured(asked: Readings, told: Readings, answered: Readings) -> Offset {
        let error_ns = answered.monotonic_ns.saturating_sub(asked.monotonic_ns).max(0) / 2;
        let middle =
            asked.combine(answered, |from, to| from.saturating_add(to.saturating_sub(from) / 2));
        Offset { ahead: told.minus(middle), error_ns }
    }

    /// The better of two.
    pub fn or(self, other: Offset) -> Offset {
        if other.error_ns < self.error_ns { other } else { self }
    }

    /// What is to be shown from now on, given what was measured last. Nothing changes as long as it
    /// may be right, so that a slow link does not make clocks jump to and fro; and no clock is set
    /// back for so little that it may be the first measurement that was wrong.
    pub fn corrected(self, measured: Offset) -> Offset {
        let error_ns = measured.error_ns;
        let patience_ns = self.error_ns.saturating_add(AHEAD_NS_MAX);
        let ahead = self.ahead.combine(measured.ahead, |shown, told| {
            let (least, most) = (told.saturating_sub(error_ns), told.saturating_add(error_ns));
            let right = shown.clamp(least, most);
            let goes_back = right < shown && shown.saturating_sub(right) <= patience_ns;
            if goes_back { shown } else { right }
        });
        Offset { ahead, error_ns: self.error_ns }
    }
}

/// What a clock of the guest may be ahead of home's beyond the error of the first measurement,
/// before it is set back.
const AHEAD_NS_MAX: i64 = 1_000_000;

#[cfg(test)]
mod test {
    use super::*;

    fn all(ns: i64) -> Readings {
        let (monotonic_ns, boot_ns, raw_ns) = (ns, ns, ns);
        let (real_ns, tai_ns, coarse_ns, real_coarse_ns) = (ns, ns, ns, ns);
        Readings { monotonic_ns, boot_ns, raw_ns, real_ns, tai_ns, coarse_ns, real_coarse_ns }
    }

    #[test]
    fn an_offset_is_taken_between_question_and_answer() {
        let offset = Offset::measured(all(100), all(1_110), all(120));
        assert_eq!(offset, Offset { ahead: all(1_000), error_ns: 10 });
        let hostile = Offset::measured(all(100), all(i64::MAX), all(i64::MIN));
        assert_eq!(hostile.error_ns, 0);
    }

    #[test]
    fn what_may_be_right_is_not_corrected_and_what_cannot_be_is() {
        let shown = Offset { ahead: all(1_000), error_ns: 10 };
        let within = shown.corrected(Offset { ahead: all(1_015), error_ns: 20 });
        assert_eq!(within.ahead, all(1_000));
        let set = shown.corrected(Offset { ahead: all(5_000), error_ns: 20 });
        assert_eq!(set.ahead, all(4_980));
        let little = shown.corrected(Offset { ahead: all(-900_000), error_ns: 20 });
        assert_eq!(little.ahead, all(1_000), "no clock goes back for it");
        let set_back = shown.corrected(Offset { ahead: all(-2_000_000), error_ns: 20 });
        assert_eq!(set_back.ahead, all(-1_999_980));
        assert_eq!(shown.or(Offset { ahead: all(7), error_ns: 3 }).ahead, all(7));
    }

    #[test]
    fn a_clock_that_is_a_little_behind_is_waited_for_and_one_that_was_set_back_is_not() {
        assert_eq!(all(100).wait_for_ns(all(90), 50), 0);
        assert_eq!(all(100).wait_for_ns(all(130), 50), 30);
        let set_back = Readings { real_ns: 10_000, ..all(130) };
        assert_eq!(all(100).wait_for_ns(set_back, 50), 30);
    }
}
