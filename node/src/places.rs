//! Places for those who have connected and may never say anything.
//!
//! Their number is bounded, in all and for each of them that can be told apart. Who comes when all
//! places are taken gets that of the one who has waited longest, among those of whoever has the
//! most: so a flood drives out itself, and who knows what he wants has long been served.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// All places, shared by those who hold them.
#[derive(Debug)]
pub struct Places<K> {
    taken: Arc<Mutex<Taken<K>>>,
    max: usize,
    per_key_max: usize,
}

impl<K> Clone for Places<K> {
    fn clone(&self) -> Places<K> {
        Places { taken: self.taken.clone(), max: self.max, per_key_max: self.per_key_max }
    }
}

#[derive(Debug)]
struct Taken<K> {
    /// By the order in which they came.
    holders: BTreeMap<u64, (K, Arc<Notify>)>,
    came: u64,
}

/// One place; given back when dropped.
#[derive(Debug)]
pub struct Place<K: Copy + Ord> {
    places: Places<K>,
    number: u64,
    lost: Arc<Notify>,
}

impl<K: Copy + Ord> Places<K> {
    pub fn new(max: usize, per_key_max: usize) -> Places<K> {
        let taken = Taken { holders: BTreeMap::new(), came: 0 };
        Places { taken: Arc::new(Mutex::new(taken)), max, per_key_max }
    }

    /// Takes a place, from another if there is none left.
    pub fn take(&self, key: K) -> Place<K> {
        let mut taken = self.lock();
        let mut counts: BTreeMap<K, usize> = BTreeMap::new();
        for (key, _) in taken.holders.values() {
            *counts.entry(*key).or_default() += 1;
        }
        let loser = match counts.get(&key) {
            Some(count) if *count >= self.per_key_max => Some(key),
            _ if taken.holders.len() >= self.max => {
                counts.iter().max_by_key(|(_, count)| **count).map(|(key, _)| *key)
            }
            _ => None,
        };
        if let Some(loser) = loser {
            taken.dismiss_oldest(loser);
        }
        taken.came += 1;
        let (number, lost) = (taken.came, Arc::new(Notify::new()));
        taken.holders.insert(number, (key, lost.clone()));
        Place { places: self.clone(), number, lost }
    }

    fn lock(&self) -> MutexGuard<'_, Taken<K>> {
        // The map is never left half changed.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Copy + Ord> Taken<K> {
    fn dismiss_oldest(&mut self, key: K) {
        let oldest = self.holders.iter().find(|(_, (holder, _))| *holder == key);
        let Some(number) = oldest.map(|(number, _)| *number) else { return };
        if let Some((_, lost)) = self.holders.remove(&number) {
            // Kept for one that does not wait for it yet.
            lost.notify_one();
        }
    }
}

impl<K: Copy + Ord> Place<K> {
    /// Returns when somebody else has got this place.
    pub async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl<K: Copy + Ord> Drop for Place<K> {
    fn drop(&mut self) {
        self.places.lock().holders.remove(&self.number);
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    async fn is_lost(place: &Place<u32>) -> bool {
        timeout(Duration::from_millis(1), place.lost()).await.is_ok()
    }

    fn count(places: &Places<u32>) -> usize {
        places.lock().holders.len()
    }

    #[tokio::test]
    async fn a_flood_of_one_drives_out_itself_oldest_first() {
        let places = Places::new(10, 3);
        let other = places.take(2);
        let flood: Vec<Place<u32>> = (0..100).map(|_| places.take(1)).collect();
        assert_eq!(count(&places), 4);
        assert!(!is_lost(&other).await);
        assert!(is_lost(&flood[0]).await && is_lost(&flood[96]).await);
        assert!(!is_lost(&flood[97]).await && !is_lost(&flood[99]).await);
    }

    #[tokio::test]
    async fn where_all_places_are_taken_whoever_has_the_most_loses_one() {
        let places = Places::new(6, 4);
        let many: Vec<Place<u32>> = (0..4).map(|_| places.take(1)).collect();
        let few: Vec<Place<u32>> = (0..2).map(|_| places.take(2)).collect();
        let newcomer = places.take(3);
        assert_eq!(count(&places), 6);
        assert!(is_lost(&many[0]).await && !is_lost(&many[1]).await);
        assert!(!is_lost(&few[0]).await && !is_lost(&newcomer).await);
    }

    #[test]
    fn places_are_given_back_also_by_those_who_had_lost_them() {
        let places = Places::new(2, 2);
        let held: Vec<Place<u32>> = (0..5).map(|key| places.take(key)).collect();
        assert_eq!(count(&places), 2);
        drop(held);
        assert_eq!(count(&places), 0);
    }
}
