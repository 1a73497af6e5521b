//! Processes of other nodes that run here: from the berth they are given to the day they leave.

use super::Daemon;
use crate::accounts;
use crate::guest::{Arrival, Guest};
use crate::keys;
use crate::net::listener::Welcome;
use crate::policy::{self, HostState};
use crate::process::Activity;
use crate::procfs;
use crate::roster::Roster;
use crate::supervisor::{Identity, Supervisor, SupervisorId};
use crate::user_servers::Kind;
use brain::{Input, MoveOutcome, Placement, Span};
use kernel::features::{self, Feature, Need};
use nix::errno::Errno;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Instant;
use wire::assignment::Half;
use wire::ids::{GlobalPid, HomePid, NodeId, Ticket};
use wire::peer::{BerthGrant, BerthRequest, MoveEnd, Owner, PeerMessage, Refusal};
use wire::supervisor::{ELSEWHERE, FromBody, Role, ToBody};

/// Directories of cgroups as a supervisor is told of them.
pub(super) fn cgroup_names(directories: &[PathBuf]) -> Vec<String> {
    directories.iter().map(|directory| directory.to_string_lossy().into_owned()).collect()
}

impl Daemon {
    pub(super) fn berth_asked(&mut self, home: NodeId, request: u64, asked: BerthRequest) {
        let answer = self.reserve_berth(home, asked);
        // If that cannot be said, the berth expires.
        self.links.say(home, PeerMessage::BerthAnswered { request, answer });
    }

    fn reserve_berth(&mut self, home: NodeId, asked: BerthRequest) -> Result<BerthGrant, Refusal> {
        let promised = self.hosting.coming().map(|guest| guest.asked.rss_bytes);
        let promised = promised.fold(0, u64::saturating_add);
        // By their number at home: nodes of one cluster have the same users.
        let is_users = |guest: &&Guest| guest.asked.owner.uid == asked.owner.uid;
        let host = HostState {
            daemon_uid: nix::unistd::geteuid().as_raw(),
            is_draining: self.passage.is_closing(),
            lacks: features::settled().lacks(Need::Guests).map(Feature::name),
            guests: self.hosting.len(),
            coming: self.hosting.coming().count(),
            memory_free_bytes: self.memory_with_imprints().saturating_sub(promised),
            is_closed: self.wishes.is_closed(),
            guests_max: self.wishes.state.guests_max,
            guests_of_user: self.hosting.guests().filter(is_users).count(),
            guests_per_user_max: self.wishes.state.guests_per_user_max,
            guest_memory: self.guest_memory(promised),
        };
        let uid = policy::may_host(&asked, host, &self.wishes.state.guest_users)?;
        self.make_room_for_guest(asked.rss_bytes.saturating_add(promised));
        let owner = Owner { uid, gid: accounts::group_of(uid) };
        let failed = |error: String| Refusal::NoSupervisor { error };
        let ticket = keys::random().map(Ticket).map_err(|error| failed(error.to_string()))?;
        let key = keys::random().map_err(|error| failed(error.to_string()))?;
        let supervisor = self
            .start_body(home, asked.pid, owner, ticket, key)
            .map_err(|error| failed(error.to_string()))?;
        let guest = Guest {
            process: GlobalPid { home, pid: asked.pid },
            ticket,
            asked,
            owner,
            supervisor: supervisor.clone(),
            arrival: Arrival::Expected { until: Instant::now() + self.config.berth_timeout },
            command: String::new(),
            cpu_us: 0,
            rss_bytes: asked.rss_bytes,
            forwarded_per_s: 0,
            activity: Activity::default(),
            bound_to: None,
            wanted_on: None,
            has_moved_on: false,
            is_sent_home: false,
            stands_back: Some(0),
            user_cores: f64::from(asked.user_milli) / 1e3,
        };
        self.hosting.insert(guest);
        self.keep_guest(supervisor.id);
        let core_speed_milli = (self.load.capacity().core_speed * 1e3) as u32;
        Ok(BerthGrant { ticket, key, core_speed_milli })
    }

    /// What is free for guests, as it is enforced.
    pub(super) fn memory_to_spare(&self) -> u64 {
        self.load.memory().free_bytes.min(self.hosting.left_bytes())
    }

    fn start_body(
        &mut self,
        home: NodeId,
        pid: HomePid,
        owner: Owner,
        ticket: Ticket,
        key: [u8; 32],
    ) -> std::io::Result<Supervisor> {
        let started = self.spawn.spawn(Half::Body, owner)?;
        let supervisor = self.serve_supervisor(started)?;
        let guest_cgroup = cgroup_names(self.hosting.cgroups());
        // A supervisor has no right of its own to serve faults of the kernel.
        if kernel::features::settled().has(Feature::KernelFaults)
            && let Ok(device) = kernel::faults::device()
            && !supervisor.send(&ToBody::Faults, Some(device))
        {
            return Err(std::io::Error::other("it takes no message"));
        }
        let expect = ToBody::Expect { ticket, key, pid, node: home, guest_cgroup };
        let entrance = self.hosting.entrance()?;
        match supervisor.send(&expect, entrance) {
            true => Ok(supervisor),
            false => Err(std::io::Error::other("it takes no message")),
        }
    }

    /// Who waits for a connection with this ticket?
    pub(super) fn visited(&mut self, role: Role, ticket: Ticket) -> Welcome {
        if let Some(kind) = Kind::of(role) {
            let server = self.user_servers.visited(kind, ticket, Instant::now());
            return server.map_or(Welcome::Stranger, Welcome::Server);
        }
        let Some(guest) = self.hosting.with_ticket_mut(ticket) else {
            return match self.hosting.was_berth(Instant::now(), ticket) {
                true => Welcome::TooLate,
                false => Welcome::Stranger,
            };
        };
        let supervisor = guest.supervisor.clone();
        if matches!((role, guest.arrival), (Role::Deputy, Arrival::Expected { .. })) {
            guest.arrival = Arrival::Arriving;
            self.hand_out_imprints(supervisor.id);
        }
        Welcome::Expected(supervisor)
    }

    /// What is not here yet, of those, does not come any more.
    fn end_berths(&mut self, which: impl Fn(&Guest) -> bool) {
        for guest in self.hosting.end_berths(Instant::now(), which) {
            forget_guest(&self.roster, &guest);
            self.memory_groups.leave(guest.process);
        }
    }

    pub(super) fn expire_guests(&mut self, now: Instant) {
        self.end_berths(|guest| {
            let is_late = matches!(guest.arrival, Arrival::Expected { until } if until <= now);
            if is_late {
                tracing::info!("process {} did not come; its berth is free", guest.process);
            }
            is_late
        });
    }

    pub(super) fn hear_body(
        &mut self,
        id: SupervisorId,
        bytes: &[u8],
        descriptor: Option<OwnedFd>,
    ) {
        let Some(guest) = self.hosting.get_mut(id) else { return };
        let process = guest.process;
        match postcard::from_bytes::<FromBody>(bytes) {
            Ok(FromBody::Running { local_pid, command }) => self.guest_runs(id, local_pid, command),
            Ok(FromBody::Usage { cpu_us, rss_bytes, .. }) => {
                guest.cpu_us = cpu_us;
                guest.rss_bytes = rss_bytes;
            }
            Ok(FromBody::Gone { reason }) => {
                tracing::debug!("guest {process} is gone: {}", reason.text);
                // Its home tells where it is, perhaps later than this: it has not ended.
                let has_left = reason.code == ELSEWHERE;
                guest.has_moved_on |= has_left;
                if let Some(guest) = self.guest_gone(id).filter(|_| has_left) {
                    self.await_imprint(&guest);
                }
            }
            Ok(FromBody::Forked { child, ticket, is_bound }) => {
                let from = self.me();
                self.guest_forked(id, (child, ticket, from), is_bound, descriptor);
            }
            Ok(FromBody::Joins { child, ticket }) => {
                let from = guest.asked.from;
                let most = self.wishes.state.guests_max.map_or(usize::MAX, |max| max as usize);
                // Who is not taken notices that nobody has its socket.
                if self.hosting.len() < most && !self.passage.is_closing() {
                    self.guest_forked(id, (child, ticket, from), true, descriptor);
                }
            }
            Ok(FromBody::Imprint) | Err(_) => {
                tracing::error!("supervisor of guest {process} says nonsense: dropped");
                self.guest_gone(id);
            }
        }
    }

    fn guest_runs(&mut self, id: SupervisorId, local_pid: i32, command: String) {
        let Some(guest) = self.hosting.get_mut(id) else { return };
        let is_news = guest.local_pid().is_none();
        // One that has ended already is known by its number until its supervisor says so.
        let body = Identity::of(local_pid).unwrap_or(Identity { pid: local_pid, started_ticks: 0 });
        guest.arrival = Arrival::Running { body, since: Instant::now() };
        guest.command = command;
        let (process, supervisor) = (guest.process, guest.supervisor.clone());
        // It has all of that, and leaves it anew.
        self.hosting.imprints_mut().forget(process);
        self.keep_guest(id);
        supervisor.note();
        self.confine_guest(id);
        self.let_stand_back(id);
        // It may have told an earlier daemon as well.
        if is_news {
            self.guest_arrived(id);
        }
    }

    /// Puts a guest's body under this node's limits.
    pub(super) fn confine_guest(&self, id: SupervisorId) {
        let Some(guest) = self.hosting.get(id) else { return };
        let Some(local_pid) = guest.local_pid() else { return };
        let (owner, limits) = (guest.owner, self.hosting.cgroups().to_vec());
        // The kernel lets one wait for ten milliseconds and more.
        tokio::task::spawn_blocking(move || confine(local_pid, owner, &limits));
    }

    pub(super) fn guest_arrived(&mut self, id: SupervisorId) {
        let Some(guest) = self.hosting.get(id) else { return };
        let (process, from) = (guest.process, guest.asked.from);
        let how = match guest.asked.is_ordered {
            true => brain::Arrival::Ordered { from },
            false => brain::Arrival::Balanced { from },
        };
        let is_pinned = guest.asked.is_pinned;
        self.tell_brain(Input::ProcessArrived { process, how });
        if is_pinned {
            let placement = Placement::Pinned;
            self.tell_brain(Input::ProcessPlaced { process, placement });
        }
        if self.passage.is_closing() {
            self.send_guests_home(|_| true);
        }
    }

    /// Its supervisor has nothing more to say.
    fn guest_gone(&mut self, id: SupervisorId) -> Option<Guest> {
        let guest = self.hosting.remove(Instant::now(), id)?;
        self.memory_groups.leave(guest.process);
        self.supervisors.ended(id);
        forget_guest(&self.roster, &guest);
        // Its supervisor need not look for a daemon that it could tell.
        guest.supervisor.note();
        let was_here = guest.local_pid().is_some();
        if was_here && !guest.has_moved_on {
            self.tell_brain(Input::ProcessEnded { process: guest.process });
        }
        Some(guest)
    }

    pub(super) fn body_ended(&mut self, id: SupervisorId) {
        if let Some(guest) = self.hosting.get(id).filter(|_| !self.supervisors.is_awaited(id)) {
            tracing::warn!("the supervisor of guest {} ended without a word", guest.process);
        }
        self.guest_gone(id);
    }

    /// Home says how a move of a guest ended that is, or was, here.
    pub(super) fn guest_move_ended(
        &mut self,
        home: NodeId,
        pid: HomePid,
        to: NodeId,
        end: MoveEnd,
        freeze_us: u64,
    ) {
        let process = GlobalPid { home, pid };
        let me = self.me();
        if end != MoveEnd::Moved && to == me {
            return self.free_berths(process);
        }
        if end == MoveEnd::Moved && to != me {
            for guest in self.hosting.of_mut(process).filter(|guest| guest.local_pid().is_some()) {
                guest.has_moved_on = true;
            }
        }
        for guest in self.hosting.of_mut(process) {
            guest.wanted_on.take_if(|wanted| *wanted == to);
        }
        let (outcome, freeze) = (super::moves::outcome(end), Span::from_micros(freeze_us));
        self.tell_brain(Input::MoveEnded { process, from: me, to, outcome, freeze });
    }

    /// Nobody knows whether their home has heard what was asked of it, nor will its answer come: it
    /// counts as no. If it was yes after all, the guest will be gone, and home takes no second
    /// order for a process that is moving.
    pub(super) fn wishes_lost(&mut self, home: NodeId) {
        let guests = self.hosting.of_home_mut(home);
        let lost: Vec<(GlobalPid, NodeId)> =
            guests.filter_map(|guest| Some((guest.process, guest.wanted_on.take()?))).collect();
        let from = self.me();
        for (process, to) in lost {
            let (outcome, freeze) = (MoveOutcome::Stayed, Span::ZERO);
            self.tell_brain(Input::MoveEnded { process, from, to, outcome, freeze });
        }
    }

    /// The process does not come. A place of one that was made here is another: its home may have
    /// wanted to move it before it knew that, and calls for it all the same.
    fn free_berths(&mut self, process: GlobalPid) {
        let me = self.me();
        self.end_wait(|guest| guest.process == process && guest.asked.from != me);
    }

    /// A process that was made here has no home.
    pub(super) fn birth_is_off(&mut self, home: NodeId, pid: HomePid) {
        let (me, process) = (self.me(), GlobalPid { home, pid });
        self.end_wait(|guest| guest.process == process && guest.asked.from == me);
    }

    fn end_wait(&mut self, which: impl Fn(&Guest) -> bool) {
        let me = self.me();
        let is_awaited = |guest: &&Guest| match guest.arrival {
            Arrival::Expected { .. } => true,
            // One that was made here would look for the next daemon, and its maker may stand still
            // for it.
            Arrival::Arriving => guest.asked.from == me,
            Arrival::Running { .. } => false,
        };
        for body in self.hosting.guests().filter(|guest| which(guest)).filter(is_awaited) {
            body.supervisor.send(&ToBody::NotComing, None);
        }
        self.end_berths(which);
    }

    pub(super) fn calls_counted(
        &mut self,
        home: NodeId,
        pid: HomePid,
        per_s: u32,
        user_milli: u32,
    ) {
        let process = GlobalPid { home, pid };
        for guest in self.hosting.of_mut(process) {
            guest.forwarded_per_s = per_s;
            guest.user_cores = f64::from(user_milli) / 1e3;
        }
    }

    pub(super) fn send_guests_home(&mut self, which: impl Fn(&Guest) -> bool) {
        // Who has not arrived yet is better off not arriving, but for a process that was made here:
        // it is nowhere else, and goes home when that has called.
        let me = self.me();
        self.end_berths(|guest| which(guest) && guest.asked.from != me);
        for guest in self.hosting.guests_mut().filter(|guest| !guest.is_sent_home && which(guest)) {
            guest.is_sent_home = guest.supervisor.send(&ToBody::SendHome, None);
        }
    }
}

fn forget_guest(roster: &Roster, guest: &Guest) {
    if let Some(supervisor) = guest.supervisor.process {
        roster.forget_guest(supervisor);
    }
}

/// Puts a body under this node's limits for guests. Its supervisor tries that as well, but runs as
/// its owner, who need not be allowed to.
fn confine(local_pid: i32, owner: Owner, limits: &[PathBuf]) {
    // The number is what a supervisor says; it must not reach for other people's processes.
    let Some(ids) = procfs::read_ids(local_pid) else { return };
    if ids.uids[0] != owner.uid {
        tracing::warn!("guest {local_pid} is not a process of user {}", owner.uid);
        return;
    }
    let pid = local_pid.to_string();
    for procs in limits.iter().map(|dir| dir.join("cgroup.procs")) {
        let is_inside = |inside: String| inside.lines().any(|line| line == pid);
        if std::fs::read_to_string(&procs).is_ok_and(is_inside) {
            continue;
        }
        if let Err(error) = std::fs::write(&procs, &pid)
            // It may have ended, or gone, meanwhile.
            && error.raw_os_error() != Some(Errno::ESRCH as i32)
        {
            tracing::warn!("guest {local_pid} does not enter {}: {error}", procs.display());
        }
    }
}
