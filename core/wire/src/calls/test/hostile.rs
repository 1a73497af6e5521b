//! Whatever arrives, nothing panics, and nothing outside the staging area is touched.

use super::{Memory, WRITABLE, call};
use crate::calls::{
    Argument, BAD_POINTER, Class, StageError, Staged, apply, classify, collect, marshal, stage,
};
use crate::forward::{Call, Direction, Output, Place, Segment, Yield};
use crate::ids::GuestAddr;
use proptest::prelude::*;

const BASE: u64 = 0x7000_0000;
const CAPACITY: u64 = 1 << 16;

/// Registers that are likely to be meant as something.
fn register() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => WRITABLE..WRITABLE + 0x2_0000,
        3 => 0_u64..70,
        1 => 0_u64..0x1_0000,
        1 => any::<u64>(),
        1 => Just(u64::MAX),
        1 => Just(BAD_POINTER),
    ]
}

fn registers() -> impl Strategy<Value = [u64; 6]> {
    proptest::array::uniform6(register())
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        any::<u8>().prop_map(|index| Place::Argument(index % 8)),
        (0_u16..6, any::<u32>())
            .prop_map(|(segment, offset)| Place::Pointer { segment, offset: offset % 80 }),
        (any::<u16>(), any::<u32>())
            .prop_map(|(segment, offset)| Place::Pointer { segment, offset }),
    ]
}

fn yields() -> impl Strategy<Value = Yield> {
    prop_oneof![
        Just(Yield::Whole),
        Just(Yield::Result),
        any::<u16>().prop_map(Yield::ResultUnits),
        any::<u16>().prop_map(Yield::ResultAfter),
        Just(Yield::ResultRest),
        Just(Yield::Always),
        (any::<u16>(), any::<u32>())
            .prop_map(|(segment, offset)| Yield::Counted { segment, offset }),
    ]
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::In), Just(Direction::Out), Just(Direction::InOut)]
}

fn segment() -> impl Strategy<Value = Segment> {
    let length = prop_oneof![0_u32..200, any::<u32>()];
    let data = proptest::collection::vec(any::<u8>(), 0..100);
    (register(), length, direction(), place(), yields(), data).prop_map(
        |(guest, length, direction, place, yields, data)| Segment {
            guest: GuestAddr(guest),
            length,
            direction,
            place,
            yields,
            data,
        },
    )
}

/// One lie told about an honest call.
#[derive(Clone, Debug)]
enum Lie {
    Argument(usize, u64),
    Number(u32),
    Replace(usize, Segment),
    Drop(usize),
    Repeat(usize),
    Length(usize, u32),
    Data(usize, usize, u8),
    Add(Segment),
}

fn lie() -> impl Strategy<Value = Lie> {
    prop_oneof![
        (0_usize..6, register()).prop_map(|(index, value)| Lie::Argument(index, value)),
        (0_u32..480).prop_map(Lie::Number),
        (0_usize..8, segment()).prop_map(|(index, segment)| Lie::Replace(index, segment)),
        (0_usize..8).prop_map(Lie::Drop),
        (0_usize..8).prop_map(Lie::Repeat),
        (0_usize..8, any::<u32>()).prop_map(|(index, length)| Lie::Length(index, length)),
        (0_usize..8, 0_usize..64, any::<u8>())
            .prop_map(|(index, at, byte)| Lie::Data(index, at, byte)),
        segment().prop_map(Lie::Add),
    ]
}

fn tell(call: &mut Call, lie: Lie) {
    let count = call.segments.len();
    match lie {
        Lie::Argument(index, value) => call.arguments[index] = value,
        Lie::Number(number) => call.number = number,
        Lie::Replace(index, segment) if index < count => call.segments[index] = segment,
        Lie::Drop(index) if index < count => drop(call.segments.remove(index)),
        Lie::Repeat(index) if index < count => {
            call.segments.insert(index, call.segments[index].clone());
        }
        Lie::Length(index, length) if index < count => call.segments[index].length = length,
        Lie::Data(index, at, byte) if index < count => {
            if let Some(old) = call.segments[index].data.get_mut(at) {
                *old = byte;
            }
        }
        Lie::Add(segment) => call.segments.push(segment),
        _ => {}
    }
}

/// Every pointer of an accepted call is NULL, or leads nowhere, or into the staging area.
fn assert_contained(call: &Call) {
    let Ok(staged) = stage(call, BASE, CAPACITY) else { return };
    assert!(staged.size <= CAPACITY);
    let contained = |pointer: u64| {
        pointer == 0 || pointer == BAD_POINTER || (BASE..BASE + staged.size).contains(&pointer)
    };
    for (offset, bytes) in &staged.writes {
        assert!(offset + bytes.len() as u64 <= staged.size);
    }
    let (Class::Forward(form) | Class::Emulate(_, form)) = classify(call.number, &call.arguments)
    else {
        panic!("call {} was accepted and is not forwarded", call.number);
    };
    for (index, argument) in form.iter().enumerate() {
        if *argument == Argument::Value {
            assert_eq!(staged.arguments[index], call.arguments[index]);
        } else {
            assert!(contained(staged.arguments[index]), "argument {index} of {}", call.number);
        }
    }
    for (index, argument) in form.iter().enumerate() {
        if *argument == Argument::Strings && contained(staged.arguments[index]) {
            assert_strings(&staged, staged.arguments[index]);
        }
    }
    for segment in &call.segments {
        if let Place::Pointer { segment, offset } = segment.place {
            let written = staged_bytes(call, &staged.writes, usize::from(segment));
            let offset = offset as usize;
            let pointer = written[offset..offset + 8].try_into().map(u64::from_le_bytes);
            assert!(contained(pointer.expect("eight bytes")));
        }
    }
}

/// A list of strings, as the kernel goes through it, ends, and lies in the staging area with all
/// that it leads to.
fn assert_strings(staged: &Staged<'_>, list: u64) {
    if list == 0 || list == BAD_POINTER {
        return;
    }
    let mut area = vec![0xee; staged.size as usize];
    for (offset, bytes) in &staged.writes {
        area[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    let at = |address: u64| &area[(address - BASE) as usize..];
    let mut next = list;
    loop {
        let string = u64::from_le_bytes(at(next)[..8].try_into().expect("eight bytes"));
        if string == 0 {
            return;
        }
        assert!(at(string).contains(&0), "a string without an end");
        next += 8;
    }
}

/// What is written for a segment that holds pointers: those are all read by the call.
fn staged_bytes<'a>(
    call: &Call,
    writes: &'a [(u64, std::borrow::Cow<'_, [u8]>)],
    wanted: usize,
) -> &'a [u8] {
    let before: u64 = call.segments[..wanted]
        .iter()
        .map(|segment| u64::from(segment.length).next_multiple_of(16))
        .sum();
    let write = writes.iter().find(|(offset, _)| *offset == before);
    &write.expect("a segment with pointers is written").1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_calls_are_contained(number in 0_u32..500, arguments in registers(),
            segments in proptest::collection::vec(segment(), 0..8), result in any::<i64>(),
            staging in proptest::collection::vec(any::<u8>(), 0..300)) {
        let call = call(number, arguments, segments);
        assert_contained(&call);
        collect(&call, result, &staging);
    }

    #[test]
    fn lies_about_any_call_are_contained(number in 0_u32..480, arguments in registers(),
            lies in proptest::collection::vec(lie(), 1..4), result in any::<i64>()) {
        let Ok(marshalled) = marshal(number, &arguments, &Memory::new(number as u8)) else {
            return Ok(());
        };
        let mut call = call(number, marshalled.arguments, marshalled.segments);
        prop_assert!(stage(&call, BASE, 8 << 20).is_ok());
        for lie in lies {
            tell(&mut call, lie);
        }
        assert_contained(&call);
        let outputs = collect(&call, result, &vec![0xff; CAPACITY as usize]);
        if stage(&call, BASE, CAPACITY).is_ok() {
            prop_assert!(apply(&call.segments, &outputs).is_ok());
        }
    }

    #[test]
    fn every_call_marshals_whatever_its_arguments(arguments in registers(), seed in any::<u8>()) {
        let memory = Memory::new(seed);
        for number in 0..480 {
            let Ok(marshalled) = marshal(number, &arguments, &memory) else { continue };
            let call = call(number, marshalled.arguments, marshalled.segments);
            prop_assert!(stage(&call, BASE, 8 << 20).is_ok(), "call {number}");
            assert_contained(&call);
        }
    }

    #[test]
    fn replies_outside_their_segments_are_refused(index in any::<u16>(), length in 0_usize..200) {
        let memory = Memory::new(0);
        let marshalled = marshal(0, &[3, WRITABLE, 100, 0, 0, 0], &memory).expect("it travels");
        let outputs = [Output { segment: index % 3, data: vec![0; length] }];
        let fits = index % 3 == 0 && length <= 100;
        prop_assert_eq!(apply(&marshalled.segments, &outputs).is_ok(), fits);
    }
}

#[test]
fn call_without_its_segment_does_not_reach_the_guests_address() {
    let lie = call(0, [3, 0x7fff_0000_0000, 100, 0, 0, 0], Vec::new());
    let staged = stage(&lie, BASE, CAPACITY).expect("a fault is for Linux to find");
    assert_eq!(staged.arguments[1], BAD_POINTER);
}

#[test]
fn calls_that_are_not_forwarded_are_refused() {
    for number in [9, 56, 57, 101, 317, 425, 9999] {
        let outcome = stage(&call(number, [0; 6], Vec::new()), BASE, CAPACITY).map(drop);
        assert_eq!(outcome, Err(StageError::NotForwarded(number)));
    }
    // An ioctl is forwarded by its request.
    let unknown = call(16, [0, 0xc0de_c0de, 0, 0, 0, 0], Vec::new());
    assert!(stage(&unknown, BASE, CAPACITY).is_err());
}

/// A path as a body gathers it, without the body's own look at it.
fn open_of(number: u32, index: u8, path: &[u8]) -> Call {
    let mut arguments = [0; 6];
    arguments[usize::from(index)] = WRITABLE;
    let text = Segment {
        guest: GuestAddr(WRITABLE),
        length: path.len() as u32,
        direction: Direction::In,
        place: Place::Argument(index),
        yields: Yield::Whole,
        data: path.to_vec(),
    };
    call(number, arguments, vec![text])
}

#[test]
fn what_the_body_makes_a_process_come_home_for_is_not_made_for_it_here() {
    for path in [&b"/proc/self/mem\0"[..], b"/proc/thread-self/smaps\0", b"//proc/7/task/7/mem\0"] {
        for (number, index) in [(2, 0), (257, 1)] {
            let outcome = stage(&open_of(number, index, path), BASE, CAPACITY).map(drop);
            assert_eq!(outcome, Err(StageError::NeedsHome(number, "proc-self")), "{path:?}");
        }
    }
    assert!(stage(&open_of(2, 0, b"/proc/meminfo\0"), BASE, CAPACITY).is_ok());
}

#[test]
fn what_the_body_answers_by_itself_is_not_made_here() {
    // rt_sigreturn, restart_syscall, FUTEX_WAIT with a timeout.
    for (number, arguments) in
        [(15, [0; 6]), (219, [0; 6]), (202, [WRITABLE, 0, 0, WRITABLE, 0, 0])]
    {
        let outcome = stage(&call(number, arguments, Vec::new()), BASE, CAPACITY).map(drop);
        assert_eq!(outcome, Err(StageError::NotForwarded(number)));
    }
    // A disposition at an address where there is nothing: EFAULT, which needs no home.
    let action = call(13, [10, 0xdead_0000, 0, 8, 0, 0], Vec::new());
    assert_eq!(stage(&action, BASE, CAPACITY).map(drop), Err(StageError::Dangling(13)));
    // One that is only asked for.
    let asked = call(13, [10, 0, WRITABLE, 8, 0, 0], Vec::new());
    assert_eq!(stage(&asked, BASE, CAPACITY).map(drop), Err(StageError::NotForwarded(13)));
}

#[test]
fn staging_area_that_is_too_small_is_said() {
    let memory = Memory::new(0);
    let marshalled = marshal(0, &[3, WRITABLE, 100, 0, 0, 0], &memory).expect("it travels");
    let read = call(0, marshalled.arguments, marshalled.segments);
    let outcome = stage(&read, BASE, 64).map(drop);
    assert_eq!(outcome, Err(StageError::TooLarge { needed: 112, capacity: 64 }));
}

/// A recvfrom with its buffer, length and address, and one change.
fn lied(lie: impl Fn(&mut Vec<Segment>)) -> Result<(), StageError> {
    let mut memory = Memory::new(0);
    memory.put(WRITABLE + 0x400, &64_i32.to_le_bytes());
    let arguments = [3, WRITABLE, 100, 0, WRITABLE + 0x200, WRITABLE + 0x400];
    let mut segments = marshal(45, &arguments, &memory).expect("it travels").segments;
    lie(&mut segments);
    stage(&call(45, arguments, segments), BASE, CAPACITY).map(drop)
}

#[test]
fn every_field_of_a_segment_is_checked() {
    assert_eq!(lied(|_| {}), Ok(()));
    let mismatch = Err(StageError::Mismatch(0));
    // The kernel would write 100 bytes into a place for 10.
    assert_eq!(lied(|segments| segments[0].length = 10), mismatch);
    assert_eq!(lied(|segments| segments[0].length = 101), mismatch);
    assert_eq!(lied(|segments| segments[0].guest = GuestAddr(WRITABLE + 1)), mismatch);
    assert_eq!(lied(|segments| segments[0].direction = Direction::InOut), mismatch);
    assert_eq!(lied(|segments| segments[0].yields = Yield::Whole), mismatch);
    assert_eq!(lied(|segments| segments[0].data = vec![0; 100]), mismatch);
    // The length that is read here is the second segment, the address it bounds the third.
    let too_short = lied(|segments| segments[1].data.truncate(3));
    assert_eq!(too_short, Err(StageError::Mismatch(1)));
    let longer = lied(|segments| segments[1].data = 65_i32.to_le_bytes().to_vec());
    assert_eq!(longer, Err(StageError::Mismatch(2)));
    let elsewhere = lied(|segments| segments[2].yields = Yield::Counted { segment: 7, offset: 0 });
    assert_eq!(elsewhere, Err(StageError::Mismatch(2)));
    // A place that the call does not have is a segment too many.
    let misplaced = lied(|segments| segments[0].place = Place::Argument(2));
    assert_eq!(misplaced, Err(StageError::Surplus(3)));
}

#[test]
fn structures_are_cleared_before_the_call() {
    let memory = Memory::new(0);
    let marshalled = marshal(5, &[3, WRITABLE, 0, 0, 0, 0], &memory).expect("it travels");
    let fstat = call(5, marshalled.arguments, marshalled.segments);
    let staged = stage(&fstat, BASE, CAPACITY).expect("an honest call is accepted");
    assert_eq!(staged.writes.len(), 1);
    assert_eq!(*staged.writes[0].1, [0; 144]);
}
