//! What the thread does to which a sandbox's init belongs: it chooses ids for all bodies of the
//! sandbox, and keeps that until the last of them is gone ([`crate::family`]).

use crate::daemon::Daemon;
use crate::family::Family;
use crate::new_processes::DEPUTY_TIMEOUT;
use crate::tracing_loop::Tracing;
use kernel::child_signal::ChildSignal;
use kernel::patience::Patience;
use kernel::sandbox::Sandbox;
use kernel::tracee::{self, Stop};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};
use wire::supervisor::ToBody;

/// A process that is killed ends at once, unless the kernel keeps it.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// What is missed is found then.
const LOOK_INTERVAL_MS: u16 = 1000;
/// Between two looks at an init that may have stopped, and whether a task may be made by now.
const GLANCE_INTERVAL_MS: u16 = 1;

/// How long a birth is waited for that should take some milliseconds.
const BIRTH_PATIENCE: Duration = Duration::from_millis(100);

impl Tracing<'_> {
    /// The first body of a sandbox stays until what was made there has been called by its deputy:
    /// if the daemon ends meanwhile, the next knows this body alone. The owner of the node does not
    /// wait for that.
    pub(crate) fn await_births(&self) -> migrate::Result<()> {
        let patience = if self.unwanted_since.is_some() { Duration::ZERO } else { BIRTH_PATIENCE };
        let is_first = self.sandbox.is_some();
        if !is_first || self.shared.family.let_first_leave(patience) || patience.is_zero() {
            return Ok(());
        }
        let text = "a process that it has made waits for its home; try again";
        Err(migrate::MigrateError::refused("new-process", text))
    }

    /// Keeps all other bodies of the sandbox from making tasks. Meanwhile the keeper does for them
    /// what they need for that.
    pub(crate) fn begin_making<'f>(&self, family: &'f Family) -> MutexGuard<'f, i32> {
        if self.sandbox.is_none() {
            return family.begin_making();
        }
        loop {
            if let Some(guard) = family.try_begin_making() {
                return guard;
            }
            self.grant_wishes();
            let mut watched = [PollFd::new(family.wake().as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut watched, PollTimeout::from(GLANCE_INTERVAL_MS));
        }
    }

    /// Has the next task that is made in the sandbox get this id.
    ///
    /// # Errors
    /// If this machine does not let ids be chosen, or the init does not stop.
    pub(crate) fn choose_next_tid(&self, tid: i32) -> kernel::Result<()> {
        match &self.sandbox {
            Some(sandbox) => sandbox.choose_next_tid(tid),
            None => self.shared.family.choose_next_tid(tid),
        }
    }

    /// Whether this is the init of the sandbox, which belongs to this thread.
    pub(crate) fn is_init(&self, tid: i32) -> bool {
        let init = self.sandbox.as_ref().and_then(|sandbox| sandbox.init.as_ref());
        init.is_some_and(|init| init.0 == tid)
    }

    /// Does what other bodies need of the keeper, if this is it.
    pub(crate) fn grant_wishes(&self) {
        if let Some(sandbox) = &self.sandbox {
            let family = &self.shared.family;
            grant(family, sandbox);
            answer_offers(family, self.daemon);
        }
    }

    /// Ends the body. The sandbox ends with the last; if this thread has it and others live in it
    /// still, it is returned.
    pub(crate) fn end(mut self) -> Option<Sandbox> {
        let (family, pid) = (self.shared.family.clone(), self.shared.pid);
        let guest = self.shared.guest_pid;
        let ended = || {
            end_process(pid);
            family.round().iter().for_each(|round| round.departs(guest));
        };
        // Whatever it ends by, and wherever: so much of its time was used away.
        let used = self.shared.lock().meter.away();
        family.note_end(self.shared.guest_pid, used);
        let sandbox = self.sandbox.take();
        if sandbox.is_some() {
            family.first_ends();
        }
        drop(self);
        match sandbox {
            Some(sandbox) if family.shrink() > 0 => {
                ended();
                Some(sandbox)
            }
            // All of it ends now.
            Some(_) => None,
            None => {
                ended();
                None
            }
        }
    }
}

fn grant(family: &Family, sandbox: &Sandbox) {
    while let Some(wish) = family.next_wish() {
        let outcome = sandbox.choose_next_tid(wish.tid);
        wish.answer(outcome);
    }
}

/// Keeps a sandbox until its last body is gone.
pub(crate) fn keep(family: &Family, sandbox: Sandbox, signals: Option<&ChildSignal>) {
    tend(family, &sandbox, signals, &mut || {
        // No daemon knows this supervisor any more.
        std::iter::from_fn(|| family.next_offer()).for_each(|offer| offer.answer(false));
        if family.count() > 0 { ControlFlow::Continue(None) } else { ControlFlow::Break(()) }
    });
}

/// Keeps it until what the first body has made, which has ended, has been called by its deputies:
/// if the daemon ends meanwhile, the next knows that body alone, and is offered what it does not
/// know. A daemon that wants its guests gone does not wait for that.
pub(crate) fn keep_for_births(
    daemon: &Daemon,
    family: &Family,
    sandbox: &Sandbox,
    signals: Option<&ChildSignal>,
) {
    let deadline = Instant::now() + DEPUTY_TIMEOUT;
    tend(family, sandbox, signals, &mut || {
        // All other orders are for a body that has ended.
        while let Ok(Some(order)) = daemon.hear() {
            if matches!(order, ToBody::SendHome) {
                return ControlFlow::Break(());
            }
        }
        answer_offers(family, daemon);
        match family.awaits_deputies() && Instant::now() < deadline && !daemon.is_abandoned() {
            true => ControlFlow::Continue(daemon.socket()),
            false => ControlFlow::Break(()),
        }
    });
}

fn answer_offers(family: &Family, daemon: &Daemon) {
    while let Some(offer) = family.next_offer() {
        let is_told = daemon.hand_over(&offer.word, &offer.socket);
        offer.answer(is_told);
    }
}

/// Does what bodies need of the sandbox's keeper, for as long as `look` says; the socket that it
/// names has news for it.
fn tend(
    family: &Family,
    sandbox: &Sandbox,
    signals: Option<&ChildSignal>,
    look: &mut dyn FnMut() -> ControlFlow<(), Option<Rc<OwnedFd>>>,
) {
    loop {
        let _ = family.wake().read();
        grant(family, sandbox);
        let ControlFlow::Continue(socket) = look() else { return };
        signals.inspect(|signals| signals.drain());
        while let Ok(Some((tid, stop))) = tracee::poll_any() {
            // The first body has ended; what there is of its threads may end as well.
            if resume_init(tid, stop).is_err() {
                return;
            }
        }
        let mut watched = vec![PollFd::new(family.wake().as_fd(), PollFlags::POLLIN)];
        watched.extend(signals.map(|signals| PollFd::new(signals.as_fd(), PollFlags::POLLIN)));
        watched.extend(socket.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
        let _ = poll(&mut watched, PollTimeout::from(LOOK_INTERVAL_MS));
    }
}

/// Lets an init go on that has stopped, whatever for: it ignores everything.
pub(crate) fn resume_init(tid: i32, stop: Stop) -> kernel::Result<()> {
    match stop {
        Stop::Ended(_) => Ok(()),
        _ => match tracee::resume(tid, 0) {
            Err(error) if !error.is_gone() => Err(error),
            _ => Ok(()),
        },
    }
}

/// Ends a process that this thread traces, and sees it end.
pub(crate) fn end_process(pid: i32) {
    kill(pid);
    let _limit = Patience::of(END_TIMEOUT);
    // Its first thread ends last, when the ends of all others have been waited for.
    while let Ok((tid, stop)) = tracee::wait_any() {
        let has_ended = tid == pid && matches!(stop, Stop::Ended(_));
        if has_ended || resume_init(tid, stop).is_err() {
            return;
        }
    }
}

pub(crate) fn kill(pid: i32) {
    let pid = nix::unistd::Pid::from_raw(pid);
    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
}
