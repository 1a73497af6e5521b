//! The filter around a body, and the notifications it sends.
//!
//! Allowed calls run natively (27 ns more than without a filter); all others stop the thread and
//! are reported to the supervisor (seccomp_unotify(2)).

use crate::agent::BatchCall;
use crate::features::{self, Feature};
use crate::{KernelError, Result, sys};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// What becomes of a call if every condition holds; the first rule that fits counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub number: u32,
    pub conditions: Vec<Condition>,
    /// Where its `syscall` instruction has to lie, if not anywhere.
    pub within: Option<Range<u64>>,
    pub action: Action,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The call runs natively.
    Allow,
    /// The thread's tracer may change the call, which then runs natively.
    Trace,
}

/// What has to be true of one argument. The kernel's filters look at 32 bits at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `argument & mask == value`, on the low half; `and_high_zero` demands that the rest is 0.
    Equal { argument: u8, mask: u32, value: u32, and_high_zero: bool },
    /// The low half is not 0.
    LowNotZero { argument: u8 },
    /// The high half is less than that.
    HighBelow { argument: u8, limit: u32 },
    /// The high half is more than that.
    HighAbove { argument: u8, limit: u32 },
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u16,
    jump_true: u8,
    jump_false: u8,
    value: u32,
}

const LOAD_WORD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_ABOVE: u16 = 0x25;
const JUMP_AT_LEAST: u16 = 0x35;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;
const RETURN_ALLOW: u32 = 0x7fff_0000;
const RETURN_NOTIFY: u32 = 0x7fc0_0000;
const RETURN_TRACE: u32 = 0x7ff0_0000;
const RETURN_ERRNO: u32 = 0x0005_0000;
const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCHITECTURE: u32 = 4;
/// Behind the `syscall` instruction.
const OFFSET_INSTRUCTION: u32 = 8;
const OFFSET_ARGUMENTS: u32 = 16;
/// AUDIT_ARCH_X86_64
pub const ARCHITECTURE: u32 = 0xc000_003e;

/// The filter program as the kernel takes it (`struct sock_filter[]`).
///
/// # Errors
/// E2BIG if it would be longer than the kernel's 4,096 instructions.
pub fn program(rules: &[Rule]) -> Result<Vec<u8>> {
    let mut code = vec![
        load(OFFSET_ARCHITECTURE),
        jump_equal(ARCHITECTURE, 1, 0),
        Instruction { code: RETURN, jump_true: 0, jump_false: 0, value: RETURN_NOTIFY },
    ];
    for rule in rules {
        code.extend(rule_code(rule));
    }
    code.push(Instruction { code: RETURN, jump_true: 0, jump_false: 0, value: RETURN_NOTIFY });
    if code.len() > 4096 {
        return Err(KernelError::errno("build seccomp filter", libc::E2BIG));
    }
    Ok(code.iter().flat_map(encode).collect())
}

/// A test of a rule: what is loaded, what is left of it, how it is compared, and which outcome of
/// the comparison is the wished one.
struct Comparison {
    offset: u32,
    mask: Option<u32>,
    jump: u16,
    value: u32,
    shall_hold: bool,
}

impl Condition {
    fn comparisons(self) -> Vec<Comparison> {
        let place = |argument: u8| OFFSET_ARGUMENTS + u32::from(argument) * 8;
        let plain = |offset, jump, value, shall_hold| Comparison {
            offset,
            mask: None,
            jump,
            value,
            shall_hold,
        };
        match self {
            Condition::Equal { argument, mask, value, and_high_zero } => {
                let offset = place(argument);
                let mask = Some(mask);
                let low = Comparison { offset, mask, jump: JUMP_EQUAL, value, shall_hold: true };
                let high = and_high_zero.then(|| plain(offset + 4, JUMP_EQUAL, 0, true));
                [low].into_iter().chain(high).collect()
            }
            Condition::LowNotZero { argument } => {
                vec![plain(place(argument), JUMP_EQUAL, 0, false)]
            }
            Condition::HighBelow { argument, limit } => {
                vec![plain(place(argument) + 4, JUMP_AT_LEAST, limit, false)]
            }
            Condition::HighAbove { argument, limit } => {
                vec![plain(place(argument) + 4, JUMP_ABOVE, limit, true)]
            }
        }
    }
}

fn rule_code(rule: &Rule) -> Vec<Instruction> {
    let mut comparisons = rule.within.as_ref().map_or_else(Vec::new, place_comparisons);
    comparisons.extend(rule.conditions.iter().flat_map(|condition| condition.comparisons()));
    let length_of = |c: &Comparison| 2 + usize::from(c.mask.is_some());
    let length: usize = comparisons.iter().map(length_of).sum();
    let mut tests = Vec::new();
    for Comparison { offset, mask, jump, value, shall_hold } in comparisons {
        tests.push(load(offset));
        tests.extend(mask.map(|value| Instruction {
            code: AND,
            jump_true: 0,
            jump_false: 0,
            value,
        }));
        // Every failed test jumps behind this rule's RETURN.
        let miss = (length - tests.len()) as u8;
        let (jump_true, jump_false) = if shall_hold { (0, miss) } else { (miss, 0) };
        tests.push(Instruction { code: jump, jump_true, jump_false, value });
    }
    let mut code = vec![load(OFFSET_NUMBER), jump_equal(rule.number, 0, length as u8 + 1)];
    code.extend(tests);
    let value = match rule.action {
        Action::Allow => RETURN_ALLOW,
        Action::Trace => RETURN_TRACE,
    };
    code.push(Instruction { code: RETURN, jump_true: 0, jump_false: 0, value });
    code
}

/// That the `syscall` instruction lies in `range`, which must not cross a border of 4 GiB: if it
/// does, nothing lies in it.
fn place_comparisons(range: &Range<u64>) -> Vec<Comparison> {
    let (start, end) = (range.start, range.end.max(range.start));
    let end = if end >> 32 == start >> 32 { end as u32 } else { start as u32 };
    let low = |value, shall_hold| {
        let (offset, jump) = (OFFSET_INSTRUCTION, JUMP_AT_LEAST);
        Comparison { offset, mask: None, jump, value, shall_hold }
    };
    let (offset, value) = (OFFSET_INSTRUCTION + 4, (start >> 32) as u32);
    let high = Comparison { offset, mask: None, jump: JUMP_EQUAL, value, shall_hold: true };
    vec![high, low(start as u32, true), low(end, false)]
}

fn load(offset: u32) -> Instruction {
    Instruction { code: LOAD_WORD, jump_true: 0, jump_false: 0, value: offset }
}

fn jump_equal(value: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction { code: JUMP_EQUAL, jump_true, jump_false, value }
}

fn encode(i: &Instruction) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..2].copy_from_slice(&i.code.to_le_bytes());
    bytes[2] = i.jump_true;
    bytes[3] = i.jump_false;
    bytes[4..].copy_from_slice(&i.value.to_le_bytes());
    bytes
}

/// Makes the calling thread one that can make only these calls, and dies of any other, whatever its
/// privileges. False if it could not be done. Makes system calls only, and needs no memory but the
/// stack.
pub(crate) fn confine_to<const CALLS: usize>(calls: [u32; CALLS]) -> bool {
    const LENGTH_MAX: usize = 16;
    const KILL_PROCESS: u32 = 0x8000_0000;
    let result = |value| Instruction { code: RETURN, jump_true: 0, jump_false: 0, value };
    let mut program = [result(KILL_PROCESS); LENGTH_MAX];
    program[0] = load(OFFSET_ARCHITECTURE);
    program[1] = jump_equal(ARCHITECTURE, 1, 0);
    program[3] = load(OFFSET_NUMBER);
    for (index, number) in calls.into_iter().enumerate() {
        // To the last instruction.
        program[4 + index] = jump_equal(number, (LENGTH_MAX - 6 - index) as u8, 0);
    }
    program[LENGTH_MAX - 1] = result(RETURN_ALLOW);
    let header = program_header(size_of_val(&program), program.as_ptr() as u64);
    // SAFETY: header and program are live locals that the kernel copies; the rest are numbers.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0, header.as_ptr()) == 0
    }
}

/// Has io_uring_setup answer ENOSYS, for the calling thread and all that it starts from now on, as
/// if the kernel had none. Without CAP_SYS_ADMIN that takes `no_new_privs`, which is set then.
///
/// # Errors
/// Nothing has changed, but for `no_new_privs` where it was needed.
pub fn refuse_io_uring() -> Result<()> {
    /// The same call by the numbers of x32; i386 has it under the same number.
    const X32: u32 = 0x4000_0000;
    const NUMBER: u32 = libc::SYS_io_uring_setup as u32;
    let result = |value| Instruction { code: RETURN, jump_true: 0, jump_false: 0, value };
    let program: [Instruction; 5] = [
        load(OFFSET_NUMBER),
        jump_equal(NUMBER, 2, 0),
        jump_equal(X32 | NUMBER, 1, 0),
        result(RETURN_ALLOW),
        result(RETURN_ERRNO | libc::ENOSYS as u32),
    ];
    let header = program_header(size_of_val(&program), program.as_ptr() as u64);
    let install = || {
        // Older kernels have a filter slow a program down to hold its speculation back.
        let arguments = [SET_MODE_FILTER, FLAG_SPEC_ALLOW, header.as_ptr() as u64, 0, 0, 0];
        // SAFETY: header and program are live locals that the kernel copies.
        unsafe { sys::call("install a seccomp filter", libc::SYS_seccomp, arguments) }
    };
    match install() {
        Err(error) if error.source.raw_os_error() == Some(libc::EACCES) => {
            // SAFETY: plain numbers.
            if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
                return Err(KernelError::last("set no_new_privs"));
            }
            install().map(|_| ())
        }
        outcome => outcome.map(|_| ()),
    }
}

const SET_MODE_FILTER: u64 = 1;
const FLAG_TSYNC: u64 = 1 << 0;
const FLAG_SPEC_ALLOW: u64 = 1 << 2;
const FLAG_NEW_LISTENER: u64 = 1 << 3;
const FLAG_TSYNC_ESRCH: u64 = 1 << 4;
const FLAG_WAIT_KILLABLE_RECV: u64 = 1 << 5;

/// The call that installs a filter on all threads of the process that makes it; its result is the
/// listener's descriptor number there. `header` is the address of what [`program_header`] gives.
pub fn install_call(header: u64) -> BatchCall {
    let flags = FLAG_TSYNC | FLAG_NEW_LISTENER | FLAG_TSYNC_ESRCH | FLAG_WAIT_KILLABLE_RECV;
    BatchCall::new(libc::SYS_seccomp, [SET_MODE_FILTER, flags, header, 0, 0, 0])
}

/// `struct sock_fprog` for a program of `program_bytes` that lies at `address`.
pub fn program_header(program_bytes: usize, address: u64) -> [u8; 16] {
    let mut header = [0; 16];
    header[..2].copy_from_slice(&((program_bytes / 8) as u16).to_le_bytes());
    header[8..].copy_from_slice(&address.to_le_bytes());
    header
}

/// A thread that stopped in a call which is not allowed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notification {
    pub id: u64,
    /// The thread, as the supervisor's PID namespace sees it.
    pub tid: u32,
    pub flags: u32,
    pub number: i32,
    pub architecture: u32,
    pub instruction_pointer: u64,
    pub arguments: [u64; 6],
}

#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct Addition {
    id: u64,
    flags: u32,
    source: u32,
    number: u32,
    number_flags: u32,
}

// ioctl numbers of linux/seccomp.h; SET_FLAGS (6.6) is missing in older headers.
const RECEIVE: u64 = 0xc050_2100;
const SEND: u64 = 0xc018_2101;
const ADD: u64 = 0x4018_2103;
const SET_FLAGS: u64 = 0x4008_2104;
const CONTINUE: u32 = 1;
const SYNC_WAKE_UP: u64 = 1;

/// The supervisor's end of a filter.
pub struct Listener(OwnedFd);

impl Listener {
    /// Asks for synchronous wake-ups where the kernel has them (Linux 6.6): the two sides then take
    /// turns on one CPU, ten times faster than waking an idle one.
    pub fn new(descriptor: OwnedFd) -> Listener {
        if features::settled().has(Feature::SyncWakeUp) {
            // SAFETY: the argument is a plain number. Failure only means slower wake-ups.
            unsafe { libc::ioctl(descriptor.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
        }
        Listener(descriptor)
    }

    /// Waits for the next notification. None if it was interrupted or its thread vanished: ask
    /// again.
    ///
    /// # Errors
    /// Any other failure means that the filter has no users left.
    pub fn receive(&self) -> Result<Option<Notification>> {
        let mut notification = Notification::default();
        // SAFETY: the structure is a live local of the size that the ioctl number encodes.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), RECEIVE, &raw mut notification) };
        if result == 0 {
            return Ok(Some(notification));
        }
        let error = KernelError::last("receive seccomp notification");
        match error.source.raw_os_error() {
            Some(libc::EINTR) => Ok(None),
            // Either the thread vanished meanwhile, or there is none left.
            Some(libc::ENOENT) if !self.is_hung_up() => Ok(None),
            _ => Err(error),
        }
    }

    /// Sleeps until there is something to receive, at most `timeout`; false if there is not.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut watched = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        poll(&mut watched, timeout).is_ok_and(|count| count > 0)
    }

    /// True if no thread uses the filter any more.
    fn is_hung_up(&self) -> bool {
        let mut watched = [PollFd::new(self.0.as_fd(), PollFlags::empty())];
        let is_polled = poll(&mut watched, PollTimeout::ZERO).is_ok();
        let events = watched[0].revents().unwrap_or(PollFlags::empty());
        is_polled && events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR)
    }

    /// Gives the waiting thread this raw result (a value, `-errno` or a restart code). False if the
    /// thread is gone.
    pub fn reply(&self, id: u64, result: i64) -> bool {
        let is_error = (-4095..0).contains(&result);
        let error = if is_error { result as i32 } else { 0 };
        self.send(Response { id, value: if is_error { 0 } else { result }, error, flags: 0 })
    }

    /// Lets the waiting thread execute its call natively. Only for calls that are harmless whatever
    /// their arguments: the kernel reads them again.
    pub fn let_pass(&self, id: u64) -> bool {
        self.send(Response { id, value: 0, error: 0, flags: CONTINUE })
    }

    /// Gives the waiting thread's process a file, under the lowest number that is free there, which
    /// is returned; it is closed when the process begins another program.
    ///
    /// # Errors
    /// The thread is gone, or its process can have no more files.
    pub fn add_descriptor(&self, id: u64, file: impl AsFd) -> Result<i32> {
        let mut addition = Addition {
            id,
            flags: 0,
            source: file.as_fd().as_raw_fd() as u32,
            number: 0,
            number_flags: libc::O_CLOEXEC as u32,
        };
        // SAFETY: the structure is a live local of the size that the ioctl number encodes.
        let number = unsafe { libc::ioctl(self.0.as_raw_fd(), ADD, &raw mut addition) };
        if number < 0 { Err(KernelError::last("give a body a file")) } else { Ok(number) }
    }

    fn send(&self, mut response: Response) -> bool {
        // SAFETY: the structure is a live local of the size that the ioctl number encodes.
        unsafe { libc::ioctl(self.0.as_raw_fd(), SEND, &raw mut response) == 0 }
    }

    /// The descriptor, to be polled for readiness and hang-up.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.0
    }
}

/// Whether a filter's notifications can be waited for without being interrupted by signals that do
/// not kill. Tried without a filter: a kernel that knows the flags misses that first.
pub(crate) fn has_wait_killable() -> bool {
    let flags = FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: there is no program at address 0, so nothing is installed.
    let installed = unsafe {
        sys::call("try a filter", libc::SYS_seccomp, [SET_MODE_FILTER, flags, 0, 0, 0, 0])
    };
    matches!(installed, Err(error) if error.source.raw_os_error() == Some(libc::EFAULT))
}

/// Whether notifications can wake their reader synchronously. Installs a filter that allows
/// everything, for good: to be asked by a process that ends then. Makes system calls only.
pub(crate) fn has_sync_wake_up() -> bool {
    let program = [Instruction { code: RETURN, jump_true: 0, jump_false: 0, value: RETURN_ALLOW }];
    let header = program_header(size_of_val(&program), program.as_ptr() as u64);
    let install = [SET_MODE_FILTER, FLAG_NEW_LISTENER, header.as_ptr() as u64, 0, 0, 0];
    // SAFETY: header and program are live locals that the kernel copies; the rest are numbers.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return false;
        }
        let [operation, flags, header, ..] = install;
        let listener = libc::syscall(libc::SYS_seccomp, operation, flags, header);
        listener >= 0 && libc::ioctl(listener as i32, SET_FLAGS, SYNC_WAKE_UP) == 0
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// What the filter would return, by a tiny interpreter of the instructions used here.
    fn run(program: &[u8], number: u32, architecture: u32, arguments: [u64; 6]) -> u32 {
        run_at(program, 0, number, architecture, arguments)
    }

    fn run_at(
        program: &[u8],
        instruction: u64,
        number: u32,
        architecture: u32,
        arguments: [u64; 6],
    ) -> u32 {
        let mut input = vec![];
        input.extend(number.to_le_bytes());
        input.extend(architecture.to_le_bytes());
        input.extend(instruction.to_le_bytes());
        arguments.iter().for_each(|a| input.extend(a.to_le_bytes()));
        let (mut at, mut accumulator) = (0usize, 0u32);
        loop {
            let i = &program[at * 8..at * 8 + 8];
            let code = u16::from_le_bytes([i[0], i[1]]);
            let value = u32::from_le_bytes([i[4], i[5], i[6], i[7]]);
            at += 1;
            match code {
                LOAD_WORD => {
                    let o = value as usize;
                    accumulator =
                        u32::from_le_bytes([input[o], input[o + 1], input[o + 2], input[o + 3]]);
                }
                AND => accumulator &= value,
                JUMP_EQUAL | JUMP_ABOVE | JUMP_AT_LEAST => {
                    let holds = match code {
                        JUMP_EQUAL => accumulator == value,
                        JUMP_ABOVE => accumulator > value,
                        _ => accumulator >= value,
                    };
                    at += usize::from(if holds { i[2] } else { i[3] });
                }
                RETURN => return value,
                other => panic!("unexpected instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn filter_allows_exactly_what_its_rules_say() {
        let condition =
            |argument, mask, value| Condition::Equal { argument, mask, value, and_high_zero: true };
        let allow =
            |number, conditions| Rule { number, conditions, within: None, action: Action::Allow };
        let rules = [
            allow(39, vec![]),
            allow(9, vec![condition(3, 0xff, 0x22), condition(0, !0, 0)]),
            Rule { action: Action::Trace, ..allow(9, vec![condition(0, !0, 8)]) },
        ];
        let program = program(&rules).unwrap();
        let check = |number, arguments| run(&program, number, ARCHITECTURE, arguments);
        assert_eq!(check(39, [7; 6]), RETURN_ALLOW);
        assert_eq!(check(9, [0, 1, 2, 0x22, 4, 5]), RETURN_ALLOW);
        assert_eq!(check(9, [1, 1, 2, 0x22, 4, 5]), RETURN_NOTIFY);
        assert_eq!(check(9, [1 << 40, 1, 2, 0x22, 4, 5]), RETURN_NOTIFY);
        assert_eq!(check(9, [0, 1, 2, 0x21, 4, 5]), RETURN_NOTIFY);
        assert_eq!(check(40, [0; 6]), RETURN_NOTIFY);
        assert_eq!(check(9, [8, 1, 2, 0x21, 4, 5]), RETURN_TRACE);
        assert_eq!(run(&program, 39, 0x4000_0003, [0; 6]), RETURN_NOTIFY);
    }

    #[test]
    fn halves_of_arguments_are_compared_with_limits() {
        let rule = |conditions| {
            let rule = Rule { number: 11, conditions, within: None, action: Action::Allow };
            program(&[rule]).unwrap()
        };
        let above = rule(vec![Condition::HighAbove { argument: 0, limit: 16 }]);
        let below = rule(vec![
            Condition::HighBelow { argument: 0, limit: 8 },
            Condition::HighBelow { argument: 1, limit: 8 },
        ]);
        let some = rule(vec![Condition::LowNotZero { argument: 1 }]);
        let passes = |program: &[u8], first: u64, second: u64| {
            let arguments = [first, second, 0, 0, 0, 0];
            run(program, 11, ARCHITECTURE, arguments) == RETURN_ALLOW
        };
        assert!(passes(&above, 17 << 32, 0) && !passes(&above, (17 << 32) - 1, 0));
        assert!(passes(&below, (8 << 32) - 1, (8 << 32) - 1));
        assert!(!passes(&below, 8 << 32, 0) && !passes(&below, 0, 8 << 32));
        assert!(passes(&some, 0, 1) && !passes(&some, 1, 0) && !passes(&some, 1, 1 << 32));
    }

    #[test]
    fn a_rule_for_a_place_counts_there_alone() {
        let allow = |within| {
            let condition =
                Condition::Equal { argument: 0, mask: !0, value: 5, and_high_zero: false };
            let conditions = vec![condition];
            let rule = Rule { number: 39, conditions, within, action: Action::Allow };
            program(&[rule]).unwrap()
        };
        let there = allow(Some(0x7f12_0000_1000..0x7f12_0000_2000));
        let check = |at, first| run_at(&there, at, 39, ARCHITECTURE, [first; 6]);
        for at in [0x7f12_0000_1000, 0x7f12_0000_1fff] {
            assert_eq!(check(at, 5), RETURN_ALLOW);
            assert_eq!(check(at, 6), RETURN_NOTIFY);
        }
        for at in [0x7f12_0000_0fff, 0x7f12_0000_2000, 0x7f13_0000_1000, 0x1000] {
            assert_eq!(check(at, 5), RETURN_NOTIFY);
        }
        let across = allow(Some(0xffff_f000..0x1_0000_1000));
        for at in [0xffff_f000, 0xffff_ffff, 0x1_0000_0000] {
            assert_eq!(run_at(&across, at, 39, ARCHITECTURE, [5; 6]), RETURN_NOTIFY);
        }
    }
}
