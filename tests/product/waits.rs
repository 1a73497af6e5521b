//! Waits that were begun at home end when they would have ended there.

use crate::stage::{Stage, until_true};

/// Waits for what does not come, and prints how long that took, seconds.
const WAITER: &str = "\
import ctypes, os, select, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
limit = (ctypes.c_long * 2)(3, 0)
word = ctypes.c_int(0)
usr1 = ctypes.c_ulong(1 << 9)
queue = libc.semget(0, 1, 0o1600)
wish = (ctypes.c_short * 3)(0, -1, 0)
waits = {
    'futex': lambda: libc.syscall(202, ctypes.byref(word), 0, 0, limit, None, 0),
    'epoll': lambda: select.epoll().poll(3),
    'semaphore': lambda: libc.semtimedop(queue, wish, 1, limit),
    'signal': lambda: libc.syscall(128, ctypes.byref(usr1), None, limit, 8),
}
for line in sys.stdin:
    print('waiting', flush=True)
    began = time.monotonic()
    waits[line.strip()]()
    print(time.monotonic() - began, flush=True)";

#[test]
fn the_first_move_of_a_waiting_process_does_not_make_it_wait_longer() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("waits", 3);
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", WAITER];
    let mut program = stage.start(1, &words);
    for wait in ["futex", "epoll", "semaphore", "signal"] {
        assert_eq!(program.ask(wait), "waiting");
        stage.text(1, &["sleep", "1.5"]);
        stage.migrate(program.pid, "2");
        stage.migrate(program.pid, "3");
        let waited: f64 = program.line().parse().expect("a number");
        // Begun anew with its whole time it would last 4.5 s.
        assert!((3.0..4.0).contains(&waited), "{wait}: {waited} s instead of 3");
        stage.migrate(program.pid, "home");
        stage.await_plain(program.pid);
    }
    program.close_input();
    assert_eq!(program.end(), 0);
}

/// Polls with descriptors that lie in a read-only shared mapping of a file: what a deputy has of
/// it cannot be written to.
const READ_ONLY_POLL: &str = "\
import ctypes, os, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
with open('/tmp/wishes', 'wb') as file: file.write(bytes(4096))
libc.mmap.restype = ctypes.c_void_p
at = libc.mmap(None, ctypes.c_size_t(4096), 1, 1, os.open('/tmp/wishes', 0), ctypes.c_long(0))
reader, writer = os.pipe()
with open('/tmp/wishes', 'r+b') as file: file.write(struct.pack('ihh', reader, 1, 0))
threading.Thread(target=lambda: libc.poll(ctypes.c_void_p(at), 1, 600000), daemon=True).start()
for line in sys.stdin: print(line, end='', flush=True)";

#[test]
fn a_process_that_polls_with_memory_that_cannot_be_written_to_is_not_lost() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("ro-poll", 2);
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", READ_ONLY_POLL];
    let mut program = stage.start(1, &words);
    assert_eq!(program.ask("started"), "started");
    let home = stage.process(1, program.pid).expect("it lives");
    until_true("a thread polls", || home.waits_in(7));
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask("away"), "away");
    stage.migrate(program.pid, "home");
    assert_eq!(program.ask("home"), "home");
}
