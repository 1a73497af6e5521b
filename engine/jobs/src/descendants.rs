//! All processes that ranks have started, at any distance: who they are, and signals to all.
//!
//! This process is their reaper, so whoever has lost its parent is its child. `/proc` has no
//! picture of one moment: who forks while one looks may be missed, so whoever must reach all looks
//! until a look finds nobody new.

use kernel::pidfd;
use kernel::proc::process;
use nix::unistd::{Pid, getsid};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Looks for those that are to be stopped; each finds those that the ones found before have made.
const LOOKS_MAX: usize = 64;

/// A process, for good: its pid and when it began.
type Who = (i32, u64);

/// One look at all processes: the children of each.
fn children() -> HashMap<i32, Vec<Who>> {
    let mut children: HashMap<i32, Vec<Who>> = HashMap::new();
    for pid in process::all().unwrap_or_default() {
        if let Ok(stat) = process::stat(&pid.to_string())
            && !stat.has_ended()
        {
            children.entry(stat.parent).or_default().push((pid, stat.start_ticks));
        }
    }
    children
}

fn descendants_in(children: &HashMap<i32, Vec<Who>>, root: i32) -> BTreeSet<Who> {
    let mut found = BTreeSet::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if found.insert(*child) {
                next.push(child.0);
            }
        }
    }
    found
}

/// Of this process.
fn all() -> BTreeSet<Who> {
    descendants_in(&children(), std::process::id() as i32)
}

/// A rank, what it has started, and what has lost its parent and is still in its session.
fn of_rank(rank: i32) -> BTreeSet<Who> {
    let children = children();
    let mut found = descendants_in(&children, rank);
    let own = std::process::id() as i32;
    for child in children.get(&own).into_iter().flatten() {
        let session = getsid(Some(Pid::from_raw(child.0)));
        if child.0 == rank || session == Ok(Pid::from_raw(rank)) {
            found.insert(*child);
            found.extend(descendants_in(&children, child.0));
        }
    }
    found
}

/// False if there is no such process any more.
fn send((pid, start_ticks): Who, signal: Signal) -> bool {
    let Ok(descriptor) = pidfd::open(pid) else { return false };
    // Opened by number: make sure that the number still names the same process.
    if process::stat(&pid.to_string()).is_ok_and(|stat| stat.start_ticks != start_ticks) {
        return false;
    }
    match pidfd_send_signal(&descriptor, signal) {
        Ok(()) => true,
        Err(Errno::SRCH) => false,
        Err(error) => {
            tracing::warn!("cannot send a signal to {pid}: {error}");
            false
        }
    }
}

/// Sends it to one rank and all that came of it, or to all of all, each once. Returns to how many.
pub fn signal(rank: Option<i32>, signal: Signal) -> usize {
    let mut reached = BTreeMap::new();
    // What is stopped forks no more; of other signals those hear that are there.
    let looks = if signal == Signal::STOP { LOOKS_MAX } else { 1 };
    for _ in 0..looks {
        let found = rank.map_or_else(all, of_rank);
        let new: Vec<Who> = found.into_iter().filter(|who| !reached.contains_key(who)).collect();
        if new.is_empty() {
            break;
        }
        for who in new {
            reached.insert(who, send(who, signal));
        }
    }
    reached.into_values().filter(|is_reached| *is_reached).count()
}

/// Kills whoever is there now. To be called until no child is left.
pub fn kill_all() {
    for who in all() {
        send(who, Signal::KILL);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn descendants_are_found_at_any_distance_and_nobody_else() {
        let children = HashMap::from([
            (1, vec![(2, 10), (9, 10)]),
            (2, vec![(3, 11), (4, 12)]),
            (4, vec![(5, 13)]),
            (9, vec![(10, 14)]),
        ]);
        let found = descendants_in(&children, 2);
        assert_eq!(found, BTreeSet::from([(3, 11), (4, 12), (5, 13)]));
        assert!(descendants_in(&children, 5).is_empty());
    }

    #[test]
    fn a_process_of_another_time_is_not_reached() {
        let own = std::process::id() as i32;
        let began = process::stat(&own.to_string()).unwrap().start_ticks;
        // SIGURG is ignored unless somebody wants it.
        assert!(send((own, began), Signal::URG));
        assert!(!send((own, began + 1), Signal::URG));
    }
}
