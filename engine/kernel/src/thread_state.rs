//! What the kernel keeps of the processor's state for a stopped thread besides its registers:
//! seldom used, and lost if nobody looks.

use crate::Result;
use crate::tracee::request;

/// Something that ties a thread to the machine that it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tie {
    /// System calls outside a part of its code are signals to it (prctl(2),
    /// PR_SET_SYSCALL_USER_DISPATCH).
    SyscallDispatch,
    /// It may use ports of devices (ioperm(2)).
    Ports,
    /// It has segments of its own for thread-local storage, as 32-bit code does
    /// (set_thread_area(2)).
    Segments,
    /// A debugger has left breakpoints of the processor in it.
    Breakpoints,
}

/// Whether a stopped tracee has something.
type Look = fn(i32) -> bool;

/// The first such thing of a stopped tracee. What the kernel does not have, no thread has.
pub fn tie(tid: i32) -> Option<Tie> {
    let looks: [(Tie, Look); 4] = [
        (Tie::SyscallDispatch, dispatches_syscalls),
        (Tie::Ports, may_use_ports),
        (Tie::Segments, has_segments),
        (Tie::Breakpoints, has_breakpoints),
    ];
    looks.into_iter().find(|(_, has)| has(tid)).map(|(tie, _)| tie)
}

const NT_386_IOPERM: u64 = 0x201;
/// The largest bitmap of ports, bytes.
const PORTS_BYTES: usize = 8 << 10;
// linux/ptrace.h and asm/ptrace-abi.h.
const PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG: u32 = 0x4211;
const PTRACE_GET_THREAD_AREA: u32 = 25;
/// Entries of the descriptor table that threads may set (GDT_ENTRY_TLS_MIN and MAX).
const THREAD_AREAS: std::ops::RangeInclusive<u64> = 12..=14;
/// Of the last word of `struct user_desc`.
const SEGMENT_NOT_PRESENT: u32 = 1 << 5;
/// `offsetof(struct user, u_debugreg)`.
const DEBUG_REGISTERS: u64 = 848;
const DEBUG_CONTROL: u64 = DEBUG_REGISTERS + 7 * 8;
/// Stop at an instruction, for this thread: each of the four.
const BREAK_AT_INSTRUCTIONS: u64 = 0b0101_0101;
/// Enabled, for this thread or for all: two bits for each of four.
const BREAKPOINTS_ENABLED: u64 = 0xff;

/// Breakpoints that the processor has for a thread.
pub const BREAKPOINTS: usize = 4;

/// Has a stopped tracee stop (SIGTRAP) in front of each of these instructions.
///
/// # Errors
/// The machine has no breakpoints to give; none is set.
pub fn set_breakpoints(tid: i32, places: &[u64; BREAKPOINTS]) -> Result<()> {
    let set = poke_breakpoints(tid, places)
        .and_then(|()| poke("set breakpoints", tid, DEBUG_CONTROL, BREAK_AT_INSTRUCTIONS));
    set.inspect_err(|_| {
        let _ = clear_breakpoints(tid);
    })
}

/// Takes them away again.
pub fn clear_breakpoints(tid: i32) -> Result<()> {
    poke("clear breakpoints", tid, DEBUG_CONTROL, 0)?;
    poke_breakpoints(tid, &[0; BREAKPOINTS])
}

fn poke_breakpoints(tid: i32, places: &[u64; BREAKPOINTS]) -> Result<()> {
    let registers = (DEBUG_REGISTERS..).step_by(8);
    registers.zip(places).try_for_each(|(at, place)| poke("set a breakpoint", tid, at, *place))
}

fn poke(what: &str, tid: i32, register: u64, value: u64) -> Result<()> {
    request(what, libc::PTRACE_POKEUSER, tid, register, value).map(drop)
}

/// The kernel has such a set of registers for a thread only while that uses them.
fn may_use_ports(tid: i32) -> bool {
    let mut bytes = [0u8; PORTS_BYTES];
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let place = (&raw mut vector) as u64;
    request("look for ports", libc::PTRACE_GETREGSET, tid, NT_386_IOPERM, place).is_ok()
}

fn dispatches_syscalls(tid: i32) -> bool {
    // `struct ptrace_sud_config`: mode, selector, offset, length.
    let mut words = [0u64; 4];
    let place = (&raw mut words) as u64;
    let size = size_of_val(&words) as u64;
    let read = request("read dispatch", PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG, tid, size, place);
    read.is_ok() && words[0] != 0
}

fn has_segments(tid: i32) -> bool {
    THREAD_AREAS.into_iter().any(|index| {
        // `struct user_desc`: number, base, limit, bits.
        let mut words = [0u32; 4];
        let place = (&raw mut words) as u64;
        let read = request("read segment", PTRACE_GET_THREAD_AREA, tid, index, place);
        read.is_ok() && words[3] & SEGMENT_NOT_PRESENT == 0
    })
}

fn has_breakpoints(tid: i32) -> bool {
    let read: Result<u64> =
        request("read breakpoints", libc::PTRACE_PEEKUSER, tid, DEBUG_CONTROL, 0);
    read.is_ok_and(|control| control & BREAKPOINTS_ENABLED != 0)
}
