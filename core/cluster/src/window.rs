//! Which entries are worth a place: in a datagram, and in a view of a cluster that does not fit.
//!
//! The newest alone do not scale: with a thousand nodes the last idle one is found too late,
//! because news of it is crowded out by news of nobody's interest. So half of the places go to the
//! newest, which keeps the sample fair and the liveness known, and a quarter each to the best
//! places for a process and to the most crowded nodes. Urgent news comes before all.

use crate::condition::Entry;
use crate::config::{Config, VIEW_MAX, WINDOW_MAX, WindowPolicy};
use crate::time::{Span, Time};

/// Entries weighed at one time: a full view and what one datagram adds.
const WEIGHED_MAX: usize = VIEW_MAX + WINDOW_MAX + 1;
const WORDS: usize = WEIGHED_MAX.div_ceil(64);

/// Most views are smaller: less memory to go through.
const WEIGHED_MOSTLY: usize = 64;

/// Which of the entries are chosen, by their places counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Chosen {
    words: [u64; WORDS],
    count: usize,
    pub floor: Floor,
}

/// What an entry must exceed in one way or another to have a chance of a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Floor {
    at: Time,
    target: f32,
    source: f32,
}

impl Default for Floor {
    fn default() -> Floor {
        Floor { at: Time::ZERO, target: -1.0, source: -1.0 }
    }
}

impl Floor {
    pub fn is_above(&self, entry: &Entry) -> bool {
        if entry.at > self.at || entry.urgency > 0 || entry.cores == 0 {
            return false;
        }
        let Worth { target, source } = worth(entry);
        target <= self.target && source <= self.source
    }
}

impl Chosen {
    fn add(&mut self, place: usize) {
        if !self.has(place) {
            self.words[place / 64] |= 1 << (place % 64);
            self.count += 1;
        }
    }

    pub fn has(&self, place: usize) -> bool {
        self.words[place / 64] >> (place % 64) & 1 == 1
    }
}

/// What an entry is worth to whoever looks for a place, or for work; nothing if negative.
#[derive(Clone, Copy)]
struct Worth {
    target: f32,
    source: f32,
}

fn worth(entry: &Entry) -> Worth {
    let cores = f32::from(entry.cores);
    let runnable = entry.runnable_milli as f32 / 1000.0;
    let speed = entry.speed_milli as f32 / 1000.0;
    if runnable + 0.5 <= cores && !entry.is_closed {
        let after = runnable + 1.0;
        let share = if after <= cores { speed } else { speed * cores / after };
        Worth { target: share, source: -1.0 }
    } else if runnable >= cores + 0.5 {
        Worth { target: -1.0, source: runnable / (cores * speed) }
    } else {
        Worth { target: -1.0, source: -1.0 }
    }
}

/// The places of the highest ranks so far, the highest first.
struct Top {
    wanted: usize,
    count: usize,
    kept: [(f32, u16); TOP_MAX],
}

/// A quarter of the largest view.
const TOP_MAX: usize = VIEW_MAX / 4;

impl Top {
    fn of(wanted: usize) -> Top {
        Top { wanted: wanted.min(TOP_MAX), count: 0, kept: [(0.0, 0); TOP_MAX] }
    }

    fn offer(&mut self, rank: f32, place: usize) {
        let is_full = self.count == self.wanted;
        if is_full && (self.wanted == 0 || rank <= self.kept[self.count - 1].0) {
            return;
        }
        let mut at = if is_full { self.count - 1 } else { self.count };
        while at > 0 && self.kept[at - 1].0 < rank {
            self.kept[at] = self.kept[at - 1];
            at -= 1;
        }
        self.kept[at] = (rank, place as u16);
        self.count += usize::from(!is_full);
    }

    /// Adds them to the chosen; returns the lowest of them if there were enough.
    fn choose(&self, chosen: &mut Chosen) -> f32 {
        let kept = &self.kept[..self.count];
        for (_, place) in kept {
            chosen.add(usize::from(*place));
        }
        match kept.last() {
            Some((lowest, _)) if self.count == self.wanted => *lowest,
            _ => -1.0,
        }
    }
}

/// At most `size` of the `count` entries, those after the first [`WEIGHED_MAX`] left out.
pub(crate) fn select(
    now: Time,
    entries: impl Iterator<Item = Entry>,
    count: usize,
    size: usize,
    config: &Config,
) -> Chosen {
    if count <= size {
        let mut chosen = Chosen::default();
        (0..count).for_each(|place| chosen.add(place));
        chosen
    } else if count <= WEIGHED_MOSTLY {
        select_among::<WEIGHED_MOSTLY>(now, entries, size, config)
    } else {
        select_among::<WEIGHED_MAX>(now, entries, size, config)
    }
}

fn select_among<const N: usize>(
    now: Time,
    entries: impl Iterator<Item = Entry>,
    size: usize,
    config: &Config,
) -> Chosen {
    let mut ages = [0u64; N];
    let mut count = 0;
    let quarter = if config.window_policy == WindowPolicy::Osmos { size / 4 } else { 0 };
    let (mut urgent, mut targets, mut sources) =
        (Top::of(quarter), Top::of(quarter), Top::of(quarter));
    for (place, entry) in entries.enumerate().take(N) {
        count = place + 1;
        let age = now.since(entry.at);
        ages[place] = age.0;
        if entry.urgency > 0 {
            urgent.offer(-(age.0 as f32), place);
        }
        if age <= config.useful_age_max && entry.cores > 0 {
            let Worth { target, source } = worth(&entry);
            if target >= 0.0 {
                targets.offer(target, place);
            } else if source >= 0.0 {
                sources.offer(source, place);
            }
        }
    }
    let mut chosen = Chosen::default();
    urgent.choose(&mut chosen);
    let (target, source) = (targets.choose(&mut chosen), sources.choose(&mut chosen));
    let oldest = take_newest::<N>(&mut chosen, &ages[..count], size);
    chosen.floor = Floor { at: now - Span(oldest), target, source };
    chosen
}

/// Fills up to `size` with the newest; returns the greatest age among them.
fn take_newest<const N: usize>(chosen: &mut Chosen, ages: &[u64], size: usize) -> u64 {
    let wanted = size.saturating_sub(chosen.count);
    let mut keys = [0u64; N];
    let mut count = 0;
    for (place, age) in ages.iter().enumerate() {
        if !chosen.has(place) {
            keys[count] = age.saturating_mul(1 << PLACE_BITS) | place as u64;
            count += 1;
        }
    }
    let keys = &mut keys[..count];
    if wanted < count {
        keys.select_nth_unstable(wanted);
    }
    let mut oldest = 0;
    for key in keys.iter().take(wanted) {
        chosen.add((*key % (1 << PLACE_BITS)) as usize);
        oldest = oldest.max(key >> PLACE_BITS);
    }
    oldest
}

/// For the place of an entry beside its age in one number.
const PLACE_BITS: u32 = 9;
const _: () = assert!(WEIGHED_MAX <= 1 << PLACE_BITS);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Condition;
    use wire::ids::NodeId;

    const NOW: Time = Time::from_micros(100_000_000);

    fn entry(node: u32, age_ms: u64, runnable: f64) -> Entry {
        let condition = Condition::idle(1, 1.0).with_runnable(runnable);
        Entry::new(NodeId(node), 1, NOW - Span::from_millis(age_ms), Some(&condition))
    }

    fn chosen(entries: &[Entry], size: usize) -> Vec<u32> {
        let chosen = select(NOW, entries.iter().copied(), entries.len(), size, &Config::default());
        let nodes = entries.iter().enumerate().filter(|(place, _)| chosen.has(*place));
        nodes.map(|(_, entry)| entry.node.0).collect()
    }

    #[test]
    fn the_newest_are_kept_where_nothing_is_of_use() {
        let entries: Vec<Entry> = (0..40).map(|n| entry(n, u64::from(n * 7 % 40), 1.0)).collect();
        let ages: Vec<u32> = chosen(&entries, 8).iter().map(|n| n * 7 % 40).collect();
        assert_eq!(ages.iter().max(), Some(&7), "{ages:?}");
    }

    #[test]
    fn the_idle_and_the_crowded_keep_their_places_among_newer_ones() {
        let mut entries: Vec<Entry> = (0..40).map(|n| entry(n, u64::from(n), 1.0)).collect();
        entries.push(entry(77, 5_000, 0.0));
        entries.push(entry(88, 5_000, 9.0));
        let nodes = chosen(&entries, 8);
        assert!(nodes.contains(&77) && nodes.contains(&88), "{nodes:?}");
        assert_eq!(nodes.len(), 8);
        // But not for ever.
        entries[40] = entry(77, 7_000, 0.0);
        assert!(!chosen(&entries, 8).contains(&77));
    }

    #[test]
    fn urgent_news_goes_first() {
        let mut entries: Vec<Entry> = (0..40).map(|n| entry(n, u64::from(n), 1.0)).collect();
        entries.push(Entry { urgency: 3, ..entry(99, 9_000, 1.0) });
        assert!(chosen(&entries, 4).contains(&99));
    }
}
