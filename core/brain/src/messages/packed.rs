//! Entries as they travel: 32 bytes each, whose layout `message` shows.

use super::message::{MessageError, out_of_range};
use crate::config::WINDOW_MAX;
use crate::facts::{Entry, RUNNABLE_MILLI_MAX, SPEED_MILLI_MAX};
use crate::time::{Span, Time};
use wire::ids::NodeId;

pub(crate) const ENTRY_BYTES: usize = 32;
/// News that would travel further than through any cluster is not that urgent.
pub(crate) const URGENCY_MAX: u8 = 32;

/// Entries of other nodes in the form in which they travel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Window<'a> {
    packed: &'a [[u8; ENTRY_BYTES]],
}

impl<'a> Window<'a> {
    /// # Errors
    /// If a field of an entry is out of its range.
    pub fn of(packed: &'a [[u8; ENTRY_BYTES]]) -> Result<Window<'a>, MessageError> {
        packed.iter().try_for_each(check)?;
        Ok(Window { packed })
    }

    /// Of the first so many entries.
    pub fn bytes(self, entries: usize) -> &'a [u8] {
        self.packed[..self.packed.len().min(entries)].as_flattened()
    }

    /// Unused places are passed over.
    pub fn entries(self, now: Time) -> impl Iterator<Item = Entry> + 'a {
        self.packed
            .iter()
            .filter(|packed| !is_unused(packed))
            .map(move |packed| unpack(packed, now))
    }
}

/// Room for the window of one datagram.
pub(crate) struct WindowRoom {
    packed: Vec<[u8; ENTRY_BYTES]>,
}

impl WindowRoom {
    pub fn new() -> WindowRoom {
        WindowRoom { packed: Vec::new() }
    }

    /// What there is no place for is left out.
    pub fn add(&mut self, entry: &Entry, now: Time) {
        if self.packed.len() < WINDOW_MAX {
            self.packed.push(pack(entry, now));
        }
    }

    pub fn window(&self) -> Window<'_> {
        Window { packed: &self.packed }
    }
}

pub(crate) fn pack(entry: &Entry, now: Time) -> [u8; ENTRY_BYTES] {
    let age_ms = u32::try_from(now.since(entry.at).0 / 1000).unwrap_or(u32::MAX);
    let mut packed = [0; ENTRY_BYTES];
    packed[0..4].copy_from_slice(&entry.node.0.to_le_bytes());
    packed[4..8].copy_from_slice(&entry.incarnation.to_le_bytes());
    packed[8..12].copy_from_slice(&age_ms.to_le_bytes());
    if entry.cores > 0 {
        packed[12..16].copy_from_slice(&entry.runnable_milli.to_le_bytes());
        packed[16..20].copy_from_slice(&entry.speed_milli.to_le_bytes());
        packed[20..22].copy_from_slice(&entry.cores.to_le_bytes());
        packed[22] = entry.urgency;
        packed[23] = u8::from(entry.is_closed);
        packed[24..28].copy_from_slice(&entry.memory_total_mib.to_le_bytes());
        packed[28..32].copy_from_slice(&entry.memory_free_mib.to_le_bytes());
    }
    packed
}

fn u32_at(packed: &[u8; ENTRY_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([packed[at], packed[at + 1], packed[at + 2], packed[at + 3]])
}

fn cores_of(packed: &[u8; ENTRY_BYTES]) -> u16 {
    u16::from_le_bytes([packed[20], packed[21]])
}

pub(crate) fn is_unused(packed: &[u8; ENTRY_BYTES]) -> bool {
    u32_at(packed, 0) == 0
}

/// Whether every field of an entry is in its range.
pub(crate) fn check(packed: &[u8; ENTRY_BYTES]) -> Result<(), MessageError> {
    let bounded = |field, at, max| {
        let value = u32_at(packed, at);
        if value > max { Err(out_of_range(field, value)) } else { Ok(value) }
    };
    bounded("runnable_milli", 12, RUNNABLE_MILLI_MAX)?;
    let speed_milli = bounded("speed_milli", 16, SPEED_MILLI_MAX)?;
    if cores_of(packed) > 0 && speed_milli == 0 && !is_unused(packed) {
        return Err(out_of_range("speed_milli", speed_milli));
    }
    if packed[23] > 1 && !is_unused(packed) {
        return Err(out_of_range("closed", packed[23]));
    }
    Ok(())
}

/// Of one that was checked.
pub(crate) fn unpack(packed: &[u8; ENTRY_BYTES], now: Time) -> Entry {
    let mut entry = Entry {
        at: now - Span::from_millis(u64::from(u32_at(packed, 8))),
        node: NodeId(u32_at(packed, 0)),
        incarnation: u32_at(packed, 4),
        runnable_milli: u32_at(packed, 12),
        speed_milli: u32_at(packed, 16),
        cores: cores_of(packed),
        urgency: packed[22],
        is_closed: packed[23] == 1,
        memory_total_mib: u32_at(packed, 24),
        memory_free_mib: u32_at(packed, 28),
    };
    // What says too much says as much as is possible.
    if entry.cores == 0 {
        // Without a core nothing runs.
        entry.runnable_milli = 0;
    }
    entry.memory_free_mib = entry.memory_free_mib.min(entry.memory_total_mib);
    entry.urgency = entry.urgency.min(URGENCY_MAX);
    entry
}
