//! Everything that a lab holds which a process could leave behind, as lines that are counted.
//!
//! Found through this machine's /proc and file systems, and not by asking Osmos.

use anyhow::{Context, Result};
use lab::{Lab, Node, cgroup};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Directories of a node in which a process or a daemon may leave files.
const DIRECTORIES: [&str; 4] = ["/tmp", "/run/osmos", "/dev/shm", "/var/lib/osmos"];
/// What a daemon keeps on purpose, of bounded size: hashes of files for the next moves, the newest
/// call of each member, what programs took, and older events.
const KEPT: [&str; 4] = [
    "/run/osmos/hashes",
    "/var/lib/osmos/calls.json",
    "/var/lib/osmos/programs.json",
    "/var/lib/osmos/events.jsonl.old",
];
/// Likewise, for ten minutes: what guests have left of their memory.
const IMPRINT: &str = "/memfd:osmos-imprint";
/// Deeper there is nothing of ours.
const DEPTH_MAX: usize = 4;
/// What is counted of processes only: there may be fewer of all else than before.
const PROCESS: &str = "process";

/// How often there is each thing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census(BTreeMap<String, i64>);

impl Census {
    /// Counts what is there now. `ground` is where the programs' own files are.
    pub fn take(lab: &Lab, ground: &str) -> Result<Census> {
        let mut census = Census::default();
        let all = Seen::all()?;
        for node in lab.nodes() {
            census.count_processes(&node, &all)?;
            census.count_mounts(&node)?;
            census.count_cgroups(lab, &node)?;
            census.count_descriptors(&node)?;
            census.count_files(&node, ground)?;
        }
        Ok(census)
    }

    /// What is there in `after` and was not before, and which processes are missing.
    pub fn left_behind(&self, after: &Census) -> Vec<String> {
        let things: BTreeSet<&String> = self.0.keys().chain(after.0.keys()).collect();
        let count = |census: &Census, thing| census.0.get(thing).copied().unwrap_or(0);
        let told = things.into_iter().filter_map(|thing| {
            let (before, now) = (count(self, thing), count(after, thing));
            let is_process = thing.split(' ').nth(2) == Some(PROCESS);
            let is_told = now > before || (now < before && is_process);
            is_told.then(|| format!("{thing}: {before} before, {now} after"))
        });
        told.collect()
    }

    fn add(&mut self, node: &Node<'_>, kind: &str, what: impl std::fmt::Display) {
        *self.0.entry(format!("node {} {kind} {what}", node.id())).or_default() += 1;
    }

    /// Processes of the node's own namespace and of those below it, and their namespaces.
    fn count_processes(&mut self, node: &Node<'_>, all: &[Seen]) -> Result<()> {
        let keeper = node.keeper()?.pid;
        let mut spaces = BTreeSet::new();
        for seen in all.iter().filter(|seen| seen.descends_from(keeper, all)) {
            self.add(node, PROCESS, &seen.name);
            spaces.extend(seen.namespaces());
        }
        for (kind, _) in spaces {
            self.add(node, "namespace", kind);
        }
        Ok(())
    }

    fn count_mounts(&mut self, node: &Node<'_>) -> Result<()> {
        let path = format!("/proc/{}/mountinfo", node.keeper()?.pid);
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        for line in text.lines() {
            self.add(node, "mount", line.split(' ').nth(4).unwrap_or_default());
        }
        Ok(())
    }

    fn count_cgroups(&mut self, lab: &Lab, node: &Node<'_>) -> Result<()> {
        let record = lab.record();
        for hierarchy in &record.hierarchies {
            let root = cgroup::node_dir(hierarchy, record.spec.name.as_str(), node.id());
            let mut found = Vec::new();
            walk(&root, DEPTH_MAX, &mut found);
            for path in found.iter().filter(|path| path.is_dir()) {
                self.add(node, "cgroup", path.display());
            }
        }
        Ok(())
    }

    /// Of the daemon, by what they are: numbers of sockets change.
    fn count_descriptors(&mut self, node: &Node<'_>) -> Result<()> {
        let daemon = node.daemon_pid().with_context(|| format!("node {} is down", node.id()))?;
        let entries = fs::read_dir(format!("/proc/{daemon}/fd"))?;
        for link in entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()) {
            let link = link.display().to_string();
            if link.starts_with(IMPRINT) {
                continue;
            }
            let kind =
                if link.starts_with('/') { &link } else { link.split(":[").next().unwrap_or("") };
            self.add(node, "descriptor", kind);
        }
        Ok(())
    }

    fn count_files(&mut self, node: &Node<'_>, ground: &str) -> Result<()> {
        let own = node.path(ground)?;
        let kept = KEPT.iter().map(|path| node.path(path)).collect::<Result<Vec<_>>>()?;
        for directory in DIRECTORIES {
            let root = node.path(directory)?;
            let mut found = Vec::new();
            walk(&root, DEPTH_MAX, &mut found);
            let is_kept = |path: &PathBuf| kept.iter().any(|kept| path.starts_with(kept));
            let counts = |path: &&PathBuf| !path.starts_with(&own) && !is_kept(path);
            for path in found.iter().filter(counts) {
                let inside = path.strip_prefix(&root).unwrap_or(path);
                self.add(node, "file", format!("{directory}/{}", inside.display()));
            }
        }
        Ok(())
    }
}

/// Everything below `directory`; what cannot be read holds nothing for us.
fn walk(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        found.push(path.clone());
        if is_directory && depth > 0 {
            walk(&path, depth - 1, found);
        }
    }
}

/// A process of this machine.
pub struct Seen {
    pub pid: i32,
    parent: i32,
    /// Its pids, from this namespace to its innermost.
    pub pids: Vec<i32>,
    pub is_zombie: bool,
    name: String,
}

impl Seen {
    pub fn all() -> Result<Vec<Seen>> {
        let names =
            fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.filter_map(|name| Seen::of_pid(name.parse().ok()?)).collect())
    }

    /// None if it has ended meanwhile.
    fn of_pid(pid: i32) -> Option<Seen> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| {
            let mut lines = status.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(key, _)| *key == name).map(|(_, value)| value.trim().to_owned())
        };
        let is_zombie = field("State")?.starts_with('Z');
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words: Vec<String> =
            words.split(|b| *b == 0).take(2).map(|w| String::from_utf8_lossy(w).into()).collect();
        let name = if is_zombie { format!("{} (zombie)", field("Name")?) } else { words.join(" ") };
        let parent = field("PPid")?.parse().ok()?;
        let pids = field("NSpid")?.split_whitespace().filter_map(|id| id.parse().ok()).collect();
        Some(Seen { pid, parent, pids, is_zombie, name })
    }

    pub fn descends_from(&self, ancestor: i32, all: &[Seen]) -> bool {
        let parent = |child: &&Seen| all.iter().find(|seen| seen.pid == child.parent);
        std::iter::successors(Some(self), parent).any(|seen| seen.pid == ancestor)
    }

    /// Kind and number.
    fn namespaces(&self) -> Vec<(String, String)> {
        let entries = fs::read_dir(format!("/proc/{}/ns", self.pid)).into_iter().flatten();
        let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let split = |link: PathBuf| {
            let (kind, number) = link.to_str()?.split_once(':')?;
            Some((kind.to_owned(), number.to_owned()))
        };
        links.filter_map(split).collect()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn census(lines: &[(&str, i64)]) -> Census {
        Census(lines.iter().map(|(line, count)| (line.to_string(), *count)).collect())
    }

    #[test]
    fn what_is_more_than_before_is_left_behind_and_a_missing_process_is_told() {
        let before = census(&[
            ("node 1 descriptor socket", 5),
            ("node 1 process osmos daemon", 1),
            ("node 1 file /tmp/a", 1),
        ]);
        assert_eq!(before.left_behind(&before), [""; 0]);
        let fewer = census(&[("node 1 descriptor socket", 4), ("node 1 process osmos daemon", 1)]);
        assert_eq!(before.left_behind(&fewer), [""; 0]);
        let more = census(&[
            ("node 1 descriptor socket", 6),
            ("node 1 process osmos body", 1),
            ("node 2 namespace user", 1),
        ]);
        assert_eq!(
            before.left_behind(&more),
            [
                "node 1 descriptor socket: 5 before, 6 after",
                "node 1 process osmos body: 0 before, 1 after",
                "node 1 process osmos daemon: 1 before, 0 after",
                "node 2 namespace user: 0 before, 1 after",
            ]
        );
    }

    #[test]
    fn this_very_process_descends_from_its_parent() {
        let all = Seen::all().unwrap();
        let own = all.iter().find(|seen| seen.pid == std::process::id() as i32).unwrap();
        assert!(own.descends_from(own.parent, &all));
        assert!(!own.descends_from(-1, &all));
        assert!(own.namespaces().iter().any(|(kind, _)| kind == "pid"));
    }
}
