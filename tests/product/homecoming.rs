//! A home that has no room for a process that comes back: the process goes on where it is, with its
//! calls, sleeps and signals, and comes home when there is room.

use crate::stage::{Program, Stage, until, until_true};
use std::time::{Duration, Instant};

/// Does what each line says, and prints what comes of it; counts the signals that it gets.
const OBEDIENT: &str = "\
import mmap, os, select, signal, sys, threading, time
hits = []
signal.signal(signal.SIGUSR1, lambda *_: hits.append(1))
print('ready', flush=True)
for line in sys.stdin:
    try: print(eval(line), flush=True)
    except Exception as error: print(type(error).__name__, error, flush=True)";

/// Number of poll(2).
const POLL: i64 = 7;
/// Takes 64 MiB more of memory, which is not there at home, and writes some of it.
const GROW: &str = "[globals().update(m=mmap.mmap(-1, 64 << 20, \
                    flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)), m.write(b'kept')][1]";

fn start(stage: &Stage) -> Program {
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", OBEDIENT];
    let program = stage.start(1, &words);
    assert_eq!(program.line(), "ready");
    program
}

/// Starts such a process, sends it away and has it grow there, with no room left at home.
fn start_homeless(stage: &Stage) -> Program {
    let mut program = start(stage);
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask(GROW), "4");
    assert_eq!(stage.place(program.pid), Some(2), "it grows where it is");
    fill_home(stage, program.pid);
    program
}

/// Limits the address space at home to what the process has there.
fn fill_home(stage: &Stage, pid: i32) {
    let process = stage.process(1, pid).expect("it lives");
    let size = process.field("VmSize").expect("it has memory");
    let size_kb: u64 = size.trim_end_matches(" kB").parse().expect("a number");
    limit(stage, pid, &((size_kb << 10) + (16 << 20)).to_string());
}

fn limit(stage: &Stage, pid: i32, bytes: &str) {
    stage.text(1, &["prlimit", "--pid", &pid.to_string(), &format!("--as={bytes}:")]);
}

fn assert_stays_away(stage: &Stage, pid: i32) {
    let complaint = stage.complaint(1, &["osmos", "migrate", &pid.to_string(), "home"]);
    let words = ["cannot move", "restore mappings", "Cannot allocate memory", "stays on node 2"];
    for word in words {
        assert!(complaint.contains(word), "{word:?} is missing: {complaint}");
    }
    assert_eq!(stage.place(pid), Some(2));
}

#[test]
fn a_process_that_home_has_no_room_for_goes_on_where_it_is() {
    if !needs::can_run(&["prlimit", "python3"]) {
        return;
    }
    let stage = Stage::new("no-room", 3);
    let mut program = start_homeless(&stage);
    let arguments = stage.process(1, program.pid).expect("it lives").words;
    for _ in 0..3 {
        assert_stays_away(&stage, program.pid);
        assert_eq!(program.ask("m[:4]"), "b'kept'");
    }
    let shown = stage.process(1, program.pid).expect("it lives").words;
    assert_eq!(shown, arguments, "`ps` shows it as before");
    stage.migrate(program.pid, "3");
    assert_eq!(program.ask("m[:4]"), "b'kept'");
    limit(&stage, program.pid, "unlimited");
    stage.migrate(program.pid, "home");
    stage.await_plain(program.pid);
    assert_eq!(program.ask("m[:4]"), "b'kept'");
    program.close_input();
    assert_eq!(program.end(), 0);
    assert!(stage.events(1, "lost", program.pid).is_empty());
    stage.await_no_supervisors();
}

#[test]
fn a_file_that_every_node_has_in_a_layer_of_its_own_is_known_again() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    // A node's /etc is an overlay, whose files are mapped from the layer below.
    let stage = Stage::new("layers", 3);
    let mut program = start(&stage);
    let map = "globals().update(m=mmap.mmap(os.open('/etc/ld.so.cache', 0), 0, \
               flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ))";
    assert_eq!(program.ask(map), "None");
    let head = program.ask("m[:20]");
    for place in ["2", "3", "home", "2", "home"] {
        stage.migrate(program.pid, place);
        assert_eq!(program.ask("m[:20]"), head);
    }
}

#[test]
fn a_call_that_needs_a_home_without_room_waits_until_there_is() {
    if !needs::can_run(&["prlimit", "python3"]) {
        return;
    }
    let stage = Stage::new("no-room-call", 2);
    let mut program = start_homeless(&stage);
    stage.put(1, "/tmp/shared", "+ELF");
    program.write("mmap.mmap(os.open('/tmp/shared', os.O_RDWR), 4)[1:4]\n");
    let pid = program.pid;
    let stayed = || stage.events(1, "stayed", pid);
    let event = until("a homecoming has failed twice", || stayed().get(1).cloned());
    let text = event["reason"]["text"].as_str().unwrap_or_default();
    assert!(text.contains("Cannot allocate memory"), "{event}");
    assert_eq!(stage.place(pid), Some(2));
    limit(&stage, pid, "unlimited");
    assert_eq!(program.line(), "b'ELF'");
    assert_eq!(program.ask("m[:4]"), "b'kept'");
}

#[test]
fn a_sleeper_keeps_its_deadline_through_homecomings_that_fail() {
    if !needs::can_run(&["prlimit", "python3"]) {
        return;
    }
    let stage = Stage::new("no-room-sleep", 2);
    let mut program = start(&stage);
    let (pid, began) = (program.pid, Instant::now());
    // A second thread sleeps in a call that keeps its deadline in the kernel at home.
    program.ask(
        "[slept := [], threading.Thread(target=lambda: [t := time.monotonic(), \
         select.poll().poll(6000), slept.append(time.monotonic() - t)]).start()][1]",
    );
    let seen = stage.process(1, pid).expect("it lives");
    until_true("it sleeps", || seen.waits_in(POLL));
    stage.migrate(pid, "2");
    assert_eq!(program.ask(GROW), "4");
    fill_home(&stage, pid);
    while began.elapsed() < Duration::from_secs(4) {
        assert_stays_away(&stage, pid);
    }
    until_true("it has slept", || program.ask("len(slept)") == "1");
    let slept_s: f64 = program.ask("slept[0]").parse().expect("a number");
    assert!((5.9..9.0).contains(&slept_s), "slept {slept_s} s");
}

#[test]
fn signals_outlive_homecomings_that_fail() {
    if !needs::can_run(&["prlimit", "python3"]) {
        return;
    }
    let stage = Stage::new("no-room-signal", 2);
    let mut program = start_homeless(&stage);
    let pid = program.pid;
    for count in 1..=20 {
        let moving = stage.begin(1, &["osmos", "migrate", &pid.to_string(), "home"]);
        stage.signal(1, pid, "USR1");
        until_true("the signal is handled", || program.ask("len(hits)") == count.to_string());
        assert!(!moving.wait_with_output().expect("an answer").status.success());
    }
    assert_eq!(program.ask("len(hits)"), "20");
    limit(&stage, pid, "unlimited");
    stage.migrate(pid, "home");
    assert_eq!(program.ask("len(hits), m[:4]"), "(20, b'kept')");
}

/// Waits as each line says, with more memory mapped than the other node will give, and prints what
/// comes of it and after how many milliseconds.
const LARGE_SLEEPER: &str = "\
import ctypes, mmap, select, sys, time
libc = ctypes.CDLL(None)
epoll = select.epoll()
events = ctypes.create_string_buffer(12)
m = mmap.mmap(-1, 4 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for line in sys.stdin:
    start = time.monotonic()
    print('waiting', flush=True)
    print(eval(line), round((time.monotonic() - start) * 1000), flush=True)";

/// The daemon's pid is that of this machine, not that of its node.
fn limit_daemon(pid: i32, bytes: &str) {
    let words = ["--pid", &pid.to_string(), &format!("--as={bytes}:")];
    let status = std::process::Command::new("prlimit").args(words).status();
    assert!(status.expect("prlimit runs").success());
}

/// Lets two departures fail when the program is frozen already, and the third succeed.
fn assert_waits(name: &str, wait: &str, expected: &str) {
    const WAIT_MS: u64 = 6_000;
    let stage = Stage::new(name, 2);
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", LARGE_SLEEPER];
    let mut program = stage.start(1, &words);
    let daemon = stage.node(2).daemon_pid().expect("node 2 is up");
    // What the daemon starts inherits its limit.
    limit_daemon(daemon, "1073741824");
    program.write(&format!("{}\n", wait.replace("WAIT_MS", &WAIT_MS.to_string())));
    assert_eq!(program.line(), "waiting");
    let pid = program.pid.to_string();
    let leaves = || {
        let output = stage.output(1, &["osmos", "migrate", &pid, "2"]);
        let complaint = String::from_utf8_lossy(&output.stderr);
        let lacks_memory = complaint.contains("Cannot allocate memory");
        assert!(output.status.success() || lacks_memory, "{complaint}");
        output.status.success()
    };
    assert!(!leaves() && !leaves());
    limit_daemon(daemon, "unlimited");
    // What the daemon keeps ready, and what it is just starting, has the limit still.
    until_true("it leaves", leaves);
    let line = program.line();
    let (result, waited_ms) = line.rsplit_once(' ').expect("two words");
    assert_eq!(result, expected);
    assert!(waited_ms.parse::<u64>().expect("a number") >= WAIT_MS, "{line}");
    assert_eq!(stage.place(program.pid), Some(2));
}

#[test]
fn a_sleeper_whose_departure_fails_when_it_is_frozen_can_still_leave() {
    if !needs::can_run(&["prlimit", "python3"]) {
        return;
    }
    assert_waits("sleeper", "select.poll().poll(WAIT_MS)", "[]");
}

/// epoll_wait(2) is one of the calls that Linux ends with EINTR for a mere stop.
#[test]
fn a_departure_that_fails_cuts_no_call_short() {
    if !needs::can_run(&["prlimit", "python3"]) {
        return;
    }
    assert_waits("cut", "libc.epoll_wait(epoll.fileno(), events, 1, WAIT_MS)", "0");
}
