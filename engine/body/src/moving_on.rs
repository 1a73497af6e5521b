//! Sending the body on to another node: the offer, the move, and what the next node says until home
//! has decided which of the two lives.

use crate::arrival::Link;
use crate::capture::{self, Fixed};
use crate::leaving::is_broken;
use crate::state::{Order, Shared};
use crate::tracing_loop::{End, Tracing};
use kernel::proc::pagemap::{Pagemap, Run};
use kernel::proc::{maps, process};
use kernel::tracking::Tracking;
use migrate::ahead::{self, Ahead};
use migrate::backing::Library;
use migrate::copying::Copying;
use migrate::kept::{self, Origin};
use migrate::offer::Offerer;
use migrate::{MigrateError, Result, reason};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::forward::{ToAway, ToHome};
use wire::image::Prospect;
use wire::limits::{DISCARDS_MAX, HELD_MAX};
use wire::supervisor::{Berth, Role};

/// How long it waits before the node that it was sent to is asked to give it back, if that is not
/// its home: that node can always say whether home has had it run there, and home may be out of
/// reach of both.
const HOME_PATIENCE: Duration = Duration::from_secs(1);

impl Tracing<'_> {
    /// Offers the body to another node. It runs on until that has answered, with all its signals
    /// and stops: so somebody else waits for the answer.
    pub(crate) fn offer_to(&mut self, berth: Berth) {
        let number = self.call_off_moves();
        let (shared, fixed) = (self.shared.clone(), self.fixed.clone());
        let prospect = Prospect { is_kept: self.origin.is_some(), ..self.prospect.clone() };
        self.spawn_mover("offer", move || {
            let outcome = offer(&berth, prospect, &fixed.library).map(|link| (berth, link));
            shared.order(Order::Offered { number, outcome });
        });
    }

    /// What was begun for a move has no effect any more; returns the number of the next.
    pub(crate) fn call_off_moves(&mut self) -> u64 {
        self.moves.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// True for the number of the last move that was begun, unless that is off.
    pub(crate) fn is_current_move(&self, number: u64) -> bool {
        self.moves.load(Ordering::SeqCst) == number
    }

    fn spawn_mover(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        if let Err(error) = std::thread::Builder::new().name(name.into()).spawn(work) {
            let text = format!("cannot move it to another node: {error}");
            self.shared.send(ToHome::Stayed(reason("no-thread", text)));
        }
    }

    /// Has the node that takes the body make its memory, and most of what is in it, while it runs.
    pub(crate) fn copy_ahead(
        &mut self,
        number: u64,
        offered: Result<(Berth, Link)>,
    ) -> Result<End> {
        let (berth, mut link) = match offered {
            Ok(offered) => offered,
            Err(error) => {
                self.shared.send(ToHome::Stayed(error.reason()));
                return Ok(End::Continues);
            }
        };
        let resident = process::resident_bytes(self.shared.pid).unwrap_or(0);
        let tracking = self.tracking.clone().filter(|_| resident >= ahead::BYTES_MIN);
        let mut unseen = vec![];
        if let Some(tracking) = &tracking {
            match self.watch_memory(tracking) {
                Ok(runs) => unseen = runs,
                Err(error) if is_broken(&error) => return Err(error),
                Err(error) => return self.stay(error.reason()),
            }
        }
        // Its rounds begin anew what is told of writes: should it stay, that is not known any more.
        let origin = self.origin.take();
        let (shared, fixed, moves) = (self.shared.clone(), self.fixed.clone(), self.moves.clone());
        let is_wanted = move || match moves.load(Ordering::SeqCst) == number {
            true => Ok(()),
            false => Err(MigrateError::refused("called-off", "the body leaves for elsewhere")),
        };
        self.spawn_mover("ahead", move || {
            let outcome =
                copy(&shared, &fixed, (tracking, &unseen), (&berth, &mut link), &is_wanted);
            let outcome = outcome.map(|ahead| Box::new(Onward { link, ahead, origin }));
            shared.order(Order::Copied { number, outcome });
        });
        Ok(End::Continues)
    }

    /// Has all writes to the body's memory be seen from now on. It stands still for that, so that
    /// no mapping is watched in part. Returns where they were not seen so far.
    fn watch_memory(&mut self, tracking: &Tracking) -> Result<Vec<Run>> {
        let pid = self.shared.pid;
        let outcome = self.freeze().and_then(|()| {
            let maps = maps::read(pid)?;
            let pagemap = Pagemap::open(pid)?;
            let unseen = kept::unwatched(&pagemap, &maps)?;
            ahead::watch(tracking, &pagemap, &maps)?;
            Ok(unseen)
        });
        let unseen = outcome?;
        self.go_on()?;
        Ok(unseen)
    }

    /// Sends the body to the node that takes it; home decides when that may run it.
    pub(crate) fn move_on(&mut self, copied: Result<Box<Onward>>) -> Result<End> {
        let Onward { mut link, ahead, origin } = match copied {
            Ok(onward) => *onward,
            Err(error) => {
                self.shared.send(ToHome::Stayed(error.reason()));
                return Ok(End::Continues);
            }
        };
        let known = self.known_maps();
        let frozen_at = Instant::now();
        match self.freeze() {
            Ok(()) => {}
            Err(error) if is_broken(&error) => return Err(error),
            Err(error) => return self.stay(error.reason()),
        }
        match self.send_image(&mut link, (ahead, origin), &known) {
            Err(error) if is_broken(&error) => Err(error),
            Ok(bytes_sent) => {
                let freeze_began_us_ago = frozen_at.elapsed().as_micros() as u64;
                self.shared.send(ToHome::MovedOn { bytes_sent, freeze_began_us_ago });
                self.await_verdict(Some(Successor::new(link)))
            }
            Err(error) => self.stay(error.reason()),
        }
    }

    fn send_image(
        &self,
        (reader, writer): &mut Link,
        (mut ahead, origin): (Ahead, Option<Origin>),
        known: &[maps::Mapping],
    ) -> Result<u64> {
        let image = self.capture(known)?;
        let (head, parts) = image.clone().into_parts();
        writer.send(&ToAway::Image(Box::new(head)))?;
        parts.into_iter().try_for_each(|part| writer.send(&ToAway::Threads(part)))?;
        let whole = (&image.mappings[..], &image.guards[..]);
        ahead.finish(&self.shared.memory, whole, writer)?;
        let same = origin.map_or(vec![], |origin| origin.among(ahead.copying().unchanged()));
        // Home is sent what it is not known to have.
        for some in same[..same.len().min(HELD_MAX)].chunks(DISCARDS_MAX) {
            writer.send(&ToAway::Unchanged(some.to_vec()))?;
        }
        writer.send(&ToAway::ImageSent)?;
        match reader.receive_answer(writer)? {
            ToHome::Restored => Ok(writer.bytes_sent() + ahead.bytes_streamed()),
            ToHome::Refused(why) => Err(MigrateError::Refused(why)),
            _ => Err(MigrateError::Protocol("no answer to the image".into())),
        }
    }
}

/// Everything that can be done before the body is stopped.
fn offer(berth: &Berth, prospect: Prospect, library: &Library) -> Result<Link> {
    let mut link = link::connect(berth, Role::Image)?;
    let prospect = Prospect { backings: library.descriptions(), ..prospect };
    migrate::offer::offer(&mut link, Offerer::Away, prospect, library)?;
    link.1.set_hurried(true)?;
    Ok(link)
}

/// The node that takes the body, and what it has of it already.
pub(crate) struct Onward {
    link: Link,
    ahead: Ahead,
    origin: Option<Origin>,
}

fn copy(
    shared: &Shared,
    fixed: &Fixed,
    (tracking, unseen): (Option<Arc<Tracking>>, &[Run]),
    (berth, link): (&Berth, &mut Link),
    is_wanted: &dyn Fn() -> Result<()>,
) -> Result<Ahead> {
    let draft = capture::draft(shared, fixed)?;
    migrate::offer::draft(link, draft.clone())?;
    let is_tracked = tracking.is_some();
    let mut ahead = Ahead::new(draft, Copying::of(shared.pid, tracking)?);
    ahead.copying().assume_changed(unseen);
    let resident = process::resident_bytes(shared.pid).unwrap_or(0);
    ahead.open_streams(berth, &mut link.1, resident)?;
    if is_tracked {
        ahead.copy(&shared.memory, link, &|| capture::mappings(shared, fixed), is_wanted)?;
    }
    Ok(ahead)
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
