//! The control groups that a node makes for its guests by itself, where it may: what they take
//! together stays within what the node has to spare.
//!
//! Made beside what the daemon runs in, so that limits above hold for guests, too. Where cgroups of
//! version 2 are, that is the daemon's own directory if it has no processes that matter to the
//! kernel (the root does), else the one above it, where a service manager has put the daemon; in
//! version 1, each controller's own. Without root that needs a directory that was handed over to
//! the user (delegation).

use kernel::proc::cgroup::{Mounts, Place};
use kernel::proc::room::cached_bytes;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Of a group's usual 100 (version 2) and 1024 (version 1): what the node runs itself comes first.
const CPU_WEIGHT: &str = "20";
const CPU_SHARES: &str = "204";
/// Threads of all guests.
const THREADS_MAX: &str = "16384";
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

/// The groups of one node; empty ones are removed when this is dropped.
#[derive(Debug)]
pub struct GuestCgroups {
    directories: Vec<PathBuf>,
    /// The one that counts memory.
    memory: PathBuf,
    is_unified: bool,
}

impl GuestCgroups {
    /// Makes them, or takes over those that this node made before.
    pub fn make(state_dir: &Path) -> io::Result<GuestCgroups> {
        let mut hasher = DefaultHasher::new();
        state_dir.hash(&mut hasher);
        let name = format!("osmos-guests-{:08x}", hasher.finish() as u32);
        let places = Mounts::read().places_of("self");
        make_in(&places, &name)
    }

    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// What a guest enters by, whoever it belongs to: the right to do so is ours.
    pub fn entrance(&self) -> io::Result<OwnedFd> {
        let procs = self.memory.join("cgroup.procs");
        File::options().write(true).open(procs).map(OwnedFd::from)
    }

    /// What guests use together, but for what the kernel can drop at once.
    pub fn used_bytes(&self) -> io::Result<u64> {
        let name = if self.is_unified { "memory.current" } else { "memory.usage_in_bytes" };
        let used = fs::read_to_string(self.memory.join(name))?;
        let stat = fs::read_to_string(self.memory.join("memory.stat")).unwrap_or_default();
        let used: u64 = used.trim().parse().map_err(io::Error::other)?;
        Ok(used.saturating_sub(cached_bytes(&stat)))
    }

    /// Whether guests stand still because there is no more memory for them.
    pub fn is_full(&self) -> bool {
        let state = fs::read_to_string(self.memory.join("memory.oom_control"));
        state.is_ok_and(|state| state.lines().any(|line| line == "under_oom 1"))
    }

    /// All that guests may use together. A little below, the kernel makes them wait.
    pub fn limit(&self, bytes: u64) -> io::Result<()> {
        let write = |name: &str, bytes: u64| {
            let bytes = bytes.next_multiple_of(4096).to_string();
            fs::write(self.memory.join(name), bytes)
        };
        match self.is_unified {
            true => write("memory.high", bytes - bytes / 16).and(write("memory.max", bytes)),
            false => write("memory.limit_in_bytes", bytes),
        }
    }
}

impl Drop for GuestCgroups {
    fn drop(&mut self) {
        // One with guests in it stays, and is taken over by the next daemon.
        self.directories.iter().for_each(|directory| drop(fs::remove_dir(directory)));
    }
}

fn make_in(places: &[Place], name: &str) -> io::Result<GuestCgroups> {
    let divided = places.iter().filter(|place| !place.controllers.is_empty() && place.is_shown);
    let divided: Vec<&Place> =
        divided.filter(|place| CONTROLLERS.iter().any(|name| place.has(name))).collect();
    if let Some(with_memory) = divided.iter().find(|place| place.has("memory")) {
        let memory = with_memory.dir.join(name);
        let mut directories = Vec::new();
        for directory in divided.iter().map(|place| place.dir.join(name)) {
            make_directory(&directory)?;
            write_if_there(&directory, "cpu.shares", CPU_SHARES)?;
            write_if_there(&directory, "pids.max", THREADS_MAX)?;
            directories.push(directory);
        }
        // Who finds no more memory waits until it is sent home, instead of being killed.
        write_if_there(&memory, "memory.oom_control", "1")?;
        return Ok(GuestCgroups { directories, memory, is_unified: false });
    }
    let unified = places.iter().find(|place| place.controllers.is_empty() && place.is_shown);
    let unified = unified.ok_or(io::ErrorKind::NotFound)?;
    let own = Some(unified.dir.as_path());
    let above = unified.dir.parent().filter(|above| above.starts_with(&unified.root));
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for parent in [own, above].into_iter().flatten() {
        let memory = parent.join(name);
        match hand_down(parent).and_then(|()| make_directory(&memory)) {
            Ok(()) => {
                write_if_there(&memory, "cpu.weight", CPU_WEIGHT)?;
                write_if_there(&memory, "pids.max", THREADS_MAX)?;
                let directories = vec![memory.clone()];
                return Ok(GuestCgroups { directories, memory, is_unified: true });
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Has a directory's children use the controllers that it has; memory is the one that matters.
fn hand_down(parent: &Path) -> io::Result<()> {
    let switches = parent.join("cgroup.subtree_control");
    let handed: String = fs::read_to_string(&switches)?;
    let mut outcome = Ok(());
    for name in
        CONTROLLERS.iter().rev().filter(|name| !handed.split_whitespace().any(|h| h == **name))
    {
        outcome = fs::write(&switches, format!("+{name}"));
    }
    // The last is memory, if it was not handed down already.
    outcome
}

fn make_directory(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome,
    }
}

fn write_if_there(directory: &Path, name: &str, value: &str) -> io::Result<()> {
    let file = directory.join(name);
    if file.exists() { fs::write(file, value) } else { Ok(()) }
}

#[cfg(test)]
mod test {
    use super::*;

    fn place(dir: &Path, controllers: &str) -> Place {
        Place {
            dir: dir.to_owned(),
            root: dir.to_owned(),
            controllers: controllers.to_owned(),
            is_shown: true,
        }
    }

    #[test]
    fn each_hierarchy_gets_a_group_and_memory_is_counted_in_its_own() {
        let root = tempfile::tempdir().unwrap();
        for name in ["memory", "cpu", "blkio"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        let at = |name: &str| place(&root.path().join(name), name);
        let groups = make_in(&[at("cpu"), at("blkio"), at("memory")], "guests").unwrap();
        let made = ["cpu/guests", "memory/guests"].map(|path| root.path().join(path));
        assert_eq!(groups.directories(), made);
        fs::write(made[1].join("memory.usage_in_bytes"), "9000\n").unwrap();
        fs::write(made[1].join("memory.stat"), "total_inactive_file 1000\n").unwrap();
        assert_eq!(groups.used_bytes().unwrap(), 8000);
        groups.limit(10_000).unwrap();
        let limit = fs::read_to_string(made[1].join("memory.limit_in_bytes")).unwrap();
        assert_eq!(limit, "12288");
        assert!(!groups.is_full());
        fs::write(made[1].join("memory.oom_control"), "oom_kill_disable 1\nunder_oom 1\n").unwrap();
        assert!(groups.is_full());
    }

    #[test]
    fn where_the_own_directory_hands_nothing_down_the_one_above_does() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("service");
        fs::create_dir(&own).unwrap();
        fs::write(root.path().join("cgroup.subtree_control"), "memory pids").unwrap();
        let unified = Place { root: root.path().to_owned(), ..place(&own, "") };
        let groups = make_in(&[unified], "guests").unwrap();
        assert_eq!(groups.directories(), [root.path().join("guests")]);
        groups.limit(16 << 20).unwrap();
        let read = |name| fs::read_to_string(root.path().join("guests").join(name)).unwrap();
        assert_eq!(
            (read("memory.max"), read("memory.high")),
            ("16777216".into(), "15728640".into())
        );
        assert!(make_in(&[], "guests").is_err());
    }
}
