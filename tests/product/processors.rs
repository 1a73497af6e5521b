//! Nodes whose processors differ: a process goes where all is that its program was shown, and a
//! refusal names what is missing.

use crate::stage::{COUNTING, Stage, until, until_true};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A counting program of node 1, at home, on nodes that do without these things.
fn refused_on_node_2(without: &[&str], name: &str, words: &[&str]) {
    let stage = Stage::without(without, name, 2);
    let mut program =
        stage.start(1, &["osmos", "run", "--home", "--", "python3", "-IS", "-c", COUNTING]);
    program.ask("");
    let pid = program.pid.to_string();
    let complaint = stage.complaint(1, &["osmos", "migrate", &pid, "2"]);
    for word in words {
        assert!(complaint.contains(word), "{word:?} is missing: {complaint}");
    }
    assert_eq!(stage.place(program.pid), Some(1));
    program.ask("");
    stage.await_no_supervisors();
}

#[test]
fn a_process_stays_where_its_processor_has_what_another_lacks_and_is_told_what() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    refused_on_node_2(&["2:cpu-sse4_2"], "lacking", &["its processor lacks sse4_2"]);
}

#[test]
fn a_process_does_not_go_where_it_would_find_what_home_lacks() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let words = [
        "its processor has popcnt, which home's lacks",
        "`osmos run --cpu-baseline` starts one that does not look",
    ];
    refused_on_node_2(&["1:cpu-popcnt"], "exceeding", &words);
}

/// What node 1 says of the processor of node 2, once it was told.
fn cpu_of_node_2(stage: &Stage) -> (String, String) {
    until("node 2 has told of its processor", || {
        let text = stage.text(1, &["osmos", "nodes", "--json"]);
        let nodes: Vec<Value> = serde_json::from_str(&text).expect("a list of nodes");
        let node = nodes.into_iter().find(|node| node["id"] == 2)?;
        let word = |name: &str| node[name].as_str().unwrap_or_default().to_owned();
        (word("cpu") != "unknown").then(|| (word("cpu"), word("cpu_reason")))
    })
}

#[test]
fn a_program_that_keeps_to_the_baseline_goes_where_others_are_not_even_offered() {
    let stage = Stage::without(&["2:cpu-sse4_2", "2:cpu-popcnt"], "baseline", 2);
    let (fit, reason) = cpu_of_node_2(&stage);
    assert_eq!(fit, "baseline", "{reason}");
    assert!(reason.contains("sse4_2, popcnt") || reason.contains("popcnt, sse4_2"), "{reason}");
    // Known in advance: it costs no supervisor, and `why` names it.
    let plain = stage.start(1, &["osmos", "run", "--", "cat"]);
    stage.await_managed(plain.pid);
    let complaint = stage.complaint(1, &["osmos", "migrate", &plain.pid.to_string(), "2"]);
    assert!(complaint.contains("sse4_2") && complaint.contains("node 2"), "{complaint}");
    let why = stage.text(1, &["osmos", "why", &plain.pid.to_string()]);
    assert!(why.contains("sse4_2"), "{why}");
    assert!(stage.supervisors(1, "deputy").is_empty());
    // Its child is told, too, and goes as well.
    let script = "echo $GLIBC_TUNABLES; echo $OPENSSL_ia32cap; cat; exit 3";
    let words = ["osmos", "run", "--cpu-baseline", "--node", "2", "--", "sh", "-c", script];
    let mut program = stage.start(1, &words);
    let tunables = program.line();
    assert!(
        tunables.starts_with("glibc.cpu.hwcaps=-") && tunables.contains("-SSE4_2"),
        "{tunables}"
    );
    assert_eq!(program.line(), "~0x90000000000000:~0x0");
    stage.await_place(program.pid, 2);
    until_true("its child is on node 2", || {
        stage.listed(1).iter().any(|p| p["command"] == "cat" && p["node"] == 2)
    });
    assert_eq!(program.ask("hello"), "hello");
    program.close_input();
    assert_eq!(program.end(), 3);
}

/// What a kernel keeps for programs of what node 2 is to do without.
const WIDE_REGISTERS: [(&str, &str); 2] =
    [("avx512f", "avx512_registers"), ("ospke", "key_registers")];

#[test]
fn registers_outlive_handlers_that_return_where_the_kernel_keeps_fewer() {
    let flags = std::fs::read_to_string("/proc/cpuinfo").expect("processors");
    let has = |name: &str| flags.split_ascii_whitespace().any(|flag| flag == name);
    let wide: Vec<_> = WIDE_REGISTERS.iter().filter(|(flag, _)| has(flag)).collect();
    if !has("avx") || wide.is_empty() {
        return needs::skip("this processor has no registers that a kernel could do without");
    }
    let without: Vec<String> = wide.iter().map(|(_, set)| format!("2:cpu-{set}")).collect();
    let without: Vec<&str> = without.iter().map(String::as_str).collect();
    let stage = Stage::without(&without, "registers", 2);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/product/registers.c");
    let path = stage.path(1, "/tmp/registers");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-o"]).arg(&path).arg(source);
    assert!(compiler.status().expect("a C compiler: install gcc").success());
    let (fit, reason) = cpu_of_node_2(&stage);
    assert_eq!(fit, "baseline", "{reason}");
    let plain = stage.start(1, &["osmos", "run", "--home", "--", "/tmp/registers"]);
    stage.await_managed(plain.pid);
    let complaint = stage.complaint(1, &["osmos", "migrate", &plain.pid.to_string(), "2"]);
    assert!(complaint.contains("--cpu-baseline"), "{complaint}");
    let words = ["osmos", "run", "--cpu-baseline", "--home", "--", "/tmp/registers"];
    let mut program = stage.start(1, &words);
    let pid = program.pid;
    let go = |node: u64| {
        until_true("it is there", || {
            stage.place(pid) == Some(node) || {
                let target = if node == 1 { "home".into() } else { node.to_string() };
                stage.try_migrate(pid, &target);
                false
            }
        });
    };
    for (entered, left) in [(1, 1), (1, 2), (2, 2), (2, 1), (1, 2), (2, 1)] {
        go(entered);
        assert_eq!(program.ask(""), "handling");
        go(left);
        assert_eq!(program.ask(""), "kept", "entered on {entered}, left on {left}");
    }
}

/// Home has one processor, as far as its programs know, and node 2 all of this machine.
const LESS_AT_HOME: [&str; 1] = ["1:processors-from-1"];

/// The processors that each thread of a body may use.
fn allowed_away(stage: &Stage, pid: i32) -> Vec<String> {
    let (body, _) = stage.await_body(2, pid);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", body.pid)).expect("a body");
    let allowed = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(line.trim().to_owned())
    };
    tasks.flatten().filter_map(allowed).collect()
}

fn has_one_processor() -> bool {
    let is_one = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
    if is_one {
        eprintln!("skipped: this machine has one processor, so no node has more than home");
    }
    is_one
}

#[test]
fn a_program_with_a_table_of_processors_gets_only_numbers_that_home_has() {
    if has_one_processor() {
        return;
    }
    let stage = Stage::without(&LESS_AT_HOME, "percpu", 2);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/product/percpu.c");
    let program = stage.path(1, "/tmp/percpu");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread", "-o"]).arg(&program).arg(source);
    assert!(compiler.status().expect("a C compiler: install gcc").success());
    // At home it has one processor indeed.
    let mut program = stage.start_away(&["taskset", "-c", "0", "/tmp/percpu", "1"]);
    for _ in 0..20 {
        assert_eq!(program.ask(""), "counted");
    }
    until_true("it is on node 2", || {
        stage.place(program.pid) == Some(2) || {
            stage.try_migrate(program.pid, "2");
            false
        }
    });
    assert!(allowed_away(&stage, program.pid).iter().all(|list| list == "0"));
    for _ in 0..20 {
        assert_eq!(program.ask(""), "counted");
    }
    // Who does not ask has all processors.
    let other = stage.start_away(&["cat"]);
    assert!(allowed_away(&stage, other.pid).iter().all(|list| list != "0"));
}

#[test]
fn jemalloc_with_an_arena_for_each_processor_goes_to_a_node_with_more_of_them() {
    const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
    if !needs::can_run(&["python3"]) {
        return;
    }
    if has_one_processor() {
        return;
    }
    if !Path::new(LIBRARY).exists() {
        eprintln!("skipped: {LIBRARY} is not there (package libjemalloc2)");
        return;
    }
    let stage = Stage::without(&LESS_AT_HOME, "jemalloc", 2);
    let script = "\
import sys, threading
def fill():
    while True: [bytes(n) for n in range(1, 3000, 7)]
for _ in range(3): threading.Thread(target=fill, daemon=True).start()
for line in sys.stdin: print(sum(map(len, [bytes(n) for n in range(100)])), flush=True)";
    let preload = format!("LD_PRELOAD={LIBRARY}");
    let words = ["env", &preload, "MALLOC_CONF=percpu_arena:percpu", "PYTHONMALLOC=malloc"];
    let python = ["taskset", "-c", "0", "python3", "-IS", "-c", script];
    let mut program = stage.start_away(&[&words[..], &python].concat());
    for _ in 0..20 {
        assert_eq!(program.ask(""), "4950");
    }
    stage.try_migrate(program.pid, "2");
    assert!(allowed_away(&stage, program.pid).iter().all(|list| list == "0"));
    assert_eq!(program.ask(""), "4950");
}
