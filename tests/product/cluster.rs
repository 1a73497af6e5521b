//! From machines with nothing but ssh to a cluster, as an ordinary user, and back.

use crate::stage::{Stage, until, until_true};
use serde_json::Value;
use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

const ANNA: &str = "12345";
/// Accounts of a node: an ordinary user's home has to be the node's own.
pub const ACCOUNTS: &str = "\
root:x:0:0:root:/root:/bin/sh
sshd:x:101:65534::/run/sshd:/usr/sbin/nologin
anna:x:12345:12345:Anna:/tmp/anna:/bin/sh
";
pub const SSHD: &str = "\
HostKey /tmp/host-key
AuthorizedKeysFile /tmp/anna/.ssh/authorized_keys
PasswordAuthentication no
UsePAM no
StrictModes no
";
/// Of Anna's ssh, on node 1: names that no resolver knows.
const SSH: &str = "\
Host two
  HostName 10.77.0.2
Host three
  HostName 10.77.0.3
Host nobody
  HostName 10.77.0.99
  ConnectTimeout 1
Host *
  User anna
  IdentityFile /tmp/anna/.ssh/id
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
";

/// Three machines, each with a user called Anna who may log in to all of them, and no Osmos.
struct Machines {
    stage: Stage,
    servers: Vec<Child>,
}

impl Machines {
    /// None where that cannot be had, which is said.
    fn new(name: &str) -> Option<Machines> {
        if !needs::can_run(&["ssh", "sshd", "ssh-keygen", "setpriv", "sha256sum"]) {
            return None;
        }
        let stage = Stage::of_nodes_without_daemons(name, 3);
        stage.put(1, "/tmp/passwd", ACCOUNTS);
        let probe = stage.output(1, &["mount", "--bind", "/tmp/passwd", "/etc/passwd"]);
        if !probe.status.success() {
            needs::skip("nothing can be mounted in a node");
            return None;
        }
        stage.text(1, &["umount", "/etc/passwd"]);
        let mut machines = Machines { stage, servers: Vec::new() };
        let stage = &machines.stage;
        stage.text(1, &["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/tmp/key"]);
        let public = stage.text(1, &["cat", "/tmp/key.pub"]);
        for node in 1..=3 {
            machines.prepare(node, &public);
        }
        let stage = &machines.stage;
        let home = "mv /tmp/key /tmp/anna/.ssh/id && chown 12345:12345 /tmp/anna/.ssh/id";
        stage.text(1, &["sh", "-c", home]);
        stage.put(1, "/tmp/anna/.ssh/config", SSH);
        Some(machines)
    }

    fn prepare(&mut self, node: u32, public: &str) {
        let stage = &self.stage;
        stage.put(node, "/tmp/passwd", ACCOUNTS);
        stage.put(node, "/tmp/sshd-config", SSHD);
        let script = "
            set -e
            mount --bind /tmp/passwd /etc/passwd
            mkdir -p /run/sshd /tmp/anna/.ssh
            echo \"$1\" > /tmp/anna/.ssh/authorized_keys
            ssh-keygen -q -t ed25519 -N '' -f /tmp/host-key
            chown -R 12345:12345 /tmp/anna
            chmod 755 /run/sshd /tmp/anna";
        stage.text(node, &["sh", "-c", script, "sh", public.trim()]);
        let server = needs::find("sshd").expect("it was found before");
        let server = server.to_str().expect("a path");
        let words = [server, "-D", "-e", "-f", "/tmp/sshd-config"];
        self.servers.push(stage.begin(node, &words));
        let look = ["sh", "-c", "ls /proc/[0-9]*/fd >/dev/null; cat /proc/net/tcp"];
        // Port 22 is there.
        until_true("the server listens", || {
            stage.text(node, &look).contains(":0016 00000000:0000 0A")
        });
    }

    fn command(&self, node: u32, words: &[&str]) -> Command {
        let head = [
            "setpriv",
            "--reuid",
            ANNA,
            "--regid",
            ANNA,
            "--clear-groups",
            "env",
            "-u",
            "XDG_RUNTIME_DIR",
            "HOME=/tmp/anna",
        ];
        self.stage.command(node, &[&head[..], words].concat())
    }

    fn output(&self, node: u32, words: &[&str]) -> Output {
        self.command(node, words).output().expect("started")
    }

    /// What Anna's command prints, which has to succeed.
    fn text(&self, node: u32, words: &[&str]) -> String {
        let output = self.output(node, words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {told}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn complaint(&self, node: u32, words: &[&str]) -> String {
        let output = self.output(node, words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        String::from_utf8(output.stderr).expect("text")
    }

    fn alive(&self, node: u32) -> Vec<u64> {
        let listed = self.text(node, &["osmos", "nodes", "--json"]);
        let listed: Vec<Value> = serde_json::from_str(&listed).expect("nodes");
        let alive = listed.iter().filter(|node| node["status"] == "alive");
        alive.filter_map(|node| node["id"].as_u64()).collect()
    }
}

/// A program of Anna's that was started on node 1 and waits for a line.
struct Asked(Child);

impl Asked {
    /// Says a line, hears it again, and sees the program end.
    fn answers(mut self) {
        self.0.stdin.take().expect("a pipe").write_all(b"on\n").expect("it reads");
        let mut told = String::new();
        self.0.stdout.take().expect("a pipe").read_to_string(&mut told).expect("text");
        assert_eq!((told.as_str(), self.0.wait().expect("ended").success()), ("on\n", true));
    }
}

impl Machines {
    /// Starts a program for node 2 on node 1, and sees it there.
    fn start_away(&self) -> Asked {
        let script = "read line; echo $line";
        let words = ["osmos", "run", "--node", "2", "--", "sh", "-c", script];
        let mut command = self.command(1, &words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let asked = Asked(command.spawn().expect("started"));
        until_true("it is away", || self.place() == Some(2));
        asked
    }

    /// Where the one process of node 1 is.
    fn place(&self) -> Option<u64> {
        let listed = self.text(1, &["osmos", "ps", "--json"]);
        let listed: Vec<Value> = serde_json::from_str(&listed).expect("processes");
        listed.first().and_then(|process| process["node"].as_u64())
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // The lab takes what is left.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

#[test]
fn machines_with_ssh_and_nothing_else_become_a_cluster_on_which_programs_move() {
    let Some(machines) = Machines::new("up-ssh") else { return };
    let began = Instant::now();
    let nodes = machines.text(1, &["osmos", "cluster", "up", "two", "three", "--json"]);
    let nodes: Vec<Value> = serde_json::from_str(&nodes).expect("nodes");
    assert_eq!(nodes.iter().filter(|node| node["status"] == "alive").count(), 3);
    let asked = machines.start_away();
    eprintln!("a program runs on another node after {:.1} s", began.elapsed().as_secs_f64());
    asked.answers();
    for node in [2, 3] {
        until_true("all know all", || machines.alive(node) == [1, 2, 3]);
    }
    // Again: nothing is left to do.
    let again = machines.output(1, &["osmos", "cluster", "up"]);
    let told = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.success(), "{told}");
    assert!(told.contains("two: is node") && !told.contains("copied"), "{told}");
    let status = machines.text(1, &["osmos", "cluster", "status", "--json"]);
    let status: Vec<Value> = serde_json::from_str(&status).expect("statuses");
    assert_eq!(status.len(), 3);
    assert!(status.iter().all(|of| of["cluster"] == status[0]["cluster"]), "{status:?}");
}

#[test]
fn an_upgrade_moves_no_process_and_down_ends_all_daemons() {
    let Some(machines) = Machines::new("upgrade") else { return };
    machines.text(1, &["osmos", "cluster", "up", "two", "three"]);
    let asked = machines.start_away();
    let before = statuses(&machines);
    // Another file than the one that is there.
    let another = "cd /tmp/anna/.local/bin && cp osmos other && echo >> other && mv other osmos";
    for node in [2, 3] {
        machines.text(node, &["sh", "-c", another]);
    }
    machines.text(1, &["osmos", "cluster", "upgrade"]);
    let after = statuses(&machines);
    let pids = |of: &[Value]| of.iter().map(|one| one["daemon_pid"].clone()).collect::<Vec<_>>();
    assert!(pids(&before).iter().zip(pids(&after)).all(|(before, after)| *before != after));
    assert_eq!(machines.place(), Some(2), "no process moves for it");
    asked.answers();
    machines.text(1, &["osmos", "cluster", "down"]);
    for node in 1..=3 {
        let told = machines.complaint(node, &["osmos", "status"]);
        assert!(told.contains("no osmos daemon here"), "{told}");
    }
}

fn statuses(machines: &Machines) -> Vec<Value> {
    until("all nodes answer", || {
        let output = machines.output(1, &["osmos", "cluster", "status", "--json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("statuses"))
    })
}

#[test]
fn what_fails_on_one_machine_is_named_and_keeps_no_other_from_coming_up() {
    let Some(machines) = Machines::new("up-fails") else { return };
    let none = machines.complaint(1, &["osmos", "cluster", "up"]);
    assert!(none.contains("name the machines, as ssh knows them"), "{none}");
    let twice = machines.complaint(1, &["osmos", "cluster", "up", "two", "two"]);
    assert!(twice.contains("two is named twice"), "{twice}");
    let option = machines.complaint(1, &["osmos", "cluster", "up", "--", "-oProxyCommand=x"]);
    assert!(option.contains("is no host"), "{option}");
    // Three is in a cluster of its own already, and nobody answers for `nobody`.
    let osmos = "/tmp/anna/.local/bin/osmos";
    machines.text(1, &["ssh", "three", "mkdir -p .local/bin"]);
    machines.text(3, &["sh", "-c", &format!("cp $(command -v osmos) {osmos} && {osmos} up")]);
    machines.text(2, &["osmos", "up"]);
    let token = machines.text(3, &[osmos, "token"]);
    machines.text(2, &["osmos", "join", "10.77.0.3", token.trim()]);
    let told = machines.complaint(1, &["osmos", "cluster", "up", "three", "nobody"]);
    assert!(told.contains("three: it is in another cluster, of 2 nodes"), "{told}");
    assert!(told.contains("nobody: ssh cannot connect"), "{told}");
    assert!(told.contains("not up: nobody, three (2 of 2)"), "{told}");
    machines.text(2, &["osmos", "leave"]);
    machines.text(3, &[osmos, "leave"]);
    let told = machines.complaint(1, &["osmos", "cluster", "up", "two", "three", "nobody"]);
    assert!(told.contains("not up: nobody (1 of 3)"), "{told}");
    assert_eq!(machines.alive(1).len(), 3);
}
