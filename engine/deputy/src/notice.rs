//! What the other threads of a deputy's supervisor tell its main thread.

use crate::moves::Link;
use link::LinkReader;
use migrate::Result;
use wire::forward::ToHome;
use wire::ids::{GuestAddr, GuestTid};
use wire::image::{Draft, SharedMemory};
use wire::supervisor::{Filled, Progress, Reason};

/// What the link's reader tells the main thread.
pub enum Notice {
    /// The body is frozen; what follows on the link is for the main thread.
    Leaving {
        message: ToHome,
        reader: Box<LinkReader>,
    },
    Stayed(Reason),
    /// The body comes home, and sends memory ahead.
    ComesAhead {
        draft: Box<Draft>,
        heap_end: GuestAddr,
    },
    Progress(Progress),
    /// All that came behind the body is there.
    Filled(Filled),
    /// The next node answers, or does not: to the call of that number.
    Connected {
        number: u64,
        outcome: Result<Box<Link>>,
    },
    /// A fault handler runs in the body, or a thread begins there: what it blocks has to be blocked
    /// here as well.
    MaskChanged {
        slot: usize,
    },
    /// The thread of this slot makes another, or a process.
    MakeTask {
        slot: usize,
    },
    /// What shared memory it has just before that, if that makes a process.
    Shares(Vec<SharedMemory>),
    /// The thread of this slot maps a file.
    MapFile {
        slot: usize,
    },
    /// The process that it has made has a body, or has none.
    ChildMade {
        slot: usize,
        child: GuestTid,
        has_body: bool,
    },
    Usage {
        rss_bytes: u64,
    },
    /// Of the link with this number: an older one may end late.
    /// The body's supervisor had to end it.
    Gone {
        generation: u64,
        reason: Reason,
    },
    LinkLost {
        generation: u64,
        error: String,
    },
}
