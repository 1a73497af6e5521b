//! A set of pages: which of a process's memory a target holds.

use kernel::proc::pagemap::Run;
use std::collections::BTreeMap;
use wire::ids::GuestAddr;
use wire::image::Span;

/// Ranges that neither overlap nor touch: start and end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Held {
    pub fn of(runs: &[Run]) -> Held {
        let mut held = Held::default();
        runs.iter().for_each(|run| held.add(*run));
        held
    }

    /// Of ranges.
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// What lies at this address or is the first behind it, from there on.
    pub fn first_from(&self, address: u64) -> Option<Run> {
        let before = self.ranges.range(..=address).next_back().filter(|(_, end)| **end > address);
        let (start, end) = before.or_else(|| self.ranges.range(address..).next())?;
        Some(Run { start: (*start).max(address), end: *end })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn add(&mut self, run: Run) {
        let (mut start, mut end) = (run.start, run.end);
        if start >= end {
            return;
        }
        // Whatever overlaps or touches becomes part of it.
        while let Some((&first, &last)) = self.ranges.range(..=end).next_back() {
            if last < start {
                break;
            }
            self.ranges.remove(&first);
            self.bytes -= last - first;
            (start, end) = (start.min(first), end.max(last));
        }
        self.ranges.insert(start, end);
        self.bytes += end - start;
    }

    pub fn remove(&mut self, run: Run) {
        if run.start >= run.end {
            return;
        }
        while let Some((&first, &last)) = self.ranges.range(..run.end).next_back() {
            if last <= run.start {
                break;
            }
            self.ranges.remove(&first);
            self.bytes -= last - first;
            for (start, end) in [(first, run.start.min(last)), (run.end.max(first), last)] {
                if start < end {
                    self.ranges.insert(start, end);
                    self.bytes += end - start;
                }
            }
        }
    }

    /// What of `runs`, which are in order, it has not.
    pub fn lacks(&self, runs: &[Run]) -> Vec<Run> {
        let mut left = Vec::new();
        for run in runs {
            let mut at = run.start;
            let before = self.ranges.range(..run.start).next_back();
            let inside = self.ranges.range(run.start..run.end);
            for (&start, &end) in before.into_iter().chain(inside) {
                if start > at {
                    left.push(Run { start: at, end: start });
                }
                at = at.max(end);
            }
            if at < run.end {
                left.push(Run { start: at, end: run.end });
            }
        }
        left
    }

    /// What of it is not in `runs`, which are in order.
    pub fn beyond(&self, runs: &[Run]) -> Vec<Run> {
        let mut left = Vec::new();
        let mut next = 0;
        for (&start, &end) in &self.ranges {
            let mut at = start;
            while runs.get(next).is_some_and(|run| run.end <= start) {
                next += 1;
            }
            for run in runs[next..].iter().take_while(|run| run.start < end) {
                if run.start > at {
                    left.push(Run { start: at, end: run.start });
                }
                at = at.max(run.end);
            }
            if at < end {
                left.push(Run { start: at, end });
            }
        }
        left
    }
}

pub fn runs(spans: &[Span]) -> Vec<Run> {
    spans.iter().map(|(start, end)| Run { start: start.0, end: end.0 }).collect()
}

pub fn spans(runs: &[Run]) -> Vec<Span> {
    runs.iter().map(|run| (GuestAddr(run.start), GuestAddr(run.end))).collect()
}

/// What of `runs`, which are in order, is in `held`.
pub fn within(runs: &[Run], held: &Held) -> Vec<Run> {
    Held::of(&held.lacks(runs)).lacks(runs)
}

/// Two lists of runs, each in order, as one.
pub fn union(left: &[Run], right: &[Run]) -> Vec<Run> {
    let mut both: Vec<Run> = left.iter().chain(right).copied().collect();
    both.sort_unstable_by_key(|run| run.start);
    let mut merged: Vec<Run> = Vec::with_capacity(both.len());
    for run in both {
        match merged.last_mut() {
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            _ => merged.push(run),
        }
    }
    merged
}

#[cfg(test)]
mod test {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn runs(pages: &BTreeSet<u64>) -> Vec<Run> {
        let single: Vec<Run> = pages.iter().map(|at| Run { start: *at, end: at + 1 }).collect();
        union(&single, &[])
    }

    fn pages(runs: &[Run]) -> BTreeSet<u64> {
        runs.iter().flat_map(|run| run.start..run.end).collect()
    }

    proptest! {
        #[test]
        fn it_is_the_set_of_its_pages(
            steps in prop::collection::vec((any::<bool>(), 0u64..40, 0u64..9), 0..60),
            there in prop::collection::btree_set(0u64..50, 0..30),
            other in prop::collection::btree_set(0u64..50, 0..30),
        ) {
            let (mut held, mut model) = (Held::default(), BTreeSet::new());
            for (is_added, start, length) in steps {
                let run = Run { start, end: start + length };
                if is_added {
                    held.add(run);
                    model.extend(start..start + length);
                } else {
                    held.remove(run);
                    model.retain(|page| !(start..start + length).contains(page));
                }
                prop_assert_eq!(held.bytes(), model.len() as u64);
                let whole = Run { start: 0, end: 64 };
                prop_assert_eq!(held.beyond(&[]), runs(&model), "ranges neither overlap nor touch");
                let absent = (0..64).filter(|page| !model.contains(page)).collect();
                prop_assert_eq!(pages(&held.lacks(&[whole])), absent);
            }
            let beyond: BTreeSet<u64> = model.difference(&there).copied().collect();
            prop_assert_eq!(pages(&held.beyond(&runs(&there))), beyond);
            let lacking: BTreeSet<u64> = there.difference(&model).copied().collect();
            prop_assert_eq!(pages(&held.lacks(&runs(&there))), lacking);
            let common: BTreeSet<u64> = there.intersection(&model).copied().collect();
            prop_assert_eq!(pages(&within(&runs(&there), &held)), common);
            prop_assert_eq!(held.count(), runs(&model).len());
            for at in 0..64 {
                let first = held.first_from(at).map(|run| run.start);
                prop_assert_eq!(first, model.range(at..).next().copied());
            }
            let both: BTreeSet<u64> = there.union(&other).copied().collect();
            prop_assert_eq!(union(&runs(&there), &runs(&other)), runs(&both));
        }
    }
}
