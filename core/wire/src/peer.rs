//! One node daemon to another: what is said over their encrypted link.
//!
//! A link starts with the clear [`crate::supervisor::Preface`], then a Noise handshake of one
//! message each way whose payloads are [`Hello`] and [`Selected`]. After it every frame is one
//! [`PeerMessage`]. A frame is never larger than one encrypted frame, so nothing is reassembled.

use crate::bounded::{self, LINE_CHARS_MAX, WORD_CHARS_MAX};
use crate::ids::{HomePid, NodeId, Ticket};
use crate::limits::FRAME_PLAIN_BYTES_MAX;
use crate::motive::Motive;
use crate::move_limits::MoveLimits;
use crate::processor::Processor;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::net::SocketAddr;
use std::num::NonZeroU64;

/// The version of these messages that this build speaks best.
pub const VERSION: u16 = 4;
/// All the versions it speaks, best first.
pub const VERSIONS: &[u16] = &[VERSION];
/// One handshake message: keys, tags and a [`Hello`] take less than half of it.
pub const HANDSHAKE_BYTES_MAX: usize = 512;
/// Versions a caller may offer.
pub const OFFERS_MAX: usize = 16;
/// Members in one [`PeerMessage::Members`], and of [`Forgotten`] in one message about these; more
/// of them take several messages.
pub const MEMBERS_PER_MESSAGE: usize = 512;
/// Nodes that are known to be forgotten; the one that was forgotten first goes for another.
pub const FORGOTTEN_MAX: usize = 4_096;
/// The request of a user tool that is passed on, as JSON.
pub const INQUIRY_BYTES_MAX: usize = 4 << 10;
/// One part of what is answered to it.
pub const ANSWER_PART_BYTES_MAX: usize = 16 << 10;
/// Parts that are sent before the asking node has taken any.
pub const ANSWER_PARTS_AHEAD: usize = 4;
/// A gossip datagram of the brain, before sealing: with all heads it fits an Ethernet frame.
pub const GOSSIP_BYTES_MAX: usize = 1_200;

/// The public half of a node's static x25519 key: what a node is, wherever it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeKey(pub [u8; 32]);

/// One node as all nodes know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub node: NodeId,
    pub address: SocketAddr,
    pub key: NodeKey,
}

/// A node that belongs to the cluster no more: neither its number nor its key ever counts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    pub node: NodeId,
    pub key: NodeKey,
}

/// What the caller says in the first handshake message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Versions of this protocol that the caller speaks.
    #[serde(deserialize_with = "bounded::list::<_, _, OFFERS_MAX>")]
    pub offers: Vec<u16>,
    /// Must grow from call to call: a recorded call that is played again is met with silence.
    /// Nanoseconds since the epoch by the caller's clock, unless that was set back.
    pub sent_ns: u64,
    /// Who calls; None if it has no number yet and calls with a token to get one.
    pub node: Option<NodeId>,
    /// Where the caller listens. An unspecified address means: where this call comes from.
    pub listen: SocketAddr,
}

/// What the called node answers in the second handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selected {
    /// None if it speaks none of the versions offered.
    pub version: Option<u16>,
}

/// The newest version that both sides speak.
pub fn select(offers: &[u16]) -> Option<u16> {
    VERSIONS.iter().copied().find(|version| offers.contains(version))
}

/// Who owns a process, at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// Asks for a place for one process, and says what its new node has to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BerthRequest {
    pub pid: HomePid,
    pub owner: Owner,
    /// Where it runs now.
    pub from: NodeId,
    pub rss_bytes: u64,
    /// CPU time in its life so far, on all nodes.
    pub cpu_us: u64,
    /// How long its last move to another node froze it; 0 if there was none.
    pub freeze_us: u64,
    /// How much of its memory was sent meanwhile.
    pub freeze_bytes: u64,
    /// A user asked for this move, not a brain.
    pub is_ordered: bool,
    /// The brain of its new node leaves it alone.
    pub is_pinned: bool,
    /// What all processes of its owner that were born there get, in thousandths of a reference
    /// core.
    pub user_milli: u32,
    /// The processes that it may take turns with, of which only its home knows: a number that is
    /// the same on every node.
    pub group: Option<NonZeroU64>,
    /// CPU time that others of its name took in their whole lives; 0 if that is not known.
    pub expected_us: u64,
}

/// A place that was weighed for a process, in thousandths where it is no whole number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceWeighed {
    pub node: NodeId,
    pub rate_milli: u32,
    pub runnable_milli: u32,
    pub cores: u32,
    pub speed_milli: u32,
    pub age_ms: u32,
    #[serde(deserialize_with = "bounded::optional_line::<_, LINE_CHARS_MAX>")]
    pub but: Option<String>,
}

/// Places told of with one decision; more are not listened to.
pub const PLACES_MAX: usize = 8;
/// With that many a message is none.
const PLACES_PER_MESSAGE_MAX: usize = 1_024;

/// How a move ended, for the brain that the process left or did not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MoveEnd {
    Moved,
    /// It could not be moved: its own fault, not the target's.
    Stayed,
    /// The target or the way to it failed.
    Failed,
}

/// A place that was reserved; the address is the one that the asking node already knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BerthGrant {
    pub ticket: Ticket,
    pub key: [u8; 32],
    /// Of one core there, while it has one: a quota does not count. In thousandths.
    pub core_speed_milli: u32,
}

/// Why a node takes no guest. The text completes "node 3 takes no guest: ...".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error("it has {free_bytes} bytes of memory free, the process needs {needed_bytes}")]
    MemoryShort { needed_bytes: u64, free_bytes: u64 },
    #[error("it is going down")]
    Draining,
    #[error("its daemon is not root's and takes no processes of user {uid}")]
    OwnerNotAllowed { uid: u32 },
    #[error("its table of users has no place for user {uid} (`osmos up --guest-users` there)")]
    UserRefused { uid: u32 },
    #[error("all its {max} berths are taken")]
    Full { max: u32 },
    #[error("it cannot start a supervisor: {error}")]
    NoSupervisor {
        #[serde(deserialize_with = "bounded::line::<_, LINE_CHARS_MAX>")]
        error: String,
    },
    #[error("its kernel lacks {feature}, without which no guest can be kept apart")]
    NoSandbox {
        #[serde(deserialize_with = "bounded::line::<_, WORD_CHARS_MAX>")]
        feature: String,
    },
    #[error("its owner takes no guests now")]
    Closed,
    #[error("its owner takes no more guests than {max}")]
    EnoughGuests { max: u32 },
    #[error(
        "its owner has at most {max_bytes} bytes of memory for all guests, of which \
         {used_bytes} are used, and the process needs {needed_bytes}"
    )]
    GuestMemory { needed_bytes: u64, used_bytes: u64, max_bytes: u64 },
    #[error(
        "it has as many guests of user {uid} as it takes of one user, which is {max} (`osmos limit \
         --guests-per-user` there)"
    )]
    EnoughOfUser { uid: u32, max: u32 },
}

impl Refusal {
    /// A stable kebab-case word.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::MemoryShort { .. } => "memory-short",
            Refusal::Draining => "draining",
            Refusal::OwnerNotAllowed { .. } => "owner-not-allowed",
            Refusal::UserRefused { .. } => "user-refused",
            Refusal::Full { .. } => "full",
            Refusal::NoSupervisor { .. } => "no-supervisor",
            Refusal::NoSandbox { .. } => "no-sandbox",
            Refusal::Closed => "closed",
            Refusal::EnoughGuests { .. } => "enough-guests",
            Refusal::EnoughOfUser { .. } => "enough-of-user",
            Refusal::GuestMemory { .. } => "guest-memory",
        }
    }
}

/// Everything after the handshake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerMessage {
    /// Nothing new; the link is alive.
    Ping,
    /// Nodes that the sender knows.
    Members(#[serde(deserialize_with = "bounded::list::<_, _, MEMBERS_PER_MESSAGE>")] Vec<Member>),
    /// To a node that called with a token: it is a member now, with this number and at this
    /// address. `by` is the member that made the token; the others follow.
    Welcome {
        node: NodeId,
        secret: [u8; 32],
        address: SocketAddr,
        by: Member,
    },
    BerthAsked {
        request: u64,
        berth: BerthRequest,
    },
    BerthAnswered {
        request: u64,
        answer: Result<BerthGrant, Refusal>,
    },
    /// To the home of a guest that runs on the sender: move it there.
    MoveWanted {
        pid: HomePid,
        to: NodeId,
        motive: Motive,
        #[serde(deserialize_with = "bounded::line::<_, LINE_CHARS_MAX>")]
        reason: String,
    },
    /// To the node where the process was: how the attempt to move it away from there ended.
    MoveEnded {
        pid: HomePid,
        to: NodeId,
        end: MoveEnd,
        freeze_us: u64,
    },
    /// To the node where the process is a guest: how often it calls home, and what its owner's
    /// processes get in all.
    CallsCounted {
        pid: HomePid,
        per_s: u32,
        user_milli: u32,
    },
    /// The sender goes down, in an orderly way: it takes no guests any more.
    Leaving,
    /// The sender belongs to the cluster no more.
    Left,
    /// Nodes that belong to the cluster no more, whoever said so first.
    Forgotten(
        #[serde(deserialize_with = "bounded::list::<_, _, MEMBERS_PER_MESSAGE>")] Vec<Forgotten>,
    ),
    /// The cluster's secret; of two, the one of the later generation holds.
    Secret {
        generation: u64,
        secret: [u8; 32],
    },
    /// The newest stamp that the sender knows of the receiver, of calls and datagrams: only later
    /// ones are heard.
    Stamped {
        newest_ns: u64,
    },
    /// The sender is about to admit a node: which number is free?
    NumberAsked {
        request: u64,
    },
    NumberGiven {
        request: u64,
        node: NodeId,
    },
    /// To the home of a guest that runs on the sender: what was decided about it there.
    Decided {
        pid: HomePid,
        #[serde(deserialize_with = "bounded::line::<_, WORD_CHARS_MAX>")]
        verdict: String,
        #[serde(deserialize_with = "bounded::line::<_, LINE_CHARS_MAX>")]
        reason: String,
        rate_milli: u32,
        #[serde(deserialize_with = "bounded::list::<_, _, PLACES_PER_MESSAGE_MAX>")]
        places: Vec<PlaceWeighed>,
    },
    /// The sender's processor as programs see it: first of all that is said over a link.
    Processor(Box<Processor>),
    /// What the owner of the sender lets a move take, from there or to there: when a link begins,
    /// and whenever that changes.
    MoveLimits(MoveLimits),
    /// A user of the sender asks something that the receiver is to answer: a
    /// [`crate::control::Request`] as JSON. `uid` is his number at the sender's.
    Inquired {
        inquiry: u64,
        uid: u32,
        #[serde(deserialize_with = "bounded::list::<_, _, INQUIRY_BYTES_MAX>")]
        request: Vec<u8>,
    },
    /// The next bytes of the answer, which is lines of JSON, each a [`crate::control::Reply`].
    AnswerPart {
        inquiry: u64,
        #[serde(deserialize_with = "bounded::list::<_, _, ANSWER_PART_BYTES_MAX>")]
        bytes: Vec<u8>,
        is_last: bool,
    },
    /// A part was taken: one more may be sent.
    AnswerTaken {
        inquiry: u64,
    },
    /// What was asked for is not wanted any more. `is_heard`: how it ends still is.
    InquiryEnded {
        inquiry: u64,
        is_heard: bool,
    },
    /// What people call the sender, when a link begins. Who hears what is no
    /// [`crate::node_name::NodeName`] ignores it, and the link goes on.
    Name(#[serde(deserialize_with = "bounded::line::<_, WORD_CHARS_MAX>")] String),
    /// To the node where a process was made: nobody at home is going to call for it.
    BirthOff {
        pid: HomePid,
    },
}

/// A message that is too large, or not a message of this protocol.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("peer message of {0} bytes is larger than the {FRAME_PLAIN_BYTES_MAX} allowed")]
    TooLarge(usize),
    #[error("not a peer message")]
    Malformed(#[from] postcard::Error),
}

/// Encodes a [`PeerMessage`], [`Hello`] or [`Selected`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, PeerError> {
    let bytes = postcard::to_stdvec(message)?;
    if bytes.len() > FRAME_PLAIN_BYTES_MAX {
        return Err(PeerError::TooLarge(bytes.len()));
    }
    Ok(bytes)
}

/// Decodes what [`encode`] made; bytes left over are an error.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, PeerError> {
    if bytes.len() > FRAME_PLAIN_BYTES_MAX {
        return Err(PeerError::TooLarge(bytes.len()));
    }
    let (message, rest) = postcard::take_from_bytes(bytes)?;
    if !rest.is_empty() {
        return Err(PeerError::Malformed(postcard::Error::DeserializeBadEncoding));
    }
    Ok(message)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_full_list_of_members_fits_one_frame() {
        let member = Member {
            node: NodeId(u32::MAX),
            address: "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().unwrap(),
            key: NodeKey([255; 32]),
        };
        let message = PeerMessage::Members(vec![member; MEMBERS_PER_MESSAGE]);
        assert_eq!(decode::<PeerMessage>(&encode(&message).unwrap()).unwrap(), message);
    }

    #[test]
    fn a_full_list_of_forgotten_nodes_fits_one_frame() {
        let gone = Forgotten { node: NodeId(u32::MAX), key: NodeKey([255; 32]) };
        let message = PeerMessage::Forgotten(vec![gone; MEMBERS_PER_MESSAGE]);
        assert_eq!(decode::<PeerMessage>(&encode(&message).unwrap()).unwrap(), message);
    }

    #[test]
    fn the_largest_hello_fits_a_handshake_message() {
        let hello = Hello {
            offers: vec![u16::MAX; OFFERS_MAX],
            sent_ns: u64::MAX,
            node: Some(NodeId(u32::MAX)),
            listen: "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().unwrap(),
        };
        // Two keys and two tags surround it.
        assert!(encode(&hello).unwrap().len() + 96 <= HANDSHAKE_BYTES_MAX);
    }

    #[test]
    fn bytes_after_a_message_are_refused() {
        let mut bytes = encode(&PeerMessage::Ping).unwrap();
        bytes.push(0);
        assert!(matches!(decode::<PeerMessage>(&bytes), Err(PeerError::Malformed(_))));
    }

    #[test]
    fn a_length_that_lies_allocates_nothing_and_is_refused() {
        // Members with a claimed count of 2^63.
        let bytes = [1, 255, 255, 255, 255, 255, 255, 255, 255, 127];
        assert!(decode::<PeerMessage>(&bytes).is_err());
    }

    #[test]
    fn the_newest_common_version_is_selected() {
        assert_eq!(select(&[7, VERSION]), Some(VERSION));
        assert_eq!(select(&[7, 8]), None);
    }
}
