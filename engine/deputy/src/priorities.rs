//! Nice values and scheduling policies of a process that is away. The threads here have them, be it
//! by a call of the guest or by another process (renice(1), chrt(1)); the body's threads, which
//! compute, follow.
//!
//! The kernel tells nobody of a change. It is looked for after the calls that make one, and as
//! often as usage is reported.

use crate::lanes::Work;
use crate::service::Shared;
use kernel::tracee;
use wire::forward::ToAway;
use wire::image::Priority;

/// The priority of a thread as home's kernel has it.
pub fn read(tid: i32) -> kernel::Result<Priority> {
    Ok(Priority { nice: tracee::nice(tid)?, policy: tracee::policy(tid)? })
}

/// True for a call that may change the priority of a thread.
pub fn may_change(number: u32) -> bool {
    matches!(
        i64::from(number),
        libc::SYS_setpriority | libc::SYS_sched_setscheduler | libc::SYS_sched_setparam
    )
}

/// Tells the body what has changed; true if a thread has a policy that it can have only at home.
pub fn tell(shared: &Shared) -> bool {
    let mut is_real_time = false;
    for slot in 0..shared.lanes.count() {
        let mut lane = shared.lanes.lock(slot);
        if matches!(lane.work, Work::Gone) {
            continue;
        }
        // One that has just ended needs none.
        let Ok(priority) = read(lane.tid) else { continue };
        is_real_time |= tracee::is_real_time(priority.policy);
        if lane.priority != Some(priority) {
            lane.priority = Some(priority);
            shared.send(&ToAway::Priority { tid: lane.guest, priority });
        }
    }
    is_real_time
}
