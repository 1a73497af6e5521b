//! Whoever has no key gets nothing: not a byte, not a place for long, and no influence. Meanwhile a
//! cluster that works goes on working.

use crate::stage::{COUNTING, Program, Seen, Stage, until, until_true};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::Duration;

const STRANGER: &str = include_str!("stranger.py");
const RELAY: &str = include_str!("relay.py");
/// What a daemon may hold more than before, whatever it is sent.
const GROWTH_BYTES_MAX: u64 = 64 << 20;

/// The daemon of a node, and what it held when it was first looked at.
struct Watched {
    pid: i32,
    resident_bytes: u64,
}

impl Watched {
    fn new(pid: i32) -> Watched {
        Watched { pid, resident_bytes: resident_bytes(pid) }
    }

    fn of(stage: &Stage, node: u32) -> Watched {
        Watched::new(stage.node(node).daemon_pid().expect("a daemon"))
    }

    fn assert_well(&self) {
        let growth = resident_bytes(self.pid).saturating_sub(self.resident_bytes);
        assert!(growth < GROWTH_BYTES_MAX, "the daemon grew by {growth} bytes");
    }
}

fn resident_bytes(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") << 10
}

fn rejected(stage: &Stage, node: u32) -> Vec<Value> {
    let text = stage.text(node, &["osmos", "events", "--json"]);
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event"));
    all.filter(|event| event["event"] == "rejected").collect()
}

/// Moves a process out and home until the attack is over; returns how often it moved.
fn move_until_over(stage: &Stage, pid: i32, attack: &mut Child) -> u32 {
    let mut moves = 0;
    while attack.try_wait().expect("our child").is_none() {
        stage.migrate(pid, "2");
        stage.migrate(pid, "home");
        moves += 2;
    }
    moves
}

fn told_by(attack: Child) -> Value {
    let output = attack.wait_with_output().expect("our child");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the stranger failed: {complaint}");
    serde_json::from_slice(&output.stdout).expect("what it did")
}

#[test]
fn strangers_get_not_one_byte_and_processes_keep_moving_meanwhile() {
    if !needs::can_run(&["python3", "ip"]) {
        return;
    }
    let stage = Stage::new("strangers", 3);
    let mut program =
        stage.start(1, &["osmos", "run", "--home", "--", "python3", "-IS", "-c", COUNTING]);
    program.ask("far?");
    stage.migrate(program.pid, "2");
    stage.migrate(program.pid, "home");
    let daemons = [Watched::of(&stage, 1), Watched::of(&stage, 2)];
    // Node 3 lends its network: its daemon's address is not among those that attack.
    let own: Vec<String> = (100..140).map(|number| format!("10.77.0.{number}")).collect();
    let device = stage
        .text(3, &["sh", "-c", "ip -o route get 10.77.0.1 | sed 's/.* dev \\([^ ]*\\).*/\\1/'"]);
    for address in &own {
        stage.text(3, &["ip", "address", "add", &format!("{address}/24"), "dev", device.trim()]);
    }
    stage.put(3, "/tmp/stranger.py", STRANGER);
    for (seed, node) in [("1", 1), ("2", 2)] {
        let target = stage.node(node).address().to_string();
        let mut words = vec!["python3", "-IS", "/tmp/stranger.py", seed, &target, "7780"];
        words.extend(own.iter().map(String::as_str));
        let mut attack = stage.begin(3, &words);
        let moves = move_until_over(&stage, program.pid, &mut attack);
        let told = told_by(attack);
        assert_eq!(told["answered_bytes"], 0, "{told}");
        assert!(told["sent"].as_u64() > Some(500_000), "{told}");
        let (idle, left) = (told["idle"].as_u64(), told["idle_open"].as_u64());
        assert!(idle >= Some(2500) && left <= Some(512), "old ones are dropped: {told}");
        assert!(moves >= 6, "only {moves} moves in an attack");
    }
    daemons.iter().for_each(Watched::assert_well);
    for node in [1, 2] {
        let told = rejected(&stage, node).len();
        assert!(told > 0, "home hears of it");
        assert!(told < 40 * 10, "but not of each of thousands: {told}");
        // A daemon hears of a body's end from its supervisor, later than home has the process.
        until_true("nothing else runs", || stage.listed(node).len() == usize::from(node == 1));
    }
    let before: u64 = program.ask("far?").parse().expect("a count");
    assert!(program.ask("and now?").parse::<u64>().expect("a count") > before);
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
}

/// Two daemons in one node of the lab: the first tells others an address at which the relay is.
struct Relayed {
    stage: Stage,
    relay: Program,
    daemons: [Watched; 2],
}

const FIRST: &str = "/tmp/a/run/control.sock";
const SECOND: &str = "/tmp/b/run/control.sock";

impl Relayed {
    fn new() -> Relayed {
        let stage = Stage::without_daemons("replay");
        stage.put(1, "/tmp/relay.py", RELAY);
        let relay = ["python3", "-IS", "/tmp/relay.py", "127.0.0.2", "127.0.0.1", "7781"];
        let relay = stage.start(1, &relay);
        assert_eq!(relay.line(), "ready");
        let up = |name: &str, rest: &[&str]| {
            let directories = [format!("/tmp/{name}/run"), format!("/tmp/{name}/state")];
            let [run, state] = directories.each_ref().map(String::as_str);
            let first = ["osmos", "up", "--runtime-dir", run, "--state-dir", state, "--speed", "1"];
            stage.text(1, &[&first[..], &["--lend-root", "on"], rest].concat());
        };
        up("a", &["--listen", "127.0.0.1:7781", "--advertise", "127.0.0.2"]);
        up("b", &["--listen", "127.0.0.1:7782"]);
        let token = stage.text(1, &["osmos", "--socket", FIRST, "token"]);
        stage.text(1, &["osmos", "--socket", SECOND, "join", "127.0.0.2:7781", token.trim()]);
        let daemons = [FIRST, SECOND].map(|socket| Watched::new(daemon_of(&stage, socket)));
        Relayed { stage, relay, daemons }
    }

    fn status(&self, socket: &str) -> Value {
        let text = self.stage.text(1, &["osmos", "--socket", socket, "status", "--json"]);
        serde_json::from_str(&text).expect("a status")
    }

    fn rejections(&self) -> String {
        self.stage.text(1, &["osmos", "--socket", FIRST, "events"])
    }
}

fn daemon_of(stage: &Stage, socket: &str) -> i32 {
    let text = stage.text(1, &["osmos", "--socket", socket, "status", "--json"]);
    let status: Value = serde_json::from_str(&text).expect("a status");
    let inner = status["daemon_pid"].as_i64().expect("a pid") as i32;
    stage.process(1, inner).expect("the daemon").pid
}

#[test]
fn what_was_recorded_between_two_nodes_is_ignored_when_it_is_played_again() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let mut relayed = Relayed::new();
    // A process of the second node goes to the first: its berth's stream passes the relay, too.
    let words = ["osmos", "--socket", SECOND, "run", "--home", "--", "sleep", "1000"];
    let program = relayed.stage.start(1, &words);
    let migrate = |to: &str| {
        let pid = program.pid.to_string();
        relayed.stage.text(1, &["osmos", "--socket", SECOND, "migrate", &pid, to]);
    };
    until_true("the nodes know each other", || {
        relayed.status(SECOND)["nodes"] == 2 && relayed.status(FIRST)["nodes"] == 2
    });
    migrate("1");
    // The call that joined and its link, the stream of the berth, gossip.
    let recorded = until("all kinds of traffic were recorded", || {
        let told: Value = serde_json::from_str(&relayed.relay.ask("told?")).expect("counts");
        let is_all = told["streams"].as_u64() >= Some(2) && told["datagrams"].as_u64() >= Some(10);
        is_all.then_some(told)
    });
    let guests = relayed.stage.supervisors(1, "body").len();
    let dropped = relayed.status(FIRST)["datagrams_dropped"].as_u64().expect("a count");
    let played: Value = serde_json::from_str(&relayed.relay.ask("play")).expect("counts");
    assert_eq!(played["answered_bytes"], 0, "{played}");
    assert!(played["streams"].as_u64() >= Some(8), "{played} of {recorded}");
    let datagrams = played["datagrams"].as_u64().expect("a count");
    until_true("all datagrams that were played are dropped", || {
        let now = relayed.status(FIRST)["datagrams_dropped"].as_u64().expect("a count");
        now >= dropped + datagrams
    });
    assert_eq!(relayed.stage.supervisors(1, "body").len(), guests, "no berth was used twice");
    until_true("home hears of it", || relayed.rejections().contains("rejected"));
    relayed.daemons.iter().for_each(Watched::assert_well);
    migrate("home");
    relayed.stage.await_plain(program.pid);
}

/// The control socket of a node, as this machine can open it.
fn control(stage: &Stage, node: u32) -> UnixStream {
    let path = stage.path(node, "/run/osmos/control.sock");
    let stream = UnixStream::connect(path).expect("the daemon listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a patience");
    stream
}

#[test]
fn a_control_socket_that_is_held_open_or_sent_nonsense_serves_everybody_else() {
    let stage = Stage::new("control", 2);
    let daemon = Watched::of(&stage, 1);
    let mut seed = 0x9e37_79b9_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as u8
    };
    let mut held: Vec<UnixStream> = (0..600).map(|_| control(&stage, 1)).collect();
    stage.text(1, &["osmos", "nodes"]);
    for (index, stream) in held.iter_mut().enumerate() {
        let bytes: Vec<u8> = (0..index * 7).map(|_| random()).collect();
        // Those that gave way to newer ones are closed.
        let _ = stream.write_all(&bytes);
    }
    let mut endless = control(&stage, 1);
    let _ = endless.write_all(&vec![b' '; 1 << 20]);
    let mut answer = Vec::new();
    let closed = endless.read_to_end(&mut answer);
    assert!(closed.is_ok_and(|length| length == 0) || answer.is_empty(), "it is cut off");
    let mut wrong = control(&stage, 1);
    wrong.write_all(b"{\"request\":\"migrate\",\"pid\":{}}\n[[[[\n").expect("it listens");
    let mut reply = [0; 4096];
    let length = wrong.read(&mut reply).expect("a refusal");
    assert!(String::from_utf8_lossy(&reply[..length]).contains("bad-request"));
    assert_eq!(stage.listed(1), Vec::<Value>::new());
    let program = stage.start_away(&["cat"]);
    stage.migrate(program.pid, "home");
    daemon.assert_well();
    assert!(Seen::all().iter().any(|seen| seen.pid == daemon.pid), "it is the same daemon");
}
