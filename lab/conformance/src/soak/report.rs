//! The outcome of a soak, for people and for programs.

use crate::soak::crew::Fate;
use crate::soak::movers::Tally;
use serde::Serialize;
use std::fmt::Write as _;

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub nodes: u32,
    pub moves_wanted: usize,
    pub moves: usize,
    pub moves_per_s: f64,
    /// Not counting what the balancer did by itself.
    pub moved_processes: usize,
    pub refused: Vec<Refused>,
    pub freeze_ms_median: f64,
    pub freeze_ms_max: f64,
    pub bytes_sent: u64,
    /// And others started in their place.
    pub daemons_killed: u64,
    /// How much more memory the daemon of any node holds than before.
    pub daemon_growth_bytes: u64,
    pub wall_s: f64,
    pub fates: Vec<Fate>,
    /// Kinds of programs that this machine cannot run, and why.
    pub left_out: Vec<(&'static str, String)>,
    /// All that was not as it had to be; empty if it was.
    pub faults: Vec<String>,
    /// With faults: the last warnings of each node.
    pub warnings: Vec<String>,
}

/// Moves that did not happen for the same kind of reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    pub code: String,
    pub count: u64,
    /// What was said of one of them.
    pub example: String,
}

impl Report {
    /// Freezes and refusals of a tally.
    pub fn count(&mut self, tally: &Tally, moving_s: f64) {
        let mut freezes: Vec<f64> = tally.done.iter().map(|move_| move_.freeze_ms).collect();
        freezes.sort_by(f64::total_cmp);
        self.moves = tally.done.len();
        self.moves_per_s = self.moves as f64 / moving_s;
        self.moved_processes = tally.moves_of.len();
        self.refused = tally.refused.iter().map(|(code, told)| refused(code, told)).collect();
        self.freeze_ms_median = freezes.get(freezes.len() / 2).copied().unwrap_or(0.0);
        self.freeze_ms_max = freezes.last().copied().unwrap_or(0.0);
        self.bytes_sent = tally.done.iter().map(|move_| move_.bytes_sent).sum();
    }

    pub fn is_success(&self) -> bool {
        self.faults.is_empty()
    }

    pub fn json(&self) -> String {
        // Plain structures of text and finite numbers.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for fate in &self.fates {
            let verdict = fate.fault.as_deref().unwrap_or("as natively");
            let Fate { token, home, laps, .. } = fate;
            let _ = writeln!(text, "{token:12} home {home}  {laps:5} laps  {verdict}");
        }
        let Report { moves, moves_wanted, moved_processes, seed, nodes, .. } = self;
        let _ = writeln!(
            text,
            "{moves} of {moves_wanted} moves of {moved_processes} processes on {nodes} nodes, \
             {:.1} a second; {:.0} s in all; seed {seed}",
            self.moves_per_s, self.wall_s
        );
        let _ = writeln!(
            text,
            "freeze: median {:.1} ms, max {:.1} ms; {} MiB sent; daemons grew by {} KiB at most",
            self.freeze_ms_median,
            self.freeze_ms_max,
            self.bytes_sent >> 20,
            self.daemon_growth_bytes >> 10
        );
        if self.daemons_killed > 0 {
            let _ = writeln!(text, "{} daemons killed and replaced meanwhile", self.daemons_killed);
        }
        for Refused { code, count, example } in &self.refused {
            let _ = writeln!(text, "refused {count:3} x {code}: {example}");
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "{warning}");
        }
        for fault in &self.faults {
            let _ = writeln!(text, "FAULT: {fault}");
        }
        let verdict = match self.is_success() {
            true => "none lost, none doubled, nothing left behind",
            false => "not as promised",
        };
        let _ = writeln!(text, "{verdict}");
        text
    }
}

fn refused(code: &str, told: &(u64, String)) -> Refused {
    Refused { code: code.to_owned(), count: told.0, example: told.1.clone() }
}
