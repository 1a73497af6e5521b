//! What happens to the nodes of a lab while a run goes on, as its scenario wants it: datagrams get
//! lost, a part is cut off, daemons get no processor, nodes come, go and crash.

use anyhow::{Context, Result, bail, ensure};
use lab::{Disturbance, Lab};
use sim::Dice;
use sim::scenario::{Scenario, What};
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Between two bursts in which a starved daemon gets no processor, s; as in the simulator.
const AWAKE_S: f64 = 1.0;

#[derive(Clone, Debug, PartialEq)]
enum Act {
    Disturb(Disturbance),
    Starve { node: u32, starves: bool },
    Join { node: u32 },
    Leave { node: u32 },
    Crash { node: u32 },
}

/// What happens, in the order of time, in seconds from the start of the work.
#[derive(Clone, Debug, PartialEq)]
pub struct Happenings(Vec<(f64, Act)>);

/// Speeds of the nodes that join while the scenario goes on. Their numbers follow those of the
/// nodes that are there from the start.
pub fn newcomers(scenario: &Scenario) -> Vec<f64> {
    let joins = scenario.events.iter().filter_map(|happening| match &happening.what {
        What::Join(group) => Some(vec![group.speed; group.count]),
        _ => None,
    });
    joins.flatten().collect()
}

/// Nodes that go down without a word.
pub fn crashing(scenario: &Scenario) -> BTreeSet<u32> {
    let crashes = scenario.events.iter().filter_map(|happening| match happening.what {
        What::Crash { node } => Some(node),
        _ => None,
    });
    crashes.collect()
}

impl Happenings {
    /// Chances are drawn as the simulator draws them; `until_s` bounds what goes on and on.
    pub fn of(scenario: &Scenario, seed: u64, until_s: f64) -> Result<Happenings> {
        let start_s = scenario.jobs.first().map_or(0.0, |job| job.start_s);
        let count = scenario.nodes_count() as u32;
        let mut dice = Dice::seeded(seed);
        let mut network =
            Disturbance { loss_permille: scenario.network.loss_permille, cut_after: None };
        let mut acts = Vec::new();
        if network != Disturbance::default() {
            acts.push((f64::NEG_INFINITY, Act::Disturb(network)));
        }
        let mut newest = count;
        let mut script = scenario.events.clone();
        script.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        for happening in script {
            let at_s = happening.at_s - start_s;
            let before = network;
            match happening.what {
                What::Partition { nodes } => network.cut_after = Some(nodes),
                What::Heal => network.cut_after = None,
                What::Loss { permille } => network.loss_permille = permille,
                What::Leave { node } => acts.push((at_s, Act::Leave { node })),
                What::Crash { node } => acts.push((at_s, Act::Crash { node })),
                What::Join(group) => {
                    for _ in 0..group.count {
                        newest += 1;
                        acts.push((at_s, Act::Join { node: newest }));
                    }
                }
                What::Starve { nodes, s_max } => {
                    for node in count - nodes.min(count) + 1..=count {
                        starve(&mut acts, node, (at_s, until_s, s_max), &mut dice);
                    }
                }
                other => bail!("in a lab no {other:?} happens"),
            }
            if network != before {
                acts.push((at_s, Act::Disturb(network)));
            }
        }
        acts.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(Happenings(acts))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all nodes are there from the first moment to the last.
    pub fn keep_nodes(&self) -> bool {
        !self
            .0
            .iter()
            .any(|(_, act)| matches!(act, Act::Join { .. } | Act::Leave { .. } | Act::Crash { .. }))
    }

    /// Lets it happen from now on until the run is `over`, which a hung-up sender says; then
    /// nothing is wrong any more, but who has left has left.
    pub fn play(&self, lab: &Lab, over: &Receiver<()>) -> Result<()> {
        let began = Instant::now();
        let mut starving = BTreeSet::new();
        for (at_s, act) in &self.0 {
            let at = began + Duration::from_secs_f64(at_s.max(0.0));
            let left = at.saturating_duration_since(Instant::now());
            match over.recv_timeout(left) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
            carry_out(act, lab, &mut starving).with_context(|| format!("{act:?}"))?;
        }
        // Hung up is all that can come.
        let _ = over.recv();
        for node in starving {
            lab.node(node).starve_daemon(false)?;
        }
        if self.0.iter().any(|(_, act)| matches!(act, Act::Disturb(_))) {
            lab.disturb(&Disturbance::default())?;
        }
        Ok(())
    }
}

/// Pauses without any processor, with a second between them.
fn starve(
    acts: &mut Vec<(f64, Act)>,
    node: u32,
    (at_s, until_s, s_max): (f64, f64, f64),
    dice: &mut Dice,
) {
    let mut at_s = at_s;
    while at_s < until_s {
        acts.push((at_s, Act::Starve { node, starves: true }));
        at_s += dice.between(0.0, s_max);
        acts.push((at_s, Act::Starve { node, starves: false }));
        at_s += AWAKE_S;
    }
}

fn carry_out(act: &Act, lab: &Lab, starving: &mut BTreeSet<u32>) -> Result<()> {
    match *act {
        Act::Disturb(network) => lab.disturb(&network),
        Act::Starve { node, starves } => {
            if starves {
                starving.insert(node);
            } else {
                starving.remove(&node);
            }
            lab.node(node).starve_daemon(starves)
        }
        Act::Join { node } => lab.node(node).start_daemon(),
        Act::Leave { node } => {
            osmos(lab, node, &["drain"])?;
            osmos(lab, node, &["down"])
        }
        Act::Crash { node } => lab.node(node).crash(),
    }
}

/// A command in a node that has to succeed.
pub fn osmos(lab: &Lab, node: u32, words: &[&str]) -> Result<()> {
    let output = lab.node(node).command_beside("osmos").args(words).output();
    let output = output.with_context(|| format!("cannot run osmos {words:?} on node {node}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "osmos {words:?} on node {node}: {}", complaint.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::scenarios;

    fn of(scenario: &str, label: &str) -> Happenings {
        let trials = scenarios::trials(scenario, &[7]).expect("a scenario");
        let trial = trials.iter().find(|trial| trial.label == label).expect("a trial");
        Happenings::of(&trial.scenario, 7, 20.0).expect("a lab can play it")
    }

    #[test]
    fn a_cut_begins_and_heals_counted_from_the_start_of_the_work() {
        let network = |cut_after| Act::Disturb(Disturbance { loss_permille: 0, cut_after });
        let happenings = of("loss", "N=24, cut for 60 s");
        assert_eq!(happenings.0, [(95.0, network(Some(6))), (155.0, network(None))]);
        assert!(happenings.keep_nodes());
        assert!(of("loss", "N=24, as usual").is_empty());
    }

    #[test]
    fn what_is_lost_is_lost_from_the_beginning() {
        let Happenings(acts) = of("loss", "N=24, 30 % lost");
        let lossy = Disturbance { loss_permille: 300, cut_after: None };
        assert_eq!(acts, [(f64::NEG_INFINITY, Act::Disturb(lossy))]);
    }

    #[test]
    fn whoever_starves_wakes_up_between_and_the_last_nodes_do() {
        let Happenings(acts) = of("loss", "N=24, 2 starved");
        let of_node = |wanted: u32| {
            let own = acts.iter().filter_map(move |(at_s, act)| match act {
                Act::Starve { node, starves } if *node == wanted => Some((*at_s, *starves)),
                _ => None,
            });
            own.collect::<Vec<_>>()
        };
        assert_eq!(of_node(15).len() + of_node(16).len(), acts.len());
        for steps in [of_node(15), of_node(16)] {
            for (nth, pair) in steps.windows(2).enumerate() {
                let span_s = pair[1].0 - pair[0].0;
                assert_eq!(pair[0].1, nth % 2 == 0);
                let awake = nth % 2 == 1 && (span_s - AWAKE_S).abs() < 1e-9;
                assert!(awake || (nth % 2 == 0 && span_s <= 4.0), "{steps:?}");
            }
            assert!(!steps.last().expect("it starves").1);
        }
    }

    #[test]
    fn newcomers_have_the_next_numbers() {
        let happenings = of("churn", "and one crashes");
        let joins = happenings.0.iter().filter_map(|(_, act)| match act {
            Act::Join { node } => Some(*node),
            _ => None,
        });
        assert_eq!(joins.collect::<Vec<_>>(), [17, 18]);
        // Nothing is wrong with the network: none of its rules are touched.
        assert!(!happenings.0.iter().any(|(_, act)| matches!(act, Act::Disturb(_))));
        assert!(!happenings.keep_nodes());
    }
}
