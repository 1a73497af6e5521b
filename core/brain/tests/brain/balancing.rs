//! Brains balance a small world: each test is one promise of the policy.

use crate::world::World;
use brain::{Arrival, Input, MoveOutcome, Placement, Span, Time, Verdict};
use std::collections::BTreeSet;
use wire::ids::NodeId;

const ENDLESS_S: f64 = 1e9;
const FIRST: NodeId = NodeId(1);
const NOT_MOVED: Verdict = Verdict::NotMoved { to: NodeId(2) };

#[test]
fn eight_processes_spread_evenly_over_four_equal_nodes_within_five_seconds() {
    for seed in 0..20 {
        let mut world = World::of_speeds(seed, &[1.0; 4]);
        world.start_processes(FIRST, 8, ENDLESS_S);
        world.run_for(Span::from_secs(5));
        assert_eq!(world.counts(), [2, 2, 2, 2], "seed {seed}: {:?}", world.moves);
        assert_eq!(world.moves.len(), 6, "seed {seed}: no move was wasted");
    }
}

#[test]
fn eight_processes_are_spread_in_the_first_second_by_nodes_that_look_often() {
    for seed in 0..20 {
        let mut world = World::of_speeds(seed, &[1.0; 4]);
        world.freeze_estimate = Span::from_millis(40);
        world.start_processes(FIRST, 8, ENDLESS_S);
        world.run_for(Span::from_secs(1));
        assert_eq!(world.counts(), [2, 2, 2, 2], "seed {seed}: {:?}", world.moves);
    }
}

#[test]
fn nodes_that_look_once_a_second_balance_within_five_seconds() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.sample_every = Span::from_secs(1);
        for _ in 0..4 {
            world.add_node(1, 1.0);
        }
        world.run_for(Span::from_secs(3));
        world.start_processes(FIRST, 8, ENDLESS_S);
        world.run_for(Span::from_secs(5));
        assert_eq!(world.counts(), [2, 2, 2, 2], "seed {seed}: {:?}", world.moves);
    }
}

#[test]
fn processes_that_end_soon_are_not_moved() {
    let mut world = World::of_speeds(28, &[1.0; 4]);
    for _ in 0..100 {
        // Two at once on one core: each has waited for longer than it has run.
        world.start_processes(FIRST, 2, 0.08);
        world.run_for(Span::from_millis(200));
    }
    assert_eq!(world.moves, []);
    assert_eq!(world.finished_at.len(), 200);
}

#[test]
fn nodes_and_processes_that_start_together_are_balanced_within_five_seconds_too() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        for _ in 0..4 {
            world.add_node(1, 1.0);
        }
        world.start_processes(FIRST, 8, ENDLESS_S);
        world.run_for(Span::from_secs(5));
        assert_eq!(world.counts(), [2, 2, 2, 2], "seed {seed}");
    }
}

#[test]
fn no_core_stays_idle_while_a_process_waits_elsewhere() {
    for seed in 0..4 {
        let mut world = World::of_speeds(seed, &[1.0; 32]);
        // All 48 on an eighth of the nodes.
        for node in 1..=4 {
            world.start_processes(NodeId(node), 12, ENDLESS_S);
        }
        world.run_for(Span::from_secs(20));
        let counts = world.counts();
        assert!(counts.iter().all(|count| (1..=2).contains(count)), "seed {seed}: {counts:?}");
        let needed = 4 * 10;
        let made = world.moves.len();
        assert!(made <= needed + needed / 4, "seed {seed}: {made} moves for {needed}");
        assert_eq!(world.round_trips(Span::from_secs(60)), 0, "seed {seed}");
    }
}

#[test]
fn unequal_nodes_get_processes_by_their_speed() {
    for seed in 0..10 {
        let mut world = World::of_speeds(seed, &[1.0, 1.0, 0.5, 0.5]);
        world.start_processes(FIRST, 8, ENDLESS_S);
        world.run_for(Span::from_secs(8));
        let counts = world.counts();
        let fast = counts[0] + counts[1];
        assert!((5..=6).contains(&fast), "seed {seed}: {counts:?}");
        assert!(counts.iter().all(|&count| count >= 1), "seed {seed}: {counts:?}");
    }
}

#[test]
fn a_node_twice_as_fast_gets_twice_as_many() {
    let mut world = World::of_speeds(5, &[1.0, 2.0]);
    world.start_processes(FIRST, 9, ENDLESS_S);
    world.run_for(Span::from_secs(15));
    assert_eq!(world.counts(), [3, 6]);
}

#[test]
fn a_node_with_more_cores_gets_more() {
    let mut world = World::new(3);
    world.add_node(1, 1.0);
    world.add_node(3, 1.0);
    world.start_processes(FIRST, 8, ENDLESS_S);
    world.run_for(Span::from_secs(15));
    assert_eq!(world.counts(), [2, 6]);
}

#[test]
fn a_lone_process_moves_to_a_faster_idle_node_and_stays_there() {
    let mut world = World::of_speeds(4, &[1.0, 1.0, 2.0]);
    world.start_processes(FIRST, 1, ENDLESS_S);
    world.run_for(Span::from_secs(600));
    assert_eq!(world.counts(), [0, 0, 1]);
    assert_eq!(world.moves.len(), 1);
}

#[test]
fn an_idle_node_fetches_what_runs_alone_on_a_slower_one() {
    for seed in 0..20 {
        let mut world = World::of_speeds(seed, &[1.0, 1.0, 0.5]);
        world.start_processes(FIRST, 1, 4.0);
        world.start_processes(NodeId(2), 1, ENDLESS_S);
        world.start_processes(NodeId(3), 1, ENDLESS_S);
        // The first ends after four seconds.
        world.run_for(Span::from_millis(4_400));
        assert_eq!(world.counts(), [1, 1, 0], "seed {seed}: {:?}", world.moves);
    }
}

#[test]
fn who_has_just_come_moves_on_to_an_idle_core_before_it_would_for_a_larger_share() {
    for seed in 0..20 {
        let mut world = World::of_speeds(seed, &[1.0, 1.0]);
        world.freeze_estimate = Span::from_millis(10);
        let stays = world.start_process(FIRST, ENDLESS_S);
        let (process, placement) = (stays, Placement::Pinned);
        world.tell(FIRST, Input::ProcessPlaced { process, placement });
        let comes = world.start_process(NodeId(2), ENDLESS_S);
        world.run_for(Span::from_secs(5));
        world.put(comes, FIRST, Arrival::Balanced { from: NodeId(2) });
        world.run_for(Span::from_millis(240));
        assert_eq!(world.counts(), [2, 0], "seed {seed}: it has just come");
        world.run_for(Span::from_millis(460));
        assert_eq!(world.counts(), [1, 1], "seed {seed}: {:?}", world.moves);
    }
}

#[test]
fn a_balanced_cluster_stays_still_for_an_hour() {
    let mut world = World::of_speeds(11, &[1.0, 1.0, 0.5, 0.5]);
    world.noise = 0.2;
    world.start_processes(FIRST, 8, ENDLESS_S);
    world.run_for(Span::from_secs(30));
    let settled = world.moves.len();
    world.run_for(Span::from_secs(3_600));
    assert_eq!(world.moves.len(), settled, "{:?}", &world.moves[settled..]);
    assert_eq!(world.round_trips(Span::from_secs(60)), 0);
}

#[test]
fn an_idle_cluster_stays_still() {
    let mut world = World::of_speeds(12, &[1.0; 4]);
    world.noise = 0.3;
    for node in 1..=4 {
        world.start_process(NodeId(node), ENDLESS_S);
    }
    world.run_for(Span::from_secs(600));
    assert_eq!(world.moves, []);
}

#[test]
fn load_that_cannot_move_is_respected() {
    let mut world = World::of_speeds(6, &[1.0; 3]);
    world.machine(NodeId(2)).background = 3.0;
    world.run_for(Span::from_secs(2));
    world.start_processes(FIRST, 6, ENDLESS_S);
    world.run_for(Span::from_secs(15));
    // Three of its own and one more make the second node no emptier than the others.
    assert_eq!(world.counts()[1], 0, "{:?}", world.counts());
    assert_eq!(world.counts(), [3, 0, 3]);
}

#[test]
fn work_goes_on_at_once_where_a_process_has_ended() {
    let mut world = World::of_speeds(9, &[1.0; 4]);
    let processes = world.start_processes(FIRST, 8, ENDLESS_S);
    world.run_for(Span::from_secs(10));
    assert_eq!(world.counts(), [2, 2, 2, 2]);
    let on_last = |world: &World| -> Vec<_> {
        processes.iter().copied().filter(|p| world.processes[p].node == NodeId(4)).collect()
    };
    for process in on_last(&world) {
        world.processes.get_mut(&process).expect("it runs").work_s = 0.0;
    }
    // Both end now; an idle node asks at once, so only messages and the move take time.
    world.run_for(Span::from_millis(150));
    assert_eq!(world.counts()[3], 1, "{:?}", world.counts());
}

#[test]
fn an_empty_node_that_joins_is_used_but_not_flooded() {
    let mut world = World::of_speeds(21, &[1.0; 16]);
    for node in 1..=16 {
        world.start_processes(NodeId(node), 4, ENDLESS_S);
    }
    world.run_for(Span::from_secs(10));
    assert_eq!(world.moves, []);
    let newcomer = world.add_node(1, 1.0);
    let mut peak = 0;
    for _ in 0..300 {
        world.run_for(Span::from_millis(100));
        peak = peak.max(*world.counts().last().expect("it joined"));
    }
    assert_eq!(world.counts()[newcomer.0 as usize - 1], 3, "a fair share of 64 on 17");
    assert!(peak <= 4, "{peak} processes at once");
}

/// Two processes have just left node 1, where three others ran for a while; `load_left` is what
/// remains of those.
fn a_crowd_has_gone(seed: u64, load_left: f64) -> World {
    let mut world = World::of_speeds(seed, &[1.0; 2]);
    let other = NodeId(2);
    let native = world.start_process(other, ENDLESS_S);
    world.tell(other, Input::ProcessPlaced { process: native, placement: Placement::Pinned });
    world.machine(FIRST).background = 3.0;
    world.start_processes(FIRST, 3, ENDLESS_S);
    world.run_for(Span::from_secs(10));
    assert_eq!(world.counts(), [1, 3], "two left the crowd");
    world.machine(FIRST).background = load_left;
    world
}

#[test]
fn a_doubtful_larger_share_is_no_reason_to_go_back_at_once() {
    let mut world = a_crowd_has_gone(22, 0.4);
    let left_at = world.moves.last().expect("two moved").at;
    world.run_for(Span::from_secs(15));
    assert_eq!(world.counts(), [1, 3], "not within thirty seconds");
    world.run_for(Span::from_secs(40));
    assert_eq!(world.counts(), [2, 2], "but in the end");
    assert!(world.moves.last().expect("one more").at.since(left_at) >= Span::from_secs(29));
}

#[test]
fn one_process_too_many_goes_back_before_that() {
    let mut world = a_crowd_has_gone(22, 0.0);
    world.run_for(Span::from_secs(15));
    assert_eq!(world.counts(), [2, 2]);
}

#[test]
fn very_long_moves_do_not_hold_up_the_others_for_ever() {
    let mut world = World::of_speeds(23, &[1.0; 7]);
    world.move_time = Span::from_secs(100_000);
    let processes = world.start_processes(FIRST, 7, ENDLESS_S);
    world.run_for(Span::from_secs(300));
    let moving = |world: &World| {
        processes.iter().filter(|process| world.processes[process].moving_to.is_some()).count()
    };
    assert_eq!(moving(&world), 4, "as many as may be under way");
    world.run_for(Span::from_secs(400));
    assert_eq!(moving(&world), 6, "one remains, alone");
}

#[test]
fn a_failed_way_excludes_the_target_and_not_the_process() {
    let mut world = World::of_speeds(24, &[1.0; 2]);
    let processes = world.start_processes(FIRST, 2, ENDLESS_S);
    for process in &processes {
        world.processes.get_mut(process).expect("it runs").outcome = MoveOutcome::Failed;
    }
    world.run_for(Span::from_secs(30));
    let failures: Vec<_> = world
        .decisions
        .iter()
        .filter(|(_, _, verdict, _)| *verdict == NOT_MOVED)
        .map(|(at, ..)| *at)
        .collect();
    assert!((2..=8).contains(&failures.len()), "{} failures", failures.len());
    for process in &processes {
        world.processes.get_mut(process).expect("it runs").outcome = MoveOutcome::Moved;
    }
    world.run_for(Span::from_secs(30));
    assert_eq!(world.counts(), [1, 1], "the way is open again");
    // A later failure counts from the start.
    let started = world.now;
    world.start_processes(FIRST, 2, ENDLESS_S);
    for process in world.processes.values_mut() {
        process.outcome = MoveOutcome::Failed;
    }
    world.run_for(Span::from_secs(10));
    let failures: BTreeSet<Time> = world
        .decisions
        .iter()
        .filter(|(at, _, verdict, _)| *at > started && *verdict == NOT_MOVED)
        .map(|(at, ..)| *at)
        .collect();
    assert!(failures.len() >= 2, "{failures:?}");
}

#[test]
fn a_large_idle_node_is_filled_as_fast_as_processes_can_move() {
    let mut world = World::new(25);
    world.add_node(1, 1.0);
    world.add_node(24, 1.0);
    world.run_for(Span::from_secs(3));
    world.move_time = Span::from_millis(10);
    world.freeze_estimate = world.move_time;
    world.start_processes(FIRST, 25, ENDLESS_S);
    world.run_for(Span::from_secs(10));
    assert_eq!(world.counts(), [1, 24]);
    let took = world.moves[23].at.since(world.moves[0].at);
    assert!(took < Span::from_millis(500), "{took}");
}

#[test]
fn what_a_user_moved_is_left_in_peace_for_a_while() {
    let mut world = World::of_speeds(26, &[1.0; 2]);
    let other = NodeId(2);
    let native = world.start_process(other, ENDLESS_S);
    world.tell(other, Input::ProcessPlaced { process: native, placement: Placement::Pinned });
    let process = world.start_process(FIRST, ENDLESS_S);
    world.run_for(Span::from_secs(3));
    world.put(process, other, Arrival::Ordered { from: FIRST });
    world.run_for(Span::from_secs(29));
    assert_eq!(world.counts(), [0, 2]);
    world.run_for(Span::from_secs(5));
    assert_eq!(world.counts(), [1, 1]);
}

#[test]
fn a_process_that_keeps_coming_home_is_sent_away_ever_less_often() {
    let mut world = World::of_speeds(27, &[1.0; 2]);
    let processes = world.start_processes(FIRST, 2, ENDLESS_S);
    for _ in 0..1_200 {
        world.run_for(Span::from_millis(100));
        for process in &processes {
            if world.processes[process].node == NodeId(2) {
                world.put(*process, FIRST, Arrival::CameHome { from: NodeId(2) });
            }
        }
    }
    // 120 s: rests of 2, 4, 8, 16, 32 and 64 s for each.
    let sent = world.moves.len();
    assert!((6..=14).contains(&sent), "sent away {sent} times");
}

#[test]
fn a_process_that_keeps_beginning_other_programs_is_sent_away_as_often_as_ever() {
    let mut world = World::of_speeds(27, &[1.0; 2]);
    let processes = world.start_processes(FIRST, 2, ENDLESS_S);
    for _ in 0..1_200 {
        world.run_for(Span::from_millis(100));
        for process in &processes {
            if world.processes[process].node == NodeId(2) {
                world.put(*process, FIRST, Arrival::Began { from: NodeId(2) });
            }
        }
    }
    let sent = world.moves.len();
    assert!(sent > 20, "sent away {sent} times");
}

#[test]
fn thirty_percent_of_loss_still_balances() {
    for seed in 0..20 {
        let mut world = World::of_speeds(seed, &[1.0; 4]);
        world.loss_permille = 300;
        world.start_processes(FIRST, 8, ENDLESS_S);
        world.run_for(Span::from_secs(15));
        assert_eq!(world.counts(), [2, 2, 2, 2], "seed {seed}");
        assert_eq!(world.round_trips(Span::from_secs(60)), 0, "seed {seed}");
    }
}

#[test]
fn a_process_that_cannot_be_moved_is_left_alone_ever_longer() {
    let mut world = World::of_speeds(2, &[1.0; 2]);
    let stubborn = world.start_processes(FIRST, 2, ENDLESS_S);
    for process in &stubborn {
        world.processes.get_mut(process).expect("it runs").outcome = MoveOutcome::Stayed;
    }
    world.run_for(Span::from_secs(120));
    let tried = |verdict: Verdict| matches!(verdict, Verdict::Move { .. });
    let tries = world.decisions.iter().filter(|(_, _, verdict, _)| tried(*verdict)).count();
    // Rests of 2, 4, 8, 16, 32 and 64 s: six tries each, not sixty.
    assert!((4..=14).contains(&tries), "{tries} tries");
    assert_eq!(world.counts(), [2, 0]);
}

#[test]
fn a_target_without_memory_refuses_and_is_not_asked_again_at_once() {
    let mut world = World::of_speeds(8, &[1.0; 2]);
    let processes = world.start_processes(FIRST, 2, ENDLESS_S);
    for process in &processes {
        world.processes.get_mut(process).expect("it runs").rss_bytes = 900 << 20;
    }
    world.machine(FIRST).memory_bytes = 4 << 30;
    world.machine(NodeId(2)).memory_bytes = 512 << 20;
    world.run_for(Span::from_secs(60));
    assert_eq!(world.moves, []);
    let refusals: Vec<_> = world
        .decisions
        .iter()
        .filter(|(_, _, verdict, _)| *verdict == Verdict::Refused { by: NodeId(2) })
        .collect();
    assert!((3..=10).contains(&refusals.len()), "{} refusals", refusals.len());
    assert!(refusals[0].3.contains("memory"), "{}", refusals[0].3);
    for pair in refusals.windows(2) {
        assert!(pair[1].0.since(pair[0].0) >= Span::from_secs(2), "asked again at once");
    }
}

#[test]
fn a_process_that_its_user_placed_is_not_moved() {
    let mut world = World::of_speeds(13, &[1.0; 2]);
    let processes = world.start_processes(FIRST, 4, ENDLESS_S);
    let placement = Placement::Pinned;
    world.tell(FIRST, Input::ProcessPlaced { process: processes[0], placement });
    world.tell(FIRST, Input::ProcessPlaced { process: processes[1], placement });
    world.run_for(Span::from_secs(10));
    assert_eq!(world.counts(), [2, 2]);
    let moved: BTreeSet<_> = world.moves.iter().map(|m| m.process).collect();
    assert!(!moved.contains(&processes[0]) && !moved.contains(&processes[1]));
}

#[test]
fn a_process_that_talks_to_home_all_the_time_comes_home() {
    let mut world = World::of_speeds(14, &[1.0; 2]);
    let processes = world.start_processes(FIRST, 2, ENDLESS_S);
    for process in &processes {
        // Its calls make its work take twice as long when away.
        world.processes.get_mut(process).expect("it runs").calls_per_cpu_s = 10_000.0;
    }
    world.run_for(Span::from_secs(10));
    let away: Vec<_> =
        processes.iter().copied().filter(|p| world.processes[p].node != FIRST).collect();
    assert_eq!(away.len(), 1, "one had to go to the idle core");
    let left = processes.iter().copied().find(|p| !away.contains(p)).expect("one is home");
    world.processes.get_mut(&left).expect("it runs").work_s = 0.0;
    world.run_for(Span::from_secs(5));
    assert_eq!(world.counts(), [1, 0], "home has room again");
    world.run_for(Span::from_secs(120));
    assert_eq!(world.counts(), [1, 0], "and there it stays");
}

#[test]
fn work_that_ends_is_spread_in_nearly_the_best_time() {
    let mut world = World::of_speeds(15, &[1.0; 4]);
    let started = world.now;
    let processes = world.start_processes(FIRST, 8, 30.0);
    world.run_for(Span::from_secs(120));
    assert_eq!(world.finished_at.len(), processes.len());
    let last = world.finished_at.values().max().expect("they ended");
    // Ideal: two on each node, 60 s.
    assert!(last.since(started) <= Span::from_secs(66), "{}", last.since(started));
}

/// The demo's programs and speeds: the work divides evenly by speeds, but not by processes.
#[test]
fn short_work_on_unequal_nodes_takes_at_most_a_tenth_more_than_if_it_could_be_divided() {
    for seed in 0..20 {
        let mut world = World::of_speeds(seed, &[0.6, 0.6, 0.3, 0.3]);
        (world.move_time, world.freeze_estimate) = (Span::from_millis(60), Span::from_millis(40));
        let started = world.now;
        let processes = world.start_processes(FIRST, 8, 1.5);
        world.run_for(Span::from_secs(20));
        assert_eq!(world.finished_at.len(), processes.len());
        let took = world.finished_at.values().max().expect("they ended").since(started);
        let ideal_s = 8.0 * 1.5 / 1.8;
        assert!(took.as_secs_f64() <= 1.10 * ideal_s, "seed {seed}: {took}, not {ideal_s:.2} s");
    }
}

#[test]
fn the_same_seed_gives_the_same_outputs_and_another_seed_others() {
    let run = |seed| {
        let mut world = World::of_speeds(seed, &[1.0, 1.0, 0.5, 2.0]);
        world.loss_permille = 100;
        world.noise = 0.2;
        world.start_processes(FIRST, 12, 20.0);
        world.run_for(Span::from_secs(80));
        world.trace
    };
    let first = run(77);
    assert!(first.len() > 1_000, "{}", first.len());
    assert_eq!(first, run(77));
    assert_ne!(first, run(78));
}

#[test]
fn every_move_says_why_with_its_numbers() {
    let mut world = World::of_speeds(16, &[1.0; 2]);
    world.start_processes(FIRST, 2, ENDLESS_S);
    world.run_for(Span::from_secs(5));
    let (_, _, _, why) = world
        .decisions
        .iter()
        .find(|(_, _, verdict, _)| matches!(verdict, Verdict::Move { .. }))
        .expect("one moved");
    assert!(why.starts_with("an idle core there: rate 0.50 here (2.0 runnable"), "{why}");
}

#[test]
fn a_burst_of_questions_for_the_best_node_is_spread() {
    let mut world = World::of_speeds(17, &[1.0; 4]);
    let now = world.now;
    let brain = &mut world.machine(FIRST).brain;
    let chosen: BTreeSet<NodeId> = (0..4).filter_map(|_| brain.best_node(now, None, &[])).collect();
    assert_eq!(chosen.len(), 4, "{chosen:?}");
    let excluding: Vec<NodeId> = (1..=4).map(NodeId).collect();
    assert_eq!(brain.best_node(now, None, &excluding), None);
}
