//! Every decoder, fed with what is none of its messages: no panic, no memory beyond what the bytes
//! can justify, and what it does accept is a message that it would have written.
//!
//! One test, because what is allocated is counted for the whole program.

use cap::Cap;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::alloc::System;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use wire::control::{self, Destination, ManageOptions, Placement, Reply, Request};
use wire::forward::{
    Call, Direction, Output, Place, Reply as CallReply, Segment, Signal, ToAway, ToHome, Yield,
};
use wire::ids::{GlobalPid, GuestAddr, GuestTid, HomePid, NodeId, Ticket};
use wire::image::{
    Backing, IMAGE_VERSION, Image, InFlight, Machine, Mapping, MappingKind, Pages, Priority,
    Prospect, Thread,
};
use wire::motive::Motive;
use wire::owner::{LimitChange, OwnerOrder};
use wire::peer::{
    self, BerthGrant, BerthRequest, Forgotten, Hello, Member, MoveEnd, NodeKey, Owner, PeerMessage,
    PlaceWeighed, Refusal, Selected,
};
use wire::processor_time::{Clock, PastClock, ProcessorTime};
use wire::secure::{BerthHandshake, Opener, Sealer};
use wire::supervisor::{
    Berth, FromBody, FromDeputy, MoveReport, Preface, Reason, Role, ToBody, ToDeputy, Wait,
};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// What a decoder may take before it has seen that a length lies: serde reserves at most so much
/// for all lists that are open.
const RESERVED_BYTES_MAX: usize = 8 << 20;
/// A byte may stand for so many in memory, all moves of growing lists included.
const GROWTH_MAX: usize = 256;
const CASES: u32 = 400;

/// The same cases every time: a failure is repeated by running the test again.
fn runner() -> TestRunner {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, rng)
}

fn check_cost<T>(name: &str, bytes: &[u8], decode: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    let before = ALLOCATOR.total_allocated();
    let decoded = decode(bytes);
    let cost = ALLOCATOR.total_allocated() - before;
    let allowed = RESERVED_BYTES_MAX + GROWTH_MAX * bytes.len();
    assert!(cost <= allowed, "{name}: {cost} bytes allocated for {} given", bytes.len());
    decoded
}

/// A way to write and read one kind of message.
struct Format<T> {
    name: &'static str,
    samples: Vec<T>,
    encode: fn(&T) -> Vec<u8>,
    decode: fn(&[u8]) -> Option<T>,
}

/// Bytes that are nothing, and bytes that nearly are one of the samples.
fn hostile(encoded: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let fault = (any::<proptest::sample::Index>(), any::<u8>(), 0u8..4);
    let faults = proptest::collection::vec(fault, 1..6);
    let spoiled = (proptest::sample::select(encoded), faults).prop_map(|(mut bytes, faults)| {
        for (index, value, kind) in faults {
            match (bytes.len(), kind) {
                (0, _) => bytes.push(value),
                (length, 0) => bytes[index.index(length)] = value,
                (length, 1) => bytes.truncate(index.index(length)),
                (length, 2) => bytes.insert(index.index(length), value),
                // A length that promises far more than there is.
                (length, _) => {
                    let at = index.index(length);
                    drop(bytes.splice(at..at, [0xff; 9].into_iter().chain([1])));
                }
            }
        }
        bytes
    });
    prop_oneof![1 => proptest::collection::vec(any::<u8>(), 0..600), 3 => spoiled]
}

impl<T: PartialEq + Debug> Format<T> {
    fn check(&self) {
        let encoded: Vec<Vec<u8>> = self.samples.iter().map(self.encode).collect();
        for (sample, bytes) in self.samples.iter().zip(&encoded) {
            assert_eq!(check_cost(self.name, bytes, self.decode).as_ref(), Some(sample));
        }
        runner()
            .run(&hostile(encoded), |bytes| {
                if let Some(message) = check_cost(self.name, &bytes, self.decode) {
                    let again = (self.decode)(&(self.encode)(&message));
                    prop_assert_eq!(again.as_ref(), Some(&message));
                }
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }
}

fn postcard_format<T>(name: &'static str, samples: Vec<T>) -> Format<T>
where
    T: Serialize + DeserializeOwned,
{
    let encode = |message: &T| postcard::to_stdvec(message).expect("a message of ours");
    Format { name, samples, encode, decode: |bytes| postcard::from_bytes(bytes).ok() }
}

fn peer_format<T>(name: &'static str, samples: Vec<T>) -> Format<T>
where
    T: Serialize + DeserializeOwned,
{
    let encode = |message: &T| peer::encode(message).expect("a message of ours");
    Format { name, samples, encode, decode: |bytes| peer::decode(bytes).ok() }
}

fn line_format<T>(name: &'static str, samples: Vec<T>) -> Format<T>
where
    T: Serialize + DeserializeOwned,
{
    let encode = |message: &T| serde_json::to_vec(message).expect("a message of ours");
    Format { name, samples, encode, decode: |bytes| serde_json::from_slice(bytes).ok() }
}

fn address() -> SocketAddr {
    "10.77.0.1:7780".parse().expect("an address")
}

fn reason() -> Reason {
    Reason { code: "io-uring".into(), text: "it has an io_uring open (fd 7)".into() }
}

fn berth() -> Berth {
    Berth { node: NodeId(2), address: address(), ticket: Ticket([7; 16]), key: [9; 32] }
}

fn report() -> MoveReport {
    let phases_us = vec![("connect".to_owned(), 310), ("freeze".to_owned(), 20)];
    MoveReport { phases_us, freeze_us: 20, total_us: 900, bytes_sent: 1 << 20 }
}

fn segment(data: &[u8]) -> Segment {
    Segment {
        guest: GuestAddr(0x7fff_0000),
        length: data.len() as u32,
        direction: Direction::InOut,
        place: Place::Pointer { segment: 1, offset: 8 },
        yields: Yield::Counted { segment: 0, offset: 4 },
        data: data.to_vec(),
    }
}

fn signal() -> Signal {
    Signal { tid: GuestTid(12), index: 3, number: 15, siginfo: vec![1; 128] }
}

fn clock() -> Clock {
    let time = ProcessorTime { user_ns: 1, system_ns: 1 << 40 };
    Clock { home_ns: 1 << 60, away: time, told: time }
}

fn thread() -> Thread {
    let segments = vec![segment(b"")];
    Thread {
        tid: GuestTid(12),
        registers: vec![5; 27],
        extended_state: vec![0; 832],
        signal_mask: 1 << 14,
        alternate_stack: vec![0; 24],
        robust_list: (0x1000, 24),
        tid_address: 0x2000,
        rseq: Some((0x3000, 32, 0x5305_3053)),
        in_flight: Some(InFlight { sequence: 4, number: 0, arguments: [1; 6], segments }),
        sequence: 4,
        signals_seen: 2,
        signals: vec![signal()],
        wait_until_ns: Some(17),
        interrupted: Some(-512),
        priority: Priority { nice: 3, policy: 5 },
        clock: clock(),
    }
}

fn image() -> Image {
    let kinds = [
        MappingKind::Anonymous { grows_down: true },
        MappingKind::SharedAnonymous,
        MappingKind::File { backing: 0, offset: 4096, is_shared: false },
        MappingKind::Kernel { name: "[vdso]".into() },
    ];
    let mapping = |(index, kind): (u64, MappingKind)| Mapping {
        start: GuestAddr((index * 2 + 1) << 20),
        end: GuestAddr((index * 2 + 2) << 20),
        protection: 3,
        kind,
    };
    Image {
        pid: GuestTid(12),
        threads: vec![thread()],
        later_threads: 1,
        mappings: (0..).zip(kinds).map(mapping).collect(),
        layout: [7; 11],
        actions: vec![[1, 2, 3, 4]; 64],
        stack_limit: (8 << 20, u64::MAX),
        reserved: (0x10_0000, 0x20_0000),
        clock: clock(),
        peak_rss_kib: 1 << 20,
    }
}

fn prospect() -> Prospect {
    let machine = Machine {
        boot_id: "a boot".into(),
        kernel: "6.18".into(),
        cpu_flags: vec!["sse2".into(), "avx2".into()],
        xstate_bytes: 832,
        vdso_hash: [3; 32],
    };
    let backing = Backing { path: b"/usr/bin/env".to_vec(), size: 3, hash: [5; 32] };
    Prospect {
        version: IMAGE_VERSION,
        pid: GuestTid(12),
        command: "env".into(),
        machine,
        backings: vec![backing],
        memory_bytes: 1 << 30,
        clocks_ns: (1, -1),
    }
}

fn call() -> Call {
    let (tid, segments) = (GuestTid(12), vec![segment(b"words"), segment(&[0; 300])]);
    Call { tid, sequence: 1, signals_seen: 0, number: 20, arguments: [u64::MAX; 6], segments }
}

fn to_away() -> Vec<ToAway> {
    let outputs = vec![Output { segment: 0, data: vec![8; 40] }];
    let reply = CallReply { tid: GuestTid(12), sequence: 1, result: -512, outputs, home_ns: 1 };
    vec![
        ToAway::Prospect(Box::new(prospect())),
        ToAway::AwaitImage,
        ToAway::BackingPart { backing: 0, offset: 9, content: vec![1; 70] },
        ToAway::BackingsSent,
        ToAway::Image(Box::new(image())),
        ToAway::Threads(vec![thread()]),
        ToAway::Pages(Pages { address: GuestAddr(1 << 20), content: vec![6; 8192] }),
        ToAway::ImageSent,
        ToAway::Run,
        ToAway::Reply(reply),
        ToAway::Signal(signal()),
        ToAway::Stop,
        ToAway::Continue,
        ToAway::Priority { tid: GuestTid(7), priority: Priority { nice: -3, policy: 3 } },
        ToAway::Recall,
        ToAway::MoveOn(berth()),
        ToAway::Resume,
        ToAway::Release,
    ]
}

fn to_home() -> Vec<ToHome> {
    vec![
        ToHome::Welcome { missing: vec![0, 7, u32::MAX] },
        ToHome::Refused(reason()),
        ToHome::Call(call()),
        ToHome::Taken { tid: GuestTid(1), sequence: 3 },
        ToHome::Awaits { tid: GuestTid(1), sequence: u64::MAX },
        ToHome::MaskChanged { tid: GuestTid(1), mask: 1 },
        ToHome::NeedsHome(reason()),
        ToHome::Image(Box::new(image())),
        ToHome::Pages(Pages { address: GuestAddr(0), content: vec![1; 4096] }),
        ToHome::MovedOn { bytes_sent: 1, freeze_began_us_ago: 2 },
        ToHome::Usage { cpu_ns: 1, rss_bytes: 2 },
    ]
}

fn check_deputies() {
    let wait = Wait { tid: GuestTid(1), number: 202, argument: 3, until_ns: Some(4) };
    let Clock { away, told, .. } = clock();
    let past = PastClock { tid: Some(GuestTid(1)), started_ticks: 5, away, told };
    let to_deputy = vec![
        ToDeputy::Waits(vec![wait]),
        ToDeputy::Clocks(vec![past, PastClock { tid: None, ..past }]),
        ToDeputy::Leave { berth: berth() },
        ToDeputy::ComeHome,
    ];
    postcard_format("to a deputy", to_deputy).check();
    let from_deputy = vec![
        FromDeputy::Waits(vec![wait; 3]),
        FromDeputy::Clocks(vec![past; 3]),
        FromDeputy::Moved { to: NodeId(2), report: report() },
        FromDeputy::CameHome { reason: reason(), report: report() },
        FromDeputy::Stayed { reason: reason() },
        FromDeputy::Usage { cpu_us: 1, rss_bytes: 2, forwarded: vec![("read".into(), 3)] },
        FromDeputy::Ended { wait_status: 9 },
        FromDeputy::Lost { node: NodeId(3), reason: reason() },
    ];
    postcard_format("from a deputy", from_deputy).check();
}

fn check_bodies() {
    let expect = ToBody::Expect {
        ticket: Ticket([1; 16]),
        key: [2; 32],
        pid: HomePid(12),
        node: NodeId(1),
        guest_cgroup: vec!["/sys/fs/cgroup/cpu/work".into()],
    };
    let to_body = vec![
        expect,
        ToBody::Connection { role: Role::Image },
        ToBody::SendHome,
        ToBody::StandBack { nice: 10 },
    ];
    postcard_format("to a body", to_body).check();
    let from_body = vec![
        FromBody::Running { local_pid: 3, command: "env".into() },
        FromBody::Usage { cpu_us: 1, rss_bytes: 2, runnable: vec![GuestTid(3); 4] },
        FromBody::Gone { reason: reason() },
    ];
    postcard_format("from a body", from_body).check();
}

fn check_prefaces() {
    let roles = [Role::Peer, Role::Deputy, Role::Image];
    Format {
        name: "preface",
        samples: roles.map(|role| Preface { role, ticket: Ticket([4; 16]) }).into(),
        encode: |preface| preface.encode().to_vec(),
        decode: |bytes| Preface::decode(bytes.try_into().ok()?),
    }
    .check();
}

fn check_forwarding_and_images() {
    postcard_format("to the away side", to_away()).check();
    postcard_format("to home", to_home()).check();
    postcard_format("image", vec![image()]).check();
    postcard_format("prospect", vec![prospect()]).check();
    // What is decoded is checked before it is used: that must not panic either.
    let whole = Image { later_threads: 0, ..image() };
    let mut format = postcard_format("image that is checked", vec![whole]);
    format.decode = |bytes| {
        let image: Image = postcard::from_bytes(bytes).ok()?;
        image.check(1).ok().map(|()| image)
    };
    format.check();
}

fn check_peers() {
    let member = Member { node: NodeId(2), address: address(), key: NodeKey([1; 32]) };
    let hello = Hello { offers: vec![1, 2], sent_ns: 3, node: None, listen: address() };
    peer_format("hello", vec![hello]).check();
    let selected = [None, Some(1)].map(|version| Selected { version });
    peer_format("selected", selected.into()).check();
    let berth = BerthRequest {
        pid: HomePid(12),
        owner: Owner { uid: 1000, gid: 1000 },
        from: NodeId(1),
        rss_bytes: 1 << 20,
        cpu_us: 5,
        freeze_us: 6,
        freeze_bytes: 1 << 19,
        is_ordered: true,
        is_pinned: false,
        user_milli: 7,
        group: NonZeroU64::new(8),
    };
    let place = PlaceWeighed {
        node: NodeId(2),
        rate_milli: 500,
        runnable_milli: 1_000,
        cores: 2,
        speed_milli: 1_000,
        age_ms: 12,
        but: Some("its owner takes no guests".into()),
    };
    let answered = |answer| PeerMessage::BerthAnswered { request: 1, answer };
    let (pid, to, text) = (HomePid(12), NodeId(3), "load".to_owned());
    let messages = vec![
        PeerMessage::Ping,
        PeerMessage::Members(vec![member; 5]),
        PeerMessage::Welcome { node: to, secret: [1; 32], address: address(), by: member },
        PeerMessage::BerthAsked { request: 1, berth },
        answered(Ok(BerthGrant { ticket: Ticket([1; 16]), key: [2; 32], core_speed_milli: 600 })),
        answered(Err(Refusal::MemoryShort { needed_bytes: 2, free_bytes: 1 })),
        answered(Err(Refusal::NoSandbox { feature: "user-namespaces".into() })),
        answered(Err(Refusal::EnoughGuests { max: 3 })),
        PeerMessage::MoveWanted { pid, to, motive: Motive::Exchange, reason: text.clone() },
        PeerMessage::MoveEnded { pid, to, end: MoveEnd::Failed, freeze_us: 1 },
        PeerMessage::CallsCounted { pid, per_s: 7, user_milli: 8 },
        PeerMessage::Leaving,
        PeerMessage::Left,
        PeerMessage::Forgotten(vec![Forgotten { node: to, key: NodeKey([3; 32]) }; 5]),
        PeerMessage::Secret { generation: 2, secret: [4; 32] },
        PeerMessage::Stamped { newest_ns: 5 },
        PeerMessage::NumberAsked { request: 6 },
        PeerMessage::NumberGiven { request: 6, node: to },
        PeerMessage::Decided {
            pid,
            verdict: text.clone(),
            reason: text,
            rate_milli: 250,
            places: vec![place; 4],
        },
    ];
    peer_format("peer message", messages).check();
}

fn check_control() {
    let placement = Placement::Node(NodeId(2));
    let requests = vec![
        Request::Manage(ManageOptions { placement, storm_ms: Some(50) }),
        Request::Migrate { pid: 12, to: Destination::Node(NodeId(3)) },
        Request::Events { follow: true },
        Request::Join { address: "10.0.0.1".into(), token: "word".into() },
        Request::Leave,
        Request::Forget { node: NodeId(3), force: true },
        Request::RenewSecret,
        Request::Down,
        Request::WhatIf { pid: 12, to: NodeId(3) },
        Request::Owner(OwnerOrder::Limit {
            guests: Some(LimitChange::AtMost(3)),
            guest_memory_bytes: Some(LimitChange::Lifted),
        }),
    ];
    line_format("request of a tool", requests).check();
    let (home, to) = (NodeId(1), NodeId(2));
    let migration = control::Migration::from_report(12, home, to, "user", &report());
    let event = control::Event {
        time: 1.5,
        pid: Some(GlobalPid { home, pid: HomePid(12) }),
        what: control::Happening::CameHome { reason: reason() },
    };
    let failure = control::Failure { code: "ended".into(), text: "it has ended".into() };
    let replies = vec![
        Reply::Done,
        Reply::Migrated(migration),
        Reply::Event(event),
        Reply::Error(failure),
        Reply::Managed { node: home, daemon_pid: 3 },
    ];
    line_format("reply of a daemon", replies).check();
}

/// What one side of a link seals and the other opens.
fn link() -> (Sealer, Opener) {
    let side = |made: Result<BerthHandshake, _>| made.expect("a handshake");
    let mut caller = side(BerthHandshake::initiator(&[1; 32]));
    let mut called = side(BerthHandshake::responder(&[1; 32]));
    let mut message = [0; 64];
    let length = caller.write(&mut message).expect("it fits");
    called.read(&message[..length]).expect("it is right");
    let length = called.write(&mut message).expect("it fits");
    caller.read(&message[..length]).expect("it is right");
    (caller.finish().expect("a link").0, called.finish().expect("a link").1)
}

/// Frames that the other side did not make, or not for now.
fn check_sealed_frames() {
    let (mut sealer, opener) = link();
    let mut genuine = vec![0; 4096];
    let length = sealer.seal(b"the first frame", &mut genuine).expect("it fits");
    genuine.truncate(length);
    let opener = std::cell::RefCell::new(opener);
    let open = |bytes: &[u8]| {
        let mut plain = vec![0; 8192];
        let length = opener.borrow_mut().open(bytes, &mut plain).ok()?;
        plain.truncate(length);
        Some(plain)
    };
    runner()
        .run(&hostile(vec![genuine.clone()]), |bytes| {
            prop_assume!(bytes != genuine);
            prop_assert!(open(&bytes).is_none());
            Ok(())
        })
        .expect("no frame but the genuine one is opened");
    assert_eq!(open(&genuine).as_deref(), Some(&b"the first frame"[..]), "it is still the next");
    assert!(open(&genuine).is_none(), "a frame played again is refused");
}

#[test]
fn no_decoder_panics_or_takes_more_memory_than_its_bytes_justify() {
    check_control();
    check_deputies();
    check_bodies();
    check_prefaces();
    check_forwarding_and_images();
    check_peers();
    check_sealed_frames();
}
