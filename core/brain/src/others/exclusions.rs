//! Nodes that refused are not asked again for a while, and ever longer.

use crate::config::Config;
use crate::random::Random;
use crate::time::{Span, Time};
use std::collections::BTreeMap;
use wire::ids::NodeId;

#[derive(Clone, Copy, Debug)]
struct Exclusion {
    until: Time,
    length: Span,
    /// Its load when it refused: well below that, the reason has gone. Negative infinity if load
    /// was not the reason.
    runnable_then: f64,
}

/// An exclusion that ended this long ago no longer makes the next one longer.
const MEMORY: Span = Span::from_secs(60);
/// However many refuse.
const EXCLUSIONS_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Exclusions {
    nodes: BTreeMap<NodeId, Exclusion>,
}

impl Exclusions {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// To be called in every round: what ended long ago is no reason any more.
    pub fn forget(&mut self, now: Time) {
        self.nodes.retain(|_, exclusion| exclusion.until > now - MEMORY);
    }

    /// The node says that so many threads are runnable there.
    pub fn learn(&mut self, node: NodeId, runnable: f64) {
        let has_ended = self.nodes.get(&node).is_some_and(|e| runnable + 0.5 <= e.runnable_then);
        if has_ended {
            self.nodes.remove(&node);
        }
    }

    /// It refused while that many threads were runnable there.
    pub fn refused(
        &mut self,
        now: Time,
        node: NodeId,
        runnable: f64,
        random: &mut Random,
        config: &Config,
    ) {
        let length = match self.nodes.get(&node) {
            Some(last) => (last.length * 2).min(config.exclusion_max),
            None => config.rest,
        };
        self.exclude(now, node, length, runnable, random);
    }

    /// Moves to it fail: twice as long as the last time, whatever its load.
    pub fn failed(&mut self, now: Time, node: NodeId, random: &mut Random, config: &Config) {
        self.refused(now, node, f64::NEG_INFINITY, random, config);
    }

    /// It did not answer: lost messages are no reason for a growing distance.
    pub fn was_deaf(&mut self, now: Time, node: NodeId, random: &mut Random, config: &Config) {
        self.exclude(now, node, config.rest, f64::NEG_INFINITY, random);
    }

    fn exclude(
        &mut self,
        now: Time,
        node: NodeId,
        length: Span,
        runnable_then: f64,
        random: &mut Random,
    ) {
        if self.nodes.len() >= EXCLUSIONS_MAX {
            self.nodes.retain(|_, exclusion| exclusion.until > now);
        }
        if self.nodes.len() >= EXCLUSIONS_MAX {
            return;
        }
        self.forget(now);
        // Up to half as long again, so that those refused together do not come back together.
        let until = now + length + Span(random.below(length.0 / 2));
        self.nodes.insert(node, Exclusion { until, length, runnable_then });
    }

    /// A move to it succeeded.
    pub fn lift(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    pub fn holds(&self, now: Time, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|exclusion| exclusion.until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(2);

    #[test]
    fn an_exclusion_doubles_up_to_its_bound_and_ends_when_the_load_has_fallen() {
        let config = Config::default();
        let mut random = Random::seeded(1);
        let mut now = Time::from_micros(10_000_000);
        let mut exclusions = Exclusions::default();
        for expected_s in [2, 4, 8, 16, 16] {
            exclusions.refused(now, NODE, 3.0, &mut random, &config);
            now = now + Span::from_secs(expected_s) - Span(1);
            assert!(exclusions.holds(now, NODE), "for {expected_s} s at least");
            now = now + Span::from_secs(expected_s);
            assert!(!exclusions.holds(now, NODE));
        }
        exclusions.refused(now, NODE, 3.0, &mut random, &config);
        exclusions.learn(NODE, 2.9);
        assert!(exclusions.holds(now, NODE), "nothing has changed there");
        exclusions.learn(NODE, 2.0);
        assert!(!exclusions.holds(now, NODE));
    }

    #[test]
    fn one_that_ended_long_ago_does_not_make_the_next_longer() {
        let config = Config::default();
        let mut random = Random::seeded(1);
        let mut now = Time::from_micros(10_000_000);
        let mut exclusions = Exclusions::default();
        for _ in 0..4 {
            exclusions.refused(now, NODE, 3.0, &mut random, &config);
        }
        // Up to half as long again, and a minute.
        now = now + config.rest * 12 + MEMORY;
        exclusions.forget(now);
        exclusions.refused(now, NODE, 3.0, &mut random, &config);
        assert!(!exclusions.holds(now + config.rest * 2, NODE));
    }
}
