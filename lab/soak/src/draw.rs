//! Random choices that a seed repeats.

/// A splitmix64 generator: two of neighbouring seeds have nothing in common.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    pub fn from_seed(seed: u64) -> Draw {
        Draw(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// One of them, if there are any.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        if all.is_empty() { None } else { all.get(self.below(all.len() as u64) as usize) }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_seed_repeats_its_choices_and_another_makes_others() {
        let draw = |seed| {
            let mut draw = Draw::from_seed(seed);
            (0..20).map(|_| draw.below(1000)).collect::<Vec<u64>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(draw(7).iter().all(|number| *number < 1000));
    }
}
