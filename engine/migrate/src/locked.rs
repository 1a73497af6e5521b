//! Memory that is never swapped out (mlock(2)), wherever the process is.
//!
//! A body locks what the guest has locked, within what its node lets a program lock
//! (RLIMIT_MEMLOCK); a node that allows less does not get the process. At home it stays locked:
//! whoever has lowered the limit since would not get the lock again.

use crate::worker::Worker;
use crate::{MigrateError, Result, layout, mapping_flags};
use kernel::agent::BatchCall;
use kernel::proc::flags::{self, Flags};
use kernel::proc::maps::Mapping;
use kernel::quota;
use std::ops::Range;
use wire::image::{self, MappingFlags};

/// Whatever says that memory is locked, and how.
pub const LOCKS: MappingFlags =
    MappingFlags(MappingFlags::LOCKED.0 | MappingFlags::LOCKED_ON_FAULT.0);

/// Refuses locks that cannot move. Shared memory cannot be emptied while it is locked (madvise(2),
/// MADV_REMOVE). And nothing tells of a process that runs whether memory that it maps later is to
/// be locked, too (mlockall(2), MCL_FUTURE), but who asks for that mostly has its stack locked.
pub fn check(mapping: &Mapping) -> Result<()> {
    let is_file = !mapping.is_writable && !layout::is_shared_anonymous(mapping);
    let text = match mapping.flags.has(Flags::LOCKED) {
        true if mapping.name == b"[stack]" => "it has locked all of its memory (mlockall)".into(),
        true if mapping.is_shared && !is_file => {
            format!("it has locked shared memory (mlock) at {:#x}", mapping.start)
        }
        _ => return Ok(()),
    };
    Err(refused(text))
}

/// Refuses a process whose agent, which was mapped just now, is locked: `before` and `now` are what
/// it had locked. So would be all that it maps later, and nothing else tells that.
pub fn check_agent(before: Option<u64>, now: Option<u64>) -> Result<()> {
    match before == now {
        true => Ok(()),
        false => Err(refused("it has all memory locked that it maps (mlockall)".into())),
    }
}

/// The call that locks a range, or unlocks it, as these flags say.
pub fn call(range: &Range<u64>, flags: MappingFlags) -> BatchCall {
    let how = match flags.has(MappingFlags::LOCKED_ON_FAULT) {
        true => u64::from(libc::MLOCK_ONFAULT),
        false => 0,
    };
    let number = match flags.has(MappingFlags::LOCKED) {
        true => libc::SYS_mlock2,
        false => libc::SYS_munlock,
    };
    BatchCall::new(number, [range.start, range.end - range.start, how, 0, 0, 0])
}

/// Gives a body the flags of its mappings: advice that this kernel does not know has no effect, but
/// what is to be locked is.
///
/// # Errors
/// Refused if this node does not let it lock so much.
pub fn advise(worker: Worker<'_>, calls: &[BatchCall], wanted: &[image::Mapping]) -> Result<()> {
    // It fails, too, where a lock takes effect on memory that nobody may touch.
    if !fails(calls, &worker.execute(calls)?) {
        return Ok(());
    }
    let here = flags::read_maps(worker.tid)?;
    match mapping_flags::missing(&here, wanted).has(MappingFlags::LOCKED) {
        true => {
            let limit = quota::hard_limit(libc::RLIMIT_MEMLOCK) >> 10;
            let text =
                format!("a program may lock {limit} KiB of memory there, it has locked more");
            Err(refused(text))
        }
        false => Ok(()),
    }
}

/// Likewise at home, where a process that has lowered its limit while it was away and moved what it
/// had locked has it unlocked.
pub fn advise_at_home(worker: Worker<'_>, calls: &[BatchCall]) -> Result<()> {
    if fails(calls, &worker.execute(calls)?) {
        tracing::warn!("process {}: its limit lets it lock less than it had locked", worker.tid);
    }
    Ok(())
}

fn fails(calls: &[BatchCall], results: &[i64]) -> bool {
    let is_lock = |call: &BatchCall| call.number == libc::SYS_mlock2 as u64;
    calls.iter().zip(results).any(|(call, result)| is_lock(call) && *result < 0)
}

fn refused(text: String) -> MigrateError {
    MigrateError::refused("locked-memory", text)
}
