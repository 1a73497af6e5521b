//! The workload of the benchmark framework of 2009: key pairs of RSA, made by forked children that
//! a parent waits for (*Distributed Key Generator*; Ahmed, Samsudin, Ramli, *Benchmark Framework
//! for a Load Balancing Single System Image*: 4000 pairs of 1024 bits).
//!
//! The children know nothing of each other and of the cluster. Each has an equal number of pairs to
//! make, which takes some more time than others: primes are where they are. The numbers are drawn
//! from a seed, so that every run makes the same pairs, and tells whether it made them right.
//!
//! The pairs are good for nothing but to be computed.

use anyhow::{Context, Result, bail, ensure};
use crypto_bigint::{NonZero, U512, U1024};
use crypto_primes::{Flavor, random_prime};
use kernel::workers::Parent;
use nix::time::{ClockId, clock_gettime};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::time::Duration;

const PUBLIC_EXPONENT: u32 = 65_537;
const MODULUS_BITS: u32 = 1_024;
const PRIME_BITS: u32 = MODULUS_BITS / 2;
/// More children would be none that anybody forks.
pub const CHILDREN_MAX: u32 = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Pairs in all.
    pub keys: u32,
    pub children: u32,
    pub seed: u64,
}

impl Plan {
    /// Pairs of one child.
    fn of_child(&self, nth: u32) -> u32 {
        self.keys / self.children + u32::from(nth < self.keys % self.children)
    }
}

/// What a child says of its work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Child {
    pub nth: u32,
    pub keys: u32,
    /// Processor time, s.
    pub used_s: f64,
    /// Of all its pairs.
    pub digest: u64,
}

/// Forks the children and waits for them. Each prints a line of JSON.
///
/// # Errors
/// If one could not be made, or did not end well.
pub fn run(plan: &Plan) -> Result<()> {
    ensure!(
        (1..=CHILDREN_MAX).contains(&plan.children) && plan.keys >= plan.children,
        "{} pairs by {} children; at most {CHILDREN_MAX} children, and a pair for each",
        plan.keys,
        plan.children
    );
    let statuses =
        Parent::of_one_thread()?.fork_each(plan.children, |nth| match work(plan, nth) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("child {nth}: {error:#}");
                1
            }
        })?;
    let failed = statuses.iter().enumerate().find(|(_, status)| **status != 0);
    match failed {
        Some((nth, status)) => bail!("child {nth} ended with status {status:#x}"),
        None => Ok(()),
    }
}

fn work(plan: &Plan, nth: u32) -> Result<()> {
    let child = generate(plan, nth)?;
    let line = serde_json::to_string(&child)? + "\n";
    // In one piece: the others write to the same pipe.
    std::io::stdout().write_all(line.as_bytes()).context("nobody reads")?;
    Ok(())
}

fn generate(plan: &Plan, nth: u32) -> Result<Child> {
    let mut draw = ChaCha8Rng::seed_from_u64(plan.seed);
    draw.set_stream(u64::from(nth));
    let keys = plan.of_child(nth);
    let mut digest = 0;
    for _ in 0..keys {
        let (modulus, private) = pair(&mut draw);
        for word in modulus.to_words().into_iter().chain(private.to_words()) {
            digest = u64::rotate_left(digest, 5) ^ word;
        }
    }
    let used = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).context("cannot read a clock")?;
    Ok(Child { nth, keys, used_s: Duration::from(used).as_secs_f64(), digest })
}

/// Modulus and private exponent.
fn pair(draw: &mut ChaCha8Rng) -> (U1024, U1024) {
    loop {
        let [p, q]: [U512; 2] =
            std::array::from_fn(|_| random_prime(draw, Flavor::Any, PRIME_BITS));
        let modulus: U1024 = p.concatenating_mul(&q);
        let less_one = |prime: U512| prime.wrapping_sub(&U512::ONE);
        let totient: U1024 = less_one(p).concatenating_mul(&less_one(q));
        let Some(totient) = NonZero::new(totient).into_option() else { continue };
        let private = U1024::from_u32(PUBLIC_EXPONENT).invert_mod(&totient).into_option();
        if let Some(private) = private.filter(|_| p != q && is_of_full_length(&modulus)) {
            return (modulus, private);
        }
    }
}

fn is_of_full_length(modulus: &U1024) -> bool {
    modulus.bit_width_vartime() == MODULUS_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto_bigint::Odd;
    use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};

    #[test]
    fn what_one_key_of_a_pair_locks_the_other_opens() {
        let mut draw = ChaCha8Rng::seed_from_u64(3);
        for message in [2u32, 70_003, u32::MAX] {
            let (modulus, private) = pair(&mut draw);
            let params = FixedMontyParams::new(Odd::new(modulus).unwrap());
            let message = FixedMontyForm::new(&U1024::from_u32(message), &params);
            let locked = message.pow(&U1024::from_u32(PUBLIC_EXPONENT));
            assert_ne!(locked.retrieve(), message.retrieve());
            assert_eq!(locked.pow(&private).retrieve(), message.retrieve());
        }
    }

    #[test]
    fn children_share_the_pairs_and_each_has_its_own() {
        let plan = Plan { keys: 10, children: 4, seed: 1 };
        let counts: Vec<u32> = (0..4).map(|nth| plan.of_child(nth)).collect();
        assert_eq!(counts, [3, 3, 2, 2]);
        let digest = |nth| generate(&Plan { keys: 8, ..plan }, nth).unwrap().digest;
        assert_ne!(digest(0), digest(1));
        assert_eq!(digest(1), digest(1), "the same pairs each time");
    }

    #[test]
    fn fewer_pairs_than_children_are_refused() {
        assert!(run(&Plan { keys: 3, children: 4, seed: 1 }).is_err());
        assert!(run(&Plan { keys: 3, children: 0, seed: 1 }).is_err());
    }
}
