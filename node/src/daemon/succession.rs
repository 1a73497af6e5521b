//! One daemon after another: what an earlier one has left, and what the next one is left.
//!
//! Supervisors outlive their daemon and call the next one ([`crate::returning`]). What they know
//! themselves they say, and repeat until it is noted; all else is on the roster
//! ([`crate::roster`]). Until a supervisor has called, its process counts as being where the roster
//! has it, and what is said to it waits for it.
//!
//! | on the roster | its supervisor | then |
//! |---|---|---|
//! | at home, nothing under way | - | goes on: it is watched and thought about again |
//! | at home, leaving | lives | moving, until the supervisor says how that ended |
//! | at home, leaving | has ended | at home: nothing was sent, or it was put back |
//! | away | lives | away, moving if it says so |
//! | away | has ended | it came home meanwhile, or was lost: the kernel knows |
//! | a guest that runs | lives | a guest again |
//! | a berth, or an arrival | lives | comes, or not, as its supervisor says |
//! | has ended | - | its end is told |

use super::moves::not_moved;
use super::{Daemon, reporting};
use crate::guest::{Arrival, Guest};
use crate::process::{
    Activity, Consumption, Forwarded, LastFreeze, Launch, Move, Order, Process, Stage, Storm,
};
use crate::procfs;
use crate::progress::Progress;
use crate::returning::Returned;
use crate::roster::{KeptGuest, KeptOrder, KeptProcess, Left};
use crate::supervisor::{Identity, Supervisor, SupervisorId, await_return};
use brain::Input;
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;
use wire::assignment::Half;
use wire::control::{Happening, ManageOptions};
use wire::ids::HomePid;
use wire::peer::MoveEnd;
use wire::supervisor::{MoveReport, Reason, SUPERVISOR_VERSION, ToBody, Welcome};

impl Daemon {
    /// Puts what must outlive this daemon of a process on the roster, or takes it off.
    pub(super) fn keep_process(&self, pid: HomePid) {
        match self.processes.get(&pid) {
            Some(process) => self.roster.keep_process(&kept_process(process)),
            None => self.roster.forget_process(pid),
        }
    }

    /// The same of a guest; one that a test plays is nobody's concern.
    pub(super) fn keep_guest(&self, id: SupervisorId) {
        let Some(guest) = self.hosting.get(id) else { return };
        let Some(supervisor) = guest.supervisor.process else { return };
        let body = match guest.arrival {
            Arrival::Running { body, .. } => Some(body),
            Arrival::Expected { .. } | Arrival::Arriving => None,
        };
        self.roster.keep_guest(&KeptGuest {
            process: guest.process,
            ticket: guest.ticket,
            asked: guest.asked,
            owner: guest.owner,
            supervisor,
            body,
            command: guest.command.clone(),
            bound_to: guest.bound_to,
        });
    }

    pub(super) fn all_supervisors(&self) -> impl Iterator<Item = &Supervisor> {
        let deputies = self.processes.values().filter_map(|process| process.deputy.as_ref());
        deputies.chain(self.hosting.guests().map(|guest| &guest.supervisor))
    }

    /// Goes on with everything that an earlier daemon has left.
    pub(super) fn take_over(&mut self) {
        let Left { processes, guests, tallies } = match self.roster.load() {
            Ok(left) => left,
            Err(error) => return tracing::warn!("cannot read the roster: {error}"),
        };
        self.tallies.take_over(tallies);
        for kept in processes {
            self.take_over_process(kept);
        }
        self.look_after_ranks();
        for kept in guests {
            self.take_over_guest(kept);
        }
        let (processes, guests) = (self.processes.len(), self.hosting.len());
        if processes + guests > 0 {
            tracing::info!(
                "took over {processes} processes and {guests} guests of an earlier daemon; {} \
                 supervisors are waited for",
                self.supervisors.awaited()
            );
        }
    }

    fn take_over_process(&mut self, kept: KeptProcess) {
        let (me, pid) = (self.me(), HomePid(kept.process.pid));
        let (at, order) = (kept.at, kept.order.is_some());
        let was_held = kept.deputy.is_some();
        let watch = self.watch(pid, kept.process.started_ticks).ok();
        let deputy = kept
            .deputy
            .and_then(|deputy| self.await_supervisor(Half::Deputy { pid }, deputy, kept.owner.uid));
        let is_held = deputy.is_some();
        if watch.is_none() && !is_held {
            return self.tell_of_unseen_end(&kept);
        }
        self.processes.insert(restored(kept, deputy, watch));
        if was_held && !is_held {
            // It may have died between hurrying the threads and stopping them.
            let threads = kernel::proc::process::threads(pid.0).unwrap_or_default();
            threads.into_iter().for_each(kernel::haste::end);
        }
        if self.processes.get(&pid).is_some_and(|process| process.baseline.is_some()) {
            let process = self.global(pid);
            self.tell_brain(Input::ProcessExempted { process });
        }
        if at == me {
            let process = self.global(pid);
            self.tell_brain(Input::ProcessArrived { process, how: brain::Arrival::Born });
        } else if !is_held {
            let text = "its supervisor brought it home while there was no daemon";
            let reason = Reason { code: "no-daemon".to_owned(), text: text.to_owned() };
            self.came_home(pid, reason, &MoveReport::default());
        }
        self.tell_brain_placement(pid);
        if order && !is_held {
            self.inherited_move_is_off(pid);
        }
        self.keep_process(pid);
    }

    /// It has ended, and nobody is left who could say how.
    fn tell_of_unseen_end(&mut self, kept: &KeptProcess) {
        let pid = HomePid(kept.process.pid);
        self.add_to_tally(kept.tally, kept.away);
        self.roster.forget_process(pid);
        let what = if kept.at == self.me() {
            Happening::Ended { wait_status: None }
        } else {
            let text = "it and its supervisor ended while there was no daemon";
            let reason = Reason { code: "no-daemon".to_owned(), text: text.to_owned() };
            Happening::Lost { node: kept.at, reason }
        };
        self.journal.record(Some(self.global(pid)), what);
    }

    fn take_over_guest(&mut self, kept: KeptGuest) {
        let awaited = self.await_supervisor(Half::Body, kept.supervisor, kept.owner.uid);
        let Some(supervisor) = awaited else {
            self.hosting.berth_ended(Instant::now(), kept.ticket);
            return self.roster.forget_guest(kept.supervisor);
        };
        let body = kept.body.filter(|body| body.is_alive());
        let arrival = match body {
            Some(body) => Arrival::Running { body, since: Instant::now() },
            None => Arrival::Arriving,
        };
        let id = supervisor.id;
        let guest = Guest {
            process: kept.process,
            ticket: kept.ticket,
            asked: kept.asked,
            owner: kept.owner,
            supervisor,
            arrival,
            command: kept.command,
            cpu_us: 0,
            rss_bytes: kept.asked.rss_bytes,
            forwarded_per_s: 0,
            activity: Activity::default(),
            bound_to: kept.bound_to,
            wanted_on: None,
            has_moved_on: false,
            is_sent_home: false,
            stands_back: None,
            user_cores: f64::from(kept.asked.user_milli) / 1e3,
        };
        self.bind_guest(&guest);
        self.hosting.insert(guest);
        if body.is_some() {
            self.confine_guest(id);
            self.let_stand_back(id);
            self.guest_arrived(id);
        }
    }

    /// None if it has ended.
    fn await_supervisor(&mut self, half: Half, process: Identity, uid: u32) -> Option<Supervisor> {
        let id = self.supervisors.next_id();
        let (supervisor, socket) =
            await_return(id, half, process, reporting(self.events.clone())).ok()?;
        self.supervisors.expect(id, (process, uid), socket);
        Some(supervisor)
    }

    /// A supervisor has called. One that nobody misses, or that speaks another version, is sent
    /// home; where it is missed, its end will show where its process is.
    pub(super) fn supervisor_returned(&mut self, returned: Returned) {
        let missed = self.supervisors.missed(returned.pid, returned.uid);
        let Some(id) = missed.filter(|_| returned.version == SUPERVISOR_VERSION) else {
            tracing::info!("supervisor {} (user {}) is sent home", returned.pid, returned.uid);
            // One that is gone has nobody to bring.
            returned.answer(Welcome::GoHome);
            return;
        };
        if !returned.answer(Welcome::Stay) {
            return;
        }
        self.supervisors.came_back(id, returned.socket);
        if self.passage.is_going_down()
            && let Some(guest) = self.hosting.get_mut(id)
        {
            guest.is_sent_home = guest.supervisor.send(&ToBody::SendHome, None);
        }
    }

    /// A supervisor is gone. If it had more to do, it crashed, and took the process with it if it
    /// had it in its hands.
    pub(super) fn deputy_ended(&mut self, pid: HomePid, id: SupervisorId) {
        let was_served = self.processes.deputy_ended(pid, id);
        self.end_unborn_of(pid);
        if was_served {
            self.see_deputy_end(pid, id);
        }
        self.keep_process(pid);
    }

    fn see_deputy_end(&mut self, pid: HomePid, id: SupervisorId) {
        let me = self.me();
        let Some(process) = self.processes.get(&pid) else { return };
        let (at, has_ended) = (process.at, process.has_ended);
        self.release_files(pid);
        let (code, text) = match self.supervisors.ended(id) {
            true => ("no-daemon", "its supervisor ended while no daemon was there for it"),
            false => ("supervisor-crashed", "its supervisor at home ended without a word"),
        };
        let not_moved = not_moved(MoveEnd::Stayed, code, text);
        // The kernel kills what a tracer held before it lets the tracer's parent know.
        if has_ended || procfs::is_ending(pid.0) {
            return self.lost(pid, at, not_moved.reason);
        }
        if at != me {
            // It had just let the process go at home.
            return self.came_home(pid, not_moved.reason, &MoveReport::default());
        }
        // It may have been killed between hurrying the threads and stopping them.
        let threads = kernel::proc::process::threads(pid.0).unwrap_or_default();
        threads.into_iter().for_each(kernel::haste::end);
        self.move_failed(pid, not_moved);
    }

    /// The home supervisor of a process is back, and has said all that it had to say.
    pub(super) fn deputy_attached(&mut self, pid: HomePid, is_moving: bool) {
        if !is_moving {
            self.inherited_move_is_off(pid);
            self.keep_process(pid);
        }
    }

    /// A move that the last daemon had in mind, and whose supervisor knows nothing of it.
    fn inherited_move_is_off(&mut self, pid: HomePid) {
        let moving = self.processes.get(&pid).and_then(|process| process.moving.as_ref());
        if moving.is_some_and(|moving| moving.stage == Stage::Inherited) {
            let text = "the node's daemon was started again before the move had begun";
            self.move_failed(pid, not_moved(MoveEnd::Stayed, "no-daemon", text));
        }
    }
}

fn kept_process(process: &Process) -> KeptProcess {
    let (is_pending, program) = match &process.launch {
        Launch::Pending { program, .. } => (true, program.clone()),
        Launch::Found | Launch::Unborn { .. } | Launch::Running => (false, None),
    };
    // A berth that was asked for means nothing to the next daemon: nobody has left for it.
    let order = process.moving.as_ref().filter(|moving| {
        matches!(moving.stage, Stage::Moving | Stage::Inherited) && process.deputy.is_some()
    });
    KeptProcess {
        process: process.identity(),
        owner: process.owner,
        command: process.command.clone(),
        left_as: process.left_as.clone(),
        options: ManageOptions { cpu_baseline: process.baseline.is_some(), ..process.options() },
        baseline: process.baseline.clone(),
        is_pending,
        program,
        at: process.at,
        deputy: process.deputy.as_ref().and_then(|deputy| deputy.process),
        order: order.map(|moving| KeptOrder {
            to: moving.order.to,
            cause: moving.order.cause,
            why: moving.order.why.clone(),
            core_speed: moving.core_speed,
        }),
        waits: process.waits.clone(),
        clocks: process.clocks.clone(),
        tally: process.tally,
        job: process.job,
        away: process.consumption.away,
        past_cpu_us: process.consumption.past_cpu_us,
        rss_bytes: process.consumption.rss_bytes,
        core_speed: process.progress.core_speed(),
        migrations: process.migrations,
        last_move_s: process.last_move_s,
        freeze_us: process.last_freeze.us,
        freeze_bytes: process.last_freeze.bytes,
        reason: process.reason.clone(),
        decisions: process.decisions.iter().cloned().collect(),
    }
}

fn restored(kept: KeptProcess, deputy: Option<Supervisor>, watch: Option<AbortHandle>) -> Process {
    let now = Instant::now();
    let at = kept.at;
    let moving = kept.order.map(|kept| {
        let order = Order::new(kept.to, kept.cause, kept.why);
        Move { stage: Stage::Inherited, ..Move::new(order, at, kept.core_speed) }
    });
    let launch = match kept.is_pending {
        true => Launch::Pending { program: kept.program, left: Some(now) },
        false => Launch::Running,
    };
    Process {
        pid: HomePid(kept.process.pid),
        owner: kept.owner,
        started_ticks: kept.process.started_ticks,
        command: kept.command,
        left_as: kept.left_as,
        shape: None,
        placement: kept.options.placement,
        baseline: kept.baseline,
        is_mobile: kept.options.is_mobile,
        storm: kept
            .options
            .storm_ms
            .map(|ms| Storm { every: Duration::from_millis(ms), next: now }),
        freeze_budget: kept.options.freeze_budget_ms,
        way: kept.options.way,
        at,
        here_since: now,
        deputy,
        moving,
        waiting: std::collections::VecDeque::new(),
        birth: None,
        launch,
        retry: None,
        consumption: Consumption {
            away: kept.away,
            past_cpu_us: kept.past_cpu_us,
            rss_bytes: kept.rss_bytes,
            ..Consumption::default()
        },
        forwarded: Forwarded::default(),
        activity: Activity::default(),
        waits: kept.waits,
        clocks: kept.clocks,
        tally: kept.tally,
        job: kept.job,
        migrations: kept.migrations,
        last_move_s: kept.last_move_s,
        last_freeze: LastFreeze { us: kept.freeze_us, bytes: kept.freeze_bytes },
        reason: kept.reason,
        decisions: kept.decisions.into(),
        progress: Progress::starting(kept.core_speed),
        // Its supervisor is about to say how.
        has_ended: watch.is_none(),
        watch: watch.unwrap_or_else(|| tokio::spawn(async {}).abort_handle()),
    }
}
