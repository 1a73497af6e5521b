//! Programs that become others while they are away: the new one begins at home, in the same
//! process, and nothing of the old one travels.

use crate::stage::{Program, Stage, build, until_true};
use kernel::features::{Feature, settled};
use std::time::{Duration, Instant};

const INSIDE: &str = "/tmp/exec";

/// Puts the built program of `exec.c` into the nodes of a stage.
fn put_program(stage: &Stage, nodes: u32) {
    let dir = tempfile::tempdir().expect("a directory");
    let built = build("exec", &["-O1", "-pthread"], dir.path());
    for node in 1..=nodes {
        std::fs::copy(&built, stage.path(node, INSIDE)).expect("a copy");
    }
}

fn stage_of(name: &str, nodes: u32) -> Stage {
    let stage = Stage::new(name, nodes);
    put_program(&stage, nodes);
    stage
}

/// The program at home, and moved to node 2.
fn start_away(stage: &Stage) -> Program {
    let program = stage.start(1, &["osmos", "run", "--home", "--", INSIDE]);
    assert!(program.line().starts_with("began "));
    until_true("it leaves", || stage.try_migrate(program.pid, "2"));
    program
}

/// Whether node 2 takes guests: who is to be there and has begun a program at home would be sent
/// back ten milliseconds later, and is no plain process then.
fn take_nobody(stage: &Stage, is_wanted: bool) {
    let words: &[&str] = if is_wanted { &["osmos", "block"] } else { &["osmos", "noblock"] };
    stage.text(2, words);
}

fn began(program: &Program, rest: &str) -> String {
    format!("began {} 1{rest}", program.pid)
}

/// Why the process came home, each time.
fn reasons(stage: &Stage, pid: i32) -> Vec<String> {
    let code = |event: serde_json::Value| event["reason"]["code"].as_str().map(str::to_owned);
    stage.events(1, "came-home", pid).into_iter().filter_map(code).collect()
}

#[test]
fn a_program_that_is_begun_away_runs_at_home_as_a_plain_process() {
    let stage = stage_of("exec", 2);
    let mut program = start_away(&stage);
    take_nobody(&stage, true);
    let next = program.ask(&format!("exec {INSIDE} one two"));
    assert_eq!(next, began(&program, " one two"));
    stage.await_plain(program.pid);
    assert_eq!(reasons(&stage, program.pid), ["exec"]);
    until_true("the body is gone", || stage.supervisors(2, "body").is_empty());
    // It is managed as before, and goes where it is sent.
    take_nobody(&stage, false);
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask(&format!("exec {INSIDE} three")), began(&program, " three"));
    assert_eq!(reasons(&stage, program.pid), ["exec", "exec"]);
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn a_program_that_is_begun_away_returns_to_where_it_is_to_be() {
    let stage = stage_of("exec-returns", 2);
    let mut program = start_away(&stage);
    for round in 1..=3 {
        let next = program.ask(&format!("exec {INSIDE} {round}"));
        assert_eq!(next, began(&program, &format!(" {round}")));
        let count = || stage.events(1, "migrated", program.pid).len();
        until_true("it returns", || count() == round + 1);
        assert_eq!(stage.place(program.pid), Some(2));
    }
    assert_eq!(reasons(&stage, program.pid), ["exec"; 3]);
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn a_call_that_fails_leaves_the_program_where_it_is() {
    let stage = stage_of("exec-fails", 2);
    let mut program = start_away(&stage);
    stage.put(1, "/tmp/plain", "no program");
    let long = format!("/{}", "x".repeat(2000));
    for (path, error) in [
        ("/no/such/program", "ENOENT"),
        ("/etc", "EACCES"),
        ("/tmp/plain", "EACCES"),
        ("/tmp/plain/below", "ENOTDIR"),
        (&long, "ENAMETOOLONG"),
        ("no-such-name", "ENOENT"),
    ] {
        let word = if path.starts_with('/') { "exec" } else { "search" };
        assert_eq!(program.ask(&format!("{word} {path} x")), error, "{path}");
    }
    assert_eq!(stage.place(program.pid), Some(2));
    assert_eq!(reasons(&stage, program.pid), [""; 0]);
    // Found in the last of many directories, by none of which it came home.
    let found = program.ask("search echo found");
    assert_eq!(found, "found");
    assert_eq!(program.end(), 0);
    assert_eq!(reasons(&stage, program.pid), ["exec"]);
    stage.await_no_supervisors();
}

#[test]
fn arguments_and_environment_are_those_of_the_program_however_large() {
    let stage = stage_of("exec-large", 2);
    // Few large strings, many small ones, one that no kernel takes, and more than travels at once.
    for (bytes, count, code) in
        [(100_000, 12, "exec"), (1, 9000, "exec"), (140_000, 1, ""), (120_000, 40, "")]
    {
        let mut program = start_away(&stage);
        let sum = program.ask(&format!("large {bytes} {count}"));
        let next = program.line();
        let is_begun = next == began(&program, "");
        if bytes < 131_072 && bytes * count < 1_900_000 {
            assert!(is_begun, "{next}");
            assert_eq!(program.ask("sum"), sum);
        } else {
            assert_eq!(next, "E2BIG");
        }
        let seen = reasons(&stage, program.pid);
        assert!(code.is_empty() || seen == [code], "{bytes} {count}: {seen:?}");
        program.close_input();
        assert_eq!(program.end(), 0);
    }
    let mut program = start_away(&stage);
    take_nobody(&stage, true);
    assert_eq!(program.ask(&format!("null {INSIDE}")), began(&program, ""));
    stage.await_plain(program.pid);
}

#[test]
fn scripts_are_run_by_whom_they_name_and_see_files_and_directory_as_they_were() {
    let stage = stage_of("exec-script", 2);
    let script =
        "#!/bin/sh -e\ncd -P .; echo \"$$ $0 $* $(pwd) $MARK\"; read line; echo \"$line\"\n";
    stage.put(1, "/tmp/script", script);
    stage.text(1, &["chmod", "755", "/tmp/script"]);
    let words = ["sh", "-c", "cd /usr; MARK=kept exec osmos run --home -- /tmp/exec"];
    let mut program = stage.start(1, &words);
    assert_eq!(program.line(), began(&program, ""));
    stage.migrate(program.pid, "2");
    let told = program.ask("exec /tmp/script a b");
    assert_eq!(told, format!("{} /tmp/script a b /usr kept", program.pid));
    assert_eq!(program.ask("the rest of its input"), "the rest of its input");
    assert_eq!(program.end(), 0);
    assert_eq!(reasons(&stage, program.pid), ["exec"]);
    stage.await_no_supervisors();
}

#[test]
fn signals_that_are_blocked_pending_or_ignored_stay_so_and_handlers_are_gone() {
    let stage = stage_of("exec-signals", 2);
    let mut program = start_away(&stage);
    // Who runs the tests may have them ignore interrupts and more.
    let inherited = ["default 1", "default 2", "default 3"];
    for order in inherited.into_iter().chain([
        "block 10",
        "raise 10",
        "block 12",
        "ignore 1",
        "handle 15",
        "ignore 17",
    ]) {
        assert_eq!(program.ask(order), "ok");
    }
    stage.signal(1, program.pid, "USR2");
    until_true("it is pending", || program.ask("signals").contains("12:bp"));
    let before = program.ask("signals");
    assert_eq!(before, "1:i 10:bp 12:bp 17:i .");
    assert_eq!(program.ask(&format!("exec {INSIDE}")), began(&program, ""));
    assert_eq!(program.ask("signals"), before);
    assert_eq!(reasons(&stage, program.pid), ["exec"]);
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask("signals"), before);
    // The handler was the old program's: now it is deadly.
    stage.signal(1, program.pid, "TERM");
    assert_eq!(program.end(), 128 + 15);
    stage.await_no_supervisors();
}

/// Each comes at another moment around the call: before, in or after it. The old program handles
/// it, or the new one dies of it.
#[test]
fn no_signal_is_lost_around_the_call() {
    let stage = stage_of("exec-races", 2);
    let (mut handled, mut deadly) = (0, 0);
    for round in 0..24 {
        let mut program = start_away(&stage);
        assert_eq!(program.ask("handle 14"), "ok");
        program.write(&format!("alarm {}\nexec {INSIDE}\n", 1 + round % 8));
        let (mut is_set, mut has_begun) = (false, false);
        loop {
            match program.line_or_end() {
                Some(line) if line == "handled" => handled += 1,
                // On a loaded machine the signal can come before the program has said so.
                Some(line) if line == "ok" && !is_set => is_set = true,
                Some(line) => {
                    let is_due = is_set && !has_begun;
                    assert!(is_due && line == began(&program, ""), "round {round}: {line}");
                    has_begun = true;
                    if handled + deadly == round + 1 {
                        program.close_input();
                    }
                }
                None => break,
            }
        }
        deadly += u32::from(program.end() == 128 + 14);
        assert_eq!(handled + deadly, round + 1);
    }
    eprintln!("{handled} handled, {deadly} deadly");
    stage.await_no_supervisors();
}

#[test]
fn a_process_with_threads_comes_home_to_begin_another_program() {
    let stage = stage_of("exec-threads", 2);
    let mut program = start_away(&stage);
    assert_eq!(program.ask("threads 3"), "ok");
    assert_eq!(program.ask("exec /no/such/program"), "ENOENT");
    stage.migrate(program.pid, "2");
    take_nobody(&stage, true);
    assert_eq!(program.ask(&format!("exec {INSIDE} alone")), began(&program, " alone"));
    stage.await_plain(program.pid);
    let tasks = stage.text(1, &["ls", &format!("/proc/{}/task", program.pid)]);
    assert_eq!(tasks.trim(), program.pid.to_string());
    assert!(reasons(&stage, program.pid).iter().all(|code| code == "call"));
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn a_program_that_begins_itself_a_hundred_times_in_a_storm_says_what_it_says_without_one() {
    let stage = stage_of("exec-storm", 3);
    let expected = stage.text(1, &[INSIDE, "again", "100", "x"]);
    let words = ["osmos", "run", "--storm", "20", "--", INSIDE, "again", "100", "x"];
    for round in 0..3 {
        let told = stage.text(1, &words);
        // Each process has its own number.
        assert_eq!(without_pids(&told), without_pids(&expected), "round {round}");
        assert_eq!(pids(&told).len(), 1, "it is one process");
    }
    let away = stage.text(1, &["osmos", "events"]);
    assert!(away.contains("begun another program"), "some of it happened away");
    stage.await_no_supervisors();
}

fn pids(told: &str) -> std::collections::BTreeSet<&str> {
    told.lines().filter_map(|line| line.split(' ').nth(1)).collect()
}

/// The words of each line, but for the pid.
fn without_pids(told: &str) -> Vec<Vec<&str>> {
    let mut lines: Vec<Vec<&str>> = told.lines().map(|line| line.split(' ').collect()).collect();
    for words in &mut lines {
        words.remove(1);
    }
    lines
}

#[test]
fn a_program_for_another_node_goes_there_again_after_each_that_it_becomes() {
    let stage = stage_of("exec-placed", 2);
    let chain = "exec env MARK=1 nice -n 1 sh -c 'exec /tmp/exec placed'";
    let mut program = stage.start(1, &["osmos", "run", "--node", "2", "--", "sh", "-c", chain]);
    assert_eq!(program.line(), began(&program, " placed"));
    stage.await_place(program.pid, 2);
    assert_eq!(program.ask(&format!("exec {INSIDE} again")), began(&program, " again"));
    stage.await_place(program.pid, 2);
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn processor_time_of_stays_away_is_the_next_programs_as_well() {
    let stage = stage_of("exec-time", 2);
    let mut program = start_away(&stage);
    assert_eq!(program.ask("compute 700"), "ok");
    assert_eq!(program.ask(&format!("exec {INSIDE}")), began(&program, ""));
    stage.migrate(program.pid, "2");
    let ms: u64 = program.ask("time").parse().expect("a number");
    assert!((700..5000).contains(&ms), "{ms}");
    program.close_input();
    assert_eq!(program.end(), 0);
}

#[test]
fn children_that_are_made_away_become_other_programs() {
    let stage = stage_of("exec-children", 2);
    let mut program = start_away(&stage);
    for _ in 0..10 {
        assert_eq!(program.ask("spawn sh -c true"), "0");
        assert_eq!(program.ask("spawn false"), "1");
        assert_eq!(program.ask("spawn no-such-program"), "99");
    }
    assert_eq!(program.ask(&format!("exec {INSIDE}")), began(&program, ""));
    assert_eq!(program.ask("spawn true"), "0");
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

/// The kernel would take a set-user-id program's rights from a process that an ordinary user's
/// supervisor traces.
#[test]
fn programs_that_give_rights_give_them() {
    if !needs::can_run(&["setpriv"]) {
        return;
    }
    let stage = stage_of("exec-rights", 2);
    // What is mounted for a node has no such rights.
    if !stage
        .output(1, &["mount", "-t", "tmpfs", "-o", "mode=755", "none", "/mnt"])
        .status
        .success()
    {
        return needs::skip("nothing can be mounted in a node");
    }
    for (name, mode) in [("/mnt/rights", "4755"), ("/mnt/without", "755")] {
        stage.text(1, &["cp", INSIDE, name]);
        stage.text(1, &["chmod", mode, name]);
    }
    let script = "printf '#!/mnt/rights\\n' > /mnt/runs && chmod 755 /mnt/runs";
    stage.text(1, &["sh", "-c", script]);
    let anna = "12345";
    let user = ["setpriv", "--reuid", anna, "--regid", anna, "--clear-groups"];
    let run = ["osmos", "run", "--home", "--", INSIDE];
    for (path, code) in [("/mnt/without", "exec"), ("/mnt/rights", "call"), ("/mnt/runs", "call")] {
        let mut native = stage.start(1, &[&user[..], &[path]].concat());
        assert!(native.line().starts_with("began "));
        let expected = native.ask("who");
        assert!(expected == "12345 0" || code == "exec", "{path}: {expected}");
        let mut program = stage.start(1, &[&user[..], &run].concat());
        assert!(program.line().starts_with("began "));
        stage.migrate(program.pid, "2");
        let next = program.ask(&format!("exec {path}"));
        assert!(next.starts_with("began "), "{next}");
        assert_eq!(program.ask("who"), expected, "{path}");
        assert_eq!(reasons(&stage, program.pid), [code], "{path}");
        program.close_input();
        assert_eq!(program.end(), 0);
    }
}

/// Whatever moment it is: the process goes on with its program, or it was lost before it had one.
#[test]
fn a_body_that_is_lost_around_the_call_takes_no_program_along_that_has_begun() {
    let stage = stage_of("exec-lost", 2);
    let (mut begun, mut lost) = (0, 0);
    // Later moments only where the machine is so busy that none has come to its call by then.
    for round in 0..50 {
        if round >= 24 && begun > 0 {
            break;
        }
        let mut program = start_away(&stage);
        let (_, supervisor) = stage.await_body(2, program.pid);
        take_nobody(&stage, true);
        program.write(&format!("exec {INSIDE} {round}\n"));
        let asked = Instant::now();
        // The call comes some time after its line, and later on a busy machine.
        let wait = Duration::from_millis(1).mul_f64(1.2f64.powi(round));
        while asked.elapsed() < wait {
            std::hint::spin_loop();
        }
        supervisor.try_kill();
        match program.line_or_end() {
            Some(line) => {
                assert_eq!(line, began(&program, &format!(" {round}")));
                assert_eq!(program.ask("raise 0"), "ok");
                stage.await_plain(program.pid);
                assert!(stage.events(1, "lost", program.pid).is_empty());
                program.close_input();
                assert_eq!(program.end(), 0);
                begun += 1;
            }
            None => {
                assert_eq!(program.end(), 128 + 9);
                lost += 1;
            }
        }
        take_nobody(&stage, false);
    }
    eprintln!("{begun} begun, {lost} lost");
    assert!(begun > 0);
    stage.await_no_supervisors();
}

#[test]
fn pages_that_come_behind_a_program_are_not_waited_for_when_it_becomes_another() {
    if !settled().has(Feature::KernelFaults) || !settled().has(Feature::WriteTracking) {
        return needs::skip("this kernel, or this user, does not serve faults (`osmos doctor`)");
    }
    let stage = Stage::with_link("exec-late", 2, "20mbit");
    put_program(&stage, 2);
    let mut program = stage.start(1, &["osmos", "run", "--home", "--", INSIDE]);
    assert!(program.line().starts_with("began "));
    assert_eq!(program.ask("memory 64"), "ok");
    let pid = program.pid.to_string();
    let leave = ["osmos", "migrate", &pid, "2", "--method", "post-copy"];
    until_true("it leaves", || stage.output(1, &leave).status.success());
    let asked = Instant::now();
    assert_eq!(program.ask("exec /no/such/program"), "ENOENT");
    assert_eq!(program.ask(&format!("exec {INSIDE}")), began(&program, ""));
    // All of it takes half a minute.
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert_eq!(reasons(&stage, program.pid), ["exec"]);
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn a_program_becomes_another_while_it_moves_on_or_is_called_home() {
    let stage = stage_of("exec-moving", 3);
    let mut reached = std::collections::BTreeMap::new();
    for round in 0..16u64 {
        let mut program = start_away(&stage);
        assert_eq!(program.ask("memory 8"), "ok");
        let to = if round % 2 == 0 { "3" } else { "home" };
        let mover = stage.begin(1, &["osmos", "migrate", &program.pid.to_string(), to]);
        std::thread::sleep(Duration::from_millis(2 * round));
        assert_eq!(
            program.ask(&format!("exec {INSIDE} {round}")),
            began(&program, &format!(" {round}"))
        );
        drop(mover.wait_with_output().expect("a command in the lab"));
        for code in reasons(&stage, program.pid) {
            *reached.entry(code).or_insert(0) += 1;
        }
        assert_eq!(program.ask("who"), "0 0");
        program.close_input();
        assert_eq!(program.end(), 0);
    }
    eprintln!("{reached:?}");
    stage.await_no_supervisors();
}
