//! Work of other shapes than many equal processes that start together: wide, one after another, so
//! many at a time; and turns only where they are worth it.

use brain::Config;
use sim::scenario::{Job, NodeGroup, Place, Scenario, Work};
use sim::{Outcome, World};

fn run(scenario: Scenario) -> Outcome {
    let outcome = World::new(scenario, Config::default(), 11).expect("a scenario").run();
    assert_eq!(outcome.findings.violations, Vec::<String>::new());
    assert_eq!(outcome.unfinished, 0);
    outcome
}

fn nodes(cores: &[u32]) -> Vec<NodeGroup> {
    cores
        .iter()
        .map(|cores| NodeGroup { count: 1, cores: *cores, ..NodeGroup::default() })
        .collect()
}

fn of(count: usize, nodes: usize) -> Scenario {
    let group = NodeGroup { count: nodes, ..NodeGroup::default() };
    let job = Job { count, ..Job::default() };
    Scenario { nodes: vec![group], jobs: vec![job], ..Scenario::default() }
}

/// The most that ran at a time.
fn crowd(outcome: &Outcome) -> usize {
    let runs = |at: f64| {
        let running = outcome.fates.iter().filter(|fate| fate.started_s <= at);
        running.filter(|fate| fate.ended_s.expect("it has ended") > at).count()
    };
    outcome.fates.iter().map(|fate| runs(fate.started_s)).max().expect("there are some")
}

/// Those who leave their first node last have lost a second or two: they may make up for that.
fn turns_between(outcome: &Outcome, from_s: f64, to_s: f64) -> usize {
    let turns = outcome.moves.iter().filter(|made| made.is_rotation);
    turns.filter(|made| (from_s..to_s).contains(&made.at_s)).count()
}

#[test]
fn turns_are_taken_when_cores_would_stand_idle_and_not_before() {
    // Seven have a core each, and end after 300 s; 18 are enough for 16 cores then. Of these two
    // pairs would be left behind: they take turns.
    let outcome = run(of(25, 16));
    assert_eq!(turns_between(&outcome, 20.0, 300.0), 0);
    assert!(turns_between(&outcome, 300.0, 475.0) > 0);
    assert!(outcome.makespan_s < 475.0, "{} s; nobody can do it in 468", outcome.makespan_s);
    let mean_s = outcome.completion_mean_s();
    assert!(mean_s < 430.0, "{mean_s} s; it was 469 s when all took turns from the beginning");
}

#[test]
fn those_that_are_enough_for_all_cores_to_the_end_take_no_turns() {
    // Eight have a core each; then 32 do, two each; and so on: every core is busy until 750 s.
    let outcome = run(of(40, 16));
    assert_eq!(turns_between(&outcome, 20.0, 600.0), 0);
    assert!(outcome.makespan_s < 757.0, "{} s; nobody can do it in 750", outcome.makespan_s);
}

#[test]
fn the_widest_goes_first_and_to_where_it_has_most() {
    let single = Job { count: 8, work: Work::Fixed(60.0), ..Job::default() };
    let wide = Job { count: 1, threads: 16, work: Work::Fixed(60.0 * 16.0), ..Job::default() };
    let mut scenario = Scenario { jobs: vec![single, wide], ..Scenario::default() };
    scenario.nodes = nodes(&[1, 4, 8, 16]);
    let outcome = run(scenario);
    // It was started last, as the ninth.
    let first = outcome.moves.first().expect("they are crowded");
    assert_eq!((first.process, first.to), (8, 4), "{first:?}");
    assert!(outcome.makespan_s < 64.0, "{} s of 60", outcome.makespan_s);
}

#[test]
fn a_wide_process_finds_the_one_node_that_has_room_for_it_among_many_that_have_little() {
    let alone = Job { count: 1, place: Place::Each, work: Work::Fixed(60.0), ..Job::default() };
    let wide = Job { threads: 32, work: Work::Fixed(32.0 * 60.0), start_s: 10.0, ..Job::default() };
    let mut scenario = Scenario { jobs: vec![alone, wide], ..Scenario::default() };
    scenario.nodes = nodes(&[&[2; 30][..], &[64]].concat());
    let outcome = run(scenario);
    let moves: Vec<_> = outcome.moves.iter().filter(|made| made.process == 31).collect();
    assert_eq!(moves.iter().map(|made| made.to).collect::<Vec<_>>(), [31]);
    let at_s = moves[0].at_s;
    assert!(at_s < 10.5, "{at_s} s");
}

#[test]
fn wide_processes_use_small_nodes_too_and_take_turns_there() {
    // Three would fill 16 and 32 cores: without turns, or without the small node, it takes longer.
    let wide = Job { count: 4, threads: 16, work: Work::Fixed(1_600.0), ..Job::default() };
    let mut scenario = Scenario { jobs: vec![wide], ..Scenario::default() };
    scenario.nodes = nodes(&[3, 16, 32]);
    let outcome = run(scenario);
    let least_s = 4.0 * 1_600.0 / 51.0;
    assert!(outcome.makespan_s < 1.05 * least_s, "{} s of {least_s}", outcome.makespan_s);
    assert_eq!(outcome.findings.flew_back, 0);
}

#[test]
fn a_build_runs_so_many_at_a_time_until_all_are_done() {
    let mut scenario = of(60, 4);
    scenario.jobs[0] = Job { at_once: Some(7), work: Work::Uniform(0.5, 2.0), ..scenario.jobs[0] };
    let outcome = run(scenario.clone());
    assert_eq!((outcome.finished, crowd(&outcome)), (60, 7));
    // Whose node is gone is lost, and nobody waits for those that would have followed.
    scenario.events =
        vec![sim::scenario::Happening { at_s: 8.0, what: sim::scenario::What::Crash { node: 1 } }];
    let outcome = World::new(scenario, Config::default(), 11).expect("a scenario").run();
    assert!(outcome.simulated_s < 20.0, "{} s", outcome.simulated_s);
    assert_eq!(outcome.unfinished, 0);
}

#[test]
fn short_work_starts_one_after_another_at_the_same_moments_whoever_decides() {
    let mut scenario = of(100, 4);
    scenario.jobs[0] = Job { apart_s: 0.5, work: Work::Fixed(0.8), ..scenario.jobs[0] };
    let starts = |config: Config| -> Vec<f64> {
        let outcome = World::new(scenario.clone(), config, 11).expect("a scenario").run();
        outcome.fates.iter().map(|fate| fate.started_s).collect()
    };
    let usual = starts(Config::default());
    assert_eq!(usual, starts(Config { decision: brain::Decision::Off, ..Config::default() }));
    let apart_s = (usual[99] - usual[0]) / 99.0;
    assert!((0.4..0.6).contains(&apart_s), "{apart_s} s");
}
