//! What each target begins with: real messages.

use crate::samples;
use crate::targets::Target;
use serde::Serialize;
use std::io;
use std::path::Path;
use wire::forward::{Call, Direction, Place, Segment, Yield};
use wire::ids::{GuestAddr, GuestTid};
use wire::image::Image;
use wire::peer;
use wire::processor::Registers;
use wire::supervisor::{Preface, Role};

/// Writes a file for each seed of the target.
pub fn write(directory: &Path, target: &Target) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    for (index, seed) in of(target.name).into_iter().enumerate() {
        std::fs::write(directory.join(format!("seed-{index}")), seed)?;
    }
    Ok(())
}

/// Kernels with AVX, and with AVX-512 and rights by key: a frame of the second.
fn registers() -> Vec<Vec<u8>> {
    let of = |places: &[(usize, u16, u16)]| {
        let mut registers = Registers { xcr0: 3, ..Registers::default() };
        for (bit, offset, bytes) in places {
            registers.xcr0 |= 1 << bit;
            registers.components[bit - 2] = (*offset, *bytes);
        }
        registers
    };
    let narrow = of(&[(2, 576, 256)]);
    let wide = of(&[(2, 576, 256), (5, 1088, 64), (6, 1152, 512), (7, 1664, 1024), (9, 2688, 8)]);
    let mut frame = vec![0; 2696];
    frame[464..468].copy_from_slice(&0x4650_5853u32.to_le_bytes());
    frame[472..480].copy_from_slice(&wide.xcr0.to_le_bytes());
    frame[480..484].copy_from_slice(&2696u32.to_le_bytes());
    frame[512] = 7;
    let layouts = [(wide.clone(), narrow.clone()), (narrow, wide)];
    packets(&layouts).into_iter().map(|seed| [seed, frame.clone()].concat()).collect()
}

fn packets<T: Serialize>(messages: &[T]) -> Vec<Vec<u8>> {
    let encode = |message: &T| postcard::to_stdvec(message).expect("a message of ours");
    messages.iter().map(encode).collect()
}

fn lines<T: Serialize>(messages: &[T]) -> Vec<Vec<u8>> {
    let encode = |message: &T| serde_json::to_vec(message).expect("a message of ours");
    messages.iter().map(encode).collect()
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "to-away" => packets(&samples::to_away()),
        "to-home" => [packets(&samples::to_home()), calls_home()].concat(),
        "image" => {
            let whole = Image { later_threads: 0, ..samples::image() };
            let runs = [packets(&[whole]).concat(), vec![0, 0, 1, 1, 3, 4]].concat();
            vec![runs]
        }
        "stream" => samples::parts(),
        "late" => {
            let page = (GuestAddr(0x1000), GuestAddr(0x2000));
            let answer = [wire::late::encode(vec![page]), vec![1; 4096]].concat();
            [packets(&samples::questions()), vec![answer]].concat()
        }
        "files" => [
            packets(&samples::file_calls()),
            packets(&samples::file_answers()),
            packets(&[samples::served()]),
        ]
        .concat(),
        "registers" => registers(),
        "call" => packets(&calls()),
        "marshal" => marshalled(),
        "peer" => {
            let messages = samples::peer_messages();
            let encode = |message| peer::encode(message).expect("a message of ours");
            let mut all: Vec<Vec<u8>> = messages.iter().map(encode).collect();
            all.push(peer::encode(&samples::hello()).expect("a message of ours"));
            all.extend(packets(&samples::selected()));
            all
        }
        "supervisor" => [
            packets(&samples::to_deputy()),
            packets(&samples::from_deputy()),
            packets(&samples::to_body()),
            packets(&samples::from_body()),
        ]
        .concat(),
        "control" => [lines(&samples::requests()), lines(&samples::replies())].concat(),
        "handshake" => {
            let preface = Preface { role: Role::Deputy, ticket: samples::berth().ticket };
            vec![preface.encode().to_vec(), node::decoders::handshake_sample()]
        }
        "token" => {
            let token = node::decoders::token_sample();
            [
                texts(&["0-999=nobody,*=same", "5=refuse,7-9=100-102", "2,5-7", "all"]),
                vec![token.into()],
            ]
            .concat()
        }
        "map" => texts(&["1 192.168.1.1 3\n# no more\n7 fd00::1 2\n", "1 10.0.0.1 65535\n"]),
        "proc" => proc(),
        "state" => {
            [vec![node::decoders::state_sample()], texts(&[STATE_OF_OWNER, "[[[1],7]]"])].concat()
        }
        "gossip" => gossip(),
        _ => Vec::new(),
    }
}

const STATE_OF_OWNER: &str = r#"{"stays":true,"priorities":[{"home":2,"priority":7}],
"lends_root":true,"lends_to":{"only":[2,3]},"guest_users":"0-999=nobody,*=same"}"#;

/// Calls with every kind of memory: text, buffers, vectors and messages.
fn calls() -> Vec<Call> {
    let segment = |place, length: u32, direction, yields, data: &[u8]| Segment {
        guest: GuestAddr(0x7000_0000),
        length,
        direction,
        place,
        yields,
        data: data.to_vec(),
    };
    let call = |number, arguments, segments| Call {
        tid: GuestTid(12),
        sequence: 1,
        signals_seen: 0,
        number,
        arguments,
        segments,
    };
    let at = 0x7000_0000;
    let (input, output) = (Direction::In, Direction::Out);
    let path = segment(Place::Argument(0), 5, input, Yield::Whole, b"/tmp\0");
    let buffer = segment(Place::Argument(1), 100, output, Yield::Result, b"");
    let vector = [at, 4].map(u64::to_le_bytes).concat();
    let array = segment(Place::Argument(1), 16, input, Yield::Whole, &vector);
    let part = Place::Pointer { segment: 0, offset: 0 };
    let part = segment(part, 4, input, Yield::ResultRest, b"abcd");
    vec![
        call(2, [at, 0, 0, 0, 0, 0], vec![path]),
        call(0, [3, at, 100, 0, 0, 0], vec![buffer]),
        call(20, [1, at, 1, 0, 0, 0], vec![array, part]),
        call(39, [0; 6], vec![]),
        call(102, [0; 6], vec![]),
    ]
}

fn calls_home() -> Vec<Vec<u8>> {
    packets(&calls().into_iter().map(wire::forward::ToHome::Call).collect::<Vec<_>>())
}

/// Numbers and arguments of calls, and a memory full of addresses of itself.
fn marshalled() -> Vec<Vec<u8>> {
    let memory: Vec<u8> = (0..64u64)
        .flat_map(|index| {
            let word = if index % 2 == 0 { 0x7000_0000 + index * 8 } else { 8 };
            word.to_le_bytes()
        })
        .collect();
    let seed = |number: u16, arguments: [u32; 6]| {
        let arguments = arguments.iter().flat_map(|argument| argument.to_le_bytes());
        number.to_le_bytes().into_iter().chain(arguments).chain(memory.clone()).collect()
    };
    let at = 0x7000_0000;
    vec![
        seed(0, [3, at, 32, 0, 0, 0]),
        seed(20, [3, at, 3, 0, 0, 0]),
        seed(46, [3, at, 0, 0, 0, 0]),
        seed(47, [3, at, 0, 0, 0, 0]),
        seed(299, [3, at, 2, 0, 0, 0]),
        seed(270, [64, at, at + 8, 0, at + 16, at + 32]),
        seed(257, [0, at, 0, 0, 0, 0]),
        seed(13, [10, at, at + 32, 8, 0, 0]),
        seed(55, [3, 1, 4, at, at + 8, 0]),
        seed(72, [3, 5, at, 0, 0, 0]),
    ]
}

fn proc() -> Vec<Vec<u8>> {
    let own = ["maps", "stat", "status", "statm", "limits", "cgroup", "mountinfo"];
    let read = |name: &&str| std::fs::read(format!("/proc/self/{name}")).unwrap_or_default();
    own.iter().map(read).collect()
}

/// What a brain sends to another when it starts.
fn gossip() -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    for outputs in [brain(2), brain(3)] {
        for bytes in outputs {
            let length = (bytes.len() as u16).to_le_bytes();
            sent.extend([length[0], length[1], 2]);
            sent.extend(bytes);
        }
    }
    vec![sent]
}

fn brain(node: u32) -> Vec<Vec<u8>> {
    use brain::{Brain, Config, Identity, Input, Outbox, Output, Time};
    use wire::ids::NodeId;
    let me = Identity { node: NodeId(node), incarnation: 1, seed: 7 };
    let mut brain = Brain::new(me, Config::default());
    let (mut outbox, mut now, mut sent) = (Outbox::default(), Time(1_000_000), Vec::new());
    brain.handle(now, Input::Started, &mut outbox);
    brain.handle(now, Input::MemberJoined { node: NodeId(1) }, &mut outbox);
    for _ in 0..8 {
        now = Time(now.0 + 1_000_000);
        brain.handle(now, Input::TimePassed, &mut outbox);
        for output in outbox.drain() {
            if let Output::SendDatagram { bytes, .. } = output {
                sent.push(bytes);
            }
        }
    }
    sent
}
