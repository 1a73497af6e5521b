//! Guests that mean harm (`lab/guests/hostile`): whatever they do, the owner of their node gets rid
//! of them at once, what he runs himself goes on, and nothing is left.

use crate::stage::{COUNTING, Program, Stage, until, until_true};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// A word to the owner that all guests have left: 5 s on a machine that does nothing else.
const EXPELLED_WITHIN: Duration = Duration::from_secs(15);
/// An answer of a daemon that has nothing to wait for.
const ANSWERED_WITHIN: Duration = Duration::from_secs(15);
/// Beside hundreds of threads that compute, and other tests, every program waits for a processor: a
/// command with the daemon and the supervisors that it needs so many times as long, at most, as a
/// command that needs nobody.
const WAITS: u32 = 4;
/// How long each does its worst, and is sent there again if it came home.
const ATTACK: Duration = Duration::from_millis(1500);

/// Builds the program; where it is on this machine, and so in every node of a lab.
fn build(stage: &Stage) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/lab/guests/hostile/hostile.c");
    let program = stage.path(1, "/tmp/hostile");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Wno-unused-result", "-pthread"]);
    let status = compiler.arg("-o").arg(&program).arg(source).status();
    assert!(status.expect("a C compiler is needed to build the guests").success());
    program
}

/// One node that guests attack, with what its owner runs.
struct Attacked {
    stage: Stage,
    program: PathBuf,
    own: Program,
    daemon: i32,
}

impl Attacked {
    fn new(name: &str) -> Attacked {
        let stage = Stage::new(name, 2);
        let program = build(&stage);
        let own = stage.start(2, &["python3", "-IS", "-c", COUNTING]);
        let daemon = stage.node(2).daemon_pid().expect("a daemon");
        Attacked { stage, program, own, daemon }
    }

    fn count(&mut self) -> u64 {
        self.own.ask("how far?").parse().expect("a count")
    }

    /// How long a command of ours takes there that asks nobody.
    fn floor(&self) -> Duration {
        let began = Instant::now();
        self.stage.text(2, &["osmos", "--version"]);
        began.elapsed()
    }

    /// Has a guest do its worst, and expels it.
    fn attack(&mut self, way: &str) {
        let stage = &self.stage;
        assert!(self.program.exists());
        stage.text(2, &["osmos", "noblock"]);
        let words = ["osmos", "run", "--home", "--", "/tmp/hostile", way];
        let mut guest = stage.start(1, &words);
        assert_eq!(guest.line(), "ready", "{way}");
        until_true("it is there", || stage.try_migrate(guest.pid, "2"));
        let before = self.count();
        let stage = &self.stage;
        guest.write("\n");
        let began = Instant::now();
        let mut floor_max = Duration::ZERO;
        while began.elapsed() < ATTACK {
            // What it did may have brought it home, or ended it.
            stage.try_migrate(guest.pid, "2");
            let asked = Instant::now();
            stage.text(2, &["osmos", "nodes"]);
            let waited = asked.elapsed();
            let floor = self.floor();
            floor_max = floor_max.max(floor);
            let bound = ANSWERED_WITHIN + floor * WAITS;
            assert!(waited < bound, "{way}: the daemon took {waited:?} to answer, {floor:?} idly");
        }
        let asked = Instant::now();
        let output = stage.output(2, &["osmos", "expel"]);
        let (took, said) = (asked.elapsed(), crate::stage::text(&output.stderr));
        assert!(output.status.success(), "{way}: {said}");
        println!("{way}: expelled in {} ms, {} ms idly", took.as_millis(), floor_max.as_millis());
        let bound = EXPELLED_WITHIN + floor_max * WAITS;
        assert!(took < bound, "{way}: it took {took:?} to expel it, {floor_max:?} idly");
        // One whose guest went home by itself a moment ago may be about to end.
        let is_none_left = || stage.supervisors(2, "body").is_empty();
        until_true(&format!("{way}: no supervisor is left"), is_none_left);
        // It goes on at home, unless that was the end of it.
        if !guest.has_ended() {
            // A command of the shell: not every machine has the program. It may end meanwhile.
            stage.output(1, &["sh", "-c", &format!("kill -KILL {}", guest.pid)]);
        }
        until(&format!("{way} ends"), || guest.has_ended().then_some(()));
        stage.await_no_supervisors();
        assert_eq!(stage.node(2).daemon_pid(), Some(self.daemon), "{way}: the daemon has ended");
        assert!(self.count() > before, "{way}: what the owner runs stands still");
    }
}

/// One guest after the other on one node, each in a way of its own.
fn attack_each(name: &str, ways: &[&str]) {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let mut attacked = Attacked::new(name);
    for way in ways {
        attacked.attack(way);
    }
}

#[test]
fn who_attacks_what_is_ours_in_its_memory_goes_when_the_owner_says_so() {
    let memory = ["unmap", "overwrite", "remap", "slots", "jump", "vdso", "everything", "no-stack"];
    attack_each("grabs", &memory);
}

#[test]
fn who_takes_more_than_there_is_goes_when_the_owner_says_so() {
    attack_each("bombs", &["forks", "memory", "populate", "mappings", "aliases", "calls"]);
}

#[test]
fn who_has_hundreds_of_threads_compute_goes_when_the_owner_says_so() {
    attack_each("threads", &["threads", "masks"]);
}

#[test]
fn who_makes_calls_that_no_program_makes_goes_when_the_owner_says_so() {
    let calls = ["old-calls", "x32-calls", "races", "vectors", "wild"];
    attack_each("oddities", &calls);
}

#[test]
fn who_reaches_for_supervisor_and_init_goes_when_the_owner_says_so() {
    attack_each("reaches", &["signals", "traces", "descriptors", "proc"]);
}

/// A daemon of its own in the one node of a lab, whose guests are put where it says by itself.
fn up(stage: &Stage, name: &str, rest: &[&str]) -> String {
    let directories = [format!("/tmp/{name}/run"), format!("/tmp/{name}/state")];
    let [run, state] = directories.each_ref().map(String::as_str);
    let first = ["osmos", "up", "--runtime-dir", run, "--state-dir", state, "--speed", "1"];
    stage.text(1, &[&first[..], rest].concat());
    format!("{run}/control.sock")
}

#[test]
fn who_outgrows_what_a_node_has_for_guests_goes_home_alive() {
    let stage = Stage::without_daemons("outgrown");
    build(&stage);
    let home = up(&stage, "a", &["--listen", "127.0.0.1:7781", "--lend-root", "on"]);
    let away = up(&stage, "b", &["--listen", "127.0.0.1:7782", "--guest-memory-max", "64M"]);
    let token = stage.text(1, &["osmos", "--socket", &home, "token"]);
    stage.text(1, &["osmos", "--socket", &away, "join", "127.0.0.1:7781", token.trim()]);
    let words = ["osmos", "--socket", &home, "run", "--home", "--", "/tmp/hostile", "memory"];
    let mut guest = stage.start(1, &words);
    assert_eq!(guest.line(), "ready");
    let pid = guest.pid.to_string();
    until_true("it is there", || {
        stage.output(1, &["osmos", "--socket", &home, "migrate", &pid, "2"]).status.success()
    });
    guest.write("\n");
    until_true("it is at home again", || {
        let listed = stage.text(1, &["osmos", "--socket", &home, "ps", "--json"]);
        let listed: Value = serde_json::from_str(&listed).expect("a list of processes");
        listed[0]["node"] == 1 && listed[0]["rss_bytes"].as_u64() > Some(64 << 20)
    });
    assert!(!guest.has_ended());
    let told = stage.text(1, &["osmos", "--socket", &home, "events"]);
    assert!(told.contains("came home: the node asked it to leave"), "{told}");
    assert!(!told.contains("lost"), "{told}");
    guest.close_input();
    stage.text(1, &["sh", "-c", &format!("kill -KILL {pid}")]);
    for socket in [&home, &away] {
        stage.text(1, &["osmos", "--socket", socket, "down"]);
    }
}
