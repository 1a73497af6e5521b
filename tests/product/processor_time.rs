//! What a program learns of its processor time while it is away, and what it may use.

use crate::stage::{Program, Stage, text, until, until_true};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::Write;
use std::process::Stdio;

/// Answers commands with what it found out about its clocks.
const CLOCKS: &str = include_str!("clocks.py");

fn start_reader(stage: &Stage) -> Program {
    stage.put(1, "/tmp/clocks.py", CLOCKS);
    let program =
        stage.start(1, &["osmos", "run", "--node", "2", "--", "python3", "-IS", "/tmp/clocks.py"]);
    assert_eq!(program.line(), "ready");
    stage.await_place(program.pid, 2);
    program
}

fn answer(line: &str) -> Value {
    serde_json::from_str(line).expect("an answer of the reader")
}

fn seconds(answer: &Value, name: &str) -> f64 {
    answer[name].as_f64().expect("a time")
}

fn is_sound(answer: &Value) -> bool {
    answer["backwards"] == 0 && answer["apart"] == 0
}

#[test]
fn clocks_of_a_program_that_is_away_tell_its_time_on_all_nodes() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("clocks", 3);
    let mut program = start_reader(&stage);
    let pid = program.pid;
    let came_home = stage.events(1, "came-home", pid).len();
    let (body, _) = stage.await_body(2, pid);
    let before = body.cpu_ticks();
    let first = answer(&program.ask("work 1"));
    let body_s = (body.cpu_ticks() - before) as f64 / 100.0;
    assert!(is_sound(&first), "{first}");
    assert!(first["readings"].as_u64().unwrap() > 20, "{first}");
    let told_s = seconds(&first, "process");
    assert!(told_s > body_s / 2.0 && told_s < 2.0 * body_s + 0.5, "{told_s} s, used {body_s} s");
    // On the way, and behind the next node's start from zero.
    program.write("work 1\n");
    stage.migrate(pid, "3");
    let moved = answer(&program.line());
    assert!(is_sound(&moved), "{moved}");
    let clock_s = seconds(&moved, "clock");
    assert!(clock_s >= seconds(&first, "clock"), "{moved} after {first}");
    let listed_s = until("osmos ps shows time of all nodes", || {
        let listed = stage.listed(1).iter().find(|p| p["pid"] == pid)?["cpu_s"].as_f64()?;
        (listed >= clock_s * 0.9).then_some(listed)
    });
    assert!(listed_s < clock_s * 2.0 + 1.0, "{listed_s} s are listed, {clock_s} s told");
    assert_eq!(stage.place(pid), Some(3));
    assert_eq!(stage.events(1, "came-home", pid).len(), came_home, "it did not have to come home");
    assert!(is_sound(&answer(&program.ask("thread"))));
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn time_of_a_thread_that_has_ended_stays_in_that_of_its_process() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("clock-thread", 2);
    let mut program = start_reader(&stage);
    let ended = answer(&program.ask("thread"));
    assert!(is_sound(&ended), "{ended}");
    assert!(seconds(&ended, "process") >= 0.3, "{ended}");
    assert!(seconds(&ended, "thread") < 0.15, "{ended}");
    assert_eq!(stage.place(program.pid), Some(2));
    assert!(is_sound(&answer(&program.ask("work 0.2"))));
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn home_does_not_show_time_spent_away_and_says_so_and_the_next_stay_does() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("clock-home", 2);
    let mut program = start_reader(&stage);
    let pid = program.pid;
    let away = answer(&program.ask("thread"));
    let away_s = seconds(&away, "clock");
    stage.migrate(pid, "home");
    stage.await_plain(pid);
    let told = until("it is told", || stage.events(1, "used-away", pid).pop());
    let told_s = told["away_s"].as_f64().unwrap();
    assert!(told_s > 0.3 && told_s < away_s, "{told} of {away}");
    assert!(stage.text(1, &["osmos", "why", &pid.to_string()]).contains("clocks at home"));
    let home_s = seconds(&answer(&program.ask("clock")), "clock");
    assert!(home_s < away_s - 0.15, "{home_s} s at home, {away_s} s away");
    let listed = stage.listed(1);
    let listed = listed.iter().find(|p| p["pid"] == pid).expect("it is listed");
    assert!(listed["cpu_s"].as_f64().unwrap() > told_s, "{listed} without {told}");
    stage.migrate(pid, "2");
    let again_s = seconds(&answer(&program.ask("clock")), "clock");
    assert!(again_s > away_s, "{again_s} s in the second stay, {away_s} s in the first");
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn a_limit_of_processor_time_holds_for_time_spent_away() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    const SIGXCPU: i32 = 24;
    let stage = Stage::new("cpu-limit", 2);
    let script = "ulimit -S -t 2; exec python3 -ISc 'while True: pass'";
    let mut program = stage.start(1, &["osmos", "run", "--node", "2", "--", "sh", "-c", script]);
    stage.await_place(program.pid, 2);
    assert_eq!(program.end(), 128 + SIGXCPU);
    until_true("it is gone", || stage.process(1, program.pid).is_none());
    stage.await_no_supervisors();
}

/// User and system time that a command of `osmos time` prints behind everything else.
fn printed(complaint: &str) -> [f64; 3] {
    let lines: Vec<&str> = complaint.lines().rev().take(3).collect();
    ["sys", "user", "real"].map(|name| {
        let line = lines.iter().find_map(|line| line.strip_prefix(name)).expect(complaint);
        line.trim().parse().expect(complaint)
    })
}

/// A shell that waits for two children, which compute for so long once they are told to.
const TWO_CHILDREN: &str = "\
test -p /tmp/go || mkfifo /tmp/go
compute() { osmos run --node 2 -- python3 -IS -c '
import os, time
os.read(os.open(\"/tmp/go\", os.O_RDONLY), 1)
while time.process_time() < 2: sum(range(1000))
sum(len(bytes(1 << 22)) for n in range(50))'; }
compute & compute; wait; exit 7";

#[test]
fn times_of_a_command_and_its_children_are_those_of_all_nodes() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("time", 2);
    let time = |options: &[&str]| {
        let words = [&["osmos", "time"], options, &["--home", "--", "sh", "-c", TWO_CHILDREN]];
        let mut command = stage.command(1, &words.concat());
        let child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a shell");
        let is_away = |process: &Value| process["command"] == "python3" && process["node"] == 2;
        until_true("both are away", || {
            stage.listed(1).iter().filter(|it| is_away(it)).count() == 2
        });
        // Kept open: one of them may have still to open it.
        let mut go = OpenOptions::new().read(true).write(true).open(stage.path(1, "/tmp/go"));
        go.as_mut().expect("a pipe").write_all(b"go").expect("there is room");
        child.wait_with_output().expect("our child")
    };
    let output = time(&[]);
    assert_eq!(output.status.code(), Some(7));
    let [sys, user, real] = printed(&text(&output.stderr));
    assert!(user + sys > 4.0 && user + sys < 9.0 && real > 2.0, "{user} + {sys} in {real} s");
    let output = time(&["--json"]);
    let told: Value = serde_json::from_str(text(&output.stderr).trim()).expect("an object");
    let away = seconds(&told, "away_user_s") + seconds(&told, "away_sys_s");
    let all = seconds(&told, "user_s") + seconds(&told, "sys_s");
    assert!(away > 2.0 && all > 4.0 && all > away && all < 9.0, "{told}");
    assert!(seconds(&told, "away_sys_s") > 0.0, "{told}: pages take system time");
    assert_eq!(told["exit_status"], 7);
}

/// Sees a child end that computes away as soon as it is told, and ends without having waited for
/// it.
const FORSAKEN: &str = "\
import os
compute = '''
import time
print(\"ready\", flush=True)
input()
end = time.process_time() + 1
while time.process_time() < end: sum(range(1000))'''
words = ['osmos', 'run', '--node', '2', '--', 'python3', '-IS', '-c', compute]
child = os.posix_spawnp(words[0], words, os.environ)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
os._exit(7)";

#[test]
fn time_used_away_counts_of_descendants_that_nobody_waited_for() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("time-forsaken", 2);
    stage.put(1, "/tmp/forsaken.py", FORSAKEN);
    let script = "exec osmos time --home --json -- python3 -IS /tmp/forsaken.py 2> /tmp/times";
    let mut program = stage.start(1, &["sh", "-c", script]);
    assert_eq!(program.line(), "ready");
    until_true("the child is away", || stage.listed(1).iter().any(is_away));
    program.write("compute\n");
    assert_eq!(program.end(), 7);
    let (told, away) = told_in_times(&stage);
    assert!(away > 0.9 && away < 3.0, "{told}");
}

/// Of a process that [`Stage::listed`] lists on node 1: is it node 1's, on node 2?
fn is_away(process: &Value) -> bool {
    process["node"] == 2 && process["home"] == 1
}

/// What `osmos time --json` has told in `/tmp/times` of node 1, and how much of it was used away.
fn told_in_times(stage: &Stage) -> (Value, f64) {
    let times = std::fs::read_to_string(stage.path(1, "/tmp/times")).expect("its times");
    let told = answer(times.trim());
    let away = seconds(&told, "away_user_s") + seconds(&told, "away_sys_s");
    (told, away)
}

#[test]
fn a_command_that_nothing_moves_is_timed_as_by_the_kernel() {
    let stage = Stage::new("time-home", 1);
    let output = stage.output(1, &["osmos", "time", "--home", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.code(), Some(128 + 15));
    let [sys, user, real] = printed(&text(&output.stderr));
    assert!(user + sys < real + 0.02, "{user} + {sys} in {real} s");
    let output = stage.output(1, &["osmos", "time", "--", "/nowhere/command"]);
    assert_eq!(output.status.code(), Some(127));
    let output = stage.output(1, &["osmos", "time", "--node", "9", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(!text(&output.stderr).contains("real"), "{}", text(&output.stderr));
}

#[test]
fn times_are_whole_if_a_daemon_takes_over_meanwhile() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("time-heir", 2);
    stage.put(1, "/tmp/clocks.py", CLOCKS);
    let script = "exec osmos time --home --json -- \
                  sh -c 'osmos run --node 2 -- python3 -IS /tmp/clocks.py; exit 7' 2> /tmp/times";
    let mut program = stage.start(1, &["sh", "-c", script]);
    assert_eq!(program.line(), "ready");
    until_true("the child is away", || stage.listed(1).iter().any(is_away));
    assert!(is_sound(&answer(&program.ask("thread"))));
    let used = answer(&program.ask("work 1"));
    stage.kill_daemon(1);
    stage.start_daemon(1);
    until_true("the child is known", || stage.listed(1).iter().any(is_away));
    program.close_input();
    assert_eq!(program.end(), 7);
    let (told, away) = told_in_times(&stage);
    assert!(away >= seconds(&used, "process") * 0.9, "{told} of {used}");
}
