//! A process that works for us does so on our account: while it is stopped and made to make calls,
//! a CPU quota of its own cgroup does not hold it up.
//!
//! A group that has used up its quota sleeps, and the kernel counts by ticks: on a crowded node it
//! may sleep for seventy milliseconds after each. A move needs the process a dozen times, so the
//! process stood still for a second while its neighbours went on. It goes into its supervisor's
//! cgroup of the `cpu` controller for as long as it is frozen, if that one has no quota; that needs
//! the right to write there, and without it all is as it was.

use crate::proc::cgroup::{Mounts, Place};
use std::fs;
use std::path::PathBuf;

/// The process is in its supervisor's cgroup for as long as this lives.
#[derive(Debug)]
pub struct Relief {
    pid: i32,
    /// Where it is meanwhile.
    ours: PathBuf,
    /// The file that takes it back.
    origin: PathBuf,
}

impl Relief {
    /// None if it is not needed, or not to be had.
    pub fn of(pid: i32) -> Option<Relief> {
        let mounts = Mounts::read();
        let theirs = cpu_place(&mounts, &pid.to_string())?;
        let ours = cpu_place(&mounts, "self")?;
        let is_held_up = theirs.cpu_quota().is_some() && ours.cpu_quota().is_none();
        if theirs.dir == ours.dir || !is_held_up {
            return None;
        }
        fs::write(procs(&ours), pid.to_string()).ok()?;
        Some(Relief { pid, ours: ours.dir.clone(), origin: procs(&theirs) })
    }
}

impl Relief {
    /// Puts another process, which the process has made, where that was. It takes a while, which
    /// nobody waits for.
    pub fn give_back(&self, child: i32) {
        let origin = self.origin.clone();
        // One that has ended meanwhile needs no cgroup.
        std::thread::spawn(move || drop(fs::write(origin, child.to_string())));
    }
}

impl Drop for Relief {
    fn drop(&mut self) {
        let place = cpu_place(&Mounts::read(), &self.pid.to_string());
        // One that is gone needs no cgroup, and one that somebody else has moved stays there.
        if place.is_some_and(|place| place.dir == self.ours) {
            let _ = fs::write(&self.origin, self.pid.to_string());
        }
    }
}

/// A process's cgroup in the hierarchy that shares out processor time.
fn cpu_place(mounts: &Mounts, process: &str) -> Option<Place> {
    let places = mounts.places_of(process);
    let is_version_1 = |place: &&Place| !place.controllers.is_empty() && place.has("cpu");
    let version_1 = places.iter().find(is_version_1);
    let place = version_1.or_else(|| places.iter().find(|place| place.has("cpu")));
    place.filter(|place| place.is_shown).cloned()
}

fn procs(place: &Place) -> PathBuf {
    place.dir.join("cgroup.procs")
}

/// The hard limit of a resource (RLIMIT_*) that the calling process has; u64::MAX is none.
pub fn hard_limit(resource: u32) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: u64::MAX };
    // SAFETY: the structure is a live local.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    limit.rlim_max
}
