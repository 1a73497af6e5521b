//! What a move costs: one estimate for the engine, which decides when to freeze, and for the brain,
//! which decides whether to move at all.
//!
//! A freeze is what threads, state and round trips take, and what is left of memory over the pace
//! of the link. All in all a move takes what memory there is over that pace. Both constants belong
//! to a link, and are learned from the moves that went over it.

use crate::limits::PAGE_BYTES;
use crate::move_limits::Bandwidth;
use crate::supervisor::MoveReport;

/// A process that uses less stands still for no longer than it takes to track its writes: they are
/// not tracked. It is found in the freeze what of it has to be sent again.
pub const COPIED_AHEAD_BYTES_MIN: u64 = 4 << 20;
/// What a freeze takes besides memory, where nothing was measured: threads, two round trips.
pub const FIXED_S: f64 = 0.004;
/// What a move takes before and after it, likewise.
const SETUP_S: f64 = 0.03;
/// Of memory, likewise: a gigabit.
const BYTES_PER_S: f64 = 100e6;
/// A transfer of less says how long a message takes, and nothing of the pace.
const TELLING_BYTES: u64 = 1 << 20;
/// What a measurement counts at least; the first ones count more.
const NEW: f64 = 0.3;
/// Nobody is as fast, or as slow.
const BYTES_PER_S_BOUNDS: (f64, f64) = (1e3, 1e12);
/// Memory that was copied at more than this part of a limit was held back by that.
const HELD_BACK_MIN: f64 = 0.8;
/// A freeze that waited for a processor, or a network that was cut, is none of a link's own.
const FIXED_S_MAX: f64 = 2.0;

/// For how long a process stands still for `rest_bytes` of its memory.
pub fn freeze_s(fixed_s: f64, rest_bytes: f64, bytes_per_s: f64) -> f64 {
    fixed_s + rest_bytes / bytes_per_s.max(1.0)
}

/// What moves over a link have shown, each counting less than the one after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    pub bytes_per_s: f64,
    /// How often that was measured, and a freeze was.
    paced: u32,
    timed: u32,
    /// Of a freeze, besides memory.
    pub fixed_s: f64,
    /// By how much freezes were others than foreseen; None before the first.
    pub error_s: Option<f64>,
}

/// What a move comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    pub freeze_s: f64,
    /// From the order to its end.
    pub total_s: f64,
}

impl Pace {
    /// None: what it has is a guess.
    pub fn measured_bytes_per_s(&self) -> Option<f64> {
        (self.paced > 0).then_some(self.bytes_per_s)
    }
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::guessed(BYTES_PER_S)
    }
}

impl Pace {
    /// Of a link over which nothing was moved yet.
    pub fn guessed(bytes_per_s: f64) -> Pace {
        Pace { bytes_per_s, paced: 0, timed: 0, fixed_s: FIXED_S, error_s: None }
    }

    /// Taken for that of a link of which nothing is known: what is measured there replaces it.
    pub fn elsewhere(&self) -> Pace {
        Pace { paced: 0, timed: 0, error_s: None, ..*self }
    }

    /// Of a process with so much memory, of which `rest_bytes` travel while it stands still.
    pub fn price(&self, bytes: u64, rest_bytes: u64) -> Price {
        self.price_within(bytes, rest_bytes, None)
    }

    /// Likewise, where what is copied while the process runs is held to that limit.
    pub fn price_within(&self, bytes: u64, rest_bytes: u64, limit: Option<Bandwidth>) -> Price {
        let rest = rest_bytes.min(bytes);
        let freeze_s = freeze_s(self.fixed_s, rest as f64, self.bytes_per_s);
        let copied_per_s = self.bytes_per_s.min(limited_to(limit)).max(1.0);
        let total_s = SETUP_S + freeze_s + (bytes - rest) as f64 / copied_per_s;
        Price { freeze_s, total_s }
    }

    /// A move was carried out within that limit, for which `foreseen_s` was the freeze.
    pub fn learn(
        &mut self,
        report: &MoveReport,
        foreseen_s: Option<f64>,
        limit: Option<Bandwidth>,
    ) {
        let frozen_s = report.freeze_us as f64 / 1e6;
        let spent_s = |names: &[&str]| {
            let phases = report.phases_us.iter().filter(|of| names.contains(&of.name.as_str()));
            phases.fold(0.0, |sum, phase| sum + phase.us as f64 / 1e6)
        };
        // What travels frozen, and what travels at all.
        let rest_s = spent_s(&["send", "receive"]);
        let copied_s = rest_s + spent_s(&["copy"]);
        let bytes = report.pages_sent.saturating_mul(PAGE_BYTES);
        let is_held_back = bytes as f64 > HELD_BACK_MIN * limited_to(limit) * copied_s;
        // Which says nothing of the link, unlike what travelled frozen.
        let (bytes, spent_s) = match is_held_back {
            true => (report.rest_bytes, rest_s),
            false => (bytes, copied_s),
        };
        if bytes >= TELLING_BYTES && spent_s > 0.0 {
            let (least, most) = BYTES_PER_S_BOUNDS;
            let measured = (bytes as f64 / spent_s).clamp(least, most);
            self.bytes_per_s = mixed(self.bytes_per_s, measured, &mut self.paced);
        }
        let fixed_s = (frozen_s - rest_s).clamp(0.0, FIXED_S_MAX);
        self.fixed_s = mixed(self.fixed_s, fixed_s, &mut self.timed);
        if let Some(foreseen_s) = foreseen_s {
            let error_s = (frozen_s - foreseen_s).abs();
            let known = |before| before + NEW * (error_s - before);
            self.error_s = Some(self.error_s.map_or(error_s, known));
        }
    }
}

/// Bytes a second.
fn limited_to(limit: Option<Bandwidth>) -> f64 {
    limit.map_or(f64::INFINITY, Bandwidth::bytes_per_s)
}

/// `times` counts what was measured before; what was only guessed counts nothing.
fn mixed(before: f64, measured: f64, times: &mut u32) -> f64 {
    *times = times.saturating_add(1);
    before + (1.0 / f64::from(*times)).max(NEW) * (measured - before)
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::supervisor::Phase;

    const MIB: u64 = 1 << 20;

    /// Copied at `bytes_per_s`, and frozen for `fixed_s` and the rest.
    fn moved(bytes: u64, rest_bytes: u64, bytes_per_s: f64, fixed_s: f64) -> MoveReport {
        let us = |s: f64| (s * 1e6) as u64;
        let phase = |name: &str, s| Phase { name: name.into(), us: us(s) };
        let rest_s = rest_bytes as f64 / bytes_per_s;
        let copy_s = (bytes - rest_bytes) as f64 / bytes_per_s;
        MoveReport {
            phases_us: vec![phase("copy", copy_s), phase("freeze", fixed_s), phase("send", rest_s)],
            freeze_us: us(fixed_s + rest_s),
            total_us: us(copy_s + fixed_s + rest_s),
            pages_sent: bytes / PAGE_BYTES,
            rest_bytes,
            ..MoveReport::default()
        }
    }

    #[test]
    fn a_freeze_depends_on_what_is_left_and_the_whole_on_all_memory() {
        let pace = Pace::default();
        let [small, large] = [64 * MIB, 1 << 30].map(|bytes| pace.price(bytes, MIB));
        assert_eq!(small.freeze_s, large.freeze_s);
        assert!((10.0..11.0).contains(&large.total_s), "{large:?}: a gigabit");
        assert!(pace.price(MIB, 1 << 30).freeze_s < 0.02, "no more is left than there is");
    }

    #[test]
    fn a_link_is_known_after_some_moves_and_its_error_becomes_small() {
        let mut pace = Pace::default();
        for _ in 0..12 {
            let foreseen_s = pace.price(256 * MIB, MIB).freeze_s;
            pace.learn(&moved(256 * MIB, MIB, 1e9, 0.010), Some(foreseen_s), None);
        }
        assert!((0.9e9..1.1e9).contains(&pace.bytes_per_s), "{pace:?}");
        assert!((0.0095..0.0105).contains(&pace.fixed_s), "{pace:?}");
        assert!(pace.error_s.unwrap() < 0.001, "{pace:?}");
        // One that is slow now is believed by and by.
        pace.learn(&moved(256 * MIB, MIB, 1e8, 0.010), None, None);
        assert!((0.7e9..0.8e9).contains(&pace.bytes_per_s), "{pace:?}");
    }

    #[test]
    fn a_limit_makes_copying_longer_and_teaches_nothing_of_the_link() {
        let limit: Option<Bandwidth> = "80Mbit".parse().ok();
        let mut pace = Pace::guessed(1e9);
        let [free, held] = [None, limit].map(|limit| pace.price_within(1 << 30, MIB, limit));
        assert_eq!(free.freeze_s, held.freeze_s, "which no limit is for");
        assert!((107.0..108.0).contains(&held.total_s) && free.total_s < 1.5, "{held:?} {free:?}");
        // Copied at 80 Mbit/s, and frozen for a rest that travelled at a gigabyte a second.
        let rest = moved(16 * MIB, 16 * MIB, 1e9, 0.010);
        let held = |bytes_per_s| {
            let copied = moved(240 * MIB, 0, bytes_per_s, 0.0).phases_us;
            let phases_us = [copied, rest.phases_us.clone()].concat();
            MoveReport { phases_us, pages_sent: 256 * MIB / PAGE_BYTES, ..rest.clone() }
        };
        (0..9).for_each(|_| pace.learn(&held(1e7), None, limit));
        assert!((0.99e9..1.01e9).contains(&pace.bytes_per_s), "{pace:?}");
        // A link that is slower than the limit is known as what it is.
        (0..9).for_each(|_| pace.learn(&held(4e6), None, limit));
        assert!((4e6..6e7).contains(&pace.bytes_per_s), "{pace:?}");
    }

    #[test]
    fn what_nobody_can_have_measured_leaves_a_pace_that_something_follows_from() {
        let mut pace = Pace::default();
        pace.learn(&MoveReport::default(), Some(f64::MAX), None);
        let most = moved(u64::MAX / 2, 0, f64::MAX, 0.0);
        pace.learn(&MoveReport { freeze_us: u64::MAX, pages_sent: u64::MAX, ..most }, None, None);
        let price = pace.price(u64::MAX, u64::MAX);
        assert!(price.freeze_s.is_finite() && price.total_s.is_finite(), "{pace:?} {price:?}");
        // Little memory says nothing of the pace.
        let before = pace.bytes_per_s;
        pace.learn(&moved(MIB / 2, 0, 1.0, 0.0), None, None);
        assert_eq!(pace.bytes_per_s, before);
    }
}
