//! Supervisors whose other side has all the keys and lies: a node that a process was lent to, and a
//! home that sends one. The test plays the liar, and the daemon; the supervisor is the real one.
//!
//! What a liar may do to a process that is his is his. All else must hold: the supervisor does not
//! fall, nothing is executed that an honest side would not have asked for, what is at home stays
//! whole, and what was wrong is refused by name.

use kernel::features::{self, Feature};
use link::{LinkReader, LinkWriter};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, setsockopt,
    socketpair, sockopt,
};
use nix::sys::time::TimeVal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{IoSlice, Read, Seek, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wire::bounded::LINE_CHARS_MAX;
use wire::forward::{Call, Direction, Place, Segment, ToAway, ToHome, Yield};
use wire::hashes::{Lacking, PageHashes};
use wire::ids::{GuestAddr, GuestTid, HomePid, NodeId, Ticket};
use wire::image::{Backing, Draft, Image, Mapping, MappingFlags, MappingKind, Pages, Prospect};
use wire::limits::{GROWTH_BYTES_MAX, HASHED_PAGES_MAX};
use wire::stream::{Packing, PartHead};
use wire::supervisor::{
    Berth, FromBody, FromDaemon, FromDeputy, PACKET_BYTES_MAX, PREFACE_BYTES, Reason, Role, ToBody,
    ToDeputy,
};

const OSMOS: &str = env!("CARGO_BIN_EXE_osmos");
/// What takes longer than this will not happen.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(5);
const KEY: [u8; 32] = [9; 32];
/// What a supervisor may have in use, whatever it is sent: one message and what becomes of it.
const MEMORY_KIB_MAX: u64 = 256 << 10;

type Link = (LinkReader, LinkWriter);

/// A real supervisor, with the test in the place of its daemon.
struct Supervisor {
    child: Child,
    control: OwnedFd,
    log: File,
}

impl Supervisor {
    fn start(words: &[&str]) -> Supervisor {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (control, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("a socket");
        let patience = TimeVal::new(PATIENCE.as_secs() as i64, 0);
        setsockopt(&control, sockopt::ReceiveTimeout, &patience).expect("a timeout");
        let log = tempfile::tempfile().expect("a file");
        let child = Command::new(OSMOS)
            .args(words)
            .args(["--control-fd", "0", "--without", ""])
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(log.try_clone().expect("the same file"))
            .spawn()
            .expect("a supervisor");
        Supervisor { child, control, log }
    }

    fn tell<T: Serialize>(&self, message: &T, descriptor: Option<i32>) {
        let bytes = postcard::to_stdvec(&FromDaemon::Order(message)).expect("a message of ours");
        let descriptors = descriptor.map(|descriptor| [descriptor]);
        let rights: Vec<ControlMessage<'_>> =
            descriptors.iter().map(|all| ControlMessage::ScmRights(all)).collect();
        let (socket, slices) = (self.control.as_raw_fd(), [IoSlice::new(&bytes)]);
        sendmsg::<UnixAddr>(socket, &slices, &rights, MsgFlags::MSG_NOSIGNAL, None)
            .expect("it listens");
    }

    fn hear<T: DeserializeOwned>(&self) -> T {
        let packet = kernel::packet::receive(&self.control, PACKET_BYTES_MAX).expect("in time");
        let (bytes, _) = packet.expect("it says something before it ends");
        postcard::from_bytes(&bytes).expect("a message of ours")
    }

    fn resident_kib_max(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }

    /// Waits until it has ended, and sees that it did so by its own will.
    fn end(mut self, lie: &str) {
        drop(self.control);
        let status = until("the supervisor ends", || self.child.try_wait().expect("our child"));
        let mut told = String::new();
        self.log.rewind().expect("a file");
        self.log.read_to_string(&mut told).expect("text");
        assert!(status.code().is_some_and(|code| code <= 1), "{lie}: {status}: {told}");
        assert!(!told.contains("panicked"), "{lie}: {told}");
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(STEP);
    }
}

/// A program at home, which makes no calls: its thread is free for those that are forged.
struct Program(Child);

impl Program {
    fn start() -> Program {
        let mut command = Command::new("sh");
        let program = Program(command.args(["-c", "while :; do :; done"]).spawn().expect("sh"));
        // What it does to begin with is no computing: it may be in the middle of a call then.
        let path = format!("/proc/{}/stat", program.pid());
        until("it computes", || {
            let stat = std::fs::read_to_string(&path).expect("it is there");
            let fields: Vec<&str> = stat.rsplit(") ").next()?.split(' ').collect();
            (fields[0] == "R" && fields[11].parse::<u64>().ok()? > 2).then_some(())
        });
        program
    }

    /// One whose memory is copied ahead.
    fn large() -> Program {
        let script = "memory = bytearray(b'x') * (32 << 20)\nwhile True: pass";
        let mut command = Command::new("python3");
        let program = Program(command.args(["-IS", "-c", script]).spawn().expect("python3"));
        let path = format!("/proc/{}/status", program.pid());
        until("it has its memory", || {
            let status = std::fs::read_to_string(&path).expect("it is there");
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
            (kib > 36 << 10).then_some(())
        });
        program
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    fn assert_plain(&mut self, lie: &str) {
        let path = format!("/proc/{}/status", self.pid());
        until("nobody holds it", || {
            let status = std::fs::read_to_string(&path).expect("it is there");
            status.contains("TracerPid:\t0\n").then_some(())
        });
        assert!(self.0.try_wait().expect("our child").is_none(), "{lie}: it has ended");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn reason(text: &str) -> Reason {
    Reason { code: "a-lie".into(), text: text.into() }
}

fn listen() -> (TcpListener, Berth) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address: SocketAddr = listener.local_addr().expect("an address");
    (listener, Berth { node: NodeId(2), address, ticket: Ticket([7; 16]), key: KEY })
}

/// The supervisor of a process that is to leave, and the link to the node that it is to go to.
fn leaving(program: &Program) -> (Supervisor, Link) {
    let supervisor = Supervisor::start(&["deputy", "--pid", &program.pid().to_string()]);
    let (listener, berth) = listen();
    let (freeze_budget, limits, way) = Default::default();
    supervisor.tell(&ToDeputy::Leave { berth, freeze_budget, limits, way }, None);
    let (mut stream, _) = listener.accept().expect("it calls");
    stream.read_exact(&mut [0; PREFACE_BYTES]).expect("a preface");
    (supervisor, link::accept(stream, &KEY).expect("it has the key"))
}

/// All that travels.
#[derive(Clone)]
struct Capture {
    prospect: Prospect,
    draft: Draft,
    image: Image,
    pages: Vec<Pages>,
}

/// Takes a process in as an honest node would, up to its last page.
fn take_in(supervisor: &Supervisor, (reader, writer): &mut Link) -> Capture {
    let ToAway::Prospect(prospect) = reader.receive().expect("an offer") else {
        panic!("no prospect")
    };
    writer
        .send(&ToHome::Welcome { missing: vec![], remembers: false, serves_faults: false })
        .expect("it listens");
    assert_eq!(reader.receive::<ToAway>().expect("an answer"), ToAway::BackingsSent);
    writer.send(&ToHome::Stored).expect("it listens");
    let Ok(ToAway::Draft(draft)) = reader.receive() else {
        panic!("no draft: {:?}", supervisor.hear::<FromDeputy>())
    };
    writer.send(&ToHome::Drafted).expect("it listens");
    let Ok(ToAway::Image(image)) = reader.receive() else {
        panic!("no image: {:?}", supervisor.hear::<FromDeputy>())
    };
    let mut pages = Vec::new();
    loop {
        match reader.receive().expect("its memory") {
            ToAway::Pages(run) => pages.push(run),
            ToAway::ImageSent => break,
            other => panic!("{other:?} in the middle of an image"),
        }
    }
    Capture { prospect: *prospect, draft: *draft, image: *image, pages }
}

/// A process that is away on a node which the test plays.
fn away(program: &Program) -> (Supervisor, Link, Capture) {
    let (supervisor, mut link) = leaving(program);
    let capture = take_in(&supervisor, &mut link);
    link.1.send(&ToHome::Restored).expect("it listens");
    assert_eq!(link.0.receive::<ToAway>().expect("an order"), ToAway::Run);
    link.1.send(&ToHome::Running).expect("it listens");
    let told = supervisor.hear();
    assert!(matches!(told, FromDeputy::Moved { .. }), "{told:?}");
    (supervisor, link, capture)
}

fn call(tid: GuestTid, number: i64, arguments: [u64; 6], segments: Vec<Segment>) -> Call {
    Call { tid, sequence: 1, signals_seen: 0, number: number as u32, arguments, segments }
}

/// A text behind an argument, as a body gathers it.
fn text(index: u8, at: u64, bytes: &[u8]) -> Segment {
    Segment {
        guest: GuestAddr(at),
        length: bytes.len() as u32,
        direction: Direction::In,
        place: Place::Argument(index),
        yields: Yield::Whole,
        data: bytes.to_vec(),
    }
}

#[test]
fn a_node_that_lies_before_it_has_a_process_does_not_get_it() {
    let mut program = Program::start();
    let terminal = "\u{1b}[2J".repeat(100_000);
    let lies = [
        ToHome::Welcome { missing: vec![u32::MAX], remembers: true, serves_faults: false },
        ToHome::Running,
        ToHome::Restored,
        ToHome::ImageSent,
        ToHome::Refused(reason(&terminal)),
        ToHome::Call(call(GuestTid(program.pid()), libc_call::KILL, [1; 6], vec![])),
        ToHome::NeedsHome(reason("it never left")),
    ];
    for lie in lies {
        let name = format!("{lie:.60?}");
        let (supervisor, (mut reader, mut writer)) = leaving(&program);
        let offer = reader.receive::<ToAway>().expect("an offer");
        assert!(matches!(offer, ToAway::Prospect(_)), "{offer:?}");
        writer.send(&lie).expect("it listens");
        let FromDeputy::Stayed { reason } = supervisor.hear() else { panic!("{name}: it left") };
        assert!(reason.text.chars().count() <= LINE_CHARS_MAX, "{name}");
        assert!(!reason.text.contains('\u{1b}'), "{name}: {}", reason.text);
        program.assert_plain(&name);
        supervisor.end(&name);
    }
}

#[test]
fn a_node_that_lies_about_pages_that_it_remembers_does_not_get_the_process() {
    if !needs::can_run(&["python3"]) || !features::settled().has(Feature::WriteTracking) {
        return;
    }
    let mut program = Program::large();
    let of = |count: usize| ToHome::Lacks(Lacking::of(std::iter::repeat_n(true, count)));
    let count = HASHED_PAGES_MAX;
    let lies =
        [of(0), of(count + 8), of(count - 8), ToHome::Drafted, ToHome::Refused(reason("no"))];
    for lie in lies {
        let (supervisor, (mut reader, mut writer)) = leaving(&program);
        let offer = reader.receive::<ToAway>().expect("an offer");
        assert!(matches!(offer, ToAway::Prospect(_)), "{offer:?}");
        let mut say = |message| writer.send(&message).expect("it listens");
        say(ToHome::Welcome { missing: vec![], remembers: true, serves_faults: false });
        assert_eq!(reader.receive::<ToAway>().expect("an answer"), ToAway::BackingsSent);
        say(ToHome::Stored);
        let draft = reader.receive::<ToAway>().expect("a draft");
        assert!(matches!(draft, ToAway::Draft(_)), "{draft:?}");
        say(ToHome::Drafted);
        // Nobody lets in the streams that it announces: it does without.
        let announced = reader.receive::<ToAway>().expect("streams");
        assert!(matches!(announced, ToAway::Streams { .. }), "{announced:?}");
        let Ok(ToAway::Hashes(hashes)) = reader.receive() else { panic!("it does not ask") };
        assert_eq!(hashes.pages().map(|pages| pages.len()), Some(count));
        let name = format!("{lie:.60?}");
        say(lie);
        let told = supervisor.hear();
        assert!(matches!(told, FromDeputy::Stayed { .. }), "{name}: {told:?}");
        program.assert_plain(&name);
        supervisor.end(&name);
    }
}

#[test]
fn a_node_that_fails_at_the_last_moment_leaves_the_process_at_home() {
    let mut program = Program::start();
    for lie in [ToHome::Running, ToHome::Stored, ToHome::Frozen, ToHome::Refused(reason("no"))] {
        let name = format!("{lie:?}");
        let (supervisor, mut link) = leaving(&program);
        take_in(&supervisor, &mut link);
        link.1.send(&lie).expect("it listens");
        let told = supervisor.hear();
        assert!(matches!(told, FromDeputy::Stayed { .. }), "{name}: {told:?}");
        program.assert_plain(&name);
        supervisor.end(&name);
    }
}

#[test]
fn calls_that_no_honest_body_sends_are_not_made() {
    let directory = tempfile::tempdir().expect("a directory");
    let trace = directory.path().join("trace");
    let path = format!("{}\0", trace.display()).into_bytes();
    let at = 0x7000_0000;
    let create = [at, 0o102, 0o600, 0, 0, 0];
    let open = |path: &[u8]| vec![text(0, at, path)];
    let own = GuestTid(0);
    let shorter = Segment { length: path.len() as u32 - 1, ..text(0, at, &path) };
    let twice = [open(&path), open(&path)].concat();
    let lies = [
        ("execve", call(own, libc_call::EXECVE, [at; 6], open(&path))),
        ("rt_sigreturn", call(own, libc_call::RT_SIGRETURN, [0; 6], vec![])),
        ("mmap", call(own, libc_call::MMAP, [0, 4096, 7, 34, 0, 0], vec![])),
        ("no call", call(own, 9999, [0; 6], vec![])),
        ("own memory", call(own, libc_call::OPEN, [at, 2, 0, 0, 0, 0], open(b"/proc/self/mem\0"))),
        ("length", call(own, libc_call::OPEN, create, vec![shorter])),
        ("surplus", call(own, libc_call::OPEN, create, twice)),
        ("thread", call(GuestTid(1), libc_call::OPEN, create, open(&path))),
        (
            "signals",
            Call { signals_seen: u64::MAX, ..call(own, libc_call::OPEN, create, open(&path)) },
        ),
    ];
    for (name, lie) in lies {
        let program = Program::start();
        let (supervisor, mut link, capture) = away(&program);
        let tid = if lie.tid == own { capture.image.pid } else { lie.tid };
        link.1.send(&ToHome::Call(Call { tid, ..lie })).expect("it listens");
        let lost = loop {
            match supervisor.hear() {
                FromDeputy::Usage { .. } => {}
                told => break told,
            }
        };
        assert!(matches!(lost, FromDeputy::Lost { .. }), "{name}: {lost:?}");
        assert!(!trace.exists(), "{name}: it was made");
        supervisor.end(name);
    }
    // What is no lie is made: nothing but the lies kept the others from it.
    let program = Program::start();
    let (supervisor, mut link, capture) = away(&program);
    let honest = call(capture.image.pid, libc_call::OPEN, create, open(&path));
    link.1.send(&ToHome::Call(honest)).expect("it listens");
    let ToAway::Reply(reply) = link.0.receive().expect("a reply") else { panic!("no reply") };
    assert!(reply.result >= 0 && trace.exists(), "{}", reply.result);
    drop(program);
    supervisor.end("none");
}

/// One thing that is wrong with an image.
type Lie = (&'static str, fn(&mut Image));
type DraftLie = (&'static str, fn(&mut Draft));

const KERNEL: u64 = 0xffff_8000_0000_0000;
const FLAGS: usize = 18;
const CODE_SEGMENT: usize = 17;
const STACK_SEGMENT: usize = 20;
const FS_BASE: usize = 21;

fn shared_file(offset: u64) -> MappingKind {
    MappingKind::SharedFile { device: 1, inode: 1, offset }
}

fn mapping(start: u64, end: u64) -> Mapping {
    let kind = MappingKind::Anonymous { grows_down: false };
    Mapping {
        start: GuestAddr(start),
        end: GuestAddr(end),
        protection: 3,
        kind,
        flags: MappingFlags::default(),
    }
}

const LIES: &[Lie] = &[
    ("kernel memory", |image| image.mappings.push(mapping(KERNEL, KERNEL + 4096))),
    ("overlap", |image| image.mappings.insert(1, image.mappings[0].clone())),
    ("out of order", |image| image.mappings.reverse()),
    ("protection", |image| image.mappings[0].protection = u32::MAX),
    ("unknown file", |image| {
        let kind = MappingKind::File { backing: u32::MAX, offset: 0, is_shared: true };
        image.mappings[0].kind = kind;
    }),
    ("offset", |image| {
        let kind = MappingKind::File { backing: 0, offset: u64::MAX - 4095, is_shared: false };
        image.mappings[0].kind = kind;
    }),
    ("thread twice", |image| image.threads.push(image.threads[0].clone())),
    ("thread of init", |image| image.threads[0].tid = GuestTid(1)),
    ("more threads than there were", |image| {
        let mut other = image.threads[0].clone();
        other.tid = GuestTid(other.tid.0 + 1);
        image.threads.push(other);
        image.threads[0].tid = GuestTid(i32::MAX);
    }),
    ("registers missing", |image| image.threads[0].registers.truncate(26)),
    ("kernel's code segment", |image| image.threads[0].registers[CODE_SEGMENT] = 0x10),
    ("kernel's stack segment", |image| image.threads[0].registers[STACK_SEGMENT] = 0x18),
    ("base in the kernel", |image| image.threads[0].registers[FS_BASE] = KERNEL),
    ("processor state", |image| image.threads[0].extended_state.fill(0xff)),
    ("no processor state", |image| image.threads[0].extended_state.truncate(64)),
    ("clock", |image| image.clock.home_ns = u64::MAX),
    ("more of shared files than may be", |image| {
        let (start, size) = (1 << 40, 257 << 20);
        let large = Mapping { kind: shared_file(0), ..mapping(start, start + size) };
        let at = image.mappings.partition_point(|m| m.start.0 < start);
        image.mappings.insert(at, large);
    }),
    ("dispositions", |image| image.actions.truncate(63)),
];

#[test]
fn images_that_no_process_has_do_not_come_home_and_the_deputy_goes_on() {
    let program = Program::start();
    let (supervisor, mut link, capture) = away(&program);
    // Another node can have it; home knows of no such file.
    let shared: Lie = ("shared file", |image| image.mappings[0].kind = shared_file(0));
    for (name, lie) in LIES.iter().chain([&shared]) {
        let mut image = capture.image.clone();
        lie(&mut image);
        come_home(&mut link, image, &capture.pages);
        let told = loop {
            match supervisor.hear() {
                FromDeputy::Usage { .. } => {}
                told => break told,
            }
        };
        let FromDeputy::Stayed { reason } = told else { panic!("{name}: {told:?}") };
        assert_eq!(link.0.receive::<ToAway>().expect("an order"), ToAway::Resume, "{name}");
        assert!(reason.text.chars().count() <= LINE_CHARS_MAX, "{name}: {}", reason.text);
    }
    // It still serves its body: who its parent is only home knows.
    let parent = call(capture.image.pid, libc_call::GETPPID, [0; 6], vec![]);
    link.1.send(&ToHome::Call(parent)).expect("it listens");
    let ToAway::Reply(reply) = link.0.receive().expect("a reply") else { panic!("no reply") };
    assert_eq!(reply.result, i64::from(std::process::id()));
    let resident = supervisor.resident_kib_max();
    assert!((1..MEMORY_KIB_MAX).contains(&resident), "{resident} KiB");
    drop(program);
    assert!(matches!(supervisor.hear(), FromDeputy::Usage { .. } | FromDeputy::Ended { .. }));
    supervisor.end("all of them");
}

#[test]
fn a_body_that_cannot_be_read_once_it_has_said_that_it_leaves_is_served_on() {
    let program = Program::start();
    let (supervisor, mut link, capture) = away(&program);
    for _ in 0..2 {
        link.1.send(&ToHome::NeedsHome(reason("it leaves"))).expect("it listens");
        link.1.send(&ToHome::Stayed(reason("and cannot be read"))).expect("it listens");
        let told = loop {
            match supervisor.hear() {
                FromDeputy::Usage { .. } => {}
                told => break told,
            }
        };
        let FromDeputy::Stayed { reason } = told else { panic!("{told:?}") };
        assert!(reason.text.contains("cannot be read"), "{}", reason.text);
    }
    // The body runs by itself: what comes next is no order to go on.
    let parent = call(capture.image.pid, libc_call::GETPPID, [0; 6], vec![]);
    link.1.send(&ToHome::Call(parent)).expect("it listens");
    let told = link.0.receive::<ToAway>().expect("a reply");
    let ToAway::Reply(reply) = told else { panic!("{told:?}") };
    assert_eq!(reply.result, i64::from(std::process::id()));
    drop(program);
    assert!(matches!(supervisor.hear(), FromDeputy::Usage { .. } | FromDeputy::Ended { .. }));
    supervisor.end("it stayed");
}

#[test]
fn memory_that_no_honest_body_sends_ahead_is_not_taken_in() {
    type Ahead = fn(&Capture) -> Vec<ToHome>;
    let lies: [(&str, Ahead); 5] = [
        ("bytes of a file that it does not share", |it| {
            let start = it.image.mappings[0].start;
            vec![ToHome::Written(Pages::at(start, vec![1; 7]))]
        }),
        ("pages unasked", |it| vec![ToHome::Pages(it.pages[0].clone())]),
        ("discarded unasked", |_| vec![ToHome::Discard(vec![(GuestAddr(0), GuestAddr(4096))])]),
        ("pages nowhere", |it| {
            vec![comes_ahead(it), ToHome::Pages(Pages::at(GuestAddr(KERNEL), vec![1; 4096]))]
        }),
        ("pages in the agent", |it| {
            let agent = GuestAddr(it.image.reserved.0);
            vec![comes_ahead(it), ToHome::Pages(Pages::at(agent, vec![1; 4096]))]
        }),
    ];
    for (name, lie) in lies {
        let program = Program::start();
        let (supervisor, mut link, capture) = away(&program);
        for message in lie(&capture) {
            let is_draft = matches!(message, ToHome::ComesAhead { .. });
            link.1.send(&message).expect("it listens");
            if is_draft {
                let answer = link.0.receive::<ToAway>().expect("an answer");
                assert!(matches!(answer, ToAway::Holds { .. }), "{name}: {answer:?}");
            }
        }
        let lost = loop {
            match supervisor.hear() {
                FromDeputy::Usage { .. } => {}
                told => break told,
            }
        };
        assert!(matches!(lost, FromDeputy::Lost { .. }), "{name}: {lost:?}");
        supervisor.end(name);
    }
}

#[test]
fn a_draft_that_no_process_has_is_not_laid_out_at_home_and_the_deputy_goes_on() {
    let program = Program::start();
    let (supervisor, mut link, capture) = away(&program);
    let drafts: [DraftLie; 6] = [
        ("kernel memory", |draft| draft.mappings.push(mapping(KERNEL, KERNEL + 4096))),
        ("out of order", |draft| draft.mappings.reverse()),
        ("unknown file", |draft| {
            let kind = MappingKind::File { backing: u32::MAX, offset: 0, is_shared: true };
            draft.mappings[0].kind = kind;
        }),
        ("a file that it does not share", |draft| draft.mappings[0].kind = shared_file(0)),
        ("a file behind its end", |draft| draft.mappings[0].kind = shared_file(u64::MAX - 4095)),
        ("the place of the agent", |draft| {
            let (start, end) = draft.reserved;
            let at = draft.mappings.partition_point(|m| m.start.0 < start);
            draft.mappings.insert(at, mapping(start, end));
        }),
    ];
    for (name, lie) in drafts {
        let mut capture = capture.clone();
        lie(&mut capture.draft);
        link.1.send(&comes_ahead(&capture)).expect("it listens");
        assert_eq!(link.0.receive::<ToAway>().expect("an answer"), ToAway::Unready, "{name}");
    }
    link.1.send(&comes_ahead(&capture)).expect("it listens");
    let answer = link.0.receive::<ToAway>().expect("an answer");
    assert!(matches!(answer, ToAway::Holds { .. }), "{answer:?}");
    drop(program);
    supervisor.end("all of them");
}

fn comes_ahead(capture: &Capture) -> ToHome {
    let heap_end = GuestAddr(0);
    ToHome::ComesAhead { draft: Box::new(capture.draft.clone()), heap_end }
}

/// What a body sends that has to go home.
fn come_home(link: &mut Link, image: Image, pages: &[Pages]) {
    link.1.send(&ToHome::NeedsHome(reason("its home"))).expect("it listens");
    link.1.send(&ToHome::Image(Box::new(image))).expect("it listens");
    for run in pages {
        link.1.send(&ToHome::Pages(run.clone())).expect("it listens");
    }
    link.1.send(&ToHome::ImageSent).expect("it listens");
}

#[test]
fn registers_that_come_home_have_no_privileges() {
    let mut program = Program::start();
    let (supervisor, mut link, capture) = away(&program);
    let mut image = capture.image.clone();
    // IOPL 3, NT, RF, VM, VIF, VIP, ID.
    image.threads[0].registers[FLAGS] |= 0x3b_7000;
    come_home(&mut link, image, &capture.pages);
    let told = loop {
        match supervisor.hear() {
            FromDeputy::CameHome { .. } => break true,
            FromDeputy::Stayed { .. } => break false,
            _ => {}
        }
    };
    assert!(told, "the kernel takes from flags what a program may not have");
    supervisor.end("flags");
    program.assert_plain("flags");
    kernel::tracee::seize(program.pid(), kernel::tracee::SeizeOptions::default()).expect("ours");
    kernel::tracee::interrupt(program.pid()).expect("ours");
    kernel::tracee::wait(program.pid()).expect("it stops");
    let flags = kernel::tracee::registers(program.pid()).expect("it stands").eflags;
    // IOPL, VM, VIF, VIP: NT anybody may set.
    assert_eq!(flags & 0x1a_3000, 0, "{flags:#x}");
}

/// Calls a real supervisor's berth, for whose daemon the test stands.
fn knock(supervisor: &Supervisor, role: Role) -> Link {
    let (listener, berth) = listen();
    let calling = std::thread::spawn(move || link::connect(&berth, role));
    let (mut stream, _): (TcpStream, _) = listener.accept().expect("our call");
    stream.read_exact(&mut [0; PREFACE_BYTES]).expect("a preface");
    supervisor.tell(&ToBody::Connection { role }, Some(stream.as_raw_fd()));
    calling.join().expect("it calls").expect("it has the key")
}

/// A berth of the real thing, which the test calls as a home would.
fn berth() -> (Supervisor, Link) {
    berth_with(&[])
}

/// Whether a berth can have a sandbox here, as it cannot in a chroot outside a lab.
fn has_sandboxes() -> bool {
    let has = features::settled().has(Feature::UserNamespaces);
    if !has {
        needs::skip("it needs user namespaces, which this machine or its chroot(2) forbids");
    }
    has
}

/// The same, where earlier guests are said to have left these.
fn berth_with(imprints: &[OwnedFd]) -> (Supervisor, Link) {
    let supervisor = Supervisor::start(&["body"]);
    let (ticket, pid, node) = (Ticket([7; 16]), HomePid(7), NodeId(1));
    let expect = ToBody::Expect { ticket, key: KEY, pid, node, guest_cgroup: vec![] };
    supervisor.tell(&expect, None);
    for imprint in imprints {
        supervisor.tell(&ToBody::Imprint { is_own: false }, Some(imprint.as_raw_fd()));
    }
    let link = knock(&supervisor, Role::Deputy);
    (supervisor, link)
}

/// What a home sends up to a point, and how a lie is taken: refused, or with the link's end.
fn assert_refused(supervisor: Supervisor, mut link: Link, name: &str) {
    let patience = Some(PATIENCE);
    link.0.set_timeout(patience).expect("a link");
    loop {
        match link.0.receive::<ToHome>() {
            Ok(ToHome::Welcome { .. } | ToHome::Stored | ToHome::Drafted) => {}
            Ok(ToHome::Refused(_)) => break,
            Err(link::LinkError::Silent) => panic!("{name}: nothing is said"),
            Err(_) => break,
            Ok(other) => panic!("{name}: {other:.80?}"),
        }
    }
    let told: FromBody = supervisor.hear();
    assert!(matches!(told, FromBody::Gone { .. }), "{name}: {told:?}");
    let resident = supervisor.resident_kib_max();
    assert!(resident < MEMORY_KIB_MAX, "{name}: {resident} KiB");
    supervisor.end(name);
}

/// An honest process, which stays home.
fn captured() -> Capture {
    let mut program = Program::start();
    let (supervisor, mut link) = leaving(&program);
    let capture = take_in(&supervisor, &mut link);
    link.1.send(&ToHome::Refused(reason("only looking"))).expect("it listens");
    assert!(matches!(supervisor.hear(), FromDeputy::Stayed { .. }));
    program.assert_plain("it was only looked at");
    supervisor.end("none");
    capture
}

fn send_all(link: &mut Link, messages: Vec<ToAway>) {
    for message in messages {
        // Who is refused need not be listened to.
        if link.1.send(&message).is_err() {
            return;
        }
    }
}

fn journey(capture: &Capture, image: Image, pages: Vec<Pages>) -> Vec<ToAway> {
    let mut messages = vec![
        ToAway::Prospect(Box::new(capture.prospect.clone())),
        ToAway::BackingsSent,
        ToAway::Draft(Box::new(capture.draft.clone())),
        ToAway::Image(Box::new(image)),
    ];
    messages.extend(pages.into_iter().map(ToAway::Pages));
    messages.extend([ToAway::ImageSent, ToAway::Release]);
    messages
}

#[test]
fn images_that_no_process_has_are_not_built_by_a_node() {
    let capture = captured();
    for (name, lie) in LIES {
        let mut image = capture.image.clone();
        lie(&mut image);
        let (supervisor, mut link) = berth();
        send_all(&mut link, journey(&capture, image, capture.pages.clone()));
        assert_refused(supervisor, link, name);
    }
}

/// A page of private memory of a process.
fn private_page(capture: &Capture) -> GuestAddr {
    let is_plain = |m: &&Mapping| m.kind == MappingKind::Anonymous { grows_down: false };
    capture.draft.mappings.iter().find(is_plain).expect("it has a heap").start
}

/// What is sent of a process up to its first page.
fn prelude(capture: &Capture) -> Vec<ToAway> {
    let mut messages = journey(capture, capture.image.clone(), vec![]);
    messages.truncate(3);
    messages
}

#[test]
fn hashes_that_are_none_of_a_process_are_not_looked_up() {
    if !has_sandboxes() {
        return;
    }
    let capture = captured();
    let page = private_page(&capture);
    let of = |start: u64, pages: u64, hashes: usize| {
        let spans = vec![(GuestAddr(start), GuestAddr(start.wrapping_add(pages << 12)))];
        PageHashes { spans, hashes: vec![7; hashes] }
    };
    let lies = [
        ("fewer than pages", of(page.0, 1, 0)),
        ("more than pages", of(page.0, 1, 64)),
        ("half a hash", of(page.0, 1, 16)),
        ("half a page", of(page.0 + 1, 1, 32)),
        ("kernel memory", of(KERNEL, 1, 32)),
        ("outside its mappings", of(0x1000, 1, 32)),
        ("all memory", of(0, 1 << 35, 32)),
        ("backwards", of(page.0, u64::MAX >> 12, 32)),
    ];
    for (name, lie) in lies {
        let (supervisor, mut link) = berth();
        let messages = [prelude(&capture), vec![ToAway::Hashes(lie), ToAway::ImageSent]];
        send_all(&mut link, messages.concat());
        assert_refused(supervisor, link, name);
    }
    // Guesses without end are cut short.
    let (supervisor, mut link) = berth();
    send_all(&mut link, prelude(&capture));
    let guess = ToAway::Hashes(of(page.0, 1, 32));
    let (mut reader, mut writer) = link;
    let answers = std::thread::spawn(move || {
        loop {
            match reader.receive::<ToHome>() {
                Ok(ToHome::Refused(reason)) => break reason.code,
                Ok(_) => {}
                Err(error) => panic!("not even refused: {error}"),
            }
        }
    });
    let pages_max = (2 * capture.prospect.memory_bytes + GROWTH_BYTES_MAX) >> 12;
    let sent = (0..2 * pages_max).take_while(|_| writer.send(&guess).is_ok()).count();
    assert!(sent > 0);
    assert_eq!(answers.join().expect("an answer"), "grown");
    supervisor.end("guesses");
}

#[test]
fn what_earlier_guests_are_said_to_have_left_is_used_only_if_it_is_what_was_asked_for() {
    if !has_sandboxes() {
        return;
    }
    let capture = captured();
    let (page, wanted) = (private_page(&capture), [7; 4096]);
    let hash = *blake3::hash(&wanted).as_bytes();
    let file = |content: &[u8]| {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(content).expect("room");
        OwnedFd::from(file)
    };
    let mut hashes = PageHashes::default();
    hashes.add(page, &hash);
    let ask = |imprints: &[OwnedFd]| {
        let (supervisor, mut link) = berth_with(imprints);
        send_all(&mut link, [prelude(&capture), vec![ToAway::Hashes(hashes.clone())]].concat());
        let lacking = loop {
            match link.0.receive::<ToHome>().expect("an answer") {
                ToHome::Welcome { .. } | ToHome::Stored | ToHome::Drafted => {}
                ToHome::Lacks(lacking) => break lacking.told(1).expect("about one page"),
                other => panic!("{other:?}"),
            }
        };
        assert!(supervisor.resident_kib_max() < MEMORY_KIB_MAX);
        link.1.send(&ToAway::Release).expect("it listens");
        assert!(matches!(supervisor.hear(), FromBody::Gone { .. }));
        supervisor.end("imprints");
        lacking[0]
    };
    let other = [[8; 4096].as_slice(), &hash[..8]].concat();
    let honest = [&wanted[..], &hash[..8]].concat();
    let sparse = File::from(file(b""));
    sparse.set_len(1 << 42).expect("no room is taken");
    let pipe = std::io::pipe().expect("a pipe").0.into();
    let lies = [file(&other), file(&honest[1..]), file(b""), sparse.into(), pipe];
    assert!(ask(&lies));
    assert!(!ask(&[file(&honest)]), "an honest one serves");
}

#[test]
fn drafts_that_no_process_has_are_not_laid_out() {
    let capture = captured();
    let lies: [DraftLie; 9] = [
        ("kernel memory", |draft| draft.mappings.push(mapping(KERNEL, KERNEL + 4096))),
        ("overlap", |draft| draft.mappings.insert(1, draft.mappings[0].clone())),
        ("out of order", |draft| draft.mappings.reverse()),
        ("protection", |draft| draft.mappings[0].protection = u32::MAX),
        ("no threads", |draft| draft.threads = 0),
        ("too many threads", |draft| draft.threads = u32::MAX),
        ("reserved in the kernel", |draft| draft.reserved = (KERNEL, KERNEL + 4096)),
        ("reserved backwards", |draft| draft.reserved = (1 << 40, 1 << 39)),
        ("all memory reserved", |draft| draft.reserved = (0, 1 << 47)),
    ];
    for (name, lie) in lies {
        let mut draft = capture.draft.clone();
        lie(&mut draft);
        let capture = Capture { draft, ..capture.clone() };
        let (supervisor, mut link) = berth();
        send_all(&mut link, journey(&capture, capture.image.clone(), capture.pages.clone()));
        assert_refused(supervisor, link, name);
    }
    // An image of another process than the draft's.
    let lies: [Lie; 4] = [
        ("another place for the agent", |image| image.reserved.1 += 4096),
        ("memory in the place of the agent", |image| {
            let (start, end) = image.reserved;
            image.mappings.push(mapping(start, end));
            image.mappings.sort_by_key(|mapping| mapping.start);
        }),
        ("without what the kernel provides", |image| {
            image.mappings.retain(|m| !matches!(m.kind, MappingKind::Kernel { .. }));
        }),
        ("a file that was not announced", |image| {
            let kind = MappingKind::File { backing: 999, offset: 0, is_shared: false };
            image.mappings[0].kind = kind;
        }),
    ];
    for (name, lie) in lies {
        let mut image = capture.image.clone();
        lie(&mut image);
        let (supervisor, mut link) = berth();
        send_all(&mut link, journey(&capture, image, capture.pages.clone()));
        assert_refused(supervisor, link, name);
    }
}

#[test]
fn memory_and_files_outside_of_what_was_said_are_not_taken() {
    let capture = captured();
    let page = |address: u64, count: usize| Pages::at(GuestAddr(address), vec![0xcc; count << 12]);
    let first = capture.image.mappings[0].start.0;
    let runs = [
        ("outside", vec![page(0x1000, 1)]),
        ("kernel", vec![page(KERNEL, 1)]),
        ("wraps", vec![page(u64::MAX - 4095, 1)]),
        ("half a page", vec![Pages::at(GuestAddr(first), vec![1; 100])]),
    ];
    let short = Pages { content: vec![1; 4096], ..page(first, 2) };
    let none = Pages { spans: vec![], ..page(first, 1) };
    let runs = runs.into_iter().chain([("less than said", vec![short]), ("nowhere", vec![none])]);
    for (name, pages) in runs {
        let (supervisor, mut link) = berth();
        send_all(&mut link, journey(&capture, capture.image.clone(), pages));
        assert_refused(supervisor, link, name);
    }
    let unknown = |size| Backing { path: b"/no/such/file".to_vec(), size, hash: [1; 32] };
    let part =
        |backing, offset, length| ToAway::BackingPart { backing, offset, content: vec![1; length] };
    let parts = [
        ("beyond its end", 8192, part(0, 8192, 1)),
        ("far beyond", 8192, part(0, u64::MAX, 100)),
        ("of a file not asked for", 8192, part(7, 0, 1)),
        ("of more than there is room for", u64::MAX, part(0, 0, 1)),
    ];
    for (name, size, part) in parts {
        let prospect = Prospect { backings: vec![unknown(size)], ..capture.prospect.clone() };
        let (supervisor, mut link) = berth();
        send_all(&mut link, vec![ToAway::Prospect(Box::new(prospect)), part]);
        assert_refused(supervisor, link, name);
    }
}

/// A message of a stream: one page from the first mapping on, unless it is to be said otherwise.
fn part(epoch: u32, packing: Packing, spans: Vec<(u64, u64)>, content: &[u8]) -> Vec<u8> {
    let spans = spans.into_iter().map(|(start, end)| (GuestAddr(start), GuestAddr(end)));
    let head = PartHead { epoch, packing, spans: spans.collect() };
    [&head.encode(), content].concat()
}

/// Says what a source says until it has streams.
fn begin_streams(link: &mut Link, capture: &Capture, count: u32) {
    let prospect = Box::new(capture.prospect.clone());
    let draft = Box::new(capture.draft.clone());
    let begin = [ToAway::Prospect(prospect), ToAway::BackingsSent, ToAway::Draft(draft)];
    send_all(link, begin.into());
    send_all(link, vec![ToAway::Streams { count }]);
}

#[test]
fn streams_of_memory_that_lie_end_a_berth() {
    if !has_sandboxes() {
        return;
    }
    let capture = captured();
    let first = capture.image.mappings[0].start.0;
    let page = |address: u64| vec![(address, address + 4096)];
    let plain = |epoch, spans, length| part(epoch, Packing::Plain, spans, &vec![0xcc; length]);
    // What 64 bytes of LZ4 make of themselves is far more than a page, or nothing.
    let bomb = [&[0x1f, 0xaa, 1, 0][..], &[0xff; 60], &[0, 0x50, 1, 2, 3, 4, 5]].concat();
    let lies = [
        ("nonsense", vec![0xff; 100]),
        ("nothing", vec![]),
        ("outside", plain(1, page(0x1000), 4096)),
        ("kernel", plain(1, page(KERNEL), 4096)),
        ("half a page", plain(1, vec![(first, first + 100)], 100)),
        ("less than said", plain(1, page(first), 4000)),
        ("everything", plain(1, vec![(0, u64::MAX)], 4096)),
        ("before the draft", plain(0, page(first), 4096)),
        ("a bomb", part(1, Packing::Lz4, page(first), &bomb)),
        ("too little", part(1, Packing::Lz4, page(first), &[0x10, 1])),
    ];
    for (name, message) in lies {
        let (supervisor, mut link) = berth();
        begin_streams(&mut link, &capture, 1);
        let (_reader, mut writer) = knock(&supervisor, Role::Stream);
        writer.send_bytes(&[&message]).expect("it listens");
        send_all(&mut link, vec![ToAway::Streamed { parts: 1 }]);
        assert_refused(supervisor, link, name);
    }
    let (supervisor, mut link) = berth();
    begin_streams(&mut link, &capture, u32::MAX);
    assert_refused(supervisor, link, "too many");
    let (supervisor, mut link) = berth();
    begin_streams(&mut link, &capture, 1);
    let (reader, writer) = knock(&supervisor, Role::Stream);
    writer.close();
    drop(reader);
    send_all(&mut link, vec![ToAway::Streamed { parts: 1 }]);
    assert_refused(supervisor, link, "a stream that ends");
    let (supervisor, mut link) = berth();
    begin_streams(&mut link, &capture, 1);
    // None comes, and the source goes on; what it says of parts cannot be.
    send_all(&mut link, vec![ToAway::Streamed { parts: 0 }, ToAway::ImageSent]);
    assert_refused(supervisor, link, "no stream, and no image");
}

#[test]
fn messages_out_of_their_turn_end_a_berth() {
    let capture = captured();
    let prospect = || ToAway::Prospect(Box::new(capture.prospect.clone()));
    let draft = || ToAway::Draft(Box::new(capture.draft.clone()));
    let image = || ToAway::Image(Box::new(capture.image.clone()));
    let lies = [
        ("run nothing", vec![ToAway::Run]),
        ("an image first", vec![image()]),
        ("memory first", vec![ToAway::Pages(capture.pages[0].clone())]),
        ("no files", vec![prospect(), image()]),
        ("no draft", vec![prospect(), ToAway::BackingsSent, image()]),
        ("two drafts", vec![prospect(), ToAway::BackingsSent, draft(), draft()]),
        ("no image", vec![prospect(), ToAway::BackingsSent, draft(), ToAway::ImageSent]),
        ("run an image", vec![prospect(), ToAway::BackingsSent, draft(), image(), ToAway::Run]),
        ("two offers", vec![prospect(), prospect()]),
        ("a signal", vec![prospect(), ToAway::BackingsSent, ToAway::Stop]),
    ];
    for (name, messages) in lies {
        let (supervisor, mut link) = berth();
        send_all(&mut link, messages);
        assert_refused(supervisor, link, name);
    }
}

/// Numbers of x86-64.
mod libc_call {
    pub const OPEN: i64 = 2;
    pub const MMAP: i64 = 9;
    pub const RT_SIGRETURN: i64 = 15;
    pub const EXECVE: i64 = 59;
    pub const KILL: i64 = 62;
    pub const GETPPID: i64 = 110;
}
