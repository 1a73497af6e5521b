//! Which entries are worth a place: in a datagram, and in a view of a cluster that does not fit.
//!
//! The newest alone do not scale: with a thousand nodes the last idle one is found too late,
//! because news of it is crowded out by news of nobody's interest. So half of the places go to the
//! newest, which keeps the sample fair and the liveness known, and a quarter each to the best
//! places for a process and to the most crowded nodes. Urgent news comes before all.

use crate::condition::Entry;
use crate::config::{Config, VIEW_MAX, WINDOW_MAX, WindowPolicy};
use crate::members::Member;
use crate::time::{Span, Time};
use std::array;

/// Entries weighed at one time: a full view and what one datagram adds.
const WEIGHED_MAX: usize = VIEW_MAX + WINDOW_MAX + 1;
/// Most views are smaller: less memory to go through.
const WEIGHED_MOSTLY: usize = 64;

/// A set of places, counted from 0: as many as there are bits in so many words.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Places<const W: usize> {
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

    fn and(&self, other: &Places<W>) -> Places<W> {
        Places { words: array::from_fn(|nth| self.words[nth] & other.words[nth]) }
    }

    fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    #[inline]
    fn iter(&self) -> impl Iterator<Item = usize> {
        let words = self.words.into_iter().enumerate();
        words.flat_map(|(nth, word)| Bits(word).map(move |bit| nth * 64 + bit))
    }

    /// Adds the first `wanted` of those places that are not in it; returns the last.
    fn fill(&mut self, places: &Places<W>, mut wanted: usize) -> Option<usize> {
        let mut last = None;
        for (nth, (word, places)) in self.words.iter_mut().zip(places.words).enumerate() {
            let taken = lowest(!*word & places, wanted);
            if taken != 0 {
                last = Some(nth * 64 + taken.ilog2() as usize);
            }
            *word |= taken;
            wanted -= taken.count_ones() as usize;
        }
        last
    }
}

/// At most so many of the bits, the lowest.
fn lowest(bits: u64, wanted: usize) -> u64 {
    let count = bits.count_ones() as usize;
    if wanted >= count {
        bits
    } else if wanted <= count / 2 {
        bits ^ (0..wanted).fold(bits, |rest, _| rest & (rest - 1))
    } else {
        (wanted..count).fold(bits, |kept, _| kept ^ 1 << kept.ilog2())
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
    pub fn is_above(&self, entry: &Entry, merit: Merit) -> bool {
        if entry.at() > self.at || merit.is(Merit::URGENT) || !merit.is(Merit::MEASURED) {
            return false;
        }
        let is_wanted = merit.is(Merit::TARGET) && target_rank(entry) > self.target
            || merit.is(Merit::SOURCE) && source_rank(entry) > self.source;
        !is_wanted
    }
}

/// What an entry is good for: found out when it comes, as views are gone through far more often
/// than they change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Merit(u8);

impl Merit {
    const URGENT: u32 = 0;
    const TARGET: u32 = 1;
    const SOURCE: u32 = 2;
    const MEASURED: u32 = 3;

    #[inline]
    pub fn of(entry: &Entry) -> Merit {
        let has = |bit: u32, is_set: bool| u8::from(is_set) << bit;
        Merit(
            has(Merit::URGENT, entry.urgency > 0)
                | has(Merit::TARGET, is_target(entry))
                | has(Merit::SOURCE, is_source(entry))
                | has(Merit::MEASURED, entry.cores > 0),
        )
    }

    #[inline]
    fn is(self, bit: u32) -> bool {
        self.0 >> bit & 1 > 0
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

/// Which members can be chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Among {
    All,
    /// Those that have measured themselves, but not the one in this place, which is to be told.
    ToTell(Option<usize>),
}

/// Takes at most `size` of the members, in their order, those after the first [`WEIGHED_MAX`] left
/// out. Returns what others would have to exceed.
///
/// Brains spend more time here than anywhere else, on figures that nobody can predict: so there are
/// few branches, no sorting, and no division for what is neither idle nor crowded.
pub(crate) fn select<M: AsRef<Member>>(
    now: Time,
    members: &[M],
    among: Among,
    size: usize,
    config: &Config,
    take: impl FnMut(&M),
) -> Floor {
    if members.len() <= WEIGHED_MOSTLY {
        let select = Ages::<WEIGHED_MOSTLY>::select::<_, 1, { WEIGHED_MOSTLY / 4 }>;
        select(now, members, among, size, config, take)
    } else {
        let members = &members[..members.len().min(WEIGHED_MAX)];
        let select = Ages::<WEIGHED_WIDE>::select::<_, WORDS, { VIEW_MAX / 4 }>;
        select(now, members, among, size, config, take)
    }
}

/// The same for members that come the newest first, which makes it much easier.
pub(crate) fn select_newest_first<M: AsRef<Member>>(
    now: Time,
    members: &[M],
    among: Among,
    size: usize,
    config: &Config,
    take: impl FnMut(&M),
) -> Floor {
    if members.len() <= WEIGHED_MOSTLY {
        let select = newest_first::<_, 1, { WEIGHED_MOSTLY / 4 }>;
        select(now, members, among, size, config, take)
    } else {
        let members = &members[..members.len().min(WEIGHED_MAX)];
        let select = newest_first::<_, WORDS, { VIEW_MAX / 4 }>;
        select(now, members, among, size, config, take)
    }
}

fn newest_first<M: AsRef<Member>, const W: usize, const QUARTER: usize>(
    now: Time,
    members: &[M],
    among: Among,
    size: usize,
    config: &Config,
    mut take: impl FnMut(&M),
) -> Floor {
    let Some(merits) = Merits::<W>::unless_all_fit(members, among, size, &mut take) else {
        return Floor::default();
    };
    let oldest_useful = now - config.useful_age_max;
    let is_old = |member: &&M| entry_of(*member).at() < oldest_useful;
    let useful = members.len() - members.iter().rev().take_while(is_old).count();
    let quarter = quarter(size, QUARTER, config);
    let mut chosen = Places::NONE;
    merits.urgent.iter().take(quarter).for_each(|place| chosen.note(place, true));
    let useful = Places::below(useful);
    let (target, source) = merits.take_useful::<_, QUARTER>(members, &useful, quarter, &mut chosen);
    let wanted = size.saturating_sub(chosen.count());
    let oldest = chosen.fill(&merits.all, wanted);
    let at = oldest.map_or(now, |place| entry_of(&members[place]).at());
    chosen.iter().for_each(|place| take(&members[place]));
    Floor { at, target, source }
}

#[inline]
fn entry_of<M: AsRef<Member>>(member: &M) -> &Entry {
    &member.as_ref().entry
}

/// Places for each kind of merit.
fn quarter(size: usize, max: usize, config: &Config) -> usize {
    if config.window_policy == WindowPolicy::Osmos { (size / 4).min(max) } else { 0 }
}

/// What members that can be chosen are good for.
struct Merits<const W: usize> {
    all: Places<W>,
    urgent: Places<W>,
    targets: Places<W>,
    sources: Places<W>,
}

impl<const W: usize> Merits<W> {
    #[inline]
    fn of<M: AsRef<Member>>(members: &[M], among: Among) -> Merits<W> {
        let mut all = Places::below(members.len());
        let (mut urgent, mut targets, mut sources) = (Places::NONE, Places::NONE, Places::NONE);
        for (nth, members) in members.chunks(64).enumerate().take(W) {
            let mut measured = 0;
            for (eighth, eight) in members.chunks(8).enumerate() {
                let merits = Eight::of(eight);
                urgent.words[nth] |= merits.that(Merit::URGENT) << (8 * eighth);
                targets.words[nth] |= merits.that(Merit::TARGET) << (8 * eighth);
                sources.words[nth] |= merits.that(Merit::SOURCE) << (8 * eighth);
                measured |= merits.that(Merit::MEASURED) << (8 * eighth);
            }
            if matches!(among, Among::ToTell(_)) {
                all.words[nth] = measured;
            }
        }
        if let Among::ToTell(Some(listener)) = among {
            all.words[listener / 64 % W] &= !(1 << (listener % 64));
        }
        for (nth, all) in all.words.into_iter().enumerate() {
            urgent.words[nth] &= all;
            targets.words[nth] &= all;
            sources.words[nth] &= all;
        }
        Merits { all, urgent, targets, sources }
    }

    /// Takes all, if there is room for them: then there is nothing to choose.
    #[inline]
    fn unless_all_fit<M: AsRef<Member>>(
        members: &[M],
        among: Among,
        size: usize,
        take: &mut impl FnMut(&M),
    ) -> Option<Merits<W>> {
        let merits = Merits::of(members, among);
        if merits.all.count() > size {
            return Some(merits);
        }
        merits.all.iter().for_each(|place| take(&members[place]));
        None
    }

    /// Takes the best targets and sources, a quarter each, of those that are fresh enough to be of
    /// use to whoever looks for a place, or for work; returns what it takes to be one.
    #[inline]
    fn take_useful<M: AsRef<Member>, const QUARTER: usize>(
        &self,
        members: &[M],
        useful: &Places<W>,
        quarter: usize,
        chosen: &mut Places<W>,
    ) -> (f32, f32) {
        let target = |place: usize| target_rank(entry_of(&members[place]));
        let source = |place: usize| source_rank(entry_of(&members[place]));
        let target = top::<QUARTER, W>(&self.targets.and(useful), quarter, target, chosen);
        let source = top::<QUARTER, W>(&self.sources.and(useful), quarter, source, chosen);
        (target, source)
    }
}

/// The merits of at most eight members, one in each byte.
struct Eight(u64);

impl Eight {
    #[inline]
    fn of<M: AsRef<Member>>(members: &[M]) -> Eight {
        Eight(members.iter().rev().fold(0, |all, m| all << 8 | u64::from(m.as_ref().merit().0)))
    }

    /// Whose has that bit: eight bits that lay eight apart are brought side by side by a
    /// multiplication, in which no two products meet.
    #[inline]
    fn that(&self, bit: u32) -> u64 {
        (self.0 >> bit & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56
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
    fn select<M: AsRef<Member>, const W: usize, const QUARTER: usize>(
        now: Time,
        members: &[M],
        among: Among,
        size: usize,
        config: &Config,
        mut take: impl FnMut(&M),
    ) -> Floor {
        let Some(merits) = Merits::<W>::unless_all_fit(members, among, size, &mut take) else {
            return Floor::default();
        };
        let oldest_useful = now - config.useful_age_max;
        let mut useful = Places::NONE;
        let mut all = Ages { ages: [OUT; N], count: members.len() };
        for place in merits.all.iter() {
            let at = entry_of(&members[place]).at();
            let age = (now.since(at).0 >> AGE_UNIT_BITS).min(AGE_MAX) as i32;
            all.ages[place] = age << PLACE_BITS | place as i32;
            useful.note(place, at >= oldest_useful);
        }
        let quarter = quarter(size, QUARTER, config);
        let mut chosen = Places::NONE;
        let newest = |place: usize| (OUT - all.ages[place]) as f32;
        top::<QUARTER, W>(&merits.urgent, quarter, newest, &mut chosen);
        let (target, source) =
            merits.take_useful::<_, QUARTER>(members, &useful, quarter, &mut chosen);
        let wanted = size.saturating_sub(chosen.count());
        let at = now - all.take_newest(wanted, &mut chosen);
        chosen.iter().for_each(|place| take(&members[place]));
        Floor { at, target, source }
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

    fn members(entries: &[Entry]) -> Vec<Member> {
        entries.iter().map(|entry| Member::heard_of(entry, None)).collect()
    }

    fn chosen(entries: &[Entry], size: usize) -> Vec<u32> {
        let mut nodes = Vec::new();
        let take = |member: &Member| nodes.push(member.entry.node.0);
        select(NOW, &members(entries), Among::All, size, &Config::default(), take);
        nodes
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
            let mut nodes = Vec::new();
            let take = |member: &Member| nodes.push(member.entry.node.0);
            select_newest_first(NOW, &members(&entries), Among::All, size, &config, take);
            usual.sort_unstable();
            nodes.sort_unstable();
            prop_assert_eq!(nodes, usual);
        }
    }

    proptest! {
        #[test]
        fn the_lowest_bits_are_the_first(bits in any::<u64>(), wanted in 0usize..70) {
            let first: Vec<usize> = Bits(bits).take(wanted).collect();
            prop_assert_eq!(Bits(lowest(bits, wanted)).collect::<Vec<_>>(), first);
        }

        #[test]
        fn whoever_is_told_and_who_knows_nothing_of_himself_are_left_out(
            measured in prop::collection::vec(any::<bool>(), 1..200),
            listener in 0usize..200,
            size in 1usize..24,
        ) {
            let entries = measured.iter().enumerate().map(|(nth, is_measured)| {
                let cores = u16::from(*is_measured);
                Entry { cores, ..entry(nth as u32, 3 * nth as u64, 1.0) }
            });
            let members = members(&entries.collect::<Vec<Entry>>());
            let among = Among::ToTell((listener < members.len()).then_some(listener));
            let is_asked_for = |nth: &usize| measured[*nth] && *nth != listener;
            let mut newest: Vec<usize> = (0..members.len()).filter(is_asked_for).collect();
            newest.truncate(size);
            let config = Config::default();
            let (mut one, mut other) = (Vec::new(), Vec::new());
            let node = |member: &Member| member.entry.node.0 as usize;
            select(NOW, &members, among, size, &config, |member| one.push(node(member)));
            let take = |member: &Member| other.push(node(member));
            select_newest_first(NOW, &members, among, size, &config, take);
            prop_assert_eq!(&one, &newest);
            prop_assert_eq!(&other, &newest);
        }
    }

    #[test]
    fn urgent_news_goes_first() {
        let mut entries: Vec<Entry> = (0..40).map(|n| entry(n, u64::from(n), 1.0)).collect();
        entries.push(Entry { urgency: 3, ..entry(99, 9_000, 1.0) });
        assert!(chosen(&entries, 4).contains(&99));
    }
}
