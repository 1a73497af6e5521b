//! Stopping the body, and sending it home.

use crate::capture;
use crate::direct_files;
use crate::group::{Gathered, Membership, is_called};
use crate::homing::Homeward;
use crate::keeper::resume_init;
use crate::moving_on::{Successor, Word};
use crate::state::{Order, Thread};
use crate::tracing_loop::{End, Tracing};
use kernel::haste::Haste;
use kernel::patience::Patience;
use kernel::proc::flags;
use kernel::proc::maps::Mapping;
use kernel::regs::ERESTARTNOINTR;
use kernel::tracee::{self, Stop};
use migrate::{MigrateError, Result, reason};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::forward::{ToAway, ToHome};
use wire::image::{Image, Span};
use wire::limits::HELD_MAX;
use wire::memory_group::GROUP;
use wire::supervisor::{ELSEWHERE, MoveReport, Reason};

/// Between a homecoming that failed and the next that nobody at home has asked for: first and at
/// most. Each costs the transfer of the whole body.
pub(crate) const HOMECOMING_PAUSE: Duration = Duration::from_millis(100);
const HOMECOMING_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Between two looks whether memory is shared still with a process that begins another program.
const MEMORY_PAUSE: Duration = Duration::from_millis(5);
/// After so many homecomings in a row that failed, about a minute, a call that needs one ends with
/// ENOMEM: home has no room for the process, and would have none for what the call asks for.
const HOMECOMINGS_MAX: u32 = 10;
/// Threads of a body stop at once, or the kernel keeps one.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(5);
/// The same, and between two attempts, where the owner of the node wants the body gone.
const UNWANTED_FREEZE_TIMEOUT: Duration = Duration::from_secs(1);
/// A body that could not be stopped or read for so long since then is ended: its node is its
/// owner's, and there is nothing left that could be tried.
const UNWANTED_TIMEOUT: Duration = Duration::from_secs(10);
/// Reading what the kernel keeps for the threads of a body: microseconds for each.
const CAPTURE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a frozen body waits for the verdict on its move before it is given up with its home.
/// The link to home is mostly given up before.
pub(crate) const VERDICT_TIMEOUT: Duration = Duration::from_secs(link::LOSS_TIMEOUT.as_secs() + 30);
impl Tracing<'_> {
    /// Stops every thread, wherever it is. Calls that wait for home stay in flight there.
    pub(crate) fn freeze(&mut self) -> Result<()> {
        self.await_births()?;
        let mut waiting: HashSet<i32> = HashSet::new();
        {
            let mut state = self.shared.lock();
            state.check_makes_no_process()?;
            state.is_frozen = true;
            state.is_interrupted = false;
            for thread in state.threads.values_mut() {
                if !self.stopped.contains(&thread.local) {
                    waiting.insert(thread.local);
                }
            }
        }
        let is_unwanted = self.unwanted_since.is_some();
        let patience = if is_unwanted { UNWANTED_FREEZE_TIMEOUT } else { FREEZE_TIMEOUT };
        direct_files::leave(&self.shared, Instant::now() + patience)?;
        self.finish_deliveries()?;
        self.haste = Haste::of(self.shared.pid, waiting.iter().copied());
        for tid in &waiting {
            match tracee::interrupt(*tid) {
                Err(error) if !error.is_gone() => return Err(error.into()),
                _ => {}
            }
        }
        self.answer_outstanding();
        self.await_stops(waiting, Instant::now() + patience)?;
        // What was ordered before may have made a process.
        self.shared.lock().check_makes_no_process()
    }

    /// One after another, because all have to stop; the first thread last, because its end is
    /// reported when that of the others was.
    fn await_stops(&mut self, mut waiting: HashSet<i32>, deadline: Instant) -> Result<()> {
        let late = |waiting: &HashSet<i32>| {
            let text = format!("{} threads of it do not stop", waiting.len());
            Err(MigrateError::refused("uninterruptible", text))
        };
        let first = self.shared.pid;
        while let Some(tid) = waiting.iter().copied().find(|tid| *tid != first) {
            match tracee::wait_other_until(tid, deadline) {
                Ok(Some(stop)) => self.on_stop_while_freezing(tid, stop, &mut waiting)?,
                Ok(None) => return late(&waiting),
                Err(error) if error.source.raw_os_error() == Some(libc::ECHILD) => {
                    self.on_stop_while_freezing(tid, Stop::Ended(0), &mut waiting)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
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
                return late(&waiting);
            }
            self.signals.wait(left);
        }
    }

    /// Signals whose delivery was ordered already: their threads are in no call that could be
    /// answered. No further such order can come, because replies are dropped from now on.
    fn finish_deliveries(&mut self) -> Result<()> {
        let mut orders = Vec::new();
        while let Some(order) = self.shared.next_order() {
            orders.push(order);
        }
        for order in orders {
            match order {
                Order::DeliverMasked { tid, id, result, mask } => {
                    self.deliver_masked(tid, id, result, mask)?;
                }
                Order::Agree { tid, id, agreement } => self.begin_to_agree(tid, id, agreement)?,
                Order::MapFile { tid, id, file, how } => {
                    self.begin_to_map((tid, id), &file, how)?;
                }
                other => self.shared.order(other),
            }
        }
        Ok(())
    }

    /// Ends all notifications so that their threads can stop: each will make its call again.
    pub(crate) fn answer_outstanding(&self) {
        let mut state = self.shared.lock();
        state.is_interrupted = true;
        for thread in state.threads.values_mut() {
            for id in [thread.parked.take(), thread.awaits_file.take()].into_iter().flatten() {
                self.shared.listener.reply(id, ERESTARTNOINTR);
            }
            if let Some((id, ..)) = thread.fetching.take() {
                self.shared.listener.reply(id, ERESTARTNOINTR);
            }
            if let Some(outstanding) = thread.outstanding.take() {
                self.shared.listener.reply(outstanding.id, ERESTARTNOINTR);
                thread.in_flight = Some(outstanding.call);
                // Should it come back to the call here.
                thread.continued_wait_ns = thread.wait_until_ns;
                thread.interrupted = outstanding.interrupted;
            }
        }
    }

    pub(crate) fn on_stop_while_freezing(
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
            stop if self.is_init(tid) => resume_init(tid, stop)?,
            _ if self.agreeing.contains_key(&tid) => {
                if self.on_stop_towards_agreement(tid, stop)? {
                    waiting.remove(&tid);
                    if !self.shared.lock().stands_still(tid) {
                        self.stopped.insert(tid);
                    }
                }
            }
            // It is waited for, and stops for that next: a breakpoint does not happen again.
            Stop::Interrupted if tracee::has_fault_pending(tid)? => tracee::resume(tid, 0)?,
            Stop::Signal(_) | Stop::Interrupted | Stop::Group(_) => {
                if let Stop::Signal(number) = stop {
                    self.on_signal_while_freezing(tid, number)?;
                }
                waiting.remove(&tid);
                self.stopped.insert(tid);
            }
            Stop::Event(tracee::CALL_EVENT) => self.translate_deadline(tid, true)?,
            Stop::Event(_) | Stop::Syscall => {
                self.restore_deadline(tid)?;
                tracee::resume_interrupted(tid, 0)?;
            }
        }
        Ok(())
    }

    /// Goes home for what cannot be done here; not at once if home could not take it in just now.
    pub(crate) fn need_home(&mut self, why: Reason) -> Result<End> {
        if self.awaits_pages {
            self.waiting_for_pages.push(Order::NeedsHome(why));
            return Ok(End::Continues);
        }
        if self.awaits_verdict || Instant::now() < self.next_homecoming {
            self.homesick = Some(why);
            return Ok(End::Continues);
        }
        if self.unwanted_since.is_none() && self.waits_with_homecoming() {
            self.next_homecoming = Instant::now() + MEMORY_PAUSE;
            self.homesick = Some(why);
            return Ok(End::Continues);
        }
        if self.failed_homecomings >= HOMECOMINGS_MAX && self.end_parked_calls() {
            // The next one is tried once more.
            self.failed_homecomings = HOMECOMINGS_MAX - 1;
            ::tracing::warn!("body of {}: ENOMEM for: {}", self.shared.guest_pid, why.text);
            return Ok(End::Continues);
        }
        self.go_home(ToHome::NeedsHome(why), Default::default())
    }

    /// Ends the calls that wait for a homecoming; false if there are none.
    fn end_parked_calls(&self) -> bool {
        let mut state = self.shared.lock();
        let parked: Vec<u64> = state.threads.values_mut().filter_map(|t| t.parked.take()).collect();
        for id in &parked {
            self.shared.listener.reply(*id, -i64::from(libc::ENOMEM));
        }
        !parked.is_empty()
    }

    /// Freezes the body and sends its image home, of which home may have something already.
    pub(crate) fn leave(&mut self, announcement: ToHome, homeward: Homeward) -> Result<End> {
        let membership = match self.gather(&announcement) {
            Ok(Gathered::Alone) => None,
            Ok(Gathered::With(membership)) => Some(membership),
            Ok(Gathered::Over) => {
                self.origin = homeward.origin;
                return Ok(End::Continues);
            }
            Err(error) => {
                self.origin = homeward.origin;
                return self.leave_later(announcement, error.reason());
            }
        };
        self.homesick = None;
        let end = self.try_to_leave(announcement, homeward, membership.as_ref())?;
        if matches!(end, End::Continues) {
            let is_own = membership.as_ref().is_none_or(Membership::stay);
            self.failed_homecomings += u32::from(is_own);
            // What needs home will ask again at once.
            self.next_homecoming = Instant::now() + self.homecoming_pause;
            self.homecoming_pause = (self.homecoming_pause * 2).min(HOMECOMING_PAUSE_MAX);
            // But for the owner of the node, who has asked once.
            self.homesick = self.unwanted_since.map(|_| unwanted());
        }
        Ok(end)
    }

    /// It cannot leave at this moment: a homecoming that home has asked for is off.
    fn leave_later(&mut self, announcement: ToHome, why: Reason) -> Result<End> {
        self.next_homecoming = Instant::now() + MEMORY_PAUSE;
        let is_called = is_called(&announcement);
        match announcement {
            ToHome::NeedsHome(needed) if !is_called || self.homesick.is_none() => {
                self.homesick = Some(needed);
            }
            ToHome::NeedsHome(_) => {}
            // What has needed home meanwhile asks again.
            _ => return self.stay(why),
        }
        Ok(End::Continues)
    }

    fn try_to_leave(
        &mut self,
        announcement: ToHome,
        homeward: Homeward,
        membership: Option<&Membership>,
    ) -> Result<End> {
        let known = self.known_maps();
        let captured = self.freeze().and_then(|()| {
            self.shared.close_files();
            // Requests by several threads to go home are one. Home stops what its threads do for
            // the body meanwhile.
            self.shared.send(announcement);
            self.lead_out(true)?;
            // Before any of its memory is read, which others may still write to.
            membership.map_or(Ok(()), |it| self.await_standstill(it))?;
            self.capture(&known)
        });
        let image = match captured {
            Ok(image) => image,
            Err(error) if is_broken(&error) => return Err(error),
            Err(error) => {
                // Home has at most heard that the body leaves, and has given nothing up for it.
                self.origin = homeward.origin;
                return match error.reason() {
                    // It could leave itself.
                    why if why.code == GROUP => self.stay(why),
                    why => self.stay_unless_unwanted(why),
                };
            }
        };
        let (head, parts) = image.clone().into_parts();
        self.shared.send(ToHome::Image(Box::new(head)));
        parts.into_iter().for_each(|part| self.shared.send(ToHome::Threads(part)));
        let is_known = homeward.ahead.is_some() || homeward.origin.is_some();
        if is_known {
            let report = homeward.rounds.tell(0, MoveReport::default());
            self.shared.send(ToHome::AsksHeld(Box::new(report)));
        }
        // Home looks for what it has meanwhile.
        let seen = self.see_memory(&image, homeward, membership);
        let held = match if is_known { self.await_held()? } else { Held::At(vec![]) } {
            Held::At(spans) => spans,
            Held::Nobody(end) => return Ok(end),
        };
        let sent = seen.and_then(|seen| self.send_memory(&image, seen, &held));
        if let Err(error) = sent {
            // Home has not heard the end of it, and so does not run it.
            return self.stay_unless_unwanted(error.reason());
        }
        self.shared.send(ToHome::ImageSent { awaits_others: membership.is_some() });
        if let Some(membership) = membership
            && let Some(end) = self.await_group(membership)?
        {
            return Ok(end);
        }
        self.await_verdict(None)
    }

    /// Home's answer: the memory that it has as it was when the process left, or as it was sent.
    fn await_held(&mut self) -> Result<Held> {
        let mut held = Vec::new();
        let deadline = Instant::now() + VERDICT_TIMEOUT;
        loop {
            let _ = self.shared.wake.read();
            while let Some(order) = self.shared.next_order() {
                match order {
                    Order::Home(ToAway::Holds { spans, is_last }) => {
                        held.extend(spans);
                        if held.len() > HELD_MAX {
                            return Ok(Held::Nobody(End::Goes(reason(
                                "link",
                                "home holds too much",
                            ))));
                        }
                        if is_last {
                            return Ok(Held::At(held));
                        }
                    }
                    order => {
                        if let Some(end) = self.obey_frozen(order)? {
                            return Ok(Held::Nobody(end));
                        }
                    }
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Held::Nobody(End::Goes(reason("link", "home did not answer"))));
            }
            let wake = PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN);
            let ms = PollTimeout::try_from(left.as_millis() as i32 + 1).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut [wake], ms);
        }
    }

    /// What a frozen body that has said that it leaves does for an order; what has become of it
    /// then, if that is known.
    pub(crate) fn obey_frozen(&mut self, order: Order) -> Result<Option<End>> {
        match order {
            Order::Home(ToAway::Release) => {
                return Ok(Some(End::Goes(reason(ELSEWHERE, "it lives elsewhere now"))));
            }
            Order::Home(ToAway::Resume) => {
                self.go_on()?;
                return Ok(Some(End::Continues));
            }
            Order::Home(ToAway::Stop) => self.is_held = true,
            Order::Home(ToAway::Continue) => self.is_held = false,
            Order::LinkLost(error) => return Ok(Some(End::Goes(reason("link", error)))),
            // Overtaken: the image that home has says it all.
            _ => {}
        }
        Ok(None)
    }

    /// Everything but the contents of its memory. The body is frozen.
    pub(crate) fn capture(&self, known: &[Mapping]) -> Result<Image> {
        let _limit = Patience::of(CAPTURE_TIMEOUT);
        let advised = self.shared.was_advised.load(Ordering::SeqCst);
        let known = if advised { &[] } else { known };
        capture::image(&self.shared, &self.fixed, &self.agent, known)
    }

    /// Its mappings, read before it is stopped: for their flags the kernel counts all its pages.
    pub(crate) fn known_maps(&self) -> Vec<Mapping> {
        flags::read_maps_aside(self.shared.pid).unwrap_or_default()
    }

    /// The body cannot leave now, for a reason that lies here.
    fn stay_unless_unwanted(&mut self, why: Reason) -> Result<End> {
        match self.unwanted_since {
            Some(since) if since.elapsed() >= UNWANTED_TIMEOUT => {
                let text = format!(
                    "the owner of its node wanted it gone, and it could not be sent home: {}",
                    why.text
                );
                Err(MigrateError::refused(UNWANTED, text))
            }
            _ => self.stay(why),
        }
    }

    /// The body stays and goes on; home is told why.
    pub(crate) fn stay(&mut self, why: Reason) -> Result<End> {
        self.shared.send(ToHome::Stayed(why));
        self.go_on()?;
        Ok(End::Continues)
    }

    pub(crate) fn go_on(&mut self) -> Result<()> {
        self.shared.reopen_files();
        let parked: Vec<(i32, u64)> = {
            let mut state = self.shared.lock();
            (state.is_frozen, state.is_interrupted) = (false, false);
            let waits = |t: &mut Thread| Some((t.local, t.parked.take().or(t.awaits_file.take())?));
            state.threads.values_mut().filter_map(waits).collect()
        };
        // There are some if freezing failed halfway.
        for (tid, id) in parked {
            match tracee::interrupt(tid) {
                Err(error) if !error.is_gone() => return Err(error.into()),
                _ => self.shared.listener.reply(id, ERESTARTNOINTR),
            };
        }
        if self.is_held { Ok(()) } else { self.thaw() }
    }

    /// A frozen body waits to be released, or told to go on: by its home or, where it was sent to
    /// another node, by that node.
    pub(crate) fn await_verdict(&mut self, mut successor: Option<Successor>) -> Result<End> {
        let deadline = Instant::now() + VERDICT_TIMEOUT;
        loop {
            let _ = self.shared.wake.read();
            while let Some(order) = self.shared.next_order() {
                if let Some(end) = self.obey_frozen(order)? {
                    return Ok(end);
                }
            }
            match successor.as_mut().map(Successor::poll) {
                Some(Word::GivesBack) => {
                    // Home, once it hears of the move, finds nothing to run there and says so.
                    self.awaits_verdict = true;
                    self.go_on()?;
                    return Ok(End::Continues);
                }
                Some(Word::Gone) => successor = None,
                Some(Word::Silent) | None => {}
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(End::Goes(reason("link", "home did not answer")));
            }
            let next = successor.as_ref().and_then(|s| s.call_back_at).unwrap_or(deadline);
            let left = next.min(deadline).saturating_duration_since(now);
            let wake = PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN);
            let ms = PollTimeout::try_from(left.as_millis() as i32 + 1).unwrap_or(PollTimeout::MAX);
            let _ = match &successor {
                Some(Successor { link: (reader, _), .. }) => {
                    poll(&mut [wake, PollFd::new(reader.as_fd(), PollFlags::POLLIN)], ms)
                }
                None => poll(&mut [wake], ms),
            };
        }
    }
}

/// Home's answer to a body that asks what it need not send.
enum Held {
    At(Vec<Span>),
    /// There is nobody to send anything to; what becomes of the body.
    Nobody(End),
}

/// Code of the reason of a body that its node's owner wants gone.
const UNWANTED: &str = "drained";

/// Why a body goes home that the owner of its node wants gone.
pub(crate) fn unwanted() -> Reason {
    reason(UNWANTED, "the node asked it to leave")
}

/// True if a thread was left in the middle of something that we made it do: nothing can be said of
/// the body any more.
pub(crate) fn is_broken(error: &MigrateError) -> bool {
    matches!(error, MigrateError::Kernel(error) if error.is_timeout() || error.is_fault())
}
