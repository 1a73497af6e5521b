//! Parallel jobs (`osmos job`): ranks begin where they are to, what they write and read arrives
//! whole, they end as they end, and nothing is left of them, whoever is killed.

use crate::stage::{Seen, Stage, text, until, until_true};
use crate::terminal::Terminal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Output, Stdio};

/// A process that nobody finds by its parents: forked twice, in a session of its own.
const HIDING: &str = "\
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        sys.stdout.write('hidden\\n'); sys.stdout.flush()
        time.sleep(1000)
    os._exit(0)
os.wait()
time.sleep(1000)";

/// A lab whose nodes take jobs of each other.
pub fn stage(name: &str, nodes: u32) -> Stage {
    let stage = Stage::new(name, nodes);
    for node in 1..=nodes {
        stage.text(node, &["osmos", "share", "--jobs", "on"]);
    }
    stage
}

fn run<'a>(options: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    [&["osmos", "job", "run"], options, &["--"], command].concat()
}

fn lines(output: &Output) -> Vec<String> {
    let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Jobs as a node lists them.
fn jobs(stage: &Stage, node: u32) -> Vec<Value> {
    serde_json::from_str(&stage.text(node, &["osmos", "job", "list", "--json"])).expect("jobs")
}

fn await_state(stage: &Stage, node: u32, state: &str) -> Value {
    until(&format!("the job of node {node} is {state}"), || {
        jobs(stage, node).into_iter().find(|job| job["state"] == state)
    })
}

/// Processes of a node with this word in their command line.
fn with_word(stage: &Stage, node: u32, word: &str) -> Vec<Seen> {
    let has = |p: &Seen| !p.is_zombie() && p.words.iter().any(|of| of == word);
    stage.processes(node).into_iter().filter(has).collect()
}

fn await_nothing(stage: &Stage, nodes: u32, word: &str) {
    for node in 1..=nodes {
        until_true(&format!("nothing of the job is left on node {node}"), || {
            with_word(stage, node, word).is_empty()
                && stage.supervisors(node, "job-server").is_empty()
        });
    }
}

#[test]
fn ranks_begin_where_they_are_to_and_know_who_they_are() {
    let stage = stage("jobs-where", 3);
    let told = "echo $OSMOS_RANK of $OSMOS_SIZE, $OSMOS_LOCAL_RANK of $OSMOS_LOCAL_SIZE on \
                $OSMOS_NODE $(hostname) in $PWD with $A";
    let [one, two, three] = [1, 2, 3].map(|node| stage.node(node).host_name());
    let options = ["--per-node", "2", "-C", "/tmp", "--env", "A=b c"];
    let output = stage.output(1, &run(&options, &["sh", "-c", told]));
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let expected = [
        format!("[0] 0 of 6, 0 of 2 on 1 {one} in /tmp with b c"),
        format!("[1] 1 of 6, 1 of 2 on 1 {one} in /tmp with b c"),
        format!("[2] 2 of 6, 0 of 2 on 2 {two} in /tmp with b c"),
        format!("[3] 3 of 6, 1 of 2 on 2 {two} in /tmp with b c"),
        format!("[4] 4 of 6, 0 of 2 on 3 {three} in /tmp with b c"),
        format!("[5] 5 of 6, 1 of 2 on 3 {three} in /tmp with b c"),
    ];
    assert_eq!(lines(&output), expected);
    // Two nodes, of which one is named twice, and three ranks.
    let output = stage.output(2, &run(&["-n", "3", "--nodes", "1,3,1"], &["hostname"]));
    let hosts: Vec<String> = lines(&output).iter().map(|line| line[4..].to_owned()).collect();
    assert!(hosts.contains(&one) && hosts.contains(&three) && hosts.len() == 3, "{hosts:?}");
    // By default here, one, and as it is.
    let output = stage.output(2, &run(&[], &["hostname"]));
    assert_eq!(text(&output.stdout), format!("{two}\n"));
    await_nothing(&stage, 3, "sh");
}

#[test]
fn what_cannot_begin_everywhere_begins_nowhere_and_says_why() {
    let stage = Stage::new("jobs-refused", 2);
    let complaint = |options: &[&str], command: &[&str]| {
        let output = stage.output(1, &run(options, command));
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(125), ""));
        text(&output.stderr)
    };
    let touch = ["touch", "/tmp/begun"];
    let all = ["--per-node", "1"];
    let refused = complaint(&all, &touch);
    assert!(refused.contains("`osmos share --jobs on` there changes that"), "{refused}");
    stage.text(2, &["osmos", "share", "--jobs", "on"]);
    stage.text(1, &["mkdir", "/tmp/here"]);
    let missing = complaint(&[&all[..], &["-C", "/tmp/here"]].concat(), &touch);
    assert!(missing.contains("node 2: working directory /tmp/here: No such file"), "{missing}");
    let missing = complaint(&all, &["/tmp/no-such-program"]);
    assert!(missing.contains("/tmp/no-such-program: No such file"), "{missing}");
    let missing = complaint(&[], &["no-such-program"]);
    assert!(missing.contains("nothing was started: node 1: no-such-program: no such"), "{missing}");
    let missing = complaint(&["--nodes", "7"], &touch);
    assert!(missing.contains("node 7"), "{missing}");
    let many = complaint(&["-n", "5", "--per-node", "2"], &touch);
    assert!(many.contains('4'), "it says how many fit: {many}");
    for node in [1, 2] {
        assert!(!stage.path(node, "/tmp/begun").exists(), "it began on node {node}");
    }
    let taken = stage.text(1, &run(&all, &touch));
    assert_eq!(taken, "");
    assert!([1, 2].iter().all(|node| stage.path(*node, "/tmp/begun").exists()));
    stage.text(2, &["osmos", "share", "--jobs", "off"]);
    assert!(complaint(&all, &touch).contains("share --jobs on"));
}

#[test]
fn no_line_is_lost_doubled_or_mixed_while_ranks_move_and_a_reader_is_slow() {
    let stage = stage("jobs-lines", 3);
    let script = "i=0; while [ $i -lt 3000 ]; do echo $i of $OSMOS_RANK some words to fill a line; \
                  i=$((i+1)); done";
    let options = ["-n", "5", "--nodes", "all", "--storm", "50"];
    let job = run(&options, &["sh", "-c", script]);
    // Reads when the ranks have long been held up.
    let slow = format!(
        "{} | {{ sleep 2; cat; }}",
        job.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
    );
    let shown = stage.text(1, &["sh", "-c", &slow]);
    let mut next: BTreeMap<u32, u32> = BTreeMap::new();
    for line in shown.lines() {
        let (label, rest) = line.split_once("] ").expect(line);
        let rank: u32 = label[1..].parse().expect(line);
        let place = next.entry(rank).or_default();
        assert_eq!(rest, format!("{place} of {rank} some words to fill a line"));
        *place += 1;
    }
    assert_eq!(next, (0..5).map(|rank| (rank, 3000)).collect());
}

#[test]
fn input_reaches_whom_it_is_for_whole() {
    let stage = stage("jobs-input", 2);
    let content: Vec<u8> = (0..600_000_u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    let sums = |options: &[&str]| {
        let mut command = stage.command(1, &run(options, &["sh", "-c", "cksum; echo $OSMOS_RANK"]));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a launcher");
        let mut input = child.stdin.take().expect("it is piped");
        let content = content.clone();
        let writing = std::thread::spawn(move || input.write_all(&content));
        let output = child.wait_with_output().expect("our child");
        writing.join().expect("no panic").expect("all of it is read");
        lines(&output)
    };
    let local = {
        std::fs::write(stage.path(1, "/tmp").join("content"), &content).expect("a file");
        stage.text(1, &["sh", "-c", "cksum < /tmp/content"]).trim().to_owned()
    };
    let nothing = stage.text(1, &["sh", "-c", "cksum < /dev/null"]).trim().to_owned();
    let three = ["-n", "3", "--nodes", "all"];
    let expected = |sums: [&String; 3]| {
        let mut expected: Vec<String> = (0..3)
            .flat_map(|rank| [format!("[{rank}] {}", sums[rank]), format!("[{rank}] {rank}")])
            .collect();
        expected.sort();
        expected
    };
    assert_eq!(sums(&three), expected([&local, &nothing, &nothing]));
    let all = sums(&[&three[..], &["--input", "all"]].concat());
    assert_eq!(all, expected([&local, &local, &local]));
}

#[test]
fn how_ranks_end_is_told_and_is_how_the_job_ends() {
    let stage = stage("jobs-ends", 2);
    let ended = |options: &[&str], script: &str| {
        let all = [&["-n", "3", "--nodes", "all"], options].concat();
        let output = stage.output(1, &run(&all, &["sh", "-c", script]));
        (output.status.code().expect("it exits"), text(&output.stderr))
    };
    let (status, told) = ended(&[], "exit $((OSMOS_RANK * 2))");
    assert_eq!(status, 2);
    assert!(told.contains("osmos: rank 1 on node") && told.contains(": exit status 2"), "{told}");
    assert!(told.contains("osmos: rank 2 on node 2: exit status 4"), "{told}");
    let (status, told) = ended(&[], "[ $OSMOS_RANK = 2 ] && kill -TERM $$; true");
    assert_eq!(status, 128 + 15);
    assert!(told.contains("osmos: rank 2 on node 2: killed by SIGTERM"), "{told}");
    // The others would stay for ever.
    let (status, told) = ended(&["-K"], "[ $OSMOS_RANK = 1 ] && exit 7; sleep 1000");
    assert!(told.contains("osmos: rank 1: exit status 7: the others are ended"), "{told}");
    assert!(told.contains("rank 2 on node 2: killed by SIGTERM"), "{told}");
    assert_eq!(status, 128 + 15, "that of the first rank that has failed: {told}");
    await_nothing(&stage, 2, "sleep");
}

#[test]
fn limits_priority_and_processors_hold_where_a_rank_begins() {
    let stage = stage("jobs-limits", 2);
    let script = "ulimit -n; ulimit -c; nice; umask; \
                  sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status";
    let options = ["--nodes", "2", "--limit", "nofile=77", "--limit", "core=0", "--nice", "4"];
    let job = run(&[&options[..], &["--cpus", "0"]].concat(), &["sh", "-c", script]);
    let words: Vec<String> =
        job.iter().map(|word| format!("\"{}\"", word.replace('$', "\\$"))).collect();
    let shown = stage.text(1, &["sh", "-c", &format!("umask 027; {}", words.join(" "))]);
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), ["77", "0", "4", "0027", "0"]);
    let own = stage.text(1, &["sh", "-c", "ulimit -n"]);
    let ranks = stage.text(1, &run(&[], &["sh", "-c", "ulimit -n"]));
    assert_eq!(own, ranks, "what nobody has limited is the launcher's");
}

#[test]
fn a_job_is_seen_and_commanded_from_any_node() {
    let stage = stage("jobs-command", 3);
    let options = ["-n", "4", "--nodes", "2,3", "--name", "sweep", "--suspended"];
    let mut job = stage.begin(1, &run(&options, &["sh", "-c", "touch /tmp/begun; sleep 1000"]));
    await_state(&stage, 1, "suspended");
    let shown = until("all ranks are listed as running", || {
        let shown = stage.text(3, &["osmos", "job", "show", "sweep", "--json"]);
        let shown: Value = serde_json::from_str(&shown).expect("a job");
        let members = shown["members"].as_array().expect("ranks").clone();
        members.iter().all(|rank| rank["state"] == "running").then_some(shown)
    });
    assert_eq!((&shown["ranks"], &shown["running"]), (&4.into(), &4.into()));
    assert_eq!(shown["nodes"], serde_json::json!([[2, 2], [3, 2]]));
    // They have their program, and have run none of it.
    assert!([2, 3].iter().all(|node| !stage.path(*node, "/tmp/begun").exists()));
    let again = stage.complaint(1, &run(&["--name", "sweep"], &["true"]));
    assert!(again.contains("sweep"), "{again}");
    stage.text(2, &["osmos", "job", "resume", "sweep"]);
    for node in [2, 3] {
        until_true("the ranks have begun", || stage.path(node, "/tmp/begun").exists());
    }
    let sleeping = |node| with_word(&stage, node, "1000");
    until_true("they sleep", || sleeping(2).len() + sleeping(3).len() == 4);
    stage.text(3, &["osmos", "job", "suspend", "sweep"]);
    let are_stopped =
        |node: u32, stopped| sleeping(node).iter().all(|p| (p.state == 'T') == stopped);
    until_true("all are stopped", || are_stopped(2, true) && are_stopped(3, true));
    await_state(&stage, 1, "suspended");
    let listed = stage.text(2, &["osmos", "job", "list", "--all"]);
    assert!(listed.contains("sweep") && listed.contains("suspended"), "{listed}");
    stage.text(1, &["osmos", "job", "signal", "sweep", "CONT"]);
    until_true("all go on", || are_stopped(2, false) && are_stopped(3, false));
    // Processes are known by their job.
    let pid = shown["job"]["pid"].to_string();
    let of_job = stage.text(2, &["osmos", "ps", "--all", "--json", "--job", &format!("1:{pid}")]);
    let of_job: Vec<Value> = serde_json::from_str(&of_job).expect("processes");
    assert!(of_job.len() >= 4, "{of_job:?}");
    // Nobody else may.
    let other = ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", "--"];
    let order = |verb: &'static str| [&other[..], &["osmos", "job", verb, "sweep"]].concat();
    let refused = stage.complaint(1, &order("kill"));
    assert!(refused.contains("user 0"), "{refused}");
    stage.text(1, &order("show"));
    stage.text(1, &["osmos", "job", "signal", "sweep", "USR1", "--rank", "3"]);
    let waiting = stage.begin(2, &["osmos", "job", "wait", "sweep"]);
    stage.text(3, &["osmos", "job", "kill", "sweep"]);
    let status = job.wait().expect("our child").code();
    assert_eq!(status, Some(128 + 9));
    let waited = waiting.wait_with_output().expect("our child");
    assert_eq!(waited.status.code(), status, "{}", text(&waited.stderr));
    await_nothing(&stage, 3, "1000");
    let ended = await_state(&stage, 1, "ended");
    assert_eq!(ended["exit_status"], 128 + 9);
    assert_eq!(stage.output(3, &["osmos", "job", "wait", "sweep"]).status.code(), status);
    let late = stage.complaint(3, &["osmos", "job", "suspend", "sweep"]);
    assert!(late.contains("has ended"), "{late}");
}

#[test]
fn what_runs_in_the_background_is_read_later_and_waited_for() {
    let stage = stage("jobs-later", 2);
    let script = "echo begun; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo done; exit 3";
    let options = ["-n", "2", "--nodes", "all", "-d", "--name", "later"];
    let pid = stage.text(1, &run(&options, &["sh", "-c", script]));
    let pid = pid.trim();
    assert!(pid.parse::<u32>().is_ok(), "{pid}");
    let logs = || stage.text(1, &["osmos", "job", "logs", pid]);
    until_true("both have begun", || {
        logs().lines().filter(|line| line.ends_with("begun")).count() == 2
    });
    let following = stage.begin(1, &["osmos", "job", "logs", "--follow", "later"]);
    let elsewhere = stage.complaint(2, &["osmos", "job", "logs", "later"]);
    assert!(elsewhere.contains("on node 1"), "{elsewhere}");
    for node in [1, 2] {
        stage.put(node, "/tmp/go", "");
    }
    assert_eq!(stage.output(2, &["osmos", "job", "wait", "later"]).status.code(), Some(3));
    let followed = following.wait_with_output().expect("our child");
    let mut all = lines(&followed);
    all.retain(|line| line.starts_with('['));
    assert_eq!(all, ["[0] begun", "[0] done", "[1] begun", "[1] done"]);
    assert!(text(&followed.stdout).contains("rank 1 on node 2: exit status 3"));
}

#[test]
fn control_c_ends_all_ranks_and_control_z_stops_them() {
    let stage = stage("jobs-keys", 2);
    let script = "trap 'echo heard; exit 0' INT; echo begun; while :; do sleep 0.05; done";
    let job = run(&["-n", "2", "--nodes", "all"], &["sh", "-c", script, "keyed"]);
    // A shell that has job control.
    let words: Vec<String> = job.iter().map(|word| format!("\"{word}\"")).collect();
    let shell = format!("set -m; {}; echo left $?; fg; echo ended $?", words.join(" "));
    let mut terminal = Terminal::open(&stage, &["sh", "-c", &shell]);
    terminal.expect("begun");
    terminal.expect("begun");
    terminal.type_text("\x1a");
    terminal.expect("left ");
    let ranks = |node| with_word(&stage, node, "keyed");
    // `fg` has them go on.
    until_true("all run", || {
        let all: Vec<Seen> = [ranks(1), ranks(2)].concat();
        all.iter().filter(|p| p.state != 'T' && !p.words[0].ends_with("osmos")).count() >= 2
    });
    await_state(&stage, 1, "running");
    terminal.type_text("\x03");
    terminal.expect("heard");
    terminal.expect("heard");
    terminal.expect("ended 130");
    assert!(terminal.shown().contains("SIGINT: the job ends"), "{}", terminal.shown());
    await_nothing(&stage, 2, "keyed");
}

/// Begins a job on both nodes whose ranks have started what hides.
fn begin_hiding(stage: &Stage) -> crate::stage::Program {
    let job = run(&["--per-node", "1"], &["python3", "-ISc", HIDING, "hiding"]);
    let launcher = stage.start(1, &job);
    for _ in 0..2 {
        assert!(launcher.line().ends_with("hidden"));
    }
    await_listed(stage, launcher.pid);
    launcher
}

/// Waits until the daemons know of all that came of such ranks.
fn await_listed(stage: &Stage, launcher: i32) {
    until_true("daemons know of what hides", || {
        let words = ["osmos", "ps", "--all", "--json", "--job", &format!("1:{launcher}")];
        let output = stage.output(1, &words);
        serde_json::from_slice::<Vec<Value>>(&output.stdout).is_ok_and(|all| all.len() == 4)
    });
}

#[test]
fn nothing_is_left_when_the_launcher_is_killed() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = stage("jobs-launch", 2);
    let launcher = begin_hiding(&stage);
    stage.process(1, launcher.pid).expect("the launcher").kill();
    await_nothing(&stage, 2, "hiding");
    let ended = await_state(&stage, 1, "ended");
    assert_eq!(ended["exit_status"], Value::Null);
}

#[test]
fn nothing_is_left_when_a_job_server_is_killed_and_the_others_go_on() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = stage("jobs-server", 2);
    let mut launcher = begin_hiding(&stage);
    for server in stage.supervisors(2, "job-server") {
        server.kill();
    }
    until_true("nothing is left on node 2", || with_word(&stage, 2, "hiding").is_empty());
    assert!(with_word(&stage, 1, "hiding").len() >= 2, "node 1 has its ranks");
    let shown = stage.text(1, &["osmos", "job", "show", &launcher.pid.to_string()]);
    assert!(shown.contains("lost with node 2"), "{shown}");
    stage.signal(1, launcher.pid, "TERM");
    assert_eq!(launcher.end(), 128 + 15);
    await_nothing(&stage, 2, "hiding");
}

#[test]
fn a_job_outlives_daemons_and_the_next_ones_know_it() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = stage("jobs-daemons", 2);
    let mut launcher = begin_hiding(&stage);
    for node in [1, 2] {
        stage.kill_daemon(node);
        stage.start_daemon(node);
    }
    await_state(&stage, 1, "running");
    let pid = launcher.pid.to_string();
    await_listed(&stage, launcher.pid);
    // Whoever comes after a daemon that is killed knows of whose server a rank is.
    for server in stage.supervisors(2, "job-server") {
        server.kill();
    }
    until_true("nothing is left on node 2", || with_word(&stage, 2, "hiding").is_empty());
    stage.text(2, &["osmos", "job", "kill", &format!("1:{pid}")]);
    assert_eq!(launcher.end(), 128 + 9);
    await_nothing(&stage, 2, "hiding");
}

#[test]
fn a_shell_command_on_another_node_is_as_with_rsh() {
    let stage = stage("jobs-rsh", 2);
    let two = stage.node(2).host_name();
    let mut command =
        stage.command(1, &["osmos", "rsh", &two, "cat;", "echo $OSMOS_NODE $A;", "exit 5"]);
    command.env("A", "told").env("OSMOS_RSH_ENV", "A,NONE");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a command");
    child.stdin.take().expect("it is piped").write_all(b"read\n").expect("it reads");
    let output = child.wait_with_output().expect("our child");
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(5), "read\n2 told\n"));
    // What it leaves goes on, and a launcher that has ended does not end it.
    stage.text(1, &["osmos", "rsh", "-n", "2", "sleep 1234 >/dev/null 2>&1 &"]);
    until_true("its job server has ended", || stage.supervisors(2, "job-server").is_empty());
    let left = with_word(&stage, 2, "1234");
    assert_eq!(left.len(), 1, "{left:?}");
    left[0].kill();
    let nobody = stage.complaint(1, &["osmos", "rsh", "-l", "daemon", "2", "true"]);
    assert!(nobody.contains("-l daemon"), "{nobody}");
    stage.text(2, &["osmos", "share", "--jobs", "off"]);
    assert_eq!(stage.output(1, &["osmos", "rsh", "2", "true"]).status.code(), Some(125));
}

/// The daemons of PVM, and through them its tasks, begin on nodes that it knows of Osmos only how
/// to begin a command on.
#[test]
fn the_real_pvm_runs_over_all_nodes() {
    if !needs::can_run(&["pvm", "hello.pvm"]) {
        return;
    }
    let stage = stage("jobs-pvm", 3);
    stage.text(1, &["osmos", "links", "/tmp"]);
    let [one, two, three] = [1, 2, 3].map(|node| stage.node(node).host_name());
    let variables = [
        "OSMOS_RSH_ENV=PVM_ALLOW_ROOT,PVM_PATH,PVM_TMP",
        "PVM_ALLOW_ROOT=1",
        "PVM_PATH=/usr/bin",
        "PVM_TMP=/tmp",
        "PVM_RSH=/tmp/osmos-rsh",
    ];
    let console = format!("-n{one}");
    // Its console keeps what it says until it ends, but on a terminal.
    let mut pvm = Terminal::open(&stage, &[&["env"], &variables[..], &["pvm", &console]].concat());
    pvm.type_text(&format!("add {two} {three}\n"));
    pvm.expect("2 successful");
    // Three tasks, each of which has another one greet it.
    pvm.type_text("spawn -> -3 hello.pvm\n");
    pvm.expect("3 successful");
    let mut greeted: Vec<String> = Vec::new();
    for _ in 0..3 {
        pvm.expect("hello, world from ");
        greeted.push(pvm.expect("\r\n"));
    }
    greeted.sort();
    assert_eq!(greeted, [one, two, three]);
    pvm.type_text("quit\n");
    // Whoever says it again is told what there is, and nothing is begun twice.
    let up = [&["env"], &variables[..4], &["osmos", "pvm", "up"]].concat();
    let told = stage.text(1, &up);
    assert!(told.contains("3 hosts"), "{told}");
    stage.text(1, &[&["env"], &variables[..4], &["osmos", "pvm", "down"]].concat());
    for node in [2, 3] {
        until_true("its daemon has ended", || {
            stage.processes(node).iter().all(|p| p.is_zombie() || !p.name.starts_with("pvmd"))
        });
    }
}
