//! One small experiment for real, in a lab of sixteen nodes: processes started on one node are
//! spread and take turns, and each does all of its work once. How good the balancing is, is what
//! `osmos bench balance` measures on a machine that has nothing else to do; this must hold on any.

use serde_json::Value;
use std::process::Command;

const OSMOS: &str = env!("CARGO_BIN_EXE_osmos");
/// Seventeen processes on sixteen nodes: round robin takes twice as long as one process; turns, a
/// sixteenth longer. Half of the way between them is far from either.
const OF_STATIC_MAX: f64 = 0.8;

fn makespan(results: &Value, policy: &str) -> f64 {
    results["table1"][policy]["rows"][0]["measured"].as_f64().expect("a makespan")
}

#[test]
fn seventeen_real_processes_end_far_earlier_than_by_round_robin_with_the_right_results() {
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
