//! Pairs of rounds, a measured one and its floor, that take turns at being first: what drifts on a
//! machine then drifts for both.

use crate::engine::statistics::Samples;
use anyhow::{Context, Result};

/// One quantity of all pairs.
#[derive(Clone, Debug)]
pub struct Pairs {
    pub measured: Samples,
    pub floor: Samples,
    /// Measured to floor, pair by pair.
    pub ratios: Samples,
}

/// Measures `count` pairs of `N` quantities each.
pub fn take_turns<const N: usize>(
    count: usize,
    mut measured: impl FnMut() -> Result<[f64; N]>,
    mut floor: impl FnMut() -> Result<[f64; N]>,
) -> Result<[Pairs; N]> {
    let mut pairs = Vec::with_capacity(count);
    for turn in 0..count {
        if turn % 2 == 0 {
            let first = measured()?;
            pairs.push((first, floor()?));
        } else {
            let first = floor()?;
            pairs.push((measured()?, first));
        }
    }
    let quantities: Option<Vec<Pairs>> = (0..N).map(|index| quantity(&pairs, index)).collect();
    let quantities = quantities.context("a round gave no time at all")?;
    quantities.try_into().ok().context("no pairs")
}

fn quantity<const N: usize>(pairs: &[([f64; N], [f64; N])], index: usize) -> Option<Pairs> {
    Some(Pairs {
        measured: Samples::new(pairs.iter().map(|(measured, _)| measured[index]))?,
        floor: Samples::new(pairs.iter().map(|(_, floor)| floor[index]))?,
        ratios: Samples::new(pairs.iter().map(|(measured, floor)| measured[index] / floor[index]))?,
    })
}

#[cfg(test)]
mod test {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn both_sides_take_turns_at_being_first() {
        let order = RefCell::new(String::new());
        let round = |name: char, value: f64| {
            order.borrow_mut().push(name);
            Ok([value, 1.0])
        };
        let [first, second] = take_turns(4, || round('m', 3.0), || round('f', 2.0)).unwrap();
        assert_eq!(*order.borrow(), "mffmmffm");
        assert_eq!((first.ratios.median(), second.ratios.median()), (1.5, 1.0));
        assert_eq!((first.measured.count(), first.floor.count()), (4, 4));
    }

    #[test]
    fn a_floor_of_nothing_is_no_floor() {
        assert!(take_turns(2, || Ok([1.0]), || Ok([0.0])).is_err());
        assert!(take_turns(0, || Ok([1.0]), || Ok([1.0])).is_err());
    }

    #[test]
    fn a_ratio_is_of_a_pair_not_of_medians() {
        let times = RefCell::new([1.0, 10.0, 100.0].into_iter().flat_map(|t| [t, t]));
        let next = || Ok([times.borrow_mut().next().unwrap_or(1.0)]);
        let [pairs] = take_turns(3, next, next).unwrap();
        assert_eq!(pairs.ratios.summary().p90, 1.0);
    }
}
