//! Control groups, versions 1 and 2: where a process's are in the file system, and what share of
//! the processors they leave it.

use std::fs;
use std::path::{Path, PathBuf};

/// A cgroup directory and the mount it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub dir: PathBuf,
    pub root: PathBuf,
    /// The controllers of its hierarchy, with commas; empty for version 2, which may have any.
    pub controllers: String,
    /// A container is shown only a part of the hierarchy. False if this directory is not in it:
    /// `dir` is the nearest that is.
    pub is_shown: bool,
}

impl Place {
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.is_empty() || self.controllers.split(',').any(|name| name == controller)
    }

    /// The directory and all above it that are still cgroups.
    pub fn upwards(&self) -> impl Iterator<Item = &Path> + '_ {
        self.dir.ancestors().take_while(|dir| dir.starts_with(&self.root))
    }

    /// CPUs, in whole or in part, that the tightest quota on the way up allows; None without one.
    pub fn cpu_quota(&self) -> Option<f64> {
        let quotas = self.upwards().filter_map(|dir| {
            let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
            match read("cpu.max") {
                Some(text) => parse_cpu_max(&text),
                None => parse_cfs_quota(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?),
            }
        });
        quotas.reduce(f64::min)
    }
}

/// All hierarchies, as they are mounted here.
#[derive(Clone, Debug)]
pub struct Mounts(Vec<Mount>);

impl Mounts {
    pub fn read() -> Mounts {
        let text = fs::read_to_string("/proc/self/mountinfo");
        Mounts(parse_mounts(&text.unwrap_or_default()))
    }

    /// The cgroups of a process (`self`, or a pid), one for each hierarchy.
    pub fn places_of(&self, process: &str) -> Vec<Place> {
        let own = fs::read_to_string(format!("/proc/{process}/cgroup"));
        places(&own.unwrap_or_default(), &self.0)
    }

    /// The cgroup that this directory is, whatever is in it.
    pub fn place_at(&self, dir: &Path) -> Place {
        let mount = self.0.iter().rev().find(|mount| dir.starts_with(&mount.point));
        Place {
            dir: dir.to_owned(),
            root: mount.map_or_else(|| dir.to_owned(), |mount| mount.point.clone()),
            controllers: mount.map_or_else(String::new, |mount| mount.controllers()),
            is_shown: true,
        }
    }
}

/// One mounted cgroup hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// Which directory of the hierarchy is at the mount point.
    shows: PathBuf,
    point: PathBuf,
    /// Controllers among other things (version 1), empty for version 2.
    options: String,
}

/// Options of version 1 that are no controllers (mount(8), cgroups(7)).
const NO_CONTROLLERS: [&str; 6] = ["rw", "ro", "none", "xattr", "clone_children", "noprefix"];

impl Mount {
    fn controllers(&self) -> String {
        let options = self.options.split(',');
        let names = options.filter(|name| !NO_CONTROLLERS.contains(name) && !name.contains('='));
        names.collect::<Vec<_>>().join(",")
    }

    fn has_all(&self, controllers: &str) -> bool {
        match controllers {
            "" => self.options.is_empty(),
            names => names.split(',').all(|name| self.options.split(',').any(|o| o == name)),
        }
    }
}

/// From mountinfo (proc_pid_mountinfo(5)).
fn parse_mounts(text: &str) -> Vec<Mount> {
    let mounts = text.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (shows, point) = (fields.next()?, fields.next()?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        let options = match kind {
            "cgroup" => options.to_owned(),
            "cgroup2" => String::new(),
            _ => return None,
        };
        Some(Mount { shows: shows.into(), point: point.into(), options })
    });
    mounts.collect()
}

/// Where the lines of `/proc/PID/cgroup` (`ID:CONTROLLERS:PATH`) are in the file system.
fn places(own: &str, mounts: &[Mount]) -> Vec<Place> {
    let places = own.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        // The last is what is seen, if one lies over another.
        let suitable = || mounts.iter().rev().filter(|mount| mount.has_all(controllers));
        let place = |mount: &Mount, below: Option<&Path>| Place {
            dir: mount.point.join(below.unwrap_or(Path::new(""))),
            root: mount.point.clone(),
            controllers: controllers.to_owned(),
            is_shown: below.is_some(),
        };
        let shown = suitable().find_map(|mount| {
            let below = Path::new(path).strip_prefix(&mount.shows).ok()?;
            Some(place(mount, Some(below)))
        });
        shown.or_else(|| suitable().next().map(|mount| place(mount, None)))
    });
    places.collect()
}

/// `50000 100000` or `max 100000`.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    parse_cfs_quota(quota, period)
}

fn parse_cfs_quota(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.trim().parse().ok()?;
    let period: f64 = period.trim().parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod test {
    use super::*;

    const MOUNTS: &str = "\
30 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
32 30 0:28 /docker/7 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    fn place(dir: &str, root: &str, controllers: &str) -> Place {
        let controllers = controllers.to_owned();
        Place { dir: dir.into(), root: root.into(), controllers, is_shown: true }
    }

    #[test]
    fn cgroups_are_found_in_both_versions_and_in_containers() {
        let own = "4:memory:/docker/7/x\n1:cpu,cpuacct:/a/b\n0::/c\n";
        let expected = [
            place("/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/memory", "memory"),
            place("/sys/fs/cgroup/cpu/a/b", "/sys/fs/cgroup/cpu", "cpu,cpuacct"),
            place("/sys/fs/cgroup/unified/c", "/sys/fs/cgroup/unified", ""),
        ];
        assert_eq!(places(own, &parse_mounts(MOUNTS)), expected);
    }

    #[test]
    fn what_lies_over_another_mount_is_seen_and_what_is_not_shown_is_known_to_be_hidden() {
        let over =
            "34 31 0:27 /lab/node1 /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";
        let mounts = parse_mounts(&format!("{MOUNTS}{over}"));
        let expected = place("/sys/fs/cgroup/cpu/work", "/sys/fs/cgroup/cpu", "cpu");
        assert_eq!(places("1:cpu:/lab/node1/work\n", &mounts), [expected]);
        let hidden = Place {
            is_shown: false,
            ..place("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory", "memory")
        };
        assert_eq!(places("4:memory:/docker/8/x\n", &mounts), [hidden]);
        assert_eq!(places("5:blkio:/\n\n:", &mounts), []);
    }

    #[test]
    fn controllers_are_told_from_other_options() {
        let controllers = |line: &str| parse_mounts(line)[0].controllers();
        let line = "31 30 0:27 / /cpu rw - cgroup cgroup rw,xattr,cpu,cpuacct,name=x\n";
        assert_eq!(controllers(line), "cpu,cpuacct");
        assert_eq!(controllers("33 30 0:29 / /unified rw - cgroup2 cgroup2 rw\n"), "");
        let both = place("/cpu", "/cpu", "cpu,cpuacct");
        assert!(both.has("cpu") && !both.has("memory"));
        assert!(place("/unified", "/unified", "").has("memory"));
    }

    #[test]
    fn the_tightest_quota_on_the_way_up_holds() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        fs::create_dir_all(&dir).unwrap();
        let place = place(dir.to_str().unwrap(), root.path().to_str().unwrap(), "");
        assert_eq!(place.cpu_quota(), None);
        fs::write(dir.join("cpu.max"), "max 100000\n").unwrap();
        assert_eq!(place.cpu_quota(), None);
        fs::write(root.path().join("a/cpu.max"), "50000 100000\n").unwrap();
        assert_eq!(place.cpu_quota(), Some(0.5));
        fs::write(root.path().join("cpu.cfs_quota_us"), "-1\n").unwrap();
        fs::write(root.path().join("cpu.cfs_period_us"), "100000\n").unwrap();
        assert_eq!(place.cpu_quota(), Some(0.5));
        fs::write(root.path().join("cpu.cfs_quota_us"), "25000\n").unwrap();
        assert_eq!(place.cpu_quota(), Some(0.25));
    }
}
