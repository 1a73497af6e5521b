//! Two daemons, one after the other, played by the test.

use super::*;
use nix::sys::socket::{Backlog, MsgFlags, bind, listen, recv, send, setsockopt, socketpair};
use nix::sys::time::TimeVal;

/// What a supervisor under test is told and says.
type Word = u32;

struct Door {
    _dir: tempfile::TempDir,
    path: PathBuf,
    listener: OwnedFd,
}

impl Door {
    fn open() -> Door {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("return.sock");
        let flags = SockFlag::SOCK_CLOEXEC;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&listener, Backlog::new(4).unwrap()).unwrap();
        Door { _dir: dir, path, listener }
    }
}

fn hear_at(socket: i32) -> Vec<u8> {
    let mut bytes = [0; 4096];
    let length = recv(socket, &mut bytes, MsgFlags::empty()).unwrap();
    bytes[..length].to_vec()
}

fn hear_words(socket: i32, count: usize) -> Vec<Word> {
    (0..count).map(|_| postcard::from_bytes(&hear_at(socket)).unwrap()).collect()
}

fn say(socket: i32, bytes: &[u8]) {
    send(socket, bytes, MsgFlags::empty()).unwrap();
}

fn note(socket: i32) {
    say(socket, &postcard::to_stdvec(&FromDaemon::<Word>::Noted).unwrap());
}

fn order(socket: i32, word: Word) {
    say(socket, &postcard::to_stdvec(&FromDaemon::Order(word)).unwrap());
}

/// An attachment to a first daemon, and that one's end.
fn attached(door: &Door, patience_s: u64) -> (Attachment, OwnedFd) {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (daemon, own) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
    setsockopt(&daemon, sockopt::ReceiveTimeout, &TimeVal::new(10, 0)).unwrap();
    let path = door.path.to_str().unwrap().to_owned();
    let words = ["--return".to_owned(), path, "--patience".to_owned(), patience_s.to_string()];
    (Attachment::new(own, &words).unwrap(), daemon)
}

/// Has the attachment do what it does by itself, until `is_it`.
fn until(attachment: &Attachment, mut is_it: impl FnMut(&Heard<Word>) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        assert!(Instant::now() < deadline, "not in time");
        let heard = attachment.hear::<Word>().unwrap();
        if is_it(&heard) {
            return;
        }
        wait_for(attachment.socket().as_deref(), attachment.next_call());
    }
}

/// The next daemon answers the call, after the attachment has lost the last.
fn welcome(door: &Door, attachment: &Attachment, welcome: Welcome) -> OwnedFd {
    until(attachment, |_| matches!(attachment.state.borrow().stage, Stage::Greeting(_)));
    let socket = rustix::net::accept(&door.listener).unwrap();
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(10, 0)).unwrap();
    let greeting = Greeting::decode(&hear_at(socket.as_raw_fd()));
    assert_eq!(greeting, Some(Greeting { version: SUPERVISOR_VERSION }));
    say(socket.as_raw_fd(), &welcome.encode());
    socket
}

#[test]
fn what_no_daemon_has_noted_is_said_to_the_next_in_order_and_once_noted_no_more() {
    let door = Door::open();
    let (attachment, first) = attached(&door, 600);
    [1, 2, 3].iter().for_each(|word| attachment.send::<Word>(word, true));
    attachment.send::<Word>(&100, false);
    assert_eq!(hear_words(first.as_raw_fd(), 4), [1, 2, 3, 100]);
    note(first.as_raw_fd());
    until(&attachment, |_| attachment.state.borrow().kept.len() == 2);
    drop(first);
    until(&attachment, |_| attachment.socket().is_none() || attachment.next_call().is_some());
    attachment.send::<Word>(&4, true);
    attachment.send::<Word>(&101, false);
    let next = welcome(&door, &attachment, Welcome::Stay);
    until(&attachment, |heard| matches!(heard, Heard::Attached));
    attachment.send::<Word>(&102, false);
    assert_eq!(hear_words(next.as_raw_fd(), 4), [2, 3, 4, 102]);
    assert!(!attachment.is_abandoned());
    (0..3).for_each(|_| note(next.as_raw_fd()));
    order(next.as_raw_fd(), 7);
    until(&attachment, |heard| matches!(heard, Heard::Order(7, None)));
    attachment.deliver::<Word>();
    assert!(attachment.state.borrow().kept.is_empty());
}

#[test]
fn last_words_wait_for_a_daemon_that_notes_them() {
    let door = Door::open();
    let (attachment, first) = attached(&door, 600);
    attachment.send::<Word>(&1, true);
    drop(first);
    let noting = std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            let socket = rustix::net::accept(&door.listener).unwrap();
            hear_at(socket.as_raw_fd());
            say(socket.as_raw_fd(), &Welcome::Stay.encode());
            let words = hear_words(socket.as_raw_fd(), 1);
            note(socket.as_raw_fd());
            words
        });
        attachment.deliver::<Word>();
        assert!(attachment.state.borrow().kept.is_empty(), "it waits until that is noted");
        next.join().unwrap()
    });
    assert_eq!(noting, [1]);
}

#[test]
fn a_daemon_of_another_version_sends_it_home_and_is_told_nothing() {
    let door = Door::open();
    let (attachment, first) = attached(&door, 600);
    attachment.send::<Word>(&1, true);
    drop(first);
    let _next = welcome(&door, &attachment, Welcome::GoHome);
    until(&attachment, |_| attachment.is_abandoned());
    assert!(attachment.next_call().is_none(), "it calls nobody any more");
    attachment.deliver::<Word>();
}

#[test]
fn without_a_daemon_to_come_it_is_abandoned_when_its_patience_is_over() {
    let door = Door::open();
    for patience_s in [0, 1] {
        let (attachment, first) = attached(&door, patience_s);
        assert!(!attachment.is_abandoned());
        drop(first);
        let begun = Instant::now();
        until(&attachment, |_| attachment.is_abandoned());
        assert!(begun.elapsed() >= Duration::from_secs(patience_s));
        attachment.send::<Word>(&1, true);
        attachment.deliver::<Word>();
    }
}

#[test]
fn a_daemon_that_notes_nothing_of_very_much_is_none() {
    let door = Door::open();
    let (attachment, _first) = attached(&door, 600);
    (0..=KEPT_MAX as u32).for_each(|word| attachment.send::<Word>(&word, true));
    assert_eq!(attachment.state.borrow().kept.len(), KEPT_MAX);
    assert!(attachment.socket().is_none() && attachment.next_call().is_some());
}
