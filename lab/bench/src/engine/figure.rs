//! One result: what was measured, its floor, and what was promised of it.

use crate::engine::statistics::{Samples, Summary};
use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub what: String,
    pub unit: &'static str,
    #[serde(flatten)]
    pub summary: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<Floor>,
    /// To the floor: the median over pairs where there are pairs, else of the medians.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// What has to be said with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Floor {
    pub what: &'static str,
    #[serde(flatten)]
    pub summary: Summary,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ratio {
    pub median: f64,
    /// Holds the true median with 95 % confidence; none if there are no pairs, or too few.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    pub text: String,
    pub is_met: bool,
}

impl Figure {
    pub fn new(what: impl Into<String>, unit: &'static str, samples: &Samples) -> Figure {
        let summary = samples.summary();
        Figure {
            what: what.into(),
            unit,
            summary,
            floor: None,
            ratio: None,
            target: None,
            note: None,
        }
    }

    /// A floor that was measured alternately: value for value.
    pub fn with_paired_floor(
        mut self,
        what: &'static str,
        floor: &Samples,
        ratios: &Samples,
    ) -> Figure {
        self.floor = Some(Floor { what, summary: floor.summary() });
        self.ratio = Some(Ratio { median: ratios.median(), interval: ratios.median_interval() });
        self
    }

    /// A floor that was measured beside it.
    pub fn with_floor(mut self, what: &'static str, floor: &Samples) -> Figure {
        let ratio = self.summary.median / floor.median();
        self.floor = Some(Floor { what, summary: floor.summary() });
        self.ratio = Some(Ratio { median: ratio, interval: None });
        self
    }

    /// Promises that the median is at most this.
    pub fn at_most(mut self, limit: f64) -> Figure {
        let text = format!("at most {limit} {}", self.unit);
        self.target = Some(Target { text, is_met: self.summary.median <= limit });
        self
    }

    /// Promises that the ratio to the floor is at most this.
    pub fn ratio_at_most(mut self, limit: f64) -> Figure {
        let is_met = self.ratio.is_some_and(|ratio| ratio.median <= limit);
        self.target = Some(Target { text: format!("at most {limit:.2} x"), is_met });
        self
    }

    /// Promises that there is no difference beyond noise, or beyond `tolerance`: what is promised
    /// is met if 1 +- tolerance and the interval of the median touch.
    pub fn ratio_of_one(mut self, tolerance: f64) -> Figure {
        let is_met = self.ratio.is_some_and(|ratio| {
            let (low, high) = ratio.interval.unwrap_or((ratio.median, ratio.median));
            low <= 1.0 + tolerance && high >= 1.0 - tolerance
        });
        let text = format!("1 +- {tolerance} x");
        self.target = Some(Target { text, is_met });
        self
    }

    pub fn with_target(mut self, text: impl Into<String>, is_met: bool) -> Figure {
        self.target = Some(Target { text: text.into(), is_met });
        self
    }

    pub fn with_note(mut self, note: impl Into<String>) -> Figure {
        self.note = Some(note.into());
        self
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        Samples::new(values.iter().copied()).unwrap()
    }

    fn is_met(figure: &Figure) -> bool {
        figure.target.as_ref().unwrap().is_met
    }

    #[test]
    fn limits_are_for_the_median_and_for_the_ratio_of_medians() {
        let figure = Figure::new("a", "ms", &samples(&[1.0, 9.0, 100.0]));
        assert!(is_met(&figure.clone().at_most(9.0)));
        assert!(!is_met(&figure.clone().at_most(8.9)));
        let figure = figure.with_floor("b", &samples(&[4.5]));
        assert!(is_met(&figure.clone().ratio_at_most(2.0)));
        assert!(!is_met(&figure.ratio_at_most(1.9)));
    }

    #[test]
    fn a_ratio_without_a_floor_keeps_no_promise() {
        let figure = Figure::new("a", "ms", &samples(&[1.0]));
        assert!(!is_met(&figure.clone().ratio_at_most(2.0)));
        assert!(!is_met(&figure.ratio_of_one(0.01)));
    }

    #[test]
    fn no_difference_means_that_one_lies_within_the_interval() {
        let of = |ratios: &[f64]| {
            let floor = samples(&[1.0]);
            let figure = Figure::new("a", "s", &floor);
            is_met(&figure.with_paired_floor("b", &floor, &samples(ratios)).ratio_of_one(0.01))
        };
        let spread =
            |from: f64, step: f64| of(&[0, 1, 2, 3, 4, 5].map(|i| from + f64::from(i) * step));
        assert!(spread(1.005, 0.001));
        assert!(spread(0.9, 0.1), "noise is not taken for a difference");
        assert!(!spread(1.02, 0.01));
        assert!(!spread(0.95, 0.001), "too good is wrong as well");
        assert!(of(&[1.005]) && !of(&[1.02]), "a few pairs have no noise to hide behind");
    }
}
