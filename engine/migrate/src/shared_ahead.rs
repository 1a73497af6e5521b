//! What was sent ahead of memory that several processes share.
//!
//! Writes to it are not told: the page tables of one process know nothing of what others have
//! written, and forget what their own has when the kernel takes a page out of them. So each page is
//! hashed as it is sent, and once more when all stand still: that takes a small part of the time in
//! which it would be sent.
//!
//! Who brings which memory can change meanwhile. So nothing of it counts as untouched at the
//! target, and nobody leaves if another brings now what this one has sent: which of the two came
//! last there is not known.

use crate::copying::{Copying, Pass, Zeros, whole};
use crate::held::{self, Held};
use crate::parts::{Batch, Part, RUN_BYTES, Send};
use crate::shared_holes::{MemoryFiles, SharedPages};
use crate::{MigrateError, Result};
use kernel::memory::Memory;
use kernel::proc::pagemap::{PAGE_BYTES, Run};
use wire::image::{self, Mapping, Pages, SharedPlace};

/// Of a page; half of what BLAKE3 gives is more than enough for what nobody but the group itself
/// can choose.
type Hash = [u8; 16];

/// The memory of one process that was sent ahead, and other processes may write to.
#[derive(Default)]
pub(crate) struct SharedAhead {
    /// Pages by address, in order, as they were sent.
    pages: Vec<(u64, Hash)>,
    /// Where parts of which memory were mapped when they were sent.
    parts: Vec<(Run, SharedPlace)>,
}

impl SharedAhead {
    /// These parts of a mapping are about to be sent, whose start has this address and place.
    pub fn begin(&mut self, start: u64, place: SharedPlace, runs: &[Run]) {
        let part = |run: &Run| {
            let offset = place.offset + (run.start - start);
            (*run, SharedPlace { offset, ..place })
        };
        self.parts.extend(runs.iter().map(part));
    }

    /// Notes what is sent of it.
    pub fn keep(&mut self, part: &Part) {
        let Part::Pages(Pages { spans, content }) = part else { return };
        for (start, content) in image::runs(spans, content).into_iter().flatten() {
            self.pages.extend(hashes(start.0, content));
        }
    }

    /// Whether all that was sent is still this process's to bring.
    ///
    /// # Errors
    /// Refused if not; it can be tried again.
    pub fn check(&self, by_others: &Held) -> Result<()> {
        match self.parts.iter().find(|(run, _)| by_others.lacks(&[*run]) != [*run]) {
            None => Ok(()),
            Some((Run { start, .. }, _)) => {
                let text = format!(
                    "the shared memory at {start:#x} was mapped by another process while it was \
                     being copied; try again"
                );
                Err(MigrateError::refused("changed", text))
            }
        }
    }

    /// Takes what is as it was sent, and is still there, out of what the target lacks of each
    /// mapping. What cannot be read is left to whoever sends it.
    pub fn leave_out(
        &self,
        memory: &Memory,
        (mappings, sent): (&[Mapping], &Held),
        lacking: &mut [Vec<Run>],
    ) {
        if self.pages.is_empty() {
            return;
        }
        let mut buffer = vec![0; RUN_BYTES as usize];
        for (mapping, runs) in mappings.iter().zip(lacking) {
            let mut same = Held::default();
            for run in held::within(&held::within(runs, sent), &self.sent_of(mapping)) {
                for at in (run.start..run.end).step_by(RUN_BYTES as usize) {
                    let content = &mut buffer[..(run.end - at).min(RUN_BYTES) as usize];
                    self.compare(memory, at, content, &mut same);
                }
            }
            *runs = same.lacks(runs);
        }
    }

    /// What was sent of the memory that is mapped there, at the same addresses.
    fn sent_of(&self, mapping: &Mapping) -> Held {
        let Some(first) = mapping.shared_place() else { return Held::default() };
        let start = |place: SharedPlace, at: u64| place.offset.wrapping_sub(at);
        let is_there = |(run, place): &&(Run, SharedPlace)| {
            place.memory() == first.memory()
                && start(*place, run.start) == start(first, mapping.start.0)
        };
        let runs: Vec<Run> = self.parts.iter().filter(is_there).map(|(run, _)| *run).collect();
        Held::of(&runs)
    }

    /// Adds what of these pages is as it was sent.
    fn compare(&self, memory: &Memory, start: u64, content: &mut [u8], same: &mut Held) {
        let end = start + content.len() as u64;
        let first = self.pages.partition_point(|(address, _)| *address < start);
        let count = self.pages[first..].partition_point(|(address, _)| *address < end);
        if count == 0 || memory.read_pages(start, content).is_err() {
            return;
        }
        let mut known = &self.pages[first..first + count];
        let mut unchanged: Vec<Run> = Vec::new();
        for (address, hash) in hashes(start, content) {
            while known.first().is_some_and(|(before, _)| *before < address) {
                known = &known[1..];
            }
            if known.first() == Some(&(address, hash)) {
                match unchanged.last_mut().filter(|last| last.end == address) {
                    Some(last) => last.end += PAGE_BYTES,
                    None => unchanged.push(Run { start: address, end: address + PAGE_BYTES }),
                }
            }
        }
        unchanged.into_iter().for_each(|run| same.add(run));
    }
}

impl Copying {
    /// This shared memory is open here.
    pub fn know_memory(&mut self, files: MemoryFiles) {
        self.memory_files = files;
    }

    /// Sends shared memory of a group, of which others bring `by_others`, while all of them run.
    /// What is written to meanwhile is found in the freeze.
    ///
    /// # Errors
    /// Of `send`.
    pub fn share_ahead(
        &mut self,
        memory: &Memory,
        (mappings, by_others): (&[Mapping], &Held),
        send: Send<'_>,
    ) -> Result<()> {
        let files = self.memory_files.clone();
        let pages = SharedPages::of(self.pagemap.pid(), mappings, &files);
        let mut ahead = SharedAhead::default();
        for (mapping, place) in mappings.iter().filter_map(|m| Some((m, m.shared_place()?))) {
            let (data, _) = pages.divide(&by_others.lacks(&[whole(mapping)]));
            ahead.begin(mapping.start.0, place, &data);
            let mut batch = Batch::default();
            let mut keep = |part: Part| {
                ahead.keep(&part);
                send(part)
            };
            let how = (Zeros::Skipped, Pass::Running);
            for run in data {
                self.send_run(memory, run, how, &mut batch, &mut keep)?;
            }
            batch.send(&mut keep)?;
        }
        self.shared_ahead = ahead;
        Ok(())
    }
}

fn hashes(start: u64, content: &[u8]) -> impl Iterator<Item = (u64, Hash)> {
    let page = PAGE_BYTES as usize;
    let addresses = (start..).step_by(page);
    addresses.zip(content.chunks(page)).map(|(address, page)| {
        let mut first = Hash::default();
        first.copy_from_slice(&blake3::hash(page).as_bytes()[..size_of::<Hash>()]);
        (address, first)
    })
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::ids::GuestAddr;
    use wire::image::MappingKind;

    const PAGE: usize = PAGE_BYTES as usize;
    const PLACE: SharedPlace = SharedPlace { device: 1, inode: 7, offset: 0 };

    /// Pages of this process, each of which has its number in it, from 1.
    struct Stage {
        content: Vec<u8>,
        start: u64,
        pages: u64,
        memory: Memory,
    }

    impl Stage {
        fn of(pages: u64) -> Stage {
            let content = vec![0; (pages as usize + 1) * PAGE];
            let start = (content.as_ptr() as u64).next_multiple_of(PAGE_BYTES);
            let memory = Memory::open(std::process::id() as i32).unwrap();
            let mut stage = Stage { content, start, pages, memory };
            (0..pages).for_each(|page| stage.write(page, page as u8 + 1));
            stage
        }

        fn write(&mut self, page: u64, byte: u8) {
            let from = (self.start - self.content.as_ptr() as u64) as usize + page as usize * PAGE;
            self.content[from..from + PAGE].fill(byte);
            std::hint::black_box(&mut self.content);
        }

        fn at(&self, page: u64) -> u64 {
            self.start + page * PAGE_BYTES
        }

        fn run(&self, page: u64) -> Run {
            Run { start: self.at(page), end: self.at(page + 1) }
        }

        fn mapping(&self, place: SharedPlace) -> Mapping {
            let kind = MappingKind::SharedAnonymous { home: Some(place) };
            let (start, end) = (GuestAddr(self.start), GuestAddr(self.at(self.pages)));
            Mapping { start, end, protection: 3, kind, flags: Default::default() }
        }

        fn share(&self, by_others: &[Run]) -> (Copying, Vec<u64>) {
            let mut copying = Copying::of(std::process::id() as i32, None).unwrap();
            let mut sent = Vec::new();
            let parts = (&[self.mapping(PLACE)][..], &Held::of(by_others));
            let mut send = |part| {
                sent.extend(self.numbers(&part).0);
                Ok(())
            };
            copying.share_ahead(&self.memory, parts, &mut send).unwrap();
            (copying, sent)
        }

        /// The numbers of the pages that are sent, and of those that are discarded.
        fn finish(
            &self,
            mut copying: Copying,
            mapping: Mapping,
            by_others: &[Run],
        ) -> Result<(Vec<u64>, Vec<u64>)> {
            copying.leave_to_others(Held::of(by_others));
            let mappings = [mapping];
            let sight = copying.see(&self.memory, &mappings)?;
            let (mut sent, mut discarded) = (vec![], vec![]);
            copying.finish(&self.memory, (&mappings, &[]), sight, &mut |part| {
                let (pages, gone) = self.numbers(&part);
                sent.extend(pages);
                discarded.extend(gone);
                Ok(())
            })?;
            Ok((sent, discarded))
        }

        fn numbers(&self, part: &Part) -> (Vec<u64>, Vec<u64>) {
            let pages = |spans: &[image::Span]| {
                let number = |at: u64| (at - self.start) / PAGE_BYTES;
                spans.iter().flat_map(|(start, end)| number(start.0)..number(end.0)).collect()
            };
            match part {
                Part::Pages(Pages { spans, .. }) => (pages(spans), vec![]),
                Part::Discard(spans) => (vec![], pages(spans)),
                Part::Late(_) => panic!("nothing comes late"),
            }
        }
    }

    #[test]
    fn what_was_sent_ahead_is_sent_again_only_if_it_is_other_by_then() {
        let mut stage = Stage::of(8);
        stage.write(6, 0);
        let (copying, sent) = stage.share(&[stage.run(3)]);
        assert_eq!(sent, [0, 1, 2, 4, 5, 7], "but what others bring, and nothing of zeros");
        stage.write(1, 77);
        stage.write(2, 0);
        stage.write(3, 77);
        stage.write(7, 0);
        stage.write(7, 8);
        let (sent, discarded) =
            stage.finish(copying, stage.mapping(PLACE), &[stage.run(3)]).unwrap();
        assert_eq!((sent, discarded), (vec![1], vec![2, 6]));
    }

    #[test]
    fn other_memory_at_the_same_place_is_sent_whole() {
        let stage = Stage::of(4);
        for other in [
            SharedPlace { inode: 8, ..PLACE },
            SharedPlace { device: 2, ..PLACE },
            SharedPlace { offset: PAGE_BYTES, ..PLACE },
        ] {
            let (copying, _) = stage.share(&[]);
            let (sent, _) = stage.finish(copying, stage.mapping(other), &[]).unwrap();
            assert_eq!(sent, [0, 1, 2, 3], "{other:?}");
        }
    }

    #[test]
    fn what_others_brought_first_and_do_not_any_more_is_sent_whole() {
        let mut stage = Stage::of(4);
        stage.write(2, 0);
        let (copying, sent) = stage.share(&[stage.run(1), stage.run(2)]);
        assert_eq!(sent, [0, 3]);
        let (sent, discarded) = stage.finish(copying, stage.mapping(PLACE), &[]).unwrap();
        assert_eq!((sent, discarded), (vec![1], vec![2]), "there may be something by now");
    }

    #[test]
    fn nobody_leaves_if_another_brings_what_was_sent() {
        let stage = Stage::of(4);
        let (copying, _) = stage.share(&[]);
        let refused = stage.finish(copying, stage.mapping(PLACE), &[stage.run(2)]).unwrap_err();
        assert_eq!(refused.reason().code, "changed");
    }
}
