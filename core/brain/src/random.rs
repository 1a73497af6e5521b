//! The brain's own source of randomness: xoshiro256** (Blackman and Vigna), seeded by splitmix64.
//! Ours, because results must not change with a library, and because choices among near-equals need
//! to be unpredictable only to the other nodes, not to an attacker.

#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    pub fn seeded(seed: u64) -> Random {
        let mut mixed = seed;
        Random { state: std::array::from_fn(|_| splitmix(&mut mixed)) }
    }

    fn next(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
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

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // First outputs of xoshiro256** for the state 1, 2, 3, 4 (rand_xoshiro's reference vector).
        let mut random = Random { state: [1, 2, 3, 4] };
        let outputs: Vec<u64> = (0..4).map(|_| random.next()).collect();
        assert_eq!(outputs, [11520, 0, 1509978240, 1215971899390074240]);
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
