//! What nobody can beat while nodes join, leave and crash, and owners come and go.

use sim::scenario::{Scenario, What};

/// All cores that are there at a time work on the given works without a pause, from `start_s` on.
pub fn bound_s(scenario: &Scenario, works: &[f64], start_s: f64) -> f64 {
    let mut speed: f64 = scenario
        .nodes
        .iter()
        .map(|group| group.count as f64 * f64::from(group.cores) * group.speed)
        .sum();
    let mut speeds: Vec<f64> = scenario
        .nodes
        .iter()
        .flat_map(|group| vec![f64::from(group.cores) * group.speed; group.count])
        .collect();
    let mut changes: Vec<(f64, f64)> = Vec::new();
    let mut happenings = scenario.events.clone();
    happenings.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    for happening in happenings {
        match happening.what {
            What::Join(group) => {
                let each = f64::from(group.cores) * group.speed;
                speeds.extend(vec![each; group.count]);
                changes.push((happening.at_s, each * group.count as f64));
            }
            What::Leave { node } | What::Crash { node } => {
                changes.push((happening.at_s, -speeds[node as usize - 1]));
            }
            What::OwnLoad { node, threads } => {
                // Of single-core nodes: its owner has all of it, or none.
                let taken = speeds[node as usize - 1] * f64::from(threads);
                changes.push((happening.at_s, -taken));
            }
            _ => {}
        }
    }
    let mut left: f64 = works.iter().sum();
    let mut at_s = start_s;
    for (change_s, gained) in changes {
        if change_s > at_s {
            if left <= speed * (change_s - at_s) {
                break;
            }
            left -= speed * (change_s - at_s);
            at_s = change_s;
        }
        speed += gained;
    }
    let longest = works.iter().copied().fold(0.0, f64::max);
    (at_s + left / speed - start_s).max(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::scenario::{Happening, NodeGroup};

    #[test]
    fn a_node_counts_for_as_long_as_it_is_there() {
        let two = NodeGroup { count: 2, ..NodeGroup::default() };
        let at = |at_s, what| Happening { at_s, what };
        let scenario = Scenario {
            nodes: vec![two.clone()],
            events: vec![at(25.0, What::Crash { node: 1 }), at(15.0, What::Join(two))],
            ..Scenario::default()
        };
        // Ten seconds of two nodes, ten of four, the rest of three.
        assert_eq!(bound_s(&scenario, &[10.0; 9], 5.0), 20.0 + 30.0 / 3.0);
    }
}
