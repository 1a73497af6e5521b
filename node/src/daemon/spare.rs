//! Sees to it that guests get no more memory than there is to spare ([`crate::spare`]).

use super::Daemon;
use crate::guest::Guest;
use std::time::Instant;
use wire::supervisor::ToBody;

impl Daemon {
    /// Sets the limit anew, and sends a guest home if they have come near it.
    pub(super) fn look_after_memory(&mut self, now: Instant) {
        let owner_max = self.wishes.state.guest_memory_max_bytes;
        let spare = self.hosting.spare_mut();
        let Some(spare) = spare.filter(|spare| spare.is_look_due(now)) else { return };
        // Only now: this comes by with every event, and reads nine files.
        let machine = self.load.memory_now();
        // What guests have left goes before any that is here.
        if !spare.look(now, machine, owner_max) || self.give_back_imprints(u64::MAX) {
            return;
        }
        if let Some(spare) = self.hosting.spare_mut() {
            spare.relieved(now);
        }
        self.relieve_memory();
    }

    fn relieve_memory(&mut self) {
        let here = self.hosting.guests_mut();
        let here = here.filter(|guest| guest.local_pid().is_some() && !guest.is_sent_home);
        let Some(largest) = here.max_by_key(|guest: &&mut Guest| guest.rss_bytes) else { return };
        tracing::info!("memory for guests is short: process {} is sent home", largest.process);
        largest.is_sent_home = largest.supervisor.send(&ToBody::SendHome, None);
    }
}
