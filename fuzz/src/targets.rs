//! What is fuzzed, and what must hold for it besides not panicking: what a decoder accepts it would
//! also write, and what one side of a protocol makes the other accepts.

use brain::{Brain, Config, Identity, Input, Outbox, Time};
use kernel::proc::pagemap::Run;
use kernel::proc::{maps, process};
use kernel::regs::{REGISTER_WORDS, Registers};
use migrate::held::Held;
use migrate::homeward;
use migrate::intake::Intake;
use migrate::late::Order;
use migrate::registers::Translator;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::calls::{
    self, BAD_POINTER, GuestMemory, STAGING_BYTES_MAX, apply, classify, collect, marshal, stage,
};
use wire::control::{Reply, Request};
use wire::forward::{Call, Direction, ToAway, ToHome};
use wire::ids::{GuestAddr, GuestTid, NodeId};
use wire::image::{Image, Pages};
use wire::late::Question;
use wire::limits::{HASHED_PAGES_MAX, LATE_BYTES_MAX, PAGE_RUN_BYTES_MAX};
use wire::owner::OwnerState;
use wire::peer::{self, Hello, PeerMessage, Selected};
use wire::secure::BerthHandshake;
use wire::stream::Packing;
use wire::supervisor::{FromBody, FromDeputy, Preface, ToBody, ToDeputy};
use wire::users::{Borrowers, UserTable};

pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Its memory has a bound of its own, which is not a matter of the bytes.
    pub costs_freely: bool,
}

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run, costs_freely: false }
}

pub static TARGETS: &[Target] = &[
    target("to-away", to_away),
    target("to-home", to_home),
    target("image", image),
    target("stream", stream),
    target("late", late),
    target("files", files),
    target("registers", registers),
    target("call", call),
    target("marshal", marshalled),
    target("peer", peer),
    target("supervisor", supervisor),
    target("control", control),
    target("handshake", handshake),
    target("token", token),
    // A span of a few bytes is as many nodes as there may be.
    Target { name: "map", run: map, costs_freely: true },
    target("proc", proc),
    target("state", state),
    Target { name: "gossip", run: gossip, costs_freely: true },
];

/// What is accepted is a message, and would be written so that it is read again.
fn packet<T: Serialize + DeserializeOwned>(data: &[u8]) -> Option<T> {
    let message: T = postcard::from_bytes(data).ok()?;
    let again = postcard::to_stdvec(&message).expect("what was decoded can be encoded");
    let reread: T = postcard::from_bytes(&again).expect("what was encoded can be decoded");
    assert_eq!(postcard::to_stdvec(&reread).expect("encoded before"), again);
    Some(message)
}

fn to_away(data: &[u8]) {
    match packet::<ToAway>(data) {
        Some(ToAway::Image(image)) => use_image(&image, &[]),
        Some(ToAway::Draft(draft)) => drop(draft.check(1)),
        Some(ToAway::Prospect(prospect)) => {
            let _ = prospect.check();
            let _ = migrate::backing::check_total(prospect.backings.iter());
        }
        Some(ToAway::Hashes(hashes)) => {
            if let Some(pages) = hashes.pages() {
                assert_eq!(pages.len(), hashes.count());
            }
        }
        _ => {}
    }
}

fn to_home(data: &[u8]) {
    match packet::<ToHome>(data) {
        Some(ToHome::Image(image)) => use_image(&image, &[]),
        Some(ToHome::Call(call)) => use_call(&call, &[]),
        Some(ToHome::Lacks(lacking)) => {
            let told = |count: &usize| lacking.told(*count).is_some();
            assert!((0..HASHED_PAGES_MAX).filter(told).count() <= 8);
        }
        _ => {}
    }
}

/// An image, then runs of its memory.
fn image(data: &[u8]) {
    let Ok((image, rest)) = postcard::take_from_bytes::<Image>(data) else { return };
    use_image(&image, rest);
}

fn use_image(image: &Image, rest: &[u8]) {
    let Ok(()) = image.check(1) else { return };
    let mut intake = Intake::promised(1 << 20);
    let mut left = 4096 * 64;
    for step in rest.chunks_exact(3).take(64) {
        let index = usize::from(step[0]) % image.mappings.len().max(1);
        let Some(mapping) = image.mappings.get(index) else { break };
        let address = mapping.start.0.wrapping_add(u64::from(step[1]) << 12);
        let content = vec![1; (usize::from(step[2] % 5)) << 12];
        left -= content.len().min(left);
        let pages = Pages::at(GuestAddr(address), content);
        if intake.check(&pages.spans, &pages.content, &image.mappings).is_ok() {
            let end = address + pages.content.len() as u64;
            let has = |at: u64| image.mappings.iter().any(|m| m.start.0 <= at && at < m.end.0);
            assert!(has(address) && has(end - 1), "memory outside of the mappings");
        }
    }
    for change in homeward::plan::<maps::Mapping>(&[], &image.mappings, &|_, _, _| false) {
        if let homeward::Change::Map(range, mapping, _) = change {
            assert!(range.start >= mapping.start.0 && range.end <= mapping.end.0);
            assert!(mapping.protection <= 7, "protection {:#x}", mapping.protection);
        }
    }
    let _ = homeward::protect_calls(&image.mappings);
    for thread in &image.threads {
        let mut words = [0; REGISTER_WORDS];
        words.copy_from_slice(&thread.registers);
        let mut registers = Registers::from_words(words);
        let _ = (registers.interrupted_call(), registers.is_64bit(), registers.arguments());
        registers.rewind();
        registers.complete(0);
        registers.interrupt(-512);
    }
}

/// What a node asks of another's files, and what it is told; content may be behind either.
fn files(data: &[u8]) {
    packet::<wire::files::Call>(data);
    packet::<wire::files::Answer>(data);
    packet::<wire::files::Served>(data);
}

/// What is said over a link for pages that come behind a process, and what home gives away then.
fn late(data: &[u8]) {
    if let Ok((spans, content)) = wire::late::decode(data) {
        assert!(wire::image::runs(&spans, content).is_some(), "as much as its places hold");
    }
    let held =
        [Run { start: 0x1000, end: 0x9000 }, Run { start: 1 << 40, end: (1 << 40) + 0x4000 }];
    let mut giving = Order::of(Held::of(&held), &held[1..]);
    let before = giving.left();
    let given = match packet::<Question>(data) {
        Some(Question::Page { address, bytes }) => giving.around(address.0 & !4095, bytes.into()),
        Some(Question::Range((start, end))) => {
            giving.range(Run { start: start.0, end: end.0 }, LATE_BYTES_MAX as u64)
        }
        Some(Question::More { bytes }) => giving.next(bytes.into()),
        Some(Question::Done) | None => return,
    };
    let bytes: u64 = given.iter().map(|run| run.end - run.start).sum();
    assert_eq!(before - giving.left(), bytes, "each page once");
}

/// One message of a stream: what is accepted is as much memory as it says, and no more than there
/// may be.
fn stream(data: &[u8]) {
    let Ok((head, content, bytes)) = wire::stream::decode(data) else { return };
    assert!((1..=PAGE_RUN_BYTES_MAX).contains(&bytes));
    let again = [&head.encode(), content].concat();
    assert_eq!(wire::stream::decode(&again).expect("encoded before").0, head);
    let content = match head.packing {
        Packing::Plain => content.to_vec(),
        Packing::Lz4 => match migrate::packing::unpack(content, bytes) {
            Ok(content) => content,
            Err(_) => return,
        },
    };
    assert_eq!(content.len(), bytes);
    assert!(wire::image::runs(&head.spans, &content).is_some(), "as much as its places hold");
}

/// How much a machine's kernel keeps of a thread: the usual size of AVX, and with AVX-512.
const STATE_BYTES: [usize; 2] = [832, 2696];

/// Two layouts of registers, then registers or the frame of a handler.
fn registers(data: &[u8]) {
    type Layouts = (wire::processor::Registers, wire::processor::Registers);
    let Ok(((home, here), rest)) = postcard::take_from_bytes::<Layouts>(data) else { return };
    let Some(translator) = Translator::between(&home, &here) else { return };
    for bytes in STATE_BYTES {
        if let Ok(state) = translator.to_here(rest, &vec![0; bytes]) {
            assert_eq!(state.len(), bytes);
        }
        if let Ok(state) = translator.to_home(rest, bytes) {
            assert_eq!(state.len(), bytes);
        }
    }
    type Cut = fn(&Translator, &[u8]) -> migrate::Result<Option<Vec<u8>>>;
    for cut in [Translator::frame_for_here as Cut, Translator::frame_for_home as Cut] {
        if let Ok(Some(frame)) = cut(&translator, rest) {
            assert!(frame.len() <= rest.len() + 4, "a frame grows");
            assert!(matches!(cut(&translator, &frame), Ok(None)), "a frame is cut twice");
        }
    }
}

fn call(data: &[u8]) {
    let Ok((call, rest)) = postcard::take_from_bytes::<Call>(data) else { return };
    use_call(&call, rest);
}

/// Where the staging area lies.
const BASE: u64 = 0x10_0000_0000;
const CAPACITY: u64 = STAGING_BYTES_MAX as u64;

fn use_call(call: &Call, rest: &[u8]) {
    let class = classify(call.number, &call.arguments);
    let Ok(staged) = stage(call, BASE, CAPACITY) else { return };
    assert!(
        matches!(class, calls::Class::Forward(_) | calls::Class::Emulate(..)),
        "call {} is not one to forward",
        call.number
    );
    assert!(staged.size <= CAPACITY);
    for (offset, bytes) in &staged.writes {
        assert!(offset + bytes.len() as u64 <= staged.size, "a write outside of the area");
    }
    for (argument, original) in staged.arguments.iter().zip(call.arguments) {
        let is_ours = (BASE..BASE + staged.size.max(1)).contains(argument);
        assert!(is_ours || *argument == BAD_POINTER || *argument == original);
    }
    let _ = calls::timeout(call.number, &call.arguments, &call.segments);
    let _ = calls::has_temporary_mask(call.number, &call.arguments, &call.segments);
    let mut staging = vec![0; staged.size as usize];
    for (place, byte) in staging.iter_mut().zip(rest.iter().skip(8)) {
        *place = *byte;
    }
    let result = rest.first_chunk::<8>().map_or(0, |bytes| i64::from_le_bytes(*bytes));
    let outputs = collect(call, result, &staging);
    apply(&call.segments, &outputs).expect("what was collected fits the call");
}

/// A guest's memory: what is left of the input, at one place, the second half of it read-only.
struct Memory<'a>(&'a [u8]);

const MEMORY: u64 = 0x7000_0000;

impl GuestMemory for Memory<'_> {
    fn process(&self) -> i32 {
        4711
    }

    fn read(&self, addr: GuestAddr, buf: &mut [u8]) -> usize {
        let Some(at) = addr.0.checked_sub(MEMORY).and_then(|at| usize::try_from(at).ok()) else {
            return 0;
        };
        let there = self.0.get(at..).unwrap_or_default();
        let count = there.len().min(buf.len());
        buf[..count].copy_from_slice(&there[..count]);
        count
    }

    fn is_writable(&self, addr: GuestAddr, len: usize) -> bool {
        let at = addr.0.checked_sub(MEMORY).and_then(|at| usize::try_from(at).ok());
        let end = at.and_then(|at| at.checked_add(len));
        end.is_some_and(|end| end <= self.0.len() / 2)
    }
}

/// What an honest body gathers, whatever its guest has in its memory, an honest home accepts.
fn marshalled(data: &[u8]) {
    let Some((head, memory)) = data.split_at_checked(2 + 6 * 4) else { return };
    let number = u32::from(u16::from_le_bytes([head[0], head[1]])) % 512;
    let mut arguments = [0; 6];
    for (argument, bytes) in arguments.iter_mut().zip(head[2..].chunks_exact(4)) {
        let word = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        // Pointers into the memory are what is interesting.
        *argument = match word >> 24 {
            0x70 => u64::from(word),
            0xff => (word as i32 as i64) as u64,
            _ => u64::from(word & 0xffff),
        };
    }
    let Ok(made) = marshal(number, &arguments, &Memory(memory)) else { return };
    let call = Call {
        tid: GuestTid(7),
        sequence: 1,
        signals_seen: 0,
        number,
        arguments: made.arguments,
        segments: made.segments,
    };
    let staged = stage(&call, BASE, CAPACITY);
    if let Err(error) = staged {
        // Only what the body answers by itself is not staged.
        let is_bodys = matches!(classify(number, &arguments), calls::Class::Emulate(..));
        assert!(is_bodys, "call {number} of an honest body: {error}");
    }
    for segment in call.segments.iter().filter(|s| s.direction != Direction::In) {
        assert!(Memory(memory).is_writable(segment.guest, segment.length as usize));
    }
    use_call(&call, memory);
}

fn peer_packet<T: Serialize + DeserializeOwned>(data: &[u8]) {
    let Ok(message) = peer::decode::<T>(data) else { return };
    let again = peer::encode(&message).expect("what was decoded can be encoded");
    peer::decode::<T>(&again).expect("what was encoded can be decoded");
}

fn peer(data: &[u8]) {
    peer_packet::<PeerMessage>(data);
    peer_packet::<Hello>(data);
    peer_packet::<Selected>(data);
}

fn supervisor(data: &[u8]) {
    packet::<ToDeputy>(data);
    packet::<FromDeputy>(data);
    packet::<ToBody>(data);
    packet::<FromBody>(data);
}

fn control(data: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<Request>(data) {
        serde_json::to_vec(&request).expect("what was decoded can be encoded");
    }
    if let Ok(reply) = serde_json::from_slice::<Reply>(data) {
        let _ = serde_json::to_vec(&reply);
    }
}

/// The first bytes of a connection: of anybody, of a berth, of a daemon, of a datagram.
fn handshake(data: &[u8]) {
    if let Some(head) = data.first_chunk() {
        let _ = Preface::decode(head);
    }
    let mut called = BerthHandshake::responder(&[7; 32]).expect("a handshake");
    let _ = called.read(data);
    let mut caller = BerthHandshake::initiator(&[7; 32]).expect("a handshake");
    let _ = caller.write(&mut [0; 64]);
    let _ = caller.read(data);
    node::decoders::handshake(data);
    node::decoders::sealed_datagram(data);
}

fn token(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    node::decoders::token(text);
    if let Ok(table) = UserTable::parse(text, |_| None) {
        assert_eq!(UserTable::try_from(table.to_string()), Ok(table.clone()));
        let _ = (table.user_here(0), table.user_here(u32::MAX), table.gives_root());
    }
    if let Ok(borrowers) = Borrowers::parse(text) {
        assert_eq!(Borrowers::parse(&borrowers.to_string()), Ok(borrowers));
    }
}

fn map(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        node::decoders::map(text);
    }
}

fn proc(data: &[u8]) {
    let _ = maps::parse(data);
    let _ = process::parse_stat(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = process::status_field(text, "SigCgt");
    node::decoders::proc(text);
}

fn state(data: &[u8]) {
    if let Ok(owner) = serde_json::from_slice::<OwnerState>(data) {
        let _ = owner.is_bounded();
    }
    node::decoders::state(data);
}

/// Datagrams that a brain gets from members: each its length, who sent it, and its bytes.
fn gossip(mut data: &[u8]) {
    let me = Identity { node: NodeId(1), incarnation: 1, seed: 7 };
    let mut brain = Brain::new(me, Config::default());
    let mut outbox = Outbox::default();
    let mut now = Time(1_000_000_000);
    brain.handle(now, Input::Started, &mut outbox);
    for node in 2..6 {
        brain.handle(now, Input::MemberJoined { node: NodeId(node) }, &mut outbox);
    }
    for _ in 0..32 {
        let Some((&[low, high, from], rest)) = data.split_first_chunk::<3>() else { return };
        let length = usize::from(u16::from_le_bytes([low, high & 7])).min(rest.len());
        let (bytes, rest) = rest.split_at(length);
        data = rest;
        now = Time(now.0 + 10_000);
        let from = NodeId(u32::from(from % 8));
        brain.handle(now, Input::DatagramReceived { from, bytes: bytes.to_vec() }, &mut outbox);
        outbox = Outbox::default();
    }
}
