//! How fast one core is, compared with a fixed reference.
//!
//! A short mixed load (integer arithmetic with dependent reads from a table that does not fit the
//! innermost cache) is timed by the CPU clock of its thread, so that neither a CPU quota nor other
//! processes change the result. The best of several runs counts: noise only ever slows down.

use nix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

const TABLE_WORDS: usize = 1 << 16;
const STEPS: u64 = 2_000_000;
const RUNS: u32 = 7;
/// CPU time that the reference core needs for [`STEPS`]: a 3 GHz x86-64 server core of 2020.
const REFERENCE_NS: f64 = 10_000_000.0;

/// The speed of the core that this runs on; 1.0 is the reference. Takes about 0.1 s.
pub fn measure_core_speed() -> nix::Result<f64> {
    let mut table: Vec<u64> = (0..TABLE_WORDS as u64).map(|n| n.wrapping_mul(SPREAD)).collect();
    let mut best = Duration::MAX;
    for _ in 0..RUNS {
        let start = thread_cpu_time()?;
        black_box(work(black_box(&mut table)));
        best = best.min(thread_cpu_time()?.saturating_sub(start));
    }
    let best_ns = best.as_nanos().max(1) as f64;
    Ok((REFERENCE_NS / best_ns * 1000.0).round() / 1000.0)
}

/// Knuth's multiplicative constant: spreads consecutive numbers over all bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

fn work(table: &mut [u64]) -> u64 {
    let mut state = SPREAD;
    for _ in 0..STEPS {
        let index = (state >> 48) as usize % TABLE_WORDS;
        state = (state ^ table[index]).wrapping_mul(SPREAD).rotate_left(23);
        table[index] = state;
    }
    state
}

fn thread_cpu_time() -> nix::Result<Duration> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn two_measurements_of_one_machine_agree() {
        let (first, second) = (measure_core_speed().unwrap(), measure_core_speed().unwrap());
        assert!(first > 0.0);
        assert!((first / second).max(second / first) < 2.0, "{first} and {second}");
    }
}
