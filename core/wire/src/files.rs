//! What one node asks of another's files: `osmos mount` of the server that the other node has
//! started for its user ([decision 0048](../../../docs/decisions/0048-files-of-all-nodes.md)).
//!
//! A message is a [`Call`] or an [`Answer`] in postcard, and behind it, if it carries content, that
//! content as it is. Answers come in any order. A file is named by a number that the server gives
//! out and keeps for as long as it was not forgotten as often as it was told; an open file by a
//! handle. Numbers and handles hold for one connection.

use crate::bounded;
use serde::{Deserialize, Serialize};

/// The number of the root of a node's files.
pub const ROOT: u64 = 1;
/// Longest name of a file (NAME_MAX of Linux), longest target of a symbolic link.
pub const NAME_BYTES_MAX: usize = 255;
pub const TARGET_BYTES_MAX: usize = 4_095;
/// What one call reads or writes at most.
pub const CONTENT_BYTES_MAX: u32 = 1 << 20;
/// Longest value of an extended attribute, and longest list of their names (XATTR_SIZE_MAX).
pub const ATTRIBUTE_BYTES_MAX: u32 = 64 << 10;
/// Entries of one part of a directory.
pub const ENTRIES_MAX: usize = 512;
/// Files of one [`Ask::Forget`].
pub const FORGOTTEN_MAX: usize = 4_096;

pub type Name = Vec<u8>;

/// Whose files the server serves, before the first call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// As whom it does.
    pub uid: u32,
    pub gid: u32,
    pub may_write: bool,
}

/// What a daemon says to a server that it has started, over the socket that this has as its
/// standard input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToServer {
    /// First of all.
    Serve {
        key: [u8; 32],
        served: Served,
        /// Groups of the user, where the daemon may say as whom the server is to run.
        groups: Option<Vec<u32>>,
    },
    /// Whoever was to come has come: the connection is ancillary data.
    Connection,
    /// The owner of the node shows its files no more, or it goes down.
    End,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub id: u64,
    pub ask: Ask,
}

/// The numbers are those of Linux: modes, flags of open(2), of renameat2(2), of fallocate(2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Whether anybody is there.
    Ping,
    Lookup(Place),
    /// Not answered. How often each was told.
    Forget(#[serde(deserialize_with = "bounded::list::<_, _, FORGOTTEN_MAX>")] Vec<(u64, u64)>),
    /// By its handle it is told what is open, whether or not it has a name.
    Attributes {
        file: u64,
        handle: Option<u64>,
    },
    Change {
        file: u64,
        handle: Option<u64>,
        change: Change,
    },
    Target {
        file: u64,
    },
    /// A regular file, a FIFO or a socket: no device.
    MakeNode {
        place: Place,
        mode: u32,
    },
    MakeDirectory {
        place: Place,
        mode: u32,
    },
    MakeSymlink {
        place: Place,
        #[serde(deserialize_with = "bounded::list::<_, _, TARGET_BYTES_MAX>")]
        target: Vec<u8>,
    },
    MakeLink {
        file: u64,
        place: Place,
    },
    Remove {
        place: Place,
        is_directory: bool,
    },
    Rename {
        from: Place,
        to: Place,
        flags: u32,
    },
    Open {
        file: u64,
        flags: i32,
    },
    Create {
        place: Place,
        mode: u32,
        flags: i32,
    },
    /// Answered with content: less than asked for is the end of the file.
    Read {
        handle: u64,
        offset: u64,
        length: u32,
    },
    /// With content. All of it is written, or it fails.
    Write {
        handle: u64,
        offset: u64,
    },
    /// One of several that have it open has closed it: errors come out, its owner's locks go.
    Flush {
        handle: u64,
        owner: u64,
    },
    Close {
        handle: u64,
    },
    Sync {
        handle: u64,
        is_data_only: bool,
    },
    /// From that entry on. None left: an empty list.
    List {
        handle: u64,
        offset: u64,
    },
    FileSystem {
        file: u64,
    },
    /// As access(2), for the user whom the server serves.
    Access {
        file: u64,
        mask: i32,
    },
    /// Answered with content, at most so much; with `room` 0 only how much that would be.
    ExtendedAttribute {
        file: u64,
        name: AttributeName,
        room: u32,
    },
    ExtendedAttributes {
        file: u64,
        room: u32,
    },
    /// With content.
    SetExtendedAttribute {
        file: u64,
        name: AttributeName,
        flags: i32,
    },
    RemoveExtendedAttribute {
        file: u64,
        name: AttributeName,
    },
    /// SEEK_DATA or SEEK_HOLE.
    Seek {
        handle: u64,
        offset: i64,
        whence: i32,
    },
    Allocate {
        handle: u64,
        mode: i32,
        offset: u64,
        length: u64,
    },
    Copy {
        from: u64,
        from_offset: u64,
        to: u64,
        to_offset: u64,
        length: u64,
    },
    /// Who would keep this lock from being had?
    TestLock {
        handle: u64,
        lock: Lock,
    },
    /// Never waits: who wants to asks again.
    SetLock {
        handle: u64,
        lock: Lock,
    },
    /// Is a process on the server's own node to have this open file itself? Answered by `Offer`,
    /// when all is done that was asked of the file before.
    Offer {
        handle: u64,
    },
}

impl Ask {
    /// The file or handle that it is about: of one, calls are carried out in their order.
    pub fn file(&self) -> u64 {
        match self {
            Ask::Ping | Ask::Forget(_) => ROOT,
            Ask::Lookup(place)
            | Ask::MakeNode { place, .. }
            | Ask::MakeDirectory { place, .. }
            | Ask::MakeSymlink { place, .. }
            | Ask::MakeLink { place, .. }
            | Ask::Remove { place, .. }
            | Ask::Create { place, .. }
            | Ask::Rename { from: place, .. } => place.directory,
            Ask::Attributes { file, .. }
            | Ask::Change { file, .. }
            | Ask::Target { file }
            | Ask::Open { file, .. }
            | Ask::FileSystem { file }
            | Ask::Access { file, .. }
            | Ask::ExtendedAttribute { file, .. }
            | Ask::ExtendedAttributes { file, .. }
            | Ask::SetExtendedAttribute { file, .. }
            | Ask::RemoveExtendedAttribute { file, .. } => *file,
            Ask::Read { handle, .. }
            | Ask::Write { handle, .. }
            | Ask::Flush { handle, .. }
            | Ask::Close { handle }
            | Ask::Sync { handle, .. }
            | Ask::List { handle, .. }
            | Ask::Seek { handle, .. }
            | Ask::Allocate { handle, .. }
            | Ask::Copy { to: handle, .. }
            | Ask::TestLock { handle, .. }
            | Ask::SetLock { handle, .. }
            | Ask::Offer { handle } => *handle,
        }
    }

    /// It changes a file, or a file system, whatever its answer.
    pub fn changes(&self) -> bool {
        matches!(
            self,
            Ask::Change { .. }
                | Ask::MakeNode { .. }
                | Ask::MakeDirectory { .. }
                | Ask::MakeSymlink { .. }
                | Ask::MakeLink { .. }
                | Ask::Remove { .. }
                | Ask::Rename { .. }
                | Ask::Create { .. }
                | Ask::Write { .. }
                | Ask::SetExtendedAttribute { .. }
                | Ask::RemoveExtendedAttribute { .. }
                | Ask::Allocate { .. }
                | Ask::Copy { .. }
        )
    }
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub directory: u64,
    #[serde(deserialize_with = "bounded::list::<_, _, NAME_BYTES_MAX>")]
    pub name: Name,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeName(
    #[serde(deserialize_with = "bounded::list::<_, _, NAME_BYTES_MAX>")] pub Name,
);

/// What of a file is to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<SetTime>,
    pub modified: Option<SetTime>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    Now,
    At(Time),
}

/// Since 1970, by the clock of the node that has the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    pub seconds: i64,
    pub nanoseconds: u32,
}

/// A lock of a range of a file, as of fcntl(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Whoever has the same number shares locks.
    pub owner: u64,
    pub start: u64,
    /// Included.
    pub end: u64,
    pub kind: LockKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockKind {
    Read,
    Write,
    None,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub id: u64,
    /// Or the number of the error, as of errno(3).
    pub result: Result<Told, u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    Done,
    Entry(Entry),
    Attributes(Attributes),
    Opened {
        handle: u64,
        attributes: Attributes,
    },
    Created {
        entry: Entry,
        handle: u64,
    },
    /// Behind this.
    Content,
    Size(u32),
    List(#[serde(deserialize_with = "bounded::list::<_, _, ENTRIES_MAX>")] Vec<Listed>),
    FileSystem(FileSystem),
    Offset(u64),
    Lock(Lock),
    Offer(Offer),
}

/// An open file that a process on the server's node may have ([decision
/// 0051](../../../docs/decisions/0051-direct-files.md)).
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Of the server's socket, in the abstract name space.
    pub name: [u8; OFFER_BYTES],
    /// What whoever is to have it says there.
    pub secret: [u8; OFFER_BYTES],
    /// As whom the server has opened it.
    pub uid: u32,
}

pub const OFFER_BYTES: usize = 16;

impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offer").field("uid", &self.uid).finish_non_exhaustive()
    }
}

/// What a deputy asks the mount about a file that its process has opened there, by ioctl(2).
pub mod ioctl {
    use super::{OFFER_BYTES, Offer};
    use crate::ids::NodeId;

    /// Has the server of that node offer it. `_IOWR('O', 1, [u8; EXCHANGED_BYTES])`.
    pub const OFFER: u32 = 3 << 30 | (EXCHANGED_BYTES as u32) << 16 | (b'O' as u32) << 8 | 1;
    /// What this kernel remembers of its content is old. `_IO('O', 2)`.
    pub const REFRESH: u32 = (b'O' as u32) << 8 | 2;
    /// What goes in, the number of the node, and what comes out.
    pub const EXCHANGED_BYTES: usize = 2 * OFFER_BYTES + 4;

    pub type Exchanged = [u8; EXCHANGED_BYTES];

    /// The question.
    pub fn asked_of(node: NodeId) -> Exchanged {
        let mut exchanged = [0; EXCHANGED_BYTES];
        exchanged[..4].copy_from_slice(&node.0.to_ne_bytes());
        exchanged
    }

    /// Of which node an offer is asked for.
    pub fn node_of(exchanged: &[u8]) -> Option<NodeId> {
        Some(NodeId(u32::from_ne_bytes(*exchanged.first_chunk()?)))
    }

    /// The answer.
    pub fn answer(offer: &Offer) -> Exchanged {
        let mut exchanged = [0; EXCHANGED_BYTES];
        exchanged[..OFFER_BYTES].copy_from_slice(&offer.name);
        exchanged[OFFER_BYTES..2 * OFFER_BYTES].copy_from_slice(&offer.secret);
        exchanged[2 * OFFER_BYTES..].copy_from_slice(&offer.uid.to_ne_bytes());
        exchanged
    }

    /// What was answered.
    pub fn offered(exchanged: &Exchanged) -> Offer {
        let (mut name, mut secret, mut uid) = ([0; OFFER_BYTES], [0; OFFER_BYTES], [0; 4]);
        name.copy_from_slice(&exchanged[..OFFER_BYTES]);
        secret.copy_from_slice(&exchanged[OFFER_BYTES..2 * OFFER_BYTES]);
        uid.copy_from_slice(&exchanged[2 * OFFER_BYTES..]);
        Offer { name, secret, uid: u32::from_ne_bytes(uid) }
    }

    #[cfg(test)]
    mod test {
        use super::*;

        #[test]
        fn what_is_asked_and_answered_is_understood() {
            assert_eq!(node_of(&asked_of(NodeId(70_000))), Some(NodeId(70_000)));
            assert_eq!(node_of(&[1, 2]), None);
            let offer = Offer { name: [1; OFFER_BYTES], secret: [2; OFFER_BYTES], uid: 1000 };
            assert_eq!(offered(&answer(&offer)), offer);
        }
    }
}

/// A file that was told; the server keeps its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub file: u64,
    pub attributes: Attributes,
}

/// As of statx(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    pub device: u64,
    pub inode: u64,
    /// With the kind of file.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Of 512 bytes.
    pub blocks: u64,
    pub block_bytes: u32,
    /// Of a device.
    pub special: u32,
    pub accessed: Time,
    pub modified: Time,
    pub changed: Time,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    #[serde(deserialize_with = "bounded::list::<_, _, NAME_BYTES_MAX>")]
    pub name: Name,
    /// Where the next one begins.
    pub next: u64,
    pub inode: u64,
    /// As in a mode.
    pub kind: u32,
    /// None of `.` and `..`, and where it is gone or not shown.
    pub entry: Option<Entry>,
}

/// As of statvfs(3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystem {
    pub blocks: u64,
    pub free: u64,
    pub available: u64,
    pub files: u64,
    pub files_free: u64,
    pub block_bytes: u32,
    pub fragment_bytes: u32,
    pub name_bytes_max: u32,
}

/// A message, and the content behind it.
///
/// # Errors
/// It comes from another machine, and may be none of ours.
pub fn decode<'a, T: Deserialize<'a>>(message: &'a [u8]) -> postcard::Result<(T, &'a [u8])> {
    postcard::take_from_bytes(message)
}

/// What comes before the content.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("numbers and bytes can always be encoded")
}
