//! What Osmos itself takes of a node's memory for a process that is away.

use crate::stage::{COUNTING, Program, REWRITING, Seen, Stage, until_true};
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
        // The node may have some of it still.
        let bytes = bytes_sent(&stage, away, "2");
        assert!(bytes > 64 << 20 || round > 0, "{bytes} bytes went away");
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
        stage.migrate(away.pid, node);
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

#[test]
fn memory_goes_home_while_its_program_runs() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("homing", 3);
    let mut program = stage.start(1, &python(REWRITING));
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

/// Has as much as `LARGE`, from the same seed, and tells as much of it.
fn visitor(stage: &Stage) -> Program {
    let program = stage.start(1, &python(LARGE));
    assert_eq!(program.line(), "ready");
    program
}

fn imprint_bytes(stage: &Stage, node: u32) -> u64 {
    let told = stage.text(node, &["osmos", "status", "--json"]);
    let told: Value = serde_json::from_str(&told).expect("a status");
    told["owner"]["imprint_bytes"].as_u64().expect("a number of bytes")
}

/// Waits until a node has written down what one of these programs leaves there.
fn await_imprint(stage: &Stage, node: u32) {
    until_true("it leaves its memory", || imprint_bytes(stage, node) > 64 << 20);
}

#[test]
fn what_a_process_had_on_a_node_before_is_not_sent_there_again() {
    if !needs::can_run(&["python3"])
        || !kernel::features::settled().has(kernel::features::Feature::WriteTracking)
    {
        return;
    }
    let stage = Stage::new("visits", 3);
    let [mut away, mut home] = [visitor(&stage), visitor(&stage)];
    let mut same = |away: &mut Program| assert_eq!(away.ask(""), home.ask(""));
    assert!(bytes_sent(&stage, &away, "2") > 64 << 20);
    same(&mut away);
    for _ in 0..2 {
        stage.migrate(away.pid, "home");
        same(&mut away);
        await_imprint(&stage, 2);
        let bytes = bytes_sent(&stage, &away, "2");
        assert!(bytes < 8 << 20, "{bytes} bytes were sent again");
        same(&mut away);
    }
    // By way of another node.
    assert!(bytes_sent(&stage, &away, "3") > 64 << 20);
    same(&mut away);
    await_imprint(&stage, 2);
    let bytes = bytes_sent(&stage, &away, "2");
    assert!(bytes < 8 << 20, "{bytes} bytes were sent back");
    same(&mut away);
    assert_eq!(imprint_bytes(&stage, 2), 0, "it is here again");
    // Another process of this user that has the same.
    stage.migrate(away.pid, "home");
    same(&mut away);
    await_imprint(&stage, 2);
    let mut other = visitor(&stage);
    let bytes = bytes_sent(&stage, &other, "2");
    assert!(bytes < 8 << 20, "{bytes} bytes of another process were sent");
    other.ask("");
    stage.migrate(other.pid, "home");
    other.ask("");
    // Whose owner takes no guests keeps nothing of them.
    await_imprint(&stage, 2);
    stage.text(2, &["osmos", "block"]);
    assert_eq!(imprint_bytes(&stage, 2), 0);
}

#[test]
fn nobody_is_spared_what_another_users_process_has_left() {
    if !needs::can_run(&["python3", "setpriv"])
        || !kernel::features::settled().has(kernel::features::Feature::WriteTracking)
    {
        return;
    }
    let stage = Stage::new("visits-users", 2);
    let as_user = |uid| {
        let head = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"];
        [head.to_vec(), python(LARGE)].concat()
    };
    let visit = |uid| {
        let mut program = stage.start(1, &as_user(uid));
        assert_eq!(program.line(), "ready");
        let bytes = bytes_sent(&stage, &program, "2");
        program.ask("");
        stage.migrate(program.pid, "home");
        bytes
    };
    assert!(visit("12345") > 64 << 20);
    await_imprint(&stage, 2);
    assert!(visit("12346") > 64 << 20, "it learns nothing of the other");
    until_true("both leave theirs", || imprint_bytes(&stage, 2) > 128 << 20);
    assert!(visit("12345") < 8 << 20 && visit("12346") < 8 << 20);
}

#[test]
fn what_guests_have_left_is_given_back_when_memory_is_short() {
    if !needs::can_run(&["python3"])
        || !kernel::features::settled().has(kernel::features::Feature::WriteTracking)
    {
        return;
    }
    let Some(stage) = Stage::with_memory("visits-short", 2, "400m") else { return };
    let mut program = visitor(&stage);
    stage.migrate(program.pid, "2");
    program.ask("");
    stage.migrate(program.pid, "home");
    await_imprint(&stage, 2);
    let greedy = "\
import sys
memory = bytearray(b'x') * (280 << 20)
print('ready', flush=True)
sys.stdin.readline()";
    let mut greedy = stage.start(2, &["python3", "-IS", "-c", greedy]);
    assert_eq!(greedy.line(), "ready");
    until_true("it is given back", || imprint_bytes(&stage, 2) == 0);
    greedy.write("\n");
    assert_eq!(greedy.end(), 0);
    stage.migrate(program.pid, "2");
    program.ask("");
}
