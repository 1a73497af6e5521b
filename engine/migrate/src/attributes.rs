//! What the kernel keeps for threads and processes because they said so once: modes, permissions,
//! descriptors of the processor. Each travels, or refuses the move; docs/migration.md has the
//! table.
//!
//! Three ways to find out: `/proc` before the freeze, so that most refusals cost nothing; ptrace
//! under it, before the thread is made to do anything; and calls by the thread itself for what only
//! it can ask.

use crate::worker::Worker;
use crate::{MigrateError, Result};
use kernel::agent::BatchCall;
use kernel::proc::process::ThreadStatus;
use kernel::thread_state::{self, Tie};
use wire::image::Attributes;

/// Before the freeze, and again under it: what `/proc` tells.
///
/// # Errors
/// Refused, with the thread.
pub fn check(tid: i32, status: &ThreadStatus) -> Result<()> {
    if status.has_shadow_stack {
        let text = format!("its thread {tid} has a shadow stack (CET)");
        return Err(MigrateError::refused("shadow-stack", text));
    }
    if status.is_tagged {
        let text = "it tags its addresses (LAM), which no other node takes for the same";
        return Err(MigrateError::refused("tagged-addresses", text));
    }
    Ok(())
}

/// Under the freeze: what ptrace tells of a stopped thread.
///
/// # Errors
/// Refused, with the thread.
pub fn check_stopped(tid: i32) -> Result<()> {
    thread_state::tie(tid).map_or(Ok(()), |tie| Err(tied(tid, tie)))
}

fn tied(tid: i32, tie: Tie) -> MigrateError {
    let (code, what) = match tie {
        Tie::SyscallDispatch => {
            ("syscall-dispatch", "gets its system calls as signals (syscall user dispatch)")
        }
        Tie::Ports => ("io-ports", "may use ports of this machine's devices (ioperm)"),
        Tie::Segments => ("segments", "has segments of its own (set_thread_area)"),
        Tie::Breakpoints => ("breakpoints", "has breakpoints that a debugger left in it"),
    };
    MigrateError::refused(code, format!("its thread {tid} {what}"))
}

const PR_GET_TSC: u64 = 25;
const PR_SET_TSC: u64 = 26;
const PR_TSC_SIGSEGV: u32 = 2;
const PR_SET_TIMERSLACK: u64 = 29;
const PR_GET_TIMERSLACK: u64 = 30;
const PR_SET_THP_DISABLE: u64 = 41;
const PR_GET_THP_DISABLE: u64 = 42;
const PR_GET_SPECULATION_CTRL: u64 = 52;
const PR_SET_SPECULATION_CTRL: u64 = 53;
const PR_GET_MDWE: u64 = 66;
/// Bits of a mode of speculation: the thread may choose, and has chosen to be without; for good;
/// until an exec. For the flush of L1D it is the flush that is enabled.
const SPECULATION_CHOSEN: u32 = 1;
const SPECULATION_ENABLED: u32 = 1 << 1;
const SPECULATION_DISABLED: u32 = 0b1_1100;
/// Number of the flush of L1D among them.
const L1D_FLUSH: usize = 2;
const PERSONALITY_QUERY: u64 = 0xffff_ffff;
// asm/prctl.h.
const ARCH_GET_CPUID: u64 = 0x1011;
const ARCH_GET_XCOMP_PERM: u64 = 0x1022;
/// What has to be asked for before it may be used: the tiles of AMX.
const XCOMP_DYNAMIC: u64 = 1 << 18;
const PKEY_DISABLE_ACCESS: u64 = 1;
/// The first key that a process gets.
const FIRST_KEY: i64 = 1;

fn prctl(option: u64, argument: u64) -> BatchCall {
    BatchCall::new(libc::SYS_prctl, [option, argument, 0, 0, 0, 0])
}

/// The calls by which a thread tells its attributes; `place` is where a zeroed word of its staging
/// memory lies, which [`told`] wants to see.
pub fn tell_calls(place: u64) -> [BatchCall; 7] {
    [
        BatchCall::new(libc::SYS_personality, [PERSONALITY_QUERY, 0, 0, 0, 0, 0]),
        prctl(PR_GET_TIMERSLACK, 0),
        prctl(PR_GET_TSC, place),
        prctl(PR_GET_SPECULATION_CTRL, 0),
        prctl(PR_GET_SPECULATION_CTRL, 1),
        prctl(PR_GET_SPECULATION_CTRL, 2),
        BatchCall::new(libc::SYS_arch_prctl, [ARCH_GET_CPUID, 0, 0, 0, 0, 0]),
    ]
}

/// What the results of [`tell_calls`], and the word that they wrote, say of a thread.
///
/// # Errors
/// Refused, if it has an attribute that no other node can give it.
pub fn told(tid: i32, results: &[i64; 7], counter: [u8; 4]) -> Result<Attributes> {
    if results[6] == 0 {
        let text = format!("its thread {tid} gets CPUID as a fault (arch_prctl)");
        return Err(MigrateError::refused("cpuid-faults", text));
    }
    // What a kernel or processor does not have is not held back.
    let mode = |result: i64| u32::try_from(result).unwrap_or(0);
    Ok(Attributes {
        personality: mode(results[0]),
        timer_slack_ns: u64::try_from(results[1]).unwrap_or(0),
        has_no_counter: u32::from_le_bytes(counter) == PR_TSC_SIGSEGV,
        speculation: [results[3], results[4], results[5]].map(mode),
    })
}

/// The calls by which a new thread of a body takes over its attributes, but for speculation.
pub fn give_calls(wanted: &Attributes) -> Vec<BatchCall> {
    let personality = [u64::from(wanted.personality), 0, 0, 0, 0, 0];
    let slack = prctl(PR_SET_TIMERSLACK, wanted.timer_slack_ns);
    let mut calls = vec![BatchCall::new(libc::SYS_personality, personality), slack];
    if wanted.has_no_counter {
        calls.push(prctl(PR_SET_TSC, u64::from(PR_TSC_SIGSEGV)));
    }
    calls
}

/// Has it hold back speculation as at home.
///
/// # Errors
/// Refused, if this node cannot.
pub fn hold_back(worker: Worker<'_>, wanted: &Attributes) -> Result<()> {
    for (which, mode) in wanted.speculation.iter().enumerate() {
        hold_speculation(worker, which, *mode)?;
    }
    Ok(())
}

/// The bits of a mode that hold something back.
fn held(which: usize, mode: u32) -> u32 {
    mode & if which == L1D_FLUSH { SPECULATION_ENABLED } else { SPECULATION_DISABLED }
}

fn hold_speculation(worker: Worker<'_>, which: usize, mode: u32) -> Result<()> {
    let wanted = held(which, mode);
    // What is so for all threads of a machine is nobody's choice.
    if wanted == 0 || mode & SPECULATION_CHOSEN == 0 {
        return Ok(());
    }
    let set = [PR_SET_SPECULATION_CTRL, which as u64, u64::from(wanted), 0, 0, 0];
    let get = [PR_GET_SPECULATION_CTRL, which as u64, 0, 0, 0, 0];
    let calls = [set, get].map(|arguments| BatchCall::new(libc::SYS_prctl, arguments));
    let now = worker.execute(&calls)?[1];
    // A processor that need not be held back says 0.
    let is_held = u32::try_from(now).is_ok_and(|now| now == 0 || held(which, now) != 0);
    if is_held {
        return Ok(());
    }
    let text = format!("the node cannot hold back speculation of kind {which} for it");
    Err(MigrateError::refused("speculation", text))
}

/// Has a thread tell what belongs to its process; true if it gets no huge pages by itself.
/// `protection_keys` are the rights of the thread to memory by key, where the processor has them.
///
/// # Errors
/// Refused, if there is something that no other node can give it.
pub fn of_process(
    worker: Worker<'_>,
    scratch: usize,
    protection_keys: Option<u32>,
) -> Result<bool> {
    let place = worker.agent.staging_address(worker.slot) + scratch as u64;
    worker.agent.write_staging(worker.slot, scratch, &[0; 32]);
    let calls = [
        prctl(PR_GET_THP_DISABLE, 0),
        prctl(PR_GET_MDWE, 0),
        // Read, 16 bytes: one entry.
        BatchCall::new(libc::SYS_modify_ldt, [0, place, 16, 0, 0, 0]),
        BatchCall::new(libc::SYS_arch_prctl, [ARCH_GET_XCOMP_PERM, place + 16, 0, 0, 0, 0]),
    ];
    let results = worker.execute(&calls)?;
    let mut word = [0; 8];
    worker.agent.read_staging(worker.slot, scratch + 16, &mut word);
    if results[1] > 0 {
        let text =
            "its memory may not become executable (PR_SET_MDWE), and restoring it needs that";
        return Err(MigrateError::refused("mdwe", text));
    }
    if results[2] > 0 {
        let text = "it has a table of segments of its own (modify_ldt)";
        return Err(MigrateError::refused("ldt", text));
    }
    if results[3] == 0 && u64::from_le_bytes(word) & XCOMP_DYNAMIC != 0 {
        return Err(MigrateError::refused("amx", "it may use the tiles of AMX (arch_prctl)"));
    }
    if let Some(rights) = protection_keys {
        check_keys(worker, rights)?;
    }
    Ok(results[0] > 0)
}

/// The call by which a body gets no huge pages by itself.
pub fn no_huge_pages_call() -> BatchCall {
    prctl(PR_SET_THP_DISABLE, 1)
}

/// Rights of a program that has no keys: memory without a key only (`init_pkru`).
pub(crate) const NO_KEYS: u32 = 0x5555_5554;

/// Whether these are the rights of a program that has no keys. The right to everything is what a
/// handler's return leaves whose frame does not say (`crate::registers`).
pub fn are_without_keys(rights: u32) -> bool {
    [NO_KEYS, 0].contains(&rights)
}

/// No call tells which keys a process has; but the next one is the first if it has none. It is
/// asked for with the rights that the thread has to it anyway, and given back.
fn check_keys(worker: Worker<'_>, rights: u32) -> Result<()> {
    let refusal = "it uses memory protection keys, or memory that may be executed only";
    let refused = || MigrateError::refused("protection-keys", refusal);
    if !are_without_keys(rights) {
        return Err(refused());
    }
    let ask = BatchCall::new(libc::SYS_pkey_alloc, [0, PKEY_DISABLE_ACCESS, 0, 0, 0, 0]);
    let key = worker.execute(&[ask])?[0];
    if key > 0 {
        let give_back = BatchCall::new(libc::SYS_pkey_free, [key as u64, 0, 0, 0, 0, 0]);
        worker.execute(&[give_back])?;
    }
    if key == FIRST_KEY { Ok(()) } else { Err(refused()) }
}

/// Where the rights by key lie in what a kernel saves of a thread (CPUID 0xd.9), if it keeps them.
pub(crate) fn place_of_rights() -> Option<usize> {
    const PKRU: u32 = 9;
    let is_kept = kernel::processor::kept_registers() & 1 << PKRU != 0;
    is_kept.then(|| kernel::processor::cpuid(0xd, PKRU)[1] as usize)
}

/// The rights of a thread to memory by key, where the processor has them.
pub fn rights_by_key(extended_state: &[u8]) -> Option<u32> {
    let place = place_of_rights()?;
    let bytes = extended_state.get(place..place + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn threads_with_shadow_stacks_and_tagged_addresses_stay() {
        let code_of = |status| check(7, &status).err().map(|error| error.reason().code);
        let plain = ThreadStatus::default();
        assert_eq!(code_of(plain), None);
        let shadow_stack = ThreadStatus { has_shadow_stack: true, ..plain };
        assert_eq!(code_of(shadow_stack).as_deref(), Some("shadow-stack"));
        let tagged = ThreadStatus { is_tagged: true, ..plain };
        assert_eq!(code_of(tagged).as_deref(), Some("tagged-addresses"));
    }

    #[test]
    fn only_what_holds_speculation_back_counts() {
        // PR_SPEC_PRCTL with ENABLE, DISABLE, FORCE_DISABLE, DISABLE_NOEXEC.
        assert_eq!([3, 5, 9, 17].map(|mode| held(0, mode)), [0, 4, 8, 16]);
        // The flush is off by default, and for good where there is none.
        assert_eq!([3, 5, 8].map(|mode| held(L1D_FLUSH, mode)), [2, 0, 0]);
    }

    #[test]
    fn rights_by_key_are_read_where_the_kernel_keeps_them() {
        let mut state = vec![0; 16 << 10];
        match place_of_rights() {
            Some(place) => {
                state[place..place + 4].copy_from_slice(&NO_KEYS.to_le_bytes());
                assert_eq!(rights_by_key(&state), Some(NO_KEYS));
                assert_eq!(rights_by_key(&state[..place]), None);
            }
            None => assert_eq!(rights_by_key(&state), None),
        }
    }
}
