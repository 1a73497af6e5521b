//! Hashes of memory pages: what of a process's memory a node may have already, and need not be sent
//! ([decision 0023](../../../docs/decisions/0023-pages-of-earlier-guests.md)).

use crate::bounded;
use crate::forward::bytes;
use crate::ids::GuestAddr;
use crate::limits::{HASHED_PAGES_MAX, PAGE_RUNS_MAX};
use crate::memory::Span;
use serde::{Deserialize, Serialize};

/// All of a BLAKE3 hash: who makes two pages that have the same one has broken it.
pub const PAGE_HASH_BYTES: usize = 32;
pub type PageHash = [u8; PAGE_HASH_BYTES];
const PAGE_BYTES: u64 = 4096;

/// Pages, told by their hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageHashes {
    /// Where they are, one after the other.
    #[serde(deserialize_with = "bounded::list::<_, _, PAGE_RUNS_MAX>")]
    pub spans: Vec<Span>,
    /// Of each page.
    #[serde(with = "bytes")]
    pub hashes: Vec<u8>,
}

impl PageHashes {
    pub fn add(&mut self, page: GuestAddr, hash: &PageHash) {
        let end = GuestAddr(page.0 + PAGE_BYTES);
        match self.spans.last_mut() {
            Some(last) if last.1 == page => last.1 = end,
            _ => self.spans.push((page, end)),
        }
        self.hashes.extend_from_slice(hash);
    }

    /// How many hashes there are.
    pub fn count(&self) -> usize {
        self.hashes.len() / PAGE_HASH_BYTES
    }

    /// The pages with their hashes, in order; None if these are not whole pages, as many as hashes,
    /// and no more than there may be.
    pub fn pages(&self) -> Option<Vec<(GuestAddr, PageHash)>> {
        let mut pages = Vec::new();
        let mut hashes = self.hashes.chunks_exact(PAGE_HASH_BYTES);
        if self.count() > HASHED_PAGES_MAX || !hashes.remainder().is_empty() {
            return None;
        }
        for (start, end) in self.spans.iter().map(|(start, end)| (start.0, end.0)) {
            let is_whole = start % PAGE_BYTES == 0 && end % PAGE_BYTES == 0;
            if !is_whole || start >= end || (end - start) / PAGE_BYTES > HASHED_PAGES_MAX as u64 {
                return None;
            }
            for page in (start..end).step_by(PAGE_BYTES as usize) {
                pages.push((GuestAddr(page), hashes.next()?.try_into().ok()?));
            }
        }
        hashes.next().is_none().then_some(pages)
    }
}

/// For each of some pages whether it is lacking: a bit, the lowest of a byte first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lacking(#[serde(with = "bytes")] Vec<u8>);

impl Lacking {
    pub fn of(are_lacking: impl ExactSizeIterator<Item = bool>) -> Lacking {
        let mut bits = vec![0; are_lacking.len().div_ceil(8)];
        for (index, is_lacking) in are_lacking.enumerate() {
            bits[index / 8] |= u8::from(is_lacking) << (index % 8);
        }
        Lacking(bits)
    }

    /// What was said of so many pages; None if it was of another number.
    pub fn told(&self, count: usize) -> Option<Vec<bool>> {
        let is_set = |index: usize| self.0[index / 8] & 1 << (index % 8) != 0;
        let has_surplus = || (count..self.0.len() * 8).any(is_set);
        if self.0.len() != count.div_ceil(8) || has_surplus() {
            return None;
        }
        Some((0..count).map(is_set).collect())
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn hashes(spans: &[(u64, u64)], count: usize) -> PageHashes {
        let spans = spans.iter().map(|(start, end)| (GuestAddr(*start), GuestAddr(*end))).collect();
        PageHashes { spans, hashes: vec![7; count * PAGE_HASH_BYTES] }
    }

    #[test]
    fn hashes_belong_to_whole_pages_and_are_as_many() {
        let pages = hashes(&[(0x1000, 0x3000), (0x8000, 0x9000)], 3).pages().unwrap();
        let places: Vec<u64> = pages.iter().map(|(page, _)| page.0).collect();
        assert_eq!(places, [0x1000, 0x2000, 0x8000]);
        let lies = [
            hashes(&[(0x1000, 0x3000)], 1),
            hashes(&[(0x1000, 0x3000)], 3),
            hashes(&[(0x1000, 0x1000)], 0),
            hashes(&[(0x3000, 0x1000)], 2),
            hashes(&[(0x1001, 0x2001)], 1),
            hashes(&[(0, !0xfff)], 1),
            hashes(&[(0, (HASHED_PAGES_MAX as u64 + 1) << 12)], HASHED_PAGES_MAX + 1),
            PageHashes { hashes: vec![7; 33], ..hashes(&[(0x1000, 0x2000)], 1) },
        ];
        for lie in lies {
            assert_eq!(lie.pages(), None, "{:?}", lie.spans);
        }
        let mut added = PageHashes::default();
        [0x1000, 0x2000, 0x8000].into_iter().for_each(|page| added.add(GuestAddr(page), &[7; 32]));
        assert_eq!(added, hashes(&[(0x1000, 0x3000), (0x8000, 0x9000)], 3));
    }

    #[test]
    fn an_answer_is_about_as_many_pages_as_were_asked_for() {
        for count in [0usize, 1, 7, 8, 9, 256] {
            let lacking: Vec<bool> = (0..count).map(|index| index % 3 == 1).collect();
            let answer = Lacking::of(lacking.iter().copied());
            assert_eq!(answer.told(count), Some(lacking));
            assert_eq!(answer.told(count + 8), None);
        }
        assert_eq!(Lacking(vec![0b1000]).told(3), None, "of a page that is none");
        assert_eq!(Lacking(vec![0b1000]).told(4).unwrap(), [false, false, false, true]);
    }
}
