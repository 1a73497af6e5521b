//! What is remembered of one process. A million brains remember some each: so it is small.

use crate::attained::Attained;
use crate::config::Config;
use crate::input::GroupId;
use crate::staying::StayCause;
use crate::time::Time;
use wire::ids::NodeId;

/// What is remembered of a process between measurements and, at its home, while it is away.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub touched_at: Time,
    /// [`NEVER`] if it does not run here.
    pub arrived_at: Time,
    pub rest_until: Time,
    pub setback_at: Time,
    /// None for a process that was born here and never left.
    pub came_with: Option<Attained>,
    /// As its home says.
    pub group: Option<GroupId>,
    /// Forwarded calls per CPU second when last away; None: never away.
    pub calls_per_cpu_s: Option<f32>,
    pub came_from: Option<NodeId>,
    /// Moves in a row that came to nothing, and homecomings by itself.
    pub setbacks: u8,
    /// It came from elsewhere: its first stay is over.
    pub has_moved: bool,
    pub pinned: bool,
    /// So that a decision is recorded when it changes, not each second.
    pub stayed_for: Option<StayCause>,
}

pub(crate) const NEVER: Time = Time(u64::MAX);
/// Of a process of which nothing is remembered.
pub(crate) static NO_MEMORY: Memory = Memory::fresh(Time::ZERO);

impl Memory {
    pub const fn fresh(now: Time) -> Memory {
        Memory {
            touched_at: now,
            arrived_at: NEVER,
            rest_until: Time::ZERO,
            setback_at: Time::ZERO,
            came_with: None,
            group: None,
            calls_per_cpu_s: None,
            came_from: None,
            setbacks: 0,
            has_moved: false,
            pinned: false,
            stayed_for: None,
        }
    }

    /// Until when it is left alone after moves that came to nothing, the longer the more of them.
    pub fn set_back_until(&self, config: &Config) -> Time {
        let Some(doublings) = self.setbacks.checked_sub(1) else { return Time::ZERO };
        let rest = config.setback * (1 << doublings.min(16));
        self.setback_at + rest.min(config.setback_max)
    }

    /// Nothing in it is worth keeping once the process is elsewhere.
    pub fn says_nothing(&self, now: Time) -> bool {
        let is_at_peace = self.setbacks == 0 && self.rest_until <= now;
        is_at_peace && !self.pinned && self.calls_per_cpu_s.is_none()
    }
}
