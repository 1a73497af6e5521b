//! Asking a target which pages it has already, of earlier guests, before any is sent ([decision
//! 0023](../../../docs/decisions/0023-pages-of-earlier-guests.md)).
//!
//! While it answers, the next pages are hashed: a round trip is paid once. What the program writes
//! to meanwhile is sent later, like all that it writes to.

use crate::{MigrateError, Result};
use kernel::memory::Memory;
use kernel::proc::pagemap::{PAGE_BYTES, Run};
use link::{LinkReader, LinkWriter};
use std::collections::VecDeque;
use wire::forward::{ToAway, ToHome};
use wire::hashes::PageHashes;
use wire::ids::GuestAddr;
use wire::image::Span;
use wire::limits::{HASHED_PAGES_MAX, PAGE_RUNS_MAX};

/// Questions on their way: at a gigabyte hashed a second they bridge 60 ms.
const WINDOW: usize = 64;
/// After so many pages it is known whether it is worth it.
const TRIAL_PAGES: u64 = 8192;
/// It is if a part of them was there.
const WORTH_PARTS: u64 = 16;
const PAGE: usize = PAGE_BYTES as usize;
const _: () = assert!(HASHED_PAGES_MAX <= PAGE_RUNS_MAX);

/// How often asking has helped so far.
#[derive(Debug, Default)]
struct Yield {
    asked: u64,
    found: u64,
}

impl Yield {
    /// To hash a page takes about as long as to send it where networks are fast.
    fn is_worth_it(&self) -> bool {
        self.asked < TRIAL_PAGES || self.found * WORTH_PARTS >= self.asked
    }
}

struct Asking<'a> {
    link: &'a mut (LinkReader, LinkWriter),
    /// Asked, and not answered yet.
    open: VecDeque<Vec<Span>>,
    next: PageHashes,
    so_far: Yield,
    had: Vec<Span>,
}

/// Which of these pages the target has put in place, in order.
///
/// # Errors
/// Of the link or the target, or that the move is not wanted any more.
pub fn ask(
    memory: &Memory,
    runs: &[Run],
    link: &mut (LinkReader, LinkWriter),
    is_wanted: &dyn Fn() -> Result<()>,
) -> Result<Vec<Span>> {
    let (open, next, so_far, had) = Default::default();
    let mut asking = Asking { link, open, next, so_far, had };
    let mut content = vec![0; HASHED_PAGES_MAX * PAGE];
    'all: for run in runs {
        for start in (run.start..run.end).step_by(content.len()) {
            if !asking.so_far.is_worth_it() {
                break 'all;
            }
            is_wanted()?;
            let length = (run.end - start).min(content.len() as u64) as usize;
            // What is not there any more is for the next round.
            let length = memory.read_some(start, &mut content[..length]);
            for (page, address) in content[..length].chunks_exact(PAGE).zip((start..).step_by(PAGE))
            {
                asking.add(GuestAddr(address), page)?;
            }
        }
    }
    asking.end()
}

impl Asking<'_> {
    fn add(&mut self, address: GuestAddr, page: &[u8]) -> Result<()> {
        self.next.add(address, blake3::hash(page).as_bytes());
        match self.next.count() == HASHED_PAGES_MAX {
            true => self.send(),
            false => Ok(()),
        }
    }

    fn send(&mut self) -> Result<()> {
        let hashes = std::mem::take(&mut self.next);
        self.open.push_back(hashes.spans.clone());
        self.link.1.send(&ToAway::Hashes(hashes))?;
        if self.open.len() == WINDOW { self.hear() } else { Ok(()) }
    }

    fn hear(&mut self) -> Result<()> {
        let Some(spans) = self.open.pop_front() else { return Ok(()) };
        let lacking = match self.link.0.receive()? {
            ToHome::Lacks(lacking) => lacking,
            ToHome::Refused(reason) => return Err(MigrateError::Refused(reason)),
            _ => return Err(MigrateError::Protocol("no answer to hashes".into())),
        };
        let pages: Vec<u64> =
            spans.iter().flat_map(|(start, end)| (start.0..end.0).step_by(PAGE)).collect();
        let Some(lacking) = lacking.told(pages.len()) else {
            return Err(MigrateError::Protocol("an answer about other pages".into()));
        };
        self.so_far.asked += pages.len() as u64;
        for (page, _) in pages.into_iter().zip(lacking).filter(|(_, is_lacking)| !is_lacking) {
            self.so_far.found += 1;
            let (start, end) = (GuestAddr(page), GuestAddr(page + PAGE_BYTES));
            match self.had.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => self.had.push((start, end)),
            }
        }
        Ok(())
    }

    fn end(mut self) -> Result<Vec<Span>> {
        if self.next.count() > 0 {
            self.send()?;
        }
        while !self.open.is_empty() {
            self.hear()?;
        }
        Ok(self.had)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_target_that_has_hardly_any_of_it_is_not_asked_on() {
        let seen = |asked, found| Yield { asked, found }.is_worth_it();
        assert!(seen(0, 0) && seen(TRIAL_PAGES - 1, 0));
        assert!(!seen(TRIAL_PAGES, 0) && !seen(TRIAL_PAGES, TRIAL_PAGES / WORTH_PARTS - 1));
        assert!(seen(TRIAL_PAGES, TRIAL_PAGES / WORTH_PARTS));
    }
}
