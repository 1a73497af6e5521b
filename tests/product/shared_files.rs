//! Files that a process has mapped shared and writable, and others at home that use them.

use crate::stage::{Program, Stage, text, until, until_true};
use std::os::unix::fs::FileExt;

/// Does what each line says, and prints what comes of it.
const OBEDIENT: &str = "\
import itertools, mmap, os, struct, sys, threading
for line in sys.stdin:
    try: print(eval(line), flush=True)
    except Exception as error: print(type(error).__name__, error, flush=True)";

/// The file as the program has it, three pages.
const MAP: &str = "[globals().update(f=os.open('/tmp/out', os.O_RDWR | os.O_CREAT)), \
                   os.truncate(f, 12288), globals().update(m=mmap.mmap(f, 12288))][1]";

fn start(stage: &Stage) -> Program {
    stage.start(1, &["osmos", "run", "--home", "--", "python3", "-IS", "-c", OBEDIENT])
}

/// A program on node 2 that shares the file.
fn start_away(stage: &Stage) -> Program {
    let mut program = start(stage);
    assert_eq!(program.ask(MAP), "None");
    stage.migrate(program.pid, "2");
    program
}

fn bytes_at(stage: &Stage, offset: u64, length: usize) -> Vec<u8> {
    let file = std::fs::File::open(stage.path(1, "/tmp/out")).expect("the file");
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset).expect("as long as it was made");
    bytes
}

fn ask_true(program: &mut Program, expression: &str) {
    assert_eq!(program.ask(expression), "True", "{expression}");
}

#[test]
fn what_is_written_to_a_shared_file_is_there_wherever_it_was_written() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("shared-file", 3);
    let mut program = start(&stage);
    assert_eq!(program.ask(MAP), "None");
    ask_true(&mut program, "m.write(b'home') == 4");
    for (index, place) in ["2", "3", "home", "3", "2"].iter().enumerate() {
        stage.migrate(program.pid, place);
        let word = format!("place{index}");
        let at = 4000 + index * 1000;
        ask_true(&mut program, "m[:4] == b'home'");
        let write = format!("[m.seek({at}), m.write(b'{word}')][1]");
        assert_eq!(program.ask(&write), "6");
        assert_eq!(bytes_at(&stage, at as u64, 6), word.as_bytes(), "before the answer, {place}");
        ask_true(&mut program, &format!("os.pread(f, 6, {at}) == b'{word}'"));
        ask_true(&mut program, "m.flush() is None");
        let expected = if *place == "home" { 1 } else { place.parse().expect("a number") };
        assert_eq!(stage.place(program.pid), Some(expected), "nothing of that needs its home");
    }
    ask_true(&mut program, "[m.seek(9), m.write(b'last'), m.close()][1] == 4");
    assert_eq!(bytes_at(&stage, 9, 4), b"last", "before it was unmapped");
    assert_eq!(stage.place(program.pid), Some(2), "and the one thread stays for that");
    assert_eq!(program.ask("6 * 7"), "42");
    stage.migrate(program.pid, "home");
    assert_eq!(program.ask("os.pread(f, 4, 9)"), "b'last'");
}

#[test]
fn calls_that_change_a_shared_file_are_made_at_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("shared-calls", 2);
    let mut program = start(&stage);
    assert_eq!(program.ask(MAP), "None");
    for (call, check) in [
        ("os.pwrite(f, b'by call', 20) == 7", "m[20:27] == b'by call'"),
        ("os.ftruncate(f, 12288) is None", "m[20:27] == b'by call'"),
        ("os.writev(f, [b'a', b'b']) == 2", "m[:2] == b'ab'"),
        ("os.posix_fallocate(f, 0, 12288) is None", "m[:2] == b'ab'"),
        ("open('/tmp/out', 'r+b', 0).write(b'xy') == 2", "m[:2] == b'xy'"),
        ("__import__('fcntl').flock(f, 2) is None", "m[:2] == b'xy'"),
        ("m.resize(8192) is None", "len(m) == 8192"),
        ("os.truncate('/tmp/out', 8192) is None", "m[:2] == b'xy'"),
    ] {
        stage.migrate(program.pid, "2");
        assert_eq!(program.ask("[m.seek(30), m.write(b'beside')][1]"), "6");
        ask_true(&mut program, call);
        assert_eq!(stage.place(program.pid), Some(1), "{call}");
        ask_true(&mut program, check);
        ask_true(&mut program, "m[30:36] == b'beside'");
        assert_eq!(bytes_at(&stage, 30, 6), b"beside", "{call}");
    }
    stage.migrate(program.pid, "2");
    ask_true(&mut program, "open('/tmp/other', 'wb').write(b'abc') == 3");
    assert_eq!(stage.place(program.pid), Some(2), "another file concerns nobody");
}

#[test]
fn others_see_what_a_computing_process_writes_and_whoever_writes_has_it_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("shared-others", 2);
    let mut program = start_away(&stage);
    // No call is made until somebody else has written.
    program.write(
        "[m.seek(100), m.write(b'first'), next(i for i in itertools.count() if m[101] == 1), \
         m[100:105]][3]\n",
    );
    until_true("a reader sees it", || bytes_at(&stage, 100, 5) == b"first");
    assert_eq!(stage.place(program.pid), Some(2), "a reader has no effect");
    let path = stage.path(1, "/tmp/out");
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("the file");
    file.write_all_at(&[1], 101).expect("it is written to");
    assert_eq!(program.line(), "b'f\\x01rst'", "it came home and saw it");
    assert_eq!(bytes_at(&stage, 100, 5), b"f\x01rst", "nothing was written over it");
    stage.await_place(program.pid, 1);
    drop(file);
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask("m[100:105]"), "b'f\\x01rst'");
    // Who could write by its own mapping need not make a call for that.
    let writer = stage.start(1, &["sh", "-c", "exec 3<>/tmp/out; echo open; read line"]);
    stage.await_place(program.pid, 1);
    let complaint = stage.complaint(1, &["osmos", "migrate", &program.pid.to_string(), "2"]);
    assert!(complaint.contains(&format!("process {}", writer.pid)), "{complaint}");
    stage.signal(1, writer.pid, "KILL");
    until_true("the writer has ended", || stage.process(1, writer.pid).is_none());
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask("m[100:105]"), "b'f\\x01rst'");
}

#[test]
fn a_process_that_ends_leaves_in_the_file_what_it_has_written() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("shared-end", 2);
    let mut program = start_away(&stage);
    program.write("[m.seek(5), m.write(b'the end'), os._exit(3)]\n");
    until_true("it has ended", || stage.process(1, program.pid).is_none());
    assert_eq!(bytes_at(&stage, 5, 7), b"the end");
    let mut program = start_away(&stage);
    program.write("[m.seek(5), m.write(b'killed'), next(i for i in itertools.count() if 0)]\n");
    until_true("it is written", || bytes_at(&stage, 5, 6) == b"killed");
    stage.signal(1, program.pid, "TERM");
    until_true("it has ended", || stage.process(1, program.pid).is_none());
    let homecomings = stage.events(1, "came-home", program.pid);
    assert!(!homecomings.is_empty(), "it dies with all its memory at home");
    stage.await_no_supervisors();
}

#[test]
fn what_somebody_cuts_off_is_a_fault_for_who_goes_on_to_use_it() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("shared-cut", 2);
    let mut program = start_away(&stage);
    program.write(
        "[m.seek(0), m.write(b'x'), next(i for i in itertools.count() \
         if m.__setitem__(9000, i % 250))]\n",
    );
    until_true("it writes", || bytes_at(&stage, 0, 1) == b"x");
    stage.text(1, &["truncate", "-s", "100", "/tmp/out"]);
    until_true("it has ended", || stage.process(1, program.pid).is_none());
    let size = std::fs::metadata(stage.path(1, "/tmp/out")).expect("the file").len();
    assert_eq!(size, 100);
    stage.await_no_supervisors();
}

#[test]
fn memory_files_and_read_only_mappings_move_too() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("shared-memfd", 2);
    let mut program = start(&stage);
    let make = "[globals().update(f=os.memfd_create('x')), os.truncate(f, 8192), \
                globals().update(m=mmap.mmap(f, 4096), \
                r=mmap.mmap(f, 4096, prot=mmap.PROT_READ, offset=4096)), \
                os.pwrite(f, b'read', 4096)][1]";
    assert_eq!(program.ask(make), "None");
    assert_eq!(program.ask("m.write(b'there')"), "5");
    for place in ["2", "home", "2"] {
        stage.migrate(program.pid, place);
        assert_eq!(program.ask("m[:5] + r[:4] + os.pread(f, 5, 0)"), "b'therereadthere'");
    }
    assert_eq!(program.ask("[m.seek(0), m.write(b'again')][1]"), "5");
    assert_eq!(program.ask("os.pread(f, 5, 0)"), "b'again'");
}

#[test]
fn threads_that_unmap_a_shared_file_do_it_at_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("shared-threads", 2);
    let mut program = start(&stage);
    assert_eq!(program.ask(MAP), "None");
    let thread = "[globals().update(e=threading.Event()), \
                  threading.Thread(target=e.wait, daemon=True).start()][1]";
    assert_eq!(program.ask(thread), "None");
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask("[m.seek(7), m.write(b'word'), m.close()][1]"), "4");
    assert_eq!(stage.place(program.pid), Some(1));
    assert_eq!(bytes_at(&stage, 7, 4), b"word");
}

fn refused(stage: &Stage, program: &mut Program, words: &[&str]) {
    let complaint = stage.complaint(1, &["osmos", "migrate", &program.pid.to_string(), "2"]);
    for word in words {
        assert!(complaint.contains(word), "{word:?} is missing: {complaint}");
    }
    stage.await_plain(program.pid);
    assert_eq!(program.ask("6 * 7"), "42");
}

#[test]
fn a_process_whose_shared_file_others_may_write_to_stays() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("shared-writers", 2);
    let mut program = start(&stage);
    assert_eq!(program.ask(MAP), "None");
    let mut writer = start(&stage);
    assert_eq!(writer.ask("globals().update(f=os.open('/tmp/out', 2))"), "None");
    let other = format!("process {}", writer.pid);
    refused(&stage, &mut program, &["/tmp/out", &other]);
    let shares = "[globals().update(m=mmap.mmap(f, 4096)), os.close(f)][1]";
    assert_eq!(writer.ask(shares), "None");
    refused(&stage, &mut program, &["/tmp/out", &other]);
    assert_eq!(writer.ask("m.close()"), "None");
    stage.migrate(program.pid, "2");
    stage.migrate(program.pid, "home");
    let again = "globals().update(n=mmap.mmap(f, 4096))";
    assert_eq!(program.ask(again), "None");
    refused(&stage, &mut program, &["/tmp/out", "and at 0x"]);
    assert_eq!(program.ask("[n.close(), os.truncate(f, 4096)][1]"), "None");
    refused(&stage, &mut program, &["/tmp/out", "beyond the file's end"]);
    assert_eq!(program.ask("os.truncate(f, 12288)"), "None");
    stage.migrate(program.pid, "2");
    let large = stage.output(1, &["truncate", "-s", "300M", "/tmp/large"]);
    assert!(large.status.success(), "{}", text(&large.stderr));
    let map = "globals().update(l=mmap.mmap(os.open('/tmp/large', 2), 300 << 20))";
    assert_eq!(program.ask(map), "None");
    until("it is home for that", || stage.place(program.pid).filter(|place| *place == 1));
    refused(&stage, &mut program, &["at most 268435456 can move"]);
}

/// Begins a program that copies the file once somebody writes to a pipe with a name.
const COPY: &str = "os.posix_spawn('/bin/sh', ['sh', '-c', 'exec cat /tmp/out > /tmp/copy'], \
                    os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 9, '/tmp/gate', 0, 0)])";

#[test]
fn a_process_with_a_shared_file_begins_programs_where_it_is() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("shared-spawn", 2);
    let mut program = start(&stage);
    assert_eq!(program.ask(MAP), "None");
    assert_eq!(program.ask("os.mkfifo('/tmp/gate')"), "None");
    for (word, is_expelled) in [("first", false), ("other", true)] {
        stage.migrate(program.pid, "2");
        let write = format!("[m.seek(4097), m.write(b'{word}'), m.flush()][1]");
        assert_eq!(program.ask(&write), "5");
        program.write(&format!("{COPY}\n"));
        let child = until("the child is there", || {
            let listed = stage.listed(1);
            let is_it = |p: &&serde_json::Value| p["node"] == 2 && p["pid"] != program.pid;
            listed.iter().find(is_it)?["pid"].as_i64()
        });
        if is_expelled {
            // With what its maker has in common with home, and not a copy of it.
            assert!(stage.output(2, &["osmos", "expel"]).status.success());
            stage.await_place(child as i32, 1);
        }
        assert!(stage.output(1, &["sh", "-c", ": > /tmp/gate"]).status.success());
        assert_eq!(program.line(), child.to_string());
        assert_eq!(program.ask(&format!("os.waitpid({child}, 0)[1]")), "0");
        let copy = std::fs::read(stage.path(1, "/tmp/copy")).expect("it was written");
        assert_eq!(&copy[4097..4102], word.as_bytes());
        let homecomings = stage.events(1, "came-home", program.pid).len();
        assert_eq!(homecomings, usize::from(is_expelled));
    }
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}
