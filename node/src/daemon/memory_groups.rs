//! How processes that share memory are weighed: as one ([`crate::memory_groups`]).

use super::{Daemon, Event};
use crate::guest::Guest;
use crate::memory_groups::{MemoryGroup, SharedBytes};
use crate::process::{Bound, Cause, Move};
use crate::procfs;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use wire::ids::{GlobalPid, HomePid, NodeId};

impl Daemon {
    /// A process was not moved because it shares memory with others.
    pub(super) fn bound_to(&mut self, pid: HomePid, bound: Bound) {
        let members = bound.members.iter().map(|member| self.global(*member));
        let members: BTreeSet<GlobalPid> = members.chain([self.global(pid)]).collect();
        self.memory_groups.learn(members, Instant::now());
        if let Some(moving) = self.processes.get_mut(&pid).and_then(|p| p.moving.as_mut()) {
            moving.bound_to = bound;
        }
    }

    /// A guest has come that may share memory with one that is here.
    pub(super) fn bind_guest(&mut self, guest: &Guest) {
        if let Some(pid) = guest.bound_to {
            let other = GlobalPid { pid, ..guest.process };
            self.memory_groups.join(other, guest.process, Instant::now());
        }
    }

    /// Looks again at who shares memory with whom, on another thread.
    pub(super) fn look_at_groups(&mut self, now: Instant) {
        let Some(groups) = self.memory_groups.begin_look(now) else { return };
        let me = self.me();
        let bodies = self.hosting.guests().filter_map(|g| Some((g.process, g.local_pid()?)));
        let bodies: BTreeMap<GlobalPid, i32> = bodies.collect();
        let events = self.events.clone();
        tokio::task::spawn_blocking(move || {
            let look = |group| match is_home(me, &group) {
                true => look_at_home(me, group),
                false => vec![measured(group, |guest| bodies.get(&guest).copied())],
            };
            let found = groups.into_iter().flat_map(look).collect();
            // Nobody is left to be told once the daemon has ended.
            let _ = events.blocking_send(Event::GroupsLooked(found));
        });
    }
}

/// Whether whoever wants a move wants it of all who share memory with the process: somebody has
/// asked for it, or all of them were weighed as one.
pub(super) fn is_for_all(moving: &Move) -> bool {
    match moving.order.cause {
        // A node knows of its guests who shares memory with whom.
        Cause::User | Cause::Placed | Cause::Storm | Cause::Wanted { .. } => true,
        Cause::Brain(_) => moving.is_of_group,
        Cause::MadeAway | Cause::Companion | Cause::Drain | Cause::Owner => false,
    }
}

fn is_home(me: NodeId, group: &MemoryGroup) -> bool {
    group.members.iter().all(|member| member.home == me)
}

/// What has become of a group of processes that were born here: some may have ended, or begun
/// another program. One that hides what it has mapped leaves it as it was.
fn look_at_home(me: NodeId, group: MemoryGroup) -> Vec<MemoryGroup> {
    let pids = group.members.iter().map(|member| member.pid.0).collect();
    let groups = match migrate::group::among(&pids) {
        None => vec![group],
        Some(found) => found.into_iter().map(|pids| of_pids(me, &pids)).collect(),
    };
    groups.into_iter().map(|group| measured(group, |process| Some(process.pid.0))).collect()
}

fn of_pids(me: NodeId, pids: &BTreeSet<i32>) -> MemoryGroup {
    let member = |pid: &i32| GlobalPid { home: me, pid: HomePid(*pid) };
    MemoryGroup { members: pids.iter().map(member).collect(), shared: SharedBytes::default() }
}

/// With what it shares, as these processes of this node have it.
fn measured(group: MemoryGroup, local: impl Fn(GlobalPid) -> Option<i32>) -> MemoryGroup {
    let pids = group.members.iter().filter_map(|member| local(*member));
    let bytes: Vec<u64> = pids.filter_map(procfs::read_shared_bytes).collect();
    let (once, counted) = (bytes.iter().max(), bytes.iter().sum());
    let shared = SharedBytes { once: once.copied().unwrap_or(0), counted };
    MemoryGroup { shared, ..group }
}
