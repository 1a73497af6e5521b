//! The body's seccomp filter, made from the one table of system calls: what the table calls local
//! passes, everything else stops and is reported.
//!
//! On a machine that is not the guest's home some clocks differ: reading them is reported as well,
//! and a wait until a time of day stops for its deadline to be translated ([`crate::abroad`]).
//!
//! Parts of a body's address space are not the guest's: the agent, and where home has its own. By
//! these a body is stopped and sent home, so that the guest must not take them away, not even by
//! accident. A call that changes mappings passes the filter if it is far from them; one that is not
//! is reported and looked at more closely ([`Kept`]), and one that touches them is made at home,
//! where nothing of ours is in its way.

use crate::abroad::FOREIGN_CLOCKS;
use kernel::seccomp::{Action, Condition, Rule};
use std::ops::Range;
use wire::calls::{LocalRule, Test};

pub const MMAP: u32 = libc::SYS_mmap as u32;
pub const MUNMAP: u32 = libc::SYS_munmap as u32;
const MPROTECT: u32 = libc::SYS_mprotect as u32;
pub const MREMAP: u32 = libc::SYS_mremap as u32;
const BRK: u32 = libc::SYS_brk as u32;

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

    /// Whether all of a mapping is one of them.
    pub fn contains(&self, mapping: &Range<u64>) -> bool {
        let holds = |kept: &Range<u64>| kept.start <= mapping.start && mapping.end <= kept.end;
        self.ranges.iter().any(holds)
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

/// Calls about mappings, which some bodies do not make unseen (`watch`).
pub const MAPPING_CALLS: [u32; 5] = [MMAP, MUNMAP, MPROTECT, MREMAP, BRK];

/// Calls that are reported of a body of which pages come behind it (`late`): those that give up
/// memory, and those for whose futexes the kernel does not wait.
pub const fn takes_pages(number: u32, argument: u8, value: u32) -> bool {
    match number {
        MADVISE => {
            let advice = value as i32;
            argument == 2 && (advice == libc::MADV_DONTNEED || advice == MADV_DONTNEED_LOCKED)
        }
        FUTEX => {
            let operation = value & !(FUTEX_PRIVATE | FUTEX_CLOCK_REALTIME);
            argument == 1 && matches!(operation, WAKE_OP..=TRYLOCK_PI | WAIT_REQUEUE_PI..=LOCK_PI2)
        }
        _ => false,
    }
}

const MADV_DONTNEED_LOCKED: i32 = 24;
const WAKE_OP: u32 = 5;
const TRYLOCK_PI: u32 = 8;

/// Takes calls out of the rules that such a body may not make unseen.
fn without_those_that_take_pages(rules: &mut Vec<Rule>) {
    rules.retain(|rule| {
        let names = |condition: &Condition| {
            let Condition::Equal { argument, value, .. } = condition else { return false };
            takes_pages(rule.number, *argument, *value)
        };
        let is_let_pass = matches!(rule.action, Action::Allow);
        let takes =
            [MUNMAP, MREMAP, BRK].contains(&rule.number) || rule.conditions.iter().any(names);
        !(is_let_pass && takes)
    });
    for rule in rules.iter_mut().filter(|rule| rule.number == MMAP) {
        rule.conditions.push(equals(3, FIXED as u32, 0, false));
    }
}

/// The rules of the filter. `own_vdso` is this kernel's vDSO, for a body whose home is another
/// machine; of calls about mappings, those in `watched` are reported, and if pages of it come
/// behind it (`is_late`), those that take such.
pub fn rules(
    kept: &Kept,
    own_vdso: Option<&Range<u64>>,
    (watched, is_late): (&[u32], bool),
) -> Vec<Rule> {
    let mut rules: Vec<Rule> = own_vdso.map_or_else(Vec::new, rules_abroad);
    let local = wire::calls::local_rules().flat_map(|rule| expand(&rule));
    rules.extend(local.filter(|rule| own_vdso.is_none() || !reads_foreign_clock(rule)));
    // The shape that matters: nothing is placed somewhere, and no length of 0 makes an alias.
    rules.push(Rule {
        number: MREMAP,
        conditions: vec![
            equals(3, !(libc::MREMAP_MAYMOVE as u32), 0, true),
            Condition::LowNotZero { argument: 1 },
        ],
        within: None,
        action: Action::Allow,
    });
    // Reading a thread's clear-on-exit address is how its state is captured (`migrate::threads`).
    rules.push(Rule {
        number: libc::SYS_prctl as u32,
        conditions: vec![equals(0, u32::MAX, libc::PR_GET_TID_ADDRESS as u32, false)],
        within: None,
        action: Action::Allow,
    });
    rules.retain(|rule| !watched.contains(&rule.number) && !gives_flags(rule));
    if is_late {
        without_those_that_take_pages(&mut rules);
    }
    // Asking where the break is, as capturing does.
    rules.push(Rule {
        number: BRK,
        conditions: vec![equals(0, u32::MAX, 0, true)],
        within: None,
        action: Action::Allow,
    });
    rules.into_iter().flat_map(|rule| far_from(kept, rule)).collect()
}

/// Advice that changes the flags of mappings is reported: they are read ahead of a capture.
pub const MADVISE: u32 = libc::SYS_madvise as u32;
const FLAG_ADVICE: [i32; 7] = [
    libc::MADV_NORMAL,
    libc::MADV_RANDOM,
    libc::MADV_SEQUENTIAL,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
    libc::MADV_DONTDUMP,
    libc::MADV_DODUMP,
];

fn gives_flags(rule: &Rule) -> bool {
    let names = |condition: &Condition| {
        let Condition::Equal { argument: 2, value, .. } = condition else { return false };
        FLAG_ADVICE.contains(&(*value as i32))
    };
    rule.number == MADVISE && rule.conditions.iter().any(names)
}

/// A rule for a call that changes mappings holds only far from what is kept.
fn far_from(kept: &Kept, rule: Rule) -> Vec<Rule> {
    if ![MMAP, MUNMAP, MPROTECT, MREMAP].contains(&rule.number) {
        return vec![rule];
    }
    let far = kept.far_conditions(0, 1).into_iter();
    far.map(|far| Rule { conditions: [rule.conditions.clone(), far].concat(), ..rule.clone() })
        .collect()
}

/// One rule for each combination of the values that the tests allow.
fn expand(rule: &LocalRule) -> Vec<Rule> {
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
    let local =
        |conditions| Rule { number: rule.number, conditions, within: None, action: Action::Allow };
    combinations.into_iter().map(local).collect()
}

fn condition(test: &Test, value: u64) -> Condition {
    let high_mask = (test.mask >> 32) as u32;
    assert!(high_mask == 0 || (high_mask == u32::MAX && value >> 32 == 0));
    equals(test.argument, test.mask as u32, value as u32, high_mask != 0)
}

fn equals(argument: u8, mask: u32, value: u32, and_high_zero: bool) -> Condition {
    Condition::Equal { argument, mask, value, and_high_zero }
}

const CLOCK_GETTIME: u32 = libc::SYS_clock_gettime as u32;
const GETTIMEOFDAY: u32 = libc::SYS_gettimeofday as u32;
const TIME: u32 = libc::SYS_time as u32;
const FUTEX: u32 = libc::SYS_futex as u32;
const FUTEX_WAITV: u32 = libc::SYS_futex_waitv as u32;

/// Whether the rule lets a clock be read that only home has.
fn reads_foreign_clock(rule: &Rule) -> bool {
    match rule.number {
        GETTIMEOFDAY | TIME => true,
        CLOCK_GETTIME => rule.conditions.iter().any(names_foreign_clock),
        _ => false,
    }
}

fn names_foreign_clock(condition: &Condition) -> bool {
    matches!(condition, Condition::Equal { value, .. } if FOREIGN_CLOCKS.contains(&(*value as i32)))
}

/// What comes before all others: the node's own vDSO may ask its kernel for the time.
fn rules_abroad(own_vdso: &Range<u64>) -> Vec<Rule> {
    let mut rules = vec![Rule {
        number: CLOCK_GETTIME,
        conditions: vec![],
        within: Some(own_vdso.clone()),
        action: Action::Allow,
    }];
    for (number, condition) in waits_until_time_of_day() {
        let no_deadline = equals(TIMEOUT, u32::MAX, 0, true);
        let rule = |conditions, action| Rule { number, conditions, within: None, action };
        rules.push(rule(vec![condition, no_deadline], Action::Allow));
        rules.push(rule(vec![condition], Action::Trace));
    }
    rules
}

/// The argument that points to the deadline.
pub const TIMEOUT: u8 = 3;
const FUTEX_PRIVATE: u32 = 128;
const FUTEX_CLOCK_REALTIME: u32 = 256;
const LOCK_PI: u32 = 6;
const WAIT_BITSET: u32 = 9;
const WAIT_REQUEUE_PI: u32 = 11;
const LOCK_PI2: u32 = 13;

/// Waits on a futex with a deadline in terms of the time of day (futex(2), futex_waitv): the older
/// FUTEX_LOCK_PI knows no other.
fn waits_until_time_of_day() -> impl Iterator<Item = (u32, Condition)> {
    let by_flag = [WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2].map(|op| op | FUTEX_CLOCK_REALTIME);
    let older = [LOCK_PI, LOCK_PI | FUTEX_CLOCK_REALTIME];
    let futex = by_flag.into_iter().chain(older);
    futex
        .map(|operation| (FUTEX, equals(1, !FUTEX_PRIVATE, operation, false)))
        .chain([(FUTEX_WAITV, equals(4, u32::MAX, libc::CLOCK_REALTIME as u32, false))])
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
        let at_home = rules(&kept(), None, (&[], false));
        assert!(at_home.iter().any(|rule| rule.number == MUNMAP));
        kernel::seccomp::program(&at_home).unwrap();
        let watched = rules(&kept(), None, (&MAPPING_CALLS, false));
        assert!(!watched.iter().any(|rule| rule.number == MUNMAP));
        kernel::seccomp::program(&watched).unwrap();
        let abroad = rules(&kept(), Some(&(0x7fff_0000_1000..0x7fff_0000_3000)), (&[], true));
        kernel::seccomp::program(&abroad).unwrap();
    }

    #[test]
    fn abroad_no_rule_lets_a_foreign_clock_be_read_but_from_the_nodes_own_vdso() {
        let own_vdso = 0x7fff_0000_1000..0x7fff_0000_3000;
        let leaks = |rule: &&Rule| reads_foreign_clock(rule) && rule.within.is_none();
        assert_eq!(rules(&kept(), Some(&own_vdso), (&[], false)).iter().filter(leaks).count(), 0);
        let at_home = rules(&kept(), None, (&[], false));
        assert_eq!(at_home.iter().filter(leaks).count(), 2 + FOREIGN_CLOCKS.len());
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
