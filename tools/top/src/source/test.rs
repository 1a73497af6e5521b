//! What a daemon is asked, and what is made of its answers.

use super::*;
use crate::test::{WORDING, joined, key, migrated, node, process};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU32, Ordering};
use wire::control::Failure;
use wire::owner::OwnerOrder;

/// A daemon that answers each request as `answer` says, one connection after another.
fn daemon(
    connections: usize,
    answer: impl Fn(Request) -> Vec<Reply> + Send + 'static,
) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.sock");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for line in lines.map_while(Result::ok) {
                for reply in answer(serde_json::from_str(&line).unwrap()) {
                    writeln!(stream, "{}", serde_json::to_string(&reply).unwrap()).unwrap();
                }
            }
        }
    });
    (dir, path)
}

fn from(node: u32, reply: Reply) -> Reply {
    Reply::From { node: NodeId(node), of: Box::new(reply) }
}

fn refusal(code: &str, text: &str) -> Reply {
    Reply::Error(Failure { code: code.into(), text: text.into() })
}

/// What an order of this user comes to, if the daemon answers so.
fn came_of(
    order: Order,
    answer: impl Fn(Request) -> Reply + Send + 'static,
) -> Result<String, String> {
    let (_dir, path) = daemon(1, move |request| vec![answer(request)]);
    let mut client = Client::connect(&path).unwrap();
    carry_out(&mut client, &order, WORDING).map_err(|error| told(&error))
}

#[test]
fn a_picture_has_what_each_node_says_and_which_say_nothing() {
    let (_dir, path) = daemon(1, |request| match request {
        Request::Nodes => vec![Reply::Nodes { nodes: vec![node(1, "one"), node(2, "two")] }],
        Request::Everywhere { request } => {
            assert_eq!(*request, Request::Processes);
            let part = |home, pid| Reply::Processes { processes: vec![process(home, pid, home)] };
            vec![
                from(2, refusal("no-answer", "node 2 does not answer")),
                from(1, part(1, 10)),
                Reply::AllAnswered,
            ]
        }
        other => panic!("asked {other:?}"),
    });
    let picture = Picture::from(look(&mut Client::connect(&path).unwrap()).unwrap());
    assert_eq!((picture.nodes.len(), picture.processes.len()), (2, 1));
    assert_eq!(picture.silent[&NodeId(2)], "node 2 does not answer");
}

#[test]
fn a_process_is_asked_about_at_its_home() {
    let answered = came_of(Order::Signal(key(2, 9), 15), |request| match request {
        Request::At { node: NodeId(2), request } => match *request {
            Request::Signal { pid: 9, signal: 15 } => Reply::Done,
            other => panic!("asked {other:?}"),
        },
        other => panic!("asked {other:?}"),
    });
    assert_eq!(answered.unwrap(), "sent SIGTERM to 9");
    let own = Order::Migrate(key(1, 9), Destination::Home);
    let answered = came_of(own, |request| match request {
        Request::At { node: NodeId(1), request } => match *request {
            Request::Migrate { pid: 9, to: Destination::Home, .. } => {
                refusal("io-uring", "cannot move 9: it has an io_uring open (fd 7)")
            }
            other => panic!("asked {other:?}"),
        },
        other => panic!("asked {other:?}"),
    });
    assert_eq!(answered.unwrap_err(), "cannot move 9: it has an io_uring open (fd 7)");
}

#[test]
fn a_process_is_pinned_by_a_move_to_where_it_is() {
    let pin = |code: &'static str| {
        came_of(Order::Pin(key(1, 9), NodeId(3)), move |request| match request {
            Request::At { node: NodeId(1), request } => match *request {
                Request::Migrate { pid: 9, to: Destination::Node(NodeId(3)), .. } => {
                    refusal(code, "no")
                }
                other => panic!("asked {other:?}"),
            },
            other => panic!("asked {other:?}"),
        })
    };
    assert_eq!(pin("already-there").unwrap(), "9 stays on node 3 from now on");
    assert_eq!(pin("not-owner").unwrap_err(), "no");
}

#[test]
fn an_owners_order_goes_to_his_node() {
    let order = Order::Owner(NodeId(3), OwnerOrder::Expel);
    let answered = came_of(order, |request| match request {
        Request::At { node: NodeId(3), request } => {
            assert_eq!(*request, Request::Owner(OwnerOrder::Expel));
            Reply::Owned(Default::default())
        }
        other => panic!("asked {other:?}"),
    });
    assert_eq!(answered.unwrap(), "node 3: 0 guests here");
}

#[test]
fn events_are_followed_again_and_none_is_told_twice() {
    let times = AtomicU32::new(0);
    let (_dir, path) = daemon(2, move |request| {
        assert!(matches!(request, Request::Everywhere { .. }), "asked {request:?}");
        let new = joined(4, 7.0 + f64::from(times.fetch_add(1, Ordering::SeqCst)));
        let events =
            [migrated(1, 10, 2, 5.0), joined(3, 6.0)].map(|event| from(1, Reply::Event(event)));
        // As a daemon that ends.
        events.into_iter().chain([from(2, Reply::Event(new)), Reply::AllAnswered]).collect()
    });
    let (messages, told) = sync_channel(16);
    let (in_use, is_used) = sync_channel(0);
    let following = thread::spawn(move || events(&path, &is_used, &messages));
    let time = || match told.recv() {
        Ok(Message::Input(Input::Happened(event))) => Some(event.time),
        Ok(_) => panic!("it tells of events only"),
        Err(_) => None,
    };
    assert_eq!([time(), time(), time()], [5.0, 6.0, 7.0].map(Some));
    assert_eq!(time(), Some(8.0), "of the second connection, only what is new");
    drop(in_use);
    following.join().unwrap();
    assert_eq!(time(), None);
}

#[test]
fn a_daemon_that_is_gone_and_back_is_told_and_asked_again() {
    let (messages, told) = sync_channel(16);
    let (wanted, is_wanted) = sync_channel(1);
    let (_dir, path) = daemon(1, |request| match request {
        Request::Nodes => vec![Reply::Nodes { nodes: vec![node(1, "one")] }],
        _ => vec![Reply::AllAnswered],
    });
    let nowhere = path.with_extension("other");
    let socket = nowhere.clone();
    let day = Duration::from_secs(86_400);
    let looking = thread::spawn(move || pictures(&socket, day, &is_wanted, &messages));
    let Message::Input(Input::Lost(why)) = told.recv().unwrap() else {
        panic!("no daemon is there")
    };
    assert!(why.contains("no osmos daemon here"), "{why}");
    std::fs::rename(&path, &nowhere).unwrap();
    wanted.send(()).unwrap();
    let Message::Input(Input::Picture(picture)) = told.recv().unwrap() else {
        panic!("it is back")
    };
    assert_eq!(picture.nodes.len(), 1);
    drop(wanted);
    looking.join().unwrap();
}
