//! Whole simulated clusters: that they are the same each time, that nothing is lost or doubled
//! whatever goes wrong, and that news travels as the published theory says.

use brain::{Config, Decision, Span, WindowPolicy};
use sim::scenario::{Background, Happening, Job, MoveCost, NodeGroup, Place, Scenario, What, Work};
use sim::{Dice, Outcome, World};

fn run(scenario: Scenario, config: Config, seed: u64) -> Outcome {
    World::new(scenario, config, seed).expect("a scenario that can be played").run()
}

fn of(count: usize, nodes: usize) -> Scenario {
    Scenario {
        nodes: vec![NodeGroup { count: nodes, ..NodeGroup::default() }],
        jobs: vec![Job { count, work: Work::Fixed(60.0), ..Job::default() }],
        ..Scenario::default()
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let play = |seed| run(of(12, 8), Config::default(), seed);
    assert_eq!(play(3), play(3));
    assert_ne!(play(3), play(4));
}

#[test]
fn processes_that_stay_where_they_are_take_as_long_as_arithmetic_says() {
    let off = Config { decision: Decision::Off, ..Config::default() };
    let mut scenario = of(5, 4);
    scenario.jobs[0].place = Place::RoundRobin;
    assert!((run(scenario.clone(), off.clone(), 1).makespan_s - 120.0).abs() < 1e-3);
    scenario.nodes[0].speed = 0.5;
    assert!((run(scenario.clone(), off.clone(), 1).makespan_s - 240.0).abs() < 1e-3);
    scenario.nodes[0].cores = 2;
    let outcome = run(scenario, off, 1);
    assert!((outcome.makespan_s - 120.0).abs() < 1e-3);
    assert_eq!((outcome.migrations, outcome.frozen_s), (0, 0.0));
}

#[test]
fn seventeen_on_sixteen_end_long_before_any_schedule_of_whole_processes_could() {
    let mut scenario = of(17, 16);
    scenario.jobs[0].work = Work::Fixed(300.0);
    let turns = run(scenario.clone(), Config::default(), 11);
    // 450 s for whole processes, 318.75 s for the best there is.
    assert!(turns.makespan_s < 330.0, "{} s", turns.makespan_s);
    let frozen_most = turns.fates.iter().map(|fate| fate.frozen_s).fold(0.0, f64::max);
    assert!(frozen_most < 0.03 * turns.makespan_s, "{frozen_most} s");
    let without = run(scenario, Config { rotates: false, ..Config::default() }, 11);
    assert!((450.0..453.0).contains(&without.makespan_s), "{} s", without.makespan_s);
    assert_eq!(without.rotations, 0);
}

#[test]
fn those_of_no_group_take_no_turns() {
    let mut scenario = of(17, 16);
    scenario.jobs[0].is_group = false;
    assert_eq!(run(scenario, Config::default(), 5).rotations, 0);
}

#[test]
fn in_an_hour_in_which_nothing_changes_nothing_is_moved() {
    let mut scenario = of(24, 16);
    scenario.limit_s = 3_700.0;
    scenario.jobs[0].work = Work::Endless;
    scenario.jobs[0].is_group = false;
    let outcome = run(scenario, Config::default(), 6);
    let late: Vec<_> = outcome.moves.iter().filter(|made| made.at_s > 60.0).collect();
    assert!(late.is_empty(), "{late:?}");
    assert_eq!(outcome.findings.flew_back, 0);
    assert_eq!(outcome.false_deaths, 0);
}

#[test]
fn guests_go_before_their_node_pages() {
    let mut scenario = of(6, 4);
    scenario.nodes[0].memory_mib = 1_024;
    scenario.jobs[0] = Job {
        count: 6,
        rss_mib: 32.0,
        growth_mib_per_s: 8.0,
        rss_mib_max: 400.0,
        work: Work::Fixed(120.0),
        ..scenario.jobs[0].clone()
    };
    // Without balancing all six would need 2.4 GiB of one node's 1 GiB.
    for seed in 1..=3 {
        let outcome = run(scenario.clone(), Config::default(), seed);
        assert_eq!(outcome.killed_for_memory, 0, "seed {seed}");
        assert_eq!(outcome.paging_needlessly_s, 0.0, "seed {seed}");
        assert_eq!(outcome.finished, 6, "seed {seed}");
    }
}

#[test]
fn guests_of_a_node_whose_owner_wants_it_go_elsewhere() {
    let mut scenario = of(8, 4);
    scenario.limit_s = 40.0;
    scenario.jobs[0].work = Work::Endless;
    scenario.events = vec![Happening { at_s: 20.0, what: What::Leave { node: 4 } }];
    let outcome = run(scenario, Config::default(), 9);
    let there = |until_s: f64| -> i64 {
        let moves = outcome.moves.iter().filter(|made| made.at_s < until_s);
        moves.map(|made| i64::from(made.to == 4) - i64::from(made.from == 4)).sum()
    };
    assert_eq!(there(20.0), 2);
    assert_eq!(there(22.0), 0, "all are gone within two seconds");
    assert_eq!(there(40.0), 0, "and none comes back");
}

/// Faults drawn at random: lost datagrams, moves that break, partitions, starved daemons, nodes
/// that join, leave and crash, load of others. Whatever happens, each process is in one place,
/// every freeze thaws, and in the end all work is done but that of crashed nodes.
#[test]
fn whatever_goes_wrong_nothing_is_lost_or_doubled() {
    for seed in 1..=12 {
        let outcome = run(troubled(seed), Config::default(), seed);
        let violations = &outcome.findings.violations;
        assert!(violations.is_empty(), "seed {seed}: {violations:?}");
        assert_eq!(outcome.unfinished, 0, "seed {seed}");
        assert_eq!(outcome.finished + outcome.lost as usize, 20, "seed {seed}");
    }
}

fn troubled(seed: u64) -> Scenario {
    let mut dice = Dice::seeded(seed);
    let mut scenario = of(20, 12);
    scenario.jobs[0].work = Work::Uniform(10.0, 120.0);
    scenario.moves = MoveCost {
        failing_permille: dice.below(200) as u32,
        staying_permille: dice.below(100) as u32,
        ..MoveCost::default()
    };
    scenario.network.loss_permille = dice.below(300) as u32;
    scenario.background = vec![Background { count: 3, ..Background::default() }];
    for _ in 0..8 {
        let at_s = dice.between(6.0, 150.0);
        let node = 2 + dice.below(11) as u32;
        let what = match dice.below(5) {
            0 => What::Crash { node },
            1 => What::Leave { node },
            2 => What::Join(NodeGroup { count: 1, ..NodeGroup::default() }),
            3 => What::Starve { nodes: 2, s_max: 4.0 },
            _ => What::Partition { nodes: 2 + dice.below(9) as u32 },
        };
        scenario.events.push(Happening { at_s, what });
    }
    scenario.events.push(Happening { at_s: 160.0, what: What::Heal });
    scenario
}

#[test]
fn a_node_tells_as_much_however_large_the_cluster() {
    let rate = |nodes: usize, view: Option<usize>| {
        let mut scenario = of(nodes * 3 / 2, nodes);
        scenario.limit_s = 40.0;
        scenario.jobs[0].place = Place::Random;
        scenario.jobs[0].work = Work::Endless;
        (scenario.view, scenario.members_told) = (view, view.map(|view| view + 4));
        run(scenario, Config::default(), 2).kbit_per_s
    };
    let rates = [rate(16, None), rate(200, None), rate(3_000, Some(16))];
    assert!(rates.iter().all(|rate| (3.0..20.0).contains(rate)), "{rates:?}");
}

/// Amar, Barak, Drezner and Okun (2009): n nodes, each tells one other its newest w entries once a
/// unit of time. The mean age of all that is known, and of the window.
fn published_ages(n: f64, w: f64) -> (f64, f64) {
    let t = (n - 1.0) / n * (w * (n - 1.0) / (n - w)).ln();
    let e = (n * t / (n - 1.0)).exp();
    let x = n * e / (n - 1.0 + e);
    let window = t - (n - 1.0) / x * ((n - 1.0 + e).ln() - n.ln());
    let vector = 1.0 / (1.0 - (1.0 - 1.0 / (n - 1.0)).powf(x)) + window;
    (vector, window)
}

#[test]
fn ages_are_as_published() {
    let (vector, window) = published_ages(64.0, 8.0);
    assert!((vector - 9.56).abs() < 0.01 && (window - 1.24).abs() < 0.01, "the formulas");
    for (nodes, size) in [(64usize, 8usize), (128, 16)] {
        let mut scenario = of(1, nodes);
        scenario.limit_s = 1e6;
        scenario.network.latency_us_min = 1;
        scenario.network.latency_us_max = 10;
        scenario.jobs[0].work = Work::Endless;
        let config = Config {
            window: size,
            window_policy: WindowPolicy::Newest,
            decision: Decision::Off,
            listeners: 1,
            // Nobody is asked directly.
            suspect_after: Span::from_secs(100_000),
            ..Config::default()
        };
        let mut world = World::new(scenario, config, 8).expect("a scenario");
        world.run_for_s(120.0);
        let mut ages = Vec::new();
        for _ in 0..60 {
            world.run_for_s(2.0);
            ages.push(world.age_mean_s());
        }
        let measured = ages.iter().sum::<f64>() / ages.len() as f64;
        // A datagram carries the window and the sender's own entry.
        let (expected, _) = published_ages(nodes as f64, size as f64 + 1.0);
        let off = measured / expected - 1.0;
        assert!(
            off.abs() < 0.05,
            "{nodes} nodes, window {size}: {measured:.2} s, not {expected:.2}"
        );
    }
}
