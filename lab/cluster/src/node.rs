//! One node of a lab, for programs: commands in it, its daemon, its files, what it uses.

use crate::cgroup::{self, Place};
use crate::daemon;
use crate::exec::Start;
use crate::process::{self, Keeper};
use crate::record::{self, Record};
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use wire::ids::NodeId;

/// One node of a lab.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    record: &'a Record,
    id: NodeId,
}

impl<'a> Node<'a> {
    pub(crate) fn of(record: &'a Record, id: NodeId) -> Node<'a> {
        Node { record, id }
    }

    pub fn id(&self) -> NodeId {
        self.id
    }

    pub fn host_name(&self) -> String {
        self.record.spec.host_name(self.id)
    }

    pub fn address(&self) -> Ipv4Addr {
        record::address(self.id)
    }

    /// A command that will run in this node, limited to its speed: like [`Command::new`], with
    /// arguments, environment, directory and streams to be set as usual.
    ///
    /// The process that it starts stands outside for the one inside: it ends as that ends (128 + N
    /// for death by signal N) and passes signals on. SIGKILL reaches only the outer one.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.command_in(Place::Work, Start::Now, program.as_ref())
    }

    /// The same, but not limited to the node's speed: for what watches over work and is none.
    pub fn command_beside(&self, program: impl AsRef<OsStr>) -> Command {
        self.command_in(Place::System, Start::Now, program.as_ref())
    }

    pub(crate) fn command_in(&self, place: Place, start: Start, program: &OsStr) -> Command {
        let [front, words @ ..] = &self.prefix_in(place, start);
        let mut command = Command::new(front);
        command.args(words).arg(program);
        command
    }

    /// The words before a command that [`Node::command`] runs.
    pub fn prefix(&self) -> [OsString; 7] {
        self.prefix_in(Place::Work, Start::Now)
    }

    fn prefix_in(&self, place: Place, start: Start) -> [OsString; 7] {
        let spec = &self.record.spec;
        let node = self.id.to_string();
        [
            spec.osmos.as_os_str(),
            OsStr::new("lab-front"),
            OsStr::new(spec.name.as_str()),
            OsStr::new(&node),
            OsStr::new(place.dir_name()),
            OsStr::new(start.word()),
            OsStr::new("--"),
        ]
        .map(OsStr::to_owned)
    }

    /// Where the node's daemon writes its log, outside the node.
    pub fn log(&self) -> Result<PathBuf> {
        let lab_dir = record::labs_dir()?.join(self.record.spec.name.as_str());
        Ok(lab_dir.join(format!("node{}.log", self.id)))
    }

    /// Process 1 of the node.
    pub fn keeper(&self) -> Result<&Keeper> {
        self.record.keeper(self.id)
    }

    /// A path of the node as this process can open it.
    pub fn path(&self, inside: &str) -> Result<PathBuf> {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper()?.pid));
        Ok(root.join(inside.trim_start_matches('/')))
    }

    /// A connection to the node's daemon, from outside the node.
    pub fn client(&self) -> Result<client::Client> {
        daemon::connect(self)
    }

    /// The nodes that the node's daemon knows, as it sees them.
    pub fn known_nodes(&self) -> Result<Vec<wire::control::Node>> {
        daemon::known_nodes(self)
    }

    /// The pid here of the node's daemon, if one was started and still runs.
    pub fn daemon_pid(&self) -> Option<i32> {
        daemon::pid(self)
    }

    /// Starts the node's daemon (again) and waits until it answers.
    pub fn start_daemon(&self) -> Result<()> {
        daemon::start(self)?;
        daemon::wait_until_it_answers(self)
    }

    /// Whether the node's daemon gets any processor; those whom it serves do in any case.
    pub fn starve_daemon(&self, starves: bool) -> Result<()> {
        let pid = self.daemon_pid().and_then(Pid::from_raw);
        let pid = pid.with_context(|| format!("node {} has no daemon", self.id))?;
        let signal = if starves { Signal::STOP } else { Signal::CONT };
        kill_process(pid, signal).with_context(|| format!("cannot signal process {pid:?}"))
    }

    /// Ends everything that runs in the node at once, as a machine does that loses its power.
    pub fn crash(&self) -> Result<()> {
        self.keeper()?.kill_all(&[])
    }

    /// Processes of the node, its keeper among them; guests' inner namespaces not counted.
    pub fn process_count(&self) -> usize {
        self.keeper().map_or(0, |keeper| process::processes_in(&[keeper]).len())
    }

    /// What the kernel counted for this node.
    pub fn usage(&self) -> cgroup::Usage {
        cgroup::usage(&self.record.hierarchies, self.record.spec.name.as_str(), self.id)
    }

    /// Cores that programs of this node may use together; None if it is not limited.
    pub fn cpu_share(&self) -> Option<f64> {
        let has_cpu = self.record.hierarchies.iter().any(|own| own.controls("cpu"));
        let is_limited = self.record.spec.is_cpu_limited && has_cpu;
        is_limited.then(|| self.record.cpu_scale * self.record.spec.speed(self.id))
    }

    pub(crate) fn record(&self) -> &Record {
        self.record
    }
}
