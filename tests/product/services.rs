//! A cluster of services: machines that systemd runs, on which an ordinary user may use sudo.
//!
//! Each node of the lab has a systemd of its own as the first process of namespaces of its own,
//! with nothing of this machine's but what the test asks of it.

use crate::cluster::{ACCOUNTS, SSHD};
use crate::stage::{Stage, text, until_true};
use serde_json::Value;
use std::io::Read;
use std::process::{Child, Output};

/// Of whoever calls on node 1: names that no resolver knows.
const SSH: &str = "\
Host one
  HostName 10.77.0.1
Host two
  HostName 10.77.0.2
Host *
  User anna
  IdentityFile /tmp/anna/.ssh/id
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
";
const SUDOERS: &str = "anna ALL=(ALL) NOPASSWD: ALL\n";
/// Who is let in is said by the file above alone.
const PAM: &str = "\
auth required pam_permit.so
account required pam_permit.so
session required pam_permit.so
";
const SSHD_SERVICE: &str = "\
[Unit]
DefaultDependencies=no
[Service]
ExecStart=/usr/sbin/sshd -D -e -f /tmp/sshd-config
KillMode=process
";
/// Of the service that is to be installed: nothing of the machine's own starts with it.
const ALONE: &str = "[Unit]\nDefaultDependencies=no\n";

/// Files, an account, keys; root's.
const PREPARE: &str = "\
set -e
mount --bind /tmp/passwd /etc/passwd
mkdir -p /run/sshd /tmp/anna/.ssh /tmp/local /etc/sudoers.d
mount --bind /tmp/local /usr/local/bin
cp /tmp/sudoers /etc/sudoers
chmod 440 /etc/sudoers
cp /tmp/pam /etc/pam.d/sudo
rm -rf /etc/systemd/system/osmos.service
echo \"$1\" > /tmp/anna/.ssh/authorized_keys
cp /tmp/ssh-config /tmp/anna/.ssh/config
cp /tmp/key /tmp/anna/.ssh/id
chmod 600 /tmp/anna/.ssh/id
ssh-keygen -q -t ed25519 -N '' -f /tmp/host-key
chown -R 12345:12345 /tmp/anna
chmod 755 /run/sshd /tmp/anna
";
/// Becomes systemd, in a control group that it takes for the root of all.
const BOOT: &str = "\
set -e
mkdir -p /tmp/groups
mount -t cgroup2 cgroup2 /tmp/groups
mkdir -p \"/tmp/groups/$1\"
echo $$ > \"/tmp/groups/$1/cgroup.procs\"
exec unshare --mount --pid --fork --kill-child --cgroup --ipc sh -ec '
    mount -t proc proc /proc
    umount -R /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    # This machine has units for itself made there, which takes longer than all of the test.
    mkdir -p /run/none /run/systemd/system/osmos.service.d
    mount --bind /run/none /usr/lib/systemd/system-generators
    cp /tmp/sshd-service /run/systemd/system/test-sshd.service
    cp /tmp/alone /run/systemd/system/osmos.service.d/alone.conf
    ln -s /dev/null /run/systemd/system/network-online.target
    exec env -i container=other PATH=\"$PATH\" /lib/systemd/systemd --system \\
        --unit=test-sshd.service --log-level=warning --log-target=console --show-status=no
'
";

/// Two machines that systemd runs.
struct Machines {
    name: &'static str,
    stage: Stage,
    systems: Vec<Child>,
}

impl Machines {
    /// None where that cannot be had, which is said.
    fn new(name: &'static str) -> Option<Machines> {
        let programs = ["ssh", "sshd", "ssh-keygen", "sudo", "unshare", "systemd-analyze"];
        if !needs::can_run(&programs) {
            return None;
        }
        if !nix::unistd::geteuid().is_root() {
            needs::skip("systemd as the first process of a node needs root");
            return None;
        }
        let stage = Stage::of_nodes_without_daemons(name, 2);
        stage.text(1, &["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/tmp/key"]);
        let public = stage.text(1, &["cat", "/tmp/key.pub"]);
        let private = stage.text(1, &["cat", "/tmp/key"]);
        let mut machines = Machines { name, stage, systems: Vec::new() };
        for node in [1, 2] {
            machines.boot(node, &private, public.trim());
        }
        Some(machines)
    }

    fn boot(&mut self, node: u32, private: &str, public: &str) {
        let stage = &self.stage;
        // It does not go into the background.
        let sshd = format!("{SSHD}PidFile none\n");
        let files = [
            ("passwd", ACCOUNTS),
            ("sshd-config", &*sshd),
            ("ssh-config", SSH),
            ("sudoers", SUDOERS),
            ("pam", PAM),
            ("sshd-service", SSHD_SERVICE),
            ("alone", ALONE),
            ("key", private),
        ];
        for (name, text) in files {
            stage.put(node, &format!("/tmp/{name}"), text);
        }
        stage.text(node, &["sh", "-c", PREPARE, "sh", public]);
        let system = stage.begin(node, &["sh", "-c", BOOT, "sh", &group(self.name, node)]);
        self.systems.push(system);
        let look = ["sh", "-c", "cat /proc/net/tcp"];
        // Port 22 is there.
        until_true("the server listens", || {
            stage.text(node, &look).contains(":0016 00000000:0000 0A")
        });
    }

    /// A command line of Anna's, who has logged in to this machine.
    fn output(&self, host: &str, line: &str) -> Output {
        self.stage.output(1, &["ssh", "-F", "/tmp/ssh-config", host, line])
    }

    fn text(&self, host: &str, line: &str) -> String {
        let output = self.output(host, line);
        assert!(output.status.success(), "{host}: {line}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn complaint(&self, host: &str, line: &str) -> String {
        let output = self.output(host, line);
        assert!(!output.status.success(), "{host}: {line}");
        text(&output.stderr)
    }

    fn main_pid(&self, host: &str) -> String {
        let line = "sudo -n sh -c 'systemctl is-active osmos && \
                    systemctl show --property MainPID osmos'";
        self.text(host, line)
    }
}

/// Of one system of one test: several run at the same time.
fn group(name: &str, node: u32) -> String {
    format!("osmos-{name}-{}-{node}", std::process::id())
}

impl Drop for Machines {
    fn drop(&mut self) {
        for (system, node) in self.systems.iter_mut().zip([1, 2]) {
            let kill = "echo 1 > \"/tmp/groups/$1/cgroup.kill\"";
            self.stage.output(node, &["sh", "-c", kill, "sh", &group(self.name, node)]);
            let mut told = String::new();
            let _ = system.stderr.take().map(|mut stderr| stderr.read_to_string(&mut told));
            let _ = system.wait();
            if std::thread::panicking() {
                eprintln!("systemd of node {node}: {told}");
            }
            let clear = "find \"/tmp/groups/$1\" -depth -type d -exec rmdir {} +";
            let cleared = || {
                let words = ["sh", "-c", clear, "sh", &group(self.name, node)];
                self.stage.output(node, &words).status.success()
            };
            if std::thread::panicking() {
                // A second panic would hide the first.
                cleared();
                continue;
            }
            // What was killed leaves its group when the kernel gets to it.
            until_true("the system's control groups are gone", cleared);
        }
    }
}

#[test]
fn by_sudo_nodes_are_services_of_the_system_until_they_are_taken_down() {
    let Some(machines) = Machines::new("services") else { return };
    let osmos = "/run/osmos-lab/bin/osmos";
    let nodes = machines.text("one", &format!("{osmos} cluster up --sudo two --json"));
    let nodes: Vec<Value> = serde_json::from_str(&nodes).expect("nodes");
    assert_eq!(nodes.iter().filter(|node| node["status"] == "alive").count(), 2);
    for host in ["one", "two"] {
        assert!(machines.main_pid(host).starts_with("active\n"));
        let unit =
            machines.text(host, "sudo -n sh -c 'systemctl cat osmos; systemctl is-enabled osmos'");
        assert!(unit.contains("ExecStart=/usr/local/bin/osmos up --foreground"), "{unit}");
        assert!(unit.ends_with("enabled\n"), "{unit}");
    }
    // Root's daemon serves her, and she may not change the cluster but by sudo.
    let moved = machines.text("one", &format!("{osmos} run --node 2 -- sh -c 'echo $((6 * 7))'"));
    assert_eq!(moved, "42\n");
    let refused = machines.complaint("one", &format!("{osmos} token"));
    assert!(refused.contains("may change the cluster"), "{refused}");
    // What was brought up is known: neither hosts nor `--sudo` have to be said again.
    let before = ["one", "two"].map(|host| machines.main_pid(host));
    let another = "cd /usr/local/bin && cp osmos other && echo >> other && mv other osmos";
    machines.text("two", &format!("sudo -n sh -c '{another}'"));
    let upgraded = machines.output("one", &format!("{osmos} cluster upgrade"));
    let told = text(&upgraded.stderr);
    assert!(upgraded.status.success(), "{told}");
    assert_eq!(["one", "two"].map(|host| machines.main_pid(host)), before, "a service stays");
    let status = machines.text("one", &format!("{osmos} cluster status --json"));
    let status: Vec<Value> = serde_json::from_str(&status).expect("statuses");
    assert!(status.len() == 2 && status.iter().all(|of| of["is_service"] == true), "{status:?}");
    machines.text("one", &format!("{osmos} cluster down"));
    for host in ["one", "two"] {
        let there = machines.output(host, "sudo -n systemctl is-active osmos");
        assert_eq!(text(&there.stdout), "inactive\n");
        machines.text(host, "! test -e /etc/systemd/system/osmos.service");
    }
}

#[test]
fn without_sudo_or_systemd_the_way_out_is_said() {
    let Some(machines) = Machines::new("no-services") else { return };
    let up = "/run/osmos-lab/bin/osmos cluster up --sudo two";
    machines.text("two", "sudo -n mv /run/systemd/system /run/systemd/none");
    let told = machines.complaint("one", up);
    assert!(told.contains("two: systemd does not run it"), "{told}");
    machines.text("two", "sudo -n mv /run/systemd/none /run/systemd/system");
    let asks = "sudo -n sh -c 'echo \"anna ALL=(ALL) ALL\" > /etc/sudoers'";
    machines.text("two", asks);
    let told = machines.complaint("one", up);
    assert!(told.contains("two: cannot become root there"), "{told}");
    assert!(told.contains("NOPASSWD") && told.contains("root@HOST"), "{told}");
    let other = machines.complaint("one", "sudo -n sh -c 'rm /etc/sudoers'; sudo -n true");
    assert!(!other.is_empty());
    let told = machines.complaint("one", up);
    assert!(told.contains("this machine: cannot become root there"), "{told}");
}
