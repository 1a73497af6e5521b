//! Sending the body on to another node: the offer, the move, and what the next node says until home
//! has decided which of the two lives.

use crate::arrival::Link;
use crate::capture::{self, Fixed};
use crate::leaving::is_broken;
use crate::state::{Order, Shared};
use crate::tracing_loop::{End, Tracing};
use kernel::proc::pagemap::{Pagemap, Run};
use kernel::proc::{maps, process};
use kernel::tracking::{Claim, Tracking};
use migrate::ahead::{self, Ahead, Target};
use migrate::backing::Library;
use migrate::copying::Copying;
use migrate::kept::{self, Origin};
use migrate::offer::Offerer;
use migrate::outflow::Outflow;
use migrate::rounds::Rounds;
use migrate::stopwatch::{Stopwatch, micros};
use migrate::{MigrateError, Result, reason};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::cell::Cell;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::forward::{ToAway, ToHome};
use wire::freeze_budget::FreezeBudget;
use wire::image::Prospect;
use wire::limits::{DISCARDS_MAX, HELD_MAX};
use wire::move_limits::MoveLimits;
use wire::supervisor::{Berth, MoveReport, Progress, Reason, Role};

/// How long it waits before the node that it was sent to is asked to give it back, if that is not
/// its home: that node can always say whether home has had it run there, and home may be out of
/// reach of both.
const HOME_PATIENCE: Duration = Duration::from_secs(1);

/// Between two words about how far it is.
pub(crate) const PROGRESS_PAUSE: Duration = Duration::from_millis(250);

impl Tracing<'_> {
    /// Offers the body to another node. It runs on until that has answered, with all its signals
    /// and stops: so somebody else waits for the answer.
    pub(crate) fn offer_to(&mut self, berth: Berth, (budget, limits): (FreezeBudget, MoveLimits)) {
        let mut watch = Stopwatch::start();
        let number = self.call_off_moves();
        self.is_parting = true;
        let (shared, fixed) = (self.shared.clone(), self.fixed.clone());
        let prospect = Prospect { is_kept: self.origin.is_some(), ..self.prospect.clone() };
        self.spawn_mover("offer", move || {
            // It may grow while the next node is asked.
            let library = fixed.library().clone();
            let outcome = offer(&berth, prospect, &library);
            watch.phase("offer");
            let rounds = Rounds::within(budget);
            let files = library.len();
            let outcome = outcome.map(|(link, remembers)| {
                Box::new(Offered { berth, link, remembers, limits, rounds, watch, files })
            });
            shared.order(Order::Offered { number, outcome });
        });
    }

    /// What was begun for a move has no effect any more; returns the number of the next.
    pub(crate) fn call_off_moves(&mut self) -> u64 {
        self.is_parting = false;
        self.moves.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Home has called the move off, of which it may have heard the end by now.
    pub(crate) fn call_off(&mut self, why: Reason) {
        if self.is_parting {
            self.call_off_moves();
            self.shared.send(ToHome::Stayed(why));
        }
    }

    /// What is left of a move that did not get to its freeze.
    fn stay_unfrozen(&mut self, why: Reason) {
        self.is_parting = false;
        self.shared.send(ToHome::Stayed(why));
    }

    /// True for the number of the last move that was begun, unless that is off.
    pub(crate) fn is_current_move(&self, number: u64) -> bool {
        self.moves.load(Ordering::SeqCst) == number
    }

    fn spawn_mover(&mut self, name: &str, work: impl FnOnce() + Send + 'static) {
        if let Err(error) = std::thread::Builder::new().name(name.into()).spawn(work) {
            let text = format!("cannot move it to another node: {error}");
            self.stay_unfrozen(reason("no-thread", text));
        }
    }

    /// Has the node that takes the body make its memory, and most of what is in it, while it runs.
    pub(crate) fn copy_ahead(&mut self, number: u64, offered: Result<Box<Offered>>) -> Result<End> {
        let mut offered = match offered {
            Ok(offered) => *offered,
            Err(error) => {
                self.stay_unfrozen(error.reason());
                return Ok(End::Continues);
            }
        };
        let resident = process::resident_bytes(self.shared.pid).unwrap_or(0);
        let tracking = self.tracking.clone().filter(|_| resident >= ahead::BYTES_MIN);
        let mut unseen = vec![];
        if let Some(tracking) = &tracking {
            match self.watch_memory(tracking) {
                Ok(runs) => {
                    unseen = runs;
                    offered.watch.phase("track");
                }
                Err(error) if is_broken(&error) => return Err(error),
                Err(error) => {
                    self.is_parting = false;
                    return self.stay(error.reason());
                }
            }
        }
        // Its rounds begin anew what is told of writes: should it stay, that is not known any more.
        let origin = self.origin.take();
        let (shared, fixed, moves) = (self.shared.clone(), self.fixed.clone(), self.moves.clone());
        let is_wanted = move || match moves.load(Ordering::SeqCst) == number {
            true => Ok(()),
            false => Err(MigrateError::refused("called-off", "it is not wanted any more")),
        };
        // Here: that thread may be slower than what is begun after the move was called off.
        let claim = tracking.as_ref().map(Tracking::claim);
        self.spawn_mover("ahead", move || {
            let outcome = copy(&shared, &fixed, (claim, &unseen), &mut offered, &is_wanted);
            let outcome = outcome
                .map(|(ahead, outflow)| Box::new(Onward { offered, ahead, outflow, origin }));
            shared.order(Order::Copied { number, outcome });
        });
        Ok(End::Continues)
    }

    /// Has all writes to the body's memory be seen from now on. It stands still for that, so that
    /// no mapping is watched in part. Returns where they were not seen so far, or are forgotten.
    pub(crate) fn watch_memory(&mut self, tracking: &Tracking) -> Result<Vec<Run>> {
        let pid = self.shared.pid;
        let outcome = self
            .freeze()
            .and_then(|()| kept::begin_anew(tracking, &Pagemap::open(pid)?, &maps::read(pid)?));
        if outcome.is_err() && !tracking.begins_with_walks() {
            // What was seen may be forgotten.
            self.origin = None;
        }
        let unseen = outcome?;
        self.go_on()?;
        Ok(unseen)
    }

    /// Sends the body to the node that takes it; home decides when that may run it.
    pub(crate) fn move_on(&mut self, copied: Result<Box<Onward>>) -> Result<End> {
        self.is_parting = false;
        let Onward { offered, ahead, mut outflow, origin } = match copied {
            Ok(onward) => *onward,
            Err(error) => {
                self.shared.send(ToHome::Stayed(error.reason()));
                return Ok(End::Continues);
            }
        };
        let Offered { mut link, rounds, mut watch, files, .. } = offered;
        if let Err(error) = check_files(&self.fixed, files) {
            self.stay_unfrozen(error.reason());
            return Ok(End::Continues);
        }
        if let Err(error) = link.1.set_hurried(true) {
            self.stay_unfrozen(MigrateError::from(error).reason());
            return Ok(End::Continues);
        }
        let known = self.known_maps();
        watch.phase("look");
        let frozen_at = Instant::now();
        let frozen = self.freeze().and_then(|()| self.check_is_alone());
        match frozen.and_then(|()| self.lead_out(false)) {
            Ok(()) => watch.phase("freeze"),
            Err(error) if is_broken(&error) => return Err(error),
            Err(error) => return self.stay(error.reason()),
        }
        let target = Target { link: &mut link, outflow: &mut outflow };
        match self.send_image(target, (ahead, origin), &known, &mut watch) {
            Err(error) if is_broken(&error) => Err(error),
            Ok(bytes) => {
                self.shared.close_files();
                let report = MoveReport {
                    freeze_us: micros(frozen_at.elapsed()),
                    total_us: watch.total_us(),
                    phases_us: watch.into_phases(),
                    bytes_sent: link.1.bytes_sent() + outflow.bytes_streamed(),
                    ..MoveReport::default()
                };
                let report = rounds.tell(bytes, report);
                self.shared.send(ToHome::MovedOn(Box::new(report)));
                self.await_verdict(Some(Successor::new(link)))
            }
            Err(error) => self.stay(error.reason()),
        }
    }

    /// Returns the bytes of memory that were sent.
    fn send_image(
        &self,
        mut target: Target<'_>,
        (mut ahead, origin): (Ahead, Option<Origin>),
        known: &[maps::Mapping],
        watch: &mut Stopwatch,
    ) -> Result<u64> {
        let image = self.capture(known)?;
        watch.phase("capture");
        let (head, parts) = image.clone().into_parts();
        let (_, writer) = &mut *target.link;
        writer.send(&ToAway::Image(Box::new(head)))?;
        parts.into_iter().try_for_each(|part| writer.send(&ToAway::Threads(part)))?;
        let whole = (&image.mappings[..], &image.guards[..]);
        let memory = &self.shared.memory;
        let sight = ahead.copying.see(memory, &image.mappings)?;
        let bytes = ahead.finish(memory, whole, sight, &mut target, &|_| Ok(()))?;
        let same = origin.map_or(vec![], |origin| origin.among(ahead.copying.unchanged()));
        let Target { link: (reader, writer), .. } = target;
        // Home is sent what it is not known to have.
        for some in same[..same.len().min(HELD_MAX)].chunks(DISCARDS_MAX) {
            writer.send(&ToAway::Unchanged(some.to_vec()))?;
        }
        writer.send(&ToAway::ImageSent)?;
        watch.phase("send");
        match reader.receive_answer(writer)? {
            ToHome::Restored => {}
            ToHome::Refused(why) => return Err(MigrateError::Refused(why)),
            _ => return Err(MigrateError::Protocol("no answer to the image".into())),
        }
        watch.phase("restore");
        Ok(bytes)
    }
}

/// Says now and then how far a move is.
pub(crate) struct Teller<'a> {
    shared: &'a Shared,
    told_at: Cell<Instant>,
}

impl Teller<'_> {
    pub(crate) fn of(shared: &Shared) -> Teller<'_> {
        Teller { shared, told_at: Cell::new(Instant::now()) }
    }

    pub(crate) fn tell(&self, progress: &Progress) {
        if self.told_at.get().elapsed() >= PROGRESS_PAUSE {
            self.told_at.set(Instant::now());
            let state = self.shared.lock();
            // The body may be going home meanwhile: from when that is announced on, home takes
            // nothing but what comes of it.
            if !state.is_frozen {
                self.shared.send_after(state, ToHome::Progress(*progress));
            }
        }
    }
}

/// Everything that can be done before the body is stopped.
fn offer(berth: &Berth, prospect: Prospect, library: &Library) -> Result<(Link, bool)> {
    let mut link = link::connect(berth, Role::Image)?;
    let prospect = Prospect { backings: library.descriptions(), ..prospect };
    let remembers = migrate::offer::offer(&mut link, Offerer::Away, prospect, library, || {});
    let remembers = remembers?.remembers;
    link.1.set_copying()?;
    Ok((link, remembers))
}

/// The node that takes the body, and what the move there has shown so far.
pub(crate) struct Offered {
    berth: Berth,
    link: Link,
    /// It has pages of earlier guests.
    remembers: bool,
    limits: MoveLimits,
    rounds: Rounds,
    watch: Stopwatch,
    /// How many files it has been told of.
    files: usize,
}

/// The same, with what it has of the body already.
pub(crate) struct Onward {
    offered: Offered,
    ahead: Ahead,
    outflow: Outflow,
    origin: Option<Origin>,
}

fn copy(
    shared: &Shared,
    fixed: &Fixed,
    (claim, unseen): (Option<Claim>, &[Run]),
    Offered { berth, link, remembers, limits, rounds, watch, files }: &mut Offered,
    is_wanted: &dyn Fn() -> Result<()>,
) -> Result<(Ahead, Outflow)> {
    let draft = capture::draft(shared, fixed)?;
    check_files(fixed, *files)?;
    migrate::offer::draft(link, draft.clone())?;
    watch.phase("draft");
    let is_tracked = claim.is_some();
    let mut ahead = Ahead::new(draft, Copying::of(shared.pid, claim)?, *remembers);
    ahead.copying.assume_changed(unseen);
    let resident = process::resident_bytes(shared.pid).unwrap_or(0);
    let mut outflow = Outflow::open(berth, &mut link.1, (resident, *limits))?;
    if is_tracked {
        let mappings = || {
            let mappings = capture::mappings(shared, fixed)?;
            check_files(fixed, *files).map(|()| mappings)
        };
        let teller = Teller::of(shared);
        let goes_on = |progress: &Progress| {
            teller.tell(progress);
            is_wanted()
        };
        let mut target = Target { link, outflow: &mut outflow };
        ahead.copy(&shared.memory, &mut target, &mappings, (rounds, &goes_on))?;
        watch.phase("copy");
    }
    Ok((ahead, outflow))
}

/// Whether the body has mapped no more files than the next node was told of, which would take a
/// mapping of another for a fault. To be asked after its mappings were read.
fn check_files(fixed: &Fixed, told: usize) -> Result<()> {
    match fixed.library().len() == told {
        true => Ok(()),
        false => Err(MigrateError::refused("changed", "it has mapped a file meanwhile; try again")),
    }
}

/// The node that a frozen body was sent to, until it is known which of the two lives.
pub(crate) struct Successor {
    pub(crate) link: Link,
    /// When it is to be asked to give the body back, once.
    pub(crate) call_back_at: Option<Instant>,
}

pub(crate) enum Word {
    Silent,
    /// It will not run the body, whatever home says to it.
    GivesBack,
    /// What it does only home can tell.
    Gone,
}

impl Successor {
    fn new(link: Link) -> Successor {
        Successor { link, call_back_at: Some(Instant::now() + HOME_PATIENCE) }
    }

    pub(crate) fn poll(&mut self) -> Word {
        let (reader, writer) = &mut self.link;
        if self.call_back_at.take_if(|at| *at <= Instant::now()).is_some()
            && writer.send(&ToAway::Release).is_err()
        {
            return Word::Gone;
        }
        let mut watched = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
        if poll(&mut watched, PollTimeout::ZERO) == Ok(0) {
            return Word::Silent;
        }
        match reader.receive() {
            Ok(ToHome::Refused(_)) => Word::GivesBack,
            _ => Word::Gone,
        }
    }
}
