//! Moves that are not wanted any more while memory is copied ahead: the process runs on where it
//! is, nothing is left of the move anywhere, and whoever asked for it is told.

use crate::stage::{COUNTING, Program, Seen, Stage, text, until, until_true};
use kernel::features::{Feature, settled};
use std::process::Child;

/// So that 64 MiB take half a minute.
const SLOW: &str = "20mbit";
/// More than a body has that nothing was sent to.
const ARRIVING_KIB: u64 = 12 << 10;

fn start(stage: &Stage) -> Program {
    start_with(stage, 64)
}

/// A program with so many MiB of memory of its own.
pub fn start_with(stage: &Stage, mib: u32) -> Program {
    let script = format!("import os\nmemory = os.urandom({mib} << 20)\n{COUNTING}");
    let mut program =
        stage.start(1, &["osmos", "run", "--home", "--", "python3", "-IS", "-c", &script]);
    program.ask("");
    program
}

fn resident_kib(process: &Seen) -> Option<u64> {
    process.field("VmRSS")?.trim_end_matches(" kB").parse().ok()
}

/// Asks for a move; returns when memory arrives at the target.
pub fn begin(stage: &Stage, program: &Program, to: u32) -> Child {
    begin_by(stage, &[], program, to)
}

/// Likewise by a command that runs `osmos`.
fn begin_by(stage: &Stage, by: &[&str], program: &Program, to: u32) -> Child {
    let (pid, node) = (program.pid.to_string(), to.to_string());
    let mover = stage.begin(1, &[by, &["osmos", "migrate", &pid, &node]].concat());
    await_memory(stage, program, to);
    mover
}

/// That takes some seconds.
pub fn await_memory(stage: &Stage, program: &Program, to: u32) {
    let (arriving, _) = stage.await_body(to, program.pid);
    until_true("its memory arrives", || {
        resident_kib(&arriving).is_some_and(|kib| kib > ARRIVING_KIB)
    });
}

/// The `osmos migrate` that runs on node 1.
pub fn asking(stage: &Stage, to: u32) -> Seen {
    let to = to.to_string();
    until("somebody asks", || {
        let is_it = |p: &Seen| {
            p.words.get(1..).is_some_and(|words| {
                words.first().is_some_and(|word| word == "migrate") && words.contains(&to)
            })
        };
        stage.processes(1).into_iter().find(is_it)
    })
}

/// That it runs on where it was, and that nothing is left on the node that it was to go to.
fn assert_stays(stage: &Stage, program: &mut Program, at: u64, target: u32) {
    until_true("nothing is left there", || stage.supervisors(target, "body").is_empty());
    assert_eq!(stage.place(program.pid), Some(at));
    if at == 1 {
        stage.await_plain(program.pid);
    }
    let before: u64 = program.ask("").parse().expect("a count");
    assert!(program.ask("").parse::<u64>().expect("a count") > before, "it computes");
}

fn complaint(mover: Child) -> String {
    let output = mover.wait_with_output().expect("a command in the lab");
    assert!(!output.status.success(), "it moved: {}", text(&output.stdout));
    text(&output.stderr)
}

pub fn slow_stage(name: &str) -> Option<Stage> {
    let can = needs::can_run(&["python3"]) && settled().has(Feature::WriteTracking);
    can.then(|| Stage::with_link(name, 3, SLOW))
}

#[test]
fn an_interrupted_migrate_calls_its_move_off_and_says_so() {
    let Some(stage) = slow_stage("off-int") else { return };
    let mut program = start(&stage);
    let mover = begin(&stage, &program, 2);
    asking(&stage, 2).signal(nix::sys::signal::Signal::SIGINT);
    let complaint = complaint(mover);
    for words in ["calling the move", "was called off", "it stays home"] {
        assert!(complaint.contains(words), "{words:?} is missing: {complaint}");
    }
    assert_stays(&stage, &mut program, 1, 2);
    let stayed = stage.events(1, "stayed", program.pid);
    assert_eq!(stayed.last().expect("an event")["reason"]["code"], "called-off");
}

#[test]
fn a_move_is_called_off_when_whoever_asked_for_it_is_killed() {
    let Some(stage) = slow_stage("off-kill") else { return };
    let mut program = start(&stage);
    let mover = begin(&stage, &program, 2);
    asking(&stage, 2).kill();
    complaint(mover);
    assert_stays(&stage, &mut program, 1, 2);
}

#[test]
fn an_order_home_calls_off_what_leaves_and_what_moves_on() {
    let Some(stage) = slow_stage("off-home") else { return };
    let mut program = start(&stage);
    let pid = program.pid.to_string();
    let mover = begin(&stage, &program, 2);
    let told = stage.complaint(1, &["osmos", "migrate", &pid, "home"]);
    assert!(told.contains("it is on node 1 (") && told.contains(") already"), "{told}");
    assert!(complaint(mover).contains("it is wanted on node 1"));
    assert_stays(&stage, &mut program, 1, 2);
    stage.migrate(program.pid, "2");
    // Started as a shell starts what runs in the background.
    let ignoring = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"];
    let mover = begin_by(&stage, &ignoring, &program, 3);
    asking(&stage, 3).signal(nix::sys::signal::Signal::SIGINT);
    assert!(complaint(mover).contains("it stays on node 2"));
    assert_stays(&stage, &mut program, 2, 3);
    // One that was called off can be moved again, and called off again.
    let mover = begin(&stage, &program, 3);
    stage.migrate(program.pid, "home");
    assert!(complaint(mover).contains("it is wanted on node 1"));
    assert_stays(&stage, &mut program, 1, 3);
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn a_target_that_fails_while_memory_is_copied_ahead_leaves_the_process_where_it_is() {
    let Some(stage) = slow_stage("off-target") else { return };
    let mut program = start(&stage);
    let mover = begin(&stage, &program, 2);
    stage.body(2, program.pid).expect("it arrives").1.kill();
    let complaint = complaint(mover);
    assert!(complaint.contains("it stays home"), "{complaint}");
    assert_stays(&stage, &mut program, 1, 2);
}

/// Grows, or makes a call that no table knows and that is therefore made at home (`_sysctl`).
pub const GROWING: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None)
for line in sys.stdin:
    if line == 'grow\\n':
        memory = os.urandom(24 << 20)
    if line == 'go home\\n':
        libc.syscall(156, 0)
    print('done', flush=True)
";

#[test]
fn who_needs_home_while_it_moves_on_comes_home_at_the_first_attempt() {
    let Some(stage) = slow_stage("off-need") else { return };
    let run = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", GROWING];
    let mut program = stage.start(1, &run);
    program.ask("");
    stage.migrate(program.pid, "2");
    program.ask("grow");
    // Each piece of it takes longer than there is between two words of its progress, one of which
    // is still to come when the body is announced at home.
    let mover = begin(&stage, &program, 3);
    program.ask("go home");
    let came_home = stage.events(1, "came-home", program.pid);
    let codes: Vec<&str> = came_home.iter().filter_map(|e| e["reason"]["code"].as_str()).collect();
    assert!(codes.contains(&"call"), "{codes:?}");
    let stayed = stage.events(1, "stayed", program.pid);
    assert!(stayed.is_empty(), "{stayed:?}");
    // It may go there from home now.
    mover.wait_with_output().expect("a command in the lab");
}
