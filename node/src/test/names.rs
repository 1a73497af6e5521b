//! What nodes are called, as others are told: by honest ones, and by one that tells something else.

use super::harness::{NODE_1, NODE_2, TestNode, config, eventually};
use super::links::{KEY, Map};
use crate::keys::ClusterSecret;
use crate::keys::secrets::Secrets;
use crate::net::call::{Call, call_member};
use crate::net::link::{OpenLink, write_frame};
use crate::net::{Credentials, wall_clock_ns};
use wire::control::{Reply, Request, Status};
use wire::ids::NodeId;
use wire::move_limits::MoveLimits;
use wire::peer::{PeerMessage, encode};

async fn named(name: &str) -> TestNode {
    let (mut config, dir) = config();
    config.name = Some(name.parse().unwrap());
    TestNode::start_with(config, dir).await
}

fn name(asked: &TestNode, of: NodeId) -> Option<String> {
    asked.nodes().into_iter().find(|node| node.id == of)?.name
}

fn await_name(asked: &TestNode, of: NodeId, wanted: &str) {
    eventually(&format!("node {of} is called {wanted}"), || {
        (name(asked, of).as_deref() == Some(wanted)).then_some(())
    });
}

fn status(node: &TestNode) -> Status {
    match node.ask(&Request::Status).unwrap() {
        Reply::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_tell_each_other_their_names_also_when_one_leaves_and_joins_anew() {
    let (one, two) = (named("alpha").await, named("beta.example.org").await);
    two.join(&one);
    for node in [&one, &two] {
        await_name(node, NODE_1, "alpha");
        await_name(node, NODE_2, "beta.example.org");
    }
    assert_eq!(status(&two).name.as_deref(), Some("beta.example.org"));
    assert_eq!(two.ask(&Request::Leave).unwrap(), Reply::Done);
    // It is node 1 of a cluster of its own, and knows nobody else's name.
    await_name(&two, NODE_1, "beta.example.org");
    eventually("it is forgotten", || (one.nodes().len() == 1).then_some(()));
    two.join(&one);
    let number = status(&two).node;
    await_name(&one, number, "beta.example.org");
    await_name(&two, NODE_1, "alpha");
}

/// Says something as the member that the test plays.
async fn say(link: &mut OpenLink, message: PeerMessage) {
    let sealed = link.sealer.seal(&encode(&message).unwrap()).unwrap();
    write_frame(&mut link.stream, &sealed).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_tells_what_is_no_name_keeps_its_link_and_the_name_it_had() {
    let map = Map::new("1 127.0.0.1 2\n");
    let (config, dir) = map.config(1, KEY);
    let node = TestNode::start_with(config, dir).await;
    let secret = ClusterSecret::of_key_file(KEY);
    let call = Call {
        address: node.node.address,
        key: secret.node_of_map(NODE_1).public(),
        node: Some(NODE_2),
        listen: map.address(2),
        stamp: wall_clock_ns(),
        secret: 0,
    };
    let own = secret.node_of_map(NODE_2);
    let credentials = Credentials::of(own, Secrets::first(secret.clone()));
    let mut link = call_member(call, credentials).await.unwrap();

    let long = "x".repeat(60_000);
    let nonsense = ["", "7", "2-3", "home", "a b", "a\u{1b}[2J", "\u{202e}a", &long];
    for (told, bandwidth) in [(None, "100Mbit"), (Some("delta"), "200Mbit")] {
        if let Some(told) = told {
            say(&mut link, PeerMessage::Name(told.to_owned())).await;
        }
        for name in nonsense {
            say(&mut link, PeerMessage::Name(name.to_owned())).await;
        }
        // Heard after all that over the same link.
        let last = MoveLimits { bandwidth: bandwidth.parse().ok(), ..MoveLimits::default() };
        say(&mut link, PeerMessage::MoveLimits(last)).await;
        let heard = || node.nodes().into_iter().find(|node| node.move_limits == last);
        let listed = eventually("the last word is heard", heard);
        assert_eq!((listed.id, listed.name.as_deref()), (NODE_2, told));
    }
}
