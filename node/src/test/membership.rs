//! Who belongs to the cluster, as it changes: nodes that leave, are forgotten, come back with an
//! old secret or an odd clock, and numbers of those that join.

use super::harness::{NODE_1, NODE_2, Program, TestNode, eventually, placed};
use crate::net::wall_clock_ns;
use std::fs;
use wire::control::{Happening, Placement, Reply, Request, Status};
use wire::ids::NodeId;

/// What a node that is down was started with.
type Stopped = (crate::Config, std::sync::Arc<tempfile::TempDir>);

const NODE_3: NodeId = NodeId(3);
const DAY_NS: u64 = 86_400_000_000_000;

fn members(node: &TestNode) -> Vec<NodeId> {
    node.nodes().into_iter().map(|node| node.id).collect()
}

fn status(node: &TestNode) -> Status {
    match node.ask(&Request::Status).unwrap() {
        Reply::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

fn is_alive(asked: &TestNode, node: NodeId) -> bool {
    asked.nodes().iter().any(|it| it.id == node && it.status == "alive" && it.cores > 0.0)
}

fn await_alive(asked: &TestNode, node: NodeId) {
    eventually(&format!("node {node} is alive"), || is_alive(asked, node).then_some(()));
}

/// Ends the daemon; what it leaves behind.
async fn down(node: TestNode) -> Stopped {
    let (mut config, dir) = (node.config.clone(), node.dir.clone());
    // Others call it where it was.
    config.listen = node.node.address;
    assert_eq!(node.ask(&Request::Down).unwrap(), Reply::Done);
    node.node.wait().await;
    (config, dir)
}

fn secret(config: &crate::Config) -> serde_json::Value {
    let bytes = fs::read(config.state_dir.join("cluster.json")).unwrap();
    serde_json::from_slice::<serde_json::Value>(&bytes).unwrap()["secret"].clone()
}

fn complaint(node: &TestNode, request: &Request) -> String {
    node.ask(request).unwrap_err().to_string()
}

fn forget(node: NodeId) -> Request {
    Request::Forget { node, force: false }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_leaves_is_alone_and_all_others_forget_it_though_one_was_down() {
    let (one, two) = TestNode::start_pair().await;
    let three = TestNode::start().await;
    three.join(&one);
    await_alive(&two, NODE_3);
    let (config, dir) = down(three).await;
    let before = secret(&two.config);

    assert_eq!(two.ask(&Request::Leave).unwrap(), Reply::Done);
    let alone = status(&two);
    assert_eq!((alone.node, alone.nodes, members(&two)), (NODE_1, 1, vec![NODE_1]));
    assert_ne!(secret(&two.config), before, "it keeps nothing of the cluster");
    eventually("node 1 forgets it", || (members(&one) == [NODE_1, NODE_3]).then_some(()));
    let three = TestNode::start_with(config, dir).await;
    eventually("node 3 is told", || (members(&three) == [NODE_1, NODE_3]).then_some(()));
    three.wait_for_event(|what| matches!(what, Happening::NodeForgotten { node: NODE_2, .. }));

    // It may join again, as another node.
    two.join(&one);
    assert_eq!(status(&two).node, NodeId(4), "no number is given twice");
    eventually("all know it", || {
        let all = [NODE_1, NODE_3, NodeId(4)];
        [&one, &two, &three].iter().all(|node| members(node) == all).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_of_a_node_that_leaves_stay_managed_under_its_new_number() {
    let (one, two) = TestNode::start_pair().await;
    let program = Program::start("read line");
    let options = placed(Placement::Balanced);
    let uid = nix::unistd::getuid().as_raw();
    let manage = Request::Manage(options);
    assert!(matches!(two.ask_as(uid, Some(program.pid()), manage).await, Reply::Managed { .. }));
    assert_eq!(two.process(program.pid()).home, NODE_2);
    assert_eq!(two.ask(&Request::Leave).unwrap(), Reply::Done);
    let process = two.process(program.pid());
    assert_eq!((process.home, process.node), (NODE_1, NODE_1));
    eventually("node 1 forgets it", || (members(&one) == [NODE_1]).then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_node_does_not_come_back_unless_it_joins_anew() {
    let (one, two) = TestNode::start_pair().await;
    await_alive(&one, NODE_2);
    let text = complaint(&one, &forget(NODE_2));
    assert!(text.contains("it is there and answers"), "{text}");
    assert!(complaint(&one, &forget(NODE_1)).contains("`osmos leave`"));
    assert!(complaint(&one, &forget(NodeId(9))).contains("there is no node 9"));

    let (config, dir) = down(two).await;
    eventually("the link is lost", || one.ask(&forget(NODE_2)).ok());
    assert_eq!(members(&one), [NODE_1]);
    let (config_1, dir_1) = down(one).await;
    let one = TestNode::start_with(config_1, dir_1).await;
    let two = TestNode::start_with(config, dir).await;
    let rejected = one.wait_for_event(|what| matches!(what, Happening::Rejected { .. }));
    let Happening::Rejected { reason, .. } = rejected else { panic!() };
    assert!(reason.contains("it was forgotten"), "{reason}");
    assert_eq!(members(&one), [NODE_1], "also by a daemon that was started since");

    assert_eq!(two.ask(&Request::Leave).unwrap(), Reply::Done, "though nobody hears it");
    two.join(&one);
    assert_eq!(status(&two).node, NODE_3);
    await_alive(&one, NODE_3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_there_is_forgotten_by_force_and_cut_off_everywhere() {
    let (one, two) = TestNode::start_pair().await;
    let three = TestNode::start().await;
    three.join(&one);
    await_alive(&two, NODE_3);
    let force = Request::Forget { node: NODE_3, force: true };
    assert_eq!(two.ask(&force).unwrap(), Reply::Done);
    for node in [&one, &two] {
        eventually("it is forgotten", || (members(node) == [NODE_1, NODE_2]).then_some(()));
    }
    two.wait_for_event(|what| matches!(what, Happening::Rejected { .. }));
    assert_eq!(members(&two), [NODE_1, NODE_2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_secret_reaches_all_and_those_that_were_down_but_no_forgotten_one() {
    let (one, two) = TestNode::start_pair().await;
    let (three, four) = (TestNode::start().await, TestNode::start().await);
    three.join(&one);
    four.join(&one);
    await_alive(&two, NodeId(4));
    let (config_3, dir_3) = down(three).await;
    let (config_4, dir_4) = down(four).await;
    let old = secret(&one.config);
    eventually("the link is lost", || one.ask(&forget(NodeId(4))).ok());
    assert_eq!(two.ask(&Request::RenewSecret).unwrap(), Reply::Done);
    let new = secret(&two.config);
    assert_ne!(new, old);
    eventually("node 1 has it", || (secret(&one.config) == new).then_some(()));
    one.wait_for_event(|what| matches!(what, Happening::SecretRenewed { generation: 1 }));

    let four = TestNode::start_with(config_4, dir_4).await;
    let three = TestNode::start_with(config_3, dir_3).await;
    eventually("node 3 has it", || (secret(&three.config) == new).then_some(()));
    await_alive(&one, NODE_3);
    await_alive(&three, NODE_2);
    // It has called, with the old secret, and was turned away.
    one.wait_for_event(
        |what| matches!(what, Happening::Rejected { reason, .. } if reason.contains("forgotten")),
    );
    assert_eq!(secret(&four.config), old);
    let gone = one.nodes().iter().any(|node| node.id == NodeId(4));
    assert!(!gone && !is_alive(&four, NODE_1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_join_at_the_same_time_through_different_nodes_get_different_numbers() {
    let (one, two) = TestNode::start_pair().await;
    let (left, right) = (TestNode::start().await, TestNode::start().await);
    let join =
        |to: &TestNode| Request::Join { address: to.node.address.to_string(), token: to.token() };
    let orders = [(left.client(), join(&one)), (right.client(), join(&two))];
    std::thread::scope(|scope| {
        for (mut client, order) in orders {
            scope.spawn(move || assert_eq!(client.request(&order).unwrap(), Reply::Done));
        }
    });
    let mut numbers = [status(&left).node, status(&right).node];
    numbers.sort();
    assert_eq!(numbers, [NODE_3, NodeId(4)], "small ones, as node 1 gives them");
    for node in [&one, &two, &left, &right] {
        let all = [1, 2, 3, 4].map(NodeId);
        eventually("all know all", || (members(node) == all).then_some(()));
    }
    // Two halves that do not hear each other: each gives numbers of its own.
    let (config_1, dir_1) = down(one).await;
    let fifth = TestNode::start().await;
    eventually("two has lost node 1", || {
        let lost = two.nodes().iter().any(|node| node.id == NODE_1 && node.status == "gone");
        lost.then_some(())
    });
    fifth.join(&two);
    assert_eq!(status(&fifth).node, NodeId(20_000));
    let one = TestNode::start_with(config_1, dir_1).await;
    let sixth = TestNode::start().await;
    sixth.join(&one);
    assert_eq!(status(&sixth).node, NodeId(5), "4 was given, though not here");
}

/// Two that know each other, and are down. On a slow machine node 1 calls before node 2 does, and
/// has heard no call.
async fn pair_of_which_node_2_has_called() -> (Stopped, Stopped) {
    for _ in 0..5 {
        let (one, two) = TestNode::start_pair().await;
        await_alive(&one, NODE_2);
        let (one, two) = (down(one).await, down(two).await);
        if one.0.state_dir.join("calls.json").exists() {
            return (one, two);
        }
    }
    panic!("node 2 did not call first in five attempts");
}

/// As on a node whose clock was a day ahead until it was set right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_set_back_does_not_silence_a_node() {
    for keeps_stamps in [true, false] {
        let ((config_1, dir_1), (config_2, dir_2)) = pair_of_which_node_2_has_called().await;
        // What node 1 has heard of it, and what node 2 remembers.
        let calls = config_1.state_dir.join("calls.json");
        let mut heard: serde_json::Value =
            serde_json::from_slice(&fs::read(&calls).unwrap()).unwrap();
        let ahead = wall_clock_ns() + DAY_NS;
        for call in heard.as_array_mut().unwrap() {
            call[1] = ahead.into();
        }
        fs::write(&calls, heard.to_string()).unwrap();
        let stamp = config_2.state_dir.join("stamp");
        match keeps_stamps {
            true => fs::write(&stamp, (ahead + 1).to_string()).unwrap(),
            false => fs::remove_file(&stamp).unwrap(),
        }
        let one = TestNode::start_with(config_1, dir_1).await;
        let two = TestNode::start_with(config_2, dir_2).await;
        await_alive(&one, NODE_2);
        await_alive(&two, NODE_1);
        let is_replay = |what: &Happening| match what {
            Happening::Rejected { reason, .. } => reason.contains("played again"),
            _ => false,
        };
        let replays = one.events().iter().filter(|event| is_replay(&event.what)).count();
        if keeps_stamps {
            assert_eq!(replays, 0);
        }
        // Who has lost them is told by the first that calls it, for all calls from then on.
        eventually("its stamps are later than all that were heard", || {
            let kept: u64 = fs::read_to_string(&stamp).ok()?.trim().parse().ok()?;
            (kept > ahead).then_some(())
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_survive_a_restart() {
    let (one, two) = TestNode::start_pair().await;
    one.wait_for_event(|what| matches!(what, Happening::NodeJoined { node: NODE_2, .. }));
    let before = one.events();
    let (config, dir) = down(one).await;
    let one = TestNode::start_with(config, dir).await;
    let after = one.events();
    assert!(before.iter().all(|event| after.contains(event)), "{before:?} {after:?}");
    drop(two);
}
