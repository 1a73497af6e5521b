//! Messages of every kind, as they really are: what decoders are tried with.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use wire::clocks::Readings;
use wire::control::{self, Destination, ManageOptions, Placement, Reply, Request};
use wire::files::{
    self, Ask, AttributeName, Change, Entry, FileSystem, Listed, Lock, LockKind, OFFER_BYTES,
    Offer, Served, SetTime, Time, Told,
};
use wire::forward::{
    Call, Declined, DirectFile, Direction, FileToMap, MappedName, Opened, Output, OwnFileTold,
    Place, Reply as CallReply, Segment, Signal, ToAway, ToHome, Yield,
};
use wire::freeze_budget::FreezeBudget;
use wire::hashes::{Lacking, PageHashes};
use wire::ids::{GlobalPid, GuestAddr, GuestTid, HomePid, NodeId, Ticket};
use wire::image::{
    Attributes, Backing, Draft, Home, IMAGE_VERSION, Image, InFlight, Mapping, MappingKind,
    PackedPages, Pages, Priority, ProcessorIds, Prospect, SharedMemory, SharedPlace, Thread,
};
use wire::jobs::{
    self, FromRanks, Input, Job, JobAsk, JobState, Moving, Rank, ResourceLimit, ToRanks, Word,
};
use wire::late::Question;
use wire::memory_group::{self, Companion, Group, MemoryId};
use wire::motive::Motive;
use wire::move_limits::MoveLimits;
use wire::owner::{LimitChange, OwnerOrder};
use wire::peer::{
    BerthGrant, BerthRequest, Forgotten, Hello, Member, MoveEnd, NodeKey, Owner, PeerMessage,
    PlaceWeighed, Refusal, Selected,
};
use wire::processor::{COMPONENTS, Demand, Processor, Registers, WORDS};
use wire::processor_time::{Clock, PastClock, ProcessorTime};
use wire::read_ahead::{self, Asked, Given};
use wire::stream::{Packing, PartHead};
use wire::supervisor::{
    Berth, Filled, FromBody, FromDeputy, MoveMethod, MoveReport, Phase, Progress, Reason, Role,
    ToBody, ToDeputy, Wait, Way,
};

pub fn address() -> SocketAddr {
    "10.77.0.1:7780".parse().expect("an address")
}

pub fn reason() -> Reason {
    Reason { code: "io-uring".into(), text: "it has an io_uring open (fd 7)".into() }
}

pub fn berth() -> Berth {
    Berth { node: NodeId(2), address: address(), ticket: Ticket([7; 16]), key: [9; 32] }
}

pub fn progress() -> Progress {
    Progress { round: 2, bytes_sent: 1 << 30, bytes_left: 4096, is_filling: true }
}

pub fn report() -> MoveReport {
    let phase = |name: &str, us| Phase { name: name.to_owned(), us };
    MoveReport {
        phases_us: vec![phase("connect", 310), phase("freeze", 20)],
        freeze_us: 20,
        total_us: 900,
        bytes_sent: 1 << 20,
        method: MoveMethod::PreCopy,
        rounds: 2,
        pages_sent: 255,
        rest_bytes: 4096,
        predicted_freeze_us: Some(19),
        freeze_budget: FreezeBudget::DEFAULT,
        late_bytes: 4096,
    }
}

pub fn filled() -> Filled {
    Filled { pages_faulted: 300, pages_filled: 7, faults: 20, took_us: 1 << 20 }
}

pub fn served() -> Served {
    Served { uid: 1000, gid: 100, may_write: true }
}

pub fn to_job_server() -> Vec<jobs::ToServer> {
    vec![
        jobs::ToServer::Serve {
            key: [7; 32],
            job: job().job,
            node: NodeId(2),
            uid: 1000,
            gid: 100,
            groups: Some(vec![100, 6]),
        },
        jobs::ToServer::Connection,
        jobs::ToServer::End,
    ]
}

pub fn to_ranks() -> Vec<ToRanks> {
    let word = |text: &str| Word(text.as_bytes().to_vec());
    let program = jobs::Program {
        command: vec![word("awk"), word("BEGIN{}")],
        environment: vec![word("A=b")],
        directory: word("/home/anna"),
        umask: 0o22,
        size: 40,
        input: Input::First,
        nice: Some(-1),
        processors: vec![0, 3],
        limits: vec![ResourceLimit { resource: 7, soft: Some(1024), hard: None }],
        is_suspended: true,
        leaves_daemons: false,
        moving: Moving {
            placement: Placement::Node(NodeId(3)),
            storm_ms: Some(50),
            freeze_budget_ms: Some(FreezeBudget::DEFAULT),
            way: Way::Hybrid,
        },
    };
    vec![
        ToRanks::Prepare(Box::new(program)),
        ToRanks::Start { first: 8, count: 4 },
        ToRanks::Input { rank: 0 },
        ToRanks::Taken { rank: 9, stream: jobs::Stream::Error, bytes: 512 },
        ToRanks::Signal { rank: None, signal: 15 },
        ToRanks::End,
    ]
}

pub fn from_ranks() -> Vec<FromRanks> {
    vec![
        FromRanks::Prepared,
        FromRanks::Refused("awk is not there".into()),
        FromRanks::Started { rank: 8, pid: 4711 },
        FromRanks::NotStarted { rank: 9, errno: 11 },
        FromRanks::Output { rank: 8, stream: jobs::Stream::Output },
        FromRanks::NotManaged { rank: 8, why: "it stays home".into() },
        FromRanks::InputTaken { rank: 0, bytes: 40 },
        FromRanks::InputClosed { rank: 0 },
        FromRanks::Ended { rank: 8, status: 256 },
        FromRanks::Gone,
    ]
}

pub fn job() -> Job {
    Job {
        job: GlobalPid { home: NodeId(1), pid: HomePid(12) },
        name: "fold".into(),
        uid: 1000,
        user: Some("anna".into()),
        command: "awk BEGIN{}".into(),
        state: JobState::Running,
        started: 1.5,
        ended: Some(2.5),
        ranks: 40,
        running: 3,
        failed: 1,
        nodes: vec![(NodeId(1), 8), (NodeId(2), 32)],
        exit_status: Some(3),
        logs: Some("/home/anna/logs".into()),
    }
}

pub fn file_calls() -> Vec<files::Call> {
    let place = || files::Place { directory: 1, name: b"name".to_vec() };
    let name = || AttributeName(b"user.colour".to_vec());
    let (file, handle, offset, length) = (7, 8, 4096, 1 << 20);
    let at = SetTime::At(Time { seconds: -5, nanoseconds: 999_999_999 });
    let change =
        Change { mode: Some(0o644), size: Some(3), modified: Some(at), ..Change::default() };
    let lock = Lock { owner: u64::MAX, start: 0, end: u64::MAX, kind: LockKind::Write };
    let asks = vec![
        Ask::Ping,
        Ask::Lookup(place()),
        Ask::Forget(vec![(7, 1), (u64::MAX, u64::MAX)]),
        Ask::Attributes { file, handle: Some(handle) },
        Ask::Change { file, handle: None, change },
        Ask::Target { file },
        Ask::MakeNode { place: place(), mode: 0o010_600 },
        Ask::MakeDirectory { place: place(), mode: 0o755 },
        Ask::MakeSymlink { place: place(), target: b"../x".to_vec() },
        Ask::MakeLink { file, place: place() },
        Ask::Remove { place: place(), is_directory: true },
        Ask::Rename { from: place(), to: place(), flags: 1 },
        Ask::Open { file, flags: 2 },
        Ask::Create { place: place(), mode: 0o600, flags: 2 },
        Ask::Read { handle, offset, length },
        Ask::Write { handle, offset },
        Ask::Flush { handle, owner: 3 },
        Ask::Close { handle },
        Ask::Sync { handle, is_data_only: true },
        Ask::List { handle, offset },
        Ask::FileSystem { file },
        Ask::Access { file, mask: 4 },
        Ask::ExtendedAttribute { file, name: name(), room: 100 },
        Ask::ExtendedAttributes { file, room: 0 },
        Ask::SetExtendedAttribute { file, name: name(), flags: 1 },
        Ask::RemoveExtendedAttribute { file, name: name() },
        Ask::Seek { handle, offset: -1, whence: 3 },
        Ask::Allocate { handle, mode: 1, offset, length: 1 << 40 },
        Ask::Copy { from: 8, from_offset: 0, to: 9, to_offset: 5, length: 6 },
        Ask::TestLock { handle, lock },
        Ask::SetLock { handle, lock },
        Ask::Offer { handle },
    ];
    (1..).zip(asks).map(|(id, ask)| files::Call { id, ask }).collect()
}

fn direct_file() -> DirectFile {
    DirectFile { descriptor: 3, id: u64::MAX, position: 1 << 40, offer: Some(offer()) }
}

fn offer() -> Offer {
    Offer { name: [1; OFFER_BYTES], secret: [2; OFFER_BYTES], uid: 1000 }
}

pub fn file_answers() -> Vec<files::Answer> {
    let attributes = files::Attributes { inode: 5, mode: 0o100_644, ..Default::default() };
    let entry = Entry { file: 9, attributes };
    let listed = |entry| Listed { name: b"x".to_vec(), next: 2, inode: 5, kind: 0o100_000, entry };
    let lock = Lock { owner: 0, start: 1, end: 2, kind: LockKind::Read };
    let told = vec![
        Told::Done,
        Told::Entry(entry),
        Told::Attributes(attributes),
        Told::Opened { handle: 1, attributes },
        Told::Created { entry, handle: 1 },
        Told::Content,
        Told::Size(7),
        Told::List(vec![listed(None), listed(Some(entry))]),
        Told::FileSystem(FileSystem { blocks: 1 << 40, ..FileSystem::default() }),
        Told::Offset(1 << 50),
        Told::Lock(lock),
        Told::Offer(offer()),
    ];
    let answers = told.into_iter().map(Ok).chain([Err(2)]);
    (1..).zip(answers).map(|(id, result)| files::Answer { id, result }).collect()
}

pub fn questions() -> Vec<Question> {
    let address = GuestAddr(0x7000);
    vec![
        Question::Page { address, bytes: 4096 },
        Question::Range((address, GuestAddr(0x9000))),
        Question::More { bytes: 1 << 16 },
        Question::Done,
    ]
}

pub fn segment(data: &[u8]) -> Segment {
    Segment {
        guest: GuestAddr(0x7fff_0000),
        length: data.len() as u32,
        direction: Direction::InOut,
        place: Place::Pointer { segment: 1, offset: 8 },
        yields: Yield::Counted { segment: 0, offset: 4 },
        data: data.to_vec(),
    }
}

pub fn signal() -> Signal {
    Signal { tid: GuestTid(12), index: 3, number: 15, siginfo: vec![1; 128] }
}

pub fn clock() -> Clock {
    let time = ProcessorTime { user_ns: 1, system_ns: 1 << 40 };
    Clock { home_ns: 1 << 60, away: time, told: time }
}

pub fn thread() -> Thread {
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
        attributes: Attributes {
            personality: 0x0040_0000,
            timer_slack_ns: 1,
            has_no_counter: true,
            speculation: [5, 9, 0],
        },
    }
}

pub fn place() -> SharedPlace {
    SharedPlace { device: 1, inode: 1 << 33, offset: 4096 }
}

fn shared_memory() -> SharedMemory {
    let kind = MappingKind::SharedAnonymous { home: None };
    let (start, end) = (GuestAddr(1 << 20), GuestAddr(2 << 20));
    let flags = wire::image::MappingFlags::default();
    SharedMemory { mapping: Mapping { start, end, protection: 3, kind, flags }, away: place() }
}

pub fn image() -> Image {
    let kinds = [
        MappingKind::Anonymous { grows_down: true },
        MappingKind::SharedAnonymous { home: Some(place()) },
        MappingKind::File { backing: 0, offset: 4096, is_shared: false },
        MappingKind::Kernel { name: "[vdso]".into() },
        MappingKind::SharedFile { device: 0x802, inode: 77, offset: 8192 },
    ];
    let mapping = |(index, kind): (u64, MappingKind)| Mapping {
        start: GuestAddr((index * 2 + 1) << 20),
        end: GuestAddr((index * 2 + 2) << 20),
        protection: 3,
        kind,
        flags: wire::image::MappingFlags::NOT_FORKED,
    };
    Image {
        pid: GuestTid(12),
        threads: vec![thread()],
        later_threads: 1,
        mappings: (0..).zip(kinds).map(mapping).collect(),
        layout: [7; 11],
        actions: vec![[1, 2, 3, 4]; 64],
        stack_limit: (8 << 20, u64::MAX),
        memory_limits: (1 << 40, u64::MAX),
        guards: vec![(GuestAddr(1 << 20), GuestAddr((1 << 20) + 4096))],
        reserved: (0x10_0000, 0x20_0000),
        clock: clock(),
        peak_rss_kib: 1 << 20,
        time: readings(),
        has_no_huge_pages: true,
        processors: Some(ProcessorIds { end: 4, nodes_end: 1 }),
    }
}

pub fn draft() -> Draft {
    let Image { mappings, stack_limit, memory_limits, reserved, .. } = image();
    Draft { mappings, stack_limit, memory_limits, reserved, threads: 9, tids: vec![GuestTid(13)] }
}

fn processor() -> Processor {
    let components = [(u16::MAX, 2); COMPONENTS];
    Processor { words: [u32::MAX; WORDS], registers: Registers { xcr0: u64::MAX, components } }
}

fn readings() -> Readings {
    Readings { monotonic_ns: 1, boot_ns: -1, raw_ns: i64::MAX, ..Readings::default() }
}

fn companion() -> Companion {
    Companion { pid: HomePid(9), ticket: Ticket([3; 16]), key: [4; 32] }
}

pub fn prospect() -> Prospect {
    let home = Home { boot_id: "a boot".into(), vdso: vec![3; 8192] };
    let backing = Backing { path: b"/usr/bin/env".to_vec(), size: 3, hash: [5; 32] };
    Prospect {
        version: IMAGE_VERSION,
        pid: GuestTid(12),
        command: "env".into(),
        home,
        processor: Demand {
            processor: processor(),
            is_baseline: true,
            kept_at_home: processor().registers,
        },
        backings: vec![backing],
        memory_bytes: 1 << 30,
        is_kept: true,
        has_no_io_uring: true,
        group: Some(Box::new(Group {
            companions: vec![companion()],
            segments: vec![memory_group::Segment { device: 1, inode: 2, bytes: 8192 }],
        })),
        lasting: vec![memory_id(2)],
    }
}

fn memory_id(inode: u64) -> MemoryId {
    MemoryId { device: 1, inode }
}

pub fn call() -> Call {
    let (tid, segments) = (GuestTid(12), vec![segment(b"words"), segment(&[0; 300])]);
    Call { tid, sequence: 1, signals_seen: 0, number: 20, arguments: [u64::MAX; 6], segments }
}

pub fn to_away() -> Vec<ToAway> {
    let outputs = vec![Output { segment: 0, data: vec![8; 40] }];
    let reply = CallReply { tid: GuestTid(12), sequence: 1, result: -512, outputs, home_ns: 1 };
    let mut hashes = PageHashes::default();
    [1, 2, 4].into_iter().for_each(|page| hashes.add(GuestAddr(page << 20), &[page as u8; 32]));
    vec![
        ToAway::Prospect(Box::new(prospect())),
        ToAway::AwaitImage { boot_id: "a boot".into() },
        ToAway::Time(readings()),
        ToAway::BackingPart { backing: 0, offset: 9, content: vec![1; 70] },
        ToAway::BackingsSent,
        ToAway::Draft(Box::new(draft())),
        ToAway::Image(Box::new(image())),
        ToAway::Threads(vec![thread()]),
        ToAway::Pages(Pages::at(GuestAddr(1 << 20), vec![6; 8192])),
        ToAway::Discard(vec![(GuestAddr(1 << 20), GuestAddr(2 << 20))]),
        ToAway::Streams { count: 2 },
        ToAway::Streamed { parts: u64::MAX },
        ToAway::LateLink,
        ToAway::Late(vec![(GuestAddr(0x1000), GuestAddr(0x2000))]),
        ToAway::LateBytes(4096),
        ToAway::Unchanged(vec![(GuestAddr(0), GuestAddr(4096)); 3]),
        ToAway::Unready,
        ToAway::Holds { spans: vec![(GuestAddr(1 << 20), GuestAddr(2 << 20))], is_last: true },
        ToAway::Hashes(hashes),
        ToAway::ImageSent,
        ToAway::Run,
        ToAway::Reply(reply),
        ToAway::FileToMap(FileToMap {
            tid: GuestTid(12),
            sequence: 3,
            index: 7,
            backing: Backing { path: b"/lib/libm.so.6".to_vec(), size: 3, hash: [5; 32] },
        }),
        ToAway::Signal(signal()),
        ToAway::Stop,
        ToAway::Continue,
        ToAway::Priority { tid: GuestTid(7), priority: Priority { nice: -3, policy: 3 } },
        ToAway::Recall { freeze_budget: FreezeBudget::default(), limits: limits() },
        ToAway::CallOff(reason()),
        ToAway::MoveOn {
            berth: berth(),
            freeze_budget: FreezeBudget::DEFAULT,
            limits: MoveLimits::default(),
        },
        ToAway::Resume,
        ToAway::HasMemory,
        ToAway::Prepared,
        ToAway::Child {
            child: GuestTid(8),
            pid: HomePid(9),
            ticket: Ticket([1; 16]),
            key: [2; 32],
            shared: vec![shared_memory()],
        },
        ToAway::Release,
        ToAway::Decline { tid: GuestTid(7), sequence: 8, because: Declined::OwnFile },
        ToAway::OwnFile(OwnFileTold {
            tid: GuestTid(7),
            id: u64::MAX,
            text: b"7 (cat) S".to_vec(),
            mapped: vec![MappedName { device: 8, inode: 9, name: b"/bin/cat".to_vec() }],
        }),
        ToAway::Opened(Opened { tid: GuestTid(7), sequence: 8, descriptor: 3, size: 1 << 40 }),
        ToAway::DirectFile(direct_file()),
    ]
    .into_iter()
    .chain(told_ahead().map(ToAway::Ahead))
    .collect()
}

/// What is said of files that are read ahead.
fn told_ahead() -> [read_ahead::Told; 6] {
    use read_ahead::Told;
    let granted = Given::Granted { position: 2, size: 1 << 40 };
    [
        Told::Lies(Opened { tid: GuestTid(7), sequence: 8, descriptor: 3, size: 9 }),
        Told::Given { id: 1, given: granted },
        Told::Given { id: 1, given: Given::NotNow },
        Told::Given { id: 1, given: Given::Never },
        Told::Bytes { id: 1, stretch: 2, at: 1 << 40, bytes: vec![7; 300] },
        Told::Changed { id: u64::MAX },
    ]
}

/// Messages of a stream.
pub fn parts() -> Vec<Vec<u8>> {
    let page = |at: u64| (GuestAddr(at << 12), GuestAddr((at + 1) << 12));
    let part = |packing, content: &[u8]| {
        let head = PartHead { epoch: 2, packing, spans: vec![page(1), page(5)] };
        [&head.encode(), content].concat()
    };
    // Eight bytes again and again, and five at the end: a block of LZ4.
    let packed = [&[0x8f, 1, 2, 3, 4, 5, 6, 7, 8, 8, 0][..], &[255; 32], &[0, 0x50, 1, 2, 3, 4, 5]];
    vec![part(Packing::Plain, &[7; 8192]), part(Packing::Lz4, &packed.concat())]
}

pub fn to_home() -> Vec<ToHome> {
    vec![
        ToHome::Welcome { missing: vec![0, 7, u32::MAX], remembers: true, serves_faults: true },
        ToHome::Filled(filled()),
        ToHome::Lacks(Lacking::of([true, false, true].into_iter())),
        ToHome::Refused(reason()),
        ToHome::AskTime,
        ToHome::Call(call()),
        ToHome::Taken { tid: GuestTid(1), sequence: 3 },
        ToHome::Awaits { tid: GuestTid(1), sequence: u64::MAX },
        ToHome::MaskChanged { tid: GuestTid(1), mask: 1 },
        ToHome::NeedsHome(reason()),
        ToHome::Image(Box::new(image())),
        ToHome::AsksHeld(Box::default()),
        ToHome::ComesAhead { draft: Box::new(draft()), heap_end: GuestAddr(9 << 20) },
        ToHome::Pages(Pages::at(GuestAddr(0), vec![1; 4096])),
        ToHome::PackedPages(PackedPages {
            spans: vec![(GuestAddr(0), GuestAddr(4096))],
            block: vec![1; 40],
        }),
        ToHome::Discard(vec![(GuestAddr(0), GuestAddr(u64::MAX)); 3]),
        ToHome::Progress(progress()),
        ToHome::Progress(Progress { is_filling: false, ..progress() }),
        ToHome::MovedOn(Box::new(report())),
        ToHome::Usage { away: ProcessorTime { user_ns: 1, system_ns: 3 }, rss_bytes: 2 },
        ToHome::Clocks { process: clock(), thread: clock() },
        ToHome::Written(Pages::at(GuestAddr(4097), vec![1, 2, 3])),
        ToHome::ReadsOwn { tid: GuestTid(7), id: 1, descriptor: -1 },
        ToHome::Seeks { descriptor: 3, position: u64::MAX },
        ToHome::WantsFile { descriptor: 3, id: u64::MAX },
        ToHome::UsedDirectly { descriptor: 3, position: 1 << 40, has_written: true },
        ToHome::Ahead(Asked::May { descriptor: 3, id: u64::MAX }),
        ToHome::Ahead(Asked::Send { id: 1, stretch: 2, from: 3, to: 1 << 40 }),
        ToHome::Ahead(Asked::Leaves { id: 1 }),
        ToHome::Shares(vec![shared_memory(); 2]),
        ToHome::ImageSent { awaits_others: true },
        ToHome::MemoryIsIn,
        ToHome::GoesHome,
    ]
}

pub fn wait() -> Wait {
    Wait { tid: GuestTid(1), number: 202, argument: 3, until_ns: Some(4), sleeps: Some(5) }
}

pub fn past_clock() -> PastClock {
    let Clock { away, told, .. } = clock();
    PastClock { tid: Some(GuestTid(1)), started_ticks: 5, away, told }
}

pub fn limits() -> MoveLimits {
    MoveLimits { bandwidth: "500Mbit".parse().ok(), processors: NonZeroU32::new(2) }
}

pub fn to_deputy() -> Vec<ToDeputy> {
    let past = past_clock();
    vec![
        ToDeputy::Waits(vec![wait()]),
        ToDeputy::Clocks(vec![past, PastClock { tid: None, ..past }]),
        ToDeputy::Baseline(Box::new(processor())),
        ToDeputy::Mobile,
        ToDeputy::SharedMemory,
        ToDeputy::Guarded { refusal: Some("it may not".into()) },
        ToDeputy::Opened { by: 7 },
        ToDeputy::Group {
            members: vec![HomePid(7), HomePid(9)],
            companions: vec![companion()],
            named: vec![memory_id(3)],
        },
        ToDeputy::Leave {
            berth: berth(),
            freeze_budget: FreezeBudget::DEFAULT,
            limits: limits(),
            way: Way::PostCopy,
        },
        ToDeputy::ComeHome { freeze_budget: FreezeBudget::DEFAULT, limits: MoveLimits::default() },
        ToDeputy::CallOff { reason: reason() },
    ]
}

pub fn from_deputy() -> Vec<FromDeputy> {
    vec![
        FromDeputy::Waits(vec![wait(); 3]),
        FromDeputy::Clocks(vec![past_clock(); 3]),
        FromDeputy::Progress(progress()),
        FromDeputy::Filled(filled()),
        FromDeputy::Moved { to: NodeId(2), report: report() },
        FromDeputy::CameHome { reason: reason(), report: report() },
        FromDeputy::Guard,
        FromDeputy::BoundTo { members: vec![HomePid(8); 3], named: vec![memory_id(4); 2] },
        FromDeputy::Stayed { reason: reason() },
        FromDeputy::Usage {
            away: ProcessorTime { user_ns: 1, system_ns: 3 },
            rss_bytes: 2,
            forwarded: vec![("read".into(), 3)],
            is_last: true,
        },
        FromDeputy::Ended { wait_status: 9 },
        FromDeputy::Lost { node: NodeId(3), reason: reason() },
    ]
}

pub fn to_body() -> Vec<ToBody> {
    let expect = ToBody::Expect {
        ticket: Ticket([1; 16]),
        key: [2; 32],
        pid: HomePid(12),
        node: NodeId(1),
        guest_cgroup: vec!["/sys/fs/cgroup/cpu/work".into()],
    };
    vec![
        expect,
        ToBody::Connection { role: Role::Image },
        ToBody::Connection { role: Role::Stream },
        ToBody::Connection { role: Role::Late },
        ToBody::IsGuest,
        ToBody::NotComing,
        ToBody::Faults,
        ToBody::Imprint { is_own: true },
        ToBody::SendHome,
        ToBody::StandBack { nice: 10 },
    ]
}

pub fn from_body() -> Vec<FromBody> {
    vec![
        FromBody::Running { local_pid: 3, command: "env".into() },
        FromBody::Usage { cpu_us: 1, rss_bytes: 2, runnable: vec![GuestTid(3); 4] },
        FromBody::Gone { reason: reason() },
        FromBody::Joins { child: HomePid(9), ticket: Ticket([5; 16]) },
        FromBody::Imprint,
    ]
}

pub fn hello() -> Hello {
    Hello { offers: vec![1, 2], sent_ns: 3, node: None, listen: address() }
}

pub fn selected() -> Vec<Selected> {
    [None, Some(1)].map(|version| Selected { version }).into()
}

pub fn peer_messages() -> Vec<PeerMessage> {
    let member = Member { node: NodeId(2), address: address(), key: NodeKey([1; 32]) };
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
        expected_us: 9,
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
    vec![
        PeerMessage::Ping,
        PeerMessage::Members(vec![member; 5]),
        PeerMessage::Welcome { node: to, secret: [1; 32], address: address(), by: member },
        PeerMessage::BerthAsked { request: 1, berth },
        answered(Ok(BerthGrant { ticket: Ticket([1; 16]), key: [2; 32], core_speed_milli: 600 })),
        answered(Err(Refusal::MemoryShort { needed_bytes: 2, free_bytes: 1 })),
        answered(Err(Refusal::NoSandbox { feature: "user-namespaces".into() })),
        answered(Err(Refusal::EnoughGuests { max: 3 })),
        answered(Err(Refusal::EnoughOfUser { uid: 1000, max: 3 })),
        PeerMessage::MoveWanted { pid, to, motive: Motive::Exchange, reason: text.clone() },
        PeerMessage::MoveEnded { pid, to, end: MoveEnd::Failed, freeze_us: 1 },
        PeerMessage::CallsCounted { pid, per_s: 7, user_milli: 8 },
        PeerMessage::BirthOff { pid },
        PeerMessage::Leaving,
        PeerMessage::Processor(Box::new(processor())),
        PeerMessage::MoveLimits(limits()),
        PeerMessage::Name("delta.example.org".into()),
        PeerMessage::Left,
        PeerMessage::Forgotten(vec![Forgotten { node: to, key: NodeKey([3; 32]) }; 5]),
        PeerMessage::Secret { generation: 2, secret: [4; 32] },
        PeerMessage::Stamped { newest_ns: 5 },
        PeerMessage::NumberAsked { request: 6 },
        PeerMessage::NumberGiven { request: 6, node: to },
        PeerMessage::Inquired { inquiry: 7, uid: 1000, request: b"{\"request\":\"nodes\"}".into() },
        PeerMessage::AnswerPart {
            inquiry: 7,
            bytes: b"{\"reply\":\"done\"}\n".into(),
            is_last: true,
        },
        PeerMessage::AnswerTaken { inquiry: 7 },
        PeerMessage::InquiryEnded { inquiry: 7, is_heard: false },
        PeerMessage::Decided {
            pid,
            verdict: text.clone(),
            reason: text,
            rate_milli: 250,
            places: vec![place; 4],
        },
    ]
}

pub fn requests() -> Vec<Request> {
    let (placement, budget) = (Placement::Node(NodeId(2)), Some(FreezeBudget::DEFAULT));
    let options = ManageOptions {
        placement,
        storm_ms: Some(50),
        cpu_baseline: true,
        freeze_budget_ms: budget,
        way: Way::Hybrid,
        is_timed: true,
        is_mobile: true,
    };
    vec![
        Request::Manage(options.clone()),
        Request::Adopt { pid: 12, options: Some(Box::new(options)), job: Some(job().job) },
        Request::Adopt { pid: 12, options: None, job: None },
        Request::TimeAway { pid: 12 },
        Request::ServeFiles { user: Some(1000) },
        Request::ServeJob { job: job().job, user: Some(1000) },
        Request::Spread { ranks: 40, per_node: Some(8), nodes: vec![NodeId(2)] },
        Request::HoldJob { of: Box::new(job()), socket: "osmos-job-12".into() },
        Request::Jobs,
        Request::AskJob { pid: 12, ask: JobAsk::Show },
        Request::AskJob { pid: 12, ask: JobAsk::Wait },
        Request::AskJob { pid: 12, ask: JobAsk::Signal { signal: 15, rank: Some(3) } },
        Request::AskJob { pid: 12, ask: JobAsk::Kill },
        Request::Migrate {
            pid: 12,
            to: Destination::Node(NodeId(3)),
            freeze_budget_ms: budget,
            way: Some(Way::PreCopy),
            is_watched: true,
        },
        Request::Events { follow: true },
        Request::Join { address: "10.0.0.1".into(), token: "word".into() },
        Request::Leave,
        Request::Forget { node: NodeId(3), force: true },
        Request::RenewSecret,
        Request::Down,
        Request::HandOver,
        Request::Metrics,
        Request::Doctor,
        Request::WhatIf { pid: 12, to: NodeId(3) },
        Request::Owner(OwnerOrder::Limit {
            guests: Some(LimitChange::AtMost(3)),
            guest_memory_bytes: Some(LimitChange::Lifted),
            freeze_budget_ms: budget.map(LimitChange::AtMost),
            move_bandwidth_bits_per_s: limits().bandwidth.map(LimitChange::AtMost),
            move_processors: Some(LimitChange::Lifted),
            guests_per_user: Some(LimitChange::AtMost(2)),
            storms_per_user: None,
        }),
        Request::Owner(OwnerOrder::ShareJobs { on: true }),
    ]
}

pub fn replies() -> Vec<Reply> {
    let (home, to) = (NodeId(1), NodeId(2));
    let migration = control::Migration::from_report(12, home, to, "user", &report());
    let event = control::Event {
        time: 1.5,
        pid: Some(GlobalPid { home, pid: HomePid(12) }),
        what: control::Happening::CameHome { reason: reason() },
    };
    let by = Some(to);
    let acted = control::Happening::ActedOn { uid: 0, by_node: by, act: "signal 15".into() };
    let failure = control::Failure { code: "ended".into(), text: "it has ended".into() };
    let mut metrics = control::Metrics { name: Some("delta".into()), ..Default::default() };
    metrics.counts.moved.insert("user".into(), 3);
    metrics.nodes.insert("alive".into(), 2);
    let rank = Rank { rank: 3, node: to, pid: Some(4711), state: "running".into() };
    let finding = control::Finding {
        name: "cgroup limits".into(),
        present: false,
        required: true,
        seen: "no controllers".into(),
        consequence: "no limits".into(),
        mend: Some("mount".into()),
    };
    vec![
        Reply::Done,
        Reply::Findings { version: "0.1.0".into(), findings: vec![finding] },
        Reply::Metrics(Box::new(metrics)),
        Reply::Migrated(migration),
        Reply::Progress(progress()),
        Reply::Event(event.clone()),
        Reply::Event(control::Event { what: acted, ..event }),
        Reply::Error(failure),
        Reply::FileServer(Box::new(berth())),
        Reply::JobServer(Box::new(berth())),
        Reply::Spread { nodes: vec![(home, 8), (to, 32)] },
        Reply::Jobs { jobs: vec![job()] },
        Reply::Job { of: Box::new(job()), members: vec![rank] },
        Reply::Managed { node: home, daemon_pid: 3, left_out: Some(vec!["avx2".into()]) },
    ]
}
