//! What can be made wrong with the network between nodes, and that it ends again.

use crate::machine::{self, PROGRAM};
use crate::network::{datagrams, passes, refusal, send, stream};
use lab::{Disturbance, Lab, Spec};
use std::time::Duration;

const SOON: Duration = Duration::from_millis(500);
/// A stream sends again by itself, less and less often.
const LATER: Duration = Duration::from_secs(20);

fn three() -> Lab {
    let mut spec = Spec::new(machine::name().parse().unwrap(), 3).unwrap();
    spec.osmos = PROGRAM.into();
    spec.has_daemons = false;
    Lab::up(&spec).unwrap()
}

#[test]
fn a_cut_parts_nodes_until_it_heals_and_breaks_no_stream() {
    machine::alone("disturbed::a_cut_parts_nodes_until_it_heals_and_breaks_no_stream", || {
        let lab = three();
        let [one, two, three] = [1, 2, 3].map(|number| lab.node(number));
        let (mut over, mut beside) = (stream(&one, &two), stream(&two, &three));
        assert!(passes(&mut over, LATER) && passes(&mut beside, LATER));
        lab.disturb(&Disturbance { cut_after: Some(1), ..Disturbance::default() }).unwrap();
        assert!(!passes(&mut over, SOON));
        assert!(passes(&mut beside, LATER), "the far part is whole");
        assert!(refusal(&one, three.address(), SOON).is_some());
        assert!(refusal(&three, one.address(), SOON).is_some());
        assert_eq!(datagrams(&three, &one), 0);
        lab.disturb(&Disturbance { cut_after: Some(2), ..Disturbance::default() }).unwrap();
        assert!(passes(&mut over, LATER), "the cut is elsewhere now");
        lab.disturb(&Disturbance::default()).unwrap();
        assert_eq!(datagrams(&three, &one), 100);
        send(&one, &three, 1_000_000);
    });
}

#[test]
fn datagrams_are_lost_as_often_as_asked_for_and_streams_lose_nothing() {
    machine::alone(
        "disturbed::datagrams_are_lost_as_often_as_asked_for_and_streams_lose_nothing",
        || {
            let lab = three();
            let (one, two) = (lab.node(1), lab.node(2));
            let lose = |loss_permille| {
                lab.disturb(&Disturbance { loss_permille, cut_after: None }).unwrap();
            };
            assert_eq!(datagrams(&one, &two), 100);
            lose(500);
            // Less likely than one in a hundred million otherwise.
            assert!((22..=78).contains(&datagrams(&one, &two)));
            send(&one, &two, 10_000_000);
            lose(1000);
            assert_eq!(datagrams(&two, &one), 0);
            lose(0);
            assert_eq!(datagrams(&one, &two), 100);
        },
    );
}

#[test]
fn a_node_that_has_crashed_is_no_hindrance() {
    machine::alone("disturbed::a_node_that_has_crashed_is_no_hindrance", || {
        let lab = three();
        lab.node(2).crash().unwrap();
        lab.disturb(&Disturbance { cut_after: Some(1), ..Disturbance::default() }).unwrap();
        assert_eq!(datagrams(&lab.node(1), &lab.node(3)), 0);
        lab.disturb(&Disturbance::default()).unwrap();
        assert_eq!(datagrams(&lab.node(1), &lab.node(3)), 100);
    });
}
