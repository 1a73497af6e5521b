//! Sending memory home while the body runs, so that it stands still only for what it has written
//! meanwhile ([decision 0020](../../../docs/decisions/)).
//!
//! Only for homecomings that a user wants, or the balancing: a thread that needs its home for a
//! call would have to wait for all of it, and so would the owner of a node who wants his guest
//! gone. Should that happen while memory is under way, the rest is left to the freeze.

use crate::capture::{self, Fixed};
use crate::leaving::is_broken;
use crate::moving_on::Teller;
use crate::state::{Order, Shared};
use crate::tracing_loop::{End, Tracing};
use kernel::memory::Memory;
use kernel::proc::pagemap::{Pagemap, Run};
use kernel::proc::{maps, process};
use kernel::tracking::{Claim, Tracking};
use migrate::ahead::{self, Ahead, Taker};
use migrate::copying::Copying;
use migrate::held;
use migrate::kept::{self, Origin};
use migrate::pacing::Pacing;
use migrate::packing::HomePacker;
use migrate::parts::Part;
use migrate::rounds::Rounds;
use migrate::{MigrateError, Result, reason};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};
use wire::forward::{ToAway, ToHome};
use wire::freeze_budget::FreezeBudget;
use wire::ids::GuestAddr;
use wire::image::{Draft, Span};
use wire::limits::HELD_MAX;
use wire::move_limits::MoveLimits;
use wire::supervisor::Progress;

/// A homecoming of which memory goes ahead.
pub(crate) struct Homing {
    /// What is said once the body is frozen.
    announcement: ToHome,
    /// To the thread that sends: what home has answered.
    answers: Sender<ToAway>,
    is_hurried: Arc<AtomicBool>,
}

/// What home has of the memory, and as what, when the body is to be frozen.
pub(crate) struct Homeward {
    pub(crate) rounds: Rounds,
    pub(crate) ahead: Option<Ahead>,
    /// If nothing went ahead: what is known of writes is as it was.
    pub(crate) origin: Option<Origin>,
}

/// A home that takes longer to answer is lost.
const ANSWER_TIMEOUT: Duration = link::LOSS_TIMEOUT;

impl Tracing<'_> {
    /// Goes home: memory first, if it is worth that.
    pub(crate) fn go_home(
        &mut self,
        announcement: ToHome,
        (budget, limits): (FreezeBudget, MoveLimits),
    ) -> Result<End> {
        if let Some(homing) = &self.homing {
            let is_needed = matches!(announcement, ToHome::NeedsHome(_));
            homing.is_hurried.fetch_or(is_needed, Ordering::SeqCst);
            return Ok(End::Continues);
        }
        // Nobody at home waits for a move to another node any more.
        self.call_off_moves();
        let tracking = self.tracking.clone().filter(|it| self.is_worth_more(it, &announcement));
        let rounds = Rounds::within(budget);
        let Some(tracking) = tracking else {
            let homeward = Homeward { rounds, ahead: None, origin: self.origin.take() };
            return self.on_order(Order::Leave { announcement, homeward: Box::new(homeward) });
        };
        let unseen = match self.watch_memory(&tracking) {
            Ok(unseen) => unseen,
            Err(error) if is_broken(&error) => return Err(error),
            Err(_) => {
                self.go_on()?;
                let homeward = Homeward { rounds, ahead: None, origin: self.origin.take() };
                return self.on_order(Order::Leave { announcement, homeward: Box::new(homeward) });
            }
        };
        let (answers, receiver) = mpsc::channel();
        let is_hurried = Arc::new(AtomicBool::new(false));
        let (shared, hurry) = (self.shared.clone(), is_hurried.clone());
        let pacing = Pacing::of(limits.bandwidth);
        let packer = HomePacker::default();
        let home = Home { shared, answers: receiver, hurry, pacing, packer };
        let alone = Homeward { rounds: rounds.clone(), ahead: None, origin: None };
        let (fixed, origin, claim) = (self.fixed.clone(), self.origin.take(), tracking.claim());
        let send = move || {
            let shared = home.shared.clone();
            let homeward = send_ahead(home, (&fixed, rounds), (claim, &unseen), origin);
            shared.order(Order::SentAhead { homeward: homeward.map(Box::new) });
        };
        match std::thread::Builder::new().name("homing".into()).spawn(send) {
            Ok(_) => {
                self.homing = Some(Homing { announcement, answers, is_hurried });
                Ok(End::Continues)
            }
            Err(error) => {
                ::tracing::warn!("body of {}: no thread: {error}", self.shared.guest_pid);
                self.leave(announcement, alone)
            }
        }
    }

    /// Whether so much was written to that the body would stand still for it.
    fn is_worth_more(&self, tracking: &Tracking, announcement: &ToHome) -> bool {
        let is_wanted = !matches!(announcement, ToHome::NeedsHome(_));
        let pid = self.shared.pid;
        let bytes = || match &self.origin {
            Some(_) => kept::written_bytes(tracking, &Pagemap::open(pid)?, &maps::read(pid)?),
            None => Ok(process::resident_bytes(pid)?),
        };
        is_wanted && !self.is_held && bytes().is_ok_and(|bytes| bytes >= ahead::BYTES_MIN)
    }

    /// What home says to a body that sends its memory ahead.
    pub(crate) fn on_answer(&mut self, answer: ToAway) -> Result<()> {
        match &self.homing {
            // Whoever does not listen any more has said so, or is about to.
            Some(homing) => drop(homing.answers.send(answer)),
            None => return Err(MigrateError::Protocol("an answer that was not asked for".into())),
        }
        Ok(())
    }

    /// What could be sent ahead is there: the rest comes with the body.
    pub(crate) fn on_sent_ahead(&mut self, homeward: Option<Box<Homeward>>) -> Result<End> {
        match (self.homing.take(), homeward) {
            (Some(homing), Some(homeward)) => self.leave(homing.announcement, *homeward),
            (Some(_), None) => Ok(End::Goes(reason(LOST, "home did not answer"))),
            (None, _) => Ok(End::Continues),
        }
    }
}

/// Home, which takes memory in on the link over which it also answers calls.
struct Home {
    shared: Arc<Shared>,
    answers: Receiver<ToAway>,
    /// What is not sent yet comes with the body.
    hurry: Arc<AtomicBool>,
    pacing: Pacing,
    packer: HomePacker,
}

impl Home {
    /// Where home has memory; None if it can take nothing in just now.
    fn tell(&self, draft: &Draft) -> Result<Option<Vec<Span>>> {
        let heap_end = GuestAddr(heap_end(self.shared.pid)?);
        self.shared.send(ToHome::ComesAhead { draft: Box::new(draft.clone()), heap_end });
        let mut held = Vec::new();
        loop {
            match self.answers.recv_timeout(ANSWER_TIMEOUT) {
                Ok(ToAway::Holds { spans, is_last }) if held.len() + spans.len() <= HELD_MAX => {
                    held.extend(spans);
                    if is_last {
                        return Ok(Some(held));
                    }
                }
                Ok(ToAway::Unready) => return Ok(None),
                _ => return Err(MigrateError::Refused(reason(LOST, "home did not answer"))),
            }
        }
    }
}

impl Taker for Home {
    fn send(&mut self, part: Part) -> Result<()> {
        if self.hurry.load(Ordering::SeqCst) {
            return Err(MigrateError::refused(ENOUGH, "the rest comes with the body"));
        }
        let began = Instant::now();
        let (shared, pacing) = (&self.shared, &self.pacing);
        self.packer.send(part, |message, bytes| {
            shared.send(message);
            // The link is free for calls meanwhile.
            pacing.sent(bytes, began);
        });
        Ok(())
    }

    fn draft(&mut self, draft: &Draft) -> Result<Option<Vec<Span>>> {
        match self.tell(draft)? {
            Some(held) => Ok(Some(held)),
            None => Err(MigrateError::refused(ENOUGH, "home takes in no more ahead")),
        }
    }

    /// What home has it has told.
    fn ask(&mut self, _: &Memory, _: &[Run], _: &dyn Fn() -> Result<()>) -> Result<Vec<Span>> {
        Ok(vec![])
    }
}

/// Code of the reason for which the rest of the memory is left to the freeze.
const ENOUGH: &str = "enough";
/// Code of the reason for which there is nobody to go to.
const LOST: &str = "link";

/// Sends what it can; what it then knows of home is true whatever has broken it off. None if home
/// is lost.
fn send_ahead(
    mut home: Home,
    (fixed, mut rounds): (&Fixed, Rounds),
    (claim, unseen): (Claim, &[Run]),
    origin: Option<Origin>,
) -> Option<Homeward> {
    let shared = home.shared.clone();
    let is_remembered = claim.tracking().begins_with_walks();
    let begun = Copying::of(shared.pid, Some(claim)).and_then(|copying| {
        let draft = capture::draft(&shared, fixed)?;
        let held = home.tell(&draft)?;
        Ok((Ahead::new(draft, copying, false), held))
    });
    let (mut ahead, held) = match begun {
        Ok((ahead, Some(held))) => (ahead, held),
        Err(error) if is_lost(&error) => return None,
        _ => {
            // What was written to before has to be known with it.
            let origin = origin.filter(|_| is_remembered);
            return Some(Homeward { rounds, ahead: None, origin });
        }
    };
    let same = origin.map_or(vec![], |origin| origin.among(&held::runs(&held)));
    ahead.copying.assume_held(&held, &same);
    ahead.copying.doubt(unseen);
    let mappings = || capture::mappings(&shared, fixed);
    let teller = Teller::of(&shared);
    let goes_on = |progress: &Progress| {
        teller.tell(progress);
        Ok(())
    };
    match ahead.copy(&shared.memory, &mut home, &mappings, (&mut rounds, &goes_on)) {
        Err(error) if is_lost(&error) => None,
        _ => Some(Homeward { rounds, ahead: Some(ahead), origin: None }),
    }
}

fn is_lost(error: &MigrateError) -> bool {
    matches!(error, MigrateError::Refused(why) if why.code == LOST)
}

/// Where the program break is, but for the rest of its page; 0 if there is no heap.
fn heap_end(pid: i32) -> Result<u64> {
    let maps = maps::read(pid)?;
    Ok(maps.iter().filter(|m| m.name == b"[heap]").map(|m| m.end).max().unwrap_or(0))
}
