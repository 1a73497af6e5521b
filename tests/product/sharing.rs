//! Who shares memory with a process that is to leave keeps it: the process takes him along, or
//! stays.

use crate::stage::{Program, Stage, text, until, until_true};

/// Does what each line says, and prints what comes of it.
const OBEDIENT: &str = "\
import ctypes, mmap, os, signal, struct, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
for line in sys.stdin:
    try: print(eval(line), flush=True)
    except Exception as error: print(type(error).__name__, error, flush=True)";

fn start(stage: &Stage) -> Program {
    stage.start(1, &["osmos", "run", "--home", "--", "python3", "-IS", "-c", OBEDIENT])
}

/// A child that waits for a signal and then says whether the shared memory is as it was.
const FORK: &str = "[child := os.fork(), child or (signal.sigwait([signal.SIGUSR1]), \
                    os._exit(0 if m[:5] == b'whole' else 1))][0]";

#[test]
fn memory_that_is_shared_while_a_move_is_prepared_is_not_emptied() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("shared-late", 2);
    let mut program = start(&stage);
    // A large file that the target has not: it is sent before the process is frozen.
    let file = "[open('/tmp/large', 'wb').close(), os.truncate('/tmp/large', 400 << 20)][0]";
    assert_eq!(program.ask(file), "None");
    let map = "globals().update(f=mmap.mmap(os.open('/tmp/large', 0), 400 << 20, 2, 1), \
               m=mmap.mmap(-1, 4096)) or m.write(b'whole')";
    assert_eq!(program.ask(map), "5");
    assert_eq!(program.ask("signal.pthread_sigmask(0, [signal.SIGUSR1])"), "set()");
    let pid = program.pid.to_string();
    let migration = stage.begin(1, &["osmos", "migrate", &pid, "2"]);
    // By now the deputy's supervisor has made its first check, and hashed the file.
    until_true("the process is offered", || !stage.supervisors(2, "body").is_empty());
    let child = program.ask(FORK);
    let output = migration.wait_with_output().expect("it ends");
    // It takes the child along, if that is known to be there by now.
    if output.status.success() {
        assert_eq!(stage.place(child.parse().expect("a pid")), Some(2));
        stage.migrate(program.pid, "home");
    } else {
        let complaint = text(&output.stderr);
        assert!(complaint.contains(&format!("with process {child}")), "{complaint}");
    }
    assert_eq!(program.ask(&format!("os.kill({child}, 10)")), "None");
    assert_eq!(program.ask(&format!("os.waitpid({child}, 0)[1]")), "0", "its memory is whole");
    assert_eq!(program.ask("m[:5]"), "b'whole'");
    stage.await_plain(program.pid);
}

#[test]
fn a_program_that_is_just_being_started_and_its_parent_stay_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("vfork", 2);
    let mut program = start(&stage);
    assert_eq!(program.ask("os.mkfifo('/tmp/gate')"), "None");
    // posix_spawn: the child, which has all of its parent's memory, waits for somebody to write.
    program.write(
        "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}, \
         file_actions=[(os.POSIX_SPAWN_OPEN, 9, '/tmp/gate', os.O_RDONLY, 0)]), 0)[1]\n",
    );
    let child = until("the child is there", || {
        let parent = stage.process(1, program.pid)?;
        stage.processes(1).into_iter().find(|p| p.parent == parent.pid && p.waits_in(257))
    });
    let pids = [program.pid, child.inner_pid];
    for (pid, other) in [(pids[0], pids[1]), (pids[1], pids[0])] {
        if pid == child.inner_pid {
            stage.output(1, &["osmos", "adopt", &pid.to_string()]);
        }
        let complaint = stage.complaint(1, &["osmos", "migrate", &pid.to_string(), "2"]);
        let expected = format!("shares all its memory with process {other}");
        assert!(complaint.contains(&expected), "{pid}: {complaint}");
    }
    assert!(stage.output(1, &["sh", "-c", ": > /tmp/gate"]).status.success());
    assert_eq!(program.line(), "0", "the program was started, and ended well");
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask("6 * 7"), "42");
}

#[test]
fn who_does_not_let_itself_be_looked_into_counts_as_sharing() {
    if !needs::can_run(&["python3", "setpriv"]) {
        return;
    }
    let stage = Stage::new("secretive", 2);
    let user = ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"];
    let run = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", OBEDIENT];
    let mut program = stage.start(1, &[&user[..], &run].concat());
    assert_eq!(program.ask("globals().update(m=mmap.mmap(-1, 4096))"), "None");
    // Others that cannot be looked into, and have nothing to do with it: they do not matter.
    let mut stranger = stage.start(1, &["python3", "-IS", "-c", OBEDIENT]);
    assert_eq!(stranger.ask("1"), "1");
    stage.migrate(program.pid, "2");
    stage.migrate(program.pid, "home");
    // PR_SET_DUMPABLE: as a set-user-id program that has given up its rights.
    let fork = "[child := os.fork(), child or (libc.prctl(4, 0), signal.pause())][0]";
    let child = program.ask(fork);
    let pid = program.pid.to_string();
    let complaint = stage.complaint(1, &["osmos", "migrate", &pid, "2"]);
    assert!(complaint.contains("shared memory"), "{complaint}");
    assert!(complaint.contains(&format!("process {child}")), "{complaint}");
    assert_eq!(program.ask("6 * 7"), "42");
    stage.await_plain(program.pid);
}
