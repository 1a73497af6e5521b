//! What a body that has left leaves here of its memory ([decision
//! 0023](../../../docs/decisions/0023-pages-of-earlier-guests.md)): taken down when nobody waits
//! for it any more, and given to the daemon.

use crate::tracing_loop::Tracing;
use kernel::proc::cgroup::Mounts;
use kernel::proc::room::{self, Memory};
use migrate::{ahead, imprint};
use wire::supervisor::FromBody;

/// So much of all memory (a fourth) stays free, as for what home keeps of those that are away.
const ROOM_PARTS: u64 = 4;

impl Tracing<'_> {
    /// Whether it is worth it, and the owner of the node did not want it gone.
    pub(crate) fn leaves_imprint(&self) -> bool {
        let resident = kernel::proc::process::resident_bytes(self.shared.pid).unwrap_or(0);
        self.unwanted_since.is_none() && resident >= ahead::BYTES_MIN
    }

    /// Leaves the body's pages for when its process comes again, if there is room for them.
    pub(crate) fn leave_imprint(&mut self) {
        // What comes from home, or from threads of the body, is of no interest any more.
        self.shared.close();
        let places = Mounts::read().places_of("self");
        let spare = || {
            let Memory { total_bytes, free_bytes } = room::memory(&places);
            free_bytes.saturating_sub(total_bytes / ROOM_PARTS)
        };
        let daemon = self.daemon;
        let mut goes_on = || {
            // A daemon that wants nothing of it hangs up. What it has to say is for a body.
            let is_wanted = matches!(daemon.hear(), Ok(None)) && daemon.socket().is_some();
            is_wanted && spare() > 0
        };
        match imprint::take(self.shared.pid, spare(), &mut goes_on) {
            Ok(Some(file)) => drop(daemon.hand_over(&FromBody::Imprint, &file)),
            Ok(None) => {}
            Err(error) => {
                ::tracing::debug!("body of {} leaves nothing: {error}", self.shared.guest_pid);
            }
        }
    }
}
