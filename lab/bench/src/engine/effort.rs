//! How much is measured: enough for a promise, or just enough to see that it works.

use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq)]
pub struct Effort {
    /// Pairs of a measured and a floor round.
    pub pairs: usize,
    /// How long one round computes, natively.
    pub compute_s: f64,
    /// Calls, and exchanges over TCP, of one round.
    pub calls: u64,
    /// Moves of the smallest process, each way.
    pub moves: usize,
    /// Moves of the larger ones, each way.
    pub moves_of_large: usize,
    /// Moves of a process by which throughput is measured, and its size.
    pub freights: usize,
    pub freight_megabytes: u32,
    /// Whether large processes are moved, capped labs are made and so on.
    pub is_whole: bool,
    /// How long one of the programs to be spread takes alone on its node.
    pub spread_s: f64,
    pub spread_runs: usize,
    /// Returns of an owner, and guests expelled.
    pub owner_runs: usize,
    /// Rounds of the program whose instructions are counted.
    pub counted_rounds: u64,
    /// Of the programs that `migrate` moves only those whose names have this in them.
    pub only: Option<String>,
    /// C projects that are built.
    pub sources: Vec<PathBuf>,
}

impl Effort {
    /// Whether a program of that name is measured.
    pub fn has(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| name.contains(only))
    }

    /// For the figures that are published: about ten minutes for all benchmarks.
    pub fn full() -> Effort {
        Effort {
            pairs: 20,
            compute_s: 1.0,
            calls: 2000,
            moves: 50,
            moves_of_large: 10,
            freights: 3,
            freight_megabytes: 1024,
            is_whole: true,
            spread_s: 10.0,
            spread_runs: 3,
            owner_runs: 10,
            counted_rounds: 300,
            only: None,
            sources: vec![],
        }
    }

    /// Sees that everything works, in seconds; its figures mean little.
    pub fn quick() -> Effort {
        Effort {
            pairs: 2,
            compute_s: 0.1,
            calls: 200,
            moves: 2,
            moves_of_large: 1,
            freights: 1,
            freight_megabytes: 128,
            is_whole: false,
            spread_s: 1.0,
            spread_runs: 1,
            owner_runs: 1,
            counted_rounds: 10,
            only: None,
            sources: vec![],
        }
    }
}
