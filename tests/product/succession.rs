//! One daemon after another, at home and away: kill -9 or an upgrade of a daemon moves no process,
//! loses none, and leaves none unmanaged.

use crate::stage::{COUNTING, Program, Seen, Stage, text, until, until_true};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const IDLE: &str = "while True: time.sleep(1000)";

/// Starts a program on node 1, past the start of its interpreter, which maps files and may fork.
fn start(stage: &Stage, options: &[&str], script: &str) -> Program {
    let script = format!("import select, sys, time\nprint('ready', flush=True)\n{script}");
    let python = ["--", "python3", "-IS", "-c", &script];
    let program = stage.start(1, &[&["osmos", "run"], options, &python].concat());
    assert_eq!(program.line(), "ready");
    program
}

fn start_resting(stage: &Stage) -> Program {
    start(stage, &["--home"], COUNTING)
}

fn start_away(stage: &Stage, script: &str) -> Program {
    let program = start(stage, &["--node", "2"], script);
    stage.await_place(program.pid, 2);
    program
}

fn count(program: &mut Program) -> u64 {
    program.ask("far?").parse().expect("a count")
}

/// It computes, and answers with counts that grow.
fn assert_goes_on(program: &mut Program) {
    let first = count(program);
    assert!(count(program) > first);
}

/// What a node lists of a process of node 1.
fn listed(stage: &Stage, node: u32, pid: i32) -> Option<Value> {
    stage.listed(node).into_iter().find(|p| p["home"] == 1 && p["pid"] == pid)
}

/// Its body, the supervisor at home, and how often it has moved.
fn standing(stage: &Stage, pid: i32) -> (i32, i32, Value) {
    let deputy = stage.deputy_supervisor(pid).expect("it is away").pid;
    let process = listed(stage, 1, pid).expect("it is listed");
    (stage.await_body(2, pid).0.pid, deputy, process["migrations"].clone())
}

/// Neither the process nor its supervisors were touched.
fn assert_never_moved(stage: &Stage, program: &mut Program, before: &(i32, i32, Value)) {
    stage.await_place(program.pid, 2);
    assert_eq!(&standing(stage, program.pid), before);
    assert!(stage.events(1, "lost", program.pid).is_empty());
    assert_goes_on(program);
}

#[test]
fn a_new_daemon_at_home_goes_on_where_the_last_one_was_killed() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("next-home", 2);
    let mut resting = start_resting(&stage);
    let mut away = start_away(&stage, COUNTING);
    let before = standing(&stage, away.pid);
    for _ in 0..3 {
        stage.kill_daemon(1);
        // Without a daemon it computes, and calls its home.
        assert_goes_on(&mut away);
        assert_goes_on(&mut resting);
        stage.start_daemon(1);
        assert_never_moved(&stage, &mut away, &before);
        assert_eq!(stage.place(resting.pid), Some(1), "managed without `adopt`");
    }
    stage.migrate(away.pid, "home");
    stage.await_plain(away.pid);
    for program in [&mut away, &mut resting] {
        until_true("it moves", || stage.try_migrate(program.pid, "2"));
        assert_goes_on(program);
        program.close_input();
        assert_eq!(program.end(), 0);
        until_true("its end is seen", || !stage.events(1, "ended", program.pid).is_empty());
    }
    stage.await_no_supervisors();
}

#[test]
fn a_new_daemon_away_has_its_guests_and_can_expel_them() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("next-away", 2);
    let mut guests = [start_away(&stage, COUNTING), start_away(&stage, COUNTING)];
    let before = guests.each_ref().map(|guest| standing(&stage, guest.pid));
    for _ in 0..3 {
        stage.kill_daemon(2);
        guests.iter_mut().for_each(assert_goes_on);
        stage.start_daemon(2);
        for (guest, before) in guests.iter_mut().zip(&before) {
            let process = listed(&stage, 2, guest.pid).expect("node 2 knows its guest");
            assert_eq!(process["node"], 2, "{process}");
            assert_never_moved(&stage, guest, before);
        }
    }
    stage.text(2, &["osmos", "expel"]);
    // Their supervisors end a moment after they have said so.
    let is_gone = |guest: &Program| stage.body(2, guest.pid).is_none();
    assert!(guests.iter().all(is_gone), "guests are gone when `expel` returns");
    for guest in &mut guests {
        stage.await_plain(guest.pid);
        stage.await_place(guest.pid, 1);
        assert_goes_on(guest);
    }
    stage.await_no_supervisors();
}

/// Makes a process, when told to, and ends; that says so, and waits to be told to end.
const ENDING_MAKER: &str = "
import os, sys
print('ready', flush=True)
sys.stdin.readline()
if os.fork(): os._exit(0)
print('made', flush=True)
sys.stdin.readline()
print('lives', flush=True)
";

#[test]
fn what_was_made_by_a_process_that_has_ended_outlives_the_daemon_of_its_node() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("made-by-ended", 2);
    let mut maker = stage.start_away(&["python3", "-IS", "-c", ENDING_MAKER]);
    assert_eq!(maker.line(), "ready");
    stage.await_place(maker.pid, 2);
    // Whoever gives what is made its supervisor at home does nothing for now.
    let home = Pid::from_raw(stage.node(1).daemon_pid().expect("a daemon"));
    kill(home, Signal::SIGSTOP).expect("it runs");
    maker.write("make one\n");
    until_true("its maker ends", || maker.has_ended());
    stage.kill_daemon(2);
    stage.start_daemon(2);
    kill(home, Signal::SIGCONT).expect("it runs");
    assert_eq!(maker.line(), "made");
    maker.write("go on\n");
    assert_eq!(maker.line(), "lives");
    stage.await_no_supervisors();
    for node in [1, 2] {
        assert!(stage.events(node, "lost", maker.pid).is_empty());
    }
}

#[test]
fn guests_go_home_from_a_node_whose_daemon_died_and_has_no_other() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::with_patience(1, "none-away", 2);
    let mut away = start_away(&stage, COUNTING);
    count(&mut away);
    stage.kill_daemon(2);
    stage.await_plain(away.pid);
    stage.await_place(away.pid, 1);
    let told = until("the reason is told", || stage.events(1, "came-home", away.pid).pop());
    assert_eq!(told["reason"]["code"], "no-daemon", "{told}");
    assert_goes_on(&mut away);
    stage.await_no_supervisors();
}

#[test]
fn what_ends_while_there_is_no_daemon_is_told_to_the_next() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("ended", 2);
    let mut away = start_away(&stage, COUNTING);
    let mut killed = start_away(&stage, IDLE);
    let mut resting = start_resting(&stage);
    count(&mut away);
    let (_, supervisor) = stage.await_body(2, killed.pid);
    stage.kill_daemon(1);
    for program in [&mut away, &mut resting] {
        program.close_input();
        assert_eq!(program.end(), 0, "its parent hears of it without a daemon");
    }
    supervisor.kill();
    assert_eq!(killed.end(), 128 + 9);
    stage.start_daemon(1);
    let ended = until("its end is told", || stage.events(1, "ended", away.pid).pop());
    assert_eq!(ended["wait_status"], 0, "{ended}");
    until("its end is told", || stage.events(1, "ended", resting.pid).pop());
    let lost = until("its loss is told", || stage.events(1, "lost", killed.pid).pop());
    assert_eq!(lost["node"], 2, "{lost}");
    for program in [&away, &resting, &killed] {
        until_true("it is forgotten", || stage.place(program.pid).is_none());
    }
    stage.await_no_supervisors();
}

#[test]
fn a_supervisor_that_a_new_daemon_does_not_know_brings_its_process_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("unknown", 2);
    let mut programs = [start_away(&stage, COUNTING), start_away(&stage, COUNTING)];
    for (program, node) in programs.iter_mut().zip([1, 2]) {
        count(program);
        stage.kill_daemon(node);
        let roster = stage.path(node, "/run/osmos/roster");
        let pages = std::fs::read_dir(roster).expect("a roster");
        pages.for_each(|page| std::fs::remove_file(page.expect("a page").path()).expect("removed"));
        stage.start_daemon(node);
        stage.await_plain(program.pid);
        assert_goes_on(program);
    }
    stage.await_no_supervisors();
}

#[test]
fn of_two_daemons_that_start_at_once_one_is_the_node() {
    let stage = Stage::without_daemons("two-daemons");
    let words = ["osmos", "up", "--listen", "127.0.0.1:0", "--speed", "1"];
    for _ in 0..5 {
        let starting = [stage.begin(1, &words), stage.begin(1, &words), stage.begin(1, &words)];
        let ended = starting.map(|daemon| daemon.wait_with_output().expect("ours"));
        let started = ended.iter().filter(|daemon| daemon.status.success()).count();
        assert_eq!(started, 1, "{ended:#?}");
        stage.text(1, &["osmos", "nodes"]);
        stage.text(1, &["osmos", "down"]);
    }
}

/// Kills daemons at moments that drift over everything a storm does, and starts them again.
fn storm_with_restarts(name: &str, nodes: &[u32], restarts: u32) {
    let stage = Stage::new(name, 3);
    let mut programs: Vec<Program> =
        (0..3).map(|_| start(&stage, &["--storm", "20"], COUNTING)).collect();
    for program in &mut programs {
        count(program);
    }
    let moves = |stage: &Stage, pid: i32| listed(stage, 1, pid).map(|p| p["migrations"].clone());
    let mut last: Vec<u64> = programs.iter_mut().map(count).collect();
    for restart in 0..restarts {
        let node = nodes[restart as usize % nodes.len()];
        // Different moments of moves that take about as long.
        let begun = Instant::now();
        let moment = Duration::from_millis(u64::from(restart * 37 % 300));
        while begun.elapsed() < moment {
            std::thread::yield_now();
        }
        stage.kill_daemon(node);
        stage.start_daemon(node);
        for (program, last) in programs.iter_mut().zip(&mut last) {
            let pid = program.pid;
            let now = count(program);
            assert!(now > *last, "it goes on from where it was");
            *last = now;
            assert!(stage.place(pid).is_some(), "it is under osmos still");
            let before = until("it is listed", || moves(&stage, pid));
            until_true("it storms still", || moves(&stage, pid).is_some_and(|now| now != before));
        }
    }
    for program in &mut programs {
        let pid = program.pid;
        assert!(stage.events(1, "lost", pid).is_empty());
        program.close_input();
        assert_eq!(program.end(), 0);
        until_true("it is forgotten", || stage.place(pid).is_none());
    }
    stage.await_no_supervisors();
}

#[test]
fn a_storm_outlives_restarts_of_the_daemon_at_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    storm_with_restarts("storm-home", &[1], 6);
}

#[test]
fn a_storm_outlives_restarts_of_daemons_away() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    storm_with_restarts("storm-away", &[2, 3], 6);
}

#[test]
fn a_storm_outlives_restarts_of_all_daemons() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    storm_with_restarts("storm-all", &[1, 2, 3], 6);
}

/// A supervisor that is just being started has, until it is an `osmos` of its own, all files of its
/// daemon: the lock and the sockets as well. If the daemon is killed then, they outlive it.
#[test]
fn the_next_daemon_waits_for_what_the_last_one_has_left_open() {
    let stage = Stage::new("left-open", 1);
    let daemon = stage.node(1).daemon_pid().expect("a daemon");
    let left = all_files(daemon);
    stage.kill_daemon(1);
    std::thread::scope(|scope| {
        let next = scope.spawn(|| stage.start_daemon(1));
        until_true("the next daemon asks for the lock", || {
            next.is_finished() || stage.node(1).daemon_pid().is_some_and(holds_lock_file)
        });
        drop(left);
        next.join().expect("the next daemon answers");
    });
}

/// Open files of another process, as if they had been inherited from it.
fn all_files(pid: i32) -> Vec<OwnedFd> {
    use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
    let process = Pid::from_raw(pid).expect("a pid");
    let process = pidfd_open(process, PidfdFlags::empty()).expect("it lives");
    let numbers = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives");
    let numbers = numbers.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter_map(|number| pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok())
        .collect()
}

fn holds_lock_file(pid: i32) -> bool {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let files = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    files.into_iter().any(|file| file.ends_with("daemon.lock"))
}

#[test]
fn an_upgrade_of_a_daemon_moves_no_process() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("upgrade", 2);
    let mut away = start_away(&stage, COUNTING);
    let mut resting = start_resting(&stage);
    let before = standing(&stage, away.pid);
    for node in [1, 2] {
        let pid = stage.node(node).daemon_pid().expect("a daemon");
        // As the lab has started it, with one option more.
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).expect("its command line");
        let words: Vec<String> = words.split(|byte| *byte == 0).map(text).collect();
        let options = words[2..].iter().map(String::as_str).filter(|word| !word.is_empty());
        let up: Vec<&str> = ["osmos", "up", "--replace"].into_iter().chain(options).collect();
        stage.text(node, &up);
        let now = Seen::all().into_iter().any(|process| process.pid == pid && !process.is_zombie());
        assert!(!now, "the last daemon has ended");
        assert_never_moved(&stage, &mut away, &before);
        assert_eq!(stage.place(resting.pid), Some(1), "managed without `adopt`");
        assert!(listed(&stage, 2, away.pid).is_some(), "node 2 knows its guest");
    }
    for program in [&mut away, &mut resting] {
        program.close_input();
        assert_eq!(program.end(), 0);
    }
    stage.await_no_supervisors();
    (1..=2).for_each(|node| drop(stage.text(node, &["osmos", "down"])));
}
