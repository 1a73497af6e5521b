//! `osmos demo` where no lab can be made, as in an ordinary container: it plays on loopback, says
//! what that cannot show and what to allow, and succeeds.

use serde_json::Value;
use std::process::Command;

/// A user namespace in which no host name, and so no lab and no sandbox, can be had.
const FORBIDDING: &str = "echo 0 > /proc/sys/user/max_uts_namespaces && exec \"$@\"";

#[test]
fn the_demo_plays_on_loopback_and_says_what_is_forbidden() {
    if !needs::can_run(&["unshare", "sha256sum"]) {
        return;
    }
    // It plays with any of these, and cannot without one.
    if !["awk", "flac", "gzip", "xz"].into_iter().any(needs::has) {
        return needs::skip(&needs::lack("awk"));
    }
    let inside = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c", FORBIDDING, "sh"]).args(words);
        command.output().expect("unshare runs")
    };
    let tried = inside(&["true"]);
    if !tried.status.success() {
        return needs::skip(String::from_utf8_lossy(&tried.stderr).trim());
    }
    let played = inside(&[env!("CARGO_BIN_EXE_osmos"), "demo", "--quick", "--json"]);
    let complaint = String::from_utf8_lossy(&played.stderr);
    assert!(played.status.success(), "{complaint}");
    let report: Value = serde_json::from_slice(&played.stdout).expect("JSON");
    let missing = report["missing"].to_string();
    for said in ["no separate nodes", "allow namespaces", "share files", "no process could move"] {
        assert!(missing.contains(said), "{said}: {missing}");
    }
    let encoding = report["encoding"].as_array().expect("rows");
    let awk = Some(&report["awk"]).filter(|row| !row.is_null());
    assert_eq!(awk.is_none(), missing.contains("awk programs"), "{missing}");
    assert_eq!(encoding.is_empty(), missing.contains("no tracks"), "{missing}");
    assert!(encoding.is_empty() || encoding.len() == 5);
    let mut rows = encoding.iter().chain(awk);
    assert!(rows.all(|row| row["identical_output"] == true));
}
