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
    vec![
        ptrace_scope(&first_line("/proc/sys/kernel/yama/ptrace_scope")),
        cgroups(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()),
    ]
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
