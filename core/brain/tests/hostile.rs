//! Whatever arrives, in whatever order: no panic, no invariant broken, no table or answer without a
//! bound.

use brain::{
    Arrival, Brain, Config, DATAGRAM_BYTES_MAX, GroupId, Identity, Input, LoadSample, MoveOutcome,
    Outbox, Output, Ownership, Placement, Priority, ProcessSample, Span, Time, UserId, UserShare,
};
use proptest::prelude::*;
use wire::ids::{GlobalPid, HomePid, NodeId};

/// More than one input can sensibly lead to.
const OUTPUTS_MAX: usize = 200;

fn node() -> impl Strategy<Value = NodeId> {
    (1u32..6).prop_map(NodeId)
}

fn process() -> impl Strategy<Value = GlobalPid> {
    (node(), 1i32..8).prop_map(|(home, pid)| GlobalPid { home, pid: HomePid(pid) })
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![4 => 0.0f64..8.0, 1 => any::<f64>()]
}

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![4 => (0u64..10_000_000).prop_map(Span), 1 => any::<u64>().prop_map(Span)]
}

fn process_sample() -> impl Strategy<Value = ProcessSample> {
    let times = (span(), span(), span(), span());
    (process(), number(), number(), times, any::<u64>(), number(), any::<bool>()).prop_map(
        |(
            process,
            demand,
            used,
            (here, cpu, freeze_estimate, copy_estimate),
            rss_bytes,
            forwarded,
            stays,
        )| {
            ProcessSample {
                stands_for: 1,
                process,
                demand,
                used,
                here,
                cpu,
                rss_bytes,
                forwarded_per_s: forwarded,
                freeze_estimate,
                copy_estimate,
                left: None,
                stays: stays.then(|| "it holds a lock".into()),
                group: GroupId::new(rss_bytes % 3),
                user: (rss_bytes % 5 > 0)
                    .then_some(UserShare { user: UserId(rss_bytes as u32 % 5), cores: forwarded }),
            }
        },
    )
}

fn load_sample() -> impl Strategy<Value = LoadSample> {
    let processes = prop::collection::vec(process_sample(), 0..8);
    (any::<u8>(), number(), number(), any::<u64>(), any::<u64>(), processes).prop_map(
        |(cores, speed, others, total, free, processes)| LoadSample {
            cores: u32::from(cores),
            speed,
            pace: speed,
            others,
            memory_total_bytes: total,
            memory_free_bytes: free,
            memory_pressure: others,
            processes,
        },
    )
}

/// The head of a message of a node of one core at full speed.
fn message(kind: u8, sequence: u32, node: NodeId, runnable_milli: u32) -> Vec<u8> {
    let mut bytes = vec![b'O', b'B', 2, kind, 0, 0, 0, 0];
    bytes.extend(sequence.to_le_bytes());
    for field in [node.0, 1, 0, runnable_milli, 1_000, 1, 1_024, 1_024] {
        bytes.extend(field.to_le_bytes());
    }
    bytes
}

fn offer_message(sequence: u32, from: NodeId, process: GlobalPid) -> Vec<u8> {
    let mut bytes = message(4, sequence, from, 4_000);
    bytes.extend(u64::from(sequence).to_le_bytes());
    bytes.extend(process.home.0.to_le_bytes());
    bytes.extend(process.pid.0.to_le_bytes());
    bytes.extend([1_000u32.to_le_bytes(), [0; 4], [0; 4], [0; 4]].concat());
    bytes.extend([0; 24]);
    bytes
}

#[test]
fn a_process_that_arrived_unannounced_can_leave_again() {
    let (one, three) = (NodeId(2), NodeId(3));
    let mut brain = new_brain();
    let mut outbox = Outbox::new();
    let now = Time::from_micros(9_000_000);
    let process = |pid| GlobalPid { home: one, pid: HomePid(pid) };
    let running = |pid| ProcessSample {
        stands_for: 1,
        process: process(pid),
        demand: 1.0,
        used: 0.3,
        here: Span::from_secs(10),
        cpu: Span::from_secs(10),
        rss_bytes: 0,
        forwarded_per_s: 0.0,
        freeze_estimate: Span::from_millis(10),
        copy_estimate: Span::from_millis(50),
        left: None,
        stays: None,
        group: None,
        user: None,
    };
    let sampled = |pids: std::ops::Range<i32>| {
        Input::LoadSampled(LoadSample {
            cores: 1,
            speed: 1.0,
            pace: 1.0,
            others: 0.0,
            memory_total_bytes: 1 << 30,
            memory_free_bytes: 1 << 30,
            memory_pressure: 0.0,
            processes: pids.map(running).collect(),
        })
    };
    let received = |from, bytes| Input::DatagramReceived { from, bytes };
    let inputs = [
        Input::Started,
        Input::MemberJoined { node: one },
        Input::MemberJoined { node: three },
        sampled(1..1),
        received(one, offer_message(1, one, process(1))),
        sampled(1..2),
        received(three, message(3, 1, three, 0)),
    ];
    let mut sent = Vec::new();
    for input in inputs {
        brain.handle(now, input, &mut outbox);
        assert_eq!(brain.check_invariants(), Ok(()));
        sent.extend(outbox.drain().filter_map(|output| match output {
            Output::SendDatagram { to, bytes } => Some((to, bytes[3])),
            _ => None,
        }));
    }
    assert!(sent.contains(&(one, 5)), "the place was given");
    assert!(sent.contains(&(three, 4)), "and the process offered on");
}

#[test]
fn an_offer_of_a_process_that_has_just_arrived_reserves_nothing() {
    let mut brain = new_brain();
    let mut outbox = Outbox::new();
    let (from, now) = (NodeId(2), Time::from_micros(9_000_000));
    let process = GlobalPid { home: from, pid: HomePid(1) };
    let idle = LoadSample { cores: 1, speed: 1.0, memory_total_bytes: 1 << 30, ..free_memory() };
    let offered =
        |sequence| Input::DatagramReceived { from, bytes: offer_message(sequence, from, process) };
    brain.handle(now, Input::MemberJoined { node: from }, &mut outbox);
    brain.handle(now, Input::LoadSampled(idle), &mut outbox);
    let mut answer = |input| {
        outbox.drain();
        brain.handle(now, input, &mut outbox);
        let sent = outbox.drain().find_map(|output| match output {
            Output::SendDatagram { bytes, .. } => Some(bytes[3]),
            _ => None,
        });
        (sent, brain.members(now)[0].runnable)
    };
    assert_eq!(answer(offered(1)), (Some(5), 1.0));
    assert_eq!(answer(Input::ProcessArrived { process, how: Arrival::Balanced { from } }).1, 1.0);
    assert_eq!(answer(offered(2)), (Some(6), 1.0), "refused, counted once");
}

fn free_memory() -> LoadSample {
    LoadSample { memory_free_bytes: 1 << 30, ..LoadSample::default() }
}

/// Bytes that pass for a message more often than chance would allow.
fn datagram() -> impl Strategy<Value = Vec<u8>> {
    let sender = (1u32..6, any::<u32>(), any::<u32>(), 0u32..9_000, 1u32..4_000, 1u16..9);
    let body = prop::collection::vec(any::<u8>(), 32);
    let shaped = (1u8..9, sender, body, 0u64..4).prop_map(|(kind, sender, body, id)| {
        let (node, incarnation, age, runnable, speed, cores) = sender;
        let flag = match kind {
            4 => body[4] % 4,
            6 => 1 + body[4] % 7,
            _ => 0,
        };
        let mut bytes = vec![b'O', b'B', 2, kind, flag, 0, 0, 0];
        bytes.extend(age.to_le_bytes());
        bytes.extend(node.to_le_bytes());
        bytes.extend((incarnation % 3).to_le_bytes());
        bytes.extend((age % 10_000).to_le_bytes());
        bytes.extend(runnable.to_le_bytes());
        bytes.extend(speed.to_le_bytes());
        bytes.extend(cores.to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend([0, 4, 0, 0, 0, 4, 0, 0]);
        // The first offer of incarnation 1 and its neighbours: answers sometimes fit.
        let id = (1u64 << 32 | id).to_le_bytes();
        match kind {
            4 => {
                bytes.extend(id);
                bytes.extend((1 + u32::from(body[0] % 5)).to_le_bytes());
                bytes.extend((1 + i32::from(body[1] % 7)).to_le_bytes());
                bytes.extend(1_000u32.to_le_bytes());
                bytes.extend(u32::from(body[2]).to_le_bytes());
                bytes.extend(u64::from(body[3]).to_le_bytes());
                bytes.extend(u64::from(body[5] % 3).to_le_bytes());
                bytes.extend([body[6]; 8]);
                let answered = if body[7] % 2 == 0 { 0u64.to_le_bytes() } else { id };
                bytes.extend(answered);
            }
            8 => {
                bytes.extend(u64::from(body[5] % 3).to_le_bytes());
                bytes.extend([body[6]; 8]);
            }
            5..=7 => bytes.extend(id),
            _ => {}
        }
        bytes
    });
    let any_bytes = prop::collection::vec(any::<u8>(), 0..2 * DATAGRAM_BYTES_MAX);
    prop_oneof![4 => shaped, 1 => any_bytes]
}

fn input() -> impl Strategy<Value = Input> {
    let arrival = (0u8..5, node()).prop_map(|(how, from)| match how {
        0 => Arrival::Born,
        1 => Arrival::Balanced { from },
        2 => Arrival::Ordered { from },
        3 => Arrival::CameHome { from },
        _ => Arrival::Began { from },
    });
    let outcome =
        prop_oneof![Just(MoveOutcome::Moved), Just(MoveOutcome::Stayed), Just(MoveOutcome::Failed)];
    let move_ended = (process(), node(), node(), outcome, span());
    let received = (node(), datagram(), any::<bool>()).prop_map(|(from, bytes, honest)| {
        let named = bytes.get(12..16).filter(|_| honest);
        let from = named.map_or(from, |id| NodeId(u32::from_le_bytes(id.try_into().expect("4"))));
        Input::DatagramReceived { from, bytes }
    });
    prop_oneof![
        2 => Just(Input::TimePassed),
        4 => load_sample().prop_map(Input::LoadSampled),
        2 => node().prop_map(|node| Input::MemberJoined { node }),
        1 => node().prop_map(|node| Input::MemberLeft { node }),
        8 => received,
        2 => (process(), arrival).prop_map(|(process, how)| Input::ProcessArrived { process, how }),
        1 => process().prop_map(|process| Input::ProcessEnded { process }),
        2 => move_ended.prop_map(|(process, from, to, outcome, freeze)| {
            Input::MoveEnded { process, from, to, outcome, freeze }
        }),
        1 => process().prop_map(|process| {
            Input::ProcessPlaced { process, placement: Placement::Balanced }
        }),
        1 => ownership().prop_map(|ownership| Input::OwnerDecided { ownership }),
        1 => prop::collection::vec(node(), 0..3).prop_map(|nodes| Input::NodesBarred { nodes }),
        1 => process().prop_map(|process| Input::ProcessExempted { process }),
    ]
}

fn ownership() -> impl Strategy<Value = Ownership> {
    let words = prop::array::uniform5(any::<bool>());
    let limits = (prop::option::of(0u32..4), prop::option::of(any::<u64>()));
    let priorities = prop::collection::vec((node(), any::<u16>().prop_map(Priority)), 0..4);
    (words, limits, priorities).prop_map(|(words, limits, priorities)| {
        let [is_closed, expels, drains, stays, yields] = words;
        let (guests_max, guest_memory_max_bytes) = limits;
        Ownership {
            is_closed,
            expels,
            drains,
            stays,
            yields,
            guests_max,
            guest_memory_max_bytes,
            priorities,
        }
    })
}

fn new_brain() -> Brain {
    let identity = Identity { node: NodeId(1), incarnation: 1, seed: 3 };
    let config = Config { processes_max: 16, view_max: 3, ..Config::default() };
    Brain::new(identity, config)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_inputs_in_any_order_leave_the_invariants_whole(
        steps in prop::collection::vec((0u64..2_000_000, input()), 1..80),
    ) {
        let mut brain = new_brain();
        let mut outbox = Outbox::new();
        let mut now = Time::from_micros(1_000_000);
        brain.handle(now, Input::Started, &mut outbox);
        let mut moving = std::collections::BTreeMap::new();
        for (pause_us, input) in steps {
            now = now + Span(pause_us);
            if let Input::MoveEnded { process, from: NodeId(1), .. }
            | Input::ProcessEnded { process } = &input
            {
                moving.remove(process);
            }
            brain.handle(now, input, &mut outbox);
            prop_assert_eq!(brain.check_invariants(), Ok(()));
            prop_assert!(brain.members(now).len() <= 4);
            let outputs: Vec<Output> = outbox.drain().collect();
            prop_assert!(outputs.len() <= OUTPUTS_MAX, "{} outputs", outputs.len());
            for output in outputs {
                match output {
                    Output::SendDatagram { to, bytes } => {
                        prop_assert!(to != NodeId(1) && bytes.len() <= DATAGRAM_BYTES_MAX);
                    }
                    Output::Move { process, to, .. } => {
                        prop_assert!(to != NodeId(1));
                        prop_assert!(moving.insert(process, to).is_none(), "moved twice at once");
                    }
                    Output::WakeAt(at) => prop_assert!(at > Time::ZERO),
                    Output::RecordDecision { .. } | Output::MemberStatus { .. } => {}
                }
            }
        }
    }

    #[test]
    fn any_bytes_from_a_member_leave_a_brain_that_still_works(
        datagrams in prop::collection::vec(datagram(), 1..50),
    ) {
        let mut brain = new_brain();
        let mut outbox = Outbox::new();
        let now = Time::from_micros(1_000_000);
        brain.handle(now, Input::Started, &mut outbox);
        brain.handle(now, Input::MemberJoined { node: NodeId(2) }, &mut outbox);
        for bytes in datagrams {
            outbox.drain();
            brain.handle(now, Input::DatagramReceived { from: NodeId(2), bytes }, &mut outbox);
            prop_assert!(outbox.drain().count() <= OUTPUTS_MAX);
        }
        brain.handle(now + Span::from_secs(2), Input::TimePassed, &mut outbox);
        let gossips = outbox.drain().any(|output| matches!(output, Output::SendDatagram { .. }));
        prop_assert!(gossips);
    }
}
