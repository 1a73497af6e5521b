//! What takes over a second says so on a terminal, and leaves a known state at ^C.

use crate::calling_off::{self, GROWING, slow_stage};
use crate::stage::{Program, Stage, text, until, until_true};
use crate::terminal::Terminal;
use nix::sys::signal::Signal;
use serde_json::Value;

const INTERRUPT: &str = "\x03";

fn status(stage: &Stage, node: u32) -> Value {
    let text = stage.text(node, &["osmos", "status", "--json"]);
    serde_json::from_str(&text).expect("a status")
}

/// One that has so much memory where it is away that it takes ten seconds to leave.
fn grown_away(stage: &Stage, home: u32, away: u32) -> Program {
    let run = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", GROWING];
    let mut program = stage.start(home, &run);
    program.ask("");
    stage.text(home, &["osmos", "migrate", &program.pid.to_string(), &away.to_string()]);
    program.ask("grow");
    program
}

#[test]
fn a_move_of_much_memory_shows_how_far_it_is_and_can_be_interrupted() {
    let Some(stage) = slow_stage("prog-move") else { return };
    let program = calling_off::start_with(&stage, 200);
    let pid = program.pid.to_string();
    let migrate = ["osmos", "migrate", &pid, "2"];
    let mut terminal = Terminal::open(&stage, &migrate);
    terminal.expect(&format!("{pid}: round 1, "));
    terminal.expect("M left (");
    terminal.type_text(INTERRUPT);
    terminal.expect("calling the move of");
    terminal.expect("it stays home");
    until_true("nothing is left there", || stage.supervisors(2, "body").is_empty());
    assert_eq!(stage.place(program.pid), Some(1));
    // Each of these runs for longer than what a line is drawn after: memory has arrived.
    for plain in ["NO_COLOR=1", "TERM=dumb"] {
        let mut terminal = Terminal::open(&stage, &[&["env", plain][..], &migrate].concat());
        calling_off::await_memory(&stage, &program, 2);
        terminal.type_text(INTERRUPT);
        terminal.expect("it stays home");
        assert!(!terminal.shown().contains("left"), "{plain}: {:?}", terminal.shown());
        until_true("nothing is left there", || stage.supervisors(2, "body").is_empty());
    }
    let mover = calling_off::begin(&stage, &program, 2);
    calling_off::asking(&stage, 2).signal(Signal::SIGINT);
    let output = mover.wait_with_output().expect("a command in the lab");
    let complaint = text(&output.stderr);
    assert!(complaint.contains("it stays home"), "{complaint}");
    assert!(!complaint.contains('\r') && !complaint.contains("left"), "{complaint:?}");
}

#[test]
fn a_drain_counts_who_is_still_there_and_goes_on_without_who_asked() {
    let Some(stage) = slow_stage("prog-drain") else { return };
    let guest = grown_away(&stage, 2, 1);
    let mut terminal = Terminal::open(&stage, &["osmos", "drain"]);
    terminal.expect("draining this node: 1 guest here, 0 own processes away (");
    terminal.type_text(INTERRUPT);
    terminal.expect("osmos: interrupted; it stays drained");
    assert_eq!(status(&stage, 1)["owner"]["drains"], true);
    until_true("the guest has left", || stage.supervisors(1, "body").is_empty());
    drop(guest);
}

#[test]
fn who_asks_all_nodes_sees_that_one_does_not_answer_and_need_not_wait() {
    let stage = Stage::new("prog-all", 2);
    let daemon = status(&stage, 2)["daemon_pid"].as_i64().expect("a pid");
    let daemon = i32::try_from(daemon).expect("a pid");
    stage.signal(2, daemon, "STOP");
    for (words, doing) in [
        (&["osmos", "ps", "--all"][..], "asking all nodes ("),
        (&["osmos", "metrics", "--all"], "asking for metrics ("),
    ] {
        let mut terminal = Terminal::open(&stage, words);
        terminal.expect(doing);
        terminal.type_text(INTERRUPT);
        terminal.expect("osmos: interrupted; it was only asked");
    }
    stage.signal(2, daemon, "CONT");
    let all = || stage.output(1, &["osmos", "ps", "--all"]);
    until_true("it answers again", || all().status.success());
}

#[test]
fn a_node_goes_on_going_down_without_who_asked() {
    let Some(stage) = slow_stage("prog-down") else { return };
    let program = grown_away(&stage, 1, 2);
    let daemon = status(&stage, 1)["daemon_pid"].as_i64().expect("a pid");
    let mut terminal = Terminal::open(&stage, &["osmos", "down"]);
    terminal.expect("taking this node down: 0 guests here, 1 own process away (");
    terminal.type_text(INTERRUPT);
    terminal.expect("osmos: interrupted; it goes on going down");
    until("its daemon has ended", || {
        stage.process(1, i32::try_from(daemon).expect("a pid")).is_none().then_some(())
    });
    stage.await_plain(program.pid);
}
