//! A tool's connection to its node daemon: typed requests and replies over the control socket.
//!
//! Blocking on purpose: tools do one thing at a time. The daemon knows who calls by the socket's
//! peer credentials, so nothing here says who one is.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use wire::control::{
    Destination, Event, Failure, Reply, Request, SOCKET_NAME, runtime_dir_default,
};
use wire::freeze_budget::FreezeBudget;
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

pub type Result<T> = std::result::Result<T, Error>;

/// The control socket a tool talks to unless told otherwise: this user's daemon if it runs, else
/// the machine's, which serves every user.
pub fn socket_default(uid: u32) -> PathBuf {
    let xdg_runtime_dir =
        std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let own = runtime_dir_default(uid, xdg_runtime_dir).join(SOCKET_NAME);
    if own.exists() { own } else { runtime_dir_default(0, None).join(SOCKET_NAME) }
}

/// An open connection to a node daemon. Requests are answered in order.
pub struct Client {
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
        Ok(Client { reader, writer })
    }

    /// Sends one request and waits for its reply. A refusal is [`Error::Refused`].
    pub fn request(&mut self, request: &Request) -> Result<Reply> {
        self.send(request)?;
        self.receive()
    }

    /// The events recorded so far; with `follow`, then those to come, until the daemon ends.
    pub fn events(mut self, follow: bool) -> Result<Events> {
        self.send(&Request::Events { follow })?;
        Ok(Events { client: self, is_over: false })
    }

    /// Asks for a move and returns at once: [`Client::receive`] has how far it is, and then how it
    /// ended.
    pub fn begin_move(
        &mut self,
        pid: i32,
        to: Destination,
        (freeze_budget_ms, way): (Option<FreezeBudget>, Option<Way>),
    ) -> Result<()> {
        self.send(&Request::Migrate { pid, to, freeze_budget_ms, way, is_watched: true })
    }

    /// Has the daemon call that move off; its answer is still to come.
    pub fn call_off(&self) -> Result<()> {
        self.writer.shutdown(Shutdown::Write).map_err(Error::Lost)
    }

    /// Some of the next reply is here already, and its descriptor may not tell.
    pub fn has_more(&self) -> bool {
        !self.reader.buffer().is_empty()
    }

    fn send(&mut self, request: &Request) -> Result<()> {
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
    use wire::ids::NodeId;

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

    #[test]
    fn an_answer_cut_short_is_not_taken_for_an_answer() {
        let (_dir, path) = daemon_answering("{\"reply\":\"done\"}");
        let error = Client::connect(&path).unwrap().request(&Request::Down).unwrap_err();
        assert!(matches!(error, Error::Closed));
    }
}
