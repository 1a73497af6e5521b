//! Four nodes for machines that allow no namespaces, as ordinary containers do: daemons on loopback
//! addresses, all on the same files and processors. They show that programs move and cannot tell;
//! what separate nodes alone can show is said in [`CANNOT_SHOW`].

use anyhow::{Context, Result, bail, ensure};
use client::Client;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use wire::control::SOCKET_NAME;
use wire::ids::NodeId;

pub const CANNOT_SHOW: &str = "nodes on loopback share files, processors and process numbers: \
                               that a program still sees only its home, and that work goes where \
                               there is more speed, is not shown here";
/// The first of consecutive addresses that nothing else is likely to have.
const ADDRESS: [u8; 4] = [127, 77, 0, 1];
const PORT: u16 = 7780;
/// Daemons answer within a moment; one that has not by then never will.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// What they have at the end to bring everything home.
const END_TIMEOUT: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(20);
/// Runs a daemon for as long as its own input is open: it ends with the demo, however that ends.
const GUARD: &str = "\"$@\" & daemon=$!; read -r _; kill $daemon; wait $daemon";

/// Ends when it is dropped.
pub struct Loopback {
    guards: Vec<Child>,
    directory: TempDir,
}

impl Loopback {
    pub fn up(count: u32) -> Result<Loopback> {
        let directory = tempfile::tempdir().context("cannot make a directory for the nodes")?;
        let mut loopback = Loopback { guards: Vec::new(), directory };
        let osmos = std::env::current_exe().context("cannot find this program")?;
        let [a, b, c, d] = ADDRESS;
        fs::write(loopback.map(), format!("1 {a}.{b}.{c}.{d} {count}\n"))?;
        let mut key = [0; 32];
        getrandom::fill(&mut key).context("the kernel gives no random bytes")?;
        let text: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut options = File::options();
        let mut file = options.write(true).create_new(true).mode(0o600).open(loopback.key())?;
        file.write_all(text.as_bytes())?;
        for node in (1..=count).map(NodeId) {
            let guard = loopback.start(&osmos, node)?;
            loopback.guards.push(guard);
        }
        for node in (1..=count).map(NodeId) {
            loopback.await_answer(node)?;
        }
        Ok(loopback)
    }

    fn start(&self, osmos: &Path, node: NodeId) -> Result<Child> {
        let own = self.directory_of(node);
        let programs = own.join("bin");
        fs::create_dir_all(&programs)?;
        fs::create_dir(own.join("files"))?;
        // By its own name, so that scripts are the same as in a lab.
        let script = format!(
            "#!/bin/sh\nexec '{}' --socket '{}' \"$@\"\n",
            osmos.display(),
            self.socket(node).display()
        );
        let program = programs.join("osmos");
        fs::write(&program, script)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        let log = File::create(self.log(node))?;
        let [a, b, c, first] = ADDRESS;
        let last = u32::from(first) + node.0 - 1;
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "sh"]).arg(osmos).arg("daemon");
        command.args(["--node-id", &node.to_string(), "--speed", "1"]);
        command.args(["--listen", &format!("{a}.{b}.{c}.{last}:{PORT}")]);
        command.arg("--map").arg(self.map()).arg("--cluster-key").arg(self.key());
        command.arg("--runtime-dir").arg(own.join("run")).arg("--state-dir").arg(own.join("state"));
        if nix::unistd::geteuid().is_root() {
            // All nodes are this user's.
            command.args(["--lend-root", "on", "--guest-users", "*=same"]);
        }
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        command.spawn().with_context(|| format!("cannot start the daemon of node {node}"))
    }

    fn await_answer(&self, node: NodeId) -> Result<()> {
        let started = Instant::now();
        loop {
            let error = match self.client(node) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            let log = fs::read_to_string(self.log(node)).unwrap_or_default();
            let last = log.lines().rfind(|line| line.contains("cannot run"));
            if let Some((_, why)) = last.and_then(|line| line.split_once("cannot run: ")) {
                bail!("{why}");
            }
            ensure!(started.elapsed() < START_TIMEOUT, "node {node} does not start: {error:#}");
            std::thread::sleep(STEP);
        }
    }

    pub fn client(&self, node: NodeId) -> Result<Client> {
        Ok(Client::connect(&self.socket(node))?)
    }

    /// A command that reaches its node's daemon as `osmos`.
    pub fn command(&self, node: NodeId, program: &str) -> Command {
        let mut path = self.directory_of(node).join("bin").into_os_string();
        if let Some(rest) = std::env::var_os("PATH") {
            path.push(":");
            path.push(rest);
        }
        let mut command = Command::new(program);
        command.env("PATH", path);
        command
    }

    /// What stands for a node's own files.
    pub fn files_of(&self, node: NodeId) -> PathBuf {
        self.directory_of(node).join("files")
    }

    fn directory_of(&self, node: NodeId) -> PathBuf {
        self.directory.path().join(format!("node{node}"))
    }

    fn socket(&self, node: NodeId) -> PathBuf {
        self.directory_of(node).join("run").join(SOCKET_NAME)
    }

    fn log(&self, node: NodeId) -> PathBuf {
        self.directory_of(node).join("daemon.log")
    }

    fn map(&self) -> PathBuf {
        self.directory.path().join("mosix.map")
    }

    fn key(&self) -> PathBuf {
        self.directory.path().join("cluster.key")
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        for guard in &mut self.guards {
            drop(guard.stdin.take());
        }
        let deadline = Instant::now() + END_TIMEOUT;
        for guard in &mut self.guards {
            while matches!(guard.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(STEP);
            }
            // Where it has ended in time this finds nothing.
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}
