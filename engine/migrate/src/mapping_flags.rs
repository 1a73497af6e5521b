//! What mappings have besides place, protection and contents: the flags that were asked for them,
//! and guard regions. Both sides keep them as the guest has them: a flag that was lost, or that
//! outlived the mapping it was asked for, would be found by the next fork.

use crate::locked::{self, LOCKS};
use crate::{MigrateError, Result};
use kernel::agent::BatchCall;
use kernel::proc::flags::Flags;
use kernel::proc::maps::Mapping;
use kernel::proc::pagemap::{Pagemap, Run, Select};
use std::ops::Range;
use wire::ids::GuestAddr;
use wire::image::{self, Image, MappingFlags, MappingKind};
use wire::limits::GUARDS_MAX;

/// A flag as the kernel shows it and as it travels, the advice that gives it, and the one that
/// takes it away again, where there is one. Locks are no advice ([`locked`]).
struct Known {
    here: Flags,
    travels: MappingFlags,
    given: Option<i32>,
    taken: Option<i32>,
}

const fn known(
    here: Flags,
    travels: MappingFlags,
    given: Option<i32>,
    taken: Option<i32>,
) -> Known {
    Known { here, travels, given, taken }
}

const KNOWN: [Known; 12] = [
    known(
        Flags::NOT_FORKED,
        MappingFlags::NOT_FORKED,
        Some(libc::MADV_DONTFORK),
        Some(libc::MADV_DOFORK),
    ),
    known(
        Flags::WIPED_ON_FORK,
        MappingFlags::WIPED_ON_FORK,
        Some(libc::MADV_WIPEONFORK),
        Some(libc::MADV_KEEPONFORK),
    ),
    known(
        Flags::NOT_DUMPED,
        MappingFlags::NOT_DUMPED,
        Some(libc::MADV_DONTDUMP),
        Some(libc::MADV_DODUMP),
    ),
    known(
        Flags::MERGEABLE,
        MappingFlags::MERGEABLE,
        Some(libc::MADV_MERGEABLE),
        Some(libc::MADV_UNMERGEABLE),
    ),
    known(Flags::RANDOM, MappingFlags::RANDOM, Some(libc::MADV_RANDOM), Some(libc::MADV_NORMAL)),
    known(
        Flags::SEQUENTIAL,
        MappingFlags::SEQUENTIAL,
        Some(libc::MADV_SEQUENTIAL),
        Some(libc::MADV_NORMAL),
    ),
    known(Flags::HUGE_PAGES, MappingFlags::HUGE_PAGES, Some(libc::MADV_HUGEPAGE), None),
    known(Flags::NO_HUGE_PAGES, MappingFlags::NO_HUGE_PAGES, Some(libc::MADV_NOHUGEPAGE), None),
    known(Flags::NOT_RESERVED, MappingFlags::NOT_RESERVED, None, None),
    known(Flags::DROPPABLE, MappingFlags::DROPPABLE, None, None),
    known(Flags::LOCKED, MappingFlags::LOCKED, None, None),
    known(Flags::LOCKED_ON_FAULT, MappingFlags::LOCKED_ON_FAULT, None, None),
];

/// The flags of a mapping here as they travel.
pub fn flags_of(mapping: &Mapping) -> MappingFlags {
    let has = |flag: &&Known| mapping.flags.has(flag.here);
    KNOWN.iter().filter(has).fold(MappingFlags::default(), |all, flag| all.with(flag.travels))
}

/// Refuses what no other node can give a mapping, or nobody can take away from it.
pub fn check(mapping: &Mapping) -> Result<()> {
    let is_of_kernel = mapping.is_kernel_provided();
    let is_stack = mapping.name == b"[stack]";
    let reasons = [
        (Flags::SEALED, "sealed-memory", "it has sealed memory (mseal)"),
        (Flags::HUGE_TABLE, "hugetlb", "it uses huge pages of the hugetlb pool"),
        (Flags::DEVICE, "device-memory", "it maps memory of a device"),
        (Flags::GROWS_DOWN, "growing-memory", "it has memory that grows (MAP_GROWSDOWN)"),
    ];
    let has = |(flag, ..): &&(Flags, &str, &str)| {
        mapping.flags.has(*flag) && !(is_stack && *flag == Flags::GROWS_DOWN)
    };
    match reasons.iter().find(has).filter(|_| !is_of_kernel) {
        Some((_, code, text)) => {
            Err(MigrateError::refused(code, format!("{text} at {:#x}", mapping.start)))
        }
        None if is_of_kernel => Ok(()),
        None => locked::check(mapping),
    }
}

/// Calls that give a range these flags, which it has not.
pub fn advise(range: &Range<u64>, flags: MappingFlags) -> Vec<BatchCall> {
    let wanted = KNOWN.iter().filter(|known| flags.has(known.travels));
    let advised = wanted.filter_map(|known| Some(advice(range, known.given?)));
    advised.chain(flags.has(MappingFlags::LOCKED).then(|| locked::call(range, flags))).collect()
}

/// Calls that give a range the flags of `wanted` instead of those of `now`; None if only a new
/// mapping has them.
pub fn change(
    range: &Range<u64>,
    now: MappingFlags,
    wanted: MappingFlags,
) -> Option<Vec<BatchCall>> {
    let is_size = |flags: MappingFlags| {
        flags.and(MappingFlags::HUGE_PAGES.with(MappingFlags::NO_HUGE_PAGES)).0 != 0
    };
    let is_lock_changed = now.and(LOCKS) != wanted.and(LOCKS);
    let lock = is_lock_changed.then(|| locked::call(range, wanted));
    let mut calls: Vec<BatchCall> = lock.into_iter().collect();
    let (now, wanted) = (now.without(LOCKS), wanted.without(LOCKS));
    for known in KNOWN.iter().filter(|known| now.without(wanted).has(known.travels)) {
        match known.taken {
            Some(taken) => calls.push(advice(range, taken)),
            // Huge or not: the one takes the other away.
            None if is_size(known.travels) && is_size(wanted) => {}
            None => return None,
        }
    }
    for known in KNOWN.iter().filter(|known| wanted.without(now).has(known.travels)) {
        calls.push(advice(range, known.given?));
    }
    Some(calls)
}

fn advice(range: &Range<u64>, advice: i32) -> BatchCall {
    let arguments = [range.start, range.end - range.start, advice as u64, 0, 0, 0];
    BatchCall::new(libc::SYS_madvise, arguments)
}

/// Flags that some mapping should have here and has not: this kernel has no such.
pub fn missing(here: &[Mapping], wanted: &[image::Mapping]) -> MappingFlags {
    let lacks = |wanted: &image::Mapping| {
        let at = here.partition_point(|m| m.end <= wanted.start.0);
        let found = here.get(at).filter(|m| m.start <= wanted.start.0);
        found.map_or(MappingFlags::default(), |found| wanted.flags.without(flags_of(found)))
    };
    wanted.iter().map(lacks).fold(MappingFlags::default(), MappingFlags::with)
}

/// Gives captured mappings the flags of `origin`, from which they were made, that this kernel could
/// not give them.
pub fn carry(mappings: &mut Vec<image::Mapping>, origin: &Image, missing: MappingFlags) {
    if missing == MappingFlags::default() {
        return;
    }
    for source in origin.mappings.iter().filter(|m| m.flags.and(missing).0 != 0) {
        each_part(mappings, &(source.start.0..source.end.0), |part| {
            if std::mem::discriminant(&part.kind) == std::mem::discriminant(&source.kind) {
                part.flags = part.flags.with(source.flags.and(missing));
            }
        });
    }
}

/// What was advised for memory between the reading of its flags and the freeze, and so did not
/// travel: where, what travelled, and what there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    range: Range<u64>,
    sent: MappingFlags,
    here: MappingFlags,
}

impl Correction {
    /// Whether something was locked, or unlocked, that did not travel as such.
    pub fn is_of_lock(&self) -> bool {
        self.sent.and(LOCKS) != self.here.and(LOCKS)
    }
}

/// What is to be corrected of mappings that were `sent`. Both are in order.
pub fn corrections(sent: &[Mapping], here: &[Mapping]) -> Vec<Correction> {
    let mut corrections = Vec::new();
    for one in sent.iter().filter(|m| !m.is_kernel_provided()) {
        let first = here.partition_point(|m| m.end <= one.start);
        for m in here[first..].iter().take_while(|m| m.start < one.end) {
            let (sent, here) = (flags_of(one), flags_of(m));
            if sent != here {
                let range = one.start.max(m.start)..one.end.min(m.end);
                corrections.push(Correction { range, sent, here });
            }
        }
    }
    corrections
}

/// Gives mappings that come back with the flags that were sent those that should have been.
pub fn correct(mappings: &mut Vec<image::Mapping>, corrections: &[Correction]) {
    for Correction { range, sent, here } in corrections {
        each_part(mappings, range, |part| {
            if part.flags == *sent {
                part.flags = *here;
            }
        });
    }
}

/// Splits mappings at the ends of a range, and does something to what is inside.
fn each_part(
    mappings: &mut Vec<image::Mapping>,
    range: &Range<u64>,
    mut change: impl FnMut(&mut image::Mapping),
) {
    for edge in [range.start, range.end] {
        let inside = |m: &image::Mapping| m.start.0 < edge && edge < m.end.0;
        if let Some(at) = mappings.iter().position(inside) {
            let second = image::behind(&mappings[at], edge);
            mappings[at].end = GuestAddr(edge);
            mappings.insert(at + 1, second);
        }
    }
    let is_inside = |m: &&mut image::Mapping| m.start.0 >= range.start && m.end.0 <= range.end;
    mappings.iter_mut().filter(is_inside).for_each(&mut change);
}

/// The guard regions of the guest.
///
/// # Errors
/// Refused if there are too many.
pub fn guards(
    pagemap: &Pagemap,
    mappings: &[image::Mapping],
) -> Result<Vec<(GuestAddr, GuestAddr)>> {
    let (Some(first), Some(last)) = (mappings.first(), mappings.last()) else { return Ok(vec![]) };
    // All at once, because threads bring two mappings each; where nothing is mapped is no guard.
    let runs = pagemap.scan(first.start.0, last.end.0, Select::Guard)?;
    few(mappings.iter().filter(|m| !matches!(m.kind, MappingKind::Kernel { .. })).flat_map(
        |mapping| {
            let (start, end) = (mapping.start.0, mapping.end.0);
            let from = runs.partition_point(|run| run.end <= start);
            let inside = runs[from..].iter().take_while(move |run| run.start < end);
            inside.map(move |run| Run { start: run.start.max(start), end: run.end.min(end) })
        },
    ))
}

/// These guard regions.
///
/// # Errors
/// Refused if there are too many.
pub fn few(runs: impl Iterator<Item = Run>) -> Result<Vec<(GuestAddr, GuestAddr)>> {
    let guards: Vec<_> = runs.map(|run| (GuestAddr(run.start), GuestAddr(run.end))).collect();
    if guards.len() > GUARDS_MAX {
        let text = format!("it has {} guard regions, at most {GUARDS_MAX} can move", guards.len());
        return Err(MigrateError::refused("guard-regions", text));
    }
    Ok(guards)
}

/// What of `runs` is not guarded: there is nothing to be read.
pub fn unguarded(runs: Vec<Run>, guards: &[(GuestAddr, GuestAddr)]) -> Vec<Run> {
    let mut left = Vec::with_capacity(runs.len());
    for run in runs {
        let mut at = run.start;
        let first = guards.partition_point(|(_, end)| end.0 <= run.start);
        for (start, end) in guards[first..].iter().take_while(|(start, _)| start.0 < run.end) {
            if start.0 > at {
                left.push(Run { start: at, end: start.0 });
            }
            at = end.0;
        }
        if at < run.end {
            left.push(Run { start: at, end: run.end });
        }
    }
    left
}

const MADV_GUARD_INSTALL: i32 = 102;
const MADV_GUARD_REMOVE: i32 = 103;

fn each_guard(guards: &[(GuestAddr, GuestAddr)], advised: i32) -> Vec<BatchCall> {
    guards.iter().map(|(start, end)| advice(&(start.0..end.0), advised)).collect()
}

/// Calls that make guard regions.
pub fn install(guards: &[(GuestAddr, GuestAddr)]) -> Vec<BatchCall> {
    each_guard(guards, MADV_GUARD_INSTALL)
}

/// Calls that take them away.
pub fn remove(guards: &[(GuestAddr, GuestAddr)]) -> Vec<BatchCall> {
    each_guard(guards, MADV_GUARD_REMOVE)
}

/// Calls for a kernel without guard regions: memory that nobody may touch.
pub fn protect(guards: &[(GuestAddr, GuestAddr)]) -> Vec<BatchCall> {
    let call = |(start, end): &(GuestAddr, GuestAddr)| {
        BatchCall::new(libc::SYS_mprotect, [start.0, end.0 - start.0, 0, 0, 0, 0])
    };
    guards.iter().map(call).collect()
}

/// Captured on a kernel without guard regions: what was protected for them ([`protect`]) gets the
/// protection that it has at home. Returns those that are there still; whoever changes one comes
/// home for it.
pub fn uncover(mappings: &mut Vec<image::Mapping>, origin: &Image) -> Vec<(GuestAddr, GuestAddr)> {
    let mut guards = Vec::with_capacity(origin.guards.len());
    for (start, end) in &origin.guards {
        let holder = origin.mappings.iter().find(|m| m.start <= *start && *end <= m.end);
        let Some(holder) = holder else { continue };
        let mut covered = 0;
        each_part(mappings, &(start.0..end.0), |part| {
            if part.protection == 0 {
                part.protection = holder.protection;
                covered += part.end.0 - part.start.0;
            }
        });
        if covered == end.0 - start.0 {
            guards.push((*start, *end));
        }
    }
    guards
}

#[cfg(test)]
mod test {
    use super::*;

    fn mapping(start: u64, end: u64, flags: MappingFlags) -> image::Mapping {
        let kind = MappingKind::Anonymous { grows_down: false };
        let (start, end) = (GuestAddr(start), GuestAddr(end));
        image::Mapping { start, end, protection: 3, kind, flags }
    }

    #[test]
    fn flags_are_changed_by_advice_where_there_is_one() {
        let range = 0x1000..0x3000;
        let none = MappingFlags::default();
        let fork = MappingFlags::NOT_FORKED;
        assert_eq!(change(&range, fork, fork), Some(vec![]));
        assert_eq!(change(&range, none, fork), Some(vec![advice(&range, libc::MADV_DONTFORK)]));
        assert_eq!(change(&range, fork, none), Some(vec![advice(&range, libc::MADV_DOFORK)]));
        let (huge, small) = (MappingFlags::HUGE_PAGES, MappingFlags::NO_HUGE_PAGES);
        let swapped = vec![advice(&range, libc::MADV_NOHUGEPAGE)];
        assert_eq!(change(&range, huge, small), Some(swapped));
        assert_eq!(change(&range, huge, none), None, "nothing takes it away");
        assert_eq!(change(&range, none, MappingFlags::NOT_RESERVED), None);
    }

    #[test]
    fn memory_is_locked_and_unlocked_as_it_is_wanted() {
        let range = 0x1000..0x3000;
        let (none, locked) = (MappingFlags::default(), MappingFlags::LOCKED);
        let on_fault = locked.with(MappingFlags::LOCKED_ON_FAULT);
        let calls = |now, wanted| {
            let calls = change(&range, now, wanted).unwrap();
            calls.iter().map(|call| (call.number, call.arguments[2])).collect::<Vec<_>>()
        };
        let (lock, unlock) = (libc::SYS_mlock2 as u64, libc::SYS_munlock as u64);
        assert_eq!(calls(none, locked), [(lock, 0)]);
        assert_eq!(calls(locked, on_fault), [(lock, 1)]);
        assert_eq!(calls(on_fault, locked), [(lock, 0)]);
        assert_eq!(calls(on_fault, none), [(unlock, 0)]);
        assert_eq!(calls(locked, locked), []);
        assert_eq!(advise(&range, on_fault), [locked::call(&range, on_fault)]);
    }

    #[test]
    fn what_a_kernel_cannot_give_is_carried_over_the_part_that_had_it() {
        let (merge, fork) = (MappingFlags::MERGEABLE, MappingFlags::NOT_FORKED);
        let origin = vec![mapping(0x2000, 0x4000, merge.with(fork)), mapping(0x4000, 0x6000, fork)];
        let mut here = vec![mapping(0x1000, 0x6000, fork)];
        carry(&mut here, &Image { mappings: origin, ..empty() }, merge);
        let expected = [
            mapping(0x1000, 0x2000, fork),
            mapping(0x2000, 0x4000, merge.with(fork)),
            mapping(0x4000, 0x6000, fork),
        ];
        assert_eq!(here, expected);
    }

    #[test]
    fn flags_that_came_too_late_to_travel_are_there_when_it_is_home_again() {
        let (dump, huge) = (Flags::NOT_DUMPED, Flags::HUGE_PAGES);
        let here = |start, end, flags| {
            let line = format!("{start:x}-{end:x} rw-p 0 00:00 0 ");
            let parsed = kernel::proc::maps::parse(line.as_bytes()).unwrap().remove(0);
            Mapping { flags, ..parsed }
        };
        let none = Flags::default();
        let sent = [here(0x1000, 0x9000, none), here(0xa000, 0xb000, dump)];
        assert_eq!(corrections(&sent, &sent), []);
        let now = [
            here(0x1000, 0x2000, none),
            here(0x2000, 0x4000, dump),
            here(0x4000, 0x9000, none),
            here(0xa000, 0xb000, huge),
        ];
        let late = corrections(&sent, &now);
        let (plain, dump) = (MappingFlags::default(), MappingFlags::NOT_DUMPED);
        // The second was advised anew where it was away.
        let random = MappingFlags::RANDOM;
        let mut back = vec![mapping(0x1000, 0x9000, plain), mapping(0xa000, 0xb000, random)];
        correct(&mut back, &late);
        let expected = [
            mapping(0x1000, 0x2000, plain),
            mapping(0x2000, 0x4000, dump),
            mapping(0x4000, 0x9000, plain),
            mapping(0xa000, 0xb000, random),
        ];
        assert_eq!(back, expected);
    }

    fn empty() -> Image {
        Image {
            pid: wire::ids::GuestTid(2),
            threads: vec![],
            later_threads: 0,
            mappings: vec![],
            guards: vec![],
            layout: [0; 11],
            actions: vec![],
            stack_limit: (0, 0),
            memory_limits: (u64::MAX, u64::MAX),
            reserved: (0, 0),
            clock: Default::default(),
            peak_rss_kib: 0,
            time: Default::default(),
            has_no_huge_pages: false,
            processors: None,
        }
    }

    #[test]
    fn guards_come_back_from_a_kernel_that_has_none() {
        let none = MappingFlags::default();
        let at = |start, end| (GuestAddr(start), GuestAddr(end));
        let origin = Image {
            mappings: vec![mapping(0x1000, 0x9000, none)],
            guards: vec![at(0x2000, 0x3000), at(0x6000, 0x7000)],
            ..empty()
        };
        // The second was unmapped, and something else is there.
        let mut here = vec![
            mapping(0x1000, 0x2000, none),
            image::Mapping { protection: 0, ..mapping(0x2000, 0x4000, none) },
            mapping(0x6000, 0x7000, none),
        ];
        assert_eq!(uncover(&mut here, &origin), [at(0x2000, 0x3000)]);
        assert_eq!((here[1].protection, here[1].end), (3, GuestAddr(0x3000)));
        assert_eq!((here[2].protection, here[2].start), (0, GuestAddr(0x3000)));
    }

    #[test]
    fn guarded_pages_are_not_read() {
        let run = |start, end| Run { start, end };
        let at = |start, end| (GuestAddr(start), GuestAddr(end));
        let guards = [at(0x1000, 0x2000), at(0x3000, 0x4000), at(0x7000, 0x9000)];
        let left = unguarded(vec![run(0x1000, 0x5000), run(0x6000, 0x8000)], &guards);
        assert_eq!(left, [run(0x2000, 0x3000), run(0x4000, 0x5000), run(0x6000, 0x7000)]);
        assert_eq!(unguarded(vec![run(0x1000, 0x2000)], &guards), []);
    }
}
