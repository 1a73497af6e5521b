//! The threads of a body, made before they are known to the last.
//!
//! Each is made by the first one with its id of home, which takes several hand-overs. So they are
//! made from the draft, while the process still runs, and wait in the agent for what they are to
//! be. The image says who was right: whoever has ended since is dismissed, whoever has begun is
//! made then.

use crate::outward::enter_agent;
use crate::worker::{self, Worker};
use crate::{MigrateError, Result};
use kernel::agent::{self, Agent, BatchCall};
use kernel::patience::{self, Patience};
use kernel::sandbox;
use kernel::tracee::{self, Stop};
use std::collections::HashSet;
use std::time::Duration;
use wire::ids::GuestTid;

const PR_SET_NO_NEW_PRIVS: u64 = 38;
/// `_LINUX_CAPABILITY_VERSION_3` and "myself".
const CAPABILITY_HEADER: [u8; 8] = [0x22, 0x05, 0x08, 0x20, 0, 0, 0, 0];
/// MEMBARRIER_CMD_REGISTER_*: global, private, private with core serialisation, private for rseq.
const MEMBARRIER_REGISTRATIONS: [u64; 4] = [1 << 2, 1 << 4, 1 << 6, 1 << 8];
/// A thread is made in some dozen microseconds; thousands take longer on a busy node.
const MAKING_TIMEOUT: Duration = Duration::from_secs(20);
/// Where in its staging area a thread has what its giving up of privileges reads.
const CAPABILITIES_OFFSET: usize = 64;
/// What a call that makes a thread takes of the staging area: the id, and the arguments.
const MAKING_BYTES: usize = 128;
const ID_OFFSET: usize = 96;

/// A thread of a body under construction; it waits in the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    pub guest: GuestTid,
    /// As the supervisor sees it.
    pub local: i32,
    /// Of the agent.
    pub slot: usize,
}

impl Made {
    pub(crate) fn worker<'a>(&self, agent: &'a Agent) -> Worker<'a> {
        Worker { agent, slot: self.slot, tid: self.local }
    }
}

/// Has `main`, still the only thread of a body, make those that the process has by now. Who
/// registers for membarrier(2) before need not wait until all processors have been told.
pub(crate) fn make_early(main: Worker<'_>, tids: &[GuestTid]) -> Result<Vec<Made>> {
    let _limit = Patience::of(MAKING_TIMEOUT);
    // The guest may have registered for any of these; what a kernel does not have, it has not.
    let registrations = MEMBARRIER_REGISTRATIONS
        .map(|command| BatchCall::new(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]));
    main.execute(&registrations)?;
    let wanted: Vec<_> = tids.iter().copied().zip(main.slot + 1..).collect();
    make(main, &wanted)
}

/// Has `main`, the first thread of a body, make others, each with its id of home and for its slot.
/// They keep no privileges.
fn make(main: Worker<'_>, wanted: &[(GuestTid, usize)]) -> Result<Vec<Made>> {
    let agent = main.agent;
    let staging = agent.staging_address(main.slot);
    let mut made = Vec::with_capacity(wanted.len());
    for part in wanted.chunks(agent::BATCH_MAX) {
        let mut calls = Vec::with_capacity(part.len());
        for (index, (guest, _)) in part.iter().enumerate() {
            let offset = index * MAKING_BYTES;
            let place = staging + offset as u64;
            let arguments = sandbox::thread_arguments(place + ID_OFFSET as u64);
            agent.write_staging(main.slot, offset, &arguments);
            agent.write_staging(main.slot, offset + ID_OFFSET, &guest.0.to_le_bytes());
            let call = [place, arguments.len() as u64, 0, 0, 0, 0];
            calls.push(BatchCall::new(libc::SYS_clone3, call));
        }
        agent.submit(main.slot, &calls);
        for (guest, slot) in part {
            let one = Made { guest: *guest, local: catch(main, *guest)?, slot: *slot };
            made.push(one);
            // It finds the batch when it enters the agent.
            agent.submit_quietly(one.slot, &prepare_give_up(one.worker(agent)));
            enter_agent(one.local, agent, one.slot)?;
        }
        let results = main.collect(&calls)?;
        worker::check("make threads", &calls, &results)?;
    }
    for one in made.iter().rev() {
        let calls = give_up_calls(one.worker(agent));
        let results = one.worker(agent).collect(&calls)?;
        worker::check("give up privileges", &calls, &results)?;
    }
    Ok(made)
}

/// Waits for the next thread that `main` makes; it is stopped before its first instruction.
fn catch(main: Worker<'_>, guest: GuestTid) -> Result<i32> {
    let failed = || {
        let source = std::io::Error::from_raw_os_error(libc::EAGAIN);
        MigrateError::from(kernel::KernelError { what: format!("make thread {guest}"), source })
    };
    // A clone that fails raises no event: then `main` makes the next, or is done.
    loop {
        patience::check(|| format!("make thread {guest}"))?;
        match tracee::poll(main.tid)? {
            Some(Stop::Event(_)) => break,
            Some(stop) => worker::go_on(main.tid, stop)?,
            None if main.agent.is_done(main.slot) => return Err(failed()),
            None => std::thread::yield_now(),
        }
    }
    let local = tracee::event_message(main.tid)? as i32;
    if !matches!(tracee::wait_other(local)?, Stop::Interrupted | Stop::Group(_)) {
        return Err(failed());
    }
    tracee::resume(main.tid, 0)?;
    Ok(local)
}

fn prepare_give_up(worker: Worker<'_>) -> Vec<BatchCall> {
    worker.agent.write_staging(worker.slot, CAPABILITIES_OFFSET, &CAPABILITY_HEADER);
    worker.agent.write_staging(worker.slot, CAPABILITIES_OFFSET + 16, &[0; 24]);
    give_up_calls(worker)
}

fn give_up_calls(worker: Worker<'_>) -> Vec<BatchCall> {
    let place = worker.agent.staging_address(worker.slot) + CAPABILITIES_OFFSET as u64;
    vec![
        BatchCall::new(libc::SYS_prctl, [PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0]),
        BatchCall::new(libc::SYS_capset, [place, place + 16, 0, 0, 0, 0]),
    ]
}

/// Has a thread, the first one when it has made all others, keep no privileges.
pub(crate) fn give_up_privileges(worker: Worker<'_>) -> Result<()> {
    worker.execute_all("give up privileges", &prepare_give_up(worker))
}

/// Makes of the threads that were made early those that are wanted, `main` left out.
pub(crate) fn muster(main: Worker<'_>, early: Vec<Made>, wanted: &[GuestTid]) -> Result<Vec<Made>> {
    let is_wanted: HashSet<GuestTid> = wanted.iter().copied().collect();
    let (mut made, surplus): (Vec<Made>, Vec<Made>) =
        early.into_iter().partition(|one| is_wanted.contains(&one.guest));
    for one in surplus {
        dismiss(one.worker(main.agent))?;
    }
    let there: HashSet<GuestTid> = made.iter().map(|one| one.guest).collect();
    let taken: HashSet<usize> = made.iter().map(|one| one.slot).chain([main.slot]).collect();
    let missing = wanted.iter().filter(|guest| !there.contains(guest)).copied();
    let free = (0..main.agent.slots()).filter(|slot| !taken.contains(slot));
    let missing: Vec<(GuestTid, usize)> = missing.zip(free).collect();
    made.extend(make(main, &missing)?);
    Ok(made)
}

/// Ends a thread that waits in the agent.
fn dismiss(worker: Worker<'_>) -> Result<()> {
    worker.agent.submit(worker.slot, &[BatchCall::new(libc::SYS_exit, [0; 6])]);
    loop {
        match tracee::wait_other(worker.tid)? {
            Stop::Ended(_) => break,
            stop => worker::go_on(worker.tid, stop)?,
        }
    }
    worker.agent.clear(worker.slot);
    Ok(())
}
