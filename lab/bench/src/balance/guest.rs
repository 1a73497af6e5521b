//! `osmos bench-guest PLAN`: the program that the experiments run in a lab. It computes a fixed
//! amount and prints the result, so that whoever waits for it can tell that nothing was left out
//! or done twice, wherever it was moved meanwhile.

use crate::ssi::keys;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The rounds: a linear congruential generator, whose steps cannot be done side by side.
const FACTOR: u64 = 6_364_136_223_846_793_005;
const TERM: u64 = 1;
/// Rounds between two looks at memory and clock: some ten microseconds.
const CHUNK: u64 = 10_000;
const PIECE_KIB: u64 = 64;

/// What one guest does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Plan {
    /// So many rounds.
    Compute { rounds: u64, memory: Option<Memory> },
    /// It computes for that long.
    Endless { seconds: f64 },
    /// Key pairs by forked children.
    Keys(keys::Plan),
    /// Pauses and computes in turn, each for so many milliseconds.
    ComeAndGo { turns_ms: Vec<u32> },
}

/// Memory that grows with the work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    pub kib_first: u64,
    pub kib_last: u64,
    /// Rounds after which there is one more.
    pub rounds_per_kib: u64,
}

impl Memory {
    fn kib_after(&self, rounds: u64) -> u64 {
        (self.kib_first + rounds / self.rounds_per_kib.max(1)).min(self.kib_last)
    }
}

/// What a guest prints that has done so many rounds: the same by repeated squaring.
pub fn expected(rounds: u64) -> u64 {
    // A step is x -> factor x + term; two steps are one of the same form.
    let (mut factor, mut term) = (FACTOR, TERM);
    let (mut value, mut left) = (0u64, rounds);
    while left > 0 {
        if left & 1 == 1 {
            value = value.wrapping_mul(factor).wrapping_add(term);
        }
        term = factor.wrapping_mul(term).wrapping_add(term);
        factor = factor.wrapping_mul(factor);
        left >>= 1;
    }
    value
}

/// So many rounds from a value on; returns the last.
pub fn steps(mut value: u64, rounds: u64) -> u64 {
    for _ in 0..rounds {
        value = black_box(value.wrapping_mul(FACTOR).wrapping_add(TERM));
    }
    value
}

pub fn run(words: &[OsString]) -> Result<()> {
    let text = words.first().and_then(|word| word.to_str()).context("bench-guest PLAN")?;
    let plan: Plan = serde_json::from_str(text).context("that is no plan")?;
    enter_work()?;
    match plan {
        Plan::Compute { rounds, memory } => println!("{}", compute(rounds, memory)),
        Plan::Endless { seconds } => compute_for(Duration::from_secs_f64(seconds)),
        Plan::Keys(plan) => keys::run(&plan)?,
        Plan::ComeAndGo { turns_ms } => come_and_go(&turns_ms),
    }
    Ok(())
}

/// It was started beside the node's work, so that starting takes no longer on a slow node; from
/// here on it is limited like all work. Outside a lab there is nothing to enter.
fn enter_work() -> Result<()> {
    let root = std::path::Path::new("/sys/fs/cgroup");
    let own = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    for dir in own.chain([root.to_owned()]) {
        let procs = dir.join("work/cgroup.procs");
        if procs.exists() {
            std::fs::write(&procs, "0")
                .with_context(|| format!("cannot enter {}", procs.display()))?;
        }
    }
    Ok(())
}

fn compute(rounds: u64, memory: Option<Memory>) -> u64 {
    let (mut value, mut done) = (0, 0);
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    while done < rounds {
        if let Some(memory) = &memory {
            while PIECE_KIB * (pieces.len() as u64) < memory.kib_after(done) {
                // Not zero: a page of zeros would not travel.
                pieces.push(vec![pieces.len() as u8 | 1; (PIECE_KIB << 10) as usize]);
            }
        }
        let chunk = CHUNK.min(rounds - done);
        value = steps(value, chunk);
        done += chunk;
    }
    // What was written must still be there; and so it cannot be left out.
    let intact = |(nth, piece): (usize, &Vec<u8>)| piece.iter().all(|byte| *byte == nth as u8 | 1);
    if pieces.iter().enumerate().all(intact) { value } else { !value }
}

fn compute_for(span: Duration) {
    let started = Instant::now();
    let mut value = 0;
    while started.elapsed() < span {
        value = steps(value, CHUNK);
    }
    black_box(value);
}

fn come_and_go(turns_ms: &[u32]) {
    for (nth, turn) in turns_ms.iter().enumerate() {
        let span = Duration::from_millis(u64::from(*turn));
        if nth % 2 == 0 { std::thread::sleep(span) } else { compute_for(span) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_is_what_is_computed() {
        for rounds in [0, 1, 2, 3, CHUNK, 3 * CHUNK + 7, 100_003] {
            assert_eq!(compute(rounds, None), expected(rounds), "{rounds}");
        }
        assert_ne!(expected(5), expected(6));
    }

    #[test]
    fn memory_grows_with_the_work_up_to_its_bound_and_changes_no_result() {
        let memory = Memory { kib_first: 100, kib_last: 300, rounds_per_kib: 1_000 };
        assert_eq!([0, 50_000, 1_000_000].map(|r| memory.kib_after(r)), [100, 150, 300]);
        assert_eq!(compute(50_000, Some(memory)), expected(50_000));
    }
}
