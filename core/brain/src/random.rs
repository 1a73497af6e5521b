//! The brain's own source of randomness: xoshiro256** (Blackman and Vigna), seeded by splitmix64.
//! Choices among near-equals need to be unpredictable only to the other nodes, not to an attacker.

use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

#[derive(Clone, Debug)]
pub(crate) struct Random(Xoshiro256StarStar);

impl Random {
    pub fn seeded(seed: u64) -> Random {
        Random(Xoshiro256StarStar::seed_from_u64(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, or 0 if that is 0. Bias is at most `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in [0, 1).
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results are functions of a seed: another version of the crate must not change them.
    #[test]
    fn equal_seeds_give_what_they_gave() {
        let mut random = Random::seeded(7);
        let outputs: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(outputs, [0xb358faf74ef9765a, 0x475c3d964f482cd2, 0xd6f1d349952c7996]);
    }

    #[test]
    fn numbers_below_a_bound_reach_every_value_and_no_other() {
        let mut random = Random::seeded(7);
        let mut counts = [0u32; 5];
        for _ in 0..5_000 {
            counts[random.below(5) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (850..1150).contains(&count)), "{counts:?}");
        assert_eq!(random.below(0), 0);
    }
}
