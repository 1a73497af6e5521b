//! Lists of strings: what Linux would copy of them natively is what it copies at home, and home
//! takes no list in another form.

use super::{FIXED, FIXED_BYTES, Memory, WRITABLE, call};
use crate::calls::{BAD_POINTER, EXECVE, StageError, Unmarshalled, marshal, stage};
use crate::forward::Call;
use crate::limits::CALL_BYTES_MAX;
use proptest::prelude::*;

const BASE: u64 = 0x7000_0000;
const CAPACITY: u64 = 8 << 20;
const PATH: u64 = WRITABLE;
const ARGV: u64 = WRITABLE + 0x1000;
const ENVP: u64 = WRITABLE + 0x4000;
const TEXT: u64 = WRITABLE + 0x8000;

/// Memory with a list at `place`, whose strings lie from `text` on.
fn put_list(memory: &mut Memory, place: u64, text: u64, strings: &[Vec<u8>]) {
    let mut at = text;
    let mut words = Vec::new();
    for string in strings {
        memory.put(at, string);
        memory.put(at + string.len() as u64, &[0]);
        words.extend(at.to_le_bytes());
        at += string.len() as u64 + 1;
    }
    words.extend([0; 8]);
    memory.put(place, &words);
}

/// The list there as a kernel copies it; None if that faults.
fn copied(bytes: &dyn Fn(u64, usize) -> Option<Vec<u8>>, list: u64) -> Option<Vec<Vec<u8>>> {
    let mut strings = Vec::new();
    for at in (list..).step_by(8) {
        let pointer = u64::from_le_bytes(bytes(at, 8)?.try_into().ok()?);
        if pointer == 0 {
            break;
        }
        let mut string = Vec::new();
        for at in pointer.. {
            match bytes(at, 1)?[0] {
                0 => break,
                byte => string.push(byte),
            }
        }
        strings.push(string);
    }
    Some(strings)
}

fn exec(memory: &Memory, argv: u64, envp: u64) -> Result<Call, Unmarshalled> {
    let marshalled = marshal(EXECVE, &[PATH, argv, envp, 0, 0, 0], memory)?;
    Ok(call(EXECVE, marshalled.arguments, marshalled.segments))
}

/// What home's kernel is given as argv and envp.
fn given(call: &Call) -> [Option<Vec<Vec<u8>>>; 2] {
    let staged = stage(call, BASE, CAPACITY).expect("an honest call is accepted");
    let mut area = vec![0xee; staged.size as usize];
    for (offset, bytes) in &staged.writes {
        area[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    let bytes = |at: u64, length: usize| {
        let at = usize::try_from(at.checked_sub(BASE)?).ok()?;
        Some(area.get(at..at + length)?.to_vec())
    };
    [1, 2].map(|index| match staged.arguments[index] {
        0 => Some(vec![]),
        list => copied(&bytes, list),
    })
}

fn strings() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let string = proptest::collection::vec(1..=u8::MAX, 0..60);
    proptest::collection::vec(string, 0..40)
}

proptest! {
    #[test]
    fn home_is_given_the_strings_of_the_guest(argv in strings(), envp in strings()) {
        let mut memory = Memory::new(1);
        put_list(&mut memory, ARGV, TEXT, &argv);
        put_list(&mut memory, ENVP, TEXT + 0x4000, &envp);
        let call = exec(&memory, ARGV, ENVP).expect("it travels");
        prop_assert_eq!(given(&call), [Some(argv), Some(envp)]);
    }

    #[test]
    fn a_list_that_was_changed_is_refused_or_still_a_list(argv in strings(), at in any::<usize>(),
            byte in any::<u8>(), cut in any::<usize>()) {
        let mut memory = Memory::new(1);
        put_list(&mut memory, ARGV, TEXT, &argv);
        let mut call = exec(&memory, ARGV, 0).expect("it travels");
        let list = &mut call.segments[1];
        let length = list.data.len();
        list.data[at % length] = byte;
        if cut % 3 == 0 {
            list.data.truncate(cut % (length + 1));
            list.length = list.data.len() as u32;
        }
        match stage(&call, BASE, CAPACITY).map(drop) {
            Ok(()) => prop_assert!(given(&call)[0].is_some()),
            Err(error) => prop_assert_eq!(error, StageError::Mismatch(1)),
        }
    }
}

#[test]
fn lists_that_are_null_or_lead_nowhere_are_left_to_linux() {
    let mut memory = Memory::new(1);
    put_list(&mut memory, ARGV, TEXT, &[]);
    let empty = exec(&memory, ARGV, 0).expect("it travels");
    assert_eq!(given(&empty), [Some(vec![]), Some(vec![])]);
    assert_eq!(empty.segments.len(), 2, "NULL is no list");
    let dangling = exec(&memory, 0xdead_0000, ARGV).expect("it travels");
    let staged = stage(&dangling, BASE, CAPACITY).expect("an honest call is accepted");
    assert_eq!(staged.arguments[1], BAD_POINTER);
}

#[test]
fn what_cannot_be_read_to_its_end_comes_home() {
    let half = Err(Unmarshalled::NeedsHome("half-mapped-memory"));
    let mut memory = Memory::new(1);
    // A pointer that leads nowhere, among others.
    memory.put(ARGV, &[TEXT, 0xdead_0000, 0].map(u64::to_le_bytes).concat());
    assert_eq!(exec(&memory, ARGV, 0).map(drop), half);
    // A string, and a list, that run into the end of memory.
    let end = FIXED + FIXED_BYTES as u64;
    memory.fixed.fill(1);
    memory.put(ARGV, &[end - 9, 0].map(u64::to_le_bytes).concat());
    assert_eq!(exec(&memory, ARGV, 0).map(drop), half);
    memory.fixed[FIXED_BYTES - 12..]
        .copy_from_slice(&[[TEXT as u8; 8].as_slice(), &[1; 4]].concat());
    assert_eq!(exec(&memory, end - 4, 0).map(drop), half);
    assert_eq!(exec(&memory, u64::MAX - 3, 0).map(|call| call.segments.len()), Ok(1));
}

/// Endless memory: one string of the same byte, and lists of pointers to it.
struct Endless(u8);

impl crate::calls::GuestMemory for Endless {
    fn process(&self) -> i32 {
        1
    }

    fn read(&self, addr: crate::ids::GuestAddr, buf: &mut [u8]) -> usize {
        match addr.0 {
            0..ENVP => buf.fill(0),
            _ => buf.fill(self.0),
        }
        buf.len()
    }

    fn is_writable(&self, _: crate::ids::GuestAddr, _: usize) -> bool {
        false
    }
}

#[test]
fn lists_without_end_come_home() {
    for byte in [1, 0x55] {
        let arguments = [PATH, ENVP, 0, 0, 0, 0];
        let outcome = marshal(EXECVE, &arguments, &Endless(byte));
        assert_eq!(outcome, Err(Unmarshalled::NeedsHome("large-call")));
    }
}

#[test]
fn strings_are_as_long_as_linux_takes_them_and_no_longer() {
    let longest = 128 << 10;
    let list = |string_bytes: usize| {
        let mut data = [16u64, 0].map(u64::to_le_bytes).concat();
        data.resize(16 + string_bytes - 1, b'x');
        data.push(0);
        data
    };
    let mut memory = Memory::new(1);
    put_list(&mut memory, ARGV, TEXT, &[b"x".to_vec()]);
    let mut call = exec(&memory, ARGV, 0).expect("it travels");
    for (bytes, is_taken) in [(1, true), (longest, true), (longest + 1, false)] {
        call.segments[1].data = list(bytes);
        call.segments[1].length = call.segments[1].data.len() as u32;
        assert_eq!(stage(&call, BASE, CAPACITY).is_ok(), is_taken, "{bytes}");
    }
    assert!(CALL_BYTES_MAX > 2 * longest);
}

#[test]
fn lists_that_lie_about_themselves_are_refused() {
    let mut memory = Memory::new(1);
    put_list(&mut memory, ARGV, TEXT, &[b"one".to_vec(), b"two".to_vec()]);
    let honest = exec(&memory, ARGV, 0).expect("it travels");
    let words = |words: &[u64], text: &[u8]| {
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        words.chain(text.iter().copied()).collect::<Vec<u8>>()
    };
    let lies = [
        vec![],
        vec![0; 7],
        words(&[0], b"surplus\0"),
        words(&[8, 0], b""),
        words(&[!7, 0], b"one\0"),
        words(&[24, 28, 0], b"one\0two"),
        words(&[24, 24, 0], b"one\0two\0"),
        words(&[24, 28, 1], b"one\0two\0"),
        words(&[24, 28, 0], b"one\0two\0three\0"),
        words(&[24, 1 << 40, 0], b"one\0two\0"),
        words(&[17, 0], b"\0one\0"),
    ];
    for lie in lies {
        let mut call = honest.clone();
        call.segments[1].length = lie.len() as u32;
        call.segments[1].data.clone_from(&lie);
        let outcome = stage(&call, BASE, CAPACITY).map(drop);
        assert_eq!(outcome, Err(StageError::Mismatch(1)), "{lie:?}");
    }
    assert!(stage(&honest, BASE, CAPACITY).is_ok());
}
