//! What `ps`, `nodes` and `why` show.

use super::Daemon;
use super::requests::failure;
use crate::guest::Guest;
use crate::process::Process;
use brain::NodeView;
use std::collections::BTreeMap;
use wire::control::{self, CpuFit, Failure, Reply};
use wire::ids::{HomePid, NodeId};
use wire::peer::Member;

const US_PER_S: f64 = 1e6;

impl Daemon {
    /// The processes born here, wherever they run, and the guests that run here.
    pub(super) fn list_processes(&self) -> Vec<control::Process> {
        let own = self.processes.values().map(|process| self.show_process(process));
        own.chain(self.hosting.here().map(|guest| self.show_guest(guest))).collect()
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
        }
    }

    pub(super) fn why(&self, pid: HomePid) -> Result<Reply, Failure> {
        if let Some(process) = self.processes.get(&pid) {
            return Ok(Reply::Why {
                process: self.show_process(process),
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
            name: self.name_of(member.node),
        }
    }
}

fn show_status(view: &NodeView) -> String {
    view.status.to_string()
}
