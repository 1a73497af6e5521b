//! Shared memory that lasts at home when nobody away has it mapped any more ([decision
//! 0034](../../../docs/decisions/0034-groups-that-share-memory.md)): System V shared memory, and
//! files in memory that have a name there or of which somebody has a descriptor.
//!
//! What was written to it is here until it is brought home. So the last body of a sandbox that has
//! it mapped goes home before it gives that up, ends, or begins another program.

use crate::family::Family;
use crate::filter::{MMAP, MREMAP, MUNMAP};
use crate::group::is_shared_memory;
use crate::state::{self, Shared};
use kernel::proc::maps::{self, Mapping};
use migrate::layout::Backings;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};
use wire::calls::{self, Emulation};
use wire::ids::GuestTid;
use wire::memory_group::MemoryId;

/// What is known of it in one sandbox.
#[derive(Default)]
pub(crate) struct Lasting(Mutex<State>);

#[derive(Default)]
struct State {
    /// As home calls it.
    known: HashSet<MemoryId>,
    /// Bodies that end, having left it to others: these are not to leave it to them.
    ending: HashSet<GuestTid>,
}

impl Lasting {
    /// A body that arrives has some.
    pub(crate) fn add(&self, told: &[MemoryId]) {
        self.lock().known.extend(told);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread of the supervisor panicked")
    }
}

impl State {
    fn holds(&self, body: &Shared, mapping: &Mapping) -> bool {
        let library = body.own_files.fixed.library();
        is_shared_memory(body, &library, mapping)
            && library
                .shared_memory(mapping)
                .is_some_and(|home| self.known.contains(&home.memory()))
    }

    /// Whether others have all that a body has of it. What cannot be read nobody has.
    fn is_left_to_others(&self, body: &Shared, family: &Family) -> bool {
        let maps = maps::read(body.pid).unwrap_or_default();
        let mine: Vec<Mapping> = maps.into_iter().filter(|m| self.holds(body, m)).collect();
        let bytes: u64 = mine.iter().map(Mapping::length).sum();
        // Who has its maker's memory whole gives it up when that goes on.
        let others = family.bodies().into_iter().filter(|other| {
            let is_other = other.guest_pid != body.guest_pid && other.maker.is_none();
            is_other && !self.ending.contains(&other.guest_pid)
        });
        let brought = migrate::group::brought_by(others.map(|other| other.pid), &mine, &|_| true);
        bytes == 0 || brought.is_ok_and(|brought| brought.bytes() == bytes)
    }
}

impl Shared {
    /// Whether a call, which passes if it can be made here, gives up such memory, or is about more
    /// of it than has come here.
    pub(crate) fn gives_up_lasting(&self, number: u32, arguments: &calls::Arguments) -> bool {
        let state = self.family.lasting.lock();
        if state.known.is_empty() || self.maker.is_some() {
            return false;
        }
        let given_up = given_up(number, arguments);
        if given_up.is_empty() {
            return false;
        }
        let maps = maps::read(self.pid).unwrap_or_default();
        let meets = |m: &&Mapping| given_up.iter().any(|it| m.start < it.end && it.start < m.end);
        maps.iter().filter(meets).any(|mapping| state.holds(self, mapping))
    }

    /// Whether a thread may end here, by which its process may.
    pub(crate) fn lets_end(&self, state: &state::State, emulation: Emulation) -> bool {
        emulation == Emulation::ThreadExit && state.threads.len() > 1 || self.may_end()
    }

    /// Whether the body may end here; then others have what it has of such memory.
    fn may_end(&self) -> bool {
        let mut state = self.family.lasting.lock();
        if state.known.is_empty() || self.maker.is_some() {
            return true;
        }
        let may_end = state.is_left_to_others(self, &self.family);
        if may_end {
            state.ending.insert(self.guest_pid);
        }
        may_end
    }

    pub(crate) fn has_lasting(&self) -> bool {
        let state = self.family.lasting.lock();
        if state.known.is_empty() || self.maker.is_some() {
            return false;
        }
        let maps = maps::read(self.pid).unwrap_or_default();
        maps.iter().any(|mapping| state.holds(self, mapping))
    }
}

/// The ranges that such a call unmaps, maps over, or makes larger.
fn given_up(number: u32, arguments: &calls::Arguments) -> Vec<Range<u64>> {
    let [first, second, third, fourth, fifth, _] = *arguments;
    let range = |start: u64, length: u64| start..start.saturating_add(length);
    let is_set = |flag: i32| fourth & flag as u64 != 0;
    match number {
        MUNMAP => vec![range(first, second)],
        MMAP if is_set(libc::MAP_FIXED) => vec![range(first, second)],
        MREMAP if is_set(libc::MREMAP_FIXED) => {
            vec![range(first, second.max(1)), range(fifth, third)]
        }
        MREMAP => vec![range(first, second.max(1))],
        _ => vec![],
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_unmapped_mapped_over_and_moved_is_given_up() {
        let one = |number, arguments: &calls::Arguments| match &given_up(number, arguments)[..] {
            [] => None,
            [range] => Some((range.start, range.end)),
            several => panic!("{several:?}"),
        };
        let fixed = libc::MAP_FIXED as u64;
        assert_eq!(one(MMAP, &[0x1000, 0x2000, 3, fixed, 0, 0]), Some((0x1000, 0x3000)));
        assert_eq!(one(MMAP, &[0x1000, 0x2000, 3, 0, 0, 0]), None, "a mere wish");
        assert_eq!(one(MUNMAP, &[0x1000, 0x800, 0, 0, 0, 0]), Some((0x1000, 0x1800)));
        assert_eq!(one(MUNMAP, &[0x1000, u64::MAX, 0, 0, 0, 0]), Some((0x1000, u64::MAX)));
        assert_eq!(one(MREMAP, &[0x1000, 0, 0x1000, 1, 0, 0]), Some((0x1000, 0x1001)), "twice");
        let moved = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        let arguments = [0x1000, 0x1000, 0x2000, moved, 0x9000, 0];
        assert_eq!(given_up(MREMAP, &arguments), [0x1000..0x2000, 0x9000..0xb000]);
    }
}
