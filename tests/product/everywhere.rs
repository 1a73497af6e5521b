//! What is seen and done from any node: the processes, events and reasons of all of them.

use crate::stage::{COUNTING, Program, Stage, until, until_true};
use serde_json::Value;

fn start(stage: &Stage, home: u32, to: &str) -> Program {
    let words = ["osmos", "run", "--node", to, "--", "python3", "-IS", "-c", COUNTING];
    let mut program = stage.start(home, &words);
    program.ask("where");
    program
}

fn of_all(stage: &Stage, node: u32) -> Vec<Value> {
    let text = stage.text(node, &["osmos", "ps", "--all", "--json"]);
    serde_json::from_str(&text).expect("a list of processes")
}

/// Home, pid and place of each.
fn places(processes: &[Value]) -> Vec<(u64, i64, u64)> {
    let place = |process: &Value| {
        Some((process["home"].as_u64()?, process["pid"].as_i64()?, process["node"].as_u64()?))
    };
    processes.iter().map(|process| place(process).expect("numbers")).collect()
}

#[test]
fn every_node_shows_each_process_once_with_its_command_line_wherever_it_is() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::joined("everywhere", 3);
    let first = start(&stage, 1, "2");
    let second = start(&stage, 3, "1");
    let expected = [(1, i64::from(first.pid), 2), (3, i64::from(second.pid), 1)];
    for node in 1..=3 {
        until_true("all are where they are to be", || places(&of_all(&stage, node)) == expected);
    }
    for process in of_all(&stage, 2) {
        let line = process["command_line"].as_str().expect("a command line");
        assert!(line.contains("python3 -IS -c import select, sys"), "{line}");
        assert_eq!((&process["user"], &process["uid"]), (&"root".into(), &0.into()));
    }
    let shown = stage.text(2, &["osmos", "ps", "--all", "--node", "1", "--user", "root"]);
    let row = shown.lines().nth(1).expect("a row");
    let words: Vec<&str> = row.split_whitespace().take(4).collect();
    let [third, first_host] = [3, 1].map(|node| stage.node(node).host_name());
    assert_eq!(words, [second.pid.to_string().as_str(), &third, &first_host, "root"], "{shown}");
    assert_eq!(shown.lines().count(), 2, "a row is a line: {shown}");
    // Of another node's process, from a third.
    let name = format!("1:{}", first.pid);
    let why = stage.text(3, &["osmos", "why", &name]);
    assert!(why.contains(") of node 1 (") && why.contains(") is on node 2 ("), "{why}");
    let moved = stage.text(3, &["osmos", "migrate", &name, "3"]);
    assert!(moved.contains("from node 2 (") && moved.contains(" to node 3 ("), "{moved}");
    stage.await_place(first.pid, 3);
    let why = stage.text(2, &["osmos", "why", &name]);
    assert!(
        why.contains("on node 3 (") && why.contains(") asked"),
        "who has moved it, and from where: {why}"
    );
    let events = stage.text(2, &["osmos", "events", "--all", "--json"]);
    let events: Vec<Value> =
        events.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    let is_move = |event: &&Value| event["event"] == "migrated" && event["to"] == 3;
    let moved = events.iter().find(is_move).expect("the move");
    assert_eq!((&moved["told_by"], &moved["process"]["pid"]), (&1.into(), &first.pid.into()));
    let times: Vec<f64> = events.iter().filter_map(|event| event["time"].as_f64()).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn what_happens_on_any_node_is_followed_and_told_once() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::joined("follow", 3);
    let follower = stage.start(2, &["osmos", "events", "--all", "--follow", "--json"]);
    let watcher = stage.start(2, &["osmos", "ps", "--all", "--watch=0.1", "--json"]);
    let program = start(&stage, 3, "1");
    let mut managed = 0;
    loop {
        let event: Value = serde_json::from_str(&follower.line()).expect("an event");
        if event["told_by"] != 3 || event["process"]["pid"] != program.pid {
            continue;
        }
        managed += u32::from(event["event"] == "managed");
        if event["event"] == "migrated" {
            break;
        }
    }
    assert_eq!(managed, 1, "whether it was recorded before or came after");
    until_true("it is seen there", || {
        let picture: Vec<Value> = serde_json::from_str(&watcher.line()).expect("a picture");
        places(&picture).contains(&(3, i64::from(program.pid), 1))
    });
}

#[test]
fn what_happens_on_a_node_that_joins_later_is_followed_too_and_on_one_that_comes_back() {
    let stage = Stage::of_nodes_without_daemons("follow-later", 2);
    let up = |node| stage.text(node, &["osmos", "up", "--lend-root", "on"]);
    up(1);
    let follower = stage.start(1, &["osmos", "events", "--all", "--follow", "--json"]);
    // It follows: it tells of the first node.
    let first = stage.start(1, &["osmos", "run", "--home", "--", "sleep", "300"]);
    let await_managed = |by: u32, program: &Program| loop {
        let event: Value = serde_json::from_str(&follower.line()).expect("an event");
        let is_its = event["told_by"] == by && event["process"]["pid"] == program.pid;
        if is_its && event["event"] == "managed" {
            return;
        }
    };
    await_managed(1, &first);
    up(2);
    stage.join(2, 1);
    let second = stage.start(2, &["osmos", "run", "--home", "--", "sleep", "300"]);
    await_managed(2, &second);
    // Another daemon takes its place: the link is lost and made anew.
    stage.text(2, &["osmos", "up", "--replace"]);
    let third = stage.start(2, &["osmos", "run", "--home", "--", "sleep", "300"]);
    await_managed(2, &third);
}

#[test]
fn a_node_says_how_far_away_it_is_and_what_its_clock_shows() {
    let stage = Stage::joined("ping", 2);
    let found = stage.text(1, &["osmos", "ping", "2", "--count", "3", "--json"]);
    let found: Value = serde_json::from_str(&found).expect("JSON");
    let number = |name: &str| found[name].as_f64().expect("a number");
    assert_eq!((&found["node"], &found["asked"]), (&2.into(), &3.into()));
    assert!(number("round_trip_ms_min") <= number("round_trip_ms_median"), "{found}");
    // Both are the same machine's.
    assert!(number("clock_ahead_s").abs() <= number("clock_error_s"), "{found}");
    let shown = stage.text(1, &["osmos", "ping", "2"]);
    assert!(shown.contains("clock           the same, within "), "{shown}");
    let told = stage.complaint(1, &["osmos", "ping", "9"]);
    assert!(told.contains("there is no node 9; there are 1 ("), "{told}");
    stage.text(2, &["osmos", "down"]);
    let told = stage.complaint(1, &["osmos", "ping", "2"]);
    assert!(told.contains(") cannot be reached") || told.contains("link to node 2 ("), "{told}");
}

#[test]
fn a_signal_reaches_a_process_of_another_node_wherever_it_is() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::joined("kill-far", 3);
    let mut program = start(&stage, 1, "2");
    let name = format!("1:{}", program.pid);
    let complaint = stage.complaint(3, &["osmos", "kill", "-s", "NOSUCH", &name]);
    assert!(complaint.contains("there is no signal `NOSUCH`"), "{complaint}");
    let complaint = stage.complaint(3, &["osmos", "kill", "1:1"]);
    assert!(
        complaint.contains("node 1 (") && complaint.contains(") has no process 1 under osmos"),
        "{complaint}"
    );
    let complaint = stage.complaint(3, &["osmos", "kill", &format!("9:{}", program.pid)]);
    assert!(complaint.contains("there is no node 9; there are 1 ("), "{complaint}");
    stage.text(3, &["osmos", "kill", &name]);
    assert_eq!(program.end(), 128 + 15);
}

#[test]
fn a_node_that_does_not_answer_is_named_and_what_is_known_of_its_processes_is_shown() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("silent", 3);
    let mut program = start(&stage, 1, "2");
    stage.await_place(program.pid, 2);
    stage.kill_daemon(1);
    let output = until("the link is lost", || {
        let output = stage.output(3, &["osmos", "ps", "--all", "--json"]);
        (!output.status.success()).then_some(output)
    });
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("not all processes are known: ") && told.contains("node 1"), "{told}");
    let listed: Vec<Value> = serde_json::from_slice(&output.stdout).expect("a list");
    assert_eq!(places(&listed), [(1, i64::from(program.pid), 2)], "as its host knows it");
    stage.start_daemon(1);
    until_true("all answer again", || stage.output(3, &["osmos", "ps", "--all"]).status.success());
    let listed = of_all(&stage, 3);
    assert_eq!(places(&listed), [(1, i64::from(program.pid), 2)]);
    let line = listed[0]["command_line"].as_str().expect("it outlives a daemon");
    assert!(line.contains("python3 -IS -c"), "{line}");
    program.ask("it counts on");
}
