//! A process that is away is stopped, continued and ended by its terminal, its parent and others as
//! if it were at home.

use crate::stage::{COUNTING, Seen, Stage, until, until_true};
use crate::terminal::Terminal;
use std::time::Duration;

/// Tells what it learns of its child.
const PARENT: &str = include_str!("parent.py");
/// The number of the system call.
const READ: i64 = 0;
/// Computes for ever.
const BUSY: &str = "while True: pass";
/// Waits in a read, which is forwarded, and then does what it read.
const OBEDIENT: &str = "\
for line in sys.stdin: exec(line)";

/// Runs a script away from home as the child of [`PARENT`] on a terminal of its own, until it is
/// past the start of its interpreter.
fn start_child(stage: &Stage, place: &str, script: &str) -> (Terminal, i32) {
    // Loading modules maps files, for which a process comes home.
    let modules = "import ctypes, os, signal, sys, time";
    let script = format!("{modules}\nprint('<ready>', flush=True)\n{script}");
    let away = ["osmos", "run", "--node", "2", "--", "python3", "-IS", "-c", &script];
    let words = [&["python3", "-IS", "-c", PARENT, place], &away[..]].concat();
    let mut terminal = Terminal::open(stage, &words);
    terminal.expect("<child ");
    let pid = terminal.expect(">").parse().expect("a pid");
    terminal.expect("<ready>");
    stage.await_place(pid, 2);
    (terminal, pid)
}

#[test]
fn control_c_ends_a_process_that_is_away_and_its_parent_sees_it() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("ctrl-c", 2);
    for script in [BUSY, OBEDIENT, "time.sleep(300)"] {
        // Python turns SIGINT into an exception unless it is told otherwise.
        let script =
            format!("signal.signal(2, signal.SIG_DFL); print('<set>', flush=True)\n{script}");
        let (mut terminal, pid) = start_child(&stage, "fg", &script);
        terminal.expect("<set>");
        stage.await_body(2, pid);
        terminal.type_text("\x03");
        terminal.expect("<killed 2>");
        stage.await_no_supervisors();
    }
}

// Programs that are sent one signal after another do not pause(): natively, too, Python does not
// wake up for a signal that comes between its last look and that call.

#[test]
fn a_handler_that_is_away_hears_control_c() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("handler", 2);
    let script = "\
def told(number, frame): print('<heard', number, '>', flush=True)
signal.signal(signal.SIGINT, told)
print('<set>', flush=True)
while True: time.sleep(0.1)";
    let (mut terminal, pid) = start_child(&stage, "fg", script);
    terminal.expect("<set>");
    stage.await_body(2, pid);
    for _ in 0..3 {
        terminal.type_text("\x03");
        terminal.expect("<heard 2 >");
    }
    assert_eq!(stage.place(pid), Some(2));
    terminal.type_text("\x1c");
    terminal.expect("<killed 3>");
}

#[test]
fn control_z_stops_body_and_process_and_both_go_on_when_continued() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("ctrl-z", 2);
    let (mut terminal, pid) = start_child(&stage, "fg", BUSY);
    let (body, _) = stage.await_body(2, pid);
    until_true("the body computes", || body.cpu_ticks() > 5);
    for _ in 0..3 {
        terminal.type_text("\x1a");
        terminal.expect("<stopped 20>");
        let before = await_still(&body);
        // Long enough for a body that only looks still.
        stage.text(2, &["sleep", "0.3"]);
        assert_eq!(body.cpu_ticks(), before, "the body of a stopped process computes");
        stage.signal(1, pid, "CONT");
        terminal.expect("<continued>");
        until_true("the body computes again", || body.cpu_ticks() > before + 5);
    }
    stage.signal(1, pid, "KILL");
    terminal.expect("<killed 9>");
    stage.await_no_supervisors();
}

/// Waits until a body is held by its tracer; returns its processor time then.
fn await_still(body: &Seen) -> u64 {
    until("the body is held", || {
        let is_held = body.field("State").is_some_and(|state| state.starts_with('t'));
        is_held.then(|| body.cpu_ticks())
    })
}

#[test]
fn a_stopped_process_can_still_be_brought_home_or_killed() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("stopped", 2);
    for (ending, script) in [("KILL", BUSY), ("home", BUSY), ("KILL", OBEDIENT), ("home", OBEDIENT)]
    {
        let (mut terminal, pid) = start_child(&stage, "fg", script);
        let (body, _) = stage.await_body(2, pid);
        terminal.type_text("\x1a");
        terminal.expect("<stopped 20>");
        if script == BUSY {
            await_still(&body);
        }
        if ending == "home" {
            stage.migrate(pid, "home");
            stage.await_no_supervisors();
            // One that is detached is woken to stop as one without a tracer (__ptrace_unlink in
            // kernel/ptrace.c), and is runnable until it has had a processor for that.
            until_true("a stopped process that came home is stopped", || {
                stage.process(1, pid).expect("it lives").state == 'T'
            });
            stage.signal(1, pid, "CONT");
            terminal.expect("<continued>");
            stage.await_plain(pid);
        }
        stage.signal(1, pid, "KILL");
        terminal.expect("<killed 9>");
        stage.await_no_supervisors();
    }
}

#[test]
fn a_shell_on_a_terminal_stops_foregrounds_and_interrupts_a_job_that_is_away() {
    if !needs::can_run(&["bash", "python3"]) {
        return;
    }
    let stage = Stage::new("shell", 2);
    let mut terminal = Terminal::open(&stage, &["bash", "--norc", "-i"]);
    terminal.type_text("PS1='ready> '; set -b\n");
    terminal.expect("ready> ");
    stage.put(1, "/tmp/echo.py", "while True: print(f'<{input()}>', flush=True)");
    terminal.type_text("osmos run --node 2 -- python3 -IS /tmp/echo.py\n");
    terminal.type_text("first\n");
    terminal.expect("<first>");
    let pid = stage.listed(1)[0]["pid"].as_i64().expect("a pid") as i32;
    stage.await_place(pid, 2);
    terminal.type_text("\x1a");
    terminal.expect("Stopped");
    terminal.type_text("fg\n");
    terminal.type_text("second\n");
    terminal.expect("<second>");
    assert_eq!(stage.place(pid), Some(2));
    terminal.type_text("\x1a");
    terminal.expect("Stopped");
    terminal.type_text("bg\n");
    // In the background it may not read: the terminal stops it again.
    terminal.expect("Stopped");
    terminal.type_text("fg\n");
    terminal.type_text("third\n");
    terminal.expect("<third>");
    // Python notes a signal and looks at the note before it reads, not once it reads: natively too
    // it sleeps over what comes in between.
    let seen = stage.process(1, pid).expect("it lives");
    until_true("it reads", || seen.waits_in(READ));
    terminal.type_text("\x03");
    terminal.expect("KeyboardInterrupt");
    terminal.type_text("echo \"<status $?>\"\n");
    terminal.expect("<status 130>");
    stage.await_no_supervisors();
}

#[test]
fn a_background_process_that_is_away_is_stopped_when_it_reads_from_the_terminal() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("ttin", 2);
    let script = "\
while not os.path.exists('/tmp/go'): time.sleep(0.01)
print(f'<{input()}>')";
    let (mut terminal, pid) = start_child(&stage, "bg", script);
    stage.await_body(2, pid);
    stage.text(1, &["touch", "/tmp/go"]);
    terminal.expect("<stopped 21>");
    stage.signal(1, pid, "CONT");
    // It reads again, still in the background, and stops before its parent may have heard that it
    // went on: then Linux never tells.
    terminal.expect("<stopped 21>");
    stage.signal(1, pid, "KILL");
    terminal.expect("<killed 9>");
}

#[test]
fn signals_of_other_processes_end_stop_and_continue_a_process_that_is_away() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("kill", 2);
    let numbers =
        [("HUP", 1), ("KILL", 9), ("USR1", 10), ("ALRM", 14), ("TERM", 15), ("RTMIN", 34)];
    for (name, number) in numbers {
        let (mut terminal, pid) = start_child(&stage, "fg", BUSY);
        stage.await_body(2, pid);
        stage.signal(1, pid, "STOP");
        terminal.expect("<stopped 19>");
        stage.signal(1, pid, "CONT");
        terminal.expect("<continued>");
        stage.signal(1, pid, name);
        terminal.expect(&format!("<killed {number}>"));
        stage.await_no_supervisors();
    }
}

/// Stops and continues a process so many times.
const HAIL: &str = "\
import os, sys, time
pid, count = map(int, sys.argv[1:])
for turn in range(count):
    os.kill(pid, 19)
    time.sleep(turn % 7 / 2000)
    os.kill(pid, 18)
    time.sleep(turn % 5 / 2000)";

#[test]
fn a_process_stopped_and_continued_while_it_moves_is_never_stuck_and_never_runs_on() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("hail", 3);
    let words = ["osmos", "run", "--storm", "5", "--", "python3", "-IS", "-c", COUNTING];
    let mut program = stage.start(1, &words);
    let pid = program.pid;
    for _ in 0..10 {
        stage.text(1, &["python3", "-IS", "-c", HAIL, &pid.to_string(), "50"]);
        program.ask("");
        stage.signal(1, pid, "STOP");
        program.write("\n");
        assert!(program.is_silent_for(Duration::from_millis(20)), "it runs though it is stopped");
        stage.signal(1, pid, "CONT");
        program.line();
    }
    assert!(stage.events(1, "migrated", pid).len() > 20, "it moves");
    let stayed = stage.events(1, "stayed", pid);
    let is_stuck = |event: &&serde_json::Value| event["reason"]["code"] == "kernel";
    assert_eq!(stayed.iter().find(is_stuck), None);
    let process = stage.process(1, pid).expect("it lives");
    program.close_input();
    // Who started it was stopped with it, and nobody continues that.
    until_true("it has ended", || !process.is_there());
}

#[test]
fn exit_statuses_and_deaths_of_its_own_making_are_those_of_a_process_at_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("status", 2);
    let ends = [
        ("sys.exit(7)", "<exited 7>"),
        ("os._exit(0)", "<exited 0>"),
        ("ctypes.string_at(0)", "<killed 11>"),
        ("os.abort()", "<killed 6>"),
        ("os.kill(os.getpid(), signal.SIGTERM)", "<killed 15>"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "<killed 9>"),
        ("os.kill(os.getpid(), signal.SIGFPE)", "<killed 8>"),
    ];
    for (line, expected) in ends {
        let (mut terminal, pid) = start_child(&stage, "fg", OBEDIENT);
        stage.await_body(2, pid);
        // The terminal shows what is typed, too.
        terminal.type_text(&format!("{line}\n"));
        let between = terminal.expect(expected);
        assert!(!between.contains("Traceback"), "{line}: {between}");
        stage.await_no_supervisors();
    }
}

#[test]
fn a_window_that_changes_its_size_is_noticed_away() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("winch", 2);
    let script = "\
def told(number, frame): print(f'<{os.get_terminal_size().columns} columns>', flush=True)
signal.signal(signal.SIGWINCH, told)
print('<set>', flush=True)
while True: time.sleep(0.1)";
    let (mut terminal, pid) = start_child(&stage, "fg", script);
    terminal.expect("<set>");
    stage.await_body(2, pid);
    terminal.resize(91);
    terminal.expect("<91 columns>");
    terminal.resize(57);
    terminal.expect("<57 columns>");
}
