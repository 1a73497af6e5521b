//! The server as browsers and others meet it: over a socket, with a daemon that the test plays.

use super::*;
use crate::sessions::Secret;
use crate::test::{WORDING, migrated, picture, process};
use crate::{Options, orders};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream as Socket};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;
use wire::control::{Failure, Reply, Request};
use wire::ids::NodeId;

const PATIENCE: Patience =
    Patience { head: Duration::from_millis(400), write: Duration::from_millis(400) };
/// What takes longer than this will not happen.
const LONG: Duration = Duration::from_secs(20);

struct Site {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// What came back.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Site {
    /// A server on a free port that asks the daemon of that socket.
    fn open(socket: &Path, is_read_only: bool) -> Site {
        let socket = socket.to_owned();
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                let options = Options {
                    socket,
                    listen: address,
                    is_read_only,
                    delay: Duration::from_secs(1),
                    is_json: false,
                    wording: WORDING,
                };
                let shared = crate::share(options, address);
                sender.send((address, shared.clone())).unwrap();
                serve_with(listener, shared, PATIENCE).await;
            });
        });
        let (address, shared) = receiver.recv().unwrap();
        Site { address, shared }
    }

    fn without_daemon() -> Site {
        Site::open(Path::new("/nowhere/control.sock"), false)
    }

    fn connect(&self) -> Socket {
        let socket = Socket::connect(self.address).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket
    }

    /// Sends a request with these lines in its head, and reads to the end of the answer.
    fn ask(&self, first: &str, lines: &[String], body: &str) -> Answer {
        let mut socket = self.connect();
        let mut head = format!("{first} HTTP/1.1\r\nConnection: close\r\n");
        if !lines.iter().any(|line| line.starts_with("Host:")) {
            head += &format!("Host: {}\r\n", self.address);
        }
        if first.starts_with("POST") {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        for line in lines {
            head += &format!("{line}\r\n");
        }
        socket.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head[9..12].parse().expect("a status");
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    fn origin(&self) -> String {
        format!("Origin: http://{}", self.address)
    }

    fn post(&self, path: &str, cookie: &str, body: &str) -> Answer {
        let lines = [self.origin(), format!("Cookie: {cookie}")];
        self.ask(&format!("POST {path}"), &lines, body)
    }

    fn get(&self, path: &str, cookie: &str) -> Answer {
        self.ask(&format!("GET {path}"), &[format!("Cookie: {cookie}")], "")
    }

    fn link(&self) -> String {
        let secret = Secret::random().unwrap();
        self.shared.sessions.lock().unwrap().set_link(secret, Instant::now());
        serde_json::json!({ "link": secret.text() }).to_string()
    }

    /// The cookie of a new session.
    fn log_in(&self) -> String {
        let answer = self.ask("POST /login", &[self.origin()], &self.link());
        assert_eq!(answer.status, 204, "{}", answer.body);
        let line = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        let cookie = line.expect("a cookie").split(';').next();
        cookie.expect("a value").to_owned()
    }

    fn await_watched(&self, wanted: bool) {
        let begun = Instant::now();
        while self.shared.hub.is_watched() != wanted {
            assert!(begun.elapsed() < LONG, "waited in vain: watched is not {wanted}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A daemon that answers each request as `answer` says.
fn daemon(answer: impl Fn(Request) -> Reply + Send + 'static) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.sock");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
            let reply = answer(serde_json::from_str(&line).unwrap());
            writeln!(stream, "{}", serde_json::to_string(&reply).unwrap()).unwrap();
        }
    });
    (dir, path)
}

#[test]
fn a_link_logs_in_once_and_the_cookie_is_for_this_page_alone() {
    let site = Site::without_daemon();
    let link = site.link();
    let answer = site.ask("POST /login", &[site.origin()], &link);
    assert_eq!(answer.status, 204);
    for word in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
        assert!(answer.head.contains(word), "{word}: {}", answer.head);
    }
    let again = site.ask("POST /login", &[site.origin()], &link);
    assert_eq!(again.status, 403);
    assert!(again.body.contains("bad-link") && again.body.contains("kill -USR1"), "{}", again.body);
    let cookie = site.log_in();
    let page = site.get("/", &cookie);
    assert!(page.status == 200 && page.body.contains("id=\"processes\""), "{}", page.body);
    assert_eq!(site.get("/history", &format!("other=1; {cookie}")).status, 200);
    assert_eq!(site.post("/logout", &cookie, "").status, 204);
    assert_eq!(site.get("/history", &cookie).status, 401);
}

#[test]
fn without_a_session_there_is_nothing_and_every_answer_has_the_policy() {
    let site = Site::without_daemon();
    let get = |path: &str| site.get(path, "osmos-1=x");
    for (path, status) in [
        ("/", 401),
        ("/live", 401),
        ("/history", 401),
        ("/why?process=1:1", 401),
        ("/what-if?process=1:1&to=2&at=1", 401),
        ("/login", 200),
        ("/page.js", 200),
        ("/style.css", 200),
        ("/../etc/passwd", 401),
    ] {
        let answer = get(path);
        assert_eq!(answer.status, status, "{path}");
        let policy = "content-security-policy: default-src 'none'; script-src 'self';";
        assert!(answer.head.contains(policy), "{path}: {}", answer.head);
        assert!(answer.head.contains("cache-control: no-store"), "{path}: {}", answer.head);
    }
    assert!(!get("/").body.contains("processes"), "the page is for those who are logged in");
    assert_eq!(site.post("/order", "", "{}").status, 401);
}

#[test]
fn another_name_and_another_page_are_refused_whoever_is_logged_in() {
    let site = Site::without_daemon();
    let cookie = format!("Cookie: {}", site.log_in());
    let status = |first: &str, lines: &[&str]| {
        let lines: Vec<String> =
            lines.iter().copied().chain([&*cookie]).map(str::to_owned).collect();
        site.ask(first, &lines, "{}").status
    };
    assert_eq!(status("GET /history", &[]), 200);
    assert_eq!(status("GET /history", &["Host: evil.example"]), 403);
    assert_eq!(status("GET /history", &["Origin: http://evil.example"]), 403);
    assert_eq!(status("POST /order", &[]), 403, "nobody says where it comes from");
    assert_eq!(status("POST /order", &["Origin: http://evil.example"]), 403);
    assert_eq!(status("POST /order", &[&site.origin()]), 400, "it is read, and is no order");
}

#[test]
fn heads_and_bodies_are_bounded() {
    let site = Site::without_daemon();
    let cookie = site.log_in();
    let long = site.post("/order", &cookie, &"x".repeat(orders::BODY_BYTES_MAX + 1));
    assert_eq!(long.status, 413, "{}", long.body);
    let lines = [format!("X-Long: {}", "x".repeat(HEAD_BYTES_MAX))];
    assert_eq!(site.ask("GET /login", &lines, "").status, 431);
    let lines: Vec<String> = (0..=HEADERS_MAX).map(|n| format!("X-{n}: 1")).collect();
    assert_eq!(site.ask("GET /login", &lines, "").status, 431);
}

#[test]
fn who_does_not_come_to_an_end_is_cut_off() {
    let site = Site::without_daemon();
    for begun in ["", "GET /login HTTP/1.1\r\nHost: 127."] {
        let mut socket = site.connect();
        socket.write_all(begun.as_bytes()).unwrap();
        // It ends before the test's own patience does.
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).unwrap();
    }
}

#[test]
fn more_connections_than_there_is_room_for_wait_until_others_are_cut_off() {
    let site = Site::without_daemon();
    let idle: Vec<Socket> = (0..CONNECTIONS_MAX).map(|_| site.connect()).collect();
    assert_eq!(site.get("/login", "").status, 200);
    drop(idle);
}

/// Opens the stream of events, and gives it back unread.
fn follow(site: &Site, cookie: &str, seen: u64) -> Socket {
    let mut socket = site.connect();
    let Site { address, .. } = site;
    let head = format!(
        "GET /live HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nLast-Event-ID: {seen}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    socket
}

#[test]
fn a_browser_that_is_far_behind_is_cut_off_and_one_that_comes_again_is_told_the_rest() {
    let site = Site::without_daemon();
    let cookie = site.log_in();
    let slow = follow(&site, &cookie, 0);
    site.await_watched(true);
    let mut many: Vec<_> = (1..2_000).map(|pid| process(1, pid, 1)).collect();
    let begun = Instant::now();
    for round in 0.. {
        // More than sockets hold.
        many.iter_mut().for_each(|process| process.rss_bytes += 1);
        site.shared.hub.tell(|board| board.take_picture(picture(&[], &many), f64::from(round)));
        if !site.shared.hub.is_watched() {
            break;
        }
        assert!(begun.elapsed() < LONG, "it is still served");
        thread::sleep(Duration::from_millis(5));
    }
    drop(slow);
    let events: Vec<_> = (0..5).map(|pid| migrated(1, pid + 1, 2, f64::from(pid))).collect();
    site.shared.hub.tell(|board| board.take_events(&events, 0));
    let again = follow(&site, &cookie, 3);
    let mut lines = BufReader::new(&again).lines().map_while(Result::ok);
    let whole = lines.find(|line| line.starts_with("data: {") && line.contains("\"lines\""));
    let whole: Value = serde_json::from_str(&whole.expect("everything")[6..]).expect("JSON");
    let numbers: Vec<_> =
        whole["lines"].as_array().unwrap().iter().map(|line| line["number"].as_u64()).collect();
    assert_eq!(numbers, [Some(4), Some(5)]);
    assert_eq!(whole["processes"].as_array().map(Vec::len), Some(many.len()));
    drop(lines);
    drop(again);
    site.await_watched(false);
}

#[test]
fn a_browser_that_takes_nothing_is_gone_after_a_while() {
    let site = Site::without_daemon();
    let cookie = site.log_in();
    // More than sockets hold, in one message.
    let many: Vec<_> = (1..100_000).map(|pid| process(1, pid, 1)).collect();
    site.shared.hub.tell(|board| board.take_picture(picture(&[], &many), 1.0));
    let slow = follow(&site, &cookie, 0);
    site.await_watched(true);
    site.await_watched(false);
    drop(slow);
}

#[test]
fn what_the_daemon_refuses_is_told_in_its_words() {
    let (_dir, path) = daemon(|request| {
        let Request::At { node, request } = request else { panic!("{request:?}") };
        assert!(node.0 == 2 && matches!(*request, Request::Migrate { pid: 10, .. }), "{request:?}");
        let text = "cannot move 10: it is\x1b[2J root's".to_owned();
        Reply::Error(Failure { code: "not-yours".into(), text })
    });
    let site = Site::open(&path, false);
    let cookie = site.log_in();
    let order = r#"{"order":"migrate","process":"2:10","to":"home"}"#;
    let answer = site.post("/order", &cookie, order);
    assert_eq!(answer.status, 409);
    assert!(answer.body.contains("cannot move 10: it is?[2J root's"), "{}", answer.body);
}

#[test]
fn what_is_done_is_told_and_a_page_that_only_shows_does_nothing() {
    let (_dir, path) = daemon(|_| Reply::Done);
    let order = r#"{"order":"signal","process":"2:10","signal":15}"#;
    let site = Site::open(&path, false);
    let answer = site.post("/order", &site.log_in(), order);
    assert!(answer.status == 200 && answer.body.contains("sent to 2:10"), "{}", answer.body);
    let site = Site::open(&path, true);
    let answer = site.post("/order", &site.log_in(), order);
    assert!(answer.status == 403 && answer.body.contains("read-only"), "{}", answer.body);
    let site = Site::without_daemon();
    let answer = site.post("/order", &site.log_in(), order);
    assert!(answer.status == 503 && answer.body.contains("osmos up"), "{}", answer.body);
}

#[test]
fn what_a_move_would_bring_is_asked_where_the_process_runs() {
    let (_dir, path) = daemon(|request| {
        let asked = Box::new(Request::WhatIf { pid: 10, to: NodeId(3) });
        assert_eq!(request, Request::At { node: NodeId(1), request: asked });
        let place = r#"{"node":3,"rate":1,"runnable":0,"cores":2,"speed":1,"info_age_s":0.1}"#;
        let rest = r#""rate_before":0.5,"freeze_ms":1,"cpu_s":1"#;
        let text = format!(r#"{{"pid":10,"home":2,"from":1,"to":{place},{rest}}}"#);
        Reply::Forecast(serde_json::from_str(&text).expect("a forecast"))
    });
    let site = Site::open(&path, false);
    let cookie = site.log_in();
    let answer = site.get("/what-if?process=2:10&to=3&at=1", &cookie);
    assert!(answer.status == 200 && answer.body.contains("10 would be faster"), "{}", answer.body);
    let answer = site.get("/what-if?process=4:10&to=3&at=1", &cookie);
    assert!(answer.status == 409 && answer.body.contains("another process 10"), "{}", answer.body);
}

#[test]
fn no_more_orders_than_there_are_threads_for_are_under_way() {
    let (asked, waits) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.sock");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        // Nobody is answered before all have asked, which takes longer than to connect.
        let asking = |_| {
            let stream = listener.accept().unwrap().0;
            BufReader::new(&stream).read_line(&mut String::new()).unwrap();
            stream
        };
        let streams: Vec<_> = (0..orders::ORDERS_MAX).map(asking).collect();
        asked.send(()).unwrap();
        gone.recv().unwrap();
        for mut stream in streams {
            writeln!(stream, "{}", serde_json::to_string(&Reply::Done).unwrap()).unwrap();
        }
    });
    let site = Site::open(&path, false);
    let cookie = site.log_in();
    let order = r#"{"order":"signal","process":"2:10","signal":15}"#;
    thread::scope(|scope| {
        let asking: Vec<_> = (0..orders::ORDERS_MAX)
            .map(|_| scope.spawn(|| site.post("/order", &cookie, order).status))
            .collect();
        waits.recv_timeout(LONG).unwrap();
        let one_more = site.post("/order", &cookie, order);
        assert!(one_more.status == 429 && one_more.body.contains("under way"), "{}", one_more.body);
        go.send(()).unwrap();
        let all: Vec<u16> = asking.into_iter().map(|asked| asked.join().unwrap()).collect();
        assert_eq!(all, [200; orders::ORDERS_MAX]);
    });
}

#[test]
fn the_page_has_nothing_from_elsewhere_and_makes_no_markup_of_texts() {
    let files = [
        include_str!("../../assets/page.html"),
        include_str!("../../assets/login.html"),
        include_str!("../../assets/page.js"),
        include_str!("../../assets/login.js"),
        include_str!("../../assets/style.css"),
    ];
    for file in files {
        // The name of SVG's elements, which nothing is fetched from.
        let text = file.replace("'http://www.w3.org/2000/svg'", "");
        for forbidden in [
            "://",
            "url(",
            "@import",
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
            " style=",
            " onclick=",
        ] {
            assert!(!text.contains(forbidden), "{forbidden}");
        }
    }
}
