//! Strangers knock; home hears of it, but not more often than a person can read.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// One line for an address in so long; the next one says how many were left out.
const QUIET: Duration = Duration::from_secs(5);
/// Addresses remembered; with more of them, new ones are only counted.
const ADDRESSES_MAX: usize = 256;

#[derive(Default)]
pub struct Rejections {
    last: BTreeMap<IpAddr, (Instant, u64)>,
    count: u64,
}

impl Rejections {
    /// Whether to tell of this one, and how many of the same address were not told of before.
    pub fn tell(&mut self, now: Instant, address: IpAddr) -> Option<u64> {
        self.count += 1;
        if self.last.len() >= ADDRESSES_MAX && !self.last.contains_key(&address) {
            self.last.retain(|_, (told, _)| now.saturating_duration_since(*told) < QUIET);
            if self.last.len() >= ADDRESSES_MAX {
                return None;
            }
        }
        match self.last.get_mut(&address) {
            Some((told, untold)) if now.saturating_duration_since(*told) < QUIET => {
                *untold += 1;
                None
            }
            Some((told, untold)) => {
                *told = now;
                Some(std::mem::take(untold))
            }
            None => {
                self.last.insert(address, (now, 0));
                Some(0)
            }
        }
    }

    /// All that there were, told of or not.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_flood_from_one_address_is_one_line_and_a_count() {
        let mut rejections = Rejections::default();
        let (now, address) = (Instant::now(), "10.0.0.1".parse().unwrap());
        assert_eq!(rejections.tell(now, address), Some(0));
        for _ in 0..99 {
            assert_eq!(rejections.tell(now, address), None);
        }
        assert_eq!(rejections.tell(now + QUIET, address), Some(99));
        assert_eq!(rejections.count(), 101);
    }

    #[test]
    fn a_flood_from_many_addresses_is_bounded_and_ends() {
        let mut rejections = Rejections::default();
        let now = Instant::now();
        let many = (0..1000u32).map(|n| IpAddr::from(n.to_be_bytes()));
        assert_eq!(many.filter(|a| rejections.tell(now, *a).is_some()).count(), ADDRESSES_MAX);
        assert!(rejections.tell(now + QUIET, "10.0.0.1".parse().unwrap()).is_some());
    }
}
