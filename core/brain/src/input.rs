//! What the brain is told. Inputs are past tense: facts that the daemon (or a simulator) observed.
//! The brain trusts their origin but not their numbers: a measurement that makes no sense is
//! brought into range before use.

use crate::time::Span;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;
use wire::ids::{GlobalPid, NodeId};

/// One fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// The node is up and its clock runs: the first input, once.
    Started,
    /// The time asked for by [`crate::Output::WakeAt`] has come. Early or extra calls do no harm.
    TimePassed,
    /// Some times a second: what this node measured of itself, a mean over the last second or so.
    LoadSampled(LoadSample),
    /// A node belongs to the cluster and can be sent datagrams. Repeats do no harm.
    MemberJoined { node: NodeId },
    /// A node has left the cluster in an orderly way (silence is found out by the brain itself).
    MemberLeft { node: NodeId },
    /// Bytes that the brain of `from` asked to be sent here. `from` is authenticated by the daemon;
    /// the bytes are hostile until decoded.
    DatagramReceived { from: NodeId, bytes: Vec<u8> },
    /// A process began to run on this node.
    ProcessArrived { process: GlobalPid, how: Arrival },
    /// A process has ended, by exit or by signal: told on the node where it ran and on its home.
    ProcessEnded { process: GlobalPid },
    /// Every [`crate::Output::Move`] is answered by exactly one of these, on the node that ordered
    /// it. Moves that somebody else ordered (a user, a call that needed home) are reported too, on
    /// the node that the process left or did not leave.
    MoveEnded { process: GlobalPid, from: NodeId, to: NodeId, outcome: MoveOutcome, freeze: Span },
    /// The user said where the process may run.
    ProcessPlaced { process: GlobalPid, placement: Placement },
    /// The owner of this node said what others may have of it.
    OwnerDecided { ownership: Ownership },
    /// Processes that were born here cannot run on these nodes, and on no others known so far: in
    /// place of all that was said of that before.
    NodesBarred { nodes: Vec<NodeId> },
    /// This process, which was born here, can run there nevertheless.
    ProcessExempted { process: GlobalPid },
}

/// How a process came to run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arrival {
    /// It was started here, or taken over by `osmos adopt`.
    Born,
    /// A brain moved it here.
    Balanced { from: NodeId },
    /// A user moved it here: it is left in peace for a while.
    Ordered { from: NodeId },
    /// It came home by itself: a call or a fault that needed home.
    CameHome { from: NodeId },
    /// It has begun another program while it was there, which begins at home: that says nothing of
    /// whether it should have been there.
    Began { from: NodeId },
}

/// How a move ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MoveOutcome {
    /// It runs on the target.
    Moved,
    /// It could not be moved (now) and runs on where it was: its own fault, not the target's.
    Stayed,
    /// The target or the way to it failed; the process runs on where it was.
    Failed,
}

/// Where the user lets a process run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// Anywhere: the brain decides.
    Balanced,
    /// The brain leaves it where it is: it was put there by its user.
    Pinned,
}

/// What a node measured of itself over the last moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadSample {
    pub cores: u32,
    /// Of one core; 1.0 is the reference. A quota counts: half a core's quota on one core is 0.5.
    pub speed: f64,
    /// What a process does in one second of processor time, in reference seconds. Without a quota
    /// this is the speed; under one it gets fewer such seconds, but no slower ones.
    pub pace: f64,
    /// Mean number, over the last second or so, of runnable threads that are of none of
    /// `processes`: what else runs here, Osmos itself excluded.
    pub others: f64,
    pub memory_total_bytes: u64,
    /// What a new process could get without paging.
    pub memory_free_bytes: u64,
    /// The part of the time in which something here waited for memory (PSI some avg10), 0 to 1.
    pub memory_pressure: f64,
    /// Every managed process that runs *here*: those at home and the guests.
    pub processes: Vec<ProcessSample>,
}

/// What a node measured of one process that runs on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    pub process: GlobalPid,
    /// How many processes this is about. Those that share memory move as one, and are weighed as
    /// one of them; 0 for those that go with that one.
    #[serde(default = "one")]
    pub stands_for: u32,
    /// Mean number of its runnable threads: what it would use if it had the node for itself.
    pub demand: f64,
    /// CPU seconds used per second: what it got.
    pub used: f64,
    /// How long it has been running on this node.
    pub here: Span,
    /// CPU time in its whole life, on all nodes.
    pub cpu: Span,
    pub rss_bytes: u64,
    /// Calls forwarded to home per second; at home, zero.
    pub forwarded_per_s: f64,
    /// How long a move would freeze it, as far as is known.
    pub freeze_estimate: Span,
    /// For how long its memory is copied before that, while it runs where it is.
    pub copy_estimate: Span,
    /// How much CPU time it is likely to need yet, if its node knows others like it.
    pub left: Option<Span>,
    /// Why it cannot move now (pinned by its user, a resource that cannot travel, frozen).
    pub stays: Option<String>,
    /// Processes that were started together and wait for each other, as their home says: a process
    /// group, a job.
    pub group: Option<GroupId>,
    /// Whose it is, and what its home says that this user has.
    pub user: Option<UserShare>,
}

/// As of recordings that do not say it.
fn one() -> u32 {
    1
}

/// A user, and what all his processes of one home get, wherever they run, in reference cores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserShare {
    pub user: UserId,
    pub cores: f64,
}

/// Names the one for whom a process runs; the same number on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UserId(pub u32);

/// Names processes that may take turns; the same number on every node, and never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(NonZeroU64);

impl From<NonZeroU64> for GroupId {
    fn from(number: NonZeroU64) -> GroupId {
        GroupId(number)
    }
}

impl From<GroupId> for NonZeroU64 {
    fn from(group: GroupId) -> NonZeroU64 {
        group.0
    }
}

impl GroupId {
    /// None for 0, which travels for no group.
    pub fn new(number: u64) -> Option<GroupId> {
        NonZeroU64::new(number).map(GroupId)
    }

    pub fn number(self) -> u64 {
        self.0.get()
    }
}

/// What the owner of a node lets others have of it, and wants for himself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ownership {
    /// No more guests are taken in.
    pub is_closed: bool,
    /// Guests that are here go elsewhere: where they are better off, or else home.
    pub expels: bool,
    /// With the guests, what was born here goes, too, whatever it gains.
    pub drains: bool,
    /// Processes that were born here do not leave by balancing.
    pub stays: bool,
    /// Load of this node's own comes first: guests for which it leaves no core go elsewhere.
    pub yields: bool,
    /// At most so many guests at one time.
    pub guests_max: Option<u32>,
    /// At most so much memory for all guests.
    pub guest_memory_max_bytes: Option<u64>,
    /// Whose guests come before others, and after: by home, in the order of their numbers.
    pub priorities: Vec<(NodeId, Priority)>,
}

/// Of the guests of one home: the lower number comes first, as in MOSIX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Priority(pub u16);

impl Default for Priority {
    fn default() -> Priority {
        Priority(50)
    }
}

impl Ownership {
    /// The priority of guests from there.
    pub fn priority_of(&self, home: NodeId) -> Priority {
        let found = self.priorities.binary_search_by(|(node, _)| node.cmp(&home));
        found.map_or(Priority::default(), |place| self.priorities[place].1)
    }
}
