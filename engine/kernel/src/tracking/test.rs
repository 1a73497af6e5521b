//! What is written is told, once and to the right one; tried on this process itself.

use super::*;
use crate::features::{self, Feature};
use crate::proc::pagemap::{PAGE_BYTES, Select};
use crate::shared::test_support::{Fresh, anonymous, of_file, shared};

struct Watched {
    map: Fresh,
    base: u64,
    pagemap: Pagemap,
    tracking: Tracking,
}

const PAGES: u64 = 64;

fn watched() -> Option<Watched> {
    let tracking = of_this_process().ok()?;
    let map = anonymous((PAGES * PAGE_BYTES) as usize);
    let base = map.as_ptr() as u64;
    let pagemap = Pagemap::open(std::process::id() as i32).unwrap();
    Some(Watched { map, base, pagemap, tracking })
}

impl Watched {
    fn watch(&self, pages: Range<u64>) -> bool {
        let address = |page| self.base + page * PAGE_BYTES;
        self.tracking.watch(&self.pagemap, &(address(pages.start)..address(pages.end))).unwrap()
    }

    fn touch(&self, page: u64) {
        self.map.touch((page * PAGE_BYTES) as usize);
    }

    /// Pages that are there, and those that were written to.
    fn walk(&self, protects: bool) -> Option<(Vec<u64>, Vec<u64>)> {
        let end = self.base + PAGES * PAGE_BYTES;
        let walked = self.pagemap.walk(self.base, end, Select::Populated, protects).unwrap()?;
        Some(self.pages(walked))
    }

    fn pages(&self, walked: Walked) -> (Vec<u64>, Vec<u64>) {
        let number = |at: u64| (at - self.base) / PAGE_BYTES;
        let pages = |runs: Vec<Run>| {
            runs.iter().flat_map(|run| number(run.start)..number(run.end)).collect()
        };
        (pages(walked.there), pages(walked.written))
    }
}

#[test]
fn what_one_move_is_told_of_writes_no_other_that_is_off_can_take_away() {
    let Some(it) = watched() else { return };
    assert!(it.watch(0..PAGES));
    let Watched { map, base, pagemap, tracking } = it;
    let (tracking, range) = (Arc::new(tracking), base..base + PAGES * PAGE_BYTES);
    let written = |claim: &Claim| {
        let walked = claim.walk(&pagemap, &range, Select::Populated)?;
        crate::Result::Ok(walked.expect("it is watched").written)
    };
    let off = tracking.claim();
    map.touch(PAGE_BYTES as usize);
    assert_eq!(written(&off).unwrap().len(), 1);
    let claim = tracking.claim();
    assert_eq!(written(&claim).unwrap(), []);
    map.touch(3 * PAGE_BYTES as usize);
    let error = written(&off).unwrap_err();
    assert_eq!(error.source.raw_os_error(), Some(libc::ECANCELED), "{error}");
    assert!(off.written(&pagemap, &range, Select::Populated).is_err());
    let at = base + 3 * PAGE_BYTES;
    assert_eq!(written(&claim).unwrap(), [Run { start: at, end: at + PAGE_BYTES }]);
}

#[test]
fn exactly_what_was_written_since_the_last_walk_is_told() {
    let Some(it) = watched() else {
        assert!(!features::settled().has(Feature::WriteTracking));
        return;
    };
    [3, 4, 40].into_iter().for_each(|page| it.touch(page));
    assert_eq!(it.walk(true), None, "it is not watched yet");
    assert!(it.watch(0..PAGES));
    assert_eq!(it.walk(true), Some((vec![3, 4, 40], vec![3, 4, 40])), "all counts as written");
    assert_eq!(it.walk(true), Some((vec![3, 4, 40], vec![])));
    it.touch(4);
    it.touch(50);
    assert_eq!(it.walk(false), Some((vec![3, 4, 40, 50], vec![4, 50])));
    assert_eq!(it.walk(true), Some((vec![3, 4, 40, 50], vec![4, 50])), "it was only looked at");
    assert_eq!(it.walk(true), Some((vec![3, 4, 40, 50], vec![])));
    it.map.advise(libc::MADV_DONTNEED);
    assert_eq!(it.walk(true), Some((vec![], vec![])));
    it.touch(3);
    assert_eq!(it.walk(true), Some((vec![3], vec![3])), "a page that was gone meanwhile");
}

#[test]
fn what_was_written_to_shared_memory_is_told_also_if_it_has_left_the_page_table() {
    let Some(it) = watched() else { return };
    let it = Watched { map: shared((PAGES * PAGE_BYTES) as usize), ..it };
    let it = Watched { base: it.map.as_ptr() as u64, ..it };
    let range = it.base..it.base + PAGES * PAGE_BYTES;
    let written = || {
        let written = it.tracking.written_shared(&it.pagemap, &range).unwrap();
        written.map(|written| it.pages(Walked { there: vec![], written }).1)
    };
    assert_eq!(written(), None, "it is not watched yet");
    it.touch(3);
    assert!(it.watch(0..PAGES));
    assert!(written().unwrap().contains(&3), "all counts as written");
    assert_eq!(written(), Some(vec![]));
    it.touch(3);
    it.touch(50);
    assert_eq!(written(), Some(vec![3, 50]));
    assert_eq!(written(), Some(vec![]));
    it.touch(4);
    it.map.advise(libc::MADV_DONTNEED);
    assert!(written().unwrap().contains(&4), "its contents are there still");
    it.touch(5);
    assert!(written().unwrap().contains(&5));
}

#[test]
fn one_look_tells_of_all_mappings_what_there_is_of_each() {
    let Some(it) = watched() else { return };
    let page = |page: u64| it.base + page * PAGE_BYTES;
    let has_guards = features::settled().has(Feature::GuardRegions);
    let guard = |number: u64| {
        const MADV_GUARD_INSTALL: i32 = 102;
        let (start, length) = (page(number) as *mut libc::c_void, PAGE_BYTES as usize);
        if has_guards {
            // SAFETY: a page of the mapping, which nobody touches from here on.
            assert_eq!(unsafe { libc::madvise(start, length, MADV_GUARD_INSTALL) }, 0);
        }
    };
    [3, 4, 40].into_iter().for_each(|page| it.touch(page));
    // SAFETY: a page of the mapping, which is readable: it gets the zero page.
    assert_eq!(unsafe { (page(20) as *const u8).read_volatile() }, 0);
    guard(8);
    assert!(it.watch(0..32));
    assert!(it.pagemap.walk(page(0), page(32), Select::Populated, true).unwrap().is_some());
    [4, 17].into_iter().for_each(|page| it.touch(page));
    guard(10);
    let ranges = [page(0)..page(16), page(16)..page(32), page(40)..page(64)];
    let look = |asks_written| {
        let looked = it.pagemap.look(&ranges, Select::Populated, asks_written).unwrap();
        let told = looked.into_iter().map(|looked| {
            let guards = it.pages(Walked::of(looked.guards)).0;
            (it.pages(looked.walked), guards, looked.is_watched)
        });
        told.collect::<Vec<_>>()
    };
    let guards = if has_guards { vec![8, 10] } else { vec![] };
    assert_eq!(
        look(true),
        [
            ((vec![3, 4], vec![4]), guards.clone(), true),
            ((vec![17], vec![17]), vec![], true),
            ((vec![40], vec![40]), vec![], false),
        ]
    );
    assert_eq!(
        look(false),
        [
            ((vec![3, 4], vec![3, 4]), guards, false),
            ((vec![17], vec![17]), vec![], false),
            ((vec![40], vec![40]), vec![], false),
        ]
    );
}

#[test]
fn memory_that_is_partly_unwatched_is_not_guessed_at() {
    let Some(it) = watched() else { return };
    (0..PAGES).for_each(|page| it.touch(page));
    assert!(it.watch(0..PAGES / 2));
    assert_eq!(it.walk(true), None);
    assert!(it.watch(PAGES / 2..PAGES));
    let all: Vec<u64> = (0..PAGES).collect();
    let (there, written) = it.walk(true).unwrap();
    assert_eq!(there, all);
    let late: Vec<u64> = (PAGES / 2..PAGES).collect();
    assert!(late.iter().all(|page| written.contains(page)));
    let nowhere = 0..PAGE_BYTES;
    assert!(!it.tracking.watch(&it.pagemap, &nowhere).unwrap(), "nothing is mapped there");
}

#[test]
fn what_the_kernel_stopped_watching_counts_as_written_when_it_is_watched_again() {
    let Some(it) = watched() else { return };
    let thirds = [0, PAGES / 4, PAGES / 2, PAGES];
    (0..PAGES).for_each(|page| it.touch(page));
    // The middle is elsewhere when all is watched, and returns.
    let elsewhere = anonymous((thirds[2] - thirds[1]) as usize * PAGE_BYTES as usize);
    let range = |from: u64, to: u64| {
        (it.base as usize + (from * PAGE_BYTES) as usize, ((to - from) * PAGE_BYTES) as usize)
    };
    let (middle, length) = range(thirds[1], thirds[2]);
    let away = elsewhere.as_ptr() as usize;
    remap(middle, away, length);
    for pair in [[thirds[0], thirds[1]], [thirds[2], thirds[3]]] {
        assert!(it.watch(pair[0]..pair[1]));
    }
    let moved = away as u64..(away + length) as u64;
    assert!(it.tracking.watch(&it.pagemap, &moved).unwrap());
    let protect = |start, end| it.pagemap.written(start, end, Select::Populated, true).unwrap();
    for (start, length) in [range(thirds[0], thirds[1]), range(thirds[2], thirds[3])] {
        assert!(protect(start as u64, (start + length) as u64).is_some());
    }
    assert!(protect(moved.start, moved.end).is_some());
    remap(away, middle, length);
    std::mem::forget(elsewhere);
    (0..PAGES).for_each(|page| it.touch(page));
    let whole = it.base..it.base + PAGES * PAGE_BYTES;
    let looked = it.pagemap.look(&[whole], Select::Populated, true).unwrap().remove(0);
    assert!(!looked.is_watched && looked.walked.written == looked.walked.there);
    for pair in thirds.windows(2) {
        it.watch(pair[0]..pair[1]);
    }
    let all: Vec<u64> = (0..PAGES).collect();
    let written = it.walk(true).expect("it is watched").1;
    assert_eq!(written, all, "all that may have been written to without being seen");
    it.touch(1);
    assert_eq!(it.walk(true).expect("it is watched").1, [1]);
}

/// All bits of the process are cleared at once: such tests are made one by one.
static BITS: Mutex<()> = Mutex::new(());

#[test]
fn soft_dirty_bits_tell_what_was_written_and_what_was_given_up_since_they_were_cleared() {
    let _bits = BITS.lock().unwrap();
    if !features::settled().has(Feature::SoftDirty) {
        eprintln!("skipped: this kernel has no soft-dirty bits");
        return;
    }
    let map = anonymous((PAGES * PAGE_BYTES) as usize);
    let base = map.as_ptr() as u64;
    let pagemap = Pagemap::open(std::process::id() as i32).unwrap();
    let tracking = soft_dirty_of_this_process().unwrap();
    let it = Watched { map, base, pagemap, tracking };
    let walk = || {
        let range = base..base + PAGES * PAGE_BYTES;
        let walked = it.tracking.walk(&it.pagemap, &range, Select::Populated, true).unwrap();
        it.pages(walked.expect("nothing was moved there"))
    };
    [3, 4, 40].into_iter().for_each(|page| it.touch(page));
    assert!(it.watch(0..PAGES));
    assert_eq!(walk(), (vec![3, 4, 40], vec![3, 4, 40]), "all counts as written");
    it.tracking.begin().unwrap();
    assert_eq!(walk(), (vec![3, 4, 40], vec![]));
    it.touch(4);
    it.touch(50);
    for _ in 0..2 {
        assert_eq!(walk(), (vec![3, 4, 40, 50], vec![4, 50]), "until it begins anew");
    }
    it.tracking.begin().unwrap();
    it.map.advise(libc::MADV_DONTNEED);
    // SAFETY: a page of the mapping, which is readable.
    let byte = unsafe { it.map.as_ptr().add(3 * PAGE_BYTES as usize).read_volatile() };
    assert_eq!((byte, walk()), (0, (vec![3], vec![3])), "it was read, and is another page");
}

#[test]
fn what_was_moved_there_as_a_whole_is_not_taken_for_what_was_there() {
    let _bits = BITS.lock().unwrap();
    let Ok(tracking) = soft_dirty_of_this_process() else {
        eprintln!("skipped: this kernel lets nothing be watched");
        return;
    };
    let pagemap = Pagemap::open(std::process::id() as i32).unwrap();
    let place = mapped_tables().unwrap();
    let middle = place.start + TABLE_BYTES;
    let elsewhere = mapped_tables().unwrap();
    let walk = |range: &Range<u64>| {
        tracking.walk(&pagemap, range, Select::Populated, false).unwrap().map(|_| ())
    };
    assert_eq!(walk(&place), None, "it is not watched yet");
    assert!(tracking.watch(&pagemap, &place).unwrap());
    tracking.begin().unwrap();
    assert_eq!(walk(&place), Some(()));
    // Swapped through a third place, which is gone then.
    let length = TABLE_BYTES as usize;
    remap(place.start as usize, elsewhere.start as usize, length);
    remap(middle as usize, place.start as usize, length);
    remap(elsewhere.start as usize, middle as usize, length);
    for range in [&place, &(place.start..middle), &(middle..place.end)] {
        assert_eq!(walk(range), None, "{range:x?}");
    }
    let small = place.start + PAGE_BYTES..place.end - PAGE_BYTES;
    assert_eq!(walk(&small), Some(()), "no page table was moved into it");
    assert_eq!(walk(&elsewhere), None, "it never was watched");
}

fn remap(from: usize, to: usize, length: usize) {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let pointer = |address: usize| address as *mut libc::c_void;
    // SAFETY: both ranges belong to the test, and nothing refers to what is there.
    let to = unsafe { libc::mremap(pointer(from), length, length, flags, pointer(to)) };
    assert_ne!(to, libc::MAP_FAILED);
}

#[test]
fn private_pages_of_a_file_that_were_given_up_count_as_written() {
    let Ok(tracking) = of_this_process() else { return };
    let file = tempfile::tempfile().unwrap();
    file.set_len(4 * PAGE_BYTES).unwrap();
    let map = of_file(4 * PAGE_BYTES as usize, &file);
    let base = map.as_ptr() as u64;
    let end = base + 4 * PAGE_BYTES;
    let pagemap = Pagemap::open(std::process::id() as i32).unwrap();
    let walk = |protects| {
        pagemap.walk(base, end, Select::Private, protects).unwrap().expect("it is watched")
    };
    map.touch(0);
    assert!(tracking.watch(&pagemap, &(base..end)).unwrap());
    let first = vec![Run { start: base, end: base + PAGE_BYTES }];
    assert_eq!(walk(true).written, first);
    assert_eq!((walk(true).there, walk(true).written), (first, vec![]));
    map.advise(libc::MADV_DONTNEED);
    let given_up = walk(false);
    assert_eq!(given_up.there, given_up.written, "none is as it was");
    let range = base..end;
    let looked = pagemap.look(std::slice::from_ref(&range), Select::Private, true).unwrap();
    let looked = looked.into_iter().next().expect("one");
    assert_eq!((looked.walked, looked.is_watched), (given_up, true));
}
