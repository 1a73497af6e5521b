//! One virtual machine: QEMU emulates it, with a network card on the lab's bridge and another one
//! on a cable to the harness, which stays when the first is cut.
//!
//! QEMU is a process of the lab's PID namespace and a child of its process 1, so it ends with the
//! lab, whatever becomes of the harness.

use crate::machines::image::Identity;
use crate::machines::kernels::Kernel;
use crate::machines::remote::Remote;
use anyhow::{Context, Result, bail, ensure};
use lab::Switch;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::ids::NodeId;

pub const EMULATOR: &str = "qemu-system-x86_64";
/// How long a machine may take to boot; ten times what it takes on two busy processors.
const BOOT_PATIENCE: Duration = Duration::from_secs(300);
/// An agent that is not there yet cannot tell when it will be, so it is asked this often.
const BOOT_STEP: Duration = Duration::from_millis(500);
/// How long QEMU may take to answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(20);

/// What a machine is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Its number in the cluster.
    pub node: NodeId,
    /// Version of its kernel, such as `6.1`.
    pub kernel: String,
    /// As QEMU calls it: `qemu-system-x86_64 -cpu help`.
    pub cpu: String,
    pub processors: u32,
    pub memory_mib: u32,
    /// By so much its wall clock is ahead of this machine's.
    pub clock_ahead_s: i64,
    /// Its ordinary user.
    pub user: String,
    pub uid: u32,
}

impl Plan {
    pub fn name(&self) -> String {
        format!("machine{}", self.node)
    }

    /// The harness's end of the cable, and the machine's.
    fn cable(&self) -> (Ipv4Addr, Ipv4Addr) {
        let [.., number] = self.node.0.to_be_bytes();
        (Ipv4Addr::new(10, 78, number, 1), Ipv4Addr::new(10, 78, number, 2))
    }

    fn identity(&self) -> Identity {
        Identity {
            name: self.name(),
            address: lab::address(self.node),
            control: self.cable().1,
            user: self.user.clone(),
            uid: self.uid,
        }
    }

    /// Devices in the switch's network: the card on the bridge, and the one on the cable.
    fn links(&self) -> [String; 2] {
        [format!("machine{}", self.node), format!("control{}", self.node)]
    }

    fn arguments(&self, kernel: &Kernel, image: &Path, directory: &Path) -> Vec<String> {
        let [.., number] = self.node.0.to_be_bytes();
        let line = format!("console=ttyS0 quiet panic=-1 {}", self.identity().command_line());
        let path = |suffix: &str| directory.join(self.name() + suffix).display().to_string();
        let mut words: Vec<String> = [
            "-machine",
            "pc,accel=tcg",
            "-display",
            "none",
            "-monitor",
            "none",
            "-parallel",
            "none",
            "-no-reboot",
            "-nodefaults",
            "-daemonize",
        ]
        .map(String::from)
        .to_vec();
        let mut option = |name: &str, value: String| words.extend([name.to_string(), value]);
        option("-name", self.name());
        option("-cpu", self.cpu.clone());
        option("-smp", self.processors.to_string());
        option("-m", self.memory_mib.to_string());
        option("-kernel", kernel.image.display().to_string());
        option("-initrd", image.display().to_string());
        option("-append", line);
        option("-serial", format!("file:{}", path(".log")));
        option("-qmp", format!("unix:{},server=on,wait=off", path(".qmp")));
        for (index, link) in self.links().iter().enumerate() {
            option("-netdev", format!("tap,id=net{index},ifname={link},script=no,downscript=no"));
            let mac = format!("52:54:00:00:{index:02x}:{number:02x}");
            option("-device", format!("virtio-net-pci,netdev=net{index},romfile=,mac={mac}"));
        }
        words
    }
}

/// A machine that runs.
#[derive(Debug)]
pub struct Machine {
    pub plan: Plan,
    switch: Switch,
    directory: PathBuf,
}

impl Machine {
    /// Starts a machine; it has not booted yet when this returns. Its files are in `directory`.
    pub fn start(
        plan: &Plan,
        kernel: &Kernel,
        image: &Path,
        switch: &Switch,
        directory: &Path,
    ) -> Result<Machine> {
        let mut command = Command::new(EMULATOR);
        command.args(plan.arguments(kernel, image, directory));
        let output = switch.output(&mut command).with_context(|| {
            format!("a machine needs {EMULATOR}, of the package qemu-system-x86")
        })?;
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} does not start: {}", plan.name(), words.trim());
        let [bridged, cable] = plan.links();
        switch.plug(&bridged)?;
        switch.attend(&cable, plan.cable().0, 30)?;
        Ok(Machine { plan: plan.clone(), switch: switch.clone(), directory: directory.to_owned() })
    }

    /// One that was started before.
    pub fn open(plan: &Plan, switch: &Switch, directory: &Path) -> Machine {
        Machine { plan: plan.clone(), switch: switch.clone(), directory: directory.to_owned() }
    }

    /// Waits until it runs commands, and sets its clock.
    pub fn await_boot(&self) -> Result<()> {
        let deadline = Instant::now() + BOOT_PATIENCE;
        loop {
            match self.remote().output(0, &["true"], &[]) {
                Ok(_) => break,
                Err(_) if Instant::now() < deadline && self.is_running() => {
                    std::thread::sleep(BOOT_STEP);
                }
                Err(error) => {
                    let log = std::fs::read_to_string(self.log()).unwrap_or_default();
                    let lines: Vec<&str> = log.lines().collect();
                    let last = lines[lines.len().saturating_sub(8)..].join("\n");
                    return Err(error)
                        .with_context(|| format!("{} has not booted: {last}", self.plan.name()));
                }
            }
        }
        self.set_clock()
    }

    fn set_clock(&self) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("it is before 1970")?;
        let wanted = now.as_secs_f64() + self.plan.clock_ahead_s as f64;
        self.remote().must(0, &["date", "-u", "-s", &format!("@{wanted:.3}")])?;
        Ok(())
    }

    /// For commands in it.
    pub fn remote(&self) -> Remote {
        Remote::new(self.switch.clone(), self.plan.cable().1)
    }

    /// What its kernel and its process 1 say.
    pub fn log(&self) -> PathBuf {
        self.directory.join(self.plan.name() + ".log")
    }

    pub fn is_running(&self) -> bool {
        self.ask("query-status").is_ok()
    }

    /// Lets no time pass in it until it is resumed.
    pub fn suspend(&self) -> Result<()> {
        self.ask("stop").map(drop)
    }

    pub fn resume(&self) -> Result<()> {
        self.ask("cont").map(drop)
    }

    /// As if its power were cut.
    pub fn crash(&self) -> Result<()> {
        self.ask("quit").map(drop)
    }

    /// Draws its cable to the cluster, or puts it back.
    pub fn set_link(&self, is_up: bool) -> Result<()> {
        self.switch.set_link(&self.plan.links()[0], is_up)
    }

    /// One command of QEMU's, by its machine protocol.
    fn ask(&self, order: &str) -> Result<serde_json::Value> {
        let path = self.directory.join(self.plan.name() + ".qmp");
        let stream = UnixStream::connect(&path)
            .with_context(|| format!("{} does not run", self.plan.name()))?;
        stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        lines.next().context("QEMU has ended")??;
        for order in ["qmp_capabilities", order] {
            writeln!(&stream, "{}", serde_json::json!({ "execute": order }))?;
            loop {
                let line = lines.next().context("QEMU has ended")?.context("QEMU is silent")?;
                let answer: serde_json::Value = serde_json::from_str(&line)?;
                if let Some(error) = answer.get("error") {
                    bail!("QEMU does not {order}: {error}");
                }
                // Between answers it tells of events.
                if answer.get("return").is_some() {
                    if order != "qmp_capabilities" {
                        return Ok(answer);
                    }
                    break;
                }
            }
        }
        bail!("QEMU has not answered")
    }
}
