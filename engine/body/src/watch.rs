//! Calls that change mappings and are not made here: those that reach into what stands for a guard
//! region where the kernel has none, and those for which home may have no room.
//!
//! Both are rare, so most bodies make all calls about mappings without us. In others each of them
//! is reported, and comes home if it has to.
//!
//! Where home keeps memory, what is written to is told by a userfaultfd: the kernel does not join
//! what is mapped beside such memory with it, and moves no two mappings by one mremap(2). Home,
//! where all is joined again, makes such a call.

use crate::filter::{MAPPING_CALLS, MREMAP};
use kernel::proc::maps::{self, MapQuery};
use kernel::proc::process;
use migrate::outward::Body;
use std::ops::Range;
use wire::calls::Arguments;

/// What is watched in a body.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Memory that stands for guard regions.
    guards: Vec<Range<u64>>,
    /// The most that may be mapped.
    address_space_max: Option<u64>,
    /// It is told which pages are written to.
    is_tracked: bool,
}

impl Watch {
    pub fn of(body: &Body, is_tracked: bool) -> Watch {
        use kernel::features::{Feature, settled};
        let guards = body.image().guards.iter().map(|(start, end)| start.0..end.0);
        let has_guards = settled().has(Feature::GuardRegions);
        Watch {
            guards: if has_guards { vec![] } else { guards.collect() },
            address_space_max: body.address_space_max(),
            is_tracked,
        }
    }

    /// The same of a copy of the body, whose writes nobody is told.
    pub fn untracked(&self) -> Watch {
        Watch { is_tracked: false, ..self.clone() }
    }

    /// The calls that have to be reported.
    pub fn calls(&self) -> &'static [u32] {
        match (self.is_needed(), self.is_tracked) {
            (true, _) => &MAPPING_CALLS,
            (false, true) => &[MREMAP],
            (false, false) => &[],
        }
    }

    fn is_needed(&self) -> bool {
        !self.guards.is_empty() || self.address_space_max.is_some()
    }

    /// Why a call of the process cannot be made here, if it cannot.
    pub fn objection(
        &self,
        (pid, maps): (i32, &MapQuery),
        number: u32,
        arguments: &Arguments,
    ) -> Option<&'static str> {
        if self.is_tracked && number == MREMAP {
            let [start, length, ..] = *arguments;
            if maps.is_in_pieces(start, start.saturating_add(length)) {
                return Some("several-mappings");
            }
        }
        if !self.is_needed() || !MAPPING_CALLS.contains(&number) {
            return None;
        }
        let touched = touched(number, arguments);
        if touched.iter().flatten().any(|range| self.touches_guard(range)) {
            return Some("guard-region");
        }
        let max = self.address_space_max?;
        let grown = growth(pid, number, arguments);
        if grown == 0 {
            return None;
        }
        let mapped = process::mapped_bytes(pid).unwrap_or(u64::MAX);
        (mapped.saturating_add(grown) > max).then_some("address-space-limit")
    }

    fn touches_guard(&self, range: &Range<u64>) -> bool {
        self.guards.iter().any(|guard| guard.start < range.end && range.start < guard.end)
    }
}

const MMAP: u32 = libc::SYS_mmap as u32;
const MUNMAP: u32 = libc::SYS_munmap as u32;
const MPROTECT: u32 = libc::SYS_mprotect as u32;
const BRK: u32 = libc::SYS_brk as u32;

/// The ranges that such a call changes.
fn touched(number: u32, arguments: &Arguments) -> [Option<Range<u64>>; 2] {
    let [first, second, third, fourth, fifth, _] = *arguments;
    let range = |start: u64, length: u64| Some(start..start.saturating_add(length));
    match number {
        MUNMAP | MPROTECT => [range(first, second), None],
        MMAP if fourth & libc::MAP_FIXED as u64 != 0 => [range(first, second), None],
        MREMAP if fourth & libc::MREMAP_FIXED as u64 != 0 => {
            [range(first, second), range(fifth, third)]
        }
        MREMAP => [range(first, second), None],
        _ => [None, None],
    }
}

/// How much more is mapped after such a call, at most.
fn growth(pid: i32, number: u32, arguments: &Arguments) -> u64 {
    let [first, second, third, fourth, ..] = *arguments;
    match number {
        MMAP => second,
        MREMAP if fourth & libc::MREMAP_DONTUNMAP as u64 != 0 => third,
        MREMAP => third.saturating_sub(second),
        BRK if first > 0 => {
            let maps = maps::read(pid).unwrap_or_default();
            let heap = maps.iter().find(|m| m.name == b"[heap]").map_or(0, |m| m.end);
            first.saturating_sub(heap)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn objection(watch: &Watch, number: u32, arguments: Arguments) -> Option<&'static str> {
        {
            let pid = std::process::id() as i32;
            let maps = MapQuery::open(pid).unwrap();
            watch.objection((pid, &maps), number, &arguments)
        }
    }

    #[test]
    fn what_reaches_into_a_guard_comes_home() {
        let guard = 0x5000..0x6000;
        let watch = Watch { guards: vec![guard], ..Watch::default() };
        let fixed = libc::MAP_FIXED as u64;
        for (number, arguments) in [
            (MUNMAP, [0x4000, 0x2000, 0, 0, 0, 0]),
            (MPROTECT, [0x5000, 0x1000, 3, 0, 0, 0]),
            (MMAP, [0x5800, 0x1000, 3, fixed, 0, 0]),
            (MREMAP, [0x1000, 0x1000, 0x2000, 3, 0x4000, 0]),
        ] {
            assert_eq!(objection(&watch, number, arguments), Some("guard-region"), "{number}");
        }
        assert_eq!(objection(&watch, MUNMAP, [0x6000, 0x2000, 0, 0, 0, 0]), None);
        assert_eq!(objection(&watch, MMAP, [0x5000, 0x1000, 3, 0, 0, 0]), None, "a mere wish");
        assert_eq!(objection(&Watch::default(), MUNMAP, [0x5000, 0x1000, 0, 0, 0, 0]), None);
    }

    #[test]
    fn only_what_is_moved_in_pieces_comes_home() {
        let pid = std::process::id() as i32;
        let maps = maps::read(pid).unwrap();
        let is_followed = |pair: &&[maps::Mapping]| pair[0].end == pair[1].start;
        let pair = maps.windows(2).find(is_followed).expect("segments of the test");
        let whole = [pair[0].start, pair[0].end - pair[0].start, 1 << 30, 1, 0, 0];
        let both = [pair[0].start, pair[1].end - pair[0].start, 1 << 30, 1, 0, 0];
        let watch = Watch { is_tracked: true, ..Watch::default() };
        assert_eq!(objection(&watch, MREMAP, both), Some("several-mappings"));
        assert_eq!(objection(&watch, MREMAP, whole), None);
        assert_eq!(objection(&watch, MREMAP, [0, 1 << 20, 0, 1, 0, 0]), None, "nothing is there");
        assert_eq!(objection(&Watch::default(), MREMAP, both), None);
    }

    #[test]
    fn what_home_has_no_room_for_comes_home() {
        let own = process::mapped_bytes(std::process::id() as i32).unwrap();
        let watch = Watch { address_space_max: Some(own + (1 << 30)), ..Watch::default() };
        assert_eq!(objection(&watch, MMAP, [0, 1 << 20, 3, 0x22, 0, 0]), None);
        let large = [0, 2 << 30, 3, 0x22, 0, 0];
        assert_eq!(objection(&watch, MMAP, large), Some("address-space-limit"));
        assert_eq!(objection(&watch, MUNMAP, large), None, "makes room");
    }
}
