//! There and back: the journey equals the direct call.

use super::kernel::{Area, Space, execute};
use super::{FIXED, Memory, WRITABLE, call, number};
use crate::calls::{BAD_POINTER, Unmarshalled, apply, collect, marshal, stage};
use crate::forward::{Call, Direction, Output};
use crate::limits::CALL_BYTES_MAX;
use proptest::prelude::*;

const BASE: u64 = 0x7000_0000;
/// Each pointer of a generated call gets its own part of memory.
const SLOT: u64 = 0x400;
const EFAULT: i64 = -14;

fn slot(index: u64) -> u64 {
    WRITABLE + index * SLOT
}

/// What became of a journey.
enum Journey {
    Home,
    Done { result: i64, read: Vec<Vec<u8>>, memory: Memory },
}

fn travel(name: &str, arguments: [u64; 6], memory: &Memory, amount: usize) -> Journey {
    let number = number(name);
    let marshalled = match marshal(number, &arguments, memory) {
        Ok(marshalled) => marshalled,
        Err(Unmarshalled::NeedsHome(_)) => return Journey::Home,
        Err(Unmarshalled::Fault) => panic!("a forwarded call is not judged by the body"),
    };
    let sent = call(number, marshalled.arguments, marshalled.segments.clone());
    let packet = postcard::to_stdvec(&sent).expect("a call is encodable");
    let received: Call = postcard::from_bytes(&packet).expect("a call is decodable");
    let staged = stage(&received, BASE, 1 << 20).expect("an honest call is accepted");
    // Left over from an earlier call: nothing of it may reach the guest.
    let mut area = Area { base: BASE, bytes: vec![0xee; staged.size as usize] };
    for (offset, bytes) in &staged.writes {
        area.store(BASE + offset, bytes).expect("writes lie inside the staging area");
    }
    let deed = execute(name, staged.arguments, &mut area, amount);
    let outputs = collect(&received, deed.result, &area.bytes);
    let packet = postcard::to_stdvec(&outputs).expect("outputs are encodable");
    let outputs: Vec<Output> = postcard::from_bytes(&packet).expect("outputs are decodable");
    let mut memory = memory.clone();
    for (addr, bytes) in apply(&marshalled.segments, &outputs).expect("an honest reply fits") {
        memory.put(addr.0, bytes);
    }
    Journey::Done { result: deed.result, read: deed.read, memory }
}

/// Compares the journey with the direct call. Returns whether the call travelled.
fn check(name: &str, arguments: [u64; 6], memory: &Memory, amount: usize) -> bool {
    let mut direct_memory = memory.clone();
    let direct = execute(name, arguments, &mut direct_memory, amount);
    match travel(name, arguments, memory, amount) {
        Journey::Home => false,
        Journey::Done { result, read, memory } => {
            assert_eq!(result, direct.result, "result of {name}");
            if result != EFAULT {
                assert_eq!(read, direct.read, "what {name} read");
                assert!(memory == direct_memory, "what {name} wrote");
            }
            true
        }
    }
}

/// A pointer: mostly to its slot, sometimes NULL, unmapped or the first page.
fn pointer(slot_index: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        12 => Just(slot(slot_index)),
        1 => Just(0),
        1 => Just(0xdead_0000),
        1 => Just(BAD_POINTER),
    ]
}

fn pointers() -> impl Strategy<Value = [u64; 6]> {
    (pointer(0), pointer(1), pointer(2), pointer(3), pointer(4), pointer(5))
        .prop_map(|(a, b, c, d, e, f)| [a, b, c, d, e, f])
}

fn put_words(memory: &mut Memory, addr: u64, words: &[u64]) {
    for (index, word) in words.iter().enumerate() {
        memory.put(addr + index as u64 * 8, &word.to_le_bytes());
    }
}

/// A vector in slot 20 (and, for message `m`, 20 + m), its parts from slot 30 on.
fn put_vector(memory: &mut Memory, message: u64, lengths: &[u64]) -> u64 {
    let vector = slot(20 + message);
    for (part, &length) in lengths.iter().enumerate() {
        let base = slot(30 + message * 6 + part as u64);
        put_words(memory, vector + part as u64 * 16, &[base, length]);
    }
    vector
}

#[derive(Clone, Debug)]
struct Message {
    name: u64,
    name_length: u32,
    lengths: Vec<u64>,
    control: u64,
    control_length: u64,
}

/// Messages whose name and control slots follow from `index`.
fn message(index: u64) -> impl Strategy<Value = Message> {
    let lengths = proptest::collection::vec(0_u64..200, 0..5);
    (pointer(10 + index), 0_u32..200, lengths, pointer(15 + index), 0_u64..100).prop_map(
        |(name, name_length, lengths, control, control_length)| Message {
            name,
            name_length,
            lengths,
            control,
            control_length,
        },
    )
}

fn put_message(memory: &mut Memory, header: u64, index: u64, message: &Message) {
    let vector = put_vector(memory, index, &message.lengths);
    let parts = message.lengths.len() as u64;
    let name_length = u64::from(message.name_length);
    put_words(memory, header, &[message.name, name_length, vector, parts]);
    put_words(memory, header + 32, &[message.control, message.control_length, 0]);
}

proptest! {
    #[test]
    fn plain_calls_travel_unseen(p in pointers(), amount in 0_usize..300, size in 0_u64..300) {
        let mut memory = Memory::new(amount as u8);
        memory.put(slot(5), &(size as i32 - 20).to_le_bytes());
        memory.put(slot(2), &(size as i32 - 20).to_le_bytes());
        memory.put(slot(0) + 40, &[0]);
        memory.put(slot(1) + size, &[0]);
        check("read", [3, p[1], size, 0, 0, 0], &memory, amount);
        check("write", [3, p[1], size, 0, 0, 0], &memory, amount);
        check("rename", [p[0], p[1], 0, 0, 0, 0], &memory, amount);
        check("openat", [3, p[1], 0, 0, 0, 0], &memory, amount);
        check("recvfrom", [3, p[1], size, 0, p[4], p[5]], &memory, amount);
        check("accept", [3, p[1], p[2], 0, 0, 0], &memory, amount);
        check("getsockopt", [3, 1, 4, p[4], p[5], 0], &memory, amount);
        check("poll", [p[0], size / 4, 5, 0, 0, 0], &memory, amount);
        check("select", [size, p[1], p[2], p[3], p[4], 0], &memory, amount);
        check("epoll_pwait", [3, p[1], size % 50, 9, p[4], 8], &memory, amount);
        check("msgrcv", [3, p[1], size, 0, 0, 0], &memory, amount);
        check("wait4", [3, p[1], 0, p[3], 0, 0], &memory, amount);
        check("nanosleep", [p[0], p[1], 0, 0, 0, 0], &memory, amount);
        check("getgroups", [size % 60, p[1], 0, 0, 0, 0], &memory, amount);
        check("fgetxattr", [3, p[1], p[2], size, 0, 0], &memory, amount);
        put_words(&mut memory, slot(5), &[p[0], 8]);
        check("pselect6", [size, p[1], p[2], p[3], p[4], slot(5)], &memory, amount);
    }

    #[test]
    fn vectors_travel_unseen(lengths in proptest::collection::vec(0_u64..300, 0..9),
                             amount in 0_usize..2000) {
        let mut memory = Memory::new(amount as u8);
        let vector = put_vector(&mut memory, 0, &lengths);
        let count = lengths.len() as u64;
        prop_assert!(check("readv", [3, vector, count, 0, 0, 0], &memory, amount));
        prop_assert!(check("writev", [3, vector, count, 0, 0, 0], &memory, amount));
    }

    #[test]
    fn messages_travel_unseen(first in message(0), second in message(1), third in message(2),
                              amount in 0_usize..600) {
        let mut memory = Memory::new(amount as u8);
        put_message(&mut memory, slot(0), 0, &first);
        check("sendmsg", [3, slot(0), 0, 0, 0, 0], &memory, amount);
        check("recvmsg", [3, slot(0), 0, 0, 0, 0], &memory, amount);
        for (index, message) in [&first, &second, &third].into_iter().enumerate() {
            let index = index as u64;
            put_message(&mut memory, slot(1) + index * 64, index, message);
        }
        check("sendmmsg", [3, slot(1), 3, 0, 0, 0], &memory, amount);
        check("recvmmsg", [3, slot(1), 3, 0, 0, 0], &memory, amount);
    }
}

#[test]
fn message_header_keeps_the_guests_pointers() {
    let mut memory = Memory::new(1);
    let message = Message {
        name: slot(10),
        name_length: 16,
        lengths: vec![10, 0, 5],
        control: 0xdead_0000,
        control_length: 0,
    };
    put_message(&mut memory, slot(0), 0, &message);
    assert!(check("recvmsg", [3, slot(0), 0, 0, 0, 0], &memory, 12));
}

#[test]
fn long_message_name_is_cut_as_linux_cuts_it() {
    let mut memory = Memory::new(1);
    let message = Message {
        name: slot(10),
        name_length: 500,
        lengths: Vec::new(),
        control: 0,
        control_length: 0,
    };
    put_message(&mut memory, slot(0), 0, &message);
    let sendmsg = marshal(number("sendmsg"), &[3, slot(0), 0, 0, 0, 0], &memory);
    let segments = sendmsg.expect("it travels").segments;
    assert_eq!(segments[1].guest.0, slot(10));
    assert_eq!(segments[1].length, 128);
}

#[test]
fn half_mapped_memory_brings_the_process_home() {
    let memory = Memory::new(3);
    let end = WRITABLE + super::WRITABLE_BYTES as u64;
    for name in ["read", "write"] {
        let number = number(name);
        let outcome = marshal(number, &[3, end - 10, 20, 0, 0, 0], &memory);
        assert_eq!(outcome, Err(Unmarshalled::NeedsHome("half-mapped-memory")));
    }
}

#[test]
fn pointer_to_nothing_travels_and_faults_at_home() {
    let memory = Memory::new(3);
    let marshalled = marshal(0, &[3, 0xdead_0000, 20, 0, 0, 0], &memory).expect("it travels");
    assert!(marshalled.segments.is_empty());
    let sent = call(0, marshalled.arguments, marshalled.segments);
    let staged = stage(&sent, BASE, 4096).expect("it is accepted");
    assert_eq!(staged.arguments, [3, BAD_POINTER, 20, 0, 0, 0]);
    let read_only = marshal(0, &[3, FIXED, 20, 0, 0, 0], &memory).expect("it travels");
    assert!(read_only.segments.is_empty());
}

#[test]
fn null_stays_null() {
    let memory = Memory::new(3);
    let wait4 = number("wait4");
    let marshalled = marshal(wait4, &[u64::MAX, 0, 0, 0, 0, 0], &memory).expect("it travels");
    let sent = call(wait4, marshalled.arguments, marshalled.segments);
    let staged = stage(&sent, BASE, 4096).expect("it is accepted");
    assert_eq!(staged.arguments, [u64::MAX, 0, 0, 0, 0, 0]);
    assert_eq!(staged.size, 0);
}

#[test]
fn emulated_call_with_bad_memory_faults_in_the_body() {
    let memory = Memory::new(3);
    let mask = number("rt_sigprocmask");
    let outcome = marshal(mask, &[0, 0xdead_0000, 0, 8, 0, 0], &memory);
    assert_eq!(outcome, Err(Unmarshalled::Fault));
    let marshalled = marshal(mask, &[0, slot(0), slot(1), 8, 0, 0], &memory).expect("described");
    assert_eq!(marshalled.segments.len(), 2);
    assert_eq!(marshalled.segments[1].direction, Direction::Out);
}

#[test]
fn unterminated_path_travels_as_far_as_linux_reads() {
    let mut memory = Memory::new(3);
    memory.put(WRITABLE, &[b'x'; 5000]);
    let marshalled = marshal(number("chdir"), &[WRITABLE, 0, 0, 0, 0, 0], &memory);
    let segments = marshalled.expect("it travels").segments;
    assert_eq!(segments[0].data, vec![b'x'; 4096]);
    let sent = call(number("chdir"), [WRITABLE, 0, 0, 0, 0, 0], segments);
    assert!(stage(&sent, BASE, 8192).is_ok());
}

#[test]
fn large_call_comes_home() {
    let memory = Memory::new(3);
    let length = CALL_BYTES_MAX as u64 + 1;
    for length in [length, u64::MAX] {
        let outcome = marshal(0, &[3, WRITABLE, length, 0, 0, 0], &memory);
        assert_eq!(outcome, Err(Unmarshalled::NeedsHome("large-call")));
    }
}
