//! A process that works for us does so on our account: while it is stopped and made to make calls,
//! a CPU quota of its own cgroup does not hold it up.
//!
//! A group that has used up its quota sleeps, and the kernel counts by ticks: on a crowded node it
//! may sleep for seventy milliseconds after each. A move needs the process a dozen times, so the
//! process stood still for a second while its neighbours went on. It goes into its supervisor's
//! cgroup of the `cpu` controller for as long as it is frozen, if that one has no quota; that needs
//! the right to write there, and without it all is as it was.

use std::fs;
use std::path::{Path, PathBuf};

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
        let read = |path: String| fs::read_to_string(path).ok();
        let mounts = read("/proc/self/mountinfo".to_owned())?;
        let theirs = CpuGroup::parse(&read(format!("/proc/{pid}/cgroup"))?, &mounts)?;
        let ours = CpuGroup::parse(&read("/proc/self/cgroup".to_owned())?, &mounts)?;
        if theirs.dir == ours.dir || !theirs.has_quota() || ours.has_quota() {
            return None;
        }
        fs::write(ours.procs(), pid.to_string()).ok()?;
        Some(Relief { pid, ours: ours.dir, origin: theirs.procs() })
    }
}

impl Drop for Relief {
    fn drop(&mut self) {
        let read = |path: String| fs::read_to_string(path).ok();
        let place = read(format!("/proc/{}/cgroup", self.pid))
            .zip(read("/proc/self/mountinfo".to_owned()))
            .and_then(|(own, mounts)| CpuGroup::parse(&own, &mounts));
        // One that is gone needs no cgroup, and one that somebody else has moved stays there.
        if place.is_none_or(|place| place.dir != self.ours) {
            return;
        }
        let _ = fs::write(&self.origin, self.pid.to_string());
    }
}

/// A cgroup of the hierarchy that shares out processor time.
#[derive(Debug, PartialEq, Eq)]
struct CpuGroup {
    dir: PathBuf,
    /// Where the hierarchy is mounted.
    root: PathBuf,
}

impl CpuGroup {
    /// From `/proc/PID/cgroup` (`ID:CONTROLLERS:PATH`) and mountinfo (proc_pid_mountinfo(5)).
    fn parse(own: &str, mounts: &str) -> Option<CpuGroup> {
        let fields = |line: &'_ str| -> Option<(String, String)> {
            let mut fields = line.splitn(3, ':').skip(1);
            Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
        };
        let groups: Vec<(String, String)> = own.lines().filter_map(fields).collect();
        let has_cpu = |names: &str| names.split(',').any(|name| name == "cpu");
        let version_1 = groups.iter().find(|(names, _)| has_cpu(names));
        let (is_version_2, (_, path)) = match version_1 {
            Some(group) => (false, group),
            None => (true, groups.iter().find(|(names, _)| names.is_empty())?),
        };
        // The last is what is seen, if one lies over another.
        mounts.lines().rev().find_map(|line| {
            let (place, origin) = line.split_once(" - ")?;
            let mut place = place.split(' ').skip(3);
            let (shown, root) = (place.next()?, place.next()?);
            let mut origin = origin.split(' ');
            let is_meant = match (origin.next()?, is_version_2) {
                ("cgroup2", true) => true,
                ("cgroup", false) => has_cpu(origin.nth(1)?),
                _ => false,
            };
            // A container is shown only a part of the hierarchy.
            let below = Path::new(path).strip_prefix(shown).ok().filter(|_| is_meant)?;
            Some(CpuGroup { dir: Path::new(root).join(below), root: root.into() })
        })
    }

    fn procs(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// Its own or one of a group that it is in.
    fn has_quota(&self) -> bool {
        let within = self.dir.ancestors().take_while(|dir| dir.starts_with(&self.root));
        within.into_iter().any(|dir| {
            let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
            let version_1 = read("cpu.cfs_quota_us").is_some_and(|quota| !quota.starts_with('-'));
            version_1 || read("cpu.max").is_some_and(|quota| !quota.starts_with("max"))
        })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const MOUNTS: &str = "\
29 23 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
31 30 0:27 /lab/node1 /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
32 30 0:28 /lab/node1 /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n\
33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_group_of_the_cpu_controller_is_found_in_both_versions() {
        let group = |dir: &str, root: &str| CpuGroup { dir: dir.into(), root: root.into() };
        let both = "2:cpuacct:/lab/node1/a\n1:cpu:/lab/node1/work\n0::/x\n";
        let expected = group("/sys/fs/cgroup/cpu/work", "/sys/fs/cgroup/cpu");
        assert_eq!(CpuGroup::parse(both, MOUNTS), Some(expected));
        let expected = group("/sys/fs/cgroup/unified/x", "/sys/fs/cgroup/unified");
        assert_eq!(CpuGroup::parse("0::/x\n", MOUNTS), Some(expected));
        assert_eq!(CpuGroup::parse("1:blkio:/\n", MOUNTS), None);
        assert_eq!(CpuGroup::parse("", ""), None);
    }

    #[test]
    fn a_quota_further_up_counts() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("node/work");
        fs::create_dir_all(&dir).unwrap();
        let group = CpuGroup { dir: dir.clone(), root: root.path().to_owned() };
        assert!(!group.has_quota());
        fs::write(dir.join("cpu.max"), "max 100000\n").unwrap();
        fs::write(dir.join("cpu.cfs_quota_us"), "-1\n").unwrap();
        assert!(!group.has_quota());
        fs::write(root.path().join("node/cpu.cfs_quota_us"), "1000\n").unwrap();
        assert!(group.has_quota());
    }
}
