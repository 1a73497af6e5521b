//! Copying memory ahead: the rounds before a process is frozen ([decision
//! 0020](../../../docs/decisions/0020-memory-before-the-freeze.md)).

use crate::copying::Copying;
use crate::held::Held;
use crate::outflow::Outflow;
use crate::parts::Part;
use crate::rounds::Rounds;
use crate::sight::Sight;
use crate::{Result, asking, offer};
use kernel::haste::StandingBack;
use kernel::memory::Memory;
use kernel::proc::maps;
use kernel::proc::pagemap::{Pagemap, Run};
use kernel::tracking::Tracking;
use link::{LinkReader, LinkWriter};
use std::time::Instant;
use wire::forward::ToAway;
use wire::image::{Draft, Mapping, Span};
use wire::supervisor::Progress;

pub use wire::move_cost::COPIED_AHEAD_BYTES_MIN as BYTES_MIN;

/// Has writes to all private memory be seen from now on; the process stands still. What cannot be
/// watched is sent in the freeze.
///
/// # Errors
/// The process has ended.
pub fn watch(tracking: &Tracking, pagemap: &Pagemap, maps: &[maps::Mapping]) -> Result<()> {
    for mapping in maps.iter().filter(|m| !m.is_shared && !m.is_kernel_provided()) {
        tracking.watch(pagemap, &(mapping.start..mapping.end))?;
    }
    Ok(tracking.begin()?)
}

/// Who takes memory in before the image.
pub trait Taker {
    /// # Errors
    /// Of the link, or what is left is to come with the image.
    fn send(&mut self, part: Part) -> Result<()>;

    /// Threads of this process that send for the one that calls.
    fn senders(&self) -> &[i32] {
        &[]
    }

    /// Tells it what the memory is like by now, and waits until all that was sent has been taken
    /// in. A taker that may have lost some of what it had says what it still has.
    ///
    /// # Errors
    /// As [`Taker::send`], and refused if it cannot have such memory.
    fn draft(&mut self, draft: &Draft) -> Result<Option<Vec<Span>>>;

    /// Asks one that has pages of earlier guests; returns those that it has put in place.
    ///
    /// # Errors
    /// Of the link, or of `goes_on`.
    fn ask(
        &mut self,
        memory: &Memory,
        runs: &[Run],
        goes_on: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<Span>>;
}

/// The target of a move, on a link of its own.
pub struct Target<'a> {
    pub link: &'a mut (LinkReader, LinkWriter),
    pub outflow: &'a mut Outflow,
}

impl Taker for Target<'_> {
    fn send(&mut self, part: Part) -> Result<()> {
        self.outflow.send(part, &mut self.link.1)
    }

    fn senders(&self) -> &[i32] {
        self.outflow.senders()
    }

    fn draft(&mut self, draft: &Draft) -> Result<Option<Vec<Span>>> {
        self.outflow.tell(&mut self.link.1)?;
        offer::draft(self.link, draft.clone())?;
        self.outflow.begin_epoch();
        Ok(None)
    }

    fn ask(
        &mut self,
        memory: &Memory,
        runs: &[Run],
        goes_on: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<Span>> {
        asking::ask(memory, runs, self.link, goes_on)
    }
}

/// Told how far a move is; says whether it goes on.
pub type GoesOn<'a> = &'a dyn Fn(&Progress) -> Result<()>;

/// What a target has been told and sent of memory.
pub struct Ahead {
    pub draft: Draft,
    pub copying: Copying,
    /// It has pages of earlier guests.
    remembers: bool,
    /// Bytes that the last round has left.
    left: u64,
}

impl Ahead {
    /// For a target that was told this draft and no other.
    pub fn new(draft: Draft, copying: Copying, remembers: bool) -> Ahead {
        Ahead { draft, copying, remembers, left: u64::MAX }
    }

    /// Sends memory while the process runs, until the rest is little or does not become less;
    /// `rounds` is told what they show, and `goes_on` how far it is, whenever something is sent.
    /// `mappings` reads what they are now.
    ///
    /// # Errors
    /// Of the link, the taker or `goes_on`; the process is not touched. What the taker is known to
    /// have is true nevertheless.
    pub fn copy(
        &mut self,
        memory: &Memory,
        taker: &mut dyn Taker,
        mappings: &dyn Fn() -> Result<Vec<Mapping>>,
        (rounds, goes_on): (&mut Rounds, GoesOn<'_>),
    ) -> Result<()> {
        self.copy_by(memory, taker, mappings, (rounds, goes_on), &mut || Ok(None))
    }

    /// Likewise. Where a pass cannot begin anew what is told of writes, `renew` does, and returns
    /// what was told until then; or not, then there is no other round.
    ///
    /// # Errors
    /// As [`Ahead::copy`].
    pub fn copy_by(
        &mut self,
        memory: &Memory,
        taker: &mut dyn Taker,
        mappings: &dyn Fn() -> Result<Vec<Mapping>>,
        (rounds, goes_on): (&mut Rounds, GoesOn<'_>),
        renew: &mut dyn FnMut() -> Result<Option<Vec<Run>>>,
    ) -> Result<()> {
        let bytes_left = self.copying.left(&self.draft.mappings)?;
        let mut progress = Progress { bytes_left, ..Progress::default() };
        if self.remembers {
            let lacking = self.copying.survey(&self.draft.mappings)?;
            let had = taker.ask(memory, &lacking, &|| goes_on(&progress))?;
            self.copying.assume_held(&had, &had);
        }
        loop {
            let began = Instant::now();
            progress.round += 1;
            // The process runs, and so do others: nobody waits for this.
            let standing_back = StandingBack::with(taker.senders());
            let mut send = |part: Part| {
                goes_on(&progress)?;
                let bytes = part.bytes();
                taker.send(part)?;
                progress.bytes_sent += bytes;
                progress.bytes_left = progress.bytes_left.saturating_sub(bytes);
                Ok(())
            };
            let bytes = self.copying.ahead(memory, &self.draft.mappings, &mut send)?;
            self.tell(taker, mappings)?;
            self.left = self.copying.left(&self.draft.mappings)?;
            progress.bytes_left = self.left;
            goes_on(&progress)?;
            if !rounds.goes_on(bytes, began.elapsed(), self.left) {
                return Ok(());
            }
            drop(standing_back);
            if !self.copying.can_repeat() {
                match renew()? {
                    Some(unseen) => self.copying.doubt(&unseen),
                    None => return Ok(()),
                }
            }
        }
    }

    /// Tells the taker what the mappings are by now. Its answer says that all that was sent has
    /// been taken in.
    fn tell(
        &mut self,
        taker: &mut dyn Taker,
        mappings: &dyn Fn() -> Result<Vec<Mapping>>,
    ) -> Result<()> {
        let mappings = mappings()?;
        self.copying.remap(&self.draft.mappings, &mappings);
        self.draft.mappings = mappings;
        if let Some(spans) = taker.draft(&self.draft)? {
            self.copying.learn(&spans);
        }
        Ok(())
    }

    /// What the target has may be something else, all of it.
    pub fn doubt_all(&mut self) {
        self.copying.doubt_all();
        self.left = u64::MAX;
    }

    /// Sends the shared memory of a group, of which others bring `by_others`, while all run, if
    /// that is much.
    ///
    /// # Errors
    /// As [`Ahead::copy`].
    pub fn share(
        &mut self,
        memory: &Memory,
        target: &mut Target<'_>,
        (mappings, by_others): (&dyn Fn() -> Result<Vec<Mapping>>, &Held),
        goes_on: GoesOn<'_>,
    ) -> Result<()> {
        let shared = self.draft.mappings.iter().filter(|m| m.shared_place().is_some());
        let bytes: u64 = shared.map(|m| m.end.0 - m.start.0).sum();
        if bytes.saturating_sub(by_others.bytes()) < BYTES_MIN {
            return Ok(());
        }
        let _standing_back = StandingBack::with(target.senders());
        let mut progress = Progress::default();
        let mut send = |part: Part| {
            goes_on(&progress)?;
            progress.bytes_sent += part.bytes();
            target.send(part)
        };
        self.copying.share_ahead(memory, (&self.draft.mappings, by_others), &mut send)?;
        self.tell(target, mappings)
    }

    /// Has the target do without what it lacks while the process runs still; false if that cannot
    /// be.
    ///
    /// # Errors
    /// As [`Ahead::copy`].
    pub fn set_aside(
        &mut self,
        memory: &Memory,
        target: &mut Target<'_>,
        mappings: &dyn Fn() -> Result<Vec<Mapping>>,
    ) -> Result<bool> {
        let mut send = |part: Part| target.send(part);
        if !self.copying.set_aside(memory, &self.draft.mappings, &mut send)? {
            return Ok(false);
        }
        self.tell(target, mappings)?;
        Ok(true)
    }

    /// As [`Ahead::finish`], but for what can come behind the process: of that only what `must`
    /// not, and what was written to last, if there is `room` for it.
    ///
    /// # Errors
    /// As [`Ahead::finish`].
    pub fn finish_late(
        &mut self,
        memory: &Memory,
        (mappings, guards): (&[Mapping], &[Span]),
        sight: Sight,
        (must, room): (&Held, u64),
        target: &mut Target<'_>,
    ) -> Result<u64> {
        self.copying.remap(&self.draft.mappings, mappings);
        target.outflow.begin_last(0);
        let mut send = |part: Part| target.send(part);
        let whole = (mappings, guards);
        let bytes = self.copying.finish_late(memory, whole, sight, (must, room), &mut send)?;
        target.outflow.tell(&mut target.link.1)?;
        let late_bytes = self.copying.late().bytes();
        target.link.1.send(&ToAway::LateBytes(late_bytes))?;
        Ok(bytes)
    }

    /// Sends what the target, which was told the image, lacks of a process that stands frozen and
    /// of which that was seen; `goes_on` is told how much that is so far.
    ///
    /// # Errors
    /// Of the link or of `goes_on`, or of memory that cannot be read.
    pub fn finish(
        &mut self,
        memory: &Memory,
        (mappings, guards): (&[Mapping], &[Span]),
        sight: Sight,
        target: &mut Target<'_>,
        goes_on: GoesOn<'_>,
    ) -> Result<u64> {
        self.copying.remap(&self.draft.mappings, mappings);
        target.outflow.begin_last(self.left);
        let mut progress = Progress::default();
        let mut send = |part: Part| {
            goes_on(&progress)?;
            progress.bytes_sent += part.bytes();
            target.send(part)
        };
        let bytes = self.copying.finish(memory, (mappings, guards), sight, &mut send)?;
        target.outflow.tell(&mut target.link.1)?;
        Ok(bytes)
    }
}
