//! A small ordered map in one piece of memory.
//!
//! Almost every table of a brain holds a handful of entries or none. A tree would take more than a
//! kilobyte for the first of them, which a simulation of a million brains cannot afford, and be no
//! faster. An empty one is a pointer.

use thin_vec::ThinVec;

/// Grows by single places up to this size.
const EXACT_MAX: usize = 16;
/// Up to here looking at all of them for an equal one is quicker than halving.
const FEW: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct Sorted<K, V> {
    entries: ThinVec<(K, V)>,
}

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Sorted { entries: ThinVec::new() }
    }
}

impl<K: Ord + Copy, V> Sorted<K, V> {
    #[inline]
    fn find(&self, key: &K) -> Option<usize> {
        if self.entries.len() <= FEW {
            return self.entries.iter().position(|(other, _)| other == key);
        }
        self.entries.binary_search_by(|(other, _)| other.cmp(key)).ok()
    }

    #[inline]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.find(key).map(|place| &self.entries[place].1)
    }

    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.find(key).map(|place| &mut self.entries[place].1)
    }

    /// Returns the value of the key, made by `fresh` if there was none.
    #[inline]
    pub fn get_or_insert_with(&mut self, key: K, fresh: impl FnOnce() -> V) -> &mut V {
        let place = self.place_of_or_insert_with(key, fresh);
        &mut self.entries[place].1
    }

    /// The same, but returns the place, counted from 0 in the order of keys.
    #[inline]
    pub fn place_of_or_insert_with(&mut self, key: K, fresh: impl FnOnce() -> V) -> usize {
        match self.find(&key) {
            Some(place) => place,
            None => self.add(key, fresh()),
        }
    }

    /// Whether the key has that place.
    #[inline]
    pub fn is_at(&self, place: usize, key: &K) -> bool {
        self.entries.get(place).is_some_and(|(other, _)| other == key)
    }

    /// # Panics
    /// If there is no such place.
    #[inline]
    pub fn value_at_mut(&mut self, place: usize) -> &mut V {
        &mut self.entries[place].1
    }

    /// The key is not in it yet.
    #[inline(never)]
    fn add(&mut self, key: K, value: V) -> usize {
        if self.entries.len() < EXACT_MAX {
            self.entries.reserve_exact(1);
        }
        let place = self.entries.partition_point(|(other, _)| *other < key);
        self.entries.insert(place, (key, value));
        place
    }

    pub fn insert(&mut self, key: K, value: V) {
        match self.find(&key) {
            Some(place) => self.entries[place].1 = value,
            None => {
                self.add(key, value);
            }
        }
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.find(key)?;
        let removed = self.entries.remove(place).1;
        self.spare_nothing();
        Some(removed)
    }

    #[inline]
    pub fn contains(&self, key: &K) -> bool {
        self.find(key).is_some()
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        if !self.entries.is_empty() {
            self.entries.retain_mut(|(key, value)| keep(key, value));
            self.spare_nothing();
        }
    }

    /// An empty table has no memory.
    fn spare_nothing(&mut self) {
        if self.entries.is_empty() {
            self.entries = ThinVec::new();
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.entries.iter().map(|(key, _)| *key)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.iter_mut().map(|(_, value)| value)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.entries.iter_mut().map(|(key, value)| (*key, value))
    }

    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.entries.iter().map(|(key, value)| (*key, value))
    }

    pub fn at_mut(&mut self, place: usize) -> Option<(K, &mut V)> {
        self.entries.get_mut(place).map(|(key, value)| (*key, value))
    }

    /// The entry at a place, counted from 0 in the order of keys.
    pub fn at(&self, place: usize) -> Option<(K, &V)> {
        self.entries.get(place).map(|(key, value)| (*key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_does_what_a_tree_does(steps in prop::collection::vec((0u8..24, 0u8..3), 0..200)) {
            let mut sorted = Sorted::default();
            let mut tree = BTreeMap::new();
            for (nth, (key, step)) in steps.into_iter().enumerate() {
                match step {
                    0 => {
                        sorted.insert(key, nth);
                        tree.insert(key, nth);
                    }
                    1 => prop_assert_eq!(sorted.remove(&key), tree.remove(&key)),
                    _ => prop_assert_eq!(sorted.get(&key), tree.get(&key)),
                }
                prop_assert!(sorted.iter().eq(tree.iter().map(|(key, value)| (*key, value))));
            }
        }
    }
}
