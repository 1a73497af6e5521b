//! Supervisors whose other side has all the keys and lies. The test plays the liar, and the daemon;
//! the supervisor is the real one.
//!
//! * [`nodes`]: what a home makes of a node that a process was lent to
//! * [`homes`]: what a node makes of a home that sends one
//!
//! What a liar may do to a process that is his is his. All else must hold: the supervisor does not
//! fall, nothing is executed that an honest side would not have asked for, what is at home stays
//! whole, and what was wrong is refused by name.

mod homes;
mod nodes;

use link::{LinkReader, LinkWriter};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, setsockopt,
    socketpair, sockopt,
};
use nix::sys::time::TimeVal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{IoSlice, Read, Seek};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wire::assignment::{Assignment, Half};
use wire::forward::{ToAway, ToHome};
use wire::ids::{GuestAddr, GuestTid, HomePid, NodeId, Ticket};
use wire::image::{Draft, Image, Mapping, MappingFlags, MappingKind, Pages, Prospect};
use wire::supervisor::{
    Berth, FromDaemon, FromDeputy, PACKET_BYTES_MAX, PREFACE_BYTES, Reason, ToDeputy,
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
    fn start(half: Half) -> Supervisor {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (control, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("a socket");
        let patience = TimeVal::new(PATIENCE.as_secs() as i64, 0);
        setsockopt(&control, sockopt::ReceiveTimeout, &patience).expect("a timeout");
        let log = tempfile::tempfile().expect("a file");
        let child = Command::new(OSMOS)
            .arg(match half {
                Half::Deputy { .. } => "deputy",
                Half::Body => "body",
            })
            .args(["--control-fd", "0", "--without", ""])
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(log.try_clone().expect("the same file"))
            .spawn()
            .expect("a supervisor");
        let bytes = postcard::to_stdvec(&Assignment::Half(half)).expect("a message of ours");
        assert!(kernel::packet::send_now(&control, &bytes).expect("it listens"));
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

    /// What has become of a process, or of its move. What a deputy says on the way there depends on
    /// how long that takes.
    fn hear_outcome(&self) -> FromDeputy {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.hear() {
                FromDeputy::Progress(_)
                | FromDeputy::Usage { .. }
                | FromDeputy::Waits(_)
                | FromDeputy::Clocks(_)
                | FromDeputy::Forked { .. } => {}
                outcome => return outcome,
            }
            assert!(Instant::now() < deadline, "it comes to nothing");
        }
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
    let supervisor = Supervisor::start(Half::Deputy { pid: HomePid(program.pid()) });
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
        panic!("no draft: {:?}", supervisor.hear_outcome())
    };
    writer.send(&ToHome::Drafted).expect("it listens");
    let mut pages = Vec::new();
    // What is sent while it runs ends with a draft; what has changed since comes again.
    let image = loop {
        match reader.receive() {
            Ok(ToAway::Pages(run)) => pages.push(run),
            Ok(ToAway::Draft(_)) => writer.send(&ToHome::Drafted).expect("it listens"),
            Ok(ToAway::Image(image)) => break image,
            _ => panic!("no image: {:?}", supervisor.hear_outcome()),
        }
    };
    loop {
        match reader.receive().expect("its memory") {
            ToAway::Pages(run) => pages.push(run),
            ToAway::ImageSent => break,
            other => panic!("{other:?} in the middle of an image"),
        }
    }
    Capture { prospect: *prospect, draft: *draft, image: *image, pages }
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

/// An honest process, which stays home.
fn captured() -> Capture {
    let mut program = Program::start();
    let (supervisor, mut link) = leaving(&program);
    let capture = take_in(&supervisor, &mut link);
    link.1.send(&ToHome::Refused(reason("only looking"))).expect("it listens");
    assert!(matches!(supervisor.hear_outcome(), FromDeputy::Stayed { .. }));
    program.assert_plain("it was only looked at");
    supervisor.end("none");
    capture
}
