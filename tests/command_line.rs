//! The command line as a user meets it: the built program against a daemon of the test's own that
//! speaks the published control protocol.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use wire::control::{Placement, Reply, Request};
use wire::ids::NodeId;

const OSMOS: &str = env!("CARGO_BIN_EXE_osmos");

/// Answers one caller, and tells what he asked.
struct Daemon {
    directory: tempfile::TempDir,
    asked: JoinHandle<Vec<Request>>,
}

impl Daemon {
    fn answering(reply: Reply) -> Daemon {
        Daemon::answering_in_turn(vec![reply])
    }

    fn answering_in_turn(replies: Vec<Reply>) -> Daemon {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join("socket")).expect("a socket");
        let asked = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a caller");
            let mut lines = BufReader::new(&stream);
            let answer = |reply: Reply| {
                let mut line = String::new();
                lines.read_line(&mut line).expect("a line");
                let answer = serde_json::to_string(&reply).expect("a reply") + "\n";
                (&stream).write_all(answer.as_bytes()).expect("the caller listens");
                serde_json::from_str(&line).expect("a request")
            };
            replies.into_iter().map(answer).collect()
        });
        Daemon { directory, asked }
    }

    fn managing() -> Daemon {
        Daemon::answering(Reply::Managed {
            node: NodeId(1),
            daemon_pid: std::process::id() as i32,
            left_out: None,
        })
    }

    fn osmos(&self, words: &[&str]) -> Command {
        osmos(&self.directory.path().join("socket"), words)
    }

    /// The last request, to which all others lead.
    fn asked(self) -> Request {
        self.asked.join().expect("the daemon was asked").pop().expect("once at least")
    }
}

fn osmos(socket: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(OSMOS);
    command.arg("--socket").arg(socket).args(words);
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn nowhere() -> PathBuf {
    PathBuf::from("/nonexistent/osmos.sock")
}

#[test]
fn run_replaces_itself_by_the_command_and_keeps_the_pid() {
    let daemon = Daemon::managing();
    let mut command = daemon.osmos(&["run", "--storm", "50", "--", "sh", "-c", "echo $$; exit 7"]);
    let child = command.stdout(Stdio::piped()).spawn().expect("started");
    let pid = child.id();
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output).trim(), pid.to_string());
    let Request::Manage(options) = daemon.asked() else { panic!("not asked to manage") };
    assert_eq!((options.placement, options.storm_ms), (Placement::Balanced, Some(50)));
}

#[test]
fn a_freeze_budget_reaches_the_daemon_and_one_of_nothing_is_refused_before() {
    let daemon = Daemon::managing();
    let output = daemon.osmos(&["run", "--freeze-budget", "5", "--", "true"]).output();
    assert!(output.expect("ended").status.success());
    let Request::Manage(options) = daemon.asked() else { panic!("not asked to manage") };
    assert_eq!(options.freeze_budget_ms.map(|budget| budget.ms()), Some(5));
    let lines =
        [(&["run", "--freeze-budget", "0", "true"][..], 125), (&["limit", "--freeze-budget=0"], 2)];
    for (words, status) in lines {
        let output = Command::new(OSMOS).args(words).output().expect("ended");
        assert_eq!(output.status.code(), Some(status), "{words:?}");
        assert!(complaint(&output).contains("1 to 60000 ms, not 0"), "{}", complaint(&output));
    }
}

#[test]
fn a_wrong_run_has_the_status_of_one_wherever_the_socket_is_named() {
    let before: [&[&str]; 3] = [&[], &["--socket", "/nowhere"], &["--socket=/nowhere"]];
    for words in before {
        let output = Command::new(OSMOS).args(words).args(["run", "--no-such"]).output();
        assert_eq!(output.expect("ended").status.code(), Some(125), "{words:?}");
    }
    let listing = Command::new(OSMOS).args(["--socket", "run", "ps", "--no-such"]).output();
    assert_eq!(listing.expect("ended").status.code(), Some(2));
}

#[test]
fn death_by_signal_is_the_commands_own() {
    let daemon = Daemon::managing();
    let output = daemon.osmos(&["run", "sh", "-c", "kill -TERM $$"]).output().expect("ended");
    assert_eq!(output.status.signal(), Some(15));
}

#[test]
fn the_command_finds_environment_descriptors_and_signals_as_they_were() {
    // What the shell is given must be what it is given without Osmos in between.
    let script = "env | sort | grep -v '^_='; ls /proc/$$/fd; \
                  grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; umask; ulimit -a";
    let native = Command::new("sh").args(["-c", script]).output().expect("ended");
    let daemon = Daemon::managing();
    let managed = daemon.osmos(&["run", "--", "sh", "-c", script]).output().expect("ended");
    assert!(native.status.success() && managed.status.success());
    assert_eq!(text(&managed), text(&native));
}

#[test]
fn ignored_signals_and_open_descriptors_are_passed_on() {
    let show = "grep -E '^Sig(Ign|Blk|Cgt)' /proc/self/status; ls /proc/self/fd";
    for (before, after) in
        [("trap '' HUP", ""), ("trap '' INT QUIT", ""), ("", "3>&1"), ("", "3</dev/null")]
    {
        let script = |osmos: &str| format!("{before}\nexec {osmos} sh -c \"{show}\" {after}");
        let daemon = Daemon::managing();
        let socket = daemon.directory.path().join("socket");
        let prefix = format!("{OSMOS} --socket {} run --", socket.display());
        let native = Command::new("sh").args(["-c", &script("")]).output().expect("ended");
        let managed = Command::new("sh").args(["-c", &script(&prefix)]).output().expect("ended");
        assert_eq!(text(&managed), text(&native), "{before} {after}");
        assert_eq!(complaint(&managed), complaint(&native), "{before} {after}");
    }
}

#[test]
fn the_commands_own_arguments_are_not_osmos_options() {
    let daemon = Daemon::managing();
    let words = ["run", "--node", "3", "--", "printf", "%s.", "--json", "", "a b", "--help"];
    let output = daemon.osmos(&words).output().expect("ended");
    assert_eq!(text(&output), "--json..a b.--help.");
    let Request::Manage(options) = daemon.asked() else { panic!("not asked to manage") };
    assert_eq!(options.placement, Placement::Node(NodeId(3)));
}

#[test]
fn without_a_daemon_nothing_is_started() {
    let directory = tempfile::tempdir().expect("a directory");
    let trace = directory.path().join("trace");
    let words = ["run", "--", "touch", trace.to_str().expect("plain")];
    let output = osmos(&nowhere(), &words).output().expect("ended");
    assert_eq!(output.status.code(), Some(125));
    assert!(complaint(&output).contains("osmos up"), "{}", complaint(&output));
    assert!(!trace.exists());
}

#[test]
fn a_refusing_daemon_starts_nothing_and_is_quoted() {
    let failure = wire::control::Failure { code: "full".into(), text: "the table is full".into() };
    let daemon = Daemon::answering(Reply::Error(failure));
    let output = daemon.osmos(&["run", "--", "echo", "started"]).output().expect("ended");
    assert_eq!(output.status.code(), Some(125));
    assert!(complaint(&output).contains("the table is full"));
    assert_eq!(text(&output), "");
}

#[test]
fn commands_that_cannot_run_have_the_statuses_of_env() {
    for (program, status) in [("/nonexistent/program", 127), ("no-such-command", 127), ("/", 126)] {
        let daemon = Daemon::managing();
        let output = daemon.osmos(&["run", "--", program]).output().expect("ended");
        assert_eq!(output.status.code(), Some(status), "{program}: {}", complaint(&output));
        assert!(complaint(&output).contains(program), "{}", complaint(&output));
    }
}

#[test]
fn wrong_usage_is_two_except_where_a_command_was_to_run() {
    for (words, status) in [
        (&["migrate", "x", "home"][..], 2),
        (&["migrate", "7", "no where"], 2),
        (&["migrate", "7", "0"], 2),
        (&["frobnicate"], 2),
        (&["--version"], 0),
        (&["help"], 0),
    ] {
        let output = Command::new(OSMOS).args(words).output().expect("ended");
        assert_eq!(output.status.code(), Some(status), "{words:?}");
    }
    let output = Command::new(OSMOS).args(["run", "--nodes"]).output().expect("ended");
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn a_new_daemon_is_not_told_where_a_running_one_is() {
    let output = osmos(Path::new("/tmp/socket"), &["up"]).output().expect("osmos runs");
    assert_eq!(output.status.code(), Some(2));
    let complaint = complaint(&output);
    assert!(
        complaint.contains("/tmp/socket") && complaint.contains("--runtime-dir"),
        "{complaint}"
    );
}

#[test]
fn a_daemon_in_the_background_keeps_nothing_open_that_its_caller_had_open() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (runtime, state) = (path("run"), path("state"));
    let places = ["--runtime-dir", &runtime, "--state-dir", &state, "--listen", "127.0.0.1:0"];
    // Descriptor 9 is another end of the shell's input.
    let mut shell = Command::new("sh")
        .args(["-c", "exec 9<&0; exec \"$@\"", "sh", OSMOS, "up"])
        .args(places)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("a shell");
    let mut input = shell.stdin.take().expect("it is piped");
    let is_up = shell.wait().expect("our child").success();
    let written = input.write_all(b"is anybody there?");
    let socket = directory.path().join("run/control.sock");
    let down = osmos(&socket, &["down"]).output().expect("ended");
    assert!(is_up && down.status.success(), "{}", complaint(&down));
    let error = written.expect_err("nobody reads it any more");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn a_wrong_configuration_is_told_line_by_line_and_starts_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("osmos.toml");
    std::fs::write(&path, "name = \"delta\"\nguests-max = -1\nlisten-to = 1\n").expect("written");
    let runtime = directory.path().join("run");
    let mut up = Command::new(OSMOS);
    let up = up.args(["up", "--config"]).arg(&path).arg("--runtime-dir").arg(&runtime);
    let output = up.output().expect("ended");
    assert_eq!(output.status.code(), Some(2));
    let complaint = complaint(&output);
    for wanted in [":2: guests-max = \"-1\": ", ":3: there is no option `listen-to`"] {
        assert!(complaint.contains(&format!("{}{wanted}", path.display())), "{complaint}");
    }
    assert!(!runtime.exists());
    let check = |words: &[&str]| {
        let mut check = Command::new(OSMOS);
        check.args(["config", "check"]).arg(&path).args(words).output().expect("ended")
    };
    assert_eq!(check(&[]).status.code(), Some(1));
    let example = Command::new(OSMOS).args(["config", "example"]).output().expect("ended");
    std::fs::write(&path, &example.stdout).expect("written");
    assert_eq!(text(&check(&[])), format!("{}: 0 options\n", path.display()));
    std::fs::write(&path, "name = \"delta\"\nguests-max = 3\n").expect("written");
    assert!(text(&check(&[])).ends_with(": 2 options\nname        delta\nguests-max  3\n"));
    let told: serde_json::Value = serde_json::from_str(&text(&check(&["--json"]))).expect("JSON");
    assert_eq!(told["options"]["guests-max"], "3");
}

/// A daemon that does not outlive a test that fails.
struct Started(std::process::Child);

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon with its files in one directory, whose service manager is the test.
struct Service {
    directory: tempfile::TempDir,
    manager: std::os::unix::net::UnixDatagram,
}

impl Service {
    fn new() -> Service {
        let directory = tempfile::tempdir().expect("a directory");
        let manager = std::os::unix::net::UnixDatagram::bind(directory.path().join("notify"));
        let manager = manager.expect("a socket");
        manager.set_read_timeout(Some(std::time::Duration::from_secs(60))).expect("a timeout");
        let state = directory.path().join("state").display().to_string();
        let config = format!(
            "name = \"delta\"\nlisten = \"127.0.0.1:0\"\nspeed = 1\nstate-dir = {state:?}\n"
        );
        std::fs::write(directory.path().join("osmos.toml"), config).expect("written");
        Service { directory, manager }
    }

    fn up(&self, how: &str) -> Command {
        let path = |name: &str| self.directory.path().join(name);
        let mut up = Command::new(OSMOS);
        up.args(["up", how, "--config"]).arg(path("osmos.toml"));
        up.arg("--runtime-dir").arg(path("run"));
        up.env("NOTIFY_SOCKET", path("notify")).stdin(Stdio::null()).stdout(Stdio::null());
        up.stderr(Stdio::null());
        up
    }

    /// What the manager is told next.
    fn told(&self) -> String {
        let mut bytes = [0; 1024];
        let length = self.manager.recv(&mut bytes).expect("the manager is told");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    fn status(&self) -> serde_json::Value {
        let socket = self.directory.path().join("run/control.sock");
        let output = osmos(&socket, &["status", "--json"]).output().expect("ended");
        serde_json::from_slice(&output.stdout).expect("a status")
    }
}

#[test]
fn a_service_takes_its_own_place_and_tells_its_manager_what_it_does() {
    let service = Service::new();
    let mut daemon = Started(service.up("--foreground").spawn().expect("started"));
    assert_eq!(service.told(), "READY=1\n");
    let before = service.status();
    assert_eq!((&before["name"], &before["is_service"]), (&"delta".into(), &true.into()));
    let config = service.directory.path().join("osmos.toml");
    let changed = std::fs::read_to_string(&config).expect("there").replace("delta", "epsilon");
    std::fs::write(&config, changed).expect("written");
    let refused = service.up("--replace").args(["--name", "zeta"]).stderr(Stdio::piped()).output();
    let refused = complaint(&refused.expect("ended"));
    assert!(refused.contains("keeps its options"), "{refused}");
    assert!(service.up("--replace").status().expect("ended").success());
    assert_eq!(service.told(), "READY=1\n");
    let after = service.status();
    assert_eq!(after["daemon_pid"], before["daemon_pid"], "its manager knows no other process");
    assert_eq!(after["name"], "epsilon", "it has read its file again");
    let pid = nix::unistd::Pid::from_raw(daemon.0.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::SIGTERM).expect("it runs");
    assert_eq!(service.told(), "STOPPING=1\n");
    assert!(daemon.0.wait().expect("our child").success());
}

#[test]
fn a_unit_is_one_that_systemd_takes() {
    let unit = |words: &[&str]| {
        let output = Command::new(OSMOS).args(["service", "print"]).args(words).output();
        text(&output.expect("ended"))
    };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("osmos.service");
    for words in [&["--program", "/bin/true"][..], &["--program", "/bin/true", "--user"]] {
        std::fs::write(&path, unit(words)).expect("written");
        if !needs::can_run(&["systemd-analyze"]) {
            return;
        }
        let mut verify = Command::new("systemd-analyze");
        verify.args(words.iter().filter(|word| **word == "--user"));
        let output = verify.arg("verify").arg(&path).output().expect("ended");
        let complaint = complaint(&output);
        let about_it = complaint.lines().filter(|line| line.contains("osmos.service"));
        let about_it: Vec<&str> = about_it.filter(|line| !line.contains("man osmos")).collect();
        assert!(about_it.is_empty(), "{complaint}");
    }
}

#[test]
fn classic_names_are_chosen_by_the_name_of_the_link() {
    let refused = Command::new(OSMOS).arg0("setpe").args(["-w", "-f", "map"]).output();
    let refused = refused.expect("ended");
    assert_eq!(refused.status.code(), Some(2));
    assert!(complaint(&refused).contains("osmos up --map"));
    let incomplete = Command::new(OSMOS).arg0("/usr/bin/runon").arg("2").output().expect("ended");
    assert_eq!(incomplete.status.code(), Some(125));
    assert!(complaint(&incomplete).contains("runon NODE COMMAND"));
}

#[test]
fn listings_print_the_published_shapes() {
    let node = serde_json::json!({
        "id": 2, "address": "10.0.0.2:7780", "status": "alive", "cores": 4.0, "speed": 0.5,
        "load": 1.25, "mem_total_bytes": 1024, "mem_free_bytes": 512, "info_age_s": 0.3,
        "takes_guests": true, "cpu": "baseline", "cpu_reason": "it lacks avx2",
        "move_limits": { "bandwidth_bits_per_s": 500_000_000, "processors": null },
        "bytes_per_s": 118e6, "name": "delta.example.org",
    });
    let reply = serde_json::json!({ "reply": "nodes", "nodes": [node] });
    let daemon = Daemon::answering(serde_json::from_value(reply.clone()).expect("the shape"));
    let output = daemon.osmos(&["nodes", "--json"]).output().expect("ended");
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(printed, reply["nodes"]);
    let daemon = Daemon::answering(serde_json::from_value(reply).expect("the shape"));
    let table = text(&daemon.osmos(&["nodes"]).output().expect("ended"));
    assert!(
        table.contains("2  delta.example.org  10.0.0.2:7780") && !table.contains('\x1b'),
        "{table}"
    );
}

fn nodes(names: &[Option<&str>]) -> Reply {
    let node = |(id, name): (u32, &Option<&str>)| {
        serde_json::json!({
            "id": id, "address": "10.0.0.2:7780", "status": "alive", "cores": 4.0, "speed": 0.5,
            "load": 1.25, "mem_total_bytes": 1024, "mem_free_bytes": 512, "info_age_s": 0.3,
            "name": name,
        })
    };
    let nodes: Vec<_> = (1..).zip(names).map(node).collect();
    let reply = serde_json::json!({ "reply": "nodes", "nodes": nodes });
    serde_json::from_value(reply).expect("the shape")
}

#[test]
fn a_name_is_looked_up_and_the_daemon_is_asked_by_number() {
    let known = || nodes(&[Some("alpha"), None, Some("delta.example.org")]);
    let daemon = Daemon::answering_in_turn(vec![known(), Reply::Done]);
    let output = daemon.osmos(&["forget", "Delta"]).output().expect("ended");
    assert!(output.status.success(), "{}", complaint(&output));
    assert_eq!(daemon.asked(), Request::Forget { node: NodeId(3), force: false });

    let refusals = [
        (&["forget", "echo"][..], 1),
        (&["migrate", "7", "echo"], 1),
        (&["run", "--node", "echo", "--", "true"], 125),
    ];
    for (words, status) in refusals {
        let daemon = Daemon::answering(known());
        let output = daemon.osmos(words).output().expect("ended");
        assert_eq!(output.status.code(), Some(status), "{words:?}");
        let told = "there is no node `echo`; there are 1 (alpha), 2, 3 (delta.example.org)";
        assert!(complaint(&output).contains(told), "{words:?}: {}", complaint(&output));
        assert_eq!(daemon.asked(), Request::Nodes, "{words:?}");
    }
}

fn token() -> Reply {
    Reply::Token { token: "abc".into() }
}

fn status() -> Reply {
    serde_json::from_value(serde_json::json!({
        "reply": "status", "node": 1, "address": "10.0.0.1:7780", "daemon_pid": 0,
        "version": "1", "nodes": 1, "uptime_s": 1.0, "name": "alpha",
    }))
    .expect("the shape")
}

#[test]
fn a_token_stands_alone_in_standard_output_and_is_explained_to_who_looks() {
    let output = Daemon::answering(token()).osmos(&["token"]).output().expect("ended");
    assert_eq!((text(&output).as_str(), complaint(&output).as_str()), ("abc\n", ""));

    let terminal = nix::pty::openpty(None, None).expect("a terminal");
    let daemon = Daemon::answering_in_turn(vec![token(), status()]);
    let output = daemon.osmos(&["token"]).stdout(terminal.slave).output().expect("ended");
    let mut shown = [0; 64];
    let length = nix::unistd::read(&terminal.master, &mut shown).expect("it was written");
    assert_eq!(&shown[..length], b"abc\r\n");
    let told = complaint(&output);
    assert!(told.starts_with("token: one other machine may join"), "{told}");
    assert!(told.ends_with("\n  osmos join 10.0.0.1:7780 abc\n"), "{told}");
}

#[test]
fn what_is_done_is_told_in_json_to_who_wants_that() {
    use serde_json::json;
    let mut shown = serde_json::to_value(status()).expect("a reply");
    shown.as_object_mut().expect("an object").remove("reply");
    let done = || vec![Reply::Done];
    let cases = [
        (&["token"][..], vec![token()], json!({ "token": "abc" })),
        (&["join", "10.0.0.1", "abc"], vec![Reply::Done, status()], shown.clone()),
        (&["leave"], vec![Reply::Done, status()], shown),
        (&["forget", "3"], done(), json!({ "done": true, "node": 3 })),
        (&["renew-secret"], done(), json!({ "done": true })),
        (&["adopt", "4711"], done(), json!({ "done": true, "pid": 4711 })),
        (&["down"], vec![status(), Reply::Done], json!({ "done": true, "daemon_pid": 0 })),
    ];
    for (words, replies, wanted) in cases {
        let daemon = Daemon::answering_in_turn(replies);
        let output = daemon.osmos(words).arg("--json").output().expect("ended");
        assert!(output.status.success(), "{words:?}: {}", complaint(&output));
        let printed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(printed, wanted, "{words:?}");
    }
}

#[test]
fn a_daemon_that_answers_something_else_is_a_failure() {
    let daemon = Daemon::answering(Reply::Done);
    let output = daemon.osmos(&["ps"]).output().expect("ended");
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("version"), "{}", complaint(&output));
}

#[test]
fn doctor_reports_every_check_once() {
    let output = Command::new(OSMOS).args(["doctor", "--json"]).output().expect("ended");
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut names: Vec<&str> = findings.iter().filter_map(|f| f["name"].as_str()).collect();
    assert!(names.len() >= 6, "{names:?}");
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
    let fit = findings.iter().all(|f| f["present"] == true || f["required"] == false);
    assert_eq!(output.status.success(), fit);
}

#[test]
fn a_scenario_can_be_shown_changed_and_played() {
    let nowhere = Path::new("/nonexistent");
    let shown = osmos(nowhere, &["sim", "--show", "sixteen"]).output().expect("osmos runs");
    let mut scenario: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    scenario["jobs"][0]["work"] = serde_json::json!({ "fixed": 5.0 });
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("scenario.json");
    std::fs::write(&path, scenario.to_string()).expect("a file");
    let path = path.to_str().expect("text");
    let played = osmos(nowhere, &["sim", "--json", path]).output().expect("osmos runs");
    assert!(played.status.success(), "{}", complaint(&played));
    let outcome: serde_json::Value = serde_json::from_slice(&played.stdout).expect("JSON");
    assert_eq!(outcome["finished"], 24);
}

#[test]
fn the_balancing_is_measured_in_the_published_shape() {
    let words = ["bench", "balance", "--sim", "--json", "--seeds", "1", "flood"];
    let measured = osmos(Path::new("/nonexistent"), &words).output().expect("osmos runs");
    assert!(measured.status.success(), "{}", complaint(&measured));
    let results: serde_json::Value = serde_json::from_slice(&measured.stdout).expect("JSON");
    let osmos = &results["flood"]["osmos"];
    for field in ["over_optimum_pct_mean", "over_optimum_pct_max", "migrations", "frozen_s"] {
        assert!(osmos[field].is_number(), "{field}: {osmos}");
    }
    assert_eq!(osmos["rows"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_measurement_that_does_not_exist_is_a_wrong_use() {
    let output = osmos(Path::new("/nonexistent"), &["bench", "speed"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{}", complaint(&output));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let all = [&["sim", "sixteen", "--show"][..], &["sim", "sixteen", "--json"], &["lab", "ps"]];
    for words in all {
        let mut command = Command::new(OSMOS);
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("osmos runs");
        // Before it has said anything.
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let words_said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {}: {words_said}", output.status);
        assert!(!words_said.contains("panic"), "{words:?}: {words_said}");
    }
}

#[test]
fn shells_and_manual_pages_know_the_words_of_all_commands() {
    let osmos = |words: &[&str]| Command::new(OSMOS).args(words).output().expect("ended");
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&osmos(&["completions", shell]));
        // Of `bench ssi`, whose words are read elsewhere.
        assert!(script.contains("overhead") && script.contains("cluster"), "{shell}");
    }
    assert_eq!(osmos(&["completions", "tcsh"]).status.code(), Some(2));
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("text");
    text(&osmos(&["man", path]));
    for page in ["osmos-bench-ssi.1", "osmos-lab-exec.1", "osmos-sim.1", "osmos-cluster-up.1"] {
        let page = directory.path().join(page);
        assert!(page.exists(), "{}", page.display());
    }
}
