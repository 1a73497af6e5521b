//! What whoever looks after a cluster has: metrics, findings of all nodes, reports, classic verbs.

use crate::stage::{Stage, until, until_true};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

/// Gets what is at an address, without any library.
const GET: &str = "\
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode(), end='')";

/// The value of one line of metrics, by all that is before it.
fn value(text: &str, sample: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok())
}

/// A sample of a node of the lab, whose name is its host's.
fn of_node(text: &str, name: &str, node: u32, label: &str) -> Option<f64> {
    let prefix = format!("{name}{{node=\"{node}\",name=\"");
    let line = text.lines().find(|line| line.starts_with(&prefix) && line.contains(label))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The kinds of all events that node 1 has recorded.
fn told(stage: &Stage) -> Vec<String> {
    let text = stage.text(1, &["osmos", "events", "--json"]);
    let kind = |line: &str| {
        let event: Value = serde_json::from_str(line).expect("an event");
        event["event"].as_str().expect("a kind").to_owned()
    };
    text.lines().map(kind).filter(|kind| kind != "homecalls").collect()
}

#[test]
fn metrics_count_what_events_tell_and_a_silent_node_is_down_beside_the_others() {
    let stage = Stage::new("metrics", 3);
    let program = stage.start_away(&["sleep", "300"]);
    for to in ["3", "home", "2"] {
        stage.text(1, &["osmos", "migrate", &program.pid.to_string(), to]);
    }
    let (text, told) = until("events and metrics are of one moment", || {
        let before = told(&stage);
        let text = stage.text(1, &["osmos", "metrics"]);
        (told(&stage) == before).then_some((text, before))
    });
    let count = |kind: &str| told.iter().filter(|event| *event == kind).count() as f64;
    let moved = count("migrated");
    assert_eq!(moved, 4.0);
    let of_one = |name: &str, label: &str| of_node(&text, name, 1, label);
    assert_eq!(of_one("osmos_moves_total", "outcome=\"moved\""), Some(moved), "{text}");
    assert_eq!(of_one("osmos_moves_total", "outcome=\"stayed\""), Some(count("stayed")));
    assert_eq!(of_one("osmos_moves_total", "outcome=\"came_home\""), Some(count("came-home")));
    assert_eq!(of_one("osmos_moves_total", "outcome=\"lost\""), Some(0.0));
    assert_eq!(of_one("osmos_processes_managed_total", ""), Some(count("managed")));
    assert_eq!(of_one("osmos_processes_ended_total", ""), Some(count("ended")));
    assert_eq!(of_one("osmos_moves_done_total", "cause=\"user\""), Some(3.0));
    assert_eq!(of_one("osmos_move_freeze_seconds_count", ""), Some(moved));
    assert_eq!(of_one("osmos_processes", "place=\"away\""), Some(1.0));
    let sent = of_one("osmos_move_sent_bytes_total", "").expect("it has moved");
    let freeze_s = of_one("osmos_move_freeze_seconds_sum", "").expect("it has stood still");
    assert!(sent > 0.0 && freeze_s > 0.0 && freeze_s < 30.0, "{sent} {freeze_s}");
    assert!(of_one("osmos_daemon_resident_memory_bytes", "") > Some(1e6));
    assert_eq!(value(&text, "osmos_up{node=\"2\"}"), None, "it speaks for its own node");
    let all = stage.text(3, &["osmos", "metrics", "--all"]);
    let up = |text: &str| [1, 2, 3].map(|node| of_node(text, "osmos_up", node, ""));
    assert_eq!(up(&all), [Some(1.0); 3], "{all}");
    assert_eq!(of_node(&all, "osmos_guests", 2, ""), Some(1.0), "{all}");
    assert_eq!(of_node(&all, "osmos_moves_total", 1, "outcome=\"moved\""), Some(moved));
    stage.kill_daemon(3);
    until_true("node 3 is known to be silent", || {
        let all = stage.text(1, &["osmos", "metrics", "--all"]);
        let is_told = of_node(&all, "osmos_load_ratio", 3, "").is_some();
        up(&all) == [Some(1.0), Some(1.0), Some(0.0)] && !is_told
    });
}

#[test]
fn metrics_are_served_on_loopback_and_written_as_a_whole_file() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::joined("scrape", 2);
    let server = stage.start(1, &["osmos", "metrics", "--listen", "0", "--all"]);
    let address = server.line();
    assert!(address.starts_with("http://127.0.0.1:") && address.ends_with("/metrics"), "{address}");
    let get = |address: &str| stage.output(1, &["python3", "-c", GET, address]);
    let output = get(&address);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(of_node(&text, "osmos_up", 2, ""), Some(1.0), "{text}");
    assert!(!get(&address.replace("/metrics", "/")).status.success(), "404");
    // From the other node nobody reaches it.
    let elsewhere = address.replace("127.0.0.1", &stage.node(1).address().to_string());
    let output = stage.output(2, &["python3", "-c", GET, &elsewhere]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && told.contains("refused"), "{told}");
    stage.put(1, "/tmp/osmos.prom", "as before");
    stage.text(1, &["osmos", "metrics", "--output", "/tmp/osmos.prom"]);
    let path = stage.path(1, "/tmp/osmos.prom");
    let written = fs::read_to_string(&path).expect("a file");
    assert_eq!(of_node(&written, "osmos_up", 1, ""), Some(1.0), "{written}");
    let mode = fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "the exporter is another user");
    let complaint = stage.complaint(1, &["osmos", "metrics", "--output", "/no/such/file"]);
    assert!(complaint.contains("cannot write /no/such/file"), "{complaint}");
    let json = stage.text(1, &["osmos", "metrics", "--all", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json[1]["node"], &json[1]["metrics"]["guests"]), (&2.into(), &0.into()));
}

#[test]
fn the_doctor_of_all_nodes_says_what_each_lacks_and_names_the_silent() {
    let stage = Stage::of_nodes_without_daemons("doctors", 3);
    stage.text(1, &["osmos", "up"]);
    stage.text(2, &["osmos", "up", "--without", "boot-id"]);
    stage.text(3, &["osmos", "up"]);
    stage.join(2, 1);
    stage.join(3, 1);
    let text = stage.text(1, &["osmos", "doctor", "--all", "--json"]);
    let all: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let has_boot_id = |of: &Value| {
        let findings = of["findings"].as_array().expect("findings");
        let found = findings.iter().find(|finding| finding["name"] == "boot-id");
        found.expect("it was looked for")["present"].as_bool().expect("yes or no")
    };
    let seen: Vec<bool> = all.iter().map(has_boot_id).collect();
    assert_eq!(seen, [true, false, true], "as each daemon goes by it");
    assert_eq!(all[1]["node"], 2);
    let shown = stage.text(1, &["osmos", "doctor", "--all"]);
    let of_two = shown.split("node 2").nth(1).expect("node 2");
    let of_two = of_two.split("node 3").next().expect("its lines");
    assert!(of_two.contains("can be a node; missing:") && of_two.contains("boot-id"), "{shown}");
    stage.text(3, &["osmos", "down"]);
    let output = stage.output(1, &["osmos", "doctor", "--all"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("node 3"), "{told}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("node 2"), "the others are there");
}

/// Words of `cluster.json` that are secrets, as they could stand in a text.
fn secrets(stage: &Stage, node: u32) -> Vec<String> {
    let text = fs::read_to_string(stage.path(node, "/var/lib/osmos/cluster.json"));
    let state: Value = serde_json::from_str(&text.expect("the cluster")).expect("JSON");
    let mut found = Vec::new();
    let mut rest = vec![&state];
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(fields) => rest.extend(fields.values()),
            Value::Array(values) if values.len() == 32 => {
                let bytes: Vec<u8> =
                    values.iter().filter_map(|byte| byte.as_u64()?.try_into().ok()).collect();
                found.push(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
                found.push(serde_json::to_string(&bytes).expect("JSON"));
            }
            Value::Array(values) => rest.extend(values),
            Value::String(word) if word.len() >= 40 => found.push(word.clone()),
            _ => {}
        }
    }
    found
}

/// All files of a report, as one text.
fn unpacked(stage: &Stage, path: &str) -> String {
    stage.text(1, &["tar", "-xzOf", path])
}

#[test]
fn a_report_has_what_a_bug_report_needs_and_no_secret() {
    if !needs::can_run(&["tar", "gzip"]) {
        return;
    }
    let stage = Stage::joined("report", 2);
    let token = stage.text(1, &["osmos", "token"]);
    let token = token.trim();
    let in_environment = format!("SECRET={token}");
    let program = stage.start(
        1,
        &["env", &in_environment, "osmos", "run", "--", "sh", "-c", "sleep 300; :", "a-password"],
    );
    stage.await_managed(program.pid);
    // Somebody has logged what he should not have.
    let log = stage.path(1, "/var/lib/osmos/daemon.log");
    let mut log = fs::OpenOptions::new().append(true).open(&log).expect("a log");
    writeln!(log, "token {token} end-of-log").expect("written");
    let path = "/tmp/report.tar.gz";
    let told = stage.text(1, &["osmos", "report", path]);
    let text = unpacked(&stage, path);
    for name in ["versions.txt", "doctor.json", "ps.json", "daemon.log", "owner.json"] {
        assert!(told.contains(name), "{name} is listed: {told}");
    }
    assert!(!told.contains("missing"), "{told}");
    for word in ["osmos 0.", "kernel Linux", "boot-id", "end-of-log", "\"managed\"", "--lend-root"]
    {
        assert!(text.contains(word), "{word} is in it: {text}");
    }
    assert!(text.contains(&format!("\"pid\": {}", program.pid)), "the process is in it");
    let mut secrets = secrets(&stage, 1);
    assert!(!secrets.is_empty(), "the test knows the cluster's secret");
    let key = fs::read(stage.path(1, "/var/lib/osmos/node.key")).expect("a key");
    secrets.push(key.iter().map(|byte| format!("{byte:02x}")).collect());
    secrets.push(String::from_utf8_lossy(&key).trim().to_owned());
    secrets.extend([token.to_owned(), "a-password".to_owned(), "SECRET=".to_owned()]);
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        assert!(!text.contains(secret.as_str()), "{secret}");
    }
    let mode = fs::metadata(stage.path(1, path)).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let complaint = stage.complaint(1, &["osmos", "report", path]);
    assert!(complaint.contains("is there already") && complaint.contains("--force"), "{complaint}");
    stage.text(1, &["osmos", "report", "--force", "--command-lines", path]);
    let text = unpacked(&stage, path);
    assert!(text.contains("a-password") && !text.contains(token), "{text}");
    // Without a daemon there is less, and it says so.
    stage.text(1, &["osmos", "down"]);
    let told = stage.text(1, &["osmos", "report", "--force", "--json", path]);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let missing = told["missing"].as_array().expect("a list");
    let of_status = missing.iter().find(|missing| missing["name"] == "status.json");
    let why = of_status.expect("there is nobody to ask")["why"].as_str().expect("a reason");
    assert!(why.contains("osmos up"), "{why}");
    assert!(unpacked(&stage, path).contains("end-of-log"), "what can be had is in it");
}

#[test]
fn a_user_has_no_more_guests_and_storms_than_a_node_allows() {
    let limits = ["--guests-per-user", "1", "--storms-per-user", "1"];
    let stage = Stage::joined_with("per-user", 2, &limits);
    let sleep = || {
        let program = stage.start(1, &["osmos", "run", "--home", "--", "sleep", "300"]);
        stage.await_managed(program.pid);
        program
    };
    let (first, second) = (sleep(), sleep());
    stage.text(1, &["osmos", "migrate", &first.pid.to_string(), "2"]);
    let to_two = ["osmos", "migrate", &second.pid.to_string(), "2"];
    let complaint = stage.complaint(1, &to_two);
    assert!(
        complaint.contains("it has as many guests of user 0 as it takes of one user, which is 1"),
        "{complaint}"
    );
    // The next daemon goes by it as well, and the owner can see and change it.
    stage.text(2, &["osmos", "up", "--replace"]);
    let status = stage.text(2, &["osmos", "status"]);
    assert!(status.contains("at most 1 guest of one user"), "{status}");
    let status: Value =
        serde_json::from_str(&stage.text(2, &["osmos", "status", "--json"])).expect("a status");
    let kept = [&status["owner"]["guests_per_user_max"], &status["owner"]["storms_per_user_max"]];
    assert_eq!(kept, [&Value::from(1), &Value::from(1)]);
    until("its guest is known to the next daemon", || {
        let listed = stage.listed(2);
        listed.iter().any(|process| process["pid"] == first.pid).then_some(())
    });
    until_true("it is refused again", || {
        let output = stage.output(1, &to_two);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        told.contains("as many guests of user 0 as")
    });
    assert!(complaint.contains("--guests-per-user"), "{complaint}");
    stage.text(1, &["osmos", "migrate", &first.pid.to_string(), "home"]);
    stage.text(1, &to_two);
    let storm = ["osmos", "run", "--storm", "1000000", "--", "sleep", "300"];
    let storming = stage.start(1, &storm);
    stage.await_managed(storming.pid);
    let output = stage.output(1, &storm);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{told}");
    assert!(told.contains("user 0 has 1 processes in a storm"), "{told}");
    stage.text(1, &["osmos", "kill", &storming.pid.to_string()]);
    until_true("its storm is over", || stage.place(storming.pid).is_none());
    let again = stage.start(1, &storm);
    stage.await_managed(again.pid);
}

#[test]
fn what_is_done_to_a_process_of_another_user_is_told_with_who_and_from_where() {
    if !needs::can_run(&["setpriv"]) {
        return;
    }
    let stage = Stage::new("audit", 2);
    let as_anna = ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"];
    let run = ["osmos", "run", "--home", "--", "sleep", "300"];
    let mut program = stage.start(1, &[&as_anna[..], &run].concat());
    stage.await_managed(program.pid);
    let pid = program.pid.to_string();
    let migrate = |to: &'static str| ["osmos", "migrate", &pid, to];
    stage.text(1, &[&as_anna[..], &migrate("2")].concat());
    assert_eq!(stage.events(1, "acted-on", program.pid), [] as [Value; 0], "it is her own");
    stage.text(1, &migrate("home"));
    stage.text(2, &["osmos", "kill", &format!("1:{pid}")]);
    assert_eq!(program.end(), 128 + 15);
    let told = stage.events(1, "acted-on", program.pid);
    let told: Vec<(&Value, &Value, &Value)> =
        told.iter().map(|event| (&event["uid"], &event["by_node"], &event["act"])).collect();
    let (root, nowhere) = (Value::from(0), Value::Null);
    assert_eq!(told[0], (&root, &nowhere, &"migrate to node 1".into()));
    assert_eq!(told[1], (&root, &Value::from(2), &"signal 15".into()));
    let shown = stage.text(1, &["osmos", "events"]);
    assert!(
        shown.contains("user 0 on node 2 (") && shown.contains(") did to it: signal 15"),
        "{shown}"
    );
}

#[test]
fn orders_of_an_owner_are_told_of_each_process_of_another_user() {
    if !needs::can_run(&["setpriv"]) {
        return;
    }
    let stage = Stage::new("audit-owner", 2);
    let as_anna = ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"];
    let run = ["osmos", "run", "--home", "--", "sleep", "300"];
    let hers = stage.start(1, &[&as_anna[..], &run].concat());
    let roots = stage.start(1, &run);
    let both = [hers.pid, roots.pid];
    both.iter().for_each(|pid| stage.await_managed(*pid));
    let acts = |node, pid| -> Vec<String> {
        let told = stage.events(node, "acted-on", pid);
        told.iter().filter_map(|event| event["act"].as_str().map(str::to_owned)).collect()
    };
    // Root's own are moved by root.
    let send_both_away = || {
        stage.text(1, &[&as_anna[..], &["osmos", "migrate", &hers.pid.to_string(), "2"]].concat());
        stage.migrate(roots.pid, "2");
    };
    send_both_away();
    stage.text(1, &["osmos", "bring"]);
    send_both_away();
    stage.text(2, &["osmos", "expel"]);
    stage.text(2, &["osmos", "noblock"]);
    send_both_away();
    stage.text(2, &["osmos", "drain"]);
    assert_eq!(acts(1, hers.pid), ["bring home"]);
    assert_eq!(acts(2, hers.pid), ["expel", "drain the node"]);
    let plain = stage.start(1, &[&as_anna[..], &["sleep", "300"]].concat());
    stage.text(1, &["osmos", "adopt", &plain.pid.to_string()]);
    assert_eq!(acts(1, plain.pid), ["adopt"]);
    for node in [1, 2] {
        assert_eq!(acts(node, roots.pid), [""; 0], "they are root's own");
    }
}

#[test]
fn the_classic_verbs_tell_of_nodes_what_they_told() {
    let stage = Stage::joined("verbs", 2);
    stage.text(1, &["mkdir", "/tmp/classic"]);
    stage.text(1, &["osmos", "links", "/tmp/classic"]);
    let mosctl = |words: &[&str]| {
        let all = [&["/tmp/classic/mosctl"], words].concat();
        stage.text(1, &all)
    };
    until_true("node 2 is alive", || mosctl(&["isup", "2"]) == "alive\n");
    assert!(mosctl(&["getload"]).trim().parse::<f64>().is_ok());
    let memory = || mosctl(&["getmem", "2"]).trim().parse::<u64>().expect("bytes");
    until_true("node 2 has said what it has", || memory() > 1 << 20);
    assert_eq!(mosctl(&["whois", "2"]).lines().count(), 2, "a head and a node");
    let complaint = stage.complaint(1, &["/tmp/classic/mosctl", "whois", "9"]);
    assert!(complaint.contains("there is no node 9; there are 1 ("), "{complaint}");
    let complaint = stage.complaint(1, &["/tmp/classic/mosctl", "setyard", "3"]);
    assert!(complaint.contains("`osmos nodes`"), "{complaint}");
}
