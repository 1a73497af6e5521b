//! The limits of control groups, versions 1 and 2, along the way up to the root: the tightest
//! holds.

use super::Memory;
use std::fs;
use std::path::{Path, PathBuf};

/// A cgroup directory and the mount it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub dir: PathBuf,
    pub root: PathBuf,
}

impl Place {
    /// The directory and all above it that are still cgroups.
    fn upwards(&self) -> impl Iterator<Item = &Path> + '_ {
        self.dir.ancestors().take_while(|dir| dir.starts_with(&self.root))
    }
}

/// The directories given, or else those that this process is in.
pub fn places(given: &[PathBuf]) -> Vec<Place> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = parse_mounts(&mounts);
    if !given.is_empty() {
        let root_of = |dir: &Path| mounts.iter().find(|mount| dir.starts_with(&mount.point));
        return given
            .iter()
            .map(|dir| Place {
                dir: dir.clone(),
                root: root_of(dir).map_or_else(|| dir.clone(), |mount| mount.point.clone()),
            })
            .collect();
    }
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    own_places(&own, &mounts)
}

/// One mounted cgroup hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// Which directory of the hierarchy is at the mount point.
    shows: PathBuf,
    point: PathBuf,
    /// Controllers (version 1), empty for version 2.
    options: String,
}

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

/// Where the lines of `/proc/self/cgroup` (`ID:CONTROLLERS:PATH`) are in the file system.
fn own_places(own: &str, mounts: &[Mount]) -> Vec<Place> {
    let places = own.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let mount = mounts.iter().find(|mount| match controllers {
            "" => mount.options.is_empty(),
            names => names.split(',').all(|name| mount.options.split(',').any(|o| o == name)),
        })?;
        // A container may be shown only a part of the hierarchy.
        let below = Path::new(path).strip_prefix(&mount.shows).unwrap_or(Path::new(""));
        Some(Place { dir: mount.point.join(below), root: mount.point.clone() })
    });
    places.collect()
}

/// The tightest CPU quota in whole or part CPUs; None if there is none.
pub fn read_cpu_quota(places: &[Place]) -> Option<f64> {
    let quotas = places.iter().flat_map(Place::upwards).filter_map(|dir| {
        let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
        match read("cpu.max") {
            Some(text) => parse_cpu_max(&text),
            None => parse_cfs_quota(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?),
        }
    });
    quotas.reduce(f64::min)
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

/// The tightest memory limit and what is left of it.
pub fn read_memory(places: &[Place]) -> Option<Memory> {
    let limits = places.iter().flat_map(Place::upwards).filter_map(|dir| {
        let number = |name: &str| -> Option<u64> {
            fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok()
        };
        let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
        let total_bytes = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
        let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
        let used = used.saturating_sub(cached_bytes(&stat));
        Some(Memory { total_bytes, free_bytes: total_bytes.saturating_sub(used) })
    });
    limits.min_by_key(|memory| memory.free_bytes)
}

/// File pages that the kernel can drop at once are as good as free.
fn cached_bytes(stat: &str) -> u64 {
    let field = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    field("total_inactive_file ").or_else(|| field("inactive_file ")).unwrap_or(0)
}

#[cfg(test)]
mod test {
    use super::*;

    const MOUNTS: &str = "\
30 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
32 30 0:28 /docker/7 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn own_cgroups_are_found_in_both_versions_and_in_containers() {
        let own = "4:memory:/docker/7/x\n1:cpu,cpuacct:/a/b\n0::/c\n";
        let places = own_places(own, &parse_mounts(MOUNTS));
        let place = |dir: &str, root: &str| Place { dir: dir.into(), root: root.into() };
        let expected = [
            place("/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/memory"),
            place("/sys/fs/cgroup/cpu/a/b", "/sys/fs/cgroup/cpu"),
            place("/sys/fs/cgroup/unified/c", "/sys/fs/cgroup/unified"),
        ];
        assert_eq!(places, expected);
    }

    #[test]
    fn the_tightest_quota_on_the_way_up_holds() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        fs::create_dir_all(&dir).unwrap();
        let places = [Place { dir: dir.clone(), root: root.path().to_owned() }];
        assert_eq!(read_cpu_quota(&places), None);
        fs::write(dir.join("cpu.max"), "max 100000\n").unwrap();
        assert_eq!(read_cpu_quota(&places), None);
        fs::write(root.path().join("a/cpu.max"), "50000 100000\n").unwrap();
        assert_eq!(read_cpu_quota(&places), Some(0.5));
        fs::write(root.path().join("cpu.cfs_quota_us"), "-1\n").unwrap();
        fs::write(root.path().join("cpu.cfs_period_us"), "100000\n").unwrap();
        assert_eq!(read_cpu_quota(&places), Some(0.5));
        fs::write(root.path().join("cpu.cfs_quota_us"), "25000\n").unwrap();
        assert_eq!(read_cpu_quota(&places), Some(0.25));
    }

    #[test]
    fn file_cache_counts_as_free_memory() {
        let root = tempfile::tempdir().unwrap();
        let places = [Place { dir: root.path().to_owned(), root: root.path().to_owned() }];
        fs::write(root.path().join("memory.limit_in_bytes"), "1000\n").unwrap();
        fs::write(root.path().join("memory.usage_in_bytes"), "600\n").unwrap();
        fs::write(root.path().join("memory.stat"), "cache 1\ntotal_inactive_file 100\n").unwrap();
        let memory = Memory { total_bytes: 1000, free_bytes: 500 };
        assert_eq!(read_memory(&places), Some(memory));
    }
}
