//! Nice values. Home is what a guest asks and what says whether it may; but it is the body that
//! computes, and a program that stands back at home does so here.
//!
//! Standing back only: what home allows its own processes gives no precedence over this node's.

use crate::state::{State, Thread};
use kernel::{haste, tracee};

const NICE_MAX: i32 = 19;

/// Gives all threads of a body that begins here their nice values.
pub fn adopt(state: &State) {
    state.threads.values().for_each(apply);
    // What builds a body takes short turns, and a thread has them from who started it.
    state.threads.values().for_each(|thread| haste::take_usual_turns(thread.local));
}

/// Does here what a setpriority(2) has done at home, to the calling thread or another of the body.
pub fn follow(state: &mut State, caller: i32, arguments: &[u64; 6]) {
    let [which, who, nice, ..] = arguments.map(|argument| argument as i32);
    if which != libc::PRIO_PROCESS as i32 {
        return;
    }
    let is_meant = |thread: &&mut Thread| match who {
        0 => thread.local == caller,
        tid => thread.guest.0 == tid,
    };
    if let Some(thread) = state.threads.values_mut().find(is_meant) {
        thread.nice = nice;
        apply(thread);
    }
}

fn apply(thread: &Thread) {
    // An owner without privileges may not take back what it gave: then the thread stands back
    // further than it has to.
    if let Err(error) = tracee::set_nice(thread.local, thread.nice.clamp(0, NICE_MAX)) {
        ::tracing::debug!("thread {}: {error}", thread.local);
    }
}
