//! Memory for guests: what this node has to spare is what they get, and who finds too little of it
//! goes home before the kernel has to choose whom to kill.

use super::Daemon;
use crate::config::Config;
use crate::guest::Guest;
use crate::guest_cgroup::GuestCgroups;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use wire::supervisor::ToBody;

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
pub(super) struct Spare {
    groups: GuestCgroups,
    next_look: Instant,
    next_relief: Instant,
    /// What there is for guests that come, as of the last look.
    left_bytes: u64,
}

impl Spare {
    /// Where nobody has said where guests are to be put.
    pub(super) fn make(config: &Config) -> Option<Spare> {
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

    pub(super) fn left_bytes(&self) -> u64 {
        self.left_bytes
    }
}

/// Where guests are put, one directory for each hierarchy.
pub(super) fn directories<'a>(spare: Option<&'a Spare>, config: &'a Config) -> &'a [PathBuf] {
    spare.map_or(&config.guest_cgroup, |spare| spare.groups.directories())
}

/// What guests enter there by, if the right to do so is ours.
pub(super) fn entrance(spare: Option<&Spare>) -> io::Result<Option<OwnedFd>> {
    spare.map(|spare| spare.groups.entrance()).transpose()
}

/// How much all guests may use that use so much already, and whether that is too little for them.
fn allowance(used: u64, free: u64, total: u64, owner_max: Option<u64>) -> (u64, bool) {
    let reserve = (total / RESERVE_PART).min(RESERVE_BYTES_MAX);
    let spare = used.saturating_add(free.saturating_sub(reserve));
    let allowed = owner_max.map_or(spare, |max| max.min(spare));
    (allowed, used > allowed - allowed / 16)
}

impl Daemon {
    /// Sets the limit anew, and sends a guest home if they have come near it.
    pub(super) fn look_after_memory(&mut self, now: Instant) {
        let owner_max = self.wishes.state.guest_memory_max_bytes;
        let Some(spare) = self.spare.as_mut().filter(|spare| spare.next_look <= now) else {
            return;
        };
        // Only now: this comes by with every event, and reads nine files.
        let machine = self.gauge.memory();
        spare.next_look = now + LOOK_INTERVAL;
        let Ok(used) = spare.groups.used_bytes() else { return };
        let (free, total) = (machine.free_bytes, machine.total_bytes);
        let (allowed, is_short) = allowance(used, free, total, owner_max);
        spare.left_bytes = allowed.saturating_sub(used);
        // Never less than they have: to take it back is not the kernel's business.
        if let Err(error) = spare.groups.limit(allowed.max(used.saturating_add(SLACK_BYTES))) {
            tracing::debug!("memory for guests: {error}");
        }
        if (is_short || spare.groups.is_full()) && spare.next_relief <= now {
            // What guests have left goes before any that is here.
            let next_relief = now + RELIEF_INTERVAL;
            if self.give_back_imprints(u64::MAX) {
                return;
            }
            if let Some(spare) = &mut self.spare {
                spare.next_relief = next_relief;
            }
            self.relieve_memory();
        }
    }

    fn relieve_memory(&mut self) {
        let here = self.guests.values_mut();
        let here = here.filter(|guest| guest.local_pid().is_some() && !guest.is_sent_home);
        let Some(largest) = here.max_by_key(|guest: &&mut Guest| guest.rss_bytes) else { return };
        tracing::info!("memory for guests is short: process {} is sent home", largest.process);
        largest.is_sent_home = largest.supervisor.send(&ToBody::SendHome, None);
    }
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
