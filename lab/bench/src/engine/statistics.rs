//! Medians and spreads. Means are not used for promises: one hiccup of a shared machine moves them.

use serde::Serialize;

/// Measured values, in ascending order; never empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples(Vec<f64>);

/// What is told of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub count: usize,
    pub median: f64,
    pub p10: f64,
    pub p90: f64,
    pub max: f64,
}

impl Samples {
    /// None if there are no values, or one of them is no number.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Option<Samples> {
        let mut values: Vec<f64> = values.into_iter().collect();
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        values.sort_by(f64::total_cmp);
        Some(Samples(values))
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The value below which the part `q` (0 to 1) lies, interpolated between neighbours.
    pub fn quantile(&self, q: f64) -> f64 {
        let position = q.clamp(0.0, 1.0) * (self.0.len() - 1) as f64;
        let (low, high) = (self.0[position.floor() as usize], self.0[position.ceil() as usize]);
        low + (high - low) * position.fract()
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub fn summary(&self) -> Summary {
        Summary {
            count: self.count(),
            median: self.median(),
            p10: self.quantile(0.1),
            p90: self.quantile(0.9),
            max: self.quantile(1.0),
        }
    }

    /// An interval that holds the true median with at least 95 % confidence, whatever the
    /// distribution: the order statistics that a fair coin would leave on either side. Fewer than
    /// six values cannot be that sure of anything.
    pub fn median_interval(&self) -> Option<(f64, f64)> {
        let count = self.0.len();
        let outside = outside(count)?;
        Some((self.0[outside], self.0[count - 1 - outside]))
    }
}

/// How many values may be left out at each end: the largest k with P(at most k heads in `count`
/// throws) <= 2.5 %, if there is any: that many heads leave the median outside.
fn outside(count: usize) -> Option<usize> {
    let mut probability = 0.5f64.powi(count as i32);
    let mut sum = 0.0;
    for heads in 0..count / 2 {
        sum += probability;
        if sum > 0.025 {
            return heads.checked_sub(1);
        }
        probability *= (count - heads) as f64 / (heads + 1) as f64;
    }
    None
}

#[cfg(test)]
mod test {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        Samples::new(values.iter().copied()).unwrap()
    }

    #[test]
    fn nothing_and_no_number_are_no_samples() {
        assert_eq!(Samples::new([]), None);
        assert_eq!(Samples::new([1.0, f64::NAN]), None);
        assert_eq!(Samples::new([f64::INFINITY]), None);
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        let samples = samples(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!(samples.median(), 2.5);
        assert_eq!(samples.quantile(0.0), 1.0);
        assert_eq!(samples.quantile(1.0), 4.0);
        assert!((samples.quantile(0.1) - 1.3).abs() < 1e-12);
    }

    #[test]
    fn one_value_is_its_own_summary() {
        let summary = samples(&[7.0]).summary();
        assert_eq!((summary.count, summary.median, summary.p10, summary.p90), (1, 7.0, 7.0, 7.0));
        assert_eq!(samples(&[7.0]).median_interval(), None);
    }

    #[test]
    fn an_outlier_moves_neither_median_nor_interval() {
        let mut values: Vec<f64> = (1..=20).map(f64::from).collect();
        let calm = samples(&values);
        values[19] = 1e9;
        let wild = samples(&values);
        assert_eq!(calm.median(), wild.median());
        assert_eq!(calm.median_interval(), wild.median_interval());
    }

    /// The ranks of the textbooks' tables for the sign test.
    #[test]
    fn intervals_are_those_of_the_sign_test() {
        for (count, rank) in [(6, 0), (8, 0), (9, 1), (10, 1), (20, 5), (50, 17)] {
            assert_eq!(outside(count), Some(rank), "of {count}");
        }
        assert!((1..6).all(|count| outside(count).is_none()));
        let twenty = samples(&(1..=20).map(f64::from).collect::<Vec<_>>());
        assert_eq!(twenty.median_interval(), Some((6.0, 15.0)));
    }
}
