//! Files that a program maps while it is away: it stays there where the node has the same file.

use crate::stage::{Program, Stage, build};
use std::path::Path;

const INSIDE: &str = "/tmp/mapping";
/// Is on all nodes, as on this machine, and nobody writes to it.
const LIBRARY: &str = "libm.so.6";

/// A stage of so many nodes, and the program on its way on node 2.
fn away(name: &str, nodes: u32) -> (Stage, Program) {
    let stage = Stage::new(name, nodes);
    let dir = tempfile::tempdir().expect("a directory");
    let built = build("mapping", &["-O1", "-ldl"], dir.path());
    std::fs::copy(&built, stage.path(1, INSIDE)).expect("a copy");
    let program = stage.start(1, &["osmos", "run", "--home", "--", INSIDE]);
    assert_eq!(program.line(), "ready");
    stage.migrate(program.pid, "2");
    (stage, program)
}

/// Why it came home, each time.
fn homecomings(stage: &Stage, program: &Program) -> Vec<String> {
    let text = |event: serde_json::Value| event["reason"]["text"].as_str().map(str::to_owned);
    stage.events(1, "came-home", program.pid).into_iter().filter_map(text).collect()
}

/// A file that all nodes have, of more than two pages.
fn common_file() -> String {
    let libraries = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6"];
    let found = libraries.into_iter().find(|path| Path::new(path).exists());
    found.unwrap_or("/bin/sh").to_owned()
}

#[test]
fn a_file_that_the_node_has_is_mapped_there() {
    let (stage, mut program) = away("maps", 3);
    let file = common_file();
    assert_eq!(program.ask(&format!("map {file}")), "right");
    assert_eq!(program.ask(&format!("fixed {file}")), "right");
    assert_eq!(program.ask(&format!("shared {file}")), "right");
    assert_eq!(program.ask(&format!("names {}", file.rsplit('/').next().unwrap())), "1");
    assert_eq!(homecomings(&stage, &program), [""; 0]);
    // What it has written to its own copy goes along, wherever it goes.
    for place in ["3", "2", "home", "3", "home"] {
        stage.migrate(program.pid, place);
        assert_eq!(program.ask(&format!("look {file}")), "right", "at {place}");
    }
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn a_library_is_loaded_where_the_program_is() {
    let (stage, mut program) = away("loads", 3);
    assert_eq!(program.ask(&format!("library {LIBRARY}")), "3");
    assert_eq!(homecomings(&stage, &program), [""; 0]);
    stage.migrate(program.pid, "3");
    assert_eq!(program.ask(&format!("library {LIBRARY}")), "3");
    stage.migrate(program.pid, "home");
    assert_eq!(program.ask(&format!("library {LIBRARY}")), "3");
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn what_cannot_be_mapped_is_refused_as_at_home() {
    let (stage, mut program) = away("maps-not", 2);
    assert_eq!(program.ask("errors /tmp"), "ENODEV EACCES EBADF ENODEV EINVAL");
    assert_eq!(homecomings(&stage, &program), [""; 0]);
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn a_file_that_the_node_does_not_have_or_that_is_written_to_is_mapped_at_home() {
    let (stage, mut program) = away("maps-home", 2);
    stage.put(1, "/tmp/own", &"of this node only\n".repeat(1000));
    assert_eq!(program.ask("map /tmp/own"), "right");
    assert_eq!(program.ask("look /tmp/own"), "right");
    assert_eq!(homecomings(&stage, &program), ["mmap: file-mapping"]);
    for command in ["written /tmp/written", "updated /tmp/own"] {
        let before = homecomings(&stage, &program).len();
        stage.migrate(program.pid, "2");
        assert_eq!(program.ask(command), "right");
        let reasons = homecomings(&stage, &program);
        assert_eq!(reasons[before..], ["mmap: file-mapping"]);
    }
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn a_file_that_was_written_to_since_it_was_mapped_is_mapped_anew_at_home() {
    let (stage, mut program) = away("maps-anew", 2);
    let text = "what both nodes have\n".repeat(1000);
    (1..=2).for_each(|node| stage.put(node, "/tmp/both", &text));
    assert_eq!(program.ask("map /tmp/both"), "right");
    assert_eq!(homecomings(&stage, &program), [""; 0]);
    stage.put(1, "/tmp/both", &text.replace("have", "had"));
    assert_eq!(program.ask("map /tmp/both"), "right", "as it is now");
    assert_eq!(homecomings(&stage, &program), ["mmap: file-mapping"]);
    // The node's own is not that any more.
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask("look /tmp/both"), "right");
    (1..=2).for_each(|node| stage.put(node, "/tmp/other", &text));
    assert_eq!(program.ask("map /tmp/other"), "right");
    stage.put(2, "/tmp/other", "nothing of it");
    assert_eq!(program.ask("map /tmp/other"), "right", "as home has it");
    assert_eq!(homecomings(&stage, &program), ["mmap: file-mapping"; 2]);
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn a_program_that_has_moved_on_since_it_mapped_a_file_makes_processes_at_home() {
    let (stage, mut program) = away("maps-moves", 3);
    let file = common_file();
    assert_eq!(program.ask(&format!("map {file}")), "right");
    stage.migrate(program.pid, "3");
    assert_eq!(program.ask("begin true"), "0");
    assert_eq!(homecomings(&stage, &program).len(), 1);
    assert_eq!(program.ask(&format!("look {file}")), "right");
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn a_program_that_has_mapped_a_file_away_makes_processes_at_home() {
    let (stage, mut program) = away("maps-forks", 2);
    let file = common_file();
    assert_eq!(program.ask(&format!("map {file}")), "right");
    assert_eq!(program.ask("begin true"), "0");
    assert_eq!(homecomings(&stage, &program).len(), 1);
    assert_eq!(program.ask(&format!("look {file}")), "right");
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask("begin true"), "0");
    assert_eq!(program.ask(&format!("look {file}")), "right");
    assert_eq!(homecomings(&stage, &program).len(), 1, "now both halves know it");
    program.close_input();
    assert_eq!(program.end(), 0);
}
