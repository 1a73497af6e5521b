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
/// Most views are smaller: less memory to go through.
const WEIGHED_MOSTLY: usize = 64;

/// A set of places, counted from 0: as many as there are bits in so many words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Places<const W: usize = WORDS> {
    words: [u64; W],
}

const WORDS: usize = WEIGHED_MAX.div_ceil(64);

impl<const W: usize> Places<W> {
    const NONE: Places<W> = Places { words: [0; W] };

    fn below(count: usize) -> Places<W> {
        let mut places = Places::NONE;
        (0..count.min(64 * W)).for_each(|place| places.note(place, true));
        places
    }

    #[inline]
    fn note(&mut self, place: usize, is_in: bool) {
        self.words[place / 64 % W] |= u64::from(is_in) << (place % 64);
    }

    #[inline]
    pub fn has(&self, place: usize) -> bool {
        self.words[place / 64 % W] >> (place % 64) & 1 == 1
    }

    fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        let words = self.words.into_iter().enumerate();
        words.flat_map(|(nth, word)| Bits(word).map(move |bit| nth * 64 + bit))
    }

    fn widened(&self) -> Places {
        let mut words = [0; WORDS];
        words[..W].copy_from_slice(&self.words);
        Places { words }
    }
}

/// The numbers of the bits that are set.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (bit < 64).then_some(bit as usize)
    }
}

/// Which of the entries are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Chosen {
    pub places: Places,
    pub floor: Floor,
}

/// What an entry must exceed in one way or another to have a chance of a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Floor {
    at: Time,
    target: f32,
    source: f32,
}

impl Chosen {
    /// Where there is room for all.
    fn all(count: usize) -> Chosen {
        Chosen { places: Places::below(count), floor: Floor::default() }
    }
}

impl Default for Floor {
    fn default() -> Floor {
        Floor { at: Time::ZERO, target: -1.0, source: -1.0 }
    }
}

impl Floor {
    pub fn is_above(&self, entry: &Entry) -> bool {
        if entry.at() > self.at || entry.urgency > 0 || entry.cores == 0 {
            return false;
        }
        let Worth { is_target, is_source, rank } = worth(entry);
        !(is_target && rank > self.target || is_source && rank > self.source)
    }
}

/// What an entry is worth to whoever looks for a place, or for work.
#[derive(Clone, Copy)]
struct Worth {
    is_target: bool,
    is_source: bool,
    /// The share that a newcomer would get; or the crowd for each core of the reference speed.
    rank: f32,
}

#[inline]
fn worth(entry: &Entry) -> Worth {
    let cores_milli = u32::from(entry.cores) * 1_000;
    let runnable_milli = entry.runnable_milli;
    let is_target = runnable_milli + 500 <= cores_milli;
    let is_source = runnable_milli >= cores_milli + 500;
    let power = cores_milli as f32 * entry.speed_milli as f32;
    let after = (runnable_milli + 1_000).max(cores_milli) as f32;
    let (upper, lower) =
        if is_target { (power, after * 1e3) } else { (runnable_milli as f32 * 1e3, power) };
    Worth { is_target: is_target & !entry.is_closed, is_source, rank: upper / lower }
}

/// At most `size` of the `count` entries, those after the first [`WEIGHED_MAX`] left out.
///
/// Brains spend more time here than anywhere else, on figures that nobody can predict: so there are
/// few branches, and no sorting.
pub(crate) fn select<'a>(
    now: Time,
    entries: impl Iterator<Item = &'a Entry>,
    count: usize,
    size: usize,
    config: &Config,
) -> Chosen {
    if count <= size {
        Chosen::all(count)
    } else if count <= WEIGHED_MOSTLY {
        Ages::<WEIGHED_MOSTLY, 1>::select::<{ WEIGHED_MOSTLY / 4 }>(now, entries, size, config)
    } else {
        Ages::<WEIGHED_WIDE, WORDS>::select::<{ VIEW_MAX / 4 }>(now, entries, size, config)
    }
}

/// The same for entries that come the newest first, which makes it much easier.
pub(crate) fn select_newest_first<'a, I: Iterator<Item = &'a Entry>>(
    now: Time,
    entries: impl Fn() -> I,
    size: usize,
    config: &Config,
) -> Chosen {
    let count = entries().count();
    if count <= size {
        Chosen::all(count)
    } else if count <= WEIGHED_MOSTLY {
        newest_first::<_, WEIGHED_MOSTLY, 1, { WEIGHED_MOSTLY / 4 }>(now, entries, size, config)
    } else {
        newest_first::<_, WEIGHED_WIDE, WORDS, { VIEW_MAX / 4 }>(now, entries, size, config)
    }
}

fn newest_first<'a, I, const N: usize, const W: usize, const QUARTER: usize>(
    now: Time,
    entries: impl Fn() -> I,
    size: usize,
    config: &Config,
) -> Chosen
where
    I: Iterator<Item = &'a Entry>,
{
    let mut merits = Merits::<N, W>::new(now, config);
    entries().take(WEIGHED_MAX.min(N)).for_each(|entry| merits.note(entry));
    let quarter = quarter(size, QUARTER, config);
    let mut chosen = Places::NONE;
    merits.urgent.iter().take(quarter).for_each(|place| chosen.note(place, true));
    let (target, source) = merits.take_useful::<QUARTER>(quarter, &mut chosen);
    let mut wanted = size.saturating_sub(chosen.count());
    let mut at = now;
    for (place, entry) in entries().enumerate().take(merits.count) {
        if wanted == 0 {
            break;
        }
        if !chosen.has(place) {
            chosen.note(place, true);
            (wanted, at) = (wanted - 1, entry.at());
        }
    }
    Chosen { places: chosen.widened(), floor: Floor { at, target, source } }
}

/// Places for each kind of merit.
fn quarter(size: usize, max: usize, config: &Config) -> usize {
    if config.window_policy == WindowPolicy::Osmos { (size / 4).min(max) } else { 0 }
}

/// What entries are good for, of those seen so far.
struct Merits<const N: usize, const W: usize> {
    oldest_useful: Time,
    /// What makes it worth more than others.
    worths: [f32; N],
    count: usize,
    urgent: Places<W>,
    targets: Places<W>,
    sources: Places<W>,
}

impl<const N: usize, const W: usize> Merits<N, W> {
    fn new(now: Time, config: &Config) -> Merits<N, W> {
        Merits {
            oldest_useful: now - config.useful_age_max,
            worths: [0.0; N],
            count: 0,
            urgent: Places::NONE,
            targets: Places::NONE,
            sources: Places::NONE,
        }
    }

    #[inline]
    fn note(&mut self, entry: &Entry) {
        let place = self.count;
        self.count += 1;
        let Worth { is_target, is_source, rank } = worth(entry);
        self.worths[place] = rank;
        let is_useful = (entry.at() >= self.oldest_useful) & (entry.cores > 0);
        self.urgent.note(place, entry.urgency > 0);
        self.targets.note(place, is_useful & is_target);
        self.sources.note(place, is_useful & is_source);
    }

    /// Takes the best targets and sources, a quarter each; returns what it takes to be one.
    fn take_useful<const QUARTER: usize>(
        &self,
        quarter: usize,
        chosen: &mut Places<W>,
    ) -> (f32, f32) {
        let worth = |place: usize| self.worths[place];
        let target = top::<QUARTER, W>(&self.targets, quarter, worth, chosen);
        let source = top::<QUARTER, W>(&self.sources, quarter, worth, chosen);
        (target, source)
    }
}

/// Takes the `wanted` of the highest rank; returns the lowest of those, or -1 if there are not as
/// many. Of equals the first are taken.
fn top<const QUARTER: usize, const W: usize>(
    places: &Places<W>,
    wanted: usize,
    rank: impl Fn(usize) -> f32,
    chosen: &mut Places<W>,
) -> f32 {
    let mut kept = [(0f32, 0u16); QUARTER];
    let mut count = 0;
    for place in places.iter() {
        let rank = rank(place);
        let is_full = count == wanted;
        if is_full && (wanted == 0 || rank <= kept[count - 1].0) {
            continue;
        }
        let mut at = if is_full { count - 1 } else { count };
        while at > 0 && kept[at - 1].0 < rank {
            kept[at] = kept[at - 1];
            at -= 1;
        }
        kept[at] = (rank, place as u16);
        count += usize::from(!is_full);
    }
    for (_, place) in &kept[..count] {
        chosen.note(usize::from(*place), true);
    }
    if count == wanted && count > 0 { kept[count - 1].0 } else { -1.0 }
}

/// Entries of a view that is in no order of age.
struct Ages<const N: usize, const W: usize> {
    /// Age of each and below it its place, in one number; [`OUT`] where there is none.
    ages: [i32; N],
    merits: Merits<N, W>,
}

/// No age.
const OUT: i32 = i32::MAX;
/// Numbers that are compared at one time.
const LANES: usize = 8;
const WEIGHED_WIDE: usize = WEIGHED_MAX.next_multiple_of(LANES);
/// For the place of an entry beside its age in one number.
const PLACE_BITS: u32 = 9;
const _: () = assert!(WEIGHED_MAX <= 1 << PLACE_BITS);
/// Ages are told apart by the millisecond, as they travel, up to more than an hour.
const AGE_UNIT_BITS: u32 = 10;
const AGE_MAX: u64 = (1 << 22) - 2;

impl<const N: usize, const W: usize> Ages<N, W> {
    fn select<'a, const QUARTER: usize>(
        now: Time,
        entries: impl Iterator<Item = &'a Entry>,
        size: usize,
        config: &Config,
    ) -> Chosen {
        let mut all = Ages { ages: [OUT; N], merits: Merits::<N, W>::new(now, config) };
        entries.take(WEIGHED_MAX.min(N)).for_each(|entry| all.note(now, entry));
        let quarter = quarter(size, QUARTER, config);
        let mut chosen = Places::NONE;
        let newest = |place: usize| (OUT - all.ages[place]) as f32;
        top::<QUARTER, W>(&all.merits.urgent, quarter, newest, &mut chosen);
        let (target, source) = all.merits.take_useful::<QUARTER>(quarter, &mut chosen);
        let wanted = size.saturating_sub(chosen.count());
        let at = now - all.take_newest(wanted, &mut chosen);
        Chosen { places: chosen.widened(), floor: Floor { at, target, source } }
    }

    #[inline]
    fn note(&mut self, now: Time, entry: &Entry) {
        let place = self.merits.count;
        let age = (now.since(entry.at()).0 >> AGE_UNIT_BITS).min(AGE_MAX) as i32;
        self.ages[place] = age << PLACE_BITS | place as i32;
        self.merits.note(entry);
    }

    /// Takes the `wanted` newest of those that are not chosen; returns the greatest age of them.
    fn take_newest(&mut self, wanted: usize, chosen: &mut Places<W>) -> Span {
        for place in chosen.iter() {
            self.ages[place] = OUT;
        }
        let ages = &self.ages[..self.merits.count.next_multiple_of(LANES).min(N)];
        let until = |limit: i32| ages.iter().map(|age| i32::from(*age <= limit)).sum::<i32>();
        let wanted = wanted as i32;
        // All numbers differ, so some limit lets through just as many as are wanted. As ages are
        // spread evenly, more or less, it lies about where it should.
        let held = |age: i32| if age == OUT { -1 } else { age };
        let mut limit = ages.iter().fold(-1, |most, age| held(*age).max(most));
        let mut count = until(limit);
        let (mut low, mut high) = ((-1, 0), (limit, count));
        let mut nth = 0;
        while count != wanted && high.0 - low.0 > 1 {
            let wide = i64::from(high.0 - low.0);
            let part = wide * i64::from(wanted - low.1) / i64::from(high.1 - low.1).max(1);
            let step = if nth % 3 == 2 { wide / 2 } else { part };
            limit = low.0 + step.clamp(1, wide - 1) as i32;
            count = until(limit);
            if count > wanted {
                high = (limit, count);
            } else {
                low = (limit, count);
            }
            nth += 1;
        }
        let mut oldest = 0;
        for (place, age) in ages.iter().enumerate() {
            let is_in = *age <= limit;
            chosen.note(place, is_in);
            oldest = oldest.max(if is_in { age >> PLACE_BITS } else { 0 });
        }
        Span((oldest as u64 + 1) << AGE_UNIT_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Condition;
    use proptest::prelude::*;
    use wire::ids::NodeId;

    const NOW: Time = Time::from_micros(100_000_000);

    fn entry(node: u32, age_ms: u64, runnable: f64) -> Entry {
        let condition = Condition::idle(1, 1.0).with_runnable(runnable);
        Entry::new(NodeId(node), 1, NOW - Span::from_millis(age_ms), Some(&condition))
    }

    fn chosen(entries: &[Entry], size: usize) -> Vec<u32> {
        let chosen = select(NOW, entries.iter(), entries.len(), size, &Config::default());
        let nodes = entries.iter().enumerate().filter(|(place, _)| chosen.places.has(*place));
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

    proptest! {
        #[test]
        fn the_order_of_the_entries_makes_no_difference(
            drawn in prop::collection::vec((0u64..9_000, 0u32..40, 0u8..3), 1..60),
            size in 1usize..24,
        ) {
            // All differ in age and in worth, so that there is one answer.
            let entries = drawn.iter().enumerate().map(|(nth, (age_ms, tenths, urgency))| {
                let age_ms = age_ms / 120 * 120 + 2 * nth as u64;
                let runnable = f64::from(*tenths) / 10.0 + nth as f64 / 1e3;
                let urgency = urgency / 2;
                Entry { urgency, ..entry(nth as u32, age_ms, runnable) }
            });
            let mut entries: Vec<Entry> = entries.collect();
            let mut usual = chosen(&entries, size);
            entries.sort_by_key(|entry| std::cmp::Reverse(entry.at()));
            let config = Config::default();
            let sorted = select_newest_first(NOW, || entries.iter(), size, &config);
            let places = entries.iter().enumerate().filter(|(place, _)| sorted.places.has(*place));
            let mut nodes: Vec<u32> = places.map(|(_, entry)| entry.node.0).collect();
            usual.sort_unstable();
            nodes.sort_unstable();
            prop_assert_eq!(nodes, usual);
        }
    }

    #[test]
    fn urgent_news_goes_first() {
        let mut entries: Vec<Entry> = (0..40).map(|n| entry(n, u64::from(n), 1.0)).collect();
        entries.push(Entry { urgency: 3, ..entry(99, 9_000, 1.0) });
        assert!(chosen(&entries, 4).contains(&99));
    }
}
