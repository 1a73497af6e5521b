//! Nodes that lie to the home of a process, before they have it and while they have it.
//!
//! A home makes no call and takes in no memory that an honest body would not have sent, and keeps
//! the process where that is still at home.

use super::{
    Capture, DraftLie, FLAGS, KERNEL, LIES, Lie, Link, MEMORY_KIB_MAX, Program, Supervisor,
    leaving, mapping, reason, shared_file, take_in, until,
};
use kernel::features::{self, Feature};
use std::time::{Duration, Instant};
use wire::bounded::LINE_CHARS_MAX;
use wire::forward::{Call, Direction, Place, Segment, ToAway, ToHome, Yield};
use wire::hashes::Lacking;
use wire::ids::{GuestAddr, GuestTid};
use wire::image::{Image, MappingKind, PackedPages, Pages};
use wire::limits::HASHED_PAGES_MAX;
use wire::supervisor::{EXEC, FromDeputy};

/// A process that is away on a node which the test plays.
fn away(program: &Program) -> (Supervisor, Link, Capture) {
    let (supervisor, mut link) = leaving(program);
    let capture = take_in(&supervisor, &mut link);
    link.1.send(&ToHome::Restored).expect("it listens");
    assert_eq!(link.0.receive::<ToAway>().expect("an order"), ToAway::Run);
    link.1.send(&ToHome::Running).expect("it listens");
    let told = supervisor.hear_outcome();
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
        ToHome::ImageSent { awaits_others: false },
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
        let FromDeputy::Stayed { reason } = supervisor.hear_outcome() else {
            panic!("{name}: it left")
        };
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
        let told = supervisor.hear_outcome();
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
        let told = supervisor.hear_outcome();
        assert!(matches!(told, FromDeputy::Stayed { .. }), "{name}: {told:?}");
        program.assert_plain(&name);
        supervisor.end(&name);
    }
}

/// How long a node keeps a home waiting that is to say how far the move is: more than the pause
/// between two such words.
const SLOW: Duration = Duration::from_millis(400);

#[test]
fn a_slow_node_that_fails_at_the_last_moment_leaves_the_process_at_home() {
    let mut program = Program::start();
    let (supervisor, mut link) = leaving(&program);
    std::thread::sleep(SLOW);
    take_in(&supervisor, &mut link);
    link.1.send(&ToHome::Refused(reason("at last"))).expect("it listens");
    // This comes first, and is no outcome.
    let told = supervisor.hear();
    assert!(matches!(told, FromDeputy::Progress(_)), "{told:?}");
    let told = supervisor.hear_outcome();
    let FromDeputy::Stayed { reason } = told else { panic!("{told:?}") };
    assert_eq!(reason.text, "at last");
    program.assert_plain("slow");
    supervisor.end("slow");
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
        ("execveat", call(own, libc_call::EXECVEAT, [at; 6], open(&path))),
        ("list", program_call(own, &[24, 1 << 40, 0], b"sh\0-c\0")),
        ("no end", program_call(own, &[16, 0], b"sh")),
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
        let lost = supervisor.hear_outcome();
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

/// What a body says of children that it was not given, and leaves unsaid of one that it was.
#[test]
fn a_body_that_lies_about_its_children_ends_nobody_elses() {
    let program = Program::start();
    let (supervisor, mut link, capture) = away(&program);
    let tid = capture.image.pid;
    let mut bystander = Program::start();
    let child = GuestTid(bystander.pid());
    for has_body in [false, true] {
        link.1.send(&ToHome::ChildMade { tid, child, has_body }).expect("it listens");
    }
    // It is served on, and makes one.
    let plain = [wire::calls::thread::SIGCHLD, 0, 0, 0, 0, 0];
    let number = i64::from(wire::calls::thread::CLONE);
    let fork = |sequence| Call { sequence, ..call(tid, number, plain, vec![]) };
    link.1.send(&ToHome::Call(fork(1))).expect("it listens");
    let ToAway::Child { child, .. } = link.0.receive().expect("a child") else { panic!("none") };
    let ToAway::Reply(reply) = link.0.receive().expect("a reply") else { panic!("no reply") };
    assert_eq!(reply.result, i64::from(child.0));
    // Nobody makes another before it has said what has become of the first.
    link.1.send(&ToHome::Call(fork(2))).expect("it listens");
    let lost = supervisor.hear_outcome();
    assert!(matches!(lost, FromDeputy::Lost { .. }), "{lost:?}");
    until("what sleeps without a body has ended", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.0)).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    });
    bystander.assert_plain("a bystander");
    supervisor.end("children");
}

/// execve(2) of a shell, with a list of arguments that is sent as that.
fn program_call(tid: GuestTid, words: &[u64], strings: &[u8]) -> Call {
    let (at, list) = (0x7000_0000, 0x7000_1000);
    let mut data: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    data.extend(strings);
    let segments = vec![text(0, at, b"/bin/sh\0"), text(1, list, &data)];
    call(tid, libc_call::EXECVE, [at, list, 0, 0, 0, 0], segments)
}

/// Whatever moment it is at which the node hangs up: the process runs the program that it has asked
/// for, or was lost before it had one.
#[test]
fn a_program_that_has_begun_outlives_the_node_that_has_asked_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut begun, mut lost) = (0, 0);
    for round in 0..60u32 {
        let mut program = Program::start();
        let (supervisor, mut link, capture) = away(&program);
        let trace = directory.path().join(round.to_string());
        let script = format!("echo $$ > {}; exec sleep 1000\0", trace.display());
        let strings = [b"sh\0-c\0", script.as_bytes()].concat();
        let call = program_call(capture.image.pid, &[32, 35, 38, 0], &strings);
        link.1.send(&ToHome::Call(call)).expect("it listens");
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_micros(u64::from(20 * round)) {
            std::hint::spin_loop();
        }
        link.1.close();
        drop(link);
        match supervisor.hear_outcome() {
            FromDeputy::CameHome { reason, .. } => {
                assert_eq!(reason.code, EXEC);
                let told = || std::fs::read_to_string(&trace).ok();
                let told = until("it runs", || told().filter(|told| told.ends_with('\n')));
                assert_eq!(told.trim(), program.pid().to_string());
                program.assert_plain("a program");
                begun += 1;
            }
            FromDeputy::Lost { .. } => {
                until("it has ended", || program.0.try_wait().expect("our child"));
                assert!(!trace.exists(), "round {round}: it was killed with its program");
                lost += 1;
            }
            other => panic!("{other:?}"),
        }
        supervisor.end("a program");
    }
    eprintln!("{begun} begun, {lost} lost");
    assert!(begun > 0);
}

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
        let told = supervisor.hear_outcome();
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
    let told = supervisor.hear_outcome();
    assert!(matches!(told, FromDeputy::Ended { .. }), "{told:?}");
    supervisor.end("all of them");
}

#[test]
fn a_body_that_cannot_be_read_once_it_has_said_that_it_leaves_is_served_on() {
    let program = Program::start();
    let (supervisor, mut link, capture) = away(&program);
    for _ in 0..2 {
        link.1.send(&ToHome::NeedsHome(reason("it leaves"))).expect("it listens");
        link.1.send(&ToHome::Stayed(reason("and cannot be read"))).expect("it listens");
        let told = supervisor.hear_outcome();
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
    let told = supervisor.hear_outcome();
    assert!(matches!(told, FromDeputy::Ended { .. }), "{told:?}");
    supervisor.end("it stayed");
}

#[test]
fn memory_that_no_honest_body_sends_ahead_is_not_taken_in() {
    type Ahead = fn(&Capture) -> Vec<ToHome>;
    let lies: [(&str, Ahead); 8] = [
        ("bytes of a file that it does not share", |it| {
            let start = it.image.mappings[0].start;
            vec![ToHome::Written(Pages::at(start, vec![1; 7]))]
        }),
        ("pages unasked", |it| vec![ToHome::Pages(it.pages[0].clone())]),
        ("discarded unasked", |_| vec![ToHome::Discard(vec![(GuestAddr(0), GuestAddr(4096))])]),
        ("pages nowhere", |it| {
            vec![comes_ahead(it), ToHome::Pages(Pages::at(GuestAddr(KERNEL), vec![1; 4096]))]
        }),
        ("packed pages unasked", |it| vec![packed(it.image.mappings[0].start, 4096, &[1; 40])]),
        ("packed pages that are none", |it| {
            vec![comes_ahead(it), packed(it.image.mappings[0].start, 4096, &[255; 40])]
        }),
        ("packed pages without end", |it| {
            vec![comes_ahead(it), packed(GuestAddr(0), u64::MAX, &[1; 40])]
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
        let lost = supervisor.hear_outcome();
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

fn packed(start: GuestAddr, bytes: u64, block: &[u8]) -> ToHome {
    let spans = vec![(start, GuestAddr(start.0.saturating_add(bytes)))];
    ToHome::PackedPages(PackedPages { spans, block: block.to_vec() })
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
    link.1.send(&ToHome::ImageSent { awaits_others: false }).expect("it listens");
}

#[test]
fn registers_that_come_home_have_no_privileges() {
    let mut program = Program::start();
    let (supervisor, mut link, capture) = away(&program);
    let mut image = capture.image.clone();
    // IOPL 3, NT, RF, VM, VIF, VIP, ID.
    image.threads[0].registers[FLAGS] |= 0x3b_7000;
    come_home(&mut link, image, &capture.pages);
    // The kernel takes from flags what a program may not have.
    let told = supervisor.hear_outcome();
    assert!(matches!(told, FromDeputy::CameHome { .. }), "{told:?}");
    supervisor.end("flags");
    program.assert_plain("flags");
    kernel::tracee::seize(program.pid(), kernel::tracee::SeizeOptions::default()).expect("ours");
    kernel::tracee::interrupt(program.pid()).expect("ours");
    kernel::tracee::wait(program.pid()).expect("it stops");
    let flags = kernel::tracee::registers(program.pid()).expect("it stands").eflags;
    // IOPL, VM, VIF, VIP: NT anybody may set.
    assert_eq!(flags & 0x1a_3000, 0, "{flags:#x}");
}

/// Numbers of x86-64.
mod libc_call {
    pub const OPEN: i64 = 2;
    pub const MMAP: i64 = 9;
    pub const RT_SIGRETURN: i64 = 15;
    pub const EXECVE: i64 = 59;
    pub const EXECVEAT: i64 = 322;
    pub const KILL: i64 = 62;
    pub const GETPPID: i64 = 110;
}
