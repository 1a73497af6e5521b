//! The body's seccomp filter, made from the one table of system calls: what the table calls local
//! passes, everything else stops and is reported.
//!
//! Parts of a body's address space are not the guest's: the agent, and where home has its own. By
//! these a body is stopped and sent home, so that the guest must not take them away, not even by
//! accident. A call that changes mappings passes the filter if it is far from them; one that is not
//! is reported and looked at more closely ([`Kept`]), and one that touches them is made at home,
//! where nothing of ours is in its way.

use kernel::seccomp::{Allow, Condition};
use std::ops::Range;
use wire::calls::{LocalRule, Test};

const MMAP: u32 = libc::SYS_mmap as u32;
const MUNMAP: u32 = libc::SYS_munmap as u32;
const MPROTECT: u32 = libc::SYS_mprotect as u32;
const MREMAP: u32 = libc::SYS_mremap as u32;

/// The parts of a body's address space that the guest must leave as they are.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    ranges: Vec<Range<u64>>,
}

impl Kept {
    pub fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Kept {
        Kept { ranges: ranges.into_iter().filter(|range| !range.is_empty()).collect() }
    }

    /// Whether a call would change the mappings there.
    pub fn is_touched_by(&self, number: u32, arguments: &[u64; 6]) -> bool {
        let [first, second, third, fourth, fifth, _] = *arguments;
        match number {
            // Elsewhere than it says, if it need not be there and that is taken.
            MMAP => fourth & FIXED != 0 && self.meets(first, second),
            MUNMAP | MPROTECT => self.meets(first, second),
            MREMAP => {
                let has_target = fourth & MREMAP_FIXED != 0;
                self.meets(first, second) || has_target && self.meets(fifth, third)
            }
            _ => false,
        }
    }

    fn meets(&self, start: u64, length: u64) -> bool {
        // The kernel works on whole pages.
        let end = start.saturating_add(length);
        let end = end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        self.ranges.iter().any(|range| start < range.end && range.start < end)
    }

    /// Conditions of which one has to hold for a range given by these two arguments to be far away.
    fn far_conditions(&self, start: u8, length: u8) -> Vec<Vec<Condition>> {
        let lowest = self.ranges.iter().map(|range| range.start).min();
        let highest = self.ranges.iter().map(|range| range.end).max();
        let (Some(lowest), Some(highest)) = (lowest, highest) else { return vec![vec![]] };
        // Below: start and length are so small that their sum is.
        let room = (lowest >> 32) as u32;
        let start_max = room.div_ceil(2);
        let length_max = room - start_max;
        vec![
            vec![Condition::HighAbove { argument: start, limit: (highest >> 32) as u32 }],
            vec![
                Condition::HighBelow { argument: start, limit: start_max },
                Condition::HighBelow { argument: length, limit: length_max },
            ],
        ]
    }
}

const PAGE: u64 = 4096;
/// MAP_FIXED; with NOREPLACE it fails where something is.
const FIXED: u64 = libc::MAP_FIXED as u64;
const MREMAP_FIXED: u64 = libc::MREMAP_FIXED as u64;

/// The rules of the filter.
pub fn rules(kept: &Kept) -> Vec<Allow> {
    let mut rules: Vec<Allow> = wire::calls::local_rules().flat_map(|rule| expand(&rule)).collect();
    // The shape that matters: nothing is placed somewhere, and no length of 0 makes an alias.
    rules.push(Allow {
        number: MREMAP,
        conditions: vec![
            equals(3, !(libc::MREMAP_MAYMOVE as u32), 0, true),
            Condition::LowNotZero { argument: 1 },
        ],
    });
    // Reading a thread's clear-on-exit address is how its state is captured (`migrate::threads`).
    rules.push(Allow {
        number: libc::SYS_prctl as u32,
        conditions: vec![equals(0, u32::MAX, libc::PR_GET_TID_ADDRESS as u32, false)],
    });
    rules.into_iter().flat_map(|rule| far_from(kept, rule)).collect()
}

/// A rule for a call that changes mappings holds only far from what is kept.
fn far_from(kept: &Kept, rule: Allow) -> Vec<Allow> {
    if ![MMAP, MUNMAP, MPROTECT, MREMAP].contains(&rule.number) {
        return vec![rule];
    }
    let far = kept.far_conditions(0, 1).into_iter();
    far.map(|far| Allow {
        number: rule.number,
        conditions: [rule.conditions.clone(), far].concat(),
    })
    .collect()
}

/// One rule for each combination of the values that the tests allow.
fn expand(rule: &LocalRule) -> Vec<Allow> {
    let mut combinations: Vec<Vec<Condition>> = vec![vec![]];
    for test in rule.tests {
        combinations = combinations
            .iter()
            .flat_map(|so_far| {
                test.values.iter().map(|value| {
                    let mut conditions = so_far.clone();
                    conditions.push(condition(test, *value));
                    conditions
                })
            })
            .collect();
    }
    combinations.into_iter().map(|conditions| Allow { number: rule.number, conditions }).collect()
}

fn condition(test: &Test, value: u64) -> Condition {
    let high_mask = (test.mask >> 32) as u32;
    assert!(high_mask == 0 || (high_mask == u32::MAX && value >> 32 == 0));
    equals(test.argument, test.mask as u32, value as u32, high_mask != 0)
}

fn equals(argument: u8, mask: u32, value: u32, and_high_zero: bool) -> Condition {
    Condition::Equal { argument, mask, value, and_high_zero }
}

#[cfg(test)]
mod test {
    use super::*;

    const KEPT: Range<u64> = 0x10_0000_0000..0x10_0050_1000;

    fn kept() -> Kept {
        Kept::new([KEPT, 0x10_0060_0000..0x10_0060_0000])
    }

    #[test]
    fn every_rule_of_the_table_can_be_expressed_and_fits_the_kernel() {
        let rules = rules(&kept());
        assert!(rules.iter().any(|rule| rule.number == libc::SYS_munmap as u32));
        kernel::seccomp::program(&rules).unwrap();
    }

    #[test]
    fn what_touches_the_agent_is_told_from_what_does_not() {
        let fixed = FIXED | libc::MAP_PRIVATE as u64;
        let touches = |number, arguments| kept().is_touched_by(number, &arguments);
        assert!(touches(MUNMAP, [0, 1 << 47, 0, 0, 0, 0]));
        assert!(touches(MUNMAP, [KEPT.end - 1, 1, 0, 0, 0, 0]));
        assert!(touches(MUNMAP, [KEPT.start - PAGE, PAGE + 1, 0, 0, 0, 0]));
        assert!(!touches(MUNMAP, [KEPT.start - PAGE, PAGE, 0, 0, 0, 0]));
        assert!(!touches(MUNMAP, [KEPT.end, u64::MAX, 0, 0, 0, 0]));
        assert!(touches(MMAP, [KEPT.start, PAGE, 0, fixed, 0, 0]));
        assert!(!touches(MMAP, [KEPT.start, PAGE, 0, libc::MAP_PRIVATE as u64, 0, 0]));
        assert!(touches(MPROTECT, [KEPT.start, PAGE, 7, 0, 0, 0]));
        assert!(touches(MREMAP, [KEPT.start, PAGE, PAGE, 0, 0, 0]));
        assert!(touches(MREMAP, [0x1000, PAGE, PAGE, MREMAP_FIXED, KEPT.start, 0]));
        assert!(!touches(MREMAP, [0x1000, PAGE, PAGE, 0, KEPT.start, 0]));
        assert!(!touches(libc::SYS_madvise as u32, [KEPT.start, PAGE, 4, 0, 0, 0]));
    }

    #[test]
    fn whatever_passes_as_far_away_touches_nothing() {
        let holds = |condition: &Condition, arguments: &[u64; 6]| match *condition {
            Condition::HighAbove { argument, limit } => {
                (arguments[usize::from(argument)] >> 32) as u32 > limit
            }
            Condition::HighBelow { argument, limit } => {
                ((arguments[usize::from(argument)] >> 32) as u32) < limit
            }
            _ => panic!("another condition"),
        };
        for range in [KEPT, 0x7fff_0000_0000..0x7fff_0000_1000, 0x1_0000_0000..0x1_0000_1000] {
            let kept = Kept::new([range.clone()]);
            let edges = [0, PAGE, range.start - PAGE, range.start, range.end, range.end << 1];
            for (start, length) in edges.iter().flat_map(|s| edges.map(|l| (*s, l))) {
                let arguments = [start, length, 0, 0, 0, 0];
                let far = kept.far_conditions(0, 1);
                let passes = far.iter().any(|all| all.iter().all(|one| holds(one, &arguments)));
                assert!(!passes || !kept.meets(start, length), "{start:#x} {length:#x}");
            }
        }
        let usual = [0x7f00_0000_0000, 1 << 30, 0, 0, 0, 0];
        let far = kept().far_conditions(0, 1);
        assert!(far.iter().any(|all| all.iter().all(|one| holds(one, &usual))));
    }
}
