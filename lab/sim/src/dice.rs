//! The world's own randomness (splitmix64), apart from that of the brains: the same world can be
//! played with other brains.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

#[derive(Clone, Debug)]
pub struct Dice(SplitMix64);

impl Dice {
    pub fn seeded(seed: u64) -> Dice {
        Dice(SplitMix64::seed_from_u64(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, or 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in [0, 1).
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.fraction()
    }

    pub fn happens(&mut self, permille: u32) -> bool {
        permille > 0 && self.below(1_000) < u64::from(permille)
    }
}
