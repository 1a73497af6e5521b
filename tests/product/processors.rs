//! Nodes whose processors differ: a process goes where all is that its program was shown, and a
//! refusal names what is missing.

use crate::stage::{COUNTING, Stage};

/// A counting program of node 1, at home, on nodes that do without these things.
fn refused_on_node_2(without: &[&str], name: &str, words: &[&str]) {
    let stage = Stage::without(without, name, 2);
    let mut program =
        stage.start(1, &["osmos", "run", "--home", "--", "python3", "-IS", "-c", COUNTING]);
    program.ask("");
    let pid = program.pid.to_string();
    let complaint = stage.complaint(1, &["osmos", "migrate", &pid, "2"]);
    for word in words {
        assert!(complaint.contains(word), "{word:?} is missing: {complaint}");
    }
    assert_eq!(stage.place(program.pid), Some(1));
    program.ask("");
    stage.await_no_supervisors();
}

#[test]
fn a_process_stays_where_its_processor_has_what_another_lacks_and_is_told_what() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    refused_on_node_2(&["2:cpu-sse4_2"], "lacking", &["its processor lacks sse4_2"]);
}

#[test]
fn a_process_does_not_go_where_it_would_find_what_home_lacks() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let words = [
        "its processor has popcnt, which home's lacks",
        "nodes with the same features as home take it",
    ];
    refused_on_node_2(&["1:cpu-popcnt"], "exceeding", &words);
}
