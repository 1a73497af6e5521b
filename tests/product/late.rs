//! Memory that comes behind its process.

use crate::stage::{Program, Stage, build, until, until_true};
use crate::terminal::Terminal;
use kernel::features::{Feature, settled};
use lab::Disturbance;
use serde_json::Value;

/// The built program of `behind.c`.
struct Behind(tempfile::TempDir);

impl Behind {
    /// None where nothing can come behind a process.
    fn build_if_served() -> Option<Behind> {
        if !settled().has(Feature::KernelFaults) {
            needs::skip("this kernel, or this user, does not serve faults (`osmos doctor`)");
            return None;
        }
        Some(Behind::build())
    }

    fn build() -> Behind {
        let dir = tempfile::tempdir().expect("a directory");
        build("behind", &["-O2", "-pthread"], dir.path());
        Behind(dir)
    }

    fn start(&self, stage: &Stage, words: &[&str]) -> Program {
        self.start_with(stage, &[], words)
    }

    /// `osmos run` is told these options besides.
    fn start_with(&self, stage: &Stage, options: &[&str], words: &[&str]) -> Program {
        // `/tmp` of this machine is hidden in the nodes.
        let inside = "/tmp/behind";
        if !stage.path(1, inside).exists() {
            std::fs::copy(self.0.path().join("behind"), stage.path(1, inside)).expect("a copy");
        }
        let run = ["osmos", "run", "--home"];
        let program = stage.start(1, &[&run[..], options, &["--", inside], words].concat());
        assert_eq!(program.line(), "ready");
        program
    }
}

/// Moves it to node 2, its pages behind it.
fn leave(stage: &Stage, program: &Program) -> Value {
    let pid = program.pid.to_string();
    let words = ["osmos", "migrate", "--json", &pid, "2", "--method", "post-copy"];
    // The balancing may have been sooner.
    let report: Value = until("it leaves", || {
        stage.migrate(program.pid, "home");
        let output = stage.output(1, &words);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("a report"))
    });
    assert_eq!((&report["method"], &report["rounds"]), (&"post-copy".into(), &0.into()));
    assert!(report["pages_late"].as_u64().expect("a number") > 1000, "{report}");
    report
}

/// What was told when its last page was there, which it has been so often before.
fn await_filled(stage: &Stage, program: &Program, before: usize) -> Value {
    until("all its pages are there", || stage.events(1, "filled", program.pid).get(before).cloned())
}

#[test]
fn memory_that_is_changed_wildly_arrives_behind_its_process_as_it_has_to_be() {
    let Some(behind) = Behind::build_if_served() else { return };
    let stage = Stage::with_link("wildly", 2, "400mbit");
    let mut program = behind.start(&stage, &["48", "3"]);
    for _ in 0..3 {
        assert_eq!(program.ask(""), "right", "at home");
        let before = stage.events(1, "filled", program.pid).len();
        let report = leave(&stage, &program);
        for _ in 0..3 {
            assert_eq!(program.ask(""), "right", "away");
        }
        let filled = await_filled(&stage, &program, before);
        let count = |name: &str| filled[name].as_u64().expect("a number");
        assert!(count("faults") > 0, "{filled}");
        let pages = count("pages_faulted") + count("pages_filled");
        assert_eq!(report["pages_late"], pages, "each came once: {filled}");
        assert_eq!(program.ask(""), "right", "with all pages");
        // It may have had to come home for a call.
        stage.migrate(program.pid, "home");
        assert_eq!(program.ask(""), "right", "at home again");
    }
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn a_method_that_run_was_told_holds_for_moves_that_are_not_told_another() {
    let Some(behind) = Behind::build_if_served() else { return };
    let stage = Stage::with_link("told", 2, "400mbit");
    let mut program = behind.start_with(&stage, &["--method", "post-copy"], &["48", "2"]);
    let pid = program.pid.to_string();
    for (options, expected) in [(&[][..], "post-copy"), (&["--method", "pre-copy"], "pre-copy")] {
        stage.migrate(program.pid, "home");
        let words = [&["osmos", "migrate", "--json", &pid, "2"], options].concat();
        let output = stage.output(1, &words);
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        assert_eq!(report["method"], expected, "{report}");
        assert_eq!(program.ask(""), "right");
    }
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn a_process_that_is_called_home_while_pages_are_absent_comes_with_all_of_them() {
    let Some(behind) = Behind::build_if_served() else { return };
    // All of it takes two seconds.
    let stage = Stage::with_link("homeward", 3, "200mbit");
    let mut program = behind.start(&stage, &["48", "2"]);
    leave(&stage, &program);
    stage.migrate(program.pid, "home");
    assert_eq!(stage.events(1, "filled", program.pid).len(), 1);
    assert_eq!(program.ask(""), "right");
    leave(&stage, &program);
    // Nor does it move on without them.
    stage.migrate(program.pid, "3");
    assert_eq!(program.ask(""), "right");
    stage.migrate(program.pid, "home");
    assert_eq!(program.ask(""), "right");
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn who_waits_for_the_last_pages_sees_how_many_are_left() {
    let Some(behind) = Behind::build_if_served() else { return };
    // Eight seconds; what is over within one is not told of.
    let stage = Stage::with_link("shown", 2, "50mbit");
    let mut program = behind.start(&stage, &["48", "1"]);
    leave(&stage, &program);
    let pid = program.pid.to_string();
    let mut terminal = Terminal::open(&stage, &["osmos", "migrate", &pid, "home"]);
    terminal.expect("waits for its last pages");
    terminal.expect("moved from node 2 (");
    assert_eq!(program.ask(""), "right");
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn a_network_that_is_cut_while_pages_are_absent_costs_time_only() {
    let Some(behind) = Behind::build_if_served() else { return };
    let stage = Stage::with_link("cut-behind", 2, "100mbit");
    let mut program = behind.start(&stage, &["48", "2"]);
    leave(&stage, &program);
    // The first packets that go from now on, and then none.
    stage.disturb(&Disturbance { cut_after: Some(1), ..Disturbance::default() });
    until_true("node 1 misses node 2", || stage.status_of(2).as_deref() != Some("alive"));
    assert!(stage.events(1, "filled", program.pid).is_empty(), "it is cut in the middle");
    stage.disturb(&Disturbance::default());
    assert_eq!(program.ask(""), "right");
    await_filled(&stage, &program, 0);
    assert_eq!(program.ask(""), "right");
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn with_either_half_lost_while_pages_are_absent_nothing_is_left_behind() {
    let Some(behind) = Behind::build_if_served() else { return };
    let stage = Stage::with_link("lost-behind", 2, "100mbit");
    for half in ["body", "deputy"] {
        let program = behind.start(&stage, &["48", "2"]);
        leave(&stage, &program);
        let node = if half == "body" { 2 } else { 1 };
        let supervisors = stage.supervisors(node, half);
        supervisors.first().expect("there is one").kill();
        until_true("the process is gone", || stage.process(1, program.pid).is_none());
        stage.await_no_supervisors();
    }
}

#[test]
fn without_what_it_takes_a_process_stays_where_it_is_if_its_pages_are_to_come_behind_it() {
    let stage = Stage::without(&["kernel-faults"], "never-behind", 2);
    let program = Behind::build().start(&stage, &["4", "1"]);
    let pid = program.pid.to_string();
    let words = ["osmos", "migrate", &pid, "2", "--method", "post-copy"];
    let complaint = stage.complaint(1, &words);
    assert!(complaint.contains("its pages cannot come behind it"), "{complaint}");
    assert_eq!(stage.place(program.pid), Some(1));
    stage.migrate(program.pid, "2");
}
