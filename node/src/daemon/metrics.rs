//! What a node measures of itself, for those who watch many of them.

use super::Daemon;
use crate::procfs;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use std::collections::BTreeMap;
use std::fs;
use wire::control::{Counts, DaemonUse, Metrics};

const US_PER_S: f64 = 1e6;

impl Daemon {
    pub(super) fn metrics(&self) -> Metrics {
        let (me, owned) = (self.me(), self.owned());
        let (capacity, memory) = (self.load.capacity(), self.load.memory());
        let mut nodes = BTreeMap::new();
        let mut takes_guests = true;
        for node in self.list_nodes() {
            if node.id == me {
                takes_guests = node.takes_guests;
            }
            *nodes.entry(node.status).or_default() += 1;
        }
        Metrics {
            name: self.name_of(me),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.journal.since_s(),
            counts: Counts {
                rejected: self.rejections.count(),
                datagrams_dropped: self.keyring.datagrams_dropped(),
                ..self.journal.counts().clone()
            },
            cores: capacity.cores,
            speed: capacity.speed,
            load: self.load.threads() / f64::from(capacity.cores.max(1)),
            mem_total_bytes: memory.total_bytes,
            mem_free_bytes: memory.free_bytes,
            imprint_bytes: owned.imprint_bytes,
            takes_guests,
            guests: owned.guests,
            own_here: owned.own_here,
            own_away: owned.own_away,
            links: self.links.nodes().count() as u32,
            nodes,
            daemon: daemon_use(),
        }
    }
}

/// What cannot be read counts as nothing: a daemon that answers has read all of it before.
fn daemon_use() -> DaemonUse {
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / US_PER_S;
    let used = getrusage(UsageWho::RUSAGE_SELF);
    let pid = std::process::id() as i32;
    DaemonUse {
        cpu_s: used.map_or(0.0, |used| seconds(used.user_time()) + seconds(used.system_time())),
        rss_bytes: kernel::proc::process::resident_bytes(pid).unwrap_or(0),
        threads: procfs::read_stat(pid).map_or(0, |stat| stat.threads),
        open_files: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u32),
    }
}
