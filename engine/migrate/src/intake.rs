//! The target's side of a process's memory: what may come, and how much.

use crate::held::{self, Held, within};
use crate::homeward::{self, Change};
use crate::late::may_be_late;
use crate::shell::is_same_kind;
use crate::{MigrateError, Result};
use kernel::proc::pagemap::{PAGE_BYTES, Run};
use wire::image::{self, Mapping, MappingKind, Span};
use wire::limits::{GROWTH_BYTES_MAX, LATE_RANGES_MAX, PAGE_RUN_BYTES_MAX};

/// The memory that has come. The same page may come again: it takes no more room.
#[derive(Clone, Debug)]
pub struct Intake {
    held: Held,
    /// What of it has come since that was asked for last.
    fresh: Held,
    /// What is to come behind the process.
    late: Held,
    bytes_max: u64,
    /// Told by hashes so far, whether it was here or not.
    asked_bytes: u64,
}

impl Default for Intake {
    /// As much as the mappings hold.
    fn default() -> Intake {
        Intake { bytes_max: u64::MAX, ..Intake::promised(0) }
    }
}

impl Intake {
    /// For a process that was announced with so much memory.
    pub fn promised(memory_bytes: u64) -> Intake {
        let grown = memory_bytes.saturating_mul(2).saturating_add(GROWTH_BYTES_MAX);
        let (held, fresh, late) = Default::default();
        Intake { held, fresh, late, bytes_max: grown, asked_bytes: 0 }
    }

    /// Checks received memory contents: whole pages, inside the mappings, not more than was
    /// announced. Shared memory travels whole, even where it was never touched, and does not count.
    /// Returns the places with their contents.
    ///
    /// # Errors
    /// Nothing must be written then.
    pub fn check<'a>(
        &mut self,
        spans: &[Span],
        content: &'a [u8],
        mappings: &[Mapping],
    ) -> Result<Vec<(u64, &'a [u8])>> {
        let Some(runs) = image::runs(spans, content) else {
            return Err(MigrateError::Protocol("memory of another length than was said".into()));
        };
        for (address, content) in &runs {
            let run = check(address.0, content.len() as u64, mappings)?;
            self.late.remove(run);
            let at = mappings.partition_point(|m| m.end.0 <= run.start);
            let is_shared = |m: &Mapping| {
                matches!(
                    m.kind,
                    MappingKind::SharedAnonymous { .. } | MappingKind::SharedFile { .. }
                )
            };
            if mappings.get(at).is_none_or(|m| !is_shared(m)) {
                self.held.add(run);
                self.fresh.add(run);
            }
        }
        match self.held.bytes() <= self.bytes_max {
            true => Ok(runs.into_iter().map(|(address, content)| (address.0, content)).collect()),
            false => {
                let text = "it has far more memory than was announced; try again";
                Err(MigrateError::refused("grown", text))
            }
        }
    }

    /// Where memory has come since this was asked last.
    pub fn take_fresh(&mut self) -> Vec<Run> {
        std::mem::take(&mut self.fresh).beyond(&[])
    }

    /// Checks that memory that is told by hashes is in the mappings, and that no more is asked for
    /// than may come: each question is a guess at what an earlier guest had.
    ///
    /// # Errors
    /// Nothing must be answered then.
    pub fn check_asked(&mut self, spans: &[Span], mappings: &[Mapping]) -> Result<()> {
        for (start, end) in spans.iter().map(|(start, end)| (start.0, end.0)) {
            let run = check(start, end.saturating_sub(start), mappings)?;
            self.asked_bytes = self.asked_bytes.saturating_add(run.end - run.start);
        }
        match self.asked_bytes <= self.bytes_max {
            true => Ok(()),
            false => {
                let text = "it asks for far more memory than was announced; try again";
                Err(MigrateError::refused("grown", text))
            }
        }
    }

    /// Checks that memory to be discarded is in the mappings.
    ///
    /// # Errors
    /// Nothing must be discarded then.
    pub fn check_discarded(&mut self, spans: &[Span], mappings: &[Mapping]) -> Result<()> {
        for (start, end) in spans.iter().map(|(start, end)| (start.0, end.0)) {
            let is_whole = start < end && start % PAGE_BYTES == 0 && end % PAGE_BYTES == 0;
            if !is_whole || !is_covered(mappings, start, end) {
                let text = format!("no memory at {start:#x} to be discarded up to {end:#x}");
                return Err(MigrateError::Protocol(text));
            }
            self.held.remove(Run { start, end });
            self.late.remove(Run { start, end });
        }
        Ok(())
    }

    /// Checks memory that is to come behind the process: whole pages of mappings that can have
    /// such, no more than was announced, and not in any number of pieces. Returns what of it has to
    /// be discarded.
    ///
    /// # Errors
    /// Nothing must be discarded then.
    pub fn check_late(&mut self, spans: &[Span], mappings: &[Mapping]) -> Result<Vec<Span>> {
        let mut stale = Vec::new();
        for (start, end) in spans.iter().map(|(start, end)| (start.0, end.0)) {
            let run = Run { start, end };
            let is_whole = start < end && start % PAGE_BYTES == 0 && end % PAGE_BYTES == 0;
            if !is_whole || !is_covered_by(mappings, start, end, may_be_late) {
                let text = format!("no memory at {start:#x} that could come late up to {end:#x}");
                return Err(MigrateError::Protocol(text));
            }
            stale.extend(within(&[run], &self.held));
            self.held.remove(run);
            self.late.add(run);
        }
        if self.late.count() > LATE_RANGES_MAX {
            return Err(MigrateError::Protocol("late memory in too many pieces".into()));
        }
        match self.held.bytes().saturating_add(self.late.bytes()) <= self.bytes_max {
            true => Ok(held::spans(&stale)),
            false => {
                let text = "it has far more memory than was announced; try again";
                Err(MigrateError::refused("grown", text))
            }
        }
    }

    /// The mappings have changed: what is not there any more does not come.
    pub fn remap(&mut self, old: &[Mapping], new: &[Mapping]) {
        if self.late.count() == 0 {
            return;
        }
        unmapped(old, new).into_iter().for_each(|run| self.late.remove(run));
    }

    /// What is to come behind the process.
    pub fn late(&self) -> &Held {
        &self.late
    }
}

fn check(start: u64, length: u64, mappings: &[Mapping]) -> Result<Run> {
    let is_whole = (1..=PAGE_RUN_BYTES_MAX as u64).contains(&length)
        && start.is_multiple_of(PAGE_BYTES)
        && length.is_multiple_of(PAGE_BYTES);
    let end = start.checked_add(length).filter(|end| is_whole && is_covered(mappings, start, *end));
    match end {
        Some(end) => Ok(Run { start, end }),
        None => Err(MigrateError::Protocol(format!(
            "{length} bytes of memory at {start:#x}, outside its mappings"
        ))),
    }
}

/// True if the mappings, which are in order, cover the whole range.
pub fn is_covered(mappings: &[Mapping], start: u64, end: u64) -> bool {
    is_covered_by(mappings, start, end, |m| !matches!(m.kind, MappingKind::Kernel { .. }))
}

/// The same by mappings that all are of a kind.
fn is_covered_by(
    mappings: &[Mapping],
    start: u64,
    end: u64,
    fits: impl Fn(&Mapping) -> bool,
) -> bool {
    let mut at = start;
    let first = mappings.partition_point(|m| m.end.0 <= at);
    for mapping in &mappings[first..] {
        if mapping.start.0 > at || !fits(mapping) {
            return false;
        }
        at = mapping.end.0;
        if at >= end {
            return true;
        }
    }
    false
}

/// Where what is laid out as `old` has nothing any more when it has been changed to `new`.
pub(crate) fn unmapped(old: &[Mapping], new: &[Mapping]) -> Vec<Run> {
    if old == new {
        return vec![];
    }
    let gone =
        |change: Change| change.replaced().map(|range| Run { start: range.start, end: range.end });
    homeward::plan(old, new, &is_same_kind).into_iter().filter_map(gone).collect()
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::ids::GuestAddr;

    #[test]
    fn memory_outside_the_mappings_is_refused() {
        let mapping = |start, end, kind| Mapping {
            start: GuestAddr(start),
            end: GuestAddr(end),
            protection: 3,
            kind,
            flags: Default::default(),
        };
        let plain = MappingKind::Anonymous { grows_down: false };
        let mappings = [
            mapping(0x1000, 0x3000, plain.clone()),
            mapping(0x3000, 0x4000, plain),
            mapping(0x4000, 0x5000, MappingKind::Kernel { name: "[vdso]".into() }),
        ];
        let verdict = |address, length| check(address, length, &mappings);
        assert!(verdict(0x1000, 0x3000).is_ok());
        assert!(verdict(0x1000, 0x4000).is_err());
        assert!(verdict(0x5000, 0x1000).is_err());
        assert!(verdict(0x1800, 0x1000).is_err());
        assert!(verdict(0x1000, 0).is_err());
        assert!(verdict(u64::MAX - 0xfff, 0x1000).is_err());
    }

    #[test]
    fn pages_may_come_again_and_memory_not_without_end() {
        let kind = MappingKind::Anonymous { grows_down: false };
        let end = GuestAddr(1 << 40);
        let flags = Default::default();
        let mappings = [Mapping { start: GuestAddr(0x1000), end, protection: 3, kind, flags }];
        let span = |start, end| [(GuestAddr(start), GuestAddr(end))];
        let page = |address| span(address, address + 0x1000);
        let content = vec![0; 0x1000];
        let mut intake = Intake { bytes_max: 0x2000, ..Intake::default() };
        for address in [0x3000, 0x3000, 0x2000, 0x3000] {
            intake.check(&page(address), &content, &mappings).unwrap();
        }
        let error = intake.clone().check(&page(0x9000), &content, &mappings).unwrap_err();
        assert_eq!(error.reason().code, "grown");
        intake.check_discarded(&span(0x1000, 0x3000), &mappings).unwrap();
        intake.check(&page(0x9000), &content, &mappings).unwrap();
        let both = [span(0x3000, 0x4000), span(0x9000, 0xa000)].concat();
        let contents = [[1; 0x1000], [2; 0x1000]].concat();
        let runs = intake.check(&both, &contents, &mappings).unwrap();
        assert_eq!(runs, [(0x3000, &[1; 0x1000][..]), (0x9000, &[2; 0x1000])]);
        assert!(intake.check(&both, &content, &mappings).is_err());
        for page in [0x3000, 0x3000] {
            intake.check_asked(&span(page, page + 0x1000), &mappings).unwrap();
        }
        let error = intake.clone().check_asked(&span(0x3000, 0x4000), &mappings).unwrap_err();
        assert_eq!(error.reason().code, "grown");
        assert!(intake.clone().check_asked(&span(0, 0x1000), &mappings).is_err());
        assert!(intake.clone().check_asked(&span(0x4000, 0x3000), &mappings).is_err());
        for (start, end) in [(0, 0x1000), (0x3000, 0x3000), (0x1001, 0x2001), (0x1000, 1 << 50)] {
            assert!(intake.check_discarded(&span(start, end), &mappings).is_err(), "{start:#x}");
        }
    }
}
