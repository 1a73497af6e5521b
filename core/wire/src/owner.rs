//! What the owner of a node tells its daemon, and what stands of it: `osmos stay`, `block`,
//! `yield`, `drain`, `expel`, `bring`, `priority`, `limit`, `lend`, `share`.

use crate::freeze_budget::FreezeBudget;
use crate::ids::NodeId;
use crate::move_limits::{Bandwidth, MoveLimits};
use crate::users::{Borrowers, LEND_TO_MAX, UserTable};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// Of the guests of one home, where the owner has said nothing; lower comes first.
pub const PRIORITY_USUAL: u16 = 50;
/// Homes with a priority of their own.
pub const PRIORITIES_MAX: usize = 1_024;

/// One order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum OwnerOrder {
    /// Processes that were born here do not leave by balancing.
    Stay { on: bool },
    /// No guests come.
    Block { on: bool },
    /// Load of the node's own comes first: guests for which it leaves no core go elsewhere.
    Yield { on: bool },
    /// Guests leave, what was born here goes, too, and nothing comes.
    Drain { on: bool },
    /// Guests leave now, and no more come. Answered when they have left.
    Expel,
    /// What was born here comes home. Answered when it is there.
    Bring,
    /// Guests of that home come before others, or after.
    Prioritise { home: NodeId, priority: u16 },
    /// At most so many guests, at most so much memory for all of them. None: as it was.
    Limit {
        guests: Option<LimitChange>,
        guest_memory_bytes: Option<LimitChange>,
        /// How long processes that were born here may stand still for a move.
        #[serde(default)]
        freeze_budget_ms: Option<LimitChange<FreezeBudget>>,
        /// What each move from here and to here may take of the network, and of processors.
        #[serde(default)]
        move_bandwidth_bits_per_s: Option<LimitChange<Bandwidth>>,
        #[serde(default)]
        move_processors: Option<LimitChange<NonZeroU32>>,
        /// Guests of one user, and processes of one user of this node that are in a storm.
        #[serde(default)]
        guests_per_user: Option<LimitChange>,
        #[serde(default)]
        storms_per_user: Option<LimitChange>,
    },
    /// Whether root's processes leave this node, and which nodes are lent any. None: as it was.
    /// What is away against it comes home.
    Lend { root: Option<bool>, to: Option<Borrowers> },
    /// What users of other nodes may do with their files on this one.
    ShareFiles { access: FileAccess },
    /// Whether jobs of users of other nodes may begin here.
    ShareJobs { on: bool },
}

/// What users of other nodes may do with the files of a node, as whom they are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileAccess {
    #[default]
    Off,
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitChange<T = u64> {
    Lifted,
    AtMost(T),
}

/// What the owner has decided. Kept on disk, and shown by `osmos status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnerState {
    pub stays: bool,
    pub blocks: bool,
    pub yields: bool,
    pub drains: bool,
    pub guests_max: Option<u32>,
    pub guest_memory_max_bytes: Option<u64>,
    /// Of one user, by his number at home.
    pub guests_per_user_max: Option<u32>,
    /// Processes of one user of this node that are in a storm.
    pub storms_per_user_max: Option<u32>,
    /// For moves of processes that were born here and of which nobody has said anything else.
    pub freeze_budget_ms: Option<FreezeBudget>,
    /// For each move from here or to here.
    pub move_limits: MoveLimits,
    /// By home, in the order of their numbers; [`PRIORITY_USUAL`] for all others.
    pub priorities: Vec<HomePriority>,
    /// Processes of root that were born here may leave. Who holds one is root here.
    pub lends_root: bool,
    /// Where own processes may go, whoever sends them.
    pub lends_to: Borrowers,
    /// As whom guests run, and files are shown.
    pub guest_users: UserTable,
    /// Of this node's files, to users of other nodes.
    pub files: FileAccess,
    /// Jobs of users of other nodes may begin here.
    pub jobs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomePriority {
    pub home: NodeId,
    pub priority: u16,
}

/// What stands after an order, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owned {
    #[serde(flatten)]
    pub state: OwnerState,
    /// Guests that are here now.
    pub guests: u32,
    /// Processes that were born here: those here, and those elsewhere.
    pub own_here: u32,
    pub own_away: u32,
    /// What guests that have left have left of their memory, for when they come again.
    pub imprint_bytes: u64,
}

impl OwnerState {
    /// Carries out what changes the state; false if there is no room for that much.
    pub fn apply(&mut self, order: &OwnerOrder) -> bool {
        match order {
            OwnerOrder::Stay { on } => self.stays = *on,
            OwnerOrder::Block { on } => self.blocks = *on,
            OwnerOrder::Yield { on } => self.yields = *on,
            OwnerOrder::Drain { on } => self.drains = *on,
            OwnerOrder::Expel => self.blocks = true,
            OwnerOrder::Bring => {}
            OwnerOrder::Prioritise { home, priority } => return self.prioritise(*home, *priority),
            OwnerOrder::Limit {
                guests,
                guest_memory_bytes,
                freeze_budget_ms,
                move_bandwidth_bits_per_s,
                move_processors,
                guests_per_user,
                storms_per_user,
            } => {
                self.guests_max = changed_count(self.guests_max, *guests);
                self.guests_per_user_max =
                    changed_count(self.guests_per_user_max, *guests_per_user);
                self.storms_per_user_max =
                    changed_count(self.storms_per_user_max, *storms_per_user);
                self.guest_memory_max_bytes =
                    changed(self.guest_memory_max_bytes, *guest_memory_bytes);
                self.freeze_budget_ms = changed(self.freeze_budget_ms, *freeze_budget_ms);
                let MoveLimits { bandwidth, processors } = &mut self.move_limits;
                *bandwidth = changed(*bandwidth, *move_bandwidth_bits_per_s);
                *processors = changed(*processors, *move_processors);
            }
            OwnerOrder::Lend { root, to } => {
                self.lends_root = root.unwrap_or(self.lends_root);
                self.lends_to = to.clone().unwrap_or_else(|| std::mem::take(&mut self.lends_to));
                return self.is_bounded();
            }
            OwnerOrder::ShareFiles { access } => self.files = *access,
            OwnerOrder::ShareJobs { on } => self.jobs = *on,
        }
        true
    }

    fn prioritise(&mut self, home: NodeId, priority: u16) -> bool {
        self.priorities.retain(|of| of.home != home);
        if priority == PRIORITY_USUAL {
            return true;
        }
        if self.priorities.len() >= PRIORITIES_MAX {
            return false;
        }
        self.priorities.push(HomePriority { home, priority });
        self.priorities.sort_unstable_by_key(|of| of.home);
        true
    }

    /// True if none of its lists is longer than any that a daemon keeps.
    pub fn is_bounded(&self) -> bool {
        let borrowers = match &self.lends_to {
            Borrowers::All => 0,
            Borrowers::Only(nodes) => nodes.len(),
        };
        self.priorities.len() <= PRIORITIES_MAX && borrowers <= LEND_TO_MAX
    }

    pub fn priority_of(&self, home: NodeId) -> u16 {
        let found = self.priorities.iter().find(|of| of.home == home);
        found.map_or(PRIORITY_USUAL, |of| of.priority)
    }
}

fn changed_count(limit: Option<u32>, change: Option<LimitChange>) -> Option<u32> {
    let within = |bound: u64| u32::try_from(bound).unwrap_or(u32::MAX);
    changed(limit.map(u64::from), change).map(within)
}

fn changed<T>(limit: Option<T>, change: Option<LimitChange<T>>) -> Option<T> {
    match change {
        None => limit,
        Some(LimitChange::Lifted) => None,
        Some(LimitChange::AtMost(most)) => Some(most),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn an_order_changes_what_it_names_and_nothing_else() {
        let mut state = OwnerState::default();
        for order in [OwnerOrder::Stay { on: true }, OwnerOrder::Expel, OwnerOrder::Bring] {
            assert!(state.apply(&order));
        }
        let expected = OwnerState { stays: true, blocks: true, ..OwnerState::default() };
        assert_eq!(state, expected);
        let mut limit = |guests, guest_memory_bytes, freeze_budget_ms| {
            state.apply(&OwnerOrder::Limit {
                guests,
                guest_memory_bytes,
                freeze_budget_ms,
                move_bandwidth_bits_per_s: None,
                move_processors: None,
                guests_per_user: None,
                storms_per_user: None,
            });
            (state.guests_max, state.guest_memory_max_bytes, state.freeze_budget_ms)
        };
        let budget = FreezeBudget::try_from(5).unwrap();
        assert_eq!(limit(Some(LimitChange::AtMost(3)), None, None), (Some(3), None, None));
        let memory = Some(LimitChange::AtMost(1 << 40));
        assert_eq!(limit(None, memory, None), (Some(3), Some(1 << 40), None));
        let at_most = Some(LimitChange::AtMost(budget));
        assert_eq!(limit(None, None, at_most), (Some(3), Some(1 << 40), Some(budget)));
        let lifted = Some(LimitChange::Lifted);
        assert_eq!(limit(lifted, None, None), (None, Some(1 << 40), Some(budget)));
        assert_eq!(limit(None, None, Some(LimitChange::Lifted)), (None, Some(1 << 40), None));
    }

    #[test]
    fn what_moves_may_take_changes_by_what_an_order_names() {
        let mut state = OwnerState::default();
        let mut limit = |move_bandwidth_bits_per_s, move_processors| {
            assert!(state.apply(&OwnerOrder::Limit {
                guests: None,
                guest_memory_bytes: None,
                freeze_budget_ms: None,
                move_bandwidth_bits_per_s,
                move_processors,
                guests_per_user: None,
                storms_per_user: None,
            }));
            state.move_limits
        };
        let bandwidth: Bandwidth = "1Gbit".parse().unwrap();
        let two = NonZeroU32::new(2);
        let limits = |bandwidth, processors| MoveLimits { bandwidth, processors };
        let at_most = Some(LimitChange::AtMost(bandwidth));
        assert_eq!(limit(at_most, None), limits(Some(bandwidth), None));
        assert_eq!(limit(None, two.map(LimitChange::AtMost)), limits(Some(bandwidth), two));
        assert_eq!(limit(Some(LimitChange::Lifted), None), limits(None, two));
        assert_eq!(limit(None, Some(LimitChange::Lifted)), MoveLimits::default());
    }

    #[test]
    fn limits_of_one_user_change_by_what_an_order_names() {
        let mut state = OwnerState::default();
        let mut limit = |guests_per_user, storms_per_user| {
            assert!(state.apply(&OwnerOrder::Limit {
                guests: None,
                guest_memory_bytes: None,
                freeze_budget_ms: None,
                move_bandwidth_bits_per_s: None,
                move_processors: None,
                guests_per_user,
                storms_per_user,
            }));
            (state.guests_per_user_max, state.storms_per_user_max)
        };
        assert_eq!(limit(Some(LimitChange::AtMost(2)), None), (Some(2), None));
        assert_eq!(limit(None, Some(LimitChange::AtMost(3))), (Some(2), Some(3)));
        assert_eq!(limit(Some(LimitChange::Lifted), None), (None, Some(3)));
    }

    #[test]
    fn priorities_are_bounded_and_the_usual_one_is_none_of_them() {
        let mut state = OwnerState::default();
        let order = |home, priority| OwnerOrder::Prioritise { home: NodeId(home), priority };
        for home in 1..=PRIORITIES_MAX as u32 {
            assert!(state.apply(&order(home, 1)));
        }
        assert!(!state.apply(&order(5_000, 1)));
        assert!(state.apply(&order(7, PRIORITY_USUAL)) && state.apply(&order(5_000, 9)));
        assert_eq!([7, 8, 5_000].map(|home| state.priority_of(NodeId(home))), [50, 1, 9]);
    }

    #[test]
    fn what_is_lent_changes_by_what_an_order_names() {
        let mut state = OwnerState::default();
        assert!(!state.lends_root && state.lends_to.has(NodeId(7)));
        let only = Borrowers::Only(vec![NodeId(2)]);
        assert!(state.apply(&OwnerOrder::Lend { root: None, to: Some(only.clone()) }));
        assert!(state.apply(&OwnerOrder::Lend { root: Some(true), to: None }));
        assert!(state.lends_root && state.lends_to == only);
        assert!(state.lends_to.has(NodeId(2)) && !state.lends_to.has(NodeId(7)));
        let many = Borrowers::Only(vec![NodeId(2); LEND_TO_MAX + 1]);
        assert!(!state.apply(&OwnerOrder::Lend { root: None, to: Some(many) }));
    }

    #[test]
    fn a_state_of_an_earlier_version_is_read() {
        let state: OwnerState = serde_json::from_str(r#"{"stays":true}"#).unwrap();
        assert_eq!(state, OwnerState { stays: true, ..OwnerState::default() });
    }
}
