//! Which controllers this machine has, and in which version. Nothing is assumed from the version of
//! the kernel: distributions mount all mixtures.

use super::{Hierarchy, Version};
use std::path::PathBuf;

/// `cpuacct` exists in version 1 only; version 2 counts CPU time without being asked.
const WANTED: [&str; 5] = ["cpu", "cpuacct", "cpuset", "memory", "pids"];

/// What was found, and what a user has to know about the rest.
pub struct Detected {
    pub hierarchies: Vec<Hierarchy>,
    pub missing: Vec<String>,
}

/// Finds the controllers that a lab of this user can use, in version 2 only if that may be used,
/// and the one of processors only if its nodes `have_one_core_each`.
pub fn detect(has_version_2: bool, have_one_core_each: bool) -> Detected {
    if !nix::unistd::geteuid().is_root() {
        let note = "no CPU speeds and no memory limits: cgroups need root";
        return Detected { hierarchies: Vec::new(), missing: vec![note.to_owned()] };
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut hierarchies = hierarchies_in(&mounts, |mount| {
        std::fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default()
    });
    hierarchies.retain(|hierarchy| has_version_2 || hierarchy.version == Version::V1);
    let mut missing = missing_from(&hierarchies);
    if !have_one_core_each {
        forgo(&mut hierarchies, "cpuset");
        missing.retain(|note| !note.starts_with("no single cores:"));
    }
    Detected { hierarchies, missing }
}

/// What is not used is not touched.
fn forgo(hierarchies: &mut Vec<Hierarchy>, controller: &str) {
    hierarchies.iter_mut().for_each(|own| own.controllers.retain(|name| name != controller));
    hierarchies.retain(|own| !own.controllers.is_empty());
}

fn missing_from(hierarchies: &[Hierarchy]) -> Vec<String> {
    let losses =
        [("cpu", "no CPU speeds"), ("cpuset", "no single cores"), ("memory", "no memory limits")];
    let is_missing = |name: &str| !hierarchies.iter().any(|hierarchy| hierarchy.controls(name));
    losses
        .into_iter()
        .filter(|(name, _)| is_missing(name))
        .map(|(name, loss)| {
            format!(
                "{loss}: no cgroup file system here has the `{name}` controller, see /proc/cgroups"
            )
        })
        .collect()
}

/// Parses mountinfo (proc_pid_mountinfo(5)). `v2_controllers` reads what a v2 mount offers.
fn hierarchies_in(mounts: &str, v2_controllers: impl Fn(&PathBuf) -> String) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in mounts.lines() {
        let Some((place, origin)) = line.split_once(" - ") else { continue };
        let Some(mount) = place.split(' ').nth(4).map(unescape) else { continue };
        let mut origin = origin.split(' ');
        let kind = origin.next().unwrap_or_default();
        let options = origin.nth(1).unwrap_or_default();
        let (version, offered) = match kind {
            "cgroup" => (Version::V1, options.replace(',', " ")),
            "cgroup2" => (Version::V2, v2_controllers(&mount)),
            _ => continue,
        };
        // A controller is in one hierarchy only, however often that is mounted.
        let is_new = |name: &&str| !found.iter().any(|hierarchy| hierarchy.controls(name));
        let controllers: Vec<String> = offered
            .split_ascii_whitespace()
            .filter(|name| WANTED.contains(name))
            .filter(is_new)
            .map(str::to_owned)
            .collect();
        if !controllers.is_empty() {
            found.push(Hierarchy { version, mount, controllers });
        }
    }
    found
}

/// mountinfo writes blanks and backslashes as three octal digits.
fn unescape(field: &str) -> PathBuf {
    let mut text = field.to_owned();
    for (code, character) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        text = text.replace(code, character);
    }
    PathBuf::from(text)
}

#[cfg(test)]
mod test {
    use super::*;

    const SEPARATE: &str = "\
24 1 0:21 / /sys rw shared:2 - sysfs sysfs rw
30 24 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
31 24 0:27 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct
32 24 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 24 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
34 24 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
35 24 0:28 / /somewhere\\040else rw - cgroup cgroup rw,memory
";

    fn summary(mounts: &str, v2: &str) -> Vec<(Version, String, String)> {
        hierarchies_in(mounts, |_| v2.to_owned())
            .into_iter()
            .map(|h| (h.version, h.mount.display().to_string(), h.controllers.join(",")))
            .collect()
    }

    #[test]
    fn separate_v1_controllers_beside_an_empty_v2_are_all_found_once() {
        let expected = ["cpu", "cpuacct", "memory"]
            .map(|name| (Version::V1, format!("/sys/fs/cgroup/{name}"), name.to_owned()));
        assert_eq!(summary(SEPARATE, ""), expected);
    }

    #[test]
    fn a_controller_that_moved_to_v2_is_used_there() {
        let found = summary(SEPARATE, "hugetlb pids\n");
        let expected = (Version::V2, "/sys/fs/cgroup/unified".to_owned(), "pids".to_owned());
        assert_eq!(found.last(), Some(&expected));
    }

    #[test]
    fn controllers_mounted_together_stay_together() {
        let line = "30 24 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        let expected =
            (Version::V1, "/sys/fs/cgroup/cpu,cpuacct".to_owned(), "cpu,cpuacct".to_owned());
        assert_eq!(summary(line, ""), [expected]);
    }

    #[test]
    fn v2_alone_is_one_hierarchy() {
        let line = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let expected = (Version::V2, "/sys/fs/cgroup".to_owned(), "cpu,memory,pids".to_owned());
        assert_eq!(summary(line, "io cpu memory hugetlb pids rdma"), [expected]);
    }

    #[test]
    fn a_controller_that_is_not_used_is_not_touched() {
        let line = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n\
                    31 24 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
        let mut found = hierarchies_in(line, |_| "cpu memory".to_owned());
        assert_eq!(found.len(), 2);
        forgo(&mut found, "cpuset");
        let kept: Vec<_> = found.iter().map(|own| own.controllers.join(",")).collect();
        assert_eq!(kept, ["cpu,memory"]);
    }

    #[test]
    fn a_machine_without_controllers_says_what_is_lost() {
        let missing = missing_from(&hierarchies_in("", |_| String::new()));
        assert_eq!(missing.len(), 3);
        assert!(missing[0].contains("`cpu` controller"), "{missing:?}");
    }
}
