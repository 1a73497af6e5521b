//! What brains say to each other: datagrams of a fixed layout, so that traffic per node is constant
//! and a hostile datagram can cost no more than a friendly one.
//!
//! ```text
//! header  12 bytes  "OB", version, kind, count or flag, 3 zero bytes, sequence u32
//! sender  32 bytes  the sender's own entry: every message refreshes what is known of its sender
//! gossip  `count` entries of 32 bytes (unused ones zero); others: a fixed body, see below
//! entry   node u32, incarnation u32, age_ms u32, runnable_milli u32, speed_milli u32,
//!         cores u16 (0: not measured yet), zero u16, memory_total_mib u32, memory_free_mib u32
//! ```
//! All little-endian. Ages, not times, travel: clocks need not agree. Loss and reordering are
//! expected; the handshake survives both by repetition, and is idempotent.

use crate::condition::{Condition, Entry};
use crate::config::WINDOW_MAX;
use crate::time::{Span, Time};
use wire::ids::{GlobalPid, HomePid, NodeId};

const MAGIC: [u8; 2] = *b"OB";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 12;
const TAG_BYTES: usize = 8;
const ENTRY_BYTES: usize = 32;
/// No datagram of a brain is longer.
pub const DATAGRAM_BYTES_MAX: usize = HEADER_BYTES + (1 + WINDOW_MAX) * ENTRY_BYTES;

const MIB: u64 = 1 << 20;
/// Runnable threads of one node, cores' speed relative to the reference: beyond is nonsense.
const RUNNABLE_MILLI_MAX: u32 = 1_000_000_000;
const SPEED_MILLI_MAX: u32 = 10_000_000;
const DEMAND_MILLI_MAX: u32 = 10_000_000;

/// Names one offer of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OfferId(pub u64);

/// A process that its node would hand over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Offer {
    pub id: OfferId,
    pub process: GlobalPid,
    pub demand: f64,
    /// Calls that it forwards to its home for each second of CPU time, when away.
    pub calls_per_cpu_s: u32,
    pub rss_bytes: u64,
}

/// Why an offer was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It would not be better off here.
    Load = 1,
    /// It would not fit into memory.
    Memory = 2,
    /// Enough others are on their way here.
    Busy = 3,
    /// This node does not know itself well enough at the moment.
    Unready = 4,
    /// It is here already, or on its way away from here.
    Present = 5,
}

impl Refusal {
    fn from_wire(byte: u8) -> Option<Refusal> {
        [Refusal::Load, Refusal::Memory, Refusal::Busy, Refusal::Unready, Refusal::Present]
            .into_iter()
            .find(|refusal| *refusal as u8 == byte)
    }

    pub fn text(self) -> &'static str {
        match self {
            Refusal::Load => "it would be no better off there",
            Refusal::Memory => "it would not fit into its memory",
            Refusal::Busy => "enough others are on their way there",
            Refusal::Unready => "it has no fresh measurement of itself",
            Refusal::Present => "it is there already",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    /// The newest entries that the sender holds.
    Gossip {
        reply_wanted: bool,
        window: Vec<Entry>,
    },
    /// The sender has room: what would you hand over?
    Seek,
    Offer(Offer),
    /// A place is reserved.
    Accept(OfferId),
    Refuse(OfferId, Refusal),
    /// The place is not needed any more.
    Release(OfferId),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message {
    pub sender: Entry,
    /// Counts the sender's messages, so that one that was overtaken does not pass for news.
    pub sequence: u32,
    pub body: Body,
}

/// Bytes that are no message of this version.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MessageError {
    #[error("datagram of {0} bytes has the wrong length for its kind")]
    Length(usize),
    #[error("datagram is not from a brain of this version")]
    Foreign,
    #[error("datagram is of unknown kind {0}")]
    Kind(u8),
    #[error("datagram has {field} {value}, which is out of range")]
    Field { field: &'static str, value: u64 },
}

fn out_of_range(field: &'static str, value: impl Into<u64>) -> MessageError {
    MessageError::Field { field, value: value.into() }
}

fn milli(value: f64, max: u32) -> u32 {
    // `as` saturates and maps NaN to zero.
    ((value * 1000.0 + 0.5) as u32).min(max)
}

fn from_milli(value: u32) -> f64 {
    f64::from(value) / 1000.0
}

impl Message {
    /// `window` entries are written whatever the number held, so that the size says nothing.
    pub fn encode(&self, now: Time, window: usize) -> Vec<u8> {
        let (kind, flag) = match &self.body {
            Body::Gossip { reply_wanted, .. } => (1 + u8::from(*reply_wanted), window as u8),
            Body::Seek => (3, 0),
            Body::Offer(_) => (4, 0),
            Body::Accept(_) => (5, 0),
            Body::Refuse(_, refusal) => (6, *refusal as u8),
            Body::Release(_) => (7, 0),
        };
        let mut bytes = Vec::with_capacity(DATAGRAM_BYTES_MAX);
        bytes.extend(MAGIC);
        bytes.extend([VERSION, kind, flag, 0, 0, 0]);
        bytes.extend(self.sequence.to_le_bytes());
        write_entry(&mut bytes, &self.sender, now);
        match &self.body {
            Body::Gossip { window: entries, .. } => {
                for entry in entries.iter().take(window) {
                    write_entry(&mut bytes, entry, now);
                }
                bytes.resize(HEADER_BYTES + (1 + window) * ENTRY_BYTES, 0);
            }
            Body::Seek => {}
            Body::Offer(offer) => write_offer(&mut bytes, offer),
            Body::Accept(id) | Body::Refuse(id, _) | Body::Release(id) => {
                bytes.extend(id.0.to_le_bytes());
            }
        }
        bytes
    }

    pub fn decode(bytes: &[u8], now: Time) -> Result<Message, MessageError> {
        if bytes.len() > DATAGRAM_BYTES_MAX {
            return Err(MessageError::Length(bytes.len()));
        }
        let mut reader = Reader { bytes, whole: bytes.len() };
        let header: [u8; TAG_BYTES] = reader.take()?;
        if header[..2] != MAGIC || header[2] != VERSION || header[5..] != [0; 3] {
            return Err(MessageError::Foreign);
        }
        let (kind, flag) = (header[3], header[4]);
        let sequence = reader.u32()?;
        let sender = reader.entry(now)?.ok_or_else(|| out_of_range("sender", 0u8))?;
        let body = match kind {
            1 | 2 => {
                let window = reader.window(usize::from(flag), now)?;
                Body::Gossip { reply_wanted: kind == 2, window }
            }
            3 => Body::Seek,
            4 => Body::Offer(reader.offer()?),
            5 => Body::Accept(reader.offer_id()?),
            6 => {
                let refusal =
                    Refusal::from_wire(flag).ok_or_else(|| out_of_range("refusal", flag))?;
                Body::Refuse(reader.offer_id()?, refusal)
            }
            7 => Body::Release(reader.offer_id()?),
            other => return Err(MessageError::Kind(other)),
        };
        if !reader.bytes.is_empty() {
            return Err(MessageError::Length(bytes.len()));
        }
        Ok(Message { sender, sequence, body })
    }
}

fn write_entry(bytes: &mut Vec<u8>, entry: &Entry, now: Time) {
    let age_ms = u32::try_from(now.since(entry.at).0 / 1000).unwrap_or(u32::MAX);
    bytes.extend(entry.node.0.to_le_bytes());
    bytes.extend(entry.incarnation.to_le_bytes());
    bytes.extend(age_ms.to_le_bytes());
    let Some(condition) = &entry.condition else {
        bytes.extend([0; ENTRY_BYTES - 12]);
        return;
    };
    let mib = |value: u64| u32::try_from(value / MIB).unwrap_or(u32::MAX).to_le_bytes();
    let cores = u16::try_from(condition.cores).unwrap_or(u16::MAX);
    bytes.extend(milli(condition.runnable, RUNNABLE_MILLI_MAX).to_le_bytes());
    bytes.extend(milli(condition.speed, SPEED_MILLI_MAX).max(1).to_le_bytes());
    bytes.extend(cores.to_le_bytes());
    bytes.extend([0; 2]);
    bytes.extend(mib(condition.memory_total_bytes));
    bytes.extend(mib(condition.memory_free_bytes));
}

fn write_offer(bytes: &mut Vec<u8>, offer: &Offer) {
    bytes.extend(offer.id.0.to_le_bytes());
    bytes.extend(offer.process.home.0.to_le_bytes());
    bytes.extend(offer.process.pid.0.to_le_bytes());
    bytes.extend(milli(offer.demand, DEMAND_MILLI_MAX).to_le_bytes());
    bytes.extend(offer.calls_per_cpu_s.to_le_bytes());
    bytes.extend(offer.rss_bytes.to_le_bytes());
}

struct Reader<'a> {
    bytes: &'a [u8],
    whole: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let (head, rest) =
            self.bytes.split_first_chunk::<N>().ok_or(MessageError::Length(self.whole))?;
        self.bytes = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, MessageError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64, MessageError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn bounded(&mut self, field: &'static str, max: u32) -> Result<u32, MessageError> {
        let value = self.u32()?;
        if value > max { Err(out_of_range(field, value)) } else { Ok(value) }
    }

    /// None for an unused place.
    fn entry(&mut self, now: Time) -> Result<Option<Entry>, MessageError> {
        let node = NodeId(self.u32()?);
        let incarnation = self.u32()?;
        let age = Span::from_millis(u64::from(self.u32()?));
        let runnable = self.bounded("runnable_milli", RUNNABLE_MILLI_MAX)?;
        let speed = self.bounded("speed_milli", SPEED_MILLI_MAX)?;
        let cores = u16::from_le_bytes(self.take()?);
        let _: [u8; 2] = self.take()?;
        let memory_total_bytes = u64::from(self.u32()?) * MIB;
        let memory_free_bytes = u64::from(self.u32()?) * MIB;
        if node.0 == 0 {
            return Ok(None);
        }
        if cores > 0 && speed == 0 {
            return Err(out_of_range("speed_milli", speed));
        }
        let condition = (cores > 0).then(|| Condition {
            cores: u32::from(cores),
            speed: from_milli(speed),
            runnable: from_milli(runnable),
            memory_total_bytes,
            memory_free_bytes: memory_free_bytes.min(memory_total_bytes),
        });
        Ok(Some(Entry { node, incarnation, at: now - age, condition }))
    }

    fn window(&mut self, count: usize, now: Time) -> Result<Vec<Entry>, MessageError> {
        if self.bytes.len() != count * ENTRY_BYTES {
            return Err(MessageError::Length(self.whole));
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            entries.extend(self.entry(now)?);
        }
        Ok(entries)
    }

    fn offer_id(&mut self) -> Result<OfferId, MessageError> {
        Ok(OfferId(self.u64()?))
    }

    fn offer(&mut self) -> Result<Offer, MessageError> {
        let id = self.offer_id()?;
        let home = NodeId(self.u32()?);
        let pid = HomePid(i32::from_le_bytes(self.take()?));
        if home.0 == 0 || pid.0 <= 0 {
            return Err(out_of_range("process", home.0));
        }
        let demand = from_milli(self.bounded("demand_milli", DEMAND_MILLI_MAX)?);
        let calls_per_cpu_s = self.u32()?;
        let rss_bytes = self.u64()?;
        Ok(Offer { id, process: GlobalPid { home, pid }, demand, calls_per_cpu_s, rss_bytes })
    }
}

const _: () = assert!(WINDOW_MAX <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Time = Time::from_micros(3_600_000_000);

    fn entry() -> impl Strategy<Value = Entry> {
        let condition = (1u32..65_536, 1u32..1_000, 0u32..100_000, 1u64..1 << 20, 0u64..1 << 20);
        let condition = condition.prop_map(|(cores, speed, runnable, total, free)| Condition {
            cores,
            speed: from_milli(speed),
            runnable: from_milli(runnable),
            memory_total_bytes: total * MIB,
            memory_free_bytes: free.min(total) * MIB,
        });
        let whole = (1u32.., any::<u32>(), 0u64..1_000_000, prop::option::of(condition));
        whole.prop_map(|(node, incarnation, age_ms, condition)| Entry {
            node: NodeId(node),
            incarnation,
            at: NOW - Span::from_millis(age_ms),
            condition,
        })
    }

    fn offer() -> impl Strategy<Value = Offer> {
        let fields = (any::<u64>(), 1u32.., 1i32.., 0u32..100_000, any::<u32>(), any::<u64>());
        fields.prop_map(|(id, home, pid, demand, calls_per_cpu_s, rss_bytes)| Offer {
            id: OfferId(id),
            process: GlobalPid { home: NodeId(home), pid: HomePid(pid) },
            demand: from_milli(demand),
            calls_per_cpu_s,
            rss_bytes,
        })
    }

    fn body() -> impl Strategy<Value = Body> {
        let gossip = (any::<bool>(), prop::collection::vec(entry(), 0..8));
        prop_oneof![
            gossip.prop_map(|(reply_wanted, window)| Body::Gossip { reply_wanted, window }),
            Just(Body::Seek),
            offer().prop_map(Body::Offer),
            any::<u64>().prop_map(|id| Body::Accept(OfferId(id))),
            any::<u64>().prop_map(|id| Body::Refuse(OfferId(id), Refusal::Memory)),
            any::<u64>().prop_map(|id| Body::Release(OfferId(id))),
        ]
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(sender in entry(), sequence in any::<u32>(), body in body()) {
            let message = Message { sender, sequence, body };
            let bytes = message.encode(NOW, 8);
            prop_assert!(bytes.len() <= DATAGRAM_BYTES_MAX);
            prop_assert_eq!(Message::decode(&bytes, NOW), Ok(message));
        }

        #[test]
        fn a_message_cut_or_lengthened_is_refused(
            sender in entry(),
            body in body(),
            at in 0.0..1.0,
        ) {
            let mut bytes = Message { sender, sequence: 1, body }.encode(NOW, 8);
            let cut = (bytes.len() as f64 * at) as usize;
            prop_assert!(Message::decode(&bytes[..cut], NOW).is_err());
            bytes.push(0);
            prop_assert!(Message::decode(&bytes, NOW).is_err());
        }

        #[test]
        fn any_bytes_are_decoded_or_refused_within_bounds(
            mut bytes in prop::collection::vec(any::<u8>(), 0..2 * DATAGRAM_BYTES_MAX),
            kind in 0u8..9,
        ) {
            // Half of the cases get past the header.
            if bytes.len() > 8 && bytes[8] % 2 == 0 {
                let header = [b'O', b'B', VERSION, kind, bytes[4], 0, 0, 0];
                bytes[..8].copy_from_slice(&header);
            }
            if let Ok(message) = Message::decode(&bytes, NOW) {
                prop_assert!(bytes.len() <= DATAGRAM_BYTES_MAX);
                prop_assert!(message.sender.node != NodeId(0));
            }
        }
    }

    #[test]
    fn gossip_is_of_one_size_however_little_is_known() {
        let sender = Entry { node: NodeId(1), incarnation: 1, at: NOW, condition: None };
        let sized = |window: Vec<Entry>| {
            let body = Body::Gossip { reply_wanted: false, window };
            Message { sender, sequence: 1, body }.encode(NOW, 8).len()
        };
        assert_eq!(sized(Vec::new()), 12 + 9 * 32);
        assert_eq!(sized(vec![sender; 8]), 12 + 9 * 32);
        assert_eq!(sized(vec![sender; 20]), 12 + 9 * 32);
    }

    #[test]
    fn another_version_is_foreign() {
        let sender = Entry { node: NodeId(1), incarnation: 1, at: NOW, condition: None };
        let mut bytes = Message { sender, sequence: 1, body: Body::Seek }.encode(NOW, 8);
        bytes[2] = VERSION + 1;
        assert_eq!(Message::decode(&bytes, NOW), Err(MessageError::Foreign));
    }
}
