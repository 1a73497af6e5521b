//! Files that the guest has mapped shared and writable ([decision 0027](../../../docs/decisions/)).
//!
//! Here such a mapping is memory like any other that is shared. What the guest writes to it goes
//! home, where the file is: a moment later in any case, and before each call that home makes for
//! the guest, because by that somebody may learn of what was written. Only bytes that have changed
//! are sent: those beside them may have been written by somebody else.
//!
//! Which bytes have changed is found by comparing with what home has. Pages that were not written
//! to need not be compared, where the kernel tells them.

use crate::filter::{MMAP, MREMAP, MUNMAP};
use crate::state::{Shared, State};
use kernel::memory::Memory;
use kernel::proc::pagemap::{PAGE_BYTES, Pagemap, Run};
use kernel::seccomp::{ARCHITECTURE, Notification};
use kernel::tracking::Tracking;
use migrate::files::SHARED_FILE;
use migrate::outward::Body;
use migrate::{MigrateError, Result};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use wire::calls::{self, Class, Emulation};
use wire::forward::ToHome;
use wire::ids::GuestAddr;
use wire::image::{Mapping, MappingKind, Pages};
use wire::limits::PAGE_RUNS_MAX;

/// Between two looks at what was written: others at home see it within a second.
const INTERVAL: Duration = Duration::from_millis(500);
/// Compared and sent at a time.
const CHUNK_BYTES: u64 = 256 << 10;
/// All that is compared as a whole, where the kernel does not tell what was written to: a fraction
/// of a millisecond before each call.
const COMPARED_BYTES_MAX: u64 = 1 << 20;

const MPROTECT: u32 = libc::SYS_mprotect as u32;

/// Refuses files that this node could not keep in agreement with home.
///
/// # Errors
/// Refused.
pub fn check(mappings: &[Mapping]) -> Result<()> {
    use kernel::features::{Feature, settled};
    let bytes: u64 = writable(mappings).map(|range| range.end - range.start).sum();
    if bytes > COMPARED_BYTES_MAX && !settled().has(Feature::WriteTracking) {
        let text = format!(
            "it shares {bytes} bytes of files writably, and the node's kernel does not tell what \
             is written to them ({})",
            Feature::WriteTracking.since()
        );
        return Err(MigrateError::refused(SHARED_FILE, text));
    }
    Ok(())
}

fn is_shared_file(mapping: &&Mapping) -> bool {
    matches!(mapping.kind, MappingKind::SharedFile { .. })
}

fn writable(mappings: &[Mapping]) -> impl Iterator<Item = Range<u64>> + '_ {
    let shared = mappings.iter().filter(is_shared_file);
    let writable = shared.filter(|m| m.protection & libc::PROT_WRITE as u32 != 0);
    writable.map(|m| m.start.0..m.end.0)
}

/// The shared files of one body.
pub struct Files {
    /// Where they are mapped. Never held for long, unlike what follows.
    ranges: Mutex<Vec<Range<u64>>>,
    written: Mutex<Written>,
    is_any: bool,
}

struct Written {
    parts: Vec<Part>,
    pagemap: Pagemap,
    tracking: Option<Arc<Tracking>>,
    /// The body stands frozen, and home has everything.
    is_closed: bool,
}

/// One mapping that can be written to.
struct Part {
    range: Range<u64>,
    /// As home has it.
    known: Vec<u8>,
    /// Not all that was told to be written to has been compared.
    is_doubtful: bool,
}

impl Files {
    /// Of a body that has none.
    ///
    /// # Errors
    /// The body has ended.
    pub fn none(pid: i32) -> Result<Files> {
        let (parts, pagemap) = (vec![], Pagemap::open(pid)?);
        let written = Written { parts, pagemap, tracking: None, is_closed: false };
        Ok(Files { ranges: Mutex::default(), written: Mutex::new(written), is_any: false })
    }

    /// Those of a body that has its memory and does not run yet: home has the same.
    ///
    /// # Errors
    /// Refused if this node could not keep them in agreement; or the body has ended.
    pub fn of(body: &Body) -> Result<Files> {
        let mappings = &body.image().mappings;
        check(mappings)?;
        let ranges: Vec<_> =
            mappings.iter().filter(is_shared_file).map(|m| m.start.0..m.end.0).collect();
        let pagemap = Pagemap::open(body.sandbox.body_pid)?;
        let tracking = body.tracking.clone();
        let mut parts = Vec::new();
        for range in writable(mappings) {
            if let Some(tracking) = &tracking {
                tracking.watch(&pagemap, &range)?;
                tracking.written_shared(&pagemap, &range)?;
            }
            let mut known = vec![0; (range.end - range.start) as usize];
            body.memory.read_pages(range.start, &mut known)?;
            parts.push(Part { range, known, is_doubtful: false });
        }
        let is_any = !ranges.is_empty();
        let written = Written { parts, pagemap, tracking, is_closed: false };
        Ok(Files { ranges: Mutex::new(ranges), written: Mutex::new(written), is_any })
    }

    pub fn is_any(&self) -> bool {
        self.is_any
    }

    /// Whether this range lies in them.
    pub fn hold(&self, start: u64, length: u64) -> bool {
        let end = start.saturating_add(length).checked_next_multiple_of(PAGE_BYTES);
        let Some(end) = end.filter(|end| start < *end && start.is_multiple_of(PAGE_BYTES)) else {
            return false;
        };
        let mut at = start;
        for range in self.ranges().iter() {
            if range.start <= at && at < range.end {
                at = range.end;
            }
        }
        at >= end
    }

    /// Whether a call about mappings, which passes if it can be made here, has to be made at home.
    /// Of a thread that is alone nobody has written anything since it began to make the call.
    pub fn object_to(&self, number: u32, arguments: &calls::Arguments, threads: usize) -> bool {
        let [first, second, third, fourth, fifth, _] = *arguments;
        let is_fixed = fourth & libc::MAP_FIXED as u64 != 0;
        let is_moved_over = fourth & libc::MREMAP_FIXED as u64 != 0;
        match number {
            MMAP if is_fixed => self.meet(first, second),
            MPROTECT => self.meet(first, second),
            MREMAP => self.meet(first, second) || is_moved_over && self.meet(fifth, third),
            MUNMAP if self.meet(first, second) => threads > 1 || !self.give_up(first, second),
            _ => false,
        }
    }

    fn meet(&self, start: u64, length: u64) -> bool {
        let end = start.saturating_add(length);
        let end = end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX);
        self.ranges().iter().any(|range| range.start < end && start < range.end)
    }

    /// One of them is about to be unmapped; false if that is not one as a whole, which the kernel
    /// could refuse, or somebody is just sending what was written.
    fn give_up(&self, start: u64, length: u64) -> bool {
        let mut ranges = self.ranges();
        let end = start.saturating_add(length).checked_next_multiple_of(PAGE_BYTES);
        let at = ranges.iter().position(|range| range.start == start && Some(range.end) == end);
        let (Some(at), Ok(mut written)) = (at, self.written.try_lock()) else { return false };
        if written.is_closed {
            return false;
        }
        ranges.remove(at);
        written.parts.retain(|part| part.range.start != start);
        true
    }

    fn ranges(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.ranges.lock().expect("no thread of the supervisor panicked")
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().expect("no thread of the supervisor panicked")
    }
}

impl Written {
    /// Hands over what has changed.
    fn tell(&mut self, memory: &Memory, send: &mut dyn FnMut(Pages)) {
        let mut pages = Pages::default();
        for part in &mut self.parts {
            let whole = Run { start: part.range.start, end: part.range.end };
            let told = self.tracking.as_ref().filter(|_| !part.is_doubtful).and_then(|tracking| {
                let ask = || tracking.written_shared(&self.pagemap, &part.range);
                memory.between_writes(ask).ok().flatten()
            });
            part.is_doubtful = true;
            let runs = told.unwrap_or_else(|| vec![whole]);
            if runs.into_iter().all(|run| part.compare(run, memory, &mut pages, send)) {
                part.is_doubtful = false;
            }
        }
        if !pages.spans.is_empty() {
            send(pages);
        }
    }
}

impl Part {
    /// False if the memory cannot be read: the body is about to end.
    fn compare(
        &mut self,
        run: Run,
        memory: &Memory,
        pages: &mut Pages,
        send: &mut dyn FnMut(Pages),
    ) -> bool {
        let mut at = run.start.max(self.range.start);
        let end = run.end.min(self.range.end);
        let mut there = vec![0; CHUNK_BYTES.min(end.saturating_sub(at)) as usize];
        while at < end {
            let there = &mut there[..(end - at).min(CHUNK_BYTES) as usize];
            if memory.read_pages(at, there).is_err() {
                return false;
            }
            let from = (at - self.range.start) as usize;
            let known = &mut self.known[from..from + there.len()];
            for changed in differences(known, there) {
                let bytes = &there[changed.clone()];
                let is_full = pages.content.len() + bytes.len() > CHUNK_BYTES as usize;
                if is_full || pages.spans.len() == PAGE_RUNS_MAX {
                    send(std::mem::take(pages));
                }
                let start = at + changed.start as u64;
                pages.spans.push((GuestAddr(start), GuestAddr(start + bytes.len() as u64)));
                pages.content.extend_from_slice(bytes);
            }
            known.copy_from_slice(there);
            at += there.len() as u64;
        }
        true
    }
}

/// Where two pieces of memory of one length differ.
fn differences(old: &[u8], new: &[u8]) -> Vec<Range<usize>> {
    const LINE: usize = 64;
    let mut found: Vec<Range<usize>> = Vec::new();
    for (index, (old, new)) in old.chunks(LINE).zip(new.chunks(LINE)).enumerate() {
        if old == new {
            continue;
        }
        for (offset, _) in old.iter().zip(new).enumerate().filter(|(_, (old, new))| old != new) {
            let at = index * LINE + offset;
            match found.last_mut() {
                Some(last) if last.end == at => last.end = at + 1,
                _ => found.push(at..at + 1),
            }
        }
    }
    found
}

impl Shared {
    /// Home gets what the guest has written to its shared files, before whatever is sent from here
    /// on.
    pub fn write_back(&self) {
        let owner = self.owner();
        let mut written = owner.files.written();
        if !written.is_closed {
            written.tell(&owner.memory, &mut |pages| owner.send(ToHome::Written(pages)));
        }
    }

    /// Whose home has the files that lie in this body's memory.
    fn owner(&self) -> &Shared {
        self.maker.as_deref().unwrap_or(self)
    }

    /// Why a call, which passes if it can be made here, has to be made at home.
    pub fn objection(
        &self,
        state: &State,
        number: u32,
        arguments: &calls::Arguments,
    ) -> Option<&'static str> {
        if self.object_to(state, number, arguments) {
            return Some("shared-file");
        }
        if self.gives_up_lasting(number, arguments) {
            return Some("shared-memory");
        }
        self.watch.objection((self.pid, &self.maps), number, arguments)
    }

    /// Whether a call would change mappings of files in a way that home has to make.
    pub fn object_to(&self, state: &State, number: u32, arguments: &calls::Arguments) -> bool {
        let threads = state.threads.len() + usize::from(self.maker.is_some());
        self.owner().files.object_to(number, arguments, threads)
    }

    /// Whether this range lies in mappings of files.
    pub fn hold(&self, start: u64, length: u64) -> bool {
        self.owner().files.hold(start, length)
    }

    /// The last that is written before the body, which stands frozen, lives elsewhere.
    pub fn close_files(&self) {
        if self.owner().files.is_any() {
            self.write_back();
            // Its maker, whose they are, may live on here.
            self.files.written().is_closed = true;
        }
    }

    /// It lives on here.
    pub fn reopen_files(&self) {
        self.files.written().is_closed = false;
    }

    /// Does what has to be done for shared files before a call is made.
    pub fn prepare_files(&self, n: &Notification) {
        if self.owner().files.is_any() && n.architecture == ARCHITECTURE && self.may_be_learnt_by(n)
        {
            self.write_back();
        }
    }

    /// Whether somebody may learn by a call what the guest has written so far.
    fn may_be_learnt_by(&self, n: &Notification) -> bool {
        let number = n.number as u32;
        match calls::classify(number, &n.arguments) {
            Class::Forward(_) => true,
            Class::Emulate(emulation, _) => matches!(
                emulation,
                Emulation::MemorySync | Emulation::ThreadExit | Emulation::ProcessExit
            ),
            Class::Local => {
                number == MUNMAP && self.owner().files.meet(n.arguments[0], n.arguments[1])
            }
            Class::Homecoming(_) => false,
        }
    }
}

/// Sends now and then what was written, for as long as this process lives: a body that is gone has
/// written nothing.
pub fn serve(shared: &Arc<Shared>) {
    loop {
        std::thread::sleep(INTERVAL);
        shared.write_back();
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use proptest::prelude::*;

    fn files(ranges: &[Range<u64>]) -> Files {
        let pagemap = Pagemap::open(std::process::id() as i32).unwrap();
        let part = |range: &Range<u64>| Part {
            range: range.clone(),
            known: vec![0; (range.end - range.start) as usize],
            is_doubtful: false,
        };
        let parts = ranges.iter().map(part).collect();
        let written = Written { parts, pagemap, tracking: None, is_closed: false };
        let is_any = !ranges.is_empty();
        Files { ranges: Mutex::new(ranges.to_vec()), written: Mutex::new(written), is_any }
    }

    #[test]
    fn what_changes_such_a_mapping_comes_home_but_the_end_of_one_of_a_single_thread() {
        let objects = |number, arguments, threads| {
            files(&[0x4000..0x8000, 0x8000..0x9000]).object_to(number, &arguments, threads)
        };
        let fixed = libc::MAP_FIXED as u64;
        assert!(objects(MMAP, [0x7000, 0x1000, 3, fixed, 0, 0], 1));
        assert!(!objects(MMAP, [0x7000, 0x1000, 3, 0, 0, 0], 1), "a mere wish");
        assert!(objects(MPROTECT, [0x3000, 0x1001, 1, 0, 0, 0], 1));
        assert!(!objects(MPROTECT, [0x3000, 0x1000, 1, 0, 0, 0], 1), "beside it");
        assert!(objects(MREMAP, [0x4000, 0x4000, 0x8000, 1, 0, 0], 1));
        assert!(objects(MREMAP, [0x1000, 0x1000, 0x1000, 3, 0x4000, 0], 1));
        assert!(objects(MUNMAP, [0x4000, 0x4000, 0, 0, 0, 0], 2), "others may write meanwhile");
        assert!(objects(MUNMAP, [0x4000, 0x1000, 0, 0, 0, 0], 1), "a part");
        assert!(objects(MUNMAP, [0x4000, 0x5000, 0, 0, 0, 0], 1), "two");
        assert!(!objects(MUNMAP, [0x4000, 0x3fff, 0, 0, 0, 0], 1));
        let some = files(&[0x4000..0x8000, 0x9000..0xa000]);
        assert!(!some.object_to(MUNMAP, &[0x4000, 0x4000, 0, 0, 0, 0], 1));
        assert!(!some.object_to(MPROTECT, &[0x4000, 0x1000, 1, 0, 0, 0], 1), "it is gone");
        assert!(some.object_to(MPROTECT, &[0x9000, 0x1000, 1, 0, 0, 0], 1));
    }

    #[test]
    fn a_range_is_synchronised_at_home_if_all_of_it_is_a_shared_file() {
        let some = files(&[0x4000..0x8000, 0x8000..0x9000, 0xa000..0xb000]);
        assert!(some.hold(0x4000, 0x4000));
        assert!(some.hold(0x7000, 0x2000));
        assert!(some.hold(0x4000, 1));
        assert!(!some.hold(0x4000, 0), "an empty one says nothing");
        assert!(!some.hold(0x4001, 1), "Linux refuses it");
        assert!(!some.hold(0x8000, 0x3000), "there is a hole");
        assert!(!some.hold(0x3000, 0x2000));
        assert!(!some.hold(0x8000, u64::MAX));
    }

    #[test]
    fn exactly_what_was_written_is_told_and_only_once() {
        let memory = Memory::open(std::process::id() as i32).unwrap();
        let bytes = vec![0u8; 3 * PAGE_BYTES as usize];
        let start = (bytes.as_ptr() as u64).next_multiple_of(PAGE_BYTES);
        let range = start..start + 2 * PAGE_BYTES;
        let some = files(std::slice::from_ref(&range));
        let told = || {
            let mut told = Vec::new();
            some.written().tell(&memory, &mut |pages| told.push(pages));
            told
        };
        assert_eq!(told(), []);
        memory.write(start + 4000, &[7, 0, 8]).unwrap();
        memory.write(start + 4095, &[1, 2]).unwrap();
        let span = |from: u64, to: u64| (GuestAddr(start + from), GuestAddr(start + to));
        let spans = vec![span(4000, 4001), span(4002, 4003), span(4095, 4097)];
        assert_eq!(told(), [Pages { spans, content: vec![7, 8, 1, 2] }]);
        assert_eq!(told(), []);
        drop(bytes);
    }

    proptest! {
        #[test]
        fn differences_are_all_that_differs_and_nothing_else(
            old in prop::collection::vec(0u8..3, 0..300),
            seed in prop::collection::vec(0u8..3, 300),
        ) {
            let new = &seed[..old.len()];
            let mut patched = old.clone();
            for range in differences(&old, new) {
                prop_assert!(!range.is_empty());
                for at in range {
                    prop_assert_ne!(old[at], new[at]);
                    patched[at] = new[at];
                }
            }
            prop_assert_eq!(&patched[..], new);
        }
    }
}
