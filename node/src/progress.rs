//! How fast a process gets on, and what its moves have brought: for `osmos why`.
//!
//! Progress is processor time per second, times the speed of the core that it was used on. It is
//! measured over the last seconds before a move, and over the first seconds after it. So a move's
//! gain is what was seen, not what was expected; what else changed on the two nodes at that time is
//! in it, too.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use wire::forecast::PastMove;
use wire::ids::NodeId;

/// What counts as just before a move, and as just after it.
const WINDOW: Duration = Duration::from_secs(10);
/// A shorter stay says nothing.
const WINDOW_MIN: Duration = Duration::from_millis(900);
/// Looks nearer to each other than that are not kept.
const PAUSE: Duration = Duration::from_millis(200);
/// However often somebody looks.
const LOOKS_MAX: usize = 64;
/// Moves remembered.
const MOVES_MAX: usize = 16;

/// Of one process: its processor time where it is, and its moves.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Of one core of the node where it is.
    core_speed: f64,
    /// Where it is now, the oldest first: processor time in microseconds.
    looks: VecDeque<(Instant, u64)>,
    moves: VecDeque<PastMove>,
}

impl Progress {
    pub fn starting(core_speed: f64) -> Progress {
        Progress { core_speed, looks: VecDeque::new(), moves: VecDeque::new() }
    }

    pub fn core_speed(&self) -> f64 {
        self.core_speed
    }

    /// Its processor time, in a count that goes on as long as it stays.
    pub fn look(&mut self, at: Instant, cpu_us: u64) {
        let newest = self.looks.back();
        if newest.is_some_and(|(newest, _)| at.saturating_duration_since(*newest) < PAUSE) {
            return;
        }
        self.looks.push_back((at, cpu_us));
        self.note_gain();
        while self.looks.len() > LOOKS_MAX
            || self.looks.get(1).is_some_and(|(second, _)| at - *second >= WINDOW)
        {
            self.looks.pop_front();
        }
    }

    /// Reference seconds per second over the last seconds, and over how many.
    pub fn rate(&self) -> Option<(f64, Duration)> {
        let (first, before_us) = *self.looks.front()?;
        let (last, after_us) = *self.looks.back()?;
        let over = last.saturating_duration_since(first);
        let used_us = after_us.saturating_sub(before_us) as f64;
        (over >= WINDOW_MIN).then(|| (used_us / 1e6 / over.as_secs_f64() * self.core_speed, over))
    }

    /// Its last move is measured until the window has moved on.
    fn note_gain(&mut self) {
        let measured = self.rate();
        let Some(last) = self.moves.back_mut() else { return };
        if let Some((after, over)) = measured
            && last.measured_s < WINDOW.as_secs_f64()
        {
            last.rate_after = Some(after);
            last.measured_s = over.as_secs_f64();
            last.gain =
                last.rate_before.filter(|before| *before > 0.0).map(|before| after / before);
        }
    }

    /// It runs elsewhere from now on, on cores of that speed.
    pub fn moved(&mut self, made: PastMove, core_speed: f64) {
        let rate_before = self.rate().map(|(rate, _)| rate);
        self.looks.clear();
        self.core_speed = core_speed;
        if self.moves.len() == MOVES_MAX {
            self.moves.pop_front();
        }
        self.moves.push_back(PastMove { rate_before, ..made });
    }

    pub fn moves(&self) -> Vec<PastMove> {
        self.moves.iter().cloned().collect()
    }
}

/// A move that has just been carried out; what it brings is not known yet.
pub fn made(time: f64, from: NodeId, to: NodeId, cause: &str, freeze_us: u64) -> PastMove {
    PastMove {
        time,
        from,
        to,
        cause: cause.to_owned(),
        freeze_ms: freeze_us as f64 / 1e3,
        rate_expected: None,
        rate_before: None,
        rate_after: None,
        measured_s: 0.0,
        gain: None,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Looks four times a second at a process that uses `share` of a core.
    fn watch(progress: &mut Progress, from: Instant, seconds: u64, share: f64) {
        for nth in 0..=seconds * 4 {
            let at = from + Duration::from_millis(250 * nth);
            let cpu_us = (nth as f64 * 250_000.0 * share) as u64;
            progress.look(at, cpu_us);
        }
    }

    #[test]
    fn a_move_to_a_faster_place_shows_what_it_brought() {
        let start = Instant::now();
        let mut progress = Progress::starting(1.0);
        watch(&mut progress, start, 20, 0.5);
        progress.moved(made(1.0, NodeId(1), NodeId(2), "balance", 5_000), 1.5);
        let before = progress.moves()[0].clone();
        assert_eq!((before.rate_before, before.rate_after), (Some(0.5), None));
        watch(&mut progress, start + Duration::from_secs(21), 5, 1.0);
        let after = progress.moves()[0].clone();
        assert_eq!((after.rate_after, after.gain), (Some(1.5), Some(3.0)));
        assert_eq!(after.measured_s, 5.0);
    }

    #[test]
    fn what_happens_long_after_a_move_is_none_of_its_doing() {
        let start = Instant::now();
        let mut progress = Progress::starting(1.0);
        progress.moved(made(1.0, NodeId(1), NodeId(2), "user", 0), 1.0);
        watch(&mut progress, start, 12, 1.0);
        watch(&mut progress, start + Duration::from_secs(13), 20, 0.0);
        let made = &progress.moves()[0];
        assert_eq!((made.rate_before, made.rate_after, made.gain), (None, Some(1.0), None));
    }

    #[test]
    fn a_moments_stay_says_nothing_and_memory_is_bounded() {
        let start = Instant::now();
        let mut progress = Progress::starting(1.0);
        progress.look(start, 1);
        progress.look(start + Duration::from_millis(300), 200_000);
        assert_eq!(progress.rate(), None);
        for nth in 0..100 {
            progress.moved(made(f64::from(nth), NodeId(1), NodeId(2), "storm", 0), 1.0);
        }
        assert_eq!(progress.moves().len(), MOVES_MAX);
        assert_eq!(progress.moves()[0].time, 84.0);
    }
}
