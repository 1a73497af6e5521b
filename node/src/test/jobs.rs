//! What a node has to do with jobs: servers that begin ranks, ranks that end with these, and what
//! launchers tell and are asked.

use super::harness::{NODE_1, NODE_2, PATIENCE, Program, TestNode, adopt, eventually, placed};
use crate::control::Caller;
use crate::user_servers::Kind;
use client::{Client, Error};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use wire::control::{Happening, ManageOptions, Placement, Reply, Request};
use wire::ids::{GlobalPid, HomePid, NodeId};
use wire::jobs::{Job, JobAsk, JobState, Rank, ToServer};
use wire::owner::{FileAccess, OwnerOrder};
use wire::supervisor::{Preface, Role};
use wire::{files, jobs};

const ANNA: u32 = 64_001;
const STRANGER: u32 = 65_533;

fn me() -> u32 {
    nix::unistd::geteuid().as_raw()
}

fn code(reply: Reply) -> String {
    match reply {
        Reply::Error(failure) => failure.code,
        other => panic!("not refused: {other:?}"),
    }
}

fn refused(reply: client::Result<Reply>) -> String {
    match reply {
        Err(Error::Refused(failure)) => failure.code,
        other => panic!("not refused: {other:?}"),
    }
}

fn at(node: NodeId, request: Request) -> Request {
    Request::At { node, request: Box::new(request) }
}

fn global(home: NodeId, pid: i32) -> GlobalPid {
    GlobalPid { home, pid: HomePid(pid) }
}

fn share_jobs(on: bool) -> Request {
    Request::Owner(OwnerOrder::ShareJobs { on })
}

/// Whom a node knows to be its launcher: this process.
fn own_pid() -> i32 {
    std::process::id() as i32
}

fn job(home: NodeId, pid: i32, name: &str) -> Job {
    Job {
        job: global(home, pid),
        name: name.to_owned(),
        // Nobody asks him.
        uid: 4711,
        user: Some("somebody".to_owned()),
        command: "awk".to_owned(),
        state: JobState::Running,
        started: 1.0,
        ended: None,
        ranks: 2,
        running: 2,
        failed: 0,
        nodes: vec![(home, 2)],
        exit_status: None,
        logs: None,
    }
}

fn ask(ask: JobAsk) -> Request {
    Request::AskJob { pid: own_pid(), ask }
}

fn jobs_of(node: &TestNode) -> Vec<Job> {
    match node.ask(&Request::Jobs).unwrap() {
        Reply::Jobs { jobs } => jobs,
        other => panic!("{other:?}"),
    }
}

/// Where this process hears what is asked of its job on a node.
struct Launcher {
    listener: UnixListener,
    name: String,
    /// The connection that stands for the job.
    held: Client,
}

impl Launcher {
    fn of(node: &TestNode, name: &str) -> Launcher {
        let socket = format!("osmos-test-{}-{name}", node.node.address);
        let address = SocketAddr::from_abstract_name(&socket).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let mut launcher = Launcher { listener, name: socket, held: node.client() };
        let held = launcher.tell(job(NODE_1, own_pid(), name));
        assert_eq!(held.unwrap(), Reply::Done);
        launcher
    }

    fn tell(&mut self, of: Job) -> client::Result<Reply> {
        let socket = self.name.clone();
        self.held.request(&Request::HoldJob { of: Box::new(of), socket })
    }

    /// The next question, and by what it is answered.
    fn hear(&self) -> (JobAsk, UnixStream) {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        (serde_json::from_str(&line).unwrap(), stream)
    }

    /// What a tool is told that asks a node this, where the launcher is asked so and answers so.
    fn answering(
        &self,
        (asked, answer): (JobAsk, &Reply),
        (node, request): (&TestNode, &Request),
    ) -> client::Result<Reply> {
        let mut tool = node.client();
        tool.send(request).unwrap();
        let (heard, mut stream) = self.hear();
        assert_eq!(heard, asked);
        let line = serde_json::to_string(answer).unwrap() + "\n";
        stream.write_all(line.as_bytes()).unwrap();
        tool.receive()
    }
}

fn adopt_rank(pid: i32, job: GlobalPid) -> Request {
    let options = Some(Box::new(placed(Placement::Home)));
    Request::Adopt { pid, options, job: Some(job) }
}

/// A server, a rank that it has begun and that has started two more, and their job.
async fn with_ranks(node: &TestNode) -> (Program, Program, GlobalPid) {
    let server = Program::start("exec sleep 1000");
    let rank = Program::start("sleep 1000 & sleep 1000 & wait");
    let job = global(NODE_2, 77);
    let adopted = node.ask_as(me(), Some(server.pid()), adopt_rank(rank.pid(), job)).await;
    assert_eq!(adopted, Reply::Done);
    eventually("what it has started is found", || (node.processes().len() == 3).then_some(()));
    (server, rank, job)
}

fn end(mut server: Program) {
    server.0.kill().unwrap();
    server.0.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_and_all_that_it_has_started_end_with_the_server_that_has_begun_it() {
    let node = TestNode::start().await;
    let bystander = Program::start("exec sleep 1000");
    let (server, mut rank, job) = with_ranks(&node).await;
    assert_eq!(node.ask(&adopt(bystander.pid())).unwrap(), Reply::Done);
    for process in node.processes() {
        let is_bystander = process.pid == bystander.pid();
        assert_eq!(process.job, (!is_bystander).then_some(job), "{process:?}");
        let state = if is_bystander { "running" } else { "pinned" };
        assert_eq!(process.state, state, "{process:?}");
    }
    end(server);
    let ended = eventually("it has ended", || rank.0.try_wait().unwrap());
    assert_eq!(ended.signal(), Some(9));
    eventually("nothing is left of them", || (node.processes().len() == 1).then_some(()));
    assert_eq!(node.process(bystander.pid()).job, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ended_while_there_was_no_daemon_is_missed_by_the_next() {
    let node = TestNode::start().await;
    let (server, mut rank, job) = with_ranks(&node).await;
    let (mut config, dir) = (node.config.clone(), node.dir.clone());
    assert_eq!(node.ask(&Request::HandOver).unwrap(), Reply::Done);
    node.node.wait().await;
    config.listen = "127.0.0.1:0".parse().unwrap();
    // As long as the server is there, so are they.
    let next = TestNode::start_with(config.clone(), dir.clone()).await;
    assert!(next.processes().iter().all(|process| process.job == Some(job)));
    assert_eq!(next.processes().len(), 3);
    assert_eq!(next.ask(&Request::HandOver).unwrap(), Reply::Done);
    next.node.wait().await;
    end(server);
    assert!(rank.0.try_wait().unwrap().is_none(), "there was nobody to end it");
    let last = TestNode::start_with(config, dir).await;
    let ended = eventually("it has ended", || rank.0.try_wait().unwrap());
    assert_eq!(ended.signal(), Some(9));
    eventually("nothing is left of them", || last.processes().is_empty().then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_one_that_is_there_begins_ranks_and_only_of_its_users_job() {
    let node = TestNode::start().await;
    let rank = Program::start("exec sleep 1000");
    let pid = rank.pid();
    let of = |options: ManageOptions| Request::Adopt {
        pid,
        options: Some(Box::new(options)),
        job: None,
    };
    let timed = ManageOptions { is_timed: true, ..placed(Placement::Home) };
    assert_eq!(refused(node.ask(&of(timed))), "cannot-adopt");
    let stormy = ManageOptions { storm_ms: Some(0), ..placed(Placement::Home) };
    assert_eq!(refused(node.ask(&of(stormy))), "bad-storm");
    let elsewhere = placed(Placement::Node(NodeId(9)));
    assert_eq!(refused(node.ask(&of(elsewhere))), "no-node");
    let ranked = adopt_rank(pid, global(NODE_1, 5));
    assert_eq!(code(node.ask_as(me(), None, ranked).await), "no-pid");
    assert!(node.processes().is_empty(), "nothing was done");
    // Options of one that is managed change.
    assert_eq!(node.ask(&adopt(pid)).unwrap(), Reply::Done);
    assert_eq!(node.process(pid).state, "running");
    assert_eq!(node.ask(&of(placed(Placement::Home))).unwrap(), Reply::Done);
    assert_eq!(node.process(pid).state, "pinned");
    // A job that is somebody else's has no ranks of his.
    let launcher = Program::start("exec sleep 1000");
    let caller = Caller { uid: ANNA, pid: Some(launcher.pid()), node: None };
    let of = Box::new(job(NODE_1, launcher.pid(), ""));
    let hold = Request::HoldJob { of, socket: "nowhere".into() };
    assert_eq!(node.ask_over(Some(1), caller, hold).await, Reply::Done);
    let ranked = adopt_rank(pid, global(NODE_1, launcher.pid()));
    let reply = node.ask_as(STRANGER, Some(own_pid()), ranked).await;
    assert_eq!(code(reply), "not-allowed");
    assert_eq!(node.process(pid).job, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_of_a_job_its_launcher_answers() {
    let node = TestNode::start().await;
    let mut launcher = Launcher::of(&node, "fold");
    let [of] = <[Job; 1]>::try_from(jobs_of(&node)).unwrap();
    assert_eq!((of.uid, of.job, of.state), (me(), global(NODE_1, own_pid()), JobState::Running));
    assert_ne!(of.user.as_deref(), Some("somebody"), "who it is nobody says but the kernel");
    let rank = Rank { rank: 1, node: NODE_1, pid: Some(5), state: "running".into() };
    let shown = Reply::Job {
        of: Box::new(Job { job: global(NODE_2, 1), running: 1, ..job(NODE_1, 1, "fold") }),
        members: vec![rank.clone()],
    };
    let shown = launcher.answering((JobAsk::Show, &shown), (&node, &ask(JobAsk::Show)));
    let of = Box::new(Job { running: 1, ..of });
    assert_eq!(shown.unwrap(), Reply::Job { of, members: vec![rank] });
    let signal = JobAsk::Signal { signal: 15, rank: Some(1) };
    for asked in [signal, JobAsk::Kill] {
        let done = launcher.answering((asked, &Reply::Done), (&node, &ask(asked)));
        assert_eq!(done.unwrap(), Reply::Done);
        // Nobody asks the launcher for others than its user and root.
        assert_eq!(code(node.ask_as(STRANGER, None, ask(asked)).await), "not-allowed");
    }
    let nonsense = JobAsk::Signal { signal: 99, rank: None };
    assert_eq!(refused(node.ask(&ask(nonsense))), "bad-signal");
    let odd = Reply::AllAnswered;
    let odd = launcher.answering((JobAsk::Show, &odd), (&node, &ask(JobAsk::Show)));
    assert_eq!(refused(odd), "bad-answer");
    assert!(matches!(
        node.ask(&Request::AskJob { pid: 1, ask: JobAsk::Show }),
        Err(Error::Refused(failure)) if failure.code == "no-job"
    ));
    launcher.listener.set_nonblocking(true).unwrap();
    assert_eq!(launcher.listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    // What it says last of it is what is known.
    let ended = Job {
        state: JobState::Ended,
        exit_status: Some(3),
        ended: Some(9.0),
        ..job(NODE_1, own_pid(), "fold")
    };
    assert_eq!(launcher.tell(ended.clone()).unwrap(), Reply::Done);
    for asked in [JobAsk::Show, JobAsk::Wait] {
        let Reply::Job { of, members } = node.ask(&ask(asked)).unwrap() else { panic!() };
        assert_eq!((of.exit_status, of.ended, members), (Some(3), Some(9.0), vec![]));
    }
    assert_eq!(refused(node.ask(&ask(JobAsk::Kill))), "ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_hears_of_the_end_although_the_launcher_says_nothing() {
    let node = TestNode::start().await;
    let Launcher { listener, name: _, held } = Launcher::of(&node, "fold");
    let mut waiting = node.client();
    waiting.send(&ask(JobAsk::Wait)).unwrap();
    let (stream, _) = listener.accept().unwrap();
    // The launcher is killed: the kernel closes what it has, one after the other.
    drop((listener, stream));
    drop(held);
    let Reply::Job { of, members } = waiting.receive().unwrap() else { panic!() };
    assert_eq!((of.state, of.exit_status, of.running), (JobState::Ended, None, 0));
    assert!(of.ended.is_some() && members.is_empty());
    assert_eq!(jobs_of(&node), [*of]);
    assert_eq!(refused(node.ask(&ask(JobAsk::Kill))), "ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_leaves_waits_no_more() {
    let node = TestNode::start().await;
    let launcher = Launcher::of(&node, "fold");
    let mut waiting = UnixStream::connect(node.config.control_socket()).unwrap();
    let line = serde_json::to_string(&ask(JobAsk::Wait)).unwrap() + "\n";
    waiting.write_all(line.as_bytes()).unwrap();
    let (heard, mut stream) = launcher.hear();
    assert_eq!(heard, JobAsk::Wait);
    drop(waiting);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the daemon leaves the launcher, too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_told_of_by_its_launcher_alone_and_has_its_name_alone() {
    let node = TestNode::start().await;
    let mut launcher = Launcher::of(&node, "fold");
    let other = Program::start("exec sleep 1000");
    for of in [job(NODE_1, other.pid(), ""), job(NODE_2, own_pid(), "")] {
        assert_eq!(refused(launcher.tell(of)), "not-the-launcher");
    }
    let hold = |pid, name| Request::HoldJob {
        of: Box::new(job(NODE_1, pid, name)),
        socket: "nowhere".into(),
    };
    // Through another node, say.
    let caller = Caller { uid: me(), pid: Some(other.pid()), node: None };
    let reply = node.ask_over(None, caller, hold(other.pid(), "")).await;
    assert_eq!(code(reply), "not-the-launcher");
    let reply = node.ask_over(Some(900), caller, hold(other.pid(), "fold")).await;
    assert_eq!(code(reply), "name-taken");
    let anna = Caller { uid: ANNA, ..caller };
    let reply = node.ask_over(Some(900), anna, hold(other.pid(), "fold")).await;
    assert_eq!(reply, Reply::Done);
    let listed: Vec<u32> = jobs_of(&node).iter().map(|of| of.uid).collect();
    assert!(listed.len() == 2 && listed.contains(&ANNA) && listed.contains(&me()));
    assert_eq!(refused(node.ask(&at(NODE_1, hold(own_pid(), "x")))), "not-the-launcher");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_of_another_user_is_no_launchers_and_root_is_recorded() {
    if me() != 0 {
        return needs::skip("only root may act on jobs of others");
    }
    let node = TestNode::start().await;
    let program = Program::start("exec sleep 1000");
    let socket = format!("osmos-test-{}-stolen", node.node.address);
    let address = SocketAddr::from_abstract_name(&socket).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let of = Box::new(job(NODE_1, program.pid(), ""));
    let anna = Caller { uid: ANNA, pid: Some(program.pid()), node: None };
    let held = node.ask_over(Some(900), anna, Request::HoldJob { of, socket }).await;
    assert_eq!(held, Reply::Done);
    let asked = JobAsk::Signal { signal: 15, rank: None };
    let asked = Request::AskJob { pid: program.pid(), ask: asked };
    assert_eq!(refused(node.ask(&asked)), "no-answer");
    let (mut stream, _) = listener.accept().unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it is asked nothing");
    let acted = Happening::ActedOn { uid: 0, by_node: None, act: "signal 15".into() };
    let of_job = Some(global(NODE_1, program.pid()));
    assert!(node.events().iter().any(|event| event.pid == of_job && event.what == acted));
    // Anna's own act is nobody's business, and she may.
    assert_eq!(code(node.ask_as(ANNA, None, asked).await), "no-answer");
    let acts = node.events().into_iter();
    let acts = acts.filter(|event| matches!(event.what, Happening::ActedOn { .. }));
    assert_eq!(acts.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_node_are_seen_and_ended_from_others() {
    let (one, two) = TestNode::start_pair().await;
    let launcher = Launcher::of(&one, "fold");
    let Reply::Jobs { jobs } = two.ask(&at(NODE_1, Request::Jobs)).unwrap() else { panic!() };
    assert_eq!(jobs, jobs_of(&one));
    let mut everywhere = Vec::new();
    let take = |node, reply: Result<Reply, _>| {
        let Ok(Reply::Jobs { jobs }) = reply else { panic!("{reply:?}") };
        everywhere.push((node, jobs.len()));
        true
    };
    two.client().everywhere(Request::Jobs, take).unwrap();
    everywhere.sort();
    assert_eq!(everywhere, [(NODE_1, 1), (NODE_2, 0)]);
    let asked = at(NODE_1, ask(JobAsk::Kill));
    if me() == 0 {
        let done = launcher.answering((JobAsk::Kill, &Reply::Done), (&two, &asked));
        assert_eq!(done.unwrap(), Reply::Done);
        assert_eq!(code(two.ask_as(STRANGER, None, asked).await), "not-allowed");
    }
    let mut waiting = two.client();
    waiting.send(&at(NODE_1, ask(JobAsk::Wait))).unwrap();
    let (heard, mut stream) = launcher.hear();
    assert_eq!(heard, JobAsk::Wait);
    drop(waiting);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it does not wait any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_begins_ranks_for_users_of_others_where_its_owner_lets_it() {
    let (one, two) = TestNode::start_pair().await;
    let serve = |home| Request::ServeJob { job: global(home, 77), user: None };
    let there = at(NODE_2, serve(NODE_1));
    assert_eq!(refused(one.ask(&there)), "jobs-not-taken");
    // Its own user has what is his anyway.
    assert!(matches!(two.ask(&serve(NODE_2)), Ok(Reply::JobServer(_))));
    let own = two.user_server();
    assert!(matches!(own.hear(), Some((ToServer::Serve { .. }, None))));
    assert!(matches!(two.ask(&share_jobs(true)), Ok(Reply::Owned(owned)) if owned.state.jobs));
    assert_eq!(refused(one.ask(&at(NODE_2, serve(NODE_2)))), "bad-job");
    assert_eq!(refused(two.ask(&serve(NODE_1))), "bad-job");
    let Reply::JobServer(berth) = one.ask(&there).unwrap() else { panic!() };
    assert_eq!((berth.node, berth.address), (NODE_2, two.node.address));
    let server = two.user_server();
    assert_eq!(server.kind, Kind::Jobs);
    let told = server.hear::<ToServer>().unwrap().0;
    let ToServer::Serve { key, job, node, uid, groups, .. } = told else { panic!("{told:?}") };
    assert_eq!((key, job, node), (berth.key, global(NODE_1, 77), NODE_2));
    assert_eq!((uid, groups.is_some()), (me(), me() == 0));
    // Who comes with its ticket, and in its role, is handed to it, once.
    let come = |role| {
        let mut stream = std::net::TcpStream::connect(berth.address).unwrap();
        stream.write_all(&Preface { role, ticket: berth.ticket }.encode()).unwrap();
        stream
    };
    let mut wrong = come(Role::Files);
    assert_eq!(wrong.read(&mut [0]).unwrap(), 0, "no file server has this ticket");
    let mut right = come(Role::Job);
    let Some((ToServer::Connection, Some(stream))) = server.hear() else { panic!() };
    std::net::TcpStream::from(stream).write_all(b"x").unwrap();
    right.read_exact(&mut [0]).unwrap();
    assert_eq!(come(Role::Job).read(&mut [0]).unwrap(), 0, "nobody waits for it any more");
    // What the owner takes back ends those of jobs, and of nothing else.
    let sharing = OwnerOrder::ShareFiles { access: FileAccess::Read };
    assert!(two.ask(&Request::Owner(sharing)).is_ok());
    let files = one.ask(&at(NODE_2, Request::ServeFiles { user: None }));
    assert!(matches!(files, Ok(Reply::FileServer(_))));
    let files = two.user_server();
    assert_eq!(files.kind, Kind::Files);
    assert!(matches!(files.hear(), Some((files::ToServer::Serve { .. }, None))));
    assert!(two.ask(&share_jobs(false)).is_ok());
    for server in [&server, &own] {
        assert!(matches!(server.hear(), Some((jobs::ToServer::End, None))));
    }
    assert_eq!(refused(one.ask(&there)), "jobs-not-taken");
    assert_eq!(two.ask(&Request::Down).unwrap(), Reply::Done);
    assert!(matches!(files.hear(), Some((files::ToServer::End, None))), "not before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_closed_begins_none_of_others_and_ends_all_when_it_goes_down() {
    let (one, two) = TestNode::start_pair().await;
    let there = at(NODE_2, Request::ServeJob { job: global(NODE_1, 77), user: None });
    assert!(two.ask(&share_jobs(true)).is_ok());
    for (order, back) in [
        (OwnerOrder::Block { on: true }, OwnerOrder::Block { on: false }),
        (OwnerOrder::Drain { on: true }, OwnerOrder::Drain { on: false }),
    ] {
        assert!(two.ask(&Request::Owner(order)).is_ok());
        assert_eq!(refused(one.ask(&there)), "closed");
        assert!(two.ask(&Request::Owner(back)).is_ok());
    }
    assert!(matches!(one.ask(&there), Ok(Reply::JobServer(_))));
    let server = two.user_server();
    assert!(matches!(server.hear(), Some((ToServer::Serve { .. }, None))));
    assert_eq!(two.ask(&Request::Down).unwrap(), Reply::Done);
    assert!(matches!(server.hear(), Some((ToServer::End, None))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_hands_over_ends_no_job_server() {
    let node = TestNode::start().await;
    let serve = Request::ServeJob { job: global(NODE_1, 77), user: None };
    assert!(matches!(node.ask(&serve), Ok(Reply::JobServer(_))));
    let server = node.user_server();
    assert!(matches!(server.hear(), Some((ToServer::Serve { .. }, None))));
    assert_eq!(node.ask(&Request::HandOver).unwrap(), Reply::Done);
    node.node.wait().await;
    assert!(server.hear::<ToServer>().is_none(), "it hears that its daemon is gone, and no more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn root_alone_has_a_server_started_for_another() {
    if me() != 0 {
        return needs::skip("only root's daemon has a table of users");
    }
    let (one, two) = TestNode::start_pair().await;
    assert!(two.ask(&share_jobs(true)).is_ok());
    let for_anna = Request::ServeJob { job: global(NODE_1, 77), user: Some(ANNA) };
    let there = at(NODE_2, for_anna.clone());
    assert_eq!(code(one.ask_as(STRANGER, None, there.clone()).await), "not-allowed");
    assert_eq!(code(one.ask_as(STRANGER, None, for_anna).await), "not-allowed");
    assert!(matches!(one.ask(&there), Ok(Reply::JobServer(_))));
    let told = two.user_server().hear::<ToServer>().unwrap().0;
    assert!(matches!(told, ToServer::Serve { uid: ANNA, .. }), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_are_spread_over_nodes_that_are_there() {
    let node = TestNode::start().await;
    let spread = |ranks, per_node, nodes: &[u32]| {
        let nodes = nodes.iter().copied().map(NodeId).collect();
        node.ask(&Request::Spread { ranks, per_node, nodes })
    };
    let all_here = Reply::Spread { nodes: vec![(NODE_1, 3)] };
    assert_eq!(spread(3, None, &[]).unwrap(), all_here);
    assert_eq!(spread(3, Some(3), &[1, 1]).unwrap(), all_here);
    let Err(Error::Refused(failure)) = spread(3, Some(2), &[]) else { panic!("they fit") };
    assert_eq!(failure.code, "too-many-ranks");
    assert!(failure.text.contains("2 in all"), "{}", failure.text);
    assert_eq!(refused(spread(3, None, &[9])), "no-node");
    for (ranks, per_node) in [(0, None), (jobs::RANKS_MAX + 1, None), (1, Some(0))] {
        assert_eq!(refused(spread(ranks, per_node, &[])), "bad-ranks");
    }
    assert!(node.ask(&Request::Owner(OwnerOrder::Drain { on: true })).is_ok());
    assert_eq!(refused(spread(3, None, &[])), "no-node");
    assert_eq!(spread(3, None, &[1]).unwrap(), all_here, "who names it wants it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_launchers_take_no_place_from_tools() {
    let node = TestNode::start().await;
    let mut launcher = Launcher::of(&node, "fold");
    // Far more than there are places of one user: the oldest of them have to go.
    let tools: Vec<Client> = (0..200).map(|_| node.client()).collect();
    assert!(matches!(node.ask(&Request::Status), Ok(Reply::Status(_))));
    assert_eq!(launcher.tell(job(NODE_1, own_pid(), "fold")).unwrap(), Reply::Done);
    drop((tools, launcher));
    eventually("it has ended", || (jobs_of(&node)[0].state == JobState::Ended).then_some(()));
}
