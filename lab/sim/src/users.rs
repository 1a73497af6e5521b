//! What each user has, as the homes of his processes tell it about once a second.

use crate::node::SimNode;
use crate::process::SimProcess;
use brain::{Span, Time, UserId};
use std::collections::BTreeMap;

const TOLD_EVERY: Span = Span::from_secs(1);

#[derive(Default)]
pub(crate) struct UserShares {
    told_at: Time,
    /// By home, in reference cores.
    cores: BTreeMap<(u32, UserId), f64>,
    /// Some process has a user.
    pub is_told: bool,
}

impl UserShares {
    pub fn of(&self, home: u32, user: UserId) -> f64 {
        self.cores.get(&(home, user)).copied().unwrap_or(0.0)
    }

    pub fn renew(&mut self, now: Time, processes: &[SimProcess], nodes: &[SimNode]) {
        if !self.is_told || now.since(self.told_at) < TOLD_EVERY {
            return;
        }
        self.told_at = now;
        self.cores.clear();
        for process in processes {
            if let (Some(user), Some(at)) = (process.kind.user, process.runs_on()) {
                let rate = nodes[at as usize].rate() * process.demand_on(at);
                *self.cores.entry((process.home, user)).or_default() += rate;
            }
        }
    }
}
