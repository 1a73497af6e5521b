//! Waits that were begun at home end when they would have ended there.

use crate::stage::Stage;

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
