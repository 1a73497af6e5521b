//! One small experiment for real, in a lab of sixteen nodes: processes started on one node are
//! spread and take turns, and each does all of its work once. How good the balancing is, is what
//! `osmos bench balance` measures on a machine that has nothing else to do; this must hold on any.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const OSMOS: &str = env!("CARGO_BIN_EXE_osmos");
/// Seventeen processes on sixteen nodes: round robin takes twice as long as one process; turns, a
/// sixteenth longer. Half of the way between them is far from either.
const OF_STATIC_MAX: f64 = 0.8;

/// Two labs at a time on a small machine are none.
static ALONE: Mutex<()> = Mutex::new(());

fn makespan(results: &Value, policy: &str) -> f64 {
    results["table1"][policy]["rows"][0]["measured"].as_f64().expect("a makespan")
}

#[test]
fn seventeen_real_processes_end_far_earlier_than_by_round_robin_with_the_right_results() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(OSMOS);
    command.args(["bench", "balance", "--lab", "--quick", "--json"]);
    let output = command.output().expect("osmos runs");
    let words = String::from_utf8_lossy(&output.stderr);
    if words.contains("no lab with slow nodes") {
        return needs::skip(words.trim());
    }
    // It fails if a process is lost, ends badly, or says what it should not.
    assert!(output.status.success(), "{words}");
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let (ours, theirs) = (makespan(&results, "osmos"), makespan(&results, "static"));
    assert!(ours < OF_STATIC_MAX * theirs, "{ours:.2} s, by round robin {theirs:.2} s");
    assert!(results["table1"]["osmos"]["migrations"].as_u64() >= Some(16), "{results}");
    assert_eq!(results["table1"]["static"]["migrations"], 0, "{results}");
    let preemptive = &results["table1_preemptive"]["osmos"]["over_optimum_pct_mean"];
    assert!(preemptive.as_f64() > Some(0.0), "nobody beats the optimum: {preemptive}");
}

/// Whether the process has a handler for that signal (`SigCgt` of proc(5)).
fn catches(pid: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal as i32 - 1)) != 0)
}

#[test]
fn an_experiment_that_is_interrupted_leaves_no_lab_behind() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(OSMOS);
    command.args(["bench", "balance", "--lab", "--quick"]).stdout(Stdio::null());
    let child = command.stderr(Stdio::piped()).spawn().expect("osmos runs");
    let (pid, deadline) = (child.id(), Instant::now() + Duration::from_secs(60));
    // It tells nobody when its lab is up; from then on it looks after interruptions.
    while !catches(pid, Signal::SIGINT) && Path::new(&format!("/proc/{pid}/fd/2")).exists() {
        assert!(Instant::now() < deadline, "no lab comes up");
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = kill(Pid::from_raw(pid as i32), Signal::SIGINT);
    let output = child.wait_with_output().expect("it ends");
    let words = String::from_utf8_lossy(&output.stderr);
    if words.contains("no lab with slow nodes") {
        return needs::skip(words.trim());
    }
    assert_eq!(output.status.code(), Some(128 + Signal::SIGINT as i32), "{words}");
    let lab = format!("/run/osmos-lab/balance-{pid}");
    assert!(!Path::new(&lab).exists(), "{lab} is still there");
}
