//! Which mappings of a process travel, and where there is room for ours.

use crate::{MigrateError, Result, mapping_flags};
use kernel::proc::maps::Mapping;
use std::ops::Range;
use wire::ids::GuestAddr;
use wire::image::{self, Draft, MappingKind, SharedPlace, USER_MEMORY_END};

/// What a mapping of a file is part of: an index into the process's list of backings.
pub trait Backings {
    fn index_of(&self, mapping: &Mapping) -> Option<u32>;

    /// Which part of a file that is mapped shared and writable it is, or stands for.
    fn shared_file(&self, mapping: &Mapping) -> Option<SharedPlace>;

    /// What home calls it if it is shared memory that home knows.
    fn shared_memory(&self, mapping: &Mapping) -> Option<SharedPlace>;
}

/// The mappings of the guest as an image has them; `ours` are address ranges to leave out.
///
/// # Errors
/// Refused if a mapping cannot travel; the reason names it.
pub fn of_guest(
    maps: &[Mapping],
    ours: &[Range<u64>],
    backings: &dyn Backings,
) -> Result<Vec<image::Mapping>> {
    check_aliases(maps, &|m| is_shared_anonymous(m) || backings.shared_memory(m).is_some())?;
    maps.iter()
        .filter(|m| !is_ours(m, ours) && m.name != b"[vsyscall]")
        .map(|mapping| {
            Ok(image::Mapping {
                start: GuestAddr(mapping.start),
                end: GuestAddr(mapping.end),
                protection: mapping.protection(),
                kind: kind(mapping, backings)?,
                flags: mapping_flags::flags_of(mapping),
            })
        })
        .collect()
}

/// Shared memory of which a part is mapped at two places is one memory; elsewhere it would be two.
/// (Mappings of different parts need not be one memory, wherever they are.)
pub fn check_aliases(maps: &[Mapping], is_memory: &dyn Fn(&Mapping) -> bool) -> Result<()> {
    let mut shared: Vec<&Mapping> = maps.iter().filter(|m| is_memory(m)).collect();
    shared.sort_unstable_by_key(|m| (m.device, m.inode, m.offset));
    // In that order, what overlaps with any of those before overlaps with the longest.
    let mut longest: Option<&Mapping> = None;
    for mapping in shared {
        let end = |m: &Mapping| m.offset.saturating_add(m.length());
        let before = longest.filter(|b| (b.device, b.inode) == (mapping.device, mapping.inode));
        if let Some(other) = before.filter(|before| end(before) > mapping.offset) {
            let text = format!(
                "it has the same shared memory mapped at {:#x} and at {:#x}",
                other.start, mapping.start
            );
            return Err(MigrateError::refused("aliased-memory", text));
        }
        longest = Some(mapping);
    }
    Ok(())
}

pub fn is_ours(mapping: &Mapping, ours: &[Range<u64>]) -> bool {
    ours.iter().any(|range| mapping.start < range.end && range.start < mapping.end)
}

fn kind(mapping: &Mapping, backings: &dyn Backings) -> Result<MappingKind> {
    if mapping.is_kernel_provided() {
        return Ok(MappingKind::Kernel { name: String::from_utf8_lossy(&mapping.name).into() });
    }
    if let Some(SharedPlace { device, inode, offset }) = backings.shared_file(mapping) {
        return Ok(MappingKind::SharedFile { device, inode, offset });
    }
    let home = backings.shared_memory(mapping);
    if home.is_some() || is_shared_anonymous(mapping) {
        return Ok(MappingKind::SharedAnonymous { home });
    }
    if is_anonymous(mapping) {
        return Ok(MappingKind::Anonymous { grows_down: mapping.name == b"[stack]" });
    }
    let Some(backing) = backings.index_of(mapping) else {
        return Err(unlisted(mapping));
    };
    let is_shared = mapping.is_shared;
    Ok(MappingKind::File { backing, offset: mapping.offset, is_shared })
}

/// A file that appeared since the backings were listed: the next attempt will find it.
fn unlisted(mapping: &Mapping) -> MigrateError {
    MigrateError::refused(
        "mapping",
        format!(
            "it has mapped {} at {:#x} since its files were looked at; the next attempt finds that",
            String::from_utf8_lossy(&mapping.name),
            mapping.start
        ),
    )
}

/// Private memory without a file.
pub fn is_anonymous(mapping: &Mapping) -> bool {
    !mapping.is_shared && mapping.inode == 0 || is_private_zero(mapping)
}

/// A private mapping of /dev/zero, which is anonymous memory but for its name (zero(4)).
pub fn is_private_zero(mapping: &Mapping) -> bool {
    !mapping.is_shared && mapping.name == b"/dev/zero"
}

/// MAP_SHARED|MAP_ANONYMOUS memory, which Linux shows as a deleted /dev/zero.
/// A program may have given it a name of its own (PR_SET_VMA_ANON_NAME).
pub fn is_shared_anonymous(mapping: &Mapping) -> bool {
    let is_named = mapping.name.starts_with(b"[anon_shmem:");
    mapping.is_shared && (mapping.name == b"/dev/zero (deleted)" || is_named)
}

/// System V shared memory (shmat(2)).
pub fn is_system_v(mapping: &Mapping) -> bool {
    mapping.is_shared && mapping.name.starts_with(b"/SYSV")
}

/// Shared memory that others can map by a name or a descriptor: POSIX shared memory and semaphores
/// (shm_overview(7), sem_overview(7)), and memfd_create(2). It is a file to the kernel.
pub fn is_memory_file(mapping: &Mapping) -> bool {
    let is_named = mapping.name.starts_with(b"/dev/shm/");
    mapping.is_shared && (is_named || mapping.name.starts_with(b"/memfd:"))
}

/// The mappings with a stack that never needs to grow: only the guest's own accesses make the
/// kernel grow a stack, not ours for the results of its calls.
pub(crate) fn whole_stack(draft: &Draft) -> Vec<image::Mapping> {
    let mut mappings = draft.mappings.clone();
    let is_stack = |m: &image::Mapping| m.kind == MappingKind::Anonymous { grows_down: true };
    for index in 0..mappings.len() {
        if is_stack(&mappings[index]) {
            let below = index.checked_sub(1).map_or(0, |before| mappings[before].end.0);
            mappings[index].start = GuestAddr(stack_start(draft, &mappings[index], below));
        }
    }
    mappings
}

fn stack_start(draft: &Draft, stack: &image::Mapping, below: u64) -> u64 {
    let mapped = draft.mappings.iter().map(|m| m.end.0 - m.start.0);
    let (start, end) = draft.reserved;
    let mapped = mapped.fold(end - start, u64::saturating_add);
    // What is mapped ahead counts against the limit of the address space.
    let room = draft.memory_limits.0.saturating_sub(mapped);
    let size = (stack.end.0 - stack.start.0).saturating_add(room);
    let size = size.min(draft.stack_limit.0).min(STACK_BYTES_MAX) & !4095;
    let lowest = below.saturating_add(STACK_GAP_BYTES).next_multiple_of(4096);
    stack.end.0.saturating_sub(size).max(lowest).min(stack.start.0)
}

/// Most of an unlimited stack that is mapped ahead.
const STACK_BYTES_MAX: u64 = 256 << 20;
/// What Linux keeps free below a stack (stack_guard_gap).
const STACK_GAP_BYTES: u64 = 1 << 20;

/// Lowest address at which we look for room: well above what a program might expect to be unmapped.
const ROOM_BEGIN: u64 = 0x10_0000_0000;

/// The start of `size` bytes that no range of `taken` touches; None if there is no room.
pub fn room(taken: impl Iterator<Item = Range<u64>>, size: u64) -> Option<u64> {
    let mut taken: Vec<Range<u64>> = taken.collect();
    taken.sort_unstable_by_key(|range| range.start);
    let mut at = ROOM_BEGIN;
    for range in taken {
        if range.start >= at.checked_add(size)? {
            break;
        }
        at = at.max(range.end);
    }
    (at.checked_add(size)? <= USER_MEMORY_END).then_some(at)
}

/// The address ranges of mappings, for [`room`].
pub fn ranges(maps: &[Mapping]) -> impl Iterator<Item = Range<u64>> + '_ {
    maps.iter().map(|m| m.start..m.end)
}

#[cfg(test)]
pub(crate) mod test {
    use super::*;

    /// A page of shared memory.
    pub(crate) fn part(start: u64, offset: u64) -> Mapping {
        Mapping {
            start,
            end: start + 0x1000,
            is_readable: true,
            is_writable: true,
            is_executable: false,
            is_shared: true,
            offset,
            device: 1,
            inode: 9,
            name: b"/dev/zero (deleted)".to_vec(),
            flags: Default::default(),
        }
    }

    #[test]
    fn room_is_found_between_and_behind_what_is_taken() {
        let base = ROOM_BEGIN;
        assert_eq!(room(std::iter::empty(), 4096), Some(base));
        let taken = [base..base + 4096, base + 8192..base + 12288];
        assert_eq!(room(taken.clone().into_iter(), 4096), Some(base + 4096));
        assert_eq!(room(taken.into_iter(), 8192), Some(base + 12288));
        assert_eq!(room(std::iter::once(0..USER_MEMORY_END), 4096), None);
    }

    #[test]
    fn one_memory_at_two_places_stays_and_a_split_mapping_moves() {
        check_aliases(&[part(0x1000, 0), part(0x3000, 0x2000)], &is_shared_anonymous).unwrap();
        check_aliases(&[part(0x9000, 0), part(0x3000, 0x1000)], &is_shared_anonymous).unwrap();
        let long = Mapping { end: 0x9000, ..part(0x1000, 0) };
        assert!(check_aliases(&[long, part(0x20_000, 0x7000)], &is_shared_anonymous).is_err());
        let error =
            check_aliases(&[part(0x1000, 0), part(0x3000, 0)], &is_shared_anonymous).unwrap_err();
        assert_eq!(error.reason().code, "aliased-memory");
        check_aliases(
            &[part(0x1000, 0), Mapping { inode: 10, ..part(0x3000, 0) }],
            &is_shared_anonymous,
        )
        .unwrap();
    }
}
