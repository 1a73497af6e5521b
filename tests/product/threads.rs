//! Threads that a program starts while it is away: they live where it lives, and are known at home.

use crate::stage::{Program, Stage};
use std::collections::BTreeSet;

/// Answers each line with the ids of so many threads that it has started and that wait; an empty
/// one has them end. All add to one total under one lock, as they begin and as they end.
const STARTER: &str = "\
import sys, threading
total, lock, gate, waiting = 0, threading.Lock(), threading.Event(), []
def work(ids, begun, gate):
    global total
    with lock:
        total += 1
        ids.append(threading.get_native_id())
    begun.release()
    gate.wait()
    with lock: total += 1
for line in sys.stdin:
    if line.strip():
        ids, count, begun = [], int(line), threading.Semaphore(0)
        waiting = [threading.Thread(target=work, args=(ids, begun, gate)) for _ in range(count)]
        for thread in waiting: thread.start()
        for thread in waiting: begun.acquire()
        print(*sorted(ids), flush=True)
    else:
        gate.set()
        for thread in waiting: thread.join()
        gate = threading.Event()
        print(total, flush=True)";

fn start(name: &str, without: &[&str]) -> Option<(Stage, Program)> {
    let can = needs::can_run(&["python3"]);
    let stage = can.then(|| Stage::without(without, name, 2))?;
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", STARTER];
    let mut program = stage.start(1, &words);
    // What starts it may be a script.
    assert_eq!(program.ask(""), "0");
    stage.migrate(program.pid, "2");
    Some((stage, program))
}

/// The threads of a process at home, but for the first.
fn at_home(stage: &Stage, pid: i32) -> BTreeSet<i32> {
    let listed = stage.text(1, &["ls", &format!("/proc/{pid}/task")]);
    let ids = listed.split_whitespace().map(|id| id.parse().expect("an id"));
    ids.filter(|id| *id != pid).collect()
}

fn ask(program: &mut Program, threads: usize) -> BTreeSet<i32> {
    let told = program.ask(&threads.to_string());
    told.split_whitespace().map(|id| id.parse().expect("an id")).collect()
}

#[test]
fn threads_begin_where_the_program_is_and_have_the_ids_that_home_shows() {
    let Some((stage, mut program)) = start("threads-away", &[]) else { return };
    let mut begun = 0;
    // More in all than there is room for at a time: those that have ended make room.
    for round in 1..=20 {
        let ids = ask(&mut program, 5);
        begun += 5;
        assert_eq!(ids.len(), 5);
        assert_eq!(at_home(&stage, program.pid), ids, "round {round}");
        assert_eq!(program.ask(""), (2 * begun).to_string());
    }
    assert_eq!(stage.place(program.pid), Some(2));
    assert!(stage.events(1, "came-home", program.pid).is_empty(), "it has not come home");
    // They are there wherever it goes, and end at home.
    let ids = ask(&mut program, 3);
    stage.migrate(program.pid, "home");
    assert_eq!(at_home(&stage, program.pid), ids);
    assert_eq!(program.ask(""), (2 * (begun + 3)).to_string());
    stage.migrate(program.pid, "2");
    let ids = ask(&mut program, 4);
    assert_eq!(at_home(&stage, program.pid), ids);
    stage.signal(1, program.pid, "TERM");
    assert_eq!(program.end(), 128 + nix::sys::signal::Signal::SIGTERM as i32);
    stage.await_no_supervisors();
}

#[test]
fn a_program_that_starts_more_threads_than_there_is_room_for_starts_the_others_at_home() {
    let Some((stage, mut program)) = start("threads-many", &[]) else { return };
    let ids = ask(&mut program, 200);
    assert_eq!(at_home(&stage, program.pid), ids);
    assert!(!stage.events(1, "came-home", program.pid).is_empty(), "some came home");
    assert_eq!(program.ask(""), "400");
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn where_ids_cannot_be_chosen_threads_are_started_at_home() {
    let Some((stage, mut program)) = start("threads-home", &["thread-ids"]) else { return };
    let ids = ask(&mut program, 3);
    assert_eq!(at_home(&stage, program.pid), ids);
    let events = stage.events(1, "came-home", program.pid);
    let why = events.first().expect("it came home")["reason"]["text"].to_string();
    assert!(why.contains("new-task"), "{why}");
    assert_eq!(program.ask(""), "6");
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}
