//! What a process wants of a core, from measurements that differ from second to second.
//!
//! One that waits now and then is found runnable at some looks and asleep at others; what it wants
//! is the mean over many seconds of them. One that begins to do something else wants that at once.
//! The two are told apart by how measurements differ from what was known: now so, now so, or all
//! to one side (Trigg and Leach, "Exponential smoothing with an adaptive response rate", 1967).
//! Without this either loads lag by seconds, or forty processes that wait for three tenths of
//! their time move three thousand times an hour.

use crate::config::Config;

/// How the measurements of one process have differed from what was known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Habit {
    error: f64,
    error_size: f64,
}

impl Habit {
    /// What is known after a measurement, if `known` was before.
    pub fn corrected(&mut self, known: f64, measured: f64, config: &Config) -> f64 {
        let error = measured - known;
        // One that always computes has never differed.
        if error == 0.0 && self.error_size == 0.0 {
            return known;
        }
        self.error += (error - self.error) * config.habit_memory;
        self.error_size += (error.abs() - self.error_size) * config.habit_memory;
        let one_sided = self.error.abs() / self.error_size.max(f64::MIN_POSITIVE);
        let weight = config.habit_weight_max * one_sided.powi(4);
        known + error * weight.max(config.habit_weight_min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const A_SECOND: usize = 4;

    /// Means over the last second of looks at something that is runnable for a part of its time.
    fn measurements(part: f64, seconds: usize) -> Vec<f64> {
        let mut random = Random::seeded(7);
        let mut look = || f64::from(u8::from(random.fraction() < part));
        let looks: Vec<f64> = (0..seconds * A_SECOND).map(|_| look()).collect();
        looks.windows(A_SECOND).map(|second| second.iter().sum::<f64>() / 4.0).collect()
    }

    #[test]
    fn one_that_waits_now_and_then_wants_the_mean_of_a_long_time() {
        let mut habit = Habit::default();
        let mut known = 1.0;
        let mut errors = Vec::new();
        for measured in measurements(0.7, 3_600) {
            known = habit.corrected(known, measured, &Config::default());
            errors.push((known - 0.7).abs());
        }
        let settled = &errors[30 * A_SECOND..];
        let mean = settled.iter().sum::<f64>() / settled.len() as f64;
        // The measurements themselves are off by 0.19 in the mean, and by 0.7 at most.
        assert!(mean < 0.06, "{mean}");
        assert!(settled.iter().all(|error| *error < 0.35));
    }

    #[test]
    fn one_that_ceases_to_compute_is_known_to_in_three_seconds() {
        let mut habit = Habit::default();
        let mut known = 1.0;
        for measured in [[1.0; 400].as_slice(), &[0.75, 0.5, 0.25], &[0.0; 9]].concat() {
            known = habit.corrected(known, measured, &Config::default());
        }
        assert!(known < 0.1, "{known}");
    }

    #[test]
    fn one_that_waited_and_computes_now_is_known_to_in_half_a_minute() {
        let mut habit = Habit::default();
        let mut known = 0.5;
        for measured in measurements(0.5, 60).into_iter().chain([1.0; 30 * A_SECOND]) {
            known = habit.corrected(known, measured, &Config::default());
        }
        assert!(known > 0.9, "{known}");
    }
}
