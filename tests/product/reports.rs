//! What a move is told to keep to, and what it tells of itself.

use crate::stage::{Program, Stage, until};
use kernel::features::{Feature, settled};
use serde_json::Value;

/// Has 64 MiB that nothing is like; changes all of it over and over as long as it is told to, and
/// says how often it has.
const CHANGING: &str = "\
import random, select, sys
random.seed(7)
memory = bytearray(random.randbytes(64 << 20))
other, count, changes = bytes(memory), 0, False
print('ready', flush=True)
while True:
    if select.select([sys.stdin], [], [], 0 if changes else None)[0]:
        line = sys.stdin.readline()
        if not line: break
        changes = line == 'change\\n'
        print(count, flush=True)
    if changes:
        memory[:] = other
        count += 1";

fn start(stage: &Stage, options: &[&str]) -> Program {
    let words = [&["osmos", "run", "--home"][..], options, &["--", "python3", "-IS", "-c"]];
    let program = stage.start(1, &[&words.concat()[..], &[CHANGING]].concat());
    assert_eq!(program.line(), "ready");
    program
}

fn moved(stage: &Stage, program: &Program, to: &str, options: &[&str]) -> Value {
    let pid = program.pid.to_string();
    let words = [&["osmos", "migrate", "--json", &pid, to][..], options].concat();
    serde_json::from_str(&stage.text(1, &words)).expect("what the move was like")
}

fn phases(report: &Value) -> Vec<&str> {
    let phases = report["phases_ms"].as_array().expect("phases");
    phases.iter().map(|phase| phase[0].as_str().expect("a name")).collect()
}

fn number(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name} is a number: {report}"))
}

#[test]
fn each_way_of_moving_tells_its_phases_rounds_and_pages() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("told", 3);
    let program = start(&stage, &[]);
    let is_tracked = settled().has(Feature::WriteTracking);
    let out = ["offer", "draft", "look", "freeze", "capture", "send", "restore", "run"];
    let (away, on) = (["inspect", "connect", "settle"], ["connect", "ask", "tell"]);
    for (to, own) in [("2", away), ("3", on)] {
        let report = moved(&stage, &program, to, &[]);
        let copied = if is_tracked { &["track", "copy"][..] } else { &[] };
        for name in out.iter().chain(&own).chain(copied) {
            assert!(phases(&report).contains(name), "{name}: {report}");
        }
        assert_eq!(report["method"], if is_tracked { "pre-copy" } else { "stop-and-copy" });
        assert_eq!((number(&report, "rounds") > 0.0), is_tracked, "{report}");
        assert_eq!(report["predicted_freeze_ms"].is_number(), is_tracked, "{report}");
        assert!(number(&report, "pages_sent") >= 16_384.0, "{report}");
        assert_eq!(report["budget_ms"], 20);
        // Nothing of it is told twice, and little not at all.
        let timed: f64 = report["phases_ms"]
            .as_array()
            .expect("phases")
            .iter()
            .map(|phase| phase[1].as_f64().expect("a time"))
            .sum();
        let total = number(&report, "total_ms");
        assert!(timed <= total + 1.0 && timed >= total / 2.0, "{timed} of {report}");
    }
    let report = moved(&stage, &program, "home", &[]);
    assert_eq!(phases(&report), ["settle", "map", "receive", "restore", "let-go"]);
    assert_eq!(report["method"], "stop-and-copy");
    assert_eq!(report["rounds"], 0);
    assert!(report["predicted_freeze_ms"].is_null() && report["budget_ms"] == 20, "{report}");
    let told = stage.events(1, "migrated", program.pid);
    assert_eq!(told.len(), 3);
    for name in ["method", "rounds", "pages_sent", "predicted_freeze_ms", "budget_ms"] {
        assert_eq!(told[2][name], report[name], "{name}");
    }
}

#[test]
fn a_budget_is_that_of_the_process_or_else_of_its_home_and_outlives_the_daemon() {
    let stage = Stage::new("budget", 3);
    let [own, usual] = [&["--freeze-budget", "70"][..], &[]].map(|options| {
        // What it has of memory makes no difference.
        let words = [&["osmos", "run", "--home"], options, &["--", "cat"]].concat();
        let program = stage.start(1, &words);
        stage.await_managed(program.pid);
        program
    });
    let budget = |program: &Program, to: &str, options: &[&str]| {
        moved(&stage, program, to, options)["budget_ms"].as_u64().expect("a budget")
    };
    assert_eq!((budget(&own, "2", &[]), budget(&usual, "2", &[])), (70, 20));
    let state = stage.text(1, &["osmos", "limit", "--freeze-budget", "33", "--json"]);
    assert!(state.contains(r#""freeze_budget_ms":33"#), "{state}");
    assert_eq!((budget(&own, "3", &[]), budget(&usual, "3", &[])), (70, 33));
    stage.kill_daemon(1);
    stage.start_daemon(1);
    assert_eq!((budget(&own, "2", &[]), budget(&usual, "2", &[])), (70, 33));
    // Said of one move it holds for those after it.
    assert_eq!(budget(&own, "3", &["--freeze-budget", "44"]), 44);
    assert_eq!((budget(&own, "home", &[]), budget(&own, "2", &[])), (44, 44));
    stage.text(1, &["osmos", "limit", "--freeze-budget", "none"]);
    assert_eq!(budget(&usual, "home", &[]), 20);
    let pid = own.pid.to_string();
    let refused = [&["osmos", "migrate", &pid, "3"][..], &["osmos", "limit"], &["osmos", "up"]];
    for words in refused {
        let complaint = stage.complaint(1, &[words, &["--freeze-budget", "0"]].concat());
        assert!(complaint.contains("1 to 60000 ms, not 0"), "{complaint}");
    }
    assert_eq!(stage.place(own.pid), Some(2));
}

#[test]
fn what_a_move_will_take_is_learned_from_those_before_over_the_same_link() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    // 64 MiB take five seconds.
    let stage = Stage::with_link("learned", 2, "100mbit");
    let program = start(&stage, &[]);
    let pid = program.pid.to_string();
    let foreseen = || -> Value {
        until("node 2 is known", || {
            let output = stage.output(1, &["osmos", "what-if", "--json", &pid, "2"]);
            serde_json::from_slice(&output.stdout).ok()
        })
    };
    let guess = foreseen();
    assert!(number(&guess, "total_ms") < 2_000.0, "a gigabit is guessed: {guess}");
    assert!(guess["freeze_error_ms"].is_null(), "{guess}");
    let report = moved(&stage, &program, "2", &[]);
    assert!(number(&report, "expected_total_ms") < 2_000.0, "{report}");
    let error_ms = (number(&report, "expected_freeze_ms") - number(&report, "freeze_ms")).abs();
    moved(&stage, &program, "home", &[]);
    let known = foreseen();
    assert!(number(&known, "total_ms") > 3_000.0, "{known}");
    assert!((number(&known, "freeze_error_ms") - error_ms).abs() < 0.01, "{known} {error_ms}");
    let report = moved(&stage, &program, "2", &[]);
    assert!(number(&report, "expected_total_ms") > 3_000.0, "{report}");
}

/// Has 64 MiB of noise, other noise whenever it is told to, and a thread that never waits for its
/// home, which can take memory in by that.
const ANEW: &str = "\
import random, sys, threading
memory = bytearray(random.randbytes(64 << 20))
threading.Thread(target=threading.Event().wait, daemon=True).start()
print('ready', flush=True)
for line in sys.stdin:
    memory[:] = random.randbytes(64 << 20)
    print('done', flush=True)";

/// How long memory was copied for while the process ran, and how long that takes at least where no
/// more than so many bytes a second are sent.
fn copied(report: &Value, bytes_per_s: f64) -> (f64, f64) {
    let phases = report["phases_ms"].as_array().expect("phases");
    let copy = phases.iter().find(|phase| phase[0] == "copy").expect("it was copied ahead");
    let took_s = copy[1].as_f64().expect("a time") / 1e3;
    // Of 64 MiB of noise; what is on its way last, and what is made up for, are not waited for.
    let bytes = f64::from(56 << 20);
    assert!(number(report, "bytes_sent") >= bytes, "{report}");
    (took_s, bytes / bytes_per_s)
}

#[test]
fn moves_take_no_more_of_the_network_than_the_owners_of_both_nodes_allow() {
    if !needs::can_run(&["python3"]) || !settled().has(Feature::WriteTracking) {
        return;
    }
    let stage = Stage::new("held", 3);
    let mut program =
        stage.start(1, &["osmos", "run", "--home", "--", "python3", "-IS", "-c", ANEW]);
    assert_eq!(program.line(), "ready");
    let limit = |node: u32, words: &[&str]| {
        stage.text(node, &[&["osmos", "limit", "--json"][..], words].concat())
    };
    let state = limit(1, &["--move-bandwidth", "400Mbit", "--move-processors", "1"]);
    let told = r#""move_limits":{"bandwidth_bits_per_s":400000000,"processors":1}"#;
    assert!(state.contains(told), "{state}");
    assert!(stage.text(1, &["osmos", "nodes", "--json"]).contains(told));
    let slow = |report: Value, bytes_per_s: f64| {
        let (took_s, least_s) = copied(&report, bytes_per_s);
        assert!(took_s >= least_s, "{took_s} s, not {least_s}: {report}");
    };
    // Over the link alone.
    let report = moved(&stage, &program, "2", &[]);
    assert!(number(&report, "expected_total_ms") > 1_000.0, "it knows: {report}");
    slow(report, 50e6);
    // Of a node that is not its home, whose owner lets streams be.
    limit(1, &["--move-bandwidth", "none", "--move-processors", "none"]);
    limit(3, &["--move-bandwidth", "300Mbit"]);
    until("node 3 has told", || {
        let nodes = stage.text(1, &["osmos", "nodes", "--json"]);
        nodes.contains(r#""bandwidth_bits_per_s":300000000"#).then_some(())
    });
    slow(moved(&stage, &program, "3", &[]), 37.5e6);
    // And home, which has none of it any more.
    assert_eq!(program.ask("anew"), "done");
    slow(moved(&stage, &program, "home", &[]), 37.5e6);
    let refused = stage.complaint(1, &["osmos", "limit", "--move-bandwidth", "1Mbit"]);
    assert!(refused.contains("10Mbit to 1000Gbit"), "{refused}");
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn a_process_that_cannot_keep_to_its_budget_moves_nevertheless_and_says_so() {
    if !needs::can_run(&["python3"]) || !settled().has(Feature::WriteTracking) {
        return;
    }
    let stage = Stage::new("over-budget", 2);
    let mut program = start(&stage, &[]);
    program.ask("change");
    let report = moved(&stage, &program, "2", &["--freeze-budget", "1"]);
    assert!(number(&report, "predicted_freeze_ms") > 1.0, "{report}");
    assert!(number(&report, "freeze_ms") > 1.0, "{report}");
    assert!(number(&report, "rounds") > 1.0, "it was tried: {report}");
    let count: u64 = program.ask("stay").parse().expect("a count");
    program.ask("change");
    stage.migrate(program.pid, "home");
    let pid = program.pid.to_string();
    let told = stage.text(1, &["osmos", "migrate", &pid, "2", "--freeze-budget", "1"]);
    assert!(told.contains("(over its budget of 1 ms)") && told.contains(" rounds"), "{told}");
    stage.migrate(program.pid, "home");
    // With all the time that it wants it needs one look.
    let report = moved(&stage, &program, "2", &["--freeze-budget", "60000"]);
    assert_eq!(report["rounds"], 1, "{report}");
    assert!(program.ask("change").parse::<u64>().expect("a count") > count, "it computes");
    program.close_input();
    assert_eq!(program.end(), 0);
}
