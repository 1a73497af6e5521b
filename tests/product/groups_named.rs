//! Groups whose memory others could come by: it has a name, or belongs to a server.

use crate::stage::{Program, Stage, until_true};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const GROUP: &str = include_str!("named_group.py");
const DYING: &str = include_str!("dying_group.py");
const POOL: &str = include_str!("pool.py");
const POOL_AT: &str = "/tmp/pool.py";

/// One that counts in shared memory of this kind, as the guest calls it; and that memory's name.
fn start(stage: &Stage, kind: &str) -> (Program, String) {
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", GROUP, kind];
    let program = stage.start(1, &words);
    let name = program.line();
    (program, name)
}

fn has_a_stranger_bring_it_home(stage: &Stage, kind: &str) {
    let (mut program, name) = start(stage, kind);
    let pid = program.pid;
    until_true("it is managed", || stage.place(pid).is_some());
    let before: u64 = program.ask("").parse().expect("a count");
    stage.migrate(pid, "2");
    until_true("it is there", || stage.place(pid) == Some(2));
    let away: u64 = program.ask("").parse().expect("a count");
    assert!(away > before, "{away}: it gets on there");
    let look = ["python3", "-IS", "-c", GROUP, kind, &name];
    let mut stranger = stage.start(1, &look);
    let first: u64 = stranger.ask("").parse().expect("a count");
    assert!(first >= before, "{first}: memory as it was when they left, at least");
    until_true("it is home", || stage.place(pid) == Some(1));
    let seen: u64 = stranger.ask("").parse().expect("a count");
    assert!(seen >= away, "{seen}: and what was written away is seen then");
    // One of them has noticed, and the other went with it.
    let events = stage.text(1, &["osmos", "events"]);
    assert!(events.contains("which does not move with"), "{events}");
    let complaint = stage.complaint(1, &["osmos", "migrate", &pid.to_string(), "2"]);
    assert!(complaint.contains("it stays home"), "{complaint}");
    stranger.close_input();
    assert_eq!(stranger.end(), 0);
    stage.migrate(pid, "2");
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn who_opens_the_memory_of_a_group_that_is_away_has_it_come_home() {
    if needs::can_run(&["python3"]) {
        has_a_stranger_bring_it_home(&Stage::new("group-opened", 2), "posix");
    }
}

#[test]
fn who_attaches_the_memory_of_a_group_that_is_away_has_it_come_home() {
    if needs::can_run(&["python3"]) {
        has_a_stranger_bring_it_home(&Stage::new("group-attached", 2), "system-v");
    }
}

/// Others of its group end while it comes home for a signal that ends it: what they shared is lost
/// if it dies where it is.
#[test]
fn what_a_group_has_written_stays_when_one_dies_of_a_signal_and_the_others_are_killed() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("group-dies", 2);
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", DYING];
    let mut program = stage.start(1, &words);
    for tenths_of_ms in (0..100).step_by(5) {
        let kids = program.ask("begin");
        let kids: Vec<i32> = kids.split(' ').map(|kid| kid.parse().expect("a pid")).collect();
        until_true("both are managed", || kids.iter().all(|kid| stage.place(*kid).is_some()));
        stage.migrate(kids[0], "2");
        until_true("both are there", || kids.iter().all(|kid| stage.place(*kid) == Some(2)));
        let end = format!("end {}", f64::from(tenths_of_ms) / 10.0);
        assert_eq!(program.ask(&end), "kept", "killed {tenths_of_ms} tenths of a ms later");
    }
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

#[test]
fn pools_of_processes_in_a_storm_get_the_same_results() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("group-pools", 3);
    // What is spawned reads it again.
    stage.put(1, POOL_AT, POOL);
    for method in ["fork", "spawn", "forkserver"] {
        let native = stage.text(1, &["python3", POOL_AT, method]);
        let words = ["osmos", "run", "--storm", "50", "--", "python3", POOL_AT, method];
        assert_eq!(stage.text(1, &words), native, "{method}");
    }
}

/// A server of its own, under osmos, as a user who is not root: it would not run as that.
struct Server {
    server: Program,
    bin: PathBuf,
}

/// A directory of the node's own, with its data and its socket.
const PLACE: &str = "/tmp/postgres";

pub const AS_USER: [&str; 6] =
    ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];

impl Server {
    fn start(stage: &Stage) -> Server {
        let bin = needs::find("postgres").expect("it is there");
        let bin = bin.canonicalize().expect("a file").parent().expect("a directory").to_owned();
        stage.text(1, &["install", "-d", "-o", "65534", "-g", "65534", "-m", "700", PLACE]);
        let tool = |name: &str| bin.join(name).to_str().expect("a name").to_owned();
        let data = format!("{PLACE}/data");
        let init = tool("initdb");
        let init = [&AS_USER[..], &[&init, "-D", &data, "-A", "trust", "-U", "it", "-N"]].concat();
        stage.text(1, &init);
        let (postgres, settings) =
            (tool("postgres"), ["-c", "listen_addresses=", "-c", "fsync=off"]);
        let run = ["osmos", "run", "--home", "--", &postgres, "-D", &data, "-k", PLACE];
        let server = stage.start(1, &[&AS_USER[..], &run, &settings].concat());
        let server = Server { server, bin };
        until_true("it answers", || server.ask_or_fail(stage, "select 1").is_some());
        server
    }

    fn words<'a>(&'a self, program: &'a Path, arguments: &[&'a str]) -> Vec<&'a str> {
        let program = program.to_str().expect("a name");
        [&[program, "-h", PLACE, "-U", "it"], arguments].concat()
    }

    fn ask_or_fail(&self, stage: &Stage, query: &str) -> Option<String> {
        let psql = self.bin.join("psql");
        let words = self.words(&psql, &["-At", "-c", query, "postgres"]);
        let output = stage.output(1, &words);
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    }
}

#[test]
fn a_database_loses_no_transaction_while_all_its_processes_move() {
    if !needs::can_run(&["postgres", "setpriv"]) {
        return;
    }
    let stage = Stage::new("group-postgres", 3);
    let server = Server::start(&stage);
    let pid = server.server.pid;
    let pgbench = server.bin.join("pgbench");
    stage.text(1, &server.words(&pgbench, &["-i", "-q", "postgres"]));
    let load = ["-c", "3", "-T", "20", "--no-vacuum", "postgres"];
    let load = stage.begin(1, &server.words(&pgbench, &load));
    let begun = Instant::now();
    let (mut moves, mut answers) = (0, 0);
    for to in ["2", "3", "home"].into_iter().cycle() {
        moves += u32::from(stage.try_migrate(pid, to));
        // By a process that is made where the others are.
        answers += u32::from(server.ask_or_fail(&stage, "select 1").is_some());
        if begun.elapsed() > Duration::from_secs(16) {
            break;
        }
    }
    assert!(moves >= 3 && answers >= 3, "{moves} moves, {answers} answers");
    let output = load.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    let failed = "number of failed transactions: 0 (0.000%)";
    assert!(output.status.success() && text.contains(failed), "{output:?}");
    let sums = "select (select sum(abalance) from pgbench_accounts) = \
                (select sum(delta) from pgbench_history), \
                (select sum(bbalance) from pgbench_branches) = \
                (select sum(tbalance) from pgbench_tellers), count(*) from pgbench_history";
    let told = text
        .lines()
        .find_map(|line| line.strip_prefix("number of transactions actually processed: "));
    let all = format!("t|t|{}", told.expect("how many"));
    assert_eq!(server.ask_or_fail(&stage, sums).as_deref(), Some(&*all));
    let mut server = server.server;
    stage.signal(1, pid, "INT");
    assert_eq!(server.end(), 0, "it has shut down");
}
