//! Nodes by their names: as their machines are called, and as their owners say.

use crate::stage::{COUNTING, Stage, until, until_true};
use serde_json::Value;

/// What node 1 lists of names, in the order of numbers.
fn names(stage: &Stage) -> Vec<Option<String>> {
    let text = stage.text(1, &["osmos", "nodes", "--json"]);
    let nodes: Vec<Value> = serde_json::from_str(&text).expect("a list of nodes");
    nodes.iter().map(|node| node["name"].as_str().map(str::to_owned)).collect()
}

fn await_names(stage: &Stage, wanted: &[String]) {
    let wanted: Vec<Option<String>> = wanted.iter().cloned().map(Some).collect();
    until_true(&format!("nodes are called {wanted:?}"), || names(stage) == wanted);
}

#[test]
fn a_node_is_meant_by_its_name_as_well_as_by_its_number() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::joined("names", 3);
    let hosts = [1, 2, 3].map(|node| stage.node(node).host_name());
    await_names(&stage, &hosts);
    let status = stage.text(1, &["osmos", "status"]);
    assert!(status.starts_with(&format!("node 1 ({}) at ", hosts[0])), "{status}");

    let words = ["osmos", "run", "--node", &hosts[1], "--", "python3", "-IS", "-c", COUNTING];
    let mut program = stage.start(1, &words);
    // From here on it begins no other program, for which it would come home.
    program.ask("it counts");
    stage.await_place(program.pid, 2);
    stage.migrate(program.pid, &hosts[2]);
    stage.await_place(program.pid, 3);
    program.ask("it counts on");
    let pid = program.pid.to_string();
    let why = stage.text(1, &["osmos", "why", &pid]);
    let told = format!("of node 1 ({}) is on node 3 ({}): ", hosts[0], hosts[2]);
    assert!(why.contains(&told), "{why}");
    let table = stage.text(1, &["osmos", "nodes"]);
    assert!(hosts.iter().all(|host| table.contains(host.as_str())), "{table}");
    // The node that has it hears names from the others, too, and soon enough to say.
    let foreseen = until("node 3 foresees a move", || {
        let output = stage.output(3, &["osmos", "what-if", &pid, &hosts[1]]);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    });
    let told = format!("from node 3 ({}) to node 2 ({}) ", hosts[2], hosts[1]);
    assert!(foreseen.starts_with(&told), "{foreseen}");
    let row = stage.text(1, &["osmos", "ps", "--command", "select"]);
    assert!(row.contains(&format!("{pid}  {}  {}", hosts[0], hosts[2])), "{row}");
    let events = stage.text(1, &["osmos", "events"]);
    let told = format!("{pid} moved from node 2 ({}) to node 3 ({})", hosts[1], hosts[2]);
    assert!(events.contains(&told), "{events}");
    let refusal = stage.complaint(1, &["osmos", "migrate", &pid, "3"]);
    assert!(refusal.contains(&format!("it is on node 3 ({}) already", hosts[2])), "{refusal}");
    stage.migrate(program.pid, "home");
    program.ask("it counts on");
}

#[test]
fn names_of_owners_are_heard_and_one_that_may_be_two_nodes_is_refused() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::joined("called", 3);
    let mut program =
        stage.start(1, &["osmos", "run", "--home", "--", "python3", "-IS", "-c", COUNTING]);
    program.ask("it runs");
    let pid = program.pid.to_string();
    let mut called = vec![stage.node(1).host_name()];
    for (node, name) in [(2, "delta.a.example"), (3, "delta.b.example")] {
        let up = stage.text(node, &["osmos", "up", "--replace", "--name", name]);
        assert!(up.starts_with(&format!("node {node} ({name}) is up at ")), "{up}");
        called.push(name.to_owned());
    }
    await_names(&stage, &called);

    let complaint = stage.complaint(1, &["osmos", "migrate", &pid, "delta"]);
    let two = "2 (delta.a.example), 3 (delta.b.example)";
    let ambiguous = format!("`delta` may be any of nodes {two}: say the number");
    assert!(complaint.contains(&ambiguous), "{complaint}");
    let all = format!("there is no node `echo`; there are 1 ({}), {two}", called[0]);
    for words in [&["migrate", &pid, "echo"][..], &["run", "--node", "echo", "--", "true"]] {
        let complaint = stage.complaint(1, &[&["osmos"], words].concat());
        assert!(complaint.contains(&all), "{words:?}: {complaint}");
    }
    for name in ["home", "7", "a b", "x."] {
        let complaint = stage.complaint(2, &["osmos", "up", "--replace", "--name", name]);
        assert!(complaint.contains(&format!("`{name}`")), "{complaint}");
    }
    assert_eq!(stage.place(program.pid), Some(1), "nothing of that moved it");

    // The classic commands as well.
    stage.text(1, &["osmos", "links", "/tmp"]);
    until_true("it moves to the node of that name", || {
        stage.output(1, &["/tmp/migrate", &pid, "Delta.A"]).status.success()
    });
    stage.await_place(program.pid, 2);
    let priorities = stage.text(1, &["/tmp/mosctl", "cngpri", "delta.b", "7"]);
    assert!(priorities.contains("priorities 3:7"), "{priorities}");
    let lent = stage.text(1, &["osmos", "lend", "--to", "delta.a.example"]);
    assert!(lent.contains("own processes go to 2 only"), "{lent}");
    stage.text(1, &["osmos", "forget", "delta.b", "--force"]);
    until_true("it is forgotten, and its name", || names(&stage).len() == 2);
    let complaint = stage.complaint(1, &["osmos", "migrate", &pid, "delta.b"]);
    assert!(complaint.contains("there is no node `delta.b`"), "{complaint}");
    program.ask("it counts on");
}
