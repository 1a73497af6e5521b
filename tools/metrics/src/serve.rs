//! `/metrics` over HTTP, for a Prometheus that scrapes.
//!
//! One thread for each connection, no more of them than [`CONNECTIONS_MAX`], each answered once and
//! closed. The head of a request has a size and a time in which it must have come; there is no
//! body. What is told is for anybody who can connect, so it listens on loopback unless another
//! address is given.

use crate::source::Answers;
use crate::text::{CONTENT_TYPE, text};
use anyhow::{Context, Result};
use client::words::printable;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// On loopback, beside the usual port of nodes.
pub const LISTEN_DEFAULT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9780));
/// Connections at the same time; who comes beyond that is told so and let go.
pub const CONNECTIONS_MAX: usize = 16;
/// Of the first line and the headers of a request.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// In which the head of a request must have come, and an answer been taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// What is read of a request that was refused, so that the refusal is not lost with the connection.
const DRAIN_BYTES_MAX: u64 = 64 << 10;
/// After a connection that could not be taken, for want of descriptors say.
const REST: Duration = Duration::from_millis(100);

/// A listener that has its address.
pub struct Listening {
    listener: TcpListener,
    patience: Duration,
}

/// A status line, and what is said under it.
#[derive(Debug, PartialEq, Eq)]
struct Response {
    status: &'static str,
    content_type: &'static str,
    body: String,
    /// Of a request that wants only the head.
    is_head: bool,
}

impl Response {
    fn plain(status: &'static str, body: &str) -> Response {
        let body = format!("{body}\n");
        Response { status, content_type: "text/plain; charset=utf-8", body, is_head: false }
    }

    fn bytes(&self) -> Vec<u8> {
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nAllow: GET, HEAD\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Connection: close\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len()
        );
        let body = if self.is_head { "" } else { &self.body };
        [head.as_bytes(), body.as_bytes()].concat()
    }
}

impl Listening {
    /// # Errors
    /// If that address cannot be listened on.
    pub fn on(address: SocketAddr) -> Result<Listening> {
        let listener =
            TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        Ok(Listening { listener, patience: PATIENCE })
    }

    /// # Errors
    /// If the system does not know the listener's address.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().context("the listener has no address")
    }

    /// Answers until the program ends, asking `ask` for what there is to tell.
    pub fn serve(self, ask: impl Fn() -> client::Result<Answers> + Send + Sync + 'static) -> ! {
        let (ask, count) = (Arc::new(ask), Arc::new(AtomicUsize::new(0)));
        loop {
            let Ok((stream, _)) = self.listener.accept() else {
                thread::sleep(REST);
                continue;
            };
            let (ask, patience) = (ask.clone(), self.patience);
            let Some(place) = Place::take(&count) else {
                refuse(&stream);
                continue;
            };
            // If no thread can be had the connection is closed with the closure.
            let _ = thread::Builder::new().name("scrape".to_owned()).spawn(move || {
                let _place = place;
                // Who hangs up hears no answer.
                let _ = converse(stream, patience, &*ask);
            });
        }
    }
}

/// One of the connections that there may be.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(count: &Arc<AtomicUsize>) -> Option<Place> {
        let one_more = |count| (count < CONNECTIONS_MAX).then_some(count + 1);
        count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).ok()?;
        Some(Place(count.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Says that there are too many, without waiting for anything.
fn refuse(mut stream: &TcpStream) {
    if stream.set_nonblocking(true).is_ok() {
        let response = Response::plain("503 Service Unavailable", "too many connections");
        let _ = stream.write(&response.bytes());
    }
}

fn converse(
    mut stream: TcpStream,
    patience: Duration,
    ask: &dyn Fn() -> client::Result<Answers>,
) -> io::Result<()> {
    let response = match read_head(&mut stream, Instant::now() + patience)? {
        Head::Wanted { is_head } => Response { is_head, ..measured(ask()) },
        Head::Refused(response) => {
            say(&mut stream, &response, patience)?;
            // What it has sent and nobody has read would take the refusal along.
            stream.shutdown(Shutdown::Write)?;
            stream.set_read_timeout(Some(patience / 5))?;
            return io::copy(&mut stream.take(DRAIN_BYTES_MAX), &mut io::sink()).map(|_| ());
        }
    };
    say(&mut stream, &response, patience)
}

fn say(stream: &mut TcpStream, response: &Response, patience: Duration) -> io::Result<()> {
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(&response.bytes())
}

fn measured(answers: client::Result<Answers>) -> Response {
    match answers {
        Ok(answers) => Response {
            content_type: CONTENT_TYPE,
            body: text(&answers),
            ..Response::plain("200 OK", "")
        },
        Err(error) => Response::plain("503 Service Unavailable", &printable(&error.to_string())),
    }
}

/// What a request comes to.
#[derive(Debug, PartialEq, Eq)]
enum Head {
    Wanted { is_head: bool },
    Refused(Response),
}

/// Reads until the head of a request is whole, too long, or late.
fn read_head(stream: &mut TcpStream, until: Instant) -> io::Result<Head> {
    let mut bytes = Vec::new();
    let late = || Head::Refused(Response::plain("408 Request Timeout", "the request came late"));
    loop {
        if let Some(head) = judge(&bytes) {
            return Ok(head);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(late());
        }
        stream.set_read_timeout(Some(left))?;
        let mut part = [0; 1_024];
        match stream.read(&mut part) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(late()),
            Err(error) => return Err(error),
        }
    }
}

/// None: more of it has to come.
fn judge(bytes: &[u8]) -> Option<Head> {
    let refused = |status, text: &str| Some(Head::Refused(Response::plain(status, text)));
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let too_large = "431 Request Header Fields Too Large";
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return None,
        Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES_MAX => {}
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            let most = format!("{HEAD_BYTES_MAX} bytes and {HEADERS_MAX} headers at most");
            return refused(too_large, &most);
        }
        Err(_) => return refused("400 Bad Request", "that is no request of HTTP/1.1"),
    }
    let path = request.path.unwrap_or_default();
    match (request.method, path.split('?').next()) {
        (Some(method @ ("GET" | "HEAD")), Some("/metrics")) => {
            Some(Head::Wanted { is_head: method == "HEAD" })
        }
        (Some("GET" | "HEAD"), _) => refused("404 Not Found", "there is only /metrics"),
        _ => refused("405 Method Not Allowed", "only GET and HEAD"),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::control::Failure;

    fn refusal(bytes: &[u8]) -> &'static str {
        match judge(bytes) {
            Some(Head::Refused(response)) => response.status,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_whole_requests_for_the_one_path_are_answered() {
        let get = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(judge(get), Some(Head::Wanted { is_head: false }));
        for length in 0..get.len() {
            assert_eq!(judge(&get[..length]), None, "{length}");
        }
        assert_eq!(
            judge(b"HEAD /metrics?x HTTP/1.0\r\n\r\n"),
            Some(Head::Wanted { is_head: true })
        );
        assert_eq!(refusal(b"GET / HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(refusal(b"POST /metrics HTTP/1.1\r\n\r\n"), "405 Method Not Allowed");
        assert_eq!(refusal(b"\x16\x03\x01\x02"), "400 Bad Request");
        assert_eq!(refusal(b"GET /metrics HTTP/9.9\r\n\r\n"), "400 Bad Request");
    }

    #[test]
    fn a_head_without_end_is_refused_when_it_is_too_long() {
        let mut bytes = b"GET /metrics HTTP/1.1\r\nA: ".to_vec();
        bytes.resize(HEAD_BYTES_MAX - 1, b'a');
        assert_eq!(judge(&bytes), None);
        bytes.push(b'a');
        assert_eq!(refusal(&bytes), "431 Request Header Fields Too Large");
        let headers = "A: a\r\n".repeat(HEADERS_MAX + 1);
        let many = format!("GET /metrics HTTP/1.1\r\n{headers}\r\n");
        assert_eq!(refusal(many.as_bytes()), "431 Request Header Fields Too Large");
    }

    /// A server that answers as if there were no daemon.
    fn server(patience: Duration) -> SocketAddr {
        let listening =
            Listening { listener: TcpListener::bind("127.0.0.1:0").expect("a port"), patience };
        let address = listening.address().expect("an address");
        thread::spawn(move || {
            listening.serve(|| {
                let failure = Failure { code: "c".into(), text: "no\x1b daemon".into() };
                Err(client::Error::Refused(failure))
            })
        });
        address
    }

    fn answer(mut stream: &TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    }

    #[test]
    fn a_failure_is_a_status_and_a_head_alone_has_no_body() {
        let address = server(PATIENCE);
        let ask = |method: &str| {
            let mut stream = TcpStream::connect(address).expect("connected");
            write!(stream, "{method} /metrics HTTP/1.1\r\n\r\n").expect("said");
            answer(&stream)
        };
        let got = ask("GET");
        assert!(got.starts_with("HTTP/1.1 503 ") && got.ends_with("\r\n\r\nno? daemon\n"), "{got}");
        let head = ask("HEAD");
        assert!(head.contains("Content-Length: 11\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn who_says_nothing_is_let_go_and_holds_up_nobody() {
        let address = server(Duration::from_secs(2));
        let silent: Vec<TcpStream> =
            (0..CONNECTIONS_MAX).map(|_| TcpStream::connect(address).expect("connected")).collect();
        // Connections are taken in turn, so all of those are there by now.
        let more = TcpStream::connect(address).expect("connected");
        assert!(answer(&more).starts_with("HTTP/1.1 503 "));
        for stream in &silent {
            assert!(answer(stream).starts_with("HTTP/1.1 408 "));
        }
        drop(silent);
        // Their threads end by themselves. Who comes before that is refused, and may not hear it:
        // the connection is closed with what he has said.
        let is_served = || {
            let mut stream = TcpStream::connect(address).expect("connected");
            let mut text = String::new();
            write!(stream, "GET / HTTP/1.1\r\n\r\n").is_ok()
                && stream.read_to_string(&mut text).is_ok()
                && text.starts_with("HTTP/1.1 404 ")
        };
        let began = Instant::now();
        while !is_served() {
            assert!(began.elapsed() < Duration::from_secs(30), "never again");
        }
    }
}
