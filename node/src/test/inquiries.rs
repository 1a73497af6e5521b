//! What a tool of one node asks another.

use super::harness::{NODE_1, NODE_2, Program, TestNode, adopt, config, eventually};
use client::Error;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::control::{Event, Failure, Reply, Request};
use wire::ids::NodeId;
use wire::users::UserTable;

const ANNA: u32 = 64_001;

fn at(node: NodeId, request: Request) -> Request {
    Request::At { node, request: Box::new(request) }
}

fn failure_code(refused: client::Result<Reply>) -> String {
    match refused {
        Err(Error::Refused(failure)) => failure.code,
        other => panic!("not refused: {other:?}"),
    }
}

/// What each node says of itself, asked through `node`.
fn numbers_everywhere(node: &TestNode) -> BTreeMap<NodeId, Result<NodeId, String>> {
    let mut said = BTreeMap::new();
    let take = |by, reply: Result<Reply, Failure>| {
        said.insert(
            by,
            match reply {
                Ok(Reply::Status(status)) => Ok(status.node),
                Ok(other) => panic!("{other:?}"),
                Err(failure) => Err(failure.code),
            },
        );
        true
    };
    node.client().everywhere(Request::Status, take).unwrap();
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_answers_for_itself_and_one_that_is_gone_is_named() {
    let (one, two) = TestNode::start_pair().await;
    let program = Program::start("exec sleep 1000");
    assert_eq!(two.ask(&adopt(program.pid())).unwrap(), Reply::Done);
    eventually("it has become what it is to be", || {
        let line = two.process(program.pid()).command_line;
        (line.as_deref() == Some("sleep 1000")).then_some(())
    });
    let asked = one.ask(&at(NODE_2, Request::Processes)).unwrap();
    let Reply::Processes { processes } = asked else { panic!("{asked:?}") };
    let named = processes.iter().map(|process| (process.home, process.pid));
    assert_eq!(named.collect::<Vec<_>>(), [(NODE_2, program.pid())]);
    assert_eq!(processes[0].command_line.as_deref(), Some("sleep 1000"));
    assert_eq!(processes[0].parent, Some(std::process::id() as i32));
    let here = one.ask(&at(NODE_1, Request::Processes)).unwrap();
    assert_eq!(here, Reply::Processes { processes: Vec::new() });
    assert_eq!(
        numbers_everywhere(&two),
        BTreeMap::from([(NODE_1, Ok(NODE_1)), (NODE_2, Ok(NODE_2))])
    );
    assert_eq!(failure_code(one.ask(&at(NodeId(9), Request::Status))), "no-node");
    assert_eq!(two.ask(&Request::Down).unwrap(), Reply::Done);
    eventually("it is gone", || (one.nodes()[1].status == "gone").then_some(()));
    let unreachable = Err("unreachable".to_owned());
    eventually("nobody waits for it", || {
        let said = numbers_everywhere(&one);
        (said == BTreeMap::from([(NODE_1, Ok(NODE_1)), (NODE_2, unreachable.clone())]))
            .then_some(())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_concerns_a_node_alone_is_done_for_its_own_tools_only() {
    let (one, _two) = TestNode::start_pair().await;
    let requests = [
        Request::Token,
        Request::Down,
        Request::Leave,
        Request::HandOver,
        Request::RenewSecret,
        Request::Forget { node: NODE_1, force: true },
        Request::Join { address: "127.0.0.1:1".into(), token: "x".into() },
        adopt(1),
        at(NODE_1, Request::Status),
        Request::Everywhere { request: Box::new(Request::Status) },
    ];
    for request in requests {
        let code = failure_code(one.ask(&at(NODE_2, request.clone())));
        assert_eq!(code, "not-from-elsewhere", "{request:?}");
        let everywhere = Request::Everywhere { request: Box::new(request.clone()) };
        assert_eq!(failure_code(one.ask(&everywhere)), "not-everywhere", "{request:?}");
    }
}

/// A node whose table of users makes Anna, and nobody else, somebody there.
async fn node_for_anna(one: &TestNode, becomes: u32) -> TestNode {
    let (mut config, dir) = config();
    let table = format!("{ANNA}={becomes},*=refuse");
    config.guest_users = Some(UserTable::try_from(table).unwrap());
    let two = TestNode::start_with(config, dir).await;
    two.join(one);
    two
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_from_elsewhere_is_whom_the_table_makes_of_him() {
    let me = nix::unistd::geteuid().as_raw();
    if me != 0 {
        return needs::skip("only root's daemon has a table of users");
    }
    let one = TestNode::start().await;
    let two = node_for_anna(&one, me).await;
    let mut program = Program::start("exec sleep 1000");
    let pid = program.pid();
    let end = || at(NODE_2, Request::Signal { pid, signal: 15 });
    let code = |reply| match reply {
        Reply::Error(failure) => failure.code,
        other => panic!("{other:?}"),
    };
    // What is not under Osmos there is nobody's business here.
    assert_eq!(code(one.ask_as(ANNA, None, end()).await), "not-managed");
    assert_eq!(two.ask(&adopt(pid)).unwrap(), Reply::Done);
    // Root is refused there, and everybody may look.
    assert_eq!(failure_code(one.ask(&end())), "not-allowed");
    assert!(matches!(one.ask(&at(NODE_2, Request::Why { pid })), Ok(Reply::Why { .. })));
    let no_such = at(NODE_2, Request::Signal { pid, signal: 99 });
    assert_eq!(code(one.ask_as(ANNA, None, no_such).await), "bad-signal");
    assert_eq!(one.ask_as(ANNA, None, end()).await, Reply::Done);
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(program.0.wait().unwrap().signal(), Some(15));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owners_process_is_no_other_users() {
    if !nix::unistd::geteuid().is_root() {
        return needs::skip("only root's daemon has a table of users");
    }
    let one = TestNode::start().await;
    let two = node_for_anna(&one, ANNA).await;
    let program = Program::start("exec sleep 1000");
    let pid = program.pid();
    assert_eq!(two.ask(&adopt(pid)).unwrap(), Reply::Done);
    for request in
        [Request::Signal { pid, signal: 15 }, Request::Owner(wire::owner::OwnerOrder::Expel)]
    {
        let reply = one.ask_as(ANNA, None, at(NODE_2, request)).await;
        let Reply::Error(failure) = reply else { panic!("{reply:?}") };
        assert_eq!(failure.code, "not-allowed");
    }
}

/// More than travels at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_answer_arrives_whole_and_in_order() {
    let (one, two) = TestNode::start_pair().await;
    for _ in 0..450 {
        let program = Program::start("exec sleep 1000");
        assert_eq!(two.ask(&adopt(program.pid())).unwrap(), Reply::Done);
    }
    eventually("all have ended", || two.processes().is_empty().then_some(()));
    let mut events: Vec<Event> = Vec::new();
    let take = |node, said: Result<Reply, Failure>| {
        if let Reply::Event(event) = said.unwrap()
            && node == NODE_2
        {
            events.push(event);
        }
        true
    };
    one.client().everywhere(Request::Events { follow: false }, take).unwrap();
    let bytes: usize = events.iter().map(|event| serde_json::to_vec(event).unwrap().len()).sum();
    let ahead = wire::peer::ANSWER_PART_BYTES_MAX * wire::peer::ANSWER_PARTS_AHEAD;
    assert!(bytes > ahead, "{bytes} bytes fit what is sent ahead");
    assert_eq!(events, two.events());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_elsewhere_is_followed_until_nobody_listens() {
    let (one, two) = TestNode::start_pair().await;
    let (said, heard) = std::sync::mpsc::channel();
    let (said, client) = (Arc::new(said), one.client());
    let follower = std::thread::spawn(move || {
        let mut client = client;
        let take = |node, reply: Result<Reply, Failure>| said.send((node, reply)).is_ok();
        // Ends when nobody takes what is said.
        client.everywhere(Request::Events { follow: true }, take)
    });
    let await_managed = |pid: i32| loop {
        let (node, reply) = heard.recv_timeout(super::harness::PATIENCE).unwrap();
        if let Ok(Reply::Event(event)) = reply
            && event.pid.is_some_and(|of| of.pid.0 == pid)
        {
            return node;
        }
    };
    for node in [&two, &one] {
        let program = Program::start("exec sleep 1000");
        assert_eq!(node.ask(&adopt(program.pid())).unwrap(), Reply::Done);
        let number = if std::ptr::eq(node, &one) { NODE_1 } else { NODE_2 };
        assert_eq!(await_managed(program.pid()), number);
    }
    drop(heard);
    let last = Program::start("exec sleep 1000");
    assert_eq!(two.ask(&adopt(last.pid())).unwrap(), Reply::Done);
    follower.join().unwrap().unwrap();
}
