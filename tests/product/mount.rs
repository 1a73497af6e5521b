//! The files of all nodes in one directory (`osmos mount`): the same as where they lie, for those
//! whose they are, and errors instead of waiting where they cannot be.

use crate::stage::{Stage, until, until_true};
use std::path::Path;
use std::time::{Duration, Instant};

const FILES: &str = include_str!("files.py");
pub const MOUNT: &str = "/tmp/mfs";
/// A node that does not answer is an error by then.
const SILENCE_MAX: Duration = Duration::from_secs(20);

pub fn as_user<'a>(user: &'a [String; 5], words: &[&'a str]) -> Vec<&'a str> {
    user.iter().map(String::as_str).chain(words.iter().copied()).collect()
}

pub fn user(uid: u32) -> [String; 5] {
    let (user, group) = (format!("--reuid={uid}"), format!("--regid={uid}"));
    ["setpriv".into(), user, group, "--clear-groups".into(), "--".into()]
}

/// Whether this machine can mount anything by FUSE.
pub fn can_mount(programs: &[&str]) -> bool {
    if !Path::new("/dev/fuse").exists() {
        // Not every machine that decides has one.
        eprintln!("skipped: mounts, because this machine has no /dev/fuse");
        return false;
    }
    needs::can_run(programs)
}

/// A lab of which node 2 shares its files, and node 1 has mounted them.
pub fn stage(name: &str, nodes: u32) -> Stage {
    let stage = Stage::new(name, nodes);
    stage.text(2, &["osmos", "share", "write"]);
    let told = stage.text(1, &["osmos", "mount", MOUNT]);
    assert_eq!(told, format!("the files of all nodes are in {MOUNT}\n"));
    stage
}

fn shell(stage: &Stage, node: u32, script: &str) -> String {
    stage.text(node, &["sh", "-c", script])
}

#[test]
fn programs_see_the_same_of_files_through_a_mount_as_where_they_lie() {
    if !can_mount(&["python3"]) {
        return;
    }
    let stage = stage("mount-same", 2);
    shell(&stage, 2, "mkdir /tmp/there /tmp/through");
    let native = stage.text(2, &["python3", "-IS", "-c", FILES, "/tmp/there"]);
    let through = format!("{MOUNT}/2/tmp/through");
    let mounted = stage.text(1, &["python3", "-IS", "-c", FILES, &through]);
    for (native, mounted) in native.lines().zip(mounted.lines()) {
        assert_eq!(native, mounted);
    }
    assert_eq!(native, mounted);
    // And what lies there now is the same as well.
    let sums = "cd /tmp/DIR; ls -lR --time-style=+ | grep -v '^total'; find . -type f | sort | \
                while read -r name; do md5sum < \"$name\"; done 2>&1";
    let there = shell(&stage, 2, &sums.replace("DIR", "there"));
    assert_eq!(there, shell(&stage, 2, &sums.replace("DIR", "through")));
    assert_eq!(shell(&stage, 1, &format!("mount | grep ' {MOUNT} '")).lines().count(), 1);
    stage.text(1, &["osmos", "unmount", MOUNT]);
    assert_eq!(shell(&stage, 1, &format!("ls -A {MOUNT}")), "");
    until_true("its servers have ended", || stage.supervisors(2, "file-server").is_empty());
}

#[test]
fn nodes_are_there_by_number_and_name_and_three_depend_on_who_looks() {
    if !can_mount(&["python3"]) {
        return;
    }
    let stage = stage("mount-names", 2);
    let name = stage.text(2, &["hostname"]);
    let name = name.trim();
    let host = |way: &str| shell(&stage, 1, &format!("cat {MOUNT}/{way}/etc/hostname"));
    assert_eq!(host("2").trim(), name);
    assert_eq!(host(name).trim(), name);
    for at_home in ["here", "home", "selected", "1"] {
        assert_ne!(host(at_home).trim(), name, "{at_home}");
    }
    let select = format!("echo {name} > {MOUNT}/.select; cat {MOUNT}/selected/etc/hostname");
    let in_session = |script: &str| stage.text(1, &["setsid", "--wait", "sh", "-c", script]);
    assert_eq!(in_session(&select).trim(), name);
    let other = in_session(&format!("cat {MOUNT}/selected/etc/hostname"));
    assert_ne!(other.trim(), name, "another session");
    let wrong = format!("echo nobody > {MOUNT}/.select");
    stage.complaint(1, &["sh", "-c", &wrong]);
    // A process that is away is there, and its files are at home nevertheless.
    let script = format!(
        "import os, sys\nprint('ready', flush=True)\nfor _ in sys.stdin:\n    print(\
         os.readlink('{MOUNT}/here'), os.readlink('{MOUNT}/home'), \
         open('{MOUNT}/here/etc/hostname').read().strip(), flush=True)"
    );
    let mut program =
        stage.start(1, &["osmos", "run", "--home", "--", "python3", "-IS", "-c", &script]);
    assert_eq!(program.line(), "ready");
    assert!(program.ask("").starts_with("1 1 "));
    stage.migrate(program.pid, "2");
    assert_eq!(program.ask(""), format!("2 1 {name}"));
    stage.migrate(program.pid, "home");
    assert!(program.ask("").starts_with("1 1 "));
}

#[test]
fn each_user_is_himself_there_and_enters_nobody_elses_part() {
    if !can_mount(&["setpriv"]) {
        return;
    }
    let stage = stage("mount-users", 2);
    let (anna, bert) = (user(61_001), user(61_002));
    let as_anna = |script: &str| stage.text(1, &as_user(&anna, &["sh", "-c", script]));
    let refused = |who: &[String; 5], script: &str| {
        let complaint = stage.complaint(1, &as_user(who, &["sh", "-c", script]));
        assert!(complaint.contains("Permission denied"), "{script}: {complaint}");
    };
    let secret = format!("{MOUNT}/2/tmp/anna/secret");
    as_anna(&format!("umask 077; mkdir {MOUNT}/2/tmp/anna; echo mine > {secret}"));
    assert_eq!(as_anna(&format!("cat {secret}")), "mine\n");
    // His account here says in which group he is, and he has none.
    let owner = shell(&stage, 2, "stat -c '%u:%g %a' /tmp/anna/secret");
    assert_eq!(owner.trim(), "61001:65534 600");
    refused(&anna, &format!("cat {MOUNT}/2/etc/shadow"));
    refused(&anna, &format!("ls {MOUNT}/2/root"));
    refused(&anna, &format!("touch {MOUNT}/2/etc/new"));
    // What the kernel remembers of it is no way in for another.
    as_anna(&format!("ls -l {MOUNT}/2/tmp/anna; stat {secret}"));
    for path in ["2/tmp/anna/secret", ".61001/2/tmp/anna/secret", ".61001/2/tmp", ".61001"] {
        refused(&bert, &format!("stat {MOUNT}/{path} && cat {MOUNT}/{path}"));
    }
    let root = stage.output(1, &["cat", &format!("{MOUNT}/.61001/2/tmp/anna/secret")]);
    assert!(!root.status.success(), "root enters by his own part");
    assert_eq!(shell(&stage, 1, &format!("cat {secret}")), "mine\n");
    // Servers run as those whom they serve, and as nobody else.
    let servers = stage.supervisors(2, "file-server");
    let mut uids: Vec<String> = servers.iter().filter_map(|seen| seen.field("Uid")).collect();
    uids.sort_unstable();
    let expected = ["0\t0\t0\t0", "61001\t61001\t61001\t61001", "61002\t61002\t61002\t61002"];
    assert_eq!(uids, expected);
}

#[test]
fn the_owner_of_a_node_says_what_others_may_do_with_its_files() {
    if !can_mount(&[]) {
        return;
    }
    let stage = stage("mount-shared", 3);
    let complaint = |script: &str| stage.complaint(1, &["sh", "-c", script]);
    let written = format!("echo x > {MOUNT}/2/tmp/written");
    let read = format!("cat {MOUNT}/2/tmp/written");
    // A node begins with its files to itself.
    assert!(complaint(&format!("ls {MOUNT}/3/")).contains("Permission denied"));
    shell(&stage, 1, &written);
    stage.text(2, &["osmos", "share", "read"]);
    until_true("it may only be read", || {
        let output = stage.output(1, &["sh", "-c", &written]);
        String::from_utf8_lossy(&output.stderr).contains("Read-only file system")
    });
    for wrong in ["rm", "mkdir -p", "chmod 600", "ln -s x", "mkfifo", "truncate -s 1", "touch"] {
        let target =
            if wrong.starts_with("mk") || wrong.starts_with("ln") { "new" } else { "written" };
        let told = complaint(&format!("{wrong} {MOUNT}/2/tmp/{target}"));
        assert!(told.contains("Read-only file system"), "{wrong}: {told}");
    }
    assert_eq!(shell(&stage, 1, &read), "x\n");
    stage.text(2, &["osmos", "share", "off"]);
    until_true("nothing is shown", || !stage.output(1, &["sh", "-c", &read]).status.success());
    assert!(complaint(&read).contains("Permission denied"));
    assert!(stage.text(2, &["osmos", "status"]).find("users of other nodes").is_none());
    stage.text(2, &["osmos", "share", "write"]);
    until_true("all is well again", || stage.output(1, &["sh", "-c", &written]).status.success());
    assert!(stage.text(2, &["osmos", "status"]).contains("users of other nodes read and write"));
}

#[test]
fn what_is_no_file_of_the_node_is_not_shown_and_links_do_not_leave_it() {
    if !can_mount(&["python3"]) {
        return;
    }
    let stage = stage("mount-bounds", 2);
    let complaint = |script: &str| stage.complaint(1, &["sh", "-c", script]);
    for hidden in ["proc/1/status", "sys/kernel", "dev/pts"] {
        let told = complaint(&format!("ls {MOUNT}/2/{hidden}"));
        assert!(told.contains("Permission denied"), "{hidden}: {told}");
    }
    let listed = shell(&stage, 1, &format!("ls {MOUNT}/2/"));
    assert!(listed.lines().any(|name| name == "etc") && !listed.lines().any(|name| name == "proc"));
    // A directory of all nodes that shows itself would have no end.
    stage.text(2, &["osmos", "mount", MOUNT]);
    let told = complaint(&format!("ls {MOUNT}/2{MOUNT}/"));
    assert!(told.contains("symbolic links"), "{told}");
    // Absolute links are those of the node that has them.
    let name = stage.text(2, &["hostname"]);
    shell(&stage, 2, "mkdir -p /tmp/a/b; ln -s /etc/hostname /tmp/a/b/link; ln -s / /tmp/a/root");
    for path in ["a/b/link", "a/root/etc/hostname", "a/root/tmp/a/b/link"] {
        assert_eq!(shell(&stage, 1, &format!("cat {MOUNT}/2/tmp/{path}")), name, "{path}");
    }
    shell(&stage, 2, "ln -s ../../../../../../etc/hostname /tmp/a/up");
    let up = shell(&stage, 1, &format!("cat {MOUNT}/2/tmp/a/up"));
    assert_ne!(up, name, "the kernel walks `..`, up to the root of whoever does");
    // Devices are of no use, whoever asks; nor is a program that would make one another user.
    shell(&stage, 2, "mknod /tmp/zero c 1 5; cp /bin/sleep /tmp/sleep; chmod 4755 /tmp/sleep");
    let told = complaint(&format!("head -c 1 {MOUNT}/2/tmp/zero"));
    assert!(told.contains("Permission denied"), "{told}");
    assert!(complaint(&format!("mknod {MOUNT}/2/tmp/null c 1 3")).contains("not permitted"));
    let options = shell(&stage, 1, &format!("grep ' {MOUNT} ' /proc/mounts"));
    assert!(options.contains("nosuid,nodev"), "{options}");
}

#[test]
fn what_another_has_written_is_there_when_a_file_is_opened_and_locks_hold_between_nodes() {
    if !can_mount(&["python3"]) {
        return;
    }
    let stage = stage("mount-open", 2);
    let path = format!("{MOUNT}/2/tmp/it");
    for length in [10, 100_000, 3, 70_000] {
        for turn in 0..5 {
            let content = format!("{turn}").repeat(length);
            stage.put(2, "/tmp/it", &content);
            let read = shell(&stage, 1, &format!("cat {path}"));
            assert_eq!(read, content, "{length} bytes, turn {turn}");
            let content = content.to_uppercase() + "!";
            shell(&stage, 1, &format!("printf %s! \"$(cat {path})\" > {path}"));
            assert_eq!(shell(&stage, 2, "cat /tmp/it"), content);
        }
    }
    let lock = "import fcntl, sys
f = open(sys.argv[1], 'r+')
print('open', flush=True)
for line in sys.stdin:
    how = getattr(fcntl, line.strip())
    try:
        fcntl.lockf(f, how | fcntl.LOCK_NB)
        print('done', flush=True)
    except OSError as error:
        print(error.strerror, flush=True)";
    let mut there = stage.start(2, &["python3", "-IS", "-c", lock, "/tmp/it"]);
    let mut here = stage.start(1, &["python3", "-IS", "-c", lock, &path]);
    assert_eq!([there.line(), here.line()], ["open", "open"]);
    assert_eq!(there.ask("LOCK_EX"), "done");
    assert_eq!(here.ask("LOCK_SH"), "Resource temporarily unavailable");
    assert_eq!(there.ask("LOCK_SH"), "done");
    assert_eq!(here.ask("LOCK_SH"), "done");
    assert_eq!(there.ask("LOCK_EX"), "Resource temporarily unavailable");
    // Whoever ends has no locks any more.
    here.close_input();
    assert_eq!(here.end(), 0);
    until("the lock is free", || (there.ask("LOCK_EX") == "done").then_some(()));
}

#[test]
fn a_node_that_does_not_answer_is_an_error_and_who_waits_for_it_can_be_killed() {
    if !can_mount(&["python3"]) {
        return;
    }
    let stage = stage("mount-silent", 2);
    let script = format!(
        "import os, sys\nos.chdir('{MOUNT}/2/tmp')\nf = open('kept', 'w+')\nprint('ready', \
         flush=True)\nfor line in sys.stdin:\n    try:\n        print(eval(line), flush=True)\n    \
         except OSError as error:\n        print(error.strerror, flush=True)"
    );
    let mut program = stage.start(1, &["python3", "-IS", "-c", &script]);
    assert_eq!(program.line(), "ready");
    assert_eq!(program.ask("f.write('x'), f.flush(), os.fsync(f)"), "(1, None, None)");
    let wire = "ip -o link | sed -n 's/^[0-9]*: \\(eth0\\)@.*/\\1/p'";
    let wire = shell(&stage, 2, wire);
    stage.text(2, &["ip", "link", "set", wire.trim(), "down"]);
    let mut doomed = stage.begin(1, &["ls", &format!("{MOUNT}/2/usr")]);
    let began = Instant::now();
    doomed.kill().expect("it is there");
    doomed.wait().expect("it ends");
    let waited = began.elapsed();
    let told = program.ask("os.stat('/tmp/mfs/2/var')");
    assert!(["Connection timed out", "Input/output error"].contains(&&*told), "{told}");
    assert!(began.elapsed() < SILENCE_MAX, "after {:?}", began.elapsed());
    assert!(waited < Duration::from_secs(5), "it was killed, and ended after {waited:?}");
    assert_eq!(program.ask("f.seek(0), f.read()"), "Input/output error");
    // The directory of all nodes, and the other nodes, are there as before.
    shell(&stage, 1, &format!("ls {MOUNT} {MOUNT}/1/etc/hostname"));
    stage.text(2, &["ip", "link", "set", wire.trim(), "up"]);
    until_true("it answers again", || program.ask("open('/tmp/mfs/2/tmp/kept').read()") == "x");
    // Where the program is it is still, although everything has another number there by now.
    assert_eq!(program.ask("open('kept').read(), os.path.exists('none')"), "('x', False)");
}

#[test]
fn an_open_file_stays_open_when_the_daemon_of_its_node_is_followed_by_another() {
    if !can_mount(&["python3"]) {
        return;
    }
    let stage = stage("mount-daemon", 2);
    let script = format!(
        "import sys\nf = open('{MOUNT}/2/tmp/kept', 'w+')\nprint('ready', flush=True)\nfor line in \
         sys.stdin:\n    f.write(line.strip())\n    f.flush()\n    f.seek(0)\n    print(f.read(), \
         flush=True)"
    );
    let mut program = stage.start(1, &["python3", "-IS", "-c", &script]);
    assert_eq!(program.line(), "ready");
    assert_eq!(program.ask("a"), "a");
    stage.kill_daemon(2);
    assert_eq!(program.ask("b"), "ab");
    stage.start_daemon(2);
    assert_eq!(program.ask("c"), "abc");
    program.close_input();
    assert_eq!(program.end(), 0);
    // The server that the first one has started is needed by nobody any more.
    until_true("it has ended", || stage.supervisors(2, "file-server").is_empty());
    assert_eq!(shell(&stage, 1, &format!("cat {MOUNT}/2/tmp/kept")), "abc");
    stage.text(2, &["osmos", "down"]);
    until_true("a node that is down shows nothing", || {
        stage.supervisors(2, "file-server").is_empty()
    });
}

#[test]
fn a_user_without_root_mounts_his_nodes_and_is_shown_files_only_under_his_own_number() {
    if !can_mount(&["setpriv", "fusermount3"]) {
        return;
    }
    let stage = Stage::without_daemons("mount-rootless");
    // fusermount3 wants an account.
    let anna = user(65_534);
    let own = |words: &[&str]| stage.text(1, &as_user(&anna, words));
    own(&["mkdir", "-p", "/tmp/one", "/tmp/two", "/tmp/home"]);
    for (name, port) in [("one", 7801), ("two", 7802)] {
        let listen = format!("127.0.0.1:{port}");
        let (runtime, state) = (format!("/tmp/{name}/run"), format!("/tmp/{name}/state"));
        let files = ["--runtime-dir", &runtime, "--state-dir", &state, "--share-files", "write"];
        own(&[&["osmos", "up", "--listen", &listen][..], &files].concat());
    }
    let (one, two) = ("/tmp/one/run/control.sock", "/tmp/two/run/control.sock");
    let token = own(&["osmos", "--socket", one, "token"]);
    own(&["osmos", "--socket", two, "join", "127.0.0.1:7801", token.trim()]);
    let with_home = |words: &[&str]| own(&[&["env", "HOME=/tmp/home"][..], words].concat());
    until("the other node is reached", || {
        let mounted = ["env", "HOME=/tmp/home", "osmos", "--socket", one, "mount"];
        stage.output(1, &as_user(&anna, &mounted)).status.success().then_some(())
    });
    until("files are read through the second node", || {
        let words = ["sh", "-c", "echo hello > /tmp/home/mfs/2/tmp/home/it"];
        stage.output(1, &as_user(&anna, &words)).status.success().then_some(())
    });
    assert_eq!(own(&["cat", "/tmp/home/it"]), "hello\n");
    assert_eq!(own(&["stat", "-c", "%u", "/tmp/home/mfs/2/tmp/home/it"]), "65534\n");
    // Nobody else, and not root either: the kernel sees to that.
    stage.complaint(1, &["ls", "/tmp/home/mfs"]);
    // Another user of this machine may ask the second daemon for what anybody may see. Files are
    // not among that.
    let bert = user(61_002);
    let mount = ["osmos", "--socket", two, "mount", "/tmp/bert"];
    stage.complaint(1, &as_user(&bert, &mount));
    with_home(&["osmos", "unmount"]);
    assert_eq!(own(&["ls", "-A", "/tmp/home/mfs"]), "");
    for socket in [two, one] {
        own(&["osmos", "--socket", socket, "down"]);
    }
}
