//! What a target is told of a process before it is frozen.

use crate::departed::Remembered;
use kernel::proc::maps::Mapping;
use kernel::proc::{flags, limits, process};
use migrate::backing::Library;
use migrate::{Result, injection, layout, machine};
use std::collections::HashMap;
use std::ops::Range;
use wire::ids::GuestTid;
use wire::image::{Draft, IMAGE_VERSION, Prospect};

/// Who it is, and what it needs.
pub fn prospect(pid: i32, library: &Library, remembered: &Remembered) -> Result<Prospect> {
    let stat = process::stat(&pid.to_string())?;
    Ok(Prospect {
        version: IMAGE_VERSION,
        pid: guest_tid(pid, pid)?,
        command: String::from_utf8_lossy(&stat.command).into_owned(),
        home: machine::home()?,
        processor: migrate::processor::demand(remembered.baseline.as_ref()),
        backings: library.descriptions(),
        memory_bytes: process::resident_bytes(pid)?,
        is_kept: false,
        has_no_io_uring: remembered.is_mobile,
        group: None,
        lasting: vec![],
    })
}

/// What its memory is like while it runs still, and where the agent will lie. `known` are its
/// mappings as they were a moment ago.
pub fn draft(pid: i32, library: &Library, known: &[Mapping]) -> Result<(Draft, Range<u64>, usize)> {
    let maps = flags::read_maps_again(pid, known)?;
    let mut others = guest_tids(pid)?;
    let limits = limits::read(pid)?;
    let slots = injection::slots_for(others.len(), limits.address_space);
    let place = injection::place(&maps, slots)?;
    others.remove(&pid);
    let draft = Draft {
        mappings: layout::of_guest(&maps, &[], library)?,
        stack_limit: limits.stack,
        memory_limits: (limits.address_space, limits.data),
        reserved: (place.start, place.end),
        threads: slots as u32,
        tids: others.into_values().collect(),
    };
    Ok((draft, place, slots))
}

/// The ids of all threads as the guest sees them, by local number.
pub fn guest_tids(pid: i32) -> Result<HashMap<i32, GuestTid>> {
    let tids = process::threads(pid)?.into_iter();
    // One that has ended meanwhile has none.
    Ok(tids.filter_map(|tid| Some((tid, guest_tid(pid, tid).ok()?))).collect())
}

/// A thread's id as the guest sees it: in its innermost PID namespace.
pub fn guest_tid(pid: i32, tid: i32) -> Result<GuestTid> {
    Ok(GuestTid(process::thread_status(pid, tid)?.innermost_id))
}
