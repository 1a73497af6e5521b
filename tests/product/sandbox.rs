//! A guest has nothing of the node that it runs on but memory and time.

use crate::stage::{Program, Seen, Stage, until_true};
use kernel::features::{Feature, settled};
use std::collections::BTreeSet;

/// Does what each line says, and prints what comes of it.
const CURIOUS: &str = "\
import ctypes, os, socket, sys
for line in sys.stdin:
    try: print(eval(line), flush=True)
    except Exception as error: print(type(error).__name__, error, flush=True)";

/// Numbers of scheduling policies (sched(7)).
const BATCH: i32 = 3;
const IDLE: i32 = 5;

fn start_curious(stage: &Stage) -> Program {
    let mut program = stage.start_away(&["python3", "-IS", "-c", CURIOUS]);
    assert_eq!(program.ask("1"), "1");
    stage.await_place(program.pid, 2);
    program
}

#[test]
fn a_guest_stands_back_here_as_it_does_at_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("nice", 3);
    let script = "import os, sys\nprint('ready', flush=True)\n\
                  for line in sys.stdin: print(os.nice(int(line)), flush=True)";
    let words = ["nice", "-n", "3", "osmos", "run", "--home", "--", "python3", "-IS", "-c", script];
    let mut program = stage.start(1, &words);
    assert_eq!(program.line(), "ready");
    stage.migrate(program.pid, "2");
    assert_eq!(stage.await_body(2, program.pid).0.nice(), 3, "as it was at home");
    assert_eq!(program.ask("4"), "7");
    assert_eq!(stage.await_body(2, program.pid).0.nice(), 7, "and as it is now");
    assert_eq!(program.ask("-9"), "-2");
    assert_eq!(stage.await_body(2, program.pid).0.nice(), 0, "but with no precedence");
    assert_eq!(program.ask("13"), "11");
    stage.migrate(program.pid, "3");
    assert_eq!(stage.await_body(3, program.pid).0.nice(), 11, "wherever it is");
    stage.text(1, &["renice", "-n", "15", "-p", &program.pid.to_string()]);
    until_true("the body follows", || stage.await_body(3, program.pid).0.nice() == 15);
    stage.migrate(program.pid, "home");
    stage.await_plain(program.pid);
    assert_eq!(program.ask("0"), "15");
}

#[test]
fn affinity_is_for_home_and_idle_is_idle_everywhere() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("affinity", 3);
    let mut program = start_curious(&stage);
    let pid = program.pid;
    let all = program.ask("sorted(os.sched_getaffinity(0))");
    let processors = stage.await_body(2, pid).0.field("Cpus_allowed_list");
    assert_eq!(program.ask("os.sched_setaffinity(0, {0})"), "None");
    assert_eq!(program.ask("os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))"), "None");
    let body = stage.await_body(2, pid).0;
    assert_eq!(body.field("Cpus_allowed_list"), processors, "home's processors are not these");
    assert_eq!(body.policy(), IDLE);
    stage.migrate(pid, "3");
    assert_eq!(program.ask("os.sched_getaffinity(0)"), "{0}");
    let body = stage.await_body(3, pid).0;
    assert_eq!(body.policy(), IDLE);
    stage.text(1, &["chrt", "--batch", "-p", "0", &pid.to_string()]);
    until_true("the body follows", || body.policy() == BATCH);
    stage.migrate(pid, "home");
    let process = stage.process(1, pid).expect("it lives");
    assert_eq!(process.policy(), BATCH);
    assert_eq!(program.ask("os.sched_getaffinity(0)"), "{0}");
    assert_eq!(process.field("Cpus_allowed_list").as_deref(), Some("0"), "of {all}");
}

#[test]
fn a_real_time_process_is_at_home_and_comes_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("real-time", 2);
    let program = start_curious(&stage);
    let pid = program.pid.to_string();
    // Where groups share real-time (RT_GROUP_SCHED), those of a lab have no part in FIFO.
    let deadline = "chrt --deadline --sched-runtime 1000000 --sched-deadline 100000000 \\
                    --sched-period 100000000 -p 0";
    stage.text(1, &["sh", "-c", &format!("{deadline} {pid}")]);
    stage.await_plain(program.pid);
    let complaint = stage.complaint(1, &["osmos", "migrate", &pid, "2"]);
    assert!(complaint.contains("real-time policy") && complaint.contains(&pid), "{complaint}");
    stage.text(1, &["chrt", "--other", "-p", "0", &pid]);
    stage.migrate(program.pid, "2");
}

#[test]
fn the_body_has_no_descriptor_no_capability_and_no_way_out_of_its_filter() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("body", 2);
    let program = start_curious(&stage);
    let (body, supervisor) = stage.await_body(2, program.pid);
    assert_eq!(body.descriptors(), [""; 0]);
    assert_eq!(body.field("Seccomp").as_deref(), Some("2"));
    assert_eq!(body.field("NoNewPrivs").as_deref(), Some("1"));
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(body.field(set).as_deref(), Some("0000000000000000"), "{set}");
    }
    for kind in ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"] {
        let of = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).expect("a link");
        assert_ne!(of(body.pid), of(supervisor.pid), "{kind} namespace of the node");
    }
    let root = std::fs::read_dir(format!("/proc/{}/root", body.pid)).expect("its root");
    assert_eq!(root.count(), 0, "its root directory is empty");
    let mounts = read_lines(body.pid, "mountinfo");
    assert_eq!(mounts.len(), 1, "nothing of the node is mounted there: {mounts:#?}");
    assert!(mounts[0].contains(" / / ro,nosuid,nodev,noexec"), "{mounts:?}");
    let both = [stage.process(1, program.pid).expect("it lives").pid, body.pid];
    let [home, here] = both.map(files_mapped);
    assert_eq!(here, home, "it maps what it maps at home, and nothing of its supervisor's");
}

#[test]
fn the_init_of_a_sandbox_has_nothing_but_what_chooses_the_ids_of_threads() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    if settled().has(Feature::ThreadIds) {
        // CAP_CHECKPOINT_RESTORE, in its own user namespace.
        let capability = "0000010000000000";
        assert_init_has("init", &[], &["/proc/sys/kernel/ns_last_pid"], capability);
    }
    assert_init_has("init-bare", &["thread-ids"], &[], "0000000000000000");
}

/// That the init of a guest has these descriptors, may use these capabilities, and has one page of
/// code as its memory.
fn assert_init_has(name: &str, without: &[&str], descriptors: &[&str], capabilities: &str) {
    let stage = Stage::without(without, name, 2);
    let program = start_curious(&stage);
    let (body, supervisor) = stage.await_body(2, program.pid);
    let init = Seen::all().into_iter().find(|p| p.pid == body.parent).expect("its init");
    assert_eq!(init.parent, supervisor.pid);
    assert_eq!(init.descriptors(), descriptors);
    assert_eq!(init.field("Seccomp").as_deref(), Some("2"));
    assert_eq!(init.field("NoNewPrivs").as_deref(), Some("1"));
    for set in ["CapPrm", "CapEff"] {
        assert_eq!(init.field(set).as_deref(), Some(capabilities), "{set}");
    }
    for set in ["CapInh", "CapBnd", "CapAmb"] {
        assert_eq!(init.field(set).as_deref(), Some("0000000000000000"), "{set}");
    }
    let maps = read_lines(init.pid, "maps");
    let own: Vec<&String> = maps.iter().filter(|line| !line.ends_with("[vsyscall]")).collect();
    let is_code = |line: &&String| line.contains(" r-xp ");
    assert!(own.len() == 1 && own.iter().all(is_code), "one page of code: {own:#?}");
    let (start, end) = own[0].split_once(' ').expect("a range").0.split_once('-').expect("two");
    let address = |word: &str| u64::from_str_radix(word, 16).expect("an address");
    assert_eq!(address(end) - address(start), 4096);
}

fn read_lines(pid: i32, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{name}")).expect("it lives");
    text.lines().map(str::to_owned).collect()
}

/// The files that a process has mapped, but for what is ours at home.
fn files_mapped(pid: i32) -> BTreeSet<String> {
    let path = |line: &String| Some(line[line.find(" /")? + 1..].to_owned());
    let files = read_lines(pid, "maps").iter().filter_map(path).collect::<BTreeSet<String>>();
    files.into_iter().filter(|file| !file.starts_with("/memfd:")).collect()
}

#[test]
fn files_network_and_processes_that_a_guest_sees_are_those_of_home() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("view", 2);
    for node in [1, 2] {
        stage.put(node, "/tmp/where", &format!("node {node}"));
    }
    let mut program = start_curious(&stage);
    assert_eq!(program.ask("open('/tmp/where').read()"), "node 1");
    let host = stage.node(1).host_name();
    assert_eq!(program.ask("open('/etc/hostname').read().strip()"), host);
    assert_eq!(program.ask("os.uname().nodename"), host);
    // Its home's address can be listened on, its node's cannot.
    let listen = |address: std::net::Ipv4Addr| {
        format!("socket.create_server(('{address}', 7999)).getsockname()[0]")
    };
    let (home, away) = (stage.node(1).address(), stage.node(2).address());
    assert_eq!(program.ask(&listen(home)), home.to_string());
    assert!(program.ask(&listen(away)).contains("OSError"));
    // So many processes that one of them has a pid that nobody has at home, no thread either.
    let others: Vec<Program> = (0..40).map(|_| stage.start(2, &["sleep", "1000"])).collect();
    let is_free = |pid: &i32| {
        let probe = format!("kill -0 {pid}");
        !stage.output(1, &["sh", "-c", &probe]).status.success()
    };
    let mut other = others.iter().map(|other| other.pid).filter(is_free);
    let other = other.next().expect("a pid that is free at home");
    assert!(program.ask(&format!("os.kill({other}, 9)")).contains("ProcessLookupError"));
    assert!(program.ask(&format!("os.listdir('/proc/{other}')")).contains("FileNotFoundError"));
    assert!(stage.process(2, other).is_some_and(|seen| !seen.is_zombie()));
    assert_eq!(stage.place(program.pid), Some(2), "all of this happened away");
}

#[test]
fn calls_that_no_table_knows_come_home_and_do_not_reach_the_node() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("unlisted", 2);
    let mut program = start_curious(&stage);
    // mount(2): as root at home it may; the node's own mounts do not change.
    let before = stage.text(2, &["cat", "/proc/self/mountinfo"]);
    let call = "ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, None)";
    assert_eq!(program.ask(call), "0");
    assert_eq!(stage.text(2, &["cat", "/proc/self/mountinfo"]), before);
    let why = stage.events(1, "came-home", program.pid);
    assert!(
        why.iter().any(|event| event["reason"]["text"].as_str().unwrap_or("").contains("mount"))
    );
}
