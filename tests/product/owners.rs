//! The owner of a node comes first: what he says holds at once, whoever's processes are concerned,
//! and what moves would bring, or brought, can be asked.

use crate::stage::{COUNTING, Program, Stage, until, until_true};
use serde_json::Value;

/// Says when it has begun, and computes for as long as it lives.
const COMPUTING: [&str; 4] =
    ["python3", "-IS", "-c", "print('ready', flush=True)\nwhile True: pass"];

/// A process of node 1 that the brains may move, put on node 2.
fn start_guest(stage: &Stage) -> Program {
    let mut program = stage.start(1, &["osmos", "run", "--", "python3", "-IS", "-c", COUNTING]);
    program.ask("where");
    stage.migrate(program.pid, "2");
    program
}

/// A managed process of this node that computes.
fn start_computing(stage: &Stage, node: u32) -> Program {
    let program = stage.start(node, &[&["osmos", "run", "--"][..], &COMPUTING].concat());
    assert_eq!(program.line(), "ready");
    program
}

fn json(stage: &Stage, node: u32, words: &[&str]) -> Value {
    let words = [words, &["--json"]].concat();
    serde_json::from_str(&stage.text(node, &words)).expect("JSON")
}

/// Whether node 1 takes node 2 for one that takes guests.
fn is_open(stage: &Stage) -> bool {
    let nodes = json(stage, 1, &["osmos", "nodes"]);
    let two = nodes.as_array().expect("a list").iter().find(|node| node["id"] == 2);
    two.expect("node 2")["takes_guests"] == true
}

fn bodies(stage: &Stage, node: u32) -> usize {
    stage.supervisors(node, "body").len()
}

#[test]
fn expelled_guests_go_on_elsewhere_and_none_comes_until_the_owner_says_so() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("expel", 3);
    let mut moved = start_guest(&stage);
    let mut placed = stage.start_away(&["python3", "-IS", "-c", COUNTING]);
    placed.ask("where");
    let owned = json(&stage, 2, &["osmos", "expel"]);
    assert_eq!((&owned["guests"], &owned["blocks"]), (&Value::from(0), &Value::from(true)));
    assert_ne!(stage.place(moved.pid), Some(2));
    assert_eq!(stage.place(placed.pid), Some(1), "its user wanted it there; it is home");
    for program in [&mut moved, &mut placed] {
        program.ask("it counts on");
    }
    until_true("node 1 knows", || !is_open(&stage));
    let pid = moved.pid.to_string();
    let complaint = stage.complaint(1, &["osmos", "migrate", &pid, "2"]);
    assert!(complaint.contains("its owner takes no guests now"), "{complaint}");
    stage.text(2, &["osmos", "noblock"]);
    stage.migrate(moved.pid, "2");
    assert_eq!(stage.place(moved.pid), Some(2));
}

#[test]
fn what_was_born_here_is_brought_home_whoever_sent_it_away() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("bring", 3);
    let moved = start_guest(&stage);
    let mut placed = stage.start_away(&["python3", "-IS", "-c", COUNTING]);
    let owned = json(&stage, 1, &["osmos", "bring"]);
    assert_eq!(owned["own_away"], 0);
    assert_eq!([moved.pid, placed.pid].map(|pid| stage.place(pid)), [Some(1); 2]);
    placed.ask("it counts on");
    stage.await_no_supervisors();
    assert_eq!(stage.place(placed.pid), Some(1), "it is not sent away again");
}

#[test]
fn own_processes_stay_while_the_owner_wants_that() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("stay", 3);
    stage.text(1, &["osmos", "stay"]);
    let programs: Vec<Program> = (0..5).map(|_| start_computing(&stage, 1)).collect();
    for program in &programs {
        let pid = program.pid.to_string();
        until_true("the brain says why it stays", || {
            let why = stage.text(1, &["osmos", "why", &pid]);
            why.contains("the owner of this node keeps its own processes here")
        });
        assert_eq!(stage.place(program.pid), Some(1));
    }
    stage.text(1, &["osmos", "stay", "off"]);
    until_true("one of five on two cores leaves", || {
        programs.iter().any(|program| stage.place(program.pid) != Some(1))
    });
}

#[test]
fn a_drained_node_is_empty_and_stays_so() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("drain", 3);
    let guest = start_guest(&stage);
    let own = start_computing(&stage, 2);
    let own_place = || {
        let listed = stage.listed(2);
        listed.iter().find(|p| p["home"] == 2 && p["pid"] == own.pid)?["node"].as_u64()
    };
    until_true("it is managed", || own_place() == Some(2));
    let owned = json(&stage, 2, &["osmos", "drain"]);
    assert_eq!((&owned["guests"], &owned["own_here"]), (&Value::from(0), &Value::from(0)));
    assert_ne!(stage.place(guest.pid), Some(2));
    assert_ne!(own_place(), Some(2));
    until_true("nothing of them is left", || bodies(&stage, 2) == 0);
    let status = stage.text(2, &["osmos", "status"]);
    assert!(status.contains("drained: nothing runs here"), "{status}");
    stage.text(2, &["osmos", "drain", "off"]);
    stage.migrate(guest.pid, "2");
}

#[test]
fn limits_on_guests_are_kept_and_named() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("limits", 2);
    stage.text(2, &["osmos", "limit", "--guests", "1"]);
    let first = start_guest(&stage);
    let mut second = stage.start(1, &["osmos", "run", "--", "python3", "-IS", "-c", COUNTING]);
    second.ask("where");
    let pid = second.pid.to_string();
    let complaint = stage.complaint(1, &["osmos", "migrate", &pid, "2"]);
    assert!(complaint.contains("its owner takes no more guests than 1"), "{complaint}");
    stage.text(2, &["osmos", "limit", "--guests", "none", "--guest-memory", "1M"]);
    stage.await_place(first.pid, 1);
    let complaint = stage.complaint(1, &["osmos", "migrate", &pid, "2"]);
    assert!(complaint.contains("at most 1048576 bytes of memory for all guests"), "{complaint}");
    stage.text(2, &["osmos", "limit", "--guest-memory", "none"]);
    stage.migrate(second.pid, "2");
}

#[test]
fn what_an_owner_has_decided_outlives_the_daemon() {
    let stage = Stage::without_daemons("kept");
    stage.text(1, &["osmos", "up"]);
    for words in ["block", "stay", "yield", "priority 7 10"] {
        let words: Vec<&str> = words.split(' ').collect();
        stage.text(1, &[&["osmos"][..], &words].concat());
    }
    stage.text(1, &["osmos", "down"]);
    stage.text(1, &["osmos", "up", "--guests-max", "3", "--guest-memory-max", "2G"]);
    let owner = &json(&stage, 1, &["osmos", "status"])["owner"];
    for word in ["blocks", "stays", "yields"] {
        assert_eq!(owner[word], true, "{word}: {owner}");
    }
    assert_eq!((&owner["drains"], &owner["guests_max"]), (&Value::from(false), &Value::from(3)));
    assert_eq!(owner["guest_memory_max_bytes"], 2_u64 << 30);
    assert_eq!(owner["priorities"][0]["priority"], 10);
    stage.text(1, &["osmos", "down"]);
}

#[test]
fn guests_leave_when_the_owner_returns() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("yield", 3);
    stage.text(2, &["osmos", "yield"]);
    let guest = start_computing(&stage, 1);
    stage.migrate(guest.pid, "2");
    let (body, _) = stage.await_body(2, guest.pid);
    until_true("it stands back", || body.nice() == 10);
    until_true("it has been there for a while", || body.cpu_ticks() > 200);
    // Two programs of his own on two cores.
    let own: Vec<Program> = (0..2).map(|_| stage.start(2, &COMPUTING)).collect();
    until_true("the guest leaves", || stage.place(guest.pid) != Some(2));
    until_true("nothing of it is left", || bodies(&stage, 2) == 0);
    until_true("others know that no core is left", || !is_open(&stage));
    drop(own);
    assert!(stage.events(1, "lost", guest.pid).is_empty());
}

#[test]
fn only_root_and_the_daemons_user_decide_for_a_node() {
    if !needs::can_run(&["setpriv"]) {
        return;
    }
    let stage = Stage::new("whose", 1);
    let as_bert = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "osmos"];
    for words in [&["block"][..], &["expel"], &["drain"], &["limit", "--guests", "0"]] {
        let complaint = stage.complaint(1, &[&as_bert[..], words].concat());
        assert!(complaint.contains("only root"), "{words:?}: {complaint}");
    }
    let owner = &json(&stage, 1, &["osmos", "status"])["owner"];
    assert_eq!((&owner["blocks"], &owner["guests_max"]), (&Value::from(false), &Value::Null));
}

/// What would become of a process; when the brain there knows both nodes. A machine that stood
/// still knows nothing of the others until they have been heard again.
fn forecast(stage: &Stage, asked: u32, pid: &str, to: u32) -> Value {
    until("the brain knows both nodes", || {
        let output = stage.output(asked, &["osmos", "what-if", pid, &to.to_string(), "--json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    })
}

#[test]
fn what_a_move_would_bring_can_be_asked_and_what_it_brought_is_measured() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("foresight", 2);
    let program = start_computing(&stage, 1);
    let pid = program.pid.to_string();
    let asked = forecast(&stage, 1, &pid, 2);
    let rate = |value: &Value| value.as_f64().expect("a number");
    assert!(rate(&asked["rate_before"]) > 0.0 && rate(&asked["to"]["rate"]) > 0.0);
    assert!(rate(&asked["freeze_ms"]) > 0.0, "{asked}");
    assert_eq!((&asked["from"], &asked["to"]["node"]), (&Value::from(1), &Value::from(2)));
    let complaint = stage.complaint(1, &["osmos", "what-if", &pid, "9"]);
    assert!(complaint.contains("there is no node 9"), "{complaint}");
    let shape = "cores=64,speed=100,memory=1T";
    until_true("it would go to a node a hundred times as fast", || {
        let handed = json(&stage, 1, &["osmos", "what-if", "--node", shape]);
        handed["handed_over"]
            .as_array()
            .is_some_and(|all| all.iter().any(|p| p["pid"] == program.pid))
    });
    // From now on nobody moves it but its user.
    stage.text(1, &["osmos", "stay"]);
    stage.text(1, &["osmos", "bring"]);
    let ticks = || stage.process(1, program.pid).expect("it lives").cpu_ticks();
    let before = ticks();
    until_true("it has computed here for a while", || ticks() > before + 150);
    stage.migrate(program.pid, "2");
    // It is measured for ten seconds, and the first word about it is true already.
    let made = until("the gain is measured", || {
        let why = json(&stage, 1, &["osmos", "why", &pid]);
        let made = why["moves"].as_array()?.last()?.clone();
        made["gain"].is_number().then_some(made)
    });
    let (before, after) = (rate(&made["rate_before"]), rate(&made["rate_after"]));
    assert!(before > 0.0 && after > 0.0, "{made}");
    assert!((rate(&made["gain"]) - after / before).abs() < 1e-6, "{made}");
    assert_eq!((&made["to"], &made["cause"]), (&Value::from(2), &Value::from("user")));
    let text = stage.text(1, &["osmos", "why", &pid]);
    assert!(text.contains("progress measured before and after"), "{text}");
    let away = stage.complaint(1, &["osmos", "what-if", &pid, "1"]);
    assert!(away.contains("runs on node 2"), "{away}");
    let there = forecast(&stage, 2, &pid, 1);
    assert_eq!((&there["home"], &there["from"]), (&Value::from(1), &Value::from(2)));
}
