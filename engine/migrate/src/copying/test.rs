//! What a target is sent of the memory of this process, and what it has in the end.

use super::*;
use crate::MigrateError;
use crate::parts::BATCH_BYTES;
use kernel::features::{self, Feature};
use kernel::proc::pagemap::Select;
use std::ops::Range;
use std::sync::Arc;

fn finish(
    copying: &mut Copying,
    memory: &Memory,
    mappings: &[Mapping],
    send: Send<'_>,
) -> Result<u64> {
    let sight = copying.see(memory, mappings)?;
    copying.finish(memory, (mappings, &[]), sight, send)
}

#[test]
fn what_the_target_has_of_memory_that_is_gone_is_discarded_whether_it_was_the_same_or_not() {
    let pid = std::process::id() as i32;
    let span = |start, end| (GuestAddr(start), GuestAddr(end));
    let all = [span(0x1000, 0x3000), span(0x5000, 0x6000)];
    for same in [&all[..], &all[1..], &[]] {
        let mut copying = Copying::of(pid, None).unwrap();
        copying.assume_held(&all, same);
        let mut told = Vec::new();
        let memory = Memory::open(pid).unwrap();
        let mut send = |part| {
            told.push(part);
            Ok(())
        };
        assert_eq!(finish(&mut copying, &memory, &[], &mut send).unwrap(), 0);
        assert_eq!(told, [Part::Discard(all.to_vec())]);
    }
}

/// Memory of this process that is watched, and what a target would be told of it.
fn watched(bytes: usize) -> Option<(Vec<u8>, Mapping, Copying)> {
    Some(watched_by(kernel::tracking::of_this_process().ok()?, bytes))
}

fn watched_by(tracking: Tracking, bytes: usize) -> (Vec<u8>, Mapping, Copying) {
    let content = vec![1; bytes + 2 * PAGE_BYTES as usize];
    let start = (content.as_ptr() as u64).next_multiple_of(PAGE_BYTES);
    let end = start + bytes as u64;
    let mapping = anonymous(start..end);
    let pid = std::process::id() as i32;
    let pagemap = Pagemap::open(pid).unwrap();
    assert!(tracking.watch(&pagemap, &(start..end)).unwrap());
    tracking.begin().unwrap();
    (content, mapping, Copying::of(pid, Some(Arc::new(tracking).claim())).unwrap())
}

#[test]
fn of_little_memory_that_was_sent_only_what_is_different_then_is_sent_again() {
    let pid = std::process::id() as i32;
    let pages = 64;
    let bytes = pages * PAGE_BYTES as usize;
    let mut content = vec![1_u8; bytes + 2 * PAGE_BYTES as usize];
    let start = (content.as_ptr() as u64).next_multiple_of(PAGE_BYTES);
    let from = (start - content.as_ptr() as u64) as usize;
    let place = |page: usize| from + page * PAGE_BYTES as usize;
    let mapping = anonymous(start..start + bytes as u64);
    let (memory, mappings) = (Memory::open(pid).unwrap(), [mapping]);
    let mut copying = Copying::comparing(pid).unwrap();
    // Of a page of zeros nothing is sent.
    content[place(9)..place(10)].fill(0);
    // The compiler does not see who reads it.
    std::hint::black_box(&mut content);
    let sent = copying.ahead(&memory, &mappings, &mut |_| Ok(())).unwrap();
    assert_eq!(sent, (bytes as u64) - PAGE_BYTES);
    assert_eq!(copying.left(&mappings).unwrap(), 0);
    // One byte at either end of a page, one page that is zero now, and one that is not.
    content[place(5)] = 2;
    content[place(8) - 1] = 2;
    content[place(20)..place(21)].fill(0);
    content[place(9)] = 3;
    std::hint::black_box(&mut content);
    let mut told = Vec::new();
    let mut send = |part| {
        told.push(part);
        Ok(())
    };
    assert_eq!(finish(&mut copying, &memory, &mappings, &mut send).unwrap(), 3 * PAGE_BYTES);
    let page = |number: u64| {
        let at = start + number * PAGE_BYTES;
        (GuestAddr(at), GuestAddr(at + PAGE_BYTES))
    };
    let (mut sent, mut discarded) = (vec![], vec![]);
    for part in told {
        match part {
            Part::Pages(pages) => sent.extend(pages.spans),
            Part::Discard(spans) => discarded.extend(spans),
            Part::Late(_) => panic!("nothing comes late"),
        }
    }
    assert_eq!((sent, discarded), (vec![page(5), page(7), page(9)], vec![page(20)]));
}

#[test]
fn of_shared_memory_home_is_told_of_zeros_and_nothing_is_sent_that_others_bring() {
    let pid = std::process::id() as i32;
    let mut content = vec![1_u8; 6 * PAGE_BYTES as usize];
    let start = (content.as_ptr() as u64).next_multiple_of(PAGE_BYTES);
    let from = (start - content.as_ptr() as u64) as usize;
    content[from + PAGE_BYTES as usize..][..PAGE_BYTES as usize].fill(0);
    std::hint::black_box(&mut content);
    let page = |number: u64| {
        let at = start + number * PAGE_BYTES;
        (GuestAddr(at), GuestAddr(at + PAGE_BYTES))
    };
    let kind = MappingKind::SharedAnonymous { home: None };
    let mappings = [Mapping { kind, ..anonymous(start..start + 4 * PAGE_BYTES) }];
    let memory = Memory::open(pid).unwrap();
    for is_home in [true, false] {
        let mut copying = Copying::of(pid, None).unwrap();
        if is_home {
            copying.leave_files();
            // Home has it all, and what another brings may have come already.
            copying.learn(&[(page(0).0, page(4).0)]);
        }
        let mut brought = Held::default();
        brought.add(Run { start: page(3).0.0, end: page(3).1.0 });
        copying.leave_to_others(brought);
        let (mut sent, mut discarded) = (vec![], vec![]);
        let mut send = |part| {
            match part {
                Part::Pages(pages) => sent.extend(pages.spans),
                Part::Discard(spans) => discarded.extend(spans),
                Part::Late(_) => panic!("nothing comes late"),
            }
            Ok(())
        };
        let bytes = finish(&mut copying, &memory, &mappings, &mut send).unwrap();
        assert_eq!((bytes, sent), (2 * PAGE_BYTES, vec![page(0), page(2)]));
        let zeros = if is_home { vec![page(1)] } else { vec![] };
        assert_eq!(discarded, zeros, "a node starts from untouched memory");
    }
}

#[test]
fn what_was_sent_to_where_the_target_has_mapped_anew_is_sent_again() {
    let pid = std::process::id() as i32;
    let content = std::hint::black_box(vec![1_u8; 4 * PAGE_BYTES as usize]);
    let start = (content.as_ptr() as u64).next_multiple_of(PAGE_BYTES);
    let mappings = [anonymous(start..start + 2 * PAGE_BYTES)];
    let memory = Memory::open(pid).unwrap();
    let mut copying = Copying::comparing(pid).unwrap();
    copying.ahead(&memory, &mappings, &mut |_| Ok(())).unwrap();
    copying.remap(&mappings, &[]);
    copying.remap(&[], &mappings);
    let sent = finish(&mut copying, &memory, &mappings, &mut |_| Ok(())).unwrap();
    assert_eq!(sent, 2 * PAGE_BYTES);
}

fn anonymous(range: Range<u64>) -> Mapping {
    let kind = MappingKind::Anonymous { grows_down: false };
    let (start, end) = (GuestAddr(range.start), GuestAddr(range.end));
    Mapping { start, end, protection: 3, kind, flags: Default::default() }
}

#[test]
fn by_soft_dirty_bits_all_that_was_written_to_is_sent_until_they_are_cleared() {
    if !features::settled().has(Feature::SoftDirty) {
        eprintln!("skipped: this kernel has no soft-dirty bits");
        return;
    }
    let bytes: u64 = 8 << 20;
    let tracking = kernel::tracking::soft_dirty_of_this_process().unwrap();
    let (mut content, mapping, mut copying) = watched_by(tracking, bytes as usize);
    let memory = Memory::open(std::process::id() as i32).unwrap();
    let mappings = [mapping];
    let mut send = |_| Ok(());
    assert_eq!(copying.ahead(&memory, &mappings, &mut send).unwrap(), bytes);
    assert_eq!(copying.left(&mappings).unwrap(), 0);
    // A huge page counts as a whole.
    let few = PAGE_BYTES..=2 << 20;
    content[2 * PAGE_BYTES as usize] = 2;
    for _ in 0..2 {
        assert!(few.contains(&copying.ahead(&memory, &mappings, &mut send).unwrap()));
    }
    let tracking = copying.tracking().unwrap();
    let range = mappings[0].start.0..mappings[0].end.0;
    let seen = tracking.written(&copying.pagemap, &range, Select::Populated).unwrap();
    tracking.begin().unwrap();
    assert_eq!(copying.left(&mappings).unwrap(), 0);
    copying.doubt(&seen.expect("it is watched"));
    assert!(few.contains(&copying.left(&mappings).unwrap()), "it may have changed unseen");
    assert!(few.contains(&copying.ahead(&memory, &mappings, &mut send).unwrap()));
    content[bytes as usize / 2] = 2;
    let mut told = Vec::new();
    let mut send = |part| {
        told.push(part);
        Ok(())
    };
    assert!(few.contains(&finish(&mut copying, &memory, &mappings, &mut send).unwrap()));
    let at = GuestAddr(content.as_ptr() as u64 + bytes / 2);
    let is_there = |span: &Span| (span.0..span.1).contains(&at);
    let is_sent = |part: &Part| matches!(part, Part::Pages(p) if p.spans.iter().any(is_there));
    assert!(told.iter().any(is_sent), "what was written to");
}

#[test]
fn what_a_target_has_is_known_after_a_pass_that_broke_off_and_after_a_loss() {
    let bytes = 4 * BATCH_BYTES;
    let Some((content, mapping, mut copying)) = watched(bytes) else { return };
    let memory = Memory::open(std::process::id() as i32).unwrap();
    let mappings = [mapping];
    let (start, end) = (mappings[0].start, mappings[0].end);
    let mut left = 2;
    let mut send = |_| {
        left -= 1;
        if left > 0 { Ok(()) } else { Err(MigrateError::refused("enough", "no more")) }
    };
    copying.ahead(&memory, &mappings, &mut send).unwrap_err();
    let mut send = |_| Ok(());
    // It may have come or not: all of it is sent again.
    assert_eq!(copying.ahead(&memory, &mappings, &mut send).unwrap(), bytes as u64);
    assert_eq!(copying.ahead(&memory, &mappings, &mut send).unwrap(), 0);
    copying.learn(&[(start, GuestAddr(end.0 - PAGE_BYTES))]);
    assert_eq!(copying.left(&mappings).unwrap(), PAGE_BYTES);
    assert_eq!(finish(&mut copying, &memory, &mappings, &mut send).unwrap(), PAGE_BYTES);
    // Unmapped for a moment here, and not there: what was there before is not forgotten.
    copying.remap(&mappings, &[]);
    copying.learn(&[(start, end)]);
    let mut told = Vec::new();
    let mut send = |part| {
        told.push(part);
        Ok(())
    };
    finish(&mut copying, &memory, &[], &mut send).unwrap();
    assert_eq!(told, [Part::Discard(vec![(start, end)])]);
    drop(content);
}

#[test]
fn a_move_that_was_called_off_takes_no_writes_from_the_next() {
    let Ok(tracking) = kernel::tracking::of_this_process().map(Arc::new) else { return };
    let pid = std::process::id() as i32;
    let mut content = vec![1_u8; 6 * PAGE_BYTES as usize];
    let start = (content.as_ptr() as u64).next_multiple_of(PAGE_BYTES);
    let from = (start - content.as_ptr() as u64) as usize;
    let range = start..start + 4 * PAGE_BYTES;
    assert!(tracking.watch(&Pagemap::open(pid).unwrap(), &range).unwrap());
    let (memory, mappings) = (Memory::open(pid).unwrap(), [anonymous(range)]);
    let mut off = Copying::of(pid, Some(tracking.claim())).unwrap();
    // Its thread waits for its target until the next move is under way.
    let mut next = Copying::of(pid, Some(tracking.claim())).unwrap();
    let mut send = |_| Ok(());
    assert_eq!(next.ahead(&memory, &mappings, &mut send).unwrap(), 4 * PAGE_BYTES);
    content[from + PAGE_BYTES as usize] = 2;
    std::hint::black_box(&mut content);
    off.ahead(&memory, &mappings, &mut send).unwrap_err();
    assert_eq!(finish(&mut next, &memory, &mappings, &mut send).unwrap(), PAGE_BYTES);
}

#[test]
fn what_is_written_while_it_is_copied_is_there_in_the_end() {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    const PAGES: usize = 4096;
    let page = PAGE_BYTES as usize;
    let words = page / size_of::<AtomicU64>();
    let Ok(tracking) = kernel::tracking::of_this_process() else { return };
    let all: Vec<AtomicU64> = (0..(PAGES + 1) * words).map(|_| AtomicU64::new(1)).collect();
    let start = (all.as_ptr() as u64).next_multiple_of(PAGE_BYTES);
    let first = (start - all.as_ptr() as u64) as usize / size_of::<AtomicU64>();
    let end = start + PAGES as u64 * PAGE_BYTES;
    let pid = std::process::id() as i32;
    assert!(tracking.watch(&Pagemap::open(pid).unwrap(), &(start..end)).unwrap());
    tracking.begin().unwrap();
    let mut copying = Copying::of(pid, Some(Arc::new(tracking).claim())).unwrap();
    let memory = Memory::open(pid).unwrap();
    let kind = MappingKind::Anonymous { grows_down: false };
    let (from, to) = (GuestAddr(start), GuestAddr(end));
    let mapping = Mapping { start: from, end: to, protection: 3, kind, flags: Default::default() };
    let mappings = [mapping];
    let mut there: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut send = |part: Part| {
        match part {
            Part::Pages(pages) => {
                let runs = wire::image::runs(&pages.spans, &pages.content).expect("whole");
                for (at, bytes) in runs {
                    for (index, bytes) in bytes.chunks(page).enumerate() {
                        there.insert(at.0 + (index * page) as u64, bytes.to_vec());
                    }
                }
            }
            Part::Discard(spans) | Part::Late(spans) => there
                .retain(|at, _| !spans.iter().any(|(start, end)| (start.0..end.0).contains(at))),
        }
        Ok(())
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = 88_172_645_463_325_252u64;
            while !is_over.load(Ordering::Relaxed) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let word = first + state as usize % (PAGES * words);
                // Some pages are all zero for a while.
                all[word].store(state >> 60, Ordering::Relaxed);
            }
        });
        for _ in 0..20 {
            copying.ahead(&memory, &mappings, &mut send).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    all[first].store(77, Ordering::Relaxed);
    assert!(copying.left(&mappings).unwrap() >= PAGE_BYTES, "it was written to");
    finish(&mut copying, &memory, &mappings, &mut send).unwrap();
    for number in 0..PAGES {
        let words = &all[first + number * words..][..words];
        let here = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        let here: Vec<u8> = here.collect();
        let there = there.get(&(start + (number * page) as u64));
        let is_same = there.map_or_else(|| is_zero(&here), |there| *there == here);
        assert!(is_same, "page {number}");
    }
}
