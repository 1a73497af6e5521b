//! Memory that home keeps of a process that is away, as it was when the process left: what stays as
//! it was need not be sent back ([decision 0020](../../../docs/decisions/)).
//!
//! A body has its writes told from the moment at which its pages are those of home. At home nothing
//! writes to them: the threads of a deputy stay in the agent, and what the kernel writes for the
//! calls in which they sleep is known.

use crate::emptying;
use crate::held::{Held, spans};
use crate::homeward::Change;
use crate::sight::{Sight, select};
use crate::worker::Worker;
use crate::{Result, ahead, layout};
use kernel::proc::maps;
use kernel::proc::pagemap::{Pagemap, Run, Select};
use kernel::tracking::Tracking;
use std::ops::Range;
use std::sync::Arc;
use wire::image::{Mapping, Span};
use wire::limits::HELD_MAX;

/// Has all private memory count as not written to from now on. The process stands still. Memory
/// that cannot be watched counts as written to for ever.
///
/// # Errors
/// The process has ended.
pub fn begin(tracking: &Arc<Tracking>, pagemap: &Pagemap, maps: &[maps::Mapping]) -> Result<()> {
    ahead::watch(tracking, pagemap, maps)?;
    if !tracking.begins_with_walks() {
        return Ok(());
    }
    let claim = tracking.claim();
    private(maps).try_for_each(|(mapping, select)| {
        claim.written(pagemap, &(mapping.start..mapping.end), select)?;
        Ok(())
    })
}

/// Likewise, where all private memory of these mappings counted as not written to until these runs,
/// which are in order, were written: whatever else there is need not be walked over.
///
/// # Errors
/// The process has ended.
pub fn begin_again(
    tracking: &Arc<Tracking>,
    pagemap: &Pagemap,
    mappings: &[Mapping],
    fresh: &[Run],
) -> Result<()> {
    let claim = tracking.claim();
    for (mapping, select) in mappings.iter().filter_map(|m| Some((m, select(m)?))) {
        let first = fresh.partition_point(|run| run.end <= mapping.start.0);
        let inside = fresh[first..].iter().take_while(|run| run.start < mapping.end.0);
        let mut hulls: Vec<Range<u64>> = Vec::new();
        for run in inside {
            let (start, end) = (run.start.max(mapping.start.0), run.end.min(mapping.end.0));
            match hulls.last_mut().filter(|hull| start - hull.end <= GAP_BYTES) {
                Some(hull) => hull.end = end,
                None => hulls.push(start..end),
            }
        }
        for hull in &hulls {
            claim.written(pagemap, hull, select)?;
        }
    }
    Ok(())
}

/// To walk over so much takes no longer than to begin another walk.
const GAP_BYTES: u64 = 1 << 20;

/// Has all writes to private memory be seen from now on, while the process stands still; returns
/// where they were not seen so far, or are forgotten.
///
/// # Errors
/// The process has ended.
pub fn begin_anew(
    tracking: &Tracking,
    pagemap: &Pagemap,
    maps: &[maps::Mapping],
) -> Result<Vec<Run>> {
    let unseen = unseen(tracking, pagemap, maps)?;
    ahead::watch(tracking, pagemap, maps)?;
    Ok(unseen)
}

/// What of private memory may have been written to without that being told once watching begins
/// anew: mappings whose writes are not seen, because what was moved there by mremap(2) may still be
/// marked as not written to (by kernels before 6.13), whatever it was before; and all that was
/// seen, if that is forgotten then.
///
/// # Errors
/// The process has ended.
fn unseen(tracking: &Tracking, pagemap: &Pagemap, maps: &[maps::Mapping]) -> Result<Vec<Run>> {
    let mut unseen = Vec::new();
    for (mapping, select) in private(maps) {
        let (start, end) = (mapping.start, mapping.end);
        match tracking.written(pagemap, &(start..end), select)? {
            None => unseen.push(Run { start, end }),
            Some(written) if !tracking.begins_with_walks() => unseen.extend(written),
            Some(_) => {}
        }
    }
    Ok(unseen)
}

/// Bytes of private memory that were written to since [`begin`]; all of what is not watched.
///
/// # Errors
/// The process has ended.
pub fn written_bytes(
    tracking: &Tracking,
    pagemap: &Pagemap,
    maps: &[maps::Mapping],
) -> Result<u64> {
    private(maps).try_fold(0, |bytes, (mapping, select)| {
        let (start, end) = (mapping.start, mapping.end);
        let runs = match tracking.written(pagemap, &(start..end), select)? {
            Some(written) => written,
            None => pagemap.scan(start, end, select)?,
        };
        Ok(bytes + runs.iter().map(|run| run.end - run.start).sum::<u64>())
    })
}

/// The private mappings, and which of their pages are the process's own.
pub(crate) fn private(maps: &[maps::Mapping]) -> impl Iterator<Item = (&maps::Mapping, Select)> {
    let is_private = |m: &&maps::Mapping| !m.is_shared && !m.is_kernel_provided();
    maps.iter().filter(is_private).map(|mapping| {
        let is_anonymous = layout::is_anonymous(mapping);
        (mapping, if is_anonymous { Select::Populated } else { Select::Private })
    })
}

/// What of a process's memory at home is as it was: all, or nothing, but for what was lost.
#[derive(Debug, Default)]
pub struct Kept {
    is_any: bool,
    lost: Held,
}

impl Kept {
    /// All but these runs.
    pub fn but(lost: impl IntoIterator<Item = Run>) -> Kept {
        let mut kept = Kept { is_any: true, lost: Held::default() };
        lost.into_iter().for_each(|run| kept.lost.add(run));
        kept
    }

    /// What was kept of private memory, of which that was seen.
    pub fn there(&self, mappings: &[Mapping], sight: &Sight) -> Vec<Span> {
        let private = private_of(mappings, sight).filter(|_| self.is_any);
        spans(&private.flat_map(|(_, runs)| self.lost.lacks(runs)).collect::<Vec<_>>())
    }

    /// What such changes to the mappings leave of it.
    pub fn change(&mut self, changes: &[Change]) {
        for change in changes {
            if let Some(range) = change.replaced() {
                self.lost.add(Run { start: range.start, end: range.end });
            }
        }
    }

    /// Makes all private memory of these mappings untouched but what was kept; returns where that
    /// is. The mappings are there already, and that was seen of them.
    ///
    /// # Errors
    /// The process has ended, or memory of it cannot be discarded.
    pub fn empty_others(
        &self,
        worker: Worker<'_>,
        (mappings, sight): (&[Mapping], &Sight),
    ) -> Result<Vec<Span>> {
        let kept = if self.is_any {
            self.empty_private(worker, (mappings, sight), &Held::default())?
        } else {
            vec![]
        };
        if kept.is_empty() || kept.len() > HELD_MAX {
            emptying::empty_private(worker, mappings, &emptying::NOTHING)?;
            return Ok(vec![]);
        }
        Ok(kept)
    }

    /// Likewise all private memory, but for what is not ours to touch yet (`spared`).
    ///
    /// # Errors
    /// As [`Kept::empty_others`].
    pub fn empty_private(
        &self,
        worker: Worker<'_>,
        (mappings, sight): (&[Mapping], &Sight),
        spared: &Held,
    ) -> Result<Vec<Span>> {
        let mut kept = Vec::new();
        for (_, runs) in private_of(mappings, sight) {
            let mut there = Held::default();
            runs.iter().for_each(|run| there.add(*run));
            let same = if self.is_any { self.lost.lacks(runs) } else { vec![] };
            let stale = spans(&spared.lacks(&there.beyond(&same)));
            worker.execute_all("discard memory", &emptying::discard_calls(&stale))?;
            kept.extend(same);
        }
        Ok(spans(&kept))
    }
}

/// The private ones of these mappings, and which pages there are of each.
fn private_of<'a>(
    mappings: &'a [Mapping],
    sight: &'a Sight,
) -> impl Iterator<Item = (&'a Mapping, &'a [Run])> {
    mappings.iter().zip(sight.there()).filter(|(mapping, _)| select(mapping).is_some())
}

/// Which pages a body had, when it came to its node, as home has them.
#[derive(Debug)]
pub enum Origin {
    /// It came from there.
    Home,
    /// It came from another node, which had not written to these.
    Node(Held),
}

impl Origin {
    /// Those of these runs, which are in order.
    pub fn among(&self, runs: &[Run]) -> Vec<Span> {
        let Origin::Node(same) = self else { return spans(runs) };
        let mut among = Held::default();
        runs.iter().for_each(|run| among.add(*run));
        same.lacks(runs).into_iter().for_each(|run| among.remove(run));
        spans(&among.beyond(&[]))
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use kernel::proc::pagemap::PAGE_BYTES;
    use wire::ids::GuestAddr;
    use wire::image::MappingKind;

    #[test]
    fn what_came_last_counts_as_not_written_to_once_that_begins_again() {
        let Ok(tracking) = kernel::tracking::of_this_process().map(Arc::new) else { return };
        let (page, pages) = (PAGE_BYTES as usize, 4 * GAP_BYTES / PAGE_BYTES);
        let mut memory = vec![1u8; (pages as usize + 1) * page];
        let start = (memory.as_ptr() as u64).next_multiple_of(PAGE_BYTES);
        let first = (start - memory.as_ptr() as u64) as usize;
        let at = |number: u64| start + number * PAGE_BYTES;
        let pagemap = Pagemap::open(std::process::id() as i32).unwrap();
        let range = at(0)..at(pages);
        assert!(tracking.watch(&pagemap, &range).unwrap());
        let written = || tracking.written(&pagemap, &range, Select::Populated).unwrap().unwrap();
        tracking.claim().written(&pagemap, &range, Select::Populated).unwrap().unwrap();
        let changed = [1, 2, 5, pages - 1];
        changed.iter().for_each(|number| memory[first + *number as usize * page] = 2);
        let run = |start, end| Run { start: at(start), end: at(end) };
        let all = [run(1, 3), run(5, 6), run(pages - 1, pages)];
        assert_eq!(written(), all);
        let kind = MappingKind::Anonymous { grows_down: false };
        let (start, end) = (GuestAddr(at(0)), GuestAddr(at(pages)));
        let mapping = Mapping { start, end, protection: 3, kind, flags: Default::default() };
        // What it is not told of stays as it is, but between what is near to each other.
        let fresh = [run(1, 2), run(5, 6)];
        begin_again(&tracking, &pagemap, std::slice::from_ref(&mapping), &fresh).unwrap();
        assert_eq!(written(), all[2..]);
        begin_again(&tracking, &pagemap, &[mapping], &all).unwrap();
        assert_eq!(written(), []);
    }

    #[test]
    fn of_a_body_that_moved_on_home_has_what_neither_node_has_written_to() {
        let run = |start, end| Run { start, end };
        let mut same = Held::default();
        [run(0x1000, 0x5000), run(0x6000, 0x7000)].into_iter().for_each(|run| same.add(run));
        let runs = [run(0, 0x2000), run(0x3000, 0x4000), run(0x6000, 0x9000)];
        let both = [run(0x1000, 0x2000), run(0x3000, 0x4000), run(0x6000, 0x7000)];
        assert_eq!(Origin::Node(same).among(&runs), spans(&both));
        assert_eq!(Origin::Node(Held::default()).among(&runs), []);
        assert_eq!(Origin::Home.among(&runs), spans(&runs));
    }
}
