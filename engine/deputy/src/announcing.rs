//! What a target is told of a process before it is frozen.

use kernel::proc::{flags, limits, process};
use migrate::backing::Library;
use migrate::{Result, injection, layout, machine};
use std::ops::Range;
use wire::ids::GuestTid;
use wire::image::{Draft, IMAGE_VERSION, Prospect};
use wire::processor::Processor;

/// Who it is, and what it needs.
pub fn prospect(pid: i32, library: &Library, baseline: Option<&Processor>) -> Result<Prospect> {
    let stat = process::stat(&pid.to_string())?;
    Ok(Prospect {
        version: IMAGE_VERSION,
        pid: guest_tid(pid, pid)?,
        command: String::from_utf8_lossy(&stat.command).into_owned(),
        home: machine::home()?,
        processor: migrate::processor::demand(baseline),
        backings: library.descriptions(),
        memory_bytes: process::resident_bytes(pid)?,
        is_kept: false,
    })
}

/// What its memory is like while it runs still, and where the agent will lie.
pub fn draft(pid: i32, library: &Library) -> Result<(Draft, Range<u64>, usize)> {
    let maps = flags::read_maps(pid)?;
    let (place, slots) = injection::place(&maps, process::threads(pid)?.len())?;
    let limits = limits::read(pid)?;
    let draft = Draft {
        mappings: layout::of_guest(&maps, &[], library)?,
        stack_limit: limits.stack,
        memory_limits: (limits.address_space, limits.data),
        reserved: (place.start, place.end),
        threads: slots as u32,
    };
    Ok((draft, place, slots))
}

/// A thread's id as the guest sees it: in its innermost PID namespace.
pub fn guest_tid(pid: i32, tid: i32) -> Result<GuestTid> {
    let path = format!("{pid}/task/{tid}");
    let text = std::fs::read_to_string(format!("/proc/{path}/status")).map_err(|source| {
        kernel::KernelError { what: format!("read status of thread {tid}"), source }
    })?;
    let own = process::status_field(&text, "NSpid")
        .and_then(|ids| ids.split_whitespace().last().and_then(|id| id.parse().ok()));
    Ok(GuestTid(own.unwrap_or(tid)))
}
