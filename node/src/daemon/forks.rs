//! Processes that are made by one that is away ([decision 0031](../../../docs/decisions/)): their
//! home gives them a supervisor of their own, and the node where they are a guest's place.

use super::{Daemon, reporting};
use crate::guest::{Arrival, Guest};
use crate::policy::GUESTS_MAX;
use crate::process::{Activity, Cause, Launch, Move, Order};
use crate::procfs;
use crate::supervisor::{Identity, SupervisorId, serve_part};
use std::os::fd::OwnedFd;
use std::time::Instant;
use wire::control::Happening;
use wire::ids::{GlobalPid, HomePid, NodeId, Ticket};
use wire::peer::BerthRequest;
use wire::supervisor::{Birth, Reason, ToBody, ToDeputy};

impl Daemon {
    /// A process that is away has made another, which is left alone until it has a body.
    pub(super) fn process_forked(&mut self, maker: HomePid, child: HomePid) {
        // One that has ended needs nobody.
        let Some(stat) = procfs::read_stat(child.0) else { return };
        self.inherit(&stat, maker);
        let owner = self.processes.get(&maker).map(|maker| maker.owner);
        if let Some(process) = self.processes.get_mut(&child) {
            process.launch = Launch::Unborn { maker };
            // Who may serve the maker may serve it. A user that the maker has become since may not
            // be able to: the kernel lets nobody of that user look into such a process.
            process.owner = owner.unwrap_or(process.owner);
            self.keep_process(child);
        }
    }

    /// It has one, and gets a supervisor.
    pub(super) fn process_born(&mut self, maker: HomePid, child: HomePid, birth: Box<Birth>) {
        let stat = procfs::read_stat(child.0);
        let Some(process) = self.processes.get_mut(&child) else {
            if let Some(stat) = stat.filter(|stat| !stat.has_ended()) {
                tracing::error!("process {child}, made away by {maker}, cannot be managed: ended");
                let text = "it was made away, and cannot be managed";
                self.tell_lost(child, birth.berth.node, text);
                end(Identity { pid: child.0, started_ticks: stat.started_ticks });
            }
            return self.call_birth_off(child, birth.berth.node);
        };
        process.launch = Launch::Running;
        if !birth.is_vfork {
            self.openings.iter().for_each(|openings| openings.inherit(maker, child));
        }
        process.birth = Some(birth);
        self.serve_newborn(child);
    }

    /// Has a supervisor take over a process that was made away, unless it is being moved: then that
    /// will not come to anything, because there is nothing of it here.
    pub(super) fn serve_newborn(&mut self, pid: HomePid) {
        let (me, is_closing) = (self.me(), self.passage.is_closing());
        let core_speed = self.load.capacity().core_speed;
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let Some(birth) = process.birth.take_if(|_| process.moving.is_none()) else { return };
        let identity = Identity { pid: pid.0, started_ticks: process.started_ticks };
        let made_on = birth.berth.node;
        let order = Order::new(made_on, Cause::MadeAway, "made there");
        if is_closing {
            let home = Order::new(me, Cause::Drain, "this node goes down");
            process.waiting.push_back(home);
        }
        process.moving = Some(Move::new(order, me, core_speed));
        if let Err(not_moved) = self.tell_deputy(pid, &ToDeputy::Born(birth)) {
            tracing::error!("process {pid}, made away, ended: {}", not_moved.reason.text);
            self.tell_lost(pid, made_on, &not_moved.reason.text);
            self.move_failed(pid, not_moved);
            end(identity);
        }
    }

    /// Ends what a process has made that has no supervisor any more, and whose body nobody knows
    /// of: it would sleep for ever.
    pub(super) fn end_unborn_of(&mut self, maker: HomePid) {
        let unborn = Launch::Unborn { maker };
        let unborn = self.processes.values().filter(|process| process.launch == unborn);
        let unborn: Vec<(HomePid, u64)> =
            unborn.map(|process| (process.pid, process.started_ticks)).collect();
        let made_on = self.processes.get(&maker).map_or(self.me(), |maker| maker.at);
        for (pid, started_ticks) in unborn {
            tracing::error!("process {pid}, made away by {maker}, ended: unborn");
            self.tell_lost(pid, made_on, "its maker was lost before it had a body");
            end(Identity { pid: pid.0, started_ticks });
        }
    }

    /// Nobody is to look for the cause in the program.
    fn tell_lost(&mut self, pid: HomePid, node: NodeId, text: &str) {
        let reason = Reason { code: "unborn".into(), text: text.into() };
        self.journal.record(Some(self.global(pid)), Happening::Lost { node, reason });
    }

    /// A guest has made a process, or one comes along with it, whose supervisor is a part of its
    /// own. `is_bound`: they share memory.
    pub(super) fn guest_forked(
        &mut self,
        maker: SupervisorId,
        (child, ticket, from): (HomePid, Ticket, NodeId),
        is_bound: bool,
        socket: Option<OwnedFd>,
    ) {
        let is_taken = self.hosting.with_ticket(ticket).is_some();
        let is_full = self.hosting.len() >= GUESTS_MAX;
        let (Some(maker), Some(socket), false) =
            (self.hosting.get(maker), socket, is_taken || is_full)
        else {
            // It notices that nobody has its socket.
            return tracing::warn!("a guest's process cannot become a guest");
        };
        let id = self.supervisors.next_id();
        let report = reporting(self.events.clone());
        let supervisor = match serve_part(id, &maker.supervisor, socket, report) {
            Ok(supervisor) => supervisor,
            Err(error) => return tracing::warn!("a guest's process: {error}"),
        };
        let guest = Guest {
            process: GlobalPid { home: maker.process.home, pid: child },
            ticket,
            // Its memory was asked for with that of its maker, or is its maker's.
            asked: BerthRequest {
                pid: child,
                from,
                cpu_us: 0,
                rss_bytes: 0,
                expected_us: 0,
                ..maker.asked
            },
            owner: maker.owner,
            supervisor,
            arrival: Arrival::Expected { until: Instant::now() + self.config.berth_timeout },
            command: maker.command.clone(),
            cpu_us: 0,
            rss_bytes: maker.rss_bytes,
            forwarded_per_s: 0,
            activity: Activity::default(),
            bound_to: is_bound.then_some(maker.process.pid),
            wanted_on: None,
            has_moved_on: false,
            is_sent_home: false,
            stands_back: maker.stands_back,
            user_cores: maker.user_cores,
        };
        let supervisor = guest.supervisor.clone();
        self.bind_guest(&guest);
        self.hosting.insert(guest);
        // Its maker waits for that. One that does not take it is gone.
        supervisor.send(&ToBody::IsGuest, None);
    }
}

/// Ends a process that nobody can bring to its body.
fn end(process: Identity) {
    if process.is_alive() {
        let pid = nix::unistd::Pid::from_raw(process.pid);
        // One that ends by itself meanwhile has what it is to have.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
}
