//! Restoring an image at home: the deputy's own memory becomes the guest's again.
//!
//! The mappings were never taken away at home, only emptied, so most of them are still right. What
//! the guest changed while it was away is found by comparing ([`plan`], pure), then made.

use crate::backing::Library;
use crate::layout::{self, Backings};
use crate::worker::Worker;
use crate::{MigrateError, Result, locked, mapping_flags, moved_sharing};
use kernel::agent::BatchCall;
use kernel::proc::flags::Flags;
use kernel::proc::maps::Mapping;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use wire::image::{self, MappingFlags, MappingKind, SharedPlace};

/// One change to the mappings at home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Unmap(Range<u64>),
    /// Have the kernel let the stack above grow over this. What is mapped there instead would never
    /// become one with it, because the kernel has moved the stack as the program began.
    Grow(Range<u64>, image::Mapping),
    Protect(Range<u64>, u32),
    /// Give it flags, or take them away.
    Advise(Vec<BatchCall>),
    /// Map shared memory here, too, that is mapped at this address.
    Share(Range<u64>, u64, image::Mapping),
    /// Map afresh; of a file from this offset.
    Map(Range<u64>, image::Mapping, u64),
}

impl Change {
    /// Where what was there is gone.
    pub fn replaced(&self) -> Option<&Range<u64>> {
        match self {
            Change::Unmap(range)
            | Change::Share(range, ..)
            | Change::Map(range, ..)
            | Change::Grow(range, _) => Some(range),
            Change::Protect(..) | Change::Advise(_) => None,
        }
    }
}

/// A mapping that is there.
pub trait Present {
    fn range(&self) -> Range<u64>;
    /// PROT_* bits.
    fn protection(&self) -> u32;
    fn flags(&self) -> MappingFlags;

    /// Whether the kernel lets it grow where somebody reaches below it.
    fn grows_down(&self) -> bool {
        false
    }

    /// Which part of shared memory, or of a file, is at this address in it.
    fn place_at(&self, _address: u64) -> Option<SharedPlace> {
        None
    }

    /// The protection of such a one while its contents arrive.
    fn filling_protection(wanted: &image::Mapping) -> u32 {
        filling_protection(wanted)
    }
}

impl Present for Mapping {
    fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    fn protection(&self) -> u32 {
        self.protection()
    }

    fn flags(&self) -> MappingFlags {
        mapping_flags::flags_of(self)
    }

    fn grows_down(&self) -> bool {
        self.flags.has(Flags::GROWS_DOWN)
    }

    fn place_at(&self, address: u64) -> Option<SharedPlace> {
        self.is_shared.then(|| SharedPlace {
            device: self.device,
            inode: self.inode,
            offset: self.offset + (address - self.start),
        })
    }

    /// At home a shared file has its contents already.
    fn filling_protection(wanted: &image::Mapping) -> u32 {
        match wanted.kind {
            MappingKind::SharedFile { .. } => wanted.protection,
            _ => filling_protection(wanted),
        }
    }
}

/// One that was laid out and has no contents yet.
impl Present for image::Mapping {
    fn range(&self) -> Range<u64> {
        self.start.0..self.end.0
    }

    fn protection(&self) -> u32 {
        filling_protection(self)
    }

    fn flags(&self) -> MappingFlags {
        self.flags
    }
}

/// What turns the mappings that are `here` into those wanted. `fits` says whether one of them is,
/// from an address on, what is wanted there.
pub fn plan<M: Present>(
    here: &[M],
    wanted: &[image::Mapping],
    fits: &dyn Fn(&M, &image::Mapping, u64) -> bool,
) -> Vec<Change> {
    let mut changes = Vec::new();
    for mapping in here.iter().map(Present::range) {
        let mut at = mapping.start;
        // Both are in order.
        let first = wanted.partition_point(|m| m.end.0 <= mapping.start);
        for m in wanted[first..].iter().take_while(|m| m.start.0 < mapping.end) {
            if m.start.0 > at {
                changes.push(Change::Unmap(at..m.start.0));
            }
            at = at.max(m.end.0);
        }
        if at < mapping.end {
            changes.push(Change::Unmap(at..mapping.end));
        }
    }
    for m in wanted.iter().filter(|m| !matches!(m.kind, MappingKind::Kernel { .. })) {
        plan_one(here, m, fits, &mut changes);
    }
    // What counts less against a limit comes before what counts more: RLIMIT_DATA, and the number
    // of mappings, which grows when some are protected and shrinks when pieces become one.
    let is_writable = |protection: u32| protection & libc::PROT_WRITE as u32 != 0;
    changes.sort_by_key(|change| match change {
        // Before it is unmapped where it is.
        Change::Share(..) => -1,
        Change::Unmap(_) => 0,
        Change::Map(_, mapping, _) if !is_writable(mapping.protection) => 1,
        Change::Protect(_, protection) if !is_writable(*protection) => 2,
        _ => 3,
    });
    changes
}

fn plan_one<M: Present>(
    here: &[M],
    wanted: &image::Mapping,
    fits: &dyn Fn(&M, &image::Mapping, u64) -> bool,
    changes: &mut Vec<Change>,
) {
    let map = |range: Range<u64>| {
        if let Some(address) = address_of_shared(here, wanted, range.start) {
            return Change::Share(range, address, wanted.clone());
        }
        let offset = match wanted.kind {
            MappingKind::File { offset, .. } => offset + (range.start - wanted.start.0),
            _ => 0,
        };
        Change::Map(range, wanted.clone(), offset)
    };
    let (mut at, end) = (wanted.start.0, wanted.end.0);
    let first = here.partition_point(|h| h.range().end <= wanted.start.0);
    if is_in_pieces(&here[first..], wanted) {
        changes.push(map(at..end));
        changes.extend(flag(&(at..end), wanted));
        return;
    }
    for h in here[first..].iter().take_while(|h| h.range().start < end) {
        let mut range = h.range();
        if range.start > at && wanted.kind == STACK && h.grows_down() {
            changes.push(Change::Grow(at..range.start, wanted.clone()));
            range.start = at;
        }
        if range.start > at {
            changes.push(map(at..range.start));
            changes.extend(flag(&(at..range.start), wanted));
        }
        let piece = at.max(range.start)..end.min(range.end);
        let advice = mapping_flags::change(&piece, h.flags(), wanted.flags)
            .filter(|_| fits(h, wanted, piece.start));
        let Some(advice) = advice else {
            changes.push(map(piece.clone()));
            changes.extend(flag(&piece, wanted));
            at = piece.end;
            continue;
        };
        let protection = M::filling_protection(wanted);
        if h.protection() != protection {
            changes.push(Change::Protect(piece.clone(), protection));
        }
        if !advice.is_empty() {
            changes.push(Change::Advise(advice));
        }
        at = piece.end;
    }
    if at < end {
        changes.push(map(at..end));
        changes.extend(flag(&(at..end), wanted));
    }
}

/// Where shared memory is mapped here that is wanted at another address, as after mremap(2) away.
fn address_of_shared<M: Present>(here: &[M], wanted: &image::Mapping, at: u64) -> Option<u64> {
    let place = wanted.shared_place()?;
    let offset = place.offset + (at - wanted.start.0);
    here.iter().find_map(|h| {
        let range = h.range();
        let first = h.place_at(range.start)?;
        let is_it = (first.device, first.inode) == (place.device, place.inode);
        let address = range.start.checked_add(offset.checked_sub(first.offset)?)?;
        (is_it && range.contains(&address)).then_some(address)
    })
}

/// Whether what is one private mapping is several here, which the kernel does not join: mremap(2)
/// of all of it would fail. Its contents are still to come. Likewise one of a shared file that has
/// grown, which stands for the file as one memory.
fn is_in_pieces<M: Present>(here: &[M], wanted: &image::Mapping) -> bool {
    if let MappingKind::SharedFile { .. } = wanted.kind {
        let mut here = here.iter().map(Present::range);
        return here.next().is_some_and(|first| {
            first.start < wanted.end.0 && (first.start > wanted.start.0 || first.end < wanted.end.0)
        });
    }
    let is_private = match wanted.kind {
        MappingKind::Anonymous { grows_down } => !grows_down,
        MappingKind::File { is_shared, .. } => !is_shared,
        _ => false,
    };
    let inside = here.iter().take_while(|h| h.range().start < wanted.end.0);
    is_private && inside.count() > 1
}

/// What a new mapping is given besides.
fn flag(range: &Range<u64>, wanted: &image::Mapping) -> Option<Change> {
    let calls = mapping_flags::advise(range, wanted.flags);
    (!calls.is_empty()).then_some(Change::Advise(calls))
}

/// The protection of a mapping while its contents arrive. Shared memory can be written from outside
/// only if it is writable itself: there is no private copy to write to instead.
pub fn filling_protection(mapping: &image::Mapping) -> u32 {
    match mapping.kind {
        MappingKind::SharedAnonymous { .. } | MappingKind::SharedFile { .. } => {
            mapping.protection | (libc::PROT_READ | libc::PROT_WRITE) as u32
        }
        _ => mapping.protection,
    }
}

/// The calls that give the mappings their own protection when their contents are there.
pub fn protect_calls(mappings: &[image::Mapping]) -> Vec<BatchCall> {
    let differs = |m: &&image::Mapping| filling_protection(m) != m.protection;
    let call = |m: &image::Mapping| {
        let protection = u64::from(m.protection);
        let arguments = [m.start.0, m.end.0 - m.start.0, protection, 0, 0, 0];
        BatchCall::new(libc::SYS_mprotect, arguments)
    };
    mappings.iter().filter(differs).map(call).collect()
}

/// Ends what [`plan`] began: all contents are there.
pub fn protect(worker: Worker<'_>, mappings: &[image::Mapping]) -> Result<()> {
    worker.execute_all("protect memory", &protect_calls(mappings))
}

/// True if what is mapped at home at address `at` is what the image has there, of these files and
/// this shared memory.
///
/// Private memory is only kept if it is one mapping here too: the kernel joins what is mapped
/// beside it only if neither was moved, and mremap(2) of two mappings fails.
pub fn fits(home: &Mapping, wanted: &image::Mapping, at: u64, known: &dyn Backings) -> bool {
    let is_whole = home.start <= wanted.start.0 && wanted.end.0 <= home.end;
    match &wanted.kind {
        MappingKind::Kernel { .. } => true,
        MappingKind::Anonymous { grows_down } => {
            layout::is_anonymous(home) && (*grows_down || is_whole)
        }
        MappingKind::SharedAnonymous { home: Some(place) } => {
            let there = SharedPlace { offset: place.offset + (at - wanted.start.0), ..*place };
            home.place_at(at) == Some(there)
        }
        // What has a name is other memory, which others may have.
        MappingKind::SharedAnonymous { home: None } => {
            layout::is_shared_anonymous(home) && known.shared_memory(home).is_none()
        }
        MappingKind::SharedFile { device, inode, offset } => {
            home.is_shared
                && (home.device, home.inode) == (*device, *inode)
                && home.offset + (at - home.start) == offset + (at - wanted.start.0)
        }
        MappingKind::File { backing, offset, is_shared } => {
            known.index_of(home) == Some(*backing)
                && home.is_shared == *is_shared
                && (*is_shared || is_whole)
                && home.offset + (at - home.start) == offset + (at - wanted.start.0)
        }
    }
}

/// Makes the changes. Files are reopened through this supervisor's own descriptors of `library`.
pub fn change(worker: Worker<'_>, changes: &[Change], library: &Library) -> Result<()> {
    moved_sharing::share(worker, changes)?;
    let mut calls = Vec::new();
    for change in changes {
        match change {
            Change::Unmap(range) => {
                let arguments = [range.start, range.end - range.start, 0, 0, 0, 0];
                calls.push(BatchCall::new(libc::SYS_munmap, arguments));
            }
            Change::Grow(range, mapping) => {
                worker.execute_all("restore mappings", &std::mem::take(&mut calls))?;
                // It grows where a thread of its own reaches, or what is missing is mapped beside.
                let mask = [libc::SIG_BLOCK as u64, 0, range.start, MASK_BYTES, 0, 0];
                let reach = BatchCall::new(libc::SYS_rt_sigprocmask, mask);
                if worker.execute(&[reach])?.first().is_none_or(|result| *result < 0) {
                    calls.push(map_anonymous(range, mapping));
                }
            }
            Change::Protect(range, protection) => {
                let length = range.end - range.start;
                let arguments = [range.start, length, u64::from(*protection), 0, 0, 0];
                calls.push(BatchCall::new(libc::SYS_mprotect, arguments));
            }
            Change::Advise(advice) => {
                worker.execute_all("restore mappings", &std::mem::take(&mut calls))?;
                // Advice that this kernel does not know has no effect here, nor had it before.
                locked::advise_at_home(worker, advice)?;
            }
            // Before the others.
            Change::Share(..) => {}
            Change::Map(range, mapping, offset) => match mapping.kind {
                MappingKind::SharedAnonymous { home: Some(_) } => {
                    let text = format!("its shared memory at {:#x} is not at home", range.start);
                    return Err(MigrateError::Protocol(text));
                }
                MappingKind::File { backing, is_shared, .. } => {
                    worker.execute_all("restore mappings", &std::mem::take(&mut calls))?;
                    map_file(worker, library, backing, (range, mapping, *offset, is_shared))?;
                }
                // None is mapped elsewhere than here.
                MappingKind::SharedFile { .. } => {
                    let text = format!("no shared file is mapped at {:#x} any more", range.start);
                    return Err(MigrateError::Protocol(text));
                }
                _ => calls.push(map_anonymous(range, mapping)),
            },
        }
    }
    worker.execute_all("restore mappings", &calls)
}

const STACK: MappingKind = MappingKind::Anonymous { grows_down: true };
/// Of a signal mask, as the kernel has it.
const MASK_BYTES: u64 = 8;

/// Maps memory without a file there, which can be written to until its contents are there.
pub fn map_anonymous(range: &Range<u64>, mapping: &image::Mapping) -> BatchCall {
    let mut flags = libc::MAP_ANONYMOUS | libc::MAP_FIXED | reservation(mapping);
    flags |= match mapping.kind {
        _ if mapping.flags.has(MappingFlags::DROPPABLE) => MAP_DROPPABLE,
        MappingKind::SharedAnonymous { .. } => libc::MAP_SHARED,
        MappingKind::Anonymous { grows_down: true } => libc::MAP_PRIVATE | libc::MAP_GROWSDOWN,
        _ => libc::MAP_PRIVATE,
    };
    let length = range.end - range.start;
    let protection = u64::from(filling_protection(mapping));
    let arguments = [range.start, length, protection, flags as u64, u64::MAX, 0];
    BatchCall::new(libc::SYS_mmap, arguments)
}

/// Memory that is given up instead of swapped (Linux 6.11), instead of MAP_PRIVATE.
pub const MAP_DROPPABLE: i32 = 8;

/// The flag of mmap(2) for memory that swap space need not be kept for, if the guest asked for it.
pub fn reservation(mapping: &image::Mapping) -> i32 {
    if mapping.flags.has(MappingFlags::NOT_RESERVED) { libc::MAP_NORESERVE } else { 0 }
}

/// By what the process opens a file that this supervisor has, with the zero at its end.
pub fn path_of(file: &File) -> String {
    format!("/proc/{}/fd/{}\0", std::process::id(), file.as_raw_fd())
}

/// The arguments of openat(2) for a path that lies there.
pub fn open_call(path: u64) -> [u64; 6] {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
    [libc::AT_FDCWD as u64, path, flags, 0, 0, 0]
}

/// Maps part of a file at a place where it was not mapped when the process left.
fn map_file(
    worker: Worker<'_>,
    library: &Library,
    backing: u32,
    (range, mapping, offset, is_shared): (&Range<u64>, &image::Mapping, u64, bool),
) -> Result<()> {
    let file = library
        .file(backing)
        .ok_or_else(|| MigrateError::Protocol(format!("mapping of unknown file {backing}")))?;
    worker.agent.write_staging(worker.slot, 0, path_of(file).as_bytes());
    let open = open_call(worker.agent.staging_address(worker.slot));
    let opened = worker.execute(&[BatchCall::new(libc::SYS_openat, open)])?;
    let Some(&descriptor @ 0..) = opened.first() else {
        let text = format!("mapped file {backing} could not be opened again at home");
        return Err(MigrateError::Protocol(text));
    };
    let way = if is_shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    let flags = (way | libc::MAP_FIXED | reservation(mapping)) as u64;
    let length = range.end - range.start;
    let protection = u64::from(mapping.protection);
    let map = [range.start, length, protection, flags, descriptor as u64, offset];
    let calls = [
        BatchCall::new(libc::SYS_mmap, map),
        BatchCall::new(libc::SYS_close, [descriptor as u64, 0, 0, 0, 0, 0]),
    ];
    worker.execute_all("map a file again", &calls)
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::ids::GuestAddr;

    fn at_home(start: u64, end: u64, inode: u64, offset: u64) -> Mapping {
        Mapping {
            start,
            end,
            is_readable: true,
            is_writable: true,
            is_executable: false,
            is_shared: false,
            offset,
            device: 1,
            inode,
            name: vec![],
            flags: Default::default(),
        }
    }

    fn anonymous(start: u64, end: u64, protection: u32) -> image::Mapping {
        let kind = MappingKind::Anonymous { grows_down: false };
        let flags = MappingFlags::default();
        image::Mapping { start: GuestAddr(start), end: GuestAddr(end), protection, kind, flags }
    }

    /// The inodes of files, and of shared memory with a name.
    struct Known(&'static [u64], &'static [u64]);

    const NOTHING_KNOWN: Known = Known(&[], &[]);

    impl Backings for Known {
        fn index_of(&self, mapping: &Mapping) -> Option<u32> {
            self.0.iter().position(|inode| *inode == mapping.inode).map(|index| index as u32)
        }

        fn shared_file(&self, _: &Mapping) -> Option<SharedPlace> {
            None
        }

        fn shared_memory(&self, mapping: &Mapping) -> Option<SharedPlace> {
            mapping.place_at(mapping.start).filter(|place| self.1.contains(&place.inode))
        }
    }

    fn plan_by(home: &[Mapping], wanted: &[image::Mapping], known: Known) -> Vec<Change> {
        plan(home, wanted, &|home, wanted, at| fits(home, wanted, at, &known))
    }

    #[test]
    fn unchanged_mappings_need_no_change() {
        let home = [at_home(0x1000, 0x5000, 0, 0)];
        assert_eq!(plan_by(&home, &[anonymous(0x1000, 0x5000, 3)], NOTHING_KNOWN), []);
    }

    #[test]
    fn what_was_unmapped_mapped_or_protected_away_is_repeated() {
        let home = [at_home(0x1000, 0x5000, 0, 0), at_home(0x8000, 0x9000, 0, 0)];
        let wanted = [anonymous(0x2000, 0x3000, 1), anonymous(0x3000, 0x7000, 3)];
        let changes = plan_by(&home, &wanted, NOTHING_KNOWN);
        assert_eq!(
            changes,
            [
                Change::Unmap(0x1000..0x2000),
                Change::Unmap(0x8000..0x9000),
                Change::Protect(0x2000..0x3000, 1),
                Change::Map(0x3000..0x5000, wanted[1].clone(), 0),
                Change::Map(0x5000..0x7000, wanted[1].clone(), 0),
            ],
            "what has grown is mapped anew as a whole"
        );
    }

    #[test]
    fn a_stack_that_has_grown_away_grows_at_home_and_is_one_mapping() {
        let stack = |flags| Mapping { flags, ..at_home(0x8000, 0x9000, 0, 0) };
        let wanted = [image::Mapping { kind: STACK, ..anonymous(0x5000, 0x9000, 3) }];
        let grows = plan_by(&[stack(Flags::GROWS_DOWN)], &wanted, NOTHING_KNOWN);
        assert_eq!(grows, [Change::Grow(0x5000..0x8000, wanted[0].clone())]);
        let fixed = plan_by(&[stack(Flags::default())], &wanted, NOTHING_KNOWN);
        assert_eq!(fixed, [Change::Map(0x5000..0x8000, wanted[0].clone(), 0)]);
        let executable = [image::Mapping { protection: 7, ..wanted[0].clone() }];
        let grows = plan_by(&[stack(Flags::GROWS_DOWN)], &executable, NOTHING_KNOWN);
        assert_eq!(grows[1], Change::Protect(0x5000..0x9000, 7), "all of it");
    }

    #[test]
    fn what_can_take_the_last_mapping_comes_after_what_is_mapped_again_in_one_piece() {
        let home = [at_home(0x1000, 0x5000, 0, 0), at_home(0x8000, 0x9000, 7, 0)];
        let file = image::Mapping {
            kind: MappingKind::File { backing: 0, offset: 0x3000, is_shared: false },
            ..anonymous(0x8000, 0x9000, 1)
        };
        let wanted = [anonymous(0x1000, 0x2000, 1), anonymous(0x2000, 0x5000, 3), file.clone()];
        let changes = plan_by(&home, &wanted, NOTHING_KNOWN);
        let expected =
            [Change::Map(0x8000..0x9000, file, 0x3000), Change::Protect(0x1000..0x2000, 1)];
        assert_eq!(changes, expected);
    }

    #[test]
    fn read_only_shared_memory_is_writable_until_its_contents_are_there() {
        let shared = |start: u64, protection| image::Mapping {
            kind: MappingKind::SharedAnonymous { home: None },
            ..anonymous(start, start + 0x1000, protection)
        };
        let here = Mapping {
            is_shared: true,
            is_writable: false,
            name: b"/dev/zero (deleted)".to_vec(),
            ..at_home(0x1000, 0x2000, 9, 0)
        };
        let wanted = [shared(0x1000, 1), shared(0x8000, 3)];
        let changes = plan_by(&[here], &wanted, NOTHING_KNOWN);
        assert_eq!(changes[0], Change::Protect(0x1000..0x2000, 3));
        let after = protect_calls(&wanted);
        assert_eq!(after, [BatchCall::new(libc::SYS_mprotect, [0x1000, 0x1000, 1, 0, 0, 0])]);
    }

    #[test]
    fn shared_memory_with_a_name_is_found_wherever_it_was_moved_and_never_taken_for_another() {
        let at = |start: u64, inode, offset| Mapping {
            is_shared: true,
            name: b"/dev/zero (deleted)".to_vec(),
            ..at_home(start, start + 0x4000, inode, offset)
        };
        let wanted = |start: u64, home: Option<(u64, u64)>| {
            let place = |(inode, offset)| SharedPlace { device: 1, inode, offset };
            let kind = MappingKind::SharedAnonymous { home: home.map(place) };
            [image::Mapping { kind, ..anonymous(start, start + 0x2000, 3) }]
        };
        let known = || Known(&[], &[9]);
        let home = [at(0x1000, 9, 0)];
        let same = wanted(0x2000, Some((9, 0x1000)));
        let unmaps = [Change::Unmap(0x1000..0x2000), Change::Unmap(0x4000..0x5000)];
        assert_eq!(plan_by(&home, &same, known()), unmaps);
        let moved = wanted(0x8000, Some((9, 0x1000)));
        let share = Change::Share(0x8000..0xa000, 0x2000, moved[0].clone());
        assert_eq!(plan_by(&home, &moved, known()), [share, Change::Unmap(0x1000..0x5000)]);
        let another = wanted(0x1000, None);
        let map = Change::Map(0x1000..0x3000, another[0].clone(), 0);
        assert_eq!(plan_by(&home, &another, known())[1], map, "others may have that");
        assert_eq!(plan_by(&home, &another, NOTHING_KNOWN), [Change::Unmap(0x3000..0x5000)]);
        let lost = wanted(0x1000, Some((10, 0)));
        let map = Change::Map(0x1000..0x3000, lost[0].clone(), 0);
        assert_eq!(plan_by(&home, &lost, known())[1], map, "which is refused then");
    }

    #[test]
    fn file_mapping_is_kept_only_at_its_own_offset() {
        let home = [at_home(0x1000, 0x5000, 7, 0x10000)];
        let file = |offset| image::Mapping {
            kind: MappingKind::File { backing: 0, offset, is_shared: false },
            ..anonymous(0x2000, 0x3000, 3)
        };
        let unmaps = [Change::Unmap(0x1000..0x2000), Change::Unmap(0x3000..0x5000)];
        assert_eq!(plan_by(&home, &[file(0x11000)], Known(&[7], &[])), unmaps);
        let moved = plan_by(&home, &[file(0)], Known(&[7], &[]));
        assert_eq!(moved[2], Change::Map(0x2000..0x3000, file(0), 0));
    }
}
