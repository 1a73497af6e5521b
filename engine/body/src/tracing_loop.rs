//! The main thread of an away supervisor: everything that needs ptrace.
//!
//! It delivers signals to handlers, watches for faults, stops and continues the body, and captures
//! it when it has to leave. One order or stop is handled at a time, to its end.

use crate::capture::Fixed;
use crate::daemon::Daemon;
use crate::homing::Homing;
use crate::keeper::resume_init;
use crate::leaving::{HOMECOMING_PAUSE, unwanted};
use crate::notices::raise;
use crate::state::{Agreement, Order, Shared, Thread};
use crate::vfork;
use kernel::agent::Agent;
use kernel::child_signal::ChildSignal;
use kernel::haste::Haste;
use kernel::processor_time::process_ns;
use kernel::regs::{ERESTARTNOINTR, Registers};
use kernel::sandbox::Sandbox;
use kernel::tracee::{self, Stop};
use kernel::tracking::Tracking;
use migrate::kept::Origin;
use migrate::{MigrateError, Result, reason};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use wire::forward::{ToAway, ToHome};
use wire::image::Prospect;
use wire::supervisor::{FromBody, Reason, ToBody};

/// What the main thread alone knows.
pub(crate) struct Tracing<'a> {
    pub(crate) daemon: &'a Daemon,
    pub(crate) shared: Arc<Shared>,
    /// The sandbox, whose init belongs to this thread, if it is the keeper ([`crate::keeper`]).
    pub(crate) sandbox: Option<Sandbox>,
    pub(crate) agent: Arc<Agent>,
    pub(crate) fixed: Arc<Fixed>,
    pub(crate) prospect: Prospect,
    /// Tells which of its pages are written to, if this kernel can.
    pub(crate) tracking: Option<Arc<Tracking>>,
    /// If home keeps its memory, and `tracking` tells what was written to since it came.
    pub(crate) origin: Option<Origin>,
    pub(crate) signals: ChildSignal,
    /// Threads that stand stopped: because of freezing, or of a signal that has to wait.
    pub(crate) stopped: HashSet<i32>,
    /// For as long as the body is frozen.
    pub(crate) haste: Haste,
    /// Threads about to get a signal whose disposition is just being changed.
    pub(crate) deferred: VecDeque<(i32, i32)>,
    /// Threads that are to stop behind a call, and what they are to have then as home has it.
    pub(crate) agreeing: HashMap<i32, Agreement>,
    /// Where threads that wait until a time of day have their deadline, while this node's kernel
    /// has been told another ([`crate::deadlines`]).
    pub(crate) deadlines: HashMap<i32, u64>,
    /// Stopped by job control.
    pub(crate) is_held: bool,
    /// When a body that no daemon is to look after any more asks its home to take it back.
    next_farewell: Instant,
    pub(crate) next_usage: Instant,
    /// Moves to other nodes so far. Only the last is of interest, and that no more once the body
    /// has left for home.
    pub(crate) moves: Arc<AtomicU64>,
    /// The last of them is under way, and the body not frozen for it yet.
    pub(crate) is_parting: bool,
    /// It was sent to another node and called back, of which home has still to hear. Until that has
    /// had its say it does not leave again: what home says would be of the last time.
    pub(crate) awaits_verdict: bool,
    /// Its memory goes home already.
    pub(crate) homing: Option<Homing>,
    /// Until home has been told that all its memory is here.
    pub(crate) awaits_pages: bool,
    /// Orders to leave, once that is so.
    pub(crate) waiting_for_pages: Vec<Order>,
    /// Why it has to go home, once that may be tried again.
    pub(crate) homesick: Option<Reason>,
    /// Since when the owner of this node wants it gone.
    pub(crate) unwanted_since: Option<Instant>,
    pub(crate) next_homecoming: Instant,
    pub(crate) homecoming_pause: Duration,
    /// In a row.
    pub(crate) failed_homecomings: u32,
    /// An order that waits until no thread makes a process, and until when.
    pub(crate) delayed: Option<(Order, Instant)>,
    /// A thread needs its home, but another makes a process or waits for one that has its memory.
    pub(crate) waits_with_homecoming_since: Option<Instant>,
}

/// Why the loop is left.
pub(crate) enum End {
    Goes(Reason),
    Continues,
}

/// Between two tries to go home by a body that no daemon looks after: each costs its transfer.
const FAREWELL_PAUSE: Duration = Duration::from_secs(30);
const USAGE_INTERVAL: Duration = Duration::from_secs(1);
/// A notification is received at once, unless the body is being killed.
const NOTIFICATION_PATIENCE: Duration = Duration::from_secs(2);

impl<'a> Tracing<'a> {
    /// Of a body that does not run yet, in a sandbox that belongs to another thread.
    pub(crate) fn of(
        daemon: &'a Daemon,
        shared: Arc<Shared>,
        (agent, fixed): (Arc<Agent>, Arc<Fixed>),
        prospect: Prospect,
        signals: ChildSignal,
    ) -> Tracing<'a> {
        Tracing {
            daemon,
            awaits_pages: shared.late.is_some(),
            shared,
            sandbox: None,
            agent,
            fixed,
            prospect,
            tracking: None,
            origin: None,
            signals,
            haste: Haste::default(),
            stopped: HashSet::new(),
            deferred: VecDeque::new(),
            agreeing: HashMap::new(),
            deadlines: HashMap::new(),
            is_held: false,
            next_farewell: Instant::now(),
            next_usage: Instant::now() + USAGE_INTERVAL,
            moves: Arc::default(),
            is_parting: false,
            awaits_verdict: false,
            homing: None,
            waiting_for_pages: vec![],
            homesick: None,
            unwanted_since: None,
            next_homecoming: Instant::now(),
            homecoming_pause: HOMECOMING_PAUSE,
            failed_homecomings: 0,
            delayed: None,
            waits_with_homecoming_since: None,
        }
    }
}

impl Tracing<'_> {
    pub(crate) fn begin(&mut self) -> Result<()> {
        let tids: Vec<i32> = {
            let state = self.shared.lock();
            for thread in state.threads.values().filter(|t| !t.is_between_calls()) {
                thread.signals.iter().for_each(|s| raise(&self.shared, thread.local, s.number));
            }
            state.threads.keys().copied().collect()
        };
        migrate::time::await_no_less(self.fixed.origin.time, || self.shared.guest_time());
        // Said first: no call of a thread may come before it.
        self.shared.send(ToHome::Running);
        crate::priority::adopt(&self.shared.lock());
        // One after another, but none runs before all are ready: the agent's memory that this takes
        // is writable to all.
        tids.iter().try_for_each(|tid| self.renew_wait(*tid))?;
        tids.iter().try_for_each(|tid| tracee::resume(*tid, 0))?;
        let command = self.prospect.command.clone();
        self.daemon.send(&FromBody::Running { local_pid: self.shared.pid, command });
        Ok(())
    }

    /// A wait on a futex is native, and so is its limit: one that began elsewhere begins here for
    /// the rest of its time. All others are forwarded, with what is left of theirs.
    fn renew_wait(&self, tid: i32) -> Result<()> {
        let (slot, end_ns) = {
            let state = self.shared.lock();
            let Some(thread) = state.threads.get(&tid) else { return Ok(()) };
            let may_wait = thread.interrupted.is_some() && thread.signals.is_empty();
            match thread.continued_wait_ns.filter(|_| may_wait) {
                Some(end_ns) => (thread.slot, end_ns),
                None => return Ok(()),
            }
        };
        let registers = tracee::registers(tid)?;
        if registers.rax != libc::SYS_futex as u64 {
            return Ok(());
        }
        let left = Duration::from_nanos(end_ns.saturating_sub(self.shared.guest_clock_ns()));
        let mut time = left.as_secs().to_le_bytes().to_vec();
        time.extend(u64::from(left.subsec_nanos()).to_le_bytes());
        self.agent.write_staging(slot, 0, &time);
        let shorter = Registers { r10: self.agent.staging_address(slot), ..registers };
        // A notification that is not received yet would end with the interrupt.
        let deadline = Instant::now() + NOTIFICATION_PATIENCE;
        migrate::threads::renew_sleep(tid, &shorter, &registers, || {
            let is_received = || {
                let state = self.shared.lock();
                state.threads.get(&tid).is_none_or(|thread| thread.interrupted.is_none())
            };
            while !is_received() && Instant::now() < deadline {
                std::thread::yield_now();
            }
        })
    }

    pub(crate) fn serve(&mut self) -> Reason {
        loop {
            let outcome = self.turn();
            match outcome {
                Ok(End::Continues) => {}
                Ok(End::Goes(reason)) => return reason,
                Err(error) => {
                    ::tracing::error!("body of {}: {error}", self.shared.guest_pid);
                    // What this is about it learns from the end of the link, too, but not why.
                    self.shared.send(ToHome::Gone(error.reason()));
                    return error.reason();
                }
            }
        }
    }

    fn turn(&mut self) -> Result<End> {
        self.wait();
        self.signals.drain();
        while let Some((tid, stop)) = tracee::poll_any()? {
            if let End::Goes(reason) = self.on_stop(tid, stop)? {
                return Ok(End::Goes(reason));
            }
        }
        let _ = self.shared.wake.read();
        self.grant_wishes();
        while let Some(order) = self.shared.next_order() {
            if let End::Goes(reason) = self.on_order(order)? {
                return Ok(End::Goes(reason));
            }
        }
        if let Some(order) = self.next_delayed()
            // It may have been called off meanwhile.
            && let End::Goes(reason) = self.stop_in_between(|it| it.carry_out(order))?
        {
            return Ok(End::Goes(reason));
        }
        let now = Instant::now();
        if self.daemon.is_abandoned() && now >= self.next_farewell {
            self.next_farewell = now + FAREWELL_PAUSE;
            let text = "the node that it is on has no daemon any more";
            return self.need_home(reason("no-daemon", text));
        }
        if now >= self.next_usage {
            self.next_usage += USAGE_INTERVAL;
            self.report_usage();
            if self.is_left_without_pages() {
                return Ok(End::Goes(reason("link", "home does not send the pages it waits for")));
            }
        }
        let can_leave = !self.awaits_verdict && now >= self.next_homecoming;
        match self.homesick.take_if(|_| can_leave) {
            Some(why) => self.need_home(why),
            None => Ok(End::Continues),
        }
    }

    fn wait(&mut self) {
        let is_waiting = self.homesick.is_some() && !self.awaits_verdict;
        let homesick_at = is_waiting.then_some(self.next_homecoming);
        let delayed_until = self.delayed.as_ref().map(|(_, until)| *until);
        let next = [homesick_at, delayed_until, self.daemon.next_call()].into_iter().flatten();
        let next = next.fold(self.next_usage, Instant::min);
        let mut left = next.saturating_duration_since(Instant::now());
        if !self.deferred.is_empty() {
            // Nothing tells when the guest's own rt_sigaction has been executed: it is a matter of
            // microseconds.
            self.shared.order(Order::ActionSettled);
            left = Duration::from_millis(1);
        }
        let timeout =
            PollTimeout::try_from(left.as_millis() as i32 + 1).unwrap_or(PollTimeout::MAX);
        let socket = self.daemon.socket();
        let mut watched = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN),
        ];
        watched.extend(socket.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
        let _ = poll(&mut watched, timeout);
        self.obey();
    }

    /// What the daemon orders, if it does.
    fn obey(&mut self) {
        match self.daemon.hear() {
            Ok(Some(ToBody::SendHome)) => self.be_unwanted(),
            Ok(Some(ToBody::StandBack { nice })) => {
                crate::priority::stand_back(&mut self.shared.lock(), nice);
            }
            // Any other message does not concern a running body.
            Ok(_) => {}
            Err(error) => ::tracing::warn!("body of {}: {error}", self.shared.guest_pid),
        }
    }

    /// The owner of this node wants it gone.
    pub(crate) fn be_unwanted(&mut self) {
        self.unwanted_since.get_or_insert_with(Instant::now);
        self.shared.order(Order::NeedsHome(unwanted()));
    }

    fn report_usage(&self) {
        let here_ns = process_ns(self.shared.pid);
        let rss_bytes = kernel::proc::process::resident_bytes(self.shared.pid).unwrap_or(0);
        let away = self.shared.lock().meter.away();
        self.shared.send(ToHome::Usage { away, rss_bytes });
        if self.shared.abroad.as_ref().is_some_and(|abroad| abroad.asks()) {
            self.shared.send(ToHome::AskTime);
        }
        let (runnable, taken) = {
            let mut state = self.shared.lock();
            let is_computing = |t: &&Thread| t.outstanding.is_none() && t.waits_for.is_none();
            let runnable = state.threads.values().filter(is_computing).map(|t| t.guest).collect();
            let bulky = |t: &mut Thread| Some((t.guest, t.bulky_call.take()?));
            let taken: Vec<_> = state.threads.values_mut().filter_map(bulky).collect();
            (runnable, taken)
        };
        for (tid, sequence) in taken {
            self.shared.send(ToHome::Taken { tid, sequence });
        }
        self.daemon.send(&FromBody::Usage { cpu_us: here_ns / 1000, rss_bytes, runnable });
    }

    fn on_stop(&mut self, tid: i32, stop: Stop) -> Result<End> {
        match stop {
            Stop::Ended(_) => return Ok(self.on_end(tid)),
            stop if self.is_init(tid) => resume_init(tid, stop)?,
            _ if self.agreeing.contains_key(&tid) => {
                if self.on_stop_towards_agreement(tid, stop)? {
                    self.go_on_in_agreement(tid)?;
                }
            }
            Stop::Signal(number) => return self.on_signal(tid, number),
            // It stops for that next. Who is held may be frozen as it stands.
            Stop::Interrupted if self.is_held && tracee::has_fault_pending(tid)? => {
                self.resume(tid, 0)?;
            }
            Stop::Interrupted | Stop::Group(_) if self.is_held => {
                self.stopped.insert(tid);
            }
            Stop::Event(tracee::CALL_EVENT) => self.translate_deadline(tid, self.is_held)?,
            Stop::Syscall => {
                self.restore_deadline(tid)?;
                match self.is_held {
                    true => tracee::resume_interrupted(tid, 0)?,
                    false => self.resume(tid, 0)?,
                }
            }
            _ => self.resume(tid, 0)?,
        }
        Ok(End::Continues)
    }

    pub(crate) fn on_end(&mut self, tid: i32) -> End {
        let mut state = self.shared.lock();
        state.threads.remove(&tid);
        self.stopped.remove(&tid);
        self.deadlines.remove(&tid);
        self.agreeing.remove(&tid);
        if state.threads.is_empty() {
            return End::Goes(reason("ended", "the body has ended"));
        }
        End::Continues
    }

    /// Lets a thread go on; that it may have been killed meanwhile is not an error.
    pub(crate) fn resume(&self, tid: i32, signal: i32) -> Result<()> {
        match tracee::resume(tid, signal) {
            Err(error) if !error.is_gone() => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub(crate) fn on_order(&mut self, order: Order) -> Result<End> {
        let order = self.defer(order).and_then(|order| self.await_processes(order));
        order.map_or(Ok(End::Continues), |order| self.carry_out(order))
    }

    fn carry_out(&mut self, order: Order) -> Result<End> {
        match order {
            // Carried out already.
            Order::Fetched { .. } | Order::Filled(_) | Order::Filling(_) => Ok(End::Continues),
            Order::Home(message) => self.on_home(message),
            Order::NeedsHome(why) => self.need_home(why),
            Order::DeliverMasked { tid, id, result, mask } => {
                self.deliver_masked(tid, id, result, mask)?;
                Ok(End::Continues)
            }
            Order::Agree { tid, id, agreement } => {
                self.begin_to_agree(tid, id, agreement)?;
                Ok(End::Continues)
            }
            Order::MapFile { tid, id, file, how } => {
                self.begin_to_map((tid, id), &file, how)?;
                Ok(End::Continues)
            }
            Order::MakeAgain { tid, id } => {
                self.make_again(tid, id)?;
                Ok(End::Continues)
            }
            Order::ActionSettled => {
                for (tid, _) in std::mem::take(&mut self.deferred) {
                    self.stopped.remove(&tid);
                    let next = {
                        let mut state = self.shared.lock();
                        state.threads.get_mut(&tid).and_then(|t| t.signals.pop_front())
                    };
                    match next {
                        Some(signal) => self.deliver(tid, signal, None)?,
                        None => self.resume(tid, 0)?,
                    }
                }
                Ok(End::Continues)
            }
            Order::Offered { number, outcome } if self.is_current_move(number) => {
                self.stop_in_between(|it| it.copy_ahead(number, outcome))
            }
            Order::Copied { number, outcome } if self.is_current_move(number) => {
                self.stop_in_between(|it| it.move_on(outcome))
            }
            Order::Offered { .. } | Order::Copied { .. } => Ok(End::Continues),
            Order::SentAhead { homeward } => self.stop_in_between(|it| it.on_sent_ahead(homeward)),
            Order::Leave { announcement, homeward } => {
                self.stop_in_between(|it| it.leave(announcement, *homeward))
            }
            Order::ChildDone(child) => {
                self.child_is_done(child)?;
                Ok(End::Continues)
            }
            Order::Gather { is_asked } => self.follow_group(is_asked),
            Order::RoundChanged => Ok(End::Continues),
            Order::LinkLost(error) => Ok(End::Goes(reason("link", error))),
        }
    }

    /// Only a thread that is about to stop may be told to make its call again: any other would see
    /// the restart code.
    fn make_again(&self, tid: i32, id: u64) -> Result<()> {
        let mut state = self.shared.lock();
        let thread = state.threads.get_mut(&tid);
        // A freeze in between has seen to it.
        if thread.and_then(|thread| thread.parked.take_if(|parked| *parked == id)).is_none() {
            return Ok(());
        }
        match tracee::interrupt(tid) {
            Err(error) if !error.is_gone() => return Err(error.into()),
            _ => self.shared.listener.reply(id, ERESTARTNOINTR),
        };
        Ok(())
    }

    fn on_home(&mut self, message: ToAway) -> Result<End> {
        match message {
            ToAway::Stop => self.hold()?,
            ToAway::Continue => self.release_hold()?,
            ToAway::Resume if self.awaits_verdict => self.awaits_verdict = false,
            ToAway::MoveOn { .. } | ToAway::Recall { .. } if self.shared.maker.is_some() => {
                self.shared.send(ToHome::Stayed(vfork::refusal().reason()));
            }
            ToAway::Recall { freeze_budget, limits } => {
                return self.go_home(ToHome::Frozen, (freeze_budget, limits));
            }
            answer @ (ToAway::Holds { .. } | ToAway::Unready) => self.on_answer(answer)?,
            ToAway::MoveOn { .. } if self.homing.is_some() => {
                let reason = reason("moving", "it is on its way home");
                self.shared.send(ToHome::Stayed(reason));
            }
            ToAway::MoveOn { berth, freeze_budget, limits } => match self.check_is_alone() {
                Ok(()) => self.offer_to(berth, (freeze_budget, limits)),
                Err(error) => self.shared.send(ToHome::Stayed(error.reason())),
            },
            ToAway::CallOff(why) => self.call_off(why),
            ToAway::Release => return Ok(End::Goes(reason("released", "home released it"))),
            other => {
                let text = format!("unexpected {}", migrate::head_of(&other));
                return Err(MigrateError::Protocol(text));
            }
        }
        Ok(End::Continues)
    }
}

impl Drop for Tracing<'_> {
    fn drop(&mut self) {
        // The reading thread of the link ends with it; the sandbox ends when it is dropped.
        self.shared.close();
        self.shared.family.remove(&self.shared);
        ::tracing::debug!("body {} leaves its sandbox", self.shared.pid);
    }
}
