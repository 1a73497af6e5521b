//! Nice values and scheduling policies. Home is what a guest asks and what says whether it may; but
//! it is the body that computes, and a program that stands back at home does so here.
//!
//! Standing back only: what home allows its own processes gives no precedence over this node's. A
//! node whose owner comes first has all its guests stand back further.

use crate::state::{State, Thread};
use kernel::{haste, tracee};
use wire::ids::GuestTid;
use wire::image::Priority;

const NICE_MAX: i32 = 19;

/// Gives all threads of a body that begins here their priorities.
pub fn adopt(state: &State) {
    // What builds a body takes short turns, and a thread has them from who started it.
    state.threads.values().for_each(|thread| begin(thread, state.stands_back));
}

/// Gives a thread that begins here its priority.
pub fn begin(thread: &Thread, stands_back: i32) {
    apply(thread, stands_back);
    haste::take_usual_turns(thread.local);
}

/// All of it stands back by that much from now on.
pub fn stand_back(state: &mut State, nice: i32) {
    state.stands_back = nice.clamp(0, NICE_MAX);
    state.threads.values().for_each(|thread| apply(thread, state.stands_back));
}

/// A thread has got this priority at home.
pub fn follow(state: &mut State, tid: GuestTid, priority: Priority) {
    let stands_back = state.stands_back;
    if let Some(thread) = state.by_guest(tid) {
        thread.priority = priority;
        apply(thread, stands_back);
    }
}

fn apply(thread: &Thread, stands_back: i32) {
    let Priority { nice, policy } = thread.priority;
    let policy = match policy {
        libc::SCHED_BATCH | libc::SCHED_IDLE => policy,
        _ => libc::SCHED_OTHER,
    };
    let nice = (nice.clamp(0, NICE_MAX) + stands_back).min(NICE_MAX);
    let applied = tracee::set_nice(thread.local, nice)
        .and_then(|()| tracee::set_policy(thread.local, policy));
    // An owner without privileges may not take back what it gave: then the thread stands back
    // further than it has to.
    if let Err(error) = applied {
        ::tracing::debug!("thread {}: {error}", thread.local);
    }
}
