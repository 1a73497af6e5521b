//! While the process is away: the main thread, to which ptrace belongs, and what all threads of
//! this supervisor share.

use crate::arriving::Arriving;
use crate::commons::Commons;
use crate::cpu_limit::CpuLimit;
use crate::daemon::Daemon;
use crate::departure::Away;
use crate::direct_files::DirectFiles;
use crate::ending::{end_behind, kill, see_it_end};
use crate::exec::Clocks;
use crate::keeping::Keeping;
use crate::lanes::Lanes;
use crate::moves::Pending;
use crate::new_processes::Child;
use crate::notice::Notice;
use crate::onlookers::{HeldReplies, Onlookers, is_opened};
use crate::own_files::OwnFiles;
use crate::own_memory::OwnMemory;
use crate::processor_time::UsedAway;
use crate::read_ahead::put;
use crate::signals::Death;
use crate::{late, priorities, replies};
use kernel::child_signal::ChildSignal;
use kernel::haste::Readiness;
use kernel::tracee;
use link::{LinkReader, LinkWriter};
use migrate::backing::Library;
use migrate::files::{Files, USED_AT_HOME};
use migrate::injection::Borrowed;
use migrate::worker::Worker;
use migrate::{MigrateError, Result, reason};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use wire::forward::{Reply, ToAway};
use wire::freeze_budget::FreezeBudget;
use wire::ids::GuestTid;
use wire::image::Span;
use wire::limits::THREADS_MAX;
use wire::move_limits::MoveLimits;
use wire::supervisor::{Berth, FromDeputy, Reason, ToDeputy};

pub struct Shared {
    pub pid: i32,
    pub lanes: Lanes,
    writer: Mutex<LinkWriter>,
    notices: Mutex<VecDeque<Notice>>,
    wake: EventFd,
    pub is_ending: AtomicBool,
    /// A signal ends the process as soon as it is home: it does not get on before.
    pub is_dying: AtomicBool,
    /// Counts calls left to the waiter; a futex.
    slow_calls: AtomicU32,
    counts: Mutex<BTreeMap<u32, u64>>,
    /// Memory that comes before its body does.
    arriving: Mutex<Option<Arriving>>,
    /// What the process has mapped shared and writable.
    pub files: Option<Files>,
    pub(crate) held_replies: HeldReplies,
    pub own_files: OwnFiles,
    pub direct_files: DirectFiles,
    /// Processor time of all stays away.
    pub used_away: UsedAway,
    /// Its clocks when it was about to begin another program.
    pub clocks: Clocks,
}

impl Shared {
    pub fn send(&self, message: &ToAway) {
        let mut writer = self.writer();
        self.direct_files.ahead.look(&mut writer);
        put(&mut writer, message);
    }

    pub fn reply(&self, reply: Reply) {
        self.send(&ToAway::Reply(reply));
    }

    pub fn writer(&self) -> MutexGuard<'_, LinkWriter> {
        self.writer.lock().expect("no thread of the supervisor panicked")
    }

    pub fn notify(&self, notice: Notice) {
        self.notices.lock().expect("no thread of the supervisor panicked").push_back(notice);
        self.wake();
    }

    /// The main thread is to look at what there is.
    pub(crate) fn wake(&self) {
        // The counter cannot overflow: it is read whenever it is not zero.
        let _ = self.wake.write(1);
    }

    /// True if more waits for the main thread than an honest body ever has it told.
    pub fn is_flooded(&self) -> bool {
        let notices = self.notices.lock().expect("no thread of the supervisor panicked");
        notices.len() >= NOTICES_MAX
    }

    pub fn next_notice(&self) -> Option<Notice> {
        self.notices.lock().expect("no thread of the supervisor panicked").pop_front()
    }

    /// Counts a forwarded call by its number.
    pub fn count(&self, number: u32) {
        let mut counts = self.counts.lock().expect("no thread of the supervisor panicked");
        *counts.entry(number).or_default() += 1;
    }

    pub fn arriving(&self) -> MutexGuard<'_, Option<Arriving>> {
        self.arriving.lock().expect("no thread of the supervisor panicked")
    }

    pub fn slow_calls(&self) -> u32 {
        self.slow_calls.load(Ordering::SeqCst)
    }

    pub fn wake_waiter(&self) {
        self.slow_calls.fetch_add(1, Ordering::SeqCst);
        kernel::shared::futex_wake(&self.slow_calls, 1);
    }

    pub fn await_slow_call(&self, seen: u32) {
        kernel::shared::futex_wait(&self.slow_calls, seen, None);
    }
}

/// What the main thread alone knows.
pub struct Service<'a> {
    pub daemon: &'a Daemon,
    pub shared: Arc<Shared>,
    pub signals: ChildSignal,
    pub pid: i32,
    pub berth: Berth,
    /// As the daemon said last.
    pub freeze_budget: FreezeBudget,
    /// Of the next move.
    pub limits: MoveLimits,
    pub library: Library,
    pub borrowed: Borrowed,
    pub death: Death,
    pub own: OwnMemory,
    /// Some of it comes behind the body, and is nowhere else.
    pub is_giving: bool,
    /// Memory of the process that has stayed here.
    pub keeping: Option<Keeping>,
    /// And some that is to be discarded.
    pub surplus: Vec<Span>,
    /// Stopped by job control.
    pub is_held: bool,
    /// A thread has a real-time policy, which no other node gives it.
    is_real_time: bool,
    /// What others do to its shared files.
    pub onlookers: Onlookers,
    /// Processes that it has made and whose bodies have not been made yet.
    pub unborn: Vec<Child>,
    /// Its shared memory when it last made a process.
    pub commons: Commons,
    /// Processes that were made for nothing, and whose end nobody is to hear of.
    pub disowned: Vec<GuestTid>,
    /// Number of the current link.
    generation: u64,
    /// Calls to next nodes so far.
    pub connections: u64,
    /// A body that is asked to come home or move on answers only once.
    pub pending: Option<Pending>,
    waiter: Option<std::thread::JoinHandle<()>>,
    next_look: Instant,
    /// When the daemon was last told what the process has used.
    usage_told_at: Instant,
    /// When a process that is to come home unasked, and could not, is told to again.
    pub next_recall: Instant,
    rss_bytes: u64,
    cpu_limit: CpuLimit,
    pub readiness: Option<Readiness>,
}

/// Why the service ends.
pub enum End {
    Goes,
    Continues,
}

/// Notices that wait, where what a body says is not one for each thread.
const NOTICES_MAX: usize = 2 * THREADS_MAX;
/// Between two pieces of memory that are given back: the body's calls come first.
const SURPLUS_PAUSE: Duration = Duration::from_millis(10);
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A body reports once a second. One that does so more often is not listened to more often.
const USAGE_PAUSE: Duration = Duration::from_millis(500);

/// Serves a process that has just left until it is home again or has ended.
pub fn run(away: Away, daemon: &Daemon, signals: ChildSignal) -> Result<()> {
    let wake = kernel::wake_up::make()?;
    let tids = away.lanes.iter().map(|lane| lane.tid).collect();
    let is_displaced = away.relief.is_some();
    let readiness = Readiness::of(tids, away.relief);
    let (reader, writer) = away.link;
    let shared = Arc::new(Shared {
        pid: away.pid,
        lanes: Lanes::new(away.agent, away.memory, away.lanes, away.actions),
        writer: Mutex::new(writer),
        notices: Mutex::new(VecDeque::new()),
        wake,
        is_ending: AtomicBool::new(false),
        is_dying: AtomicBool::new(false),
        slow_calls: AtomicU32::new(1),
        counts: Mutex::new(BTreeMap::new()),
        arriving: Mutex::default(),
        files: away.left.files,
        held_replies: HeldReplies::default(),
        own_files: OwnFiles::of(&away.library, &away.left.maps, is_displaced),
        direct_files: DirectFiles::of(away.berth.node),
        used_away: UsedAway::from(away.used),
        clocks: Clocks::default(),
    });
    let onlookers = Onlookers::of(shared.files.is_some(), away.left.called_home);
    let mut service = Service {
        daemon,
        shared,
        signals,
        pid: away.pid,
        library: away.library,
        borrowed: away.borrowed,
        death: Death::default(),
        own: OwnMemory::of(away.left.maps, away.left.reading),
        is_giving: away.left.late.is_some(),
        keeping: away.left.keeping,
        surplus: vec![],
        is_held: false,
        is_real_time: false,
        onlookers,
        unborn: vec![],
        disowned: vec![],
        commons: Commons::default(),
        generation: 0,
        connections: 0,
        pending: None,
        waiter: None,
        next_look: Instant::now() + LOOK_INTERVAL,
        usage_told_at: Instant::now(),
        next_recall: Instant::now(),
        cpu_limit: CpuLimit::default(),
        readiness: Some(readiness),
        rss_bytes: away.memory_bytes,
        berth: away.berth,
        freeze_budget: away.report.freeze_budget,
        limits: away.left.limits,
    };
    service.set_held(away.is_held);
    service.start_waiter();
    service.listen(reader);
    if let Some(late) = away.left.late {
        spawn("late", move || late::serve(late));
    }
    daemon.send(&FromDeputy::Moved { to: service.berth.node, report: away.report });
    service.serve()
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    let builder = std::thread::Builder::new().name(name.into());
    builder.spawn(body).expect("a supervisor can start its two threads")
}

impl Service<'_> {
    /// The thread of a slot, to execute what is needed for the process itself.
    pub fn worker(&self, slot: usize) -> Worker<'_> {
        let lanes = &self.shared.lanes;
        Worker { agent: &lanes.agent, slot, tid: lanes.lock(slot).tid }
    }

    /// Starts the reader of a new link.
    pub fn listen(&mut self, reader: LinkReader) {
        self.generation += 1;
        let (shared, generation) = (self.shared.clone(), self.generation);
        spawn("reader", move || replies::read(&shared, generation, reader));
    }

    fn serve(&mut self) -> Result<()> {
        loop {
            match self.turn().map_err(|error| self.what_became(error)) {
                Ok(End::Continues) => {}
                Ok(End::Goes) => {
                    self.part_from_children();
                    return Ok(());
                }
                Err(MigrateError::Ended(status)) => {
                    self.ended(status);
                    return Ok(());
                }
                Err(MigrateError::BeganProgram) => return self.let_program_go(),
                Err(error) => {
                    if let Some(status) = end_behind(self.pid, &error) {
                        self.ended(status);
                        return Ok(());
                    }
                    self.lost(error.reason());
                    return Err(error);
                }
            }
        }
    }

    fn turn(&mut self) -> Result<End> {
        self.wait();
        self.signals.drain();
        while let Some((tid, stop)) = tracee::poll_any()? {
            self.on_stop(tid, stop)?;
        }
        let _ = self.shared.wake.read();
        while let Some(notice) = self.shared.next_notice() {
            if let End::Goes = self.on_notice(notice)? {
                return Ok(End::Goes);
            }
        }
        // Without a daemon to come a process has nobody to move it again: it comes home.
        let is_left = self.daemon.is_abandoned() && Instant::now() >= self.next_recall;
        let is_bound = self.is_real_time && Instant::now() >= self.next_recall;
        let is_wanted = self.look_at_files() && Instant::now() >= self.next_recall;
        if !self.death.signals.is_empty() || is_left || is_bound || is_wanted {
            self.recall();
        }
        self.look_after()?;
        self.discard_surplus()?;
        Ok(End::Continues)
    }

    fn wait(&mut self) {
        let next = [self.daemon.next_call(), self.onlookers.next_look()].into_iter().flatten();
        let next = next.fold(self.next_look, Instant::min);
        let left = match self.surplus.is_empty() {
            true => next.saturating_duration_since(Instant::now()),
            false => SURPLUS_PAUSE,
        };
        let timeout =
            PollTimeout::try_from(left.as_millis() as i32 + 1).unwrap_or(PollTimeout::MAX);
        let socket = self.daemon.socket();
        let mut watched = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN),
        ];
        let files = self.shared.files.iter();
        watched.extend(files.map(|files| PollFd::new(files.as_fd(), PollFlags::POLLIN)));
        watched.extend(socket.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
        let _ = poll(&mut watched, timeout);
        self.obey();
    }

    /// What the daemon orders, if it does.
    fn obey(&mut self) {
        match self.daemon.hear(self.pending.is_some()) {
            Ok(Some(ToDeputy::ComeHome { freeze_budget, limits })) => {
                (self.freeze_budget, self.limits) = (freeze_budget, limits);
                self.recall();
            }
            Ok(Some(ToDeputy::Leave { berth, freeze_budget, limits, way })) => {
                (self.freeze_budget, self.limits) = (freeze_budget, limits);
                self.send_on(berth, way);
            }
            Ok(Some(ToDeputy::CallOff { reason })) => self.call_off(reason),
            Ok(Some(ToDeputy::Opened { by })) => self.onlookers.need_home(is_opened(by)),
            Ok(Some(ToDeputy::Guarded { refusal: Some(why) })) => {
                if self.shared.files.as_ref().is_some_and(Files::need_guard) {
                    self.onlookers.need_home(reason(USED_AT_HOME, why));
                }
            }
            // Only of use to a supervisor that has to capture the process at home.
            Ok(
                Some(
                    ToDeputy::Waits(_)
                    | ToDeputy::Clocks(_)
                    | ToDeputy::Baseline(_)
                    | ToDeputy::Born(_)
                    | ToDeputy::Mobile
                    | ToDeputy::SharedMemory
                    | ToDeputy::Group { .. }
                    | ToDeputy::Guarded { refusal: None },
                )
                | None,
            ) => {}
            Err(error) => ::tracing::warn!("process {}: {error}", self.pid),
        }
    }

    /// What is done once a second, whatever happens.
    fn look_after(&mut self) -> Result<()> {
        if Instant::now() < self.next_look {
            return Ok(());
        }
        self.next_look += LOOK_INTERVAL;
        self.is_real_time = priorities::tell(&self.shared);
        self.shared.lanes.trim();
        self.look_at_flags();
        self.watch_room()
    }

    pub fn send_usage(&self, is_last: bool) {
        let counts = self.shared.counts.lock().expect("no thread of the supervisor panicked");
        let name = |number: u32| {
            wire::calls::name(number).map_or_else(|| number.to_string(), str::to_owned)
        };
        let forwarded = counts.iter().map(|(number, count)| (name(*number), *count)).collect();
        let (away, rss_bytes) = (self.shared.used_away.told(), self.rss_bytes);
        self.daemon.send(&FromDeputy::Usage { away, rss_bytes, forwarded, is_last });
    }

    /// Asks the body to come home, unless it is on its way somewhere already.
    pub fn recall(&mut self) {
        // A body that has not been told of the next node yet need not go there.
        if matches!(self.pending, None | Some(Pending::Connecting { .. })) {
            self.pending = Some(Pending::ComeHome);
            let (freeze_budget, limits) = (self.freeze_budget, self.limits);
            self.shared.send(&ToAway::Recall { freeze_budget, limits });
        }
    }

    fn on_notice(&mut self, notice: Notice) -> Result<End> {
        match notice {
            Notice::Usage { rss_bytes } => {
                self.rss_bytes = rss_bytes;
                self.cpu_limit.enforce(self.pid, self.shared.used_away.told().total_ns());
                // Only what is news, and when it comes: from an old count told again it would
                // follow that the process stood still since.
                if self.usage_told_at.elapsed() >= USAGE_PAUSE {
                    self.usage_told_at = Instant::now();
                    self.send_usage(false);
                }
            }
            Notice::Stayed(reason) => {
                self.pending = None;
                self.daemon.send(&FromDeputy::Stayed { reason });
            }
            Notice::Filled(filled) => {
                // Once.
                if std::mem::take(&mut self.is_giving) {
                    self.daemon.send(&FromDeputy::Filled(filled));
                }
            }
            Notice::Progress(progress) => self.daemon.send(&FromDeputy::Progress(progress)),
            Notice::Connected { number, outcome } => self.on_connected(number, outcome),
            Notice::MaskChanged { slot } => self.change_mask(slot)?,
            Notice::MakeTask { slot } => self.make_task(slot)?,
            Notice::Shares(memory) => self.commons.hear(memory)?,
            Notice::MapFile { slot } => self.map_file(slot)?,
            Notice::ChildMade { slot, child, has_body } => {
                self.child_made(slot, child, has_body)?;
            }
            Notice::ComesAhead { draft, heap_end } => self.lay_out_ahead(*draft, heap_end)?,
            Notice::LinkLost { generation, error } if generation == self.generation => {
                return Err(MigrateError::Protocol(error));
            }
            Notice::Gone { generation, reason } if generation == self.generation => {
                return Err(MigrateError::Refused(reason));
            }
            Notice::Gone { .. } | Notice::LinkLost { .. } => {}
            Notice::Leaving { message, reader } => return self.on_leaving(message, *reader),
        }
        Ok(End::Continues)
    }

    pub fn start_waiter(&mut self) {
        self.shared.is_ending.store(false, Ordering::SeqCst);
        let shared = self.shared.clone();
        self.waiter = Some(spawn("waiter", move || replies::wait(&shared)));
    }

    /// Ends the threads for slow calls and for files: the lanes are the main thread's from then on.
    pub fn stop_waiter(&mut self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        self.shared.lanes.agent.ring();
        self.shared.wake_waiter();
        self.shared.direct_files.ahead.forget_all();
        if let Some(waiter) = self.waiter.take() {
            // It cannot have failed without poisoning a lock that we would have met.
            let _ = waiter.join();
        }
    }

    /// The process has ended at home: so does its body.
    fn ended(&mut self, wait_status: i32) {
        self.part_from_children();
        self.shared.send(&ToAway::Release);
        self.send_usage(true);
        self.daemon.send(&FromDeputy::Ended { wait_status });
    }

    /// The body is lost, and with it the process's memory: the deputy cannot go on.
    fn lost(&mut self, reason: Reason) {
        self.part_from_children();
        self.shared.writer().close();
        kill(self.pid);
        see_it_end(self.pid, &self.signals);
        self.daemon.send(&FromDeputy::Lost { node: self.berth.node, reason });
    }
}
