//! The control socket: what callers may do, and what hostile ones get.

use super::harness::{Program, TestNode, adopt, eventually, placed};
use crate::daemon::start;
use crate::spawning::{self, ProgramSpawn};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use wire::control::{Destination, Happening, Placement, Reply, Request};
use wire::ids::NodeId;

const STRANGER: u32 = 65_533;

fn failure_code(reply: Reply) -> String {
    match reply {
        Reply::Error(failure) => failure.code,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_users_may_look_but_not_touch() {
    let node = TestNode::start().await;
    let program = Program::start("exec sleep 1000");
    let pid = program.pid();
    assert_eq!(node.ask(&adopt(pid)).unwrap(), Reply::Done);
    let processes = node.ask_as(STRANGER, None, Request::Processes).await;
    assert!(matches!(processes, Reply::Processes { processes } if processes.len() == 1));
    let touches = [
        adopt(pid),
        Request::Migrate {
            pid,
            to: Destination::Home,
            freeze_budget_ms: None,
            way: None,
            is_watched: false,
        },
        Request::Token,
        Request::Join { address: "127.0.0.1".into(), token: "x".into() },
        Request::Down,
        Request::HandOver,
    ];
    for touch in touches {
        assert_eq!(failure_code(node.ask_as(STRANGER, None, touch).await), "not-allowed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_name_the_process_and_the_way_out() {
    let node = TestNode::start().await;
    let program = Program::start("exec sleep 1000");
    let pid = program.pid();
    // As this machine is called.
    let listed = match &node.nodes()[0].name {
        Some(name) => format!("1 ({name})"),
        None => "1".to_owned(),
    };
    let texts = [
        (adopt(1 << 30), format!("there is no process {}", 1 << 30)),
        (adopt(1), "cannot adopt 1: only ordinary processes can be adopted".into()),
        (
            Request::Migrate {
                pid,
                to: Destination::Node(NodeId(9)),
                freeze_budget_ms: None,
                way: None,
                is_watched: false,
            },
            format!("there is no node 9; there are {listed}"),
        ),
        (
            Request::Migrate {
                pid,
                to: Destination::Home,
                freeze_budget_ms: None,
                way: None,
                is_watched: false,
            },
            format!("cannot move {pid}: it is on node 1 already"),
        ),
        (
            Request::Why { pid: 1 },
            "process 1 is not under osmos: `osmos adopt 1` puts it there".into(),
        ),
        (
            Request::Join { address: "127.0.0.1".into(), token: "hello".into() },
            "this is not a token: copy the whole line that `osmos token` printed".into(),
        ),
    ];
    for (request, text) in texts {
        assert_eq!(node.ask(&request).unwrap_err().to_string(), text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_tool_gets_an_error_or_is_cut_off_and_the_daemon_stays() {
    let node = TestNode::start().await;
    let mut stream = UnixStream::connect(node.config.control_socket()).unwrap();
    for line in ["hello\n", "{}\n", "{\"request\":\"explode\"}\n", "\u{0}\u{1}\n", "[[[[\n"] {
        stream.write_all(line.as_bytes()).unwrap();
        let mut reply = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut reply).unwrap();
        assert!(reply.contains("\"code\":\"bad-request\""), "{line:?}: {reply}");
    }
    let mut endless = UnixStream::connect(node.config.control_socket()).unwrap();
    // The daemon may cut the connection before all of it is written.
    let _ = endless.write_all(&vec![b'x'; 1 << 20]);
    let mut rest = Vec::new();
    let _ = endless.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    assert!(matches!(node.ask(&Request::Status), Ok(Reply::Status(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_daemon_in_the_same_place_does_not_start() {
    let node = TestNode::start().await;
    let spawn = Arc::new(ProgramSpawn::new(spawning::Program {
        path: PathBuf::from("/bin/false"),
        without: String::new(),
        return_socket: node.config.return_socket(),
        patience: node.config.succession_patience,
        hashes: PathBuf::from("/nonexistent"),
    }));
    let error = start(node.config.clone(), spawn).await.err().unwrap().to_string();
    assert!(error.starts_with("an osmos daemon runs here already"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_down_nothing_listens_any_more() {
    let node = TestNode::start().await;
    let (socket, address) = (node.config.control_socket(), node.node.address);
    assert_eq!(node.ask(&Request::Down).unwrap(), Reply::Done);
    node.node.wait().await;
    assert!(!socket.exists());
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_of_a_managed_process_are_managed_and_their_end_is_noticed() {
    let node = TestNode::start().await;
    let program = Program::start("sleep 1000 & read line; kill $!; wait");
    assert_eq!(node.ask(&adopt(program.pid())).unwrap(), Reply::Done);
    let child = eventually("the child is found", || {
        let processes = node.processes();
        processes.into_iter().find(|process| process.command == "sleep")
    });
    assert_eq!((child.home, child.node), (NodeId(1), NodeId(1)));
    program.0.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
    eventually("both are gone", || node.processes().is_empty().then_some(()));
    let events = node.events();
    let ends = events.iter().filter(|event| matches!(event.what, Happening::Ended { .. }));
    assert_eq!(ends.count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_is_placed_only_once_it_runs_its_command() {
    let (one, two) = TestNode::start_pair().await;
    let program = Program::start("read line; exec sleep 1000");
    let pid = program.pid();
    let placement = Placement::Node(NodeId(2));
    let options = placed(placement);
    let owner = nix::unistd::getuid().as_raw();
    let reply = one.ask_as(owner, Some(pid), Request::Manage(options)).await;
    assert!(matches!(reply, Reply::Managed { node: NodeId(1), .. }), "{reply:?}");
    // Several looks at /proc later it still is what it was: nobody has asked for a berth.
    eventually("it has been looked at", || (one.process(pid).rss_bytes > 0).then_some(()));
    assert_eq!(one.process(pid).state, "pinned");
    program.0.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
    let body = two.supervisor();
    assert_eq!(body.half, wire::assignment::Half::Body);
    eventually("it is shown under its own name", || {
        (one.process(pid).command == "sleep").then_some(())
    });
}
