//! Managed processes: how they come under Osmos, what is seen of them, and how they end.

use super::requests::{failure, no_process};
use super::{Daemon, Event};
use crate::control::Caller;
use crate::guest::Guest;
use crate::process::{
    Activity, Cause, Consumption, Forwarded, LastFreeze, Launch, Order, Process, Retry, Storm,
};
use crate::procfs::{self, Stat};
use crate::progress::Progress;
use crate::readiness;
use crate::sample::scan::{Scan, Watched};
use crate::supervisor::Identity;
use brain::{Arrival, Input};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::task::AbortHandle;
use wire::control::{Failure, Happening, ManageOptions, Placement};
use wire::ids::{HomePid, NodeId};
use wire::peer::MoveEnd;
use wire::supervisor::Filled;

/// Managed processes of one node.
const PROCESSES_MAX: usize = 4_096;
/// A program that looks the same so long after its connection closed has become itself again.
const SAME_PROGRAM_PATIENCE: Duration = Duration::from_secs(1);
impl Daemon {
    /// All that came behind a process that has left is there.
    pub(super) fn has_filled(&mut self, pid: HomePid, filled: Filled) {
        let global = self.global(pid);
        self.journal.record(Some(global), Happening::Filled(filled));
    }

    /// Puts a process under Osmos, or under new options if it is there already.
    pub(super) fn admit_process(
        &mut self,
        caller: Caller,
        pid: HomePid,
        options: ManageOptions,
        launch: Launch,
    ) -> Result<(), Failure> {
        // What is found has begun before, and may be away already.
        if self.passage.is_going_down() && launch != Launch::Found {
            return Err(failure("draining", "this node is going down"));
        }
        if self.processes.len() >= PROCESSES_MAX {
            let text = format!("{PROCESSES_MAX} processes are under osmos, no more are possible");
            return Err(failure("too-many-processes", text));
        }
        let stat = procfs::read_stat(pid.0).ok_or_else(|| no_process(pid))?;
        let owner = self.check_mover(caller, pid)?;
        if let Some(process) = self.processes.get_mut(&pid) {
            process.launch = launch;
            self.give_options(pid, options);
            return Ok(());
        }
        let watch = self.watch(pid, stat.started_ticks).map_err(|error| {
            failure("cannot-watch", format!("cannot watch process {pid}: {error}"))
        })?;
        let process = Process {
            pid,
            owner,
            started_ticks: stat.started_ticks,
            command: stat.command,
            left_as: self.processes.get(&HomePid(stat.parent)).and_then(|it| it.left_as.clone()),
            shape: None,
            placement: options.placement,
            baseline: None,
            // Nobody gets rid of a filter.
            is_mobile: options.is_mobile || self.comes_of_mobile(stat.parent),
            storm: options.storm_ms.map(storm_every),
            freeze_budget: options.freeze_budget_ms,
            way: options.way,
            at: self.me(),
            here_since: Instant::now(),
            deputy: None,
            moving: None,
            waiting: VecDeque::new(),
            birth: None,
            launch,
            retry: None,
            consumption: Consumption::default(),
            forwarded: Forwarded::default(),
            activity: Activity::default(),
            waits: Vec::new(),
            clocks: Vec::new(),
            tally: self.tally_of_ancestor(stat.parent),
            job: self.job_of_ancestor(stat.parent),
            migrations: 0,
            last_move_s: None,
            last_freeze: LastFreeze::default(),
            reason: "started here".to_owned(),
            decisions: VecDeque::new(),
            progress: Progress::starting(self.load.capacity().core_speed),
            has_ended: false,
            watch,
        };
        self.register(process);
        self.looks.born(Instant::now());
        Ok(())
    }

    /// Has a process that is managed be treated so from now on.
    pub(super) fn give_options(&mut self, pid: HomePid, options: ManageOptions) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.placement = options.placement;
        process.storm = options.storm_ms.map(storm_every);
        process.freeze_budget = options.freeze_budget_ms;
        process.way = options.way;
        process.is_mobile |= options.is_mobile;
        self.tell_brain_placement(pid);
        self.keep_process(pid);
    }

    fn register(&mut self, process: Process) {
        let pid = process.pid;
        // A process that is about to become its command is told of under that name.
        if !matches!(process.launch, Launch::Pending { .. }) {
            let command = process.command.clone();
            self.journal.record(Some(self.global(pid)), Happening::Managed { command });
        }
        self.processes.insert(process);
        self.keep_process(pid);
        self.tell_brain(Input::ProcessArrived { process: self.global(pid), how: Arrival::Born });
        self.tell_brain_placement(pid);
    }

    /// Waits for the end of a process in a task of its own.
    pub(super) fn watch(&self, pid: HomePid, started_ticks: u64) -> io::Result<AbortHandle> {
        let process = Identity { pid: pid.0, started_ticks };
        self.watch_for(process, Event::ProcessEnded { pid, started_ticks })
    }

    /// The same of any process; `end` is what happens then.
    pub(super) fn watch_for(&self, process: Identity, end: Event) -> io::Result<AbortHandle> {
        let raw = Pid::from_raw(process.pid).ok_or(io::ErrorKind::InvalidInput)?;
        let descriptor = pidfd_open(raw, PidfdFlags::NONBLOCK)?;
        // Opened by number: make sure that the number still names the same process.
        let stat = procfs::read_stat(process.pid);
        if stat.is_none_or(|stat| stat.started_ticks != process.started_ticks) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let descriptor = readiness::register(descriptor, Interest::READABLE)?;
        let events = self.events.clone();
        let task = tokio::spawn(async move {
            // A pidfd becomes readable, once and for ever, when the process has ended.
            if descriptor.readable().await.is_ok() {
                let _ = events.send(end).await;
            }
        });
        Ok(task.abort_handle())
    }

    pub(super) fn process_ended(&mut self, pid: HomePid, started_ticks: u64) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if process.started_ticks != started_ticks {
            return;
        }
        process.has_ended = true;
        // Its deputy knows how it ended, and says so before it ends itself.
        if process.deputy.is_none() {
            self.forget_process(pid, None);
        }
    }

    /// The end of a managed process.
    pub(super) fn forget_process(&mut self, pid: HomePid, wait_status: Option<i32>) {
        let Some(mut process) = self.processes.remove(&pid) else { return };
        self.keep_process(pid);
        let global = self.global(pid);
        self.release_files(pid);
        self.memory_groups.leave(global);
        self.journal.record(Some(global), Happening::Ended { wait_status });
        let under_way = process.moving.take().map(|moving| {
            self.leave_alone(pid, &moving);
            self.give_up_place(pid, &moving.order, MoveEnd::Stayed);
            moving.order
        });
        if let Some(birth) = process.birth.take() {
            self.call_birth_off(pid, birth.berth.node);
        }
        for order in under_way.into_iter().chain(process.waiting.drain(..)) {
            let text = format!("cannot move {pid}: it has ended");
            self.refuse_order(order, failure("ended", text));
        }
        // Also if it ran elsewhere: what was remembered of it goes, and no place waits for it.
        self.tell_brain(Input::ProcessEnded { process: global });
        self.remember_program(&process);
        self.add_to_tally(process.tally, process.consumption.away);
        self.gather_again();
    }

    /// Looks over `/proc` on another thread, one look at a time.
    pub(super) fn begin_scan(&mut self, now: Instant) {
        let Some(scanner) = self.looks.begin_scan(now, self.is_idle()) else { return };
        let me = self.me();
        let away = self.processes.values().filter(|process| process.at != me);
        let watched = Watched {
            managed: self.processes.keys().map(|pid| pid.0).collect::<BTreeSet<i32>>(),
            job_servers: self.rank_servers.pids().collect(),
            away: away.map(|process| process.pid.0).collect(),
            bodies: self.hosting.guests().filter_map(Guest::local_pid).collect(),
            inherited: self
                .all_supervisors()
                .filter_map(|supervisor| supervisor.process)
                .map(|p| p.pid)
                .collect(),
        };
        let events = self.events.clone();
        tokio::task::spawn_blocking(move || {
            // One look at a time: nobody else has it.
            let mut scanner = scanner.lock().unwrap_or_else(PoisonError::into_inner);
            let scan = scanner.scan(&watched);
            // Nobody is left to be told once the daemon has ended.
            let _ = events.blocking_send(Event::Scanned(scan));
        });
    }

    /// Nothing is managed here.
    pub(super) fn is_idle(&self) -> bool {
        self.processes.is_empty() && self.hosting.is_empty()
    }

    pub(super) fn scanned(&mut self, scan: io::Result<Scan>) {
        self.looks.scan_ended();
        let scan = match scan {
            Ok(scan) => scan,
            Err(error) => return tracing::warn!("cannot look at /proc: {error}"),
        };
        let me = self.me();
        for process in self.processes.values_mut() {
            let Some(usage) = scan.usage.get(&process.pid.0) else { continue };
            if usage.started_ticks != process.started_ticks {
                continue;
            }
            process.consumption.home_cpu_us = usage.cpu_us;
            process.has_name(&usage.command);
            if process.launch == Launch::Found {
                process.launch = Launch::Running;
            }
            process.activity.look(scan.at, usage.runnable, usage.cpu_us);
            process.activity.group = Some(usage.group);
            if process.at == me {
                process.consumption.rss_bytes = usage.rss_bytes;
                process.progress.look(scan.at, usage.cpu_us);
            }
        }
        for guest in self.hosting.guests_mut() {
            let usage = guest.local_pid().and_then(|pid| scan.usage.get(&pid));
            if let Some(usage) = usage {
                guest.activity.look(scan.at, usage.runnable, usage.cpu_us);
                guest.cpu_us = usage.cpu_us;
                guest.rss_bytes = usage.rss_bytes;
            }
        }
        self.inherit_all(scan.born.iter().cloned());
        self.look_after_ranks();
        self.sample_load(&scan);
    }

    /// Takes in descendants of managed processes, each with the one that it descends from.
    pub(super) fn inherit_all(&mut self, born: impl IntoIterator<Item = (Stat, i32)>) {
        for (stat, ancestor) in born {
            let ancestor = HomePid(ancestor);
            if !self.may_be_unborn(stat.pid, ancestor) {
                self.inherit(&stat, ancestor);
            }
        }
    }

    /// Whether a child may have been made away, so that nothing may happen to it before its maker's
    /// supervisor has said so ([`Daemon::process_forked`]): until it has one of its own it is held
    /// by that supervisor, or sleeps deaf to all signals. One that was made at home is found at the
    /// next look.
    fn may_be_unborn(&self, child: i32, ancestor: HomePid) -> bool {
        let is_served = |process: &Process| process.deputy.is_some();
        self.processes.get(&ancestor).is_some_and(is_served) && procfs::is_held_or_deaf(child)
    }

    /// A child of a managed process is managed as its ancestor is.
    pub(super) fn inherit(&mut self, stat: &Stat, ancestor: HomePid) {
        let pid = HomePid(stat.pid);
        if self.processes.contains_key(&pid) {
            return;
        }
        let Some(parent) = self.processes.get(&ancestor) else {
            return self.inherit_of_server(pid, ancestor.0);
        };
        // The tool that will become the command may still have helpers of its own.
        if matches!(parent.launch, Launch::Pending { .. }) {
            return;
        }
        let options = parent.options();
        // Not computed anew: its environment says what its ancestor's was told.
        let (baseline, rank) = (parent.baseline.clone(), parent.job);
        let caller = Caller { uid: parent.owner.uid, pid: None, node: None };
        if let Err(failure) = self.admit_process(caller, pid, options, Launch::Found) {
            tracing::debug!("child {pid} of {ancestor} stays unmanaged: {}", failure.text);
            return;
        }
        if let Some(baseline) = baseline {
            self.give_baseline(pid, baseline);
        }
        if let Some(rank) = rank {
            self.be_rank(pid, rank);
        }
        if let Some(process) = self.processes.get_mut(&pid) {
            process.retry = process.retry_of_program(&self.programs, Instant::now());
        }
        let (parent, child) = (self.global(ancestor), self.global(pid));
        self.memory_groups.may_join(parent, child, Instant::now());
    }

    /// Begins what is due: first placements, placements again after a homecoming, storms.
    pub(super) fn place_processes(&mut self, now: Instant) {
        if self.passage.is_going_down() {
            return;
        }
        let pids: Vec<HomePid> = self.processes.keys().copied().collect();
        for pid in pids {
            self.settle_launch(pid, now);
            self.next_order(pid);
            self.serve_newborn(pid);
            let Some(process) = self.processes.get(&pid) else { continue };
            if !process.is_ready() {
                continue;
            }
            if process.storm.is_some_and(|storm| storm.next <= now) {
                self.storm(pid, now);
            } else if process.storm.is_none() {
                self.place(pid, now);
            }
        }
    }

    /// Has the process become its command? Then it can be moved.
    pub(super) fn settle_launch(&mut self, pid: HomePid, now: Instant) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let Launch::Pending { program, left } = &process.launch else { return };
        let is_another = procfs::read_program(pid.0) != *program;
        let is_settled = left.is_some_and(|left| now >= left + SAME_PROGRAM_PATIENCE);
        if is_another || is_settled {
            process.launch = Launch::Running;
            if let Some(stat) = procfs::read_stat(pid.0) {
                process.command = stat.command;
            }
            let command = process.command.clone();
            self.journal.record(Some(self.global(pid)), Happening::Managed { command });
            self.keep_process(pid);
        }
    }

    /// Sends the process where its user wants it to run, if it is not there.
    fn place(&mut self, pid: HomePid, now: Instant) {
        let Some(process) = self.processes.get(&pid) else { return };
        if process.retry.is_some_and(|retry| retry.at > now) {
            return;
        }
        let at = process.at;
        let (to, why) = match process.placement {
            Placement::Balanced | Placement::Home => return,
            Placement::Node(node) => (Some(node), format!("started for node {node}")),
            Placement::Best => {
                let best = self.best_node_for(pid);
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.placement = Placement::Balanced;
                }
                self.tell_brain_placement(pid);
                (best, "started for the best node".to_owned())
            }
        };
        let Some(to) = to.filter(|to| *to != at) else { return };
        if let Some(process) = self.processes.get_mut(&pid) {
            let retry = process.retry.take();
            process.retry = Some(retry.map_or_else(|| Retry::first(now), |retry| retry.next(now)));
        }
        self.order_move(pid, Order::new(to, Cause::Placed, why));
    }

    fn storm(&mut self, pid: HomePid, now: Instant) {
        let me = self.me();
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let Some(storm) = &mut process.storm else { return };
        let random = crate::keys::random::<8>().map_or(0, u64::from_le_bytes);
        // Anything from half to one and a half of the time, so that moves drift over everything.
        let share = 0.5 + (random % 1024) as f64 / 1024.0;
        storm.next = now + storm.every.mul_f64(share);
        let at = process.at;
        let mut places: Vec<NodeId> = self.links.nodes().collect();
        places.push(me);
        let unfit = self.unfit_nodes(pid);
        places.retain(|node| *node != at && self.is_usable(*node) && !unfit.contains(node));
        if let Some(to) = places.get((random >> 32) as usize % places.len().max(1)) {
            self.order_move(pid, Order::new(*to, Cause::Storm, "storm"));
        }
    }
}

fn storm_every(ms: u64) -> Storm {
    Storm { every: Duration::from_millis(ms), next: Instant::now() }
}
