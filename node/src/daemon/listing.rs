//! What `ps`, `nodes` and `why` show.

use super::Daemon;
use super::requests::failure;
use crate::accounts::Names;
use crate::control::Answer;
use crate::guest::Guest;
use crate::process::Process;
use crate::procfs;
use brain::NodeView;
use std::collections::BTreeMap;
use tokio::sync::oneshot;
use wire::control::{self, COMMAND_LINE_CHARS_MAX, CpuFit, Failure, Reply};
use wire::ids::{HomePid, NodeId};
use wire::peer::Member;

const US_PER_S: f64 = 1e6;

impl Daemon {
    /// The processes born here, wherever they run, and the guests that run here. Looking at all of
    /// them takes a while where there are thousands, so that is done elsewhere.
    pub(super) fn answer_processes(&self, answer: oneshot::Sender<Answer>) {
        let own = self.processes.values().map(|process| self.shown(process));
        let guests = self.hosting.here().map(|guest| Shown {
            process: self.show_guest(guest),
            number: guest.local_pid(),
            is_own: false,
            left_as: None,
        });
        let shown: Vec<Shown> = own.chain(guests).collect();
        tokio::task::spawn_blocking(move || {
            let names = Names::read();
            let processes = shown.into_iter().map(|shown| shown.look(&names)).collect();
            // A caller that has gone away needs no answer.
            let _ = answer.send(Answer::One(Reply::Processes { processes }));
        });
    }

    fn shown(&self, process: &Process) -> Shown {
        Shown {
            process: self.show_process(process),
            number: Some(process.pid.0),
            is_own: true,
            left_as: (process.at != self.me()).then(|| process.left_as.clone()).flatten(),
        }
    }

    fn show_process(&self, process: &Process) -> control::Process {
        control::Process {
            pid: process.pid.0,
            home: self.me(),
            node: process.at,
            state: process.state().to_owned(),
            command: process.command.clone(),
            cpu_s: process.consumption.cpu_us() as f64 / US_PER_S,
            rss_bytes: process.consumption.rss_bytes,
            migrations: process.migrations,
            last_move: process.last_move_s,
            reason: process.reason.clone(),
            uid: Some(process.owner.uid),
            user: None,
            command_line: None,
            parent: None,
            threads: None,
            job: process.job.map(|rank| rank.job),
        }
    }

    fn show_guest(&self, guest: &Guest) -> control::Process {
        control::Process {
            pid: guest.process.pid.0,
            home: guest.process.home,
            node: self.me(),
            state: if guest.asked.is_pinned { "pinned" } else { "running" }.to_owned(),
            command: guest.command.clone(),
            cpu_s: (guest.asked.cpu_us + guest.cpu_us) as f64 / US_PER_S,
            rss_bytes: guest.rss_bytes,
            // Home knows; a guest is shown as this node sees it.
            migrations: 1,
            last_move: None,
            reason: format!("a guest; its home is node {}", guest.process.home),
            uid: Some(guest.asked.owner.uid),
            user: None,
            command_line: None,
            parent: None,
            threads: None,
            job: None,
        }
    }

    pub(super) fn why(&self, pid: HomePid) -> Result<Reply, Failure> {
        if let Some(process) = self.processes.get(&pid) {
            return Ok(Reply::Why {
                process: self.shown(process).look(&Names::read()),
                decisions: process.decisions.iter().cloned().collect(),
                now: self.weigh_up(self.global(pid)),
                moves: process.progress.moves(),
            });
        }
        let mut guests = self.hosting.guests();
        let is_asked =
            |guest: &&Guest| guest.process.pid == pid || guest.local_pid() == Some(pid.0);
        if let Some(guest) = guests.find(is_asked) {
            return Ok(Reply::Why {
                process: self.show_guest(guest),
                decisions: Vec::new(),
                now: self.weigh_up(guest.process),
                moves: Vec::new(),
            });
        }
        let text = format!("process {pid} is not under osmos: `osmos adopt {pid}` puts it there");
        Err(failure("not-managed", text))
    }

    pub(super) fn list_nodes(&self) -> Vec<control::Node> {
        let views = self.thought.brain().members(self.brain_time());
        let views: BTreeMap<NodeId, NodeView> =
            views.into_iter().map(|view| (view.node, view)).collect();
        let me = self.me();
        let show = |member: &Member| match member.node == me {
            true => self.show_this_node(member, views.get(&me)),
            false => self.show_node(member, views.get(&member.node)),
        };
        self.members.all().map(show).collect()
    }

    fn show_this_node(&self, member: &Member, view: Option<&NodeView>) -> control::Node {
        let (capacity, memory) = (self.load.capacity(), self.load.memory());
        control::Node {
            id: member.node,
            address: member.address.to_string(),
            status: "alive".to_owned(),
            cores: f64::from(capacity.cores),
            speed: capacity.speed,
            load: self.load.threads() / f64::from(capacity.cores.max(1)),
            mem_total_bytes: memory.total_bytes,
            mem_free_bytes: memory.free_bytes,
            info_age_s: 0.0,
            takes_guests: view.is_none_or(|view| !view.is_closed),
            cpu: CpuFit::Fits,
            cpu_reason: None,
            move_limits: self.move_limits(member.node),
            bytes_per_s: self.others.pace(self.me(), Some(member.node)).measured_bytes_per_s(),
            name: self.name_of(member.node),
        }
    }

    /// A node that the brain does not count: not heard of yet, or left.
    fn status_unheard(&self, node: NodeId) -> String {
        if self.links.contains(node) { "suspect" } else { "gone" }.to_owned()
    }

    /// A node of which nothing has been heard is as old as this daemon.
    fn show_node(&self, member: &Member, view: Option<&NodeView>) -> control::Node {
        let uptime_s = self.started.elapsed().as_secs_f64();
        let age = view.and_then(|view| view.age);
        let (cpu, cpu_reason) = self.cpu_fit(member.node);
        control::Node {
            id: member.node,
            address: member.address.to_string(),
            status: view.map_or_else(|| self.status_unheard(member.node), show_status),
            cores: view.map_or(0.0, |view| f64::from(view.cores)),
            speed: view.map_or(0.0, |view| view.speed),
            load: view.map_or(0.0, NodeView::load),
            mem_total_bytes: view.map_or(0, |view| view.memory_total_bytes),
            mem_free_bytes: view.map_or(0, |view| view.memory_free_bytes),
            info_age_s: age.map_or(uptime_s, |age| age.as_secs_f64()),
            takes_guests: view.is_none_or(|view| !view.is_closed),
            cpu,
            cpu_reason,
            move_limits: self.move_limits(member.node),
            bytes_per_s: self.others.pace(self.me(), Some(member.node)).measured_bytes_per_s(),
            name: self.name_of(member.node),
        }
    }
}

/// A process as the daemon knows it, and where `/proc` tells more.
struct Shown {
    process: control::Process,
    /// What of it is here: itself, its deputy, or the body of a guest.
    number: Option<i32>,
    is_own: bool,
    /// Its command line when it left home, if it is away.
    left_as: Option<String>,
}

impl Shown {
    /// With what can be seen of it now.
    fn look(mut self, names: &Names) -> control::Process {
        let stat = self.number.and_then(procfs::read_stat);
        self.process.threads = stat.as_ref().map(|stat| stat.threads);
        if self.is_own {
            self.process.parent = stat.map(|stat| stat.parent);
            self.process.user = self.process.uid.and_then(|uid| names.of(uid));
            let now = || self.number.and_then(command_line_of);
            self.process.command_line = self.left_as.take().or_else(now);
        }
        self.process
    }
}

/// As ps(1) shows it; None for a process that has none, or has ended.
pub(super) fn command_line_of(pid: i32) -> Option<String> {
    let line = procfs::read_command_line(pid)?;
    let words = line.strip_suffix(&[0]).unwrap_or(&line).split(|byte| *byte == 0);
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    let text: String = words.join(" ").chars().take(COMMAND_LINE_CHARS_MAX).collect();
    (!text.trim().is_empty()).then_some(text)
}

fn show_status(view: &NodeView) -> String {
    view.status.to_string()
}
