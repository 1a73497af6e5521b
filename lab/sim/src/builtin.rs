//! Scenarios by name, from a room full of machines to more than anybody has.

use crate::scenario::{Happening, Job, NodeGroup, Place, Scenario, What, Work};

/// Others that a brain knows at one time where there are too many to know all, and is told of.
const VIEW: usize = 16;
/// The same in the largest, for the sake of memory.
const VIEW_LEAST: usize = 12;

pub fn scenario(name: &str) -> Option<Scenario> {
    match name {
        "sixteen" => Some(crowd(name, 16, 7_200.0, None)),
        "thousand" => Some(crowd(name, 1_000, 300.0, Some(VIEW))),
        "starved" => Some(starved(name)),
        "hundred-thousand" => Some(crowd(name, 100_000, 20.0, Some(VIEW))),
        "million" => Some(crowd(name, 1_000_000, 5.0, Some(VIEW_LEAST))),
        _ => None,
    }
}

/// A thousand node-hours in which a tenth of the daemons get no processor for up to four seconds at
/// a time, again and again: nobody may take them for dead.
fn starved(name: &str) -> Scenario {
    let usual = crowd(name, 64, 57_600.0, None);
    let endless = |job| Job { place: Place::Random, work: Work::Endless, ..job };
    Scenario {
        jobs: usual.jobs.into_iter().map(endless).collect(),
        events: vec![Happening { at_s: 3.0, what: What::Starve { nodes: 6, s_max: 4.0 } }],
        ..usual
    }
}

/// Half as many processes again as nodes, started anywhere.
fn crowd(name: &str, nodes: usize, limit_s: f64, view: Option<usize>) -> Scenario {
    let place = if view.is_some() { Place::Random } else { Place::Node(1) };
    let work = if view.is_some() { Work::Endless } else { Work::Fixed(300.0) };
    // All on one node of a large cluster would be another experiment.
    let job = Job { count: nodes * 3 / 2, start_s: 1.0, place, work, ..Job::default() };
    Scenario {
        name: name.into(),
        limit_s,
        nodes: vec![NodeGroup { count: nodes, ..NodeGroup::default() }],
        jobs: vec![job],
        members_told: view.map(|view| view + 4),
        view,
        ..Scenario::default()
    }
}
