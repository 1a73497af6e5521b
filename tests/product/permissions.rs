//! Who may do what, and as whom it is done.

use crate::stage::{Program, Seen, Stage, until};
use serde_json::Value;

const ANNA: u32 = 12345;
const BERT: u32 = 65534;
const ECHO: &str = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)";

/// The words of a command, to be run by an ordinary user.
fn as_user<'a>(uid: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    let head = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"];
    [&head, words].concat()
}

/// A process of Anna's that runs on node 2.
fn start_annas(stage: &Stage) -> Program {
    let anna = ANNA.to_string();
    let words =
        as_user(&anna, &["osmos", "run", "--node", "2", "--", "python3", "-IS", "-c", ECHO]);
    let mut program = stage.start(1, &words);
    assert_eq!(program.ask("hello"), "hello");
    stage.await_place(program.pid, 2);
    program
}

/// Real, effective, saved and file system ids.
fn ids(seen: &Seen, field: &str) -> Vec<u32> {
    let text = seen.field(field).expect("it lives");
    text.split_whitespace().map(|id| id.parse().expect("an id")).collect()
}

#[test]
fn a_users_process_is_moved_by_supervisors_that_run_as_that_user() {
    if !needs::can_run(&["python3", "setpriv"]) {
        return;
    }
    let stage = Stage::new("owner", 2);
    let mut program = start_annas(&stage);
    let (body, body_supervisor) = stage.await_body(2, program.pid);
    let deputy_supervisor = stage.deputy_supervisor(program.pid).expect("it is away");
    // Away she has no account: her guests are in no group of that node.
    for (seen, group) in [(&body, BERT), (&body_supervisor, BERT), (&deputy_supervisor, ANNA)] {
        assert_eq!(ids(seen, "Uid"), [ANNA; 4], "{:?}", seen.words);
        assert_eq!(ids(seen, "Gid"), [group; 4], "{:?}", seen.words);
        assert_eq!(ids(seen, "Groups"), [0; 0], "{:?}", seen.words);
        assert_eq!(seen.field("CapEff").as_deref(), Some("0000000000000000"), "{:?}", seen.words);
    }
    assert_eq!(program.ask("still"), "still");
}

#[test]
fn a_user_sees_and_moves_his_own_processes() {
    if !needs::can_run(&["python3", "setpriv"]) {
        return;
    }
    let stage = Stage::new("own", 2);
    let mut program = start_annas(&stage);
    let (anna, pid) = (ANNA.to_string(), program.pid.to_string());
    let listed = stage.text(1, &as_user(&anna, &["osmos", "ps", "--json"]));
    let listed: Vec<Value> = serde_json::from_str(&listed).expect("a list");
    assert!(listed.iter().any(|process| process["pid"] == program.pid), "{listed:?}");
    stage.text(1, &as_user(&anna, &["osmos", "migrate", &pid, "home"]));
    stage.await_plain(program.pid);
    stage.text(1, &as_user(&anna, &["osmos", "migrate", &pid, "2"]));
    assert_eq!(program.ask("away again"), "away again");
    stage.await_place(program.pid, 2);
}

#[test]
fn a_user_may_not_move_or_adopt_what_belongs_to_others() {
    if !needs::can_run(&["python3", "setpriv"]) {
        return;
    }
    let stage = Stage::new("others", 2);
    let mut annas = start_annas(&stage);
    let mut roots = stage.start(1, &["python3", "-IS", "-c", ECHO]);
    let bert = BERT.to_string();
    for (pid, owner) in [(annas.pid, ANNA), (roots.pid, 0)] {
        let number = pid.to_string();
        for words in [&["osmos", "migrate", &number, "home"][..], &["osmos", "adopt", &number]] {
            let complaint = stage.complaint(1, &as_user(&bert, words));
            let expected = format!("it belongs to user {owner}, you are user {BERT}");
            assert!(complaint.contains(&expected), "{complaint}");
            assert!(complaint.contains(&number), "the process is named: {complaint}");
        }
    }
    assert_eq!(stage.place(annas.pid), Some(2));
    assert_eq!(stage.place(roots.pid), None);
    assert_eq!(annas.ask("untouched"), "untouched");
    assert_eq!(roots.ask("untouched"), "untouched");
    stage.await_plain(roots.pid);
}

#[test]
fn roots_processes_stay_home_until_the_owner_lends_them_and_are_nobodys_elsewhere() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::with_defaults_for_root("roots", 2);
    let words = ["osmos", "run", "--node", "2", "--", "python3", "-IS", "-c", ECHO];
    let mut program = stage.start(1, &words);
    let pid = program.pid.to_string();
    stage.await_managed(program.pid);
    until("the reason names the way out", || {
        let why = stage.text(1, &["osmos", "why", &pid]);
        why.contains("osmos lend --root on").then_some(())
    });
    let complaint = stage.complaint(1, &["osmos", "migrate", &pid, "2"]);
    assert!(complaint.contains("root's processes stay home"), "{complaint}");
    stage.await_plain(program.pid);
    assert_eq!(program.ask("home"), "home");
    stage.text(1, &["osmos", "lend", "--root", "on"]);
    stage.text(1, &["osmos", "migrate", &pid, "2"]);
    let (body, supervisor) = stage.await_body(2, program.pid);
    for seen in [&body, &supervisor] {
        assert_eq!(ids(seen, "Uid"), [BERT; 4], "{:?}", seen.words);
        assert_eq!(ids(seen, "Gid"), [BERT; 4], "{:?}", seen.words);
        assert_eq!(ids(seen, "Groups"), [0; 0], "{:?}", seen.words);
    }
    assert_eq!(program.ask("away"), "away");
    stage.text(1, &["osmos", "lend", "--root", "off"]);
    stage.await_plain(program.pid);
    assert_eq!(program.ask("home again"), "home again");
}

#[test]
fn a_process_is_lent_only_to_the_nodes_that_its_home_names() {
    if !needs::can_run(&["python3", "setpriv"]) {
        return;
    }
    let stage = Stage::new("lendto", 3);
    let mut annas = start_annas(&stage);
    let pid = annas.pid.to_string();
    stage.text(1, &["osmos", "lend", "--to", "3"]);
    stage.await_plain(annas.pid);
    let complaint = stage.complaint(1, &["osmos", "migrate", &pid, "2"]);
    assert!(complaint.contains("lends nothing to node 2"), "{complaint}");
    stage.text(1, &["osmos", "migrate", &pid, "3"]);
    stage.await_place(annas.pid, 3);
    let complaint = stage.complaint(1, &["osmos", "migrate", &pid, "2"]);
    assert!(complaint.contains("lends nothing to node 2"), "{complaint}");
    assert_eq!(annas.ask("still"), "still");
}

#[test]
fn an_ordinary_user_does_not_change_roots_cluster() {
    if !needs::can_run(&["setpriv"]) {
        return;
    }
    let stage = Stage::new("cluster", 2);
    let bert = BERT.to_string();
    for words in [
        &["osmos", "token"][..],
        &["osmos", "down"],
        &["osmos", "join", "10.77.0.2", "x"],
        &["osmos", "lend", "--root", "on"],
    ] {
        let complaint = stage.complaint(1, &as_user(&bert, words));
        assert!(complaint.contains(&format!("you are user {BERT}")), "{words:?}: {complaint}");
    }
    assert!(stage.node(1).daemon_pid().is_some());
    stage.text(1, &as_user(&bert, &["osmos", "nodes"]));
}

#[test]
fn a_user_without_root_makes_a_cluster_of_his_own_and_moves_processes_in_it() {
    if !needs::can_run(&["python3", "setpriv"]) {
        return;
    }
    let stage = Stage::without_daemons("rootless");
    let anna = ANNA.to_string();
    let own = |words: &[&str]| stage.text(1, &as_user(&anna, words));
    own(&["mkdir", "/tmp/one", "/tmp/two"]);
    for (name, port) in [("one", 7801), ("two", 7802)] {
        let listen = format!("127.0.0.1:{port}");
        let (runtime, state) = (format!("/tmp/{name}/run"), format!("/tmp/{name}/state"));
        own(&[
            "osmos",
            "up",
            "--listen",
            &listen,
            "--runtime-dir",
            &runtime,
            "--state-dir",
            &state,
        ]);
    }
    let (one, two) = ("/tmp/one/run/control.sock", "/tmp/two/run/control.sock");
    let token = own(&["osmos", "--socket", one, "token"]);
    own(&["osmos", "--socket", two, "join", "127.0.0.1:7801", token.trim()]);
    let script = format!("print('ready', flush=True)\n{ECHO}");
    let words = ["osmos", "--socket", one, "run", "--home", "--", "python3", "-IS", "-c", &script];
    let mut program = stage.start(1, &as_user(&anna, &words));
    assert_eq!(program.line(), "ready");
    let pid = program.pid.to_string();
    until("it moves", || {
        let words = ["osmos", "--socket", one, "migrate", &pid, "2"];
        stage.output(1, &as_user(&anna, &words)).status.success().then_some(())
    });
    assert_eq!(program.ask("away"), "away");
    let (body, _) = stage.await_body(1, program.pid);
    assert_eq!(ids(&body, "Uid"), [ANNA; 4]);
    own(&["osmos", "--socket", one, "migrate", &pid, "home"]);
    stage.await_plain(program.pid);
    assert_eq!(program.ask("home"), "home");
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
    own(&["osmos", "--socket", two, "down"]);
    own(&["osmos", "--socket", one, "down"]);
}
