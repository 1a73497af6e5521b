//! What `osmos doctor` says of this machine: what it offers, what is lost where it does not, and
//! the command that changes that.
//!
//! Features of the kernel were tried by the engine. What decides about them, and about the rest, is
//! read from `/proc`; what is read is handed to functions that are pure.

use kernel::features::{Feature, Features, Need};
use std::fs;
use wire::control::Finding;

const MOUNTS: &str = "/proc/self/mountinfo";

/// All that there is to be said, with what was found of the kernel.
pub fn findings(features: &Features) -> Vec<Finding> {
    let is_root = nix::unistd::geteuid().is_root();
    let mounts = fs::read_to_string(MOUNTS).unwrap_or_default();
    let mut findings = vec![
        ptrace_scope(sysctl("kernel.yama.ptrace_scope").as_deref(), is_root),
        cgroups(&mounts, &controllers, is_root),
    ];
    findings.extend(Feature::ALL.into_iter().map(|feature| {
        let mut finding = of_kernel(feature, features.has(feature));
        if !finding.present {
            finding.mend = mend(feature, &sysctl, &mounts);
        }
        finding
    }));
    findings
}

/// The value of a sysctl, by its name.
fn sysctl(name: &str) -> Option<String> {
    first_line(&format!("/proc/sys/{}", name.replace('.', "/")))
}

/// Those that a hierarchy of cgroup version 2 has.
fn controllers(directory: &str) -> String {
    first_line(&format!("{directory}/cgroup.controllers")).unwrap_or_default()
}

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.lines().next().unwrap_or_default().trim().to_owned())
}

fn of_kernel(feature: Feature, present: bool) -> Finding {
    Finding {
        name: feature.name().to_owned(),
        present,
        required: feature.need() == Need::Node,
        seen: if present { "yes" } else { "no" }.to_owned(),
        consequence: format!("{}; {} has it", feature.loss(), feature.since()),
        mend: None,
    }
}

/// The command that brings a missing feature, if a setting of this machine is in its way.
fn mend(feature: Feature, sysctl: &dyn Fn(&str) -> Option<String>, mounts: &str) -> Option<String> {
    let forbids = |(name, forbidding, allowing): &(&str, &str, &str)| {
        let is_so = sysctl(name).as_deref() == Some(*forbidding);
        is_so.then(|| format!("sysctl -w {name}={allowing}"))
    };
    let commands: Vec<String> = match feature {
        Feature::UserNamespaces | Feature::TimeNamespaces => [
            ("kernel.unprivileged_userns_clone", "0", "1"),
            ("user.max_user_namespaces", "0", "15000"),
            ("user.max_time_namespaces", "0", "15000"),
            ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
        ]
        .iter()
        .filter_map(forbids)
        .collect(),
        Feature::KernelFaults => {
            [("vm.unprivileged_userfaultfd", "0", "1")].iter().filter_map(forbids).collect()
        }
        Feature::ThreadIds if is_read_only(mounts, "/proc/sys") => {
            vec!["mount -o remount,rw /proc/sys".to_owned()]
        }
        _ => Vec::new(),
    };
    (!commands.is_empty()).then(|| commands.join(" && "))
}

/// Whether something is mounted there and cannot be written.
fn is_read_only(mounts: &str, directory: &str) -> bool {
    mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(4);
        fields.next() == Some(directory)
            && fields.next().is_some_and(|options| options.split(',').any(|word| word == "ro"))
    })
}

fn ptrace_scope(scope: Option<&str>, is_root: bool) -> Finding {
    const MEND: Option<&str> = Some("sysctl -w kernel.yama.ptrace_scope=0");
    let (present, required, consequence, mend) = match scope {
        None | Some("0") => (true, false, "", None),
        Some("1" | "2") if is_root => (true, false, "", None),
        Some("1") => (
            false,
            false,
            "only processes started by `osmos run` move, not their descendants and none by \
             `osmos adopt`; as root: sysctl kernel.yama.ptrace_scope=0",
            MEND,
        ),
        Some("2") => (
            false,
            true,
            "nothing moves without root; as root: sysctl kernel.yama.ptrace_scope=0",
            MEND,
        ),
        // Until the next boot it cannot be changed.
        Some(_) => {
            (false, true, "nothing can move until kernel.yama.ptrace_scope is below 3", None)
        }
    };
    let seen = match scope {
        Some(scope) => format!("yama ptrace_scope {scope}"),
        None => "yama is not active".to_owned(),
    };
    Finding {
        name: "control of own processes".to_owned(),
        present,
        required,
        seen,
        consequence: consequence.to_owned(),
        mend: mend.map(str::to_owned),
    }
}

/// Whether cpu and memory controllers are mounted, whichever cgroup version they are in.
fn cgroups(mounts: &str, controllers: &dyn Fn(&str) -> String, is_root: bool) -> Finding {
    let mut seen = Vec::new();
    for line in mounts.lines() {
        let Some((mount, filesystem)) = line.split_once(" - ") else { continue };
        let Some(directory) = mount.split(' ').nth(4) else { continue };
        let mut fields = filesystem.split(' ');
        let words = match fields.next() {
            Some("cgroup") => fields.next_back().unwrap_or_default().replace(',', " "),
            Some("cgroup2") => controllers(directory),
            _ => continue,
        };
        let version = if filesystem.starts_with("cgroup2") { "v2" } else { "v1" };
        for word in words.split_whitespace().filter(|word| ["cpu", "memory"].contains(word)) {
            seen.push(format!("{word} {version}"));
        }
    }
    let has = |name: &str| seen.iter().any(|entry| entry.starts_with(name));
    let has_both = has("cpu") && has("memory");
    let mend = match (has_both, is_root) {
        (true, true) => None,
        // The daemon of root serves all users.
        (true, false) => Some("osmos up"),
        (false, _) => seen.is_empty().then_some("mount -t cgroup2 none /sys/fs/cgroup"),
    };
    Finding {
        name: "cgroup limits".to_owned(),
        present: has_both && is_root,
        required: false,
        seen: if seen.is_empty() { "no controllers".to_owned() } else { seen.join(", ") },
        consequence: "guests run without CPU and memory limits, and lab nodes all have one speed; \
                      the controllers need root, or delegation on cgroup v2"
            .to_owned(),
        mend: mend.map(str::to_owned),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_locked_ptrace_makes_the_machine_unfit() {
        let locked = ptrace_scope(Some("3"), true);
        assert!(!locked.present && locked.required && locked.mend.is_none());
        assert!(ptrace_scope(None, false).present);
        assert!(ptrace_scope(Some("0"), false).present);
        let mend = ptrace_scope(Some("1"), false).mend;
        assert_eq!(mend.as_deref(), Some("sysctl -w kernel.yama.ptrace_scope=0"));
        assert!(ptrace_scope(Some("1"), true).present);
    }

    #[test]
    fn version_one_controllers_are_found_by_their_mount_options() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 25 0:28 / / rw - ext4 /dev/root rw\n";
        let none = |_: &str| String::new();
        let found = cgroups(mounts, &none, true);
        assert_eq!(
            (found.seen.as_str(), found.present, found.mend),
            ("cpu v1, memory v1", true, None)
        );
        let found = cgroups(mounts, &none, false);
        assert_eq!((found.present, found.mend.as_deref()), (false, Some("osmos up")));
        let found = cgroups("", &none, true);
        assert_eq!(found.seen, "no controllers");
        assert!(found.mend.is_some());
        let unified = "32 25 0:28 / /c rw - cgroup2 cgroup2 rw\n";
        let both = |directory: &str| {
            assert_eq!(directory, "/c");
            "cpuset cpu io memory".to_owned()
        };
        assert_eq!(cgroups(unified, &both, true).seen, "cpu v2, memory v2");
    }

    #[test]
    fn a_setting_in_the_way_of_a_feature_is_named_with_its_command() {
        let debian =
            |name: &str| (name == "kernel.unprivileged_userns_clone").then(|| "0".to_owned());
        let command = mend(Feature::UserNamespaces, &debian, "");
        assert_eq!(command.as_deref(), Some("sysctl -w kernel.unprivileged_userns_clone=1"));
        let both = |name: &str| match name {
            "kernel.apparmor_restrict_unprivileged_userns" => Some("1".to_owned()),
            "user.max_user_namespaces" => Some("0".to_owned()),
            _ => None,
        };
        let command = mend(Feature::UserNamespaces, &both, "").expect("two commands");
        assert_eq!(command.matches("sysctl -w ").count(), 2);
        // An old kernel: no setting brings it.
        let open = |_: &str| None;
        assert_eq!(mend(Feature::UserNamespaces, &open, ""), None);
        assert_eq!(mend(Feature::PageMapScan, &debian, ""), None);
        let read_only = "40 30 0:5 /sys /proc/sys ro,nosuid - proc proc rw\n";
        assert!(mend(Feature::ThreadIds, &open, read_only).is_some());
        assert_eq!(mend(Feature::ThreadIds, &open, &read_only.replace("ro,", "rw,")), None);
    }
}
