//! On kernels that lack something: what can do without does, and what cannot says so at once.

use crate::stage::{Stage, text};

/// All that there is another way for.
const OPTIONAL: [&str; 10] = [
    "time-namespaces",
    "cgroup-v2",
    "executable-memfd",
    "sync-wake-up",
    "page-map-scan",
    "map-query",
    "guard-regions",
    "write-tracking",
    "soft-dirty",
    "thread-ids",
];

#[test]
fn programs_move_all_the_same_on_a_kernel_that_lacks_all_that_can_be_done_without() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::without(&OPTIONAL, "old-kernel", 3);
    assert_supervisors_do_without(&stage);
    // Large and sparse memory, reads into it, threads, and children.
    let script = "\
import hashlib, mmap, os, threading
memory = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
def fill(start):
    for page in range(start, 16384, 97): memory[page << 12] = page % 251
threads = [threading.Thread(target=fill, args=(n * 13,)) for n in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
digest = hashlib.sha256()
for turn in range(40):
    digest.update(memory[turn << 20:(turn + 1) << 20])
    with open('/usr/bin/env', 'rb') as file: digest.update(file.read())
    if os.fork() == 0: os._exit(turn)
    digest.update(repr(os.wait()[1]).encode())
print(digest.hexdigest())";
    let words = ["python3", "-IS", "-c", script];
    let native = stage.text(1, &words);
    let storm = [&["osmos", "run", "--storm", "40", "--"], &words[..]].concat();
    assert_eq!(stage.text(1, &storm), native);
    let events = stage.text(1, &["osmos", "events", "--json"]);
    assert!(events.contains("\"event\":\"migrated\""), "it moved: {events}");
    stage.await_no_supervisors();
}

#[test]
fn on_another_machine_all_clocks_go_on_as_at_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    // Without knowing that they share their clocks, the nodes translate them.
    let stage = Stage::without(&["boot-id"], "other-clocks", 3);
    let script = "\
import threading, time
clocks = [0, 1, 4, 5, 6, 7, 11]
last, faults, rounds = {}, [], 0
condition = threading.Condition()
begin, end = time.time(), time.monotonic() + 4
while time.monotonic() < end:
    for clock in clocks * 300:
        now = time.clock_gettime_ns(clock)
        if now < last.get(clock, 0): faults.append((clock, now - last[clock]))
        last[clock] = now
    start = time.monotonic()
    with condition: condition.wait(0.01)
    waited = time.monotonic() - start
    if not 0.009 < waited < 5: faults.append(waited)
    rounds += 1
print(faults, rounds > 10, 4 <= time.time() - begin < 60)";
    let words = ["osmos", "run", "--storm", "40", "--", "python3", "-IS", "-c", script];
    let told = stage.text(1, &words);
    assert_eq!(told.trim(), "[] True True");
    let events = stage.text(1, &["osmos", "events", "--json"]);
    let moves = events.matches("\"event\":\"migrated\"").count();
    assert!(moves > 10, "{moves} moves: {events}");
    assert!(!events.contains("vDSO"), "it went home for its clocks: {events}");
}

/// Supervisors find out nothing by themselves: they are told.
fn assert_supervisors_do_without(stage: &Stage) {
    let program = stage.start_away(&["cat"]);
    let deputy = stage.deputy_supervisor(program.pid).expect("it is away");
    let (_, body) = stage.await_body(2, program.pid);
    for supervisor in [deputy, body] {
        let mut words = supervisor.words.iter().skip_while(|word| *word != "--without");
        let told = words.nth(1).expect("what is missing");
        assert!(OPTIONAL.iter().all(|name| told.split(',').any(|word| word == *name)), "{told}");
    }
    stage.signal(1, program.pid, "KILL");
}

#[test]
fn a_daemon_does_not_start_without_what_nothing_moves_without_and_names_the_kernel_that_has_it() {
    let stage = Stage::without_daemons("no-kernel");
    for (feature, since) in [
        ("wait-killable", "Linux 5.19"),
        ("rseq-configuration", "Linux 5.13"),
        ("checkpoint-restore", "CONFIG_CHECKPOINT_RESTORE"),
    ] {
        let complaint = stage.complaint(1, &["osmos", "up", "--without", feature]);
        assert!(complaint.contains(&format!("its kernel lacks {feature}")), "{complaint}");
        assert!(complaint.contains(since), "{complaint}");
    }
    let complaint = stage.complaint(1, &["osmos", "up", "--without", "warp"]);
    assert!(complaint.contains("no kernel feature is called `warp`"), "{complaint}");
}

#[test]
fn a_node_that_can_keep_no_guest_apart_takes_none_and_says_why() {
    for feature in ["user-namespaces", "chosen-pids"] {
        let stage = Stage::without(&[feature], "no-sandbox", 2);
        let program = stage.start(1, &["osmos", "run", "--home", "--", "sleep", "1000"]);
        stage.await_managed(program.pid);
        let refusal = stage.complaint(1, &["osmos", "migrate", &program.pid.to_string(), "2"]);
        assert!(refusal.contains("node 2 (") && refusal.contains(") takes no guest"), "{refusal}");
        assert!(refusal.contains(&format!("its kernel lacks {feature}")), "{refusal}");
        assert_eq!(stage.place(program.pid), Some(1));
        stage.await_plain(program.pid);
    }
}

#[test]
fn the_doctor_finds_every_feature_by_trying_it() {
    let stage = Stage::without_daemons("doctor");
    let output = stage.output(1, &["osmos", "doctor", "--json"]);
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)));
    for feature in OPTIONAL.iter().chain(&["wait-killable", "user-namespaces"]) {
        let found = findings.as_array().and_then(|all| all.iter().find(|f| f["name"] == *feature));
        assert!(found.is_some_and(|f| f["seen"] == "yes" || f["present"] == false), "{feature}");
    }
}
