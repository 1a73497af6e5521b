//! A machine of its own for one test: nobody else's processes in /proc, nobody else's labs in /run.
//! So "nothing is left behind" can be asked of everything there is, not only of what we think of.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The lab program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_osmos-lab");
const INSIDE: &str = "OSMOS_LAB_TEST_INSIDE";
const PROCESS_1: &str = "OSMOS_LAB_TEST_PROCESS_1";

/// Runs the test `name` again in PID and mount namespaces of its own, or, being there, its `story`.
///
/// Process 1 there is a shell, which reaps orphans as a machine's process 1 does.
pub fn alone(name: &str, story: fn()) {
    alone_with("\"$@\"; status=$?; exit $status", name, story);
}

/// The same where process 1 waits for nobody but the test, as in many a container.
pub fn alone_without_reaper(name: &str, story: fn()) {
    if std::env::var_os(PROCESS_1).is_none() {
        return alone_with("exec env OSMOS_LAB_TEST_PROCESS_1=1 \"$@\"", name, story);
    }
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env_remove(PROCESS_1)
        .status();
    assert!(status.unwrap().success(), "{name} failed below a process 1 that waits for nobody");
}

fn alone_with(end: &str, name: &str, story: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return story();
    }
    if !needs::can_run(&["unshare", "setpriv"]) {
        return;
    }
    let own = ["--pid", "--mount", "--fork", "--mount-proc", "--kill-child"];
    let tried = Command::new("unshare").args(own).arg("true").output().expect("unshare runs");
    if !tried.status.success() {
        let why = String::from_utf8_lossy(&tried.stderr);
        return needs::skip(&format!("it needs root and namespaces: {}", why.trim()));
    }
    let script = format!("mount -t tmpfs -o mode=755 test /run && {end}");
    let status = Command::new("unshare")
        .args(own)
        .args(["sh", "-c", &script])
        .arg("sh")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .status()
        .expect("unshare (util-linux) runs");
    assert!(status.success(), "{name} failed in its own machine");
}

/// A lab name that no other test uses at the same time: cgroups are the machine's.
pub fn name() -> String {
    // Outside this namespace pids are those of the machine.
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let digits: String = link.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    format!("t{digits}")
}

/// A program and arguments, run to its end.
pub fn lab(words: &[&str]) -> Output {
    Command::new(PROGRAM).args(words).output().unwrap()
}

/// The same, which must succeed; returns what it printed.
pub fn lab_ok(words: &[&str]) -> String {
    let output = lab(words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Everything that a lab could leave somewhere.
#[derive(Debug, PartialEq, Eq)]
pub struct World {
    processes: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    links: BTreeSet<String>,
    mounts: Vec<String>,
    cgroups: BTreeSet<PathBuf>,
    files: BTreeSet<PathBuf>,
}

impl World {
    pub fn look() -> World {
        let mut world = World {
            processes: BTreeSet::new(),
            namespaces: BTreeSet::new(),
            links: entries(Path::new("/sys/class/net")).map(name_of).collect(),
            mounts: lines("/proc/self/mountinfo"),
            cgroups: BTreeSet::new(),
            files: BTreeSet::new(),
        };
        let is_process = |path: &PathBuf| name_of(path.clone()).parse::<i32>().is_ok();
        for process in entries(Path::new("/proc")).filter(is_process) {
            let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
            // What has ended is for its parent, or this machine's process 1, to notice.
            let Some((name, rest)) = stat.rsplit_once(')') else { continue };
            if rest.starts_with(" Z") || rest.starts_with(" X") {
                continue;
            }
            world.processes.insert(name.to_owned());
            for namespace in entries(&process.join("ns")) {
                if let Ok(link) = std::fs::read_link(namespace) {
                    world.namespaces.insert(link.display().to_string());
                }
            }
        }
        let own = name();
        for controller in entries(Path::new("/sys/fs/cgroup")) {
            let dir = controller.join("osmos-lab").join(&own);
            world.cgroups.extend(dir.exists().then_some(dir));
        }
        let in_work_tree = ["/run", "/var/lib/osmos", "/home/osmos"];
        world.files.extend(in_work_tree.iter().flat_map(|dir| tree(Path::new(dir))));
        world
    }

    /// Fails with what is there now and was not before.
    ///
    /// A process closes its files, which is all that others can wait for, a moment before /proc
    /// stops showing it; so what is wrong must stay wrong to count.
    pub fn assert_unchanged(&self, story: &str) {
        let deadline = Instant::now() + Duration::from_secs(2);
        let mut now = World::look();
        while *self != now && Instant::now() < deadline {
            std::thread::yield_now();
            now = World::look();
        }
        assert_eq!(*self, now, "{story}");
    }
}

/// What /proc says of a process, by key.
pub fn status(pid: i32) -> BTreeMap<String, String> {
    let pairs = lines(&format!("/proc/{pid}/status"));
    let pairs = pairs.iter().filter_map(|line| line.split_once(":\t"));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn tree(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in entries(dir) {
        if path.is_dir() && !path.is_symlink() {
            found.extend(tree(&path));
        }
        found.push(path);
    }
    found
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn name_of(path: PathBuf) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn lines(path: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
