//! Who is busy: all that runs on a node counts, whether or not Osmos manages it, thread by thread,
//! and looking at it takes next to nothing.

use crate::stage::{Program, Stage, until, until_true};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Says when it has begun, and computes for as long as it lives.
const COMPUTING: [&str; 4] =
    ["python3", "-IS", "-c", "print('ready', flush=True)\nwhile True: pass"];

/// The built program of `crowd.c`, where every node sees it, for as long as this lives.
struct Crowd(tempfile::TempDir);

impl Crowd {
    fn build() -> Crowd {
        // `/tmp` of this machine is hidden in the nodes.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/product/crowd.c");
        let program = dir.path().join("crowd");
        let status = Command::new("cc")
            .args(["-O1", "-Wall", "-Werror", "-pthread", "-o"])
            .args([&program, &source])
            .status()
            .expect("the C compiler that linking needs as well");
        assert!(status.success(), "{}: {status}", source.display());
        Crowd(dir)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("crowd")
    }

    /// Not under Osmos.
    fn start(&self, stage: &Stage, node: u32, words: &[&str]) -> Program {
        let path = self.path();
        let path = path.to_str().expect("a path of plain letters");
        let program = stage.start(node, &[&[path], words].concat());
        assert_eq!(program.line(), "ready");
        program
    }
}

/// What node `asked` says of another: threads that could run for each core.
fn load(stage: &Stage, asked: u32, of: u32) -> f64 {
    let text = stage.text(asked, &["osmos", "nodes", "--json"]);
    let nodes: Vec<serde_json::Value> = serde_json::from_str(&text).expect("a list of nodes");
    let node = nodes.iter().find(|node| node["id"] == of).expect("it is listed");
    node["load"].as_f64().expect("a number")
}

#[test]
fn programs_whose_first_thread_sleeps_count_with_all_their_threads() {
    let crowd = Crowd::build();
    let stage = Stage::new("threads", 2);
    let cores = stage.text(1, &["nproc"]).trim().parse::<f64>().expect("a number");
    until_true("node 2 is idle and knows", || load(&stage, 2, 2) < 0.3 && load(&stage, 1, 2) < 0.3);
    let programs = [(); 2].map(|()| crowd.start(&stage, 2, &["computing", "16"]));
    // The second one has begun beside the threads of the first.
    let began = Instant::now();
    until_true("node 2 counts 32 threads", || load(&stage, 2, 2) * cores > 31.0);
    println!("32 threads are told here after {:?}", began.elapsed());
    until_true("and node 1 knows that it is full", || load(&stage, 1, 2) > 1.0);
    println!("and node 1 knows after {:?}", began.elapsed());
    drop(programs);
}

#[test]
fn guests_leave_when_the_owner_starts_programs_of_many_threads() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let crowd = Crowd::build();
    let stage = Stage::new("yieldmany", 3);
    stage.text(2, &["osmos", "yield"]);
    let guest = stage.start(1, &[&["osmos", "run", "--"][..], &COMPUTING].concat());
    assert_eq!(guest.line(), "ready");
    stage.migrate(guest.pid, "2");
    let (body, _) = stage.await_body(2, guest.pid);
    until_true("it has been there for a while", || body.cpu_ticks() > 100);
    let own = [(); 2].map(|()| crowd.start(&stage, 2, &["computing", "16"]));
    until_true("the guest leaves", || stage.place(guest.pid) != Some(2));
    until_true("nothing of it is left", || stage.supervisors(2, "body").is_empty());
    drop(own);
    assert!(stage.events(1, "lost", guest.pid).is_empty());
}

/// Seconds of processor time that a daemon has used, supervisors excluded.
fn daemon_cpu_s(stage: &Stage, node: u32) -> f64 {
    let text = stage.text(node, &["osmos", "status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let pid = i32::try_from(status["daemon_pid"].as_i64().expect("a pid")).expect("a pid");
    stage.process(node, pid).expect("it runs").cpu_ticks() as f64 / 100.0
}

/// A node with a crowd of sleepers tells what computes. What looking at them takes is printed: that
/// it keeps to its share of the time is tested where the share is kept (`sample/effort.rs`), and a
/// few seconds of a busy machine are no proof of a figure.
fn looking_at_a_crowd(name: &str, count: &str, seconds: f64) {
    let crowd = Crowd::build();
    let stage = Stage::new(name, 1);
    let cores = stage.text(1, &["nproc"]).trim().parse::<f64>().expect("a number");
    // Looks come four times a second while something is managed.
    let managed = stage.start(1, &["osmos", "run", "--", "sleep", "600"]);
    let cpu_s = |since: f64| daemon_cpu_s(&stage, 1) - since;
    stage.await_managed(managed.pid);
    // What a daemon does besides looking at the crowd.
    let measure = || {
        let (began, before_s) = (Instant::now(), cpu_s(0.0));
        until("the time is over", || {
            (began.elapsed().as_secs_f64() > seconds).then(|| cpu_s(before_s))
        }) / began.elapsed().as_secs_f64()
    };
    let without = measure();
    let sleepers = crowd.start(&stage, 1, &["asleep", count, "4"]);
    let with = measure();
    println!("{count} processes of 4 threads: {without:.4} of a core without, {with:.4} with them");
    let brief = crowd.start(&stage, 1, &["brief", &format!("{}", cores as u32)]);
    let began = Instant::now();
    until_true("the node tells that it is full", || load(&stage, 1, 1) > 0.8);
    println!("full after {:?}", began.elapsed());
    drop((brief, sleepers, managed));
}

#[test]
fn a_node_with_two_thousand_sleeping_threads_tells_what_computes() {
    looking_at_a_crowd("crowd", "500", 5.0);
}

#[test]
#[ignore = "20,000 threads: for the figure in SPECIFICATION.md"]
fn a_node_with_twenty_thousand_sleeping_threads_tells_what_computes() {
    looking_at_a_crowd("crowdmany", "5000", 20.0);
}
