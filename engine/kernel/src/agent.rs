//! The agent: a few dozen instructions placed in another process, which execute batches of system
//! calls handed over in shared memory. It holds no descriptor, uses no stack and decides nothing.
//!
//! Each thread has a *slot* in the shared memory: a state word (a futex), a batch of calls, and a
//! staging area for what the calls read and write. The state goes
//!
//! ```text
//! IDLE ──controller──► REQUEST ──agent──► RUNNING ──agent──► DONE ──controller──► REQUEST ...
//! ```
//!
//! The step REQUEST → RUNNING is a compare-and-swap, so a request can be withdrawn as long as the
//! agent has not begun it. When a batch is done the agent counts up the *doorbell*, one futex for
//! the controller to wait on whatever the number of threads, and wakes it if the word behind it
//! says that somebody sleeps there: most calls are over before anybody does. Where many threads are
//! given batches at once, only the one that is waited for rings it; the others ring another that
//! nobody hears ([`Agent::submit_quietly`]).
//!
//! While the guest is stopped in ptrace its registers tell exactly where it is
//! ([`Agent::position`]): that is how an interrupted call is told from a finished one.

use crate::Result;
use crate::regs::Registers;
use crate::shared::{SharedMemory, futex_wait, futex_wake};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

std::arch::global_asm!(
    ".pushsection .rodata.osmos_agent, \"a\", @progbits",
    ".globl osmos_agent_begin",
    "osmos_agent_begin:",
    // rbx = this thread's slot
    "1:",
    "mov eax, 1",
    "mov ecx, 2",
    "lock cmpxchg dword ptr [rbx], ecx",
    "je 2f",
    "mov edx, eax",
    "mov rdi, rbx",
    "xor esi, esi",
    "xor r10d, r10d",
    "mov eax, 202",
    "syscall",
    "jmp 1b",
    ".globl osmos_agent_run",
    "osmos_agent_run:",
    "2:",
    "mov r12d, dword ptr [rbx + 4]",
    "mov r13, qword ptr [rbx + 8]",
    "3:",
    "mov rax, qword ptr [r13]",
    "mov rdi, qword ptr [r13 + 8]",
    "mov rsi, qword ptr [r13 + 16]",
    "mov rdx, qword ptr [r13 + 24]",
    "mov r10, qword ptr [r13 + 32]",
    "mov r8, qword ptr [r13 + 40]",
    "mov r9, qword ptr [r13 + 48]",
    ".globl osmos_agent_syscall",
    "osmos_agent_syscall:",
    "syscall",
    ".globl osmos_agent_after",
    "osmos_agent_after:",
    "mov qword ptr [r13 + 56], rax",
    "add r13, 64",
    "dec r12d",
    "jnz 3b",
    // The number of this processor, as the limit of a segment that Linux keeps for it.
    "mov ecx, 0x7b",
    "lsl ecx, ecx",
    "mov dword ptr [rbx + 24], ecx",
    "mov eax, 3",
    "xchg dword ptr [rbx], eax",
    "mov rdi, qword ptr [rbx + 16]",
    "lock inc dword ptr [rdi]",
    "cmp dword ptr [rdi + 4], 0",
    "je 1b",
    "mov esi, 1",
    "mov edx, 0x7fffffff",
    "xor r10d, r10d",
    "mov eax, 202",
    "syscall",
    "jmp 1b",
    ".globl osmos_agent_end",
    "osmos_agent_end:",
    ".popsection",
);

unsafe extern "C" {
    static osmos_agent_begin: u8;
    static osmos_agent_run: u8;
    static osmos_agent_syscall: u8;
    static osmos_agent_after: u8;
    static osmos_agent_end: u8;
}

/// The agent's machine code, position independent.
pub fn code() -> Vec<u8> {
    let (begin, end) = (&raw const osmos_agent_begin, &raw const osmos_agent_end);
    // SAFETY: both symbols delimit one run of read-only bytes, laid down by the assembly above.
    unsafe { std::slice::from_raw_parts(begin, end as usize - begin as usize) }.to_vec()
}

fn offset_of(symbol: *const u8) -> u64 {
    (symbol as usize - (&raw const osmos_agent_begin) as usize) as u64
}

const PAGE: usize = 4096;
/// Layout of the shared memory: code page, then the common page (doorbell), then the slots.
const COMMON_OFFSET: usize = PAGE;
const SLOTS_OFFSET: usize = 2 * PAGE;
/// Another doorbell in the common page, with its own word behind it: nobody sleeps there.
const QUIET_OFFSET: usize = COMMON_OFFSET + 8;
/// The doorbell of whoever waits for one slot: those who wait for any are not woken for it.
const AWAITED_OFFSET: usize = COMMON_OFFSET + 16;
const PROCESSOR_OFFSET: usize = 24;
/// Above it is the number of the memory node.
const PROCESSOR_MASK: u32 = 0xfff;
const BATCH_OFFSET: usize = 64;
const ENTRY_BYTES: usize = 64;
/// Calls that one batch may hold.
pub const BATCH_MAX: usize = (PAGE - BATCH_OFFSET) / ENTRY_BYTES;
/// Size of a slot's staging area, bytes: room for the largest call. Only what is used takes memory.
pub const STAGING_BYTES: usize = 5 << 20;
const SLOT_BYTES: usize = PAGE + STAGING_BYTES;

const STATE_IDLE: u32 = 0;
const STATE_REQUEST: u32 = 1;
const STATE_RUNNING: u32 = 2;
const STATE_DONE: u32 = 3;

/// One system call of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchCall {
    pub number: u64,
    pub arguments: [u64; 6],
}

impl BatchCall {
    pub fn new(number: i64, arguments: [u64; 6]) -> BatchCall {
        BatchCall { number: number as u64, arguments }
    }
}

/// Where a thread that runs the agent stands, by its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// It took a request but has not executed the call.
    BeforeCall,
    /// Interrupted in the call, which left this restart code.
    InCall(i64),
    /// The call is over, its result is in rax.
    AfterCall,
    /// Waiting for work, or about to.
    Idle,
    /// Not in the agent at all.
    Elsewhere,
}

/// The controlling side of an agent: its shared memory, and where the other process sees it.
pub struct Agent {
    memory: SharedMemory,
    /// Address of the shared memory in the process that runs the agent.
    base: u64,
    slots: usize,
}

/// Bytes of shared memory for `slots` threads.
pub fn size_for(slots: usize) -> usize {
    SLOTS_OFFSET + slots * SLOT_BYTES
}

/// The part of the shared memory that has to be mapped executable.
pub const CODE_BYTES: usize = PAGE;

impl Agent {
    /// `memory` holds at least [`size_for`] `slots`; the other process maps it at `base`.
    pub fn new(memory: SharedMemory, base: u64, slots: usize) -> Agent {
        assert!(memory.size() >= size_for(slots));
        memory.write(0, &code());
        Agent { memory, base, slots }
    }

    pub fn base(&self) -> u64 {
        self.base
    }

    pub fn end(&self) -> u64 {
        self.base + self.memory.size() as u64
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Address of a `syscall` instruction in the agent.
    pub fn syscall_instruction(&self) -> u64 {
        self.base + offset_of(&raw const osmos_agent_syscall)
    }

    /// Points a stopped thread's registers at the agent's loop.
    pub fn enter(&self, regs: &mut Registers, slot: usize) {
        regs.rip = self.base;
        regs.rbx = self.slot_address(slot);
        // The agent uses no stack; but a stack pointer inside the guest's alternate stack would
        // keep sigaltstack(2) from changing it.
        regs.rsp = self.base;
        regs.orig_rax = u64::MAX;
        regs.rax = 0;
        regs.eflags &= !(0x100 | 0x400); // neither single-stepping nor counting down
    }

    /// Points a thread that is interrupted in a system call of its own, with a restart code in rax,
    /// at the instruction after the agent's call: when resumed the kernel restarts that very call,
    /// and its result ends up in entry 0 of the slot as if the agent had made it.
    pub fn enter_inside_call(&self, regs: &mut Registers, slot: usize) {
        let entry = self.slot_address(slot) + BATCH_OFFSET as u64;
        regs.rip = self.base + offset_of(&raw const osmos_agent_after);
        regs.rbx = self.slot_address(slot);
        regs.rsp = self.base;
        regs.r12 = 1;
        regs.r13 = entry;
        regs.eflags &= !(0x100 | 0x400);
        self.prepare(slot, 1);
        self.state(slot).store(STATE_RUNNING, Ordering::SeqCst);
    }

    /// Where a stopped thread stands.
    pub fn position(&self, regs: &Registers, slot: usize) -> Position {
        if regs.rip < self.base || regs.rip >= self.base + CODE_BYTES as u64 {
            return Position::Elsewhere;
        }
        let at = regs.rip - self.base;
        if at == offset_of(&raw const osmos_agent_after) {
            let restart = -516..=-512;
            return match regs.interrupted_call() {
                Some(_) if restart.contains(&regs.result()) => Position::InCall(regs.result()),
                _ => Position::AfterCall,
            };
        }
        let before =
            offset_of(&raw const osmos_agent_run)..=offset_of(&raw const osmos_agent_syscall);
        // Between taking a request and branching to it the state alone tells.
        let has_taken =
            at < *before.start() && self.state(slot).load(Ordering::SeqCst) == STATE_RUNNING;
        if before.contains(&at) || has_taken { Position::BeforeCall } else { Position::Idle }
    }

    /// Makes a stopped thread that is in, or before, its call record `result` instead.
    pub fn conclude(&self, regs: &mut Registers, result: i64) {
        regs.rip = self.base + offset_of(&raw const osmos_agent_after);
        // The call may not have been loaded yet: bring the loop's registers up to date.
        regs.r12 = 1;
        regs.r13 = regs.rbx + BATCH_OFFSET as u64;
        regs.rax = result as u64;
        regs.orig_rax = u64::MAX;
    }

    /// Makes a stopped thread whose call `number` has just ended make it again, with `arguments`.
    pub fn redo(&self, regs: &mut Registers, number: u32, arguments: [u64; 6]) {
        regs.rip = self.syscall_instruction();
        regs.rax = u64::from(number);
        regs.orig_rax = u64::MAX;
        [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = arguments;
    }

    /// The staging area of a slot as the other process sees it.
    pub fn staging_address(&self, slot: usize) -> u64 {
        self.slot_address(slot) + PAGE as u64
    }

    pub fn write_staging(&self, slot: usize, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= STAGING_BYTES);
        self.memory.write(self.slot_offset(slot) + PAGE + offset, bytes);
    }

    pub fn read_staging(&self, slot: usize, offset: usize, buffer: &mut [u8]) {
        assert!(offset + buffer.len() <= STAGING_BYTES);
        self.memory.read(self.slot_offset(slot) + PAGE + offset, buffer);
    }

    /// Gives back the memory of a staging area but for its first `used` bytes.
    pub fn discard_staging(&self, slot: usize, used: usize) -> Result<()> {
        let used = used.next_multiple_of(PAGE).min(STAGING_BYTES);
        let offset = self.slot_offset(slot) + PAGE + used;
        if used < STAGING_BYTES {
            self.memory.discard(offset, STAGING_BYTES - used)
        } else {
            Ok(())
        }
    }

    /// Hands a batch to the thread of this slot, which must have nothing to do.
    pub fn submit(&self, slot: usize, calls: &[BatchCall]) {
        self.write_batch(slot, calls);
        self.prepare(slot, calls.len());
        self.request(slot);
    }

    fn write_batch(&self, slot: usize, calls: &[BatchCall]) {
        assert!(!calls.is_empty() && calls.len() <= BATCH_MAX);
        for (index, call) in calls.iter().enumerate() {
            let mut entry = [0; ENTRY_BYTES];
            entry[..8].copy_from_slice(&call.number.to_le_bytes());
            for (i, argument) in call.arguments.iter().enumerate() {
                entry[8 + i * 8..16 + i * 8].copy_from_slice(&argument.to_le_bytes());
            }
            self.memory.write(self.entry_offset(slot, index), &entry);
        }
    }

    fn request(&self, slot: usize) {
        self.state(slot).store(STATE_REQUEST, Ordering::SeqCst);
        futex_wake(self.state(slot), 1);
    }

    /// As [`Agent::submit`], but nobody is woken when it is done unless [`Agent::await_done`] waits
    /// for this very slot then. For batches of many threads at once: each would wake the
    /// controller, which waits for one after another.
    pub fn submit_quietly(&self, slot: usize, calls: &[BatchCall]) {
        self.write_batch(slot, calls);
        self.prepare(slot, calls.len());
        self.ring_at(slot, QUIET_OFFSET);
        self.request(slot);
    }

    /// Takes back a request that the thread has not begun; false if it has.
    pub fn withdraw(&self, slot: usize) -> bool {
        let state = self.state(slot);
        let is_withdrawn = state
            .compare_exchange(STATE_REQUEST, STATE_IDLE, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        if is_withdrawn {
            // Whoever waits for the result need not wait on.
            self.ring();
        }
        is_withdrawn
    }

    /// True once the batch is done; its results may then be read.
    pub fn is_done(&self, slot: usize) -> bool {
        self.state(slot).load(Ordering::SeqCst) == STATE_DONE
    }

    /// Declares the slot free after its results were read.
    pub fn clear(&self, slot: usize) {
        self.state(slot).store(STATE_IDLE, Ordering::SeqCst);
    }

    /// The result of call `index` of the last batch.
    pub fn result(&self, slot: usize, index: usize) -> i64 {
        let mut bytes = [0; 8];
        self.memory.read(self.entry_offset(slot, index) + 56, &mut bytes);
        i64::from_le_bytes(bytes)
    }

    /// The processor that executed the slot's last batch, as the agent says: a hint.
    pub fn processor(&self, slot: usize) -> usize {
        let mut bytes = [0; 4];
        self.memory.read(self.slot_offset(slot) + PROCESSOR_OFFSET, &mut bytes);
        (u32::from_le_bytes(bytes) & PROCESSOR_MASK) as usize
    }

    /// The count of the doorbell of all slots, to be compared by [`Agent::wait_doorbell`].
    pub fn doorbell(&self) -> u32 {
        self.count_at(COMMON_OFFSET)
    }

    /// Sleeps until the doorbell differs from `seen`, at most `timeout`; may return early.
    pub fn wait_doorbell(&self, seen: u32, timeout: Option<Duration>) {
        self.wait_at(COMMON_OFFSET, seen, timeout);
    }

    /// Rings the doorbells from our side, to end every wait.
    pub fn ring(&self) {
        for offset in [COMMON_OFFSET, AWAITED_OFFSET] {
            self.memory.word(offset).fetch_add(1, Ordering::SeqCst);
            futex_wake(self.memory.word(offset), u32::MAX >> 1);
        }
    }

    /// Sleeps until the batch of this slot is done; false if it is not by the deadline: then
    /// the doorbell of all slots rings for it.
    pub fn await_done(&self, slot: usize, deadline: Instant) -> bool {
        // The agent looks where to ring after it has said that it is done: either it finds this, or
        // it is found to be done.
        self.ring_at(slot, AWAITED_OFFSET);
        fence(Ordering::SeqCst);
        loop {
            let seen = self.count_at(AWAITED_OFFSET);
            if self.is_done(slot) {
                return true;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { break };
            self.wait_at(AWAITED_OFFSET, seen, Some(left));
        }
        self.ring_at(slot, COMMON_OFFSET);
        fence(Ordering::SeqCst);
        self.is_done(slot)
    }

    fn count_at(&self, offset: usize) -> u32 {
        self.memory.word(offset).load(Ordering::SeqCst)
    }

    fn wait_at(&self, offset: usize, seen: u32, timeout: Option<Duration>) {
        // The agent counts the bell up before it looks for sleepers, we announce ourselves before
        // the kernel compares the bell: one of the two notices the other.
        let sleepers = self.memory.word(offset + 4);
        sleepers.fetch_add(1, Ordering::SeqCst);
        futex_wait(self.memory.word(offset), seen, timeout);
        sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    fn prepare(&self, slot: usize, calls: usize) {
        let offset = self.slot_offset(slot);
        let batch = self.slot_address(slot) + BATCH_OFFSET as u64;
        self.memory.write(offset + 4, &(calls as u32).to_le_bytes());
        self.memory.write(offset + 8, &batch.to_le_bytes());
        self.ring_at(slot, COMMON_OFFSET);
    }

    /// Where the thread of this slot rings when it is done with a batch. The places differ in
    /// one byte only, so that the agent never reads a mixture of them.
    fn ring_at(&self, slot: usize, offset: usize) {
        let doorbell = self.base + offset as u64;
        self.memory.write(self.slot_offset(slot) + 16, &doorbell.to_le_bytes());
    }

    fn state(&self, slot: usize) -> &std::sync::atomic::AtomicU32 {
        self.memory.word(self.slot_offset(slot))
    }

    fn slot_offset(&self, slot: usize) -> usize {
        assert!(slot < self.slots);
        SLOTS_OFFSET + slot * SLOT_BYTES
    }

    fn slot_address(&self, slot: usize) -> u64 {
        self.base + self.slot_offset(slot) as u64
    }

    fn entry_offset(&self, slot: usize, index: usize) -> usize {
        assert!(index < BATCH_MAX);
        self.slot_offset(slot) + BATCH_OFFSET + index * ENTRY_BYTES
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn code_fits_its_page_and_has_its_landmarks_in_order() {
        assert!(code().len() < CODE_BYTES);
        let run = offset_of(&raw const osmos_agent_run);
        let syscall = offset_of(&raw const osmos_agent_syscall);
        let after = offset_of(&raw const osmos_agent_after);
        assert!(run < syscall && after == syscall + 2 && after < code().len() as u64);
    }

    #[test]
    fn position_is_told_from_the_registers() {
        let memory = SharedMemory::create(size_for(1)).unwrap();
        let agent = Agent::new(memory, 0x10_0000, 1);
        let mut regs = Registers::default();
        assert_eq!(agent.position(&regs, 0), Position::Elsewhere);
        agent.enter(&mut regs, 0);
        assert_eq!(agent.position(&regs, 0), Position::Idle);
        regs.rip = agent.syscall_instruction();
        assert_eq!(agent.position(&regs, 0), Position::BeforeCall);
        regs.rip += 2;
        regs.orig_rax = 0;
        regs.rax = -512i64 as u64;
        assert_eq!(agent.position(&regs, 0), Position::InCall(-512));
        agent.conclude(&mut regs, -4);
        assert_eq!(agent.position(&regs, 0), Position::AfterCall);
    }
}
