//! How nodes find each other, and what everybody else gets.

use super::harness::{
    HANDSHAKE_TIMEOUT, NODE_1, NODE_2, PATIENCE, TestNode, answer_to_stranger, config, eventually,
};
use crate::config::Config;
use crate::keys::handshake::{Caller, Keys};
use crate::keys::secrets::Secrets;
use crate::keys::token::Token;
use crate::keys::{ClusterSecret, NodeSecret};
use crate::net::call::{Call, call_member};
use crate::net::{Credentials, wall_clock_ns};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::control::{Happening, Reply, Request};
use wire::ids::{NodeId, Ticket};
use wire::peer::{Hello, NodeKey, VERSIONS};
use wire::supervisor::{Preface, Role};

fn alive(node: &TestNode) -> Vec<NodeId> {
    let alive = node.nodes().into_iter().filter(|node| node.status == "alive");
    // Heard of, and not long ago.
    alive.filter(|node| node.cores > 0.0 && node.info_age_s < 5.0).map(|node| node.id).collect()
}

fn is_rejection(what: &Happening) -> bool {
    matches!(what, Happening::Rejected { .. })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_joins_by_token_and_gossip_reaches_both() {
    let (one, two) = TestNode::start_pair().await;
    for node in [&one, &two] {
        eventually("both nodes hear of each other", || {
            (alive(node) == [NODE_1, NODE_2]).then_some(())
        });
    }
    let joined = one.wait_for_event(|what| matches!(what, Happening::NodeJoined { .. }));
    let address = two.node.address.to_string();
    assert_eq!(joined, Happening::NodeJoined { node: NODE_2, address });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_node_that_joins_through_the_second_is_known_to_the_first() {
    let (one, two) = TestNode::start_pair().await;
    let three = TestNode::start().await;
    three.join(&two);
    for node in [&one, &two, &three] {
        eventually("all three are alive everywhere", || {
            (alive(node) == [NODE_1, NODE_2, NodeId(3)]).then_some(())
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_admits_one_node_and_the_second_gets_silence() {
    let (one, two, three) =
        (TestNode::start().await, TestNode::start().await, TestNode::start().await);
    let (address, token) = (one.node.address.to_string(), one.token());
    let join = Request::Join { address, token };
    assert_eq!(two.ask(&join).unwrap(), Reply::Done);
    let error = three.ask(&join).unwrap_err().to_string();
    assert!(error.contains("gives no answer: the token was used"), "{error}");
    let Happening::Rejected { reason, .. } = one.wait_for_event(is_rejection) else { panic!() };
    assert!(reason.contains("no open token"), "{reason}");
    assert_eq!(one.nodes().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_restarts_is_the_same_node_again() {
    let (one, two) = TestNode::start_pair().await;
    let (mut config, dir) = (two.config.clone(), two.dir.clone());
    assert_eq!(two.ask(&Request::Down).unwrap(), Reply::Done);
    let began = Instant::now();
    eventually("it has said that it leaves", || (one.nodes()[1].status == "gone").then_some(()));
    assert!(began.elapsed().as_secs() < 3, "silence would have taken longer");
    two.node.wait().await;
    config.listen = "127.0.0.1:0".parse().unwrap();
    let two = TestNode::start_with(config, dir).await;
    let Reply::Status(status) = two.ask(&Request::Status).unwrap() else { panic!() };
    assert_eq!((status.node, status.nodes), (NODE_2, 2));
    eventually("node 1 knows the new address of node 2", || {
        let nodes = one.nodes();
        nodes.iter().find(|node| node.address == two.node.address.to_string()).map(|_| ())
    });
}

/// A first message, with its clear head, as a caller would send it.
fn first_words(own: &NodeSecret, psk: &[u8; 32], ticket: Ticket, to: NodeKey) -> Vec<u8> {
    let preface = Preface { role: Role::Peer, ticket };
    let listen = "127.0.0.1:1".parse().unwrap();
    let (offers, sent_ns) = (VERSIONS.to_vec(), wall_clock_ns());
    let hello = Hello { offers, sent_ns, node: Some(NODE_2), listen };
    let keys = Keys { own, psk, preface };
    let (_, first) = Caller::call(&keys, to, &hello).unwrap();
    let length = (first.len() as u16).to_be_bytes();
    [&preface.encode()[..], &length, &first].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_has_no_key_gets_not_one_byte_and_home_hears_of_it() {
    let node = TestNode::start().await;
    let token: Token = node.token().parse().unwrap();
    let stranger = NodeSecret::generate().unwrap();
    let forged = Token { secret: [0; 16], ..token.clone() };
    let cases = [
        ("cluster key", first_words(&stranger, &[7; 32], Ticket([0; 16]), token.key)),
        ("token unknown", first_words(&stranger, &forged.psk(), forged.ticket(), token.key)),
        ("token secret", first_words(&stranger, &forged.psk(), token.ticket(), token.key)),
        ("another protocol", b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n".to_vec()),
        (
            "too long",
            [&first_words(&stranger, &[7; 32], Ticket([0; 16]), token.key)[..24], &[0xff; 4096]]
                .concat(),
        ),
        ("cut short", first_words(&stranger, &[7; 32], Ticket([0; 16]), token.key)[..60].to_vec()),
        ("no berth", Preface { role: Role::Deputy, ticket: Ticket([9; 16]) }.encode().to_vec()),
        ("nothing", Vec::new()),
    ];
    for (name, words) in cases {
        let began = Instant::now();
        assert_eq!(answer_to_stranger(node.node.address, &words), b"", "{name}");
        // All of them wait as long: when it closes tells nothing either.
        assert!(began.elapsed() >= HANDSHAKE_TIMEOUT * 9 / 10, "{name} {:?}", began.elapsed());
    }
    let Happening::Rejected { address, reason } = node.wait_for_event(is_rejection) else {
        panic!();
    };
    assert!(address.starts_with("127.0.0.1:"));
    assert_eq!(reason, "wrong or missing key");
}

/// A cluster of the nodes 127.0.0.1, .2, .3 by a map and a shared key.
pub struct Map {
    port: u16,
    dir: Arc<tempfile::TempDir>,
}

pub const KEY: &[u8] = b"the same thirty-two bytes or more";

impl Map {
    pub fn new(lines: &str) -> Map {
        let (_, dir) = config();
        fs::write(dir.path().join("mosix.map"), lines).unwrap();
        // A port that is free on one loopback address is, here, free on all.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Map { port, dir }
    }

    pub fn address(&self, node: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, node], self.port))
    }

    pub fn config(&self, node: u8, key: &[u8]) -> (Config, Arc<tempfile::TempDir>) {
        let (mut config, dir) = config();
        config.map = Some(self.dir.path().join("mosix.map"));
        config.listen = self.address(node);
        fs::create_dir(&config.state_dir).unwrap();
        write_key(&config.cluster_key_path(), key);
        (config, dir)
    }
}

fn write_key(path: &Path, key: &[u8]) {
    fs::write(path, key).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_and_a_shared_key_make_a_cluster_without_joining() {
    let map = Map::new("# three nodes\n1 127.0.0.1 3\n");
    let mut nodes = Vec::new();
    for node in 1..=3 {
        let (config, dir) = map.config(node, KEY);
        nodes.push(TestNode::start_with(config, dir).await);
    }
    for node in &nodes {
        eventually("all three are alive everywhere", || {
            (alive(node) == [NODE_1, NODE_2, NodeId(3)]).then_some(())
        });
    }
    let reply = nodes[0].ask(&Request::Join { address: "x".into(), token: nodes[0].token() });
    assert!(reply.unwrap_err().to_string().contains("the one in its map file"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_the_map_but_another_key_stays_outside() {
    let map = Map::new("1 127.0.0.1 2\n");
    let (config, dir) = map.config(1, KEY);
    let inside = TestNode::start_with(config, dir).await;
    let (config, dir) = map.config(2, b"another key of thirty-two bytes.");
    let outside = TestNode::start_with(config, dir).await;
    let Happening::Rejected { reason, .. } = inside.wait_for_event(is_rejection) else { panic!() };
    assert_eq!(reason, "wrong or missing key");
    let Reply::Status(_) = outside.ask(&Request::Status).unwrap() else { panic!() };
    eventually("its gossip is dropped and counted", || {
        let Reply::Status(status) = inside.ask(&Request::Status).unwrap() else { panic!() };
        (status.datagrams_dropped > 0).then_some(())
    });
    assert_eq!(alive(&inside), [NODE_1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorded_call_played_again_gets_not_one_byte_even_after_a_restart() {
    let map = Map::new("1 127.0.0.1 2\n");
    let (config, dir) = map.config(1, KEY);
    let node = TestNode::start_with(config.clone(), dir.clone()).await;
    let secret = ClusterSecret::of_key_file(KEY);
    let (own, to) = (secret.node_of_map(NODE_2), secret.node_of_map(NODE_1).public());
    let words = first_words(&own, &secret.link_key(), Ticket([0; 16]), to);

    let mut stream = TcpStream::connect(node.node.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&words).unwrap();
    assert_eq!(stream.read(&mut [0; 512]).unwrap_or(0).min(1), 1, "the call itself is answered");
    drop(stream);

    assert_eq!(answer_to_stranger(node.node.address, &words), b"");
    let Happening::Rejected { reason, .. } = node.wait_for_event(is_rejection) else { panic!() };
    assert!(reason.contains("played again"), "{reason}");

    assert_eq!(node.ask(&Request::Down).unwrap(), Reply::Done);
    node.node.wait().await;
    let node = TestNode::start_with(config, dir).await;
    assert_eq!(answer_to_stranger(node.node.address, &words), b"");
}

/// Both sides call when they have lost each other. A second call while the first is not answered
/// would end the link that comes of the first, and so on for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_call_is_not_answered_there_is_no_second_one() {
    let map = Map::new("1 127.0.0.1 2\n");
    let one = tokio::net::TcpListener::bind(("127.0.0.1", map.port)).await.unwrap();
    let (config, dir) = map.config(2, KEY);
    let two = TestNode::start_with(config, dir).await;
    let (_unanswered, _) = one.accept().await.unwrap();

    let secret = ClusterSecret::of_key_file(KEY);
    let call = Call {
        address: two.node.address,
        key: secret.node_of_map(NODE_2).public(),
        node: Some(NODE_1),
        listen: one.local_addr().unwrap(),
        stamp: wall_clock_ns(),
        secret: 0,
    };
    let own = secret.node_of_map(NODE_1);
    let credentials = Credentials::of(own, Secrets::first(secret.clone()));
    drop(call_member(call, credentials).await.unwrap());

    let second = tokio::time::timeout(Duration::from_secs(1), one.accept()).await;
    assert!(second.is_err(), "it has called again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_of_strangers_are_dropped_and_counted() {
    let node = TestNode::start().await;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for length in [0, 1, 24, 40, 100, 1400, 9000] {
        socket.send_to(&vec![0xa5; length], node.node.address).unwrap();
    }
    eventually("all of them are counted", || {
        let Reply::Status(status) = node.ask(&Request::Status).unwrap() else { panic!() };
        (status.datagrams_dropped == 7).then_some(())
    });
    socket.set_read_timeout(Some(HANDSHAKE_TIMEOUT)).unwrap();
    assert!(socket.recv(&mut [0; 64]).is_err(), "and not answered");
}
