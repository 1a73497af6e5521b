//! Placing the agent in a stopped process, and taking it out again.

use crate::{MigrateError, Result, layout, refusal};
use kernel::agent::{self, Agent};
use kernel::memory::Memory;
use kernel::proc::maps::Mapping;
use kernel::remote_call::RemoteCalls;
use kernel::shared::SharedMemory;
use std::fs::OpenOptions;
use std::ops::Range;
use std::os::fd::OwnedFd;
use wire::limits::THREADS_MAX;

const READ_EXECUTE: u64 = (libc::PROT_READ | libc::PROT_EXEC) as u64;
const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const SHARED_NEW: u64 = (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64;

/// The `syscall` instruction that remote calls borrow, and a zero byte: both in the vDSO, or else
/// in some executable mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Borrowed {
    pub syscall: u64,
    pub zero_byte: u64,
}

/// Largest part of one mapping that is searched for a `syscall` instruction.
const SEARCH_BYTES_MAX: u64 = 8 << 20;

/// Threads that may begin while a process is on its way or away. Each takes address space, and
/// memory only once it is there.
const SPARE_SLOTS: usize = 32;
/// The same of a process whose address space has a limit.
const SPARE_SLOTS_LIMITED: usize = 8;

/// For how many threads an agent has room that is made for a process with so many, and with this
/// limit of its address space, in bytes.
pub fn slots_for(threads: usize, limit: u64) -> usize {
    let spare = if limit == libc::RLIM_INFINITY { SPARE_SLOTS } else { SPARE_SLOTS_LIMITED };
    (threads + spare).min(THREADS_MAX).max(threads)
}

/// Finds what remote calls borrow from the guest's own memory.
pub fn borrow(memory: &Memory, maps: &[Mapping]) -> Result<Borrowed> {
    let vdso_first = maps.iter().filter(|m| m.name == b"[vdso]");
    let others =
        maps.iter().filter(|m| m.is_executable && m.is_readable && m.name[..] != *b"[vsyscall]");
    for mapping in vdso_first.chain(others) {
        let mut bytes = vec![0; mapping.length().min(SEARCH_BYTES_MAX) as usize];
        let count = memory.read_some(mapping.start, &mut bytes);
        let syscall = bytes[..count].windows(2).position(|pair| pair == [0x0f, 0x05]);
        let zero = bytes[..count].iter().position(|byte| *byte == 0);
        if let (Some(syscall), Some(zero)) = (syscall, zero) {
            let start = mapping.start;
            return Ok(Borrowed {
                syscall: start + syscall as u64,
                zero_byte: start + zero as u64,
            });
        }
    }
    Err(MigrateError::refused("no-syscall", "it has no system call instruction in its memory"))
}

/// Where the agent of a process is to lie that has room for so many threads.
///
/// # Errors
/// Refused if there is no room.
pub fn place(maps: &[Mapping], slots: usize) -> Result<Range<u64>> {
    let size = agent::size_for(slots) as u64;
    match layout::room(layout::ranges(maps), size) {
        Some(base) => Ok(base..base + size),
        None => Err(MigrateError::refused("no-room", "its address space is full")),
    }
}

/// Places an agent with `slots` slots at its `place`; `tid` of `pid` is stopped.
///
/// The shared memory is made inside the process, because that works without any path or permission,
/// and its descriptor is closed before the guest runs again.
pub fn inject(
    pid: i32,
    tid: i32,
    borrowed: Borrowed,
    maps: &[Mapping],
    (place, slots): (&Range<u64>, usize),
) -> Result<Agent> {
    if layout::ranges(maps).any(|taken| taken.start < place.end && place.start < taken.end) {
        let text = "it has mapped memory where there was room for the agent; try again";
        return Err(MigrateError::refused("changed", text));
    }
    let (base, size) = (place.start, place.end - place.start);
    let mut calls = RemoteCalls::begin(tid, borrowed.syscall)?;
    let descriptor = make_memory(&mut calls, borrowed)?;
    let mapped = share(&mut calls, pid, descriptor, base, size);
    calls.call("close shared memory", libc::SYS_close, [descriptor, 0, 0, 0, 0, 0])?;
    Ok(Agent::new(mapped?, base, slots))
}

/// Whether an agent lies in the memory of the process. One that no supervisor of ours serves has it
/// from who made it.
///
/// # Errors
/// If its memory cannot be read.
pub fn has_agent(pid: i32, maps: &[Mapping]) -> Result<bool> {
    let is_page = |m: &&Mapping| m.is_shared && m.is_executable && m.offset == 0;
    let mut pages = maps.iter().filter(is_page).peekable();
    if pages.peek().is_none() {
        return Ok(false);
    }
    let (memory, code) = (refusal::open_memory(pid)?, agent::code());
    let mut found = vec![0; code.len()];
    Ok(pages.any(|page| {
        page.length() == agent::CODE_BYTES as u64
            && memory.read(page.start, &mut found).is_ok()
            && found == code
    }))
}

fn make_memory(calls: &mut RemoteCalls, borrowed: Borrowed) -> Result<u64> {
    let arguments = [borrowed.zero_byte, kernel::shared::code_file_flags(), 0, 0, 0, 0];
    Ok(calls.call("make shared memory", libc::SYS_memfd_create, arguments)?)
}

fn share(
    calls: &mut RemoteCalls,
    pid: i32,
    descriptor: u64,
    base: u64,
    size: u64,
) -> Result<SharedMemory> {
    let path = format!("/proc/{pid}/fd/{descriptor}");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .map_err(|source| kernel::KernelError { what: format!("open {path}"), source })?;
    let memory = SharedMemory::of_file(OwnedFd::from(file), size as usize)?;
    map(calls, descriptor, base, size)?;
    Ok(memory)
}

/// Maps the shared memory in the process: its first page executable, the rest writable.
pub fn map(calls: &mut RemoteCalls, descriptor: u64, base: u64, size: u64) -> Result<()> {
    let code = agent::CODE_BYTES as u64;
    let first = [base, code, READ_EXECUTE, SHARED_NEW, descriptor, 0];
    calls.call("map the agent", libc::SYS_mmap, first)?;
    let rest = [base + code, size - code, READ_WRITE, SHARED_NEW, descriptor, code];
    calls.call("map the agent's memory", libc::SYS_mmap, rest)?;
    Ok(())
}

/// Takes the agent's memory out of a process whose thread `tid` is stopped and not in the agent.
pub fn remove(tid: i32, borrowed: Borrowed, agent: &Agent) -> Result<()> {
    let mut calls = RemoteCalls::begin(tid, borrowed.syscall)?;
    let range = [agent.base(), agent.end() - agent.base(), 0, 0, 0, 0];
    calls.call("remove the agent", libc::SYS_munmap, range)?;
    Ok(())
}
