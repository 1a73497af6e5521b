//! The last second of something that is looked at now and then.
//!
//! The brain wants means: a process that waits for a disk is found asleep at one look and running
//! at the next. And it wants them soon: a node that is told only each second lets others stand idle
//! for that long. So each look gives a mean anew, of a window that moves along.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A window ends at the latest look and is this long, or less while there is less to tell.
const LENGTH: Duration = Duration::from_secs(1);
/// Looks further apart say nothing of the time between them.
const GAP_MAX: Duration = Duration::from_millis(600);
/// However often somebody looks.
const LOOKS_MAX: usize = 64;

/// Looks at one number, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Window {
    looks: VecDeque<(Instant, f64)>,
}

impl Window {
    pub fn look(&mut self, at: Instant, value: f64) {
        let newest = self.looks.back().map(|(newest, _)| *newest);
        if newest.is_some_and(|newest| at.saturating_duration_since(newest) > GAP_MAX) {
            self.looks.clear();
        }
        self.looks.push_back((at, value));
        // The window still has its length without the oldest look, or it has too many.
        while self.looks.len() > LOOKS_MAX
            || self.looks.get(1).is_some_and(|(second, _)| at - *second >= LENGTH)
        {
            self.looks.pop_front();
        }
    }

    pub fn latest_at(&self) -> Option<Instant> {
        self.looks.back().map(|(at, _)| *at)
    }

    pub fn is_empty(&self) -> bool {
        self.looks.is_empty()
    }

    /// From the first look to the last; zero if there is one only.
    pub fn length(&self) -> Duration {
        match (self.looks.front(), self.looks.back()) {
            (Some((first, _)), Some((last, _))) => last.saturating_duration_since(*first),
            _ => Duration::ZERO,
        }
    }

    /// The mean over time, each change taken to have come halfway between two looks: it is as
    /// likely to have come before that as after.
    pub fn mean(&self) -> f64 {
        let length_s = self.length().as_secs_f64();
        let Some((_, latest)) = self.looks.back() else { return 0.0 };
        if length_s == 0.0 {
            return *latest;
        }
        let pairs = self.looks.iter().zip(self.looks.iter().skip(1));
        let area: f64 = pairs
            .map(|((from, before), (to, after))| {
                to.saturating_duration_since(*from).as_secs_f64() * (before + after) / 2.0
            })
            .sum();
        area / length_s
    }

    /// How fast the number grew, per second.
    pub fn growth_per_s(&self) -> f64 {
        let length_s = self.length().as_secs_f64();
        match (self.looks.front(), self.looks.back()) {
            (Some((_, first)), Some((_, last))) if length_s > 0.0 => (last - first) / length_s,
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Looks a quarter of a second apart.
    fn window(values: &[f64]) -> Window {
        let mut window = Window::default();
        let start = Instant::now();
        for (nth, value) in (0..).zip(values) {
            window.look(start + Duration::from_millis(250) * nth, *value);
        }
        window
    }

    #[test]
    fn one_look_is_a_count_at_one_moment() {
        let window = window(&[8.0]);
        assert_eq!((window.mean(), window.length()), (8.0, Duration::ZERO));
        assert_eq!(window.growth_per_s(), 0.0);
        assert_eq!(Window::default().mean(), 0.0);
    }

    #[test]
    fn the_mean_is_of_the_last_second_alone() {
        let window = window(&[90.0, 90.0, 4.0, 4.0, 4.0, 8.0, 8.0]);
        assert_eq!(window.length(), Duration::from_secs(1));
        assert_eq!(window.mean(), 5.5, "4 up to the middle of the second, then 8 for 3/8");
    }

    #[test]
    fn what_was_before_a_long_gap_says_nothing_of_now() {
        let mut window = window(&[0.0, 0.0]);
        let later = Instant::now() + Duration::from_secs(2);
        window.look(later, 3.0);
        assert_eq!((window.mean(), window.length()), (3.0, Duration::ZERO));
    }

    #[test]
    fn growth_is_per_second() {
        let window = window(&[0.0, 100.0, 200.0, 300.0, 400.0, 600.0]);
        assert_eq!(window.growth_per_s(), 500.0);
    }

    #[test]
    fn looks_at_every_moment_fill_no_memory() {
        let mut window = Window::default();
        let start = Instant::now();
        for nth in 0..10_000 {
            window.look(start + Duration::from_micros(10) * nth, 1.0);
        }
        assert_eq!(window.looks.len(), LOOKS_MAX);
        assert!((window.mean() - 1.0).abs() < 1e-9, "{}", window.mean());
    }
}
