//! What brains say to each other: datagrams of a fixed layout, so that traffic per node is constant
//! and a hostile datagram can cost no more than a friendly one.
//!
//! ```text
//! header  12 bytes  "OB", version, kind, count or flag, 1 if a user is named (2: one who
//!         is poorer), 2 zero bytes, sequence u32
//! sender  32 bytes  the sender's own entry: every message refreshes what is known of its sender
//! gossip  `count` entries of 32 bytes (unused ones zero); others: a fixed body, see below
//! entry   node u32, incarnation u32, age_ms u32, runnable_milli u32, speed_milli u32,
//!         cores u16 (0: not measured yet), urgency u8, closed u8, memory_total_mib u32,
//!         memory_free_mib u32
//! ```
//! All little-endian. Ages, not times, travel: clocks need not agree. Loss and reordering are
//! expected; the handshake survives both by repetition, and is idempotent.

use super::packed::{ENTRY_BYTES, Window, check, is_unused, pack, unpack};
use crate::config::WINDOW_MAX;
use crate::facts::Entry;
use crate::input::{GroupId, UserId, UserShare};
use crate::time::Time;
use wire::ids::{GlobalPid, HomePid, NodeId};
use wire::motive::Motive;

const MAGIC: [u8; 2] = *b"OB";
const VERSION: u8 = 2;
const HEADER_BYTES: usize = 12;
const TAG_BYTES: usize = 8;
/// With the process's user.
const OFFER_BYTES_MAX: usize = 64;
/// No datagram of a brain is longer.
pub const DATAGRAM_BYTES_MAX: usize = HEADER_BYTES + (1 + WINDOW_MAX) * ENTRY_BYTES;

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
    pub motive: Motive,
    /// Those that may change places with it.
    pub group: Option<GroupId>,
    /// Reference milliseconds of work that it has done.
    pub attained_ms: u64,
    /// The process comes in exchange for the one of that offer.
    pub in_return_for: Option<OfferId>,
    /// Whose it is, and what all processes of that user get.
    pub holder: Option<Holder>,
}

/// A user with what his processes get, in thousandths of a reference core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub user: UserId,
    pub share_milli: u32,
    /// Others on the node that it would leave have more.
    pub is_poorer: bool,
}

impl Holder {
    pub fn share(self) -> UserShare {
        UserShare { user: self.user, cores: from_milli(self.share_milli) }
    }
}

/// A member of a group that has fallen behind on a crowded node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Laggard {
    pub group: GroupId,
    pub attained_ms: u64,
}

/// Why an offer was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It would not be better off here.
    NoGain = 1,
    /// It would not fit into memory.
    Memory = 2,
    /// Enough others are on their way here.
    Busy = 3,
    /// This node does not know itself well enough at the moment.
    Unready = 4,
    /// It is here already, or on its way away from here.
    Present = 5,
    /// Its owner takes no guests, or no more.
    Owner = 6,
    /// The two have got on about equally far, or one of them cannot move now.
    Even = 7,
    /// It would take from a user who has less than its own.
    Share = 8,
}

impl Refusal {
    pub fn from_wire(byte: u8) -> Option<Refusal> {
        let all = [
            Refusal::NoGain,
            Refusal::Memory,
            Refusal::Busy,
            Refusal::Unready,
            Refusal::Present,
            Refusal::Owner,
            Refusal::Even,
            Refusal::Share,
        ];
        all.into_iter().find(|refusal| *refusal as u8 == byte)
    }

    pub fn text(self) -> &'static str {
        match self {
            Refusal::NoGain => "it would be no better off there",
            Refusal::Memory => "it would not fit into its memory",
            Refusal::Busy => "enough others are on their way there",
            Refusal::Unready => "it has no fresh measurement of itself",
            Refusal::Present => "it is there already",
            Refusal::Owner => "its owner takes no guests now",
            Refusal::Even => "nobody there has fallen behind by enough",
            Refusal::Share => "it would take from a user who has less than its own",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body<'a> {
    /// The newest entries that the sender holds.
    Gossip {
        reply_wanted: bool,
        window: Window<'a>,
    },
    /// The sender has room: what would you hand over?
    Seek,
    Offer(Offer),
    /// A place is reserved.
    Accept(OfferId),
    Refuse(OfferId, Refusal),
    /// The place is not needed any more.
    Release(OfferId),
    /// Who has got on further, where there is more room, and would change places?
    Lag(Laggard),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message<'a> {
    pub sender: Entry,
    /// Counts the sender's messages, so that one that was overtaken does not pass for news.
    pub sequence: u32,
    pub body: Body<'a>,
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

pub(crate) fn out_of_range(field: &'static str, value: impl Into<u64>) -> MessageError {
    MessageError::Field { field, value: value.into() }
}

fn from_milli(value: u32) -> f64 {
    f64::from(value) / 1000.0
}

/// Seconds of work as they travel.
pub(crate) fn to_ms(s: f64) -> u64 {
    (s * 1e3) as u64
}

pub(crate) fn from_ms(ms: u64) -> f64 {
    ms as f64 / 1e3
}

impl<'a> Message<'a> {
    /// `window` entries are written whatever the number held, so that the size says nothing.
    pub fn encode(&self, now: Time, window: usize) -> Vec<u8> {
        let (kind, flag) = match &self.body {
            Body::Gossip { reply_wanted, .. } => (1 + u8::from(*reply_wanted), window as u8),
            Body::Seek => (3, 0),
            Body::Offer(offer) => (4, offer.motive as u8),
            Body::Accept(_) => (5, 0),
            Body::Refuse(_, refusal) => (6, *refusal as u8),
            Body::Release(_) => (7, 0),
            Body::Lag(_) => (8, 0),
        };
        let body_bytes = match &self.body {
            Body::Gossip { .. } => window * ENTRY_BYTES,
            Body::Offer(_) => OFFER_BYTES_MAX,
            Body::Lag(_) => 16,
            Body::Accept(_) | Body::Refuse(..) | Body::Release(_) => 8,
            Body::Seek => 0,
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + ENTRY_BYTES + body_bytes);
        let holder = match &self.body {
            Body::Offer(offer) => offer.holder.map_or(0, |holder| 1 + u8::from(holder.is_poorer)),
            _ => 0,
        };
        bytes.extend_from_slice(&[MAGIC[0], MAGIC[1], VERSION, kind, flag, holder, 0, 0]);
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&pack(&self.sender, now));
        match &self.body {
            Body::Gossip { window: entries, .. } => {
                bytes.extend_from_slice(entries.bytes(window));
                bytes.resize(HEADER_BYTES + (1 + window) * ENTRY_BYTES, 0);
            }
            Body::Seek => {}
            Body::Offer(offer) => write_offer(&mut bytes, offer),
            Body::Accept(id) | Body::Refuse(id, _) | Body::Release(id) => {
                bytes.extend(id.0.to_le_bytes());
            }
            Body::Lag(laggard) => {
                bytes.extend(laggard.group.number().to_le_bytes());
                bytes.extend(laggard.attained_ms.to_le_bytes());
            }
        }
        bytes
    }

    pub fn decode(bytes: &'a [u8], now: Time) -> Result<Message<'a>, MessageError> {
        if bytes.len() > DATAGRAM_BYTES_MAX {
            return Err(MessageError::Length(bytes.len()));
        }
        let mut reader = Reader { bytes, whole: bytes.len() };
        let header: [u8; TAG_BYTES] = reader.take()?;
        let (kind, flag, holder) = (header[3], header[4], header[5]);
        if header[..2] != MAGIC || header[2] != VERSION || header[6..] != [0; 2] || holder > 2 {
            return Err(MessageError::Foreign);
        }
        let sequence = reader.u32()?;
        let sender = reader.sender(now)?;
        let body = match kind {
            1 | 2 => {
                let window = reader.window(usize::from(flag))?;
                Body::Gossip { reply_wanted: kind == 2, window }
            }
            3 => Body::Seek,
            4 => {
                let motive = Motive::from_byte(flag).ok_or_else(|| out_of_range("motive", flag))?;
                Body::Offer(reader.offer(motive, holder)?)
            }
            5 => Body::Accept(reader.offer_id()?),
            6 => {
                let refusal =
                    Refusal::from_wire(flag).ok_or_else(|| out_of_range("refusal", flag))?;
                Body::Refuse(reader.offer_id()?, refusal)
            }
            7 => Body::Release(reader.offer_id()?),
            8 => {
                let group =
                    GroupId::new(reader.u64()?).ok_or_else(|| out_of_range("group", 0u8))?;
                Body::Lag(Laggard { group, attained_ms: reader.u64()? })
            }
            other => return Err(MessageError::Kind(other)),
        };
        if !reader.bytes.is_empty() {
            return Err(MessageError::Length(bytes.len()));
        }
        Ok(Message { sender, sequence, body })
    }
}

fn write_offer(bytes: &mut Vec<u8>, offer: &Offer) {
    bytes.extend(offer.id.0.to_le_bytes());
    bytes.extend(offer.process.home.0.to_le_bytes());
    bytes.extend(offer.process.pid.0.to_le_bytes());
    let demand_milli = ((offer.demand * 1000.0 + 0.5) as u32).min(DEMAND_MILLI_MAX);
    bytes.extend(demand_milli.to_le_bytes());
    bytes.extend(offer.calls_per_cpu_s.to_le_bytes());
    bytes.extend(offer.rss_bytes.to_le_bytes());
    // 0 is no group and no offer: nobody is given these numbers.
    bytes.extend(offer.group.map_or(0, GroupId::number).to_le_bytes());
    bytes.extend(offer.attained_ms.to_le_bytes());
    bytes.extend(offer.in_return_for.map_or(0, |id| id.0).to_le_bytes());
    if let Some(holder) = offer.holder {
        bytes.extend(holder.user.0.to_le_bytes());
        bytes.extend(holder.share_milli.to_le_bytes());
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    whole: usize,
}

impl<'a> Reader<'a> {
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

    fn sender(&mut self, now: Time) -> Result<Entry, MessageError> {
        let packed = self.take()?;
        check(&packed)?;
        if is_unused(&packed) { Err(out_of_range("sender", 0u8)) } else { Ok(unpack(&packed, now)) }
    }

    /// Entries that are in range, all of them.
    fn window(&mut self, count: usize) -> Result<Window<'a>, MessageError> {
        let (packed, rest) = self.bytes.as_chunks();
        if packed.len() != count || !rest.is_empty() {
            return Err(MessageError::Length(self.whole));
        }
        self.bytes = rest;
        Window::of(packed)
    }

    fn offer_id(&mut self) -> Result<OfferId, MessageError> {
        Ok(OfferId(self.u64()?))
    }

    fn offer(&mut self, motive: Motive, holder: u8) -> Result<Offer, MessageError> {
        let id = self.offer_id()?;
        let home = NodeId(self.u32()?);
        let pid = HomePid(i32::from_le_bytes(self.take()?));
        if home.0 == 0 || pid.0 <= 0 {
            return Err(out_of_range("process", home.0));
        }
        let demand = from_milli(self.bounded("demand_milli", DEMAND_MILLI_MAX)?);
        let calls_per_cpu_s = self.u32()?;
        let rss_bytes = self.u64()?;
        let group = GroupId::new(self.u64()?);
        let attained_ms = self.u64()?;
        let in_return_for = Some(self.u64()?).filter(|id| *id != 0).map(OfferId);
        let holder = match holder {
            0 => None,
            _ => {
                let (user, share_milli) = (UserId(self.u32()?), self.u32()?);
                Some(Holder { user, share_milli, is_poorer: holder == 2 })
            }
        };
        Ok(Offer {
            id,
            process: GlobalPid { home, pid },
            demand,
            calls_per_cpu_s,
            rss_bytes,
            motive,
            group,
            attained_ms,
            in_return_for,
            holder,
        })
    }
}

const _: () = assert!(WINDOW_MAX <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::super::packed::{URGENCY_MAX, WindowRoom};
    use super::*;
    use crate::time::Span;
    use proptest::prelude::*;

    const NOW: Time = Time::from_micros(3_600_000_000);

    fn entry() -> impl Strategy<Value = Entry> {
        let condition = (1u16.., 1u32..1_000, 0u32..100_000, 1u32..1 << 20, any::<u32>());
        let news = (0u8..=URGENCY_MAX, any::<bool>());
        let whole = (1u32.., any::<u32>(), 0u64..1_000_000, prop::option::of((condition, news)));
        whole.prop_map(|(node, incarnation, age_ms, known)| {
            let at = NOW - Span::from_millis(age_ms);
            let mut entry = Entry::new(NodeId(node), incarnation, at, None);
            if let Some(((cores, speed, runnable, total, free), (urgency, is_closed))) = known {
                entry.cores = cores;
                (entry.speed_milli, entry.runnable_milli) = (speed, runnable);
                entry.memory_total_mib = total;
                entry.memory_free_mib = free % total;
                (entry.urgency, entry.is_closed) = (urgency, is_closed);
            }
            entry
        })
    }

    fn offer() -> impl Strategy<Value = Offer> {
        let fields = (any::<u64>(), 1u32.., 1i32.., 0u32..100_000, any::<u32>(), any::<u64>());
        let group = any::<u64>().prop_map(GroupId::new);
        let exchange = (0u8..5, group, any::<u64>(), prop::option::of(1u64..));
        let holder = prop::option::of((any::<u32>(), any::<u32>(), any::<bool>()));
        let holder = holder.prop_map(|holder| {
            holder.map(|(user, share_milli, is_poorer)| Holder {
                user: UserId(user),
                share_milli,
                is_poorer,
            })
        });
        (fields, exchange, holder).prop_map(|(fields, exchange, holder)| {
            let (id, home, pid, demand, calls_per_cpu_s, rss_bytes) = fields;
            let (motive, group, attained_ms, in_return_for) = exchange;
            Offer {
                id: OfferId(id),
                process: GlobalPid { home: NodeId(home), pid: HomePid(pid) },
                demand: from_milli(demand),
                calls_per_cpu_s,
                rss_bytes,
                motive: Motive::from_byte(motive).expect("five motives"),
                group,
                attained_ms,
                in_return_for: in_return_for.map(OfferId),
                holder,
            }
        })
    }

    fn room(entries: &[Entry]) -> WindowRoom {
        let mut room = WindowRoom::new();
        entries.iter().for_each(|entry| room.add(entry, NOW));
        room
    }

    /// What is not gossip.
    fn body() -> impl Strategy<Value = Body<'static>> {
        prop_oneof![
            Just(Body::Seek),
            offer().prop_map(Body::Offer),
            any::<u64>().prop_map(|id| Body::Accept(OfferId(id))),
            any::<u64>().prop_map(|id| Body::Refuse(OfferId(id), Refusal::Memory)),
            any::<u64>().prop_map(|id| Body::Release(OfferId(id))),
            (1u64.., any::<u64>()).prop_map(|(group, attained_ms)| {
                let group = GroupId::new(group).expect("it is not 0");
                Body::Lag(Laggard { group, attained_ms })
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(sender in entry(), sequence in any::<u32>(), body in body()) {
            let message = Message { sender, sequence, body };
            let bytes = message.encode(NOW, 8);
            prop_assert!(bytes.len() <= HEADER_BYTES + ENTRY_BYTES + OFFER_BYTES_MAX);
            prop_assert_eq!(Message::decode(&bytes, NOW), Ok(message));
        }

        #[test]
        fn gossip_that_is_encoded_is_decoded(
            sender in entry(),
            reply_wanted in any::<bool>(),
            entries in prop::collection::vec(entry(), 0..=8),
        ) {
            let room = room(&entries);
            let body = Body::Gossip { reply_wanted, window: room.window() };
            let bytes = Message { sender, sequence: 1, body }.encode(NOW, 8);
            let message = Message::decode(&bytes, NOW).expect("it is one");
            prop_assert_eq!(message.sender, sender);
            let Body::Gossip { reply_wanted: asked, window } = message.body else {
                return Err(TestCaseError::fail("not gossip"));
            };
            prop_assert_eq!(asked, reply_wanted);
            prop_assert_eq!(window.entries(NOW).collect::<Vec<_>>(), entries);
        }

        #[test]
        fn gossip_with_one_entry_out_of_range_is_refused_as_a_whole(
            entries in prop::collection::vec(entry(), 1..=8),
            nth in any::<prop::sample::Index>(),
        ) {
            let room = room(&entries);
            let body = Body::Gossip { reply_wanted: false, window: room.window() };
            let message = Message { sender: entries[0], sequence: 1, body };
            let mut bytes = message.encode(NOW, 8);
            let place = HEADER_BYTES + (1 + nth.index(entries.len())) * ENTRY_BYTES;
            bytes[place + 23] = 2;
            let refused = Message::decode(&bytes, NOW);
            prop_assert_eq!(refused, Err(out_of_range("closed", 2u8)));
        }

        #[test]
        fn a_message_cut_or_lengthened_is_refused(
            sender in entry(),
            body in body(),
            entries in prop::option::of(prop::collection::vec(entry(), 0..=8)),
            at in 0.0..1.0,
        ) {
            let room = entries.map(|entries| room(&entries));
            let body = match &room {
                Some(room) => Body::Gossip { reply_wanted: true, window: room.window() },
                None => body,
            };
            let mut bytes = Message { sender, sequence: 1, body }.encode(NOW, 8);
            let cut = (bytes.len() as f64 * at) as usize;
            prop_assert!(Message::decode(&bytes[..cut], NOW).is_err());
            bytes.push(0);
            prop_assert!(Message::decode(&bytes, NOW).is_err());
        }

        #[test]
        fn any_bytes_are_decoded_or_refused_within_bounds(
            mut bytes in prop::collection::vec(any::<u8>(), 0..2 * DATAGRAM_BYTES_MAX),
            kind in 0u8..10,
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
        let sender = Entry::new(NodeId(1), 1, NOW, None);
        let sized = |entries: Vec<Entry>| {
            let room = room(&entries);
            let body = Body::Gossip { reply_wanted: false, window: room.window() };
            Message { sender, sequence: 1, body }.encode(NOW, 8).len()
        };
        assert_eq!(sized(Vec::new()), 12 + 9 * 32);
        assert_eq!(sized(vec![sender; 8]), 12 + 9 * 32);
        assert_eq!(sized(vec![sender; 20]), 12 + 9 * 32);
    }

    #[test]
    fn another_version_is_foreign() {
        let sender = Entry::new(NodeId(1), 1, NOW, None);
        let mut bytes = Message { sender, sequence: 1, body: Body::Seek }.encode(NOW, 8);
        bytes[2] = VERSION + 1;
        assert_eq!(Message::decode(&bytes, NOW), Err(MessageError::Foreign));
    }
}
