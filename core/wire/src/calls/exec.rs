//! execve(2): how the lists of strings travel that it takes.
//!
//! A list is an array of pointers that ends with NULL, and what they lead to. It travels as one
//! segment: the array, each pointer as an offset from its beginning, then the strings, one after
//! the other and each with its zero. Home accepts no other form, and makes pointers of the offsets.

use super::marshal::{GuestMemory, Unmarshalled};
use crate::ids::GuestAddr;

/// Number of the call.
pub const EXECVE: u32 = 59;

/// `MAX_ARG_STRLEN`: one string with its zero.
const STRING_BYTES_MAX: usize = 128 << 10;
const WORD: usize = 8;
const PAGE: u64 = 4096;

/// Gathers the list at `guest`, each byte of it read once. None if there is nothing at all.
pub(super) fn gather(
    memory: &dyn GuestMemory,
    guest: GuestAddr,
    bytes_max: usize,
) -> Result<Option<Vec<u8>>, Unmarshalled> {
    let mut reader = Reader { memory, start: 0, bytes: Vec::new() };
    if reader.from(guest.0).is_empty() {
        return Ok(None);
    }
    let mut pointers = Vec::new();
    let mut at = guest.0;
    loop {
        let word = reader.word(at)?;
        if word == 0 {
            break;
        }
        pointers.push(word);
        if (pointers.len() + 1) * WORD > bytes_max {
            return Err(LARGE);
        }
        at = at.checked_add(WORD as u64).ok_or(HALF)?;
    }
    let mut list = vec![0; (pointers.len() + 1) * WORD];
    for (index, pointer) in pointers.into_iter().enumerate() {
        let offset = list.len() as u64;
        list[index * WORD..(index + 1) * WORD].copy_from_slice(&offset.to_le_bytes());
        reader.string(pointer, &mut list)?;
        if list.len() > bytes_max {
            return Err(LARGE);
        }
    }
    Ok(Some(list))
}

/// Whether this is a list as [`gather`] makes one.
pub(super) fn is_list(list: &[u8]) -> bool {
    let Some(count) = count(list) else { return false };
    let mut next = (count + 1) * WORD;
    for index in 0..count {
        let is_next = word(list, index) == Some(next as u64);
        let end = list.get(next..).and_then(|rest| rest.iter().position(|byte| *byte == 0));
        match end.filter(|end| is_next && *end < STRING_BYTES_MAX) {
            Some(end) => next += end + 1,
            None => return false,
        }
    }
    word(list, count) == Some(0) && next == list.len()
}

/// Makes pointers of a list's offsets, for a list that lies at `base`.
pub(super) fn relocate(list: &mut [u8], base: u64) {
    for index in 0..count(list).unwrap_or(0) {
        let Some(offset) = word(list, index) else { return };
        let pointer = base.wrapping_add(offset);
        list[index * WORD..(index + 1) * WORD].copy_from_slice(&pointer.to_le_bytes());
    }
}

/// How many strings a list has, by where the first of them lies.
fn count(list: &[u8]) -> Option<usize> {
    let first = usize::try_from(word(list, 0)?).ok()?;
    let has_room =
        first == 0 || first.is_multiple_of(WORD) && (2 * WORD..list.len()).contains(&first);
    has_room.then(|| (first / WORD).saturating_sub(1))
}

fn word(list: &[u8], index: usize) -> Option<u64> {
    let bytes = list.get(index * WORD..(index + 1) * WORD)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

const HALF: Unmarshalled = Unmarshalled::NeedsHome("half-mapped-memory");
const LARGE: Unmarshalled = Unmarshalled::NeedsHome("large-call");

/// Reads a page at a time: strings lie close together, and there may be many.
struct Reader<'a> {
    memory: &'a dyn GuestMemory,
    /// Where what was read last lies.
    start: u64,
    bytes: Vec<u8>,
}

impl Reader<'_> {
    /// What can be read from there to the end of its page.
    fn from(&mut self, address: u64) -> &[u8] {
        let inside = address.checked_sub(self.start).filter(|at| *at < self.bytes.len() as u64);
        let at = inside.unwrap_or_else(|| {
            self.start = address;
            self.bytes.resize((PAGE - address % PAGE) as usize, 0);
            let readable = self.memory.read(GuestAddr(address), &mut self.bytes);
            self.bytes.truncate(readable);
            0
        });
        &self.bytes[at as usize..]
    }

    fn word(&mut self, address: u64) -> Result<u64, Unmarshalled> {
        let mut word = Vec::with_capacity(WORD);
        let mut at = address;
        while word.len() < WORD {
            let there = self.from(at);
            let taken = there.len().min(WORD - word.len());
            if taken == 0 {
                return Err(HALF);
            }
            word.extend_from_slice(&there[..taken]);
            at = address.checked_add(word.len() as u64).ok_or(HALF)?;
        }
        Ok(word.try_into().map_or(0, u64::from_le_bytes))
    }

    /// Adds the string at `address`, and its zero.
    fn string(&mut self, address: u64, list: &mut Vec<u8>) -> Result<(), Unmarshalled> {
        let begin = list.len();
        let mut at = address;
        loop {
            let there = self.from(at);
            if there.is_empty() {
                return Err(HALF);
            }
            let end = there.iter().position(|byte| *byte == 0);
            let taken = end.map_or(there.len(), |end| end + 1);
            list.extend_from_slice(&there[..taken]);
            if list.len() - begin > STRING_BYTES_MAX {
                return Err(LARGE);
            }
            if end.is_some() {
                return Ok(());
            }
            at = at.checked_add(taken as u64).ok_or(HALF)?;
        }
    }
}
