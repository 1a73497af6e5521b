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
        for (nth, word) in places.words.iter_mut().enumerate() {
            *word = first_bits(count.saturating_sub(nth * 64));
        }
        places
    }

    #[inline]
    fn note(&mut self, place: usize, is_in: bool) {
        self.words[place / 64 % W] |= u64::from(is_in) << (place % 64);
    }

    fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let words = self.words.into_iter().enumerate();
        words.flat_map(|(nth, word)| Bits(word).map(move |bit| nth * 64 + bit))
    }

    /// Adds the first `wanted` places of those below `end` that are not in it; returns the last.
    fn fill(&mut self, end: usize, mut wanted: usize) -> Option<usize> {
        let mut last = None;
        for (nth, word) in self.words.iter_mut().enumerate() {
            let mut free = !*word & first_bits(end.saturating_sub(nth * 64));
            while free != 0 && wanted > 0 {
                last = Some(nth * 64 + free.trailing_zeros() as usize);
                let rest = free & (free - 1);
                *word |= free ^ rest;
                (free, wanted) = (rest, wanted - 1);
            }
        }
        last
    }

    fn widened(&self) -> Places {
        let mut words = [0; WORDS];
        words[..W].copy_from_slice(&self.words);
        Places { words }
    }
}

fn first_bits(count: usize) -> u64 {
    if count < 64 { (1 << count) - 1 } else { u64::MAX }
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
        let is_wanted = is_target(entry) && target_rank(entry) > self.target
            || is_source(entry) && source_rank(entry) > self.source;
        !is_wanted
    }
}

fn cores_milli(entry: &Entry) -> u32 {
    u32::from(entry.cores) * 1_000
}

/// Half a core stands idle there, at least, and for everybody.
#[inline]
fn is_target(entry: &Entry) -> bool {
    (entry.spare_milli() >= 500) & !entry.is_closed
}

/// Half a thread waits there, at least.
#[inline]
fn is_source(entry: &Entry) -> bool {
    entry.spare_milli() <= -500
}

fn power(entry: &Entry) -> f32 {
    cores_milli(entry) as f32 * entry.speed_milli as f32
}

/// What a target is worth to who looks for a place: the share that a newcomer would get.
fn target_rank(entry: &Entry) -> f32 {
    let after = (entry.runnable_milli + 1_000).max(cores_milli(entry)) as f32;
    power(entry) / (after * 1e3)
}

/// What a source is worth to who looks for work: the crowd for each core of the reference speed.
fn source_rank(entry: &Entry) -> f32 {
    entry.runnable_milli as f32 * 1e3 / power(entry)
}

/// At most `size` of the entries, those after the first [`WEIGHED_MAX`] left out.
///
/// Brains spend more time here than anywhere else, on figures that nobody can predict: so there are
/// few branches, no sorting, and no division for what is neither idle nor crowded.
pub(crate) fn select<E: AsRef<Entry>>(
    now: Time,
    entries: &[E],
    size: usize,
    config: &Config,
) -> Chosen {
    if entries.len() <= size {
        Chosen::all(entries.len())
    } else if entries.len() <= WEIGHED_MOSTLY {
        Ages::<WEIGHED_MOSTLY>::select::<_, 1, { WEIGHED_MOSTLY / 4 }>(now, entries, size, config)
    } else {
        let entries = &entries[..entries.len().min(WEIGHED_MAX)];
        Ages::<WEIGHED_WIDE>::select::<_, WORDS, { VIEW_MAX / 4 }>(now, entries, size, config)
    }
}

/// The same for entries that come the newest first, which makes it much easier.
pub(crate) fn select_newest_first<E: AsRef<Entry>>(
    now: Time,
    entries: &[E],
    size: usize,
    config: &Config,
) -> Chosen {
    if entries.len() <= size {
        Chosen::all(entries.len())
    } else if entries.len() <= WEIGHED_MOSTLY {
        newest_first::<_, 1, { WEIGHED_MOSTLY / 4 }>(now, entries, size, config)
    } else {
        let entries = &entries[..entries.len().min(WEIGHED_MAX)];
        newest_first::<_, WORDS, { VIEW_MAX / 4 }>(now, entries, size, config)
    }
}

fn newest_first<E: AsRef<Entry>, const W: usize, const QUARTER: usize>(
    now: Time,
    entries: &[E],
    size: usize,
    config: &Config,
) -> Chosen {
    let oldest_useful = now - config.useful_age_max;
    let is_old = |entry: &&E| entry.as_ref().at() < oldest_useful;
    let useful = entries.len() - entries.iter().rev().take_while(is_old).count();
    let merits = Merits::<W>::of(entries).among(&Places::below(useful));
    let quarter = quarter(size, QUARTER, config);
    let mut chosen = Places::NONE;
    merits.urgent.iter().take(quarter).for_each(|place| chosen.note(place, true));
    let (target, source) = merits.take_useful::<_, QUARTER>(entries, quarter, &mut chosen);
    let wanted = size.saturating_sub(chosen.count());
    let oldest = chosen.fill(entries.len(), wanted);
    let at = oldest.map_or(now, |place| entries[place].as_ref().at());
    Chosen { places: chosen.widened(), floor: Floor { at, target, source } }
}

/// Places for each kind of merit.
fn quarter(size: usize, max: usize, config: &Config) -> usize {
    if config.window_policy == WindowPolicy::Osmos { (size / 4).min(max) } else { 0 }
}

/// What entries are good for.
struct Merits<const W: usize> {
    urgent: Places<W>,
    targets: Places<W>,
    sources: Places<W>,
}

impl<const W: usize> Merits<W> {
    #[inline]
    fn of<E: AsRef<Entry>>(entries: &[E]) -> Merits<W> {
        let (urgent, targets, sources) = (Places::NONE, Places::NONE, Places::NONE);
        let mut merits = Merits { urgent, targets, sources };
        for (nth, entries) in entries.chunks(64).enumerate().take(W) {
            let (mut urgent, mut targets, mut sources) = (0, 0, 0);
            // From the last place to the first: a shift makes room for the next.
            for entry in entries.iter().rev().map(E::as_ref) {
                urgent = urgent << 1 | u64::from(entry.urgency > 0);
                targets = targets << 1 | u64::from(is_target(entry));
                sources = sources << 1 | u64::from(is_source(entry));
            }
            merits.urgent.words[nth] = urgent;
            merits.targets.words[nth] = targets;
            merits.sources.words[nth] = sources;
        }
        merits
    }

    /// Only these are fresh enough to be of use to whoever looks for a place, or for work.
    fn among(mut self, useful: &Places<W>) -> Merits<W> {
        for (nth, useful) in useful.words.into_iter().enumerate() {
            self.targets.words[nth] &= useful;
            self.sources.words[nth] &= useful;
        }
        self
    }

    /// Takes the best targets and sources, a quarter each; returns what it takes to be one.
    #[inline]
    fn take_useful<E: AsRef<Entry>, const QUARTER: usize>(
        &self,
        entries: &[E],
        quarter: usize,
        chosen: &mut Places<W>,
    ) -> (f32, f32) {
        let target = |place: usize| target_rank(entries[place].as_ref());
        let source = |place: usize| source_rank(entries[place].as_ref());
        let target = top::<QUARTER, W>(&self.targets, quarter, target, chosen);
        let source = top::<QUARTER, W>(&self.sources, quarter, source, chosen);
        (target, source)
    }
}

/// Takes the `wanted` of the highest rank; returns the lowest of those, or -1 if there are not as
/// many. Of equals the first are taken.
#[inline]
fn top<const QUARTER: usize, const W: usize>(
    places: &Places<W>,
    wanted: usize,
    rank: impl Fn(usize) -> f32,
    chosen: &mut Places<W>,
) -> f32 {
    if wanted == 0 || places.count() < wanted {
        places.iter().take(wanted).for_each(|place| chosen.note(place, true));
        return -1.0;
    }
    let mut kept = [(0f32, 0u16); QUARTER];
    let mut count = 0;
    for (nth, word) in places.words.into_iter().enumerate() {
        for bit in Bits(word) {
            let place = nth * 64 + bit;
            let rank = rank(place);
            let is_full = count == wanted;
            if is_full && rank <= kept[count - 1].0 {
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
    }
    for (_, place) in &kept[..count] {
        chosen.note(usize::from(*place), true);
    }
    kept[wanted - 1].0
}

/// Entries of a view that is in no order of age.
struct Ages<const N: usize> {
    /// Age of each and below it its place, in one number; [`OUT`] where there is none.
    ages: [i32; N],
    count: usize,
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

impl<const N: usize> Ages<N> {
    fn select<E: AsRef<Entry>, const W: usize, const QUARTER: usize>(
        now: Time,
        entries: &[E],
        size: usize,
        config: &Config,
    ) -> Chosen {
        let oldest_useful = now - config.useful_age_max;
        let mut useful = Places::NONE;
        let mut all = Ages { ages: [OUT; N], count: entries.len() };
        for (place, entry) in entries.iter().enumerate() {
            let age = (now.since(entry.as_ref().at()).0 >> AGE_UNIT_BITS).min(AGE_MAX) as i32;
            all.ages[place] = age << PLACE_BITS | place as i32;
            useful.note(place, entry.as_ref().at() >= oldest_useful);
        }
        let merits = Merits::<W>::of(entries).among(&useful);
        let quarter = quarter(size, QUARTER, config);
        let mut chosen = Places::NONE;
        let newest = |place: usize| (OUT - all.ages[place]) as f32;
        top::<QUARTER, W>(&merits.urgent, quarter, newest, &mut chosen);
        let (target, source) = merits.take_useful::<_, QUARTER>(entries, quarter, &mut chosen);
        let wanted = size.saturating_sub(chosen.count());
        let at = now - all.take_newest(wanted, &mut chosen);
        Chosen { places: chosen.widened(), floor: Floor { at, target, source } }
    }

    /// Takes the `wanted` newest of those that are not chosen; returns the greatest age of them.
    fn take_newest<const W: usize>(&mut self, wanted: usize, chosen: &mut Places<W>) -> Span {
        for place in chosen.iter() {
            self.ages[place] = OUT;
        }
        let ages = &self.ages[..self.count.next_multiple_of(LANES).min(N)];
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
        let chosen = select(NOW, entries, size, &Config::default());
        chosen.places.iter().map(|place| entries[place].node.0).collect()
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
            let sorted = select_newest_first(NOW, &entries, size, &config);
            let places = sorted.places.iter();
            let mut nodes: Vec<u32> = places.map(|place| entries[place].node.0).collect();
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
