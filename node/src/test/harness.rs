//! Nodes to test with, and a supervisor's side to play.

use crate::config::Config;
use crate::control::{Answer, Asked, Caller};
use crate::daemon::{Event, Node, start};
use crate::spawning::{Spawn, Started};
use crate::supervisor::packet_pair;
use crate::user_servers::{self, Kind};
use client::Client;
use nix::sys::socket::{MsgFlags, setsockopt, sockopt};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::oneshot;
use wire::assignment::Half;
use wire::control::{
    Event as Happened, Happening, ManageOptions, Placement, Process, Reply, Request,
};
use wire::ids::NodeId;
use wire::peer::Owner;
use wire::supervisor::{FromDaemon, Way};
use wire::users::UserTable;

/// Nothing here takes nearly so long; a test that waits longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// What strangers are given in tests.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_millis(700);

/// Hands the other end of each supervisor's and server's socket to the test.
struct PlayedSpawn {
    supervisors: Mutex<mpsc::Sender<Played>>,
    servers: Mutex<mpsc::Sender<PlayedServer>>,
}

impl Spawn for PlayedSpawn {
    fn spawn(&self, half: Half, owner: Owner) -> io::Result<Started> {
        let (socket, theirs) = packet_pair()?;
        let patience = nix::sys::time::TimeVal::new(PATIENCE.as_secs() as i64, 0);
        setsockopt(&theirs, sockopt::ReceiveTimeout, &patience)?;
        let played = Played { half, owner, socket: theirs };
        self.supervisors.lock().unwrap().send(played).map_err(io::Error::other)?;
        Ok(Started { half, socket, child: None })
    }

    fn user_server(&self, kind: Kind, _door: &Path) -> io::Result<user_servers::Started> {
        let (socket, theirs) = packet_pair()?;
        let patience = nix::sys::time::TimeVal::new(PATIENCE.as_secs() as i64, 0);
        setsockopt(&theirs, sockopt::ReceiveTimeout, &patience)?;
        let played = PlayedServer { kind, socket: theirs };
        self.servers.lock().unwrap().send(played).map_err(io::Error::other)?;
        Ok(user_servers::Started { socket, child: None })
    }
}

/// A server for a user that the test plays.
pub struct PlayedServer {
    pub kind: Kind,
    socket: OwnedFd,
}

impl PlayedServer {
    /// What it is told next, and the descriptor that comes along. None at the end.
    pub fn hear<T: serde::de::DeserializeOwned>(&self) -> Option<(T, Option<OwnedFd>)> {
        hear_on(&self.socket)
    }
}

/// The next message on a socket of a daemon.
fn hear_on<T: serde::de::DeserializeOwned>(socket: &OwnedFd) -> Option<(T, Option<OwnedFd>)> {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, &mut buffers, &mut rights, RecvFlags::empty());
    let length = received.expect("the daemon says something in time").bytes;
    let descriptor = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let message = (length > 0).then(|| postcard::from_bytes(&bytes[..length]).unwrap());
    message.map(|message| (message, descriptor))
}

/// A supervisor that the test plays.
pub struct Played {
    pub half: Half,
    pub owner: Owner,
    socket: OwnedFd,
}

impl Played {
    /// One that no daemon has started, and what a daemon is to have of it.
    pub fn by_itself(&self) -> (Played, OwnedFd) {
        let (socket, theirs) = packet_pair().unwrap();
        let patience = nix::sys::time::TimeVal::new(PATIENCE.as_secs() as i64, 0);
        setsockopt(&theirs, sockopt::ReceiveTimeout, &patience).unwrap();
        (Played { half: self.half, owner: self.owner, socket: theirs }, socket)
    }

    pub fn say<T: serde::Serialize>(&self, message: &T) {
        let bytes = postcard::to_stdvec(message).unwrap();
        nix::sys::socket::send(self.socket.as_raw_fd(), &bytes, MsgFlags::empty()).unwrap();
    }

    /// With a descriptor.
    pub fn hand_over<T: serde::Serialize>(&self, message: &T, descriptor: &OwnedFd) {
        assert!(self.try_hand_over(message, descriptor).unwrap());
    }

    pub fn try_hand_over<T: serde::Serialize>(
        &self,
        message: &T,
        descriptor: &OwnedFd,
    ) -> kernel::Result<bool> {
        let bytes = postcard::to_stdvec(message).unwrap();
        kernel::packet::send_with(&self.socket, &bytes, descriptor)
    }

    /// The next order, and the descriptor that came along. None at the end.
    pub fn hear<T: serde::de::DeserializeOwned>(&self) -> Option<(T, Option<OwnedFd>)> {
        loop {
            match self.hear_any()? {
                (FromDaemon::Order(order), descriptor) => return Some((order, descriptor)),
                (FromDaemon::Noted, _) => (),
            }
        }
    }

    fn hear_any<T: serde::de::DeserializeOwned>(&self) -> Option<(T, Option<OwnedFd>)> {
        hear_on(&self.socket)
    }
}

/// One node and everything that a test does with it.
pub struct TestNode {
    pub config: Config,
    pub node: Node,
    supervisors: mpsc::Receiver<Played>,
    servers: mpsc::Receiver<PlayedServer>,
    pub dir: Arc<TempDir>,
}

/// Before any other word about them in this process: supervisors are played, so it does not matter
/// what this kernel has; in a chroot, say, it gives nobody a user namespace, and nodes would take
/// no guests.
pub fn settle_features() {
    // But for what would be handed to them.
    let words = ["--without", "kernel-faults"].map(str::to_owned);
    kernel::features::inherit(&words).expect("a feature that there is");
}

/// A configuration in fresh directories.
pub fn config() -> (Config, Arc<TempDir>) {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let path = |name: &str| -> PathBuf { dir.path().join(name) };
    let mut config = Config::in_dirs(path("run"), path("state"));
    config.listen = "127.0.0.1:0".parse().unwrap();
    config.speed = Some(1.0);
    config.handshake_timeout = HANDSHAKE_TIMEOUT;
    // Who runs the tests owns the programs in them, root or not.
    config.lends_root = Some(true);
    config.guest_users = Some(UserTable::same());
    (config, dir)
}

impl TestNode {
    pub async fn start() -> TestNode {
        let (config, dir) = config();
        TestNode::start_with(config, dir).await
    }

    pub async fn start_with(config: Config, dir: Arc<TempDir>) -> TestNode {
        settle_features();
        let (sender, supervisors) = mpsc::channel();
        let (server_sender, servers) = mpsc::channel();
        let spawn =
            PlayedSpawn { supervisors: Mutex::new(sender), servers: Mutex::new(server_sender) };
        let node = start(config.clone(), Arc::new(spawn)).await.unwrap();
        TestNode { config, node, supervisors, servers, dir }
    }

    /// Two nodes, 1 and 2, of one cluster.
    pub async fn start_pair() -> (TestNode, TestNode) {
        let one = TestNode::start().await;
        let two = TestNode::start().await;
        two.join(&one);
        (one, two)
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.config.control_socket()).unwrap()
    }

    pub fn ask(&self, request: &Request) -> client::Result<Reply> {
        self.client().request(request)
    }

    pub fn token(&self) -> String {
        match self.ask(&Request::Token).unwrap() {
            Reply::Token { token } => token,
            other => panic!("{other:?}"),
        }
    }

    /// Joins the cluster of `other` and waits until both are linked.
    pub fn join(&self, other: &TestNode) {
        let address = other.node.address.to_string();
        let reply = self.ask(&Request::Join { address, token: other.token() });
        assert_eq!(reply.unwrap(), Reply::Done);
    }

    /// Asks as somebody else.
    pub async fn ask_as(&self, uid: u32, pid: Option<i32>, request: Request) -> Reply {
        self.ask_over(None, Caller { uid, pid, node: None }, request).await
    }

    /// The same over a connection that there is not.
    pub async fn ask_over(
        &self,
        connection: Option<u64>,
        caller: Caller,
        request: Request,
    ) -> Reply {
        let (answer, answered) = oneshot::channel();
        let is_off = Default::default();
        let asked = Asked { caller, connection, request, answer, is_off };
        self.tell(Event::Asked(asked)).await;
        match answered.await.unwrap() {
            Answer::One(reply) => reply,
            Answer::Passed(mut inquiry) => {
                inquiry.next().await.unwrap().unwrap_or_else(Reply::Error)
            }
            Answer::Everywhere { .. } | Answer::Events { .. } | Answer::Moving { .. } => {
                panic!("more than an answer")
            }
        }
    }

    pub async fn tell(&self, event: Event) {
        self.node.events().send(event).await.ok().unwrap();
    }

    pub fn events(&self) -> Vec<Happened> {
        self.client().events(false).unwrap().map(|event| event.unwrap()).collect()
    }

    /// Waits for something to happen that is recorded.
    pub fn wait_for_event(&self, is_it: impl Fn(&Happening) -> bool) -> Happening {
        for event in self.client().events(true).unwrap() {
            let event = event.unwrap();
            if is_it(&event.what) {
                return event.what;
            }
        }
        panic!("the daemon ended before it happened");
    }

    pub fn processes(&self) -> Vec<Process> {
        match self.ask(&Request::Processes).unwrap() {
            Reply::Processes { processes } => processes,
            other => panic!("{other:?}"),
        }
    }

    pub fn process(&self, pid: i32) -> Process {
        let processes = self.processes();
        processes.into_iter().find(|process| process.pid == pid).expect("the process is listed")
    }

    pub fn nodes(&self) -> Vec<wire::control::Node> {
        match self.ask(&Request::Nodes).unwrap() {
            Reply::Nodes { nodes } => nodes,
            other => panic!("{other:?}"),
        }
    }

    /// The next supervisor that this node starts.
    pub fn supervisor(&self) -> Played {
        self.supervisors.recv_timeout(PATIENCE).expect("a supervisor is started in time")
    }

    /// The next server for a user that this node starts.
    pub fn user_server(&self) -> PlayedServer {
        self.servers.recv_timeout(PATIENCE).expect("a server is started in time")
    }
}

/// As anybody is who is put under Osmos.
pub fn adopt(pid: i32) -> Request {
    Request::Adopt { pid, options: None, job: None }
}

/// Managed so, and as usual otherwise.
pub fn placed(placement: Placement) -> ManageOptions {
    ManageOptions {
        placement,
        storm_ms: None,
        cpu_baseline: false,
        freeze_budget_ms: None,
        way: Way::PreCopy,
        is_timed: false,
        is_mobile: false,
    }
}

/// Asks again and again until the answer is there.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A program that runs until the test is over.
pub struct Program(pub Child);

impl Program {
    pub fn start(script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::null());
        Program(command.spawn().unwrap())
    }

    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Everything that a node sends to a stranger who says `words`, until it closes the connection.
pub fn answer_to_stranger(address: SocketAddr, words: &[u8]) -> Vec<u8> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(words).unwrap();
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => (),
        // Closed with something unread: that is no byte either.
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
    answer
}

pub const NODE_1: NodeId = NodeId(1);
pub const NODE_2: NodeId = NodeId(2);
pub const NODE_3: NodeId = NodeId(3);
