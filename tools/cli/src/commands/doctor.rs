//! `osmos doctor`: what this machine offers, and what is lost where it does not.
//!
//! What can be read from /proc is found here; what only a probing system call shows is found by the
//! engine and handed in by the root package.

use crate::output::{self, Align, Cell, Colour, Table};
use anyhow::Result;
use serde::Serialize;
use std::fs;

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub name: String,
    pub present: bool,
    /// Without it this machine cannot be a node.
    pub required: bool,
    /// What was seen.
    pub seen: String,
    /// What is lost while it is missing, and the way out.
    pub consequence: String,
}

/// Print the findings; true if nothing required is missing.
pub fn doctor(probed: Vec<Finding>, json: bool) -> Result<bool> {
    let mut findings = from_proc();
    findings.extend(probed);
    let fit = findings.iter().all(|finding| finding.present || !finding.required);
    if json {
        output::print_json(&findings)?;
    } else {
        table(&findings).print()?;
    }
    Ok(fit)
}

fn table(findings: &[Finding]) -> Table {
    let mut table = Table::new(&[
        ("CHECK", Align::Left),
        ("", Align::Left),
        ("SEEN", Align::Left),
        ("CONSEQUENCE", Align::Left),
    ]);
    for finding in findings {
        let verdict = match (finding.present, finding.required) {
            (true, _) => Cell::coloured("ok", Colour::Green),
            (false, true) => Cell::coloured("MISSING", Colour::Red),
            (false, false) => Cell::coloured("missing", Colour::Yellow),
        };
        let consequence = if finding.present { "" } else { &finding.consequence };
        table.row(vec![
            Cell::new(&finding.name),
            verdict,
            Cell::new(&finding.seen),
            Cell::new(consequence),
        ]);
    }
    table
}

fn from_proc() -> Vec<Finding> {
    let release = first_line("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut findings: Vec<Finding> =
        KERNEL_FEATURES.iter().map(|feature| feature.finding(&release)).collect();
    findings.extend([
        user_notification(&first_line("/proc/sys/kernel/seccomp/actions_avail")),
        user_namespaces(),
        time_namespaces(),
        ptrace_scope(&first_line("/proc/sys/kernel/yama/ptrace_scope")),
        cgroups(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()),
    ]);
    findings
}

/// What the kernel's version tells.
struct KernelFeature {
    name: &'static str,
    since: (u32, u32),
    required: bool,
    consequence: &'static str,
}

const KERNEL_FEATURES: [KernelFeature; 4] = [
    KernelFeature {
        name: "processes with chosen pids",
        since: (5, 5),
        required: true,
        consequence: "no guests here: clone3 with set_tid needs Linux 5.5",
    },
    KernelFeature {
        name: "waits that only death ends",
        since: (5, 19),
        required: true,
        consequence: "this machine cannot be a node: seccomp WAIT_KILLABLE_RECV needs Linux 5.19",
    },
    KernelFeature {
        name: "wake-up on the same core",
        since: (6, 6),
        required: false,
        consequence: "calls of guests take longer: seccomp SYNC_WAKE_UP needs Linux 6.6",
    },
    KernelFeature {
        name: "page map scan",
        since: (6, 7),
        required: false,
        consequence: "large processes take longer to capture: PAGEMAP_SCAN needs Linux 6.7",
    },
];

impl KernelFeature {
    fn finding(&self, osrelease: &str) -> Finding {
        let present = release(osrelease).is_some_and(|version| version >= self.since);
        let seen = format!("linux {osrelease}");
        finding(self.name, present, self.required, seen, self.consequence)
    }
}

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.lines().next().unwrap_or_default().trim().to_string())
}

fn finding(
    name: &str,
    present: bool,
    required: bool,
    seen: impl Into<String>,
    consequence: &str,
) -> Finding {
    let consequence = consequence.to_string();
    Finding { name: name.to_string(), present, required, seen: seen.into(), consequence }
}

/// `6.18.44-fc` as (6, 18).
fn release(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn user_notification(actions: &Option<String>) -> Finding {
    let words = actions.as_deref().unwrap_or("no seccomp");
    let present = words.split_whitespace().any(|word| word == "user_notif");
    let consequence = "no guests here: the kernel needs CONFIG_SECCOMP_FILTER";
    let seen = if present { "user_notif" } else { words };
    finding("seccomp user notification", present, true, seen, consequence)
}

fn user_namespaces() -> Finding {
    let root = nix::unistd::geteuid().is_root();
    let most = first_line("/proc/sys/user/max_user_namespaces");
    let blocked =
        ["kernel/unprivileged_userns_clone", "kernel/apparmor_restrict_unprivileged_userns"]
            .into_iter()
            .zip(["0", "1"])
            .find(|(name, off)| first_line(&format!("/proc/sys/{name}")).as_deref() == Some(off));
    let (present, seen) = match (&most, blocked) {
        (None, _) => (false, "not in this kernel".to_string()),
        (Some(most), _) if most == "0" => (false, "user.max_user_namespaces is 0".to_string()),
        (_, Some((name, value))) if !root => (false, format!("{name} is {value}")),
        (Some(most), _) => (true, format!("at most {most}")),
    };
    let consequence = "guests and the lab need root here; a sysctl of the name shown allows more";
    finding("user namespaces", present, false, seen, consequence)
}

fn time_namespaces() -> Finding {
    let present = fs::symlink_metadata("/proc/self/ns/time").is_ok();
    let consequence = "a program that compares monotonic clocks stays home after it has read one";
    finding("time namespaces", present, false, if present { "yes" } else { "no" }, consequence)
}

fn ptrace_scope(scope: &Option<String>) -> Finding {
    let root = nix::unistd::geteuid().is_root();
    let (present, required, consequence) = match scope.as_deref() {
        None | Some("0") => (true, false, ""),
        Some("1" | "2") if root => (true, false, ""),
        Some("1") => (
            false,
            false,
            "only processes started by `osmos run` move, not their descendants and none by \
             `osmos adopt`; as root: sysctl kernel.yama.ptrace_scope=0",
        ),
        Some("2") => {
            (false, true, "nothing moves without root; as root: sysctl kernel.yama.ptrace_scope=0")
        }
        Some(_) => (false, true, "nothing can move until kernel.yama.ptrace_scope is below 3"),
    };
    let seen = match scope {
        Some(scope) => format!("yama ptrace_scope {scope}"),
        None => "yama is not active".to_string(),
    };
    finding("control of own processes", present, required, seen, consequence)
}

/// Whether cpu and memory controllers are mounted, whichever cgroup version they are in.
fn cgroups(mountinfo: &str) -> Finding {
    let mut seen = Vec::new();
    for line in mountinfo.lines() {
        let Some((mount, filesystem)) = line.split_once(" - ") else { continue };
        let Some(directory) = mount.split(' ').nth(4) else { continue };
        let mut fields = filesystem.split(' ');
        let controllers = match fields.next() {
            Some("cgroup") => fields.next_back().unwrap_or_default().replace(',', " "),
            Some("cgroup2") => {
                first_line(&format!("{directory}/cgroup.controllers")).unwrap_or_default()
            }
            _ => continue,
        };
        let version = if filesystem.starts_with("cgroup2") { "v2" } else { "v1" };
        for word in controllers.split_whitespace().filter(|word| ["cpu", "memory"].contains(word)) {
            seen.push(format!("{word} {version}"));
        }
    }
    let has = |name: &str| seen.iter().any(|entry| entry.starts_with(name));
    let present = has("cpu") && has("memory") && nix::unistd::geteuid().is_root();
    let text = if seen.is_empty() { "no controllers".to_string() } else { seen.join(", ") };
    let consequence = "guests run without CPU and memory limits, and lab nodes all have one speed; \
                       the controllers need root, or delegation on cgroup v2";
    finding("cgroup limits", present, false, text, consequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(release("6.18.44-fc"), Some((6, 18)));
        assert_eq!(release("5.4"), Some((5, 4)));
        assert_eq!(release("six"), None);
        let fits = |osrelease| KERNEL_FEATURES.map(|feature| feature.finding(osrelease).present);
        assert_eq!(fits("5.19.0"), [true, true, false, false]);
        assert_eq!(fits("6.7.0-rc1"), [true; 4]);
        assert_eq!(fits("10.0"), [true; 4]);
        assert_eq!(fits("5.4.0-generic"), [false; 4]);
        assert_eq!(fits(""), [false; 4]);
    }

    #[test]
    fn notification_must_be_among_the_actions() {
        assert!(user_notification(&Some("kill trap user_notif allow".into())).present);
        assert!(!user_notification(&Some("kill trap allow".into())).present);
        assert!(!user_notification(&None).present);
    }

    #[test]
    fn a_locked_ptrace_makes_the_machine_unfit() {
        let locked = ptrace_scope(&Some("3".into()));
        assert!(!locked.present && locked.required);
        assert!(ptrace_scope(&None).present);
        assert!(ptrace_scope(&Some("0".into())).present);
    }

    #[test]
    fn version_one_controllers_are_found_by_their_mount_options() {
        let mountinfo = "30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                         31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                         32 25 0:28 / / rw - ext4 /dev/root rw\n";
        assert_eq!(cgroups(mountinfo).seen, "cpu v1, memory v1");
        assert_eq!(cgroups("").seen, "no controllers");
    }

    #[test]
    fn only_missing_things_have_consequences_in_the_table() {
        let there = finding("a", true, true, "yes", "lost a");
        let gone = finding("b", false, false, "no", "lost b");
        let text = table(&[there, gone]).render(false);
        assert!(text.contains("lost b") && !text.contains("lost a"));
    }
}
