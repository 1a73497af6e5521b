//! Trials between two members: programs of one run in a storm to the other, compared with what they
//! do natively, by the comparison of the conformance tests.

use crate::machines::ground::Ground;
use crate::machines::seat::Seat;
use crate::{Flavour, Options, Report};
use anyhow::{Context, Result, ensure};
use std::str::FromStr;
use std::time::Duration;
use wire::control::CpuFit;
use wire::ids::NodeId;

/// Programs whose home is one member, moved to the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub home: NodeId,
    pub away: NodeId,
}

impl FromStr for Pair {
    type Err = anyhow::Error;

    /// Parses `2:3`.
    fn from_str(words: &str) -> Result<Pair> {
        let (home, away) = words
            .split_once(':')
            .with_context(|| format!("`{words}` is no pair: say HOME:AWAY, such as 2:3"))?;
        let node = |word: &str| -> Result<NodeId> {
            Ok(NodeId(word.parse().with_context(|| format!("`{word}` is no node"))?))
        };
        let pair = Pair { home: node(home)?, away: node(away)? };
        ensure!(pair.home != pair.away, "`{words}` is one node, not a pair");
        Ok(pair)
    }
}

/// Which programs, and how.
#[derive(Clone, Debug)]
pub struct Choice {
    pub filter: Option<String>,
    pub only: Option<Vec<String>>,
    pub flavours: Vec<Flavour>,
    /// Programs at a time.
    pub jobs: usize,
    /// How long one program may take in one flavour; emulated processors are slow.
    pub limit: Duration,
    /// How long all programs of a pair may take together.
    pub budget: Duration,
}

impl Choice {
    fn options(&self, has_baseline: bool) -> Options {
        Options {
            filter: self.filter.clone(),
            only: self.only.clone(),
            flavours: self.flavours.clone(),
            has_baseline,
            jobs: self.jobs,
            limit: self.limit,
            budget: self.budget,
            travel_ms: TRAVEL_MS,
            laps: LAPS,
            ..Options::default()
        }
    }
}

/// How long a guest stays at a travel point: some moves of emulated machines.
const TRAVEL_MS: u64 = 1500;
/// How often a program does its work whose work is soon done: it takes some moves then.
const LAPS: u32 = 4;

impl Ground {
    /// Lets only these two be members that are alive, so that a storm goes to no others.
    pub fn pair_up(&self, pair: Pair) -> Result<()> {
        for node in self.members() {
            let seat = Seat::new(self, node)?;
            let is_wanted = [pair.home, pair.away].contains(&node);
            match (is_wanted, seat.has_daemon()?) {
                (true, false) => seat.start_daemon()?,
                (false, true) => seat.stop_daemon()?,
                _ => {}
            }
        }
        for node in [pair.home, pair.away] {
            Seat::new(self, node)?.await_alive(&[pair.home, pair.away])?;
        }
        Ok(())
    }

    /// Whether programs move between the two only if they keep to what both processors have, as the
    /// daemon at home says. The two are paired up.
    pub fn needs_baseline(&self, pair: Pair) -> Result<bool> {
        Ok(Seat::new(self, pair.home)?.await_fit(pair.away)? == CpuFit::Baseline)
    }

    /// Runs the programs of a pair that is paired up, with the baseline where they need it.
    pub fn try_programs(&self, pair: Pair, choice: &Choice, has_baseline: bool) -> Result<Report> {
        if has_baseline {
            eprintln!("  their processors differ: programs run with --cpu-baseline");
        }
        let stage = Seat::new(self, pair.home)?.stage(&[pair.away])?;
        let mut report = crate::suite::run_on(&stage, &choice.options(has_baseline), &|row| {
            let words: Vec<String> = row
                .cells
                .iter()
                .map(|cell| format!("{} {}x", cell.verdict.word(), cell.migrations))
                .collect();
            eprintln!("  {}: {}", row.name, words.join(", "));
        })?;
        // What a machine's processor or image lacks is not this machine's to have.
        report.may_skip = true;
        Ok(report)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_pair_is_two_nodes() {
        assert_eq!("2:3".parse::<Pair>().unwrap(), Pair { home: NodeId(2), away: NodeId(3) });
        for wrong in ["2", "2:2", "a:3", "2:", ""] {
            assert!(wrong.parse::<Pair>().is_err(), "{wrong}");
        }
    }
}
