//! The main thread of an away supervisor: everything that needs ptrace.
//!
//! It delivers signals to handlers, watches for faults, stops and continues the body, and captures
//! it when it has to leave. One order or stop is handled at a time, to its end.

use crate::arrival::{Arrived, Link};
use crate::capture::{self, Fixed};
use crate::clock;
use crate::daemon::Daemon;
use crate::notices::{self, raise};
use crate::replies;
use crate::state::{Order, Shared, State, Thread};
use kernel::child_signal::ChildSignal;
use kernel::regs::ERESTARTNOINTR;
use kernel::sandbox::Sandbox;
use kernel::signal::{self, Action, FRAME_MASK_OFFSET, SA_RESETHAND};
use kernel::tracee::{self, Stop};
use migrate::outward::Body;
use migrate::{MigrateError, Result, reason};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::forward::{Signal, ToAway, ToHome};
use wire::supervisor::{Berth, FromBody, Reason, Role, ToBody};

/// What the main thread alone knows.
struct Tracing<'a> {
    daemon: &'a Daemon,
    shared: Arc<Shared>,
    sandbox: Sandbox,
    agent: kernel::agent::Agent,
    library: migrate::backing::Library,
    prospect: wire::image::Prospect,
    origin: wire::image::Image,
    signals: ChildSignal,
    /// Threads that stand stopped: because of freezing, or of a signal that has to wait.
    stopped: HashSet<i32>,
    /// Threads about to get a signal whose disposition is just being changed.
    deferred: VecDeque<(i32, i32)>,
    /// Stopped by job control.
    is_held: bool,
    next_usage: Instant,
}

/// Why the loop is left.
enum End {
    Goes(Reason),
    Continues,
}

/// Runs a body until it is gone from here; says why it is.
pub fn run(daemon: &Daemon, home: Link, arrived: Arrived) -> Reason {
    match start(daemon, home, arrived) {
        Ok(mut tracing) => tracing.serve(),
        Err(error) => error.reason(),
    }
}

fn start<'a>(daemon: &'a Daemon, home: Link, arrived: Arrived) -> Result<Tracing<'a>> {
    let Arrived { body, listener, library, prospect, signals, clock_offset_ns } = arrived;
    let threads: HashMap<i32, Thread> = (0..body.threads.len())
        .map(|slot| (body.threads[slot].1, thread_of(&body, slot)))
        .collect();
    let actions = body.image().actions.iter().map(|[handler, flags, restorer, mask]| Action {
        handler: *handler,
        flags: *flags,
        restorer: *restorer,
        mask: *mask,
    });
    let state = State { threads, actions: actions.collect(), is_frozen: false };
    let wake =
        EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(|errno| {
            kernel::KernelError { what: "make eventfd".into(), source: errno.into() }
        })?;
    let (sandbox, memory, agent, image) = body.into_parts();
    let shared = Arc::new(Shared {
        pid: sandbox.body_pid,
        guest_pid: image.pid,
        listener,
        memory,
        maps: kernel::proc::maps::MapQuery::open(sandbox.body_pid)?,
        state: Mutex::new(state),
        writer: Mutex::new(home.1),
        orders: Mutex::new(VecDeque::new()),
        wake,
        clock_offset_ns,
    });
    spawn("notices", &shared, |shared| notices::serve(&shared));
    let reader = home.0;
    spawn("replies", &shared, move |shared| replies::serve(&shared, reader));
    let mut tracing = Tracing {
        daemon,
        shared,
        sandbox,
        agent,
        library,
        prospect,
        origin: image,
        signals,
        stopped: HashSet::new(),
        deferred: VecDeque::new(),
        is_held: false,
        next_usage: Instant::now() + USAGE_INTERVAL,
    };
    tracing.begin()?;
    Ok(tracing)
}

fn thread_of(body: &Body, slot: usize) -> Thread {
    let (guest, local) = body.threads[slot];
    let image = body.thread_image(slot);
    Thread {
        guest,
        local,
        slot,
        sequence: image.sequence,
        signals_seen: image.signals_seen,
        signals: image.signals.iter().cloned().collect(),
        outstanding: None,
        parked: None,
        in_flight: image.in_flight.clone(),
        interrupted: image.interrupted,
        resumes: None,
        wait_until_ns: None,
        continued_wait_ns: image.wait_until_ns,
    }
}

fn spawn(name: &str, shared: &Arc<Shared>, serve: impl FnOnce(Arc<Shared>) + Send + 'static) {
    let shared = shared.clone();
    let builder = std::thread::Builder::new().name(name.into());
    builder.spawn(move || serve(shared)).expect("a supervisor can start its two threads");
}

const USAGE_INTERVAL: Duration = Duration::from_secs(1);
/// Threads of a body stop at once, or something is broken.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a frozen body waits for the verdict on its move before it is given up with its home.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(60);

impl Tracing<'_> {
    fn begin(&mut self) -> Result<()> {
        let tids: Vec<i32> = {
            let state = self.shared.lock();
            for thread in state.threads.values().filter(|t| !t.is_between_calls()) {
                thread.signals.iter().for_each(|s| raise(&self.shared, thread.local, s.number));
            }
            state.threads.keys().copied().collect()
        };
        // Said first: no call of a thread may come before it.
        self.shared.send(&ToHome::Running);
        for tid in tids {
            tracee::resume(tid, 0)?;
        }
        let command = self.prospect.command.clone();
        self.daemon.send(&FromBody::Running { local_pid: self.shared.pid, command });
        Ok(())
    }

    fn serve(&mut self) -> Reason {
        loop {
            let outcome = self.turn();
            match outcome {
                Ok(End::Continues) => {}
                Ok(End::Goes(reason)) => return reason,
                Err(error) => {
                    ::tracing::error!("body of {}: {error}", self.shared.guest_pid);
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
        while let Some(order) = self.shared.next_order() {
            if let End::Goes(reason) = self.on_order(order)? {
                return Ok(End::Goes(reason));
            }
        }
        if Instant::now() >= self.next_usage {
            self.next_usage += USAGE_INTERVAL;
            self.report_usage();
        }
        Ok(End::Continues)
    }

    fn wait(&mut self) {
        let left = self.next_usage.saturating_duration_since(Instant::now());
        let timeout =
            PollTimeout::try_from(left.as_millis() as i32 + 1).unwrap_or(PollTimeout::MAX);
        let mut watched = [
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.daemon.as_fd(), PollFlags::POLLIN),
        ];
        let _ = poll(&mut watched, timeout);
        let from_daemon = watched[2].revents().unwrap_or(PollFlags::empty());
        if from_daemon.contains(PollFlags::POLLIN) {
            // Any other message, or the end of the daemon, does not concern a running body.
            if let Ok((ToBody::SendHome, _)) = self.daemon.receive() {
                self.shared
                    .order(Order::NeedsHome(reason("drained", "the node asked it to leave")));
            }
        }
    }

    fn report_usage(&self) {
        let cpu_ns = clock::process_ns(self.shared.pid);
        let rss_bytes = kernel::proc::process::stat(&self.shared.pid.to_string())
            .map_or(0, |stat| stat.rss_pages * 4096);
        self.shared.send(&ToHome::Usage { cpu_ns, rss_bytes });
        let state = self.shared.lock();
        let is_computing = |thread: &&Thread| thread.outstanding.is_none();
        let runnable = state.threads.values().filter(is_computing).map(|t| t.guest).collect();
        self.daemon.send(&FromBody::Usage { cpu_us: cpu_ns / 1000, rss_bytes, runnable });
    }

    fn on_stop(&mut self, tid: i32, stop: Stop) -> Result<End> {
        match stop {
            Stop::Ended(_) => return Ok(self.on_end(tid)),
            Stop::Signal(number) => return self.on_signal(tid, number),
            Stop::Interrupted | Stop::Group(_) if self.is_held => {
                self.stopped.insert(tid);
            }
            _ => self.resume(tid, 0)?,
        }
        Ok(End::Continues)
    }

    fn on_end(&mut self, tid: i32) -> End {
        let mut state = self.shared.lock();
        state.threads.remove(&tid);
        self.stopped.remove(&tid);
        if state.threads.is_empty() {
            return End::Goes(reason("ended", "the body has ended"));
        }
        End::Continues
    }

    /// Lets a thread go on; that it may have been killed meanwhile is not an error.
    fn resume(&self, tid: i32, signal: i32) -> Result<()> {
        match tracee::resume(tid, signal) {
            Err(error) if !error.is_gone() => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn on_signal(&mut self, tid: i32, number: i32) -> Result<End> {
        let info = tracee::signal_info(tid)?;
        if signal::is_fault(number, &info) {
            return self.on_fault(tid, number, &info);
        }
        if self.is_held {
            self.stopped.insert(tid);
            return Ok(End::Continues);
        }
        let queued = {
            let mut state = self.shared.lock();
            let thread = state.threads.get_mut(&tid);
            thread.and_then(|t| {
                let at = t.signals.iter().position(|s| s.number == number)?;
                t.signals.remove(at)
            })
        };
        match queued {
            Some(signal) => self.deliver(tid, signal, None)?,
            // Nobody but home may signal the guest.
            None => self.resume(tid, 0)?,
        }
        Ok(End::Continues)
    }

    /// Gives a thread at a signal stop the signal as home described it.
    fn deliver(&mut self, tid: i32, signal: Signal, mask_after: Option<u64>) -> Result<()> {
        let number = signal.number;
        if self.is_action_unsettled(number) {
            let mut state = self.shared.lock();
            if let Some(thread) = state.threads.get_mut(&tid) {
                thread.signals.push_front(signal);
            }
            self.deferred.push_back((tid, number));
            return Ok(());
        }
        let mut info = [0; tracee::SIGINFO_BYTES];
        info.copy_from_slice(&signal.siginfo);
        tracee::set_signal_info(tid, &info)?;
        self.enter_handler(tid, number, mask_after)
    }

    /// True while the guest is just setting the disposition of this signal: home has it already,
    /// the body's kernel will in a moment.
    fn is_action_unsettled(&self, number: i32) -> bool {
        let state = self.shared.lock();
        state.threads.values().any(|thread| {
            thread.outstanding.as_ref().is_some_and(|o| {
                o.emulation == Some(wire::calls::Emulation::SignalAction)
                    && o.call.arguments[0] == number as u64
            })
        })
    }

    /// Lets the kernel build the handler's frame, and stops before the handler's first instruction.
    fn enter_handler(&mut self, tid: i32, number: i32, mask_after: Option<u64>) -> Result<()> {
        tracee::step(tid, number)?;
        match tracee::wait(tid)? {
            Stop::Ended(_) => {
                self.on_end(tid);
                return Ok(());
            }
            Stop::Signal(_) | Stop::Interrupted => {}
            other => ::tracing::debug!("thread {tid} at its handler: {other:?}"),
        }
        if let Some(mask) = mask_after {
            let sp = tracee::registers(tid)?.rsp;
            self.shared.memory.write(sp + FRAME_MASK_OFFSET, &mask.to_le_bytes())?;
        }
        let mut state = self.shared.lock();
        if let Some(action) = state.actions.get_mut(number as usize - 1)
            && action.flags & SA_RESETHAND != 0
        {
            *action = Action { handler: 0, ..*action };
        }
        drop(state);
        self.resume(tid, 0)
    }

    /// The guest's own fault: its handler runs here; without one it is death, which happens at
    /// home.
    fn on_fault(&mut self, tid: i32, number: i32, info: &[u8]) -> Result<End> {
        let mask = tracee::signal_mask(tid)?;
        let (action, guest) = {
            let state = self.shared.lock();
            let action = state.actions.get(number as usize - 1).copied().unwrap_or_default();
            (action, state.threads.get(&tid).map(|thread| thread.guest))
        };
        let Some(guest) = guest else { return Ok(End::Continues) };
        if action.is_handler() && mask & signal::bit(number) == 0 && !self.is_held {
            self.enter_handler(tid, number, None)?;
            let mask = action.mask_in_handler(number, mask);
            self.shared.send(&ToHome::MaskChanged { tid: guest, mask });
            return Ok(End::Continues);
        }
        self.stopped.insert(tid);
        if number == libc::SIGTRAP {
            // A trap is over when it is reported; all other faults happen again at home.
            let mut state = self.shared.lock();
            if let Some(thread) = state.threads.get_mut(&tid) {
                thread.signals.push_back(Signal {
                    tid: guest,
                    index: 0,
                    number,
                    siginfo: info.to_vec(),
                });
            }
        }
        let text = format!("signal {number} of its own making");
        self.leave(ToHome::NeedsHome(reason("fault", text)))
    }

    fn on_order(&mut self, order: Order) -> Result<End> {
        match order {
            Order::Home(message) => self.on_home(message),
            Order::NeedsHome(why) => self.leave(ToHome::NeedsHome(why)),
            Order::DeliverMasked { tid, id, result, mask } => {
                self.deliver_masked(tid, id, result, mask)?;
                Ok(End::Continues)
            }
            Order::ActionSettled => {
                for (tid, _) in std::mem::take(&mut self.deferred) {
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
            Order::LinkLost(error) => Ok(End::Goes(reason("link", error))),
        }
    }

    fn on_home(&mut self, message: ToAway) -> Result<End> {
        match message {
            ToAway::Stop => self.hold()?,
            ToAway::Continue => self.release_hold()?,
            ToAway::Recall => return self.leave(ToHome::Frozen),
            ToAway::MoveOn(berth) => return self.move_on(&berth),
            ToAway::Release => return Ok(End::Goes(reason("released", "home released it"))),
            other => {
                let text = format!("{other:?}").chars().take(40).collect::<String>();
                return Err(MigrateError::Protocol(format!("unexpected {text}")));
            }
        }
        Ok(End::Continues)
    }

    /// Delivers the signal that ended a call with a temporary mask: the handler runs under that
    /// mask, and what it returns to is the mask from before.
    fn deliver_masked(&mut self, tid: i32, id: u64, result: i64, mask: u64) -> Result<()> {
        tracee::interrupt(tid)?;
        self.shared.listener.reply(id, result);
        if !self.await_stop(tid)? {
            return Ok(());
        }
        let before = tracee::signal_mask(tid)?;
        tracee::set_signal_mask(tid, mask)?;
        let (first, rest) = {
            let mut state = self.shared.lock();
            let Some(thread) = state.threads.get_mut(&tid) else { return Ok(()) };
            let rest: Vec<i32> = thread.signals.iter().skip(1).map(|s| s.number).collect();
            (thread.signals.pop_front(), rest)
        };
        let Some(first) = first else {
            tracee::set_signal_mask(tid, before)?;
            return self.resume(tid, 0);
        };
        raise(&self.shared, tid, first.number);
        self.resume(tid, 0)?;
        match tracee::wait(tid)? {
            Stop::Signal(number) if number == first.number => {
                self.deliver(tid, first, Some(before))?;
            }
            Stop::Ended(_) => {
                self.on_end(tid);
            }
            other => ::tracing::warn!("thread {tid} got {other:?} instead of {}", first.number),
        }
        rest.into_iter().for_each(|number| raise(&self.shared, tid, number));
        Ok(())
    }

    /// Waits until an interrupted thread has stopped; false if it has ended.
    fn await_stop(&mut self, tid: i32) -> Result<bool> {
        loop {
            match tracee::wait(tid)? {
                Stop::Interrupted => return Ok(true),
                Stop::Ended(_) => {
                    self.on_end(tid);
                    return Ok(false);
                }
                // A placeholder: what it stands for is still queued, and is raised again.
                _ => tracee::resume_interrupted(tid, 0)?,
            }
        }
    }

    /// Job control: the body stands still while the process is stopped at home.
    fn hold(&mut self) -> Result<()> {
        self.is_held = true;
        let computing: Vec<i32> = {
            let state = self.shared.lock();
            state.threads.values().map(|t| t.local).collect()
        };
        for tid in computing {
            match tracee::interrupt(tid) {
                Err(error) if !error.is_gone() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn release_hold(&mut self) -> Result<()> {
        self.is_held = false;
        self.thaw()
    }

    /// Lets all stopped threads run; signals that were due are raised again.
    fn thaw(&mut self) -> Result<()> {
        for tid in std::mem::take(&mut self.stopped) {
            let numbers: Vec<i32> = {
                let state = self.shared.lock();
                let thread = state.threads.get(&tid).filter(|t| !t.is_between_calls());
                thread.map_or(vec![], |t| t.signals.iter().map(|s| s.number).collect())
            };
            numbers.into_iter().for_each(|number| raise(&self.shared, tid, number));
            self.resume(tid, 0)?;
        }
        Ok(())
    }

    /// Stops every thread, wherever it is. Calls that wait for home stay in flight there.
    fn freeze(&mut self) -> Result<()> {
        let mut waiting: HashSet<i32> = HashSet::new();
        {
            let mut state = self.shared.lock();
            state.is_frozen = true;
            for thread in state.threads.values_mut() {
                if !self.stopped.contains(&thread.local) {
                    waiting.insert(thread.local);
                }
            }
        }
        for tid in &waiting {
            match tracee::interrupt(*tid) {
                Err(error) if !error.is_gone() => return Err(error.into()),
                _ => {}
            }
        }
        self.answer_outstanding();
        let deadline = Instant::now() + FREEZE_TIMEOUT;
        loop {
            self.signals.drain();
            while let Some((tid, stop)) = tracee::poll_any()? {
                self.on_stop_while_freezing(tid, stop, &mut waiting)?;
            }
            if waiting.is_empty() {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = format!("{} threads of it do not stop", waiting.len());
                return Err(MigrateError::refused("uninterruptible", text));
            }
            self.signals.wait(left);
        }
    }

    /// Ends all notifications so that their threads can stop: each will make its call again.
    fn answer_outstanding(&self) {
        let mut state = self.shared.lock();
        for thread in state.threads.values_mut() {
            if let Some(id) = thread.parked.take() {
                self.shared.listener.reply(id, ERESTARTNOINTR);
            }
            if let Some(outstanding) = thread.outstanding.take() {
                self.shared.listener.reply(outstanding.id, ERESTARTNOINTR);
                thread.in_flight = Some(outstanding.call);
                thread.interrupted = outstanding.interrupted;
            }
        }
    }

    fn on_stop_while_freezing(
        &mut self,
        tid: i32,
        stop: Stop,
        waiting: &mut HashSet<i32>,
    ) -> Result<()> {
        match stop {
            Stop::Ended(_) => {
                self.on_end(tid);
                waiting.remove(&tid);
            }
            // A forwarded signal is still queued; a fault will happen again.
            Stop::Signal(_) | Stop::Interrupted | Stop::Group(_) => {
                waiting.remove(&tid);
                self.stopped.insert(tid);
            }
            Stop::Event(_) | Stop::Syscall => tracee::resume_interrupted(tid, 0)?,
        }
        Ok(())
    }

    /// Freezes the body and sends its image home.
    fn leave(&mut self, announcement: ToHome) -> Result<End> {
        if let Err(error) = self.freeze() {
            return self.stay(error.reason());
        }
        // Requests by several threads to go home are one.
        self.shared.send(&announcement);
        let fixed = Fixed { agent: &self.agent, library: &self.library, origin: &self.origin };
        let image = capture::image(&self.shared, &fixed)?;
        self.shared.send(&ToHome::Image(Box::new(image.clone())));
        capture::memory(&self.shared, &image, &mut |pages| {
            self.shared.send(&ToHome::Pages(pages));
            Ok(())
        })?;
        self.shared.send(&ToHome::ImageSent);
        self.await_verdict()
    }

    /// The body stays and goes on; home is told why.
    fn stay(&mut self, why: Reason) -> Result<End> {
        self.shared.send(&ToHome::Stayed(why));
        self.go_on()?;
        Ok(End::Continues)
    }

    fn go_on(&mut self) -> Result<()> {
        self.shared.lock().is_frozen = false;
        if self.is_held { Ok(()) } else { self.thaw() }
    }

    /// A frozen body waits to be released, or told to go on.
    fn await_verdict(&mut self) -> Result<End> {
        let deadline = Instant::now() + VERDICT_TIMEOUT;
        loop {
            let _ = self.shared.wake.read();
            while let Some(order) = self.shared.next_order() {
                match order {
                    Order::Home(ToAway::Release) => {
                        return Ok(End::Goes(reason("released", "it lives elsewhere now")));
                    }
                    Order::Home(ToAway::Resume) => {
                        self.go_on()?;
                        return Ok(End::Continues);
                    }
                    Order::Home(ToAway::Stop) => self.is_held = true,
                    Order::Home(ToAway::Continue) => self.is_held = false,
                    Order::LinkLost(error) => return Ok(End::Goes(reason("link", error))),
                    // Overtaken: the image that home has says it all.
                    _ => {}
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(End::Goes(reason("link", "home did not answer")));
            }
            let mut watched = [PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN)];
            let ms = PollTimeout::try_from(left.as_millis() as i32).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut watched, ms);
        }
    }

    /// Sends the body to another node directly; home decides when that node may run it.
    fn move_on(&mut self, berth: &Berth) -> Result<End> {
        let mut link = match self.offer_to(berth) {
            Ok(link) => link,
            Err(error) => {
                self.shared.send(&ToHome::Stayed(error.reason()));
                return Ok(End::Continues);
            }
        };
        let frozen_at = Instant::now();
        if let Err(error) = self.freeze() {
            return self.stay(error.reason());
        }
        match self.send_image(&mut link) {
            Ok(bytes_sent) => {
                let freeze_began_us_ago = frozen_at.elapsed().as_micros() as u64;
                self.shared.send(&ToHome::MovedOn { bytes_sent, freeze_began_us_ago });
                self.await_verdict()
            }
            Err(error) => self.stay(error.reason()),
        }
    }

    /// Everything that can be done before the body is stopped.
    fn offer_to(&self, berth: &Berth) -> Result<Link> {
        let mut link = link::connect(berth, Role::Image)?;
        let (monotonic, boot) = kernel::features::clocks_ns();
        let offset = self.shared.clock_offset_ns;
        let prospect = wire::image::Prospect {
            backings: self.library.descriptions(),
            clocks_ns: (monotonic + offset, boot + offset),
            machine: migrate::machine::probe()?,
            ..self.prospect.clone()
        };
        migrate::offer::offer(&mut link, prospect, &self.library)?;
        Ok(link)
    }

    fn send_image(&self, (reader, writer): &mut Link) -> Result<u64> {
        let fixed = Fixed { agent: &self.agent, library: &self.library, origin: &self.origin };
        let image = capture::image(&self.shared, &fixed)?;
        writer.send(&ToAway::Image(Box::new(image.clone())))?;
        capture::memory(
            &self.shared,
            &image,
            &mut |pages| Ok(writer.send(&ToAway::Pages(pages))?),
        )?;
        writer.send(&ToAway::ImageSent)?;
        match reader.receive()? {
            ToHome::Restored => Ok(writer.bytes_sent()),
            ToHome::Refused(why) => Err(MigrateError::Refused(why)),
            _ => Err(MigrateError::Protocol("no answer to the image".into())),
        }
    }
}

impl Drop for Tracing<'_> {
    fn drop(&mut self) {
        // The reading thread of the link ends with it; the sandbox ends when it is dropped.
        if let Ok(writer) = self.shared.writer.lock() {
            writer.close();
        }
        ::tracing::debug!("body {} leaves sandbox {}", self.shared.pid, self.sandbox.init_pid);
    }
}
