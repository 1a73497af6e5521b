//! Kill -9 of every part while a process is away: no process in two places, none left stopped,
//! traced or waited for in vain, no body and no sandbox left; what is lost is told, and what was at
//! home is as before.

use crate::stage::{COUNTING, Program, Seen, Stage, kill, text, until, until_true};
use lab::Disturbance;
use nix::sys::signal::Signal;
use std::time::Duration;

/// Sleeps most of its life.
const IDLE: &str = "import time\nwhile True: time.sleep(1000)";
/// Waits in a read of its input, which is forwarded, and gives back what it reads.
const READING: &str = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)";

fn python(script: &str) -> [&str; 4] {
    ["python3", "-IS", "-c", script]
}

/// A process of node 1 that was started at home and never leaves.
fn start_bystander(stage: &Stage) -> Program {
    stage.start(1, &[&["osmos", "run", "--home", "--"], &python(READING)[..]].concat())
}

/// One process of each kind away on node 2, past the start of its interpreter.
fn start_each(stage: &Stage) -> Vec<Program> {
    let each = [COUNTING, IDLE, READING].map(|script| {
        // Loading modules maps files, for which a process comes home.
        let script = format!("import select, sys, time\nprint('ready', flush=True)\n{script}");
        let program = stage.start_away(&python(&script));
        assert_eq!(program.line(), "ready");
        stage.await_place(program.pid, 2);
        program
    });
    each.into()
}

fn assert_untouched(bystander: &mut Program, stage: &Stage) {
    assert_eq!(bystander.ask("still here?"), "still here?");
    stage.await_plain(bystander.pid);
}

fn assert_lost(stage: &Stage, program: &mut Program) {
    assert_eq!(program.end(), 128 + 9, "a process without its body is killed");
    let pid = program.pid;
    let lost = until("the loss is told", || stage.events(1, "lost", pid).pop());
    assert_eq!(lost["node"], 2, "{lost}");
    assert!(lost["reason"]["text"].as_str().is_some_and(|text| !text.is_empty()), "{lost}");
    until_true("the process is forgotten", || stage.place(pid).is_none());
    assert!(stage.process(1, pid).is_none(), "process {pid} is still there");
}

#[test]
fn the_loss_of_a_body_ends_its_process_alone_and_is_told() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("lost-body", 2);
    let mut bystander = start_bystander(&stage);
    let mut guests = start_each(&stage);
    let mut other = guests.pop().expect("three");
    for program in &mut guests {
        let (body, supervisor) = stage.await_body(2, program.pid);
        supervisor.kill();
        assert_lost(&stage, program);
        until_true("the body is gone", || !body.is_there());
    }
    assert_eq!(other.ask("and you?"), "and you?", "another guest of the same node");
    other.close_input();
    assert_eq!(other.end(), 0);
    stage.await_no_supervisors();
    assert_untouched(&mut bystander, &stage);
}

#[test]
fn the_loss_of_a_supervisor_at_home_ends_its_process_and_its_body_and_is_told() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("lost-deputy", 2);
    let mut bystander = start_bystander(&stage);
    let mut guests = start_each(&stage);
    let mut other = guests.pop().expect("three");
    for program in &mut guests {
        let (body, _) = stage.await_body(2, program.pid);
        stage.deputy_supervisor(program.pid).expect("it is away").kill();
        assert_lost(&stage, program);
        until_true("the body is gone", || !body.is_there());
    }
    assert_eq!(other.ask("and you?"), "and you?", "another guest of the same node");
    other.close_input();
    assert_eq!(other.end(), 0);
    stage.await_no_supervisors();
    assert_untouched(&mut bystander, &stage);
}

#[test]
fn supervisors_killed_in_a_storm_leave_nothing_behind() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("storm", 3);
    let mut bystander = start_bystander(&stage);
    for half in ["deputy", "body", "deputy", "body", "deputy", "body"] {
        let command = [&["osmos", "run", "--storm", "20", "--"], &python(COUNTING)[..]].concat();
        let mut program = stage.start(1, &command);
        let pid = program.pid;
        program.ask("far?");
        // A supervisor that dies before its process is in its hands leaves it at home, unharmed.
        // Looks apart: killed as soon as they are seen, all would die young and harmless, the more
        // so where the disk is slow.
        let (mut looks, mut apart) = (0, 1);
        until_true("the storm has ended", || {
            looks += 1;
            if looks == apart {
                (looks, apart) = (0, if apart < 128 { apart * 2 } else { 1 });
                let supervisors = (1..=3).flat_map(|node| stage.supervisors(node, half));
                supervisors.for_each(|supervisor| supervisor.try_kill());
            }
            program.has_ended()
        });
        assert_eq!(program.end(), 128 + 9);
        until_true("the process is forgotten", || stage.place(pid).is_none());
        assert!(!stage.events(1, "lost", pid).is_empty(), "the loss is told");
        assert!(stage.process(1, pid).is_none());
        stage.await_no_supervisors();
    }
    assert_untouched(&mut bystander, &stage);
}

#[test]
fn a_body_that_is_lost_while_it_arrives_is_no_loss_for_the_node_that_it_comes_from() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("arrival", 3);
    let mut guests = start_each(&stage);
    for program in &mut guests {
        let pid = program.pid;
        let moving = stage.begin(1, &["osmos", "migrate", &pid.to_string(), "3"]);
        until("a place is kept", || stage.supervisors(3, "body").pop()).try_kill();
        let moved = moving.wait_with_output().expect("an answer").status.success();
        // Killed after the move had ended, it takes the process along; before, it does not.
        if moved {
            assert_eq!(program.end(), 128 + 9);
            let lost = until("the loss is told", || stage.events(1, "lost", pid).pop());
            assert_eq!(lost["node"], 3, "{lost}");
        } else {
            assert_eq!(stage.place(pid), Some(2));
            stage.await_body(2, pid);
            assert!(!program.has_ended());
            stage.migrate(pid, "home");
            stage.await_plain(pid);
        }
    }
    stage.await_no_supervisors();
}

#[test]
fn a_process_killed_while_away_takes_its_body_along() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("killed", 2);
    for program in &mut start_each(&stage) {
        let (body, _) = stage.await_body(2, program.pid);
        stage.signal(1, program.pid, "KILL");
        assert_eq!(program.end(), 128 + 9);
        until_true("the body is gone", || !body.is_there());
        let ended = until("its end is told", || stage.events(1, "ended", program.pid).pop());
        assert_eq!(ended["wait_status"], 9, "{ended}");
        assert!(stage.events(1, "lost", program.pid).is_empty());
    }
    stage.await_no_supervisors();
}

#[test]
fn guests_outlive_the_daemon_of_the_node_that_they_are_on() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("away-daemon", 2);
    let mut bystander = start_bystander(&stage);
    let mut guests = start_each(&stage);
    stage.kill_daemon(2);
    assert_all_answer(&mut guests);
    stage.start_daemon(2);
    for program in &mut guests {
        stage.migrate(program.pid, "home");
        stage.await_plain(program.pid);
    }
    assert_all_answer(&mut guests);
    stage.await_no_supervisors();
    for program in &guests {
        until_true("node 2 takes guests again", || stage.try_migrate(program.pid, "2"));
    }
    assert_all_answer(&mut guests);
    assert_untouched(&mut bystander, &stage);
}

/// All of [`start_each`] are alive: two of them say so.
fn assert_all_answer(guests: &mut [Program]) {
    let [counting, idle, reading] = guests else { panic!("not three") };
    let count = |answer: String| answer.parse::<u64>().expect("a count");
    let first = count(counting.ask("far?"));
    assert!(count(counting.ask("and now?")) > first);
    assert_eq!(reading.ask("echo"), "echo");
    assert!(!idle.has_ended());
}

#[test]
fn processes_come_home_when_the_daemon_of_their_home_dies_and_no_other_comes() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::with_patience(1, "home-daemon", 2);
    let mut bystander = start_bystander(&stage);
    let mut guests = start_each(&stage);
    kill(stage.node(1).daemon_pid().expect("a daemon"));
    for program in &guests {
        stage.await_plain(program.pid);
    }
    stage.await_no_supervisors();
    assert_all_answer(&mut guests);
    assert_untouched(&mut bystander, &stage);
    stage.start_daemon(1);
    for program in &guests {
        // Those that their user has placed there go there again by themselves.
        until_true("it moves again", || {
            stage.place(program.pid) == Some(2) || stage.try_migrate(program.pid, "2")
        });
    }
    assert_all_answer(&mut guests);
}

#[test]
fn processes_survive_the_death_of_all_daemons_in_a_storm() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::with_patience(1, "all-daemons", 3);
    let mut programs: Vec<Program> = [COUNTING, COUNTING]
        .map(|script| {
            let words = [&["osmos", "run", "--storm", "20", "--"], &python(script)[..]].concat();
            stage.start(1, &words)
        })
        .into();
    for program in &mut programs {
        program.ask("far?");
        until_true("it storms", || stage.events(1, "migrated", program.pid).len() > 3);
    }
    for node in [3, 1, 2] {
        kill(stage.node(node).daemon_pid().expect("a daemon"));
    }
    for program in &mut programs {
        stage.await_plain(program.pid);
        let before: u64 = program.ask("far?").parse().expect("a count");
        assert!(program.ask("and now?").parse::<u64>().expect("a count") > before);
    }
    stage.await_no_supervisors();
}

#[test]
fn guests_go_home_from_a_node_that_goes_down() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("down-away", 2);
    let mut guests = start_each(&stage);
    stage.text(2, &["osmos", "down"]);
    assert!(stage.supervisors(2, "body").is_empty(), "guests are gone when `down` returns");
    until_true("the daemon is gone", || stage.node(2).daemon_pid().is_none());
    for program in &guests {
        stage.await_plain(program.pid);
        stage.await_place(program.pid, 1);
    }
    assert_all_answer(&mut guests);
    stage.await_no_supervisors();
}

#[test]
fn own_processes_come_home_before_a_node_goes_down() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("down-home", 2);
    let mut guests = start_each(&stage);
    stage.text(1, &["osmos", "down"]);
    for program in &guests {
        let process = stage.process(1, program.pid).expect("it lives");
        assert_eq!(process.field("TracerPid").as_deref(), Some("0"), "home when `down` returns");
    }
    assert_all_answer(&mut guests);
    stage.await_no_supervisors();
}

/// Longer than nodes bear with each other's silence; only the links of processes last.
const CUT: Duration = Duration::from_secs(25);

#[test]
fn a_cut_that_heals_loses_nothing_and_all_can_be_moved_again() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    outlive_cut("cut", CUT);
}

#[test]
#[ignore = "takes two minutes"]
fn a_cut_of_a_minute_and_a_half_loses_nothing() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    outlive_cut("cut-long", Duration::from_secs(90));
}

fn outlive_cut(name: &str, length: Duration) {
    let stage = Stage::new(name, 2);
    let mut guests = start_each(&stage);
    stage.disturb(&Disturbance { cut_after: Some(1), ..Disturbance::default() });
    guests[0].write("far?\n");
    std::thread::sleep(length);
    assert_eq!(stage.status_of(2).as_deref(), Some("gone"));
    stage.disturb(&Disturbance::default());
    let first: u64 = guests[0].line().parse().expect("a count, asked for meanwhile");
    assert!(guests[0].ask("and now?").parse::<u64>().expect("a count") > first);
    until("node 2 is back", || stage.status_of(2).filter(|status| status == "alive"));
    for program in &guests {
        until_true("it comes home", || stage.try_migrate(program.pid, "home"));
        stage.await_plain(program.pid);
    }
    assert_all_answer(&mut guests);
    stage.await_no_supervisors();
}

/// Computes for some seconds whenever it is asked to, without a call, and with so much memory that
/// its moves take a while.
const LARGE: &str = "\
import sys
m = b'x' * (512 << 20)
print('ready', flush=True)
for line in sys.stdin:
    n = 0
    while n < 120_000_000: n += 1
    print(n, flush=True)";

/// More than a body has that nothing was sent to.
const ARRIVING_KIB: u64 = 8 << 10;

/// True when much of a body's memory has arrived, or the command that moves it has ended.
fn is_arriving(arriving: &Seen, mover: &mut std::process::Child) -> bool {
    let resident = arriving.field("VmRSS");
    let kib = resident.and_then(|rss| rss.trim_end_matches(" kB").parse::<u64>().ok());
    kib.is_none_or(|kib| kib > ARRIVING_KIB) || mover.try_wait().expect("a child").is_some()
}

/// Has much that cannot be compressed, and says whether it is still the same.
const CHECKED: &str = "\
import os, sys, zlib
m = os.urandom(256 << 20)
print(zlib.crc32(m), flush=True)
for line in sys.stdin: print(zlib.crc32(m), flush=True)";

#[test]
fn a_supervisor_that_is_lost_while_memory_arrives_is_no_loss_for_the_process() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("lost-streams", 2);
    let words = [&["osmos", "run", "--home", "--"], &python(CHECKED)[..]].concat();
    for half in ["body", "deputy"] {
        let mut attempts = 0..20;
        loop {
            assert!(attempts.next().is_some(), "no {half} was met on its way");
            let mut program = stage.start(1, &words);
            let sum = program.line();
            let pid = program.pid;
            let mut mover = stage.begin(1, &["osmos", "migrate", &pid.to_string(), "2"]);
            let (arriving, body) = stage.await_body(2, pid);
            until_true("its memory arrives", || is_arriving(&arriving, &mut mover));
            let supervisor = match half {
                "body" => Some(body),
                _ => stage.deputy_supervisor(pid),
            };
            supervisor.iter().for_each(Seen::try_kill);
            let moved = mover.wait_with_output().expect("an answer").status.success();
            // Killed after the move had ended, it takes the process along.
            if moved {
                assert_eq!(program.end(), 128 + 9);
                continue;
            }
            stage.await_plain(pid);
            assert_eq!(program.ask("and now?"), sum);
            program.close_input();
            assert_eq!(program.end(), 0);
            until_true("the body is gone", || !arriving.is_there());
            break;
        }
    }
    stage.await_no_supervisors();
}

/// Cuts the network in the middle of a move; true if that broke the move, and the process went on
/// where it was while the network was still cut.
fn meets_cut(stage: &Stage, program: &mut Program, from: u32, to: u32, cut_after: u32) -> bool {
    let pid = program.pid;
    until_true("it is there", || {
        stage.place(pid) == Some(u64::from(from)) || stage.try_migrate(pid, &from.to_string())
    });
    let there = match from {
        1 => stage.process(1, pid).expect("it lives"),
        _ => stage.await_body(from, pid).0,
    };
    program.write("compute\n");
    let ticks = |process: &Seen| if process.is_there() { process.cpu_ticks() } else { 0 };
    let idle = ticks(&there);
    until_true("it computes", || ticks(&there) > idle + 10);
    let mut mover = stage.begin(1, &["osmos", "migrate", &pid.to_string(), &to.to_string()]);
    let (arriving, _) = stage.await_body(to, pid);
    // The offer, for which it runs and which may take its time, is over.
    until_true("its memory arrives", || is_arriving(&arriving, &mut mover));
    stage.disturb(&Disturbance { cut_after: Some(cut_after), ..Disturbance::default() });
    // To be captured takes some time of a processor, too. Most of its memory is sent while it
    // computes: only when the move is given up is it known that it stays.
    let before = ticks(&arriving);
    let stays = until("it goes on somewhere", || {
        let is_over = !arriving.is_there() || mover.try_wait().expect("a child").is_some();
        let computes_there = ticks(&arriving) > before + 30;
        computes_there.then_some(false).or_else(|| is_over.then_some(true))
    });
    let before = ticks(&there);
    until_true("it goes on", || !stays || ticks(&there) > before + 30);
    let status = stage.status_of(to);
    assert_ne!(status.as_deref(), Some("gone"), "it stood still until all was given up");
    stage.disturb(&Disturbance::default());
    let moved = mover.wait_with_output().expect("a command in the lab");
    assert_eq!(program.line(), "120000000", "{}", text(&moved.stderr));
    stays && !moved.status.success()
}

fn assert_no_cut_keeps_it_frozen(name: &str, from: u32, to: u32, cut_after: u32) {
    let stage = Stage::new(name, 3);
    let words = [&["osmos", "run", "--home", "--"], &python(LARGE)[..]].concat();
    let mut program = stage.start(1, &words);
    assert_eq!(program.line(), "ready");
    let mut attempts = 0..20;
    while !meets_cut(&stage, &mut program, from, to, cut_after) {
        assert!(attempts.next().is_some(), "no cut met it on its way");
    }
    until_true("it can be moved again", || stage.try_migrate(program.pid, &to.to_string()));
    assert_eq!(program.ask("compute"), "120000000");
    until_true("it comes home", || stage.try_migrate(program.pid, "home"));
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn a_body_that_moves_on_while_its_home_is_cut_off_goes_on_where_it_was() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    assert_no_cut_keeps_it_frozen("cut-home", 2, 3, 1);
}

#[test]
fn a_body_that_moves_on_to_a_node_that_is_cut_off_goes_on_where_it_was() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    assert_no_cut_keeps_it_frozen("cut-target", 2, 3, 2);
}

#[test]
fn a_process_that_leaves_for_a_node_that_is_cut_off_goes_on_at_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    assert_no_cut_keeps_it_frozen("cut-leaving", 1, 2, 1);
}

/// Counts signals of a timer, and says how many there were when asked.
const TIMED: &str = "\
import signal, sys
count = 0
def tick(*_):
    global count
    count += 1
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
print('ready', flush=True)
for line in sys.stdin: print(count, flush=True)
signal.setitimer(signal.ITIMER_REAL, 0)";

/// Orders the process from node 2 to node 3, whose supervisor for it is stopped before it answers;
/// true if that was in time, and the process got signals nevertheless.
fn lives_while_nobody_answers(stage: &Stage, program: &mut Program) -> bool {
    stage.await_place(program.pid, 2);
    let mut mover = stage.begin(1, &["osmos", "migrate", &program.pid.to_string(), "3"]);
    let supervisor = until("there is a berth", || stage.supervisors(3, "body").pop());
    supervisor.signal(Signal::SIGSTOP);
    let mut count = || program.ask("how many?").parse::<u64>().expect("a count");
    let first = count();
    until_true("signals come", || count() > first + 20);
    let is_met = mover.try_wait().expect("a command in the lab").is_none();
    supervisor.signal(Signal::SIGCONT);
    let moved = mover.wait_with_output().expect("a command in the lab");
    assert!(moved.status.success(), "{}", text(&moved.stderr));
    stage.await_place(program.pid, 3);
    is_met && !program.has_ended()
}

#[test]
fn a_body_that_is_offered_to_another_node_gets_its_signals_meanwhile() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("offered", 3);
    let mut program = stage.start_away(&python(TIMED));
    assert_eq!(program.line(), "ready");
    let mut attempts = 0..20;
    loop {
        until_true("it is on node 2", || {
            stage.place(program.pid) == Some(2) || stage.try_migrate(program.pid, "2")
        });
        if lives_while_nobody_answers(&stage, &mut program) {
            break;
        }
        assert!(attempts.next().is_some(), "each answer came too early");
    }
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}
