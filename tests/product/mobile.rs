//! Programs that are told that there is no io_uring (`osmos run --mobile`).

use crate::stage::{Program, Stage, until_true};

const RING: &str = include_str!("ring.py");
const NONE: &str = "Function not implemented";

fn start(stage: &Stage, words: &[&str]) -> Program {
    stage.put(1, "/tmp/ring.py", RING);
    let program = stage.start(1, &[&["osmos", "run", "--home"], words].concat());
    assert_eq!(program.line(), "ready");
    program
}

/// A kernel that gives no rings to anybody shows nothing here.
fn has_rings(stage: &Stage) -> bool {
    stage.put(1, "/tmp/ring.py", RING);
    let mut program = stage.start(1, &["python3", "-IS", "/tmp/ring.py"]);
    assert_eq!(program.line(), "ready");
    let answer = program.ask("ring()");
    if answer != "a ring" {
        needs::skip(&format!("io_uring_setup: {answer}"));
    }
    program.close_input();
    assert_eq!(program.end(), 0);
    answer == "a ring"
}

fn filters(stage: &Stage, pid: i32) -> String {
    let field = |name| stage.process(1, pid).and_then(|seen| seen.field(name));
    field("Seccomp_filters").expect("a process")
}

#[test]
fn a_mobile_program_has_no_io_uring_wherever_it_is_and_moves() {
    let stage = Stage::new("mobile", 2);
    if !needs::can_run(&["python3"]) || !has_rings(&stage) {
        return;
    }
    let mut plain = start(&stage, &["--", "python3", "-IS", "/tmp/ring.py"]);
    assert_eq!(plain.ask("ring()"), "a ring");
    let mut program = start(&stage, &["--mobile", "--", "python3", "-IS", "/tmp/ring.py"]);
    let pid = program.pid;
    assert_eq!((program.ask("ring()").as_str(), program.ask("by_child()").as_str()), (NONE, NONE));
    assert_eq!(filters(&stage, pid), "1");
    stage.migrate(pid, "2");
    assert_eq!(program.ask("ring()"), NONE);
    assert_eq!(stage.place(pid), Some(2), "it did not come home for it");
    stage.migrate(pid, "home");
    stage.await_plain(pid);
    assert_eq!(program.ask("ring()"), NONE);
    assert_eq!(filters(&stage, pid), "1", "it is as it was");
    // Its daemon is not the only one that knows.
    stage.kill_daemon(1);
    stage.start_daemon(1);
    until_true("it leaves again", || stage.try_migrate(pid, "2"));
    assert_eq!(program.ask("ring()"), NONE);
    for mut program in [plain, program] {
        program.close_input();
        assert_eq!(program.end(), 0);
    }
}

#[test]
fn what_a_mobile_program_starts_is_mobile_as_well() {
    let stage = Stage::new("mobile-child", 2);
    if !needs::can_run(&["python3"]) || !has_rings(&stage) {
        return;
    }
    let script = "python3 -IS /tmp/ring.py; echo ended";
    let mut program = start(&stage, &["--mobile", "--", "sh", "-c", script]);
    let pid: i32 = program.ask("os.getpid()").parse().expect("a pid");
    assert_ne!(pid, program.pid);
    stage.await_place(pid, 1);
    stage.migrate(pid, "2");
    assert_eq!(program.ask("ring()"), NONE);
    assert_eq!(stage.place(pid), Some(2));
    program.close_input();
    assert_eq!(program.line(), "ended");
    assert_eq!(program.end(), 0);
}

#[test]
fn a_mobile_program_with_a_filter_of_its_own_besides_stays_home() {
    let stage = Stage::new("mobile-filter", 2);
    if !needs::can_run(&["python3"]) {
        return;
    }
    let mut program = start(&stage, &["--mobile", "--", "python3", "-IS", "/tmp/ring.py"]);
    let pid = program.pid;
    assert_eq!(program.ask("allow_all()"), "0");
    assert_eq!(filters(&stage, pid), "2");
    let complaint = stage.complaint(1, &["osmos", "migrate", &pid.to_string(), "2"]);
    assert!(complaint.contains("seccomp filter of its own"), "{complaint}");
    assert_eq!(stage.place(pid), Some(1));
    assert_eq!(program.ask("6 * 7"), "42");
    program.close_input();
    assert_eq!(program.end(), 0);
}
