//! What Osmos itself takes of a node's memory for a process that is away.

use crate::stage::{COUNTING, Program, Seen, Stage, until_true};
use serde_json::Value;

/// Has many threads read much each, and then wait for one another without any call to home.
const READERS: &str = "\
import os, sys, threading
count, size = 16, 4 << 20
with open('/tmp/much', 'wb') as much: much.write(os.urandom(size))
go, stay, met = threading.Event(), threading.Lock(), threading.Barrier(count + 1)
def read():
    file = os.open('/tmp/much', os.O_RDONLY)
    go.wait()
    os.pread(file, size, 0)
    met.wait()
    stay.acquire()
stay.acquire()
for _ in range(count): threading.Thread(target=read, daemon=True).start()
print('ready', flush=True)
for line in sys.stdin:
    go.set()
    met.wait()
    print('read', flush=True)";

fn kib(process: &Seen, name: &str) -> u64 {
    let value = process.field(name).expect("it lives");
    value.trim_end_matches(" kB").parse().expect("a size")
}

#[test]
fn what_large_calls_took_at_home_is_given_back_when_they_are_over() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("memory", 2);
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", READERS];
    let mut program = stage.start(1, &words);
    assert_eq!(program.line(), "ready");
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask(""), "read");
    let supervisor = stage.deputy_supervisor(program.pid).expect("it is away");
    let deputy = stage.process(1, program.pid).expect("it lives");
    until_true("staging areas are given back", || kib(&deputy, "RssShmem") < 8 << 10);
    until_true("replies are given back", || kib(&supervisor, "RssAnon") < 24 << 10);
    assert_eq!(stage.place(program.pid), Some(2));
}

/// Has 64 MiB, of which it changes a page for each line, and tells what all of it adds up to.
const LARGE: &str = "\
import random, sys, zlib
random.seed(7)
memory = bytearray(random.randbytes(64 << 20))
print('ready', flush=True)
for line in sys.stdin:
    at = random.randrange(len(memory))
    memory[at] ^= 255
    print(zlib.crc32(memory), flush=True)";

fn python(script: &str) -> Vec<&str> {
    vec!["osmos", "run", "--home", "--", "python3", "-IS", "-c", script]
}

/// Moves it; how many bytes travelled for that.
fn bytes_sent(stage: &Stage, program: &Program, to: &str) -> u64 {
    let words = ["osmos", "migrate", "--json", &program.pid.to_string(), to];
    let told: Value = serde_json::from_str(&stage.text(1, &words)).expect("what the move was like");
    told["bytes_sent"].as_u64().expect("a number of bytes")
}

#[test]
fn what_did_not_change_away_is_not_sent_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("kept", 3);
    let mut programs = [1, 1].map(|node| stage.start(node, &python(LARGE)));
    for program in &mut programs {
        assert_eq!(program.line(), "ready");
    }
    let [away, home] = &mut programs;
    let same = |away: &mut Program, home: &mut Program| assert_eq!(away.ask(""), home.ask(""));
    let is_tracked = kernel::features::settled().has(kernel::features::Feature::WriteTracking);
    for round in 0..3 {
        assert!(bytes_sent(&stage, away, "2") > 64 << 20);
        for _ in 0..=round {
            same(away, home);
        }
        let bytes = bytes_sent(&stage, away, "home");
        assert!(bytes < 8 << 20 || !is_tracked, "{bytes} bytes came home");
        same(away, home);
    }
    // By way of a second node, and of the first again.
    bytes_sent(&stage, away, "2");
    for node in ["3", "2"] {
        same(away, home);
        assert!(bytes_sent(&stage, away, node) > 64 << 20);
    }
    same(away, home);
    let bytes = bytes_sent(&stage, away, "home");
    assert!(bytes < 8 << 20 || !is_tracked, "{bytes} bytes came home");
    same(away, home);
}

/// Moves it; whether memory was sent while it ran.
fn is_copied_to(stage: &Stage, program: &Program, to: &str) -> bool {
    let words = ["osmos", "migrate", "--json", &program.pid.to_string(), to];
    let told: Value = serde_json::from_str(&stage.text(1, &words)).expect("what the move was like");
    let phases = told["phases_ms"].as_array().expect("its phases");
    phases.iter().any(|phase| phase.as_array().is_some_and(|pair| pair[0] == "copy"))
}

/// Writes to all of its memory, page after page, while another thread waits for lines, and says
/// whether every page is as it was left.
const REWRITTEN: &str = "\
import sys, threading
PAGES, PAGE = 12 << 10, 4096
memory, lock, at, lap = bytearray(PAGES * PAGE), threading.Lock(), 0, 1
def write():
    global at, lap
    while True:
        with lock:
            for at in range(at, min(at + 64, PAGES)): memory[at * PAGE + at % PAGE] = lap
            at += 1
            if at == PAGES: at, lap = 0, lap % 250 + 1
def is_right(page):
    found, last = memory[page * PAGE + page % PAGE], 250 if lap == 1 else lap - 1
    return found == lap if page < at else found in (last, 0)
threading.Thread(target=write, daemon=True).start()
print('ready', flush=True)
for line in sys.stdin:
    with lock: print(all(map(is_right, range(PAGES))), lap, flush=True)";

#[test]
fn memory_goes_home_while_its_program_runs() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("homing", 3);
    let mut program = stage.start(1, &python(REWRITTEN));
    assert_eq!(program.line(), "ready");
    let is_tracked = kernel::features::settled().has(kernel::features::Feature::WriteTracking);
    for nodes in [&["2"][..], &["3"], &["2", "3"]] {
        for node in nodes {
            stage.migrate(program.pid, node);
            // So much of it is written to there.
            for _ in 0..3 {
                assert!(program.ask("").starts_with("True "), "on node {node}");
            }
        }
        assert!(is_copied_to(&stage, &program, "home") || !is_tracked);
        assert!(program.ask("").starts_with("True "), "at home");
    }
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn kept_memory_is_given_back_when_memory_is_short() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let Some(stage) = Stage::with_memory("kept-short", 2, "400m") else { return };
    let script = format!("memory = bytearray(b'x') * (64 << 20)\n{COUNTING}");
    let mut program = stage.start(1, &python(&script));
    program.ask("");
    stage.migrate(program.pid, "2");
    let deputy = stage.process(1, program.pid).expect("it lives");
    assert!(kib(&deputy, "RssAnon") > 64 << 10, "home has room for it");
    let greedy = "\
import sys
memory = bytearray(b'x') * (280 << 20)
print('ready', flush=True)
sys.stdin.readline()";
    let greedy = stage.start(1, &["python3", "-IS", "-c", greedy]);
    assert_eq!(greedy.line(), "ready");
    until_true("kept memory is given back", || kib(&deputy, "RssAnon") < 16 << 10);
    let count = program.ask("").parse::<u64>().expect("a count");
    assert!(program.ask("").parse::<u64>().expect("a count") > count, "it computes");
    stage.migrate(program.pid, "home");
    program.ask("");
    program.close_input();
    assert_eq!(program.end(), 0);
}

/// Has a file open from which it reads past the protection of pages, until a line comes.
const DIRECT: &str = "\
import os, sys
memory = bytearray(b'x') * (16 << 20)
try: file = os.open('/usr/bin/env', os.O_RDONLY | os.O_DIRECT)
except OSError: sys.exit(print('none'))
print('ready', flush=True)
for line in sys.stdin:
    os.close(file)
    print('closed', flush=True)";

#[test]
fn what_may_be_read_into_directly_does_not_move_while_its_program_runs() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("direct", 2);
    let mut program = stage.start(1, &python(DIRECT));
    if program.line() != "ready" {
        eprintln!("skipped: the file system has no direct input");
        return;
    }
    let is_tracked = kernel::features::settled().has(kernel::features::Feature::WriteTracking);
    assert!(!is_copied_to(&stage, &program, "2"), "its writes are not told");
    stage.migrate(program.pid, "home");
    assert_eq!(program.ask(""), "closed");
    assert_eq!(is_copied_to(&stage, &program, "2"), is_tracked);
    program.close_input();
    assert_eq!(program.end(), 0);
}

/// Maps memory beside other memory, and moves both at once: natively that is one mapping.
const MOVED_AS_ONE: &str = "\
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mremap.argtypes = [ctypes.c_void_p] + [ctypes.c_size_t] * 2 + [ctypes.c_int, ctypes.c_void_p]
HALF, NONE, BOTH, PRIVATE, FIXED = 8 << 20, 0, 3, 0x22, 0x10
room, target = (libc.mmap(None, 4 * HALF, NONE, PRIVATE, -1, 0) for _ in range(2))
def map(at, byte):
    assert libc.mmap(at, HALF, BOTH, PRIVATE | FIXED, -1, 0) == at
    ctypes.memset(at, byte, HALF)
map(room + HALF, 1)
print('ready', flush=True)
sys.stdin.readline()
map(room + 2 * HALF, 2)
to = libc.mremap(room + HALF, 2 * HALF, 2 * HALF, 3, target + HALF)
moved = ctypes.string_at(to, 2 * HALF) if to == target + HALF else b''
print(to == target + HALF, moved == b'\\1' * HALF + b'\\2' * HALF, flush=True)
sys.stdin.readline()";

#[test]
fn what_is_mapped_beside_other_memory_away_is_moved_as_one() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("as-one", 2);
    let mut program = stage.start(1, &python(MOVED_AS_ONE));
    assert_eq!(program.line(), "ready");
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask(""), "True True");
    if kernel::features::settled().has(kernel::features::Feature::WriteTracking) {
        assert_eq!(stage.place(program.pid), Some(1), "the kernel does not do it for a body");
    }
    program.write("\n");
    assert_eq!(program.end(), 0);
}
