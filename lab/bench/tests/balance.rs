//! A small part of the experiments, with the targets that the whole has: what would be noticed
//! first if a change made the balancing worse.

use bench::balance::policy::Policy;
use bench::balance::results::{Results, run, violations};
use bench::balance::sensitivity;

const SEEDS: [u64; 1] = [2_001];

fn results(names: &[&str], policies: &[Policy]) -> Results {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let results = run(&names, policies, &SEEDS, |_| ()).expect("scenarios that exist");
    assert_eq!(violations(&results), Vec::<String>::new());
    results
}

fn mean(results: &Results, scenario: &str, policy: Policy) -> f64 {
    results[scenario][policy.name()].over_optimum_pct_mean
}

#[test]
fn table_1_is_beaten_with_turns_and_nearly_reached_without() {
    let policies = [Policy::Fifo, Policy::Osmos, Policy::OsmosNorotate];
    let results = results(&["table1", "table1_preemptive"], &policies);
    let over = |policy| mean(&results, "table1", policy);
    assert!(over(Policy::Osmos) <= -4.0, "{}", over(Policy::Osmos));
    assert!(over(Policy::OsmosNorotate) <= 0.5, "{}", over(Policy::OsmosNorotate));
    // The published figure is 1.95 %; this is a daemon that looks and a network that delays.
    assert!((1.0..5.0).contains(&over(Policy::Fifo)), "{}", over(Policy::Fifo));
    let preemptive = mean(&results, "table1_preemptive", Policy::Osmos);
    assert!((0.0..=2.0).contains(&preemptive), "{preemptive}");
}

#[test]
fn slow_nodes_and_the_load_of_others_are_taken_into_account() {
    let results = results(&["mixed", "background"], &[Policy::Osmos]);
    let mixed = &results["mixed"][Policy::Osmos.name()];
    assert!(mixed.over_optimum_pct_max <= 9.0, "{}", mixed.over_optimum_pct_max);
    let background = mean(&results, "background", Policy::Osmos);
    assert!((0.0..=10.0).contains(&background), "{background}");
}

#[test]
fn durations_nobody_knows_cost_little_more_than_with_equal_progress() {
    let results = results(&["random"], &[Policy::Fifo, Policy::Osmos]);
    let over = |policy| mean(&results, "random", policy);
    assert!(over(Policy::Osmos) < over(Policy::Fifo));
    for row in &results["random"][Policy::Osmos.name()].rows {
        let equal = row.notes["equal_progress_over_optimum_pct"];
        let ours = row.over_optimum_pct;
        assert!(ours < equal + 3.0, "{}: {ours}, ideally {equal}", row.label);
    }
}

#[test]
fn an_idle_newcomer_is_used_and_not_flooded() {
    let results = results(&["flood"], &[Policy::Osmos]);
    let rows = &results["flood"][Policy::Osmos.name()].rows;
    assert!(rows.iter().all(|row| (2.0..=5.0).contains(&row.measured)), "{rows:?}");
}

#[test]
fn no_node_pages_or_kills_while_another_has_room() {
    let results = results(&["memory"], &[Policy::Osmos]);
    for row in &results["memory"][Policy::Osmos.name()].rows {
        assert_eq!(row.notes["killed_for_memory"], 0.0, "{}", row.label);
        assert_eq!(row.notes["paging_while_room_elsewhere_s"], 0.0, "{}", row.label);
    }
}

#[test]
fn a_scenario_that_does_not_exist_is_named() {
    let error = run(&["tabel1".to_owned()], &[], &SEEDS, |_| ()).expect_err("no such scenario");
    assert!(error.contains("tabel1"), "{error}");
}

#[test]
fn every_constant_of_the_policy_is_halved_and_doubled_in_the_report() {
    let names = ["memory".to_owned()];
    let found = sensitivity::measure(&names, &SEEDS, |_| ()).expect("a scenario that exists");
    let usual = mean(&results(&["memory"], &[Policy::Osmos]), "memory", Policy::Osmos);
    assert_eq!(found.usual["memory"], usual);
    let report = found.report(&SEEDS);
    for constant in &found.constants {
        let is_varied = constant.doubled.is_some() || constant.halved.is_some();
        assert!(is_varied && report.contains(&format!("| `{}` |", constant.name)), "{report}");
    }
    let error = sensitivity::measure(&["tabel1".to_owned()], &SEEDS, |_| ()).expect_err("none");
    assert!(error.to_string().contains("tabel1"), "{error}");
}
