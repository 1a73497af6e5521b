//! Nodes that leave or are forgotten while processes are away: everybody comes home, and nobody is
//! lost.

use crate::stage::{COUNTING, Program, Stage, until_true};
use serde_json::Value;

fn numbers(stage: &Stage, node: u32) -> Vec<u64> {
    let text = stage.text(node, &["osmos", "nodes", "--json"]);
    let nodes: Vec<Value> = serde_json::from_str(&text).expect("a list of nodes");
    nodes.iter().filter_map(|node| node["id"].as_u64()).collect()
}

/// A counting program of that node, sent to another.
fn start_away(stage: &Stage, home: u32, to: u32) -> Program {
    let to = to.to_string();
    let words = ["osmos", "run", "--node", &to, "--", "python3", "-IS", "-c", COUNTING];
    let mut program = stage.start(home, &words);
    program.ask("where");
    program
}

fn place_at(stage: &Stage, home: u32, pid: i32) -> Option<u64> {
    let listed = stage.listed(home);
    let here = stage.text(home, &["osmos", "status", "--json"]);
    let here: Value = serde_json::from_str(&here).expect("JSON");
    listed.iter().find(|p| p["home"] == here["node"] && p["pid"] == pid)?["node"].as_u64()
}

#[test]
fn a_node_that_leaves_has_its_own_processes_back_and_its_guests_are_at_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::joined("leave", 3);
    let mut guest = start_away(&stage, 1, 2);
    let mut own = start_away(&stage, 2, 3);
    stage.await_place(guest.pid, 2);
    until_true("its own process is away", || place_at(&stage, 2, own.pid) == Some(3));
    let status = stage.text(2, &["osmos", "leave"]);
    assert!(
        status.starts_with("node 1 (") && status.contains("in a cluster of 1 node"),
        "{status}"
    );
    // Its home hears of that from a supervisor of its own, perhaps a moment later.
    stage.await_place(guest.pid, 1);
    assert_eq!(place_at(&stage, 2, own.pid), Some(1), "at home, whose number is 1 now");
    for program in [&mut guest, &mut own] {
        program.ask("it counts on");
    }
    for node in [1, 3] {
        until_true("the others forget it", || numbers(&stage, node) == [1, 3]);
    }
    stage.await_no_supervisors();
    let events = stage.text(1, &["osmos", "events"]);
    // It tells every node; another may have passed it on before.
    let told = ["it has left", "node 3 ("];
    let is_told = |by: &str| events.contains(&format!("belongs to the cluster no more: {by}"));
    assert!(told.into_iter().any(is_told), "{events}");
    // Back again, and processes move as before: where somebody is managed, nobody joins.
    drop(own);
    until_true("nothing is managed there", || stage.listed(2).is_empty());
    stage.join(2, 1);
    until_true("it is another node", || numbers(&stage, 1) == [1, 3, 4]);
    until_true("it takes guests", || stage.try_migrate(guest.pid, "4"));
    guest.ask("it counts on");
}

#[test]
fn what_is_on_a_node_that_is_forgotten_by_force_comes_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::joined("forget", 3);
    let mut away = start_away(&stage, 1, 2);
    let mut guest = start_away(&stage, 2, 1);
    stage.await_place(away.pid, 2);
    until_true("its own process is away", || place_at(&stage, 2, guest.pid) == Some(1));
    let complaint = stage.complaint(1, &["osmos", "forget", "2"]);
    assert!(complaint.contains("it is there and answers"), "{complaint}");
    stage.text(1, &["osmos", "forget", "2", "--force"]);
    stage.await_place(away.pid, 1);
    until_true("its own is at home", || place_at(&stage, 2, guest.pid) == Some(2));
    for program in [&mut away, &mut guest] {
        program.ask("it counts on");
    }
    for node in [1, 3] {
        until_true("it is forgotten", || numbers(&stage, node) == [1, 3]);
    }
    stage.text(3, &["osmos", "renew-secret"]);
    until_true("all have another secret", || {
        stage.text(1, &["osmos", "events"]).contains("another secret")
    });
    stage.migrate(away.pid, "3");
    away.ask("it counts on");
}
