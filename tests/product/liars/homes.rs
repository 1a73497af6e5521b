//! Homes that lie to a node which is to take a process in.
//!
//! A node builds nothing that no process has, whatever is sent in whatever order, takes in no more
//! than was announced, and says what was wrong or closes the link.

use super::{
    Capture, DraftLie, KERNEL, KEY, LIES, Lie, Link, MEMORY_KIB_MAX, PATIENCE, Supervisor,
    captured, listen, mapping,
};
use kernel::features::{self, Feature};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use wire::assignment::Half;
use wire::forward::{ToAway, ToHome};
use wire::hashes::PageHashes;
use wire::ids::{GuestAddr, HomePid, NodeId, Ticket};
use wire::image::{Backing, Image, Mapping, MappingKind, Pages, Prospect};
use wire::limits::GROWTH_BYTES_MAX;
use wire::stream::{Packing, PartHead};
use wire::supervisor::{FromBody, PREFACE_BYTES, Role, ToBody};

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
    let supervisor = Supervisor::start(Half::Body);
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
    // One too many and no more: the end of a link with something unread overtakes a refusal.
    let sent = (0..=pages_max).take_while(|_| writer.send(&guess).is_ok()).count() as u64;
    assert_eq!(sent, pages_max + 1);
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
