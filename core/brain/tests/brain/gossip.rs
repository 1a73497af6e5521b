//! What brains know of each other, and what they make of silence.

use crate::world::World;
use brain::{
    Brain, Config, DATAGRAM_BYTES_MAX, Identity, Input, Outbox, Output, Span, Status, Time,
};
use wire::ids::NodeId;

const FIRST: NodeId = NodeId(1);
const SECOND: NodeId = NodeId(2);

fn statuses_of(world: &World, about: NodeId) -> Vec<Status> {
    let seen_by_others = world.machines.keys().filter(|node| **node != about);
    seen_by_others
        .map(|of| world.view(*of).iter().find(|view| view.node == about).expect("known").status)
        .collect()
}

#[test]
fn every_node_knows_every_other_within_three_seconds() {
    let world = World::of_speeds(1, &[1.0, 0.5, 2.0, 1.5]);
    for node in world.machines.keys() {
        let views = world.view(*node);
        let speeds: Vec<f64> = views.iter().map(|view| view.speed).collect();
        assert_eq!(speeds, [1.0, 0.5, 2.0, 1.5], "as node {node} sees it");
        assert!(views.iter().all(|view| view.age.expect("known") < Span::from_secs(3)));
    }
}

#[test]
fn ages_stay_young_in_a_cluster_of_sixteen() {
    let mut world = World::of_speeds(2, &[1.0; 16]);
    let (mut sum, mut count) = (0.0, 0.0);
    for _ in 0..100 {
        world.run_for(Span::from_secs(1));
        for view in world.view(FIRST).iter().filter(|view| view.node != FIRST) {
            sum += view.age.expect("known").as_secs_f64();
            count += 1.0;
        }
    }
    // One datagram a second and a window of 8 give 3.3 s; two datagrams give less.
    let mean = sum / count;
    assert!((0.5..3.3).contains(&mean), "mean age {mean:.2} s");
}

#[test]
fn traffic_of_a_node_does_not_grow_with_the_cluster() {
    let per_second = |nodes: usize| {
        let mut world = World::of_speeds(3, &vec![1.0; nodes]);
        for node in 1..=nodes {
            world.start_process(NodeId(node as u32), 1e9);
        }
        world.run_for(Span::from_secs(30));
        let before = world.datagrams[&FIRST];
        world.run_for(Span::from_secs(60));
        (world.datagrams[&FIRST] - before) as f64 / 60.0
    };
    let (small, large) = (per_second(4), per_second(48));
    assert!((1.5..3.5).contains(&small), "{small} datagrams a second among 4");
    assert!(large < small + 2.5, "{large} datagrams a second among 48");
}

#[test]
fn a_silent_node_becomes_suspect_then_gone_and_alive_again_when_it_speaks() {
    let mut world = World::of_speeds(4, &[1.0; 4]);
    world.machine(SECOND).is_cut_off = true;
    world.run_for(Span::from_secs(7));
    assert_eq!(statuses_of(&world, SECOND), [Status::Suspect; 3]);
    world.run_for(Span::from_secs(12));
    assert_eq!(statuses_of(&world, SECOND), [Status::Gone; 3]);
    world.machine(SECOND).is_cut_off = false;
    world.run_for(Span::from_secs(15));
    assert_eq!(statuses_of(&world, SECOND), [Status::Alive; 3]);
    // And it takes the others for alive again as well.
    for node in [1, 3, 4] {
        let seen = world.view(SECOND).into_iter().find(|view| view.node == NodeId(node));
        assert_eq!(seen.expect("known").status, Status::Alive);
    }
}

#[test]
fn nobody_is_doubted_without_cause_for_an_hour_of_loss() {
    let mut world = World::of_speeds(5, &[1.0; 8]);
    world.loss_permille = 100;
    world.run_for(Span::from_secs(3_600));
    let doubts: Vec<_> =
        world.statuses.iter().filter(|(.., status)| *status != Status::Alive).collect();
    assert!(doubts.is_empty(), "{doubts:?}");
}

#[test]
fn a_node_that_was_stopped_itself_takes_nobody_for_lost() {
    let mut world = World::of_speeds(6, &[1.0; 4]);
    let (mut outbox, now) = (Outbox::new(), world.now + Span::from_secs(60));
    world.machine(FIRST).brain.handle(now, Input::TimePassed, &mut outbox);
    let doubts = outbox.drain().filter(|output| matches!(output, Output::MemberStatus { .. }));
    assert_eq!(doubts.count(), 0);
}

#[test]
fn a_node_that_left_is_forgotten_at_once() {
    let mut world = World::of_speeds(7, &[1.0; 3]);
    world.tell(FIRST, Input::MemberLeft { node: SECOND });
    let known: Vec<NodeId> = world.view(FIRST).iter().map(|view| view.node).collect();
    assert_eq!(known, [FIRST, NodeId(3)]);
    assert_eq!(world.statuses.last().map(|s| (s.1, s.2, s.3)), Some((FIRST, SECOND, Status::Gone)));
    // Relayed news of it does not bring it back.
    world.run_for(Span::from_secs(10));
    assert_eq!(world.view(FIRST).len(), 2);
}

#[test]
fn a_partition_is_survived_and_heals_without_a_process_lost_or_doubled() {
    let mut world = World::of_speeds(8, &[1.0; 4]);
    world.start_processes(FIRST, 8, 1e9);
    world.run_for(Span::from_millis(1_500));
    for node in [3, 4] {
        world.machine(NodeId(node)).is_cut_off = true;
    }
    world.run_for(Span::from_secs(60));
    assert_eq!(world.counts().iter().sum::<usize>(), 8);
    for node in [3, 4] {
        world.machine(NodeId(node)).is_cut_off = false;
    }
    world.run_for(Span::from_secs(40));
    assert_eq!(world.counts(), [2, 2, 2, 2]);
}

#[test]
fn a_node_that_started_again_with_an_earlier_number_is_heard_again() {
    let mut world = World::of_speeds(9, &[1.0; 3]);
    let identity = Identity { node: SECOND, incarnation: 0, seed: 99 };
    world.machine(SECOND).brain = Brain::new(identity, Config::default());
    world.machine(SECOND).speed = 4.0;
    world.tell(SECOND, Input::Started);
    for node in [1, 3] {
        world.tell(SECOND, Input::MemberJoined { node: NodeId(node) });
    }
    world.run_for(Span::from_secs(5));
    let speed = world.view(FIRST)[1].speed;
    assert_eq!(speed, 4.0, "the new life is known");
}

#[test]
fn datagrams_of_strangers_and_under_a_false_name_are_ignored() {
    let mut world = World::of_speeds(10, &[1.0; 2]);
    let gossip = {
        let mut outbox = Outbox::new();
        let now = world.now + Span::from_secs(2);
        world.machine(SECOND).brain.handle(now, Input::TimePassed, &mut outbox);
        let sent = outbox.drain().find_map(|output| match output {
            Output::SendDatagram { bytes, .. } => Some(bytes),
            _ => None,
        });
        sent.expect("it gossips")
    };
    assert!(gossip.len() <= DATAGRAM_BYTES_MAX);
    let before = world.machine(FIRST).brain.rejected_datagrams();
    world.tell(FIRST, Input::DatagramReceived { from: NodeId(77), bytes: gossip.clone() });
    world.tell(FIRST, Input::DatagramReceived { from: FIRST, bytes: gossip.clone() });
    world.tell(FIRST, Input::DatagramReceived { from: SECOND, bytes: b"OB\x01".to_vec() });
    assert_eq!(world.machine(FIRST).brain.rejected_datagrams(), before + 3);
    world.tell(FIRST, Input::DatagramReceived { from: SECOND, bytes: gossip });
    assert_eq!(world.machine(FIRST).brain.rejected_datagrams(), before + 3);
}

#[test]
fn a_brain_that_nobody_knows_says_nothing_and_asks_to_be_woken() {
    let identity = Identity { node: FIRST, incarnation: 1, seed: 1 };
    let mut brain = Brain::new(identity, Config::default());
    let mut outbox = Outbox::new();
    let now = Time::from_micros(5_000_000);
    brain.handle(now, Input::Started, &mut outbox);
    let outputs: Vec<Output> = outbox.drain().collect();
    let [Output::WakeAt(at)] = outputs[..] else { panic!("{outputs:?}") };
    let tick = at.since(now);
    assert!(Span::from_millis(900) <= tick && tick <= Span::from_millis(1_100), "{tick}");
}
