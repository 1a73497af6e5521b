//! What a program learns of its processor time while it is away, and what it may use.

use crate::stage::{Program, Stage, until, until_true};
use serde_json::Value;

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
