//! Moves between two real daemons, the test playing both supervisors.

use super::harness::{
    NODE_1, NODE_2, NODE_3, PATIENCE, Played, Program, TestNode, adopt, config, eventually, placed,
};
use crate::control::{Answer, Asked, Caller};
use crate::daemon::Event;
use crate::net::link::LinkId;
use crate::process::ORDERS_MAX;
use crate::supervisor::{News, SupervisorId};
use client::Error;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use wire::assignment::Half;
use wire::control::{Destination, Happening, ManageOptions, Migration, Placement, Reply, Request};
use wire::freeze_budget::FreezeBudget;
use wire::ids::{GuestAddr, GuestTid, HomePid, NodeId, Ticket};
use wire::move_limits::MoveLimits;
use wire::owner::{LimitChange, OwnerOrder};
use wire::peer::{BerthRequest, Owner, PeerMessage};
use wire::supervisor::{
    Berth, Birth, ELSEWHERE, FromBody, FromDeputy, MoveReport, Preface, Progress, Reason, Role,
    ToBody, ToDeputy,
};
use wire::users::NOBODY;

fn report(freeze_us: u64) -> MoveReport {
    MoveReport { freeze_us, total_us: 2 * freeze_us, ..MoveReport::default() }
}

fn reason(code: &str, text: &str) -> Reason {
    Reason { code: code.to_owned(), text: text.to_owned() }
}

/// Asks for a move on a thread of its own, since the answer comes when it has ended.
fn migrate(node: &TestNode, pid: i32, to: Destination) -> JoinHandle<client::Result<Reply>> {
    let mut client = node.client();
    std::thread::spawn(move || {
        client.request(&Request::Migrate {
            pid,
            to,
            freeze_budget_ms: None,
            way: None,
            is_watched: false,
        })
    })
}

/// Why a move was refused.
fn refusal(order: JoinHandle<client::Result<Reply>>) -> String {
    match order.join().unwrap() {
        Err(Error::Refused(failure)) => failure.code,
        other => panic!("it is not refused: {other:?}"),
    }
}

fn migration(reply: client::Result<Reply>) -> Migration {
    match reply.unwrap() {
        Reply::Migrated(migration) => migration,
        other => panic!("{other:?}"),
    }
}

fn leave(deputy: &Played) -> Berth {
    match deputy.hear::<ToDeputy>() {
        Some((ToDeputy::Leave { berth, .. }, None)) => berth,
        other => panic!("{other:?}"),
    }
}

fn limit(guests: Option<LimitChange>, guest_memory_bytes: Option<LimitChange>) -> OwnerOrder {
    OwnerOrder::Limit {
        guests,
        guest_memory_bytes,
        freeze_budget_ms: None,
        move_bandwidth_bits_per_s: None,
        move_processors: None,
        guests_per_user: None,
        storms_per_user: None,
    }
}

/// A process of node 1 that has been moved to node 2.
struct Away {
    one: TestNode,
    two: TestNode,
    program: Program,
    deputy: Played,
    body: Played,
}

impl Away {
    async fn begin() -> Away {
        let (one, two) = TestNode::start_pair().await;
        let program = Program::start("exec sleep 1000");
        let pid = program.pid();
        let asked = migrate(&one, pid, Destination::Node(NODE_2));
        let body = two.supervisor();
        let Some((ToBody::Expect { .. }, None)) = body.hear() else { panic!() };
        let deputy = one.supervisor();
        let berth = leave(&deputy);
        let (_stream, _) = connect(&berth, &body);
        body.say(&FromBody::Running { local_pid: pid, command: "sleep".into() });
        deputy.say(&FromDeputy::Moved { to: NODE_2, report: report(900) });
        migration(asked.join().unwrap());
        Away { one, two, program, deputy, body }
    }

    fn pid(&self) -> i32 {
        self.program.pid()
    }
}

/// Connects to a berth as a deputy does; the other end arrives at the body's supervisor.
fn connect(berth: &Berth, body: &Played) -> (TcpStream, TcpStream) {
    let mut stream = TcpStream::connect(berth.address).unwrap();
    let preface = Preface { role: Role::Deputy, ticket: berth.ticket };
    stream.write_all(&preface.encode()).unwrap();
    let Some((ToBody::Connection { role: Role::Deputy }, Some(descriptor))) = body.hear() else {
        panic!("no connection");
    };
    (stream, TcpStream::from(descriptor))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_asks_for_a_berth_joins_both_supervisors_and_is_reported() {
    let (one, two) = TestNode::start_pair().await;
    let program = Program::start("exec sleep 1000");
    let pid = program.pid();
    let asked = migrate(&one, pid, Destination::Node(NODE_2));

    let body = two.supervisor();
    assert_eq!((body.half, body.owner.uid), (Half::Body, nix::unistd::getuid().as_raw()));
    let Some((ToBody::Expect { ticket, key, pid: expected, node, .. }, None)) = body.hear() else {
        panic!();
    };
    assert_eq!((expected, node), (HomePid(pid), NODE_1));

    let deputy = one.supervisor();
    assert_eq!(deputy.half, Half::Deputy { pid: HomePid(pid) });
    let berth = leave(&deputy);
    assert_eq!((berth.node, berth.ticket, berth.key), (NODE_2, ticket, key));
    assert_eq!(one.process(pid).state, "moving");

    let (mut from_deputy, mut at_body) = connect(&berth, &body);
    from_deputy.write_all(b"handshake").unwrap();
    let mut words = [0; 9];
    at_body.read_exact(&mut words).unwrap();
    assert_eq!(&words, b"handshake", "nothing after the head was swallowed");

    body.say(&FromBody::Running { local_pid: 1 << 22, command: "sleep".into() });
    deputy.say(&FromDeputy::Moved { to: NODE_2, report: report(900) });
    let migration = migration(asked.join().unwrap());
    assert_eq!((migration.from, migration.to, migration.freeze_ms), (NODE_1, NODE_2, 0.9));
    let process = one.process(pid);
    assert_eq!((process.node, process.migrations), (NODE_2, 1));
    let guest = eventually("it is listed as a guest", || two.processes().pop());
    assert_eq!((guest.pid, guest.home, guest.node), (pid, NODE_1, NODE_2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_cannot_move_stays_and_says_why() {
    let (one, two) = TestNode::start_pair().await;
    let program = Program::start("exec sleep 1000");
    let pid = program.pid();
    let asked = migrate(&one, pid, Destination::Node(NODE_2));
    let _body = two.supervisor();
    let deputy = one.supervisor();
    leave(&deputy);
    let why = reason("io-uring", "it has an io_uring open (fd 7)");
    deputy.say(&FromDeputy::Stayed { reason: why.clone() });
    let Err(Error::Refused(failure)) = asked.join().unwrap() else { panic!() };
    assert_eq!(failure.code, "io-uring");
    let text = format!("cannot move {pid}: it has an io_uring open (fd 7); it stays home");
    assert_eq!(failure.text, text);
    assert!(
        one.events().iter().any(|event| event.what == Happening::Stayed { reason: why.clone() })
    );
    let Reply::Why { decisions, .. } = one.ask(&Request::Why { pid }).unwrap() else { panic!() };
    assert_eq!(decisions.last().unwrap().reason, "it has an io_uring open (fd 7)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_ends_while_its_deputy_tries_to_move_it_is_forgotten() {
    let (one, two) = TestNode::start_pair().await;
    let program = Program::start("exec sleep 1000");
    let pid = program.pid();
    let asked = migrate(&one, pid, Destination::Node(NODE_2));
    let (_body, deputy) = (two.supervisor(), one.supervisor());
    leave(&deputy);
    drop(program);
    // Asked again and again until the daemon, too, has had time to see the end.
    let gone = || matches!(one.ask(&adopt(pid)), Err(Error::Refused(_)));
    eventually("its end is seen", || gone().then_some(()));
    deputy.say(&FromDeputy::Stayed { reason: reason("ended", "there is no such process") });
    assert!(asked.join().unwrap().is_err());
    eventually("it is not listed any more", || one.processes().is_empty().then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_needs_home_is_counted_by_name() {
    let away = Away::begin().await;
    let why = reason("call", "fork");
    away.deputy.say(&FromDeputy::CameHome { reason: why, report: report(500) });
    let pid = away.pid();
    eventually("it is home", || (away.one.process(pid).node == NODE_1).then_some(()));
    let counts = Happening::Homecalls { counts: vec![("fork".to_owned(), 1)] };
    assert_eq!(away.one.events().last().unwrap().what, counts);
    away.body.say(&FromBody::Gone { reason: reason("went-home", "it went home") });
    eventually("the guest is gone", || away.two.processes().is_empty().then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_begins_another_program_is_home_and_no_call_is_counted_for_it() {
    let away = Away::begin().await;
    let why = reason(wire::supervisor::EXEC, "it has begun another program");
    away.deputy.say(&FromDeputy::CameHome { reason: why.clone(), report: report(0) });
    let pid = away.pid();
    eventually("it is home", || (away.one.process(pid).node == NODE_1).then_some(()));
    let events = away.one.events();
    assert!(events.iter().any(|event| event.what == Happening::CameHome { reason: why.clone() }));
    assert!(!events.iter().any(|event| matches!(event.what, Happening::Homecalls { .. })));
    // It goes where it is sent as if it had just begun.
    let out_again = migrate(&away.one, pid, Destination::Node(NODE_2));
    let _body = away.two.supervisor();
    let deputy = away.one.supervisor();
    leave(&deputy);
    deputy.say(&FromDeputy::Moved { to: NODE_2, report: report(300) });
    assert_eq!(migration(out_again.join().unwrap()).to, NODE_2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_of_one_process_happen_one_after_another() {
    let away = Away::begin().await;
    let home = migrate(&away.one, away.pid(), Destination::Home);
    let Some((ToDeputy::ComeHome { .. }, None)) = away.deputy.hear() else { panic!() };
    let out_again = migrate(&away.one, away.pid(), Destination::Node(NODE_2));
    // Only when it has come home does the next move begin.
    away.deputy.say(&FromDeputy::CameHome { reason: reason("asked", "x"), report: report(400) });
    assert_eq!(migration(home.join().unwrap()).to, NODE_1);
    let _body = away.two.supervisor();
    let deputy = away.one.supervisor();
    leave(&deputy);
    deputy.say(&FromDeputy::Moved { to: NODE_2, report: report(300) });
    assert_eq!(migration(out_again.join().unwrap()).to, NODE_2);
    assert_eq!(away.one.process(away.pid()).migrations, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_crash_of_a_supervisor_loses_one_process_and_is_recorded() {
    let away = Away::begin().await;
    let Away { one, deputy, program, two: _two, body: _body } = away;
    // The kernel kills the deputy of a tracer that is gone; here the test has to.
    drop(program);
    drop(deputy);
    let lost = one.wait_for_event(|what| matches!(what, Happening::Lost { .. }));
    let why = reason("supervisor-crashed", "its supervisor at home ended without a word");
    assert_eq!(lost, Happening::Lost { node: NODE_2, reason: why });
    eventually("the process is forgotten", || one.processes().is_empty().then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_made_away_ends_if_the_supervisor_of_its_maker_ends_before_it_has_a_body() {
    let away = Away::begin().await;
    let mut child = Program::start("exec sleep 1000");
    let pid = child.pid();
    away.deputy.say(&FromDeputy::Forked { child: HomePid(pid) });
    let is_it = |process: &wire::control::Process| process.pid == pid;
    eventually("it is managed", || away.one.processes().iter().any(is_it).then_some(()));
    // Whoever wants to move it waits until it is born, as far as there is room.
    let order = |_| migrate(&away.one, pid, Destination::Node(NODE_2));
    let mut orders: Vec<_> = (0..=ORDERS_MAX).map(order).collect();
    let refused = eventually("one is too many", || orders.iter().position(|it| it.is_finished()));
    assert_eq!(refusal(orders.remove(refused)), "too-many-moves");
    let Away { one, deputy, program: _program, two: _two, body: _body } = away;
    drop(deputy);
    let end = eventually("it ends", || child.0.try_wait().unwrap());
    assert_eq!(end.signal(), Some(nix::libc::SIGKILL));
    orders.into_iter().for_each(|order| assert_eq!(refusal(order), "ended"));
    eventually("it is forgotten", || (!one.processes().iter().any(is_it)).then_some(()));
}

/// The supervisor of what the guest makes away, once the daemon has taken that in.
fn newborn(away: &Away, child: i32, ticket: Ticket) -> Played {
    let (newborn, socket) = away.body.by_itself();
    let word = FromBody::Forked { child: HomePid(child), ticket, is_bound: false };
    away.body.hand_over(&word, &socket);
    assert!(matches!(newborn.hear(), Some((ToBody::IsGuest, None))));
    newborn
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_made_away_keeps_its_place_there_when_a_move_to_that_node_is_refused() {
    let away = Away::begin().await;
    let child = Program::start("exec sleep 1000");
    let ticket = Ticket([7; 16]);
    let newborn = newborn(&away, child.pid(), ticket);
    // Its home has not heard yet that it was made away.
    let asked = migrate(&away.one, child.pid(), Destination::Node(NODE_2));
    let body = away.two.supervisor();
    let Some((ToBody::Expect { .. }, None)) = body.hear() else { panic!() };
    let deputy = away.one.supervisor();
    let berth = leave(&deputy);
    deputy.say(&FromDeputy::Stayed { reason: reason("unborn", "it is not served yet") });
    assert_eq!(refusal(asked), "unborn");
    assert!(matches!(body.hear(), Some((ToBody::NotComing, None))), "the place of the move");
    connect(&Berth { ticket, ..berth }, &newborn);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_made_away_hears_that_nobody_calls_for_it() {
    let away = Away::begin().await;
    let mut child = Program::start("exec sleep 1000");
    let (pid, ticket) = (child.pid(), Ticket([7; 16]));
    let newborn = newborn(&away, pid, ticket);
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let birth = Box::new(Birth {
        berth: Berth { node: NODE_2, address, ticket, key: [0; 32] },
        guest: GuestTid(1),
        agent: (GuestAddr(0x1000), GuestAddr(0x2000)),
        slots: 1,
        actions: vec![],
        freeze_budget: FreezeBudget::default(),
        limits: MoveLimits::default(),
        is_vfork: false,
        files: vec![],
    });
    away.deputy.say(&FromDeputy::Born { child: HomePid(pid), birth });
    assert!(matches!(newborn.hear(), Some((ToBody::NotComing, None))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_outlives_its_supervisor_is_home() {
    let away = Away::begin().await;
    let pid = away.pid();
    let Away { one, deputy, program: _program, two: _two, body: _body } = away;
    // Tracers that fall take with them what they hold: it had been let go before.
    drop(deputy);
    eventually("it is home", || (one.process(pid).node == NODE_1).then_some(()));
    let why = reason("supervisor-crashed", "its supervisor at home ended without a word");
    assert!(one.events().iter().any(|e| e.what == Happening::CameHome { reason: why.clone() }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exit_status_of_a_process_that_is_away_is_recorded() {
    let away = Away::begin().await;
    away.deputy.say(&FromDeputy::Ended { wait_status: 3 << 8 });
    let ended = away.one.wait_for_event(|what| matches!(what, Happening::Ended { .. }));
    assert_eq!(ended, Happening::Ended { wait_status: Some(3 << 8) });
    assert!(away.one.processes().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_berth_that_nobody_comes_to_is_free_again() {
    let one = TestNode::start().await;
    let (mut short, dir) = config();
    short.berth_timeout = Duration::from_millis(300);
    // Silence would be longer than anybody here waits.
    short.handshake_timeout = PATIENCE * 4;
    let two = TestNode::start_with(short, dir).await;
    two.join(&one);
    let program = Program::start("exec sleep 1000");
    let asked = migrate(&one, program.pid(), Destination::Node(NODE_2));
    let body = two.supervisor();
    assert!(body.hear::<ToBody>().is_some());
    assert!(body.hear::<ToBody>().is_none(), "its socket is closed: it ends");
    let deputy = one.supervisor();
    let berth = leave(&deputy);
    let preface = Preface { role: Role::Deputy, ticket: berth.ticket };
    let answer = super::harness::answer_to_stranger(berth.address, &preface.encode());
    assert_eq!(answer, b"", "the ticket is worth nothing any more, which is told at once");
    deputy.say(&FromDeputy::Stayed { reason: reason("unreachable", "the berth is gone") });
    assert!(asked.join().unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_goes_down_sends_its_guests_home_and_waits_for_them() {
    let away = Away::begin().await;
    let mut client = away.two.client();
    let down = std::thread::spawn(move || client.request(&Request::Down));
    let Some((ToBody::SendHome, None)) = away.body.hear() else { panic!() };
    assert!(!down.is_finished(), "a guest is still there");
    let why = reason("node-leaves", "node 2 goes down");
    away.deputy.say(&FromDeputy::CameHome { reason: why, report: report(1) });
    away.body.say(&FromBody::Gone { reason: reason("went-home", "it went home") });
    assert_eq!(down.join().unwrap().unwrap(), Reply::Done);
    // Node 1 hears of both by ways of their own.
    let is_home = || (away.one.process(away.pid()).node == NODE_1).then_some(());
    eventually("the process is at home", is_home);
    let is_gone = || (away.one.nodes()[1].status == "gone").then_some(());
    eventually("it said that it leaves", is_gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_that_goes_down_brings_its_processes_home_first() {
    let away = Away::begin().await;
    let mut client = away.one.client();
    let down = std::thread::spawn(move || client.request(&Request::Down));
    let Some((ToDeputy::ComeHome { .. }, None)) = away.deputy.hear() else { panic!() };
    assert!(!down.is_finished(), "a process is still away");
    away.deputy.say(&FromDeputy::CameHome { reason: reason("asked", "x"), report: report(1) });
    assert_eq!(down.join().unwrap().unwrap(), Reply::Done);
}

/// Two processes that are to be on node 2 wait at home because it takes nobody now, and `keep` is
/// done to the first meanwhile: the first to go once node 2 takes some is the second.
async fn stays_home_after(keep: impl Fn(&TestNode, i32)) {
    let (one, two) = TestNode::start_pair().await;
    let owner = nix::unistd::getuid().as_raw();
    let takes = |guests| two.ask(&Request::Owner(limit(Some(guests), None))).unwrap();
    takes(LimitChange::AtMost(0));
    let programs = ["exec sleep 1000", "exec sleep 1001"].map(Program::start);
    let [kept, other] = programs.each_ref().map(Program::pid);
    for pid in [kept, other] {
        let options = placed(Placement::Node(NODE_2));
        one.ask_as(owner, Some(pid), Request::Manage(options)).await;
        one.tell(Event::CallerLeft { pid }).await;
        eventually("it was refused", || (!one.process(pid).reason.is_empty()).then_some(()));
        if pid == kept {
            keep(&one, pid);
        }
    }
    takes(LimitChange::Lifted);
    let body = two.supervisor();
    let Some((ToBody::Expect { pid, .. }, None)) = body.hear() else { panic!() };
    assert_eq!(pid, HomePid(other));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_at_home_for_the_moment_stays_there_when_its_owner_brings_all_home() {
    stays_home_after(|node, _| {
        node.ask(&Request::Owner(OwnerOrder::Bring)).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_at_home_for_the_moment_stays_there_when_its_user_wants_it_home() {
    stays_home_after(|node, pid| {
        assert_eq!(refusal(migrate(node, pid, Destination::Home)), "already-there");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_moves_a_process_again_and_again() {
    let (one, two) = TestNode::start_pair().await;
    let program = Program::start("read line; exec sleep 1000");
    let pid = program.pid();
    let options = ManageOptions { storm_ms: Some(20), ..placed(Placement::Balanced) };
    let owner = nix::unistd::getuid().as_raw();
    one.ask_as(owner, Some(pid), Request::Manage(options)).await;
    program.0.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
    one.tell(Event::CallerLeft { pid }).await;
    for _ in 0..3 {
        let _body = two.supervisor();
        let deputy = one.supervisor();
        leave(&deputy);
        deputy.say(&FromDeputy::Moved { to: NODE_2, report: report(100) });
        let Some((ToDeputy::ComeHome { .. }, None)) = deputy.hear() else { panic!() };
        deputy.say(&FromDeputy::CameHome { reason: reason("asked", "x"), report: report(100) });
    }
    eventually("six moves are counted", || (one.process(pid).migrations >= 6).then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_to_a_node_that_is_not_linked_yet_waits_for_the_link() {
    let (one, two) = TestNode::start_pair().await;
    for link in (1..=2).map(LinkId) {
        let error = std::io::ErrorKind::ConnectionReset.into();
        one.tell(Event::LinkLost { node: NODE_2, link, error }).await;
    }
    let program = Program::start("exec sleep 1000");
    let _asked = migrate(&one, program.pid(), Destination::Node(NODE_2));
    let body = two.supervisor();
    assert!(matches!(body.hear(), Some((ToBody::Expect { .. }, None))));
    leave(&one.supervisor());
}

/// As if the network had been cut.
async fn lose_link(node: &TestNode, to: NodeId) {
    for link in (1..=8).map(LinkId) {
        let error = std::io::ErrorKind::ConnectionReset.into();
        node.tell(Event::LinkLost { node: to, link, error }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_under_way_outlives_a_link_whatever_was_asked_for_before() {
    let away = Away::begin().await;
    let three = TestNode::start().await;
    three.join(&away.one);
    let linked = || away.one.nodes().get(2).is_some_and(|node| node.status == "alive");
    eventually("node 3 is linked", || linked().then_some(()));
    let (answer, answered) = oneshot::channel();
    let owner = nix::unistd::getuid().as_raw();
    let (pid, to) = (away.pid(), Destination::Node(NODE_3));
    let request =
        Request::Migrate { pid, to, freeze_budget_ms: None, way: None, is_watched: false };
    let caller = Caller { uid: owner, pid: None, node: None };
    let (connection, is_off) = (None, Arc::default());
    away.one.tell(Event::Asked(Asked { caller, connection, request, answer, is_off })).await;
    // A homecoming before node 3 can answer: it is asked again.
    let homecoming = FromDeputy::CameHome { reason: reason("mmap", "x"), report: report(1) };
    let news = News::Packet(postcard::to_stdvec(&homecoming).unwrap(), None);
    away.one.tell(Event::Supervised { id: SupervisorId(1), news }).await;
    let deputy = away.one.supervisor();
    leave(&deputy);
    // Both supervisors are at work: what becomes of the move, they know.
    lose_link(&away.one, NODE_3).await;
    deputy.say(&FromDeputy::Moved { to: NODE_3, report: report(1) });
    let Answer::One(answer) = answered.await.unwrap() else { panic!("events") };
    assert_eq!(migration(Ok(answer)).to, NODE_3);
    assert_eq!(away.one.process(away.pid()).node, NODE_3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_asked_of_a_home_whose_link_broke_is_asked_again() {
    let away = Away::begin().await;
    // Its owner wants no guest, so the brain sends it on, to the only other node.
    let guests = Some(LimitChange::AtMost(0));
    let limit = limit(guests, None);
    away.two.ask(&Request::Owner(limit)).unwrap();
    assert!(matches!(away.deputy.hear(), Some((ToDeputy::ComeHome { .. }, None))));
    // What came of it does not reach the node that asked.
    lose_link(&away.one, NODE_2).await;
    lose_link(&away.two, NODE_1).await;
    away.deputy.say(&FromDeputy::Stayed { reason: reason("busy", "not now") });
    assert!(matches!(away.deputy.hear(), Some((ToDeputy::ComeHome { .. }, None))));
}

/// What one node knows of what moves may take of another.
fn move_limits(node: &TestNode, of: NodeId) -> MoveLimits {
    let Reply::Nodes { nodes } = node.ask(&Request::Nodes).unwrap() else { panic!() };
    nodes.iter().find(|node| node.id == of).unwrap().move_limits
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_is_held_to_what_the_owners_of_both_nodes_allow() {
    let away = Away::begin().await;
    let limits = |word: &str, processors| MoveLimits {
        bandwidth: word.parse().ok(),
        processors: NonZeroU32::new(processors),
    };
    let say = |node: &TestNode, limits: MoveLimits| {
        let change = OwnerOrder::Limit {
            guests: None,
            guest_memory_bytes: None,
            freeze_budget_ms: None,
            move_bandwidth_bits_per_s: limits.bandwidth.map(LimitChange::AtMost),
            move_processors: limits.processors.map(LimitChange::AtMost),
            guests_per_user: None,
            storms_per_user: None,
        };
        node.ask(&Request::Owner(change)).unwrap();
    };
    say(&away.one, limits("1Gbit", 2));
    say(&away.two, limits("500Mbit", 3));
    let theirs = || (move_limits(&away.one, NODE_2) == limits("500Mbit", 3)).then_some(());
    eventually("its home hears of it", theirs);
    assert_eq!(move_limits(&away.one, NODE_1), limits("1Gbit", 2));
    let _asked = migrate(&away.one, away.pid(), Destination::Home);
    let Some((ToDeputy::ComeHome { limits: both, .. }, None)) = away.deputy.hear() else {
        panic!()
    };
    assert_eq!(both, limits("500Mbit", 2));
    // Who is linked later hears of it, too.
    lose_link(&away.two, NODE_1).await;
    say(&away.two, limits("2Gbit", 3));
    let theirs = || (move_limits(&away.one, NODE_2) == limits("2Gbit", 3)).then_some(());
    eventually("its home hears of that", theirs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_is_put_under_the_nodes_limits() {
    let one = TestNode::start().await;
    let (mut limited, dir) = config();
    let cgroup = dir.path().join("guests");
    std::fs::create_dir(&cgroup).unwrap();
    limited.guest_cgroup = vec![cgroup.clone()];
    let two = TestNode::start_with(limited, dir).await;
    two.join(&one);
    let program = Program::start("exec sleep 1000");
    let _asked = migrate(&one, program.pid(), Destination::Node(NODE_2));
    let body = two.supervisor();
    let Some((ToBody::Expect { guest_cgroup, .. }, None)) = body.hear() else { panic!() };
    assert_eq!(guest_cgroup, [cgroup.to_str().unwrap()]);
    let local_pid = program.pid();
    body.say(&FromBody::Running { local_pid, command: "sleep".into() });
    eventually("its pid is written where the kernel takes it", || {
        let written = std::fs::read_to_string(cgroup.join("cgroup.procs")).ok()?;
        (written == local_pid.to_string()).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_moves_at_once_has_the_memory_that_it_has() {
    let (one, two) = TestNode::start_pair().await;
    let limit = limit(None, Some(LimitChange::AtMost(1)));
    two.ask(&Request::Owner(limit)).unwrap();
    let program = Program::start("exec sleep 1000");
    // Nobody has looked at it before.
    let asked = migrate(&one, program.pid(), Destination::Node(NODE_2));
    eventually("it is refused", || asked.is_finished().then_some(()));
    let refusal = asked.join().unwrap().unwrap_err().to_string();
    assert!(refusal.contains("at most 1 bytes of memory for all guests"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_from_a_supervisor_costs_that_supervisor_only() {
    let away = Away::begin().await;
    away.body.say(&[0xffu8; 300].as_slice());
    assert!(away.body.hear::<ToBody>().is_none(), "it is dropped");
    eventually("the guest is gone", || away.two.processes().is_empty().then_some(()));
    assert!(matches!(away.two.ask(&Request::Status), Ok(Reply::Status(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_claims_root_for_a_guest_gets_a_supervisor_of_nobody() {
    let one = TestNode::start().await;
    let (mut config, dir) = config();
    // As a daemon is that nobody has told anything of users.
    config.guest_users = None;
    let two = TestNode::start_with(config, dir).await;
    two.join(&one);
    for (node, uid, gid) in [(1, 0, 0), (1, 33, 0), (1, 1234, 6)] {
        let berth = BerthRequest {
            pid: HomePid(77),
            owner: Owner { uid, gid },
            from: NodeId(node),
            rss_bytes: 1 << 20,
            cpu_us: u64::MAX,
            freeze_us: u64::MAX,
            freeze_bytes: u64::MAX,
            is_ordered: true,
            is_pinned: false,
            user_milli: u32::MAX,
            group: None,
            expected_us: 0,
        };
        let message = PeerMessage::BerthAsked { request: 1, berth };
        // Through whichever link it is that stands.
        for link in 1..4 {
            let (link, message) = (LinkId(link), message.clone());
            two.tell(Event::Said { node: NODE_1, link, message }).await;
        }
        let own = nix::unistd::getuid().as_raw();
        if own != 0 {
            // Whose daemon is an ordinary user's has no other user to give.
            eprintln!("skipped: as an ordinary user a daemon runs all guests as himself");
            return;
        }
        let owner = two.supervisor().owner;
        assert_eq!(owner.uid, if uid < 1000 { NOBODY } else { uid });
        assert_eq!(owner.gid, crate::accounts::group_of(owner.uid), "its own, not the claimed one");
        assert!(owner.gid != 0 && owner.gid != gid);
    }
    assert_eq!(two.nodes().len(), 2, "it goes on");
}

/// Whether the supervisor is told that its move is off.
fn is_called_off(deputy: &Played) -> Reason {
    match deputy.hear::<ToDeputy>() {
        Some((ToDeputy::CallOff { reason }, None)) => reason,
        other => panic!("{other:?}"),
    }
}

fn imprint_bytes(node: &TestNode) -> u64 {
    match node.ask(&Request::Status).unwrap() {
        Reply::Status(status) => status.owner.imprint_bytes,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_is_called_off_when_whoever_asked_for_it_is_gone() {
    let (one, two) = TestNode::start_pair().await;
    let program = Program::start("exec sleep 1000");
    let mut client = one.client();
    client.begin_move((None, program.pid()), Destination::Node(NODE_2), (None, None)).unwrap();
    let _body = two.supervisor();
    let deputy = one.supervisor();
    leave(&deputy);
    drop(client);
    let why = is_called_off(&deputy);
    assert_eq!(why.code, "called-off");
    deputy.say(&FromDeputy::Stayed { reason: why.clone() });
    let stayed = one.wait_for_event(|what| matches!(what, Happening::Stayed { .. }));
    assert_eq!(stayed, Happening::Stayed { reason: why });
    assert_eq!(one.process(program.pid()).state, "running");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_watches_a_move_hears_how_far_it_is_and_gets_an_answer_when_he_calls_it_off() {
    let (one, two) = TestNode::start_pair().await;
    let program = Program::start("exec sleep 1000");
    let mut client = one.client();
    client.begin_move((None, program.pid()), Destination::Node(NODE_2), (None, None)).unwrap();
    let _body = two.supervisor();
    let deputy = one.supervisor();
    leave(&deputy);
    let progress = Progress { round: 2, bytes_sent: 3, bytes_left: 4, is_filling: false };
    deputy.say(&FromDeputy::Progress(progress));
    assert_eq!(client.receive().unwrap(), Reply::Progress(progress));
    client.call_off().unwrap();
    deputy.say(&FromDeputy::Stayed { reason: is_called_off(&deputy) });
    let Err(client::Error::Refused(failure)) = client.receive() else { panic!("it moved") };
    assert_eq!(failure.code, "called-off");
    assert!(failure.text.ends_with("it stays home"), "{}", failure.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_only_needs_no_half_to_ask_more_by_has_not_called_anything_off() {
    let (one, two) = TestNode::start_pair().await;
    let program = Program::start("exec sleep 1000");
    let pid = program.pid();
    let mut stream = std::os::unix::net::UnixStream::connect(one.config.control_socket()).unwrap();
    let to = Destination::Node(NODE_2);
    let request =
        Request::Migrate { pid, to, freeze_budget_ms: None, way: None, is_watched: false };
    stream.write_all((serde_json::to_string(&request).unwrap() + "\n").as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let _body = two.supervisor();
    let deputy = one.supervisor();
    leave(&deputy);
    deputy.say(&FromDeputy::Moved { to: NODE_2, report: report(900) });
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let Ok(Reply::Migrated(migration)) = serde_json::from_str(&answer) else { panic!("{answer}") };
    assert_eq!(migration.to, NODE_2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_order_calls_off_what_goes_elsewhere() {
    let (one, two) = TestNode::start_pair().await;
    let program = Program::start("exec sleep 1000");
    let asked = migrate(&one, program.pid(), Destination::Node(NODE_2));
    let _body = two.supervisor();
    let deputy = one.supervisor();
    leave(&deputy);
    let home = migrate(&one, program.pid(), Destination::Home);
    let why = is_called_off(&deputy);
    assert!(why.text.ends_with("it is wanted on node 1"), "{}", why.text);
    deputy.say(&FromDeputy::Stayed { reason: why });
    for (asked, code) in [(asked, "called-off"), (home, "already-there")] {
        let Err(client::Error::Refused(failure)) = asked.join().unwrap() else { panic!("{code}") };
        assert_eq!(failure.code, code);
    }
    assert_eq!(one.process(program.pid()).node, NODE_1);
}

/// A page of nothing, and its place in the index.
fn imprint() -> OwnedFd {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = memfd_create(c"imprint", flags).unwrap();
    assert_eq!(nix::unistd::write(&file, &[0; 4096 + 8]), Ok(4096 + 8));
    fcntl(&file, FcntlArg::F_ADD_SEALS(migrate::imprint::seals())).unwrap();
    file
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_comes_again_meets_what_it_has_left() {
    let away = Away::begin().await;
    let home = migrate(&away.one, away.pid(), Destination::Home);
    let Some((ToDeputy::ComeHome { .. }, None)) = away.deputy.hear() else { panic!() };
    away.body.hand_over(&FromBody::Gone { reason: reason(ELSEWHERE, "x") }, &imprint());
    away.body.hand_over(&FromBody::Imprint, &imprint());
    away.deputy.say(&FromDeputy::CameHome { reason: reason("asked", "x"), report: report(400) });
    migration(home.join().unwrap());
    eventually("it is kept", || (imprint_bytes(&away.two) == 4096 + 8).then_some(()));

    let again = migrate(&away.one, away.pid(), Destination::Node(NODE_2));
    let body = away.two.supervisor();
    let Some((ToBody::Expect { .. }, None)) = body.hear() else { panic!() };
    let deputy = away.one.supervisor();
    let berth = leave(&deputy);
    let mut stream = TcpStream::connect(berth.address).unwrap();
    let preface = Preface { role: Role::Deputy, ticket: berth.ticket };
    stream.write_all(&preface.encode()).unwrap();
    let Some((ToBody::Imprint { is_own: true }, Some(file))) = body.hear() else { panic!() };
    assert_eq!(nix::sys::stat::fstat(&file).unwrap().st_size, 4096 + 8);
    let Some((ToBody::Connection { .. }, Some(_))) = body.hear() else { panic!() };
    assert_eq!(imprint_bytes(&away.two), 4096 + 8, "it may still not arrive");
    body.say(&FromBody::Running { local_pid: away.pid(), command: "sleep".into() });
    deputy.say(&FromDeputy::Moved { to: NODE_2, report: report(300) });
    migration(again.join().unwrap());
    eventually("it has it", || (imprint_bytes(&away.two) == 0).then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_guest_that_has_not_left_nothing_is_kept() {
    let away = Away::begin().await;
    away.body.say(&FromBody::Gone { reason: reason("ended", "x") });
    eventually("it is gone", || away.two.processes().is_empty().then_some(()));
    // Nobody listens any more: the daemon has hung up, or does.
    let _ = away.body.try_hand_over(&FromBody::Imprint, &imprint());
    assert!(away.body.hear::<ToBody>().is_none());
    assert_eq!(imprint_bytes(&away.two), 0);
}
