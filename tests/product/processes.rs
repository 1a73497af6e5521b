//! Processes that a program makes while it is away: they begin where it is, and are its children at
//! home.

use crate::stage::{Program, Stage, until_true};
use serde_json::Value;
use std::time::{Duration, Instant};

const FORKER: &str = include_str!("forker.py");
const FORKS: &str = include_str!("forks.py");

fn start(name: &str, nodes: u32, without: &[&str]) -> Option<(Stage, Program)> {
    let can = needs::can_run(&["python3"]);
    let stage = can.then(|| Stage::without(without, name, nodes))?;
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", FORKER];
    let mut program = stage.start(1, &words);
    // What starts it may be a script.
    assert_eq!(program.ask("fork 0"), "");
    assert_eq!(program.ask("end"), "True False");
    stage.migrate(program.pid, "2");
    Some((stage, program))
}

fn fork(program: &mut Program, count: usize) -> Vec<i32> {
    let told = program.ask(&format!("fork {count}"));
    told.split_whitespace().map(|id| id.parse().expect("an id")).collect()
}

/// Who is the parent of a process at home.
fn parent(stage: &Stage, pid: i32) -> i32 {
    let stat = stage.text(1, &["cat", &format!("/proc/{pid}/stat")]);
    let fields = stat.rsplit(") ").next().expect("fields");
    fields.split(' ').nth(1).expect("a parent").parse().expect("an id")
}

#[test]
fn processes_begin_where_their_maker_is_and_are_its_children_at_home() {
    let Some((stage, mut program)) = start("forks-away", 2, &[]) else { return };
    for _ in 0..3 {
        let children = fork(&mut program, 3);
        for child in &children {
            stage.await_place(*child, 2);
            assert_eq!(parent(&stage, *child), program.pid);
        }
        assert_eq!(program.ask("end"), "10 11 12 True True");
        until_true("nothing is left of them", || {
            children.iter().all(|child| stage.place(*child).is_none())
        });
    }
    assert_eq!(program.ask("burn"), "0 True", "it is told what its child has used");
    assert_eq!(stage.place(program.pid), Some(2));
    assert!(stage.events(1, "came-home", program.pid).is_empty(), "it has not come home");
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn a_child_and_its_maker_go_their_own_ways() {
    let Some((stage, mut program)) = start("forks-apart", 3, &[]) else { return };
    let children = fork(&mut program, 3);
    children.iter().for_each(|child| stage.await_place(*child, 2));
    stage.migrate(children[0], "home");
    stage.migrate(children[1], "3");
    // The others of its sandbox run on when the first leaves it, and can make tasks there.
    stage.migrate(program.pid, "3");
    stage.migrate(children[1], "2");
    assert_eq!(program.ask("end"), "10 11 12 True True");
    let children = fork(&mut program, 2);
    children.iter().for_each(|child| stage.await_place(*child, 3));
    stage.migrate(program.pid, "home");
    stage.migrate(children[1], "home");
    assert_eq!(program.ask("end"), "10 11 True True");
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

/// Whatever its deputy does about its memory meanwhile, which it looks at once a second.
#[test]
fn children_come_home_however_long_their_maker_has_been_away() {
    let Some((stage, mut program)) = start("forks-late", 2, &[]) else { return };
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(3) {
        let child = fork(&mut program, 1)[0];
        stage.await_place(child, 2);
        stage.migrate(child, "home");
        assert_eq!(program.ask("end"), "10 True True");
    }
    assert!(stage.events(1, "came-home", program.pid).is_empty(), "it has not come home");
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn a_tree_of_processes_cannot_tell_that_it_is_moved() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("forks-storm", 3);
    let script = ["python3", "-IS", "-c", FORKS];
    let native = stage.text(1, &[&script[..], &["0"]].concat());
    for round in 0..2 {
        let storm = ["osmos", "run", "--storm", "100", "--"];
        let away = stage.text(1, &[&storm[..], &script[..], &["1"]].concat());
        assert_eq!(away, native, "round {round}");
    }
    stage.await_no_supervisors();
}

#[test]
fn where_ids_cannot_be_chosen_processes_are_made_at_home() {
    let Some((stage, mut program)) = start("forks-home", 2, &["thread-ids"]) else { return };
    let child = fork(&mut program, 1)[0];
    assert_eq!(parent(&stage, child), program.pid);
    let events = stage.events(1, "came-home", program.pid);
    let why = events.first().expect("it came home")["reason"]["text"].to_string();
    assert!(why.contains("new-task"), "{why}");
    // One, that tells of the one child: the other never was.
    assert_eq!(program.ask("end"), "10 True True");
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

/// A daemon that does not answer takes in no guest, so that the body cannot make its half.
#[test]
fn a_child_that_gets_no_body_has_never_been() {
    let Some((stage, mut program)) = start("forks-deaf", 2, &[]) else { return };
    stage.node(2).starve_daemon(true).expect("it is ours");
    let children = fork(&mut program, 2);
    stage.node(2).starve_daemon(false).expect("it is ours");
    for child in &children {
        assert_eq!(parent(&stage, *child), program.pid);
    }
    let listed = stage.text(1, &["cat", &format!("/proc/{0}/task/{0}/children", program.pid)]);
    let listed: Vec<i32> =
        listed.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect();
    assert_eq!(listed, children, "and no other, not even a dead one");
    assert_eq!(program.ask("end"), "10 11 True True");
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn a_child_goes_home_when_the_daemon_of_its_node_dies() {
    let Some((stage, mut program)) = start("forks-orphans", 2, &[]) else { return };
    let children = fork(&mut program, 2);
    children.iter().for_each(|child| stage.await_place(*child, 2));
    stage.kill_daemon(2);
    children.iter().for_each(|child| stage.await_place(*child, 1));
    stage.start_daemon(2);
    // Their maker is known to the next one, and makes more.
    assert_eq!(stage.place(program.pid), Some(2));
    assert_eq!(program.ask("end"), "10 11 True True");
    assert_eq!(fork(&mut program, 2).len(), 2);
    assert_eq!(program.ask("end"), "10 11 True True");
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn a_child_is_born_although_the_daemon_of_its_node_dies_before() {
    let Some((stage, mut program)) = start("forks-between", 2, &[]) else { return };
    // Their supervisors at home are started when this goes on.
    stage.node(1).starve_daemon(true).expect("it is ours");
    let children = fork(&mut program, 2);
    stage.kill_daemon(2);
    stage.start_daemon(2);
    stage.node(1).starve_daemon(false).expect("it is ours");
    children.iter().for_each(|child| stage.await_place(*child, 2));
    assert_eq!(program.ask("end"), "10 11 True True");
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn a_child_is_born_although_the_owner_of_its_node_wants_all_gone_before() {
    let Some((stage, mut program)) = start("forks-expelled", 2, &[]) else { return };
    stage.node(1).starve_daemon(true).expect("it is ours");
    let children = fork(&mut program, 2);
    let expelled = stage.begin(2, &["osmos", "expel"]);
    until_true("they are told to leave", || {
        let nodes = stage.text(2, &["osmos", "nodes", "--json"]);
        let nodes: Vec<Value> = serde_json::from_str(&nodes).expect("a list");
        nodes.iter().any(|node| node["id"] == 2 && node["takes_guests"] == false)
    });
    stage.node(1).starve_daemon(false).expect("it is ours");
    assert!(expelled.wait_with_output().expect("it ends").status.success());
    children.iter().for_each(|child| stage.await_place(*child, 1));
    stage.await_place(program.pid, 1);
    assert_eq!(program.ask("end"), "10 11 True True");
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}
