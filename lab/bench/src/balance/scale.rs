//! The experiments in less time: every second of work, of a pause and of load that comes and goes
//! is a part of a second. What a brain, a network and a move take stays as it is, so the shorter
//! the work, the more these weigh; a simulated run of the same shortened trial says by how much.

use crate::balance::trial::Trial;
use sim::Dice;
use sim::scenario::{Background, Work};

/// Memory of a lab's nodes and guests against the simulated ones: one machine has to hold all.
const MEMORY_PART: u64 = 4;
/// What a guest of a lab has written to, if it does not grow.
const GUEST_MIB: f64 = 0.25;

impl Trial {
    /// `factor` times shorter.
    pub fn shortened(&self, factor: f64) -> Trial {
        let mut trial = self.clone();
        trial.shortened *= factor;
        let scenario = &mut trial.scenario;
        scenario.limit_s /= factor;
        for job in &mut scenario.jobs {
            job.work = match job.work {
                Work::Fixed(s) => Work::Fixed(s / factor),
                Work::Uniform(low, high) => Work::Uniform(low / factor, high / factor),
                Work::Endless => Work::Endless,
            };
            if job.growth_mib_per_s > 0.0 {
                job.growth_mib_per_s *= factor / MEMORY_PART as f64;
                job.rss_mib_max /= MEMORY_PART as f64;
                job.rss_mib /= MEMORY_PART as f64;
            } else {
                job.rss_mib = GUEST_MIB;
            }
        }
        for group in &mut scenario.nodes {
            group.memory_mib /= MEMORY_PART;
        }
        for happening in &mut scenario.events {
            happening.at_s /= factor;
        }
        trial
    }
}

/// What one thread of others does, in seconds from the beginning: pauses and computes in turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Turns {
    /// The node where it is, counted from 0.
    pub node: u32,
    pub turns_ms: Vec<u32>,
}

/// The background load of a real run, drawn as the simulator draws it; `until_s` bounds it.
pub fn turns(groups: &[Background], nodes: usize, seed: u64, until_s: f64) -> Vec<Turns> {
    let mut dice = Dice::seeded(seed);
    let threads = groups.iter().flat_map(|group| vec![group; group.count]).enumerate();
    let draw = |(nth, group): (usize, &Background)| {
        let mut turns = Turns { node: (nodes - 1 - nth % nodes) as u32, turns_ms: Vec::new() };
        let mut at_ms = 0u64;
        while (at_ms as f64) < until_s * 1e3 {
            let is_on = turns.turns_ms.len() % 2 == 1;
            let s_max = if is_on { group.on_s_max } else { group.off_s_max };
            // At least one, so that this ends.
            let turn_ms = (dice.between(0.0, s_max) * 1e3) as u32 + 1;
            turns.turns_ms.push(turn_ms);
            at_ms += u64::from(turn_ms);
        }
        turns
    };
    threads.map(draw).collect()
}

/// When (in seconds), on which node, how many threads of others compute from then on.
pub fn changes(threads: &[Turns]) -> Vec<(f64, u32, u16)> {
    let mut steps: Vec<(u64, u32, bool)> = Vec::new();
    for thread in threads {
        let mut at_ms = 0;
        for (nth, turn_ms) in thread.turns_ms.iter().enumerate() {
            at_ms += u64::from(*turn_ms);
            steps.push((at_ms, thread.node, nth % 2 == 0));
        }
    }
    steps.sort_unstable();
    let mut computing = std::collections::BTreeMap::<u32, u16>::new();
    let count = |(at_ms, node, begins): (u64, u32, bool)| {
        let computing = computing.entry(node).or_default();
        *computing = if begins { *computing + 1 } else { computing.saturating_sub(1) };
        (at_ms as f64 / 1e3, node, *computing)
    };
    steps.into_iter().map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::scenarios;

    #[test]
    fn a_shortened_trial_has_shorter_work_and_the_same_moves() {
        let usual = &scenarios::trials("table1", &[7]).expect("a scenario")[0];
        let short = usual.shortened(10.0);
        assert_eq!(short.scenario.jobs[0].work, Work::Fixed(30.0));
        assert_eq!(short.scenario.moves, usual.scenario.moves);
        assert_eq!(short.scenario.jobs[0].start_s, usual.scenario.jobs[0].start_s);
    }

    #[test]
    fn guests_that_grow_reach_their_bound_at_the_same_part_of_their_work() {
        let usual = &scenarios::trials("memory", &[7]).expect("a scenario")[0];
        let short = usual.shortened(10.0);
        let reaches = |trial: &Trial| {
            let job = &trial.scenario.jobs[0];
            let Work::Fixed(work_s) = job.work else { panic!("it has an end") };
            (job.rss_mib_max - job.rss_mib) / job.growth_mib_per_s / work_s
        };
        assert!((reaches(usual) - reaches(&short)).abs() < 1e-9);
        let full = |trial: &Trial| {
            trial.scenario.jobs[0].rss_mib_max / trial.scenario.nodes[0].memory_mib as f64
        };
        assert!((full(usual) - full(&short)).abs() < 1e-9);
    }

    #[test]
    fn load_of_others_is_counted_as_it_comes_and_goes() {
        let thread = |turns_ms: &[u32]| Turns { node: 3, turns_ms: turns_ms.to_vec() };
        let threads = [thread(&[10, 20, 100]), thread(&[15, 30])];
        let expected = [(0.01, 3, 1), (0.015, 3, 2), (0.03, 3, 1), (0.045, 3, 0), (0.13, 3, 1)];
        assert_eq!(changes(&threads), expected);
    }

    #[test]
    fn background_is_drawn_up_to_its_end_and_the_same_for_the_same_seed() {
        let groups = [Background { count: 3, on_s_max: 2.0, off_s_max: 1.0 }];
        let drawn = turns(&groups, 16, 5, 60.0);
        assert_eq!(drawn.iter().map(|turns| turns.node).collect::<Vec<_>>(), [15, 14, 13]);
        for thread in &drawn {
            let total: u32 = thread.turns_ms.iter().sum();
            assert!((60_000..63_000).contains(&total), "{total}");
        }
        assert_eq!(drawn, turns(&groups, 16, 5, 60.0));
        assert_ne!(drawn, turns(&groups, 16, 6, 60.0));
    }
}
