//! Memory for guests: what this node has to spare is what they get. Who finds too little of it is
//! to go home before the kernel has to choose whom to kill.

use crate::config::Config;
use crate::guest_cgroup::GuestCgroups;
use kernel::proc::room::Memory;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// After one was sent home, before the next is: most have left by then.
const RELIEF_INTERVAL: Duration = Duration::from_secs(3);
/// A part of all memory stays free for what the node itself may want next.
const RESERVE_PART: u64 = 16;
const RESERVE_BYTES_MAX: u64 = 1 << 30;
/// So that one that has to leave can.
const SLACK_BYTES: u64 = 64 << 20;

/// What guests may use, where this node sees to it itself.
pub struct Spare {
    groups: GuestCgroups,
    next_look: Instant,
    next_relief: Instant,
    /// What there is for guests that come, as of the last look.
    left_bytes: u64,
}

impl Spare {
    /// Where nobody has said where guests are to be put.
    pub fn make(config: &Config) -> Option<Spare> {
        if !config.makes_guest_cgroup {
            return None;
        }
        let now = Instant::now();
        match GuestCgroups::make(&config.state_dir) {
            Ok(groups) => {
                Some(Spare { groups, next_look: now, next_relief: now, left_bytes: u64::MAX })
            }
            Err(error) => {
                let what = "guests run without limits of memory and processor time";
                tracing::warn!("{what} (see `osmos doctor`): {error}");
                None
            }
        }
    }

    pub fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    pub fn directories(&self) -> &[PathBuf] {
        self.groups.directories()
    }

    pub fn entrance(&self) -> io::Result<OwnedFd> {
        self.groups.entrance()
    }

    pub fn is_look_due(&self, now: Instant) -> bool {
        self.next_look <= now
    }

    /// Sets the limit anew. True if guests have come near it, and something is to be done.
    pub fn look(&mut self, now: Instant, machine: Memory, owner_max: Option<u64>) -> bool {
        self.next_look = now + LOOK_INTERVAL;
        let Ok(used) = self.groups.used_bytes() else { return false };
        let (free, total) = (machine.free_bytes, machine.total_bytes);
        let (allowed, is_short) = allowance(used, free, total, owner_max);
        self.left_bytes = allowed.saturating_sub(used);
        // Never less than they have: to take it back is not the kernel's business.
        if let Err(error) = self.groups.limit(allowed.max(used.saturating_add(SLACK_BYTES))) {
            tracing::debug!("memory for guests: {error}");
        }
        (is_short || self.groups.is_full()) && self.next_relief <= now
    }

    /// A guest is sent home for it.
    pub fn relieved(&mut self, now: Instant) {
        self.next_relief = now + RELIEF_INTERVAL;
    }
}

/// How much all guests may use that use so much already, and whether that is too little for them.
fn allowance(used: u64, free: u64, total: u64, owner_max: Option<u64>) -> (u64, bool) {
    let reserve = (total / RESERVE_PART).min(RESERVE_BYTES_MAX);
    let spare = used.saturating_add(free.saturating_sub(reserve));
    let allowed = owner_max.map_or(spare, |max| max.min(spare));
    (allowed, used > allowed - allowed / 16)
}

#[cfg(test)]
mod test {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn guests_get_what_is_free_but_for_a_reserve_and_no_more_than_the_owner_says() {
        assert_eq!(allowance(0, 800 * MIB, 1600 * MIB, None), (700 * MIB, false));
        assert_eq!(allowance(500 * MIB, 300 * MIB, 1600 * MIB, None), (700 * MIB, false));
        assert_eq!(allowance(500 * MIB, 100 * MIB, 1600 * MIB, None), (500 * MIB, true));
        assert_eq!(allowance(100 * MIB, 9 << 30, 1600 * MIB, Some(50 * MIB)), (50 * MIB, true));
        assert_eq!(allowance(0, 0, 1600 * MIB, None), (0, false), "nobody is there to go");
    }
}
