//! Files at home that are sent ahead to a process that reads them away (decision 0052): what it
//! reads is what it would read at home, whoever changes them and tells it so.

use crate::stage::{Program, Stage, until_true};
use nix::sys::statfs::{BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, statfs};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const STEPS: &str = include_str!("read_ahead.py");
/// Evaluates what it is told to, with the file `f`.
const ASKED: &str = "
import hashlib, os, sys, time
print('ready', flush=True)
def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: pass
def reads(length, count): return [os.read(f, length) for _ in range(count)]
def sum(parts): return hashlib.md5(b''.join(parts)).hexdigest()
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except OSError as error:
        print(error.strerror, flush=True)";
/// Of the file that is read, in blocks of 4 KiB, each with its number in all places.
const BLOCKS: usize = 2048;

/// A directory of a file system whose files are sent ahead; the nodes of a lab see it.
fn directory(programs: &[&str]) -> Option<TempDir> {
    if !needs::can_run(programs) {
        return None;
    }
    let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let system = statfs(directory.path()).expect("it has a file system").filesystem_type();
    if ![EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC].contains(&system) {
        needs::skip_part("reading ahead", "/var/tmp is on none of ext4, XFS and Btrfs");
        return None;
    }
    Some(directory)
}

/// A file of numbered blocks that nobody has changed for a while.
fn file(directory: &Path) -> PathBuf {
    let path = directory.join("file");
    let blocks = (0..BLOCKS as u64).flat_map(|number| number.to_le_bytes().repeat(512));
    std::fs::write(&path, blocks.collect::<Vec<u8>>()).expect("it is written");
    grow_old(&path);
    path
}

/// Until its last change is older than what its times can tell apart.
fn grow_old(path: &Path) {
    let is_old = || {
        let changed = path.metadata().expect("it is there").modified().expect("it has times");
        changed.elapsed().is_ok_and(|age| age.as_millis() > 100)
    };
    until_true("the file is old", is_old);
}

fn asked(stage: &Stage, words: &[&str]) -> Program {
    let all = [words, &["python3", "-IS", "-c", ASKED]].concat();
    let program = stage.start(1, &all);
    assert_eq!(program.line(), "ready");
    program
}

/// It runs on node 2, and has read a part of the file, in order.
fn reader(stage: &Stage, path: &Path) -> Program {
    let mut program = asked(stage, &["osmos", "run", "--home", "--"]);
    stage.migrate(program.pid, "2");
    let open = format!("globals().update(f=os.open('{}', 0))", path.display());
    assert_eq!(program.ask(&open), "None");
    assert_eq!(program.ask("len(reads(4096, 64))"), "64");
    assert!(is_sent(stage, &program, path), "home has the file open to send it");
    program
}

/// Whether home sends a file ahead to the program.
fn is_sent(stage: &Stage, program: &Program, path: &Path) -> bool {
    let supervisor = stage.deputy_supervisor(program.pid).expect("it is away");
    supervisor.descriptors().iter().any(|link| Path::new(link) == path)
}

/// Calls of the process itself, at home, by which it has read.
fn reads_at_home(stage: &Stage, program: &Program) -> u64 {
    let process = stage.process(1, program.pid).expect("its deputy");
    let counts = std::fs::read_to_string(format!("/proc/{}/io", process.pid)).expect("counts");
    let line = counts.lines().find_map(|line| line.strip_prefix("syscr: "));
    line.expect("it counts reads").parse().expect("a number")
}

#[test]
fn what_is_read_in_order_is_sent_before_it_is_asked_for() {
    let Some(directory) = directory(&["python3"]) else { return };
    let path = file(directory.path());
    let stage = Stage::new("ahead", 2);
    let mut away = reader(&stage, &path);
    let before = reads_at_home(&stage, &away);
    let mut here = asked(&stage, &[]);
    let open = format!("globals().update(f=os.open('{}', 0))", path.display());
    assert_eq!(here.ask(&open), "None");
    assert_eq!(here.ask("len(reads(4096, 64))"), "64");
    assert_eq!(away.ask("sum(reads(4096, 1900))"), here.ask("sum(reads(4096, 1900))"));
    let made = reads_at_home(&stage, &away) - before;
    // Its orders are read there, too.
    assert!(made < 20, "{made} reads at home for 1900");
    // What moves the position, and who goes on with it.
    let seek = "os.lseek(f, 4096 * 5, 0), os.read(f, 8), os.lseek(f, 100, 1), os.lseek(f, 0, 1)";
    assert_eq!(away.ask(seek), here.ask(seek));
    let child = "(lambda pid: os._exit(os.read(f, 1)[0]) if pid == 0 else \
                 os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))(os.fork()), os.lseek(f, 0, 1)";
    assert_eq!(away.ask(child), here.ask(child));
    until_true("a child had the descriptor as well", || !is_sent(&stage, &away, &path));
    stage.migrate(away.pid, "home");
    assert_eq!(
        away.ask("os.read(f, 9), os.lseek(f, 0, 1)"),
        here.ask("os.read(f, 9), os.lseek(f, 0, 1)")
    );
}

#[test]
fn who_is_told_of_a_change_reads_it() {
    let Some(directory) = directory(&["python3"]) else { return };
    let path = file(directory.path());
    let stage = Stage::new("ahead-told", 2);
    let mut here = asked(&stage, &[]);
    for turn in 0..8 {
        grow_old(&path);
        let mut away = reader(&stage, &path);
        // It is here already: the next block, and many that follow.
        let block = 65 + turn;
        let write = format!(
            "(lambda f: (os.pwrite(f, b'{turn}' * 4096, 4096 * {block}), os.close(f)))\
             (os.open('{}', 1))[0]",
            path.display()
        );
        assert_eq!(here.ask(&write), "4096");
        let skip = format!("len(reads(4096, {})), os.read(f, 5)", block - 64);
        let seen = format!("({}, b'{}')", block - 64, turn.to_string().repeat(5));
        assert_eq!(away.ask(&skip), seen, "turn {turn}");
        until_true("it is not sent any more", || !is_sent(&stage, &away, &path));
    }
}

#[test]
fn who_may_write_to_a_mapping_again_and_again_is_read_call_by_call() {
    let Some(directory) = directory(&["python3"]) else { return };
    let path = file(directory.path());
    let stage = Stage::new("ahead-mapped", 2);
    let mut here = asked(&stage, &[]);
    // The first of these changes the time of the file, the later ones do not.
    let map = "import mmap; m = mmap.mmap(os.open(PATH, 2), 0); m[4096 * 66] = 7";
    let map = map.replace("PATH", &format!("'{}'", path.display()));
    assert_eq!(here.ask(&format!("exec({map:?}, globals())")), "None");
    grow_old(&path);
    let mut away = asked(&stage, &["osmos", "run", "--home", "--"]);
    stage.migrate(away.pid, "2");
    let open = format!("globals().update(f=os.open('{}', 0))", path.display());
    assert_eq!(away.ask(&open), "None");
    assert_eq!(away.ask("len(reads(4096, 64))"), "64");
    assert!(!is_sent(&stage, &away, &path));
    assert_eq!(here.ask("m.__setitem__(4096 * 66, 9)"), "None");
    assert_eq!(away.ask("reads(4096, 3)[2][0]"), "9");
}

#[test]
fn a_change_that_nobody_tells_of_is_seen_a_moment_later() {
    let Some(directory) = directory(&["python3"]) else { return };
    let path = file(directory.path());
    let stage = Stage::new("ahead-untold", 2);
    let mut here = asked(&stage, &[]);
    let mut away = reader(&stage, &path);
    // What home tells a process that has just arrived has come by then.
    assert_eq!(away.ask("spin(1.5), len(reads(4096, 64))"), "(None, 64)");
    assert!(is_sent(&stage, &away, &path));
    // It computes, and asks home for nothing meanwhile.
    away.write("(print('reads', flush=True), spin(1), os.read(f, 5))[2]\n");
    assert_eq!(away.line(), "reads");
    let write = format!(
        "(lambda f: (os.pwrite(f, b'x' * 4096, 4096 * 128), os.close(f)))(os.open('{}', 1))[0]",
        path.display()
    );
    assert_eq!(here.ask(&write), "4096");
    assert_eq!(away.line(), "b'xxxxx'");
}

#[test]
fn whatever_is_read_and_changed_comes_out_as_at_home_and_in_a_storm() {
    let Some(directory) = directory(&["python3"]) else { return };
    let stage = Stage::new("ahead-same", 2);
    let run = ["osmos", "run", "--home", "--"];
    for (seed, is_storm) in [("1", false), ("2", true), ("3", false), ("4", true), ("5", false)] {
        let place = |name: &str| directory.path().join(format!("{name}-{seed}"));
        let [mut native, mut away] = ["native", "away"].map(|name| {
            std::fs::create_dir(place(name)).expect("a directory");
            for pipe in ["orders", "answers"] {
                let mode = nix::sys::stat::Mode::S_IRWXU;
                nix::unistd::mkfifo(&place(name).join(pipe), mode).expect("a pipe with a name");
            }
            let path = place(name).display().to_string();
            let words = |role| ["python3", "-IS", "-c", STEPS, role, &path, seed, "200"];
            let before = if name == "away" { &run[..] } else { &[] };
            let writer = stage.begin(1, &words("writes"));
            let program = stage.start(1, &[before, &words("reads")].concat());
            assert_eq!(program.line(), "ready");
            (program, writer)
        });
        stage.migrate(away.0.pid, "2");
        [&mut native, &mut away].into_iter().for_each(|(it, _)| it.write("go\n"));
        let mut told = Vec::new();
        let mut turns = ["home", "2"].iter().cycle();
        while let Some(line) = native.0.line_or_end() {
            told.push(line.clone());
            let here = away.0.line_or_end();
            assert_eq!(here.as_deref(), Some(&*line), "seed {seed} after {told:#?}");
            if is_storm && told.len().is_multiple_of(5) {
                // A process that is just being made does not move: the next time, then.
                stage.try_migrate(away.0.pid, turns.next().expect("they have no end"));
            }
        }
        assert_eq!(told.len(), 200, "{told:#?}");
        for (mut program, mut writer) in [native, away] {
            assert_eq!(program.end(), 0);
            assert!(writer.wait().expect("our child").success());
        }
    }
}
