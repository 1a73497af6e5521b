//! A tool's connection to its node daemon: typed requests and replies over the control socket.
//!
//! Blocking on purpose: tools do one thing at a time. The daemon knows who calls by the socket's
//! peer credentials, so nothing here says who one is. [`words`] is how tools show what they get,
//! [`signals`] how people name signals, [`events`] which
//! events were told; [`picture`] and [`rates`] are what those have in common
//! that show the whole cluster.

pub mod events;
pub mod picture;
pub mod rates;
pub mod signals;
pub mod words;

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::control::{
    Destination, Event, Failure, Node, Process, Reply, Request, SOCKET_NAME, runtime_dir_default,
};
use wire::freeze_budget::FreezeBudget;
use wire::ids::NodeId;
use wire::limits::CONTROL_BYTES_MAX;
use wire::supervisor::Way;

/// Why a request got no answer, or not the one it wanted. Texts are lower-case fragments.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no osmos daemon here (socket {}): start one with `osmos up`", .0.display())]
    NoDaemon(PathBuf),
    #[error("cannot connect to the osmos daemon (socket {})", path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error("lost the connection to the osmos daemon")]
    Lost(#[source] io::Error),
    #[error("the osmos daemon closed the connection before it answered: see `osmos events`")]
    Closed,
    #[error("the osmos daemon sent a line of more than {CONTROL_BYTES_MAX} bytes")]
    TooLong,
    #[error("the osmos daemon answered in a form this tool does not know: update the older one")]
    Form(#[source] serde_json::Error),
    #[error("{}", .0.text)]
    Refused(Failure),
    #[error("the osmos daemon answered {got}, not {wanted}: update the older one")]
    Unexpected { wanted: &'static str, got: String },
}

/// An error with its causes, in a line.
pub fn told(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

pub type Result<T> = std::result::Result<T, Error>;

/// The control socket a tool talks to unless told otherwise: this user's daemon if it runs, else
/// the machine's, which serves every user.
pub fn socket_default(uid: u32) -> PathBuf {
    let xdg_runtime_dir =
        std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let own = runtime_dir_default(uid, xdg_runtime_dir).join(SOCKET_NAME);
    if own.exists() { own } else { runtime_dir_default(0, None).join(SOCKET_NAME) }
}

/// What a node says, or why it does not.
pub type Said = (NodeId, std::result::Result<Reply, Failure>);

/// An open connection to a node daemon. Requests are answered in order.
pub struct Client {
    path: PathBuf,
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Client {
    /// Connects to the daemon whose control socket is at `path`.
    pub fn connect(path: &Path) -> Result<Client> {
        let writer = UnixStream::connect(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                Error::NoDaemon(path.to_owned())
            }
            _ => Error::Connect { path: path.to_owned(), source },
        })?;
        let reader = BufReader::new(writer.try_clone().map_err(Error::Lost)?);
        Ok(Client { path: path.to_owned(), reader, writer })
    }

    /// Another connection to the same daemon.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn another(&self) -> Result<Client> {
        Client::connect(&self.path)
    }

    /// Sends one request and waits for its reply. A refusal is [`Error::Refused`].
    pub fn request(&mut self, request: &Request) -> Result<Reply> {
        self.send(request)?;
        self.receive()
    }

    /// Asks all nodes. What each says is taken as it comes, in no order; a node that does not
    /// answer is a failure. Returns when all have answered, or when no more is wanted.
    pub fn everywhere(
        &mut self,
        request: Request,
        mut take: impl FnMut(NodeId, std::result::Result<Reply, Failure>) -> bool,
    ) -> Result<()> {
        self.begin_everywhere(request)?;
        while let Some((node, said)) = self.next_said()? {
            if !take(node, said) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Asks all nodes, and returns at once: [`Client::next_said`] has what they say.
    ///
    /// # Errors
    /// The daemon is gone.
    pub fn begin_everywhere(&mut self, request: Request) -> Result<()> {
        self.send(&Request::Everywhere { request: Box::new(request) })
    }

    /// What the next node says; none when all have answered.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn next_said(&mut self) -> Result<Option<Said>> {
        match self.receive()? {
            Reply::From { node, of } => Ok(Some(match *of {
                Reply::Error(failure) => (node, Err(failure)),
                reply => (node, Ok(reply)),
            })),
            Reply::AllAnswered => Ok(None),
            other => {
                let got = format!("{other:?}");
                Err(Error::Unexpected { wanted: "what a node says", got })
            }
        }
    }

    /// The nodes of the cluster, as the daemon's own knows them.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn nodes(&mut self) -> Result<Vec<Node>> {
        match self.request(&Request::Nodes)? {
            Reply::Nodes { nodes } => Ok(nodes),
            other => Err(Error::Unexpected { wanted: "nodes", got: format!("{other:?}") }),
        }
    }

    /// Has the daemon given up as lost that says nothing for so long.
    ///
    /// # Errors
    /// The span is none.
    pub fn set_patience(&self, patience: Duration) -> Result<()> {
        self.writer.set_read_timeout(Some(patience)).map_err(Error::Lost)
    }

    /// The processes of all nodes.
    pub fn processes_everywhere(&mut self) -> Result<Gathered> {
        let mut gathering = Gathering::default();
        self.everywhere(Request::Processes, |node, said| {
            gathering.take(node, said);
            true
        })?;
        Ok(gathering.end())
    }

    /// The events recorded so far; with `follow`, then those to come, until the daemon ends.
    pub fn events(mut self, follow: bool) -> Result<Events> {
        self.send(&Request::Events { follow })?;
        Ok(Events { client: self, is_over: false })
    }

    /// Asks for a move and returns at once: [`Client::receive`] has how far it is, and then how it
    /// ended. `home` is the process's, if that is another node.
    pub fn begin_move(
        &mut self,
        (home, pid): (Option<NodeId>, i32),
        to: Destination,
        (freeze_budget_ms, way): (Option<FreezeBudget>, Option<Way>),
    ) -> Result<()> {
        let request = Request::Migrate { pid, to, freeze_budget_ms, way, is_watched: true };
        self.send(&match home {
            Some(node) => Request::At { node, request: Box::new(request) },
            None => request,
        })
    }

    /// Has the daemon call that move off; its answer is still to come.
    pub fn call_off(&self) -> Result<()> {
        self.writer.shutdown(Shutdown::Write).map_err(Error::Lost)
    }

    /// Some of the next reply is here already, and its descriptor may not tell.
    pub fn has_more(&self) -> bool {
        !self.reader.buffer().is_empty()
    }

    /// Sends one request, and returns at once: [`Client::receive`] has the reply.
    ///
    /// # Errors
    /// The daemon is gone.
    pub fn send(&mut self, request: &Request) -> Result<()> {
        let mut line = serde_json::to_vec(request).map_err(Error::Form)?;
        line.push(b'\n');
        self.writer.write_all(&line).map_err(Error::Lost)
    }

    /// Waits for the next reply to what was asked.
    pub fn receive(&mut self) -> Result<Reply> {
        let mut line = Vec::new();
        let mut bounded = self.reader.by_ref().take(CONTROL_BYTES_MAX as u64);
        bounded.read_until(b'\n', &mut line).map_err(Error::Lost)?;
        if line.last() != Some(&b'\n') {
            return Err(if line.len() == CONTROL_BYTES_MAX {
                Error::TooLong
            } else {
                Error::Closed
            });
        }
        match serde_json::from_slice(&line).map_err(Error::Form)? {
            Reply::Error(failure) => Err(Error::Refused(failure)),
            reply => Ok(reply),
        }
    }
}

/// The processes of all nodes, each once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gathered {
    pub processes: Vec<Process>,
    /// The nodes that have not answered, and why. Of their processes only those are known that are
    /// guests elsewhere.
    pub silent: Vec<(NodeId, Failure)>,
}

/// What nodes say of their processes. A guest is told of by its home and by the node that it is on:
/// its home knows more.
#[derive(Default)]
struct Gathering {
    own: Vec<Process>,
    guests: Vec<Process>,
    answered: BTreeSet<NodeId>,
    silent: Vec<(NodeId, Failure)>,
}

impl Gathering {
    fn take(&mut self, node: NodeId, said: std::result::Result<Reply, Failure>) {
        let processes = match said {
            Ok(Reply::Processes { processes }) => processes,
            Ok(_) => {
                let text = format!("node {node} answers something else than its processes");
                return self.silent.push((node, Failure { code: "bad-answer".into(), text }));
            }
            Err(failure) => return self.silent.push((node, failure)),
        };
        self.answered.insert(node);
        for process in processes {
            // A node has nothing to say of processes that are neither its own nor on it.
            if process.home == node {
                self.own.push(process);
            } else if process.node == node {
                self.guests.push(process);
            }
        }
    }

    fn end(self) -> Gathered {
        let Gathering { own: mut processes, mut guests, answered, silent } = self;
        guests.retain(|guest| !answered.contains(&guest.home));
        processes.append(&mut guests);
        processes.sort_by_key(|process| (process.home, process.pid));
        Gathered { processes, silent }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }
}

/// Events in the order in which they happened.
pub struct Events {
    client: Client,
    is_over: bool,
}

impl Iterator for Events {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Result<Event>> {
        if self.is_over {
            return None;
        }
        match self.client.receive() {
            Ok(Reply::Event(event)) => Some(Ok(event)),
            Ok(Reply::EventsEnd) => {
                self.is_over = true;
                None
            }
            Ok(other) => {
                self.is_over = true;
                Some(Err(Error::Unexpected { wanted: "an event", got: format!("{other:?}") }))
            }
            Err(error) => {
                self.is_over = true;
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;
    use wire::control::Happening;

    /// A daemon that answers one request with the given lines.
    fn daemon_answering(lines: &'static str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SOCKET_NAME);
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut request).unwrap();
            serde_json::from_str::<Request>(&request).unwrap();
            stream.write_all(lines.as_bytes()).unwrap();
        });
        (dir, path)
    }

    #[test]
    fn a_missing_daemon_is_named_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SOCKET_NAME);
        let error = Client::connect(&path).err().unwrap();
        assert!(matches!(error, Error::NoDaemon(_)));
        assert!(error.to_string().contains(&format!("(socket {})", path.display())));
        assert!(error.to_string().ends_with("start one with `osmos up`"));
    }

    #[test]
    fn a_refusal_is_an_error_with_the_daemons_own_text() {
        let (_dir, path) =
            daemon_answering("{\"reply\":\"error\",\"code\":\"no-process\",\"text\":\"no 7\"}\n");
        let error = Client::connect(&path).unwrap().request(&Request::Why { pid: 7 }).unwrap_err();
        assert_eq!(error.to_string(), "no 7");
    }

    #[test]
    fn followed_events_arrive_in_order_and_end_when_the_daemon_says_so() {
        let (_dir, path) = daemon_answering(concat!(
            "{\"reply\":\"event\",\"time\":1.0,\"process\":null,\"event\":\"node-status\",",
            "\"node\":2,\"status\":\"alive\"}\n{\"reply\":\"events-end\"}\n"
        ));
        let events = Client::connect(&path).unwrap().events(false).unwrap();
        let events: Vec<Event> = events.map(|event| event.unwrap()).collect();
        let alive = Happening::NodeStatus { node: NodeId(2), status: "alive".into() };
        assert_eq!(events, [Event { time: 1.0, pid: None, what: alive }]);
    }

    fn process(home: u32, pid: i32, node: u32) -> Process {
        let line = format!(
            r#"{{"pid":{pid},"home":{home},"node":{node},"state":"running","command":"x",
                "cpu_s":0,"rss_bytes":0,"migrations":0,"last_move":null,"reason":""}}"#
        );
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn each_process_counts_once_and_by_whom_it_concerns() {
        let mut gathering = Gathering::default();
        let told = |processes: &[(u32, i32, u32)]| {
            let processes = processes.iter().map(|(home, pid, node)| process(*home, *pid, *node));
            Ok(Reply::Processes { processes: processes.collect() })
        };
        let silence = Failure { code: "unreachable".into(), text: "node 3".into() };
        // A guest of node 1 whose home answers, one of node 3 whose home does not, and lies.
        gathering.take(NodeId(2), told(&[(2, 8, 2), (1, 7, 2), (3, 9, 2), (1, 6, 1), (3, 6, 1)]));
        gathering.take(NodeId(3), Err(silence.clone()));
        gathering.take(NodeId(1), told(&[(1, 7, 2)]));
        let gathered = gathering.end();
        assert_eq!(gathered.processes, [process(1, 7, 2), process(2, 8, 2), process(3, 9, 2)]);
        assert_eq!(gathered.silent, [(NodeId(3), silence)]);
    }

    #[test]
    fn what_each_node_says_comes_with_its_number_until_all_have_answered() {
        let (_dir, path) = daemon_answering(concat!(
            "{\"reply\":\"from\",\"node\":2,\"of\":{\"reply\":\"done\"}}\n",
            "{\"reply\":\"from\",\"node\":3,\"of\":{\"reply\":\"error\",\"code\":\"c\",",
            "\"text\":\"t\"}}\n{\"reply\":\"all-answered\"}\n"
        ));
        let mut said = Vec::new();
        let mut client = Client::connect(&path).unwrap();
        let take = |node, reply: std::result::Result<Reply, Failure>| {
            said.push((node, reply.map_err(|failure| failure.code)));
            true
        };
        client.everywhere(Request::Status, take).unwrap();
        assert_eq!(said, [(NodeId(2), Ok(Reply::Done)), (NodeId(3), Err("c".to_owned()))]);
    }

    #[test]
    fn an_answer_cut_short_is_not_taken_for_an_answer() {
        let (_dir, path) = daemon_answering("{\"reply\":\"done\"}");
        let error = Client::connect(&path).unwrap().request(&Request::Down).unwrap_err();
        assert!(matches!(error, Error::Closed));
    }
}
